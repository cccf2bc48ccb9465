"""Columns of :func:`topofl.metrics.compare`: what declares one, and which a table shows."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

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


Limit: TypeAlias = tuple[int, str, Callable[[Entry], bool]]
"""Most nodes for which a column is computed, what to use for more, and which graphs are exempt."""

Requirement: TypeAlias = tuple[str, Callable[[Entry], str]]
"""A condition for a column to apply, by name, and why a graph does not meet it, or ``""``."""


@dataclass(frozen=True, eq=False)
class MetricColumn:
    """A column of :func:`topofl.metrics.compare`, declared in the module of its metric.

    The columns of a module are its tuple ``COLUMNS``, collected by :mod:`topofl.metrics.compare`
    for tables, reports, ``topofl list metric`` and :func:`topofl.metrics.columns`.

    Parameters
    ----------
    group, name
        Group of the column, a key of :data:`GROUPS`, and its heading.
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

    group: str
    name: str
    meaning: str
    compute: Callable[[Entry], Any]
    limit: Limit | None = None
    needs: tuple[Requirement, ...] = ()

    def value(self, entry: Entry, *, of_any_size: bool = False) -> Any:
        """Return the value, or a :class:`NotApplicable` if a limit or requirement is not met."""
        if self.limit is not None and not of_any_size:
            nodes, instead, is_exempt = self.limit
            if entry.n > nodes and not is_exempt(entry):
                return NotApplicable(
                    f"computed here up to n={nodes:,}: ask for the column by name, or use {instead}"
                )
        try:
            for _, unmet in self.needs:
                if reason := unmet(entry):
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


def of_graphs(metric: Callable[[Topology], Any]) -> Callable[[Entry], int | float]:
    """Return the mean of a metric over the graphs of a row, as an int if it is whole."""
    return lambda entry: mean(map(metric, entry.graphs))


def limited(nodes: int, instead: str) -> Limit:
    """Return the limit of what takes long for all graphs of more nodes."""
    return nodes, instead, lambda entry: False


def iterated(instead: str, nodes: int = ITERATED_LIMIT) -> Limit:
    """Return the limit of what needs iterations unless the weights are circulant."""
    return nodes, instead, lambda entry: entry.shared(_is_circulant)


def _is_circulant(entry: Entry) -> bool:
    """Return whether all eigenvalues are those of a Fourier transform, of any number of nodes."""
    return entry.is_static and spectral.circulant_spectrum(entry.matrices[0].weights) is not None


def _unmet_if_disconnected(entry: Entry) -> str:
    if all(graph.is_connected for graph in entry.graphs):
        return ""
    return "some nodes cannot reach each other" + (" in one round" if len(entry.graphs) > 1 else "")


def need(name: str, is_met: Callable[[Entry], bool], unmet: str) -> Requirement:
    """Return the requirement that `is_met` is true, with the reason if it is not."""
    return name, lambda entry: "" if is_met(entry) else unmet


ONE_MATRIX = need(
    "a static graph", lambda entry: entry.is_static, "of one matrix: take a round of the sequence"
)
UNDIRECTED = need(
    "undirected graphs",
    lambda entry: not any(graph.is_directed for graph in entry.graphs),
    "defined for undirected graphs",
)
CONNECTED: Requirement = ("(strongly) connected graphs", _unmet_if_disconnected)
NODE_GROUPS = need(
    "graphs with groups of nodes",
    lambda entry: all(graph.groups for graph in entry.graphs),
    "the graph has no groups of nodes",
)
LABELS = need(
    "label counts",
    lambda entry: entry.label_counts is not None,
    "needs label counts: pass `label_counts=`",
)
"""Columns with this requirement are shown only where ``compare`` is given label counts."""

HARDWARE = need(
    "hardware", lambda entry: entry.hardware is not None, "needs hardware: pass `hardware=`"
)
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
