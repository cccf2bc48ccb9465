"""Measure the peak memory of runs, and compare it with topofl.estimate and a lower bound.

``python -m analysis.peak_memory`` runs each of :data:`SETTINGS` for 3 rounds on two threads, in a
separate process. It prints the peak memory of the process beyond that of data and model (``VmHWM``
of Linux, reset before the run), the predictions without and with a probe in such a process, and
their ratios. Linux only; ``--out DIR`` writes cpu-memory.md and .json there.

The lower bound consists of parameters, momentum, the activations of one chunk per worker as saved
by autograd, and the data. The memory that torch takes on first use is the same in all rows and is
not part of the last ratio.

``--cohort pfl-research`` measures instead what clients cost that do not take part: 1,000 users with
50 images each, of whom 50 train for one epoch of minibatches of 10 in a round, a convolutional
network with two dropouts (the setting of the published comparison of simulators in pfl-research),
against a run of these 50 alone. Memory is that of models, states and buffers: all images are there
before.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import topofl
from topofl import Table, algorithms, data, models, topologies
from topofl.estimate import Estimate

from .benchmark.cases import Case, Network
from .benchmark.timing import lower_bound
from .program import (
    answers,
    declared,
    parser_of,
    process_bytes,
    random_images,
    resident_before,
    torch_threads,
    write,
)


class MemoryCase(NamedTuple):
    """One run on random images.

    Parameters
    ----------
    model
        Name in ``topofl.models``.
    n, batch_size
        Number of nodes, and of examples per minibatch.
    executor, chunk
        As in :func:`topofl.run`.
    shape
        Shape of an image.
    momentum
        Momentum of D-SGD.
    clique_averaging
        D-Cliques with Clique Averaging, else D-SGD on a ring.
    examples
        Number of examples, of which 100 are the test set.
    fitted
        Whether constants of topofl.engine.footprint were fitted to this setting.
    """

    model: str
    n: int
    batch_size: int
    executor: str = "looped"
    chunk: int | str = "auto"
    shape: Sequence[int] = (3, 32, 32)
    momentum: float = 0.0
    clique_averaging: bool = False
    examples: int = 2100
    fitted: bool = False

    @property
    def label(self) -> str:
        """Description of the setting in one line."""
        how = self.executor if self.chunk == "auto" else f"{self.executor}, chunk={self.chunk}"
        extra = ", Clique Averaging" * self.clique_averaging + f", momentum={self.momentum:g}" * (
            self.momentum > 0
        )
        return f"{self.model}, {self.n} x {self.batch_size}, {how}{extra}"


THREADS = 2

SETTINGS = tuple(MemoryCase(**row) for row in declared("peak_memory")["settings"])
"""The measured runs."""


def _arguments(setting: MemoryCase) -> dict[str, Any]:
    """Return the arguments of run and estimate."""
    rng, shape = np.random.default_rng(0), tuple(setting.shape)
    inputs = rng.standard_normal((setting.examples, *shape), dtype=np.float32)
    dataset = data.from_arrays(
        inputs, np.arange(setting.examples) % 10, test=100 / setting.examples, name="random"
    )
    clients = data.iid(dataset, setting.n, seed=0)
    sgd = {"lr": 0.01, "batch_size": setting.batch_size, "momentum": setting.momentum}
    graph = topologies.ring(setting.n)
    algorithm = algorithms.dsgd(**sgd)
    if setting.clique_averaging:
        graph = topologies.dcliques(clients.label_counts, clique_size=10, steps=10, seed=0)
        algorithm = algorithms.clique_averaging(**sgd)
    size: dict[str, Any] = {"in_shape": shape}
    if setting.model == "logistic_regression":
        size = {"in_features": int(np.prod(shape))}
    return {
        "algorithm": algorithm,
        "model": getattr(models, setting.model)(**size),
        "clients": clients,
        "topology": graph,
        "compute": topofl.Compute("cpu", executor=setting.executor, chunk=setting.chunk),
    }


def estimate_of(setting: MemoryCase) -> Estimate:
    """Return the result of :func:`topofl.estimate` for two threads."""
    with torch_threads(THREADS):
        return topofl.estimate(**_arguments(setting))


def least_of(setting: MemoryCase, need: Estimate) -> int:
    """Return the lower bound of the memory of a run in bytes, without torch itself."""
    network = _arguments(setting)["model"]
    label = Network(setting.model, lambda: network, tuple(setting.shape), setting.examples)
    case = Case(setting.model, label, setting.n, setting.batch_size, momentum=setting.momentum)
    nodes = min(need.workers * need.chunk, setting.n)
    return lower_bound(case, nodes, stored=4) - need.held  # float32 data


def peak_of(setting: MemoryCase, *, timeout: float = 600) -> int:
    """Return the peak memory that a run of 3 rounds adds, in bytes, in a separate process.

    Raises
    ------
    OSError
        If this is not Linux.
    subprocess.SubprocessError
        If the process failed, or took longer than `timeout` seconds.
    """
    if not Path("/proc/self/clear_refs").exists():
        raise OSError("peak memory can only be measured on Linux, whose /proc reports it")
    return next(answers(added_by_run, setting, threads=THREADS, limit=timeout))


def added_by_run(setting: Sequence[Any]) -> int:
    """Return the bytes that a run adds to the memory of this new process."""
    arguments = _arguments(MemoryCase(*setting))
    before = resident_before()
    topofl.run(**arguments, rounds=3, evaluation=3, seed=0, progress=False)
    return process_bytes("VmHWM") - before


def added_by_probe(setting: Sequence[Any]) -> int:
    """Return the bytes that :func:`topofl.estimate` predicts by a probe in this new process."""
    arguments = _arguments(MemoryCase(*setting))
    resident_before()
    return topofl.estimate(**arguments, probe=True).added


def measure(setting: MemoryCase) -> dict[str, Any]:
    """Return peak, predictions, lower bound and torch's own memory of a setting, in bytes."""
    need = estimate_of(setting)
    peak, probed = peak_of(setting), next(answers(added_by_probe, setting, threads=THREADS))
    found = {"setting": setting._asdict(), "peak": peak, "predicted": need.added, "probed": probed}
    return found | {"least": least_of(setting, need), "torch": need.torch}


