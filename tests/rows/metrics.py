"""The metrics: what each is by a plain formula, what it takes, and what is known of it."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial, reduce
from typing import Any

import mpmath
import networkx as nx
import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from topofl import metrics, mixing, topologies
from topofl._linalg import spectral
from topofl.metrics import hops, shape
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologySequence, as_topology, from_edges

push = partial(mixing.uniform, direction="push")
pull = partial(mixing.uniform, direction="pull")
metropolis = mixing.metropolis_hastings


# Graphs that several tests use


def dcliques(n: int, size: int = 10) -> Topology:
    """Return cliques of consecutive nodes, each pair connected at its least loaded nodes."""
    groups = np.arange(n).reshape(-1, size)
    edges = [(i, j) for group in groups.tolist() for i in group for j in group if i < j]
    loads = np.zeros(n, dtype=int)
    for a, b in itertools.combinations(range(len(groups)), 2):
        ends = [int(group[loads[group].argmin()]) for group in (groups[a], groups[b])]
        loads[ends] += 1
        edges.append((ends[0], ends[1]))
    return from_edges(edges, n, groups=groups.tolist())


def relabelled(x: Any, seed: int = 0) -> Any:
    """Return a graph, a matrix or a list of either with its nodes in random order."""
    if isinstance(x, list):
        return [relabelled(one, seed) for one in x]
    order = np.random.default_rng(seed).permutation(x.n)
    if isinstance(x, MixingMatrix):
        return mixing.from_weights(x.weights[order][:, order], edges="u<-v")
    return Topology(x.to_scipy()[order][:, order])


def irregular_digraph() -> Topology:
    """Return a strongly connected graph of unequal degrees.

    Its uniform weights are row- or column-stochastic, but not doubly stochastic.
    """
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (0, 2), (4, 1)]
    return from_edges(edges, 6, directed=True, name="digraph")


def halving(n: int) -> Topology:
    """Return a graph whose node i receives from i + 1 and from node 0: pi halves at each node."""
    edges = [(i, i - 1) for i in range(1, n)] + [(0, i) for i in range(1, n)]
    return from_edges(edges, n, directed=True)


def triangles(n: int) -> Topology:
    """Return a chain of complete triangles, each of which sends to the next."""
    first = np.arange(0, n, 3)
    pairs = itertools.permutations(range(3), 2)
    inside = [np.stack([first + i, first + j], axis=1) for i, j in pairs]
    between = np.stack([first[:-1] + 2, first[1:]], axis=1)
    return from_edges(np.concatenate([*inside, between]), n, directed=True)


def two_rings() -> Topology:
    return as_topology(nx.disjoint_union(nx.cycle_graph(101), nx.cycle_graph(101)))


def strongly_connected(n: int, seed: int) -> Topology:
    graph = nx.gnp_random_graph(n, 4 / n, seed=seed, directed=True)
    return as_topology(nx.compose(graph, nx.cycle_graph(n, create_using=nx.DiGraph)))


def counts_of(n: int, classes: int = 4, seed: int = 0) -> np.ndarray:
    """Return label counts of nodes of which each has data."""
    counts = np.random.default_rng(seed).integers(0, 5, (n, classes))
    counts[:, 0] += 1
    return counts


def shares_of(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum(axis=1, keepdims=True)


@st.composite
def graphs(
    draw: st.DrawFn,
    directed: bool | None = None,
    least: int = 1,
    largest: int = 9,
    connected: bool = False,
) -> Topology:
    """Draw a graph, sparse to complete; with a cycle through all nodes if `connected`."""
    n, directed = draw(st.integers(least, largest)), draw(st.booleans()) | bool(directed)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    chosen = rng.random((n, n)) < draw(st.sampled_from([0.1, 0.3, 0.6, 1.0]))
    chosen[np.arange(n), np.roll(np.arange(n), -1)] |= connected
    return from_edges(np.argwhere(chosen & ~np.eye(n, dtype=bool)), n, directed=directed)


undirected = graphs().map(lambda graph: from_edges(graph.edge_index.T, graph.n))


@st.composite
def rounds(draw: st.DrawFn, *rules: Any, most: int = 3, connected: bool = False) -> list[Any]:
    """Draw the rounds of a period, of one of several kinds of weights."""
    rule, n = draw(st.sampled_from(rules)), draw(st.integers(1, 7))
    some = graphs(least=n, largest=n, connected=connected)
    count = draw(st.integers(1, most))
    return [rule(draw(some)) for _ in range(count)]


def symmetric(graph: Topology) -> MixingMatrix:
    return metropolis(from_edges(graph.edge_index.T, graph.n))


def permuted(graph: Topology) -> MixingMatrix:
    """Return doubly stochastic weights that are not symmetric, others for each number of edges."""
    rng = np.random.default_rng(graph.n_edges)
    parts = [share * np.eye(graph.n)[rng.permutation(graph.n)] for share in (0.5, 0.3, 0.2)]
    return mixing.from_weights(sum(parts))


@st.composite
def conductances(draw: st.DrawFn) -> Topology:
    """Draw a connected undirected graph with weights."""
    graph = draw(graphs(least=2, connected=True))
    weights = draw(st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 5.0]), min_size=81, max_size=81))
    upper = np.triu(np.resize(weights, (graph.n, graph.n)) * (graph.to_scipy().toarray() > 0), 1)
    upper[np.arange(graph.n - 1), np.arange(1, graph.n)] = 1
    return as_topology(upper + upper.T)


# Formulas for dense weights of a period


def dense(x: Sequence[MixingMatrix]) -> list[np.ndarray]:
    return [W.weights.toarray() for W in x]


def product(x: Sequence[MixingMatrix]) -> np.ndarray:
    """Return the product of the rounds in chronological order."""
    return reduce(lambda before, W: W @ before, dense(x), np.eye(x[0].n))


def starts(x: list[Any]) -> Iterator[list[Any]]:
    """Yield a period from each of its rounds on."""
    return (x[s:] + x[:s] for s in range(len(x)))


def exact_slem(x: Sequence[MixingMatrix]) -> float:
    """Return the SLEM with 60 digits, of which a Jordan block of order 6 for 0 leaves 10."""
    if x[0].n == 1:
        return 0.0
    with mpmath.workdps(60):
        power = mpmath.eye(x[0].n)
        for W in dense(x):
            entries = [[Fraction(w).limit_denominator(10**4) for w in row] for row in W.tolist()]
            exact = [[mpmath.mpf(w.numerator) / w.denominator for w in row] for row in entries]
            power = mpmath.matrix(exact) * power
        try:
            values = mpmath.eig(power, left=False, right=False)
        except RuntimeError:  # its iteration does not converge on some matrices that are nilpotent
            assume(False)
            raise
        return float(sorted(map(abs, values))[-2] ** (mpmath.mpf(1) / len(x)))


def ergodicity(x: Sequence[MixingMatrix]) -> float:
    """Return one minus the smallest overlap of two rows; of columns, if only these sum to 1."""
    rows = product(x) if all(W.is_row_stochastic for W in x) else product(x).T
    return 1 - min(np.minimum(a, b).sum() for a in rows for b in rows)


def perron(x: Sequence[MixingMatrix]) -> np.ndarray:
    rows = product(x) if all(W.is_row_stochastic for W in x) else product(x).T
    system = np.vstack([rows.T - np.eye(len(rows)), np.ones(len(rows))])
    return np.linalg.lstsq(system, np.eye(len(rows) + 1)[-1], rcond=None)[0]


def weighted_gap(x: Sequence[MixingMatrix]) -> float:
    rows = product(x) if x[0].is_row_stochastic else product(x).T
    pi = perron(x)
    roots = np.sqrt(pi)
    return 1 - np.linalg.norm(roots[:, None] * (rows - pi) / roots, 2)


def passage_time(x: Sequence[MixingMatrix]) -> float:
    """Return the mean first passage time from node 0 to a node drawn from pi."""
    (W,), times = dense(x), np.zeros(x[0].n)
    for j in range(1, x[0].n):
        others = np.arange(len(W)) != j
        left = np.eye(len(W) - 1) - W[others][:, others]
        times[j] = np.linalg.solve(left, np.ones(len(W) - 1))[0]
    return float(times @ perron(x))


def variances(x: Sequence[MixingMatrix], gamma: float) -> np.ndarray:
    """Return the variance of each node, a series, as the mean over the rounds of a period."""
    found = np.zeros(x[0].n)
    for period in starts(dense(x)[::-1]):
        power = np.eye(x[0].n)
        for k in range(240):
            power = power @ period[k % len(x)]
            found += gamma**k * np.square(power).sum(axis=1)
    return (1 - gamma) * found / len(x)


def gap_of_squares(x: Sequence[MixingMatrix]) -> float:
    """Return 1 minus the largest eigenvalue of the mean of W^T (I - J) W on disagreement."""
    rest = np.eye(x[0].n) - 1 / x[0].n
    mean = np.mean([W.T @ rest @ W for W in dense(x)], axis=0)
    return 1 - np.linalg.eigvalsh(rest @ mean @ rest)[-1]


def time_to_mix(x: Sequence[MixingMatrix], epsilon: float, most: int = 3000) -> float:
    limit = np.linalg.matrix_power(product(x), most)
    by_rows, power = all(W.is_row_stochastic for W in x), np.eye(x[0].n)
    for t in range(most):
        target = limit[0] if by_rows else (power @ limit[:, 0])[:, None]
        if 0.5 * np.abs(power - target).sum(axis=1 if by_rows else 0).max() <= epsilon:
            return t
        power = dense(x)[t % len(x)] @ power
    return math.inf


def over_hops(
    x: Sequence[MixingMatrix], values: np.ndarray, hops: int, discount: float = 1.0, mean=False
) -> float:
    """Return the distance of mixed values from their limit, or mean, over hops, mean of starts."""
    n, total = len(values), 0.0
    pulled = all(W.is_row_stochastic for W in x)
    for period in starts(list(x)):
        limit = perron(period) @ values if pulled and not mean else values.mean(axis=0)
        state, ones = values.astype(float), np.ones((n, 1))
        for k, W in zip(range(hops), itertools.cycle(dense(period)), strict=False):
            state, ones = W @ state, W @ ones
            total += discount**k * np.square((state if pulled else state / ones) - limit).sum()
    return total / n / len(x)


# Formulas for graphs, with networkx or by brute force


def fewest_nodes(graph: Topology) -> int:
    """Return the smallest number of nodes whose removal disconnects a graph."""
    whole, nodes = nx.DiGraph(graph.to_networkx()), set(range(graph.n))
    for size in range(graph.n):
        for removed in itertools.combinations(nodes, size):
            left = whole.subgraph(nodes - set(removed))
            if len(left) < 2 or not nx.is_strongly_connected(left):
                return size
    raise AssertionError("a single node is always left")


def fewest_edges(graph: Topology) -> int:
    """Return the smallest number of edges that leave a set of nodes."""
    edges = nx.DiGraph(graph.to_networkx()).edges
    sizes = range(1, graph.n)
    sets = [set(s) for size in sizes for s in itertools.combinations(range(graph.n), size)]
    return min((sum(u in s and v not in s for u, v in edges) for s in sets), default=0)


def present(graph: Topology) -> np.ndarray:
    return graph.adjacency.toarray() != 0


def agreeing_pairs(graph: Topology) -> float:
    agree = (present(graph) == present(graph).T)[np.triu_indices(graph.n, 1)]
    return agree.mean() if agree.size else 1.0


def answered_edges(graph: Topology) -> float:
    return nx.overall_reciprocity(nx.DiGraph(present(graph))) if present(graph).any() else 1.0


def resistance(graph: Topology) -> float:
    other = graph.to_networkx()
    weight = "weight" if nx.is_weighted(other) else None
    return nx.effective_graph_resistance(other, weight=weight, invert_weight=False)


def label_distance(graph: Topology, counts: np.ndarray) -> float:
    shares = shares_of(counts)
    apart = np.abs(shares[:, None] - shares).sum(axis=2) / 2
    pairs = apart[~np.eye(graph.n, dtype=bool)].mean()
    return apart[tuple(graph.edge_index)].mean() / pairs if pairs else 1.0


def newman(graph: Topology) -> float:
    """Return Newman's sum over pairs of nodes in one community."""
    weights = (graph.adjacency + graph.adjacency.T).toarray()
    degrees, group = weights.sum(axis=1), np.zeros(graph.n)
    for k, nodes in enumerate(metrics.communities(graph)):
        group[nodes] = k
    same = group[:, None] == group
    excess = weights - np.outer(degrees, degrees) / weights.sum()
    return (excess * same).sum() / weights.sum()


