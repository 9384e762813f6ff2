"""Scores → value, gradient and curvature of the fairness term."""
