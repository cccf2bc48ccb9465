"""Save histories in processes that are killed midway; test_stores.py runs this as a script.

A fork of this process saves a history over another one and kills itself at the k-th call of a
function that touches the disk, for all k. This process then looks at what is found under the name.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np

from topofl._support import files
from topofl.history import FILES, History

NAMES = ("rename", "replace", "rmdir", "unlink", "fsync", "chmod", "mkdir")
FUNCTIONS = [(os, name) for name in NAMES]
FUNCTIONS += [(files, "_exchange_names"), (shutil, "rmtree"), (np, "savez_compressed")]


def history(name):
    """Return a history of two rounds and three nodes."""
    evaluations = {"round": np.array([0, 2]), "accuracy": np.zeros((2, 3)), "loss": np.ones((2, 3))}
    rounds = {"train_loss": np.zeros(2), "messages": np.array([3, 3]), "bytes": np.array([8, 8])}
    return History({"algorithm": name}, rounds, evaluations, np.zeros((2, 3)))


def count(call, *, after):
    """Let this process kill itself at the given call of the functions, before or after it."""
    calls = [0]

    def deadly(function):
        def counted(*args, **kwargs):
            calls[0] += 1
            mine = calls[0] == call
            if mine and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **kwargs)
            if mine:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted

    for module, name in FUNCTIONS:
        setattr(module, name, deadly(getattr(module, name)))


def is_killed(place, call, *, after, portable):
    """Save over an older history in a fork, and return whether it was killed."""
    child = os.fork()
    if not child:
        if portable:
            files._exchange_names = lambda *_: False
        count(call, after=after)
        history("new").save(place)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def verdict(place, *, portable):
    """Return what is wrong with what a killed process left."""
    if not portable and any(not (place / name).is_file() for name in FILES):
        return "nothing is there under its name"
    if (found := History.load(place).meta["algorithm"]) not in ("old", "new"):
        return f"found is {found}"
    history("newest").save(place)
    if (found := History.load(place).meta["algorithm"]) != "newest":
        return f"after the next save there is {found}"
    left = {path.name for path in place.parent.iterdir()} - {place.name}
    return f"left are {left}" if left else ""


def killed_at_every_call(way):
    """Return how many were killed, at every call, and what was wrong."""
    portable, wrong, killed = way == "portable" or files._renameat2() is None, {}, 0
    for after in (False, True):
        call = 1
        while True:
            with tempfile.TemporaryDirectory() as folder:
                place = history("old").save(Path(folder, "run"))
                if not is_killed(place, call, after=after, portable=portable):
                    break
                if what := verdict(place, portable=portable):
                    wrong[f"call {call}, {'after' if after else 'before'}"] = what
            call, killed = call + 1, killed + 1
    return {"killed": killed, "wrong": wrong}


if __name__ == "__main__":
    json.dump({way: killed_at_every_call(way) for way in sys.argv[1:]}, sys.stdout)
