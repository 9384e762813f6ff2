"""Criteria, bases, estimators, entropies, measures and tests of exact fairness."""
