"""Robust rules equal naive loops and closed forms; errors and settings."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import trim_mean

import topofl
from tests import naive, problems
from tests.algorithms.exchanges.attacked_runs import attacked, blobs
from tests.algorithms.harness import BATCH, HOW, ROUNDS, N, check, engine, nodes_at_start
from topofl import algorithms, mixing, topologies

GRAPH = topologies.random_regular(N, 3, seed=1)


WEIGHTS = mixing.metropolis_hastings(GRAPH)


INF = float("inf")


METHODS = {
    "fixed radius": (algorithms.clipped_gossip, {"tau": 0.05}, naive.clipping(tau=0.05)),
    "own radius": (algorithms.clipped_gossip, {"delta": 0.25}, naive.clipping(delta=0.25)),
    "own radius of two": (algorithms.clipped_gossip, {"delta": 0.3}, naive.clipping(delta=0.3)),
    "median": (algorithms.coordinate_median, {}, naive.medians),
    "trimmed": (algorithms.trimmed_mean, {"trim": 1}, naive.trimming(1)),
}


BY_METHOD = pytest.mark.parametrize(("method", "options", "rule"), METHODS.values(), ids=METHODS)


@HOW
@BY_METHOD
def test_methods_equal_naive_loops(method, options, rule, settings):
    clients, model, local = (
        problems.ragged_clients(),
        problems.convolutional(),
        {"momentum": 0.5, "local_steps": 2},
    )
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    naive.robust(nodes, WEIGHTS.weights.toarray(), ROUNDS, lr=0.1, rule=rule, **local)
    _, found = engine(
        method(0.1, batch_size=BATCH, **options, **local), model, clients, GRAPH, **settings
    )
    check(nodes.flat(), found.flat, start)


@HOW
@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_self_centered_clipping_equals_its_naive_loop(alpha, settings):
    clients, model = problems.ragged_clients(), problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    rule = naive.clipping(tau=0.05)
    naive.robust(nodes, WEIGHTS.weights.toarray(), ROUNDS, lr=0.5, rule=rule, alpha=alpha)
    algorithm = algorithms.self_centered_clipping(0.5, tau=0.05, alpha=alpha, batch_size=BATCH)
    _, found = engine(algorithm, model, clients, GRAPH, **settings)
    check(nodes.flat(), found.flat, start)


@pytest.mark.parametrize(
    ("method", "other", "rule"),
    [
        (
            algorithms.clipped_gossip(0.1, tau=INF, batch_size=BATCH),
            algorithms.dsgd(0.1, batch_size=BATCH),
            None,
        ),
        (
            algorithms.clipped_gossip(0.1, tau=1e6, batch_size=BATCH),
            algorithms.dsgd(0.1, batch_size=BATCH),
            None,
        ),
        (
            algorithms.trimmed_mean(0.1, 0, batch_size=BATCH),
            algorithms.dsgd(0.1, batch_size=BATCH),
            mixing.uniform,
        ),
        (
            algorithms.self_centered_clipping(0.1, delta=0.3, alpha=1.0, batch_size=BATCH),
            algorithms.clipped_gossip(0.1, delta=0.3, batch_size=BATCH),
            None,
        ),
    ],
    ids=["no radius", "a large radius", "nothing trimmed", "no average"],
)
def test_reductions(method, other, rule):
    clients, model = problems.ragged_clients(), problems.convolutional()
    graph = topologies.grid(6)  # degrees 2 and 3
    (one, mine), (two, plain) = (
        engine(each, model, clients, graph, mixing=rule) for each in (method, other)
    )
    torch.testing.assert_close(mine.flat, plain.flat, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(one["bytes"], two["bytes"])


def test_messages_hold_one_number_a_parameter():
    history, found = engine(
        algorithms.coordinate_median(0.1), problems.linear(), problems.equal_clients(), GRAPH
    )
    np.testing.assert_array_equal(history["messages"], 3 * N)
    np.testing.assert_array_equal(history["bytes"], 3 * N * found.flat.shape[1] * 8)


def exchanged(algorithm, own, received, shares=None):
    """Return the result of a method's exchange for one node's row and the received rows."""
    own, received = (
        torch.as_tensor(own, dtype=torch.float64),
        torch.as_tensor(received, dtype=torch.float64),
    )
    shares = (
        torch.full((len(received),), 1 / (len(received) + 1))
        if shares is None
        else torch.as_tensor(shares)
    )
    made = []
    door = SimpleNamespace(
        weights=None,
        aggregate=lambda weights, values, rule: made.append(rule(values, received, shares.to(own))),
    )
    algorithm.phases["exchange"].apply(SimpleNamespace(flat=own), {}, door)
    return made[0]


@pytest.mark.parametrize(
    ("received", "wanted"),
    [
        ([], 1.0),
        ([3.0], 2.0),
        ([3.0, 100.0], 3.0),
        ([0.0, 3.0, 100.0], 2.0),
        ([INF, -INF], 1.0),
        ([float("nan"), 0.0], 1.0),
        ([float("nan"), 0.0, 0.5, INF], 1.0),
    ],
    ids=["alone", "two", "three", "four", "infinite", "nan", "both"],
)
def test_medians_on_small_examples(received, wanted):
    rows = torch.tensor(received, dtype=torch.float64)[:, None]
    assert exchanged(algorithms.coordinate_median(0.1), [1.0], rows).tolist() == [wanted]


@pytest.mark.parametrize(
    ("trim", "received", "wanted"),
    [
        (0, [3.0], 2.0),
        (1, [2.0, 9.0, -9.0], 1.5),
        (1, [5.0, INF, float("nan"), -INF, 3.0], float("inf")),
        (2, [5.0, INF, float("nan"), -4.0, 3.0], 3.0),
        (1, [], 1.0),
    ],
    ids=["none", "one", "too few", "two", "alone"],
)
def test_trimmed_means_on_small_examples(trim, received, wanted):
    rows = torch.tensor(received, dtype=torch.float64)[:, None]
    assert exchanged(algorithms.trimmed_mean(0.1, trim), [1.0], rows).tolist() == [wanted]


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_medians_are_those_of_numpy(k):
    rows = torch.from_numpy(np.random.default_rng(k).standard_normal((k + 1, 40)))
    made = exchanged(algorithms.coordinate_median(0.1), rows[0], rows[1:])
    np.testing.assert_allclose(made, np.median(rows, axis=0), rtol=0, atol=1e-15)


@pytest.mark.parametrize(("k", "trim"), [(3, 1), (6, 2), (9, 0), (9, 4)])
def test_trimmed_means_are_those_of_scipy(k, trim):
    """Received values are trimmed; the node's own value is averaged with the remaining ones."""
    rows = torch.from_numpy(np.random.default_rng(k).standard_normal((k + 1, 40)))
    left = k - 2 * trim
    wanted = (rows[0].numpy() + left * trim_mean(rows[1:].numpy(), (trim + 0.5) / k, axis=0)) / (
        left + 1
    )
    made = exchanged(algorithms.trimmed_mean(0.1, trim), rows[0], rows[1:])
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-15)


