"""Robust rules: closed forms, hulls, accuracy under attack, and numbers of tolerated attackers."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import trim_mean
from torch import nn

import topofl
from tests import problems
from tests.algorithms.harness import EXECUTORS, engine, trail
from topofl import algorithms, attacks, data, mixing, topologies
from topofl._support.seeding import seeded_torch

INF, NAN = float("inf"), float("nan")
MANY = topologies.random_regular(12, 5, seed=3)
MEDIAN = algorithms.coordinate_median(0.1)


def drawn(purpose):
    """Return the generator of a door's keys."""
    return np.random.default_rng(len(purpose))


def trimmed(trim):
    return algorithms.trimmed_mean(0.1, trim)


def clipped(**how):
    return algorithms.clipped_gossip(0.1, **how)


def exchanged(algorithm, own, received, shares=None):
    """Return the result of a method's exchange for one node's row and the received rows."""
    own = torch.as_tensor(own, dtype=torch.float64)
    received = torch.as_tensor(received, dtype=torch.float64).reshape(-1, own.numel())
    equal = torch.full((len(received),), 1 / (len(received) + 1))
    shares = (equal if shares is None else torch.as_tensor(shares)).to(own)
    made = []

    def aggregate(weights, values, rule):
        made.append(rule(values, received, shares))

    door = SimpleNamespace(weights=None, aggregate=aggregate, n=len(received) + 1, rng=drawn)
    algorithm.phases["exchange"].apply(SimpleNamespace(flat=own), {}, door)
    return made[0]


@pytest.mark.parametrize(
    ("algorithm", "received", "wanted"),
    [
        (MEDIAN, [], 1.0),
        (MEDIAN, [INF, -INF], 1.0),
        (MEDIAN, [NAN, 0.0], 1.0),
        (MEDIAN, [NAN, 0.0, 0.5, INF], 1.0),
        (trimmed(1), [5.0, INF, NAN, -INF, 3.0], INF),
        (trimmed(2), [5.0, INF, NAN, -4.0, 3.0], 3.0),
        (trimmed(1), [], 1.0),
    ],
)
def test_small_examples(algorithm, received, wanted):
    assert exchanged(algorithm, [1.0], received).tolist() == [wanted]


@pytest.mark.parametrize(
    ("k", "trim"), [(1, None), (2, None), (5, None), (8, None), (3, 1), (6, 2), (9, 0), (9, 4)]
)
def test_rules_are_those_of_numpy_and_scipy(k, trim):
    """Received values are trimmed; the node's own value is averaged with the remaining ones."""
    rows = torch.from_numpy(np.random.default_rng(k).standard_normal((k + 1, 40)))
    if trim is None:
        made, wanted = exchanged(MEDIAN, rows[0], rows[1:]), np.median(rows, axis=0)
    else:
        left = k - 2 * trim
        inner = trim_mean(rows[1:].numpy(), (trim + 0.5) / k, axis=0)
        made = exchanged(trimmed(trim), rows[0], rows[1:])
        wanted = (rows[0].numpy() + left * inner) / (left + 1)
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-15)


def test_clipping_on_small_examples():
    """Of two neighbors, at distances 1 and 10, the further is cut to 2."""
    made = exchanged(clipped(tau=2.0), [1.0, 0.0], [[1.0, 1.0], [7.0, 8.0]], [0.25, 0.5])
    assert made.tolist() == pytest.approx([1 + 0.5 * 2 * 0.6, 0.25 * 1 + 0.5 * 2 * 0.8])
    received, shares = [[1.0], [-2.0], [10.0]], [0.2, 0.2, 0.2]
    radius = np.sqrt(0.2 * (1 + 4) / 0.2)  # delta=0.2 leaves the last out
    made = exchanged(clipped(delta=0.2), [0.0], received, shares)
    assert made.item() == pytest.approx(0.2 * (1 - 2 + radius))
    radius = np.sqrt(0.2 * 1 / 0.3)
    made = exchanged(clipped(delta=0.3), [0.0], received, shares)
    assert made.item() == pytest.approx(0.2 * (radius - radius + radius))


