"""Compare training on rotating cliques with D-Cliques and other graphs.

``python -m analysis.rotating_cliques --data DIR --processes 2 --out
analysis/results/rotating_cliques`` runs what is missing and writes ``table.md``, ``results.json``,
``runs.csv`` and ``differences.png``. Hypotheses, settings and rules of decision, written before the
first run, are in HYPOTHESES.md in that folder; scenarios are declared in ``studies.toml``. Training
runs are kept in the folder ``runs`` (``topofl runs`` lists them), numbers of graphs in
``predictions.jsonl``; the same command continues an interrupted one. What they found is also in
``outcomes.jsonl.gz``, with which, in the new folder or as ``--known``, another machine continues.
DIR contains the folders ``mnist`` and ``cifar10-subset``; without ``--data`` only scenarios on
digits are run.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import connected_components

from topofl import Table, Topology, metrics

from .paired import (
    OUTCOMES,
    Difference,
    Verdict,
    all_hold,
    at_least,
    difference,
    difference_said,
    draw_differences,
    run_declared,
    verdict_table,
)
from .program import write
from .study.graphs import Graph, messages_of
from .study.runs import ROUNDS
from .study.scenarios import Cell, Source, clients_of

DECIDING = ("digits", "MNIST 100", "MNIST 1000", "MLP", "GN-LeNet")
"""The five settings that decide hypotheses 1 to 8."""

VARIATIONS = (
    "digits, 1 class",
    "digits, Dirichlet 0.1",
    "digits, momentum",
    "digits, local steps",
    "digits, noisy counts",
    "digits, 20 % absent",
    "MNIST 100, 1 class",
    "MNIST 100, Dirichlet 0.1",
    "MNIST 100, momentum",
    "MNIST 100, local steps",
    "MNIST 100, 20 % absent",
)
"""Settings of hypothesis 9."""

SCHEMES = ("ring", "fractal", "small_world", "fully_connected")
"""How D-Cliques are joined."""

SEEDS = 10
"""Seeds without all of which a comparison decides nothing."""


def models_sent(graph: Topology) -> float:
    """Return the models that nodes send in a round if each group averages by its cheapest exchange.

    k nodes that are all joined send 2 (k - 1) models in an all-reduce, where an exchange of rows
    takes k (k - 1); edges between groups carry one model each way. Groups are those of the graph,
    or else its connected components. All-reduce gives equal weights, which D-Cliques do not have at
    the ends of edges between cliques: their number is as if they had.
    """
    n, links = graph.n, graph.adjacency
    labels = connected_components(links, directed=False)[1]
    parts = [np.flatnonzero(labels == k) for k in range(labels.max() + 1)]
    saved = 0
    for group in graph.groups or parts:
        k = len(group)
        if k > 2 and (links[list(group)][:, list(group)] != 0).sum() == k * (k - 1):
            saved += k * (k - 1) - 2 * (k - 1)
    return (graph.edge_index.shape[1] - saved) / n


def numbers_of(graph: Graph, cell: Cell, source: Source) -> dict[str, Any]:
    """Return messages and models per node and round, links per node, and heterogeneity.

    Links are the nodes from which a node receives in any round, at most over all nodes. Of a
    sequence without period, the first rounds are examined.
    """
    clients = clients_of(cell, source)
    period = 1 if isinstance(graph, Topology) else graph.period
    graphs = [graph.at(t) for t in range(period or ROUNDS)]
    met = np.any([(one.adjacency != 0).toarray() for one in graphs], axis=0)
    rounds = None if period else ROUNDS
    spread = partial(metrics.neighborhood_heterogeneity, graph, clients, rounds=rounds)
    return {
        "messages": messages_of(graph, ROUNDS) / graph.n,
        "models": float(np.mean([models_sent(one) for one in graphs])),
        "links": int(met.sum(axis=0).max()),
        "H_1": spread(hops=1),
        "H_10": spread(hops=10),
    }


@dataclass(frozen=True, eq=False)
class Found:
    """What is known about runs.

    Parameters
    ----------
    runs
        One row per run, as :func:`analysis.paired.runs_of` returns them.
    source
        Where the scenarios come from.
    """

    runs: pd.DataFrame
    source: Source

    @cached_property
    def _groups(self) -> dict[Any, pd.DataFrame]:
        return {key: own.set_index("seed") for key, own in self.runs.groupby(["setting", "graph"])}

    def rows(self, setting: str, graph: str) -> pd.DataFrame:
        """Return the runs of a graph by seed."""
        return self._groups.get((setting, graph), self.runs.iloc[:0].set_index("seed"))

    def apart(
        self, setting: str, ours: str, theirs: str, outcome: str, *, other: str | None = None
    ) -> Difference | None:
        """Return the paired difference of two graphs, of the second in another setting if given.

        None: there are not two seeds of both.
        """
        first, second = self.rows(setting, ours), self.rows(other or setting, theirs)
        values = (first[outcome] - second[outcome]).dropna()
        return difference(values.to_numpy()) if len(values) > 1 else None

    def decided(
        self, setting: str, ours: str, theirs: str, outcome: str, *, other: str | None = None
    ) -> Difference | None:
        """Return the difference if all seeds are known."""
        pairs = (setting, ours), (other or setting, theirs)
        complete = all(len(self.rows(*pair)) == SEEDS for pair in pairs)
        return self.apart(setting, ours, theirs, outcome, other=other) if complete else None

    def is_better(self, setting: str, ours: str, theirs: str, outcome: str) -> bool | None:
        """Return whether the interval of a difference is above 0; None: seeds are missing."""
        apart = self.decided(setting, ours, theirs, outcome)
        return None if apart is None else apart[-1] == "better"

    def is_not_worse(self, setting: str, ours: str, theirs: str, outcome: str) -> bool | None:
        """Return whether the interval of a difference is not below 0; None: seeds are missing."""
        apart = self.decided(setting, ours, theirs, outcome)
        return None if apart is None else apart[-1] != "worse"

    def schemes(self, setting: str, size: int) -> list[str]:
        """Return the names of the D-Cliques of a size in a setting."""
        known = self.source.scenario(setting).graphs
        return [name for name in known if name.startswith(f"D-Cliques {size} ")]

    def won(self, setting: str, size: int, rivals: Sequence[str]) -> tuple[bool | None, list[str]]:
        """Return whether rotating cliques beat all rivals in one of two outcomes, and in which."""
        claims = {
            outcome: all_hold(
                [self.is_better(setting, f"rotating {size}", one, outcome) for one in rivals]
            )
            for outcome in ("learning phase", "worst node")
        }
        return at_least(1, list(claims.values())), [name for name in claims if claims[name]]


def verdicts(found: Found) -> list[Verdict]:
    """Return what became of the hypotheses."""
    return [
        *(_against_dcliques(found, f"{k}", size) for k, size in ((1, 10), (2, 5))),
        _never_worse(found),
        _near_complete(found),
        *_against_others(found),
        _against_cheap(found),
        _variations(found),
        _with_tracking(found),
        _partitions(found),
        _noise(found),
    ]


def _against_dcliques(found: Found, name: str, size: int) -> Verdict:
    claims, texts = [], []
    for setting in DECIDING:
        won, where = found.won(setting, size, found.schemes(setting, size))
        claims.append(won)
        texts.append(f"{setting}: {_state(won, ' and '.join(where))}")
    claim = (
        f"rotating cliques of {size} beat D-Cliques of {size} in all schemes, in the learning "
        f"phase or at the worst node, in at least 4 of the 5 settings"
    )
    return Verdict(name, claim, at_least(4, claims), "; ".join(texts))


def _state(holds: bool | None, where: str) -> str:
    return "runs missing" if holds is None else where if holds else "no"


def _counted(
    name: str, claim: str, cases: Sequence[tuple[str, bool | None]], wanted: int | None = None
) -> Verdict:
    """Return the verdict on a claim about several cases, at least `wanted` of which must hold."""
    known = [holds for _, holds in cases]
    failing = [case for case, holds in cases if holds is False]
    text = f"{known.count(True)} of {len(cases)} hold, {known.count(None)} open"
    text += f"; not: {', '.join(failing)}" if failing else ""
    return Verdict(name, claim, at_least(len(cases) if wanted is None else wanted, known), text)


def _never_worse(found: Found) -> Verdict:
    cases = [
        (
            f"{setting}, {rival}, {outcome}",
            found.is_not_worse(setting, f"rotating {size}", rival, outcome),
        )
        for setting in DECIDING
        for size in (10, 5)
        for rival in found.schemes(setting, size)
        for outcome in OUTCOMES
    ]
    claim = (
        "in no outcome of the 5 settings are rotating cliques worse than D-Cliques of their size"
    )
    return _counted("3", claim, cases)


def _near_complete(found: Found) -> Verdict:
    cases = []
    for setting, limit in (("MNIST 100", 0.01), ("MNIST 1000", 0.02)):
        for outcome in ("learning phase", "final"):
            apart = found.decided(setting, "rotating 10", "complete", outcome)
            said = "" if apart is None else f" {difference_said(apart)}"
            cases.append((f"{setting}, {outcome}{said}", None if not apart else apart[1] > -limit))
    claim = (
        "rotating cliques of 10 are within 1 point of the complete graph with 100 nodes, 2 with "
        "1,000 (lower end of the interval, learning phase and final)"
    )
    return _counted("4", claim, cases)


def _known(
    found: Found, setting: str, rivals: Mapping[int, Sequence[str]]
) -> Mapping[int, Sequence[str]]:
    """Return the rivals that a setting declares; others are equal to one of these there."""
    names = found.source.scenario(setting).graphs
    return {size: [one for one in own if one in names] for size, own in rivals.items()}


def _against_others(found: Found) -> list[Verdict]:
    """Return the verdicts on random groups, finite-time graphs and designed graphs."""

    def cases(
        settings: Sequence[str], rivals: Mapping[int, Sequence[str]], outcome: str, better: bool
    ) -> list[tuple[str, bool | None]]:
        judge = found.is_better if better else found.is_not_worse
        return [
            (f"{setting}, {rival}", judge(setting, f"rotating {size}", rival, outcome))
            for setting in settings
            for size, names in rivals.items()
            for rival in names
        ]

    random = {10: ["random groups 10"], 5: ["random groups 5"]}
    finite = {10: ["base graph 9", "base graph, 9 messages"]}
    finite |= {5: ["base graph 4", "base graph, 4 messages"]}
    learned = {10: ["designed 9", "STL-FW 9"]}
    first = "learning phase"
    return [
        _counted(
            "5",
            "rotating cliques learn faster than random groups of their size in the 5 settings",
            cases(DECIDING, random, first, True),
        ),
        _counted(
            "6",
            "they learn faster than base graphs (also hyper-hypercubes) of equal groups and of the "
            "nearest number of messages where the model is linear or an MLP",
            [
                case
                for setting in DECIDING[:4]
                for case in cases([setting], _known(found, setting, finite), first, True)
            ],
        ),
        _counted(
            "7a",
            "at the worst node, cliques of 10 are not worse than designed graphs and STL-FW of "
            "degree 9",
            cases(DECIDING, learned, "worst node", False),
        ),
        _counted(
            "7b",
            "on GN-LeNet the worst node is better than on designed graphs",
            cases(["GN-LeNet"], {10: ["designed 9"], 5: ["designed 4"]}, "worst node", True),
        ),
    ]


CHEAP = ("one-peer exponential", "EquiDyn", "base graph 1", "designed 2", "STL-FW 2")
"""Graphs of at most two messages per node and round, most of them of fewer."""


def _against_cheap(found: Found) -> Verdict:
    cases = [
        (f"{setting}, {rival}", found.is_better(setting, "rotating 10", rival, "learning phase"))
        for setting in DECIDING
        for rival in CHEAP
    ]
    claim = (
        "cliques of 10 that average by all-reduce (1.8 models per node and round) learn faster "
        "than graphs that send at most 2 models, most of them fewer"
    )
    return _counted("8", claim, cases)


def _variations(found: Found) -> Verdict:
    rivals = ["D-Cliques 10 ring", "D-Cliques 10 fully_connected"]
    cases = [(setting, found.won(setting, 10, rivals)[0]) for setting in VARIATIONS]
    claim = (
        "cliques of 10 beat D-Cliques of 10 (ring and fully connected) in the learning phase or at "
        "the worst node, in at least 9 of 11 variations on digits and MNIST 100"
    )
    return _counted("9", claim, cases, 9)


def _with_tracking(found: Found) -> Verdict:
    """Compare the advantages over D-Cliques with and without gradient tracking, seed by seed."""

    def advantage(setting: str) -> pd.Series:
        ours, theirs = (found.rows(setting, name) for name in ("rotating 10", "D-Cliques 10 ring"))
        return (ours["learning phase"] - theirs["learning phase"]).dropna()

    less = (advantage("digits") / 2 - advantage("digits, gradient tracking")).dropna()
    apart = difference(less.to_numpy()) if len(less) == SEEDS else None
    claim = (
        "gradient tracking leaves less than half of the advantage of cliques of 10 over D-Cliques "
        "in a ring in the learning phase (digits)"
    )
    said = "runs missing" if apart is None else f"half minus rest: {difference_said(apart)}"
    return Verdict("10", claim, None if apart is None else apart[-1] == "better", said)


def _partitions(found: Found) -> Verdict:
    cases = []
    for setting in ("digits", "MNIST 100", "MLP"):
        names = "rotating 10", "rotating 10, 16 partitions"
        apart = found.decided(setting, *names, "learning phase")
        said = "" if apart is None else f" {difference_said(apart)}"
        near = None if apart is None else -0.005 < apart[1] <= apart[2] < 0.005
        cases.append((f"{setting}{said}", near))
    claim = (
        "4 partitions in turn learn as fast as 16: the interval is within 0.5 points where the "
        "model is linear or an MLP"
    )
    return _counted("11", claim, cases)


def _noise(found: Found) -> Verdict:
    names = "rotating 10", "rotating 10"
    apart = found.decided("digits, noisy counts", *names, "learning phase", other="digits")
    claim = (
        "label counts with Laplace noise of scale 2 cost cliques of 10 at most 1 point of the "
        "learning phase (digits; lower end of the interval)"
    )
    said = "runs missing" if apart is None else difference_said(apart)
    return Verdict("12", claim, None if apart is None else apart[1] > -0.01, said)


def _rival(family: str) -> str:
    """Return the rotating cliques with which the graphs of a family are compared."""
    return "rotating 5" if family.endswith("size 5") else "rotating 10"


def setting_table(found: Found, setting: str) -> Table:
    """Return one row per graph: what it sends, its accuracies, and rotating cliques minus it."""
    columns = ("graph", "seeds", "messages", "models", "links", "H_1", "H_10", "rate")
    columns = (
        *columns,
        *(f"{name}, %" for name in OUTCOMES),
        "rotating cliques minus it: learning",
    )
    columns = (*columns, "final", "worst node")
    rows = []
    for name, graph in found.source.scenario(setting).graphs.items():
        own = found.rows(setting, name)
        if own.empty:
            continue
        means = own[["messages", "models", "links", "H_1", "H_10", *OUTCOMES]].mean()
        sent = f"{means['messages']:.2f}", f"{means['models']:.2f}", f"{means['links']:.0f}"
        spread = f"{means['H_1']:.4f}", f"{means['H_10']:.4f}"
        rate = f"{own['lr'].iloc[0]:g} {own['end'].fillna('').iloc[0]}".strip()
        ours = _rival(graph.family)
        apart = [found.apart(setting, ours, name, outcome) for outcome in OUTCOMES]
        said = ["" if one is None or ours == name else difference_said(one) for one in apart]
        accuracies = [f"{100 * means[outcome]:.2f}" for outcome in OUTCOMES]
        rows.append((name, len(own), *sent, *spread, rate, *accuracies, *said))
    return Table(columns, tuple(rows))


def losses(found: Found, settings: Sequence[str]) -> list[str]:
    """Return one line per difference of which all seeds are known and the interval is below 0."""
    lines = []
    for setting in settings:
        for name, graph in found.source.scenario(setting).graphs.items():
            ours = _rival(graph.family)
            for outcome in OUTCOMES:
                apart = found.decided(setting, ours, name, outcome)
                if apart is not None and apart[-1] == "worse":
                    said = difference_said(apart)
                    lines.append(f"- {setting}: {ours} against {name}, {outcome}: {said}")
    return lines or ["- nowhere so far"]


_INTRODUCTION = """\
# Rotating cliques against D-Cliques and other graphs