def shortest_windows(graphs: list[Topology], starts: Callable[[int, int], range]) -> float:
    """Return the smallest B for which the windows from all starts are strongly connected."""
    p = len(graphs)
    for b in range(1, p + 1):
        windows = ([graphs[(s + k) % p] for k in range(b)] for s in starts(b, p))
        unions = (sum(present(graph) for graph in window) > 0 for window in windows)
        if all(nx.is_strongly_connected(nx.DiGraph(union)) for union in unions):
            return b
    return math.inf


def ending(graphs: list[Topology]) -> dict[str, Any]:
    return {"graphs": TopologySequence(graphs[0].n, graphs.__getitem__), "rounds": len(graphs)}


# The metrics


@dataclass(frozen=True)
class Metric:
    """A metric of a graph, of a matrix, or of the rounds of a period.

    Parameters
    ----------
    of, oracle
        The metric, and a formula of the same value; both of label counts too, if `has_labels`.
    draws
        What it takes.
    bounds
        The least and the largest value for n nodes.
    abs
        Largest difference between a metric and its formula.
    period
        "repeats": one matrix repeated is that matrix; "turns": and a period may start anywhere.
    known
        Graphs and their values.
    large, limits
        Graphs, and the limits that are lowered so that they count as large.
    """

    of: Callable[..., Any]
    oracle: Callable[..., Any]
    draws: st.SearchStrategy[Any]
    bounds: Callable[[int], tuple[float, float]] = lambda n: (0, 1)
    abs: float = 1e-9
    period: str = ""
    has_labels: bool = False
    known: Sequence[tuple[Any, Any]] = ()
    large: Sequence[Any] = ()
    limits: Sequence[dict[tuple[Any, str], float]] = field(
        default_factory=lambda: [{(spectral, "DENSE_LIMIT"): 10}]
    )


