"""All nodes' models as the rows of one matrix, and their parameters as views of its columns."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from topofl._support.seeding import NoGeneratorError, seeded_torch, torch_seed
from topofl.algorithms.contract.round import Models, Part
from topofl.engine.network import copy_of_trained
from topofl.engine.ranks import Ranks, one_process
from topofl.topology import Topology

ROWS = 64
"""Rows that are copied at a time when equal models are stored apart."""


@dataclass(frozen=True)
class Layout:
    """Layout of a model's parameters in the columns of a flat matrix.

    Parameters
    ----------
    names, shapes
        Names and shapes of the parameters, in the order of the model.
    kinds
        Names of the types of each parameter's layer: its class, and those above it.
    partial
        Names of the parameters that only some of the nodes use.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    kinds: tuple[tuple[str, ...], ...] = ()
    partial: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: nn.Module, partial: Sequence[str] = ()) -> "Layout":
        """Return the layout of `model`'s trained parameters, of which some may be partial."""
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        layers = (type(model.get_submodule(name.rpartition(".")[0])) for name in named)
        kinds = tuple(
            tuple(one.__name__ for one in kind.__mro__ if one not in nn.Module.__mro__)
            for kind in layers
        )
        return cls(tuple(named), tuple(p.shape for p in named.values()), kinds, tuple(partial))

    @cached_property
    def sizes(self) -> list[int]:
        """Number of entries of each parameter."""
        return [math.prod(shape) for shape in self.shapes]

    @cached_property
    def d(self) -> int:
        """Number of parameters of one model."""
        return sum(self.sizes)

    def places(self, share: Part) -> list[int]:
        """Return the indices of the parameters in a part of the models."""
        return self._found(share)[0]

    def columns(self, share: Part) -> list[slice]:
        """Return the columns of a part of the models, one slice for consecutive parameters."""
        return self._found(share)[1]

    @cached_property
    def _found(self) -> Callable[[Part], tuple[list[int], list[slice]]]:
        return cache(self._find)  # since patterns are slow to match

    @cached_property
    def bounds(self) -> list[int]:
        """The first column of each parameter, followed by the number of columns."""
        return [0, *itertools.accumulate(self.sizes)]

    def partial_in(self, columns: Sequence[range]) -> str | None:
        """Return the first parameter among columns that only some of the nodes use, if any."""
        places = (k for k, name in enumerate(self.names) if name in self.partial)
        found = (
            self.names[k]
            for k in places
            if any(c.start < self.bounds[k + 1] and self.bounds[k] < c.stop for c in columns)
        )
        return next(found, None)

    @cached_property
    def common(self) -> list[slice]:
        """Columns of the parameters that all nodes use; all columns if there are none."""
        own = [name for name in self.names if name not in self.partial]
        return self.columns(Part(tuple(own))) if self.partial and own else [slice(0, self.d)]

    def _find(self, share: Part) -> tuple[list[int], list[slice]]:
        places, bounds = share.places(self.names, self.kinds), self.bounds
        found: list[slice] = []
        for k in places:
            start = found.pop().start if found and found[-1].stop == bounds[k] else bounds[k]
            found.append(slice(start, bounds[k + 1]))
        return places, found

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return one view (n, *shape) per parameter of a flat (n, d) matrix."""
        parts = flat.split(self.sizes, dim=1)
        return [
            part.view(len(flat), *shape) for part, shape in zip(parts, self.shapes, strict=True)
        ]


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of which each node has its own; all nodes share frozen ones."""
    return [p for p in model.parameters() if p.requires_grad]


New = Callable[[Sequence[int], torch.dtype], Tensor]
"""(shape, dtype) -> a tensor in memory or in a file, whose values are not set."""


