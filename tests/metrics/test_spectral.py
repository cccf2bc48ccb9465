"""Spectral metrics: closed forms, recomputed oracles, and declared against measured rates."""

from functools import partial

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse

from topofl import mixing, topologies
from topofl._linalg import periods, spectral
from topofl.metrics import measured_contraction, sigma, slem, spectral_gap, window_product
from topofl.mixing import MixingSequence
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology, from_edges

push = partial(mixing.uniform, direction="push")


def ring(n: int) -> Topology:
    return as_topology(nx.cycle_graph(n), name=f"ring({n})")


def one_peer(n: int) -> TopologySequence:
    """At round t node j sends to j + 2^t alone."""
    rounds = range((n - 1).bit_length())
    return as_topology(
        [from_edges([(j, (j + 2**t) % n) for j in range(n)], n, directed=True) for t in rounds]
    )


def exponential(n: int) -> Topology:
    return as_topology(nx.circulant_graph(n, [2**e for e in range((n - 1).bit_length())]))


def dcliques(n: int, size: int = 10) -> Topology:
    """Cliques of consecutive nodes, every pair joined at nodes with the fewest such edges."""
    edges = [(i, j) for i in range(n) for j in range(i + 1, n) if i // size == j // size]
    loads = np.zeros(n, dtype=int)
    for a in range(n // size):
        for b in range(a + 1, n // size):
            ends = [c * size + int(loads[c * size : (c + 1) * size].argmin()) for c in (a, b)]
            loads[ends] += 1
            edges.append((ends[0], ends[1]))
    return from_edges(edges, n)


def relabelled(graph: Topology, seed: int = 0) -> Topology:
    """Return the same graph with its nodes in random order: what was circulant no longer is."""
    order = np.random.default_rng(seed).permutation(graph.n)
    return from_edges(order[graph.edge_index.T], graph.n, directed=graph.is_directed)


def irregular_digraph() -> Topology:
    """Return a strongly connected graph whose degrees differ.

    Its weights are row- or column-, never doubly stochastic.
    """
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (0, 2), (4, 1)]
    return from_edges(edges, 6, directed=True)


# Closed forms


@pytest.mark.parametrize("n", [4, 5, 16, 101])
def test_ring_has_its_closed_form(n):
    assert spectral_gap(ring(n)) == pytest.approx(
        1 - (1 + 2 * np.cos(2 * np.pi / n)) / 3, abs=1e-12
    )


@pytest.mark.parametrize("n", [3, 10, 100])
def test_star_has_gap_one_over_n(n):
    assert spectral_gap(as_topology(nx.star_graph(n - 1))) == pytest.approx(1 / n, abs=1e-12)


def test_complete_graph_averages_at_once():
    assert spectral_gap(as_topology(nx.complete_graph(7))) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("n", [2, 4, 16, 64])
def test_one_peer_exponential_averages_exactly_in_a_period_if_n_is_a_power_of_two(n):
    assert spectral_gap(one_peer(n)) == 1.0


def test_one_peer_exponential_otherwise_is_the_root_of_its_product():
    n, sequence = 100, one_peer(100)
    k = np.arange(
        1, n
    )  # circulants commute: eigenvalues of the product are the products of (1 + w^k 2^t) / 2
    moduli = np.prod([np.abs(1 + np.exp(-2j * np.pi * k * 2**t / n)) / 2 for t in range(7)], axis=0)
    assert slem(sequence) == pytest.approx(moduli.max() ** (1 / 7), rel=1e-9)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (ring(100), 0.998684),
        (as_topology(nx.grid_2d_graph(10, 10)), 0.979470),
        (exponential(100), 11 / 15),
        (as_topology(nx.star_graph(99)), 0.99),
        (as_topology(nx.complete_graph(100)), 0.0),
        (exponential(1000), 17 / 21),
        (dcliques(100), 0.918093),
        (dcliques(1000), 0.801215),
    ],
    ids=[
        "ring",
        "grid",
        "exponential",
        "star",
        "complete",
        "exponential-1000",
        "dcliques",
        "dcliques-1000",
    ],
)
def test_known_values_of_metropolis_hastings_weights(graph, expected):
    assert slem(graph) == pytest.approx(expected, abs=1e-6)