def about(value: float, digits: int) -> Any:
    """Return a published value, to the digits given."""
    return pytest.approx(value, abs=0.5 * 10**-digits)


def any_value(n: int) -> tuple[float, float]:
    return 0, math.inf


def whole(n: int) -> tuple[float, float]:
    return 0, n


EVERY = (mixing.metropolis_or_uniform, pull, push, permuted)
CONNECTED = rounds(symmetric, pull, push, connected=True)
PULLED = rounds(mixing.metropolis_or_uniform, pull, permuted)
SETTLING = rounds(symmetric, pull, push, most=2, connected=True)
GRAPHS = {
    "ring": topologies.ring(12),
    "star": topologies.star(9),
    "random": topologies.random_regular(30, 4, seed=0),
    "D-Cliques": topologies.dcliques(counts_of(30), clique_size=5, seed=0),
    "exponential": topologies.exponential(16),
}
LARGE_DIGRAPHS = [rule(strongly_connected(80, 1)) for rule in (pull, push)]
SLOW = [topologies.random_regular(200, 4, seed=0), topologies.small_world(200, 4, p=0.05, seed=0)]
ONE_PEER = topologies.one_peer_exponential
SWAP = mixing.from_weights([[0, 1], [1, 0]], name="swap")  # bipartite, without self-weights
BAND = (hops, "BAND_COST")
SOLVERS = [{(spectral, "DENSE_LIMIT"): 50, BAND: cost} for cost in (0, 1e10)]
CYCLES = [from_edges([(i, (i + 1) % 7) for i in range(7)], 7, directed=True)]


