"""Time the engine against its floor, a naive loop over nodes, and its targets.

``python -m analysis.benchmark training`` times, in one process and in turns, training steps of
logistic regression and GN-LeNet on data with the shapes of MNIST and CIFAR-10:

* ours: one round of :func:`topofl.run` with each executor, including everything except evaluation;
* the floor: index gather into a reused buffer, forward and backward pass, update and mixing, on the
  same data and without the engine, in the fastest known implementation;
* the naive loop of ``tests/naive.py``: one ``nn.Module`` per node (in a source tree only).

``matrix`` does so for all networks, numbers of nodes, executors and precisions that fit into time
and memory; ``evaluation`` times the evaluation of all nodes; ``graphs`` times graphs of 100,000
nodes.

Ratios of times that were taken in one run carry over to other machines, times do not. Columns and
rows with a * compare with times of the D-Cliques authors' simulator on another machine, for
orientation only. ``--simulator DIR`` times its training steps in the same run, if DIR has its
sources.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from topofl.engine.options import check_device

from ..program import as_installed
from .cases import Case
from .measurements import QUICK, REPORTS, cases_of, quick_cases
from .report.page import facts_of
from .steps.naive_loop import NAIVE_NODES
from .steps.simulator import check_sources
from .timing import Plan


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line; returns the exit code."""
    options = _parser().parse_args(argv)
    cases = quick_cases(options.what) if options.quick else cases_of(options.what)
    chosen = [case for case in cases if options.only in case.label]
    try:
        _check(options, cases, chosen)
    except (ValueError, OSError) as error:
        print(as_installed(f"python -m analysis.benchmark: error: {error}"), file=sys.stderr)
        return 2
    plan = _plan(options)
    facts = facts_of(plan.device) | {
        "options": {key: str(value) for key, value in vars(options).items()}
    }
    report = REPORTS[options.what](plan, chosen, quick=options.quick)
    if options.quick:
        report = replace(report, notes=[*report.notes, QUICK])
    print("\n\n".join([*map(str, report.tables), *report.notes]))
    if options.out:
        for path in report.save(options.out, facts):
            print(f"written: {path}", file=sys.stderr)
    return 0


def _check(options: argparse.Namespace, cases: Sequence[Case], chosen: Sequence[Case]) -> None:
    """Refuse options that cannot work before anything is timed, and create the output folder."""
    try:
        check_device(options.device)
    except ValueError as error:
        raise ValueError(f"--device: {error}") from error
    if options.quick and options.what == "graphs":
        raise ValueError(
            "--quick must be left out for graphs, which have no tiny sizes; they take some minutes"
        )
    if cases and not chosen:
        raise ValueError(
            f"--only must be in a label, got {options.only!r}; labels: "
            f"{', '.join(case.label for case in cases)}"
        )
    if options.simulator is not None:
        check_sources(options.simulator)
    try:
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"--out: {error}") from error


def _plan(options: argparse.Namespace) -> Plan:
    return Plan(
        torch.device(options.device),
        rounds=2 if options.quick else options.rounds,
        repeats=1 if options.quick else options.repeats,
        budget=options.budget,
        naive_nodes=_naive_nodes(options),
        memory=not (options.no_memory or options.quick),
        force_bf16=options.force_bf16,
        simulator=options.simulator,
    )


def _naive_nodes(options: argparse.Namespace) -> int | None:
    if options.no_naive or options.quick:
        return 0 if options.no_naive else 4
    return (
        NAIVE_NODES
        if options.naive_nodes is None and options.what == "matrix"
        else options.naive_nodes
    )


def _positive(text: str) -> int:
    """Return an integer of at least 1 given on the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=as_installed("python -m analysis.benchmark"),
        description=as_installed(__doc__),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, settings in _OPTIONS.items():
        parser.add_argument(name, **settings)
    return parser


_OPTIONS: dict[str, dict[str, Any]] = {
    "what": {
        "nargs": "?",
        "choices": list(REPORTS),
        "default": "training",
        "help": "default: training",
    },
    "--device": {"default": "cpu", "help": "of the engine and the floors (default: cpu)"},
    "--quick": {"action": "store_true", "help": "tiny sizes, a test; the numbers mean nothing"},
    "--only": {
        "default": "",
        "metavar": "TEXT",
        "help": "only cases with this in their label, such as 'GN-LeNet, 100'",
    },
    "--rounds": {"type": _positive, "default": 12, "help": "steps per turn (default: 12)"},
    "--repeats": {"type": _positive, "default": 5, "help": "turns (default: 5)"},
    "--budget": {
        "type": float,
        "default": 120,
        "help": "seconds that all steps of one cell may take (default: 120)",
    },
    "--naive-nodes": {
        "type": _positive,
        "help": f"nodes of the naive loop (default: all, {NAIVE_NODES} in the matrix)",
    },
    "--no-naive": {"action": "store_true", "help": "omit the naive loop"},
    "--simulator": {
        "type": Path,
        "metavar": "DIR",
        "help": "the D-Cliques authors' simulator, for training",
    },
    "--no-memory": {
        "action": "store_true",
        "help": "omit peak memory, which takes one process per cell",
    },
    "--force-bf16": {
        "action": "store_true",
        "help": "time bf16 also on processors that emulate it",
    },
    "--out": {
        "type": Path,
        "metavar": "DIR",
        "help": "write tables, numbers and a figure there, such as cpu-training.md",
    },
}
