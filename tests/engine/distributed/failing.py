"""Runs in which a rank fails, and commands of the shell on several ranks.

This process imports torch once, and forks the ranks of each run. It prints what happened as JSON.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from tests.engine.distributed.processes import forked

TIMEOUT = 4
"""Seconds after which a rank that does not respond has failed."""

FAILURES = [
    ("SIGKILL", 1),
    ("SIGSTOP", 1),
    ("SIGKILL", 0),
    ("SIGSTOP", 0),
    ("error", 0),
    ("error", 2),
]
"""What happens to which rank in round 4 of 6."""

CONFIG = """
topology = "ring"
algorithm = "dsgd,lr=0.1"
[data]
name = "digits"
n = 6
seed = 0
[run]
rounds = 4
seed = 0
[evaluation]
every = 2
"""


def arguments():
    """Return the arguments of a run whose ranks fail."""
    import torch

    from tests.engine.killed import settings

    return settings("dsgd") | {"rounds": 6, "every": 2, "dtype": torch.float64}


def train_and_fail(rank, folder, name, failing):
    """Train on one rank, which fails in round 4 if it is the one that should."""
    import topofl
    from tests import problems
    from topofl.engine.mixing import Mixing

    mix = Mixing.mix

    def mix_or_fail(self, weights, values, t, *args):
        if t == 3 and rank == failing:
            Path(folder, "failed").write_text(str(time.time()))
            if name == "error":
                raise ZeroDivisionError("of this rank")
            os.kill(os.getpid(), getattr(signal, name))
        return mix(self, weights, values, t, *args)

    Mixing.mix = mix_or_fail
    warnings.simplefilter("ignore")
    how = problems.options(**arguments(), distributed=True, rank_timeout=TIMEOUT)
    try:
        topofl.run(**how, saving=topofl.Saving(folder, every=1))
    except topofl.RankError as error:
        if error.reporter:
            print(f"missing {error.missing}: {error}", flush=True)
        return 3
    except ZeroDivisionError:
        return 4


def failure(root, name, failing):
    """Return what happens if a rank fails: exit codes, output, seconds, and a resumed run."""
    import topofl
    from tests import problems
    from topofl.engine.checkpoint import rounds_in

    folder = root / f"{name}-{failing}"
    folder.mkdir()
    codes = forked(
        3, lambda rank: train_and_fail(rank, folder, name, failing), 120,
        output=root / f"{name}-{failing}.txt", without=(failing,),
    )  # fmt: skip
    seconds = time.time() - float((folder / "failed").read_text())
    saved = rounds_in(folder)[-1]
    warnings.simplefilter("ignore")
    how = problems.options(**arguments())
    resumed = topofl.run(**how, saving=topofl.Saving(folder, resume=True))
    apart = (resumed.models.flat - topofl.run(**how).models.flat).abs().max()
    return {
        "codes": [code for rank, code in enumerate(codes) if rank != failing],
        "output": (root / f"{name}-{failing}.txt").read_text().replace(str(folder), "FOLDER"),
        "seconds": seconds,
        "saved": saved,
        "apart": float(apart),
    }


def commands(root):
    """Return exit codes and outputs of commands on several ranks, and the losses of their runs."""
    import topofl
    from topofl.cli import main

    (root / "ring.toml").write_text(CONFIG)
    config, out = root / "ring.toml", root / "several"
    with redirect_stdout(StringIO()):
        main(["run", str(config), "--out", str(root / "one")])
    steps = {
        "run": (2, ["run", config, "--out", out]),
        "run again": (2, ["run", config, "--out", out]),
        "skip": (2, ["run", config, "--out", out, "--skip-done"]),
        "resume": (3, ["resume", out, "--set", "run.rounds=6"]),
        "resume alone": (0, ["resume", out, "--set", "run.rounds=7"]),
        "resume again": (2, ["resume", out, "--set", "run.rounds=8"]),
        "one rank": (1, ["run", config, "--out", root / "of one rank"]),
        "wrong": (2, ["run", config, "--out", root / "wrong", "--set", "algorithm=dsgd,lr=-1"]),
    }
    found = {}
    for name, (size, words) in steps.items():
        place = root / f"{name}.txt"
        if size == 0:
            with redirect_stdout(StringIO()):
                main([*map(str, words)])
            continue
        codes = forked(size, lambda rank, words=words: main([*map(str, words)]), 100, output=place)
        found[name] = {"codes": codes, "output": place.read_text()}
    runs = {"one": root / "one", "several": out, "one rank": root / "of one rank"}
    histories = {name: topofl.History.load(path) for name, path in runs.items()}
    found["loss"] = {name: one["loss"].tolist() for name, one in histories.items()}
    found["rounds"] = {name: one.n_rounds for name, one in histories.items()}
    found["ranks"] = {name: one.meta.get("ranks") for name, one in histories.items()}
    found["traffic"] = {
        name: histories["several"][name].tolist()
        for name in ("cut_edges", "rank_bytes", "exchange_seconds")
    }
    return found


def train_with_callback(rank, folder, callback):
    """Train on one rank with a callback, after a pause of rank 1 that is longer than the timeout.

    The process has no other threads afterwards, in which it could end.
    """
    import topofl
    from tests import problems

    warnings.simplefilter("ignore")
    how = problems.options(**arguments(), distributed=True, rank_timeout=TIMEOUT)
    if rank == 1:
        time.sleep(TIMEOUT + 1)
    try:
        topofl.run(**how, saving=topofl.Saving(folder, every=3), callbacks=[callback])
    except (ArithmeticError, RuntimeError, KeyboardInterrupt) as error:
        print(f"rank {rank}: {type(error).__name__}: {error}", flush=True)
        return threading.active_count() + 2
    return 0


def fail_after_three(event):
    if event.kind == "round" and event.round == 3:
        raise ZeroDivisionError("of a callback")


def stop_while_writing(event):
    """Send SIGTERM to rank 0 when the ranks have agreed to go on, and a checkpoint is written."""
    if event.kind == "checkpoint" and event.round == 3:
        os.kill(os.getpid(), signal.SIGTERM)


def gather(event):
    if event.kind == "round" and event.round == 3:
        event.models.of_all_nodes()


def reading_phases():
    """Return an algorithm in which a phase of some rows reads a state of all rows."""
    from topofl import algorithms

    def unchanged(models, state, round):
        return state

    all_rows = algorithms.Phase(lambda models: {"own": models.flat.clone()}, unchanged)
    some_rows = algorithms.Phase(lambda models: {}, unchanged, rowwise=True)
    return algorithms.chain("mixed", local=all_rows, after=algorithms.sharing("local", some_rows))


def callback(root, function):
    """Return what happens if a callback raises an error: exit codes, output, checkpoints."""
    from topofl.engine.checkpoint import rounds_in

    folder, place = root / function.__name__, root / f"{function.__name__}.txt"
    codes = forked(2, lambda rank: train_with_callback(rank, folder, function), 60, output=place)
    output = place.read_text().replace(str(folder), "FOLDER")
    return {"codes": codes, "output": output, "saved": rounds_in(folder)}


def reading(root):
    """Return what two ranks print about an algorithm that works on one."""

    def train(rank):
        import topofl
        from tests import problems

        warnings.simplefilter("ignore")
        how = arguments() | {"algorithm": reading_phases(), "rounds": 1}
        topofl.run(**problems.options(**how))
        try:
            topofl.run(**problems.options(**how, distributed=True, rank_timeout=20))
        except ValueError as error:
            print(f"rank {rank}: {error}", flush=True)

    forked(2, train, 60, output=root / "reading.txt")
    return (root / "reading.txt").read_text()


def main():
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        found = {f"{name} of rank {rank}": failure(root, name, rank) for name, rank in FAILURES}
        found["callbacks"] = [
            callback(root, one) for one in (fail_after_three, gather, stop_while_writing)
        ]
        found["reading"] = reading(root)
        found["commands"] = commands(root)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
