"""Train a few rounds of figures: of a run at the paper's scale, or of a sample at quick scale.

``python -m paper_figures.time_rounds dfedpgp-tab01 dfedpgp --data DIR`` trains 100 clients with
ResNet-18 for 3 rounds with the settings of table 1, on the available images of CIFAR-10 (a subset
is enough). It prints the seconds of each round, the peak memory of the process next to the
prediction of ``topofl.estimate``, and the days that all rounds would take with all 50,000 images.
``--epochs`` makes rounds shorter; the estimate of days is then too high, because costs that do not
depend on epochs (separate training of heads, the exchange) are scaled with them.

``python -m paper_figures.time_rounds sample --before FOLDER --data DIR`` times rounds of
:data:`SAMPLE`, arms at scale quick, with this version and with the checkout of another one, in
turns and each in a new process, and prints both times and their ratio. Use an idle machine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import topofl
from topofl import Table, config
from topofl.callbacks import Event
from topofl.runs.identity import Tables, peak_memory_megabytes, reset_peak_memory

from .command import figures_named
from .kit.paper import Setting, make_setting

IMAGES = 50_000


def tables_at_paper_scale(figure: str, algorithm: str, data: Path) -> dict[str, dict[str, Any]]:
    """Return the configuration tables of a figure's first run of an algorithm at paper scale.

    Raises
    ------
    ValueError
        If the figure has no such run.
    FileNotFoundError
        If there are no files of CIFAR-10.
    """
    (found,) = figures_named(figure)[1]
    runs = found.runs(Setting("paper", (0,), data, datasets=("cifar10",)))
    known = {str(run.tables["algorithm"]["name"]): run.tables for run in reversed(runs)}
    if algorithm not in known:
        raise ValueError(
            f"`algorithm` must be one of {figure}'s, {', '.join(sorted(known))}, got {algorithm!r}"
        )
    tables = {name: dict(table) for name, table in known[algorithm].items()}
    tables["data"] |= {"verify": False}
    return tables


def time_rounds(tables: Mapping[str, Mapping[str, Any]], rounds: int, epochs: int) -> Table:
    """Train some rounds and return their times with the measured and the estimated memory."""
    all_rounds = int(tables["run"]["rounds"])
    all_epochs = int(tables["algorithm"]["epochs"])
    shorter = {"algorithm": {**tables["algorithm"], "epochs": epochs}}
    shorter |= {"run": {**tables["run"], "rounds": rounds}}
    shorter |= {"evaluation": {**tables.get("evaluation", {}), "every": rounds}}
    reset_peak_memory()
    experiment = config.build({**tables, **shorter})
    estimate = experiment.estimate()
    before = peak_memory_megabytes()
    stamps: list[float] = []

    def stamp(event: Event) -> None:
        if event.kind in ("evaluation", "round"):
            stamps.append(time.perf_counter())

    history = experiment.run(progress=False, callbacks=[stamp])
    seconds = np.diff(stamps)[:rounds]
    share = sum(map(len, experiment.clients.train)) / IMAGES
    days = seconds.mean() * all_rounds * all_epochs / epochs / share / 86_400
    rows = [
        (f"seconds of round {t + 1}, {epochs} of {all_epochs} epochs", value)
        for t, value in enumerate(seconds)
    ]
    losses = " and ".join(f"{loss:.3f}" for loss in history["train_loss"][[0, -1]])
    rows += [
        ("training loss, first and last round", losses),
        ("peak memory, GiB", peak_memory_megabytes() / 1024),
        ("estimated additional memory, GiB", estimate.added / 2**30),
        ("memory before the run, GiB", before / 1024),
    ]
    whole = f"{all_rounds} rounds of {all_epochs} epochs with {IMAGES:,} images"
    rows.append((f"days for {whole}, at most", days))
    title = f"{experiment.algorithm.name}, {experiment.clients.n} clients"
    return Table(("what", "measured"), tuple(rows), title=f"{title}, {share:.1%} of the images")


# A sample of the arms at quick scale, compared with another checkout

HERE = Path(topofl.__file__).resolve().parents[1]
"""The checkout of this version."""

FIGURES = ("dfedpgp-tab01", "pfeddst-fig02a", "dpfl-tab01")
"""One figure per paper, from whose arms the sample is chosen."""

Arm = tuple[str, str, str]
"""Paper, algorithm and dataset."""

SAMPLE: Sequence[Arm] = (
    ("dfedpgp", "dfedpgp", "mnist"),
    ("dfedpgp", "dfedavgm", "cifar10"),
    ("dfedpgp", "dispfl", "cifar10"),
    ("dpfl", "dpfl", "cifar10"),
    ("dfedpgp", "dfedpgp", "cifar10"),
    ("pfeddst", "pfeddst", "cifar10"),
)
"""The arm of each of :data:`FIGURES` whose runs, of all seeds and splits, took most seconds in the
stored results of scale quick, and the three of all other arms that took most."""

WORKER = """
import json, sys, time
import topofl
from topofl import config
stamps = []
def stamp(event):
    if event.kind == "round":
        stamps.append(time.perf_counter())