def test_a_single_node_and_disconnected_graphs():
    single, apart = from_edges([], 1), from_edges([(0, 1), (2, 3)], 4)
    assert slem(single) == 0.0
    assert slem(as_topology([single, single])) == 0.0
    assert slem(apart) == 1.0
    assert spectral_gap(as_topology([apart, apart])) == 0.0


def test_rounds_that_are_disconnected_can_average_together():
    pairs = as_topology([from_edges([(0, 1), (2, 3)], 4), from_edges([(0, 2), (1, 3)], 4)])
    assert [slem(pairs.at(t)) for t in (0, 1)] == [1.0, 1.0]
    assert spectral_gap(pairs) == 1.0


# Against numpy


@pytest.mark.parametrize("rule", [None, push], ids=["pull", "push"])
def test_period_agrees_with_numpys_eigenvalues_of_the_product(rule):
    graphs = [
        irregular_digraph(),
        from_edges([(i, (i + 1) % 6) for i in range(6)], 6, directed=True),
    ]
    factors = [(rule or mixing.metropolis_or_uniform)(graph).weights.toarray() for graph in graphs]
    second = np.sort(np.abs(np.linalg.eigvals(factors[1] @ factors[0])))[-2]
    assert slem(as_topology(graphs), weights=rule) == pytest.approx(second**0.5, rel=1e-9)


def test_a_period_of_equal_matrices_has_the_rate_of_one():
    matrix = mixing.metropolis_hastings(ring(9))
    assert slem([matrix] * 3) == pytest.approx(matrix.slem, rel=1e-12)
    assert slem(mixing.uniform(ring(9))) == pytest.approx(matrix.slem, rel=1e-12)


def test_long_periods_do_not_underflow():
    matrix = mixing.metropolis_hastings(as_topology(nx.star_graph(3)))
    other = mixing.lazy(matrix)  # same eigenvectors, so rates multiply: eigenvalues 3/4 and 7/8
    assert slem([matrix, other] * 4000) == pytest.approx((3 / 4 * 7 / 8) ** 0.5, rel=1e-9)


def test_large_periods_agree_with_the_dense_computation(monkeypatch):
    sequence = as_topology([relabelled(one_peer(50).at(t)) for t in range(6)])
    digraph = as_topology([irregular_digraph(), irregular_digraph()])
    dense = [slem(sequence), slem(digraph), slem(digraph, weights=push)]
    monkeypatch.setattr(spectral.limits, "DENSE_LIMIT", 1)
    assert [slem(sequence), slem(digraph), slem(digraph, weights=push)] == pytest.approx(
        dense, rel=1e-7
    )
    assert slem(as_topology([relabelled(one_peer(64).at(t)) for t in range(6)])) == 0.0


@pytest.mark.parametrize("n", [3, 12, 50, 64])
def test_periods_of_circulants_equal_the_same_graphs_in_another_order(n):
    sequence = one_peer(n)
    period = sequence.period
    shuffled = as_topology(
        [relabelled(sequence.at(t)) for t in range(period)]
    )  # one order for all rounds
    matrices = [mixing.uniform(shuffled.at(t)).weights for t in range(period)]
    assert n == 3 or spectral.circulant_spectrum(matrices[-1]) is None
    assert slem(sequence) == pytest.approx(slem(shuffled), rel=1e-9)
    assert slem(sequence, weights=push) == pytest.approx(slem(shuffled), rel=1e-9)


def test_period_of_a_hundred_thousand_nodes_has_its_closed_form():
    n, sequence = 100_000, topologies.one_peer_exponential(100_000)
    k = np.arange(1, n)
    logs = sum(
        np.log(np.maximum(np.abs(np.cos(np.pi * (k * 2**t % n) / n)), 1e-300)) for t in range(17)
    )
    assert slem(sequence) == pytest.approx(np.exp(logs.max() / 17), rel=1e-9)


