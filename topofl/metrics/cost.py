"""Communication cost per round, computed or as a run has recorded it: messages and bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from topofl._support.check import check_choice, check_int
from topofl._support.public import public
from topofl._support.table import NotApplicable
from topofl.metrics._columns import Entry, MetricColumn, mean
from topofl.metrics.gradients import check_model
from topofl.mixing import MixingMatrix

__all__ = ["Cost", "round_cost"]


COSTS: Mapping[str, tuple[str, float]] = {
    "messages per round": ("messages", 1),
    "MB per round": ("bytes", 1e6),
    "busiest node messages": ("busiest_messages", 1),
}
"""For each column, its field in :class:`Cost` and in the rounds of a History, and its unit."""


def cost_of_rounds(of_run: Mapping[str, Any], name: str) -> np.ndarray | NotApplicable:
    """Return a cost column for every round of a run, or a NotApplicable if it is not recorded."""
    field, unit = COSTS[name]
    if field not in of_run:
        return NotApplicable("the run did not record it")
    return np.asarray(of_run[field]) / unit


def _cost_column(name: str, meaning: str) -> MetricColumn:
    """Return a cost column: recorded costs for runs, costs of the matrices for graphs."""
    field, unit = COSTS[name]

    def compute(entry: Entry) -> Any:
        if entry.history is None:
            each = (round_cost(matrix, entry.n_parameters) for matrix in entry.matrices)
            return mean(getattr(cost, field) / unit for cost in each)
        costs = cost_of_rounds(entry.history.rounds, name)
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
    itemsize
        Bytes per number.

    Raises
    ------
    TypeError
        If a matrix is not a MixingMatrix, or a number not an integer.
    ValueError
        If the matrices differ in size, a number is below 1, or `accounting` is unknown.

    References
    ----------
    Bellet, Kermarrec and Lavoie, "D-Cliques" (2022), section III and its count of messages (37.8
    per node for n = 1000).

    Examples
    --------
    >>> from topofl.mixing import metropolis_hastings
    >>> from topofl.topology import from_edges
    >>> round_cost(metropolis_hastings(from_edges([(0, 1), (1, 2)], n=3)), 10)
    Cost(messages=4, bytes=160, busiest_messages=4, busiest_bytes=160, accounting='exact')
    """
    check_choice("accounting", accounting, ["exact", "paper"])
    size = check_int("n_parameters", n_parameters, minimum=1)
    size *= check_int("itemsize", itemsize, minimum=1)
    exchanges = [_checked_matrix("mixing", mixing)]
    if gradient_mixing is not None:
        gradients = _checked_matrix("gradient_mixing", gradient_mixing)
        if gradients.n != mixing.n:
            raise ValueError(
                f"`gradient_mixing` must have n={mixing.n} nodes as `mixing`, got {gradients.n}"
            )
        exchanges.append(gradients if accounting == "exact" else mixing)
    messages = sum(exchange.n_messages for exchange in exchanges)
    busiest = int(np.max(sum(one.in_messages + one.out_messages for one in exchanges)))
    return Cost(messages, messages * size, busiest, busiest * size, accounting)


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
)
