"""What generators share: their declaration, names, sequences, sets of edges, label counts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import numpy as np
import scipy.sparse as sparse

from topofl._support.callers import warn_caller
from topofl._support.check import check_label_counts, check_nodes, shown
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.topology import Topology, TopologySequence, graph_of, unused_weights

Family: TypeAlias = Literal[
    "classic",
    "random",
    "exponential",
    "finite-time",
    "EquiTopo",
    "time-varying",
    "derived",
    "D-Cliques",
    "learned from data",
    "learned from rewards",
    "social",
]

FAMILIES: tuple[str, ...] = get_args(Family)
"""Families of generators, in the order of lists."""

Example: TypeAlias = str | Callable[[], Topology | TopologySequence]
"""A graph as written on the command line, ``"ring:12"``, or a function that returns it."""

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Topology | TopologySequence])


class Generator(NamedTuple):
    """A generator with its family and examples.

    Attributes
    ----------
    function
        Function that returns the graph.
    family
        One of :data:`FAMILIES`.
    examples
        Graphs of at most 100 nodes (16 if they change over time) that can be built and drawn within
        a second. Lists show the first one.
    """

    function: Callable[..., Topology | TopologySequence]
    family: Family
    examples: tuple[Example, ...]


GENERATORS: dict[str, Generator] = {}
"""Every generator of :mod:`topofl.topologies` by name."""


def generator(
    *, family: Family, examples: Sequence[Example]
) -> Callable[[AnyFunction], AnyFunction]:
    """Return a decorator that declares a generator, a public function.

    The gallery, the property tests, ``topologies.__all__`` and the command line read these
    declarations.

    Parameters
    ----------
    family, examples
        As in :class:`Generator`; at least one example.
    """

    def declare(function: AnyFunction) -> AnyFunction:
        function = public(function)
        GENERATORS[function.__name__] = Generator(function, family, tuple(examples))
        return function

    return declare


def call_name(function: str, source: str = "", **arguments: Any) -> str:
    """Return the call that generates a graph, ``"ring(n=16)"``, without arguments that are None.

    `source` comes first and describes inputs that are too long to print; a graph is shown by its
    name.
    """
    words = [source] if source else []
    for key, value in arguments.items():
        if isinstance(value, np.random.Generator):
            words.append(f"{key}=Generator")
        elif isinstance(value, Topology):
            words.append(f"{key}={value.name}")
        elif isinstance(value, Integral) and not isinstance(value, bool):
            words.append(f"{key}={shown(int(value))}")
        elif value is not None:
            words.append(f"{key}={value!r}")
    return f"{function}({', '.join(words)})"


def periodic(n: int, graphs: Iterable[Topology], name: str) -> TopologySequence:
    """Return the periodic sequence of these graphs."""
    rounds = tuple(graphs)
    return TopologySequence(n, rounds.__getitem__, name=name, period=len(rounds))


Draw: TypeAlias = Callable[[np.random.Generator, str], Topology]
"""Draws the graph of a round with a random generator and a name."""


def redrawn(n: int, draw: Draw, seed: int, name: str) -> TopologySequence:
    """Return the sequence whose rounds are drawn independently; round t depends on (seed, t)."""
    return TopologySequence(n, partial(_draw_round, draw, seed, name), name=name)


def _draw_round(draw: Draw, seed: int, name: str, t: int) -> Topology:
    return draw(stream(seed, "graph", t), f"{name}.at({t})")


def with_some_edges(graph: Topology, kept: np.ndarray, name: str) -> Topology:
    """Return the graph with only the edges of its ``edge_index`` that the booleans `kept` mark."""
    u, v = graph.edge_index[:, kept]
    adjacency = sparse.csr_array((graph.adjacency.data[kept], (u, v)), graph.adjacency.shape)
    return replace(graph, adjacency=adjacency, name=name)


def distinct_pairs(uniforms: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of distinct numbers below n, one for each row of two uniforms in [0, 1)."""
    first = (uniforms[:, 0] * n).astype(np.int64)
    second = (uniforms[:, 1] * (n - 1)).astype(np.int64)
    second += second >= first
    return first, second


def cycle_edges(order: np.ndarray) -> np.ndarray:
    """Return the (n, 2) edges of the cycle through nodes in this order; none for a single node."""
    return np.stack([order, np.roll(order, -1)], axis=1)[: len(order) if len(order) > 1 else 0]