@dataclass(eq=False)
class Held:
    """Rows (k, d) of a matrix; rows that are equal to another are stored once until one is written.

    Rows may also have another shape, (k, *shape).

    Parameters
    ----------
    stored
        (m, d) rows that are stored.
    place
        (k,) row of `stored` that each row is equal to; None: row i is row i of `stored`.
    new
        Returns the memory of all rows once they are stored apart; None: in memory.

    Attributes
    ----------
    most
        Largest number of rows that were stored at once.
    """

    stored: Tensor
    place: np.ndarray | None = None
    new: New | None = None
    most: int = field(default=0, init=False)
    _place: Tensor | None = field(default=None, init=False)
    """`place` on the device, since each upload waits for it."""

    def __post_init__(self) -> None:
        self._store(self.stored, self.place)

    def _store(self, stored: Tensor, place: np.ndarray | None) -> None:
        self.stored, self.place = stored, place
        self._place = None if place is None or stored.is_meta else self._uploaded(place)
        self.most = max(self.most, len(stored))

    @classmethod
    def equal(cls, row: Tensor, k: int, new: New | None = None) -> "Held":
        """Return k rows that are equal to one, (1, d)."""
        return cls(row, np.zeros(k, dtype=np.int64), new)

    def __len__(self) -> int:
        """Return the number of rows, k."""
        return len(self.stored) if self.place is None else len(self.place)

    def apart(self) -> Tensor:
        """Return all rows (k, d), each stored apart from now on."""
        if self.place is not None:
            shape = (len(self.place), *self.stored.shape[1:])
            flat = self.new(shape, self.stored.dtype) if self.new else self.stored.new_empty(shape)
            for start in range(0, 0 if flat.is_meta else shape[0], ROWS):  # not twice at once
                flat[start : start + ROWS] = self.rows(slice(start, start + ROWS))
            self._store(flat, None)
        return self.stored

    def rows(self, which: slice | np.ndarray | Tensor) -> Tensor:
        """Return some rows: a view of slices of rows that are stored apart, else a copy."""
        if self.place is None and isinstance(which, slice):
            return self.stored[which]
        if self.stored.is_meta:  # indexing these would import torch's compiler: a second, 70 MB
            count = len(range(len(self))[which]) if isinstance(which, slice) else len(which)
            return self.stored.new_empty(count, *self.stored.shape[1:])
        chosen = self._uploaded(which) if isinstance(which, np.ndarray) else which
        return self.stored[chosen if self._place is None else self._place[chosen]]

    def _uploaded(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows).to(self.stored.device)

    def write(self, which: np.ndarray, values: Tensor) -> None:
        """Write rows (c, d) at distinct places (c,); others stay as they are stored.

        They are written in place unless a stored row also serves other rows. Once all rows differ,
        each is stored apart.
        """
        if self._shares(which):
            self._separate(which, values)
        elif not self.stored.is_meta:
            self.stored[self._uploaded(self._places(which))] = values

    def _places(self, which: np.ndarray) -> np.ndarray:
        """Return where rows are stored."""
        return which if self.place is None else self.place[which]

    def _shares(self, which: np.ndarray) -> bool:
        """Return whether a stored row of some rows also serves other rows."""
        return self.place is not None and bool(
            (np.bincount(self.place)[self.place[which]] > 1).any()
        )

    def own(self, which: np.ndarray) -> Tensor | None:
        """Store rows at distinct places (c,) one after another, apart from all others.

        Returns a view of them, to be changed in place; None if they are not stored one after
        another, as where all rows are stored apart.
        """
        if self._shares(which):
            self._separate(which)
        return None if self.place is None or self.stored.is_meta else self._view(which)

    def read(self, which: np.ndarray) -> Tensor:
        """Return some rows, to be read: a view if they are stored one after another."""
        found = self._view(which)
        return self.rows(which) if found is None else found

    def _view(self, which: np.ndarray) -> Tensor | None:
        """Return a view of rows that are stored one after another; None of others."""
        places = self._places(which)
        if not len(places) or not np.array_equal(places, places[0] + np.arange(len(places))):
            return None
        return self.stored[int(places[0]) : int(places[0]) + len(places)]

    def _separate(self, which: np.ndarray, values: Tensor | None = None) -> None:
        """Store rows at distinct places, whose stored rows serve others, last and apart from these.

        They get values (c, d); None: their own.
        """
        place = self.place if self.place is not None else np.arange(len(self))
        others = np.setdiff1d(np.arange(len(self)), which)
        used, first, place_of = np.unique(place[others], return_index=True, return_inverse=True)
        if len(used) + len(which) == len(self):
            self.apart()
            if not self.stored.is_meta and values is not None:
                self.stored[self._uploaded(which)] = values
            return
        new = np.empty_like(place)
        new[others], new[which] = place_of, len(used) + np.arange(len(which))
        stored = self.stored.new_empty(len(used) + len(which), *self.stored.shape[1:])
        if not stored.is_meta:
            stored[: len(used)] = self.rows(others[first])
            own = stored[len(used) :]
            if values is None:  # without a copy in between
                torch.index_select(self.stored, 0, self._uploaded(self._places(which)), out=own)
            else:
                own.copy_(values)
        self._store(stored, new)

    def fill(self, row: Tensor) -> None:
        """Let all rows be equal to one, (1, d); it is stored once unless all are stored apart."""
        if self.place is None:
            self.stored.copy_(row.expand_as(self.stored))
        else:
            self._store(row.detach().clone(), np.zeros(len(self), dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Population:
    """The models of the nodes of one process: of all nodes, unless the run is distributed.

    Parameters
    ----------
    held
        The rows of the models, (n, d): row i is node i's model. In a distributed run also (k, d),
        of the nodes of a process.
    layout
        The columns of each parameter.
    ranks
        The nodes of the run, and those of the process.
    graph
        The graph of the run; None if there is none, or it changes between rounds.
    copy_of
        The models of this process, if these were gathered from all processes; else None.
    buffers
        Rows (n, *shape) of the buffers of which each node has its own, such as running statistics;
        buffers that never change are in the network.
    travels
        Whether these buffers are mixed with the models, if all columns of these are.
    reads
        Called with ``"start"`` or ``"topology"`` before it is read, to check it; None: not checked.
    kept
        Names of the buffers that stay at their nodes in any case.
    """

    held: Held
    layout: Layout
    ranks: Ranks
    graph: Topology | None = field(default=None, kw_only=True)
    copy_of: "Population | None" = field(default=None, kw_only=True)
    buffers: Mapping[str, Held] = field(default_factory=dict, kw_only=True)
    travels: bool = field(default=False, kw_only=True)
    reads: Callable[[str], None] | None = field(default=None, kw_only=True)
    kept: Sequence[str] = field(default=(), kw_only=True)

    @classmethod
    def alone(cls, flat: Tensor, layout: Layout) -> "Population":
        """Return the models (n, d) of all nodes, in one process."""
        return cls(Held(flat), layout, one_process(len(flat), flat.device))

    def __len__(self) -> int:
        """Return the number of models that this process holds, equal ones or not."""
        return len(self.held)

    @property
    def flat(self) -> Tensor:
        """(n, d), contiguous: all models, changed in place; each is stored apart from now on.

        What reads or changes few models, or makes all of them equal, uses `rows`, `write` and
        `fill`. Buffers are stored apart, too, since training changes them in place.
        """
        for buffer in self.buffers.values():
            buffer.apart()
        return self.held.apart()

    @property
    def device(self) -> torch.device:
        """Device of the models."""
        return self.held.stored.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the models."""
        return self.held.stored.dtype

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers of one node."""
        return sum(held.stored[:1].nbytes for held in self.buffers.values())

    @property
    def distinct(self) -> int:
        """Number of models that are stored; fewer than ``len(models)`` if some are equal."""
        return len(self.held.stored)

    def rows(self, which: slice | np.ndarray | Tensor) -> Tensor:
        """Return the models (c, d) in some rows, to be read."""
        return self.held.rows(which)

    def write(self, which: np.ndarray, values: Tensor) -> None:
        """Write models (c, d) into distinct rows (c,); other rows stay as they are stored."""
        self.held.write(which, values)

    def fill(self, row: Tensor) -> None:
        """Let all models of this process be equal to one, (1, d); see :meth:`Held.fill`."""
        self.held.fill(row)

    @property
    def n(self) -> int:
        """Number of nodes of the run."""
        return self.ranks.n

    @property
    def d(self) -> int:
        """Number of parameters of one model."""
        return self.layout.d

    @property
    def nodes(self) -> np.ndarray:
        """(k,) nodes whose models are the rows of `flat`."""
        return np.arange(self.n) if len(self) == self.n else self.ranks.nodes

    def of_all_nodes(self) -> "Population":
        """Return the models of all nodes: these models, or a copy gathered from all processes."""
        return self if len(self) == self.n else self._by(self.ranks.all_rows, copy_of=self)

    def of_own_nodes(self) -> "Population":
        """Return the models of the nodes of this process: these models, or a copy of some."""
        return self if len(self) == len(self.ranks.nodes) else self._by(self.ranks.own_rows)

    def _by(self, convert: Callable[[Tensor], Tensor], **changes: Any) -> "Population":
        """Return models with the rows to which those of these models are converted."""
        flat = convert(self.flat)
        buffers = {name: Held(convert(held.apart())) for name, held in self.buffers.items()}
        models = replace(self, held=Held(flat), buffers=buffers, **changes)
        models.push_sum_weights.copy_(convert(self.push_sum_weights))
        return models

    def take(self, other: "Population", convert: Callable[[Tensor], Tensor]) -> None:
        """Replace all rows by those to which the rows of other models are converted."""
        self.flat.copy_(convert(other.flat))
        for name, held in self.buffers.items():
            held.apart().copy_(convert(other.buffers[name].apart()))

    def some(self, which: np.ndarray) -> "Population":
        """Return the models in some rows, on their own: to be changed, and given to `put`."""
        rows = self.held.own(which)
        buffers = {name: Held(held.rows(which)) for name, held in self.buffers.items()}
        models = Population.alone(self.rows(which) if rows is None else rows, self.layout)
        return replace(models, buffers=buffers)

    def put(self, which: np.ndarray, models: "Population") -> None:
        """Write models that `some` returned into their rows."""
        if (
            models.flat.untyped_storage().data_ptr()
            != self.held.stored.untyped_storage().data_ptr()
        ):
            self.write(which, models.flat)
        for name, buffer in models.buffers.items():
            self.buffers[name].write(which, buffer.stored)

    @property
    def views(self) -> list[Tensor]:
        """One view (n, *shape) per parameter, sharing memory with `flat`."""
        return self.layout.views(self.flat)

    def views_of(self, which: slice | Tensor) -> list[Tensor]:
        """Return one tensor (c, *shape) per parameter and then buffer of some models, to be read.

        Where training changes buffers, it changes them in place.
        """
        return self.layout.views(self.rows(which)) + self.buffers_of(which)

    def buffers_of(self, which: slice | Tensor) -> list[Tensor]:
        """Return one tensor (c, *shape) per buffer of some models; views of slices, once apart."""
        return [held.rows(which) for held in self.buffers.values()]

    def buffers_of_node(self, node: int) -> list[Tensor]:
        """Return one tensor (1, *shape) per buffer of a node of this process, to be read."""
        row = int(self.ranks.row_of[node]) if len(self) < self.n else node
        return self.buffers_of(slice(row, row + 1))

    def columns_in(
        self, values: "Tensor | Models", columns: Sequence[range]
    ) -> Sequence[range] | None:
        """Return which columns of these models some columns of values (n, k) are, in memory.

        None: the values are not these models, `flat` or a slice of its columns.
        """
        if not isinstance(values, Tensor):
            return columns if values is self else None
        flat = self.held.stored
        theirs, ours = (x.untyped_storage()._cdata for x in (values, flat))
        if theirs != ours or len(values) != len(flat) or values.stride() != flat.stride():
            return None
        first = values.storage_offset() - flat.storage_offset()
        return [range(first + part.start, first + part.stop) for part in columns]

    def traveling_with(self, columns: Sequence[range]) -> list[Held]:
        """Return the buffers that are mixed with some columns of these models.

        A buffer travels with the parameters of its layer: if all of them are among the columns. One
        of a layer without parameters travels with whole models. Numbers that are not real, such as
        counts, stay.
        """
        if not (self.travels and self.buffers):
            return []
        bounds = self.layout.bounds
        own = [
            name
            for name, start, stop in zip(self.layout.names, bounds, bounds[1:], strict=False)
            if any(part.start <= start and stop <= part.stop for part in columns)
        ]
        whole = len(own) == len(self.layout.names)

        def travels(buffer: str) -> bool:
            layer = buffer.rpartition(".")[0]
            needed = {name for name in self.layout.names if name.rpartition(".")[0] == layer}
            return whole or (bool(needed) and needed <= set(own))

        return [self.buffers[name] for name in self.statistics if travels(name)]

    def bytes_of(self, share: Part) -> int:
        """Return the bytes of a message with a part of a model, and the statistics that travel."""
        columns = [range(self.d)[part] for part in self.columns(share)]
        statistics = (held.stored[0].numel() for held in self.traveling_with(columns))
        return (sum(map(len, columns)) + sum(statistics)) * self.dtype.itemsize

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the buffers of real numbers of which each node has its own."""
        real = (n for n, held in self.buffers.items() if held.stored.is_floating_point())
        return tuple(name for name in real if name not in self.kept)

    @property
    def push_sum_weights(self) -> Tensor:
        """(n,) float64 push-sum weights, changed in place."""
        return self._push_sum_weights

    @cached_property
    def _push_sum_weights(self) -> Tensor:
        return torch.ones(len(self), dtype=torch.float64, device=self.device)

    @property
    def start(self) -> Tensor:
        """(1, d) copy of the model from which all nodes start; to be read before training."""
        if self.reads:
            self.reads("start")
        return self.rows(slice(0, 1)).clone()

    @property
    def topology(self) -> Topology:
        """The one graph of the run; raises ``ValueError`` if there is none."""
        if self.reads:
            self.reads("topology")
        if self.graph is None:
            raise ValueError(
                "`models.topology` must be read in `init`, from the models that predict"
            )
        return self.graph

    @property
    def shapes(self) -> Mapping[str, torch.Size]:
        """Shapes of a model's parameters by name, in the order of their columns."""
        return dict(zip(self.layout.names, self.layout.shapes, strict=True))

    def columns(self, share: Part) -> list[slice]:
        """Return the columns of a part of the models."""
        return self.layout.columns(share)

    def like(self, flat: Tensor) -> "Population":
        """Return models of the same structure that share memory with `flat`, (n, d).

        If `flat` has another number of rows, these are models on their own, without buffers;
        otherwise they have copies of the buffers.
        """
        if len(flat) == len(self):
            buffers = {n: Held(held.rows(slice(None)).clone()) for n, held in self.buffers.items()}
            return Population(Held(flat), self.layout, self.ranks, buffers=buffers)
        return Population.alone(flat, self.layout)


def initial_population(
    model: nn.Module,
    n: int,
    *,
    init: str,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    graph: Topology | None = None,
    ranks: Ranks | None = None,
    new: New | None = None,
    buffers: Sequence[str] = (),
    travels: bool = False,
    starts: Mapping[str, Tensor] = MappingProxyType({}),
) -> Population:
    """Return n models at the start of a run, or those of a rank's nodes.

    Parameters
    ----------
    model
        The values are drawn by its layers' ``reset_parameters``; other parameters are unchanged.
    init
        ``"common"``: one draw for all nodes; ``"independent"``: one draw per node; ``"given"``: the
        model's values as they are.
    graph
        The graph of the run; None if there is none, or it changes between rounds.
    ranks
        The nodes of the run, and those of this process; None: all nodes.
    new
        Returns memory of a shape and dtype for the models; None: in memory.
    buffers
        Names of the buffers of which each node has its own; all start from those of the model.
    travels
        Whether these buffers are mixed with the models.
    starts
        By name, (n, *shape): the values from which all nodes' buffers start, where they differ.

    Raises
    ------
    ValueError
        If a parameter is not finite at the start, or becomes infinite as `dtype`; if the values
        that a layer draws cannot be repeated.
    """
    layout = Layout.of(model)
    ranks = ranks or one_process(n, device)
    nodes = ranks.nodes.tolist()
    rows = (
        [_flatten(model)]
        if init == "given"
        else _drawn_models(model, nodes if init == "independent" else range(1), seed)
    )
    checked = (_check_finite(layout, row.to(device=device, dtype=dtype)) for row in rows)
    if init != "independent":
        (row,) = checked  # to its end, which checks that the draw can be repeated
        held = Held.equal(row[None], len(nodes), new)
    else:
        shape = (len(nodes), layout.d)
        held = Held(new(shape, dtype) if new else torch.empty(shape, dtype=dtype, device=device))
        for k, row in enumerate(checked):
            held.stored[k] = row
    start = model
    if buffers and init != "given":
        start = copy_of_trained(model)
        _reset(start, torch_seed(seed, "init", 0))  # sets statistics to those of a new layer
    named = dict(start.named_buffers())
    own = {name: Held.equal(named[name][None].to(device), len(nodes)) for name in buffers}
    own |= {name: Held(rows[ranks.nodes].to(device)) for name, rows in starts.items()}
    return Population(
        held, layout, ranks, graph=graph, buffers=own, travels=travels, kept=tuple(starts)
    )


def _drawn_models(model: nn.Module, nodes: Sequence[int], seed: int) -> Iterator[Tensor]:
    # on the CPU in float32, so that the draw does not depend on device or dtype
    redrawn = copy_of_trained(model)
    for x in [*trained_parameters(redrawn), *redrawn.buffers()]:
        x.data = x.data.cpu().float() if x.is_floating_point() else x.data.cpu()
    for node in nodes:
        _reset(redrawn, torch_seed(seed, "init", node))
        yield _flatten(redrawn)
    _check_repeatable(redrawn, torch_seed(seed, "init", nodes[-1]))


_REPEATABLE = (
    "must draw its initial parameters by torch's random functions alone, "
    "so that runs can be repeated"
)


def _reset(model: nn.Module, seed: int) -> None:
    """Redraw all layers' parameters from `seed` instead of torch's global generator."""
    try:
        with seeded_torch(seed):
            for module in model.modules():
                if callable(reset := getattr(module, "reset_parameters", None)):
                    with _keeping_frozen(module, trained_parameters(model)[0]):
                        reset()
    except NoGeneratorError as error:
        raise ValueError(
            f"`model` {_REPEATABLE}: {error}; use its current values by init='given'"
        ) from error


@contextmanager
def _keeping_frozen(module: nn.Module, like: Tensor) -> Iterator[None]:
    """Restore the frozen parameters of a layer, which copies of a network share, after a redraw.

    They are redrawn, too, as those `like` trained ones, whose values do not depend on what is
    frozen. Only those of one layer exist twice.
    """
    kept = [(p, p.data) for p in module.parameters() if not p.requires_grad]
    try:
        for p, values in kept:
            dtype = like.dtype if p.is_floating_point() else p.dtype
            p.data = values.to(like.device, dtype, copy=True)
        yield
    finally:
        for p, values in kept:
            p.data = values


def _check_repeatable(model: nn.Module, seed: int) -> None:
    """Raise ``ValueError`` unless a second draw with `seed` gives the values of the model."""
    before = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    _reset(model, seed)
    for name, old in before.items():
        if not torch.equal(model.get_parameter(name).detach(), old):
            raise ValueError(
                f"`model` {_REPEATABLE}, {name!r} got other values the second time, which happens "
                "if reset_parameters draws them from numpy or Python, or modifies the previous "
                "ones; use torch.nn.init, or init='given'"
            )


def _check_finite(layout: Layout, row: Tensor) -> Tensor:
    if not bool(torch.isfinite(row).all()):
        name, p = next(
            (name, p)
            for name, p in zip(layout.names, row.split(layout.sizes), strict=True)
            if not p.isfinite().all()
        )
        value = float(p[~torch.isfinite(p)][0])
        raise ValueError(
            f"`model` must start with finite parameters, {name!r} contains {value} as {row.dtype}"
        )
    return row


def _flatten(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in trained_parameters(model)])
