"""Tables, raw numbers and figure points of the timed cases."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topofl import NotApplicable, Table

from .measured import Measured, quotient
from .page import title
from .plot import Point
from .targets import TargetCheck, memory_ratio, verdicts


def training_table(found: Iterable[Measured]) -> Table:
    """Return the table of training steps: engine, floor, naive loop and simulator."""
    columns = (
        "training step",
        "ours ms",
        "ran",
        "floor ms",
        "ours / floor",
        "naive / ours",
        "nodes",
        "simulator ms *",
    )
    return Table(
        (*columns, "simulator / ours *"), tuple(_training_row(m) for m in found), title=title()
    )


def _training_row(measured: Measured) -> tuple:
    case, ours = measured.case, measured.step("auto")
    simulator = NotApplicable("not known") if case.simulator is None else case.simulator
    return (
        case.label,
        _ms(ours),
        measured.chosen.get("auto", "-"),
        _ms(measured.floor("auto")),
        measured.ratio("auto"),
        quotient(measured.naive, ours),
        _nodes(measured),
        _ms(simulator),
        quotient(simulator, ours),
    )


def matrix_table(found: Iterable[Measured]) -> Table:
    """Return the matrix: one row per network, number of nodes, precision and executor."""
    columns = (
        "D-SGD",
        "executor",
        "ran",
        "ours ms",
        "floor ms",
        "ours / floor",
        "naive / ours",
        "nodes",
    )
    rows = (
        _matrix_row(measured, executor)
        for measured in found
        for executor in ("batched", "looped", "auto")
    )
    return Table((*columns, "peak MB", "peak / bound"), tuple(rows), title=title())


def _matrix_row(measured: Measured, executor: str) -> tuple:
    ours = measured.step(executor)
    memory = measured.memory.get(executor)
    ratio = memory_ratio(measured, executor)
    return (
        measured.case.label,
        executor,
        measured.chosen.get(executor, "-"),
        _ms(ours),
        _ms(measured.floor(executor)),
        measured.ratio(executor),
        quotient(measured.naive, ours),
        _nodes(measured),
        memory["peak"] / 1e6 if isinstance(memory, Mapping) else ratio,
        ratio,
    )


def _ms(seconds: float | NotApplicable) -> float | NotApplicable:
    return seconds if isinstance(seconds, NotApplicable) else 1e3 * seconds


def _nodes(measured: Measured) -> int | NotApplicable:
    return measured.naive if isinstance(measured.naive, NotApplicable) else measured.naive_nodes


def points_of(
    found: Iterable[Measured], targets: Mapping[str, float], executors: Sequence[str]
) -> list[Point]:
    """Return the points of the figure: measured ratios, with the target of a case if it has one."""
    return [
        Point(measured.case.label, executor, ratio, targets.get(measured.case.label))
        for measured in found
        for executor in executors
        if isinstance(ratio := measured.ratio(executor), float)
    ]


def raw_of(measured: Measured) -> dict[str, Any]:
    """Return all measurements of a case as JSON values."""
    case = measured.case
    return {
        "case": case.label,
        "network": case.network.label,
        **{
            key: getattr(case, key)
            for key in ("n", "batch_size", "graph", "momentum", "precision", "simulator")
        },
        "seconds": {way: list(seconds) for way, seconds in measured.seconds.items()},
        "skipped": dict(measured.skipped),
        "chosen": dict(measured.chosen),
        "naive": plain(measured.naive),
        "naive_nodes": measured.naive_nodes,
        "memory": {executor: plain(cell) for executor, cell in measured.memory.items()},
    }


def plain(cell: Any) -> Any:
    """Return a cell as a JSON value."""
    return {"reason": cell.reason} if isinstance(cell, NotApplicable) else cell


def verdict_tables(checks: Sequence[TargetCheck], quick: bool) -> list[Table]:
    """Return the table of verdicts; none for a quick run."""
    return [] if quick else [verdicts(checks, "Targets")]


def raw_of_checks(checks: Iterable) -> list[dict[str, Any]]:
    """Return targets and verdicts as JSON values."""
    return [
        {
            "what": c.what,
            "measured": plain(c.measured),
            "target": c.target,
            "verdict": plain(c.verdict),
        }
        for c in checks
    ]
