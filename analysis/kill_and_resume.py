"""Kill runs at random times, resume them, and compare every bit with an uninterrupted run.

``python -m analysis.kill_and_resume --kills 200`` trains 16 nodes on digits over a new graph in
every round, with momentum, evaluations and a checkpoint after every second round. A fork of this
process trains in its own folder and is killed by SIGKILL after a random time of up to 1.2 times the
duration of a run. Another fork resumes the run and may be killed in turn, until the run ends. Every
line of the output states how often a run was killed, and whether its history and models equal those
of the uninterrupted run. The exit code is 1 if one bit differs, if a run could not be resumed, or
if its folder contains a file that the uninterrupted run does not leave. Windows has no forks and is
not supported.
"""

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import topofl
from topofl import algorithms, data, models, topologies

from .program import parser_of

N = 16
"""Number of nodes."""

ROUNDS = 40
"""Number of rounds per run."""


Trial = tuple[list[int], str]
"""The round of the last checkpoint each time that a run was killed, and its defects in words."""


def trials(kills: int, seed: int) -> list[Trial]:
    """Return trials until `kills` processes were killed during a run.

    Parameters
    ----------
    kills
        Number of processes to kill in all.
    seed
        Seed of the times at which processes are killed.
    """
    done = list[Trial]()
    rng = np.random.default_rng(seed)
    train = partial(_train, data.shards(data.digits(), n=N, per_node=2, seed=0))
    with tempfile.TemporaryDirectory(prefix="kill-and-resume-") as place:
        train(Path(place, "first"))  # imports on first use are not timed
        start = time.perf_counter()
        train(Path(place, "whole"))
        seconds = time.perf_counter() - start
        whole = _read(Path(place, "whole"))
        while (left := kills - sum(len(rounds) for rounds, _ in done)) > 0:
            folder = Path(place, str(len(done)))
            rounds, wrong = _trial(
                train, folder, whole, left, lambda: rng.uniform(0, 1.2 * seconds)
            )
            done.append((rounds, wrong))
            said = f"killed {len(rounds)} times, with checkpoints of rounds {rounds}"
            print(f"{said}: {wrong or 'every bit is the same'}", file=sys.stderr, flush=True)
    return done


def _train(clients: data.Partition, place: Path) -> None:
    """Train from the last checkpoint to the end, and save history and models."""
    kept: dict[str, Any] = {}
    history = topofl.run(
        algorithms.dsgd(lr=0.05, batch_size=8, momentum=0.9),
        model=models.logistic_regression(64),
        clients=clients,
        topology=lambda t: topologies.random_regular(N, 3, seed=t),
        rounds=ROUNDS,
        seed=0,
        evaluation=5,
        saving=topofl.Saving(place / "checkpoints", every=2, resume=True),
        compute=topofl.Compute(executor="batched"),
        callbacks=[lambda event: kept.update(models=event.models)],
        progress=False,
    )
    history.save(place / "history")
    np.save(place / "models.npy", kept["models"].flat.numpy())


def _trial(
    train: Callable[[Path], None],
    folder: Path,
    whole: dict[str, np.ndarray],
    most: int,
    wait: Callable[[], float],
) -> Trial:
    """Kill and resume a run until it ends, and kill it at most `most` times."""
    rounds = list[int]()
    while True:
        code = _in_fork(partial(train, folder), wait() if len(rounds) < most else None)
        if code != -signal.SIGKILL:
            break
        kept = folder.glob("checkpoints/round-????????/marker.json")
        rounds.append(max((int(path.parent.name[6:]) for path in kept), default=0))
    wrong = _wrong(folder, whole) if code == 0 else f"it could not be resumed: exit code {code}"
    return rounds, wrong


def _in_fork(work: Callable[[], None], seconds: float | None) -> int | None:
    """Return the exit code of a fork that does the work, or is killed after `seconds`."""
    child = get_context("fork").Process(target=work)
    child.start()
    child.join(seconds)
    child.kill()
    child.join()
    return child.exitcode


def _read(folder: Path) -> dict[str, np.ndarray]:
    """Return all numbers of a finished run, and the names of the files of its checkpoints."""
    history = topofl.History.load(folder)
    found = {"models": np.load(folder / "models.npy"), "node_loss": history.node_loss}
    found |= {f"rounds.{name}": column for name, column in history.rounds.items()}
    found |= {f"evaluations.{name}": column for name, column in history.evaluations.items()}
    found["files"] = np.array(sorted(path.name for path in (folder / "checkpoints").iterdir()))
    return found | {
        f"matrix.{t}": history.mixing(t).weights.toarray() for t in range(history.n_rounds)
    }


def _wrong(folder: Path, whole: dict[str, np.ndarray]) -> str:
    found = _read(folder)
    differ = [
        name for name in {*whole, *found} - {"files"}
        if name not in whole or name not in found
        or found[name].dtype != whole[name].dtype or found[name].tobytes() != whole[name].tobytes()
    ]  # fmt: skip
    left = sorted({*found["files"].tolist()} - {*whole["files"].tolist()})
    return ", ".join(
        [*(f"{name} differs" for name in sorted(differ)), *(f"{name} is left" for name in left)]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials from the command line; returns the exit code, which is 1 if a bit differs."""
    options = parser_of(
        "kill_and_resume",
        __doc__,
        kills=(200, "processes to kill"),
        seed=(0, "of the times of the kills"),
    ).parse_args(argv)
    torch.set_num_threads(1)  # forks of a process with threads of OpenMP wait for them forever
    done = trials(options.kills, options.seed)
    killed, lost = sum(len(rounds) for rounds, _ in done), sum(bool(wrong) for _, wrong in done)
    print(f"{killed} processes killed in {len(done)} runs, {lost} runs with a lost bit")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
