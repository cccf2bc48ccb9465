"""Compare training on designed topologies with D-Cliques and other graphs of equal messages.

``python -m analysis.designed_topologies --data DIR --out analysis/results/designed`` runs what is
missing and writes ``report.md``, ``runs.csv`` and ``differences.png``. Training runs are kept in
the folder ``runs`` (``topofl runs`` lists them), numbers of graphs in ``predictions.jsonl``. DIR
contains the folders ``mnist`` and ``cifar10-subset``; without ``--data`` only digits are used.

Protocol, written before the first reported run, but for the item on incomplete comparisons:

* **Question.** Does training on ``topologies.designed`` learn faster than on D-Cliques that send
  as many messages per round, and how does it compare with STL-FW, ``designed_directed``, base
  graphs, exponential graphs and random regular graphs?
* **Settings.** Two shards per node and D-SGD in all of them. Digits: 60 nodes, logistic regression,
  minibatches of 8, 120 rounds. MNIST: 100 nodes, logistic regression, minibatches of 128, 80
  rounds. CIFAR-10 subset (5,085 training and 1,017 test images, averaged to 16 x 16 pixels): 20
  nodes, GN-LeNet, minibatches of 10, momentum 0.9, 120 rounds. Accuracies on this subset cannot be
  compared with published ones.
* **Seeds.** 0 to 9. A seed is that of the partition, of the graphs and of the training, so that
  both runs of a pair have the same data, initial model and minibatches.
* **Learning rates.** Per setting, the one of 0.02, 0.05, 0.1, 0.2 and 0.5 (times 0.1 with momentum
  0.9) with the highest mean accuracy over all rounds on a random 4-regular graph with seed 100,
  which is not reported. All graphs use it.
* **Equal messages.** D-Cliques of 10 and of 5, joined in a ring, set two budgets (about 9.2 and 4.4
  messages per node and round; an undirected edge carries two messages). STL-FW,
  ``designed_directed`` and random regular graphs get the degree nearest to the budget; base graphs
  and exponential graphs are those with the nearest number of messages, on average over their
  period. Each of these graphs is compared with a designed topology of its own, which has as many
  edges as fit into its number of messages: designed topologies never send more. All arguments of
  ``designed`` but ``edges`` and ``seed`` have their default values.
* **Outcomes.** Primary: test accuracy averaged over nodes and over the evaluations of the first
  half of the rounds ("learning phase"). Also: averaged over nodes and the evaluations of the last
  fifth ("final"), and that of the worst node after the last round ("worst node").
* **Verdicts.** The paired difference, designed minus other, has a 95 % t-interval over seeds. An
  interval above 0 is "better", one below 0 "worse", one that contains 0 "undecided". Intervals are
  not corrected for the number of comparisons.
* **Incomplete comparisons.** Comparisons without all seeds have no verdict and are listed. Runs
  that diverge count with an accuracy of 0. Results of other seeds (``--seeds``) have a section of
  their own.
* **Hypotheses.** In each setting, against D-Cliques of 10 and of 5: the learning phase is better
  (1), and the worst node is better (2). Comparisons with other graphs have no hypothesis.

The seeds 100 to 105 of the partitions were used to develop ``designed`` and to choose the numbers
of rounds; no reported seed was.
"""

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from topofl import Compute, Table, algorithms, data, metrics, topologies
from topofl.data import Partition
from topofl.runs.identity import digest_of

from .paired import (
    OUTCOMES,
    Difference,
    difference,
    difference_said,
    draw_differences,
)
from .program import as_installed, declared, parser_of, write
from .study.graphs import Graph, base_graph_near, messages_of
from .study.learned import dataset_of, model_of
from .study.runs import Records, train
from .study.scenarios import RATES, Cell

SEEDS = tuple(range(10))
"""Seeds that are reported; each is that of the partition, of the graphs and of the training."""

TUNING_SEED, TUNING_DEGREE = 100, 4
"""Seed and degree of the random regular graph on which the learning rate is chosen."""

CLIQUE_SIZES = (10, 5)
"""Sizes of the D-Cliques, whose messages per round are the budgets of the other graphs."""


