"""Who belongs to which group: columns in, labels, crossing, proxies, weights, clusters, folds."""
