"""What happens if ranks fail or cannot write, and to commands of the shell on several ranks.

This process imports torch once, and forks the ranks of each run. It prints what happened as JSON,
and leaves the checkpoints of a run on three ranks in the folder that it is given.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import warnings
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path

import topofl
from tests.engine.distributed.processes import forked
from tests.rows.runs import differences, in_float64
from topofl import algorithms, attacks
from topofl.cli import main as command
from topofl.engine import checkpoint
from topofl.engine.mixing import Mixing
from topofl.engine.ranks import Ranks

TIMEOUT = 4
"""Seconds after which a rank that does not respond has failed."""

ROUNDS = 6

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


def trained(saving=None, callbacks=(), **changes):
    """Return the history of a run, on one or several ranks."""
    how = {"rounds": ROUNDS, "rank_timeout": TIMEOUT} | changes
    return topofl.run(**in_float64("dsgd", **how), saving=saving, callbacks=callbacks)


def before_round(t, function):
    """Let this rank call a function when it exchanges in a round."""
    mix = Mixing.mix

    def call_and_mix(self, weights, values, now, *args):
        if now == t:
            function()
        return mix(self, weights, values, now, *args)

    Mixing.mix = call_and_mix


def train(rank, folder, every=2, callbacks=(), *, loud=False):
    """Train on one rank; print errors, also if another rank reports them if `loud`; return 3."""
    try:
        trained(topofl.Saving(folder, every=every), callbacks, distributed=True)
    except (ArithmeticError, OSError, RuntimeError, KeyboardInterrupt) as error:
        if loud or getattr(error, "reporter", True):
            missing = getattr(error, "missing", "")
            print(f"rank {rank}: {type(error).__name__}{missing}: {error}", flush=True)
        return 3


def happened(root, name, size, function, **options):
    """Return exit codes and output of ranks, their checkpoints, and a run that continues."""
    folder, place = root / name, root / f"{name}.txt"
    codes = forked(size, lambda rank: function(rank, folder), 120, output=place, **options)
    seconds = time.time()
    found = {"codes": codes, "output": place.read_text().replace(str(folder), "FOLDER")}
    found |= {"saved": checkpoint.rounds_in(folder)}
    found["left"] = sorted(path.name for path in folder.iterdir())
    found["rows"] = sorted(path.parent.name for path in folder.glob("*/rows-1.safetensors"))
    if (folder / "failed").exists():
        found["seconds"] = seconds - float((folder / "failed").read_text())
    continued = trained(topofl.Saving(folder, resume=True), rounds=ROUNDS + 1)
    apart = continued.models.flat - trained(rounds=ROUNDS + 1).models.flat
    return found | {"apart": float(apart.abs().max())}


FAILURES = [
    *((name, rank) for name in ("SIGKILL", "SIGSTOP") for rank in (1, 0)),
    *(("error", rank) for rank in (0, 2)),
]
"""What happens to which of three ranks in round 4."""


def fail(rank, folder, name, failing):
    """Train on one rank, which fails in round 4 if it is the one that should."""

    def end():
        (folder / "failed").write_text(str(time.time()))
        if name == "error":
            raise ZeroDivisionError("of this rank")
        os.kill(os.getpid(), getattr(signal, name))

    folder.mkdir(exist_ok=True)
    if rank == failing:
        before_round(3, end)
    return train(rank, folder, every=1)


def raise_after_three(event):
    if event.kind == "round" and event.round == 3:
        raise ZeroDivisionError("of a callback")


def stop_while_writing(event):
    """Send SIGTERM to rank 0 when the ranks have agreed to go on, and a checkpoint is written."""
    if event.kind == "checkpoint" and event.round == 3:
        os.kill(os.getpid(), signal.SIGTERM)


def gather_after_three(event):
    if event.kind == "round" and event.round == 3:
        event.models.of_all_nodes()


def call_back(rank, folder, callback):
    """Train on one rank with a callback, after a pause of rank 1 that is longer than the timeout.

    The process has no other threads afterwards, in which it could end.
    """
    if rank == 1:
        time.sleep(TIMEOUT + 1)
    train(rank, folder, every=3, callbacks=[callback], loud=True)
    return threading.active_count() + 2


def fill_disk(rank, folder):
    """Train on one rank; rank 1 cannot write more than 1,000 bytes in rounds 3 and 4."""
    if rank == 1:
        free = resource.getrlimit(resource.RLIMIT_FSIZE)
        before_round(2, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, free[1])))
        before_round(4, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, free))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        code = train(rank, folder)
    told = [str(one.message) for one in caught if "checkpoint" in str(one.message)]
    print(json.dumps([rank, told]), flush=True)
    return code


def die_at_file(name, after):
    """Let a rank be killed before or after it writes a file with a name."""
    write = checkpoint.write_tensors

    def write_and_die(path, *parts):
        checksum = write(path, *parts) if after or path.name != name else None
        if path.name == name:
            os.kill(os.getpid(), signal.SIGKILL)
        return checksum

    checkpoint.write_tensors = write_and_die


def kill_after_writing_rows(rank, folder):
    """Train on one rank; rank 1 is killed when it has written its file of round 4."""
    if rank == 1:
        before_round(3, lambda: die_at_file("rows-1.safetensors", after=True))
    return train(rank, folder)


def kill_before_the_state(rank, folder):
    """Train on one rank; rank 0 is killed when the rows of round 4 are complete."""
    if rank == 0:
        before_round(3, lambda: die_at_file("shared.safetensors", after=False))
    return train(rank, folder)


def use_another_folder(rank, folder):
    """Train on one rank; that of rank 1 is in another folder."""
    folder = folder if rank == 0 else folder.with_name("another")
    folder.mkdir(exist_ok=True)
    return train(rank, folder)


def write(rank, folder):
    """Train on one rank; numbers of nodes, such as losses, are gathered, but never models."""
    for name in ("to_first", "all_rows"):
        gather = getattr(Ranks, name)

        def checked(self, values, gather=gather):
            assert values.shape[1:].numel() < 10, f"models of {tuple(values.shape)} are gathered"
            return gather(self, values)

        setattr(Ranks, name, checked)
    trained(topofl.Saving(folder, every=2, models=False), distributed=True)


def reading(root):
    """Return what two ranks print about phases of some rows that read a state of all rows."""

    def unchanged(models, state, round):
        return state

    all_rows = algorithms.Phase(lambda models: {"own": models.flat.clone()}, unchanged)
    some_rows = algorithms.Phase(lambda models: {}, unchanged, rowwise=True)
    phases = {"local": all_rows, "after": algorithms.sharing("local", some_rows)}
    method = algorithms.chain("mixed", **phases)

    def train(rank):
        how = {"algorithm": method, "rounds": 1, "rank_timeout": 20}
        topofl.run(**in_float64("dsgd", **how))
        try:
            topofl.run(**in_float64("dsgd", **how, distributed=True))
        except ValueError as error:
            print(f"rank {rank}: {error}", flush=True)

    forked(2, train, 60, output=root / "reading.txt")
    return (root / "reading.txt").read_text()


def commands(root):
    """Return exit codes and outputs of commands on several ranks, and the losses of their runs."""
    (root / "ring.toml").write_text(CONFIG)
    config, out = root / "ring.toml", root / "several"
    steps = {
        "one": (0, ["run", config, "--out", root / "one"]),
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
        call, place = partial(command, [*map(str, words)]), root / f"{name}.txt"
        if size == 0:
            with redirect_stdout(StringIO()):
                call()
            continue
        codes = forked(size, lambda rank, call=call: call(), 100, output=place)
        found[name] = {"codes": codes, "output": place.read_text()}
    folders = {"one": root / "one", "several": out, "one rank": root / "of one rank"}
    histories = {name: topofl.History.load(path) for name, path in folders.items()}
    several = histories["several"]
    return found | {
        "loss": {name: one["loss"].tolist() for name, one in histories.items()},
        "rounds": {name: one.n_rounds for name, one in histories.items()},
        "ranks": {name: one.meta.get("ranks") for name, one in histories.items()},
        "traffic": {
            name: several[name].tolist() for name in ("cut_edges", "rank_bytes", "exchange_seconds")
        },
    }


def sums(root):
    """Return the bytes that ranks send in each round with a server, and what attacks change."""
    names, attack = ("fedavg", "dp_fedavg"), attacks.noise([1, 4], std=3.0)
    alone = topofl.run(**in_float64("dp_fedavg", attackers=attack))

    def train(rank):
        several = [topofl.run(**in_float64(name, distributed=True)) for name in names]
        attacked = topofl.run(**in_float64("dp_fedavg", attackers=attack, distributed=True))
        if rank == 0:
            columns = (one["rank_bytes"].tolist() for one in several)
            sent = dict(zip(names, columns, strict=True))
            found = sent | {"attacked": differences(attacked, alone, 1e-10)}
            (root / "sums.json").write_text(json.dumps(found))

    forked(2, train, 100)
    return json.loads((root / "sums.json").read_text())


def main(folder):
    warnings.simplefilter("ignore")
    found = {"write": forked(3, lambda rank: write(rank, Path(folder)), 60)}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for name, failing in FAILURES:
            fails, title = partial(fail, name=name, failing=failing), f"{name} of rank {failing}"
            found[title] = happened(root, title, 3, fails, without=(failing,))
        for callback in (raise_after_three, gather_after_three, stop_while_writing):
            calls, title = partial(call_back, callback=callback), callback.__name__
            found[title] = happened(root, title, 2, calls)
        for function in (
            fill_disk, kill_after_writing_rows, kill_before_the_state, use_another_folder,
        ):  # fmt: skip
            found[function.__name__] = happened(root, function.__name__, 2, function)
        found |= {"reading": reading(root), "commands": commands(root), "sums": sums(root)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