def test_circulants_that_stay_apart_never_average():
    even = from_edges([(i, (i + 2) % 8) for i in range(8)], 8)
    assert slem(as_topology([even, even])) == 1.0


def test_large_one_peer_exponential_needs_no_dense_matrix():
    assert spectral_gap(one_peer(4096)) == 1.0


def test_large_periods_that_do_not_converge_say_what_to_do(monkeypatch):
    monkeypatch.setattr(spectral.limits, "DENSE_LIMIT", 1)
    monkeypatch.setattr(periods, "RESTARTS", 1)
    matrix = mixing.metropolis_hastings(relabelled(ring(3000)))
    with pytest.raises(TopologyError, match="measured_contraction"):
        slem([matrix, mixing.lazy(matrix)])


# One step


def test_sigma_is_slem_for_symmetric_weights():
    assert sigma(ring(12)) == pytest.approx(slem(ring(12)), abs=1e-12)


def test_sigma_exceeds_slem_for_doubly_stochastic_weights_that_are_not_normal():
    permutations = [np.eye(3)[list(p)] for p in ([1, 0, 2], [1, 2, 0], [0, 1, 2])]
    matrix = mixing.from_weights(
        0.5 * permutations[0] + 0.3 * permutations[1] + 0.2 * permutations[2]
    )
    expected = np.linalg.norm(matrix.weights.toarray() - 1 / 3, 2)
    assert sigma(matrix) == pytest.approx(expected, rel=1e-12)
    assert sigma(matrix) > slem(matrix) + 0.05


def test_one_step_of_one_peer_exponential_does_not_contract():
    assert sigma(one_peer(8).at(2)) == pytest.approx(1.0)


@pytest.mark.parametrize("rule", [None, push])
def test_sigma_refuses_weights_that_are_not_doubly_stochastic(rule):
    with pytest.raises(TopologyError, match="doubly stochastic"):
        sigma(irregular_digraph(), weights=rule)


def test_sigma_is_of_one_exchange():
    with pytest.raises(TypeError, match=r"x\.at\(t\)"):
        sigma(one_peer(8))


# Declared against measured


@pytest.mark.parametrize(
    ("x", "rule"),
    [
        (ring(16), None),
        (as_topology(nx.grid_2d_graph(4, 5)), None),
        (as_topology(nx.star_graph(7)), None),
        (exponential(20), None),
        (dcliques(30), None),
        (irregular_digraph(), None),
        (irregular_digraph(), push),
        (one_peer(12), None),
        (as_topology([nx.path_graph(6), nx.star_graph(5), nx.cycle_graph(6)]), None),
        (as_topology([irregular_digraph(), irregular_digraph().to_scipy().T]), None),
        (as_topology([irregular_digraph(), irregular_digraph().to_scipy().T]), push),
    ],
    ids=[
        "ring",
        "grid",
        "star",
        "exponential",
        "dcliques",
        "pull",
        "push",
        "one-peer",
        "periodic",
        "pulls",
        "pushes",
    ],
)
def test_measured_contraction_is_the_declared_slem(x, rule):
    # Complex pairs of eigenvalues make single rounds oscillate: over 2400 rounds that leaves below
    # 1e-3.
    measured = measured_contraction(x, rounds=2400, seed=0, weights=rule)
    assert measured == pytest.approx(slem(x, weights=rule), rel=1e-3)


def test_ring_of_16_contracts_by_its_gap():
    measured = measured_contraction(ring(16), rounds=500, seed=1)
    assert 1 - measured == pytest.approx(0.05075, abs=5e-6)  # 0.05075 to the digits given


def test_random_graphs_without_a_period_are_measured():
    def pulls(t: int) -> Topology:
        rng = np.random.default_rng([7, t])
        sources = [
            rng.choice(np.delete(np.arange(40), i), size=5, replace=False) for i in range(40)
        ]
        return from_edges([(int(j), i) for i in range(40) for j in sources[i]], 40, directed=True)

    measured = measured_contraction(TopologySequence(40, pulls), rounds=200, seed=0)
    # Mean square contraction of k-in pulls is (1/(k+1))(1 - k/(n-1)); the geometric mean lies a
    # little below its root.
    assert measured == pytest.approx(np.sqrt(1 / 6 * (1 - 5 / 39)), rel=0.06)


