"""Entropies of the group given variables: probabilistic classifiers, neighbors, densities."""