config.build(json.load(sys.stdin)).run(progress=False, callbacks=[stamp])
print(json.dumps([topofl.__file__, stamps]))
"""
"""Trains the experiment on standard input with the topofl of its path; prints when rounds end."""


def sample_arms(data: Path) -> dict[Arm, tuple[Tables, int]]:
    """Return the tables of the first run of each arm, and the rounds of all of its runs.

    Raises
    ------
    FileNotFoundError
        If there are no files of CIFAR-10 or MNIST.
    """
    setting = make_setting("quick", root=data, datasets=("cifar10", "mnist"))
    found: dict[Arm, tuple[Tables, int]] = {}
    for name in FIGURES:
        paper, (figure,) = figures_named(name)
        for run in figure.runs(setting):
            arm = (paper.id, str(run.tables["algorithm"]["name"]), str(run.tables["data"]["name"]))
            tables, rounds = found.get(arm, (run.tables, 0))
            found[arm] = tables, rounds + int(run.tables["run"]["rounds"])
    return {arm: found[arm] for arm in SAMPLE}


def seconds_per_round(checkout: Path, tables: Tables, rounds: int) -> float:
    """Return the median seconds of a round in a new process that imports topofl from a checkout.

    The first round, which allocates memory, and the last one, which is evaluated, do not count.

    Raises
    ------
    RuntimeError
        If the process fails, or imports another topofl.
    """
    shorter = {"run": {**tables["run"], "rounds": rounds + 2}}
    shorter |= {"evaluation": {**tables.get("evaluation", {}), "every": rounds + 2}}
    done = subprocess.run(
        [sys.executable, "-P", "-c", WORKER],
        input=json.dumps({**tables, **shorter}),
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{checkout} cannot train an arm: {done.stderr.strip()[-300:]}")
    place, stamps = json.loads(done.stdout.splitlines()[-1])
    if not Path(place).is_relative_to(checkout):
        raise RuntimeError(f"topofl is that of {place}, not of {checkout}")
    return float(np.median(np.diff(stamps)[:-1]))


def sample_times(
    before: Path, arms: Mapping[Arm, tuple[Tables, int]], rounds: int, turns: int
) -> dict[Arm, list[list[float]]]:
    """Return seconds per round before and now, for each turn of each arm."""
    times: dict[Arm, list[list[float]]] = {arm: [] for arm in arms}
    for turn in range(turns):
        for arm, (tables, _) in arms.items():
            pair = [0.0, 0.0]
            for k in (0, 1) if turn % 2 else (1, 0):
                pair[k] = seconds_per_round((before, HERE)[k], tables, rounds)
            times[arm].append(pair)
            print(f"turn {turn + 1}: {', '.join(arm)}: {pair[1] / pair[0]:.3f}", file=sys.stderr)
    return times


def sample_table(
    times: Mapping[Arm, Sequence[Sequence[float]]], weights: Mapping[Arm, int]
) -> Table:
    """Return a row per arm, and one of all: medians over turns, and the extremes of the ratio.

    Seconds of all arms are means per round, weighted by the rounds of the arms in their figures.
    """
    each = np.array([times[arm] for arm in times])  # (arms, turns, before or now)
    own = np.array([weights[arm] for arm in times])
    rows = []
    for label, rounds, pairs in (
        *zip((", ".join(arm) for arm in times), own, each, strict=True),
        ("all", own.sum(), np.average(each, axis=0, weights=own)),
    ):
        ratios = pairs[:, 1] / pairs[:, 0]
        ratio = f"{np.median(ratios):.3f} [{ratios.min():.3f}, {ratios.max():.3f}]"
        rows.append((label, int(rounds), *np.median(pairs, axis=0).tolist(), ratio))
    columns = ("arm", "rounds in the figure", "s per round before", "now", "now / before")
    return Table(columns, tuple(rows))


def _sample(argv: Sequence[str]) -> None:
    """Compare the sample with another checkout, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m paper_figures.time_rounds sample",
        description="Time rounds of a sample of arms at quick scale in two checkouts.",
    )
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--data", type=Path, required=True, help="with CIFAR-10 and MNIST")
    parser.add_argument("--rounds", type=int, default=3, help="timed per process")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args(argv)
    if not (options.before / "topofl").is_dir():
        parser.error(f"--before must be a folder that contains topofl, got {options.before}")
    if min(options.rounds, options.turns) < 1:
        parser.error("--rounds and --turns must be at least 1")
    arms = sample_arms(options.data.resolve())
    times = sample_times(options.before.resolve(), arms, options.rounds, options.turns)
    print(sample_table(times, {arm: rounds for arm, (_, rounds) in arms.items()}))


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, train the rounds and print the table."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["sample"]:
        return _sample(words[1:])
    parser = argparse.ArgumentParser(description="Time a few rounds of a run at paper scale.")
    parser.add_argument("figure", help="figure id, for example dfedpgp-tab01")
    parser.add_argument("algorithm", help="algorithm, for example dfedpgp")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="folder with the files of CIFAR-10 or a subset of them",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="epochs per round; default: the paper's")
    options = parser.parse_args(words)
    tables = tables_at_paper_scale(options.figure, options.algorithm, options.data)
    print(time_rounds(tables, options.rounds, options.epochs or tables["algorithm"]["epochs"]))


if __name__ == "__main__":
    main()
