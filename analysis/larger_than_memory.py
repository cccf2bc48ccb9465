"""Measure runs whose models are in a file: seconds of a round, and memory, against those in memory.

``python -m analysis.larger_than_memory --scratch DIR`` trains each of :data:`CASES` for one round,
with the models in a file of the folder and in memory, in turns and each in a new process. It prints
the seconds of the round without evaluations, the peak memory of the process (``VmHWM`` of Linux),
and the bytes of the models. ``--preset smoke`` takes small cases. Linux only.
"""

import sys
import tempfile
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import topofl
from topofl import Table, algorithms, data, models, topologies

from .program import answers, parser_of, process_bytes, random_images


class DiskCase(NamedTuple):
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


class Measured(NamedTuple):
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


def train(case: Sequence[Any], scratch: str | None) -> Measured:
    """Train a case for one round in this process."""
    case = DiskCase(*case)
    count = case.n * case.batch_size + 100
    dataset = random_images(count, test=np.arange(count) < 100)
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
    cases: Sequence[DiskCase], scratch: str, repeats: int
) -> list[tuple[DiskCase, str, Measured]]:
    """Return what was measured, with the models in a file and in memory in turns."""
    found = []
    for case in cases:
        for _ in range(repeats):
            for place, folder in (("file", scratch), ("memory", None)):
                (answer,) = answers(train, case, folder)
                found.append((case, place, Measured(*answer)))
                print(f"{case.model} x {case.n} in {place}: {found[-1][2]}", file=sys.stderr)
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
    options = parser_of(
        "larger_than_memory",
        __doc__,
        preset=("full", "size of the cases", CASES),
        scratch=(str, "folder on a disk; default: a new one"),
        repeats=(1, "turns"),
    ).parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        found = measure(CASES[options.preset], folder, options.repeats)
    print(table(found).to_markdown())


if __name__ == "__main__":
    main()
