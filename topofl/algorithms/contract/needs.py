"""Requirements of algorithms on graphs and mixing weights, checked before a run."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from topofl._linalg.spectral import smallest
from topofl._support.check import TOLERANCE, shown
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError, TopologySequence

if TYPE_CHECKING:
    from topofl.algorithms.contract.phase import Algorithm

__all__ = [
    "Need",
    "check_needs",
    "check_weights",
    "doubly_stochastic",
    "eigenvalues_above",
    "exceeded_bound",
    "need_error",
    "needing",
    "needs_of",
    "static",
    "strongly_connected",
    "symmetric",
    "undirected",
]

P = ParamSpec("P")

Graphs = Topology | TopologySequence


def _nothing(*_: object) -> str:
    """Return no words: a need that says nothing about it."""
    return ""


@dataclass(frozen=True)
class Need:
    """A requirement of a method on the graphs of a run or on their mixing weights.

    Each function checks one thing: it returns ``""`` if that is met, and otherwise says what it
    found.

    Parameters
    ----------
    name
        The requirement, as in "`topology` must be static".
    meaning
        Its definition, for error messages and lists.
    remedy
        What the user can do to meet it.
    graphs
        ``graphs(graphs)`` checks the graph or the sequence of graphs of a run.
    graph
        ``graph(graph)`` checks the graph of a round.
    weights
        ``weights(weights)`` checks the mixing matrix of a round.
    attacked
        ``attacked(weights, bad)`` says which bound the attackers, (n,) booleans, exceed. A run only
        warns of it.
    verb
        The verb before the name: "have" for nouns, as in "`topology` must have groups".
    of
        Names of the method's arguments with which each function is called in addition, such as
        ``weights(weights, trim=2)``. Such a need is given to :func:`topofl.algorithms.needing`.
    when
        Names of the method's arguments and the values for which it has the need; usually given to
        :func:`topofl.algorithms.needing`.

    Examples
    --------
    >>> def unequal(graph):
    ...     most, least = graph.in_degrees.max(), graph.in_degrees.min()
    ...     return f"nodes have {least} to {most} neighbors" if most > least else ""
    >>> remedy = "give topologies.ring(n)"
    >>> regular = Need("regular", "all nodes have as many neighbors", remedy, graph=unequal)
    """

    name: str
    meaning: str
    remedy: str
    graphs: Callable[..., str] = _nothing
    graph: Callable[..., str] = _nothing
    weights: Callable[..., str] = _nothing
    attacked: Callable[..., str] = _nothing
    verb: str = "be"
    of: tuple[str, ...] = ()
    when: tuple[tuple[str, object], ...] = ()

    @property
    def condition(self) -> str:
        """Where the method has the need, such as " where track=True"; empty: always."""
        return (
            " where " + " and ".join(f"{name}={value!r}" for name, value in self.when)
            if self.when
            else ""
        )

    def bound(self, arguments: Mapping[str, Any]) -> "Need":
        """Return the need of a method that was called with some arguments."""
        functions = {
            name: getattr(self, name) for name in ("graphs", "graph", "weights", "attacked")
        }
        given = {name: arguments[name] for name in self.of}
        made = {
            name: partial(f, **given)
            for name, f in functions.items()
            if self.of and f is not _nothing
        }
        return replace(self, of=(), when=(), **made)


def check_needs(method: str, needs: Iterable[Need], graphs: Graphs, rounds: int) -> None:
    """Raise ``TopologyError`` unless the graphs of a period, or of some rounds, meet all needs."""
    for need in needs:
        if found := _found(need, "graphs", graphs):
            raise need_error(method, "topology", need, graphs.name, found)
        if need.graph is _nothing:
            continue
        for t in range(graphs.period or rounds):
            if found := _found(need, "graph", graph := graphs.at(t)):
                raise need_error(method, "topology", need, graph.name + _in_round(graphs, t), found)


def check_weights(
    method: str,
    needs: Iterable[Need],
    graphs: Graphs,
    rounds: Sequence[Topology],
    rule: Callable[..., MixingMatrix],
) -> None:
    """Raise ``TopologyError`` unless the mixing weights of some rounds meet all needs."""
    for need in needs:
        for t, graph in enumerate(rounds if need.weights is not _nothing else ()):
            weights = rule(graph)
            if found := _found(need, "weights", weights):
                raise need_error(method, "mixing", need, weights.name + _in_round(graphs, t), found)


def exceeded_bound(need: Need, weights: MixingMatrix, bad: np.ndarray) -> str:
    """Return which bound of a need some attackers exceed, in words; nothing if none."""
    return _found(need, "attacked", weights, bad)


def _same(given: object, value: object) -> bool:
    """Return whether an argument has a value; arrays, which compare entry by entry, never do."""
    equal = given == value
    return isinstance(equal, bool | np.bool_) and bool(equal)


def _found(need: Need, part: str, *what: object) -> str:
    found: object = getattr(need, part)(*what)
    if not isinstance(found, str):
        raise TypeError(
            f"`{part}` of the need {need.name!r} must return in words what it found, or '' where "
            f"that will do, got {shown(found)}"
        )
    return found


def _in_round(graphs: Graphs, t: int) -> str:
    return "" if isinstance(graphs, Topology) else f", round {t} of {graphs.name}"


def need_error(method: str, argument: str, need: Need, got: str, found: str) -> TopologyError:
    """Return the error of an argument that a method cannot do with, with what was found."""
    return TopologyError(
        f"`{argument}` must {need.verb} {need.name} for {method} ({need.meaning}), got {got}: "
        f"{found}; {need.remedy}"
    )


def _changes(graphs: Graphs) -> str:
    """Say how many graphs a sequence has."""
    if isinstance(graphs, Topology):
        return ""
    if graphs.period is None:
        return "a sequence without a period, whose graphs may be others in every round"
    parts = [graphs.at(t).adjacency for t in range(graphs.period)]
    distinct = len(
        {
            tuple(array.tobytes() for array in (part.indptr, part.indices, part.data))
            for part in parts
        }
    )
    return (
        f"a sequence of period {graphs.period} with {distinct} distinct graph{'s' * (distinct > 1)}"
    )


def _apart(graphs: Graphs) -> str:
    """Describe the components of a graph or of the union over a period; else return no words."""
    if graphs.period is None:
        return ""
    members = [graphs.at(t).adjacency for t in range(graphs.period)]
    count, labels = connected_components(
        sum(members[1:], members[0]), directed=True, connection="strong"
    )
    if count == 1:
        return ""
    sizes = np.bincount(labels).tolist()
    few, node = min(sizes), int(np.flatnonzero(labels == sizes.index(min(sizes)))[0])
    return (
        f"{count} strongly connected components, the smallest of {few} node{'s' * (few > 1)}, with "
        f"node {node}"
    )


def _one_way(graph: Topology) -> str:
    """Say which edge has none back, or one of another weight."""
    if not graph.is_directed:
        return ""
    edges = graph.adjacency != 0
    alone = sparse.coo_array(edges > edges.T)
    if alone.nnz:
        edge = f"from node {alone.row[0]} to node {alone.col[0]}"
        if alone.nnz == 1:
            return f"the edge {edge} has none back"
        return f"{alone.nnz} edges have none back, such as the one {edge}"
    i, j, _ = _largest(graph.adjacency)
    there, back = graph.adjacency[i, j], graph.adjacency[j, i]
    return f"the edge from node {i} to node {j} weighs {there:.6g}, the one back {back:.6g}"


def _largest(matrix: sparse.csr_array) -> tuple[int, int, float]:
    """Return where a matrix differs most from its transpose, and by how much."""
    apart = sparse.coo_array(abs(matrix - matrix.T))
    k = int(apart.data.argmax())
    return int(apart.row[k]), int(apart.col[k]), float(apart.data[k])


def _asymmetry(weights: MixingMatrix) -> str:
    if weights.is_symmetric:
        return ""
    i, j, apart = _largest(weights.weights)
    there, back = weights.weights[i, j], weights.weights[j, i]
    return (
        f"W[{i}, {j}] = {there:.6g} and W[{j}, {i}] = {back:.6g}, {apart:.3g} apart, the most of "
        "all"
    )


def _worst_sum(weights: MixingMatrix) -> str:
    """Say which row or column sums to what is furthest from 1."""
    if weights.is_doubly_stochastic:
        return ""
    sums = {"row": weights.weights.sum(axis=1), "column": weights.weights.sum(axis=0)}
    kind = max(sums, key=lambda name: np.abs(sums[name] - 1).max())
    node = int(np.abs(sums[kind] - 1).argmax())
    return f"the {kind} of node {node} sums to {sums[kind][node]:.6g}, the furthest from 1"


static = Need(
    "static",
    "the same graph in all rounds",
    "give one graph for all rounds, such as topologies.ring(n)",
    graphs=_changes,
)
"""One graph for all rounds."""

undirected = Need(
    "undirected",
    "each edge has one back, of the same weight",
    "give undirected graphs, such as topologies.ring(n); of one Topology, "
    "topology.to_networkx().to_undirected() makes an undirected graph",
    graph=_one_way,
)
"""Edges go both ways, in every round."""

strongly_connected = Need(
    "strongly connected",
    (
        "every node reaches every other along directed edges, of the union over a period where "
        "graphs change"
    ),
    "add edges, or leave out the nodes that cannot be reached",
    graphs=_apart,
)
"""Checked also where a run allows disconnected graphs."""

symmetric = Need(
    "symmetric",
    "W[i, j] = W[j, i]",
    "give an undirected graph with mixing=mixing.metropolis_hastings",
    weights=_asymmetry,
)
"""Weights of the run's rule, in every round."""

