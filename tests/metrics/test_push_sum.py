"""Constants of push-sum, and B-connectivity."""

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import metrics, mixing, topologies
from topofl._linalg import spectral
from topofl._support.table import NotApplicable
from topofl.metrics import b_connectivity, push_sum
from topofl.metrics._rounds import losing_node
from topofl.mixing import MixingSequence
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology, from_edges


def push(graph: Topology) -> mixing.MixingMatrix:
    return mixing.uniform(graph, direction="push")


def moving_star(n: int):
    """Stars with moving centers: diameter 2, but values of node 0 reach one node more per round."""
    return as_topology(
        [from_edges([(c, i) for i in range(n) if i != c], n) for c in range(1, n)],
        name="moving star",
    )


FAMILIES = {
    "exponential": topologies.exponential(8, directed=True),
    "ring": topologies.ring(7),
    "star": topologies.star(6),
    "random digraph": topologies.random_out(8, 4, seed=4).at(0),
    "one-peer": topologies.one_peer_exponential(6),
    "moving star": moving_star(5),
    "ring and star": as_topology([topologies.ring(6), topologies.star(6), topologies.path(6)]),
    "random out": topologies.random_out(20, 3, seed=0),
    "random in": topologies.random_in(20, 3, seed=0),
}


@pytest.mark.parametrize(
    ("n", "degree", "diameter", "q"),
    [(8, 2, 3, 0.8706), (100, 11, 2, 0.9807)],  # B = 1; lambda is 0.5 and 0.9249
)
def test_sgp_form_by_hand(n: int, degree: int, diameter: int, q: float) -> None:
    bound = push_sum.sgp_bound(n, 1, diameter, degree, diameter + 1, 1)
    assert bound.q == pytest.approx(q, abs=5e-5)
    m = diameter + 1
    rest = 1 - n * degree**-m
    assert bound.q == pytest.approx(rest ** (1 / (m + 1)), rel=1e-12)
    expected = math.log10(2 * degree**m / rest ** ((m + 2) / (m + 1)))
    assert bound.log10_c == pytest.approx(expected, rel=1e-12)
    more = push_sum.sgp_bound(n, 1, diameter, degree, diameter + 1, 10_000)
    assert more.log10_c == pytest.approx(expected + 2)


def test_dfedpgp_form_by_hand() -> None:
    bound = push_sum.dfedpgp_bound(9, 2, 3, 4, 6)  # (1 - 4^-6)^(1/7)
    assert bound.q == pytest.approx((1 - 4.0**-6) ** (1 / 7), rel=1e-12)
    assert "does not specify C" in bound.log10_c.reason


@pytest.mark.parametrize("log_e", [-1e-3, -0.5, -5, -29.9, -30.1, -200])
@pytest.mark.parametrize("k", [1, 3, 200])
def test_logarithmic_gaps_agree_with_high_precision(log_e: float, k: int) -> None:
    from decimal import Decimal, getcontext

    getcontext().prec = 300
    exact = (1 - (1 - Decimal(log_e).exp()) ** (1 / Decimal(k))).log10()
    assert push_sum.log10_gap_of_root(log_e, k) == pytest.approx(float(exact), abs=1e-9)


def test_gaps_below_the_smallest_float_are_finite_logarithms() -> None:
    constants = metrics.push_sum_constants(topologies.ring(300), rounds=2)
    assert constants.proven.log10_gap == pytest.approx(
        math.log10(300 / 150) - 150 * math.log10(3), abs=1e-9
    )  # 1e-71: far from 1 - q in floats
    assert constants.proven.q == 1.0


@pytest.mark.parametrize("name", FAMILIES)
def test_structure_by_brute_force(name: str) -> None:
    rounds = 40
    x = FAMILIES[name]
    constants = metrics.push_sum_constants(x, rounds=rounds)
    period = x.period or rounds
    dense = [push(x.at(t)).weights.toarray() for t in range(period)]
    assert constants.max_degree == pytest.approx(1 / min(W[W > 0].min() for W in dense))

    def positive(start: int, length: int) -> bool:
        product = np.eye(x.n)
        for t in range(start, start + length):
            product = dense[t % period] @ product
        return bool((product > 0).all())

    starts = lambda t: range(period) if x.period else range(rounds - t + 1)  # noqa: E731
    reach = next(t for t in range(1, rounds) if all(positive(s, t) for s in starts(t)))
    assert constants.reach == reach
    unions = [
        sum(dense[(s + k) % period] for k in range(int(constants.b))) > 0
        for s in starts(int(constants.b))
    ]
    diameters = [
        as_topology(union.T.astype(float), drop_self_loops=True).diameter for union in unions
    ]
    assert constants.diameter == max(diameters)
    assert constants.b == metrics.b_connectivity(x, rounds=None if x.period else rounds)


