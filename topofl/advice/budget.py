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
    degree, messages, kind = _least(n, directed=directed, static=static)
    least = {"max_degree": degree, "max_messages": messages}.get(name, 0)
    per_message = 1
    if name == "max_bytes":
        per_message = bytes_of_model(model)
        least = messages * per_message
    if limit < least:
        raise ValueError(
            f"`{name}` must be at least {_count(name, n, messages, per_message, least, kind)} for "
            f"{kind} of {n} nodes, got {shown(limit)}"
            f"{_remedy(n, name, least, per_message, directed)}"
        )
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


def _least(n: int, *, directed: bool, static: bool) -> tuple[int, int, str]:
    """Return the least degree and messages, and what kind of graph has them.

    A connected undirected graph has at least n - 1 edges, each with two messages, and if n > 2 some
    node has two neighbors. A strongly connected directed graph has at least one edge into each
    node; the directed ring has no more. In a time-varying graph, each node is in a pair in turn:
    half as many pairs as nodes per round.
    """
    if not static:
        return 1, 2 * (n // 2), "a time-varying graph that pairs the nodes in turn,"
    if directed:
        return 1, n, "a strongly connected directed static graph"
    return min(2, n - 1), 2 * (n - 1), "a connected undirected static graph"


def _count(name: str, n: int, messages: int, size: int, least: int, kind: str) -> str:
    """Return the least value of a budget with the formula behind it."""
    if name == "max_degree":
        return str(least)
    formula = {2 * (n - 1): "2(n-1)", n: "n"}.get(messages, "2(n//2)")
    if kind.startswith("a time"):
        formula = "2(n//2)"
    elif kind.startswith("a strongly"):
        formula = "n"
    return f"{formula}={least}" if size == 1 else f"{formula} messages of {size:,} bytes = {least}"


def _remedy(n: int, name: str, least: int, per_message: int, directed: bool) -> str:
    """Return which kinds of graphs do with less, if any does."""
    fewer = []
    for option, options in (
        ("directed=True", {"directed": True, "static": True}),
        ("static=False", {"directed": directed, "static": False}),
    ):
        degree, messages, _ = _least(n, **options)
        if (degree if name == "max_degree" else messages * per_message) < least:
            fewer.append(option)
    return f"; {' or '.join(fewer)} needs less" if fewer else ""
