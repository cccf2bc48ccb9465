"""Communication cost per round, computed or as a run has recorded it: messages, bytes, steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sparse
from torch import nn

from topofl._support.check import check_choice, check_int
from topofl._support.public import public
from topofl._support.table import NotApplicable
from topofl.metrics._columns import Entry, MetricColumn, mean
from topofl.metrics.gradients import check_model
from topofl.mixing import MixingMatrix
from topofl.topology import TopologyError

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
            return entry.mean_over_matrices(
                lambda matrix: getattr(round_cost(matrix, entry.n_parameters), field) / unit
            )
        costs = cost_of_rounds(entry.history.rounds, name)
        return costs if isinstance(costs, NotApplicable) else mean(costs)

    return MetricColumn(name, "cost", meaning, compute)


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


def is_history(x: Any) -> bool:
    """Return whether `x` is the record of a run, with or without mixing matrices."""
    return isinstance(getattr(x, "node_loss", None), np.ndarray)


def run_label(history: Any) -> str:
    """Return algorithm and graph of a History."""
    return f"{history.meta.get('algorithm', 'run')} over {history.meta.get('topology', 'graphs')}"


def recorded_messages(history: Any, t: int) -> tuple[sparse.csr_array, bool, int, float]:
    """Return the messages of round t of a History.

    Returns
    -------
    receivers
        (n, n) whose nonzero entries (i, j) are messages from node j to node i, in each exchange.
    server
        Whether the nodes that send do so to a server, which sends to all of these.
    exchanges
        Number of exchanges.
    nbytes
        Mean size of a message.

    Raises
    ------
    TopologyError
        If messages went along other links than those of the round's mixing matrix, which a History
        does not record.
    """
    n = history.node_loss.shape[1]
    messages, nbytes = int(history.rounds["messages"][t]), float(history.rounds["bytes"][t])
    if messages == 0:
        return sparse.csr_array((n, n)), False, 1, 0.0
    matrix: MixingMatrix = history.mixing(t)
    # Older runs have recorded a server in the name of the graph.
    server = bool(history.meta.get("server", history.meta.get("topology") == "a server"))
    if server:  # it sends and receives every message
        per_exchange = busiest = 2 * len(np.unique(matrix.weights.indices))
    else:
        per_exchange = matrix.n_messages
        busiest = int((matrix.in_messages + matrix.out_messages).max())
    exchanges = messages // max(per_exchange, 1)
    expected = (exchanges * per_exchange, exchanges * busiest)
    if expected != (messages, int(history.rounds["busiest_messages"][t])):
        raise TopologyError(
            f"`x` must have recorded the links of its messages, got {messages} messages in round "
            f"{t} over {per_exchange} links of its {'server' if server else 'mixing matrix'}, so "
            "some went along other links; run algorithms.timed(algorithm, clock) for its seconds"
        )
    return matrix.weights, server, exchanges, nbytes / messages


def check_synchronous(history: Any) -> None:
    """Raise ``TopologyError`` if a run has a clock of its own."""
    of_this_function = "hardware" in history.meta
    of_timed = "clock" in history.meta.get("settings", {})
    if "simulated_seconds" in history.rounds and not (of_this_function or of_timed):
        raise TopologyError(
            f"`x` must be a synchronous run, got one of {history.meta.get('algorithm')}, which has "
            "simulated seconds of its own; set its `clock` instead"
        )


def recorded_steps(history: Any, t: int) -> np.ndarray:
    """Return the steps (n,) of each node in round t, equal for all nodes that trained."""
    trained = ~np.isnan(history.node_loss[t])
    if not trained.any():
        trained[:] = True
    return trained * (float(history.rounds["steps"][t]) / trained.sum())


COLUMNS = (
    _cost_column("messages per round", "messages that all nodes send per round"),
    _cost_column("MB per round", "megabytes (10^6 bytes) that all nodes send per round"),
    _cost_column(
        "busiest node messages", "messages in and out of the node with the most, per round"
    ),
)
