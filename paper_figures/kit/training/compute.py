"""Train the runs that are not finished yet, in one process or several."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import torch
from tqdm.auto import tqdm

from topofl.runs.run import Run

from .keys import keyed
from .store import Store

__all__ = ["Failed", "compute_missing"]


class Failed(RuntimeError):
    """Raised if runs failed; finished runs are stored. ``errors`` has the reasons by run key."""

    def __init__(self, message: str, errors: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.errors = dict(errors or {})


def compute_missing(
    runs: Iterable[Run],
    store: Store,
    *,
    jobs: int = 1,
    progress: bool | str = "auto",
    failed: Mapping[str, str] | None = None,
    title: str = "runs",
) -> None:
    """Train all runs that are not finished yet.

    Parameters
    ----------
    runs
        Runs in the order of training; duplicates are trained once.
    store
        Where the runs are stored.
    jobs
        Number of processes, which share the CPU cores evenly; 1 uses this process.
    progress
        True or False; ``"auto"``: a bar on terminals only.
    failed
        Reasons of runs that are known to fail, by key; these are not tried again.
    title
        Title of the progress bar.

    Raises
    ------
    Failed
        If runs raised errors, after all others are finished; the message names each with its error.
    MemoryError
        If a process was killed.
    OSError
        If a run cannot be saved.
    """
    missing = {key: run for key, run in keyed(runs).items() if not store.has(run)}
    errors = {key: text for key, text in (failed or {}).items() if key in missing}
    store.root.mkdir(parents=True, exist_ok=True)
    disable = None if progress == "auto" else not progress
    todo = [run for key, run in missing.items() if key not in errors]
    runs_only = Store(store.root)  # spares other processes the numbers of an earlier report
    with tqdm(total=len(todo), desc=title, unit="run", disable=disable, leave=False) as bar:
        for run, error in _results(todo, runs_only, jobs):
            bar.update()
            if error is not None:
                errors[run.key] = f"{_shown(run)}: {error}"
    if errors:
        reasons = "; ".join(errors.values())
        raise Failed(
            f"{len(errors)} of {len(missing)} runs failed, the others are stored: {reasons}", errors
        )


def _results(
    runs: Sequence[Run], store: Store, jobs: int
) -> Iterator[tuple[Run, Exception | None]]:
    """Yield each run as it is finished, with its error if it failed."""
    if jobs == 1 or len(runs) <= 1:
        yield from ((run, _attempt(store, run)) for run in runs)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (threads,)) as pool:
        try:
            yield from _spread_out(runs, store, jobs, pool)
        except BrokenProcessPool as error:
            raise MemoryError(
                "a process was killed, most likely for lack of memory (use fewer jobs), or could "
                "not start (a script that uses several jobs must do so under "
                '`if __name__ == "__main__":`)'
            ) from error


def _spread_out(
    runs: Sequence[Run], store: Store, jobs: int, pool: ProcessPoolExecutor
) -> Iterator[tuple[Run, Exception | None]]:
    """Yield as :func:`_results`, submitting one run per process at a time, so that all can stop."""
    waiting = list(reversed(runs))
    active = {}
    while waiting or active:
        while waiting and len(active) < jobs:
            run = waiting.pop()
            active[pool.submit(_attempt, store, run)] = run
        for future in wait(active, return_when=FIRST_COMPLETED).done:
            yield active.pop(future), future.result()


def _attempt(store: Store, run: Run) -> Exception | None:
    """Train a run unless it is finished, and return its error or None; ``OSError`` is raised."""
    try:
        if not store.has(run):
            store.perform(run)
    except (ArithmeticError, ValueError, TypeError, MemoryError, RuntimeError) as error:
        return error
    return None


def _shown(run: Run) -> str:
    graph = run.tables.get("topology", {"name": "no graph"})["name"]
    return f"{run.tables['algorithm']['name']} on {graph}, seed {run.seed}"
