"""Results → words, pictures and pages."""
