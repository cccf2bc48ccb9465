"""Time graphs of 100,000 nodes against networkx, pygsp and direct calls of scipy.

``python -m analysis.benchmark graphs`` times construction, spectral gaps and B-connectivity, and
prints the table. Direct calls run in the same process and in turns with ours, other libraries in
separate processes with a time limit; imports are not timed. The cell of a library that cannot do
something gives the reason. pygsp, which topofl does not require, is measured if it is installed.
"""

import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg
from scipy.sparse.csgraph import connected_components

from topofl import (
    NotApplicable,
    Table,
    Topology,
    TopologySequence,
    from_edges,
    metrics,
    mixing,
    topologies,
)

COLUMNS = ("graphs", "ours s", "ours is", "bare scipy s", "ours / bare", "networkx s", "pygsp s")

Cell = float | NotApplicable


@dataclass(frozen=True)
class GraphSizes:
    """Sizes of the graph benchmark.

    Parameters
    ----------
    n
        Nodes of the large graphs.
    ring
        Nodes of the ring whose spectral gap is computed.
    nodes, rounds, fewer_rounds
        Random graphs whose B is computed: nodes, rounds, and rounds for the implementations that
        are too slow for all.
    restarts
        Maximum number of restarts of plain Lanczos on the ring; each adds about ten products.
    limit
        Time limit of other libraries, in seconds.
    repeats
        Turns, of which medians are reported.
    """

    n: int = 100_000
    ring: int = 10_000
    nodes: int = 1_000
    rounds: int = 10_000
    fewer_rounds: int = 100
    restarts: int = 1_000
    limit: float = 60.0
    repeats: int = 3


def measure(scale: GraphSizes | None = None, *, title: str = "") -> Table:
    """Return the table, and announce each part on standard error."""
    scale = scale or GraphSizes()
    rows: list[tuple[Any, ...]] = []
    for part in (_construction, _expander, _ring, _joint):
        print(f"timing {part.__name__.strip('_')} ...", file=sys.stderr)
        rows.extend(part(scale))
    return Table(COLUMNS, tuple(rows), title=title)


def _construction(scale: GraphSizes) -> Iterator[tuple[Any, ...]]:
    n = scale.n
    labels = np.random.default_rng(0).integers(10, size=(n, 2))
    counts = (labels[:, :, None] == np.arange(10)).sum(axis=1) * 25
    bare = NotApplicable("nothing to compare with")
    no_cliques = tuple(NotApplicable(f"{peer} has no D-Cliques") for peer in ("networkx", "pygsp"))

    def row(name: str, build: Callable[[], Topology], *peers: Cell) -> tuple[Any, ...]:
        seconds, graph = _median(build, scale.repeats)
        edges = f"{graph.n_edges:,} edges"
        return (f"construct {name}, n={n:,}", seconds, edges, bare, bare, *peers)

    for inter in ("ring", "fractal", "small_world"):
        draw = partial(topologies.dcliques, counts, clique_size=10, inter=inter, seed=0)
        yield row(f"D-Cliques ({inter})", draw, *no_cliques)
    theirs = _peer("networkx", "nx.random_regular_graph(10, {n}, seed=0)", scale, n=n)
    pygsp = _peer("pygsp", "graphs.RandomRegular({n}, 10, seed=0)", scale, n=n)
    draw = partial(topologies.random_regular, n, 10, seed=0)
    yield row("random 10-regular", draw, theirs, pygsp)
    offsets = [2**e for e in range((n - 1).bit_length())]
    theirs = _peer("networkx", "nx.circulant_graph({n}, {offsets})", scale, n=n, offsets=offsets)
    pygsp = NotApplicable("pygsp has no exponential graph")
    yield row("exponential", partial(topologies.exponential, n), theirs, pygsp)


