"""Cycle times of machines that wait, and the slowest of random times."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import integrate, stats

from tests import problems
from topofl import clocks, topologies
from topofl.metrics import Hardware, round_time
from topofl.metrics.waiting import expected_slowest, maximum_cycle_mean
from topofl.topology import as_topology


def slowest_of(matrix):
    """Return the found cycle of a matrix whose NaN entries are no arcs, and its mean weight."""
    heads, tails = np.nonzero(~np.isnan(matrix.T))
    weights = matrix[tails, heads]
    value, cycle = maximum_cycle_mean(tails, heads, weights)
    return value, weights[cycle].mean()


def by_karp(matrix):
    """Karp (1978): max over v of min over k of (D_n(v) - D_k(v)) / (n - k), in each component."""
    graph = nx.from_numpy_array(~np.isnan(matrix), create_using=nx.DiGraph)
    parts = [sorted(part) for part in nx.strongly_connected_components(graph)]
    parts = [matrix[np.ix_(part, part)] for part in parts]
    return max(_karp(part) for part in parts if not np.isnan(part).all())


def _karp(matrix):
    n = len(matrix)
    weights = np.where(np.isnan(matrix), -np.inf, matrix)
    longest = [np.where(np.arange(n) == 0, 0.0, -np.inf)]
    for _ in range(n):
        longest.append((longest[-1][:, None] + weights).max(axis=0))
    longest = np.stack(longest)[:, np.isfinite(longest[n])]  # nodes where a walk of n arcs ends
    return ((longest[n] - longest[:n]) / (n - np.arange(n))[:, None]).min(axis=0).max()


@pytest.mark.parametrize("seed", range(40))
def test_small_graphs_by_karp(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    matrix = np.where(rng.random((n, n)) < 0.4, rng.integers(-5, 10, (n, n)), np.nan)
    for v in np.flatnonzero(np.isnan(matrix).all(axis=0)):
        matrix[v, v] = rng.integers(-5, 5)  # every node needs an arc into it
    assert slowest_of(matrix) == pytest.approx([by_karp(matrix)] * 2, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_graphs_that_are_not_strongly_connected_by_karp(seed):
    rng = np.random.default_rng(seed)
    for _ in range(50):
        n = int(rng.integers(20, 40))
        compute, latency = rng.uniform(1, 10, n), rng.exponential(10, (n, n))
        arcs = rng.random((n, n)) < 1.3 / n
        matrix = np.where(arcs, compute[:, None] + latency, np.nan)
        np.fill_diagonal(matrix, compute)
        assert slowest_of(matrix)[0] == pytest.approx(by_karp(matrix), rel=1e-12)


def test_cycle_time_of_a_graph_with_several_components_by_hand():
    # Nodes 4 and 5 wait for each other: (1 + 5 + 10 + 5) / 2 seconds per round.
    arcs = {(0, 1): 5, (0, 5): 50, (3, 2): 0, (4, 1): 50, (4, 5): 5, (5, 4): 5}
    latency = np.zeros((6, 6))
    latency[tuple(np.transpose(list(arcs)))] = list(arcs.values())
    hardware = Hardware(compute=[1.0, 10.0, 10.0, 1.0, 10.0, 1.0], latency=latency)
    found = cycle_of(as_topology(nx.DiGraph(sorted(arcs))), hardware)
    assert (found.seconds, found.compute, found.latency) == (10.5, 5.5, 5.0)


def cycle_of(graph, hardware, n_parameters=1):
    return round_time(graph, hardware=hardware, n_parameters=n_parameters, waiting="neighbors")


def test_long_paths_of_components_converge():
    # A path on which node after node is slower than the one before, but none as slow as the first.
    n = 3000
    path = nx.DiGraph([(k, k + 1) for k in range(n - 1)])
    path.add_node(n)
    compute = np.array([5.0, *np.linspace(1, 4, n - 1), 10.0])
    assert cycle_of(as_topology(path), Hardware(compute=compute)).seconds == 10.0


@pytest.mark.parametrize(
    "graph",
    [
        topologies.ring(30),
        topologies.barabasi_albert(30, m=2, seed=0),
        topologies.exponential(32, directed=True),
        topologies.star(20),
    ],
    ids=lambda graph: graph.name,
)
def test_cycle_time_of_hardware_by_karp(graph):
    rng, n = np.random.default_rng(1), graph.n
    compute, latency = rng.uniform(1, 3, n), rng.uniform(0, 3, (n, n))
    up = rng.uniform(50, 100, n)
    hardware = Hardware(compute=compute, latency=latency, bandwidth=up)
    found = cycle_of(graph, hardware, 25).seconds
    matrix = np.where(np.eye(n), compute, np.nan)
    for u, v in graph.edge_index.T:
        link = max(graph.out_degrees[u] * 100 / up[u], graph.in_degrees[v] * 100 / up[v])
        matrix[u, v] = compute[u] + latency[u, v] + link
    assert found == pytest.approx(by_karp(matrix), rel=1e-12)
    assert found <= round_time(graph, hardware=hardware, n_parameters=25).seconds


def test_a_directed_path_runs_at_the_pace_of_its_slowest_node():
    # Nobody waits for the last node, and nobody receives from it.
    hardware = Hardware(compute=[1.0, 4.0, 2.0], latency=10.0)
    found = cycle_of(as_topology(nx.DiGraph([(0, 1), (1, 2)])), hardware)
    assert (found.seconds, found.compute, found.latency) == (4.0, 4.0, 0.0)


def test_large_sparse_graphs():
    n = 20_000
    compute = np.random.default_rng(0).lognormal(size=n)
    hardware, graph = Hardware(compute=compute, latency=0.5), topologies.ring(n)
    near = cycle_of(graph, hardware).seconds
    # The slowest node alone, or any two neighbors that wait for each other, bound it from below.
    pairs = (compute + np.roll(compute, 1)) / 2 + 0.5
    assert near >= max(compute.max(), pairs.max()) - 1e-9
    assert near <= round_time(graph, hardware=hardware, n_parameters=1).seconds


# Random times


@pytest.mark.parametrize("n", [3, 10, 1000])
def test_exponential_times_have_harmonic_maxima(n):
    hardware = Hardware(compute=clocks.exponential(2.0), latency=1.0)
    found = round_time(topologies.ring(n), hardware=hardware, n_parameters=1)
    assert found.seconds == pytest.approx(2 * (1 / np.arange(1, n + 1)).sum() + 1, rel=1e-5)
    assert (found.latency, found.transfer) == (pytest.approx(1.0), 0)


@pytest.mark.parametrize("sigma", [0.2, 1.0])
def test_lognormal_times_of_equal_nodes(sigma):
    n = 50
    hardware = Hardware(compute=clocks.lognormal(3.0, sigma=sigma))
    found = round_time(topologies.torus(n), hardware=hardware, n_parameters=1)
    factor = stats.lognorm(sigma, scale=np.exp(-(sigma**2) / 2))
    expected = integrate.quad(lambda x: 1 - factor.cdf(x) ** n, 0, np.inf, limit=500)[0]
    assert found.seconds == pytest.approx(3 * expected, rel=1e-5)


def test_simulation_agrees_with_expectation():
    # A distribution of one's own is simulated, even if it is the exponential one.
    own = clocks.Times(1.0, lambda rng, count: rng.exponential(size=count), "own")
    graph = topologies.ring(20)
    hardware, known = Hardware(compute=own), Hardware(compute=clocks.exponential(1.0))
    found = round_time(graph, hardware=hardware, n_parameters=1, rounds=4000, seed=0)
    sample, exact = found.per_round, round_time(graph, hardware=known, n_parameters=1).seconds
    assert sample.mean() == pytest.approx(exact, abs=4 * sample.std() / np.sqrt(4000))


def test_waiting_for_neighbors_takes_less_than_for_all():
    hardware = Hardware(compute=clocks.exponential(1.0))
    options = {"hardware": hardware, "n_parameters": 1}
    graph = topologies.ring(100)
    near = round_time(graph, waiting="neighbors", rounds=300, seed=0, **options).seconds
    assert 1 < near < 0.8 * round_time(graph, **options).seconds
    alone = topologies.fully_connected(100)  # all nodes are neighbors
    sample = round_time(alone, waiting="neighbors", rounds=2000, seed=0, **options).per_round
    error = sample.std() / np.sqrt(2000)
    assert sample.mean() == pytest.approx(round_time(alone, **options).seconds, abs=4 * error)


@pytest.mark.slow
def test_random_times_of_several_nodes_per_machine():
    # A machine trains its two nodes one after the other: the maximum of two sums of two times.
    hardware = Hardware(compute=clocks.exponential(1.0), placement=[0, 0, 1, 1])
    how = {"n_parameters": 1, "rounds": 20_000, "seed": 1}
    sample = round_time(topologies.ring(4), hardware=hardware, **how).per_round
    # E max of two Gamma(2, 1) variables is 2 + 3/4.
    assert sample.mean() == pytest.approx(2.75, abs=4 * sample.std() / np.sqrt(20_000))


def unequal(kind, case):
    """Return times, means and delays, the first machine being fast behind a slow link."""
    cases = {"many": (1000, 0.05, 8.0), "few": (20, 0.02, 3.0), "two": (2, 0.01, 5.0)}
    n, fast, delay = cases[case]
    rng = np.random.default_rng(5)
    means, delays = np.linspace(0.5, 1.5, n), rng.uniform(0, 0.5, n)
    means[0], delays[0] = fast, delay
    make = clocks.exponential if kind == "exponential" else lambda x: clocks.lognormal(x, sigma=0.5)
    return make(means), means, delays


@pytest.mark.slow
@problems.by_turns(2, case=["many", "few", "two"], kind=["exponential", "lognormal"])
def test_probabilities_against_monte_carlo(kind, case):
    times, means, delays = unequal(kind, case)
    expected, probabilities = expected_slowest(times, means, delays)
    rng = np.random.default_rng(0)
    draws = 20_000
    ends = np.stack([means * times.factor(rng, len(means)) + delays for _ in range(draws)])
    slowest = ends.argmax(axis=1)
    shares = np.bincount(slowest, minlength=len(means)) / draws
    error = np.sqrt(probabilities * (1 - probabilities) / draws)
    assert (np.abs(shares - probabilities) <= 5 * error + 1 / draws).all()
    waited = delays[slowest]
    for value, sample in ((probabilities @ delays, waited), (expected, ends.max(axis=1))):
        error = 4 * sample.std() / np.sqrt(draws)
        assert value == pytest.approx(sample.mean(), abs=error)


def test_probabilities_of_two_machines():
    # P(a E < d + b E') = 1 - exp(-d / a) a / (a + b) with exponential E and E' of mean 1.
    a, b, d = 1.5, 0.01, 5.0
    _, found = expected_slowest(clocks.exponential(1.0), np.array([a, b]), np.array([0.0, d]))
    other = np.exp(-d / a) * a / (a + b)
    assert found == pytest.approx([other, 1 - other], abs=1e-6)
    assert found.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("server", [False, True])
@pytest.mark.parametrize("waiting", ["all", "neighbors"])
def test_no_steps_take_no_time(waiting, server):
    options = {"n_parameters": 25, "waiting": waiting, "server": server, "steps": 0}
    links: dict[str, Any] = {"latency": 0.1, "bandwidth": 1000.0}
    fixed = round_time(topologies.ring(4), hardware=Hardware(compute=1.0, **links), **options)
    drawn = Hardware(compute=clocks.exponential(1.0), **links)
    seed = 0 if waiting == "neighbors" else None
    found = round_time(topologies.ring(4), hardware=drawn, seed=seed, **options)
    parts = (found.seconds, found.compute, found.latency, found.transfer)
    assert parts == pytest.approx((fixed.seconds, 0.0, fixed.latency, fixed.transfer))


@pytest.mark.parametrize("waiting", ["all", "neighbors"])
def test_lognormal_times_without_variance_are_fixed(waiting):
    hardware = Hardware(compute=clocks.lognormal(1.0, sigma=0.0), latency=0.1)
    assert not hardware.is_random
    found = round_time(topologies.ring(4), hardware=hardware, n_parameters=1, waiting=waiting)
    assert (found.seconds, found.compute, found.latency) == pytest.approx((1.1, 1.0, 0.1))
    assert repr(hardware) == "Hardware(compute=lognormal(1, sigma=0.0), latency=0.1)"
