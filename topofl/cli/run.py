"""``topofl run`` and ``topofl resume``: training and saving of an experiment in a TOML file.

Under torchrun, both run in several processes: rank 0 decides, and the others follow.
"""

import json
import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from topofl import callbacks, config
from topofl._support.files import holds_only
from topofl._support.locks import LOCK, locked
from topofl._support.processes import process_count, process_number
from topofl._support.text import approximate, node_name
from topofl.callbacks import Event
from topofl.cli.commands import check_alone
from topofl.cli.compare import check_column, table_of_runs
from topofl.cli.output import CommandFailed, json_rows, print_notes, print_remark, print_rows
from topofl.config.toml import as_table
from topofl.engine import Interrupted, RankError
from topofl.engine.checkpoint import OURS as CHECKPOINTS
from topofl.engine.checkpoint import OtherRunError, rounds_in
from topofl.engine.joining import joined_store
from topofl.estimate import Estimate
from topofl.history import History
from topofl.runs import RunStore, SweepInterrupted
from topofl.runs import folder as folders
from topofl.runs.identity import (
    asked_for,
    differences,
    digest_of,
    note_of,
    other_settings,
    reset_peak_memory,
)
from topofl.runs.plan import Point
from topofl.runs.record import RECORD, record_of
from topofl.runs.sweep import perform_points
from topofl.runs.work import Job

_PATIENCE = 0.1
"""Seconds between two looks at what rank 0 decided."""

_SHOWN = 6
"""Largest number of differences that an error names."""

_LONGEST_WAIT = 10.0
"""Seconds that rank 0 waits for ranks to read that there is nothing to do."""


def run(options: Namespace) -> None:
    """Run the experiment in a configuration file and save it; under torchrun, on all ranks."""
    _on_all_ranks(_run, options.config, options)


def _run(options: Namespace) -> None:
    """Run the experiment in this process."""
    if options.store is not None:
        check_alone(options, "store", "out", "force", "log", "tensorboard")
        if process_count() > 1:
            raise ValueError(
                "`--store` must be given without torchrun, which started "
                f"{process_count()} processes; use --out, or start one process"
            )
    every = [] if options.checkpoint_every is None else [f"saving.every={options.checkpoint_every}"]
    experiment = config.load(options.config, [*options.set, *every])
    print_notes(experiment.notes)
    if options.dry_run:
        need = experiment.estimate(probe=True)
        if options.json:
            more = {name: getattr(need, name) for name in ("total", "added", "fits")}
            print_rows([asdict(need) | more])
        else:
            print("\n\n".join([str(need), *_total_time(need, experiment.tables)]))
        return
    job = Job.of(experiment.tables, digest_of(experiment.dataset))
    if options.store is not None:
        _run_in_store(RunStore(options.store), job, options)
    else:
        _run_in_folder(options.out or Path("runs", options.config.stem), experiment, job, options)


