"""Vectors with one value per node, and the Laplacian that acts on them."""

import numpy as np
import scipy.sparse as sparse

__all__ = ["centered", "laplacian", "start_vector"]


def centered(values: np.ndarray) -> np.ndarray:
    """Return the disagreement of (n,) or (n, k) values: their differences from the node mean."""
    return values - values.mean(axis=0)


def start_vector(n: int) -> np.ndarray:
    """Return a fixed random (n,) start vector for iterative eigensolvers."""
    return np.random.default_rng(0).standard_normal(n)


def laplacian(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Return the combinatorial Laplacian ``D - A`` of a symmetric matrix of edge weights."""
    return sparse.csr_array(sparse.diags_array(adjacency.sum(axis=1)) - adjacency)
