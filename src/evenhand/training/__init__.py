"""Models that trade accuracy for fairness: the penalty, fitters, paths, the recommended model."""