def neighbors(which: str) -> Metric:
    picked = {"mean": np.mean, "worst": np.max}[which]
    return Metric(
        partial(metrics.effective_neighbors, gamma=0.8, which=which),
        lambda x: 1 / picked(variances(x, 0.8)),
        PULLED,
        lambda n: (1, n),
        period="turns",
        known=[
            (mixing.from_weights(np.roll(np.eye(5), 1, axis=0)), 1),
            # The last j rounds average 2^j nodes, the last log2(n) all: whichever round it is.
            (ONE_PEER(32), 5 / sum(0.8**j / min(2 ** (j + 1), 32) for j in range(500))),
        ],
    )


def noise(count: int | str, discount: float, rules: st.SearchStrategy[Any], tested: int) -> Metric:
    return Metric(
        partial(metrics.accumulated_noise, hops=count, discount=discount),
        lambda x: over_hops(x, np.eye(x[0].n), tested, discount),
        rules,
        any_value,
        abs=1e-7 if count == "inf" else 1e-10,
        period="turns",
        large=() if count != "inf" or discount < 1 else SLOW,
        limits=[{(spectral, "SPECTRUM_LIMIT"): 100, **limits} for limits in SOLVERS],
    )


def heterogeneity(count: int | str, discount: float, tested: int, **more: Any) -> Metric:
    around = "mean" if count == 1 else "consensus"
    return Metric(
        partial(metrics.neighborhood_heterogeneity, hops=count, discount=discount),
        lambda x, counts: over_hops(x, shares_of(counts), tested, discount, around == "mean"),
        SETTLING,
        lambda n: (0, 2 if count == 1 else math.inf),
        abs=1e-8 if count == "inf" else 1e-10,
        period="turns",
        has_labels=True,
        **more,
    )


