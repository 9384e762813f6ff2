"""A loss, a design and the penalty: ridge, group features, post-processing."""