@dataclass(frozen=True)
class Setting:
    """A dataset, a model and a training budget.

    Parameters
    ----------
    name
        Label in tables, and the name of the dataset.
    model
        Name in ``topofl.models``, and its size.
    n, batch_size, rounds, every
        Nodes, examples per minibatch, rounds, and rounds between evaluations.
    momentum
        Momentum of D-SGD. The rates that are tried are those of :data:`RATES` times 1 - momentum,
        since momentum multiplies the length of steps by 1 / (1 - momentum) in the long run.
    executor
        Executor of the engine; results agree up to rounding.
    """

    name: str
    model: Sequence[Any] = field(hash=False)
    n: int
    batch_size: int
    rounds: int
    every: int
    momentum: float = 0.0
    executor: str = "auto"

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates that are tried."""
        return tuple(round(rate * (1 - self.momentum), 6) for rate in RATES)


SETTINGS: dict[str, Setting] = {
    name: Setting(name, **row) for name, row in declared("designed_topologies").items()
}
"""Settings by name."""


@cache
def split(name: str, root: Path | None, seed: int) -> Partition:
    """Return the data of the nodes of a setting: two shards each."""
    return data.shards(dataset_of(name, root), n=SETTINGS[name].n, per_node=2, seed=seed)


Builder = Callable[[Partition, int, int], Graph]
"""``build(clients, budget, seed)`` returns a graph with about `budget` messages per round."""


def graph_of(other: str, clients: Partition, seed: int) -> Graph:
    """Return another graph for these clients."""
    size, build = OTHERS[other]
    cliques = topologies.dcliques(clients, clique_size=size, inter="ring", seed=seed)
    return cliques if build is None else build(clients, cliques.n_edges * 2, seed)


def designed_edges(sent: float) -> int:
    """Return the edges of a designed topology that sends no more messages per round."""
    return int(sent // 2)


def _degree(clients: Partition, budget: int) -> int:
    return max(2, round(budget / clients.n))


def _exponential(clients: Partition, budget: int, seed: int) -> Graph:
    """Return the exponential graph, directed or not, with the nearest number of messages."""
    graphs = [topologies.exponential(clients.n, directed=directed) for directed in (False, True)]
    return min(graphs, key=lambda graph: abs(messages_of(graph) - budget))


_BUILDERS: Mapping[str, Builder | None] = {
    "D-Cliques of {}": None,
    "STL-FW ({})": lambda clients, budget, seed: topologies.stl_fw(
        clients, _degree(clients, budget)
    ),
    "designed_directed ({})": lambda clients, budget, seed: topologies.designed_directed(
        clients, _degree(clients, budget)
    ),
    "base graph ({})": lambda clients, budget, seed: base_graph_near(budget, clients, seed),
    "exponential ({})": _exponential,
    "random regular ({})": lambda clients, budget, seed: topologies.random_regular(
        clients.n, _degree(clients, budget), seed=seed
    ),
}

OTHERS: Mapping[str, tuple[int, Builder | None]] = {
    name.format(size): (size, build) for size in CLIQUE_SIZES for name, build in _BUILDERS.items()
}
"""Graphs with which designed topologies are compared, by name.