@pytest.mark.parametrize("options", [{"tau": 0.5}, {"tau": INF}, {"delta": 0.3}], ids=str)
def test_messages_that_are_not_finite_are_left_out(options):
    received = [[0.1, 0.2], [INF, 0.0], [NAN, 1.0]]
    made = exchanged(clipped(**options), [0.0, 0.0], received)
    alone = exchanged(clipped(tau=0.5), [0.0, 0.0], received[:1], [0.25])
    if "delta" not in options:
        torch.testing.assert_close(made, alone)
    assert torch.isfinite(made).all()


MINIMAL = {
    "krum": algorithms.krum(0.1, 2),
    "several": algorithms.krum(0.1, 2, select=3),
    "bulyan": algorithms.bulyan(0.1, 2),
    "geometric_median": algorithms.geometric_median(0.1),
}


def test_krum_on_a_line():
    """Of 0, 1, 3 and 9, with one closest model, 0 and 1 are at a distance of 1; 0 comes first."""
    rows = [1.0], [[9.0], [0.0], [3.0]]
    assert exchanged(algorithms.krum(0.1, 1), *rows).item() == 1
    assert exchanged(algorithms.krum(0.1, 1, select=2), *rows).item() == 0.5
    assert exchanged(algorithms.krum(0.1, 0), *rows).item() == 1
    assert exchanged(algorithms.krum(0.1, 0, select=9), *rows).item() == 13 / 4


@pytest.mark.parametrize("d", [1, 2, 7])
def test_geometric_medians_are_optimal(d):
    """The sum of distances, which is convex, has no descent: unit vectors to all models cancel."""
    rows = torch.from_numpy(np.random.default_rng(d).standard_normal((6, 2 * d + 3)))
    made = exchanged(algorithms.geometric_median(0.1, iterations=3000), rows[0], rows[1:])
    away = made - rows
    assert (away / away.norm(dim=1, keepdim=True)).sum(0).norm() < 1e-6


@pytest.mark.parametrize("algorithm", MINIMAL.values(), ids=MINIMAL)
@pytest.mark.parametrize("scale", [10.0, 1e12])
def test_far_attackers_count_for_nothing(algorithm, scale):
    """What a rule returns stays within the distances between honest models of one of them."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        good = torch.from_numpy(rng.normal(size=(9, 8)))
        made = exchanged(algorithm, good[0], torch.cat([good[1:], lies(2, 8, scale, rng)]))
        assert (made - good).norm(dim=1).min() <= torch.cdist(good, good).max()


@pytest.mark.parametrize("name", ["krum", "bulyan", "geometric_median"])
def test_buckets_are_means_in_a_random_order(name):
    """Of 15 models in a drawn order, three at a time."""
    build = {"attackers": 0} if name != "geometric_median" else {}
    rows = torch.from_numpy(np.random.default_rng(5).standard_normal((15, 4)))
    order = drawn("buckets").random(15).argsort()
    assert sorted(order) != order.tolist()
    means = rows[order].reshape(5, 3, 4).mean(1)
    method = getattr(algorithms, name)
    made = exchanged(method(0.1, **build, bucket=3), rows[0], rows[1:])
    wanted = exchanged(method(0.1, **build), means[0], means[1:])
    torch.testing.assert_close(made, wanted, rtol=0, atol=1e-13)
    whole = exchanged(method(0.1, **build, bucket=99), rows[0], rows[1:])
    torch.testing.assert_close(whole, rows.mean(0), rtol=0, atol=1e-13)


def lies(count, d, scale, rng):
    """Rows that attackers may send: huge, small, infinite, or none at all."""
    rows = torch.from_numpy(rng.normal(size=(count, d)) * scale)
    lost = torch.from_numpy(rng.random((count, d)) < 0.1)
    return torch.where(lost, rng.choice([INF, -INF, NAN]), rows)


@pytest.mark.parametrize("scale", [0.5, 10.0, 1e12])
@pytest.mark.parametrize(
    ("algorithm", "honest", "bad"),
    [
        (trimmed(1), 2, 1),
        (trimmed(3), 9, 3),
        (trimmed(3), 9, 1),
        (MEDIAN, 2, 2),
        (MEDIAN, 5, 5),
        (MEDIAN, 6, 1),
    ],
)
def test_tolerated_attackers_do_not_move_models_out_of_the_hull(algorithm, honest, bad, scale):
    rng = np.random.default_rng(0)
    for _ in range(50):
        good = torch.from_numpy(rng.normal(size=(honest + 1, 8)))
        made = exchanged(algorithm, good[0], torch.cat([good[1:], lies(bad, 8, scale, rng)]))
        assert (made >= good.min(0).values - 1e-12).all()
        assert (made <= good.max(0).values + 1e-12).all()


@pytest.mark.parametrize("options", [{"tau": 0.7}, {"delta": 0.4}], ids=["tau", "delta"])
@pytest.mark.parametrize("scale", [0.1, 10.0, 1e12])
def test_attackers_move_a_clipped_model_by_their_weight_times_the_radius(options, scale):
    """With a radius of one's own, which they cannot widen beyond that of the honest neighbors."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        good, weighing = torch.from_numpy(rng.normal(size=(6, 8))), rng.uniform(0.02, 0.4)
        split = [0.5 * rng.dirichlet(np.ones(5)), weighing * rng.dirichlet(np.ones(3))]
        received = torch.cat([good[1:], lies(3, 8, scale, rng)])
        shares = torch.from_numpy(np.concatenate(split))
        distances = (good[1:] - good[0]).norm(dim=1)
        radius = options.get("tau") or float((shares[:5] * distances.square()).sum() / 0.4) ** 0.5
        reached = exchanged(clipped(**options), good[0], received, shares) - good[0]
        limit = (shares[:5] * distances.clamp(max=radius)).sum() + shares[5:].sum() * radius
        assert float(reached.norm()) <= float(limit) + 1e-12


