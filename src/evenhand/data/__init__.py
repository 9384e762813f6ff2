"""The rows: scores, targets, groups, weights, clusters, controls, folds."""