These are the size of the D-Cliques whose messages per round a graph has, as far as possible, and
how it is built: None for the D-Cliques themselves.
"""


More = Callable[[], bool]

ACCURACIES = ("learning phase", "final", "worst node", "all rounds")
"""Outcomes of a run; 0, the worst there is, for runs that diverge."""


def records_of(folder: Path, root: Path | None = None) -> Records:
    """Return the results in a folder; those of settings whose data are not given are not found."""

    @cache
    def about(name: str) -> list[Any]:
        one = SETTINGS[name]
        numbers = [one.n, one.batch_size, one.rounds, one.every, one.momentum, one.executor]
        if root is None and name != "digits":
            return [*numbers, ""]
        return [*numbers, digest_of(split(name, root, TUNING_SEED).dataset)]

    return Records(folder, about)


def rate_of(setting: Setting, records: Records) -> float | None:
    """Return the rate with the highest mean accuracy when tuned; None if one was not tried yet."""
    found = {lr: records.outcomes(_tuning_cell(setting), lr) for lr in setting.rates}
    means = {lr: one.get("all rounds", 0.0) for lr, one in found.items() if one is not None}
    return None if len(means) < len(found) else max(means, key=means.__getitem__)


def known(cell: Cell, lr: float, records: Records) -> dict[str, float] | None:
    """Return what is known about a graph, and the outcomes of its run; None: not complete.

    A run that diverges has the worst accuracies.
    """
    before, after = records.prediction(cell), records.outcomes(cell, lr)
    if before is None or after is None or "missing" in after:
        return None
    accuracies = {name: after.get(name, 0.0) for name in ACCURACIES}
    return {"seed": cell.seed, "lr": lr} | before | accuracies


def designed_cell(setting: Setting, sent: float, seed: int) -> Cell:
    """Return the cell of the designed topology that sends no more messages per round."""
    return _cell(setting, seed, f"designed with {designed_edges(sent)} edges")


def compute(
    settings: Sequence[str],
    records: Records,
    *,
    root: Path | None = None,
    seeds: Sequence[int] = SEEDS,
    more: More = lambda: True,
) -> None:
    """Compute what is missing in the results while `more()` holds.

    D-Cliques and their designs come first, in all settings.
    """
    torch.set_num_threads(1)
    for cliques in (True, False):
        for name in settings:
            setting = SETTINGS[name]
            _tune(setting, records, root, more)
            lr = rate_of(setting, records)
            if lr is None:
                return
            others = [name for name, (_, build) in OTHERS.items() if (build is None) == cliques]
            for seed in seeds:
                for other in others:
                    _compare(setting, other, seed, lr, records, root, more)


def _tune(setting: Setting, records: Records, root: Path | None, more: More) -> None:
    """Try all rates that were not tried yet."""
    clients = split(setting.name, root, TUNING_SEED)
    graph = topologies.random_regular(clients.n, TUNING_DEGREE, seed=TUNING_SEED)
    runs = [(_tuning_cell(setting), lr) for lr in setting.rates]
    train(runs, records, lambda point: _arguments(setting, clients, graph, point), more=more)


def _compare(
    setting: Setting,
    other: str,
    seed: int,
    lr: float,
    records: Records,
    root: Path | None,
    more: More,
) -> None:
    """Run another graph, and its design, unless they are known."""
    clients = split(setting.name, root, seed)

    def run(cell: Cell, build: Callable[[], Graph]) -> None:
        """Compute numbers and run of a graph, unless they are known."""
        if known(cell, lr, records) is not None or not more():
            return
        graph = build()
        if records.prediction(cell) is None:
            records.add(cell, _about(graph, clients))
        train([(cell, lr)], records, lambda point: _arguments(setting, clients, graph, point))

    cell = _cell(setting, seed, other)
    run(cell, lambda: graph_of(other, clients, seed))
    if (before := records.prediction(cell)) is not None:
        edges = designed_edges(before["messages"])
        run(
            designed_cell(setting, before["messages"], seed),
            lambda: topologies.designed(clients, edges=edges, seed=seed),
        )


def _tuning_cell(setting: Setting) -> Cell:
    return _cell(setting, TUNING_SEED, f"{TUNING_DEGREE}-regular")


def _cell(setting: Setting, seed: int, graph: str) -> Cell:
    return Cell(setting.name, "2 shards", f"D-SGD {setting.momentum:g}", seed, graph)


def _about(graph: Graph, clients: Partition) -> dict[str, float]:
    """Return messages, accumulated heterogeneity and noise of a graph."""
    return {
        "messages": messages_of(graph),
        "H_1": metrics.neighborhood_heterogeneity(graph, clients, hops=1),
        "H_10": metrics.neighborhood_heterogeneity(graph, clients, hops=10),
        "N_10": metrics.accumulated_noise(graph, 10),
    }


def _arguments(
    setting: Setting, clients: Partition, graph: Graph, point: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a run."""
    return {
        "algorithm": algorithms.dsgd(
            point["lr"], batch_size=setting.batch_size, momentum=setting.momentum
        ),
        "model": model_of(setting.model),
        "clients": clients,
        "topology": graph,
        "rounds": setting.rounds,
        "evaluation": setting.every,
        "compute": Compute(device="cpu", on_disconnected="allow", executor=setting.executor),
        "seed": point["cell"].seed,
    }


@dataclass(frozen=True)
class Comparison:
    """Runs of another graph and of its design, one pair per seed.

    Parameters
    ----------
    setting, other
        What is compared.
    pairs
        The records of the other graph and of the design, by seed.
    """

    setting: Setting
    other: str
    pairs: tuple[tuple[dict[str, float], dict[str, float]], ...]

    def mean(self, which: int, key: str) -> float:
        """Return the mean over seeds of an entry: of the other graph (0) or of the design (1)."""
        return float(np.mean([pair[which][key] for pair in self.pairs]))

    def difference(self, outcome: str) -> Difference:
        """Return the paired difference of an outcome, design minus other."""
        return difference([ours[outcome] - theirs[outcome] for theirs, ours in self.pairs])

    def __str__(self) -> str:
        verdicts = [f"{outcome} {self.difference(outcome)[-1]}" for outcome in OUTCOMES]
        name = f"{self.other}, {len(self.pairs)} seeds"
        return f"{self.setting.name}, designed against {name}: {', '.join(verdicts)}."


