"""Messages and local steps of the rounds that a run has recorded."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse

from topofl.mixing import MixingMatrix
from topofl.topology import TopologyError

__all__ = [
    "Recorded",
    "check_synchronous",
    "is_history",
    "recorded_messages",
    "recorded_steps",
    "run_label",
]


class Recorded(NamedTuple):
    """The messages of one round of a run.

    Attributes
    ----------
    receivers
        (n, n) whose nonzero entries (i, j) are messages from node j to node i, in each exchange.
    server
        Whether the nodes that send do so to a server, which sends to all of these.
    exchanges
        Number of exchanges.
    nbytes
        Mean size of a message.
    """

    receivers: sparse.csr_array
    server: bool
    exchanges: int
    nbytes: float

    @property
    def participants(self) -> np.ndarray:
        """Nodes that send to the server."""
        return np.unique(self.receivers.indices)


def is_history(x: Any) -> bool:
    """Return whether `x` is the record of a run, with or without mixing matrices."""
    return isinstance(getattr(x, "node_loss", None), np.ndarray)


def run_label(history: Any) -> str:
    """Return algorithm and graph of a History."""
    return f"{history.meta.get('algorithm', 'run')} over {history.meta.get('topology', 'graphs')}"


def recorded_messages(history: Any, t: int) -> Recorded:
    """Return the messages of round t of a History.

    Raises
    ------
    TopologyError
        If messages went along other links than those of the round's mixing matrix, which a History
        does not record.
    """
    n = history.node_loss.shape[1]
    messages, nbytes = int(history.rounds["messages"][t]), float(history.rounds["bytes"][t])
    if messages == 0:
        return Recorded(sparse.csr_array((n, n)), False, 1, 0.0)
    matrix: MixingMatrix = history.mixing(t)
    server = _has_server(history)
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
    return Recorded(matrix.weights, server, exchanges, nbytes / messages)


def _has_server(history: Any) -> bool:
    """Return whether nodes send to a server; older runs have recorded it in the graph's name."""
    return bool(history.meta.get("server", history.meta.get("topology") == "a server"))


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
