"""Measure runs whose models are in a file: seconds of a round, and memory, against those in memory.

``python -m analysis.larger_than_memory --scratch DIR`` trains each of :data:`CASES` for one round,
with the models in a file of the folder and in memory, in turns and each in a new process. It prints
the seconds of the round without evaluations, the peak memory of the process (``VmHWM`` of Linux),
and the bytes of the models. ``--preset smoke`` takes small cases. Linux only.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

import topofl
from topofl import Table, algorithms, data, models, topologies

from .program import answers, parser_of, process_bytes, random_images

CASES = {
    "full": (("gn_lenet", 10_000, 4), ("resnet18_gn", 100, 2)),
    "smoke": (("gn_lenet", 20, 2),),
}
"""By preset: names in ``topofl.models``, nodes, and the examples of a node, one minibatch."""


def train(model: str, n: int, batch_size: int, scratch: str | None) -> dict[str, Any]:
    """Train a case for one round of D-SGD on a random 4-regular graph, in this process.

    Returns
    -------
    dict
        The case, and where its models were; seconds of the round without evaluations; peak bytes of
        the process, and bytes of the models; and the mean training loss, to compare results.
    """
    count = n * batch_size + 100
    dataset = random_images(count, test=np.arange(count) < 100)
    seconds: list[float] = []

    def note(event: topofl.callbacks.Event) -> None:
        if event.kind == "round":
            seconds.append(event.values["seconds"])
        if event.kind == "evaluation" and event.round:
            seconds[-1] -= event.values["seconds"]

    history = topofl.run(
        algorithms.dsgd(lr=0.01, batch_size=batch_size),
        model=getattr(models, model)(),
        clients=data.iid(dataset, n, seed=0),
        topology=topologies.random_regular(n, 4, seed=0),
        rounds=1,
        seed=0,
        evaluation=topofl.Evaluation(every=1, nodes=2, examples=50),
        compute=topofl.Compute(device="cpu", executor="looped", scratch=scratch),
        callbacks=[note],
        progress=False,
    )
    return {
        "case": f"{model} x {n:,}, batch {batch_size}",
        "place": "memory" if scratch is None else "file",
        "seconds": seconds[0],
        "peak": process_bytes("VmHWM"),
        "models": 4 * n * history.meta["parameters"],
        "loss": float(history["train_loss"][0]),
    }


def measure(
    cases: Sequence[tuple[str, int, int]], scratch: str, repeats: int
) -> list[dict[str, Any]]:
    """Return what was measured, with the models in a file and in memory in turns."""
    found = []
    for case in cases:
        for _ in range(repeats):
            for folder in (scratch, None):
                found += answers(train, *case, folder)
                print(found[-1], file=sys.stderr)
    return found


def table(found: Sequence[Mapping[str, Any]]) -> Table:
    """Return the medians of what was measured, and the slowdown by the file."""
    rows = []
    for case in dict.fromkeys(one["case"] for one in found):
        own = {
            place: [one for one in found if (one["case"], one["place"]) == (case, place)]
            for place in ("file", "memory")
        }
        seconds = {place: median(one["seconds"] for one in some) for place, some in own.items()}
        for place, some in own.items():
            sizes = some[0]["models"] / 2**30, max(one["peak"] for one in some) / 2**30
            slowdown = seconds[place] / seconds["memory"]
            rows.append((case, place, *sizes, seconds[place], slowdown))
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
