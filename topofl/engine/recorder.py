"""What a run records: messages, rounds, evaluations, mixing matrices, diversity of gradients."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor

from topofl._columns import RANK_COLUMNS
from topofl.engine.ranks import Ranks
from topofl.history import History
from topofl.history.matrices import Kept, Matrices, Packed, digest_of, kept, kept_of
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

    def loads(self, size: int | np.ndarray) -> np.ndarray:
        """Return what is sent and received, (n + 1,): by each node, and last by the server.

        Messages have a `size`: one number, or (n,) by sender. With 1, messages are counted.
        """
        weights = self.weights.weights
        if self.server:  # which relays all messages
            loads = np.zeros(self.weights.n + 1, dtype=np.int64)
            loads[np.unique(weights.indices)] = 2
            loads[-1] = loads.sum()
            return loads * size
        if not isinstance(size, np.ndarray):
            return np.append(self.weights.in_messages + self.weights.out_messages, 0) * size
        ones = np.ones(weights.nnz, np.int64)
        senders = sparse.csr_array((ones, weights.indices, weights.indptr), shape=weights.shape)
        received = senders @ size - (weights.diagonal() != 0) * size
        return np.append(self.weights.out_messages * size + received, 0)


def totals_of(exchanges: Sequence[Exchange], round_weights: MixingMatrix | None) -> dict[str, int]:
    """Return the messages and bytes of a round: exact, of the busiest node, and as in a paper.

    The D-Cliques paper counts gradients as sent to all neighbors, along all edges of
    `round_weights`.
    """
    loads = in_paper = _loads_of(exchanges)
    if round_weights is not None and any(one.gradients for one in exchanges):
        along = [e._replace(weights=round_weights) if e.gradients else e for e in exchanges]
        in_paper = _loads_of(along)
    # what one node sends, another receives
    exact = {name: int(np.sum(found)) // 2 for name, found in loads.items()}
    exact |= {f"{name}_paper": int(np.sum(found)) // 2 for name, found in in_paper.items()}
    return exact | {f"busiest_{name}": int(np.max(found)) for name, found in loads.items()}


def _loads_of(exchanges: Sequence[Exchange]) -> dict[str, Any]:
    """Return the messages and bytes of exchanges, (n + 1,) each; 0 without exchanges."""
    messages = sum(one.loads(1) for one in exchanges)
    return {"messages": messages, "bytes": sum(one.loads(one.nbytes) for one in exchanges)}


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
        self._rounds = _Columns(rounds)
        self._evaluations = _Columns(1 + -(-rounds // every))
        self._used: list[int] = []
        self._matrices: list[Kept] = []
        self._index_of: dict[bytes, int] = {}
        self._known: WeakKeyDictionary[MixingMatrix, int] = WeakKeyDictionary()

    @property
    def last_evaluation(self) -> int:
        """The round of the last evaluation."""
        return int(self._evaluations.filled["round"][-1])

    def add_round(
        self, losses: Tensor | None, n: int, totals: Mapping[str, float], used: MixingMatrix | None
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
        used
            Mixing matrix of the round; None if nothing was exchanged.
        """
        values = np.full(n, np.nan) if losses is None else losses.double().cpu().numpy()
        known = values[~np.isnan(values)]
        columns = {"train_loss": float(known.mean()) if len(known) else np.nan} | dict(totals)
        self._rounds.add(columns | {"node_loss": values})
        if used is not None and used not in self._known:
            self._known[used] = self._index(kept(used))
        self._used.append(-1 if used is None else self._known[used])
        return columns

    def _index(self, matrix: Kept) -> int:
        """Return the index of a matrix in stored form among the distinct ones."""
        index = self._index_of.setdefault(digest_of(matrix), len(self._matrices))
        if index == len(self._matrices):
            self._matrices.append(matrix)
        return index

    def add_evaluation(self, values: dict[str, Any]) -> dict[str, Any]:
        """Record an evaluation, numbers and (n,) tensors; return it with tensors as arrays."""
        tensors = {name: x.double() for name, x in values.items() if isinstance(x, Tensor)}
        if away := [name for name, x in tensors.items() if x.device.type != "cpu"]:  # one copy
            tensors |= zip(away, torch.stack([tensors[name] for name in away]).cpu(), strict=True)
        converted = values | {name: x.numpy() for name, x in tensors.items()}
        self._evaluations.add(converted)
        return converted

    def state(self) -> dict[str, Any]:
        """Return everything recorded so far as tensors, lists and text, for a checkpoint."""
        matrices, names = self._matrices, ("data", "indices", "indptr")
        parts = {part: [getattr(one.weights, part) for one in matrices] for part in names}
        parts["row_of"] = [one.row_of for one in matrices if isinstance(one, Packed)]
        joined = {part: np.concatenate(arrays) for part, arrays in parts.items() if arrays}
        return {
            "rounds": _as_tensors(self._rounds.filled),
            "evaluations": _as_tensors(self._evaluations.filled),
            "used": {"matrix": torch.tensor(self._used, device="cpu")} if self._matrices else {},
            "names": [one.name for one in matrices],
            "entries": [one.weights.nnz for one in matrices],
            "rows": [one.weights.shape[0] for one in matrices],
            "matrices": _as_tensors(joined),
        }

    def restore(self, state: Mapping[str, Any], has: Callable[[str, int], bool], done: int) -> None:
        """Restore the records that :meth:`state` returned.

        Parameters
        ----------
        state
            What :meth:`state` returned.
        has
            (column, round) -> whether the run has an evaluation after the round with the column,
            which may have changed if the run was extended; other entries become NaN. Evaluations
            without the column ``"round"`` are dropped.
        done
            Number of rounds that must be recorded.

        Raises
        ------
        ValueError
            If the number of rounds is not `done`, or the parts do not fit each other.
        """
        rounds, evaluations, used = (
            {name: column.numpy() for name, column in state[table].items()}
            for table in ("rounds", "evaluations", "used")
        )
        if len(rounds.get("train_loss", ())) != done:
            raise ValueError(f"{len(rounds.get('train_loss', ()))} rounds are recorded, not {done}")
        if done:  # older checkpoints have no column `steps`, undistributed runs none of ranks
            if missing := [name for name in totals_of([], None) if name not in rounds]:
                raise ValueError(f"rounds have no column {missing[0]!r}")
            for name in ("steps", *self._extra):
                rounds.setdefault(name, np.full(done, np.nan))
            self._rounds.fill(rounds)
        if len(evaluations["round"]) > done + 1:
            raise ValueError(f"{len(evaluations['round'])} evaluations of {done} rounds")
        retained = [has("round", t) for t in evaluations["round"].tolist()]
        evaluations = {name: column[retained] for name, column in evaluations.items()}
        for name, column in evaluations.items():
            missing = [not has(name, t) for t in evaluations["round"].tolist()]
            if any(missing):
                column[missing] = np.nan
        self._evaluations.fill(evaluations)
        for matrix in _matrices_in(state, rounds["node_loss"].shape[1] if done else 0):
            self._index(matrix)
        places = used.get("matrix", np.zeros(0, np.int64))
        self._used = places.tolist() or [-1] * done
        known = places.dtype == np.int64 and set(self._used) <= set(range(-1, len(self._matrices)))
        if len(self._used) != done or not known:
            raise ValueError("a round used a matrix that is missing")

    def history(self, meta: dict[str, Any], models: Trained | None) -> History:
        """Return the history of the run, with the given final models (None: without models)."""
        rounds = dict(self._rounds.filled)
        node_loss, used = rounds.pop("node_loss"), np.array(self._used, dtype=np.int64)
        if self._matrices and (used < 0).any():  # nodes kept their models
            ones = sparse.eye_array(node_loss.shape[1], format="csr")
            identity = MixingMatrix(ones, "identity", self._matrices[0].nodes)
            used[used < 0] = self._index(kept(identity))
        return History(
            meta=meta,
            node_loss=node_loss,
            rounds=rounds,
            evaluations=self._evaluations.filled,
            matrices=Matrices(self._matrices),
            matrix_of_round=used if self._matrices else used[:0],
            models=models,
        )


