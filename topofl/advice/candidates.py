"""Candidates: calls of the generators whose graphs may meet a communication budget, by family."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, NamedTuple

from torch import nn

from topofl import topologies
from topofl._support.check import check_int, shown
from topofl.topology import Topology, TopologySequence


@dataclass(frozen=True)
class Call:
    """A call of a generator of :mod:`topofl.topologies`.

    Parameters
    ----------
    function
        The generator; if its first parameter is ``label_counts``, that gets the nodes' data.
    arguments
        Other positional arguments: numbers, lists, or a Call that makes the base graph.
    options
        Keyword arguments.
    """

    function: Callable[..., Topology | TopologySequence]
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        """The line of Python, in which ``clients`` stands for the nodes' data."""
        words = ["clients"] if takes_labels(self.function) else []
        words += [
            value.code if isinstance(value, Call) else _argument(key, value)
            for key, value in self._given().items()
        ]
        return f"topologies.{self.function.__name__}({', '.join(words)})"

    def spec(self, n: int) -> str:
        """Return the text that stands for it, with n nodes, in configurations and in the shell."""
        given = {key: value for key, value in self._given().items() if key != "n"}
        words = [f"{key}={_word(value, n)}" for key, value in given.items()]
        size = f":{n}" if "n" in signature(self.function).parameters else ""
        return ",".join([f"{self.function.__name__}{size}", *words])

    @property
    def label(self) -> str:
        """The line of Python without what all candidates share: the module, data and seed."""
        words = [
            value.label if isinstance(value, Call) else _argument(key, value)
            for key, value in self._given().items()
            if key != "seed"
        ]
        return f"{self.function.__name__}({', '.join(words)})"

    def _given(self) -> dict[str, Any]:
        """Return all arguments by name, without the nodes' data."""
        names = [name for name in signature(self.function).parameters if name != "label_counts"]
        return {**dict(zip(names, self.arguments, strict=False)), **self.options}

    def build(self, clients: Any) -> Topology | TopologySequence:
        """Return the graph for these clients; raise as the generator."""
        given = [clients] if takes_labels(self.function) else []
        given += [v.build(clients) if isinstance(v, Call) else v for v in self.arguments]
        return self.function(*given, **self.options)


def takes_labels(function: Callable[..., Any]) -> bool:
    """Return whether a generator is called with the labels of the nodes' data."""
    return "label_counts" in signature(function).parameters


def _argument(key: str, value: Any) -> str:
    """Return an argument of a line of Python; only the number of nodes has no name."""
    return repr(value) if key == "n" else f"{key}={value!r}"


def _word(value: Any, n: int) -> str:
    """Return a value in a spec; the base graph is in parentheses."""
    return f"({value.spec(n)})" if isinstance(value, Call) else str(value)


BYTES_PER_NUMBER = 4


class Budget(NamedTuple):
    """A limit per round.

    Parameters
    ----------
    degree
        Most messages that a node may send, and most that it may receive.
    messages
        Most messages of all nodes together.
    text
        The limit as the user gave it.
    """

    degree: int
    messages: int
    text: str


