"""Measure checkpoints of runs on several processes: seconds, bytes, and memory of each process.

``python -m analysis.rank_checkpoints`` trains GN-LeNet on 1,000 nodes of a ring for one round, on
two processes that torchrun starts on this machine, with and without a checkpoint in turns. It
prints the peak memory of each process (``VmHWM`` of Linux), what a checkpoint adds to it, and the
seconds and bytes of the checkpoint. ``--preset smoke`` takes a small case. Linux only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import topofl
from topofl import Table, algorithms, data, models, topologies

from .benchmark.steps.memory import process_bytes
from .program import as_installed, free_port

NODES = {"full": 1000, "smoke": 20}
"""Number of nodes, by preset."""


def train(n: int, folder: Path | None) -> dict[str, Any]:
    """Train for one round on this process's nodes, and return what its checkpoint took."""
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (2 * n, 3, 32, 32), dtype=np.uint8))
    labels = torch.arange(2 * n) % 10
    test = np.arange(2 * n) < n
    dataset = data.from_arrays(images, labels, test=test, mean=[0.5] * 3, std=[0.25] * 3)
    written: dict[str, Any] = {"seconds": float("nan"), "bytes": 0}

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
        saving=topofl.Saving(folder, models=False),
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
            with tempfile.TemporaryDirectory() as place:
                command = [
                    *(sys.executable, "-m", "torch.distributed.run"),
                    *("--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1"),
                    *("--master-port", str(free_port()), "-m", __spec__.name),
                    *("--part", place, "--nodes", str(n), *(["--saved"] if saved else [])),
                ]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                for path in sorted(Path(place).glob("rank-*.json")):
                    row = json.loads(path.read_text()) | {"turn": turn, "saved": saved}
                    found.append(row)
                    print(row, file=sys.stderr)
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
    parser = argparse.ArgumentParser(
        prog=as_installed("python -m analysis.rank_checkpoints"),
        description=as_installed(__doc__ or ""),
    )
    parser.add_argument("--preset", choices=NODES, default="full", help="number of nodes")
    parser.add_argument("--ranks", type=int, default=2, metavar="K", help="processes (2)")
    parser.add_argument("--turns", type=int, default=3, metavar="K", help="turns (3)")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--saved", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.part is not None:
        place = Path(options.part)
        own = train(options.nodes, place / "checkpoints" if options.saved else None)
        (place / f"rank-{own['rank']}.json").write_text(json.dumps(own))
        return
    print(table(measure(NODES[options.preset], options.ranks, options.turns)).to_markdown())


if __name__ == "__main__":
    main()
