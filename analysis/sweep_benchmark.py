"""Measure sweeps: overhead over the ideal, repeated kills, and the listing of many runs.

``alone`` compares a sweep of 60 short runs in one process with their rounds alone, and with one
process per run, of which only a few are timed.

::

    python -m analysis.sweep_benchmark overhead --runs 200 --jobs 2
    python -m analysis.sweep_benchmark alone --repeats 3
    python -m analysis.sweep_benchmark kills --kills 10
    python -m analysis.sweep_benchmark listing --runs 20000
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from topofl.callbacks import Event
from topofl.config import build, dumps
from topofl.runs import RunStore, sweep
from topofl.runs.folder import RUNNING
from topofl.runs.plan import prepare

from .program import parser_of

BASE = {
    "data": {"name": "digits", "partition": "dirichlet_per_class", "n": 20},
    "algorithm": {"name": "dsgd", "lr": 0.1},
    "run": {"rounds": 50},
}
GRID = {
    "topology": ["ring", "star", "torus", "exponential"],
    "data.alpha": [0.1, 0.3, 1.0, 3.0, 10.0],
}
POINTS = 20

SHORT = {
    "data": {"name": "digits", "partition": "shards", "n": 100},
    "algorithm": {"name": "dsgd"},
    "run": {"rounds": 100},
}
SHORT_GRID = {
    "topology": ["ring", "torus", "exponential"],
    "algorithm.lr": [0.05, 0.1, 0.2, 0.5],
}
SHORT_SEEDS = 5
SAMPLED = 4
"""Runs that are timed in processes of their own."""


def alone(repeats: int) -> dict[str, float]:
    """Return medians of ratios: a sweep over its rounds alone, and processes over the sweep.

    In each repetition, the sweep, the rounds of the same runs and the sampled processes take turns.
    The time of all processes is that of the sample, extrapolated.
    """
    points = prepare(SHORT, SHORT_GRID, seeds=SHORT_SEEDS)
    sampled = points[:: len(points) // SAMPLED][:SAMPLED]
    over, under = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            sweep(SHORT, SHORT_GRID, seeds=SHORT_SEEDS, store=folder, progress=False)
            whole = time.perf_counter() - start
        over.append(whole / sum(_seconds_of_rounds(point.job.tables) for point in points))
        separate = sum(_seconds_of_process(point.job.tables) for point in sampled)
        under.append(separate / SAMPLED * len(points) / whole)
    ratios = {"over its rounds alone": median(over), "processes over it": median(under)}
    return {"runs": len(points), "processes timed": SAMPLED, **ratios}


def _seconds_of_rounds(tables: Mapping[str, Any]) -> float:
    """Return the time of the rounds of a run, with their evaluations."""
    seconds = []

    def note(event: Event) -> None:
        if event.kind == "round":
            seconds.append(event.values["seconds"])

    build(tables).run(progress=False, callbacks=[note])
    return sum(seconds)


def _seconds_of_process(tables: Mapping[str, Any]) -> float:
    """Return the time of ``topofl run`` in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.toml")
        path.write_text(dumps(tables))
        return _seconds_of("run", str(path), "--out", str(path.with_suffix("")), "--no-progress")