doubly_stochastic = Need(
    "doubly stochastic",
    "all rows and columns of W sum to 1",
    "give an undirected graph with mixing=mixing.metropolis_hastings, or a regular directed one "
    "with mixing=mixing.uniform",
    weights=_worst_sum,
)
"""Weights of the run's rule, in every round."""


def eigenvalues_above(bound: float, remedy: str) -> Need:
    """Return the need that every eigenvalue of W is above `bound`; list it after :data:`symmetric`.

    Parameters
    ----------
    bound
        All eigenvalues must be above it.
    remedy
        What would do.
    """

    def least(weights: MixingMatrix) -> str:
        found = smallest(weights.weights)
        return f"the least is {found:.6g}" if found <= bound + TOLERANCE else ""

    name = f"eigenvalues above {Fraction(bound).limit_denominator(100)}"
    return Need(name, "every eigenvalue of W", remedy, weights=least, verb="have")


def needing(
    *needs: Need, when: Mapping[str, object] | None = None
) -> "Callable[[Callable[P, Algorithm]], Callable[P, Algorithm]]":
    """Return the decorator that declares what a function's algorithms need of graphs and weights.

    Parameters
    ----------
    needs
        Such as :data:`static` and :data:`doubly_stochastic`.
    when
        Arguments of the function by name, and the values with which its algorithms have these
        needs; None: always.

    Raises
    ------
    TypeError
        If a need is none; where the function is decorated, if it has no argument of a name in
        `when`, or in the `of` of a need.

    Examples
    --------
    >>> from topofl.algorithms import chain, gossip, sgd
    >>> @needing(static)
    ... @needing(doubly_stochastic, when={"exact": True})
    ... def mine(lr, exact=False):
    ...     return chain("mine", local=sgd(lr), exchange=gossip())
    >>> [need.name for need in mine(0.1).needs], [need.name for need in mine(0.1, exact=True).needs]
    (['static'], ['static', 'doubly stochastic'])
    >>> [need.name + need.condition for need in needs_of(mine)]
    ['static', 'doubly stochastic where exact=True']
    """
    if wrong := [need for need in needs if not isinstance(need, Need)]:
        raise TypeError(f"`needs` must be needs such as algorithms.static, got {shown(wrong[0])}")
    said = tuple(replace(need, when=(*need.when, *(when or {}).items())) for need in needs)

    def decorate(function: "Callable[P, Algorithm]") -> "Callable[P, Algorithm]":
        takes = inspect.signature(function)
        for name in (name for need in said for name in (*need.of, *dict(need.when))):
            if name not in takes.parameters:
                raise TypeError(
                    f"a need must be of arguments of {function.__name__}{takes}, got {name!r}"
                )

        @wraps(function)
        def build(*args: P.args, **kwargs: P.kwargs) -> "Algorithm":
            made, given = function(*args, **kwargs), takes.bind(*args, **kwargs)
            given.apply_defaults()
            mine = (
                need
                for need in said
                if all(_same(given.arguments[name], value) for name, value in need.when)
            )
            return replace(
                made, needs=(*(need.bound(given.arguments) for need in mine), *made.needs)
            )

        build.__dict__["needs"] = (*said, *needs_of(function))
        return build

    return decorate


def needs_of(function: object) -> tuple[Need, ...]:
    """Return the needs that are declared for a function, without a call of it."""
    return getattr(function, "needs", ())
