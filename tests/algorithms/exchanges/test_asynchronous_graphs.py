"""Arguments, graphs and attackers of asynchronous methods."""

import sys

import numpy as np
import pytest

import topofl
from tests import problems
from tests.algorithms.exchanges.asynchronous_runs import run
from topofl import algorithms, attacks, topologies


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: algorithms.ad_psgd(0.1, clock={"compute": [1, 2]}),
            ValueError,
            "`clock.compute`.*n=4, got shape",
        ),
        (
            lambda: algorithms.random_walks(0.1, clock={"delay": np.ones((3, 3))}),
            ValueError,
            "`clock.delay`.*n=4, got shape",
        ),
        (
            lambda: algorithms.random_walks(0.1, walks=5),
            ValueError,
            "`walks` must be between 1 and n=4, got 5",
        ),
        (lambda: algorithms.random_walks(0.1, walks=0), ValueError, "`walks`"),
        (lambda: algorithms.random_walks(0.1, merge="yes"), ValueError, "`merge`"),
        (lambda: algorithms.timed(0.1), TypeError, "`algorithm` must be an Algorithm"),
        (
            lambda: algorithms.timed(algorithms.timed(algorithms.dsgd(0.1))),
            ValueError,
            "`algorithm` must not be timed already .* got dsgd with phases local, exchange, "
            "clock; call timed once",
        ),
        (
            lambda: algorithms.timed(algorithms.centralized(0.1), {"compute": [1, 1, 1, 2]}),
            ValueError,
            r"`compute` must be one number for centralized, .* got "
            r"a table of shape \(4,\); give the seconds",
        ),
        (
            lambda: algorithms.timed(algorithms.centralized(0.1), {"delay": np.ones((4, 4))}),
            ValueError,
            r"`delay` must be one number for centralized, .* got a table of shape \(4, 4\); give",
        ),
        (
            lambda: algorithms.timed(algorithms.ad_psgd(0.1)),
            ValueError,
            "`algorithm` must be synchronous, .* itself; run it without timed",
        ),
        (
            lambda: algorithms.timed(algorithms.fedavg(0.1), {"delay": np.ones((4, 4))}),
            ValueError,
            "with a server",
        ),
    ],
    ids=[
        "compute",
        "delay",
        "walks",
        "no walk",
        "merge",
        "number",
        "twice",
        "pooled",
        "pooled delay",
        "asynchronous",
        "server",
    ],
)
def test_bad_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        run(build(), 1, topologies.ring(4))


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_directed_graphs_are_refused(build):
    with pytest.raises(topofl.TopologyError, match="must be undirected"):
        run(build(0.1), 1, topologies.exponential(6, directed=True))


EVERY_OTHER = [topologies.ring(6), topologies.exponential(6, directed=True)]


REFUSED = {
    "directed": (
        topologies.exponential(6, directed=True),
        "`topology` must be undirected for .*give undirected graphs",
    ),
    "directed in one round": (
        EVERY_OTHER,
        "`topology` must be undirected for .*give undirected graphs",
    ),
    "none": (None, "`topology` must be given"),
    "in parts": (np.kron(np.eye(2), 1 - np.eye(3)), "`topology` must be connected"),
}


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
@pytest.mark.parametrize("case", REFUSED)
def test_unsuitable_graphs_raise(case, build):
    graph, message = REFUSED[case]
    graph = topofl.as_topology(graph) if graph is not None else None
    with pytest.raises((TypeError, ValueError), match=message):
        run(build(0.1), 4, graph, clients=problems.equal_clients(6))


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_graphs_may_change(build):
    graphs = [topologies.ring(6), topologies.star(6)]
    history = run(build(0.1), 6, topofl.as_topology(graphs), clients=problems.equal_clients(6))
    assert history["messages"].sum() > 0


def test_walks_follow_the_edges_of_the_round_in_which_they_leave(monkeypatch):
    graphs, hops = [topologies.ring(6), topologies.star(6)], []
    module = sys.modules[algorithms.random_walks.__module__]

    def send_along(round, pairs, *rest):
        hops.append((round.t, list(pairs)))
        return original(round, pairs, *rest)

    original = module.send_along
    monkeypatch.setattr(module, "send_along", send_along)
    walks = algorithms.random_walks(0.1, walks=3)
    run(walks, 6, topofl.as_topology(graphs), clients=problems.equal_clients(6))
    moved = [(t, i, j) for t, pairs in hops for i, j in pairs]
    assert {t for t, _, _ in moved} == set(range(6))
    assert all(graphs[t % 2].adjacency[i, j] for t, i, j in moved)


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
@pytest.mark.parametrize(
    "attack",
    [attacks.sign_flip([1]), attacks.noise([1], 1.0), attacks.alie([1], z=1.0)],
    ids=["sign_flip", "noise", "alie"],
)
def test_attacks_work_on_asynchronous_runs(attack, build):
    how = {"clients": problems.equal_clients(6), "every": 1}
    found = run(build(0.1), 6, topologies.ring(6), attackers=attack, **how)
    plain = run(build(0.1), 6, topologies.ring(6), **how)
    honest = np.arange(6) != 1
    assert np.isfinite(found["loss"][:, honest]).all()
    assert np.isnan(found["loss"][:, 1]).all()
    assert not np.allclose(found["loss"][:, honest], plain["loss"][:, honest]), (
        "the attack reaches nobody"
    )
    np.testing.assert_array_equal(found["simulated_seconds"], plain["simulated_seconds"])


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_attacks_with_different_messages_per_neighbor_raise(build):
    said = (
        f"`attackers` must send the same to all neighbors for {build.__name__}"
        ".*'dissensus'.*use sign_flip, noise or alie"
    )
    with pytest.raises(ValueError, match=said):
        run(build(0.1), 1, topologies.ring(6), attackers=attacks.dissensus([1], 1.0))
