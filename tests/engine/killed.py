"""Runs of the table that are killed at chosen points and resumed, in a process of their own.

Importing torch takes seconds and a fork milliseconds: this process imports it once, and a fork of
it runs until it kills itself. What then remains on disk is all that the parent resumes from.
"""

import json
import os
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import topofl
from tests import problems
from tests.rows import runs
from topofl import topologies
from topofl.engine import checkpoint
from topofl.engine.mixing import Mixing
from topofl.engine.round import Round

ANY_TIME = ("clique_averaging", "graphs change")
"""Runs that are killed at every point; others between rounds."""

BETWEEN = "between rounds"


def settings(name):
    """Return the arguments of a longer run of a method."""
    name, over, _ = name.partition(" over a period")
    changes = {"topology": topologies.one_peer_exponential(6)} if over else {}
    return runs.of_method(name, rounds=7, every=3, **changes)


def trained(arguments, **more):
    """Return the history of a run and its models."""
    history = topofl.run(**problems.options(**arguments, **more))
    return history, history.models.flat.clone()


def differences(one, other):
    """Return the bitwise differences between two results of `trained`."""
    return runs.differences(one[0], other[0])


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(module, name, call, *, after=False):
    """Kill the process at a given call of a function, before or after the call."""
    function, calls = getattr(module, name), [0]

    def deadly(*args, **kwargs):
        calls[0] += 1
        if calls[0] == call and not after:
            die()
        result = function(*args, **kwargs)
        if calls[0] == call:
            die()
        return result

    setattr(module, name, deadly)


def die_with_half(call):
    """Kill the process when half of a file is written."""
    whole, calls = checkpoint.write_tensors, [0]

    def half(path, tensors, texts):
        calls[0] += 1
        checksum = whole(path, tensors, texts)
        if calls[0] == call:
            os.truncate(path, path.stat().st_size // 2)
            die()
        return checksum

    checkpoint.write_tensors = half


MOMENTS = {
    BETWEEN: lambda: None,
    "after train, in the second round": lambda: die_at(Round, "_train", 2, after=True),
    "after train": lambda: die_at(Round, "_train", 4, after=True),
    "after mix": lambda: die_at(Mixing, "mix", 4, after=True),
    "with half of the first rows": lambda: die_with_half(1),
    "with half of the rows": lambda: die_with_half(5),
    "with half of the shared tensors": lambda: die_with_half(6),
    "before the marker": lambda: die_at(checkpoint, "_write_marker", 3),
    "before it has its name": lambda: die_at(checkpoint.os, "replace", 3),
    "after it has its name": lambda: die_at(checkpoint.os, "replace", 3, after=True),
    "before the folder is synchronized": lambda: die_at(checkpoint, "sync_folder", 5),
    "before old ones are removed": lambda: die_at(checkpoint, "prune", 3),
    "in the last round": lambda: None,
}
"""What prepares the end of a run."""


def moments(name):
    """Return the points at which a run of the table is killed."""
    return [*MOMENTS] if name in ANY_TIME else [BETWEEN]


def train_and_die(name, moment, saving):
    """Train until this process is killed."""
    MOMENTS[moment]()
    last = {BETWEEN: 3, "in the last round": runs.ROUNDS}.get(moment)
    end = problems.each_round(lambda done, models: die() if done == last else None)
    topofl.run(**runs.arguments(name), saving=saving, callbacks=[end])


def verdict(name, moment, reference, folder):
    """Kill a run, resume it, and return the differences from an uninterrupted run."""
    every = 2 if moment == BETWEEN else 1
    child = os.fork()
    if child == 0:
        try:
            train_and_die(name, moment, topofl.Saving(folder, every=every))
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        return [f"it was not killed: status {status}"]
    saving = topofl.Saving(folder, every=every, resume=True)
    resumed = topofl.run(**runs.arguments(name), saving=saving)
    names = sorted(path.name for path in Path(folder).iterdir())
    leftovers = [] if len(names) == 2 else [f"files {names}"]
    return runs.differences(resumed, reference) + leftovers


def main(*names):
    warnings.simplefilter("ignore")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for k, name in enumerate(names):
            reference = topofl.run(**runs.arguments(name))
            found[name] = {
                moment: verdict(name, moment, reference, f"{folder}/{k} {moment}")
                for moment in moments(name)
            }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
