"""What a run records: messages of its exchanges, rounds, evaluations and mixing matrices."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor

from topofl._columns import RANK_COLUMNS
from topofl.history import History
from topofl.history.matrices import Kept, Matrices, Packed, bytes_of, digest_of, kept, kept_of
from topofl.mixing import MixingMatrix
from topofl.trained import Trained


class Exchange(NamedTuple):
    """One exchange, whose messages are along the off-diagonal entries of a mixing matrix.

    Attributes
    ----------
    weights
        The mixing matrix.
    nbytes
        Bytes per message: one number, or (n,) by sender; always one number with a server.
    gradients
        Whether it carries gradients.
    server
        Whether a server relays all messages: each node with a column in `weights` sends one message
        and receives one.
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


def totals_of(exchanges: Sequence[Exchange], round_weights: MixingMatrix | None) -> dict[str, int]:
    """Return the messages and bytes of a round: exact, of the busiest node, and as in a paper.

    The D-Cliques paper counts gradients as sent to all neighbors, along all edges of
    `round_weights`.
    """
    paper = [
        one._replace(weights=round_weights or one.weights) if one.gradients else one
        for one in exchanges
    ]
    return {
        "messages": sum(one.messages for one in exchanges),
        "bytes": sum(one.bytes for one in exchanges),
        "messages_paper": sum(one.messages for one in paper),
        "bytes_paper": sum(one.bytes for one in paper),
        "busiest_messages": int(np.max(sum(one.loads for one in exchanges))) if exchanges else 0,
        "busiest_bytes": int(np.max(sum(one.byte_loads for one in exchanges))) if exchanges else 0,
    }