def _row(found: Mapping[str, Any]) -> tuple[Any, ...]:
    setting, peak, least = MemoryCase(**found["setting"]), found["peak"], found["least"]
    sizes = [found[name] / 2**20 for name in ("peak", "predicted", "probed", "least")]
    ratios = (found["predicted"] / peak, found["probed"] / peak)
    over = max(peak - found["torch"], 0) / least
    return setting.label, "fitted" if setting.fitted else "checked", *sizes, *ratios, over


def table(measured: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of measured and predicted peaks."""
    columns = (
        *("run", "constants", "measured MiB", "predicted MiB", "by a probe MiB", "least MiB"),
        *("predicted / measured", "by a probe / measured", "(measured - torch) / least"),
    )
    return Table(columns, tuple(map(_row, measured)))


class Cohort(NamedTuple):
    """Users with some images each, of whom a cohort trains in each round."""

    users: int
    cohort: int
    images: int
    batch_size: int


COHORTS = {"pfl-research": Cohort(1000, 50, 50, 10), "smoke": Cohort(60, 3, 10, 5)}
"""Settings of ``--cohort`` by name."""


def simple_cnn() -> nn.Sequential:
    """Return the network of pfl-research for images of 3 x 32 x 32: 1,626,442 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    )


def added_by_cohort(setting: Sequence[int], whole: bool) -> tuple[int, int]:
    """Return the bytes that a run adds to this new process, and those of a model.

    All users are clients of the `whole` run, or those of one cohort.
    """
    users, cohort, images, batch_size = setting
    dataset = random_images(users * images + 500, test=500 / (users * images + 500))
    every = data.iid(dataset, users, seed=0)
    parts = (part if whole else part[:cohort] for part in (every.train, every.val, every.test))
    clients, network = data.Partition(dataset, *parts, name="users"), simple_cnn()
    before = resident_before()
    topofl.run(
        algorithms.fedavg(
            lr=0.1, batch_size=batch_size, epochs=1, participation=cohort if whole else 1.0
        ),
        model=network,
        clients=clients,
        rounds=2,
        seed=0,
        evaluation=2,
        progress=False,
    )
    return process_bytes("VmHWM") - before, 4 * sum(p.numel() for p in network.parameters())


def cohort_table(name: str) -> Table:
    """Return the table of what users cost that do not take part, in MiB."""
    setting = COHORTS[name]
    rows = []
    for whole in (True, False):
        added, model = next(answers(added_by_cohort, setting, whole, threads=THREADS))
        clients = setting.users if whole else setting.cohort
        rows.append((clients, setting.cohort, added / 2**20, clients * model / 2**20))
    return Table(("clients", "take part", "measured MiB", "a model each MiB"), tuple(rows))


def main(argv: Sequence[str] | None = None) -> None:
    """Print and write the table."""
    parser = parser_of(
        "peak_memory",
        __doc__,
        out=(Path, "folder for cpu-memory.md and cpu-memory.json"),
        cohort=(str, f"measure clients that do not take part instead: {' or '.join(COHORTS)}"),
    )
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the settings, from 0")
    options = parser.parse_args(argv)
    if options.cohort is not None:
        if options.cohort not in COHORTS:
            parser.error(f"--cohort must be {' or '.join(COHORTS)}, got {options.cohort}")
        print(cohort_table(options.cohort))
        return
    measured = []
    for setting in SETTINGS if options.only is None else [SETTINGS[i] for i in options.only]:
        measured.append(measure(setting))
        print(_row(measured[-1]), flush=True)
    print(table(measured))
    if options.out is not None:
        _write(options.out, measured)


def _write(folder: Path, measured: Sequence[Mapping[str, Any]]) -> None:
    within, probed = (
        sum(abs(found[name] / found["peak"] - 1) <= 0.2 for found in measured)
        for name in ("predicted", "probed")
    )
    lines = [
        "# Peak memory of runs on CPU, measured and predicted\n",
        f"`python -m analysis.peak_memory --out {folder}`, {THREADS} threads, torch "
        f"{torch.__version__}. Peaks are the growth of a fresh process's resident memory by a run "
        f"of 3 rounds; the float32 data that it had before do not count. {within} of "
        f"{len(measured)} predictions are within 20 %, {probed} after a probe in such a process "
        "(`topofl.estimate(..., probe=True)`: some of the nodes, at least as many as are trained "
        "at once, are trained for 4 rounds; in runs of few nodes those are all). Constants of the "
        "prediction were fitted to the rows that say so; its form was chosen after looking at "
        "earlier peaks of some others too. Peaks of one setting vary by 10 to 20 % from run to "
        "run. ResNet-18-GN is measured with small minibatches, and with 10 nodes on images of 16 x "
        "16, so that each step takes less than a minute.\n",
        table(measured).to_markdown(),
    ]
    for content in ("\n".join(lines) + "\n", measured):
        write(folder, **{"cpu-memory": content})


if __name__ == "__main__":
    main()
