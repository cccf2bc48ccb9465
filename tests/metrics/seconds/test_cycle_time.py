"""The maximum cycle mean against all cycles, Karp's algorithm and simulated clocks."""

import networkx as nx
import numpy as np
import pytest

import topofl
from topofl import topologies
from topofl.metrics import Hardware, round_time
from topofl.metrics.waiting import Arcs, maximum_cycle_mean


def arcs_of(matrix):
    """Return arcs and weights of a matrix whose NaN entries are no arcs."""
    heads, tails = np.nonzero(~np.isnan(matrix.T))
    return Arcs(tails, np.searchsorted(heads, np.arange(len(matrix)))), matrix[tails, heads]


def by_enumeration(matrix):
    graph = nx.DiGraph(
        [(int(u), int(v)) for u, v in zip(*np.nonzero(~np.isnan(matrix)), strict=False)]
    )
    cycles = nx.simple_cycles(graph)
    return max(
        np.mean([matrix[u, v] for u, v in zip(c, [*c[1:], c[0]], strict=True)]) for c in cycles
    )


def by_karp(matrix):
    """Karp (1978): max over v of min over k of (D_n(v) - D_k(v)) / (n - k)."""
    n = len(matrix)
    weights = np.where(np.isnan(matrix), -np.inf, matrix)
    longest = [np.where(np.arange(n) == 0, 0.0, -np.inf)]
    for _ in range(n):
        longest.append((longest[-1][:, None] + weights).max(axis=0))
    with np.errstate(invalid="ignore"):
        ratios = [
            (longest[n] - longest[k]) / (n - k) for k in range(n)
        ]  # -inf - -inf is no walk: NaN
    return np.nanmax(np.nanmin(np.where(np.isneginf(longest[n]), np.nan, ratios), axis=0))


def by_karp_per_component(matrix):
    """Return the largest of Karp's values over strongly connected components with a cycle."""
    graph = nx.from_numpy_array(~np.isnan(matrix), create_using=nx.DiGraph)
    parts = [sorted(part) for part in nx.strongly_connected_components(graph)]
    parts = [matrix[np.ix_(part, part)] for part in parts]
    return max(by_karp(part) for part in parts if not np.isnan(part).all())


@pytest.mark.parametrize("seed", range(40))
def test_small_graphs_by_enumeration(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    matrix = np.where(rng.random((n, n)) < 0.4, rng.integers(-5, 10, (n, n)), np.nan)
    for v in np.flatnonzero(np.isnan(matrix).all(axis=0)):
        matrix[v, v] = rng.integers(-5, 5)  # every node needs an arc into it
    arcs, weights = arcs_of(matrix)
    found = maximum_cycle_mean(arcs, weights)
    assert found.value == pytest.approx(by_enumeration(matrix), abs=1e-12)
    assert weights[found.arcs].mean() == pytest.approx(found.value, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_larger_graphs_by_karp(seed):
    rng = np.random.default_rng(seed)
    n = 80
    matrix = np.where(rng.random((n, n)) < 0.05, rng.lognormal(size=(n, n)), np.nan)
    np.fill_diagonal(matrix, 0.1)
    around = np.arange(n)
    matrix[around, (around + 1) % n] = 0.2  # strongly connected, as Karp's algorithm needs
    assert maximum_cycle_mean(*arcs_of(matrix)).value == pytest.approx(by_karp(matrix), rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_graphs_that_are_not_strongly_connected_by_karp_per_component(seed):
    rng = np.random.default_rng(seed)
    for _ in range(50):
        n = int(rng.integers(20, 40))
        compute, latency = rng.uniform(1, 10, n), rng.exponential(10, (n, n))
        arcs = rng.random((n, n)) < 1.3 / n
        matrix = np.where(arcs, compute[:, None] + latency, np.nan)
        np.fill_diagonal(matrix, compute)
        found = maximum_cycle_mean(*arcs_of(matrix))
        assert found.value == pytest.approx(by_karp_per_component(matrix), rel=1e-12)


def test_cycle_time_of_a_graph_with_several_components_by_hand():
    # Nodes 4 and 5 wait for each other: (1 + 5 + 10 + 5) / 2 seconds per round.
    arcs = {(0, 1): 5, (0, 5): 50, (3, 2): 0, (4, 1): 50, (4, 5): 5, (5, 4): 5}
    latency = np.zeros((6, 6))
    latency[tuple(np.transpose(list(arcs)))] = list(arcs.values())
    graph = topofl.as_topology(nx.DiGraph(sorted(arcs)))
    hardware = Hardware(compute=[1.0, 10.0, 10.0, 1.0, 10.0, 1.0], latency=latency)
    found = round_time(graph, hardware=hardware, n_parameters=1, waiting="neighbors")
    assert (found.seconds, found.compute, found.latency) == (10.5, 5.5, 5.0)


def test_long_paths_of_components_converge():
    # A path on which node after node is slower than the one before, but none as slow as the first.
    n = 3000
    path = nx.DiGraph([(k, k + 1) for k in range(n - 1)])
    path.add_node(n)
    compute = np.array([5.0, *np.linspace(1, 4, n - 1), 10.0])
    graph = topofl.as_topology(path)
    found = round_time(
        graph, hardware=Hardware(compute=compute), n_parameters=1, waiting="neighbors"
    )
    assert found.seconds == 10.0


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
    rng = np.random.default_rng(1)
    n = graph.n
    compute, latency = rng.uniform(1, 3, n), rng.uniform(0, 3, (n, n))
    up = rng.uniform(50, 100, n)
    hardware = Hardware(compute=compute, latency=latency, bandwidth=up)
    found = round_time(graph, hardware=hardware, n_parameters=25, waiting="neighbors").seconds
    matrix = np.diag(compute)
    matrix[matrix == 0] = np.nan
    for u, v in graph.edge_index.T:
        link = max(graph.out_degrees[u] * 100 / up[u], graph.in_degrees[v] * 100 / up[v])
        matrix[u, v] = compute[u] + latency[u, v] + link
    assert found == pytest.approx(by_karp(matrix), rel=1e-12)
    assert found <= round_time(graph, hardware=hardware, n_parameters=25).seconds


def test_a_directed_path_runs_at_the_pace_of_its_slowest_node():
    # Nobody waits for the last node, and nobody receives from it.
    path = topofl.as_topology(nx.DiGraph([(0, 1), (1, 2)]))
    hardware = Hardware(compute=[1.0, 4.0, 2.0], latency=10.0)
    found = round_time(path, hardware=hardware, n_parameters=1, waiting="neighbors")
    assert (found.seconds, found.compute, found.latency) == (4.0, 4.0, 0.0)


def test_large_sparse_graphs():
    n = 20_000
    rng = np.random.default_rng(0)
    hardware = Hardware(compute=rng.lognormal(size=n), latency=0.5)
    graph = topologies.ring(n)
    options = {"hardware": hardware, "n_parameters": 1}
    near = round_time(graph, waiting="neighbors", **options).seconds
    compute = np.asarray(hardware.compute.mean)
    # The slowest node alone, or any two neighbors that wait for each other, bound it from below.
    pairs = (compute + np.roll(compute, 1)) / 2 + 0.5
    assert near >= max(compute.max(), pairs.max()) - 1e-9
    assert near <= round_time(graph, **options).seconds
