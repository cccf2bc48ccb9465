"""``topofl run`` and ``topofl resume``: training and saving of an experiment in a TOML file."""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from topofl import callbacks, config
from topofl._support.locks import locked
from topofl._support.text import approximate
from topofl.callbacks import Callback, Event
from topofl.cli.as_json import print_rows
from topofl.cli.folders import (
    NEXT,
    check_history,
    check_place,
    claimed,
    command_to_resume,
    is_finished,
    load_finished,
    settle,
    write_config,
)
from topofl.cli.notes import print_notes
from topofl.cli.ranks import announced, check_alone, on_ranks, started
from topofl.cli.record import (
    check_same,
    commit_record,
    is_pending,
    record_in,
    settings_in,
    write_pending,
)
from topofl.cli.report import print_remark, print_report
from topofl.cli.stored import check_options, run_in_store
from topofl.engine import Interrupted
from topofl.engine.checkpoint import OtherRunError, prune, rounds_in
from topofl.estimate import Estimate
from topofl.history import History
from topofl.runs.identity import (
    asked_for,
    digest_of,
    note_of,
    other_settings,
    reset_peak_memory,
)
from topofl.runs.record import RECORD, record_of
from topofl.runs.work import Job

__all__ = ["resume", "run"]


def run(options: argparse.Namespace) -> None:
    """Run the experiment in a configuration file and save it; under torchrun, on all ranks."""
    with started(lambda: config.load(options.config, options.set)) as executes:
        if executes:
            _run(options)


def _run(options: argparse.Namespace) -> None:
    """Run the experiment in this process."""
    check_options(options)
    if options.store is not None:
        check_alone("--store")
    every = [] if options.checkpoint_every is None else [f"saving.every={options.checkpoint_every}"]
    experiment = config.load(options.config, [*options.set, *every])
    print_notes(experiment.notes)
    if options.dry_run:
        need = experiment.estimate(probe=True)
        if options.json:
            print_rows([_as_row(need)])
            return
        print("\n\n".join([str(need), *_total_time(need, experiment.tables)]))
        return
    job = Job.of(experiment.tables, digest_of(experiment.dataset))
    if options.store is not None:
        run_in_store(job, options)
        return
    _run_in_folder(options.out or Path("runs", options.config.stem), experiment, job, options)


def _run_in_folder(
    out: Path, experiment: config.Experiment, job: Job, options: argparse.Namespace
) -> None:
    """Train a run in a folder of its own."""
    if _is_skipped(out, job, options):
        return
    check_place(out, options)
    with claimed(out):
        settle(out)
        if _is_skipped(out, job, options):  # another command has finished it meanwhile
            return
        check_place(out, options)  # again, now that the folder is locked
        place = out / NEXT if is_finished(out) else out
        start = _start_of_cost()
        try:
            history = _train(place, experiment, options)
        except BaseException as error:
            settle(out)
            if isinstance(error, Interrupted):
                error.folder = out / "checkpoints"  # their place after settle
            raise
        seconds = time.perf_counter() - start
        # Without checkpoints of this run, those in `out` belong to the run that it replaces.
        n_checkpoints = 1 if rounds_in(place / "checkpoints") else 0
        with _saved_elsewhere_if_blocked(out, history):
            settle(out)
        _finish(out, experiment, job, history, seconds, n_checkpoints)
        _report_saved(out, history, options)


def _is_skipped(out: Path, job: Job, options: argparse.Namespace) -> bool:
    """Return whether a run is skipped because it is finished; raise if another one is.

    Raises
    ------
    ValueError
        If the folder holds a finished run of other settings, data or versions.
    """
    if not (options.skip_done and is_finished(out)):
        return False
    if is_pending(out):  # the process that saved it was killed, or is about to end
        with locked(out, "--out"):
            settle(out)
    check_same(out, job)
    _report_finished(out, "is finished; nothing was done", options)
    return True


def _report_finished(out: Path, what: str, options: argparse.Namespace) -> None:
    """Print that a run was finished before; with ``--json`` also its scores."""
    if options.json:
        print_report(str(out), load_finished(out), options)
    print_remark(f"{out} {what}", options)


def _start_of_cost() -> float:
    """Return the time in seconds, and begin to measure the peak memory."""
    reset_peak_memory()
    return time.perf_counter()


def _train(place: Path, experiment: config.Experiment, options: argparse.Namespace) -> History:
    """Train in a folder, with the configuration next to every checkpoint."""

    def write_again(event: Event) -> None:
        is_removed = not (place / "config.toml").is_file()  # with the folder, during training
        if event.kind == "checkpoint" and is_removed:
            write_config(place, experiment.tables)

    (place / "checkpoints").mkdir(parents=True, exist_ok=True)
    (place / RECORD).unlink(missing_ok=True)  # of a run whose history was removed
    write_config(place, experiment.tables)
    how = {"progress": options.progress, "folder": place / "checkpoints"}
    announced(place / "checkpoints", resume=False)
    return on_ranks(experiment).run(**how, callbacks=[write_again, *_log_callbacks(options)])


@contextmanager
def _saved_elsewhere_if_blocked(out: Path, history: History) -> Iterator[None]:
    """Save a history elsewhere and raise ``OSError`` if the body cannot make room for it."""
    try:
        yield
    except Exception as error:
        elsewhere = history.save(out / "history-not-in-place")
        what = (
            f"{error}; the run that was to replace the one in {out} is finished, "
            f"and its history is saved in {elsewhere}"
        )
        command = command_to_resume(out, started_here=True)
        raise OSError(f"{what}; once nothing is in its way, {command} puts it in place") from error


