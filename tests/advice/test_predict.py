"""Predicted rounds of one graph: those of recommend, with what they need and do not know."""

import pytest

from topofl import TopologyError, advice, data, from_edges, topologies

LEAVING = from_edges([(i, (i + 1) % 30) for i in range(30)] + [(0, 2)], n=30, directed=True)
"""A directed ring with a shortcut: node 2 averages over more nodes than it sends to."""


@pytest.fixture(scope="module")
def clients():
    return data.shards(data.digits(), n=30, per_node=2, seed=0)


def test_predictions_are_those_of_recommend(clients):
    settings = {"lr": 0.5, "batch_size": 8}
    found = topologies.recommend(clients, max_degree=3, static=True, **settings)
    for candidate in found.candidates:
        one = advice.predict_rounds(candidate.topology, clients, **settings)
        assert (one.rounds.mean, one.rounds.low, one.rounds.high) == (
            candidate.rounds,
            candidate.low,
            candidate.high,
        )
        assert (one.heterogeneity, one.noise) == (candidate.heterogeneity, candidate.noise)
        assert one.deviation == pytest.approx(candidate.deviation, rel=1e-12)
        assert (one.hops, one.fitted_to) == (found.hops, found.fitted_to)


@pytest.mark.parametrize("settings", [{}, {"hops": 20}, {"lr": 0.5, "batch_size": 8}])
def test_the_complete_graph_takes_exactly_its_own_rounds(clients, settings):
    found = advice.predict_rounds(topologies.fully_connected(30), clients, **settings)
    assert (found.rounds.mean, found.rounds.low, found.rounds.high) == (1, 1, 1)
    assert found.warnings == ()  # nothing was fitted
    assert str(found).startswith("exactly the rounds of the complete graph")
    recommended = topologies.recommend(clients, max_degree=29, static=True, **settings)
    complete = [c for c in recommended.candidates if c.degree == 29 and c.noise < 1e-12]
    assert complete
    assert all((c.rounds, c.low, c.high) == (1, 1, 1) for c in complete)
    others = [c.rounds for c in recommended.candidates if c not in complete]
    assert all(rounds != 1 for rounds in others)


def test_what_is_outside_of_the_fit_is_said(clients):
    ring = topologies.ring(30)
    assert advice.predict_rounds(ring, clients, lr=0.5, batch_size=8).warnings == ()
    unknown = advice.predict_rounds(ring, clients)
    assert ["learning rate" in text for text in unknown.warnings] == [True, False]
    assert "Warning: the predicted rounds are fitted to a batch size of 4 to 128" in str(unknown)
    few = data.one_class_per_node(data.digits(), n=10, seed=0)
    apart = advice.predict_rounds(topologies.ring(10), few, lr=0.5, batch_size=8)
    assert any("number of nodes" in text for text in apart.warnings)


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        (topologies.ring(20), {}, "one row per node: got 30 rows, .* has n=20"),
        (topologies.ring(30), {"hops": 7}, "`hops` must be 10 or 20, .* got 7"),
        (topologies.ring(30), {"hops": "inf"}, "`hops` must be a number"),
        (topologies.ring(30), {"lr": -1}, "`lr` must be"),
        (topologies.ring(30), {"batch_size": 0}, "`batch_size` must be at least 1, got 0"),
        (LEAVING, {}, "doubly stochastic weights that connect all nodes"),
        (topologies.random_cliques(30, clique_size=10, seed=0), {}, "connect all nodes"),
    ],
)
def test_mistakes(clients, graph, options, message):
    kind = TopologyError if "connect" in message else ValueError
    with pytest.raises(kind, match=message):
        advice.predict_rounds(graph, clients, **options)


def test_no_graph_and_no_labels(clients):
    with pytest.raises(TypeError, match="`graph` must be"):
        advice.predict_rounds("ring", clients)
    with pytest.raises(TypeError, match="`clients` must be a Partition"):
        advice.predict_rounds(topologies.ring(30), 30)
