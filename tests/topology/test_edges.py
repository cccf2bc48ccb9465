"""Graphs from edge lists."""

import numpy as np
import pytest

from tests.topology.samples import EDGES
from topofl.topology import from_edges


@pytest.mark.parametrize(
    "edges", [EDGES, np.array(EDGES), set(EDGES), (edge for edge in EDGES), [*EDGES, EDGES[0]]]
)
def test_from_edges_takes_any_pairs_and_counts_repeated_ones_once(edges) -> None:
    graph = from_edges(edges, 5, name="mine", groups=[[0, 1], [4]])
    assert {tuple(sorted(edge)) for edge in graph.edge_index.T.tolist()} == {
        tuple(sorted(edge)) for edge in EDGES
    }
    assert (graph.n, graph.n_edges) == (5, 4)
    assert (graph.adjacency.data == 1).all()
    assert not graph.is_directed
    assert graph.name == "mine"
    assert graph.groups == ((0, 1), (4,))


def test_from_edges_without_edges() -> None:
    for edges in ([], np.zeros((0, 2)), np.zeros((0, 2), int)):
        assert from_edges(edges, 3).n_edges == 0


@pytest.mark.parametrize(
    ("edges", "n", "error", "match"),
    [
        ([(0, 3)], 3, ValueError, r"`edges` must join nodes 0..2, got node 3"),
        ([(-1, 1)], 3, ValueError, r"`edges` must join nodes 0..2, got node -1"),
        ([(1, 1)], 3, ValueError, "self-loops, got one at node 1"),
        ([(0.0, 1.0)], 3, TypeError, "`edges` must be pairs of integers, got dtype float64"),
        (
            [(0, 1, 2), (1, 2, 0)],
            3,
            ValueError,
            r"`edges` must be pairs \(source, target\), got shape \(2, 3\)",
        ),
        ([0, 1], 3, ValueError, r"`edges` must be pairs \(source, target\), got shape \(2,\)"),
        ([(0, 1), (2,)], 3, ValueError, r"`edges` must be pairs \(source, target\)"),
        ([], 0, ValueError, "`n` must be at least 1, got 0"),
        ([], 2.0, TypeError, "`n` must be an integer"),
    ],
)
def test_bad_edges(edges, n, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        from_edges(edges, n)
