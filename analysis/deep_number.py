"""Look for a number, known before training, that ranks graphs by how well deep networks learn.

``python -m analysis.deep_number --data DIR --processes 2 --out analysis/results/deep_number`` runs
what is missing and writes ``table.md``, ``results.json`` and ``runs.csv``. Hypotheses, cells,
candidates and the rule of decision, written before the first run, are in HYPOTHESES.md in that
folder; cells are declared in ``studies.toml``. The same command continues an interrupted one, also
on another machine with the file ``outcomes.jsonl.gz`` in the new folder, or as ``--known``. DIR
contains the folders ``mnist`` and ``cifar10-subset``; without ``--data`` only cells on digits are
run.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from topofl import Table, metrics, mixing

from .paired import OUTCOMES, STAGES, Verdict, all_hold, run_declared, verdict_table
from .program import write
from .study.graphs import Graph
from .study.runs import PREDICTORS, ROUNDS, predictors_of, statistics_of
from .study.scenarios import Cell, Source, clients_of
from .study.statistics import CellTable, Interval, Statistic, median_over_cells, spearman

CHOOSING, JUDGING = (300,), (301, 302)
"""Seeds on which a candidate is chosen, and those on which it is judged."""

HOPS, DISCOUNT, NEXT = 50, 0.9, 10
"""Hops and discount of coherent sums, and hops of disagreements in the next round."""

STARTS = 20
"""First rounds from which a sequence without period is examined."""

DRAWS = 2000
"""Bootstrap draws of verdicts."""

FEWEST = 0.5
"""Share of graphs that must leave the floor of a cell."""

ABOVE = 0.1
"""Share of the way from the floor to the complete graph that a graph off the floor exceeds."""

NEW = (
    "predicted deviation (1)",
    "N_1",
    "N_1 + 3 D",
    "coherent return",
    "coherent sum",
    "discounted heterogeneity",
    "label disagreement in the next round",
    "noise disagreement in the next round",
)
"""Candidates that are not among the predictors of the study; less is better."""

SIGNS: Mapping[str, int] = {name: sign for name, (_, sign) in PREDICTORS.items()} | dict.fromkeys(
    NEW, -1
)
"""All candidates, with +1 where more is better."""


def numbers_of(graph: Graph, cell: Cell, source: Source) -> dict[str, Any]:
    """Return all candidates of a graph; None where one is not defined."""
    clients, statistics = clients_of(cell, source), statistics_of(cell, source)
    shares = metrics.label_distributions(clients)
    period = getattr(graph, "period", 1)
    nearest: dict[str, Any] = {"rounds": None if period else ROUNDS}
    one = metrics.predicted_deviation(graph, clients, statistics=statistics, hops=1, **nearest)
    return {
        **predictors_of(graph, clients, statistics),
        NEW[0]: one.value,
        **dict(zip(NEW[1:], coherent(graph, shares - shares.mean(axis=0)), strict=True)),
    }


def coherent(graph: Graph, deviations: np.ndarray) -> list[float]:
    """Return the candidates of :data:`NEW` that need products of rounds, by their order.

    With Z the (n, classes) deviations of label shares, P_k the product of the k rounds from a start
    on, W the round after these, d = 0.9 and K = 50, and averages over the starts of a period::

        N_1                       ||P_1 - J||^2 / n
        N_1 + 3 D                 N_1 + 3 ||P_1 - P_2||^2 / n
        coherent return           <Z, sum_k d^(k-1) P_k Z> / n
        coherent sum              ||sum_k d^(k-1) (I - J) P_k Z||^2 / n
        discounted heterogeneity  sum_k d^(k-1) ||(I - J) P_k Z||^2 / n
        label disagreement        sum_{k <= 10} 2 tr (P_k Z)' (I - W) P_k Z / n
        noise disagreement        sum_{k <= 10} 2 tr (P_k - J)' (I - W) (P_k - J) / n
    """
    period = getattr(graph, "period", 1)
    starts = period or STARTS
    needed = range(period or starts + HOPS + 1)
    rounds = [mixing.metropolis_or_uniform(graph.at(t)).weights.toarray() for t in needed]
    every = [_from(rounds, start, deviations) for start in range(starts)]
    return np.mean(every, axis=0).tolist()


def _from(rounds: Sequence[np.ndarray], start: int, deviations: np.ndarray) -> list[float]:
    """Return the same for one start."""
    n = len(deviations)
    product, total, both = np.eye(n), np.zeros_like(deviations), []
    returned = spread = labels = noise = 0.0
    for k in range(HOPS):
        product = rounds[(start + k) % len(rounds)] @ product
        both += [product] * (k < 2)
        weight, mixed = DISCOUNT**k, product @ deviations
        apart = mixed - mixed.mean(axis=0)
        returned += weight * (deviations * mixed).sum()
        total += weight * apart
        spread += weight * (apart**2).sum()
        if k < NEXT:
            after, noisy = rounds[(start + k + 1) % len(rounds)], product - 1 / n
            labels += 2 * (apart * (apart - after @ apart)).sum()
            noise += 2 * (noisy * (noisy - after @ noisy)).sum()
    first = ((both[0] - 1 / n) ** 2).sum()
    stays = first + 3 * ((both[0] - both[1]) ** 2).sum()
    sums = first, stays, returned, (total**2).sum(), spread, labels, noise
    return [float(one) / n for one in sums]


def cell_tables(runs: pd.DataFrame) -> list[CellTable]:
    """Return one table per cell and seed of all runs."""
    found = []
    for (setting, seed), own in runs.groupby(["setting", "seed"], sort=False):
        names = own["graph"].tolist()
        outcomes = {name: own[name].to_numpy(float) for name in OUTCOMES}
        predictors = {name: own[name].to_numpy(float) for name in SIGNS}
        table = CellTable(
            *(str(setting), "", "", int(seed), 0),
            *(names, own["family"].tolist(), predictors, outcomes),
            lr=float(own["lr"].iloc[0]),
        )
        found.append(table)
    return found


def off_floor(runs: pd.DataFrame, setting: str) -> tuple[int, int]:
    """Return how many graphs of a cell leave its floor, and how many there are.

    The floor is the final accuracy of isolated nodes or chance, whichever is higher. A graph below
    it never counts as off it, even where the complete graph ends below it.
    """
    means = runs[runs["setting"] == setting].groupby("graph")["final"].mean()
    if not {"isolated", "complete"} <= set(means.index):
        return 0, len(means)
    floor = max(means["isolated"], 0.1)
    above = ABOVE * max(0.0, means["complete"] - floor)
    return int((means > floor + above).sum()), len(means)


def tables_off_floor(runs: pd.DataFrame) -> list[CellTable]:
    """Return the tables of the cells of which enough graphs leave the floor in these runs."""
    tables = cell_tables(runs)
    counts = {name: off_floor(runs, name) for name in {table.scenario for table in tables}}
    off = {name for name, (left, known) in counts.items() if left >= FEWEST * known}
    return [table for table in tables if table.scenario in off]


def correlation(name: str, outcome: str, rival: str | None = None) -> Statistic:
    """Return the rank correlation of a candidate, -1 for a perfect one, or that minus a rival's."""
    names = [name] if rival is None else [name, rival]

    def columns(table: CellTable) -> np.ndarray:
        values = [-SIGNS[one] * table.predictors[one] for one in names]
        return np.stack([*values, table.outcomes[outcome]])

    def value(found: np.ndarray) -> np.ndarray:
        own = spearman(found[[0, -1]])
        return own if rival is None else own - spearman(found[[1, -1]])

    return Statistic(columns, value)


