"""Constants of push-sum."""

import math
from decimal import Decimal, localcontext
from functools import reduce

import numpy as np
import pytest

from tests.rows.metrics import ONE_PEER, SWAP, push, starts
from topofl import metrics, mixing, topologies
from topofl._support.table import NotApplicable
from topofl.metrics import push_sum, push_sum_constants
from topofl.metrics._rounds import losing_node
from topofl.mixing import MixingSequence
from topofl.topology import TopologySequence, as_topology, from_edges


def moving_star(n: int):
    """Stars with moving centers: diameter 2, but values of node 0 reach one node more per round."""
    stars = [from_edges([(c, i) for i in range(n) if i != c], n) for c in range(1, n)]
    return as_topology(stars, name="moving star")


def spread(product) -> float:
    """Return the ergodicity coefficient of columns."""
    return 0.5 * np.abs(product[:, :, None] - product[:, None]).sum(axis=0).max()


FAMILIES = {
    "exponential": topologies.exponential(8, directed=True),
    "ring": topologies.ring(7),
    "star": topologies.star(6),
    "random digraph": topologies.random_out(8, 4, seed=4).at(0),
    "one-peer": ONE_PEER(6),
    "moving star": moving_star(5),
    "ring and star": as_topology([topologies.ring(6), topologies.star(6), topologies.path(6)]),
    "random out": topologies.random_out(20, 3, seed=0),
    "random in": topologies.random_in(20, 3, seed=0),
}
every_family = pytest.mark.parametrize("x", FAMILIES.values(), ids=FAMILIES.keys())


def pushes_of(x, rounds=40):
    """Return the dense weights of a period, or of the rounds examined."""
    return [push(x.at(t)).weights.toarray() for t in range(x.period or rounds)]


# Forms of the bounds


@pytest.mark.parametrize(
    ("n", "degree", "diameter", "q"),
    [(8, 2, 3, 0.8706), (100, 11, 2, 0.9807)],  # B = 1; lambda is 0.5 and 0.9249
)
def test_sgp_form_by_hand(n, degree, diameter, q):
    m = diameter + 1
    bound = push_sum.sgp_bound(n, m, degree, 1)
    assert bound.q == pytest.approx(q, abs=5e-5)
    rest = 1 - n * degree**-m
    assert bound.q == pytest.approx(rest ** (1 / (m + 1)), rel=1e-12)
    expected = math.log10(2 * degree**m / rest ** ((m + 2) / (m + 1)))
    assert bound.log10_c == pytest.approx(expected, rel=1e-12)
    more = push_sum.sgp_bound(n, m, degree, 10_000)
    assert more.log10_c == pytest.approx(expected + 2)


def test_dfedpgp_form_by_hand():
    bound = push_sum.dfedpgp_bound(9, 2 * 3, 4)  # (1 - 4^-6)^(1/7)
    assert bound.q == pytest.approx((1 - 4.0**-6) ** (1 / 7), rel=1e-12)
    assert "does not specify C" in bound.log10_c.reason


@pytest.mark.parametrize("log_e", [-1e-3, -0.5, -5, -29.9, -30.1, -200])
@pytest.mark.parametrize("k", [1, 3, 200])
def test_logarithmic_gaps_agree_with_high_precision(log_e, k):
    with localcontext() as context:
        context.prec = 300
        exact = (1 - (1 - Decimal(log_e).exp()) ** (1 / Decimal(k))).log10()
    assert push_sum.log10_gap_of_root(log_e, k) == pytest.approx(float(exact), abs=1e-9)


def test_gaps_below_the_smallest_float_are_finite_logarithms():
    proven = push_sum_constants(topologies.ring(300), rounds=2).proven
    expected = math.log10(300 / 150) - 150 * math.log10(3)  # 1e-71: far from 1 - q in floats
    assert proven.log10_gap == pytest.approx(expected, abs=1e-9)
    assert proven.q == 1.0


# Structure


