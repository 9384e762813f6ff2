"""Criteria of fairness as numbers with errors, tests of exact fairness, counts in cells."""
