"""Options of ``topofl run`` and ``topofl resume``."""

import argparse
from typing import Any

from topofl.cli.shared_options import add_json_option, add_trust_option, add_verb, path_argument

__all__ = ["add_resume", "add_run"]

_ABOUT_FOLDERS = """

DIR holds config.toml (with all defaults), checkpoints/ and, at the end, history/ and run.json.
Ctrl-C finishes the round and writes a checkpoint. A finished run keeps its last checkpoint,
which is as large as all models together and is needed only to train more rounds; remove
DIR/checkpoints otherwise."""


def add_run(verbs: Any) -> None:
    """Add the command ``topofl run``."""
    examples = """
        topofl run experiment.toml
        topofl run experiment.toml --set run.rounds=50 --set topology=ring --out runs/ring
        topofl run experiment.toml --dry-run
        topofl run runs/ring/config.toml --out runs/again
        topofl run experiment.toml --out runs/ring --skip-done
        topofl run experiment.toml --store runs/sweeps
    """
    verb = add_verb(
        verbs,
        "run",
        "topofl.cli.run:run",
        "run an experiment described in a TOML file, and save it",
        examples,
        _ABOUT_FOLDERS,
    )
    verb.add_argument(
        "config",
        type=path_argument,
        metavar="CONFIG.toml",
        help="tables data, topology, algorithm, run, ...",
    )
    _add_places(verb)
    every = "a checkpoint every K rounds, or by time (default: auto, at least one in ten minutes)"
    verb.add_argument("--checkpoint-every", metavar="K|auto", help=every)
    verb.add_argument(
        "--dry-run",
        action="store_true",
        help="show memory, messages and, by a probe, seconds; save nothing",
    )
    _add_training_options(verb, "table.key=value, or table=spec for a whole table; may be repeated")


def _add_places(verb: argparse.ArgumentParser) -> None:
    """Add the options that say where a run is saved, and what becomes of one that is there."""
    help_out = "where to save (default: runs/ and the file's name)"
    verb.add_argument("--out", type=path_argument, metavar="DIR", help=help_out)
    done = verb.add_mutually_exclusive_group()
    help_force = "replace a finished run in DIR, once this run has a checkpoint"
    done.add_argument("--force", action="store_true", help=help_force)
    done.add_argument(
        "--skip-done",
        action="store_true",
        help="do nothing if DIR holds this run, finished; refuse other settings, data or versions",
    )
    help_store = "find the run in a store as of topofl sweep, or train it into the store"
    verb.add_argument("--store", type=path_argument, metavar="STORE", help=help_store)


def add_resume(verbs: Any) -> None:
    """Add the command ``topofl resume``."""
    examples = """
        topofl resume runs/ring
        topofl resume runs/ring --set run.rounds=1000
    """
    text = "continue a run that was stopped, or train more rounds"
    verb = add_verb(verbs, "resume", "topofl.cli.run:resume", text, examples, _ABOUT_FOLDERS)
    verb.add_argument(
        "folder", type=path_argument, metavar="DIR", help="folder of the run (run --out)"
    )
    _add_training_options(
        verb, "table.key=value, for run.rounds (more of them), saving.every, compute.device"
    )
    add_trust_option(verb)


def _add_training_options(verb: argparse.ArgumentParser, help_set: str) -> None:
    """Add the options that ``run`` and ``resume`` share."""
    verb.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=help_set)
    verb.add_argument(
        "--log",
        type=path_argument,
        metavar="FILE.jsonl",
        help="append one JSON object per event to this file",
    )
    verb.add_argument(
        "--tensorboard",
        type=path_argument,
        metavar="DIR",
        help="write scalars for TensorBoard here",
    )
    verb.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, help="a bar (default: on terminals)"
    )
    add_json_option(verb)
