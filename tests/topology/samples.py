"""Graphs and comparisons that several tests of topologies use."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sparse

from topofl import topologies
from topofl.topology import Topology, from_edges

EDGES = [(0, 1), (1, 2), (2, 0), (2, 3)]


def directed() -> Topology:
    return from_edges(EDGES, 5, directed=True, name="directed")


def weighted(is_directed: bool) -> Topology:
    matrix = np.zeros((4, 4))
    matrix[0, 1], matrix[1, 2], matrix[3, 0] = 0.5, 2.0, 1.5
    return Topology(sparse.csr_array(matrix if is_directed else matrix + matrix.T), name="weighted")


def equal(a: Topology, b: Topology) -> bool:
    return a.n == b.n and (a.adjacency != b.adjacency).nnz == 0


SAMPLES = [
    topologies.ring(8),
    topologies.star(5),
    topologies.grid(12),
    topologies.exponential(9),
    topologies.random_regular(10, 3, seed=0),
    topologies.dcliques(n=23, clique_size=5, inter="ring", seed=0),
    from_edges([(0, 1), (2, 3)], 5),
    from_edges([], 1),
]


undirected_samples = pytest.mark.parametrize("graph", SAMPLES, ids=lambda graph: graph.name)


def pairs(graph: Topology) -> set[tuple[int, int]]:
    return {(u, v) for u, v in graph.edge_index.T.tolist() if u < v}


def pyg(**fields):
    """Return a graph of PyG, imported without the deprecation warnings of its own imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.data import Data
    return Data(**fields)