def _expander(scale: GraphSizes) -> Iterator[tuple[Any, ...]]:
    """Time the spectral gap of a random regular graph in turns with two direct calls of scipy."""
    n = scale.n
    graph = topologies.random_regular(n, 10, seed=0)
    weights = mixing.metropolis_hastings(graph).weights
    bare = {
        "eigsh": partial(_eigsh, weights, tol=1e-9),
        "lobpcg": partial(_lobpcg, weights, tol=1e-6),
    }
    times: dict[str, list[float]] = {name: [] for name in ("ours", *bare)}
    label = ""
    for _ in range(scale.repeats):
        seconds, solution = _timed(partial(_solution, graph))
        times["ours"].append(seconds)
        label = f"{solution.solver}, residual {solution.residual:.0e}"
        for name, call in bare.items():
            times[name].append(_timed(call)[0])
    ours, peers = statistics.median(times["ours"]), list(_expander_peers(scale))
    for name, what in (("eigsh", "eigsh, tol=1e-9"), ("lobpcg", "lobpcg, tol=1e-6")):
        theirs = statistics.median(times[name])
        label_of = f"spectral gap of random 10-regular, n={n:,} (bare: {what})"
        yield (label_of, ours, label, theirs, ours / theirs, *peers)
        peers = [NotApplicable("see the row above")] * 2


def _expander_peers(scale: GraphSizes) -> Iterator[Cell]:
    setup = "g = nx.random_regular_graph(10, {n}, seed=0)"
    yield _peer(
        "networkx", "nx.algebraic_connectivity(g, method='lobpcg', seed=0)", scale, setup, n=scale.n
    )
    setup = "g = graphs.RandomRegular({n}, 10, seed=0); g.compute_laplacian()"
    yield _peer("pygsp", "g.compute_fourier_basis(n_eigenvectors=2)", scale, setup, n=scale.n)


def _eigsh(weights: sparse.csr_array, *, tol: float) -> float:
    n = weights.shape[0]
    deflated = sparse_linalg.LinearOperator(
        (n, n), matvec=lambda x: weights @ x - x.mean(), dtype=float
    )
    return float(
        sparse_linalg.eigsh(deflated, k=1, tol=tol, v0=_start(n), return_eigenvectors=False)[0]
    )


def _lobpcg(weights: sparse.csr_array, *, tol: float) -> float:
    n = weights.shape[0]
    values, _ = sparse_linalg.lobpcg(
        weights, _start(n)[:, None], Y=np.ones((n, 1)), tol=tol, maxiter=1000
    )
    return float(values[0])