def test_clipping_on_a_small_example():
    """Of two neighbors, at distances 1 and 10, the further is cut to 2."""
    received, fixed = [[1.0, 1.0], [7.0, 8.0]], algorithms.clipped_gossip(0.1, tau=2.0)
    made = exchanged(fixed, [1.0, 0.0], received, [0.25, 0.5])
    assert made.tolist() == pytest.approx([1 + 0.5 * 2 * 0.6, 0.25 * 1 + 0.5 * 2 * 0.8])


def test_the_radius_on_a_small_example():
    """Of neighbors at distances 1, 2 and 10 with weights 0.2, delta=0.2 leaves the last out."""
    received = [[1.0], [-2.0], [10.0]]
    made = exchanged(algorithms.clipped_gossip(0.1, delta=0.2), [0.0], received, [0.2, 0.2, 0.2])
    radius = np.sqrt(0.2 * (1 + 4) / 0.2)
    assert made.item() == pytest.approx(0.2 * (1 - 2 + radius))
    made = exchanged(algorithms.clipped_gossip(0.1, delta=0.3), [0.0], received, [0.2, 0.2, 0.2])
    radius = np.sqrt(0.2 * 1 / 0.3)
    assert made.item() == pytest.approx(0.2 * (radius - radius + radius))


@pytest.mark.parametrize(
    "options", [{"tau": 0.5}, {"tau": INF}, {"delta": 0.3}], ids=["tau", "no tau", "delta"]
)
def test_messages_that_are_not_finite_are_left_out(options):
    received = [[0.1, 0.2], [INF, 0.0], [float("nan"), 1.0]]
    made = exchanged(algorithms.clipped_gossip(0.1, **options), [0.0, 0.0], received)
    alone = exchanged(algorithms.clipped_gossip(0.1, tau=0.5), [0.0, 0.0], received[:1], [0.25])
    if "delta" not in options:
        torch.testing.assert_close(made, alone)
    assert torch.isfinite(made).all()


