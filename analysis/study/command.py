"""Study what predicts convergence: train over many graphs, correlate metrics with outcomes.

``python -m analysis.study --data DIR --processes 2 --out analysis/results/study`` computes learning
rates, predictors and runs of all scenarios (see ``analysis/study/HYPOTHESES.md``), keeps each
result in ``records.jsonl``, and writes ``report.md`` and ``scatter.png``. The same command
continues an interrupted one; finished results are not computed again. DIR contains the folder
``mnist``; without ``--data`` only scenarios on the embedded digits are computed.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .graphs import GRAPHS
from .report import write_report
from .run import Records, compute
from .scenarios import SCENARIOS, cells

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study from the command line; returns the exit code."""
    options = _parser().parse_args(argv)
    scenarios = options.scenarios or [
        name for name in SCENARIOS if options.data is not None or name.startswith("digits")
    ]
    if options.dry_run:
        for name in scenarios:
            print(f"{name}: {len(cells(SCENARIOS[name], tuple(GRAPHS))):,} runs")
        return 0
    end = time.monotonic() + 60 * options.minutes
    try:
        records = compute(
            scenarios,
            list(GRAPHS),
            options.out / "records.jsonl",
            root=options.data,
            processes=options.processes,
            more=lambda: time.monotonic() < end,
        )
    except (ValueError, OSError) as error:
        print(f"python -m analysis.study: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        records = Records(options.out / "records.jsonl")
    for path in write_report(records, scenarios, options.out):
        print(f"written: {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis.study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scenarios",
        nargs="*",
        choices=[*SCENARIOS, []],
        metavar="SCENARIO",
        help=f"one of {', '.join(SCENARIOS)}; default: all whose data are given",
    )
    parser.add_argument("--data", type=Path, help="folder with the folder mnist")
    parser.add_argument("--processes", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no job after this time")
    parser.add_argument("--dry-run", action="store_true", help="print the numbers of runs only")
    parser.add_argument(
        "--out", type=Path, default=Path("out", "study"), help="folder (default out/study)"
    )
    return parser
