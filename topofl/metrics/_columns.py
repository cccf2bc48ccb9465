"""The columns of :func:`topofl.metrics.compare`, collected from the modules that declare them."""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from numbers import Real
from typing import Any

from topofl._support.check import check_sequence, shown
from topofl._support.ordering import ordered_columns
from topofl._support.plugins import error_context, resolve_name, with_checked_result
from topofl._support.public import public
from topofl._support.table import NotApplicable, Table
from topofl.metrics._declaration import GROUPS, HARDWARE, LABELS, Entry, MetricColumn
from topofl.topology import TopologyError

__all__ = ["all_columns", "chosen_columns", "columns", "grouped_columns", "headline", "value_of"]

DECISIVE = (
    "H_10",
    "neighborhood heterogeneity",
    "N_10",
    "spectral gap",
    "max degree",
    "messages per round",
    "MB per round",
    "seconds per round",
)
"""Numbers shown first, the most important one first: those that predict convergence, and costs."""

FURTHER = ("nodes", "edges", "mean degree", "slem")
"""Numbers shown if there are fewer than `SHOWN` of these."""

SHOWN = 5
"""How many numbers are shown first, at least."""


@public
def columns() -> Table:
    """Return a table of all columns of :func:`compare`: group, meaning, requirements and limit.

    Returns
    -------
    Table
        One row per column, in the order of :func:`compare`: ``column``; ``group``, a value for its
        argument `about`; ``meaning``; ``needs``, the requirements on the graph, or empty; ``nodes
        at most``, the size of the largest graph for which :func:`compare` computes it.

    Examples
    --------
    >>> table = columns()
    >>> table.columns
    ('column', 'group', 'meaning', 'needs', 'nodes at most')
    >>> table.rows[0][:3]
    ('nodes', 'structure', 'number of nodes')
    """
    rows = tuple(
        (
            column.name,
            column.group,
            column.meaning,
            ", ".join(requirement.name for requirement in column.needs),
            column.limit.nodes if column.limit else "any",
        )
        for column in all_columns()
    )
    return Table(("column", "group", "meaning", "needs", "nodes at most"), rows)


def headline(columns: Sequence[str]) -> list[str]:
    """Return the five to eight columns that decide, completed in the given order to five.

    Examples
    --------
    >>> headline(["nodes", "luck", "spectral gap", "edges", "skill", "fate"])
    ['spectral gap', 'nodes', 'edges', 'luck', 'skill']
    """
    known = [name for name in DECISIVE if name in columns]
    others = [name for name in (*FURTHER, *columns) if name in columns and name not in known]
    return [*known, *dict.fromkeys(others)][: max(SHOWN, len(known))]


@cache
def all_columns() -> tuple[MetricColumn, ...]:
    """Return the columns declared in ``COLUMNS`` by the modules of ``topofl.metrics``, in order."""
    declared = [list(getattr(module, "COLUMNS", ())) for module in _modules()]
    return ordered_columns(declared, GROUPS)


def _modules() -> Iterator[Any]:
    """Yield all modules of ``topofl.metrics`` in alphabetical order of their paths."""
    package = importlib.import_module("topofl.metrics")
    for module in pkgutil.walk_packages(package.__path__, "topofl.metrics."):
        yield importlib.import_module(module.name)


def grouped_columns(
    *, with_labels: bool, with_hardware: bool
) -> dict[str, dict[str, MetricColumn]]:
    """Return the columns by group and name, without those that need what is not there."""
    absent = {LABELS: not with_labels, HARDWARE: not with_hardware}
    return {
        group: {
            column.name: column
            for column in all_columns()
            if column.group == group and not any(absent.get(need) for need in column.needs)
        }
        for group in GROUPS
    }


def chosen_columns(
    metrics: Any, groups: Mapping[str, Mapping[str, MetricColumn]]
) -> dict[str, MetricColumn]:
    """Return the columns of `metrics`: functions, names of functions, or names of columns.

    Raises
    ------
    TypeError, ValueError
        As :func:`topofl.metrics.compare`.
    """
    ours = {name: column for members in groups.values() for name, column in members.items()}
    found: dict[str, MetricColumn] = {}
    for metric in check_sequence("metrics", metrics, "functions or of their names"):
        if not isinstance(metric, str) and not callable(metric):
            raise TypeError(f"`metrics` must hold functions or their names, got {shown(metric)}")
        if isinstance(metric, str):
            name = metric
            _check_needs(name, ours)
            with error_context("`metrics`:"):
                resolved = resolve_name("metric", metric, ours)
        else:
            name = getattr(metric, "__name__", type(metric).__name__)
            resolved = metric
        is_ours = isinstance(resolved, MetricColumn)
        if name in found or (name in ours and not is_ours):
            raise ValueError(
                f"`metrics` must have a distinct name for every column, got {name!r} twice; "
                "rename one"
            )
        found[name] = (
            resolved if isinstance(resolved, MetricColumn) else _custom_column(name, resolved)
        )
    return found


def _check_needs(name: str, ours: Mapping[str, MetricColumn]) -> None:
    """Raise ``ValueError`` for a column that is not shown for lack of an argument."""
    needs = next((column.needs for column in all_columns() if column.name == name), ())
    if name not in ours and needs:
        need, argument = next((need, _NEEDED[need]) for need in needs if need in _NEEDED)
        raise ValueError(
            f"`metrics` must be columns that can be computed, but {name!r} needs {need.name}; pass "
            f"`{argument}=`"
        )


_NEEDED = {LABELS: "label_counts", HARDWARE: "hardware"}
"""Arguments of ``compare`` without which columns are not shown."""


def _custom_column(name: str, function: Callable[..., Any]) -> MetricColumn:
    """Return the column of a user-defined function, of a matrix or of a sequence if it changes."""
    number = with_checked_result(
        name, function, "a number", (Real, NotApplicable), "; convert it with float(...)"
    )

    def compute(entry: Entry) -> Any:
        with error_context("`metrics`:"):
            return number(entry.matrices[0] if entry.is_static else entry.rounds)

    return MetricColumn(name, "other", "", compute)


def value_of(column: MetricColumn, entry: Entry, *, of_any_size: bool) -> Any:
    """Return the value of a column, or a NotApplicable with the message of a ``TopologyError``."""
    try:
        return column.value(entry, of_any_size=of_any_size)
    except TopologyError as error:
        reason = _ARGUMENT.sub("", str(error))  # a reason in a table refers to no argument
        return NotApplicable(_about_the_graph(reason, entry.rounds.name))


_ARGUMENT = re.compile(r"^`\w+` must [^:]*: ")
"""Start of an error message about the argument, before the reason."""


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
