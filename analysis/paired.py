"""What comparisons of graphs share: paired differences with intervals, and verdicts.

Studies whose scenarios are declared in ``studies.toml`` also share their command line here.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from topofl import Table
from topofl.summary.verdicts import mean_interval, with_interval
from topofl.toolkit import save_picture

from .program import as_installed, parser_of, write
from .study.runs import Numbers, Records, compute_for, predicted_cell, rate_of, tuning_runs
from .study.runs import runs as runs_in
from .study.scenarios import Source, about, cells, scenarios_of

OUTCOMES = ("learning phase", "final", "worst node")

COLORS = {"better": "#0072B2", "worse": "#D55E00", "undecided": "#777777"}
"""Colors of verdicts, from the colorblind-safe palette of Okabe and Ito."""


Difference = tuple[float, float, float, str]
"""The mean of paired differences, the ends of its 95 % t-interval, and the verdict."""


def difference(values: Sequence[float] | np.ndarray) -> Difference:
    """Return the mean of at least two differences with its 95 % t-interval, and where that lies.

    It is "better" above 0, "worse" below, else "undecided".
    """
    interval = mean_interval(values)
    if interval is None:
        raise ValueError("`values` must have at least 2 differences, got 1")
    low, high = interval
    verdict = "better" if low > 0 else "worse" if high < 0 else "undecided"
    return float(np.mean(values)), low, high, verdict


def difference_said(apart: Difference) -> str:
    """Return a difference of accuracies in percentage points with its interval and verdict."""
    mean, low, high, verdict = apart
    return f"{with_interval(100 * mean, (100 * low, 100 * high), '+.2f', ends=True)} {verdict}"


Rows = Mapping[str, Sequence[tuple[str, Mapping[str, Difference]]]]
"""Setting -> (label, outcome -> difference) of each comparison."""


def draw_differences(settings: Rows, path: Path, label: str, height: float = 3.4) -> Path:
    """Draw differences with intervals: one row per setting, one column per outcome."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, height * len(settings)), layout="constrained")
    axes = figure.subplots(len(settings), len(OUTCOMES), squeeze=False)
    for row, (setting, rows) in zip(axes, settings.items(), strict=True):
        for ax, outcome in zip(row, OUTCOMES, strict=True):
            for place, (_, apart) in enumerate(rows):
                mean, low, high, verdict = apart[outcome]
                ax.plot([100 * low, 100 * high], [place, place], color=COLORS[verdict])
                ax.plot(100 * mean, place, "o", color=COLORS[verdict])
            ax.axvline(0, color="black", linewidth=0.8)
            ax.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
            ax.tick_params(labelleft=ax is row[0])
            ax.set_ylim(len(rows) - 0.5, -0.5)
            ax.grid(axis="x", alpha=0.3)
            ax.set_title(f"{setting}, {outcome}", fontsize=10)
            ax.set_xlabel(f"{label}, percentage points", fontsize=8)
    save_picture(figure, path, dpi=100)
    return path


@dataclass(frozen=True)
class Verdict:
    """What became of a hypothesis.

    Parameters
    ----------
    name, claim
        Its number, and what it claims.
    holds
        None: runs are missing, on which it depends.
    found
        The numbers that decide.
    """

    name: str
    claim: str
    holds: bool | None
    found: str

    @property
    def state(self) -> str:
        """``"HOLDS"``, ``"FAILS"`` or ``"OPEN"``."""
        return {True: "HOLDS", False: "FAILS", None: "OPEN"}[self.holds]


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return one row per hypothesis."""
    rows = [(one.name, one.claim, one.state, one.found) for one in verdicts]
    return Table(("hypothesis", "claim", "verdict", "found"), tuple(rows))


def all_hold(claims: Sequence[bool | None]) -> bool | None:
    """Return whether all claims hold; None if that depends on one that is not decided."""
    return False if False in claims else None if None in claims else True


def at_least(count: int, claims: Sequence[bool | None]) -> bool | None:
    """Return whether at least `count` claims hold; None if that depends on undecided ones."""
    if claims.count(True) >= count:
        return True
    return None if claims.count(True) + claims.count(None) >= count else False


KNOWN = "outcomes.jsonl.gz"
"""File with outcomes of all runs of a study and numbers of its graphs, small enough to keep.

