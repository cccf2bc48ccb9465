"""Study what predicts convergence: train over many graphs, correlate metrics with outcomes.

``python -m analysis.study --data DIR --processes 2 --out analysis/results/study`` computes learning
rates, predictors and runs of all scenarios (see ``analysis/study/HYPOTHESES.md``), and writes
``report.md``, ``runs.csv.gz`` and ``scatter.png``. Training runs are kept in the folder ``runs``
(``topofl runs`` lists them), predictors in ``predictions.jsonl``. The same command continues an
interrupted one; finished results are not computed again. DIR contains the folders ``mnist`` and
``cifar10-subset``; without ``--data`` only scenarios on the embedded digits are computed.
``--runs analysis/results/study/runs.csv.gz`` writes the report of runs that are there already.

``python -m analysis.study CONFIG.toml``, or ``topofl study CONFIG.toml``, does the same for graphs,
data and methods of your own: a file of ``topofl run`` without ``[topology]`` and with a table
``[study]``, whose keys are graphs, partitions, algorithms, seeds and rates.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from topofl import TopologyError

from ..program import as_installed, parser_of
from .fits import read_runs
from .page import check_page, finding
from .results import write_report
from .runs import Records, compute_for, rates_said, status, tuning_runs
from .scenarios import Source, about, cells, scenarios_of
from .statistics import FEWEST, CellTable, cell_tables, pairs_said

Show = Callable[[str], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study from the command line; returns the exit code."""
    try:
        options = _parser().parse_args(argv)
        study(options, options.runs)
    except (ValueError, TypeError, TopologyError, OSError, ModuleNotFoundError) as error:
        print(as_installed(f"python -m analysis.study: error: {error}"), file=sys.stderr)
        return 2
    return 0


def study(options: argparse.Namespace, runs: Path | None = None) -> None:
    """Compute what is missing, and write the report.

    Parameters
    ----------
    options
        Those of the command line.
    runs
        File of runs of which the report is written, without computing any; None: none.

    Raises
    ------
    ValueError, TypeError, OSError, TopologyError
        If a scenario is unknown, a configuration cannot be read or built, or the page cannot be
        written.
    ModuleNotFoundError
        If a package of the page is not installed.
    """
    if options.processes < 1:
        raise ValueError(f"`--processes` must be at least 1, got {options.processes}")
    if options.minutes < 0:
        raise ValueError(f"`--minutes` must be at least 0, got {options.minutes:g}")
    if options.html is not None:
        check_page(options.html)  # before hours of training
    source, scenarios = _chosen(options)
    _note_few_graphs(scenarios, source)
    if options.dry_run:
        _print_plan(scenarios, source, options)
        return
    show = partial(print, flush=True, file=sys.stderr if options.json else sys.stdout)
    if runs is None:
        tables, rates = _computed(scenarios, source, options, show)
    else:
        tables, rates = read_runs(runs, source), []
        if options.scenarios:
            tables = [table for table in tables if table.scenario in scenarios]
    _report(tables, rates, source, options, show)


def _computed(
    scenarios: Sequence[str], source: Source, options: argparse.Namespace, show: Show
) -> tuple[list[CellTable], list[str]]:
    """Compute what is missing; return complete cells, and sentences on their learning rates."""
    records = Records(_folder(options.out, source), partial(about, source))
    how = {"processes": options.processes, "show": show}
    compute_for(options.minutes, scenarios, records, source, **how)
    show(status(scenarios, records, source))
    tables = cell_tables(records, scenarios, source)
    reported = scenarios if tables else ()
    return tables, [one for name in reported for one in rates_said(source.scenario(name), records)]


def _report(
    tables: Sequence[CellTable],
    rates: Sequence[str],
    source: Source,
    options: argparse.Namespace,
    show: Show,
) -> None:
    """Write the report, and say the learning rates and what predicts the learning phase."""
    where = {"page": options.html, "graphs": options.graphs}
    paths = write_report(tables, source, _folder(options.out, source), rates=rates, **where)
    found = (finding(tables), pairs_said(tables)) if paths else ()
    for line in [*rates, *(f"{said}." for said in found if said)] if paths else ():
        show(line)
    for path in paths:
        show(f"written: {path}")
    if options.json:
        print(json.dumps([{"written": str(path)} for path in paths], indent=2))
    if not paths:
        show("no cell is complete, so there is nothing to report; the same command continues")


def _folder(chosen: Path | None, source: Source) -> Path:
    """Return the folder of results; configurations have folders of their own."""
    if chosen is not None:
        return chosen
    ours = Path("out", "study")
    return ours if source.config is None else ours / source.config.stem


def _note_few_graphs(scenarios: Sequence[str], source: Source) -> None:
    """Say before training that there will be no correlations."""
    for name in scenarios:
        graphs = len(source.scenario(name).graphs)
        if graphs < FEWEST:
            print(
                f"note: {name} has {graphs} graphs; a correlation needs at least {FEWEST}, so none "
                "is computed",
                file=sys.stderr,
            )


def _print_plan(scenarios: Sequence[str], source: Source, options: argparse.Namespace) -> None:
    """Print the number of runs of each scenario."""
    known = {name: source.scenario(name) for name in scenarios}
    runs = {name: (len(cells(one)), len(tuning_runs(one))) for name, one in known.items()}
    if options.json:
        rows = [{"scenario": name, "runs": n, "tuning runs": k} for name, (n, k) in runs.items()]
        print(json.dumps(rows, indent=2))
        return
    for name, (n, k) in runs.items():
        print(f"{name}: {n:,} runs, after {k} tuning runs")


def _chosen(options: argparse.Namespace) -> tuple[Source, list[str]]:
    """Return the source and the names of the scenarios to compute."""
    files = [name for name in options.scenarios if name.endswith(".toml")]
    if files:
        if len(options.scenarios) > 1:
            raise ValueError("one CONFIG.toml must be given alone, got several arguments")
        source = Source(options.data, Path(files[0]))
        return source, list(scenarios_of(source))
    source = Source(options.data)
    known = scenarios_of(source)
    for name in options.scenarios:
        if name not in known:
            names = ", ".join(map(repr, known))
            raise ValueError(f"SCENARIO must be one of {names}, got {name!r}")
    return source, options.scenarios or source.free()


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "study",
        __doc__,
        data=(Path, "folder with mnist and cifar10-subset"),
        processes=(1, "processes"),
        minutes=(1e9, "start no run after this time"),
        dry_run=(False, "print the numbers of runs only"),
        runs=(Path, "file runs.csv.gz of which the report is written, without training"),
        json=(False, "print JSON on stdout"),
        html=(Path, "also write an interactive page to this file"),
        graphs=(Path, "also fit rivals, on graphs that are kept in this folder"),
        out=(Path, "folder (default out/study, or out/study/NAME for NAME.toml)"),
    )
    names = ", ".join(repr(name) for name in scenarios_of(Source()))
    scenarios = f"CONFIG.toml, or {names}; default: all whose data are given"
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=scenarios)
    return parser
