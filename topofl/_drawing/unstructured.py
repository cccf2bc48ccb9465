"""Layouts of graphs without a known structure: spring layout and spectral layout."""

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import shortest_path

from topofl._drawing.shapes import degrees_of, normalized

__all__ = ["spectral_layout", "spring_layout"]

ITERATIONS = 100


def spring_layout(support: sparse.csr_array) -> np.ndarray:
    """Return the spring layout of a connected graph, with springs as long as distances in hops.

    It minimizes ``sum (|x_i - x_j| / d_ij - 1)^2`` by stress majorization, starting at
    :func:`spectral_layout`.

    References
    ----------
    Kamada and Kawai, "An algorithm for drawing general undirected graphs" (1989), for the springs;
    Gansner, Koren and North, "Graph drawing by stress majorization" (2004).
    """
    from scipy.spatial.distance import cdist

    hops = np.asarray(shortest_path(support, directed=False, unweighted=True))
    np.fill_diagonal(hops, np.inf)
    stiffness = hops**-2
    laplacian = np.diag(stiffness.sum(axis=1)) - stiffness
    inverse = np.linalg.pinv(laplacian, hermitian=True)
    positions = spectral_layout(support) * hops[np.isfinite(hops)].max() / 2
    for _ in range(ITERATIONS):
        distances = np.maximum(cdist(positions, positions), 1e-9)
        pulls = 1 / (hops * distances)
        positions = inverse @ (pulls.sum(axis=1)[:, None] * positions - pulls @ positions)
    return _push_apart(normalized(positions))


def spectral_layout(support: sparse.csr_array) -> np.ndarray:
    """Return the spectral layout: the two slowest modes of a lazy random walk on the graph.

    They are computed by subspace iteration.
    """
    n = support.shape[0]
    degrees = np.maximum(degrees_of(support), 1.0)
    root = np.sqrt(degrees)
    basis = np.stack([root, *np.random.default_rng(0).standard_normal((2, n))], axis=1)
    for _ in range(200):
        basis, _ = np.linalg.qr(basis)
        basis = (basis + (support @ (basis / root[:, None])) / root[:, None]) / 2
    basis, _ = np.linalg.qr(basis)
    positions = basis[:, 1:] / root[:, None]
    return _push_apart(normalized(positions / (np.abs(positions).max(axis=0) + 1e-12)))


def _push_apart(positions: np.ndarray) -> np.ndarray:
    """Return the positions after pushing nodes that are too close apart, in small steps."""
    from scipy.spatial import cKDTree

    n = len(positions)
    wanted = 0.9 / np.sqrt(n)
    k = np.arange(n)
    # Shifted slightly, so that no two are equal.
    positions = positions + 1e-3 * wanted * np.stack([np.cos(2.4 * k), np.sin(2.4 * k)], axis=1)
    for _ in range(100):
        pairs = cKDTree(positions).query_pairs(wanted, output_type="ndarray")
        if len(pairs) == 0:
            break
        gap = positions[pairs[:, 0]] - positions[pairs[:, 1]]
        distance = np.linalg.norm(gap, axis=1, keepdims=True)
        push = 0.3 * (1.02 * wanted - distance) * gap / distance
        np.add.at(positions, pairs[:, 0], push)
        np.add.at(positions, pairs[:, 1], -push)
    return positions