def _total_time(need: Estimate, tables: config.Tables) -> list[str]:
    """Return the estimated time of all rounds if a probe measured times."""
    if need.seconds_per_round is None or need.seconds_per_evaluation is None:
        return []
    rounds = tables["run"]["rounds"]
    evaluations = 1 + -(-rounds // tables["evaluation"]["every"])  # before the first, and the last
    seconds = rounds * need.seconds_per_round + evaluations * need.seconds_per_evaluation
    return [f"in all {approximate(seconds)} for {rounds} rounds and {evaluations} evaluations"]


def _run_in_store(store: RunStore, job: Job, options: Namespace) -> None:
    """Train a run into a store unless it is there, and print its scores.

    Raises
    ------
    CommandFailed
        If the run failed; its error is kept in the store.
    OSError
        If the store cannot be written to.
    """
    is_known = store.find(job.key) is not None
    progress = "auto" if options.progress is None else options.progress
    try:
        found = perform_points([Point({}, None, job)], store, None, 1, True, progress)
    except SweepInterrupted:
        raise KeyboardInterrupt("interrupted; the same command continues the run") from None
    for failure in found.failures:
        raise CommandFailed(
            f"the run failed: {failure.error}; see topofl runs {store.root} --failed --traceback"
        )
    for one in found.runs:
        what = f"found in {one.folder}; nothing was done" if is_known else f"saved in {one.folder}"
        print_report(str(one.folder), one.history, options, what)


def print_report(name: str, history: History, options: Namespace, remark: str) -> None:
    """Print the scores of a finished run, a note if nodes diverged, and what was done."""
    check_column({name: history}, history.primary, is_json=options.json)
    table = table_of_runs({name: history}, 0.8, history.primary)
    print_rows(json_rows(table)) if options.json else print(table)
    if diverged := history.meta["diverged"]:
        first = diverged[0]
        node = node_name(history.meta.get("nodes", ()), first["node"])
        print_notes(
            [f"{len(diverged)} nodes diverged, first node {node} in round {first['round']}"]
        )
    print_remark(remark, options.json)


def _report_finished(out: Path, what: str, options: Namespace) -> None:
    """Print that a run was finished before; with ``--json`` also its scores."""
    if options.json:
        print_report(str(out), folders.load_finished(out), options, f"{out} {what}")
    else:
        print_remark(f"{out} {what}", options.json)


def _run_in_folder(out: Path, experiment: config.Experiment, job: Job, options: Namespace) -> None:
    """Train a run in a folder of its own."""
    if _is_skipped(out, job, options):
        return
    _check_place(out, options)
    with folders.claimed(out):
        folders.settle(out)
        if _is_skipped(out, job, options):  # another command has finished it meanwhile
            return
        _check_place(out, options)  # again, now that the folder is locked
        place = out / folders.NEXT if folders.is_finished(out) else out
        try:
            (place / "checkpoints").mkdir(parents=True, exist_ok=True)
            (place / RECORD).unlink(missing_ok=True)  # of a run whose history was removed
            folders.write_config(place, experiment.tables)
            history, seconds = _train(place, experiment, options)
        except BaseException as error:
            folders.settle(out)
            if isinstance(error, Interrupted):
                error.folder = out / "checkpoints"  # their place after settle
            raise
        # Without checkpoints of this run, those in `out` belong to the run that it replaces.
        n_checkpoints = 1 if rounds_in(place / "checkpoints") else 0
        try:
            folders.settle(out)
        except Exception as error:
            elsewhere = history.save(out / "history-not-in-place")
            command = folders.command_to_resume(out, started_here=True)
            raise OSError(
                f"{error}; the run that was to replace the one in {out} is finished, and its "
                f"history is saved in {elsewhere}; once nothing is in its way, {command} puts it "
                "in place"
            ) from error
        _finish(out, experiment, job, history, seconds, n_checkpoints)
        print_report(str(out), history, options, f"saved in {out}")


def _is_skipped(out: Path, job: Job, options: Namespace) -> bool:
    """Return whether a run is skipped because it is finished; raise if another one is.

    Raises
    ------
    ValueError
        If the folder holds a finished run of other settings, data or versions.
    """
    if not (options.skip_done and folders.is_finished(out)):
        return False
    # the process that saved it was killed, or is about to end
    if (out / folders.PARTIAL_RECORD).is_file():
        with locked(out, "--out"):
            folders.settle(out)
    _check_same(out, job)
    _report_finished(out, "is finished; nothing was done", options)
    return True


def _check_place(out: Path, options: Namespace) -> None:
    """Raise if a folder for results cannot be used, or holds anything that would be lost."""
    if unfinished := folders.unfinished_run(out):
        raise ValueError(f"{unfinished}, or choose another folder with --out")
    if (out / "config.toml").exists() and (out / "config.toml").samefile(options.config):
        raise ValueError(
            f"{out} holds {options.config} itself, which would be overwritten; choose another "
            "folder with --out"
        )
    if out.is_dir() and not folders.is_finished(out) and not _holds_only_a_start(out):
        raise ValueError(
            f"{out} holds files other than a run; choose a new or empty folder with --out"
        )
    if os.path.lexists(out / folders.NEXT) and not holds_only(out / folders.NEXT, folders.IN_NEXT):
        raise ValueError(
            f"{out / folders.NEXT} must be free, got files that topofl did not write; move them "
            "elsewhere, or choose another folder with --out"
        )
    if folders.is_finished(out) and not options.force:
        raise ValueError(
            f"{out} holds a finished run; choose another folder with --out, replace it with "
            "--force, or skip it with --skip-done"
        )
    if folders.is_finished(out):
        folders.check_movable(out)
    folders.check_history(out)
    folders.record_in(out)  # raises for a file of this name that would be lost
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise PermissionError(
            f"`--out` must be a folder that can be written to, {there} is not, got {out}; name "
            "another"
        )


def _holds_only_a_start(out: Path) -> bool:
    """Return whether a folder is empty or holds only a run without checkpoints."""
    found = {path.name for path in out.iterdir()}
    partial = {folders.PARTIAL, folders.PARTIAL_RECORD, folders.NEXT, LOCK}
    if found - partial - {"config.toml", "checkpoints", RECORD}:
        return False
    if "checkpoints" in found:
        return holds_only((out / "checkpoints").resolve(), CHECKPOINTS)
    return not found & {"config.toml", RECORD}  # alone, they may be files of the user


def _settings_in(out: Path) -> config.Tables:
    """Return the tables of ``config.toml`` in a folder, without building anything."""
    tables = config.read(out / "config.toml")
    return {name: as_table(name, table) for name, table in tables.items()}


def _check_same(out: Path, job: Job) -> None:
    """Raise ``ValueError`` unless the finished run in a folder is this one, naming what differs.

    Runs of earlier versions, which have no record, are compared by their settings.
    """
    record = folders.record_in(out)
    if record is not None:
        other = differences(record, job.tables, job.digest)
    elif (out / "config.toml").is_file():
        other = other_settings(_settings_in(out), job.tables)
    else:
        other = ["it has neither run.json nor config.toml"]
    if other:
        more = [f"{len(other) - _SHOWN} more differences"] if len(other) > _SHOWN else []
        raise ValueError(
            f"{out} holds another finished run: {'; '.join([*other[:_SHOWN], *more])}; choose "
            "another folder with --out, or replace the run with --force instead of --skip-done"
        )
    if record is None:
        print_notes(
            [f"{out} has no run.json, so only its settings are compared, not data and versions"]
        )


def _train(
    place: Path, experiment: config.Experiment, options: Namespace, *, resume: bool = False
) -> tuple[History, float]:
    """Train in a folder, with the configuration next to every checkpoint; return also the seconds.

    It trains on all ranks, and writes the logs that the options name.
    """

    def write_again(event: Event) -> None:
        is_removed = not (place / "config.toml").is_file()  # with the folder, during training
        if event.kind == "start" or (event.kind == "checkpoint" and is_removed):
            folders.write_config(place, experiment.tables)

    checkpoints = place / "checkpoints"
    if process_number() is not None:
        decided = {"folder": str(checkpoints.absolute()), "resume": resume}
        joined_store().set("topofl/command", json.dumps(decided))  # the others begin, too
    logs = {callbacks.jsonl: options.log, callbacks.tensorboard: options.tensorboard}
    made = [make(path) for make, path in logs.items() if path is not None]
    reset_peak_memory()
    start = time.perf_counter()
    history = _shared(experiment).run(
        progress=options.progress, folder=checkpoints, resume=resume, callbacks=[write_again, *made]
    )
    return history, time.perf_counter() - start


def resume(options: Namespace) -> None:
    """Continue a stopped run, or train more rounds; under torchrun, on all ranks."""
    _on_all_ranks(_resume, options.folder / "config.toml", options)


def _resume(options: Namespace) -> None:
    """Continue a run in this process."""
    out = options.folder
    if not (out / "config.toml").is_file():
        raise ValueError(
            f"{out} holds no run to continue: config.toml is missing; pass a folder of topofl run"
        )
    with locked(out, "DIR"):
        folders.settle(out)
        _continue(out, options)


def _asked(out: Path, options: Namespace) -> tuple[config.Experiment, int]:
    """Return the experiment in a folder with changed settings, and its rounds if it is finished.

    Raises
    ------
    ValueError
        If it is finished, and more than the number of rounds is changed.
    """
    only_rounds = ValueError(
        f"{out} is finished, so only `--set run.rounds=N` is allowed, got {options.set}"
    )
    try:
        experiment = config.load(out / "config.toml", options.set)
    except (ValueError, TypeError) as error:
        names = {text.partition("=")[0].strip() for text in options.set}
        if folders.is_finished(out) and names - {"run.rounds"}:
            raise only_rounds from error
        raise
    print_notes(experiment.notes)
    done = History.load(out).n_rounds if folders.is_finished(out) else 0
    is_done = done == experiment.options["rounds"]
    if is_done and experiment.tables != config.load(out / "config.toml").tables:
        raise only_rounds
    return experiment, done


def _continue(out: Path, options: Namespace) -> None:
    """Train the remaining rounds of a run."""
    experiment, done = _asked(out, options)
    if done == experiment.options["rounds"]:
        what = f"is finished: all {done} rounds are done; train more with --set run.rounds=N"
        _report_finished(out, what, options)
        return
    saved = rounds_in(out / "checkpoints")
    if done and not saved:
        raise ValueError(
            f"{out} cannot be continued: it is finished, and its checkpoints were removed; run it "
            "again elsewhere"
        )
    if not saved:
        print_notes([f"{out} has no checkpoint yet; it starts from the beginning"])
    folders.check_history(out)
    tables = asked_for(experiment.tables, folders.record_in(out) if done else None)
    job = Job.of(tables, digest_of(experiment.dataset))
    before = _settings_in(out)
    try:
        with _naming_settings(out, before, experiment.tables):
            history, seconds = _train(out, experiment, options, resume=True)
    except Interrupted as stopped:
        stopped.folder = out / "checkpoints"  # as the user named it
        raise
    _finish(out, experiment, job, history, seconds)
    print_report(str(out), history, options, f"saved in {out}")


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


def _finish(
    out: Path,
    experiment: config.Experiment,
    job: Job,
    history: History,
    seconds: float,
    n_checkpoints: int = 1,
) -> None:
    """Save a finished run.

    The configuration in `job` is what the run was asked for, that of the record what it chose.
    """
    asked = {name: job.tables["compute"][name] for name in history.meta["asked"]}
    note = {**note_of(history, seconds, job.digest), "asked": asked}
    record = record_of(job.key, history, experiment.tables_of(history), note)
    folders.save_finished(out, history, record, n_checkpoints)


def _on_all_ranks(perform: Callable[[Namespace], None], path: Path, options: Namespace) -> None:
    """Perform a command, on rank 0 of the processes of torchrun; the others train when it does.

    Those load the experiment from its file themselves.
    """
    if process_number() is None:
        perform(options)
        return
    store = joined_store()
    if process_number():
        _follow(store, path, options)
        return
    try:
        perform(options)
    finally:
        if not store.check(["topofl/command"]):
            store.set("topofl/command", json.dumps(None))
            # wait until the others have read it, since the store may end with this process
            others, until = process_count() - 1, time.monotonic() + _LONGEST_WAIT
            while store.add("topofl/readers", 0) < others and time.monotonic() < until:
                time.sleep(_PATIENCE / 10)


def _follow(store: Any, path: Path, options: Namespace) -> None:
    """Train together with rank 0, if it does."""
    try:
        while not store.check(["topofl/command"]):
            time.sleep(_PATIENCE)
        decided = json.loads(store.get("topofl/command"))
        store.add("topofl/readers", 1)
    except RuntimeError as error:  # torch's errors for a store that has ended
        raise RankError("rank 0 ended", missing=(0,), reporter=False) from error
    if decided is not None:
        _shared(config.load(path, options.set)).run(progress=False, **decided)


def _shared(experiment: config.Experiment) -> config.Experiment:
    """Return an experiment whose nodes are shared by the processes that torchrun started."""
    if process_number() is None:
        return experiment
    compute = replace(experiment.options["compute"], distributed=True)
    options = {**experiment.options, "compute": compute}
    return replace(experiment, options=options, checked=None)  # its data may be on another GPU


def speaks(error: BaseException) -> bool:
    """Return whether this process prints an error: of several ranks, the first that has one."""
    if isinstance(error, RankError):
        return error.reporter
    try:
        store = joined_store()
        store.set_timeout(timedelta(seconds=3))
        return store.add("topofl/errors", 1) == 1
    except (RuntimeError, ValueError):  # there is no store, or it has ended
        return process_number() == 0
