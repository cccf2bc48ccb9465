"""``topofl compare``: comparison of saved runs, and of groups of them."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topofl._spec import at
from topofl._support.calls import parse_value
from topofl._support.table import NotApplicable, Spread, Table
from topofl.cli.output import (
    by_options,
    check_picture,
    print_notes,
    print_table,
    save_picture,
    with_columns,
)
from topofl.history import SECONDS, History, compare_histories, over_nodes, why_not_scored
from topofl.metrics.cost import REDUCED, costs_of_run
from topofl.runs.folder import load_finished, unfinished_run
from topofl.summary import Summary, summarize
from topofl.summary.groups import collect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OTHER_STAGES = {"fine_tuned": "after fine-tuning", "knn": "with nearest examples"}

_KINDS_WITH = {"x": ("band", "pareto"), "band": ("band", "nodes", "pareto")}
"""Kinds of plots with an axis of costs, and with bands or bars over runs, by their options."""


def compare(options: Namespace) -> None:
    """Print a table of saved runs, or of groups of them; with ``--plot``, draw their scores."""
    if options.plot is not None:
        check_picture("--plot", options.plot)
    elif options.x is not None:
        raise ValueError(
            f"`--x` must come with --plot, got --x {options.x} without; add --plot FILE, as in "
            "--plot curves.pdf"
        )
    for path in options.runs:
        if not path.exists():
            raise ValueError(
                f"RUN must be a folder that topofl run or topofl sweep wrote, got {path}, which "
                "does not exist"
            )
    if options.group_by is None:
        _compare_runs(options)
    else:
        _compare_groups(options)


def _differing(options: Namespace) -> str:
    """Return the settings in which runs differ, as --group-by takes them."""
    return ",".join(collect(options.runs).labels) or "topology"


def _compare_runs(options: Namespace) -> None:
    for path in options.runs:
        if (path / "store.json").is_file():
            raise ValueError(
                f"{path} is a store of runs, which are compared in groups; add --group-by, as in "
                f"--group-by {_differing(options)}, or list them by topofl runs"
            )
    for name in ("baseline", "over", "equal", "kind", "band"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"`--{name}` must come with --group-by, got it without; "
                f"add --group-by {_differing(options)}"
            )
    target = 0.8 if options.target is None else options.target
    if not 0 < target <= 1:
        raise ValueError(f"`--target` must be above 0 and at most 1, got {target:g}")
    histories = {str(path): load_finished(path) for path in options.runs}
    if options.hardware is not None:
        for name, history in histories.items():
            with at(f"{name}:"):
                histories[name] = history.with_seconds(options.hardware, seed=0)
    column = next(iter(histories.values())).primary if options.column is None else options.column
    check_column(histories, column, is_json=options.json)
    table = with_columns(table_of_runs(histories, target, column), options.columns)
    if options.plot is not None:
        scored = {name: one for name, one in histories.items() if column in one.evaluations}
        drawn = scored or histories
        _check_seconds(options, [name for name, one in drawn.items() if SECONDS not in one.rounds])
        figure = compare_histories(drawn, column, x=options.x or "rounds")
        save_picture(figure, options.plot)
    print_table(table, options)


def _check_seconds(options: Namespace, untimed: Sequence[str]) -> None:
    """Raise, in words of the shell, if seconds are an axis that some runs do not have."""
    if options.x == "seconds" and untimed:
        raise ValueError(
            f"`--x seconds` must come with --hardware for runs without simulated seconds, as "
            f"{untimed[0]}; add --hardware 'Hardware(compute=0.1, latency=0.02, bandwidth=1.25e6)' "
            "with your numbers"
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
            what = f"models of {', '.join(found)} were also evaluated {how}"
            print_notes([f"{what}: topofl compare --column {other}"])


def _column_at_stage(history: History, column: str, stage: str) -> str | None:
    """Return the column with the same score and test set at another stage, or None."""
    declared = history.score_columns.get(column)
    wanted = None if declared is None or declared.stage else declared._replace(stage=stage)
    return next((name for name, other in history.score_columns.items() if other == wanted), None)


def table_of_runs(histories: Mapping[str, History], target: float, column: str) -> Table:
    """Return a table with one row per run; attacks, all-reduces and seconds if there are any."""
    score = next((found for one in histories.values() if (found := one.score_of(column))), column)
    costs = {name: costs_of_run(one) for name, one in histories.items()}
    rows = []
    for name, one in histories.items():
        rounds, final, worst, seconds = _scores(one, target, column)
        row = {
            "run": name,
            "algorithm": one.meta["algorithm"],
            "topology": one.meta["topology"],
            "spectral gap": _gap(one),
            f"rounds to {target:g}": rounds,
            f"final {score}": final,
            "worst tenth": worst,
            "messages per round": float(one["messages"].mean()),
            "MB per round": float(costs[name]["MB per round"].mean()),
        }
        if any((other[REDUCED] < other["MB per round"]).any() for other in costs.values()):
            row[REDUCED] = float(costs[name][REDUCED].mean())
        if any(other.attackers for other in histories.values()):
            row["attack"] = one.attack or "none"
        if any(SECONDS in other.rounds for other in histories.values()):
            row[f"simulated seconds to {target:g}"] = seconds
        rows.append(row)
    title = "" if column == score else f"{score}: {column}"
    return Table(tuple(rows[0]), tuple(tuple(row.values()) for row in rows), title=title)


def _gap(history: History) -> float | NotApplicable:
    if not history.matrices:
        return NotApplicable("nodes exchange nothing")
    if len(history.matrices) > 1:
        return NotApplicable("its matrices change over rounds: see topofl graphs")
    return history.mixing(0).spectral_gap


def _scores(history: History, target: float, column: str) -> tuple[Any, Any, Any, Any]:
    """Return rounds to the target, final score, that of the worst tenth of nodes, and seconds."""
    if column not in history.evaluations:
        none = NotApplicable(why_not_scored(history) or f"the run has no {column}")
        return none, none, none, none
    rounds, over = history.rounds_to(target, column), over_nodes(history.last(column))
    if isinstance(rounds, NotApplicable):
        side = "above" if history.low_is_good(column) else "below"
        rounds = NotApplicable(f"{history.score_of(column)} stayed {side} {target:g}")
    return (
        rounds,
        Spread(*(float(over[key]) for key in ("mean", "min", "max"))),
        history.personal(column).worst_tenth,
        history.seconds_to(target, column),
    )


def _compare_groups(options: Namespace) -> None:
    """Print a table of groups of runs; with ``--plot``, draw them."""
    for name, value in {"--kind": options.kind, "--band": options.band}.items():
        if value is not None and options.plot is None:
            raise ValueError(
                f"`{name}` must come with --plot, got {name} {value} without; add --plot FILE, as "
                "in --plot curves.pdf"
            )
    for path in options.runs:
        if unfinished := unfinished_run(path):
            raise ValueError(f"{unfinished}, or leave it out")
    try:
        summary = summarize(
            options.runs,
            _words(options.group_by),
            column=options.column,
            target=options.target,
            baseline=_baseline(options.baseline),
            over=_words(options.over),
            hardware=options.hardware,
            equal=options.equal,
        )
    except (ValueError, TypeError) as error:
        named = ("column", "target", "baseline", "over", "hardware", "equal")
        said = by_options(str(error), named).replace("`by`", "`--group-by`")
        raise (TypeError if isinstance(error, TypeError) else ValueError)(said) from error
    summary = with_columns(summary, options.columns)
    if options.plot is not None:
        entries = summary.runs.entries
        _check_seconds(options, [one.name for one in entries if not one.curves.get("seconds")])
        save_picture(_figure(summary, options), options.plot)
    summary = replace(summary, compared=by_options(summary.compared, ["equal"]))
    print_table(summary.numbers, options, rounded=summary, notes=summary.notes)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _baseline(text: str | None) -> Any:
    """Return the baseline in ``ring``, or in ``topology=ring,alpha=0.1``."""
    if text is None or "=" not in text:
        return text
    parts = [part.partition("=") for part in text.split(",")]
    if not all(equals and name.strip() and value.strip() for name, equals, value in parts):
        return text  # a table with an argument, such as "dcliques, clique_size=5"
    return {name.strip(): parse_value(value.strip()) for name, _, value in parts}


def _figure(summary: Summary, options: Namespace) -> "Figure":
    """Return a picture of the groups, with those options that their kind of plot has."""
    kind = options.kind or "band"
    given = {}
    for name, kinds in _KINDS_WITH.items():
        if (value := getattr(options, name)) is None:
            continue
        if kind not in kinds:
            listed = " or ".join(kinds) if len(kinds) == 2 else ", ".join(kinds)
            raise ValueError(
                f"`--{name}` must come with --kind {listed}, got --kind {kind}; leave it out"
            )
        given[name] = value
    return summary.plot(kind, **given)
