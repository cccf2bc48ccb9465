"""The command line of the comparison."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import __doc__ as protocol
from .report import write_report
from .runs import compute
from .settings import SEEDS, SETTINGS

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison from the command line; returns the exit code."""
    options = _parser().parse_args(argv)
    known = [name for name in SETTINGS if options.data is not None or name == "digits"]
    seeds = range(options.seeds[0], options.seeds[1] + 1)
    end = time.monotonic() + 60 * options.minutes
    try:
        records = compute(
            options.settings or known,
            options.out / "records.jsonl",
            root=options.data,
            seeds=seeds,
            more=lambda: time.monotonic() < end,
        )
    except (ValueError, OSError) as error:
        print(f"python -m analysis.designed_topologies: error: {error}", file=sys.stderr)
        return 2
    for path in write_report(records, options.out, seeds):
        print(f"written: {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis.designed_topologies",
        description=protocol,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "settings",
        nargs="*",
        choices=[*SETTINGS, []],
        metavar="SETTING",
        help=f"one of {', '.join(SETTINGS)}; default: all whose data are given",
    )
    parser.add_argument("--data", type=Path, help="folder of the data")
    parser.add_argument(
        "--seeds",
        type=int,
        nargs=2,
        default=(SEEDS[0], SEEDS[-1]),
        metavar=("FIRST", "LAST"),
        help=f"seeds (default {SEEDS[0]} {SEEDS[-1]})",
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run after this time")
    parser.add_argument(
        "--out", type=Path, default=Path("out", "designed"), help="folder (default out/designed)"
    )
    return parser
