"""Checkpoints that several ranks write: what is in them, and what happens if a rank cannot write.

This process imports torch once, and forks the ranks of each run. It prints what happened as JSON,
and leaves the checkpoints of a run in the folder that it is given.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import warnings
from pathlib import Path

from tests.engine.distributed.failing import TIMEOUT, arguments
from tests.engine.distributed.processes import forked

ROUNDS = 6


def history(saving, **changes):
    """Return the history of a run with checkpoints."""
    import topofl
    from tests import problems

    how = problems.options(**arguments() | {"rounds": ROUNDS} | changes, rank_timeout=TIMEOUT)
    return topofl.run(**how, saving=saving)


def before_round(t, function):
    """Let ranks call a function when they exchange in a round."""
    from topofl.engine.mixing import Mixing

    mix = Mixing.mix

    def call_and_mix(self, weights, values, now, *args):
        if now == t:
            function()
        return mix(self, weights, values, now, *args)

    Mixing.mix = call_and_mix


def gather_no_models():
    """Let ranks gather numbers of nodes, such as losses, but no models."""
    from topofl.engine.ranks import Ranks

    for name in ("to_first", "all_rows"):
        gather = getattr(Ranks, name)

        def checked(self, values, gather=gather):
            assert values.shape[1:].numel() < 10, f"models of {tuple(values.shape)} are gathered"
            return gather(self, values)

        setattr(Ranks, name, checked)


def write(rank, folder):
    """Train on one rank, which never gathers the models of others."""
    import topofl

    gather_no_models()
    history(topofl.Saving(folder, every=2, models=False), distributed=True)


def fill_disk(rank, folder):
    """Train on one rank; rank 1 cannot write more than 1,000 bytes in rounds 3 and 4."""
    import topofl

    if rank == 1:
        free = resource.getrlimit(resource.RLIMIT_FSIZE)
        before_round(2, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, free[1])))
        before_round(4, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, free))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done = history(topofl.Saving(folder, every=2), distributed=True).n_rounds
    told = [str(one.message) for one in caught if "checkpoint" in str(one.message)]
    print(json.dumps([rank, done, told]), flush=True)


def die(*_args, **_words):
    os.kill(os.getpid(), signal.SIGKILL)


def train_and_die(rank, folder):
    """Train on one rank; a rank may be killed."""
    import topofl

    warnings.simplefilter("ignore")
    try:
        history(topofl.Saving(folder, every=2), distributed=True)
    except topofl.RankError as error:
        print(f"rank {rank}: {error}", flush=True)
        return 3


def die_at_file(name, after):
    """Let a rank be killed before or after it writes a file with a name."""
    from topofl.engine import checkpoint

    write = checkpoint.write_tensors

    def write_and_die(path, *parts):
        if path.name == name and not after:
            die()
        checksum = write(path, *parts)
        if path.name == name:
            die()
        return checksum

    checkpoint.write_tensors = write_and_die


def kill_after_writing_rows(rank, folder):
    """Train on one rank; rank 1 is killed when it has written its file of round 4."""
    if rank == 1:
        before_round(3, lambda: die_at_file("rows-1.safetensors", after=True))
    return train_and_die(rank, folder)


def kill_before_the_state(rank, folder):
    """Train on one rank; rank 0 is killed when the rows of round 4 are complete."""
    if rank == 0:
        before_round(3, lambda: die_at_file("shared.safetensors", after=False))
    return train_and_die(rank, folder)


def use_another_folder(rank, folder):
    """Train on one rank; that of rank 1 is in another folder."""
    import topofl

    folder = folder if rank == 0 else folder.with_name("another")
    folder.mkdir(exist_ok=True)
    try:
        history(topofl.Saving(folder), distributed=True)
    except OSError as error:
        print(f"rank {rank}: {error}", flush=True)
        return 3


def happened(root, function):
    """Return exit codes and output of two ranks, their checkpoints, and a run that continues."""
    import topofl
    from topofl.engine.checkpoint import rounds_in

    folder, place = root / function.__name__, root / f"{function.__name__}.txt"
    codes = forked(2, lambda rank: function(rank, folder), 60, output=place)
    left = sorted(path.name for path in folder.iterdir())
    found = {"codes": codes, "output": place.read_text().replace(str(folder), "FOLDER")}
    found |= {"saved": rounds_in(folder), "left": left}
    found["rows"] = sorted(path.parent.name for path in folder.glob("*/rows-1.safetensors"))
    warnings.simplefilter("ignore")
    continued = history(topofl.Saving(folder, resume=True), rounds=ROUNDS + 1)
    whole = history(None, rounds=ROUNDS + 1)
    return found | {"apart": float((continued.models.flat - whole.models.flat).abs().max())}


def main(folder):
    codes = forked(3, lambda rank: write(rank, Path(folder)), 60)
    with tempfile.TemporaryDirectory() as place:
        found = {
            one.__name__: happened(Path(place), one)
            for one in (
                fill_disk,
                kill_after_writing_rows,
                kill_before_the_state,
                use_another_folder,
            )
        }
    json.dump(found | {"write": codes}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
