"""What notebooks show of sweeps, stores and stored runs: their text, settings and final scores."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from topofl._support.check import shown
from topofl._support.notebook import as_html, paragraph
from topofl._support.table import NotApplicable, Table

__all__ = [
    "ROWS",
    "cell_of",
    "finals_of",
    "heads_of",
    "run_as_html",
    "runs_as_html",
    "settings_as_html",
    "table_as_html",
]

ROWS = 40
"""Most rows of a table of runs in a notebook."""


def cell_of(value: Any) -> Any:
    """Return the value of a setting as a cell.

    Examples
    --------
    >>> cell_of(None), cell_of(0.5), cell_of([1, 2])
    ('none', 0.5, '[1, 2]')
    """
    if value is None:
        return "none"
    return value if isinstance(value, str | int | float) else str(value)


def finals_of(
    curves: Mapping[str, Any], scores: Sequence[str], statistics: Sequence[str]
) -> Iterator[Any]:
    """Yield last round, final scores and megabytes of a run with these curves as cells."""
    yield curves["round"][-1]
    for name in scores:
        missing = f"no finite {name}" if name in curves["scores"] else f"{name} was not evaluated"
        for statistic in statistics:
            values = curves["scores"].get(name, {}).get(statistic, [None])
            yield NotApplicable(missing) if values[-1] is None else values[-1]
    yield curves["bytes"][-1] / 1e6


def heads_of(settings: Sequence[str], others: Collection[str]) -> list[str]:
    """Return the names of settings as columns, different from those of the `others`.

    Arguments of a user's function have the names that their author gave them.

    Examples
    --------
    >>> heads_of(["algorithm.lr", "round"], ["round", "accuracy"])
    ['algorithm.lr', 'setting round']
    """
    heads = list(settings)
    for k in range(len(heads)):
        while heads[k] in others or heads.count(heads[k]) > 1:
            heads[k] = f"setting {heads[k]}"
    return heads


def table_as_html(text: str, table: Table) -> str:
    """Return text and a table, of which the first rows are shown if it is long."""
    more = len(table.rows) - ROWS
    note = paragraph(f"{more} more rows are in the table") if more > 0 else ""
    return as_html(text) + Table(table.columns, table.rows[:ROWS])._repr_html_() + note


def run_as_html(text: str, curves: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the text of a run, its final scores, and its settings."""
    scores = list(curves["scores"])
    heads = [f"{name}{end}" for name in scores for end in ("", " worst tenth")]
    cells = tuple(finals_of(curves, scores, ("mean", "worst_tenth")))
    finals = Table(("round", *heads, "MB sent"), (cells,))
    return as_html(text) + finals._repr_html_() + settings_as_html(settings)


def settings_as_html(settings: Mapping[str, Any]) -> str:
    """Return a table of settings."""
    rows = tuple((name, cell_of(value)) for name, value in settings.items())
    return Table(("setting", "value"), rows)._repr_html_()


def runs_as_html(
    text: str,
    settings: Mapping[str, Mapping[str, Any]],
    curves: Mapping[str, Any],
    *,
    more: int,
    failed: int,
) -> str:
    """Return the text of a store, and a row per run.

    Parameters
    ----------
    text
        The text.
    settings, curves
        Those of each run by its key.
    more
        Number of finished runs without a row.
    failed
        Number of runs that failed.
    """
    differing = _differing(list(settings.values()))
    scores = list(dict.fromkeys(name for own in curves.values() for name in own["scores"]))
    rows = tuple(
        (
            key,
            *(cell_of(own.get(name)) for name in differing),
            *finals_of(curves[key], scores, ["mean"]),
        )
        for key, own in settings.items()
    )
    heads = heads_of(differing, ["key", "round", *scores, "MB sent"])
    table = Table(("key", *heads, "round", *scores, "MB sent"), rows)
    counts = {f"{more} more run{'' if more == 1 else 's'}": more, f"{failed} failed": failed}
    notes = (paragraph(words) for words, count in counts.items() if count)
    return as_html(text) + table._repr_html_() + "".join(notes)


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings in which runs differ, and those that are always named."""
    names = dict.fromkeys(name for own in settings for name in own)
    always = ("algorithm.name", "topology.name")
    return [
        name
        for name in names
        if name in always or len({shown(own.get(name)) for own in settings}) > 1
    ]