def blobs(n=12):
    """Clients of three classes, in like shares, with examples for validation."""
    return data.iid(problems.dataset(n_examples=720), n, seed=0, val_fraction=0.3)


def attacked(door, algorithm, attack, graph=MANY, model=None, rounds=30, **settings):
    """Return what `engine` or `trail` finds under attack."""
    how = {"rounds": rounds, "every": rounds, "seed": 0, "init": "common", "attackers": attack}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of more attackers than are tolerated
        return door(algorithm, model, blobs(graph.n), graph, **how | settings)


def accuracy(algorithm, attack, **settings):
    history, _ = attacked(engine, algorithm, attack, **settings)
    return history.last("accuracy")


def honest(algorithm, attack, rounds=1, **settings):
    """Return the honest nodes' models after every round."""
    models = attacked(trail, algorithm, attack, rounds=rounds, **settings)
    return models[:, [i for i in range(models.shape[1]) if attack is None or i not in attack.nodes]]


def test_nodes_without_neighbors_may_trim():
    alone = {"graph": topologies.ring(5), "mixing": mixing.from_weights(np.eye(5))}
    assert torch.equal(
        honest(trimmed(1), None, **alone), honest(algorithms.local_only(0.1), None, **alone)
    )


def test_a_run_without_a_radius_can_be_saved(tmp_path):
    history, _ = attacked(engine, clipped(tau=INF), None, rounds=1)
    history.save(tmp_path / "run")
    assert topofl.History.load(tmp_path / "run").meta["algorithm"] == history.meta["algorithm"]


@seeded_torch(0)
def layered():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3))


BAD = (2, 9)

ATTACKS = {
    "sign_flip": attacks.sign_flip(BAD, scale=10.0),
    "noise": attacks.noise(BAD, std=5.0),
    "alie": attacks.alie(BAD, z=3.0),
    "dissensus": attacks.dissensus(BAD, strength=3.0),
    "inner_product": attacks.inner_product(BAD, epsilon=5.0),
    "model_replacement": attacks.model_replacement(BAD, boost=40.0),
}

