"""What each command does between its options and its output."""
