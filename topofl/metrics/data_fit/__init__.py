"""Metrics of data heterogeneity over graphs: labels and gradients of neighborhoods."""