`python -m analysis.rotating_cliques` writes this page; hypotheses, settings and rules of decision
are in HYPOTHESES.md, written before the first run. Messages and models are per node and round,
models as each group sends them by its cheapest exchange, as if the cliques of D-Cliques could use
all-reduce, too, although nodes at edges between cliques have other weights; links are the nodes
from which a node receives in any round. Differences are paired over seeds, in percentage points,
with 95 % t-intervals; "better": rotating cliques are. Graphs of size 5 and those of 4 messages are
compared with rotating cliques of 5, all others with those of 10. Verdicts need all ten seeds."""


def report(runs: pd.DataFrame, source: Source, out: Path) -> list[Verdict]:
    """Write table, results and picture of what is known; return what became of the hypotheses."""
    found = Found(runs, source)
    decided = verdicts(found) if source.preset != "smoke" else []
    parts = [_INTRODUCTION, *([verdict_table(decided).to_markdown()] if decided else [])]
    settings = list(dict.fromkeys(runs["setting"]))
    parts += ["\n".join(["Where rotating cliques lose:", "", *losses(found, settings)])]
    parts += [f"## {name}\n\n{setting_table(found, name).to_markdown()}" for name in settings]
    drawn = {name: rows for name in settings if (rows := _drawn(found, name))}
    if drawn:
        picture = out / "differences.png"
        draw_differences(drawn, picture, "rotating cliques minus other", height=5.5)
        parts.append("![Differences with intervals.](differences.png)")
    means = runs.groupby(["setting", "graph"], sort=False)[list(OUTCOMES)].mean()
    results = {
        "verdicts": [{"name": one.name, "state": one.state, "found": one.found} for one in decided],
        "means": [
            {"setting": key[0], "graph": key[1], **row}  # pyright: ignore[reportIndexIssue]
            for key, row in means.to_dict("index").items()
        ],
    }
    write(out, table="\n\n".join(parts) + "\n", results=results)
    return decided


def _drawn(found: Found, setting: str) -> list[tuple[str, dict[str, Difference]]]:
    """Return the differences of a setting that have intervals."""
    rows = []
    for name, graph in found.source.scenario(setting).graphs.items():
        ours = _rival(graph.family)
        apart = {outcome: found.apart(setting, ours, name, outcome) for outcome in OUTCOMES}
        known = {outcome: one for outcome, one in apart.items() if one is not None}
        if name != ours and len(known) == len(OUTCOMES):
            rows.append((name, known))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison from the command line; returns the exit code."""
    return run_declared("rotating_cliques", __doc__, numbers_of, report, argv)


if __name__ == "__main__":
    sys.exit(main())
