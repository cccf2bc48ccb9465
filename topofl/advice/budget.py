"""Communication budgets: limits of messages per node, of all messages, or of bytes per round."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from topofl._support.check import check_int, shown

__all__ = ["Budget", "bytes_of_model", "check_budget"]

BYTES_PER_NUMBER = 4


@dataclass(frozen=True)
class Budget:
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

    def admits(self, degree: int, messages: int) -> bool:
        """Return whether a graph is within the budget in its busiest round."""
        return degree <= self.degree and messages <= self.messages

    def usual_degree(self, n: int) -> int:
        """Return the number of messages per node if all nodes send the same number."""
        return min(self.degree, self.messages // n, n - 1)


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
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise ValueError(
            "exactly one of `max_degree`, `max_messages` and `max_bytes` must be given, got "
            + (" and ".join(names) or "none; for example max_degree=6")
        )
    name = names[0]
    limit = check_int(name, given[name], minimum=1)
    per_message = bytes_of_model(model) if name == "max_bytes" else 1
    _check_limit(name, limit, n, per_message, directed=directed, static=static)
    text = f"{name}={limit}"
    if name == "max_degree":
        return Budget(min(limit, n - 1), n * (n - 1), text)
    return Budget(n - 1, min(limit // per_message, n * (n - 1)), text)


def bytes_of_model(model: nn.Module | None) -> int:
    """Return the bytes of one message, the trainable parameters of a model in 4 bytes each."""
    if model is None:
        raise ValueError(
            "`model` must be given for `max_bytes`, since its parameters are a message, got None; "
            "or use max_messages"
        )
    return BYTES_PER_NUMBER * sum(p.numel() for p in model.parameters() if p.requires_grad)


@dataclass(frozen=True)
class _Least:
    """The least degree and messages of a kind of graph; `formula` is that of the messages."""

    degree: int
    messages: int
    formula: str
    kind: str


def _least(n: int, *, directed: bool, static: bool) -> _Least:
    """Return the least that a graph which averages over all nodes needs in its busiest round.

    A connected undirected graph has at least n - 1 edges, each with two messages, and if n > 2 some
    node has two neighbors. A strongly connected directed graph has at least one edge into each
    node; the directed ring has no more. A time-varying graph may have one link per round; with
    doubly stochastic weights, a round in which a single message is sent does not exist.
    """
    if not static:
        return _Least(1, 2, "", "a time-varying graph")
    if directed:
        return _Least(1, n, "n=", "a strongly connected directed static graph")
    return _Least(min(2, n - 1), 2 * (n - 1), "2(n-1)=", "a connected undirected static graph")


def _check_limit(name: str, limit: int, n: int, size: int, *, directed: bool, static: bool) -> None:
    """Raise if no graph meets a limit; `size` is the bytes of a message, or 1."""
    least = _least(n, directed=directed, static=static)
    smallest = least.degree if name == "max_degree" else least.messages * size
    if limit >= smallest:
        return
    shown_least = str(smallest) if name == "max_degree" else f"{least.formula}{smallest}"
    if size > 1:
        count = least.formula.rstrip("=") or str(least.messages)
        shown_least = f"{count} messages of {size:,} bytes = {smallest}"
    raise ValueError(
        f"`{name}` must be at least {shown_least} for {least.kind} of {n} nodes, got "
        f"{shown(limit)}{_remedy(n, name, smallest, size, directed)}"
    )


def _remedy(n: int, name: str, smallest: int, size: int, directed: bool) -> str:
    """Return the options with which graphs need less, or nothing."""
    fewer = []
    for option, options in (
        ("directed=True", {"directed": True, "static": True}),
        ("static=False", {"directed": directed, "static": False}),
    ):
        least = _least(n, **options)
        if (least.degree if name == "max_degree" else least.messages * size) < smallest:
            fewer.append(option)
    return f"; {' or '.join(fewer)} needs less" if fewer else ""