def _median(
    tables: Sequence[CellTable], name: str, rival: str | None = None, draws: int = 0
) -> Interval:
    return median_over_cells(tables, correlation(name, OUTCOMES[0], rival), draws=draws or DRAWS)


def chosen(tables: Sequence[CellTable]) -> str:
    """Return the candidate with the lowest median correlation that is defined for all graphs."""
    defined = [name for name in SIGNS if all(np.isfinite(t.predictors[name]).all() for t in tables)]
    medians = {name: _median(tables, name, draws=1).estimate for name in defined}
    return min(defined, key=lambda name: np.nan_to_num(medians[name], nan=np.inf))


def verdicts(runs: pd.DataFrame, source: Source) -> tuple[list[Verdict], list[CellTable]]:
    """Return what became of the hypotheses, and the judging tables of cells off the floor."""
    cells = source.free()
    graphs = {name: len(source.scenario(name).graphs) for name in cells}
    per_seed = runs.groupby(["setting", "seed"])["graph"].nunique()
    seeds = (*CHOOSING, *JUDGING)
    complete = (
        all(per_seed.get((name, seed), 0) == graphs[name] for name in cells for seed in seeds)
        and source.root is not None
    )
    counts = {name: off_floor(runs, name) for name in cells}
    off = [name for name, (left, known) in counts.items() if known and left >= FEWEST * known]
    said = "; ".join(f"{name}: {left} of {known}" for name, (left, known) in counts.items())
    every = len(cells) + source.left_out()
    claim = f"at least 9 of {every} cells have at least half of their graphs off the floor"
    first = Verdict("1", claim, len(off) >= 9 if complete else None, said)
    judged = [table for table in tables_off_floor(runs) if table.seed in JUDGING]
    choosing = tables_off_floor(runs[runs["seed"].isin(CHOOSING)])
    rest = [*_on_depth(judged), *_on_candidates(choosing, judged)]
    if not complete:
        rest = [Verdict(one.name, one.claim, None, f"so far {one.found}") for one in rest]
    return [first, *rest], judged