def _start(n: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(n)


def _ring(scale: GraphSizes) -> Iterator[tuple[Any, ...]]:
    """Time the spectral gap of a long ring in order, and shuffled, without a closed form."""
    n = scale.ring
    straight = topologies.ring(n)
    shuffled = from_edges(np.random.default_rng(0).permutation(n)[straight.edge_index.T], n)
    plain = _plain_lanczos(mixing.metropolis_hastings(straight).weights, scale.restarts)
    work = "nx.algebraic_connectivity(g, seed=0)"
    theirs = _peer("networkx", work, scale, "g = nx.cycle_graph({n})", n=n)
    pygsp = _peer(
        "pygsp", "g.compute_fourier_basis(n_eigenvectors=2)", scale, "g = graphs.Ring({n})", n=n
    )
    for graph, order in ((straight, "in order"), (shuffled, "nodes shuffled")):
        seconds, solution = _median(partial(_solution, graph), scale.repeats)
        label = f"{solution.solver}, residual {solution.residual:.0e}"
        ratio = plain if isinstance(plain, NotApplicable) else seconds / plain
        name = f"spectral gap of a ring, n={n:,}, {order} (bare: eigsh)"
        yield (name, seconds, label, plain, ratio, theirs, pygsp)


def _solution(graph: Topology) -> Any:
    return mixing.metropolis_hastings(graph).slem_solution


def _plain_lanczos(weights: sparse.csr_array, restarts: int) -> Cell:
    """Return the seconds of the direct call, or the reason why it did not converge."""
    call = partial(
        sparse_linalg.eigsh, weights, k=2, which="LA", v0=_start(weights.shape[0]), maxiter=restarts
    )
    start = time.perf_counter()
    try:
        call(return_eigenvectors=False)
    except sparse_linalg.ArpackNoConvergence:
        seconds = time.perf_counter() - start
        return NotApplicable(
            f"plain Lanczos did not converge in {restarts:,} restarts, {seconds:.2g} s"
        )
    return time.perf_counter() - start


def _joint(scale: GraphSizes) -> Iterator[tuple[Any, ...]]:
    """Time B of random graphs over all rounds; over fewer rounds, also by naive implementations."""
    graphs = topologies.random_out(scale.nodes, 1, seed=0)
    pygsp = NotApplicable("pygsp has no time-varying graphs")
    longer = NotApplicable(f"too long: see the row of {scale.fewer_rounds:,} rounds")
    seconds, b = _timed(lambda: metrics.b_connectivity(graphs, rounds=scale.rounds))
    what = f"of {scale.nodes:,} nodes, out-degree 1"
    label = f"B over {scale.rounds:,} rounds {what}"
    yield (label, seconds, f"B = {b}", longer, longer, longer, pygsp)
    seconds, b = _timed(lambda: metrics.b_connectivity(graphs, rounds=scale.fewer_rounds))
    bare, other = _timed(lambda: _windows_anew(graphs, scale.fewer_rounds, _is_strong_by_scipy))
    theirs, third = _timed(
        lambda: _windows_anew(graphs, scale.fewer_rounds, _is_strong_by_networkx)
    )
    if not b == other == third:
        raise RuntimeError(f"B must be one number, got {b}, {other} and {third}")
    label = (
        f"B over {scale.fewer_rounds:,} rounds {what} (bare, networkx: every window's union anew)"
    )
    yield label, seconds, f"B = {b}", bare, seconds / bare, theirs, pygsp


def _windows_anew(
    graphs: TopologySequence, rounds: int, is_strong: Callable[[list[Topology]], bool]
) -> int | float:
    members = [graphs.at(t) for t in range(rounds)]
    for b in range(1, rounds + 1):
        if all(is_strong(members[start : start + b]) for start in range(rounds - b + 1)):
            return b
    return float("inf")


def _is_strong_by_scipy(graphs: list[Topology]) -> bool:
    union = sum((graph.adjacency for graph in graphs[1:]), graphs[0].adjacency)
    return connected_components(union, directed=True, connection="strong")[0] == 1


def _is_strong_by_networkx(graphs: list[Topology]) -> bool:
    union = nx.empty_graph(graphs[0].n, create_using=nx.DiGraph)
    for graph in graphs:
        union.add_edges_from(graph.edge_index.T.tolist())
    return nx.is_strongly_connected(union)


def _median(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median seconds of `repeats` calls, and the result of the last."""
    runs = [_timed(function) for _ in range(repeats)]
    return statistics.median(seconds for seconds, _ in runs), runs[-1][1]


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


_IMPORTS = {"networkx": "import networkx as nx", "pygsp": "from pygsp import graphs"}


def _peer(library: str, work: str, scale: GraphSizes, setup: str = "", **values: Any) -> Cell:
    """Return the seconds of `work` in a separate process, or the reason why there are none."""
    if importlib.util.find_spec(library) is None:
        return NotApplicable(f"{library} is not installed")
    lines = ["import time", _IMPORTS[library], setup, "start = time.perf_counter()", work]
    script = "\n".join([*lines, "print(time.perf_counter() - start)"]).format(**values)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=scale.limit
        )
    except subprocess.TimeoutExpired:
        return NotApplicable(f"{library} did not finish in {scale.limit:g} s")
    if done.returncode:
        return NotApplicable(
            f"{library} failed: {(done.stderr.strip().splitlines() or ['killed'])[-1][:80]}"
        )
    return float(done.stdout.split()[-1])
