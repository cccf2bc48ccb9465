"""Measure how much memory runs take, beside what topofl.estimate predicts.

``python -m analysis.peak_memory`` runs each of :data:`SETTINGS` for 3 rounds in a process of its own, and prints what
the process took at most on top of what it had when data and model were made (``VmHWM`` of Linux, set back before the
run), the prediction, and their ratio. Linux only.

The allocator of glibc raises the size from which it gives blocks back to up to 32 MiB, and keeps up to twice that free:
small runs with convolutions may so take up to some 70 MiB more than predicted, a different amount each time. With
``MALLOC_MMAP_THRESHOLD_=131072`` in the environment, which forbids that, 40 nodes with GN-LeNet took 60 MiB, not 97.
"""

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import topofl
from topofl import Table, algorithms, data, models, topologies
from topofl.estimate import Estimate

__all__ = ["SETTINGS", "Setting", "estimate_of", "peak_of", "table"]


@dataclass(frozen=True)
class Setting:
    """One run on random images.

    Parameters
    ----------
    model
        Name in ``topofl.models``.
    n, batch_size
        Nodes and examples a minibatch.
    executor, chunk
        As in :func:`topofl.run`.
    shape
        Of an image.
    momentum
        Of D-SGD.
    clique_averaging
        D-Cliques with Clique Averaging, else D-SGD on a ring.
    examples
        Of which 100 are for the test.
    """

    model: str
    n: int
    batch_size: int
    executor: str = "looped"
    chunk: int | None = None
    shape: tuple[int, ...] = (3, 32, 32)
    momentum: float = 0.0
    clique_averaging: bool = False
    examples: int = 2100

    @property
    def label(self) -> str:
        """One line."""
        how = self.executor if self.chunk is None else f"{self.executor}, chunk={self.chunk}"
        extra = ", Clique Averaging" * self.clique_averaging + f", momentum={self.momentum:g}" * (self.momentum > 0)
        return f"{self.model}, {self.n} x {self.batch_size}, {how}{extra}"


MNIST = (1, 28, 28)

SETTINGS = (
    Setting("logistic_regression", 100, 128, "batched", shape=MNIST, examples=14_000),
    Setting("logistic_regression", 1000, 13, "batched", shape=MNIST, examples=14_000),
    Setting("logistic_regression", 1000, 13, "batched", shape=MNIST, examples=14_000, clique_averaging=True),
    Setting("gn_lenet", 10, 20),
    Setting("gn_lenet", 100, 20),
    Setting("gn_lenet", 100, 20, momentum=0.9, clique_averaging=True),
    Setting("gn_lenet", 100, 20, "batched", 8),
    Setting("gn_lenet", 100, 20, "batched", 25),
    Setting("dpfl_cnn", 100, 16),
    Setting("dpfl_cnn", 100, 16, "batched"),
    Setting("resnet18_gn", 4, 32),
    Setting("resnet18_gn", 4, 8, "batched", 2),
)


def _arguments(setting: Setting) -> dict[str, Any]:
    """Return what run and estimate are called with."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((setting.examples, *setting.shape), dtype=np.float32)
    dataset = data.from_arrays(inputs, np.arange(setting.examples) % 10, test=100 / setting.examples, name="random")
    clients = data.iid(dataset, setting.n, seed=0)
    sgd = {"lr": 0.01, "batch_size": setting.batch_size, "momentum": setting.momentum}
    graph, algorithm = topologies.ring(setting.n), algorithms.dsgd(**sgd)
    if setting.clique_averaging:
        graph = topologies.dcliques(clients.label_counts, clique_size=10, steps=10, seed=0)
        algorithm = algorithms.clique_averaging(**sgd)
    size = {"in_shape": setting.shape}
    if setting.model == "logistic_regression":
        size = {"in_features": int(np.prod(setting.shape))}
    return {
        "algorithm": algorithm, "model": getattr(models, setting.model)(**size), "clients": clients, "topology": graph,
        "executor": setting.executor, "chunk": setting.chunk, "device": "cpu",
    }  # fmt: skip


def estimate_of(setting: Setting) -> Estimate:
    """Return what :func:`topofl.estimate` says."""
    return topofl.estimate(**_arguments(setting))


def peak_of(setting: Setting, *, timeout: float = 600) -> int:
    """Return the bytes that a run of 3 rounds took at most on top of what was there, in a process of its own.

    Raises
    ------
    OSError
        If this is not Linux.
    subprocess.SubprocessError
        If the process failed, or took longer than `timeout` seconds.
    """
    if not Path("/proc/self/clear_refs").exists():
        raise OSError("peaks can only be measured on Linux, whose /proc tells them")
    command = [sys.executable, "-m", "analysis.peak_memory", "--child", json.dumps(asdict(setting))]
    folders = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout, check=True)
    return int(done.stdout.split()[-1])


def _measure(setting: Setting) -> int:
    """Run and return the peak; for a fresh process."""
    arguments = _arguments(setting)
    _give_back()
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark to what is in use now
    before = _status("VmRSS")
    topofl.run(**arguments, rounds=3, eval_every=3, seed=0, progress=False)
    return _status("VmHWM") - before


def _give_back() -> None:
    """Have the allocator return what making the data has left free, or the run would take it unseen."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def table(settings: Sequence[Setting] = SETTINGS) -> Table:
    """Measure and estimate some settings."""
    rows = []
    for setting in settings:
        measured, predicted = peak_of(setting), estimate_of(setting).added
        rows.append((setting.label, measured / 2**20, predicted / 2**20, predicted / measured))
    return Table(("run", "measured MiB", "predicted MiB", "predicted / measured"), tuple(rows))


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, or measure one setting."""
    parser = argparse.ArgumentParser(description="Peak memory of runs beside its prediction.")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the settings, from 0; default: all")
    options = parser.parse_args(argv)
    if options.child:
        setting = json.loads(options.child)
        print(_measure(Setting(**setting | {"shape": tuple(setting["shape"])})))
        return
    for setting in SETTINGS if options.only is None else [SETTINGS[i] for i in options.only]:
        print(table([setting]), flush=True)


if __name__ == "__main__":
    main()