def _on_depth(tables: Sequence[CellTable]) -> list[Verdict]:
    """Return the verdicts on what breaks H_10."""
    kinds = {
        "2": ("MLP", "H_10 has a median of -0.9 or better on MLPs without GroupNorm", True),
        "3": ("MLP with GroupNorm", "the same on MLPs with GroupNorm", True),
        "4": ("LeNet without GroupNorm", "it is worse than -0.9 on LeNet without GroupNorm", False),
        "5": ("GN-LeNet", "it is worse than -0.9 on GN-LeNet", False),
    }
    found = []
    for name, (kind, claim, below) in kinds.items():
        own = [table for table in tables if kind in table.scenario.split(", ")]
        median = _median(own, "H_10") if own else None
        if median is None or not np.isfinite(median.estimate):
            found.append(Verdict(name, claim, None, "no correlation in a cell off the floor"))
        else:
            found.append(Verdict(name, claim, (median.estimate <= -0.9) == below, str(median)))
    return found


def _on_candidates(choosing: Sequence[CellTable], judged: Sequence[CellTable]) -> list[Verdict]:
    """Return the verdict on the candidate that is chosen on one seed and judged on the others."""
    claim = (
        "the candidate with the lowest median on seed 300 has one of -0.9 or better on the other "
        "seeds, and the median of its paired difference from H_10 is at most -0.1 (its interval is "
        "below 0)"
    )
    if not choosing or not judged:
        return [Verdict("6", claim, None, "no cell off the floor")]
    name = chosen(choosing)
    own, less = _median(judged, name), _median(judged, name, "H_10")
    known = bool(np.isfinite([own.estimate, less.estimate, less.high]).all())
    holds = all_hold([own.estimate <= -0.9, less.estimate <= -0.1, less.high < 0])
    holds = holds if known else None
    return [Verdict("6", claim, holds, f"{name}: {own}; minus H_10: {less}")]


def candidate_table(tables: Sequence[CellTable]) -> Table:
    """Return the median of each candidate with each outcome, best for the learning phase first."""
    rows = []
    for name in SIGNS:
        found = [median_over_cells(tables, correlation(name, one), draws=DRAWS) for one in OUTCOMES]
        less = _median(tables, name, "H_10")
        rows.append((found[0].estimate, (name, *map(str, found), str(less))))
    rows.sort(key=lambda row: (np.isnan(row[0]), row[0]))
    columns = ("candidate", *OUTCOMES, "learning phase minus H_10's")
    return Table(columns, tuple(row for _, row in rows))


def by_cell_table(tables: Sequence[CellTable]) -> Table:
    """Return the correlations of each candidate with the learning phase in each cell."""
    settings = list(dict.fromkeys(table.scenario for table in tables))
    rows = []
    for name in SIGNS:
        own = [[table for table in tables if table.scenario == one] for one in settings]
        estimates = [_median(group, name, draws=1).estimate for group in own]
        rows.append((name, *(f"{one:+.2f}" if np.isfinite(one) else "-" for one in estimates)))
    return Table(("candidate", *settings), tuple(rows))


def agreement(runs: pd.DataFrame) -> float:
    """Return the mean rank correlation of the learning phases of two seeds; NaN for one seed.

    Graphs are those that all seeds have.
    """
    by_seed = runs.pivot_table(index="graph", columns="seed", values=OUTCOMES[0]).dropna()
    pairs = combinations(by_seed.to_numpy().T, 2)
    found = [float(spearman(np.stack(pair))) for pair in pairs]
    return float(np.mean(found)) if found else float("nan")


def rate_table(runs: pd.DataFrame) -> Table:
    """Return rate, whether it is an end of those tried, graphs off the floor, and agreement."""
    rows = []
    for setting, own in runs.groupby("setting", sort=False):
        lr, end = own["lr"].iloc[0], own["end"].iloc[0] or "no"
        rows.append(
            (setting, f"{lr:g}", end, *off_floor(runs, str(setting)), f"{agreement(own):.2f}")
        )
    columns = ("cell", "learning rate", "end of those tried", "off the floor", "graphs")
    return Table((*columns, "agreement of seeds"), tuple(rows))


def stages_table(runs: pd.DataFrame) -> Table:
    """Return how H_1, H_5 and H_10 rank graphs by accuracy at three stages of training.

    Entries are medians over seeds of Spearman's correlation, -1 for a perfect number.
    """
    rows = []
    for setting, own in runs.groupby("setting", sort=False):
        row = [str(setting)]
        for name in ("H_1", "H_5", "H_10"):
            for stage in STAGES:
                seeds = [one[[name, stage]].to_numpy().T for _, one in own.groupby("seed")]
                row.append(f"{np.median([spearman(columns) for columns in seeds]):+.2f}")
        rows.append(tuple(row))
    columns = (f"{name}, {stage}" for name in ("H_1", "H_5", "H_10") for stage in STAGES)
    return Table(("cell", *columns), tuple(rows))


