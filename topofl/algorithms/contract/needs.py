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
from topofl._support.public import public
from topofl._support.text import node_name
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError, TopologySequence

if TYPE_CHECKING:
    from topofl.algorithms.contract.phase import Algorithm

__all__ = [
    "Need",
    "doubly_stochastic",
    "equal_shares",
    "needing",
    "static",
    "strongly_connected",
    "symmetric",
    "undirected",
]

P = ParamSpec("P")

Graphs = Topology | TopologySequence


def _nothing(*_: object) -> str:
    """Return an empty text: the default of a check that a need does not have."""
    return ""


@dataclass(frozen=True)
class Need:
    """A requirement of a method on the graphs of a run or on their mixing weights.

    Each function returns ``""`` if its requirement is met, and otherwise describes the violation.

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
        ``attacked(weights, bad)`` describes the bound that the attackers, (n,) booleans, exceed.
        The run warns and continues.
    verb
        The verb before the name: "have" for nouns, as in "`topology` must have groups".
    of
        Names of the method's arguments that are passed to each function in addition, as in
        ``weights(weights, trim=2)``. Such a need is passed to :func:`topofl.algorithms.needing`.
    when
        Names of the method's arguments and the values for which the need applies; usually passed to
        :func:`topofl.algorithms.needing`.

    Examples
    --------
    >>> def unequal(graph):
    ...     most, least = graph.in_degrees.max(), graph.in_degrees.min()
    ...     return f"nodes have {least} to {most} neighbors" if most > least else ""
    >>> remedy = "give topologies.ring(n)"
    >>> meaning = "all nodes have the same number of neighbors"
    >>> regular = Need("regular", meaning, remedy, graph=unequal)
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
        """The condition under which the need applies, as in " where track=True"; empty: always."""
        values = " and ".join(f"{name}={value!r}" for name, value in self.when)
        return f" where {values}" if values else ""

    def bound(self, arguments: Mapping[str, Any]) -> "Need":
        """Return the need with the method's arguments bound to its functions."""
        given = {name: arguments[name] for name in self.of}
        made = {
            name: partial(getattr(self, name), **given)
            for name in ("graphs", "graph", "weights", "attacked")
            if given and getattr(self, name) is not _nothing
        }
        return replace(self, of=(), when=(), **made)


def check_needs(method: str, needs: Iterable[Need], graphs: Graphs, rounds: int) -> None:
    """Raise ``TopologyError`` unless the graphs of a period, or of `rounds` rounds, meet all needs.

    Examples
    --------
    >>> from topofl import topologies
    >>> graphs = topologies.one_peer_exponential(8)
    >>> check_needs("mine", [static], graphs, rounds=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    topofl.topology.graph.TopologyError: `topology` must be static for mine (the same graph ...
    """
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
    """Return the description of the bound that attackers exceed, empty if they exceed none."""
    return _found(need, "attacked", weights, bad)


def _same(given: object, value: object) -> bool:
    """Return whether an argument equals a value; False for arrays, which compare elementwise."""
    equal = given == value
    return isinstance(equal, bool | np.bool_) and bool(equal)


def _found(need: Need, part: str, *what: object) -> str:
    """Return the violation that one of a need's functions describes, or raise ``TypeError``."""
    found: object = getattr(need, part)(*what)
    if not isinstance(found, str):
        raise TypeError(
            f"`{part}` of the need {need.name!r} must return a description of the violation, or '' "
            f"if there is none, got {shown(found)}"
        )
    return found


def _in_round(graphs: Graphs, t: int) -> str:
    return "" if isinstance(graphs, Topology) else f", round {t} of {graphs.name}"


def need_error(method: str, argument: str, need: Need, got: str, found: str) -> TopologyError:
    """Return the error for an argument that violates a need, with the violation as `found`."""
    return TopologyError(
        f"`{argument}` must {need.verb} {need.name} for {method} ({need.meaning}), got {got}: "
        f"{found}; {need.remedy}"
    )