UNDER = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)

ROBUST = {
    "clipped_gossip": algorithms.clipped_gossip(0.2, delta=0.4, batch_size=8),
    "clipped_gossip by tau": algorithms.clipped_gossip(0.2, tau=0.2, batch_size=8),
    "self_centered_clipping": algorithms.self_centered_clipping(0.4, tau=0.2, batch_size=8),
    "coordinate_median": algorithms.coordinate_median(0.2, batch_size=8),
    "trimmed_mean": algorithms.trimmed_mean(0.2, 2, batch_size=8),
    "krum": algorithms.krum(0.2, 1, select=2, batch_size=8),
    "geometric_median": algorithms.geometric_median(0.2, batch_size=8),
    "fltrust": algorithms.fltrust(0.2, batch_size=8),
}


@UNDER
@pytest.mark.parametrize("name", ["trimmed_mean", "coordinate_median"])
def test_without_training_honest_models_stay_within_their_hull(name, attack):
    """Of any start, in every round; those of plain gossip leave it."""

    def ranges(exchange):
        algorithm = algorithms.chain("exchange", exchange=exchange)
        models = honest(algorithm, attack, rounds=6, init="independent")
        lows, highs = models.min(1).values, models.max(1).values
        inside = (lows.diff(dim=0) >= -1e-12).all() and (highs.diff(dim=0) <= 1e-12).all()
        return inside, highs - lows

    inside, width = ranges(ROBUST[name].phases["exchange"])
    assert inside
    assert width[-1].mean() < 0.9 * width[0].mean(), "nothing was exchanged"
    assert not ranges(algorithms.gossip())[0]


@pytest.mark.parametrize("scale", [1e3, 1e6])
def test_one_attacker_moves_dsgd_as_far_as_it_likes_and_no_robust_method(scale):
    attack = attacks.sign_flip([0], scale=scale)
    for algorithm in ROBUST.values():
        made, calm = honest(algorithm, attack), honest(algorithm, None)
        assert (made - calm[:, 1:]).abs().max() < 0.5
    assert honest(algorithms.dsgd(0.2, batch_size=8), attack).abs().max() > 0.005 * scale


@problems.by_turns(4, name=ROBUST, attack=ATTACKS)
def test_robust_methods_learn_under_attack(name, attack):
    """Mean accuracy of the honest nodes on the common test set, of three like classes."""
    found = accuracy(ROBUST[name], ATTACKS[attack])
    assert np.isnan(found[list(BAD)]).all()
    assert np.nanmean(found) > np.mean(accuracy(ROBUST[name], None)) - 0.05


@pytest.mark.parametrize("name", ["sign_flip", "noise", "dissensus"])
def test_dsgd_does_not_learn_under_attack(name):
    """ALIE, which stays among the honest models, slows it down at most."""
    dsgd = algorithms.dsgd(0.2, batch_size=8)
    assert np.nanmean(accuracy(dsgd, ATTACKS[name], on_divergence="record")) < 0.7


CHOOSING = [
    (algorithms.dpfl(0.1, batch_size=8, epochs=1), problems.linear),
    (algorithms.pfeddst(0.1, batch_size=8, epochs=1, k=3, head="3"), layered),
]


@UNDER
@pytest.mark.parametrize(("algorithm", "model"), CHOOSING, ids=["dpfl", "pfeddst"])
@pytest.mark.slow
def test_methods_that_choose_their_peers_do_better_than_chance(algorithm, model, attack):
    """Mean accuracy of the honest nodes on the common test set: chance is a third."""
    found = accuracy(algorithm, attack, model=model(), on_divergence="record")
    assert np.nanmean(found) > 0.5


def test_dpfl_leaves_attackers_out():
    history, _ = attacked(engine, CHOOSING[0][0], ATTACKS["sign_flip"])
    received = history.mixing(-1).weights.toarray()[np.setdiff1d(range(12), BAD)][:, BAD]
    assert not received.any()


