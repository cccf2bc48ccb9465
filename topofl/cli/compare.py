"""``topofl compare``: comparison of saved runs."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topofl._spec import at
from topofl._support.table import NotApplicable, Spread, Table
from topofl.cli.folders import load_finished
from topofl.cli.notes import print_notes
from topofl.cli.output import print_table, save_picture, with_columns
from topofl.history import SECONDS, History, compare_histories, over_nodes, why_not_scored

__all__ = ["check_column", "compare", "table_of_runs"]


def compare(options: argparse.Namespace) -> None:
    """Print a table of saved runs, or of groups of them; with ``--plot``, draw their scores."""
    if options.group_by is not None:
        for name, value in {"--kind": options.kind, "--band": options.band}.items():
            if value is not None and options.plot is None:
                raise ValueError(
                    f"`{name}` must come with --plot, got {name} {value} without; add --plot "
                    "FILE, as in --plot curves.pdf"
                )
        from topofl.cli.groups import compare_groups

        compare_groups(options)
        return
    _check_needs_groups(options)
    target = 0.8 if options.target is None else options.target
    if not 0 < target <= 1:
        raise ValueError(f"`--target` must be above 0 and at most 1, got {target:g}")
    histories = {str(path): load_finished(path) for path in options.runs}
    if options.hardware is not None:
        histories = {name: _on(options.hardware, name, one) for name, one in histories.items()}
    column = next(iter(histories.values())).primary if options.column is None else options.column
    check_column(histories, column, is_json=options.json)
    table = table_of_runs(histories, target, column)
    table = with_columns(table, options.columns)
    if options.plot is not None:
        _plot(histories, options.plot, column, options.x or "rounds")
    print_table(table, options)


def _on(hardware: str, name: str, history: History) -> History:
    """Return a run with the seconds that its rounds take on this hardware."""
    with at(f"{name}:"):
        return history.with_seconds(hardware, seed=0)


def _check_needs_groups(options: argparse.Namespace) -> None:
    """Raise if an option or a folder is given that only groups have."""
    for path in options.runs:
        if (path / "store.json").is_file():
            raise ValueError(
                f"{path} is a store of runs, which are compared in groups; add --group-by, as in "
                "--group-by topology, or list them by topofl runs"
            )
    for name in ("baseline", "over", "kind", "band"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"`--{name}` must come with --group-by, got it without; add --group-by topology"
            )


def check_column(histories: Mapping[str, History], column: str, *, is_json: bool) -> None:
    """Raise unless a run has this score; note which runs have it at other stages, too.

    If no run evaluated anything, tables say so below, and for JSON a note does.
    """
    known = {
        name
        for one in histories.values()
        for name in one.evaluations
        if one.score_of(name) is not None
    }
    whys = list(dict.fromkeys(map(why_not_scored, histories.values())))
    if not known and all(whys):
        print_notes(whys if is_json else [])  # tables have them below
    elif column not in known:
        raise ValueError(f"`--column` must be one of {', '.join(sorted(known))}, got {column!r}")
    for stage, how in _OTHER_STAGES.items():
        found = {
            name: other
            for name, one in histories.items()
            if (other := _column_at_stage(one, column, stage)) is not None
        }
        if found:
            other = next(iter(found.values()))
            print_notes(
                [
                    f"models of {', '.join(found)} were also evaluated {how}: topofl compare "
                    f"--column {other}"
                ]
            )


def _column_at_stage(history: History, column: str, stage: str) -> str | None:
    """Return the column with the same score and test set at another stage, or None."""
    declared = history.score_columns.get(column)
    wanted = None if declared is None or declared.stage else declared._replace(stage=stage)
    return next((name for name, other in history.score_columns.items() if other == wanted), None)


_OTHER_STAGES = {"fine_tuned": "after fine-tuning", "knn": "with nearest examples"}


def table_of_runs(histories: Mapping[str, History], target: float, column: str) -> Table:
    """Return a table with one row per run, with attacks and simulated seconds if there are any."""
    score = next((found for one in histories.values() if (found := one.score_of(column))), column)
    optional = {
        "attack": (
            any(one.attackers for one in histories.values()),
            lambda one: one.attack or "none",
        ),
        f"simulated seconds to {target:g}": (
            any(SECONDS in one.rounds for one in histories.values()),
            lambda one: _seconds(one, target, column),
        ),
    }
    shown = {name: cell for name, (is_shown, cell) in optional.items() if is_shown}
    columns = (
        "run",
        "algorithm",
        "topology",
        "spectral gap",
        f"rounds to {target:g}",
        f"final {score}",
        "worst tenth",
        "messages per round",
        "MB per round",
        *shown,
    )
    rows = tuple(
        (*_row(name, one, target, column), *(cell(one) for cell in shown.values()))
        for name, one in histories.items()
    )
    return Table(columns, rows, title="" if column == score else f"{score}: {column}")


def _row(name: str, history: History, target: float, column: str) -> tuple[Any, ...]:
    """Return the cells that every table has."""
    return (
        name,
        history.meta["algorithm"],
        history.meta["topology"],
        _gap(history),
        *_scores(history, target, column),
        float(history["messages"].mean()),
        float(history["bytes"].mean()) / 1e6,
    )


def _seconds(history: History, target: float, column: str) -> float | NotApplicable:
    """Return the simulated seconds to the target, or the reason why there are none."""
    if column not in history.evaluations:
        return NotApplicable(why_not_scored(history) or f"the run has no {column}")
    return history.seconds_to(target, column)


def _gap(history: History) -> float | NotApplicable:
    if not history.matrices:
        return NotApplicable("nodes exchange nothing")
    if len(history.matrices) > 1:
        return NotApplicable("its matrices change over rounds: see topofl graphs")
    return history.mixing(0).spectral_gap


def _scores(history: History, target: float, column: str) -> tuple[Any, Any, Any]:
    """Return the rounds to the target, the final score, and that of the worst tenth of nodes."""
    if column not in history.evaluations:
        none = NotApplicable(why_not_scored(history) or f"the run has no {column}")
        return none, none, none
    rounds, final = history.rounds_to(target, column), history.last(column)
    side = "above" if history.low_is_good(column) else "below"
    reached = (
        NotApplicable(f"{history.score_of(column)} stayed {side} {target:g}")
        if isinstance(rounds, NotApplicable)
        else rounds
    )
    over = over_nodes(final)
    return (
        reached,
        Spread(*(float(over[key]) for key in ("mean", "min", "max"))),
        history.personal(column).worst_tenth,
    )


def _plot(histories: Mapping[str, History], path: Path, column: str, x: str) -> None:
    scored = {name: one for name, one in histories.items() if column in one.evaluations}
    save_picture(compare_histories(scored or histories, column, x=x), path)