def test_contraction_of_exact_averaging_is_zero():
    assert measured_contraction(as_topology(nx.complete_graph(6)), rounds=5, seed=0) == 0.0
    assert measured_contraction(one_peer(16), rounds=8, seed=0) == 0.0
    assert measured_contraction(from_edges([], 1), rounds=3, seed=0) == 0.0


def test_contraction_of_a_disconnected_graph_is_one():
    apart = from_edges([(0, 1), (2, 3)], 4)
    assert measured_contraction(apart, rounds=50, seed=0) == pytest.approx(1.0, abs=1e-12)


def test_contraction_without_burn_in_is_the_ratio_of_consensus_distances():
    matrix = mixing.uniform(irregular_digraph())
    start = np.random.default_rng(5).standard_normal(6)
    end = np.linalg.matrix_power(matrix.weights.toarray(), 3) @ start
    measured = measured_contraction(matrix, rounds=3, seed=np.random.default_rng(5), burn_in=0)
    assert measured**3 == pytest.approx(np.std(end) / np.std(start), rel=1e-12)


def test_push_is_measured_on_debiased_models():
    matrix = push(irregular_digraph())
    start = np.random.default_rng(5).standard_normal(6)
    power = np.linalg.matrix_power(matrix.weights.toarray(), 4)
    measured = measured_contraction(matrix, rounds=4, seed=np.random.default_rng(5), burn_in=0)
    assert measured**4 == pytest.approx(
        np.std(power @ start / power.sum(axis=1)) / np.std(start), rel=1e-12
    )


def test_same_seed_same_contraction():
    values = [measured_contraction(dcliques(20), rounds=3, seed=s, burn_in=0) for s in (3, 3, 4)]
    assert values[0] == values[1] != values[2]


# Bad input


@pytest.mark.parametrize(
    "metric", [slem, spectral_gap, partial(measured_contraction, rounds=5, seed=0)]
)
def test_refusals_common_to_all(metric):
    matrix = mixing.metropolis_hastings(ring(5))
    for x in (np.eye(3), nx.cycle_graph(3), [], [matrix, ring(5)], sparse.eye_array(3), None):
        with pytest.raises(TypeError, match="`x`"):
            metric(x)
    with pytest.raises(ValueError, match="`x` must hold matrices of one size"):
        metric([matrix, mixing.metropolis_hastings(ring(6))])
    with pytest.raises(ValueError, match="`weights` must be None"):
        metric(matrix, weights=push)
    for rule in ("metropolis", lambda graph: graph.to_scipy()):
        with pytest.raises(TypeError, match="`weights`"):
            metric(ring(5), weights=rule)
    with pytest.raises(TopologyError, match="all column-stochastic"):
        metric([mixing.uniform(irregular_digraph()), push(irregular_digraph())])


def test_sequences_without_a_period_have_no_gap_but_can_be_measured():
    sequence = TopologySequence(5, lambda t: ring(5), name="endless")
    for metric in (slem, spectral_gap):
        with pytest.raises(TopologyError, match=r"endless has no period.*measured_contraction"):
            metric(sequence)
    assert measured_contraction(sequence, rounds=400, seed=0) == pytest.approx(
        slem(ring(5)), rel=1e-9
    )


def test_contraction_refuses_bad_numbers_of_rounds():
    with pytest.raises(ValueError, match="`rounds`"):
        measured_contraction(ring(5), rounds=0, seed=0)
    with pytest.raises(ValueError, match="`burn_in`"):
        measured_contraction(ring(5), rounds=5, seed=0, burn_in=-1)
    with pytest.raises(ValueError, match="`seed`"):
        measured_contraction(ring(5), rounds=5, seed=-1)