def accuracy_table(runs: pd.DataFrame) -> Table:
    """Return the accuracy of each graph in the learning phase of each cell, in %.

    Graphs come in the order of their mean rank over cells.
    """
    settings = runs["setting"].unique()
    means = runs.pivot_table(index="graph", columns="setting", values=OUTCOMES[0])[settings]
    order = means.rank(ascending=False).mean(axis=1).sort_values().index
    rows = [(name, *(f"{100 * value:.1f}" for value in means.loc[name])) for name in order]
    return Table(("graph", *settings), tuple(rows))


def misplaced_table(runs: pd.DataFrame) -> Table:
    """Return by how many places each graph learns better than H_10 says in each cell.

    That is its rank by H_10 minus its rank by the learning phase, the best of both being 1, as a
    mean over seeds. The first graphs are those with the highest mean over the cells of LeNets.
    """
    within = runs.groupby(["setting", "seed"])
    places = within["H_10"].rank() - within[OUTCOMES[0]].rank(ascending=False)
    settings = runs["setting"].unique()
    by_graph = runs.assign(places=places).pivot_table(
        index="graph", columns="setting", values="places"
    )[settings]
    deep = [name for name in settings if "LeNet" in name] or list(settings)
    by_graph = by_graph.loc[by_graph[deep].mean(axis=1).sort_values(ascending=False).index]
    rows = [
        (name, *(f"{value:+z.0f}" if np.isfinite(value) else "-" for value in own))
        for name, own in zip(by_graph.index, by_graph.to_numpy(), strict=True)
    ]
    return Table(("graph", *settings), tuple(rows))


_INTRODUCTION = """\
# A number for deep networks

`python -m analysis.deep_number` writes this page; hypotheses, cells, candidates and the rule of
decision are in analysis/results/deep_number/HYPOTHESES.md, written before the first run. Entries
are medians over cells of Spearman's correlation within a cell, -1 for a perfect candidate, with
95 % bootstrap intervals and the number of graphs. Cells in which less than half of the graphs leave
the floor are left out, and the candidate of hypothesis 6 is chosen on seed 300, which is in neither
table of candidates."""

_SMOKE = """\
This is a smoke run, which only tests the program: it has other graphs, rounds and seeds, and
nothing is left out or judged."""

_RATES = """\
## Cells

The agreement of seeds was added after the results were seen. It is the mean over pairs of the three
seeds of Spearman's correlation between the learning phases of the same graphs, 1 where seeds rank
them alike."""

_ACCURACIES = """\
## Accuracy in the learning phase

This table was added after the results were seen. It has test accuracies in %, as means over nodes,
over the evaluations of the first half of the rounds, and over the three seeds. Graphs with the best
mean rank over cells come first."""

_BY_STAGE = """\
## How many hops count, by time

This table was added after the results were seen, and no hypothesis is judged by it. Entries are
medians over the three seeds of Spearman's correlation with the accuracy at one stage."""

_MISPLACED = """\
## What H_10 misses

This table was added after the results were seen, and no hypothesis is judged by it. It has the
rank of a graph by H_10 minus its rank by the learning phase, as a mean over the three seeds: +10
learns better than H_10 says by ten places of 40. Graphs that gain most on LeNets come first."""


def report(runs: pd.DataFrame, source: Source, out: Path) -> list[Verdict]:
    """Write tables and results of what is known; return what became of the hypotheses."""
    found, tables = verdicts(runs, source) if source.preset != "smoke" else ([], cell_tables(runs))
    parts = [_INTRODUCTION, verdict_table(found).to_markdown() if found else _SMOKE]
    if tables:
        parts += [candidate_table(tables).to_markdown(), by_cell_table(tables).to_markdown()]
    parts += [_RATES, rate_table(runs).to_markdown()]
    parts += [_ACCURACIES, accuracy_table(runs).to_markdown()]
    parts += [_BY_STAGE, stages_table(runs).to_markdown()]
    parts += [_MISPLACED, misplaced_table(runs).to_markdown()]
    results = {
        "verdicts": [{"name": one.name, "state": one.state, "found": one.found} for one in found],
        "medians": {name: _median(tables, name, draws=1).estimate for name in SIGNS if tables},
    }
    write(out, table="\n\n".join(parts) + "\n", results=results)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study from the command line; returns the exit code."""
    return run_declared("deep_number", __doc__, numbers_of, report, argv)


if __name__ == "__main__":
    sys.exit(main())
