"""Columns of :func:`topofl.metrics.compare`: what declares one, and which a table shows."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from topofl._linalg import spectral
from topofl._support.table import NotApplicable
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import Topology, TopologyError

GROUPS: Mapping[str, str] = {
    "structure": "structure",
    "paths": "paths",
    "averaging": "averaging",
    "rounds": "over rounds",
    "push-sum": "push-sum",
    "data": "label heterogeneity",
    "cost": "cost per round",
}
"""Groups of columns in the order of the table, with their headings in reports."""

ITERATED_LIMIT = 5_000
"""Largest graph for which ``compare`` iterates for eigenvalues that have no closed form."""

CUBIC_LIMIT = 300
"""Largest graph for which ``compare`` computes metrics with n^3 steps per round or n flows."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Entry:
    """A row of the table: a graph, from which the columns are computed.

    Parameters
    ----------
    name
        Value of the first column.
    graphs, matrices
        Graph and matrix of each round of a period, or of the first rounds of a sequence without a
        period.
    rounds
        Sequence of all mixing matrices.
    push_sum_source
        Argument of :func:`push_sum_constants` for this graph.
    horizon, seed
        Number of rounds to consider of a sequence without a period; seed of measurements.
    n_parameters
        Numbers per message.
    label_counts
        (n, classes), or None.
    hardware
        A :class:`topofl.metrics.Hardware`, or None.
    history
        The run, or None if the row is not a run.
    """

    name: str
    graphs: list[Topology]
    matrices: list[MixingMatrix]
    rounds: MixingSequence
    push_sum_source: Any
    horizon: int
    seed: int
    n_parameters: int = 1
    label_counts: np.ndarray | None = None
    hardware: Any = None
    history: Any = None
    _shared: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.rounds.n

    @property
    def is_static(self) -> bool:
        """Whether all rounds have the same matrix."""
        return self.rounds.period == 1

    @property
    def limit(self) -> int | None:
        """Value of `rounds` for functions that take it only for sequences without a period."""
        return None if self.rounds.period else self.horizon

    def shared(self, compute: Callable[["Entry"], T]) -> T:
        """Return ``compute(self)``, computed once for all columns that need it."""
        if compute not in self._shared:
            self._shared[compute] = compute(self)
        return self._shared[compute]

    def mean_over_graphs(self, metric: Callable[..., Any], *args: Any) -> int | float:
        """Return the mean of ``metric(graph, *args)`` over the graphs, as an int if it is whole."""
        return mean(metric(graph, *args) for graph in self.graphs)

    def mean_over_matrices(self, metric: Callable[..., Any], *args: Any) -> int | float:
        """Return the mean of ``metric(matrix, *args)`` over matrices, as an int if it is whole."""
        return mean(metric(matrix, *args) for matrix in self.matrices)


@dataclass(frozen=True)
class Limit:
    """Largest number of nodes for which ``compare`` computes a column.

    Parameters
    ----------
    nodes
        Largest number of nodes.
    instead
        Function to use for larger graphs.
    subject
        Start of the reason shown for larger graphs, for example "distances are".
    unless
        Whether a graph has a closed form, so that the limit does not apply; None if none has.
    """

    nodes: int
    instead: str
    subject: str = ""
    unless: Callable[[Entry], bool] | None = None

    @property
    def reason(self) -> str:
        """Reason why larger graphs have no value."""
        return (
            f"{self.subject} computed here up to n={self.nodes:,}: ask for the column by name, or "
            f"use {self.instead}"
        ).lstrip()

    def exceeded(self, entry: Entry) -> bool:
        """Return whether a graph is too large."""
        return entry.n > self.nodes and not (self.unless is not None and self.unless(entry))


@dataclass(frozen=True)
class Requirement:
    """A condition that a graph must satisfy for a column to apply.

    Parameters
    ----------
    name
        Short description of the condition.
    unmet
        Function of an :class:`Entry` that returns the reason why the column does not apply, or an
        empty string.
    """

    name: str
    unmet: Callable[[Entry], str]