def lies(count, d, scale, rng):
    """Rows that attackers may send: huge, small, infinite, or none at all."""
    rows = torch.from_numpy(rng.normal(size=(count, d)) * scale)
    return torch.where(
        torch.from_numpy(rng.random((count, d)) < 0.1), rng.choice([INF, -INF, float("nan")]), rows
    )


@pytest.mark.parametrize("scale", [0.5, 10.0, 1e12])
@pytest.mark.parametrize(
    ("algorithm", "honest", "bad"),
    [
        (algorithms.trimmed_mean(0.1, 1), 2, 1),
        (algorithms.trimmed_mean(0.1, 3), 9, 3),
        (algorithms.trimmed_mean(0.1, 3), 9, 1),
        (algorithms.coordinate_median(0.1), 2, 2),
        (algorithms.coordinate_median(0.1), 5, 5),
        (algorithms.coordinate_median(0.1), 6, 1),
    ],
)
def test_tolerated_attackers_do_not_move_models_out_of_the_hull(algorithm, honest, bad, scale):
    rng = np.random.default_rng(0)
    for _ in range(50):
        good = torch.from_numpy(rng.normal(size=(honest + 1, 8)))
        made = exchanged(algorithm, good[0], torch.cat([good[1:], lies(bad, 8, scale, rng)]))
        assert (made >= good.min(0).values - 1e-12).all()
        assert (made <= good.max(0).values + 1e-12).all()


@pytest.mark.parametrize(
    ("algorithm", "honest", "bad"),
    [(algorithms.trimmed_mean(0.1, 1), 2, 2), (algorithms.coordinate_median(0.1), 2, 3)],
    ids=["trimmed", "median"],
)
def test_one_attacker_more_moves_models_anywhere(algorithm, honest, bad):
    good = torch.randn(honest + 1, 4, dtype=torch.float64)
    made = exchanged(algorithm, good[0], torch.cat([good[1:], torch.full((bad, 4), 1e9)]))
    assert (made > 1e7).all()


@pytest.mark.parametrize("options", [{"tau": 0.7}, {"delta": 0.4}], ids=["tau", "delta"])
@pytest.mark.parametrize("scale", [0.1, 10.0, 1e12])
def test_attackers_move_a_clipped_model_by_their_weight_times_the_radius(options, scale):
    """With a radius of one's own, which they cannot widen beyond that of the honest neighbors."""
    rng, algorithm = np.random.default_rng(0), algorithms.clipped_gossip(0.1, **options)
    for _ in range(50):
        good, weighing = torch.from_numpy(rng.normal(size=(6, 8))), rng.uniform(0.02, 0.4)
        split = [0.5 * rng.dirichlet(np.ones(5)), weighing * rng.dirichlet(np.ones(3))]
        received, shares = (
            torch.cat([good[1:], lies(3, 8, scale, rng)]),
            torch.from_numpy(np.concatenate(split)),
        )
        distances = (good[1:] - good[0]).norm(dim=1)
        radius = options.get("tau") or float((shares[:5] * distances.square()).sum() / 0.4) ** 0.5
        reached = exchanged(algorithm, good[0], received, shares) - good[0]
        limit = (shares[:5] * distances.clamp(max=radius)).sum() + shares[5:].sum() * radius
        assert float(reached.norm()) <= float(limit) + 1e-12