@problems.by_turns(4, 1, name=ROBUST, attack=ATTACKS)
def test_chunks_and_executors_do_not_matter_under_attack(name, attack):
    algorithm, attack = ROBUST[name], ATTACKS[attack]
    one, *others = (honest(algorithm, attack, rounds=3, **how)[-1] for how in EXECUTORS)
    for other in others:
        torch.testing.assert_close(other, one, rtol=0, atol=1e-12)


COMPLETE, RING = topologies.fully_connected(9), topologies.ring(9)


def warned(algorithm, nodes, graph=COMPLETE):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attack = attacks.sign_flip(nodes)
        engine(algorithm, None, blobs(graph.n), graph, rounds=1, attackers=attack)
    return [str(one.message) for one in caught if "`attackers`" in str(one.message)]


HALF = "attackers weigh 0.444 at node 4, half of the weight of its neighbors, or more"


@pytest.mark.parametrize(
    ("algorithm", "fine", "text"),
    [
        (
            trimmed(3),
            3,
            "node 4 receives from 4 attackers, more than trim=3; "
            "let at most 3 of the 9 nodes attack",
        ),
        (
            MEDIAN,
            4,
            "node 5 receives from 5 attackers, half or more of its 9 values, its own included; "
            "let at most 4",
        ),
        (clipped(delta=1 / 3), 3, "attackers weigh 0.444 at node 4, more than delta=0.333"),
        (clipped(tau=1.0), 3, HALF),
        (algorithms.self_centered_clipping(0.1, tau=1.0), 3, HALF),
        (
            algorithms.krum(0.1, 2),
            2,
            "node 3 receives from 3 attackers, more than attackers=2; give attackers=3",
        ),
        (
            algorithms.krum(0.1, 3),
            3,
            "node 4 receives from 4 attackers, more than attackers=3; let at most 3 of the 9",
        ),
        (
            algorithms.bulyan(0.1, 1),
            1,
            "node 2 receives from 2 attackers, more than attackers=1; let at most 1 of the 9",
        ),
        (
            algorithms.geometric_median(0.1, bucket=2),
            2,
            "node 3 receives from 3 attackers, half or more of its 5 buckets of 2 values, its own "
            "included; let at most 2",
        ),
    ],
    ids=[
        *("trimmed", "median", "own radius", "fixed radius", "self-centered"),
        *("krum", "krum of most", "bulyan", "geometric median"),
    ],
)
def test_too_many_attackers_cause_a_warning_before_the_run(algorithm, fine, text):
    assert warned(algorithm, range(fine)) == []
    (told,) = warned(algorithm, range(fine + 1))
    assert told.startswith(f"`attackers` are more than {algorithm.name} tolerates: {text}")


def test_attackers_are_counted_per_receiver():
    """On a ring, one honest node receives from each of two adjacent attackers."""
    assert warned(MEDIAN, [3, 4], RING) == []
    (told,) = warned(MEDIAN, [3, 5], RING)
    assert "node 4 receives from 2 attackers" in told


@pytest.mark.parametrize(
    ("wrong", "graph", "better", "remedy"),
    [
        (MEDIAN, RING, MEDIAN, "use topologies.fully_connected(9)"),
        (trimmed(0), RING, trimmed(2), "use topologies.fully_connected(9) and trim=2"),
        (clipped(tau=1.0), RING, clipped(tau=1.0), "use topologies.fully_connected(9)"),
        (
            clipped(delta=0.4),
            RING,
            clipped(delta=0.223),
            "use topologies.fully_connected(9) and delta=0.223",
        ),
        (trimmed(1), COMPLETE, trimmed(2), "give trim=2"),
        (clipped(delta=0.1), COMPLETE, clipped(delta=0.223), "give delta=0.223"),
    ],
    ids=["median", "trimmed", "fixed radius", "own radius", "trim", "delta"],
)
def test_remedies_against_attackers_work(wrong, graph, better, remedy):
    (told,) = warned(wrong, [3, 5], graph)
    assert told.endswith(f"; {remedy}")
    assert warned(better, [3, 5]) == []
