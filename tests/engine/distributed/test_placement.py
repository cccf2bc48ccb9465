"""What a rank has: its nodes, few edges to those of others, their minibatches, and traffic."""

import itertools

import networkx as nx
import numpy as np
import pytest
import torch

import topofl
from topofl import data, topologies
from topofl._linalg.bisection import cut_edges
from topofl._support.seeding import stream
from topofl.engine import ranks
from topofl.engine.joining import place
from topofl.engine.minibatches import Batches
from topofl.engine.ranks import Ranks


def clique_graph(n=40):
    clients = data.shards(data.digits(), n=n, per_node=2, seed=0)
    return topologies.dcliques(clients.label_counts, clique_size=10, inter="ring", steps=10, seed=0)


def relabeled(graph, seed=0):
    order = np.random.default_rng(seed).permutation(graph.n)
    return topofl.Topology(graph.adjacency[order][:, order])


GRAPHS = [
    topologies.ring(7),
    topologies.star(5),
    topologies.torus(36),
    topologies.fully_connected(6),
    topofl.as_topology(nx.cycle_graph(5, create_using=nx.DiGraph)),
    topofl.as_topology([(0, 1), (2, 3), (4, 5)]),
    topologies.one_peer_exponential(8),
    clique_graph(),
]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_rank_has_nodes_and_the_first_rank_the_first(graph, size):
    owner, method = place(graph, size)
    counts = np.bincount(owner, minlength=size)
    assert len(counts) == size
    assert counts.min() >= 1
    assert owner[0] == 0
    if method in ("consecutive nodes", "spectral bisection"):
        assert counts.max() - counts.min() <= 1 + (size > 2)
    np.testing.assert_array_equal(place(graph, size)[0], owner)


@pytest.mark.parametrize("n", [20, 100])
def test_a_ring_in_random_order_is_cut_into_arcs(n):
    graph = relabeled(topologies.ring(n))
    owner, method = place(graph, 4)
    assert method == "spectral bisection"
    assert cut_edges(graph.adjacency, owner) == 8  # both directions of 4 edges, the fewest


def test_cliques_stay_whole():
    graph = clique_graph()
    owner, _ = place(graph, 2)
    assert all(len(set(owner[list(group)])) == 1 for group in graph.groups)
    consecutive = np.repeat([0, 1], 20)
    assert cut_edges(graph.adjacency, owner) < cut_edges(graph.adjacency, consecutive) / 5


def test_a_given_placement_is_used():
    owner, method = place(topologies.ring(4), 2, [1, 0, 1, 0])
    assert (owner.tolist(), method) == ([1, 0, 1, 0], "given")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 1], "the rank of each of the n=4 nodes, got shape"),
        ([0, 0, 0, 0], "to all ranks 0 to 1 and to no others, got ranks"),
        ([0, 1, 2, 0], "to all ranks 0 to 1 and to no others, got ranks"),
    ],
)
def test_wrong_placements_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        place(topologies.ring(4), 2, given)


@pytest.mark.parametrize(("size", "sent"), [(1, 0), (2, 1200), (3, 1600), (4, 1800), (5, 1920)])
def test_a_sum_sends_what_a_ring_reduction_sends(size, sent, monkeypatch):
    """Each rank sends 2 (size - 1) parts of 1/size of the values: 300 of 4 bytes here."""
    monkeypatch.setattr(ranks.dist, "all_reduce", lambda *_, **__: None)
    monkeypatch.setattr(Ranks, "_call", lambda _, function: function())
    rank = Ranks(0, size, np.arange(60) % size, torch.device("cpu"))
    rank.sum_(torch.ones(300))
    assert rank.sent == sent


def test_minibatches_of_some_nodes_are_bitwise_those_of_all():
    rng = stream(0, "members", 0)
    members, keys = [rng.permutation(90)[:size] for size in (3, 11, 7, 20)], []
    everyone = Batches(members, 5, draws=True)
    some = Batches(members[1::2], 5, nodes=np.array([1, 3]), draws=True)
    for step, size, phase in itertools.product(range(9), (1, 4), ("local", "other")):
        whole, part = (one.at(step, size, phase) for one in (everyone, some))
        assert torch.equal(part.keys, whole.keys[1::2])
        assert torch.equal(whole.of(np.array([3, 1])).keys, whole.keys[[3, 1]])
        keys += [whole.keys] if size == 1 else []
        counts = [
            (torch.ones(one.indices.shape) if one.weights is None else one.weights > 0).sum(1)
            for one in (whole, part)
        ]
        assert counts[1].tolist() == counts[0][1::2].tolist()
        for row, of_all in zip(part.indices, whole.indices[1::2], strict=True):
            assert row.tolist() == of_all[: len(row)].tolist()
    assert len(torch.cat(keys).unique()) == 9 * 2 * 4, "each node and step of a phase has its own"
