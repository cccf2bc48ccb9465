"""Train a few rounds at the paper's scale and estimate the time of the whole run.

``python -m paper_figures.time_rounds dfedpgp-tab01 dfedpgp --data DIR`` trains 100 clients with
ResNet-18 for 3 rounds with the settings of table 1, on the available images of CIFAR-10 (a subset
is enough). It prints the seconds of each round, the peak memory of the process next to the
prediction of ``topofl.estimate``, and the days that all rounds would take with all 50,000 images.
``--epochs`` makes rounds shorter; the estimate of days is then too high, because costs that do not
depend on epochs (separate training of heads, the exchange) are scaled with them.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topofl import Table, config
from topofl.callbacks import Event
from topofl.runs.identity import peak_memory_megabytes, reset_peak_memory

from .command import figures_named
from .kit.paper import Setting

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


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, train the rounds and print the table."""
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
    options = parser.parse_args(argv)
    tables = tables_at_paper_scale(options.figure, options.algorithm, options.data)
    print(time_rounds(tables, options.rounds, options.epochs or tables["algorithm"]["epochs"]))


if __name__ == "__main__":
    main()