METRICS = {
    "slem": Metric(
        lambda x: (x[0] if isinstance(x, list) else x).slem,
        exact_slem,
        rounds(*EVERY, most=1),
        known=[
            *(
                (metropolis(graph), value)
                for graph, value in [
                    (topologies.ring(100), about(0.998684, 6)),
                    (topologies.grid(100), about(0.979470, 6)),
                    (topologies.exponential(100), 11 / 15),
                    (topologies.star(100), 0.99),
                    (topologies.fully_connected(100), 0.0),
                    (topologies.exponential(1000), 17 / 21),
                    (dcliques(100), about(0.918093, 6)),
                    (dcliques(1000), about(0.801215, 6)),
                    (from_edges([], 1), 0.0),
                    (from_edges([(0, 1), (2, 3)], 4), 1.0),
                ]
            ),
        ],
        large=[rule(topologies.random_in(300, 9, seed=0).at(0)) for rule in (pull, push)],
    ),
    "slem of periods": Metric(
        metrics.slem,
        exact_slem,
        st.one_of(rounds(symmetric, pull, permuted), rounds(push, connected=True)),
        abs=1e-7,
        period="turns",
        known=[
            *((topologies.star(n), 1 - 1 / n) for n in (3, 10, 100)),
            *((ONE_PEER(n), 0.0) for n in (2, 4, 16, 64, 4096)),
            (as_topology([from_edges([(0, 1), (2, 3)], 4)] * 2), 1.0),
            (as_topology([from_edges([(i, (i + 2) % 8) for i in range(8)], 8)] * 2), 1.0),
            (as_topology([from_edges([(0, 1), (2, 3)], 4), from_edges([(0, 2), (1, 3)], 4)]), 0.0),
            (topologies.matchings(topologies.torus(16)), 0.0),
        ],
        large=[
            as_topology(relabelled([ONE_PEER(50).at(t) for t in range(6)])),
            as_topology([irregular_digraph()] * 2),
            [push(irregular_digraph())] * 2,
        ],
        limits=[{(spectral, "DENSE_LIMIT"): 1}],
    ),
    "sigma": Metric(
        lambda x: metrics.sigma(x[0] if isinstance(x, list) else x),
        lambda x: np.linalg.norm(product(x) - 1 / x[0].n, 2),
        rounds(symmetric, permuted, most=1),
        known=[(ONE_PEER(8).at(2), 1.0), (topologies.ring(1), 0.0)],
    ),
    "smallest eigenvalue": Metric(
        lambda x: metrics.smallest_eigenvalue(x[0] if isinstance(x, list) else x),
        lambda x: np.linalg.eigvalsh(product(x))[0],
        rounds(symmetric, most=1),
        lambda n: (-1, 1),
        known=[
            *(
                (topologies.ring(n), (1 + 2 * math.cos(2 * math.pi * (n // 2) / n)) / 3)
                for n in (4, 5, 9, 20_000)
            ),
            *((topologies.hypercube(2**d), (1 - d) / (1 + d)) for d in (2, 3, 4)),
            (SWAP, -1),
            (topologies.fully_connected(6), 0),
            (topologies.ring(1), 1),
        ],
        large=[topologies.random_regular(200, 4, seed=0), relabelled(topologies.ring(151))],
    ),
    "Dobrushin": Metric(
        metrics.dobrushin,
        ergodicity,
        rounds(*EVERY),
        abs=1e-12,
        known=[
            (ONE_PEER(100), about(0.219, 3)),
            # Rows of the product of 7 rounds are uniform on 128 offsets, 28 of 100 of them twice:
            # shifts by 28..72 share least.
            (ONE_PEER(100), 28 / 128),
            *((ONE_PEER(n), 0.0) for n in (2, 8, 64)),
            (topologies.fully_connected(9), 0.0),
            (topologies.star(10), 1 - 1 / 10),  # two leaves share the center's 1/n
            (topologies.ring(6), 1.0),
            (topologies.ring(5), 2 / 3),  # opposite nodes have one of three neighbors in common
            (from_edges([], 1), 0.0),
            (from_edges([], 2), 1.0),
            (from_edges([(0, 1)], 2), 0.0),
            (as_topology([from_edges([(0, 1), (2, 3)], 4)] * 50), 1.0),
        ],
    ),
    "effective neighbors": neighbors("mean"),
    "worst effective neighbors": neighbors("worst"),
    "expected gap": Metric(
        metrics.expected_gap,
        gap_of_squares,
        PULLED,
        lambda n: (-n, 1),
        period="turns",
        known=[
            *((topologies.fully_connected(n), 1) for n in (3, 5, 100)),
            (topologies.ring(1), 1),
            (SWAP, 0),
            (from_edges([(0, 1)], 3), 0),
            (from_edges([(0, 1), (2, 3), (3, 4)], 6), 0),
        ],
        large=[[pull(topologies.random_in(60, 3, seed=1).at(t)) for t in range(20)]],
    ),
    "product contraction": Metric(
        lambda x: metrics.product_contraction(x, rounds=len(x)),
        lambda x: np.linalg.norm(product(x) - 1 / x[0].n, 2),
        rounds(symmetric, permuted),
        known=[
            ([metropolis(topologies.ring(16))] * 10, metropolis(topologies.ring(16)).slem ** 10),
            ([SWAP] * 7, 1),
        ],
    ),
    "mixing time": Metric(
        partial(metrics.mixing_time, epsilon=0.2413),
        partial(time_to_mix, epsilon=0.2413),
        SETTLING,
        any_value,
        period="repeats",
        known=[
            (SWAP, math.inf),
            (mixing.lazy(SWAP), 1),
            (topologies.ring(1), 0),
            (topologies.fully_connected(9), 1),
            (ONE_PEER(16), 4),
        ],
    ),
    "Perron skewness": Metric(
        metrics.perron_skewness,
        lambda x: perron(x).max() / perron(x).min(),
        CONNECTED,
        lambda n: (1 - 1e-12, math.inf),
        period="repeats",
        known=[
            (pull(topologies.star(5)), 2.5),
            (topologies.ring(7), 1),
            (pull(from_edges([(0, 1), (1, 0), (1, 2)], 3, directed=True)), math.inf),
        ],
        large=LARGE_DIGRAPHS,
    ),
    "pi-weighted gap": Metric(
        lambda x: metrics.pi_weighted_gap(x[0] if isinstance(x, list) else x),
        weighted_gap,
        rounds(symmetric, pull, push, permuted, most=1, connected=True),
        known=[
            (topologies.ring(1), 1),
            *(
                (pull(graph), pull(graph).spectral_gap)
                for graph in (topologies.star(6), topologies.path(5), topologies.tree(10))
            ),
        ],
        large=LARGE_DIGRAPHS,
    ),
    "Kemeny constant": Metric(
        lambda x: metrics.kemeny_constant(x[0] if isinstance(x, list) else x),
        passage_time,
        rounds(symmetric, pull, most=1, connected=True),
        lambda n: ((n - 1) / 2 - 1e-9, math.inf),
        known=[
            *((topologies.fully_connected(n), n - 1) for n in (1, 2, 5, 40)),
            *((topologies.ring(n), (n**2 - 1) / 4) for n in (4, 5, 16, 101)),
            (CYCLES[0], 6),  # uniform pull keeps a half
            *(
                (mixing.from_weights((np.ones((n, n)) - np.eye(n)) / (n - 1)), (n - 1) ** 2 / n)
                for n in (2, 3, 10)
            ),  # all other eigenvalues are -1 / (n - 1)
        ],
    ),
    "noise of 6 hops": noise(6, 0.7, SETTLING, 6),
    "noise of all hops": noise("inf", 1.0, SETTLING, 500),
    "discounted noise": noise("inf", 0.9, SETTLING, 400),
    "heterogeneity": heterogeneity(1, 1.0, 1),
    "heterogeneity of 6 hops": heterogeneity(6, 0.7, 6),
    "heterogeneity of all hops": heterogeneity(
        "inf", 1.0, 500, large=[*SLOW, two_rings()], limits=SOLVERS
    ),
    "discounted heterogeneity": heterogeneity("inf", 0.9, 400, large=SLOW, limits=SOLVERS),
    "clustering": Metric(
        metrics.clustering,
        lambda graph: nx.average_clustering(graph.to_networkx()),
        graphs(),
        abs=1e-14,
        known=[
            # Watts and Strogatz's lattice of degree k: 3 (k - 2) / (4 (k - 1)).
            (topologies.circulant(40, [1, 2, 3]), 3 * (6 - 2) / (4 * (6 - 1))),
            (topologies.fully_connected(6), 1.0),
            (topologies.ring(3), 1.0),
            (topologies.hypercube(32), 0.0),
            # Of 8 directed triangles through a node of a directed cycle, there is 1.
            (from_edges([(0, 1), (1, 2), (2, 0)], 3, directed=True), 1 / 2),
            *((from_edges([], n), 0) for n in (1, 2, 5)),
            (from_edges([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)], 7), 6 / 7),
        ],
        large=[
            *(
                nx.gnp_random_graph(60, p, seed=1, directed=way)
                for p in (0.06, 0.3, 1.0)
                for way in (False, True)
            ),
            nx.barabasi_albert_graph(60, 4, seed=1),
        ],
        limits=[{(shape, "DENSE_LIMIT"): 0}],
    ),
    "edge connectivity": Metric(
        metrics.edge_connectivity, fewest_edges, graphs(largest=6), whole, 0
    ),
    "node connectivity": Metric(
        metrics.node_connectivity, fewest_nodes, graphs(largest=6), whole, 0
    ),
    "reciprocity": Metric(
        metrics.reciprocity,
        answered_edges,
        graphs(),
        abs=1e-15,
        known=[
            (topologies.exponential(8, directed=True), 1 / 3),  # offset 4 is its own way back
            (as_topology(np.array([[0, 0.5, 0.1], [2.0, 0, 0], [0, 0, 0]])), 2 / 3),
        ],
    ),
    "reciprocity over pairs": Metric(
        partial(metrics.reciprocity, over="pairs"),
        agreeing_pairs,
        graphs(),
        abs=1e-15,
        known=[(topologies.torus(12), 1), (from_edges([], 3), 1)],
    ),
    "sparsity": Metric(
        metrics.sparsity,
        lambda graph: 1 - nx.density(nx.DiGraph(present(graph))),
        graphs(),
        abs=1e-15,
        known=[(topologies.fully_connected(7), 0), (from_edges([], 1), 1), (from_edges([], 4), 1)],
    ),
    "sparsity with self": Metric(
        partial(metrics.sparsity, count_self=True),
        lambda graph: 1 - (present(graph) | np.eye(graph.n, dtype=bool)).mean(),
        graphs(),
        abs=1e-15,
        known=[(topologies.ring(100), 0.97), (from_edges([], 4), 0.75)],
    ),
    "Kirchhoff index": Metric(
        metrics.kirchhoff_index,
        resistance,
        conductances(),
        any_value,
        known=[
            *((topologies.ring(n), (n**3 - n) / 12) for n in (3, 4, 10, 101)),
            *((topologies.fully_connected(n), n - 1) for n in (2, 10, 50)),
            *((topologies.star(n), (n - 1) ** 2) for n in (2, 10, 50)),
            *((topologies.path(n), (n**3 - n) / 6) for n in (2, 10, 50)),
            # Eigenvalue 2 k of the hypercube comes (d choose k) times.
            (topologies.hypercube(32), 32 * sum(math.comb(5, k) / (2 * k) for k in range(1, 6))),
            (from_edges([], 1), 0),
            (from_edges([(0, 1), (2, 3)], 5), math.inf),
        ],
    ),
    "effective resistance": Metric(
        metrics.effective_resistance,
        lambda graph: 2 * resistance(graph) / (graph.n * (graph.n - 1)),
        conductances(),
        any_value,
        known=[
            *((topologies.ring(n), (n + 1) / 6) for n in (3, 10, 101)),
            (from_edges([], 1), 0),
            (from_edges([(0, 1), (2, 3)], 5), math.inf),
        ],
    ),
    "neighbor label distance": Metric(
        metrics.neighbor_label_distance,
        label_distance,
        graphs(least=3, connected=True),
        any_value,
        has_labels=True,
    ),
    "B": Metric(
        metrics.b_connectivity,
        lambda x: shortest_windows(x, lambda b, p: range(p)),
        rounds(lambda graph: graph, most=8),
        any_value,
        0,
        "turns",
        known=[
            (topologies.ring(5), 1),
            (topologies.random_cliques(6, 3, seed=0), math.inf),
            (ONE_PEER(2), 1),
            (ONE_PEER(12), 4),  # from offset 2 on until offset 1 comes again
        ],
    ),
    "B of blocks": Metric(
        partial(metrics.b_connectivity, windows="block"),
        lambda x: shortest_windows(x, lambda b, p: range(0, p * b, b)),
        rounds(lambda graph: graph, most=8),
        any_value,
        0,
    ),
    "B of a horizon": Metric(
        lambda x: metrics.b_connectivity(**ending(x)),
        lambda x: shortest_windows(x, lambda b, p: range(p - b + 1)),
        rounds(lambda graph: graph, most=8),
        any_value,
        0,
    ),
    "blocks of a horizon": Metric(
        lambda x: metrics.b_connectivity(**ending(x), windows="block"),
        lambda x: shortest_windows(x, lambda b, p: range(0, p - b + 1, b)),
        rounds(lambda graph: graph, most=8),
        any_value,
        0,
    ),
    "modularity": Metric(
        lambda graph: metrics.modularity(graph, metrics.communities(graph)),
        newman,
        graphs(least=3, connected=True),
        # Louvain starts from single nodes and never gets worse; one group of all has 0.
        lambda n: (-1e-12, 1),
    ),
}