def check_budget(
    n: int,
    max_degree: Any,
    max_messages: Any,
    max_bytes: Any,
    *,
    model: nn.Module | None,
    directed: bool,
    static: bool,
) -> Budget:
    """Return the one budget that is given, or raise if it is out of range or none fits it."""
    given = {"max_degree": max_degree, "max_messages": max_messages, "max_bytes": max_bytes}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) != 1:
        raise ValueError(
            "exactly one of `max_degree`, `max_messages` and `max_bytes` must be given, got "
            + (" and ".join(given) or "none; for example max_degree=6")
        )
    ((name, value),) = given.items()
    limit = check_int(name, value, minimum=1)
    size = bytes_of_model(model) if name == "max_bytes" else 1
    _check_limit(name, limit, n, size, directed=directed, static=static)
    text = f"{name}={limit}"
    if name == "max_degree":
        return Budget(min(limit, n - 1), n * (n - 1), text)
    return Budget(n - 1, min(limit // size, n * (n - 1)), text)


def bytes_of_model(model: nn.Module | None) -> int:
    """Return the bytes of one message, the trainable parameters of a model in 4 bytes each."""
    if model is None:
        raise ValueError(
            "`model` must be given for `max_bytes`, since its parameters are a message, got None; "
            "or use max_messages"
        )
    return BYTES_PER_NUMBER * sum(p.numel() for p in model.parameters() if p.requires_grad)


def _check_limit(name: str, limit: int, n: int, size: int, *, directed: bool, static: bool) -> None:
    """Raise if no graph meets a limit; `size` is the bytes of a message, or 1."""

    def smallest(directed: bool, static: bool) -> tuple[int, str, str]:
        degree, messages, count, kind = _least(n, directed, static)
        return degree if name == "max_degree" else messages * size, count, kind

    least, count, kind = smallest(directed, static)
    if limit >= least:
        return
    wanted = str(least)
    if name == "max_messages" and static:
        wanted = f"{count}={least}"
    elif name == "max_bytes":
        wanted = f"{count} messages of {size:,} bytes = {least}"
    others = {"directed=True": (True, True), "static=False": (directed, False)}
    fewer = [option for option, other in others.items() if smallest(*other)[0] < least]
    remedy = f"; {' or '.join(fewer)} needs less" if fewer else ""
    raise ValueError(
        f"`{name}` must be at least {wanted} for {kind} of {n} nodes, got {shown(limit)}{remedy}"
    )


def _least(n: int, directed: bool, static: bool) -> tuple[int, int, str, str]:
    """Return the least degree and messages of a graph that averages over all nodes, in words, too.

    A connected undirected graph has at least n - 1 edges, each with two messages, and if n > 2 some
    node has two neighbors. A strongly connected directed graph has at least one edge into each
    node; the directed ring has no more. A time-varying graph may have one link per round; with
    doubly stochastic weights, a round in which a single message is sent does not exist.
    """
    if not static:
        return 1, 2, "2", "a time-varying graph"
    if directed:
        return 1, n, "n", "a strongly connected directed static graph"
    return min(2, n - 1), 2 * (n - 1), "2(n-1)", "a connected undirected static graph"


DESIGN_LIMIT = 1_000
"""Most nodes for which an undirected graph is designed; the search takes minutes for more."""

MATCHINGS_LIMIT = 500
"""Most nodes for which designed graphs are taken apart into matchings: three more searches."""

Graph = Topology | TopologySequence


def candidates(
    n: int, budget: Budget, *, directed: bool, static: bool, seed: int
) -> Iterator[Call]:
    """Yield calls of all families; a few of the graphs exceed the budget or do not exist."""
    degree = min(budget.degree, budget.messages // n, n - 1)  # if all nodes send the same number
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
        yield _call(topologies.one_peer_exponential, n)
        yield _call(topologies.od_equidyn, n, seed=seed)
        if degree >= 2:
            yield _call(topologies.p_peer_exponential, n, degree)


def _call(function: Callable[..., Graph], *arguments: Any, **options: Any) -> Call:
    return Call(function, arguments, options)


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
        yield _call(function, n)
    for offsets in _offsets(n, degree // 2, most=n // 2):
        yield _call(topologies.circulant, n, offsets)


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
        yield _call(topologies.random_regular, n, regular, seed=seed)
    if degree >= 2:
        even = degree - degree % 2
        yield _call(topologies.small_world, n, even, 0.1, seed=seed)
        yield _call(topologies.barabasi_albert, n, degree // 2, seed=seed)
        yield _call(topologies.u_equistatic, n, degree // 2, seed=seed)


def _regular_degree(n: int, degree: int) -> int:
    """Return the largest degree of a regular graph: n times degree is even."""
    return degree - n * degree % 2


def _for_labels(n: int, degree: int, budget: Budget, seed: int) -> Iterator[Call]:
    yield _call(topologies.dissimilar_ring, seed=seed)
    for size in range(max(degree - 1, 2), min(degree + 1, n) + 1):
        for inter in ("ring", "fractal", "small_world", "fully_connected"):
            yield _call(topologies.dcliques, clique_size=size, inter=inter, seed=seed)
    regular = _regular_degree(n, degree)
    if 2 <= regular < n - 1:
        yield _call(topologies.neighborhood_swap, regular, seed=seed)
    if n > DESIGN_LIMIT:
        return
    edges = min(budget.messages // 2, n * budget.degree // 2)
    if 2 * edges == n * regular and regular >= 2:
        yield _call(topologies.designed, degree=regular, seed=seed)
    elif n - 1 <= edges < n * (n - 1) // 2:
        yield _call(topologies.designed, edges=edges, seed=seed)


def _directed(n: int, degree: int, seed: int) -> Iterator[Call]:
    for offsets in _offsets(n, degree, most=n - 1):
        yield _call(topologies.circulant, n, offsets, directed=True)
    yield _call(topologies.exponential, n, directed=True)
    if degree >= 2:
        yield _call(topologies.kautz, n, degree)
    if degree:
        yield _call(topologies.d_equistatic, n, degree, seed=seed)
        yield _call(topologies.stl_fw, degree)
        yield _call(topologies.designed_directed, degree)


def _changing(n: int, degree: int, seed: int) -> Iterator[Call]:
    yield _call(topologies.one_peer_exponential, n, directed=False)
    yield _call(topologies.random_matching, n, seed=seed)
    yield _call(topologies.ou_equidyn, n, seed=seed)
    yield _call(topologies.matchings, _call(topologies.torus, n))
    for links in (3, 4, 6):
        if n <= MATCHINGS_LIMIT and links < n and n * links % 2 == 0:
            base = _call(topologies.designed, degree=links, seed=seed)
            yield _call(topologies.matchings, base)
    for k in sorted({1, max(degree, 1)}):
        yield _call(topologies.base_graph, n, k)
        yield _call(topologies.hyper_hypercube, n, k)
    if degree:
        yield _call(topologies.rotating_cliques, clique_size=degree + 1, seed=seed)
    regular = _regular_degree(n, degree)
    if regular >= 2:
        yield _call(topologies.random_regular_sequence, n, regular, seed=seed)


def _few_links_per_round(n: int) -> Iterator[Call]:
    """Yield sequences for budgets in which not all nodes exchange in a round.

    The matchings of the star have one link per round, the least; those of trees have more.
    """
    for base in (topologies.star, topologies.tree, topologies.path, topologies.ring):
        yield _call(topologies.matchings, _call(base, n))
    branches = 3
    while branches < n - 1:
        yield _call(topologies.matchings, _call(topologies.tree, n, branches))
        branches *= 2