def _changes(graphs: Graphs) -> str:
    """Describe a sequence by its period and number of distinct graphs; empty for one graph."""
    if isinstance(graphs, Topology):
        return ""
    if graphs.period is None:
        return "a sequence without a period, whose graphs may differ in every round"
    parts = [graphs.at(t).adjacency for t in range(graphs.period)]
    distinct = len({(a.indptr.tobytes(), a.indices.tobytes(), a.data.tobytes()) for a in parts})
    return (
        f"a sequence of period {graphs.period} with {distinct} distinct graph{'s' * (distinct > 1)}"
    )


def _components(graphs: Graphs) -> str:
    """Describe the strong components of a graph or of its union over a period; empty if one."""
    if graphs.period is None:
        return ""
    members = [graphs.at(t).adjacency for t in range(graphs.period)]
    count, labels = connected_components(
        sum(members[1:], members[0]), directed=True, connection="strong"
    )
    if count == 1:
        return ""
    sizes = np.bincount(labels).tolist()
    smallest_size = min(sizes)
    node = int(np.flatnonzero(labels == sizes.index(smallest_size))[0])
    return (
        f"{count} strongly connected components, the smallest of {smallest_size} "
        f"node{'s' * (smallest_size > 1)}, with node {node_name(graphs.nodes, node)}"
    )


def _missing_reverse_edge(graph: Topology) -> str:
    """Describe an edge without a reverse edge, or with one of another weight; empty if none."""
    if not graph.is_directed:
        return ""
    edges = graph.adjacency != 0
    alone = sparse.coo_array(edges > edges.T)
    i, j = (int(alone.row[0]), int(alone.col[0])) if alone.nnz else _largest(graph.adjacency)[:2]
    edge = f"from node {node_name(graph.nodes, i)} to node {node_name(graph.nodes, j)}"
    if alone.nnz > 1:
        return f"{alone.nnz} edges have none back, such as the one {edge}"
    if alone.nnz == 1:
        return f"the edge {edge} has none back"
    forward, back = graph.adjacency[i, j], graph.adjacency[j, i]
    return f"the edge {edge} weighs {forward:.6g}, the one back {back:.6g}"


def _largest(matrix: sparse.csr_array) -> tuple[int, int, float]:
    """Return the entry at which a matrix differs most from its transpose, and the difference."""
    apart = sparse.coo_array(abs(matrix - matrix.T))
    k = int(apart.data.argmax())
    return int(apart.row[k]), int(apart.col[k]), float(apart.data[k])


def _asymmetry(weights: MixingMatrix) -> str:
    """Describe the most asymmetric entry of a mixing matrix; empty if it is symmetric."""
    if weights.is_symmetric:
        return ""
    i, j, difference = _largest(weights.weights)
    return (
        f"W[{i}, {j}] = {weights.weights[i, j]:.6g} and W[{j}, {i}] = {weights.weights[j, i]:.6g}, "
        f"the largest difference, {difference:.3g}"
    )


def _worst_sum(weights: MixingMatrix) -> str:
    """Describe the row or column whose sum is furthest from 1; empty if all sums are 1."""
    if weights.is_doubly_stochastic:
        return ""
    sums = {"row": weights.weights.sum(axis=1), "column": weights.weights.sum(axis=0)}
    kind = max(sums, key=lambda name: np.abs(sums[name] - 1).max())
    node = int(np.abs(sums[kind] - 1).argmax())
    name = node_name(weights.nodes, node)
    return f"the {kind} of node {name} sums to {sums[kind][node]:.6g}, the furthest from 1"


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
    graph=_missing_reverse_edge,
)
"""Every edge has a reverse edge of the same weight, in every round."""

strongly_connected = Need(
    "strongly connected",
    "every node reaches every other along directed edges, of the union over a period if graphs "
    "change",
    "add edges, or leave out the nodes that cannot be reached",
    graphs=_components,
)
"""Checked even if a run allows disconnected graphs."""

