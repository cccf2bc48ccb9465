"""Measure runs whose models are in a file: seconds of a round, and memory, against those in memory.

``python -m analysis.larger_than_memory --scratch DIR`` trains each of :data:`CASES` for one round,
with the models in a file of the folder and in memory, in turns and each in a new process. It prints
the seconds of the round without evaluations, the peak memory of the process (``VmHWM`` of Linux),
and the bytes of the models. ``--preset smoke`` takes small cases. Linux only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch

import topofl
from topofl import Table, algorithms, data, models, topologies

from .benchmark.steps.memory import process_bytes
from .program import as_installed


@dataclass(frozen=True)
class DiskCase:
    """D-SGD for one round on random images of 3 x 32 x 32 bytes.

    Parameters
    ----------
    model
        Name in ``topofl.models``.
    n
        Number of nodes, on a random 4-regular graph.
    batch_size
        Examples per minibatch, and of each node.
    """

    model: str
    n: int
    batch_size: int


CASES = {
    "full": (DiskCase("gn_lenet", 10_000, 4), DiskCase("resnet18_gn", 100, 2)),
    "smoke": (DiskCase("gn_lenet", 20, 2),),
}
"""Cases by preset."""


@dataclass(frozen=True)
class Measured:
    """One round of a case.

    Parameters
    ----------
    seconds
        Seconds of the round, without evaluations.
    peak, models
        Bytes of the process at most, and of the models.
    loss
        Mean training loss, to compare results.
    """

    seconds: float
    peak: int
    models: int
    loss: float


def train(case: DiskCase, scratch: str | None) -> Measured:
    """Train for one round in this process."""
    rng = np.random.default_rng(0)
    count = case.n * case.batch_size + 100
    images = torch.from_numpy(rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 10, count))
    dataset = data.from_arrays(
        images, labels, test=np.arange(count) < 100, mean=[0.5] * 3, std=[0.25] * 3
    )
    seconds: list[float] = []

    def note(event: topofl.callbacks.Event) -> None:
        if event.kind == "round":
            seconds.append(event.values["seconds"])
        if event.kind == "evaluation" and event.round:
            seconds[-1] -= event.values["seconds"]

    history = topofl.run(
        algorithms.dsgd(lr=0.01, batch_size=case.batch_size),
        model=getattr(models, case.model)(),
        clients=data.iid(dataset, case.n, seed=0),
        topology=topologies.random_regular(case.n, 4, seed=0),
        rounds=1,
        seed=0,
        evaluation=topofl.Evaluation(every=1, nodes=2, examples=50),
        compute=topofl.Compute(device="cpu", executor="looped", scratch=scratch),
        callbacks=[note],
        progress=False,
    )
    peak = process_bytes("VmHWM")
    size = 4 * case.n * history.meta["parameters"]
    return Measured(seconds[0], peak, size, float(history["train_loss"][0]))


def measure(
    cases: Sequence[DiskCase], scratch: Path, repeats: int
) -> list[tuple[DiskCase, str, Measured]]:
    """Return what was measured, with the models in a file and in memory in turns."""
    found = []
    for case in cases:
        for _ in range(repeats):
            for place in (str(scratch), None):
                words = [json.dumps(asdict(case)), json.dumps(place)]
                done = subprocess.run(
                    [sys.executable, "-m", __spec__.name, "--case", *words],
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                one = Measured(**json.loads(done.stdout.splitlines()[-1]))
                found.append((case, "file" if place else "memory", one))
                print(f"{case.model} x {case.n} in {found[-1][1]}: {one}", file=sys.stderr)
    return found


def table(found: Sequence[tuple[DiskCase, str, Measured]]) -> Table:
    """Return the medians of what was measured, and the slowdown by the file."""
    rows = []
    for case in dict.fromkeys(case for case, _, _ in found):
        own = {
            place: [one for other, where, one in found if (other, where) == (case, place)]
            for place in ("file", "memory")
        }
        seconds = {place: median(one.seconds for one in some) for place, some in own.items()}
        for place, some in own.items():
            peak = max(one.peak for one in some)
            rows.append((
                f"{case.model} x {case.n:,}, batch {case.batch_size}",
                place,
                some[0].models / 2**30,
                peak / 2**30,
                seconds[place],
                seconds[place] / seconds["memory"],
            ))  # fmt: skip
    columns = ("models", "kept in", "GiB of models", "peak GiB", "seconds per round", "slowdown")
    return Table(columns, tuple(rows))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table as Markdown."""
    parser = argparse.ArgumentParser(
        prog=as_installed("python -m analysis.larger_than_memory"),
        description=as_installed(__doc__ or ""),
    )
    parser.add_argument("--preset", choices=CASES, default="full", help="size of the cases")
    parser.add_argument("--scratch", default=None, help="folder on a disk; default: a new one")
    parser.add_argument("--repeats", type=int, default=1, help="turns (default 1)")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case:
        case, place = map(json.loads, options.case)
        print(json.dumps(asdict(train(DiskCase(**case), place))))
        return
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        found = measure(CASES[options.preset], Path(folder), options.repeats)
    print(table(found).to_markdown())


if __name__ == "__main__":
    main()