Each line is a JSON list: the hash of everything that determines the result, and the result.
"""


def load_known(path: Path, records: Records) -> None:
    """Add what a file of outcomes has to records; results of other settings have other hashes.

    Raises
    ------
    OSError
        If the file exists and cannot be read.
    ValueError
        If it is not such a file.
    """
    if not path.exists():
        return
    try:
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        for kind, key, found in lines:
            {"run": records.ran, "graph": records.predicted}[kind].setdefault(key, found)
    except (gzip.BadGzipFile, EOFError, ValueError, KeyError) as error:
        raise ValueError(f"`known` must be a file that a study wrote, got {path}") from error


def save_known(path: Path, records: Records, source: Source) -> None:
    """Write the outcomes and numbers that are known of all scenarios, if there are any."""
    graphs, runs = {}, {}
    for scenario in map(source.scenario, source.free()):
        every = cells(scenario)
        graphs |= {records.key(one): records.prediction(one) for one in map(predicted_cell, every)}
        tried = [*tuning_runs(scenario), *runs_in(scenario, records)]
        runs |= {records.key(*one): records.outcomes(*one) for one in tried}
    found = [("graph", *one) for one in graphs.items()] + [("run", *one) for one in runs.items()]
    lines = [json.dumps(one) for one in sorted(found) if one[2] is not None]
    if lines:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def runs_of(records: Records, source: Source, names: Sequence[str]) -> pd.DataFrame:
    """Return one row per known run of scenarios of one partition and one method.

    It has the scenario, the graph and its family, the seed, the learning rate and whether it is the
    smallest or the largest that was tried, the numbers of the graph, and accuracies, which are 0
    for a run that diverged: the outcomes, and those at three stages.
    """
    rows = []
    for scenario in map(source.scenario, names):
        for cell in cells(scenario):
            if (lr := rate_of(scenario, cell, records)) is None:
                continue
            before, after = records.prediction(predicted_cell(cell)), records.outcomes(cell, lr)
            if before is None or after is None or "missing" in {**before, **after}:
                continue
            ends = {min(scenario.rates): "smallest", max(scenario.rates): "largest"}
            family = scenario.graphs[cell.graph].family
            row = {"setting": scenario.name, "family": family, "graph": cell.graph}
            row |= {"seed": cell.seed, "lr": lr, "end": ends.get(lr, "")}
            row |= before | {name: after.get(name, 0.0) for name in OUTCOMES}
            rows.append(row | {OUTCOMES[0]: learning_phase(after)} | accuracy_at_stages(after))
    return pd.DataFrame(rows)


STAGES = ("first evaluation", "half of the rounds", "last evaluation")
"""Stages of a run at which its accuracy is kept; the first is that of trained models."""


def accuracy_at_stages(outcomes: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean accuracy at each of :data:`STAGES`, 0 for a run that diverged."""
    if "curve" not in outcomes:
        return dict.fromkeys(STAGES, 0.0)
    rounds = np.array(outcomes["rounds"])
    first, half = np.flatnonzero(rounds > 0)[0], np.flatnonzero(rounds <= rounds[-1] / 2)[-1]
    return dict(zip(STAGES, (outcomes["curve"][k] for k in (first, half, -1)), strict=True))


def learning_phase(outcomes: Mapping[str, Any]) -> float:
    """Return the mean accuracy over the first half of the rounds, without the untrained model.

    `outcomes` are those of a run in the study, whose own mean includes the untrained model. The
    result is 0 for a run that diverged.
    """
    if "curve" not in outcomes:
        return 0.0
    rounds = np.array(outcomes["rounds"])
    return float(np.array(outcomes["curve"])[(rounds > 0) & (rounds <= rounds[-1] / 2)].mean())


def run_declared(
    name: str,
    doc: str | None,
    numbers: Numbers,
    report: Callable[[pd.DataFrame, Source, Path], Sequence[Verdict]],
    argv: Sequence[str] | None = None,
) -> int:
    """Run a study that is declared in ``studies.toml`` from the command line.

    Parameters
    ----------
    name, doc
        Name of the study and of its module, and the docstring of that.
    numbers
        What is known about a graph before training.
    report
        ``report(runs, source, out)`` writes what is known, and returns the verdicts.
    argv
        Arguments; None: those of the process.

    Returns
    -------
    int
        The exit code.
    """
    options = _parser(name, doc).parse_args(argv)
    source = Source(options.data, study=name, preset=options.preset)
    try:
        check_paths(options.data, options.known)
        names = options.scenarios or source.free()
        if left := source.left_out():
            print(f"{left} scenarios are left out, since --data is not given", file=sys.stderr)
        runs, failures = _computed(options, source, names, numbers)
        if runs.empty:
            print("no run is known, so there is nothing to report; the same command continues")
            return 0
        write(options.out)
        runs.to_csv(options.out / "runs.csv", index=False)
        verdicts = report(runs, source, options.out)
    except (ValueError, OSError) as error:
        print(as_installed(f"python -m analysis.{name}: error: {error}"), file=sys.stderr)
        return 2
    for one in verdicts:
        print(f"{one.name} {one.state}: {one.found}")
    print(*[failures] * bool(failures), f"written: {options.out}", sep="\n")
    return 0


def check_paths(data: Path | None, known: Path | None = None) -> None:
    """Raise ``ValueError`` if a folder or file that was given does not exist."""
    if data is not None and not data.is_dir():
        raise ValueError(
            f"`--data` must be a folder with mnist and cifar10-subset, got {data}, which does not "
            "exist"
        )
    if known is not None and not known.is_file():
        raise ValueError(f"`--known` must be {KNOWN} of a study, got {known}, which does not exist")


def _computed(
    options: argparse.Namespace, source: Source, names: Sequence[str], numbers: Numbers
) -> tuple[pd.DataFrame, str]:
    """Compute what is missing; return the known runs of all scenarios, and how many failed."""
    records = Records(options.out, partial(about, source))
    for path in filter(None, [options.known, options.out / KNOWN]):
        load_known(path, records)
    show = partial(print, flush=True)
    how = {"processes": options.processes, "show": show, "numbers": numbers}
    compute_for(options.minutes, names, records, source, **how)
    save_known(options.out / KNOWN, records, source)
    return runs_of(records, source, source.free()), records.failures


def _parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    presets = ("smoke", "quick", "full")
    parser = parser_of(
        name,
        doc,
        preset=("full", "smoke: one tiny scenario; quick: three seeds; full: all", presets),
        data=(Path, "folder with mnist and cifar10-subset"),
        processes=(1, "processes"),
        minutes=(1e9, "start no run after this time"),
        known=(Path, f"{KNOWN} of another folder, whose runs are not repeated"),
        out=(Path("out", name), "folder"),
    )
    known = scenarios_of(Source(study=name))
    parser.add_argument(
        "scenarios",
        nargs="*",
        choices=[*known, []],
        metavar="SCENARIO",
        help=f"of {', '.join(known)}; default: all of the preset whose data are given",
    )
    return parser
