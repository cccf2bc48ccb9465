"""Messages and bytes of the exchanges of one round."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse

from topofl.mixing import MixingMatrix

__all__ = ["Exchange", "Ledger"]


@dataclass
class Ledger:
    """Messages and bytes of one round.

    Parameters
    ----------
    itemsize
        Bytes per number.
    """

    itemsize: int
    exchanges: list["Exchange"] = field(default_factory=list)

    def add(
        self, weights: MixingMatrix, columns: int, *, gradients: bool = False, server: bool = False
    ) -> None:
        """Count messages of `columns` numbers along the off-diagonal entries of `weights`.

        With a server, each node with a column in `weights` sends one message and receives one.
        """
        self.exchanges.append(Exchange(weights, columns * self.itemsize, gradients, server))

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """Count messages of `nbytes` bytes along the off-diagonal entries of `weights`.

        `nbytes` is one number, or (n,) by sender. With a server, it is one number, and messages are
        counted as in :meth:`add`.
        """
        self.exchanges.append(Exchange(weights, nbytes, server=server))

    def totals(self, round_weights: MixingMatrix | None) -> dict[str, int]:
        """Return the round's messages and bytes: exact, of the busiest node, and as in a paper.

        The D-Cliques paper counts gradients as sent to all neighbors, along all edges of
        `round_weights`.
        """
        exact = self.exchanges
        paper = [
            e._replace(weights=round_weights or e.weights) if e.gradients else e for e in exact
        ]
        return {
            "messages": sum(e.messages for e in exact),
            "bytes": sum(e.bytes for e in exact),
            "messages_paper": sum(e.messages for e in paper),
            "bytes_paper": sum(e.bytes for e in paper),
            "busiest_messages": int(np.max(sum(e.loads for e in exact))) if exact else 0,
            "busiest_bytes": int(np.max(sum(e.byte_loads for e in exact))) if exact else 0,
        }


class Exchange(NamedTuple):
    """One exchange: its mixing matrix, bytes per message, and whether it carries gradients.

    `nbytes` is one number, or (n,) by sender; always one number with a `server`, which relays all
    messages.
    """

    weights: MixingMatrix
    nbytes: int | np.ndarray
    gradients: bool = False
    server: bool = False

    @property
    def messages(self) -> int:
        """Total number of messages."""
        return 2 * len(self._participants) if self.server else self.weights.n_messages

    @property
    def loads(self) -> Any:
        """Messages sent and received, (n + 1,): by each node, and last by the server."""
        return self._with_server(self.weights.in_messages + self.weights.out_messages)

    def _with_server(self, loads: np.ndarray) -> np.ndarray:
        """Return loads (n + 1,) with the server last; if there is one, it relays all messages."""
        if not self.server:
            return np.append(loads, 0)
        loads = np.zeros(len(loads) + 1, dtype=np.int64)
        loads[self._participants] = 2
        loads[-1] = self.messages
        return loads

    @property
    def bytes(self) -> int:
        """Total number of bytes."""
        if isinstance(self.nbytes, np.ndarray):
            return int(self.weights.out_messages @ self.nbytes)
        return self.messages * self.nbytes

    @property
    def byte_loads(self) -> Any:
        """Bytes sent and received, (n + 1,): by each node, and last by the server."""
        if not isinstance(self.nbytes, np.ndarray):
            return self.loads * self.nbytes
        matrix = self.weights.weights
        sent = self.weights.out_messages * self.nbytes
        received = sparse.csr_array(
            (np.ones(matrix.nnz, np.int64), matrix.indices, matrix.indptr), shape=matrix.shape
        )
        return np.append(sent + received @ self.nbytes - (matrix.diagonal() != 0) * self.nbytes, 0)

    @property
    def _participants(self) -> np.ndarray:
        """Nodes that send to the server."""
        return np.unique(self.weights.weights.indices)
