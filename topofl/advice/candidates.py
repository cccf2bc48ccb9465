"""Candidates: calls of the generators whose graphs may meet a budget, by family."""

from collections.abc import Callable, Iterator
from typing import Any

from topofl import topologies
from topofl.advice.budget import Budget
from topofl.advice.calls import Call
from topofl.topology import Topology, TopologySequence

__all__ = ["DESIGN_LIMIT", "candidates"]

DESIGN_LIMIT = 1_000
"""Most nodes for which an undirected graph is designed; the search takes minutes for more."""

MATCHINGS_LIMIT = 500
"""Most nodes for which designed graphs are taken apart into matchings: three more searches."""

Graph = Topology | TopologySequence


def candidates(
    n: int, budget: Budget, *, directed: bool, static: bool, seed: int
) -> Iterator[Call]:
    """Yield calls of all families; a few of the graphs exceed the budget or do not exist."""
    degree = budget.usual_degree(n)
    yield from _classic(n, degree)
    yield from _random(n, degree, seed)
    yield from _for_labels(n, degree, budget, seed)
    if directed:
        yield from _directed(n, degree, seed)
    if not static:
        yield from _changing(n, degree, seed)
        if budget.messages < 2 * (n // 2):
            yield from _few_links_per_round(n)
    if directed and not static:
        yield from _changing_directed(n, degree, seed)


def _plain(function: Callable[..., Graph], *arguments: Any, **options: Any) -> Call:
    return Call(function, arguments, options)


def _of_labels(function: Callable[..., Graph], *arguments: Any, **options: Any) -> Call:
    return Call(function, arguments, options, of_clients=True)


def _classic(n: int, degree: int) -> Iterator[Call]:
    for function in (
        topologies.fully_connected,
        topologies.ring,
        topologies.path,
        topologies.grid,
        topologies.torus,
        topologies.tree,
        topologies.star,
        topologies.hypercube,
        topologies.exponential,
    ):
        yield _plain(function, n)
    for offsets in _offsets(n, degree // 2, most=n // 2):
        yield _plain(topologies.circulant, n, offsets)


def _offsets(n: int, count: int, most: int) -> list[list[int]]:
    """Return offsets of circulants: consecutive ones, and ones spread like powers."""
    if not 1 <= count <= most:
        return []
    near = list(range(1, count + 1))
    spread = sorted({min(round(n ** (k / count)), most) for k in range(count)})
    return [near] if spread == near else [near, spread]


def _random(n: int, degree: int, seed: int) -> Iterator[Call]:
    regular = _regular_degree(n, degree)
    if regular >= 2:
        yield _plain(topologies.random_regular, n, regular, seed=seed)
    if degree >= 2:
        even = degree - degree % 2
        yield _plain(topologies.small_world, n, even, 0.1, seed=seed)
        yield _plain(topologies.barabasi_albert, n, degree // 2, seed=seed)
        yield _plain(topologies.u_equistatic, n, degree // 2, seed=seed)


def _regular_degree(n: int, degree: int) -> int:
    """Return the largest degree of a regular graph: n times degree is even."""
    return degree - n * degree % 2


def _for_labels(n: int, degree: int, budget: Budget, seed: int) -> Iterator[Call]:
    yield _of_labels(topologies.dissimilar_ring, seed=seed)
    for size in range(max(degree - 1, 2), min(degree + 1, n) + 1):
        for inter in ("ring", "fractal", "small_world", "fully_connected"):
            yield _of_labels(topologies.dcliques, clique_size=size, inter=inter, seed=seed)
    regular = _regular_degree(n, degree)
    if 2 <= regular < n - 1:
        yield _of_labels(topologies.neighborhood_swap, regular, seed=seed)
    if n > DESIGN_LIMIT:
        return
    edges = min(budget.messages // 2, n * budget.degree // 2)
    if 2 * edges == n * regular and regular >= 2:
        yield _of_labels(topologies.designed, degree=regular, seed=seed)
    elif n - 1 <= edges < n * (n - 1) // 2:
        yield _of_labels(topologies.designed, edges=edges, seed=seed)


def _directed(n: int, degree: int, seed: int) -> Iterator[Call]:
    for offsets in _offsets(n, degree, most=n - 1):
        yield _plain(topologies.circulant, n, offsets, directed=True)
    yield _plain(topologies.exponential, n, directed=True)
    if degree >= 2:
        yield _plain(topologies.kautz, n, degree)
    if degree:
        yield _plain(topologies.d_equistatic, n, degree, seed=seed)
        yield _of_labels(topologies.stl_fw, degree)
        yield _of_labels(topologies.designed_directed, degree)


def _changing(n: int, degree: int, seed: int) -> Iterator[Call]:
    yield _plain(topologies.one_peer_exponential, n, directed=False)
    yield _plain(topologies.random_matching, n, seed=seed)
    yield _plain(topologies.ou_equidyn, n, seed=seed)
    yield _plain(topologies.matchings, _plain(topologies.torus, n))
    for links in (3, 4, 6):
        if n <= MATCHINGS_LIMIT and links < n and n * links % 2 == 0:
            base = _of_labels(topologies.designed, degree=links, seed=seed)
            yield _plain(topologies.matchings, base)
    for k in sorted({1, max(degree, 1)}):
        yield _plain(topologies.base_graph, n, k)
        yield _plain(topologies.hyper_hypercube, n, k)
    regular = _regular_degree(n, degree)
    if regular >= 2:
        yield _plain(topologies.random_regular_sequence, n, regular, seed=seed)


def _few_links_per_round(n: int) -> Iterator[Call]:
    """Yield sequences for budgets in which not all nodes exchange in a round.

    The matchings of the star have one link per round, the least; those of trees have more.
    """
    for base in (topologies.star, topologies.tree, topologies.path, topologies.ring):
        yield _plain(topologies.matchings, _plain(base, n))
    branches = 3
    while branches < n - 1:
        yield _plain(topologies.matchings, _plain(topologies.tree, n, branches))
        branches *= 2


def _changing_directed(n: int, degree: int, seed: int) -> Iterator[Call]:
    yield _plain(topologies.one_peer_exponential, n)
    yield _plain(topologies.od_equidyn, n, seed=seed)
    if degree >= 2:
        yield _plain(topologies.p_peer_exponential, n, degree)
