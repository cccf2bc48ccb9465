"""Measure checkpoints of runs on several processes: seconds, bytes, and memory of each process.

``python -m analysis.rank_checkpoints`` trains GN-LeNet on 1,000 nodes of a ring for one round, on
two processes that torchrun starts on this machine, with and without a checkpoint in turns. It
prints the peak memory of each process (``VmHWM`` of Linux), what a checkpoint adds to it, and the
seconds and bytes of the checkpoint. ``--preset smoke`` takes a small case. Linux only.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch.distributed as dist

import topofl
from topofl import Table, algorithms, data, models, topologies

from .program import answers, parser_of, process_bytes, random_images

NODES = {"full": 1000, "smoke": 20}
"""Number of nodes, by preset."""


def train(n: int, folder: str | None) -> dict[str, Any]:
    """Train for one round on this process's nodes, and return what its checkpoint took."""
    dataset = random_images(2 * n, test=np.arange(2 * n) < n)
    written: dict[str, Any] = {"seconds": None, "bytes": 0}

    def note(event: topofl.callbacks.Event) -> None:
        if event.kind == "checkpoint":
            written.update({name: event.values[name] for name in written})

    history = topofl.run(
        algorithms.dsgd(lr=0.01, batch_size=1),
        model=models.gn_lenet(),
        clients=data.iid(dataset, n, seed=0),
        topology=topologies.ring(n),
        rounds=1,
        seed=0,
        evaluation=topofl.Evaluation(nodes=2, examples=10),
        compute=topofl.Compute(device="cpu", executor="looped", distributed=True),
        saving=topofl.Saving(folder and Path(folder), models=False),
        callbacks=[note],
        progress=False,
    )
    size = 4 * n * history.meta["parameters"]
    return written | {"rank": dist.get_rank(), "peak": process_bytes("VmHWM"), "models": size}


def measure(n: int, ranks: int, turns: int) -> list[dict[str, Any]]:
    """Return what each process took, with and without a checkpoint in turns."""
    found = []
    for turn in range(turns):
        for saved in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                for answer in answers(train, n, folder if saved else None, ranks=ranks):
                    found.append(answer | {"turn": turn, "saved": saved})
                    print(found[-1], file=sys.stderr)
    return found


def table(found: Sequence[dict[str, Any]]) -> Table:
    """Return the medians over turns of what was measured, by process."""
    rows = []
    for rank in sorted({one["rank"] for one in found}):
        own = [one for one in found if one["rank"] == rank]
        peak = {
            saved: median(one["peak"] for one in own if one["saved"] == saved) / 2**20
            for saved in (False, True)
        }
        saving = [one for one in own if one["saved"]]
        cost: tuple[Any, Any] = ("-", "-")
        if rank == 0:  # which measures that of all
            seconds = median(one["seconds"] for one in saving)
            cost = (seconds, saving[0]["bytes"] / 2**20)
        size = own[0]["models"] / 2**20
        rows.append((rank, size, peak[False], peak[True], peak[True] - peak[False], *cost))
    columns = (
        "process", "MiB of all models", "peak MiB", "peak MiB with a checkpoint", "added MiB",
        "s per checkpoint", "MiB of the checkpoint",
    )  # fmt: skip
    return Table(columns, tuple(rows))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print a table as Markdown."""
    options = parser_of(
        "rank_checkpoints",
        __doc__,
        preset=("full", "number of nodes", NODES),
        ranks=(2, "processes"),
        turns=(3, "turns"),
    ).parse_args(argv)
    print(table(measure(NODES[options.preset], options.ranks, options.turns)).to_markdown())


if __name__ == "__main__":
    main()