@pytest.mark.parametrize("name", FAMILIES)
def test_theorem_the_proven_bound_holds_for_all_measurements(name: str) -> None:
    x = FAMILIES[name]
    constants = metrics.push_sum_constants(x, rounds=40)
    assert constants.q_hat <= constants.proven.q + 1e-12
    period, length = x.period or 40, 15
    for start in range(0, 20, 3):
        product = np.eye(x.n)
        for t in range(length):
            product = (
                push(x.at((start + t) % period if x.period else start + t)).weights.toarray()
                @ product
            )
            tau = 0.5 * max(np.abs(product[:, [j]] - product).sum(axis=0).max() for j in range(x.n))
            bound = 10**constants.proven.log10_c * constants.proven.q ** (t + 1)
            assert (
                tau <= bound + 1e-12 or constants.proven.log10_gap == 0
            )  # q = 0: exact averaging after reach rounds
            assert constants.proven.log10_gap < 0 or t + 1 < constants.reach or tau < 1e-12


@pytest.mark.parametrize("name", FAMILIES)
def test_theorem_q_of_sgp_is_above_q_measured_where_its_premise_holds(name: str) -> None:
    constants = metrics.push_sum_constants(FAMILIES[name], rounds=40)
    if not constants.sgp.note:
        assert constants.q_hat <= constants.sgp.q
    assert (
        constants.q_hat <= constants.dfedpgp.q or constants.diameter * constants.b < constants.reach
    )


def test_stars_with_moving_center_violate_the_premise_of_sgp() -> None:
    constants = metrics.push_sum_constants(moving_star(9), rounds=40)
    assert (constants.b, constants.diameter) == (1, 2)
    assert constants.reach > (constants.diameter + 1) * constants.b
    assert "products of (Delta+1) B = 3 rounds have zeros" in constants.sgp.note
    assert not metrics.push_sum_constants(topologies.star(9)).sgp.note


@pytest.mark.parametrize(
    ("k", "q"), [(1, 0.71), (2, 0.57), (5, 0.40), (10, 0.29), (20, 0.20), (40, 0.12)]
)
def test_measured_q_of_random_pushes(k: int, q: float) -> None:
    constants = metrics.push_sum_constants(topologies.random_out(100, k, seed=0), rounds=60)
    assert constants.q_hat == pytest.approx(q, abs=0.025)
    assert constants.q_hat == pytest.approx(math.sqrt((1 - k / 99) / (k + 1)), abs=0.025)


@pytest.mark.parametrize("name", ["exponential", "ring", "star", "random digraph"])
def test_measured_q_of_static_weights_is_the_slem_and_c_certifies_it(name: str) -> None:
    graph = FAMILIES[name]
    constants = metrics.push_sum_constants(graph, rounds=150)
    assert constants.q_hat == pytest.approx(push(graph).slem, rel=0.02)
    product, dense = np.eye(graph.n), push(graph).weights.toarray()
    for t in range(1, 20):
        product = dense @ product
        tau = 0.5 * max(np.abs(product[:, [j]] - product).sum(axis=0).max() for j in range(graph.n))
        assert tau <= constants.c_hat * constants.q_hat**t * (1 + 1e-9)


def test_delta_is_the_smallest_push_sum_weight() -> None:
    x = topologies.random_out(15, 2, seed=5)
    weights, smallest = np.ones(15), 1.0
    for t in range(30):
        weights = push(x.at(t)).weights @ weights
        smallest = min(smallest, weights.min())
    constants = metrics.push_sum_constants(x, rounds=30)
    assert constants.delta == smallest < 1
    assert math.log10(constants.delta) >= constants.log10_delta_bound
    assert metrics.push_sum_constants(topologies.ring(6)).delta == 1
    pulled = metrics.push_sum_constants(
        topologies.random_in(15, 2, seed=5), rounds=30, weights=mixing.uniform
    )
    assert pulled.delta == 1
    assert 0 < pulled.q_hat < 1


def test_exact_averaging_in_finitely_many_rounds() -> None:
    constants = metrics.push_sum_constants(topologies.one_peer_exponential(8))
    assert constants.q_hat == 0
    assert constants.c_hat == math.inf
    assert (constants.reach, constants.proven.q) == (3, 0.0)
    assert metrics.push_sum_constants(topologies.fully_connected(4)).q_hat == 0
    assert (
        metrics.push_sum_constants(topologies.base_graph(50, 1)).q_hat == 0
    )  # after long from some starts


