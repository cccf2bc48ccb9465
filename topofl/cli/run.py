"""``topofl run`` and ``topofl resume``: training and saving of an experiment in a TOML file."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from topofl import callbacks, config
from topofl._support.text import printable
from topofl.callbacks import Callback, Event
from topofl.cli.compare import check_column, table_of_runs
from topofl.cli.folders import (
    NEXT,
    check_history,
    check_place,
    claimed,
    is_finished,
    other_settings,
    settle,
    write_config,
)
from topofl.cli.notes import print_notes
from topofl.cli.ranks import announced, on_ranks, started
from topofl.engine import Interrupted
from topofl.engine.store.checkpoint import rounds_in
from topofl.engine.store.lock import locked
from topofl.engine.store.writing import prune
from topofl.estimate import Estimate
from topofl.history import History

__all__ = ["resume", "run"]


def run(options: argparse.Namespace) -> None:
    """Run the experiment in a configuration file and save it; under torchrun, on all ranks."""
    with started(lambda: config.load(options.config, options.set)) as executes:
        if executes:
            _run(options)


def _run(options: argparse.Namespace) -> None:
    """Run the experiment in this process."""
    every = [] if options.checkpoint_every is None else [f"saving.every={options.checkpoint_every}"]
    experiment = config.load(options.config, [*options.set, *every])
    print_notes(experiment.notes)
    if options.dry_run:
        need = experiment.estimate(probe=True)
        print("\n\n".join([str(need), *_total_time(need, experiment.tables)]))
        return
    out = options.out or Path("runs", options.config.stem)
    if options.skip_done and is_finished(out):
        print_notes(other_settings(out, experiment))
        print(f"{printable(str(out))} is finished; nothing was done")
        return
    check_place(out, options)
    with claimed(out):
        settle(out)
        check_place(out, options)  # again, now that the folder is locked
        place = out / NEXT if is_finished(out) else out
        try:
            history = _train(place, experiment, options)
        except BaseException as error:
            settle(out)
            if isinstance(error, Interrupted):
                error.folder = out / "checkpoints"  # their place after settle
            raise
        # Without checkpoints of this run, those in `out` belong to the run that it replaces.
        n_checkpoints = 1 if rounds_in(place / "checkpoints") else 0
        with _saved_elsewhere_if_blocked(out, history):
            settle(out)
        _finish(out, experiment, history, n_checkpoints)


def _train(place: Path, experiment: config.Experiment, options: argparse.Namespace) -> History:
    """Train in a folder, with the configuration next to every checkpoint."""

    def write_again(event: Event) -> None:
        is_removed = not (place / "config.toml").is_file()  # with the folder, during training
        if event.kind == "checkpoint" and is_removed:
            write_config(place, experiment.tables)

    (place / "checkpoints").mkdir(parents=True, exist_ok=True)
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
        raise OSError(
            f"{what}; once nothing is in its way, topofl resume {out} puts it in place"
        ) from error


def _total_time(need: Estimate, tables: config.Tables) -> list[str]:
    """Return the estimated time of all rounds if a probe measured times."""
    if need.seconds_per_round is None or need.seconds_per_evaluation is None:
        return []
    rounds = tables["run"]["rounds"]
    every = tables["evaluation"]["every"]
    evaluations = 1 + -(-rounds // every)  # before the first, and after the last
    seconds = round(rounds * need.seconds_per_round + evaluations * need.seconds_per_evaluation)
    return [
        f"in all about {timedelta(seconds=seconds)} h for {rounds} rounds and {evaluations} "
        "evaluations"
    ]


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


def _continue(out: Path, options: argparse.Namespace) -> None:
    """Train the remaining rounds of a run."""
    experiment = config.load(out / "config.toml", options.set)
    print_notes(experiment.notes)
    done = History.load(out).n_rounds if is_finished(out) else 0
    if done == experiment.options["rounds"]:
        if experiment.tables != config.load(out / "config.toml").tables:
            raise ValueError(
                f"{out} is finished, so only `--set run.rounds=N` is allowed, got {options.set}"
            )
        print(
            f"{printable(str(out))} is finished: all {done} rounds are done; train more with --set "
            "run.rounds=N"
        )
        return
    saved = rounds_in(out / "checkpoints")
    if done and not saved:
        raise ValueError(
            f"{out} cannot be continued: it is finished, and its checkpoints were removed; run it "
            "again elsewhere"
        )
    if not saved:
        print_notes([f"{out} has no checkpoint yet; it starts from the beginning"])
    check_history(out)

    def write_changes(event: Event) -> None:
        is_removed = not (out / "config.toml").is_file()
        if event.kind == "start" or (event.kind == "checkpoint" and is_removed):
            write_config(out, experiment.tables)

    how = {"progress": options.progress, "folder": out / "checkpoints", "resume": True}
    announced(out / "checkpoints", resume=True)
    try:
        history = on_ranks(experiment).run(
            **how, callbacks=[write_changes, *_log_callbacks(options)]
        )
    except Interrupted as stopped:
        stopped.folder = out / "checkpoints"  # as the user named it
        raise
    _finish(out, experiment, history)


def _log_callbacks(options: argparse.Namespace) -> list[Callback]:
    """Return the callbacks of ``--log`` and ``--tensorboard``."""
    places = {callbacks.jsonl: options.log, callbacks.tensorboard: options.tensorboard}
    return [make(place) for make, place in places.items() if place is not None]


def _finish(
    out: Path, experiment: config.Experiment, history: History, n_checkpoints: int = 1
) -> None:
    """Save a history, print its scores, and keep only the last `n_checkpoints` checkpoints."""
    history.save(out / "history")
    write_config(out, experiment.tables_of(history))
    prune(out / "checkpoints", n_checkpoints)
    check_column({str(out): history}, history.primary)
    print(table_of_runs({str(out): history}, 0.8, history.primary))
    print(f"saved in {printable(str(out))}")
    if diverged := history.meta["diverged"]:
        first = diverged[0]
        print_notes(
            [
                f"{len(diverged)} nodes diverged, first node {first['node']} in round "
                f"{first['round']}"
            ]
        )
