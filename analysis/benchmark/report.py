"""Reports of the benchmark: tables, targets, roofline, figure, and their files."""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from topofl import NotApplicable, Table
from topofl.toolkit import describe_software, has_fast_bf16, machine

from ..program import seconds_of, write
from .cases import Case
from .timing import EXECUTORS, Measured, first_reason, loss_of, quotient, saved_bytes

Point = tuple[str, str, float, float | None]
"""A point of the figure: case, executor, its ratio to its floor, and its target, if any."""


@dataclass(frozen=True)
class Report:
    """Tables, notes, figure and raw numbers of a benchmark.

    Parameters
    ----------
    name
        Stem of its files.
    tables
        Tables, in the order of the page.
    notes
        Paragraphs below the tables.
    points
        Points of the figure.
    raw
        All numbers, as JSON values.
    """

    name: str
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    points: Sequence[Point] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)

    def save(self, folder: Path, facts: Mapping[str, Any]) -> list[Path]:
        """Write page, numbers and figure to a folder, and return their paths."""
        page = "\n\n".join([*(table.to_markdown() for table in self.tables), *self.notes]) + "\n"
        for content in (page, {**facts, **self.raw}):
            write(folder, **{self.name: content})
        written = [folder / f"{self.name}.{ending}" for ending in ("md", "json")]
        return [*written, *draw(self.points, folder / self.name, self.tables[0].title)]


def title() -> str:
    """Return one line about the machine and its software."""
    return f"{machine()}, {describe_software()}"