def overhead(runs: int, jobs: int) -> dict[str, float]:
    """Return the time of a whole sweep in a new process over (sum of run times / processes)."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        store = Path(folder, "store")
        _finish(_start(store, runs, jobs))
        seconds = time.perf_counter() - start
        stored = RunStore(store).runs()
    if len(stored) != runs:
        raise RuntimeError(f"{len(stored)} of {runs} runs were stored; run the sweep by itself")
    total = sum(run.note["seconds"] for run in stored)
    times = {"seconds": seconds, "sum of run times": total}
    return {"runs": runs, **times, "over the ideal": seconds / (total / jobs)}


def kills(times: int, runs: int, jobs: int, seed: int = 0) -> dict[str, float]:
    """Kill a sweep at random moments, and compare its table with that of an undisturbed one.

    Returns
    -------
    dict
        How often it was killed before it was finished, how often a process began a run that had
        been finished before it was started (must be 0), and whether the tables are equal bit for
        bit.

    Raises
    ------
    RuntimeError
        If a sweep that is not killed fails, or does not finish all runs.
    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        disturbed, whole = Path(folder, "disturbed"), Path(folder, "whole")
        start = time.perf_counter()
        _finish(_start(whole, runs, jobs))
        seconds = time.perf_counter() - start
        killed = repeated = 0
        for k in range(times + 1):
            limit = rng.uniform(0.1, 2.0) * seconds / times + 2.0 if k < times else None
            again = Repeats(disturbed)
            process = _start(disturbed, runs, jobs)
            try:
                again.watch(process, limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                killed += 1
            else:
                _finish(process)
            repeated += len(again.found)
        for store in (disturbed, whole):
            if (found := len(RunStore(store).runs())) != runs:
                raise RuntimeError(f"{found} of {runs} runs were stored")
        how = {"seeds": runs // POINTS, "progress": False}
        tables = [sweep(BASE, GRID, store=s, **how).table.to_csv() for s in (disturbed, whole)]
    return {"killed": killed, "repeated": repeated, "equal": tables[0] == tables[1]}


class Repeats:
    """Runs that a process begins although they were finished before.

    A process that begins a run writes its settings to a folder, which exists until it is stored.
    """

    def __init__(self, store: Path) -> None:
        self.running = store / RUNNING
        self.finished = {path.parent.name for path in store.glob("*/run.json")}
        self.before = self._begun()
        self.found: set[str] = set()

    def watch(self, process: subprocess.Popen[bytes], limit: float | None) -> None:
        """Look until a process ends, or raise ``TimeoutExpired`` after `limit` seconds."""
        end = time.monotonic() + (float("inf") if limit is None else limit)
        while process.poll() is None:
            self.look()
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(process.args, limit or 0.0)
            time.sleep(0.005)

    def look(self) -> None:
        """Note the runs that were begun since."""
        new = self._begun() - self.before
        self.found |= {key for key, _ in new if key in self.finished}

    def _begun(self) -> set[tuple[str, int]]:
        """Return the keys of runs, each with the time at which its settings were written."""
        found = set()
        for path in self.running.glob("*/run.json"):
            with suppress(FileNotFoundError):  # it has been stored meanwhile
                found.add((path.parent.name.partition("+")[0], path.stat().st_mtime_ns))
        return found


def _finish(process: subprocess.Popen[bytes]) -> None:
    if process.wait():
        raise RuntimeError(f"the sweep ended with {process.returncode}; run its command by itself")


def listing(runs: int) -> dict[str, float]:
    """Return the seconds to list and to summarize many runs: copies of one run, 20 settings."""
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder))
        grid = {"topology": ["ring"], "data.alpha": [1.0]}
        sweep(BASE, grid, seeds=1, store=folder, progress=False)
        (one,) = store.runs()
        text = json.loads((one.folder / "run.json").read_text())
        for k in range(runs - 1):
            copy = Path(folder, f"{k:016x}")
            copy.mkdir()
            text["tables"]["run"]["seed"] = (k + 1) // POINTS
            text["tables"]["data"]["alpha"] = float((k + 1) % POINTS + 1)
            (copy / "run.json").write_text(json.dumps(text, indent=1))
        start = time.perf_counter()
        found = store.runs()
        listed = time.perf_counter() - start
        shell = _seconds_of("runs", folder, "--columns", "run.seed")
        summarized = _seconds_of(
            *("compare", folder, "--group-by", "alpha", "--baseline", "1.0", "--target", "0.5")
        )
    return {
        "runs": len(found),
        "seconds to list": listed,
        "seconds of topofl runs": shell,
        "seconds of topofl compare --group-by": summarized,
    }


def _seconds_of(*words: str) -> float:
    """Return the time of a command of topofl, start-up included."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "topofl", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _start(store: Path, runs: int, jobs: int) -> subprocess.Popen[bytes]:
    """Start ``topofl sweep`` in a process group of its own."""
    base = store.with_name(f"{store.name}.toml")
    base.write_text(dumps(BASE))
    grid = [f"{key}={','.join(map(str, values))}" for key, values in GRID.items()]
    command = [sys.executable, "-m", "topofl", "sweep", str(base), "--grid", *grid]
    command += ["--seeds", str(runs // POINTS), "--jobs", str(jobs), "--store", str(store)]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Run one measurement and print its numbers."""
    parser = parser_of(
        "sweep_benchmark",
        __doc__,
        runs=(200, "a multiple of 20"),
        jobs=(2, "processes"),
        kills=(10, "how often the sweep is killed"),
        repeats=(3, "how often sweep, rounds and processes take turns"),
    )
    parser.add_argument("what", choices=["overhead", "alone", "kills", "listing"])
    options = parser.parse_args()
    found = {
        "overhead": lambda: overhead(options.runs, options.jobs),
        "alone": lambda: alone(options.repeats),
        "kills": lambda: kills(options.kills, options.runs, options.jobs),
        "listing": lambda: listing(options.runs),
    }[options.what]()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
