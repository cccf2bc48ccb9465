"""What generators share: their declaration, names, sequences, sets of edges, label counts."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import (
    check_int,
    check_nodes,
    check_nonempty_label_counts,
    check_shares,
    shown,
)
from topofl._support.public import public, warn_caller
from topofl._support.seeding import stream
from topofl.topology import Topology, TopologySequence, unused_weights

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
    *, family: Family, examples: Sequence[Example], least: int = 1, always: Sequence[str] = ()
) -> Callable[[AnyFunction], AnyFunction]:
    """Return a decorator that declares a generator, a public function, and names its graphs.

    The gallery, the property tests, ``topologies.__all__`` and the command line read these
    declarations. The name of a graph is the call that makes it, ``"ring(n=16)"``. It has no None,
    and of the arguments given by keyword only those that differ from their defaults.

    Parameters
    ----------
    family, examples
        As in :class:`Generator`; at least one example.
    least
        Smallest number of nodes; `n` is checked before the function is called, and so is the `seed`
        of a sequence.
    always
        Keyword-only arguments that are part of the name although they have their defaults.
    """

    def declare(function: AnyFunction) -> AnyFunction:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def make(*args: Any, **kwargs: Any) -> Topology | TopologySequence:
            try:
                call = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # raises the error of Python
            call.apply_defaults()
            if call.arguments.get("n") is not None:
                call.arguments["n"] = check_nodes(call.arguments["n"], minimum=least)
            if signature.return_annotation is TopologySequence and "seed" in call.arguments:
                call.arguments["seed"] = check_int("seed", call.arguments["seed"], minimum=0)
            return _named(function(*call.args, **call.kwargs), function.__name__, call, always)

        declared = public(make)
        GENERATORS[function.__name__] = Generator(declared, family, tuple(examples))
        return cast(AnyFunction, declared)

    return declare


def _named(
    made: Topology | TopologySequence,
    function: str,
    call: inspect.BoundArguments,
    always: Sequence[str],
) -> Topology | TopologySequence:
    """Return a graph that nobody else has yet with the name of the call, unless it has a name.

    The first argument `base` is the graph whose name the result still has.
    """
    parameters = call.signature.parameters
    first = next(iter(parameters), "")
    if made.name not in ("graph", "sequence") and first != "base":
        return made
    words, named = [], {}
    for key, value in call.arguments.items():
        default = parameters[key].default
        is_default = parameters[key].kind is inspect.Parameter.KEYWORD_ONLY and key not in always
        is_default &= default is not inspect.Parameter.empty
        table = getattr(value, "label_counts", value)
        if value is None or (is_default and default is not None and value == default):
            continue
        if key == first == "base":
            words.append(made.name)
        elif callable(value):
            words.append(key)
        elif np.ndim(table) and not isinstance(default, tuple):
            words.append(f"{key}[{'x'.join(map(str, np.shape(table)))}]")
        else:
            named[key] = _word(value, is_float=parameters[key].annotation is float)
    if "n" in named:
        named = {"n": named["n"]} | named
    name = f"{function}({', '.join([*words, *(f'{key}={word}' for key, word in named.items())])})"
    if isinstance(made, Topology):
        return _renamed(made, name)
    return replace(made, name=name, generate=partial(_named_round, made.generate, name))


def _word(value: Any, *, is_float: bool) -> str:
    """Return an argument in the name of a graph, which shows other graphs by their names."""
    if isinstance(value, Topology | np.random.Generator):
        return value.name if isinstance(value, Topology) else "Generator"
    if np.ndim(value):
        return repr([int(one) for one in value])
    value = float(value) if is_float else value.item() if isinstance(value, np.generic) else value
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    return shown(int(value)) if is_whole else repr(value)


def _named_round(generate: Callable[[int], Topology], name: str, t: int) -> Topology:
    return _renamed(generate(t), f"{name}.at({t})")


def _renamed(made: Topology, name: str) -> Topology:
    """Return a graph that nobody else has yet, in place of a checked copy, with another name."""
    object.__setattr__(made, "name", name)
    return made


def periodic(graphs: Sequence[Topology]) -> TopologySequence:
    """Return the periodic sequence of these graphs."""
    rounds = tuple(graphs)
    return TopologySequence(rounds[0].n, rounds.__getitem__, period=len(rounds))


def redrawn(n: int, draw: Callable[[np.random.Generator], Topology], seed: int) -> TopologySequence:
    """Return the sequence whose rounds are drawn independently; round t depends on (seed, t)."""
    return TopologySequence(n, partial(_drawn, draw, seed))


def _drawn(draw: Callable[[np.random.Generator], Topology], seed: int, t: int) -> Topology:
    return draw(stream(seed, "graph", t))


def with_some_edges(graph: Topology, kept: np.ndarray) -> Topology:
    """Return the graph with only the edges of its ``edge_index`` that the booleans `kept` mark."""
    u, v = graph.edge_index[:, kept]
    adjacency = sparse.csr_array((graph.adjacency.data[kept], (u, v)), graph.adjacency.shape)
    return replace(graph, adjacency=adjacency)


def without_edges(graph: Topology, pairs: np.ndarray) -> Topology:
    """Return the graph without these (E, 2) pairs (source, target)."""
    gone = np.isin(pair_numbers(graph.edge_index.T, graph.n), pair_numbers(pairs, graph.n))
    return with_some_edges(graph, ~gone)


def pair_numbers(pairs: np.ndarray, n: int) -> np.ndarray:
    """Return a unique number for each pair of nodes."""
    return pairs[:, 0] * n + pairs[:, 1]


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
    edges: np.ndarray, weights: np.ndarray, n: int, *, directed: bool = False
) -> Topology:
    """Return the graph whose edges have these mixing weights; weights of repeated edges add up."""
    if not directed:
        edges = np.concatenate([edges, edges[:, ::-1]])
        weights = np.concatenate([weights, weights])
    return Topology(sparse.csr_array((weights, edges.T), shape=(n, n)), own_weights=True)


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


def counts_of(label_counts: Any, n: int | None, *, classes: int) -> np.ndarray:
    """Return the label counts, given or of one class per node.

    Raises
    ------
    ValueError
        If not exactly one of `label_counts` and `n` is given.
    """
    if isinstance(label_counts, Integral):
        number = shown(int(label_counts))
        raise ValueError(
            f"`label_counts` must have shape (n, classes), got {number}; for one class per node "
            f"pass n={number}"
        )
    if (label_counts is None) == (n is None):
        both = "neither" if n is None else "both"
        raise ValueError(
            f"exactly one of `label_counts` and `n` must be given, got {both}; `n` alone means one "
            "class per node"
        )
    if n is None:
        return check_nonempty_label_counts(label_counts)
    return np.eye(classes, dtype=np.int64)[np.arange(n) % classes]  # node i has class i % classes


def shares_of(
    label_counts: Any, n: int | None, label_shares: Any = None, *, classes: int = 10
) -> np.ndarray:
    """Return the label distribution of each node: of its counts, or as it reports it.

    Raises
    ------
    ValueError
        If not exactly one of `label_counts`, `n` and `label_shares` is given.
    """
    if label_shares is None:
        counts = counts_of(label_counts, n, classes=classes)
        return counts / counts.sum(axis=1, keepdims=True)
    if label_counts is not None or n is not None:
        raise ValueError(
            "`label_shares` must be given alone, since it replaces `label_counts` and `n`"
        )
    return check_shares(label_shares)