def facts_of(device: torch.device) -> dict[str, Any]:
    """Return the facts on which times depend, including the load of the machine at the start."""
    return {
        "machine": machine(),
        "software": describe_software(),
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
        "fast_bf16": has_fast_bf16(device),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


MARKS = {"batched": ("o", "#0072B2"), "looped": ("s", "#E69F00"), "auto": ("D", "#009E73")}
"""Marker and color of each executor, from the colorblind-safe palette of Okabe and Ito."""

APART = 0.2
"""Vertical distance between the executors of a case, in rows."""


def draw(points: Sequence[Point], stem: Path, title: str = "") -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``: one row per case; 1 is the floor, bars are targets.

    Without points, nothing is written.
    """
    if not points:
        return []
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys(case for case, *_ in points))
    figure = Figure(figsize=(8, 1.6 + 0.36 * len(cases)), layout="constrained")
    axes = figure.add_subplot()
    _add_points(axes, points, cases)
    axes.axvline(1, color="black", linewidth=1, zorder=1)
    axes.set_xscale("log")
    _label_ticks(axes, [value for _, _, *values in points for value in values if value])
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xlabel("step time / time of the bare kernels (1: the floor)")
    axes.grid(axis="x", color="0.9", zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=9, loc="left")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    with rc_context({"svg.hashsalt": "benchmark"}):
        for path in paths:
            figure.savefig(
                path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None
            )
    return paths


def _add_points(axes, points: Sequence[Point], cases: Sequence[str]) -> None:
    for k, (executor, (marker, color)) in enumerate(MARKS.items()):
        own = [
            (ratio, cases.index(case) + (k - 1) * APART)
            for case, one, ratio, _ in points
            if one == executor
        ]
        if own:
            look = {"color": color, "markersize": 6, "label": executor, "zorder": 3}
            axes.plot(*zip(*own, strict=True), marker, **look)
    targets = {(cases.index(case), target) for case, *_, target in points if target is not None}
    if targets:
        rows, values = zip(*sorted(targets), strict=True)
        look = {"color": "#D55E00", "markersize": 18, "markeredgewidth": 2.5}
        axes.plot(values, rows, "|", label="target", zorder=2, **look)


def _label_ticks(axes, values: Sequence[float]) -> None:
    """Label the logarithmic axis with decimal numbers, as many as the range needs."""
    low, high = min([0.9, *values]) * 0.95, max([2.0, *values]) * 1.08
    steps = [0.1, 0.2, 0.5, 0.7, 1, 1.1, 1.2, 1.5, 2, 3, 5, 7, 10, 20, 50, 100, 200, 500, 1000]
    shown = [step for step in steps if low <= step <= high and (high < 3 or step not in (1.1, 1.2))]
    axes.set_xlim(low, high)
    axes.set_xticks(shown, [f"{step:g}" for step in shown])
    axes.minorticks_off()


def training_table(found: Iterable[Measured]) -> Table:
    """Return the table of training steps: engine, floor, naive loop and simulator."""
    rows = []
    for measured in found:
        case, ours = measured.case, measured.step("auto")
        simulator = NotApplicable("not known") if case.simulator is None else case.simulator
        cells = _cells(measured, "auto")
        rows.append((case.label, *cells, _ms(simulator), quotient(simulator, ours)))
    columns = ("training step", "ours ms", "ran", *_COLUMNS, "simulator ms *", "simulator / ours *")
    return Table(columns, tuple(rows), title=title())


def matrix_table(found: Iterable[Measured]) -> Table:
    """Return the matrix: one row per network, number of nodes, precision and executor."""
    rows = []
    for measured in found:
        for executor in EXECUTORS:
            ours, ran, *others = _cells(measured, executor)
            memory, ratio = measured.memory.get(executor), memory_ratio(measured, executor)
            peak = memory["peak"] / 1e6 if isinstance(memory, Mapping) else ratio
            rows.append((measured.case.label, executor, ran, ours, *others, peak, ratio))
    columns = ("D-SGD", "executor", "ran", "ours ms", *_COLUMNS, "peak MB", "peak / bound")
    return Table(columns, tuple(rows), title=title())


_COLUMNS = ("floor ms", "ours / floor", "naive / ours", "nodes")


def _cells(measured: Measured, executor: str) -> tuple:
    """Return the step time of an executor, what ran, and the cells of :data:`_COLUMNS`."""
    ours, naive = measured.step(executor), measured.naive
    return (
        _ms(ours),
        measured.chosen.get(executor, "-"),
        _ms(measured.floor(executor)),
        measured.ratio(executor),
        quotient(naive, ours),
        naive if isinstance(naive, NotApplicable) else measured.naive_nodes,
    )


def _ms(seconds: float | NotApplicable) -> float | NotApplicable:
    return seconds if isinstance(seconds, NotApplicable) else 1e3 * seconds


def points_of(found: Iterable[Measured], targets: Mapping[str, float]) -> list[Point]:
    """Return the points of the figure: measured ratios, with the target of a case if it has one."""
    return [
        (measured.case.label, executor, ratio, targets.get(measured.case.label))
        for measured in found
        for executor in EXECUTORS
        if isinstance(ratio := measured.ratio(executor), float)
    ]


def raw_of(measured: Measured) -> dict[str, Any]:
    """Return all measurements of a case as JSON values."""
    case, kept = measured.case, ("n", "batch_size", "graph", "momentum", "precision", "simulator")
    return {
        "case": case.label,
        "network": case.network.label,
        **{key: getattr(case, key) for key in kept},
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


def raw_of_checks(checks: Iterable["TargetCheck"]) -> list[dict[str, Any]]:
    """Return targets and verdicts as JSON values."""
    return [
        {"what": c.what, "measured": plain(c.measured), "target": c.target}
        | {"verdict": plain(c.verdict)}
        for c in checks
    ]


FLOOR = 1.5
"""Logistic regression: maximum ratio to the floor."""

LENET_FLOOR = 1.1
"""GN-LeNet, looped: maximum ratio to the floor."""

BF16 = 2.0
"""GN-LeNet: minimum speedup of bf16."""

AUTO = 1.05
"""Maximum ratio to the step time of the better executor."""

MEMORY = 1.3
"""Maximum ratio to parameters, optimizer state, activations of one chunk, and data."""

EVALUATION = 2.0
"""Maximum ratio to one matrix product of that size."""

WHOLE_RUN = 100.0
"""A run with evaluation every epoch: minimum speedup over the authors' simulator."""

SIMULATOR: Mapping[str, float] = {
    "D-Cliques + CA, 100 x 128": 9,
    "fully-connected, 100 x 128": 25,
    "D-Cliques + CA, 1000 x 13": 30,
    "fully-connected, 1000 x 13": 1000,
    "GN-LeNet, 100 x 20": 2.3,
    "GN-LeNet, 100 x 20, bf16": 4.5,
}
"""Training steps: minimum speedup over the D-Cliques authors' simulator."""


@dataclass(frozen=True)
class TargetCheck:
    """A target and its measured value.

    Parameters
    ----------
    what
        The quantity that is compared.
    measured
        The measured value, or the reason why there is none.
    target
        The limit.
    at_least
        Whether the target is a minimum.
    """

    what: str
    measured: float | NotApplicable
    target: float
    at_least: bool = False

    @property
    def verdict(self) -> str | NotApplicable:
        """``"met"`` or ``"not met"``; the reason if there is no measured value."""
        if isinstance(self.measured, NotApplicable):
            return self.measured
        met = self.measured >= self.target if self.at_least else self.measured <= self.target
        return "met" if met else "not met"


def verdicts(checks: Iterable[TargetCheck]) -> Table:
    """Return the table of targets."""
    rows = tuple(
        (
            check.what,
            check.measured,
            f"{'at least' if check.at_least else 'at most'} {check.target:g}",
            check.verdict,
        )
        for check in checks
    )
    return Table(("what", "measured", "target", "verdict"), rows, title="Targets")


def checks_of_training(
    found: Iterable[Measured], evaluation: float | NotApplicable, whole_run: float | NotApplicable
) -> list[TargetCheck]:
    """Return the checks of the training steps.

    Parameters
    ----------
    found
        Measurements of the cases of :data:`TRAINING`.
    evaluation
        Ratio of the time of evaluating 100 logistic models to that of one product of that size.
    whole_run
        Ratio of the authors' simulator's time per epoch with evaluation to the engine's.
    """
    found = list(found)
    checks = [check for measured in found for check in _of_case(measured)]
    checks += _faster_in_bf16({measured.case.label: measured for measured in found})
    product = "evaluation of 100 logistic models on 10,000 images / one product"
    run = "simulator / ours: run with evaluation every epoch *"
    checks.append(TargetCheck(product, evaluation, EVALUATION))
    return [*checks, TargetCheck(run, whole_run, WHOLE_RUN, at_least=True)]


def _of_case(measured: Measured) -> Iterator[TargetCheck]:
    case = measured.case
    if case.network.is_linear:
        yield TargetCheck(f"ours / floor: {case.label}", measured.ratio("auto"), FLOOR)
    elif case.precision == "fp32":
        yield TargetCheck(f"looped / floor: {case.label}", measured.ratio("looped"), LENET_FLOOR)
    yield TargetCheck(f"auto / better executor: {case.label}", measured.auto_over_better(), AUTO)
    yield TargetCheck(
        f"peak memory / lower bound: {case.label}", memory_ratio(measured, "auto"), MEMORY
    )
    if case.label in SIMULATOR:
        against = quotient(case.simulator, measured.step("auto"))
        yield TargetCheck(
            f"simulator / ours: {case.label} *", against, SIMULATOR[case.label], at_least=True
        )


def _faster_in_bf16(by: Mapping[str, Measured]) -> Iterator[TargetCheck]:
    for label, measured in by.items():
        if (half := by.get(f"{label}, bf16")) is not None:
            faster = quotient(measured.step("looped"), half.step("looped"))
            yield TargetCheck(f"fp32 / bf16, looped: {label}", faster, BF16, at_least=True)


def memory_ratio(measured: Measured, executor: str) -> float | NotApplicable:
    """Return the ratio of peak memory to its lower bound, or the reason why it is unknown."""
    found = measured.memory.get(executor)
    if isinstance(found, Mapping):
        return found["peak"] / found["bound"]
    if found is not None:
        return found
    return first_reason(measured.step(executor)) or NotApplicable("not requested")


def checks_of_matrix(found: Iterable[Measured]) -> list[TargetCheck]:
    """Return the checks of the matrix cases."""
    return [
        TargetCheck(f"auto / better executor: {m.case.label}", m.auto_over_better(), AUTO)
        for m in found
    ]


def measured_rates(
    device: torch.device, size: int = 2048, megabytes: int = 256
) -> dict[str, float]:
    """Return the rates of this machine, medians of five calls.

    These are FLOP/s of a large square matrix product in ``fp32`` and ``bf16``, and the bytes per
    second that a large ``copy`` reads and writes. Emulated bfloat16 is measured with matrices a
    quarter as wide.
    """

    def product(dtype: torch.dtype, size: int = size) -> float:
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(a)
        return 2 * size**3 / _median(lambda: torch.mm(a, b, out=out), device)

    source = torch.ones(megabytes << 18, device=device)
    target = torch.zeros_like(source)
    copied = 2 * source.nbytes / _median(lambda: target.copy_(source), device)
    low = product(torch.bfloat16, size if has_fast_bf16(device) else size // 4)
    return {"fp32": product(torch.float32), "bf16": low, "copy": copied}


def _median(function: Callable[[], object], device: torch.device) -> float:
    function()
    return statistics.median(seconds_of(function, device) for _ in range(5))


def flops(case: Case) -> int:
    """Return the FLOPs of all nodes' forward and backward passes: products and convolutions."""
    module = case.network.build()
    with FlopCounterMode(display=False) as counter:
        loss_of(module, case).backward()
    return case.n * counter.get_total_flops()


def moved_bytes(case: Case) -> int:
    """Return the minimum memory traffic of a step, in bytes, if its parts share no cache.

    Per node: the minibatch is read and written by the gather, activations are written and read,
    parameters are read in the forward and backward pass, gradients are written and read, parameters
    (and momentum) are read and written by the update, and parameters by the mixing.
    """
    parameters = 4 * sum(p.numel() for p in case.network.build().parameters())
    gathered = 4 * case.batch_size * math.prod(case.network.shape)
    passes = 2 + 2 + 2 + 2 + (2 if case.momentum else 0)
    return case.n * (2 * gathered + 2 * saved_bytes(case) + passes * parameters)


def roofline(found: Sequence[Measured], rates: Mapping[str, float]) -> Table:
    """Return the attainable step time of each case, and the share that the engine reaches."""
    columns = ("step", "GFLOP", "MB moved", "limited by", "attainable ms")
    columns += ("floor ms", "ours ms", "share reached")
    fp32, bf16, copy = (f"{rates[name] / 1e9:,.3g}" for name in ("fp32", "bf16", "copy"))
    title = f"Measured here: matrix products {fp32} GFLOP/s in fp32 and {bf16} in bf16, copies"
    return Table(columns, tuple(_row(one, rates) for one in found), title=f"{title} {copy} GB/s")


def _row(measured: Measured, rates: Mapping[str, float]) -> tuple:
    case = measured.case
    arithmetic, traffic = flops(case) / rates[case.precision], moved_bytes(case) / rates["copy"]
    limit, bound = max((arithmetic, "arithmetic"), (traffic, "bytes"))
    steps = [measured.step(way) for way in ("auto", "batched", "looped")]
    best = min((step for step in steps if isinstance(step, float)), default=None)
    ours = first_reason(*steps) or NotApplicable("not requested") if best is None else best
    sizes = (flops(case) / 1e9, moved_bytes(case) / 1e6)
    share = quotient(limit, ours)
    return (case.label, *sizes, bound, 1e3 * limit, _ms(measured.floor("auto")), _ms(ours), share)
