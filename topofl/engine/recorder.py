"""Recorder of a run: messages, rounds, evaluations and mixing matrices."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor

from topofl._matrices import Kept, Matrices, Packed, bytes_of, kept, kept_of
from topofl.history import History
from topofl.mixing import MixingMatrix
from topofl.trained import Trained

__all__ = ["OWN_COLUMNS", "Exchange", "Ledger", "Recorder", "bytes_kept"]

OWN_COLUMNS = frozenset(
    (
        "round",
        "train_loss",
        "node_loss",
        "steps",
        "messages",
        "bytes",
        "messages_paper",
        "bytes_paper",
        "busiest_messages",
        "busiest_bytes",
        "seconds",
        "smallest_push_weight",
        "consensus_distance",
        "gradient_diversity",
        "push_weight",
    )
)
"""Columns of histories and events other than scores."""


@dataclass
class Ledger:
    """The messages of one round.

    Parameters
    ----------
    itemsize
        Bytes a number.
    """

    itemsize: int
    exchanges: list["Exchange"] = field(default_factory=list)

    def add(
        self, weights: MixingMatrix, columns: int, *, gradients: bool = False, server: bool = False
    ) -> None:
        """Note that `columns` numbers per node traveled along off-diagonal entries of `weights`.

        By a server they travel once up and once down, for the nodes that `weights` has columns of.
        """
        self.exchanges.append(Exchange(weights, columns * self.itemsize, gradients, server))

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """Note that every node sent so many bytes along the off-diagonal entries of `weights`.

        `nbytes` is one number or (n,). By a server, it is one number, as in :meth:`add`.
        """
        self.exchanges.append(Exchange(weights, nbytes, server=server))

    def totals(self, round_weights: MixingMatrix | None) -> dict[str, int]:
        """Return the round's messages and bytes: exact, of the busiest node, and as in a paper.

        The D-Cliques paper's accounting sends gradients to all neighbors, that is along all edges
        of `round_weights`.
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
    """One exchange: who heard whom, how many bytes a message had, and whether these were gradients.

    Bytes are one number, or (n,) by sender. With a `server`, where they are one, nodes hear each
    other through it.
    """

    weights: MixingMatrix
    nbytes: int | np.ndarray
    gradients: bool = False
    server: bool = False

    @property
    def messages(self) -> int:
        """Messages sent in all."""
        return 2 * len(self._places) if self.server else self.weights.n_messages

    @property
    def loads(self) -> Any:
        """Messages sent and received, by node and last by a server."""
        return self._with_server(self.weights.in_messages + self.weights.out_messages)

    def _with_server(self, loads: np.ndarray) -> np.ndarray:
        """Return loads of nodes and of a server; with one, only it and participants have any."""
        if not self.server:
            return np.append(loads, 0)
        loads = np.zeros(len(loads) + 1, dtype=np.int64)
        loads[self._places], loads[-1] = 2, self.messages
        return loads

    @property
    def bytes(self) -> int:
        """Bytes sent in all."""
        if isinstance(self.nbytes, np.ndarray):
            return int(self.weights.out_messages @ self.nbytes)
        return self.messages * self.nbytes

    @property
    def byte_loads(self) -> Any:
        """Bytes sent and received, by node and last by a server."""
        if not isinstance(self.nbytes, np.ndarray):
            return self.loads * self.nbytes
        matrix, sent = self.weights.weights, self.weights.out_messages * self.nbytes
        received = sparse.csr_array(
            (np.ones(matrix.nnz, np.int64), matrix.indices, matrix.indptr), shape=matrix.shape
        )
        return np.append(sent + received @ self.nbytes - (matrix.diagonal() != 0) * self.nbytes, 0)

    @property
    def _places(self) -> np.ndarray:
        """Nodes that a server hears."""
        return np.unique(self.weights.weights.indices)