class Recorder:
    """Recorder of the history of one run.

    Numbers are written to arrays that are allocated once, for all rounds. Mixing matrices that are
    equal in value and name are stored once. A new random graph every round therefore adds
    ``12 * (edges + n) + 4 * n`` bytes per round, with edges counted in both directions. Large
    matrices with equal rows, such as those of servers, store each distinct row once.

    Parameters
    ----------
    rounds
        Number of rounds of the run.
    every
        Number of rounds between evaluations.
    ranked
        Whether the run is distributed, so that its rounds have :data:`RANK_COLUMNS`.
    """

    def __init__(self, rounds: int, every: int, ranked: bool = False) -> None:
        self._extra = RANK_COLUMNS if ranked else ()
        evaluated = 1 + -(-rounds // every)
        self._rounds = _Columns(rounds)
        self._evaluations = _Columns(evaluated)
        self._used = _Columns(rounds)
        self._matrices: list[Kept] = []
        self._index_of: dict[bytes, int] = {}
        self._known: WeakKeyDictionary[MixingMatrix, int] = WeakKeyDictionary()

    @property
    def last_evaluation(self) -> int:
        """The round of the last evaluation."""
        return int(self._evaluations.filled["round"][-1])

    def add_round(
        self,
        losses: Tensor | None,
        n: int,
        totals: Mapping[str, float],
        weights: MixingMatrix | None,
    ) -> dict[str, float]:
        """Record a round, and return its columns that have one number for all nodes.

        Parameters
        ----------
        losses
            (n,) training losses; None if no node trained.
        n
            Number of nodes.
        totals
            Messages and other numbers of the round, by column.
        weights
            Mixing matrix of the round; None if nothing was exchanged.
        """
        values = np.full(n, np.nan) if losses is None else losses.double().cpu().numpy()
        known = values[~np.isnan(values)]
        columns = {"train_loss": float(known.mean()) if len(known) else np.nan} | dict(totals)
        self._rounds.add(columns | {"node_loss": values})
        if weights is not None:
            self._used.add({"matrix": self._index(weights)})
        return columns

    def _index(self, weights: MixingMatrix) -> int:
        """Return the index of a matrix among the distinct ones."""
        if weights not in self._known:
            self._known[weights] = self._index_of_stored(kept(weights))
        return self._known[weights]

    def _index_of_stored(self, matrix: Kept) -> int:
        """Return the index of a matrix in stored form among the distinct ones."""
        index = self._index_of.setdefault(digest_of(matrix), len(self._matrices))
        if index == len(self._matrices):
            self._matrices.append(matrix)
        return index

    def add_evaluation(self, values: dict[str, Any]) -> dict[str, Any]:
        """Record an evaluation, numbers and (n,) tensors; return it with tensors as arrays."""
        converted = _on_host(values)
        self._evaluations.add(converted)
        return converted

    def state(self) -> dict[str, Any]:
        """Return everything recorded so far as tensors, lists and text, for a checkpoint."""
        matrices = self._matrices
        parts = {
            part: [getattr(one.weights, part) for one in matrices]
            for part in ("data", "indices", "indptr")
        }
        parts["row_of"] = [one.row_of for one in matrices if isinstance(one, Packed)]
        return {
            "rounds": _as_tensors(self._rounds.filled),
            "evaluations": _as_tensors(self._evaluations.filled),
            "used": _as_tensors(self._used.filled),
            "names": [one.name for one in matrices],
            "entries": [one.weights.nnz for one in matrices],
            "rows": [one.weights.shape[0] for one in matrices],
            "matrices": _as_tensors(
                {part: np.concatenate(arrays) for part, arrays in parts.items() if arrays}
            ),
        }

    def restore(
        self,
        state: Mapping[str, Any],
        evaluated: Callable[[int], bool],
        scored: Callable[[str, int], bool] = lambda column, t: True,
        done: int | None = None,
    ) -> None:
        """Restore the records that :meth:`state` returned.

        Parameters
        ----------
        state
            What :meth:`state` returned.
        evaluated
            round -> whether the run evaluates models after it; other evaluations are dropped.
        scored
            (column, round) -> whether the evaluation after the round has the column, which may have
            changed if the run was extended; other entries become NaN.
        done
            Number of rounds that must be recorded; None: not checked.

        Raises
        ------
        ValueError
            If the number of rounds is not `done`, or the parts do not fit each other.
        """
        _check_state(state, done)
        rounds = _as_arrays(state["rounds"])
        if rounds:  # older checkpoints have no column `steps`
            for name in ("steps", *self._extra):  # nor has a run that was not distributed
                rounds.setdefault(name, np.full(len(rounds["train_loss"]), np.nan))
        self._rounds.fill(rounds)
        self._used.fill(_as_arrays(state["used"]))
        evaluations = _as_arrays(state["evaluations"])
        retained = [evaluated(t) for t in evaluations["round"].tolist()]
        evaluations = {name: column[retained] for name, column in evaluations.items()}
        done_at = evaluations["round"].tolist()
        for name, column in evaluations.items():
            if missing := [k for k, t in enumerate(done_at) if not scored(name, t)]:
                column[missing] = np.nan
        self._evaluations.fill(evaluations)
        n = self._rounds.filled["node_loss"].shape[1] if len(state["names"]) else 0
        for matrix in _matrices_in(state, n):
            self._index_of_stored(matrix)

    def history(self, meta: dict[str, Any], models: Trained | None) -> History:
        """Return the history of the run, with the given final models (None: without models)."""
        rounds = dict(self._rounds.filled)
        return History(
            meta=meta,
            node_loss=rounds.pop("node_loss"),
            rounds=rounds,
            evaluations=self._evaluations.filled,
            matrices=Matrices(self._matrices),
            matrix_of_round=self._used.filled.get("matrix", np.zeros(0, dtype=np.int64)),
            models=models,
        )


def bytes_kept(used: Iterable[MixingMatrix | None], period: int, ahead: int, rounds: int) -> int:
    """Estimate the bytes of mixing matrices that a history stores, from those of its first rounds.

    Parameters
    ----------
    used
        The matrix of each of the first rounds; None: nothing was exchanged.
    period
        Number of rounds after which the matrices repeat, or whose matrices are not representative
        of later ones. Beyond it, bytes grow in proportion to rounds.
    ahead
        Length of `used`: `rounds`, or more than `period`.
    rounds
        Number of rounds of the run.
    """
    sizes = [0]
    seen = set[bytes]()
    for matrix in used:
        stored = None if matrix is None else kept(matrix)
        digest = b"" if stored is None else digest_of(stored)
        added = 0 if stored is None or digest in seen else bytes_of(stored)
        sizes.append(sizes[-1] + added)
        seen.add(digest)
    if ahead == rounds:
        return sizes[-1]
    return sizes[-1] + (sizes[-1] - sizes[period]) * (rounds - ahead) // (ahead - period)


class _Columns:
    """Columns of a table of fixed length that is filled row by row."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._count = 0
        self._arrays: dict[str, np.ndarray] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Fill the next row; the first row fixes names, shapes and dtypes.

        Columns that only earlier rows have, from before the run was resumed, get NaN.
        """
        missing = dict.fromkeys(self._arrays.keys() - row.keys(), np.nan)
        self.fill({name: np.asarray(value)[None] for name, value in {**row, **missing}.items()})

    def fill(self, rows: Mapping[str, np.ndarray]) -> None:
        """Fill the next rows; the first call fixes names, shapes and dtypes."""
        if not self._arrays:
            try:
                self._arrays = {
                    name: np.empty((self._length, *values.shape[1:]), values.dtype)
                    for name, values in rows.items()
                }
            except MemoryError as error:
                raise ValueError(
                    "`rounds` and `evaluation.every` must give records that fit into memory, got "
                    f"{self._length:,} of them: {error}; take fewer rounds, or evaluate less often"
                ) from error
        count = self._count
        for name, values in rows.items():
            self._arrays[name][count : count + len(values)] = values
            self._count = count + len(values)

    @property
    def filled(self) -> dict[str, np.ndarray]:
        """Views of the rows that are filled."""
        return {name: array[: self._count] for name, array in self._arrays.items()}


def _check_state(state: Mapping[str, Any], done: int | None) -> None:
    """Raise ``ValueError`` unless columns of a table have one length and all matrices exist."""
    rounds = min((len(column) for column in state["rounds"].values()), default=0)
    for table in ("rounds", "evaluations", "used"):
        lengths = {len(column) for column in state[table].values()}
        limit = rounds + (table == "evaluations")
        if len(lengths) > 1 or max(lengths, default=0) > limit:
            raise ValueError(f"the columns of {table} have {sorted(lengths)} rows")
    if done is not None and rounds != done:
        raise ValueError(f"{rounds} rounds are recorded, not {done}")
    places = state["used"].get("matrix", torch.zeros(0, dtype=torch.int64, device="cpu"))
    if places.dtype != torch.int64 or bool(((places < 0) | (places >= len(state["names"]))).any()):
        raise ValueError("a round used a matrix that is missing")
    if not all(isinstance(name, str) for name in state["names"]):
        raise ValueError("names of matrices must be text")


def _matrices_in(state: Mapping[str, Any], n: int) -> Iterator[Kept]:
    """Yield the matrices of n nodes from a recorder's state, which concatenates their arrays."""
    parts, names = _as_arrays(state["matrices"]), state["names"]
    done = dict.fromkeys(parts, 0)
    for name, entries, rows in zip(
        names, state["entries"], state.get("rows", [n] * len(names)), strict=True
    ):
        lengths = {"data": entries, "indices": entries, "indptr": rows + 1} | (
            {"row_of": n} if rows < n else {}
        )
        if any(not 0 <= size <= len(parts[part]) - done[part] for part, size in lengths.items()):
            raise ValueError(f"{name} has {entries} entries in {rows} rows, which are missing")
        yield kept_of(
            {part: parts[part][done[part] : done[part] + size] for part, size in lengths.items()},
            n,
            name,
        )
        for part, size in lengths.items():
            done[part] += size


def _on_host(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with (n,) tensors as float64 arrays, copied from a device all at once."""
    tensors = {name: value.double() for name, value in values.items() if isinstance(value, Tensor)}
    if away := [name for name, value in tensors.items() if value.device.type != "cpu"]:
        tensors |= zip(away, torch.stack([tensors[name] for name in away]).cpu(), strict=True)
    return dict(values) | {name: value.numpy() for name, value in tensors.items()}


def _as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Return tensors that share memory with the arrays."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _as_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
