"""Accuracy of the mean of all nodes' models, and of the models themselves, on deep networks.

``python -m analysis.mean_models --data DIR --out analysis/results/mean_models`` repeats some runs
of ``analysis.deep_number``, with other seeds and the learning rates that were chosen there, and
writes ``mean_models.md`` and ``mean_models.json``. It was written after the results of that study
had been seen, to find out why cliques without links between them learn better on convolutional
networks than H_10 says; no hypothesis is judged by it. DIR contains the folders ``mnist`` and
``cifar10-subset``; without ``--data`` only cells on digits are run.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import topofl
from topofl import Table
from topofl.summary.verdicts import mean_interval, with_interval

from .paired import KNOWN, check_paths, learning_phase, load_known
from .program import as_installed, parser_of, write
from .study.runs import Records, rate_of
from .study.scenarios import Cell, Source, about, arguments, cells

GRAPHS = ("cliques 5 alone", "D-Cliques 5 ring", "rotating 5", "designed 4")
"""Graphs of about four messages, which differ in what is averaged with what."""

SEEDS = (900, 901, 902)
"""Seeds, none of them of ``analysis.deep_number``."""

STUDY = Path("analysis", "results", "deep_number")
"""Folder of the study, from which learning rates are read."""


def mean_of_all(models: Any, round: Any) -> torch.Tensor:
    """Return the mean of all models, for each node."""
    return models.flat.mean(dim=0).expand(round.n, -1)


def outcomes_of(source: Source, cell: Cell, lr: float) -> dict[str, float]:
    """Return accuracies of nodes and of their mean in %, in the first half and at the end."""
    run = arguments(source, {"cell": cell, "lr": lr})
    evaluation = replace(run["evaluation"], also={"mean": mean_of_all})
    history = topofl.run(**run | {"evaluation": evaluation}, progress=False)
    found = {}
    for who, column in (("nodes", "accuracy"), ("mean", "accuracy_mean")):
        curve = 100 * np.asarray(history[column]).mean(axis=1)  # (evaluations,)
        learning = learning_phase({"rounds": history["round"], "curve": curve})
        found |= {f"{who}, learning": learning, f"{who}, final": float(curve[-1])}
    return found


def runs_of(source: Source, records: Records, seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield one row per graph and seed of each cell whose learning rate is known."""
    for name in source.free():
        scenario = source.scenario(name)
        first = cells(scenario)[0]
        if (lr := rate_of(scenario, first, records)) is None:
            continue
        for graph in (one for one in GRAPHS if one in scenario.graphs):
            for seed in seeds:
                own = replace(first, graph=graph, seed=seed)
                yield {"cell": name, "graph": graph, "seed": seed, **outcomes_of(source, own, lr)}
            print(f"{name}: {graph}", file=sys.stderr, flush=True)


def _said(differences: Any) -> str:
    """Return the mean of differences over seeds, with its 95 % t-interval."""
    mean = float(np.mean(differences))
    return with_interval(mean, mean_interval(differences), "+.1f", ends=True)


def table(runs: pd.DataFrame) -> Table:
    """Return means over seeds, and differences that are paired over seeds with their intervals."""
    rows = []
    for (cell, graph), own in runs.groupby(["cell", "graph"], sort=False):
        alone = runs[(runs["cell"] == cell) & (runs["graph"] == GRAPHS[0])]
        row = [str(cell), str(graph)]
        for when in ("learning", "final"):
            nodes, mean = (own[f"{who}, {when}"].to_numpy() for who in ("nodes", "mean"))
            apart = "" if graph == GRAPHS[0] else _said(mean - alone[f"mean, {when}"].to_numpy())
            row += [f"{nodes.mean():.1f}", f"{mean.mean():.1f}", _said(mean - nodes), apart]
        rows.append(tuple(row))
    whose = ("nodes", "mean", "mean minus nodes", "mean minus that on cliques alone")
    columns = (f"{who}, {when}" for when in ("learning", "final") for who in whose)
    return Table(("cell", "graph", *columns), tuple(rows))


_INTRODUCTION = """\
# The mean of all models, on deep networks

`python -m analysis.mean_models --data DIR` writes this page, after the results of
`analysis.deep_number` had been seen. Entries are test accuracies in %, over the first half of the
rounds ("learning") and at the end ("final"): the mean accuracy of the nodes' models, the accuracy
of the mean of their models, the second minus the first, and the second minus that on cliques of 5
without links between them. They are means over the seeds 900 to 902, with 95 % t-intervals of
differences, of which two numbers in brackets are the ends."""


def page(runs: pd.DataFrame) -> str:
    """Return the page of all runs."""
    return f"{_INTRODUCTION}\n\n{table(runs).to_markdown()}\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Train, write the page and print it; returns the exit code."""
    options = parser_of(
        "mean_models",
        __doc__,
        preset=("full", "smoke: one tiny scenario; full: all", ("smoke", "full")),
        data=(Path, "folder with mnist and cifar10-subset"),
        known=(STUDY / KNOWN, "outcomes of the study, for its learning rates"),
        out=(Path("out", "mean_models"), "folder"),
    ).parse_args(argv)
    source = Source(options.data, study="deep_number", preset=options.preset)
    records = Records(options.out, partial(about, source))
    try:
        check_paths(options.data, None if options.preset == "smoke" else options.known)
        load_known(options.known, records)
        runs = pd.DataFrame(runs_of(source, records, SEEDS))
    except (ValueError, OSError) as error:
        print(as_installed(f"python -m analysis.mean_models: error: {error}"), file=sys.stderr)
        return 2
    if runs.empty:
        said = f"no learning rate of a cell is known from {options.known}; give --known FILE"
        print(as_installed(f"python -m analysis.mean_models: error: {said}"), file=sys.stderr)
        return 2
    text = page(runs)
    write(options.out, mean_models=text)
    write(options.out, mean_models=runs.to_dict("records"))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