@dataclass(frozen=True, eq=False)
class MetricColumn:
    """A column of :func:`topofl.metrics.compare`, declared in the module of its metric.

    The columns of a module are its tuple ``COLUMNS``, collected by :mod:`topofl.metrics.compare`
    for tables, reports, ``topofl list metric`` and :func:`topofl.metrics.columns`.

    Parameters
    ----------
    name, group
        Heading of the column, and its group, a key of :data:`GROUPS`.
    meaning
        Short description of the value.
    compute
        Function of an :class:`Entry` that returns the value or a :class:`NotApplicable`. If it
        raises ``TopologyError``, the column does not apply, and the message is the reason.
    limit
        Largest graph for which it is computed unless it is asked for by name; None for any.
    needs
        Conditions that are checked, in this order, before it is computed.
    """

    name: str
    group: str
    meaning: str
    compute: Callable[[Entry], Any]
    limit: Limit | None = None
    needs: tuple[Requirement, ...] = ()

    def value(self, entry: Entry, *, of_any_size: bool = False) -> Any:
        """Return the value, or a :class:`NotApplicable` if a limit or requirement is not met."""
        if self.limit is not None and not of_any_size and self.limit.exceeded(entry):
            return NotApplicable(self.limit.reason)
        try:
            for requirement in self.needs:
                if reason := requirement.unmet(entry):
                    return NotApplicable(reason)
            return self.compute(entry)
        except TopologyError as error:
            # A reason in a table refers to no argument: the message begins after it.
            reason = re.sub(r"^`\w+` must [^:]*: ", "", str(error))
            return NotApplicable(_about_the_graph(reason, entry.rounds.name))


def mean(values: Iterable[float]) -> int | float:
    """Return the mean, as an int if it is whole."""
    average = float(np.mean(list(values)))
    return int(average) if average.is_integer() else average


def _unmet_if_changing(entry: Entry) -> str:
    return "" if entry.is_static else "of one matrix: take a round of the sequence"


def _unmet_if_directed(entry: Entry) -> str:
    is_directed = any(graph.is_directed for graph in entry.graphs)
    return "defined for undirected graphs" if is_directed else ""


def _unmet_if_disconnected(entry: Entry) -> str:
    if all(graph.is_connected for graph in entry.graphs):
        return ""
    return "some nodes cannot reach each other" + (" in one round" if len(entry.graphs) > 1 else "")


def _unmet_without_groups(entry: Entry) -> str:
    return "" if all(graph.groups for graph in entry.graphs) else "the graph has no groups of nodes"


def _unmet_without_labels(entry: Entry) -> str:
    return "needs label counts: pass `label_counts=`" if entry.label_counts is None else ""


def _unmet_without_hardware(entry: Entry) -> str:
    return "needs hardware: pass `hardware=`" if entry.hardware is None else ""


def _is_circulant(entry: Entry) -> bool:
    """Return whether all eigenvalues are those of a Fourier transform, of any number of nodes."""
    return entry.is_static and spectral.circulant_spectrum(entry.matrices[0].weights) is not None


def iterated(instead: str, nodes: int = ITERATED_LIMIT) -> Limit:
    """Return the limit of what needs iterations unless the weights are circulant."""
    return Limit(nodes, instead, unless=lambda entry: entry.shared(_is_circulant))


ONE_MATRIX = Requirement("a static graph", _unmet_if_changing)
UNDIRECTED = Requirement("undirected graphs", _unmet_if_directed)
CONNECTED = Requirement("(strongly) connected graphs", _unmet_if_disconnected)
NODE_GROUPS = Requirement("graphs with groups of nodes", _unmet_without_groups)
LABELS = Requirement("label counts", _unmet_without_labels)
"""Columns with this requirement are shown only where ``compare`` is given label counts."""

HARDWARE = Requirement("hardware", _unmet_without_hardware)
"""Columns with this requirement are shown only where ``compare`` is given hardware."""


def _about_the_graph(text: str, name: str) -> str:
    """Return a message with the name of the graph replaced by "the graph".

    The name may also occur as an ordinary word, for example "weights", which is not replaced.
    """
    if "(" in name:
        return text.replace(name, "the graph")
    return re.sub(
        rf"(^|, | of ){re.escape(name)}(?=$|[,:;]| (?:is|has|of|does|did|and|takes)\b)",
        r"\1the graph",
        text,
    )
