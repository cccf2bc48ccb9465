"""``topofl run --store``: one run that is found in a store, or trained into it."""

import argparse

from topofl.cli.report import print_remark, print_report
from topofl.cli.sweeping import SweepFailed
from topofl.runs import RunStore, SweepInterrupted
from topofl.runs.execute import InProcess
from topofl.runs.plan import Point
from topofl.runs.sweep import perform_points
from topofl.runs.work import Job

__all__ = ["check_options", "run_in_store"]

_WITHOUT = ("out", "force", "log", "tensorboard")


def check_options(options: argparse.Namespace) -> None:
    """Raise if ``--store`` is given with an option for runs in folders of their own."""
    given = [name for name in _WITHOUT if getattr(options, name)]
    if options.store is not None and given:
        raise ValueError(f"`--store` must be given without `--{given[0]}`; leave one out")


def run_in_store(job: Job, options: argparse.Namespace) -> None:
    """Train a run into a store unless it is there, and print its scores.

    Raises
    ------
    SweepFailed
        If the run failed; its error is kept in the store.
    OSError
        If the store cannot be written to.
    """
    store = RunStore(options.store)
    is_known = store.find(job.key) is not None
    progress = "auto" if options.progress is None else options.progress
    try:
        found = perform_points([Point({}, None, job)], store, InProcess(), 1, True, progress)
    except SweepInterrupted:
        raise KeyboardInterrupt("interrupted; the same command continues the run") from None
    for failure in found.failures:
        raise SweepFailed(
            f"the run failed: {failure.error}; see topofl runs {store.root} --failed --traceback"
        )
    for run in found.runs:
        place = str(run.folder)
        print_report(place, run.history, options)
        what = f"found in {place}; nothing was done" if is_known else f"saved in {place}"
        print_remark(what, options)