def comparisons(records: Records, seeds: Sequence[int] = SEEDS) -> list[Comparison]:
    """Return all comparisons of settings whose rate is tuned, with the seeds that are recorded."""
    found = []
    for setting in SETTINGS.values():
        lr = rate_of(setting, records)
        if lr is None:
            continue
        for other in OTHERS:
            pairs = [_pair(setting, other, seed, lr, records) for seed in seeds]
            found.append(Comparison(setting, other, tuple(p for p in pairs if p is not None)))
    return found


def _pair(
    setting: Setting, other: str, seed: int, lr: float, records: Records
) -> tuple[dict[str, float], dict[str, float]] | None:
    """Return the records of another graph and of its design; None if one is missing."""
    theirs = known(_cell(setting, seed, other), lr, records)
    if theirs is None:
        return None
    ours = known(designed_cell(setting, theirs["messages"], seed), lr, records)
    return None if ours is None else (theirs, ours)


def further_seeds(records: Records, seeds: Sequence[int] = SEEDS) -> list[int]:
    """Return the seeds of graphs that are not in the protocol."""
    return sorted({cell.seed for cell in records.cells.values()} - {TUNING_SEED, *seeds})


def write_report(records: Records, out: Path, seeds: Sequence[int] = SEEDS) -> list[Path]:
    """Write the report, the runs and the picture of what is known, and return their paths.

    Parameters
    ----------
    records, out
        Results, and the folder of the report.
    seeds
        Seeds of the protocol: comparisons that lack one have no verdict, and those of all other
        recorded seeds have a section of their own.
    """
    found = comparisons(records, seeds)
    if not any(one.pairs for one in found):
        return []
    complete = [one for one in found if len(one.pairs) == len(seeds)]
    parts = ["# Designed topologies against other graphs of equal messages", "", _INTRODUCTION]
    for setting in SETTINGS.values():
        parts += ["", f"## {setting.name}", "", *_setting(setting, found, complete, records)]
    parts += _further(records, seeds)
    if complete:
        parts += ["", "![Differences with intervals.](differences.png)"]
    report = out / "report.md"
    write(out, report="\n".join([*parts, ""]))
    runs = out / "runs.csv"
    every = comparisons(records, [*seeds, *further_seeds(records, seeds)])
    _runs_table(every).to_csv(runs, index=False)
    return [report, runs, *([_picture(complete, out / "differences.png")] if complete else [])]


def _runs_table(found: Sequence[Comparison]) -> pd.DataFrame:
    """Return one row per run of the pairs: those of another graph, and of its design."""
    return pd.DataFrame(
        {"setting": one.setting.name, "compared with": one.other, "graph": graph} | run
        for one in found
        for pair in one.pairs
        for graph, run in zip(("other", "designed"), pair, strict=True)
    )


def _setting(
    setting: Setting, found: Sequence[Comparison], complete: Sequence[Comparison], records: Records
) -> list[str]:
    """Return the lines of a setting: what it is, complete comparisons, and what is missing."""
    ours = [one for one in found if one.setting is setting]
    if not ours:
        return ["Not run: no learning rate was chosen."]
    rows = [one for one in complete if one.setting is setting]
    lines = [
        f"{setting.n} nodes with two shards each, {setting.rounds} rounds of D-SGD with "
        f"minibatches of {setting.batch_size}, momentum {setting.momentum:g} and learning rate "
        f"{rate_of(setting, records):g}.",
        "",
    ]
    if rows:
        lines += [_outcome_table(rows).to_markdown(), "", _graph_table(rows).to_markdown(), ""]
        lines += [f"- {one}" for one in rows]
    left = [one for one in ours if one not in rows]
    if left:
        names = ", ".join(f"{one.other} ({len(one.pairs)} seeds)" for one in left)
        lines += ["", f"Incomplete, and therefore without a verdict: {names}."]
    if begun := [one for one in left if one.pairs]:
        lines += ["", "Their mean differences so far:", "", _begun_table(begun).to_markdown()]
    return lines