def test_contraction_refuses_push_sum_without_mass():
    taken = mixing.from_weights([[1, 1], [0, 0]], edges="u<-v")
    with pytest.raises(TopologyError, match="node 1 fell to 0 in round 0"):
        measured_contraction(MixingSequence(2, lambda t: taken, "endless"), rounds=2, seed=0)
    with pytest.raises(TopologyError, match="the weight of node 1 tends to 0"):
        measured_contraction(taken, rounds=2, seed=0)


def test_metropolis_hastings_refuses_a_digraph_and_the_default_takes_pull():
    with pytest.raises(TopologyError, match="undirected"):
        slem(irregular_digraph(), weights=mixing.metropolis_hastings)
    assert slem(irregular_digraph()) == mixing.uniform(irregular_digraph(), direction="pull").slem


def test_averaging_that_is_exact_after_two_periods_has_no_second_eigenvalue() -> None:
    matchings = topologies.matchings(topologies.torus(16))
    once, twice = (window_product(matchings, rounds=4 * k) for k in (1, 2))
    assert not once.is_uniform_mean
    assert twice.is_uniform_mean  # the one eigenvalue, 0, is defective: computed ones would be 1e-9
    assert slem(matchings) == 0


@pytest.mark.parametrize("n", [8, 32, 256])
def test_exact_averaging_by_a_nilpotent_matrix_is_seen(n: int) -> None:
    # de Bruijn weights: row i takes half of 2 i and of 2 i + 1; all eigenvalues but one are 0, in
    # large Jordan blocks.
    rows = np.repeat(np.arange(n), 2)
    W = mixing.from_weights(
        sparse.csr_array((np.full(2 * n, 0.5), (rows, np.arange(2 * n) % n)), shape=(n, n))
    )
    assert slem(W) == slem([W, W]) == slem([W, W, W]) == 0
    assert slem(mixing.lazy(W, share=0.01)) == pytest.approx(
        0.01, abs=1e-12
    )  # as defective, and not taken for 0


def test_periods_of_pushes_multiply_in_the_order_of_time() -> None:
    pushes = [
        mixing.uniform(topologies.random_out(7, 2, seed=seed).at(0), direction="push")
        for seed in (1, 2, 5)
    ]
    product = pushes[2].weights @ pushes[1].weights @ pushes[0].weights
    other = pushes[0].weights @ pushes[1].weights @ pushes[2].weights
    moduli, wrong = (np.sort(np.abs(np.linalg.eigvals(P.toarray())))[-2] for P in (product, other))
    assert slem(pushes) == pytest.approx(moduli ** (1 / 3), rel=1e-9)
    assert abs(wrong - moduli) > 1e-3


def test_rows_then_columns_are_not_measured() -> None:
    row = mixing.from_weights([[0.5, 0.5], [0.2, 0.8]])
    column = mixing.from_weights([[0.5, 0.2], [0.5, 0.8]], edges="u<-v")
    mixed = MixingSequence(2, lambda t: row if t < 3 else column)
    with pytest.raises(TopologyError, match="must be row-stochastic, or all column-stochastic"):
        measured_contraction(mixed, rounds=5, seed=0)


def test_large_matrices_whose_smallest_eigenvalue_is_the_slem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Bipartite, of good expansion, and next to nothing kept: lambda_n is far nearer to -1 than
    # lambda_2 to 1.
    n, rng = 60, np.random.default_rng(0)
    half = sum(np.eye(n)[rng.permutation(n)] for _ in range(4)) / 4
    zero = np.zeros((n, n))
    W = mixing.lazy(mixing.from_weights(np.block([[zero, half], [half.T, zero]])), share=0.001)
    values = np.linalg.eigvalsh(W.weights.toarray())
    assert values[0] == pytest.approx(-0.998)
    assert values[-2] < 0.95
    monkeypatch.setattr(spectral.limits, "DENSE_LIMIT", 20)
    for solver in ("lanczos", "shift-invert"):
        solution = mixing.from_weights(W.weights).slem_solution
        assert (solution.solver, solution.value) == (solver, pytest.approx(0.998, abs=1e-9))
        monkeypatch.setattr(spectral.symmetric, "lanczos", lambda apply, n: None)  # it gives up
