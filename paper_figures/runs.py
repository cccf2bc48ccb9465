"""Training runs on disk: each is found by a hash of everything that determines it, and never done twice."""

import contextlib
import hashlib
import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

import topofl
from topofl import History, config, metrics

__all__ = ["Failed", "Run", "Store", "compute_all", "forget_peak", "key_of", "peak_megabytes"]

Tables = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Run:
    """One training run.

    Parameters
    ----------
    tables
        What is run, as in :mod:`topofl.config`; every seed is in them.
    """

    tables: Tables

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.tables["run"]["seed"]


def key_of(run: Run) -> str:
    """Return 16 hexadecimal digits that stand for everything that determines a run's result.

    They depend on the tables, on what is in the data's files (not on where they lie), and on the versions of topofl and
    torch. What changes rounding only (how many threads there are, the faster executor on this machine) is not in them.
    """
    tables = {name: dict(table) for name, table in run.tables.items()}
    root = tables["data"].pop("root", None)
    source = {key: tables["data"].get(key) for key in ("name", "verify")}
    tables["data"]["content"] = _content(json.dumps(source | {"root": None if root is None else os.fspath(root)}))
    versions = {"topofl": topofl.__version__, "torch": torch.__version__}
    text = json.dumps([tables, versions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=16)
def _content(source: str) -> str:
    """Return a hash of a dataset's examples and labels."""
    given = {key: value for key, value in json.loads(source).items() if value is not None}
    dataset = getattr(topofl.data, given.pop("name"))(**given, val=0)
    digest = hashlib.sha256(dataset.labels.numpy().tobytes())
    digest.update(np.ascontiguousarray(dataset.inputs.numpy()))
    return digest.hexdigest()


@dataclass(frozen=True)
class Store:
    """A folder of finished runs, one folder each: ``history/``, ``config.toml`` and, written last, ``run.json``."""

    root: Path

    def folder(self, run: Run) -> Path:
        """Return where a run is, or will be."""
        return self.root / key_of(run)

    def has(self, run: Run) -> bool:
        """Return whether a run is finished."""
        return (self.folder(run) / "run.json").is_file()

    def load(self, run: Run) -> tuple[History, dict[str, Any]]:
        """Return the history of a finished run, and what was noted of it: numbers, seconds, memory, machine.

        Raises
        ------
        FileNotFoundError
            If it is not finished.
        ValueError
            If its files are damaged.
        """
        return History.load(self.folder(run) / "history"), self.load_note(run)

    def load_note(self, run: Run) -> dict[str, Any]:
        """Return only what was noted of a finished run; raises as :meth:`load`."""
        path = self.folder(run) / "run.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is damaged: {error}; remove {path.parent}, then it is run again") from error

    def perform(self, run: Run) -> None:
        """Do a run and keep it; if it is stopped at any time, nothing counts as finished."""
        forget_peak()
        start = time.perf_counter()
        experiment = config.build(run.tables)
        history = experiment.run(progress=False)
        seconds = time.perf_counter() - start
        note = {"seconds": seconds, "megabytes": peak_megabytes(), "rounds_per_epoch": _rounds_per_epoch(experiment)}
        note |= {"numbers": _numbers(experiment, history), "made": _made(history)}
        folder = self.folder(run)
        history.save(folder / "history")
        (folder / "config.toml").write_text(config.dumps(experiment.tables_of(history)), encoding="utf-8")
        _replace_text(folder / "run.json", json.dumps(note, indent=2) + "\n")


def _rounds_per_epoch(experiment: config.Experiment) -> int:
    """Return how many minibatches a pass over the largest node's data takes."""
    return -(-int(experiment.clients.sizes.max()) // experiment.tables["algorithm"]["batch_size"])


def _numbers(experiment: config.Experiment, history: History) -> dict[str, float]:
    """Return what is known of the graph and of the messages, for the tables beside the figures."""
    n, counts = experiment.clients.n, experiment.clients.label_counts
    numbers = {name: float(history[name].mean()) / n for name in ("messages", "messages_paper", "bytes")}
    graph, weights = experiment.topology, history.mixing(0)
    numbers |= {"degree": graph.n_edges * (1 if graph.is_directed else 2) / n, "gap": weights.spectral_gap}
    numbers["heterogeneity"] = metrics.neighborhood_heterogeneity(weights, counts)
    if graph.groups:
        numbers["skew"] = float(np.mean(metrics.clique_skew(graph.groups, counts)))
    return numbers


def _made(history: History) -> dict[str, Any]:
    meta = history.meta
    processor = platform.processor() or platform.machine()
    return {
        "versions": meta["versions"] | {"topofl": topofl.__version__},
        "device": meta["device"],
        "executor": meta["executor"],
        "machine": f"{platform.system()} {processor}, {os.cpu_count()} CPU cores",
        "threads": torch.get_num_threads(),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def forget_peak() -> None:
    """Let the peak of this process's memory start anew, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_megabytes() -> float:
    """Return the largest memory of this process since :func:`forget_peak`, or since its start where that cannot be."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _replace_text(path: Path, text: str) -> None:
    """Write a file that appears only when it is complete."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".", encoding="utf-8", delete=False) as file:
        file.write(text)
    os.replace(file.name, path)


class Failed(RuntimeError):
    """Some runs failed; those that were finished are kept."""


def compute_all(runs: Iterable[Run], store: Store, *, jobs: int = 1, progress: bool | str = "auto") -> None:
    """Do all runs that are not finished yet.

    Parameters
    ----------
    runs
        In the order in which they are done; one that comes twice is done once.
    store
        Where they are kept.
    jobs
        Processes that do them; the CPU cores are shared out evenly. 1: this process.
    progress
        True or False; ``"auto"``: a bar on terminals only.

    Raises
    ------
    Failed
        If runs raised errors, after all others are done; the message names each with its error.
    """
    missing = {key_of(run): run for run in runs}
    missing = {key: run for key, run in missing.items() if not store.has(run)}
    store.root.mkdir(parents=True, exist_ok=True)
    disable = None if progress == "auto" else not progress
    failed = []
    with tqdm(total=len(missing), desc="runs", unit="run", disable=disable, leave=False) as bar:
        for run, error in _results(list(missing.values()), store, jobs):
            bar.update()
            if error is not None:
                failed.append(f"{_shown(run)}: {error}")
    if failed:
        raise Failed(f"{len(failed)} of {len(missing)} runs failed, the others are kept: {'; '.join(failed)}")


def _results(runs: Sequence[Run], store: Store, jobs: int) -> Iterator[tuple[Run, BaseException | None]]:
    """Yield each run as it is finished, with its error if it failed."""
    if jobs == 1 or len(runs) <= 1:
        for run in runs:
            yield run, _attempt(store, run)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (threads,)) as pool:
        futures: dict[Future[Exception | None], Run] = {pool.submit(_attempt, store, run): run for run in runs}
        try:
            while futures:
                for future in wait(futures, return_when=FIRST_COMPLETED).done:
                    yield futures.pop(future), future.result()
        except BrokenProcessPool as error:
            raise MemoryError("a process was killed, most likely for want of memory; use fewer jobs") from error
        finally:
            pool.shutdown(cancel_futures=True)


def _attempt(store: Store, run: Run) -> Exception | None:
    """Do a run; return what went wrong with it, so that the others go on. A full disk stops them all."""
    try:
        store.perform(run)
    except (ArithmeticError, ValueError, TypeError, MemoryError) as error:
        return error
    return None


def _shown(run: Run) -> str:
    return f"{run.tables['algorithm']['name']} on {run.tables['topology']['name']}, seed {run.seed}"