def _begun_table(rows: Sequence[Comparison]) -> Table:
    """Return the mean differences of comparisons that lack seeds."""
    columns = ("compared with", "seeds", *(f"difference, {outcome}" for outcome in OUTCOMES))
    body = []
    for one in rows:
        apart = [f"{100 * (one.mean(1, o) - one.mean(0, o)):+.2f}" for o in OUTCOMES]
        body.append((one.other, len(one.pairs), *apart))
    return Table(columns, tuple(body))


def _further(records: Records, seeds: Sequence[int]) -> list[str]:
    """Return the lines on comparisons with seeds that are not in the protocol."""
    others = further_seeds(records, seeds)
    rows = [one for one in comparisons(records, others) if len(one.pairs) > 1]
    if not rows:
        return []
    lines = ["", f"## Seeds {others[0]} to {others[-1]}", "", _FURTHER]
    for setting in dict.fromkeys(one.setting for one in rows):
        of_setting = [one for one in rows if one.setting is setting]
        lines += ["", f"{setting.name}:", "", _outcome_table(of_setting).to_markdown()]
    return lines


_FURTHER = """\
These seeds are not in the protocol: they were run after the results above were known. They are
part of neither the tables above nor the picture, and their verdicts do not replace those above."""

_INTRODUCTION = """\
Paired differences of test accuracy in percentage points, designed minus other, with 95 %
t-intervals over seeds; above 0, the designed topology is better. The number in a name is the size
of the D-Cliques that set the budget of messages. `python -m analysis.designed_topologies --help`
prints the protocol, which was written before the first run."""


def _outcome_table(rows: Sequence[Comparison]) -> Table:
    """Return accuracies of the learning phase, and the differences of all outcomes."""
    columns = ("compared with", "seeds", "its accuracy, learning phase", "designed")
    body = []
    for one in rows:
        accuracies = [f"{100 * one.mean(which, OUTCOMES[0]):.2f}" for which in (0, 1)]
        shown = [difference_said(one.difference(outcome)) for outcome in OUTCOMES]
        body.append((one.other, len(one.pairs), *accuracies, *shown))
    return Table((*columns, *(f"difference, {outcome}" for outcome in OUTCOMES)), tuple(body))


def _graph_table(rows: Sequence[Comparison]) -> Table:
    """Return messages, accumulated heterogeneity and noise: of the other graph, of the design."""
    entries = {"messages": ".1f", "H_1": ".4f", "H_10": ".4f", "N_10": ".3f"}
    columns = ["compared with", *(f"{key}: its, designed" for key in entries)]

    def shown(one: Comparison) -> list[str]:
        means = [(one.mean(0, key), one.mean(1, key), form) for key, form in entries.items()]
        return [f"{its:{form}}, {designed:{form}}" for its, designed, form in means]

    return Table(tuple(columns), tuple((one.other, *shown(one)) for one in rows))


def _picture(found: Sequence[Comparison], path: Path) -> Path:
    """Draw the differences with intervals."""
    settings: dict[str, list[Any]] = {}
    for one in found:
        apart = {outcome: one.difference(outcome) for outcome in OUTCOMES}
        settings.setdefault(one.setting.name, []).append((one.other, apart))
    return draw_differences(settings, path, "designed minus other")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison from the command line; returns the exit code."""
    options = _parser().parse_args(argv)
    known = [name for name in SETTINGS if options.data is not None or name == "digits"]
    seeds = range(options.seeds[0], options.seeds[1] + 1)
    end = time.monotonic() + 60 * options.minutes
    try:
        records = records_of(options.out, options.data)
        compute(
            options.settings or known,
            records,
            root=options.data,
            seeds=seeds,
            more=lambda: time.monotonic() < end,
        )
    except (ValueError, OSError) as error:
        print(
            as_installed(f"python -m analysis.designed_topologies: error: {error}"), file=sys.stderr
        )
        return 2
    if records.failures:
        print(f"{records.failures}; the same command tries them again")
    for path in write_report(records, options.out):
        print(f"written: {path}")
    return 0


def _parser() -> ArgumentParser:
    parser = parser_of(
        "designed_topologies",
        __doc__,
        data=(Path, "folder of the data"),
        minutes=(1e9, "start no run after this time"),
        out=(Path("out", "designed"), "folder"),
    )
    parser.add_argument(
        "settings",
        nargs="*",
        choices=[*SETTINGS, []],
        metavar="SETTING",
        help=f"one of {', '.join(SETTINGS)}; default: all whose data are given",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs=2,
        default=(SEEDS[0], SEEDS[-1]),
        metavar=("FIRST", "LAST"),
        help=f"seeds that are run (default {SEEDS[0]} {SEEDS[-1]})",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