def with_own_weights(
    edges: np.ndarray, weights: np.ndarray, n: int, *, name: str, directed: bool = False
) -> Topology:
    """Return the graph whose edges have these mixing weights; weights of repeated edges add up."""
    if not directed:
        edges = np.concatenate([edges, edges[:, ::-1]])
        weights = np.concatenate([weights, weights])
    return Topology(sparse.csr_array((weights, edges.T), shape=(n, n)), name=name, own_weights=True)


def independent_pairs(sizes: np.ndarray, p: float, rng: np.random.Generator) -> np.ndarray:
    """Return (E, 2) node pairs within blocks, each drawn independently with probability p.

    Blocks of the given sizes contain consecutive nodes; a single block is G(n, p). The number of
    pairs is drawn first, then the pairs, so time and memory are linear in the result.
    """
    ends = np.cumsum(sizes * (sizes - 1) // 2)
    if ends[-1] == 0:
        return np.zeros((0, 2), np.int64)
    drawn = rng.choice(ends[-1], rng.binomial(ends[-1], p), replace=False, shuffle=False)
    block = np.searchsorted(ends, drawn, side="right")
    position = drawn - np.concatenate([[0], ends])[block]
    # Pair (i, j), i > j, has position i (i - 1) / 2 + j. Roots of integers below 2^53 are exact
    # enough for the floor.
    i = (1 + np.sqrt(1 + 8 * position)).astype(np.int64) // 2
    start = np.concatenate([[0], np.cumsum(sizes)])[block]
    return start[:, None] + np.stack([i, position - i * (i - 1) // 2], axis=1)


def static_graph(name: str, graph: Any) -> Topology:
    """Convert a static graph by :func:`topofl.as_topology`, or raise ``TypeError``."""
    topology = graph_of(name, graph)
    if not isinstance(topology, Topology):
        raise TypeError(
            f"`{name}` must be one graph, got {shown(topology)}; take one of its rounds, e.g. "
            ".at(0)"
        )
    return topology


def check_weights_unused(name: str, graph: Topology) -> None:
    """Raise if a graph has its own mixing weights, and warn if its unequal weights are ignored."""
    remedy = "dataclasses.replace(graph, adjacency=graph.adjacency != 0, own_weights=False)"
    if graph.own_weights:
        raise ValueError(
            f"`{name}` must not have its own mixing weights, {graph.name} does; to use only its "
            f"edges, pass {remedy}"
        )
    if graph.has_unused_weights:
        warn_caller(
            f"{unused_weights(graph)}: the result has only the edges of `{name}`; to confirm, pass "
            f"{remedy}"
        )


def check_nonempty_label_counts(label_counts: Any) -> np.ndarray:
    """Return (n, classes) int64 counts, or raise unless every node has data.

    Raises
    ------
    TypeError
        If the counts are not integers.
    ValueError
        If the shape is not (n, classes), a count is negative or not finite, or a node has no
        examples.
    """
    counts = check_label_counts(label_counts)
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if len(empty):
        raise ValueError(
            "`label_counts` must give every node at least one example, but node "
            f"{empty[0]} has none ({len(empty)} such nodes)"
        )
    return counts


def label_counts_of_single_classes(n: int, classes: int) -> np.ndarray:
    """Return (n, classes) counts of one example per node; node i has class ``i % classes``."""
    return np.eye(classes, dtype=np.int64)[np.arange(n) % classes]


def counts_and_source(label_counts: Any, n: int | None, *, classes: int) -> tuple[np.ndarray, str]:
    """Return the label counts, given or of one class per node, and their text in a name.

    Raises
    ------
    ValueError
        If not exactly one of `label_counts` and `n` is given.
    """
    if isinstance(label_counts, Integral):
        number = int(label_counts)
        raise ValueError(
            f"`label_counts` must have shape (n, classes), got {shown(number)}; for one class "
            f"per node pass n={shown(number)}"
        )
    if (label_counts is None) == (n is None):
        both = "neither" if n is None else "both"
        raise ValueError(
            f"exactly one of `label_counts` and `n` must be given, got {both}; `n` alone means one "
            "class per node"
        )
    if n is not None:
        n = check_nodes(n, minimum=1)
        return label_counts_of_single_classes(n, classes), f"n={n}"
    counts = check_nonempty_label_counts(label_counts)
    return counts, f"label_counts[{counts.shape[0]}x{counts.shape[1]}]"


def label_shares(counts: np.ndarray) -> np.ndarray:
    """Return the label distribution of each node, in rows that sum to 1."""
    return counts / counts.sum(axis=1, keepdims=True)