@every_family
def test_structure_by_brute_force(x):
    constants, dense = push_sum_constants(x, rounds=40), pushes_of(x)
    assert constants.max_degree == pytest.approx(1 / min(W[W > 0].min() for W in dense))

    def windows(length):
        repeated = dense * (1 + length // len(dense)) if x.period else dense
        ends = len(dense) if x.period else len(dense) - length + 1
        return [repeated[s : s + length] for s in range(ends)]

    def is_full(window):
        return (reduce(lambda before, W: W @ before, window) > 0).all()

    assert constants.reach == next(t for t in range(1, 40) if all(map(is_full, windows(t))))
    unions = [(sum(window) > 0).T.astype(float) for window in windows(int(constants.b))]
    found = [as_topology(union, drop_self_loops=True).diameter for union in unions]
    assert constants.diameter == max(found)
    assert constants.b == metrics.b_connectivity(x, rounds=None if x.period else 40)


@pytest.mark.parametrize("seed", range(6))
def test_reach_of_weights_without_own_shares_by_brute_force(seed):
    rng, period, most = np.random.default_rng(seed), [], 4**4
    for _ in range(1 + seed % 3):
        weights = rng.random((4, 4)) * (rng.random((4, 4)) < 0.5)
        weights[rng.integers(4, size=4), np.arange(4)] += 0.1
        period.append(mixing.from_weights(weights / weights.sum(axis=0), edges="u<-v"))
    full = np.ones(most + 1, dtype=bool)  # after so many rounds from all starts
    for later in starts(period):
        product = np.eye(4)
        for t in range(most):
            product = (later[t % len(later)].weights.toarray() @ product > 0).astype(float)
            full[t + 1] &= product.all()
    never = np.flatnonzero(~full[1:]) + 1
    always = never.max(initial=0) + 1 if full[-1] else math.inf
    assert push_sum_constants(period, rounds=3).reach == always


def test_reach_of_permutations_and_bipartite_weights_is_infinite():
    turn = mixing.from_weights(np.roll(np.eye(300), 1, axis=0))  # a cycle of 300, never full
    constants = push_sum_constants(turn, rounds=2)
    assert (constants.reach, constants.q_hat) == (math.inf, 1)
    assert "must be below 1" in constants.dfedpgp.reason
    W = mixing.from_weights([[0, 0.5, 0.5], [1, 0, 0], [1, 0, 0]])  # all cycles are even
    assert push_sum_constants(W, rounds=9).reach == math.inf
    bipartite = mixing.uniform(topologies.complete_bipartite(8, left=3))  # nodes keep a share
    assert push_sum_constants(bipartite, rounds=9).reach == 2


def test_every_round_is_computed_once_for_windows_of_any_length():
    asked, graphs = [], topologies.random_out(20, 1, seed=0)
    apart = topologies.random_cliques(20, 10, seed=0)
    for at, windows in ((graphs.at, "sliding"), (graphs.at, "block"), (lambda t: apart, "block")):
        sequence = TopologySequence(20, lambda t, at=at: asked.append(t) or at(t))
        asked.clear()
        b = metrics.b_connectivity(sequence, rounds=300, windows=windows)
        assert 1 < b < math.inf or at(0) is apart
        assert asked == list(range(300))
    assert b == math.inf
    assert metrics.b_connectivity(topologies.random_out(100, 10, seed=0), rounds=50) in (1, 2)


# Theorems and measurements


@every_family
def test_the_bounds_hold_for_all_measurements(x):
    constants, dense = push_sum_constants(x, rounds=40), pushes_of(x)
    proven = constants.proven
    assert constants.q_hat <= proven.q + 1e-12
    for start in range(0, 20, 3):
        product = np.eye(x.n)
        for t in range(15):
            product = dense[(start + t) % len(dense)] @ product
            bound = 10**proven.log10_c * proven.q ** (t + 1)
            if proven.log10_gap:
                assert spread(product) <= bound + 1e-12
            else:  # q = 0: exact averaging after reach rounds
                assert t + 1 < constants.reach or spread(product) < 1e-12
    assert constants.sgp.note or constants.q_hat <= constants.sgp.q
    premise = constants.diameter * constants.b >= constants.reach
    assert constants.q_hat <= constants.dfedpgp.q or not premise
    assert math.log10(constants.delta) >= constants.log10_delta_bound


def test_stars_with_moving_center_violate_the_premise_of_sgp():
    constants = push_sum_constants(moving_star(9), rounds=40)
    assert (constants.b, constants.diameter) == (1, 2)
    assert constants.reach > (constants.diameter + 1) * constants.b
    assert "products of (Delta+1) B = 3 rounds have zeros" in constants.sgp.note
    assert constants.dfedpgp.note
    assert not push_sum_constants(topologies.star(9)).sgp.note


@pytest.mark.parametrize("k", [1, 2, 5, 10, 20, 40])
def test_measured_q_of_random_pushes(k):
    found = push_sum_constants(topologies.random_out(100, k, seed=0), rounds=60).q_hat
    assert found == pytest.approx(math.sqrt((1 - k / 99) / (k + 1)), abs=0.025)


@pytest.mark.parametrize("name", ["exponential", "ring", "star", "random digraph"])
def test_measured_q_of_static_weights_is_the_slem_and_c_certifies_it(name):
    graph = FAMILIES[name]
    constants = push_sum_constants(graph, rounds=150)
    assert constants.q_hat == pytest.approx(push(graph).slem, rel=0.02)
    (dense,), product = pushes_of(graph), np.eye(graph.n)
    for t in range(1, 20):
        product = dense @ product
        assert spread(product) <= constants.c_hat * constants.q_hat**t * (1 + 1e-9)


def test_delta_is_the_smallest_push_sum_weight():
    x, weights, smallest = topologies.random_out(15, 2, seed=5), np.ones(15), 1.0
    for t in range(30):
        weights = push(x.at(t)).weights @ weights
        smallest = min(smallest, weights.min())
    assert push_sum_constants(x, rounds=30).delta == smallest < 1
    assert push_sum_constants(topologies.ring(6)).delta == 1
    pulls = topologies.random_in(15, 2, seed=5)
    pulled = push_sum_constants(pulls, rounds=30, weights=mixing.uniform)
    assert pulled.delta == 1
    assert 0 < pulled.q_hat < 1
    pushes = mixing.from_weights([[1e-6, 1e-6], [1 - 1e-6, 1 - 1e-6]], edges="u<-v")
    lopsided = push_sum_constants(pushes, rounds=3)
    assert isinstance(lopsided.log10_delta_bound, NotApplicable)
    assert lopsided.delta == pytest.approx(2e-6)


def test_exact_averaging_in_finitely_many_rounds():
    constants = push_sum_constants(ONE_PEER(8))
    assert (constants.q_hat, constants.c_hat) == (0, math.inf)
    assert (constants.reach, constants.proven.q) == (3, 0.0)
    assert push_sum_constants(topologies.fully_connected(4)).q_hat == 0
    assert push_sum_constants(topologies.base_graph(50, 1)).q_hat == 0  # after long from some


@pytest.mark.parametrize(("n", "is_exact"), [(50, False), (64, True), (100, False)])
def test_one_peer_exponential_graphs_are_exact_for_powers_of_two_only(n, is_exact):
    for rounds in (50, 200):
        q = push_sum_constants(ONE_PEER(n), rounds=rounds).q_hat
        assert q == 0 if is_exact else q == pytest.approx(metrics.slem(ONE_PEER(n)), rel=0.03)


# What does not apply


def test_values_that_do_not_apply_have_a_reason():
    split = push_sum_constants(from_edges([(0, 1)], 3))
    assert (split.b, split.diameter, split.reach) == (math.inf, math.inf, math.inf)
    assert "strongly connected" in split.sgp.reason
    assert "no share of some others after any number of rounds" in split.proven.reason
    assert split.q_hat == 1
    assert "n/a" in str(split)
    one = push_sum_constants(topologies.ring(1))
    assert (one.b, one.q_hat, one.delta, one.log10_delta_bound) == (1, 0, 1, 0)
    swap = push_sum_constants(SWAP)  # strongly connected, yet it never settles
    assert (swap.b, swap.reach, swap.q_hat) == (1, math.inf, 1)


def test_too_few_rounds_do_not_decide_a_premise():
    assert push_sum_constants(topologies.random_out(30, 1, seed=0), rounds=2).reach == math.inf
    few = push_sum_constants(topologies.random_in(12, 1, seed=3), rounds=3)
    assert few.reach == math.inf
    if not isinstance(few.sgp, NotApplicable):
        assert "cannot be decided from 3 rounds" in few.sgp.note
    assert "within the 3 rounds examined" in few.proven.reason


def test_recorded_rounds_and_default_numbers_of_rounds_agree():
    x = topologies.random_out(10, 3, seed=1)
    recorded = MixingSequence(10, lambda t: push(x.at(t)), "a run", length=25)
    ours, theirs = push_sum_constants(recorded), push_sum_constants(x, rounds=25)
    for name in ("q_hat", "reach", "delta", "sgp"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert push_sum_constants(x).rounds == 100
    (measured,) = metrics.compare([x], about="push-sum").column("q measured")
    assert measured == push_sum_constants(x).q_hat


# Nodes that lose all of their weight


@pytest.mark.parametrize(
    "edges",
    [
        [(0, 1)],
        [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3)],  # a class that sends to another
        [(0, 1), (0, 2)],  # to two that keep all
    ],
)
def test_push_sum_does_not_converge_where_a_node_loses_its_weight(edges):
    """Node 0 never receives, so that its weight tends to 0 for any eigenvalues."""
    graph = from_edges(edges, max(map(max, edges)) + 1, directed=True)
    W, start = push(graph), np.random.default_rng(0).standard_normal(graph.n)
    dense = W.weights.toarray()
    assert np.linalg.matrix_power(dense, 300)[0].max() < 1e-9
    power = np.linalg.matrix_power(dense, 40)  # whose columns have long been equal, or two of them
    assert np.ptp(power @ start / power.sum(axis=1)) > 0.01
    for x in (W, [W, W], [W] * 3):
        constants = push_sum_constants(x)
        for value in (constants.q_hat, constants.c_hat, constants.delta):
            assert "weight of node 0 tends to 0" in value.reason
    assert "n/a" in str(constants.to_table())
    assert metrics.slem(mixing.uniform(graph)) <= 1  # pulled, the same graph has a rate


def test_weight_that_returns_in_another_round_is_not_lost():
    pushes = [push(from_edges([edge], 2, directed=True)) for edge in ((0, 1), (1, 0))]
    product = pushes[1].weights.toarray() @ pushes[0].weights.toarray()
    rate = np.sort(np.abs(np.linalg.eigvals(product)))[0] ** 0.5
    assert metrics.slem(pushes) == pytest.approx(rate, rel=1e-12)
    measured = metrics.measured_contraction(pushes, rounds=40, seed=0)
    assert measured == pytest.approx(rate, rel=1e-6)
    assert 0 < push_sum_constants(pushes).delta < 1
    endless = MixingSequence(2, lambda t: pushes[t % 2], "in turn")
    assert 0 < push_sum_constants(endless, rounds=20).delta < 1
    recorded = MixingSequence(2, lambda t: pushes[0], "one way", length=20)
    assert "over one way does not reach consensus" in push_sum_constants(recorded).q_hat.reason


@pytest.mark.parametrize("seed", range(20))
def test_a_node_loses_its_weight_where_the_perron_vector_is_zero(seed):
    adjacency = np.random.default_rng(seed).random((1 + seed % 3, 6, 6)) < 0.22
    pushes = [push(as_topology((a & ~np.eye(6, dtype=bool)).astype(float))) for a in adjacency]
    product = reduce(lambda before, W: W.weights @ before, pushes, np.eye(6))
    limit = np.linalg.matrix_power(0.5 * (np.eye(6) + product), 20_000) @ np.ones(6)
    found = losing_node(pushes)
    assert (found is None) == (limit.min() > 1e-9)
    assert found is None or limit[found] < 1e-9