def means_of(columns: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the means of the columns of several runs; those of a single run as they are."""
    if len(columns) == 1:
        return columns[0]
    return {name: sum(one[name] for one in columns) / len(columns) for name in columns[0]}


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
        """Fill the next rows; the first call fixes names, shapes and dtypes.

        Raises ``ValueError`` if the columns have different lengths or do not fit into memory.
        """
        if len(lengths := {len(values) for values in rows.values()}) > 1:
            raise ValueError(f"the columns of a table have {sorted(lengths)} rows")
        if not self._arrays:
            try:
                for name, values in rows.items():
                    shape = (self._length, *values.shape[1:])
                    self._arrays[name] = np.empty(shape, values.dtype)
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


def _matrices_in(state: Mapping[str, Any], n: int) -> Iterator[Kept]:
    """Yield the matrices of n nodes from a recorder's state, which concatenates their arrays."""
    names, entries = state["names"], state["entries"]
    rows = state.get("rows", [n] * len(names))
    sizes = {"data": entries, "indices": entries, "indptr": [k + 1 for k in rows]}
    sizes["row_of"] = [n for k in rows if k < n]
    parts = {part: iter(array.split(sizes[part])) for part, array in state["matrices"].items()}
    for name, k in zip(names, rows, strict=True):
        own = sizes if k < n else sizes.keys() - {"row_of"}
        yield kept_of({part: next(parts[part]).numpy() for part in own}, n, name)


def _as_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Return tensors that share memory with the arrays."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


NUMBERS = 2**18
"""Numbers that are converted to float64 at a time on CPU."""

NUMBERS_ELSEWHERE = 2**24
"""Numbers of which some are set to 0 at a time on other devices."""


class GradientStatistics:
    """Gradient diversities of one step, of each of the runs that are trained together.

    Parameters
    ----------
    rows
        The nodes of each run; by default there is one run.
    """

    def __init__(self, rows: Sequence[slice] = (slice(None),)) -> None:
        self._rows = rows
        self._sums = [GradientSums() for _ in rows]

    def anew(self) -> "GradientStatistics":
        """Return statistics of the same runs without observations."""
        return GradientStatistics(self._rows)

    def observe(self, gradients: Sequence[Tensor], nodes: np.ndarray, taken: Tensor) -> None:
        """Add the gradients (k, *shape) of the `nodes` (k,) where `taken` (k,) is True."""
        if len(self._sums) == 1:
            self._sums[0].observe(gradients, taken)
            return
        for rows, own in zip(self._rows, self._sums, strict=True):
            inside = (nodes >= rows.start) & (nodes < rows.stop)
            if inside.any():
                own.observe(gradients, taken & torch.from_numpy(inside).to(taken.device))

    def add(self, other: "GradientStatistics") -> None:
        """Add the observations of another object, whose tensors may be taken over."""
        for own, more in zip(self._sums, other._sums, strict=True):
            own.add(more)

    def diversities(self, ranks: Ranks) -> list[float]:
        """Return the diversity of each run, over the nodes of all ranks."""
        for own in self._sums:
            own.add_ranks(ranks)
        return [own.diversity for own in self._sums]


class GradientSums:
    """Gradient diversity ``sum_i |g_i|^2 / |sum_i g_i|^2`` of one step.

    This is definition 1 of Yin et al. (2018): 1/n if all gradients are equal, 1 if they are
    orthogonal, more if they oppose each other.
    """

    def __init__(self) -> None:
        self._totals: list[Tensor] = []
        """The sum of squares, and the sum of each gradient; empty without gradients."""

    def observe(self, gradients: Sequence[Tensor], rows: Tensor | None = None) -> None:
        """Add the gradients (k, *shape) of some nodes, or of those where `rows` (k,) is True."""
        on_cpu = gradients[0].device.type == "cpu"
        if rows is not None and on_cpu and bool(rows.all()):
            rows = None
        gradients = [g if g.dim() > 1 else g.unsqueeze(1) for g in gradients]
        if not self._totals:
            # Allocated here: later, they would take the place of a freed copy that the next reuses.
            shapes = [torch.Size(), *(g.shape[1:] for g in gradients)]
            self._totals = [gradients[0].new_zeros(shape, dtype=torch.float64) for shape in shapes]
        norms = []
        for total, g in zip(self._totals[1:], gradients, strict=True):
            copied = g.dtype != torch.float64 if on_cpu else rows is not None
            numbers = NUMBERS if on_cpu else NUMBERS_ELSEWHERE
            size = max(1, numbers // max(1, g[:, :1].numel()) if copied else g.shape[1])
            for block, part in zip(total.split(size), g.split(size, dim=1), strict=True):
                if rows is not None:  # off the CPU, indices would wait for the device
                    shape = (-1, *[1] * (part.dim() - 1))
                    part = part[rows] if on_cpu else torch.where(rows.view(shape), part, 0)
                norms.append(torch.linalg.vector_norm(part, dtype=torch.float64))
                block.add_(part.sum(0, dtype=torch.float64))
        self._totals[0].add_(torch.stack(norms).square().sum())

    def add(self, other: "GradientSums") -> None:
        """Add the observations of another object, whose tensors may be taken over."""
        for total, more in zip(self._totals, other._totals, strict=False):
            total.add_(more)
        self._totals = self._totals or other._totals

    def add_ranks(self, ranks: Ranks) -> None:
        """Add the observations of the other ranks of a distributed run."""
        shapes = next(filter(None, ranks.objects([total.shape for total in self._totals])), [])
        zeros = (torch.zeros(shape, dtype=torch.float64, device=ranks.device) for shape in shapes)
        self._totals = [ranks.sum_(total.contiguous()) for total in self._totals or zeros]

    @property
    def diversity(self) -> float:
        """Gradient diversity; NaN without gradients, infinite if they cancel exactly."""
        if not self._totals:
            return float("nan")
        total = torch.stack([s.square().sum() for s in self._totals[1:]]).sum()
        squares, total = torch.stack([self._totals[0], total]).tolist()  # a single synchronization
        return squares / total if total else float("inf")