def test_values_that_do_not_apply_have_a_reason() -> None:
    split = metrics.push_sum_constants(from_edges([(0, 1)], 3))
    assert (split.b, split.diameter, split.reach) == (math.inf, math.inf, math.inf)
    assert isinstance(split.sgp, NotApplicable)
    assert "strongly connected" in split.sgp.reason
    assert (
        "some nodes hold no share of some others after any number of rounds" in split.proven.reason
    )
    assert split.q_hat == 1
    assert "n/a" in str(split)
    one = metrics.push_sum_constants(topologies.ring(1))
    assert (one.b, one.q_hat, one.delta, one.log10_delta_bound) == (1, 0, 1, 0)
    swap = metrics.push_sum_constants(mixing.from_weights([[0, 1], [1, 0]]))
    assert (swap.b, swap.reach, swap.q_hat) == (
        1,
        math.inf,
        1,
    )  # strongly connected, yet it never settles
    short = metrics.push_sum_constants(topologies.random_out(30, 1, seed=0), rounds=2)
    assert short.reach == math.inf


def test_recorded_rounds_and_bad_arguments() -> None:
    x = topologies.random_out(10, 3, seed=1)
    recorded = MixingSequence(10, lambda t: push(x.at(t)), "a run", length=25)
    ours, theirs = metrics.push_sum_constants(recorded), metrics.push_sum_constants(x, rounds=25)
    assert (ours.q_hat, ours.reach, ours.delta, ours.sgp) == (
        theirs.q_hat,
        theirs.reach,
        theirs.delta,
        theirs.sgp,
    )
    with pytest.raises(ValueError, match="`rounds` must be between 1 and 25, got 26"):
        metrics.push_sum_constants(recorded, rounds=26)
    with pytest.raises(ValueError, match="`dimension` must be at least 1, got 0"):
        metrics.push_sum_constants(x, dimension=0)
    with pytest.raises(
        TopologyError,
        match="row-stochastic in all rounds, or column-stochastic in all; use one",
    ):
        metrics.push_sum_constants([push(topologies.star(4)), mixing.uniform(topologies.star(4))])


def test_large_graphs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 5)
    with pytest.raises(
        TopologyError,
        match=r"are computed up to n=5, ring\(n=6\) has n=6; metrics.b_connectivity and",
    ):
        metrics.push_sum_constants(topologies.ring(6))


def test_reach_of_permutations_and_bipartite_weights_is_infinite() -> None:
    turn = mixing.from_weights(
        np.roll(np.eye(300), 1, axis=0)
    )  # a cycle of 300 patterns, never full
    constants = metrics.push_sum_constants(turn, rounds=2)
    assert (constants.reach, constants.q_hat) == (math.inf, 1)
    assert "must be below 1" in constants.dfedpgp.reason
    bipartite = mixing.uniform(topologies.complete_bipartite(8, left=3))
    W = mixing.from_weights(
        np.array([[0, 0.5, 0.5], [1, 0, 0], [1, 0, 0]])
    )  # connected, all cycles even
    assert metrics.push_sum_constants(W, rounds=9).reach == math.inf
    assert metrics.push_sum_constants(bipartite, rounds=9).reach == 2  # its nodes keep a share


@pytest.mark.parametrize("seed", range(6))
def test_reach_of_weights_without_own_shares_by_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    period = []
    for _ in range(1 + seed % 3):
        weights = rng.random((4, 4)) * (rng.random((4, 4)) < 0.5)
        weights[rng.integers(4, size=4), np.arange(4)] += 0.1
        period.append(mixing.from_weights(weights / weights.sum(axis=0), edges="u<-v"))
    most = 4**4
    products = []
    for start in range(len(period)):
        product, full = np.eye(4), []
        for t in range(most):
            product = (period[(start + t) % len(period)].weights.toarray() @ product > 0).astype(
                float
            )
            full.append(bool(product.all()))
        products.append(full)
    ever = [t + 1 for t in range(most) if all(full[t] for full in products)]
    always = next((t for t in ever if all(s in ever for s in range(t, most + 1))), math.inf)
    assert metrics.push_sum_constants(period, rounds=3).reach == always


