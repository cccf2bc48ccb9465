"""Communication cost per round, computed or as a run has recorded it: messages and bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from torch import nn

from topofl._support.check import check_choice, check_int
from topofl._support.public import public
from topofl._support.table import NotApplicable
from topofl.metrics._columns import Entry, MetricColumn, mean
from topofl.metrics.gradients import check_model
from topofl.mixing import MixingMatrix
from topofl.mixing.matrix import all_reduce_share, component_means

__all__ = ["Cost", "round_cost"]


REDUCED = "MB per round by all-reduce"

COSTS: Mapping[str, tuple[str, float]] = {
    "messages per round": ("messages", 1),
    "MB per round": ("bytes", 1e6),
    "busiest node messages": ("busiest_messages", 1),
    REDUCED: ("bytes", 1e6),
}
"""For each column, its field in :class:`Cost` and in the rounds of a History, and its unit."""


def costs_of_run(history: Any) -> dict[str, Any]:
    """Return each cost column of a run: (R,) values of its rounds, or a NotApplicable."""
    unknown = NotApplicable("the run did not record it")
    found = {
        name: np.asarray(history.rounds[field]) / unit if field in history.rounds else unknown
        for name, (field, unit) in COSTS.items()
    }
    messages, megabytes = found["messages per round"], found[REDUCED]
    if isinstance(messages, NotApplicable) or isinstance(megabytes, NotApplicable):
        return found | {REDUCED: unknown}
    return found | {REDUCED: megabytes * _shares_by_all_reduce(history, messages)}


def _shares_by_all_reduce(history: Any, messages: np.ndarray) -> np.ndarray:
    """Return the share of every round's bytes that is left if groups average by all-reduce.

    It is 1 with a server, and where messages are not those of one or more exchanges by the matrix
    of the round, as to choose peers.
    """
    share = cache(all_reduce_share)
    found = np.ones(len(messages))
    if history.matrices and not history.meta.get("server"):
        for t, sent in enumerate(messages):
            matrix = history.mixing(t)
            found[t] = share(matrix) if sent % max(matrix.n_messages, 1) == 0 else 1.0
    return found


def _of_run(entry: Entry) -> dict[str, Any]:
    return costs_of_run(entry.history)


def _cost_column(name: str, meaning: str, groups: str = "messages") -> MetricColumn:
    """Return a cost column: recorded costs for runs, costs of the matrices for graphs."""
    field, unit = COSTS[name]

    def compute(entry: Entry) -> Any:
        if entry.history is None:
            of_matrix = partial(round_cost, n_parameters=entry.n_parameters, groups=groups)
            return mean(getattr(cost, field) / unit for cost in map(of_matrix, entry.matrices))
        costs = entry.shared(_of_run)[name]
        return costs if isinstance(costs, NotApplicable) else mean(costs)

    return MetricColumn("cost", name, meaning, compute)


@dataclass(frozen=True)
class Cost:
    """Communication cost of one round, as returned by :func:`round_cost`.

    Parameters
    ----------
    messages, bytes
        Messages and bytes sent by all nodes.
    busiest_messages, busiest_bytes
        Messages and bytes sent and received by the node with the most.
    accounting
        ``"exact"`` or ``"paper"``, see :func:`round_cost`.

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> cost = round_cost(mixing.metropolis_hastings(topologies.star(5)), n_parameters=1000)
    >>> cost.messages, cost.bytes
    (8, 32000)
    >>> cost.busiest_messages  # the center sends 4 and receives 4
    8
    """

    messages: int
    bytes: int
    busiest_messages: int
    busiest_bytes: int
    accounting: str


@public
def round_cost(
    mixing: MixingMatrix,
    n_parameters: int,
    *,
    gradient_mixing: MixingMatrix | None = None,
    accounting: str = "exact",
    groups: str = "messages",
    itemsize: int = 4,
) -> Cost:
    """Return the messages and bytes of one exchange, with one message per off-diagonal weight.

    See the page :doc:`Costs </docs/concepts/costs>`.

    Parameters
    ----------
    mixing
        Mixing matrix of the models.
    n_parameters
        Numbers per message: parameters of the shared part of the model, plus one if there is a
        push-sum weight.
    gradient_mixing
        Mixing matrix of the gradients (``mixing.within_groups``), if Clique Averaging is used.
    accounting
        How gradients are counted. ``"exact"``: sent within cliques only, degree + (clique size - 1)
        messages per node. ``"paper"``: sent to every neighbor, 2 degree messages per node.
    groups
        How nodes average where every row of a matrix is the mean of a group of k nodes, as with
        :func:`topofl.topologies.rotating_cliques`. ``"messages"``: each sends k - 1 models.
        ``"all-reduce"``: each adds up one part of k, in two exchanges of such parts, which are
        2 (k - 1) / k models per node. Other matrices send messages.
    itemsize
        Bytes per number.

    Raises
    ------
    TypeError
        If a matrix is not a MixingMatrix, or a number not an integer.
    ValueError
        If the matrices differ in size, a number is below 1, or a choice is unknown.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section III and its count of messages (37.8
    per node for n = 1000).

    Examples
    --------
    >>> from topofl import topologies
    >>> from topofl.mixing import metropolis_hastings
    >>> from topofl.topology import from_edges
    >>> round_cost(metropolis_hastings(from_edges([(0, 1), (1, 2)], n=3)), 10)
    Cost(messages=4, bytes=160, busiest_messages=4, busiest_bytes=160, accounting='exact')

    All-reduce sends 8 models in a group of five, in place of 20:

    >>> group = metropolis_hastings(topologies.fully_connected(5))
    >>> [round_cost(group, 10, groups=how).bytes for how in ("messages", "all-reduce")]
    [800, 320]
    """
    check_choice("accounting", accounting, ["exact", "paper"])
    check_choice("groups", groups, ["messages", "all-reduce"])
    n_parameters = check_int("n_parameters", n_parameters, minimum=1)
    itemsize = check_int("itemsize", itemsize, minimum=1)
    exchanges = [_checked_matrix("mixing", mixing)]
    if gradient_mixing is not None:
        gradients = _checked_matrix("gradient_mixing", gradient_mixing)
        if gradients.n != mixing.n:
            raise ValueError(
                f"`gradient_mixing` must have n={mixing.n} nodes as `mixing`, got {gradients.n}"
            )
        exchanges.append(gradients if accounting == "exact" else mixing)
    sent = np.sum([_exchanged(one, n_parameters, groups) for one in exchanges], axis=0)
    messages, numbers, busiest, most = (*sent.sum(axis=1) // 2, *sent.max(axis=1))
    return Cost(messages, numbers * itemsize, busiest, most * itemsize, accounting)


def _exchanged(exchange: MixingMatrix, numbers: int, groups: str) -> np.ndarray:
    """Return the messages, and the numbers in them, that each node sends and receives, (2, n)."""
    messages = (exchange.in_messages + exchange.out_messages).astype(object)
    labels = component_means(exchange) if groups == "all-reduce" else None
    if labels is None:
        return np.stack([messages, messages * numbers])
    order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels)[labels]
    place = np.empty(exchange.n, dtype=int)  # in the group, the first of which add up one more
    place[order] = np.arange(exchange.n) - np.searchsorted(labels[order], labels[order])
    added_up = numbers // sizes.astype(object) + (place < numbers % sizes)
    return np.stack([2 * messages, 2 * (numbers - added_up) + 2 * (sizes - 1) * added_up])


def _checked_matrix(name: str, matrix: object) -> MixingMatrix:
    if not isinstance(matrix, MixingMatrix):
        raise TypeError(
            f"`{name}` must be a MixingMatrix, got {type(matrix).__name__}; make one, for example, "
            "by mixing.metropolis_hastings"
        )
    return matrix


def message_size(model: nn.Module | None, n_parameters: int | None) -> int | None:
    """Return the number of parameters of a message, or None if neither argument is given."""
    if model is None:
        return None if n_parameters is None else check_int("n_parameters", n_parameters, minimum=1)
    if n_parameters is not None:
        raise ValueError(
            "`model` or `n_parameters` must be given, not both, got both; leave out one"
        )
    check_model(model)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


COLUMNS = (
    _cost_column("messages per round", "messages that all nodes send per round"),
    _cost_column("MB per round", "megabytes (10^6 bytes) that all nodes send per round"),
    _cost_column(
        "busiest node messages", "messages in and out of the node with the most, per round"
    ),
    _cost_column(
        REDUCED,
        "megabytes per round if nodes that average over a whole group use all-reduce",
        "all-reduce",
    ),
)