symmetric = Need(
    "symmetric",
    "W[i, j] = W[j, i]",
    "give an undirected graph with mixing=mixing.metropolis_hastings",
    weights=_asymmetry,
)
"""The mixing matrix of every round is symmetric."""

doubly_stochastic = Need(
    "doubly stochastic",
    "all rows and columns of W sum to 1",
    "give an undirected graph with mixing=mixing.metropolis_hastings, or a regular directed one "
    "with mixing=mixing.uniform",
    weights=_worst_sum,
)
"""The mixing matrix of every round is doubly stochastic."""

equal_shares = Need(
    "equal shares",
    "all columns of W sum to 1; with the default weights of directed graphs, static or periodic, "
    "for which they do not, a run warns that losses are weighted by metrics.perron_vector",
    "use algorithms.sab, algorithms.push_diging or algorithms.osgp, which push, or an undirected "
    "graph",
)
"""Never refused, since a run warns: declared by methods that average by W and never push."""


def eigenvalues_above(bound: float, remedy: str) -> Need:
    """Return the need that every eigenvalue of W exceeds `bound`; list it after :data:`symmetric`.

    Parameters
    ----------
    bound
        All eigenvalues must be larger.
    remedy
        How to meet the need.

    Examples
    --------
    >>> eigenvalues_above(-1 / 3, "use lazy weights").name
    'eigenvalues above -1/3'
    """

    def least(weights: MixingMatrix) -> str:
        found = smallest(weights.weights)
        return f"the smallest is {found:.6g}" if found <= bound + TOLERANCE else ""

    name = f"eigenvalues above {Fraction(bound).limit_denominator(100)}"
    return Need(name, "every eigenvalue of W", remedy, weights=least, verb="have")


above_minus_third = eigenvalues_above(
    -1 / 3,
    "use lazy=True, or mixing weights with larger self-weights, such as "
    "mixing=lambda graph: mixing.lazy(mixing.metropolis_hastings(graph))",
)
"""The need of exact diffusion by ``W`` itself in place of ``(I + W) / 2``."""


@public
def needing(
    *needs: Need, when: Mapping[str, object] | None = None
) -> "Callable[[Callable[P, Algorithm]], Callable[P, Algorithm]]":
    """Return the decorator that declares which graphs and weights a method requires.

    Parameters
    ----------
    needs
        Requirements such as :data:`static` and :data:`doubly_stochastic`.
    when
        Arguments of the method by name, and the values for which these needs apply; None: always.

    Raises
    ------
    TypeError
        If a need is not a :class:`Need`; when a function is decorated, if it lacks an argument that
        `when`, or `of` of a need, names.

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
    declared = tuple(replace(need, when=(*need.when, *(when or {}).items())) for need in needs)

    def decorate(function: "Callable[P, Algorithm]") -> "Callable[P, Algorithm]":
        signature = inspect.signature(function)
        for name in (name for need in declared for name in (*need.of, *dict(need.when))):
            if name not in signature.parameters:
                raise TypeError(
                    f"`when` and `of` of a need must name arguments of "
                    f"{function.__name__}{signature}, got {name!r}"
                )

        @wraps(function)
        def build(*args: P.args, **kwargs: P.kwargs) -> "Algorithm":
            algorithm = function(*args, **kwargs)
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            bound = (
                need.bound(given.arguments)
                for need in declared
                if all(_same(given.arguments[name], value) for name, value in need.when)
            )
            return replace(algorithm, needs=(*bound, *algorithm.needs))

        build.__dict__["needs"] = (*declared, *needs_of(function))
        return build

    return decorate


def needs_of(function: object) -> tuple[Need, ...]:
    """Return the needs that :func:`needing` declares for a method, without calling it."""
    return getattr(function, "needs", ())