def test_too_few_rounds_do_not_decide_a_premise() -> None:
    pulls = topologies.random_in(12, 1, seed=3)
    few = metrics.push_sum_constants(pulls, rounds=3)
    assert few.reach == math.inf
    if not isinstance(few.sgp, NotApplicable):
        assert "cannot be decided from 3 rounds" in few.sgp.note
    assert "within the 3 rounds examined" in few.proven.reason
    assert metrics.push_sum_constants(moving_star(9), rounds=40).dfedpgp.note


def test_the_bound_on_delta_is_given_where_it_holds() -> None:
    pushes = mixing.from_weights([[1e-6, 1e-6], [1 - 1e-6, 1 - 1e-6]], edges="u<-v")
    lopsided = metrics.push_sum_constants(pushes, rounds=3)
    assert isinstance(lopsided.log10_delta_bound, NotApplicable)
    assert lopsided.delta == pytest.approx(2e-6)
    for name, graph in FAMILIES.items():
        constants = metrics.push_sum_constants(graph, rounds=25)
        assert math.log10(constants.delta) >= constants.log10_delta_bound, name


@pytest.mark.parametrize(("n", "is_exact"), [(50, False), (64, True), (100, False)])
def test_one_peer_exponential_graphs_are_exact_for_powers_of_two_only(
    n: int, is_exact: bool
) -> None:
    graph = topologies.one_peer_exponential(n)
    for rounds in (50, 200):
        q = metrics.push_sum_constants(graph, rounds=rounds).q_hat
        assert q == 0 if is_exact else q == pytest.approx(metrics.slem(graph), rel=0.03)


# Nodes that lose all of their weight

LOSING = [
    from_edges([(0, 1)], 2, directed=True),
    from_edges(
        [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3)], 5, directed=True
    ),  # a class that sends to another
    from_edges([(0, 1), (0, 2)], 3, directed=True),  # to two that keep all
]


@pytest.mark.parametrize("graph", LOSING)
def test_push_sum_does_not_converge_where_a_node_loses_its_weight(graph: Topology) -> None:
    """Node 0 never receives, so that its weight tends to 0 for any eigenvalues."""
    W = push(graph)
    pi = np.linalg.matrix_power(W.weights.toarray(), 300)
    assert pi[0].max() < 1e-9
    start = np.random.default_rng(0).standard_normal(graph.n)
    weights, values = (
        np.linalg.matrix_power(W.weights.toarray(), 40) @ x for x in (np.ones(graph.n), start)
    )
    assert (
        np.ptp(values / weights) > 0.01
    )  # though the columns of the power have long been equal, or two of them
    for x in (W, [W, W], [W] * 3):
        for metric in (
            metrics.slem,
            metrics.spectral_gap,
            lambda y: metrics.measured_contraction(y, rounds=9, seed=0),
        ):
            with pytest.raises(
                TopologyError,
                match=r"weight of node 0 tends to 0, .* strongly connected, or use pull",
            ):
                metric(x)
        constants = metrics.push_sum_constants(x)
        for value in (constants.q_hat, constants.c_hat, constants.delta):
            assert isinstance(value, NotApplicable)
            assert "weight of node 0 tends to 0" in value.reason
    assert "n/a" in str(constants.to_table())
    assert metrics.slem(mixing.uniform(graph)) <= 1  # pulled, the same graph has a rate


def test_weight_that_returns_in_another_round_is_not_lost() -> None:
    there, back = from_edges([(0, 1)], 2, directed=True), from_edges([(1, 0)], 2, directed=True)
    pushes = [push(there), push(back)]
    product = pushes[1].weights.toarray() @ pushes[0].weights.toarray()
    second = np.sort(np.abs(np.linalg.eigvals(product)))[0]
    assert metrics.slem(pushes) == pytest.approx(second**0.5, rel=1e-12)
    assert metrics.measured_contraction(pushes, rounds=40, seed=0) == pytest.approx(
        second**0.5, rel=1e-6
    )
    assert 0 < metrics.push_sum_constants(pushes).delta < 1
    endless = MixingSequence(2, lambda t: pushes[t % 2], "in turn")
    assert 0 < metrics.push_sum_constants(endless, rounds=20).delta < 1
    recorded = MixingSequence(2, lambda t: pushes[0], "one way", length=20)
    assert (
        "over one way does not reach consensus" in metrics.push_sum_constants(recorded).q_hat.reason
    )


def test_default_numbers_of_rounds_agree() -> None:
    sequence = topologies.random_out(8, 2, seed=0)
    assert metrics.push_sum_constants(sequence).rounds == 100
    (measured,) = metrics.compare([sequence], about="push-sum").column("q measured")
    assert measured == metrics.push_sum_constants(sequence).q_hat