class Recorder:
    """The growing history of one run.

    Memory of numbers is taken once, for all rounds. Mixing matrices are kept once each: those that
    are equal, by value and name, are one. A new random graph every round so adds ``12 * (edges + n)
    + 4 * n`` bytes a round, edges counted in both directions. Of large ones in which rows are
    equal, such as those of servers, each row is kept once.

    Parameters
    ----------
    rounds, every
        Of the run.
    """

    def __init__(self, rounds: int, every: int) -> None:
        evaluated = 1 + -(-rounds // every)
        self._rounds = _Columns(rounds)
        self._evaluations = _Columns(evaluated)
        self._used = _Columns(rounds)
        self._matrices: list[Kept] = []
        self._index_of: dict[bytes, int] = {}
        self._known: WeakKeyDictionary[MixingMatrix, int] = WeakKeyDictionary()

    @property
    def last_evaluation(self) -> int:
        """The round after which models were evaluated last."""
        return int(self._evaluations.filled["round"][-1])

    def add_round(
        self,
        losses: Tensor | None,
        n: int,
        totals: Mapping[str, float],
        weights: MixingMatrix | None,
    ) -> dict[str, float]:
        """Add a round: losses (n,), its messages, and its mixing matrix if anything was exchanged.

        Returns the round's numbers over all nodes.
        """
        values = np.full(n, np.nan) if losses is None else losses.double().cpu().numpy()
        there = values[~np.isnan(values)]
        columns = {"train_loss": float(there.mean()) if len(there) else np.nan} | dict(totals)
        self._rounds.add(columns | {"node_loss": values})
        if weights is not None:
            self._used.add({"matrix": self._index(weights)})
        return columns

    def _index(self, weights: MixingMatrix) -> int:
        """Return the place of a matrix among the distinct ones."""
        if weights not in self._known:
            self._known[weights] = self._index_of_kept(kept(weights))
        return self._known[weights]

    def _index_of_kept(self, one: Kept) -> int:
        """Return the place of what is kept of a matrix among the distinct ones."""
        index = self._index_of.setdefault(_digest(one), len(self._matrices))
        if index == len(self._matrices):
            self._matrices.append(one)
        return index

    def add_evaluation(self, values: dict[str, Any]) -> dict[str, Any]:
        """Add an evaluation, numbers and (n,) tensors; return it with arrays for tensors."""
        converted = _on_host(values)
        self._evaluations.add(converted)
        return converted

    def state(self) -> dict[str, Any]:
        """Return all that was recorded, as tensors, lists and text."""
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
        """Take over what :meth:`state` returned, of evaluations those after `evaluated` rounds.

        Columns that an evaluation after a round does not have (any more, when more rounds follow),
        for which ``scored(column, round)`` is False, are forgotten there.

        Raises
        ------
        ValueError
            If it is not of so many rounds as are `done`, or its parts do not fit each other.
        """
        _check_state(state, done)
        rounds = _as_arrays(state["rounds"])
        if rounds:  # checkpoints from before the column `steps` existed lack it
            rounds.setdefault("steps", np.full(len(rounds["train_loss"]), np.nan))
        self._rounds.fill(rounds)
        self._used.fill(_as_arrays(state["used"]))
        evaluations = _as_arrays(state["evaluations"])
        kept = [evaluated(t) for t in evaluations["round"].tolist()]
        evaluations = {name: column[kept] for name, column in evaluations.items()}
        for name in evaluations:
            if lacking := [
                k for k, t in enumerate(evaluations["round"].tolist()) if not scored(name, t)
            ]:
                evaluations[name][lacking] = np.nan
        self._evaluations.fill(evaluations)
        for one in _matrices_in(
            state, self._rounds.filled["node_loss"].shape[1] if len(state["names"]) else 0
        ):
            self._index_of_kept(one)

    def history(self, meta: dict[str, Any], models: Trained | None) -> History:
        """Return all of it, with the models after the last round if they are kept."""
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
    """Return the bytes of mixing matrices that a history of so many rounds keeps.

    They are estimated from those of its first rounds.

    Parameters
    ----------
    used
        The matrix of each of the first rounds.
    period
        Number of rounds after which they repeat, or that tell nothing of the later ones. What
        rounds after these added goes on in proportion.
    ahead
        How many are `used`: all, or more than a period.
    rounds
        Of the run.
    """
    sizes, seen = [0], set[bytes]()
    for matrix in used:
        one = None if matrix is None else kept(matrix)
        mark = b"" if one is None else _digest(one)
        sizes.append(sizes[-1] + (0 if one is None or mark in seen else bytes_of(one)))
        seen.add(mark)
    if ahead == rounds:
        return sizes[-1]
    return sizes[-1] + (sizes[-1] - sizes[period]) * (rounds - ahead) // (ahead - period)


class _Columns:
    """Arrays of one length, known beforehand, that are filled row by row."""

    def __init__(self, length: int) -> None:
        self._length, self._count = length, 0
        self._arrays: dict[str, np.ndarray] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Fill the next row; the first one decides on names, shapes and dtypes."""
        self.fill({name: np.asarray(value)[None] for name, value in row.items()})

    def fill(self, rows: Mapping[str, np.ndarray]) -> None:
        """Fill the next rows."""
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
        """What was filled so far: views."""
        return {name: array[: self._count] for name, array in self._arrays.items()}


def _check_state(state: Mapping[str, Any], done: int | None) -> None:
    """Raise ``ValueError`` unless each table's columns have one length and its matrices exist."""
    rounds = min((len(column) for column in state["rounds"].values()), default=0)
    for table in ("rounds", "evaluations", "used"):
        lengths = {len(column) for column in state[table].values()}
        limit = rounds + (table == "evaluations")
        if len(lengths) > 1 or max(lengths, default=0) > limit:
            raise ValueError(f"the columns of {table} are of {sorted(lengths)} rows")
    if done is not None and rounds != done:
        raise ValueError(f"{rounds} rounds are recorded, not {done}")
    places = state["used"].get("matrix", torch.zeros(0, dtype=torch.int64, device="cpu"))
    if places.dtype != torch.int64 or bool(((places < 0) | (places >= len(state["names"]))).any()):
        raise ValueError("a round used a matrix that is not there")
    if not all(isinstance(name, str) for name in state["names"]):
        raise ValueError("names of matrices must be text")


def _matrices_in(state: Mapping[str, Any], n: int) -> Iterator[Kept]:
    """Yield what a state kept of the matrices of n nodes, whose arrays are concatenated there."""
    parts, names = _as_arrays(state["matrices"]), state["names"]
    done = dict.fromkeys(parts, 0)
    for name, entries, rows in zip(
        names, state["entries"], state.get("rows", [n] * len(names)), strict=True
    ):
        lengths = {"data": entries, "indices": entries, "indptr": rows + 1} | (
            {"row_of": n} if rows < n else {}
        )
        if any(not 0 <= size <= len(parts[part]) - done[part] for part, size in lengths.items()):
            raise ValueError(f"{name} has {entries} entries in {rows} rows, which are not there")
        yield kept_of(
            {part: parts[part][done[part] : done[part] + size] for part, size in lengths.items()},
            n,
            name,
        )
        for part, size in lengths.items():
            done[part] += size


def _digest(one: Kept) -> bytes:
    csr, digest = one.weights, hashlib.sha256(one.name.encode())
    row_of = [one.row_of] if isinstance(one, Packed) else []
    for array in (csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64), *row_of):
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def _on_host(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with float64 arrays for (n,) tensors; those of a device are copied together."""
    tensors = {name: value.double() for name, value in values.items() if isinstance(value, Tensor)}
    if away := [name for name, value in tensors.items() if value.device.type != "cpu"]:
        tensors |= zip(away, torch.stack([tensors[name] for name in away]).cpu(), strict=True)
    return dict(values) | {name: value.numpy() for name, value in tensors.items()}


def _as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {
        name: torch.from_numpy(array) for name, array in arrays.items()
    }  # written from where they are


def _as_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