def test_errors_in_rules_are_named():
    graph = topofl.Topology(np.zeros((5, 5)))
    rule = algorithms.aggregate(lambda own, received, weights: received[0])
    method = algorithms.chain("mine", local=algorithms.sgd(0.1), exchange=rule)
    how = {"compute": topofl.Compute(on_disconnected="allow"), "rounds": 1, "seed": 0}
    with pytest.raises(
        ValueError,
        match=r"`rule` of aggregate, .* shape \(0, \d+\), but it raised IndexError: index 0",
    ):
        topofl.run(method, model=problems.linear(), clients=blobs(5), topology=graph, **how)


def test_trimming_leaves_at_least_one_value():
    message = (
        r"`mixing` must give more than 2 \* trim neighbors at each node .*ring.*trim=1, "
        r"node 0 receives from 2 .*; add"
    )
    with pytest.raises(topofl.TopologyError, match=message):
        attacked(algorithms.trimmed_mean(0.1, 1), None, topologies.ring(5), rounds=1)
    attacked(algorithms.trimmed_mean(0.1, 0), None, topologies.ring(5), rounds=1)
    attacked(
        algorithms.trimmed_mean(0.1, 2), None, topologies.random_regular(6, 5, seed=0), rounds=1
    )


def test_nodes_without_neighbors_may_trim():
    alone = mixing.from_weights(np.eye(5))
    _, (made,) = attacked(
        algorithms.trimmed_mean(0.1, 1), None, topologies.ring(5), rounds=1, mixing=alone
    )
    _, (plain,) = attacked(algorithms.local_only(0.1), None, topologies.ring(5), rounds=1)
    assert torch.equal(made, plain)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: algorithms.clipped_gossip(0.1),
            ValueError,
            "one of `tau` and `delta` must be given",
        ),
        (
            lambda: algorithms.clipped_gossip(0.1, tau=1.0, delta=0.1),
            ValueError,
            "one of `tau` and `delta`",
        ),
        (lambda: algorithms.clipped_gossip(0.1, tau=0.0), ValueError, "`tau`"),
        (lambda: algorithms.clipped_gossip(0.1, tau=-INF), ValueError, "`tau`"),
        (lambda: algorithms.clipped_gossip(0.1, tau=float("nan")), ValueError, "`tau`"),
        (lambda: algorithms.clipped_gossip(0.1, tau="1"), TypeError, "`tau`"),
        (lambda: algorithms.clipped_gossip(0.1, delta=0.0), ValueError, "`delta`"),
        (lambda: algorithms.clipped_gossip(0.1, delta=1.0), ValueError, "`delta`"),
        (
            lambda: algorithms.clipped_gossip(0.1, tau=1.0, local_steps=0),
            ValueError,
            "`local_steps`",
        ),
        (lambda: algorithms.self_centered_clipping(0.1, tau=1.0, alpha=0.0), ValueError, "`alpha`"),
        (lambda: algorithms.self_centered_clipping(0.1, tau=1.0, alpha=1.1), ValueError, "`alpha`"),
        (lambda: algorithms.self_centered_clipping(0.1), ValueError, "one of `tau` and `delta`"),
        (lambda: algorithms.trimmed_mean(0.1, -1), ValueError, "`trim`"),
        (lambda: algorithms.trimmed_mean(0.1, 0.1), TypeError, "`trim`"),
        (lambda: algorithms.coordinate_median(0.1, momentum=1.0), ValueError, "`momentum`"),
        (lambda: algorithms.coordinate_median("0.1"), TypeError, "`lr`"),
    ],
)
def test_bad_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_settings_hold_the_arguments():
    assert algorithms.clipped_gossip(0.1, delta=0.2).settings == {
        "local": {"lr": 0.1, "batch_size": 128, "steps": 1},
        "exchange": {"weights": "round", "delta": 0.2},
    }
    assert algorithms.trimmed_mean(0.1, 2).settings["exchange"] == {"weights": "round", "trim": 2}


def test_a_run_without_a_radius_can_be_saved(tmp_path):
    history, _ = attacked(algorithms.clipped_gossip(0.1, tau=INF), None, rounds=1)
    history.save(tmp_path / "run")
    assert topofl.History.load(tmp_path / "run").meta["algorithm"] == history.meta["algorithm"]
