"""Messages and bytes: known values, and the counts of the D-Cliques paper."""

import networkx as nx
import numpy as np
import pytest

from topofl import mixing
from topofl.metrics import Cost, round_cost
from topofl.topology import Topology, as_topology, from_edges


def dcliques(n: int, size: int = 10) -> Topology:
    """Return cliques of consecutive nodes, each pair connected at its least loaded nodes."""
    groups = np.arange(n).reshape(-1, size)
    edges = [(i, j) for group in groups.tolist() for i in group for j in group if i < j]
    loads = np.zeros(n, dtype=int)
    for a in range(len(groups)):
        for b in range(a + 1, len(groups)):
            ends = [group[loads[group].argmin()] for group in (groups[a], groups[b])]
            loads[ends] += 1
            edges.append((int(ends[0]), int(ends[1])))
    return from_edges(edges, n, groups=groups.tolist())


def test_star_by_hand():
    matrix = mixing.metropolis_hastings(as_topology(nx.star_graph(3)))
    assert round_cost(matrix, 100) == Cost(6, 2400, 6, 2400, "exact")
    assert round_cost(matrix, 100, itemsize=2) == Cost(6, 1200, 6, 1200, "exact")


def test_directions_are_counted_separately():
    # 0 -> 1, 0 -> 2, 1 -> 2: three messages; each node has two in and out together.
    matrix = mixing.uniform(from_edges([(0, 1), (0, 2), (1, 2)], 3, directed=True))
    assert round_cost(matrix, 1) == Cost(3, 12, 2, 8, "exact")


def test_without_edges_there_are_no_messages():
    assert round_cost(mixing.from_weights(np.eye(3)), 5) == Cost(0, 0, 0, 0, "exact")


@pytest.mark.parametrize(
    ("n", "plain", "paper", "exact"), [(100, 9.9, 2 * 9.9, 18.9), (1000, 18.9, 37.8, 27.9)]
)
def test_messages_per_node_of_dcliques(n, plain, paper, exact):
    graph = dcliques(n)
    models, gradients = mixing.metropolis_hastings(graph), mixing.within_groups(graph)
    for accounting, expected in (("paper", paper), ("exact", exact)):
        cost = round_cost(models, 7850, gradient_mixing=gradients, accounting=accounting)
        assert cost.messages / n == pytest.approx(expected, abs=1e-12)
        assert cost.bytes == cost.messages * 7850 * 4
        assert cost.accounting == accounting
        assert round_cost(models, 7850, accounting=accounting).messages / n == pytest.approx(
            plain, abs=1e-12
        )


def test_busiest_node_of_clique_averaging():
    graph = dcliques(
        20
    )  # two cliques and a bridge: its ends have degree 10, of which 9 in the clique
    models, gradients = mixing.metropolis_hastings(graph), mixing.within_groups(graph)
    exact = round_cost(models, 1, gradient_mixing=gradients)
    paper = round_cost(models, 1, gradient_mixing=gradients, accounting="paper")
    assert (exact.busiest_messages, paper.busiest_messages) == (2 * (10 + 9), 2 * (10 + 10))
    assert exact.busiest_bytes == 4 * exact.busiest_messages


def test_bad_input():
    graph = from_edges([(0, 1)], 2)
    matrix = mixing.metropolis_hastings(graph)
    with pytest.raises(TypeError, match="`mixing` must be a MixingMatrix, got Topology"):
        round_cost(graph, 1)
    with pytest.raises(TypeError, match="`gradient_mixing`"):
        round_cost(matrix, 1, gradient_mixing=graph)
    with pytest.raises(ValueError, match="`gradient_mixing` must have n=2"):
        round_cost(matrix, 1, gradient_mixing=mixing.from_weights(np.eye(3)))
    with pytest.raises(ValueError, match="`n_parameters`"):
        round_cost(matrix, 0)
    with pytest.raises(ValueError, match="`itemsize`"):
        round_cost(matrix, 1, itemsize=0)
    with pytest.raises(ValueError, match="`accounting` must be one of 'exact', 'paper'"):
        round_cost(matrix, 1, accounting="papers")