def _as_row(need: Estimate) -> dict[str, Any]:
    """Return an estimate for JSON: its fields, and the memory of the whole run in bytes."""
    return asdict(need) | {"total": need.total, "added": need.added, "fits": need.fits}


def _total_time(need: Estimate, tables: config.Tables) -> list[str]:
    """Return the estimated time of all rounds if a probe measured times."""
    if need.seconds_per_round is None or need.seconds_per_evaluation is None:
        return []
    rounds = tables["run"]["rounds"]
    every = tables["evaluation"]["every"]
    evaluations = 1 + -(-rounds // every)  # before the first, and after the last
    seconds = rounds * need.seconds_per_round + evaluations * need.seconds_per_evaluation
    return [f"in all {approximate(seconds)} for {rounds} rounds and {evaluations} evaluations"]


def resume(options: argparse.Namespace) -> None:
    """Continue a stopped run, or train more rounds; under torchrun, on all ranks."""
    with started(lambda: config.load(options.folder / "config.toml", options.set)) as executes:
        if executes:
            _resume(options)


def _resume(options: argparse.Namespace) -> None:
    """Continue a run in this process."""
    out = options.folder
    if not (out / "config.toml").is_file():
        raise ValueError(
            f"{out} holds no run to continue: config.toml is missing; pass a folder of topofl run"
        )
    with locked(out, "DIR"):
        settle(out)
        _continue(out, options)


def _changes_more_than_rounds(settings: Sequence[str]) -> bool:
    """Return whether one of ``--set`` names another setting than the number of rounds."""
    return any(text.partition("=")[0].strip() != "run.rounds" for text in settings)


def _only_more_rounds(out: Path, options: argparse.Namespace) -> ValueError:
    """Return the error for other settings of a finished run."""
    return ValueError(
        f"{out} is finished, so only `--set run.rounds=N` is allowed, got {options.set}"
    )


def _continue(out: Path, options: argparse.Namespace) -> None:
    """Train the remaining rounds of a run."""
    try:
        experiment = config.load(out / "config.toml", options.set)
    except (ValueError, TypeError) as error:
        if is_finished(out) and _changes_more_than_rounds(options.set):
            raise _only_more_rounds(out, options) from error
        raise
    print_notes(experiment.notes)
    done = History.load(out).n_rounds if is_finished(out) else 0
    if done == experiment.options["rounds"]:
        if experiment.tables != config.load(out / "config.toml").tables:
            raise _only_more_rounds(out, options)
        what = f"is finished: all {done} rounds are done; train more with --set run.rounds=N"
        _report_finished(out, what, options)
        return
    _check_checkpoints(out, done)
    check_history(out)
    earlier = record_in(out)
    tables = asked_for(experiment.tables, earlier if done else None)
    job = Job.of(tables, digest_of(experiment.dataset))
    before = settings_in(out)

    def write_changes(event: Event) -> None:
        is_removed = not (out / "config.toml").is_file()
        if event.kind == "start" or (event.kind == "checkpoint" and is_removed):
            write_config(out, experiment.tables)

    how = {"progress": options.progress, "folder": out / "checkpoints", "resume": True}
    announced(out / "checkpoints", resume=True)
    start = _start_of_cost()
    try:
        with _naming_settings(out, before, experiment.tables):
            history = on_ranks(experiment).run(
                **how, callbacks=[write_changes, *_log_callbacks(options)]
            )
    except Interrupted as stopped:
        stopped.folder = out / "checkpoints"  # as the user named it
        raise
    _finish(out, experiment, job, history, time.perf_counter() - start)
    _report_saved(out, history, options)


def _check_checkpoints(out: Path, done: int) -> None:
    """Say that a run has no checkpoint, or raise ``ValueError`` if `done` rounds of it are lost."""
    saved = rounds_in(out / "checkpoints")
    if done and not saved:
        raise ValueError(
            f"{out} cannot be continued: it is finished, and its checkpoints were removed; run it "
            "again elsewhere"
        )
    if not saved:
        print_notes([f"{out} has no checkpoint yet; it starts from the beginning"])


@contextmanager
def _naming_settings(out: Path, before: config.Tables, now: config.Tables) -> Iterator[None]:
    """Name changed settings as ``--set`` does, if the checkpoints are those of other settings."""
    try:
        yield
    except OtherRunError as error:
        rounds = now["run"]["rounds"]
        changed = other_settings({**before, "run": {**before["run"], "rounds": rounds}}, now)
        if not changed:
            raise
        raise ValueError(
            f"{out} must be continued with the settings of its run, but {'; '.join(changed)}; "
            "leave them as they were, or start another run: topofl run --out"
        ) from error


def _log_callbacks(options: argparse.Namespace) -> list[Callback]:
    """Return the callbacks of ``--log`` and ``--tensorboard``."""
    places = {callbacks.jsonl: options.log, callbacks.tensorboard: options.tensorboard}
    return [make(place) for make, place in places.items() if place is not None]


def _finish(
    out: Path,
    experiment: config.Experiment,
    job: Job,
    history: History,
    seconds: float,
    n_checkpoints: int = 1,
) -> None:
    """Save a history and its record, and keep the last `n_checkpoints` checkpoints.

    The configuration in `job` is what the run was asked for, that of the record what it chose.
    """
    tables = experiment.tables_of(history)
    asked = {name: job.tables["compute"][name] for name in history.meta["asked"]}
    note = {**note_of(history, seconds, job.digest), "asked": asked}
    write_pending(out, record_of(job.key, history, tables, note))
    history.save(out / "history")
    write_config(out, tables)
    prune(out / "checkpoints", n_checkpoints)
    commit_record(out)


def _report_saved(out: Path, history: History, options: argparse.Namespace) -> None:
    print_report(str(out), history, options)
    print_remark(f"saved in {out}", options)