@pytest.mark.parametrize("seed", range(20))
def test_a_node_loses_its_weight_where_the_perron_vector_is_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    adjacency = rng.random((1 + seed % 3, 6, 6)) < 0.22
    graphs = [as_topology((a & ~np.eye(6, dtype=bool)).astype(float)) for a in adjacency]
    pushes = [mixing.uniform(graph, direction="push") for graph in graphs]
    product = np.eye(6)
    for W in pushes:
        product = W.weights.toarray() @ product
    limit = np.linalg.matrix_power(0.5 * (np.eye(6) + product), 20_000) @ np.ones(6)
    found = losing_node(pushes)
    assert (found is None) == (limit.min() > 1e-9)
    if found is not None:
        assert limit[found] < 1e-9


def union_is_strong(graphs):
    union = nx.DiGraph()
    union.add_nodes_from(range(graphs[0].n))
    for graph in graphs:
        union.add_edges_from(graph.edge_index.T.tolist())
    return nx.is_strongly_connected(union)


def brute(at, starts, longest):
    """Return the smallest B up to `longest` with all windows at starts(B) strongly connected."""
    for b in range(1, longest + 1):
        if all(union_is_strong([at(start + s) for s in range(b)]) for start in starts(b)):
            return b
    return math.inf


@st.composite
def members(draw):
    n = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    density = draw(st.sampled_from([0.1, 0.25, 0.5]))
    masks = [rng.random((n, n)) < density for _ in range(draw(st.integers(1, 8)))]
    return [
        from_edges(np.argwhere(mask & ~np.eye(n, dtype=bool)), n, directed=True) for mask in masks
    ]


@given(graphs=members())
def test_periodic_sequences_equal_brute_force_for_all_time(graphs):
    p = len(graphs)
    sequence = TopologySequence(graphs[0].n, graphs.__getitem__, period=p)
    sliding = brute(sequence.at, lambda b: range(p), p)
    block = brute(sequence.at, lambda b: range(0, p * b, b), p)
    assert b_connectivity(sequence) == sliding
    assert b_connectivity(sequence, windows="block") == block
    assert block <= sliding
    assert sliding <= 2 * block - 1


@given(graphs=members())
def test_finite_horizons_equal_brute_force(graphs):
    t = len(graphs)
    sequence = TopologySequence(graphs[0].n, graphs.__getitem__)
    assert b_connectivity(sequence, rounds=t) == brute(sequence.at, lambda b: range(t - b + 1), t)
    assert b_connectivity(sequence, rounds=t, windows="block") == brute(
        sequence.at, lambda b: range(0, t - b + 1, b), t
    )


def test_known_graphs():
    assert b_connectivity(topologies.ring(5)) == 1
    assert b_connectivity(topologies.random_cliques(6, 3, seed=0)) == math.inf
    assert b_connectivity(topologies.one_peer_exponential(2)) == 1
    assert (
        b_connectivity(topologies.one_peer_exponential(12)) == 4
    )  # from offset 2 on until offset 1 comes again
    assert b_connectivity(topologies.random_out(100, k=10, seed=0), rounds=50) in (1, 2)


def test_long_random_sequences_cost_linear_time():
    """Each round is computed once for windows of any length, connected or not."""
    asked = []
    graphs = topologies.random_out(20, 1, seed=0)

    def counted(t):
        asked.append(t)
        return graphs.at(t)

    assert b_connectivity(TopologySequence(20, counted), rounds=300) > 1
    assert asked == list(range(300))
    asked.clear()
    assert b_connectivity(TopologySequence(20, counted), rounds=300, windows="block") > 1
    assert asked == list(range(300))
    apart = topologies.random_cliques(20, 10, seed=0)
    never = TopologySequence(20, lambda t: asked.append(t) or apart)
    asked.clear()
    assert b_connectivity(never, rounds=300, windows="block") == math.inf
    assert asked == list(range(300))


def test_bad_input():
    endless = topologies.random_out(5, 1, seed=0)
    with pytest.raises(TopologyError, match="`rounds` must be given"):
        b_connectivity(endless)
    with pytest.raises(ValueError, match="`rounds` must be left out"):
        b_connectivity(topologies.ring(4), rounds=5)
    with pytest.raises(ValueError, match="`rounds` must be at least 1"):
        b_connectivity(endless, rounds=0)
    with pytest.raises(ValueError, match="did you mean 'sliding'"):
        b_connectivity(topologies.ring(4), windows="slidin")
    with pytest.raises(TypeError, match="`graphs`"):
        b_connectivity(3.5)
