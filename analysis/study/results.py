"""The report of the study: verdicts, tables of correlations, and a scatter plot."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topofl import Table
from topofl.toolkit import save_picture

from .fits import held_out_table, isotonic, write_runs
from .page import write_page
from .runs import PREDICTORS
from .scenarios import Source
from .statistics import (
    FEWEST,
    LEAD,
    NEAR,
    OUTCOMES,
    SKEWED,
    CellTable,
    Interval,
    Statistic,
    choice_table,
    correlation,
    correlation_table,
    correlations,
    first_cells,
    given_noise,
    groups,
    median,
    median_over_cells,
    spearman,
)

Row = tuple[Any, ...]
HOLDS, FAILS, UNDECIDED = "HOLDS", "FAILS", "UNDECIDED"

FEWEST_OF_FAMILY = 4
"""Fewest graphs of a family that has a correlation of its own."""


def hypotheses(tables: Sequence[CellTable]) -> Table:
    """Return the verdict of each hypothesis that the recorded cells allow."""
    columns = ("hypothesis", "statistic", "cells", "claim", "verdict")
    plain = [table for table in tables if table.method == "D-SGD"]
    skewed = [table for table in plain if table.partition in SKEWED]
    rows = (*_of_dsgd(plain, skewed), *_of_other_methods(tables), *_of_order(plain, skewed))
    return Table(columns, rows)


def _of_dsgd(plain: Sequence[CellTable], skewed: Sequence[CellTable]) -> Iterator[Row]:
    learning = correlation("H_10", "learning phase")
    yield from _at_most("1: H_10, learning phase", skewed, learning, -0.95)
    final = correlation("predicted deviation (20)", "final")
    yield from _at_most("2: predicted deviation (20), final", skewed, final, -0.95)
    yield from _better("3: H_10 minus gap, learning phase", skewed, _minus("spectral gap"))
    thousand = [table for table in skewed if table.nodes == 1000]
    yield from _better("3: H_10 minus H_1, 1,000 nodes", thousand, _minus("H_1"))
    iid = [table for table in plain if table.partition == "iid"]
    yield from _at_most("4: |n_W(0.9)| minus |N_10|, iid, final", iid, _less_than_noise(), 0.0)


def _of_other_methods(tables: Sequence[CellTable]) -> Iterator[Row]:
    corrected = [table for table in tables if table.method in ("gradient tracking", "D2")]
    if corrected:
        rest = median_over_cells(corrected, given_noise("final"))
        inside = rest.low >= -0.3 and rest.high <= 0.3
        outside = rest.high < -0.3 or rest.low > 0.3
        verdict = HOLDS if inside else FAILS if outside else UNDECIDED
        name = "5: H_10 given N_10, gradient tracking and D², final"
        yield name, str(rest), rest.cells, "within 0.3 of 0", verdict
    for method in ("momentum", "local steps"):
        own = [table for table in tables if table.method == method and table.partition in SKEWED]
        learning = correlation("H_10", "learning phase")
        yield from _at_most(f"6: H_10, learning phase, {method}", own, learning, -0.9)


def _of_order(plain: Sequence[CellTable], skewed: Sequence[CellTable]) -> Iterator[Row]:
    families = Statistic(_by_family, lambda columns: median(columns[0]), fewest=1, names=_families)
    yield from _at_most("7: within families, H_10", skewed, families, -0.9)
    known = [table for table in plain if table.scenario == "digits 60"]
    asked = [table for table in plain if table.scenario.startswith("MNIST")]
    if known and asked:
        target = correlation("H_10", "rounds to target")
        yield from _at_most("8: H_10, MNIST, rounds to target", asked, target, -0.9)
        order, apart = _fitted(known)
        name = "8: the same by the fit to digits, which ties graphs"
        yield from _at_most(name, asked, Statistic(order, spearman), -0.9)
        error = median_over_cells(asked, Statistic(apart, lambda columns: median(columns[0])))
        yield "8: relative error of the fit", str(error), error.cells, "none", "-"


def _at_most(
    name: str, tables: Sequence[CellTable], statistic: Statistic, threshold: float
) -> Iterator[Row]:
    """Yield the verdict on a claim that a median is at most a threshold."""
    if tables:
        found = median_over_cells(tables, statistic)
        yield name, str(found), found.cells, f"at most {threshold:g}", _judged(found, threshold)


def _judged(found: Interval, threshold: float) -> str:
    return HOLDS if found.high <= threshold else FAILS if found.low > threshold else UNDECIDED


def _better(name: str, tables: Sequence[CellTable], statistic: Statistic) -> Iterator[Row]:
    """Yield the verdicts on a claim that a difference is below 0, by its median and everywhere."""
    if tables:
        found = median_over_cells(tables, statistic)
        verdict = HOLDS if found.high < 0 else FAILS if found.low >= 0 else UNDECIDED
        yield name, str(found), found.cells, "below 0", verdict
        everywhere = HOLDS if found.worst < 0 else FAILS
        yield f"{name}, worst cell", f"{found.worst:+.3f}", found.cells, "below 0", everywhere


def _minus(rival: str) -> Statistic:
    """Return H_10's correlation minus a rival's, over the graphs that have both."""
    outcome = "learning phase"
    signs = [-PREDICTORS[name][1] * OUTCOMES[outcome] for name in ("H_10", rival)]

    def columns(table: CellTable) -> np.ndarray:
        x, z = (table.predictors[name] for name in ("H_10", rival))
        return np.stack([signs[0] * x, signs[1] * z, table.outcomes[outcome]])

    return Statistic(columns, lambda found: spearman(found[[0, 2]]) - spearman(found[[1, 2]]))


def _less_than_noise() -> Statistic:
    """Return the absolute correlation of n_W(0.9) minus that of N_10."""

    def columns(table: CellTable) -> np.ndarray:
        rival, own = (table.predictors[name] for name in ("n_W(0.9)", "N_10"))
        return np.stack([rival, own, table.outcomes["final"]])

    def value(found: np.ndarray) -> np.ndarray:
        return np.abs(spearman(found[[0, 2]])) - np.abs(spearman(found[[1, 2]]))

    return Statistic(columns, value)


def _families(table: CellTable) -> list[str]:
    return list(dict.fromkeys(table.families))


def _by_family(table: CellTable) -> np.ndarray:
    """Return the rank correlation (1, families) of H_10; NaN in families of few graphs."""
    columns = correlation("H_10", "learning phase").columns(table)
    families = np.array(table.families)
    own = [columns[:, families == family] for family in _families(table)]
    enough = [part.shape[1] >= FEWEST_OF_FAMILY for part in own]
    return np.array(
        [[float(spearman(p)) if e else np.nan for p, e in zip(own, enough, strict=True)]]
    )


Columns = Callable[[CellTable], np.ndarray]


def _fitted(tables: Sequence[CellTable]) -> tuple[Columns, Columns]:
    """Return what a monotone fit of rounds to target on H_10 says about the graphs of a cell.

    These are columns whose rank correlation is -1 if the order is right, and relative errors.
    """
    fit = isotonic([(t.predictors["H_10"], t.outcomes["rounds to target"]) for t in tables])

    def order(table: CellTable) -> np.ndarray:
        return np.stack([-fit(table.predictors["H_10"]), table.outcomes["rounds to target"]])

    def error(table: CellTable) -> np.ndarray:
        rounds = np.maximum(table.outcomes["rounds to target"], 1.0)
        return np.abs(fit(table.predictors["H_10"]) / rounds - 1)[None]

    return order, error


COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
"""Colors of the families, from the colorblind-safe palette of Okabe and Ito."""

PANELS = ("spectral gap", "H_1", "H_10")
"""Predictors of the picture."""

DEVIATIONS = """\
- Intervals draw partitions, and graphs by name, the same for all cells of a draw, among those that
  have the predictor and the outcome. Groups with one partition have no variance over partitions.
- Cells with fewer than 8 graphs that have a predictor are left out of its correlations, and
  families of fewer than 4 graphs out of hypothesis 7, whose interval draws families.
- A graph that a method refuses is left out for this method only.
- Rounds and bytes to the target are interpolated linearly between evaluations; a run that does not
  reach the target counts twice its length.
- The false discovery rate is controlled over each table, not over each hypothesis. With 2,000 draws
  no p-value is below 0.001, so that a lone significant entry cannot stand out in a large table.
- Hypothesis 3 is judged by the median over cells, and also by the worst cell.
- Hypotheses 7 and 8 were called "held-out families" and "held-out data". H_10 is not fitted, so
  that nothing is held out: 7 is its correlation within families, and the order of 8 is the plain
  rank correlation on MNIST but for the ties that a monotone fit makes. Both are in the table.
- Clique Averaging, which does not exist on the graph of tuning, uses the learning rate of D-SGD.
- MNIST with 1,000 nodes is evaluated every 40 rounds, and images of the CIFAR-10 subset are
  averaged to 16 x 16 pixels. Both save time and were decided before the first run on them."""
"""What differs from ``HYPOTHESES.md``."""


def write_report(
    tables: Sequence[CellTable],
    source: Source,
    folder: Path,
    *,
    page: Path | None = None,
    graphs: Path | None = None,
    rates: Sequence[str] = (),
) -> list[Path]:
    """Write the report, the runs and the pictures of all complete cells; return their paths.

    Parameters
    ----------
    tables, source
        Complete cells, and where their scenarios come from. Without cells, nothing is written.
    folder
        Folder of the files.
    page
        Interactive page; None: none.
    graphs
        Folder that keeps the graphs of the fitted rivals; None: no fitted rivals.
    rates
        Sentences on the learning rates of a study of one's own.
    """
    if not tables:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    runs = write_runs(tables, folder / "runs.csv.gz")
    parts = ["# What predicts convergence: results", "", _summary(tables), ""]
    verdicts = None
    if source.config is not None:
        parts += [*(f"- {line}" for line in rates), ""]
    else:
        verdicts = hypotheses(tables)
        parts += [PLAN, "", "## Hypotheses", "", verdicts.to_markdown(), ""]
        parts += ["## Deviations from the plan", "", DEVIATIONS, ""]
    parts += [] if _too_few(tables) else _tables(tables)
    if graphs is not None and (rivals := held_out_table(tables, runs, graphs, source.root)):
        parts += ["## Fitted rivals", "", RIVALS, "", rivals.to_markdown(), ""]
    parts += ["## Left out", "", _left_out(tables, source), ""]
    report = folder / "report.md"
    report.write_text("\n".join(parts), encoding="utf-8")
    paths = [report, runs, _scatter(tables, folder / "scatter.png")]
    if page is not None:
        paths.append(write_page(tables, page, verdicts=verdicts, spectra=source.config is None))
    return paths


PLAN = """\
`analysis/study/HYPOTHESES.md`, which has the definitions, was committed before the first run."""

CHOICES = f"""\
Over the cells of the first table of correlations: the share of pairs of graphs of equal degree
that a predictor orders as their accuracies in the learning phase are. These are pairs within a cell
whose mean degrees differ by less than {100 * NEAR:g} % (as the difference of logarithms), and whose
accuracies differ by more than {100 * LEAD:g} point. A predictor does not order a pair if it is not
defined for one of the two graphs, or equal for both; shares are of the pairs that it orders. Last,
the median over cells of the rank correlation, -1 if perfect, among the third of the graphs that has
the lowest H_10."""

RIVALS = """\
Models are fitted to the logarithm of rounds to target, relative to the complete graph, of D-SGD on
digits with 60 nodes and skewed labels: without one family, which they then predict, or with all, to
predict MNIST with 100 and 1,000 nodes. Targets are relative to the complete graph of the same cell,
which is known for held-out graphs too. Here, a perfect prediction has a rank correlation of +1. The
message-passing network (three layers on the mixing weights, label shares as node features) was not
tuned."""


def _summary(tables: Sequence[CellTable]) -> str:
    runs = sum(len(table.graphs) for table in tables)
    graphs = len({graph for table in tables for graph in table.graphs})
    return (
        f"{len(tables)} cells with {runs:,} runs over {graphs} graphs. Entries are median rank "
        "correlations over cells, with signs such that -1 is perfect, 95 % bootstrap intervals "
        "(partitions as clusters, and graphs), and the number of graphs. Those in brackets do not "
        "differ significantly from 0, at a false discovery rate of 5 % over their table "
        f"(Benjamini-Hochberg).{_too_few(tables)}"
    )


def _too_few(tables: Sequence[CellTable]) -> str:
    """Return why there are no correlations, or nothing."""
    most = max(len(table.graphs) for table in tables)
    if most >= FEWEST:
        return ""
    return f" There are none: a correlation needs at least {FEWEST} graphs, here are {most}."


def _tables(tables: Sequence[CellTable]) -> list[str]:
    """Return the sections with tables of correlations."""
    found = []
    first = first_cells(tables)
    skewed = all(table.partition in SKEWED and table.method == "D-SGD" for table in first)
    kinds: dict[str, dict[str, Any]] = {
        "D-SGD, skewed labels, all scenarios" if skewed else "All cells": {},
        "The same, partial correlations given mean degree": {"given": "mean degree"},
        "The same, Kendall's correlations": {"tau": True, "outcomes": ("learning phase", "final")},
    }
    for title, options in kinds.items():
        numbers = correlation_table(correlations(first, **options))
        found += [f"## {title}", "", numbers.to_markdown(), ""]
    found += ["## Choosing between graphs", "", CHOICES, "", choice_table(first).to_markdown(), ""]
    for outcome in ("learning phase", "final"):
        numbers = _by_group(tables, outcome)
        found += [f"## Every group of cells: {outcome}", "", numbers.to_markdown(), ""]
    return found


def _by_group(tables: Sequence[CellTable], outcome: str) -> Table:
    """Return the correlations of one outcome, with a column per group of cells."""
    found = {
        (predictor, group): interval
        for group, chosen in groups(tables).items()
        for (predictor, _), interval in correlations(chosen, [outcome]).items()
    }
    return correlation_table(found, first=next(iter(groups(tables))))


def _left_out(tables: Sequence[CellTable], source: Source) -> str:
    """Return which graphs do not exist or are refused by a method, in all or in some cells."""
    lines = []
    for scenario, method in dict.fromkeys((table.scenario, table.method) for table in tables):
        own = [t for t in tables if (t.scenario, t.method) == (scenario, method)]
        counts = Counter(graph for table in own for graph in table.graphs)
        absent = [
            f"{name} ({len(own) - counts[name]} of {len(own)} cells)" if counts[name] else name
            for name in source.scenario(scenario).graphs
            if counts[name] < len(own)
        ]
        worst = sum(int((table.outcomes["final"] < 0).sum()) for table in own)
        diverged = f"; {worst} runs diverged" if worst else ""
        rates = ", ".join(dict.fromkeys(f"{table.partition}: {table.lr:g}" for table in own))
        lines.append(
            f"- {scenario}, {method}: {', '.join(absent) or 'none'}{diverged}. "
            f"Learning rates: {rates}."
        )
    return "\n".join(lines)


def _scatter(tables: Sequence[CellTable], path: Path) -> Path:
    """Draw accuracy in the learning phase over three predictors, one row per scenario."""
    from matplotlib.figure import Figure

    ranked = sorted(
        tables, key=lambda t: (t.method != "D-SGD", t.partition != "2 shards", t.seed), reverse=True
    )
    shown = {table.scenario: table for table in ranked}
    shown = {scenario: shown[scenario] for scenario in dict.fromkeys(t.scenario for t in tables)}
    figure = Figure(figsize=(11, 2.9 * len(shown)), layout="constrained")
    axes = np.atleast_2d(figure.subplots(len(shown), len(PANELS), sharey="row", squeeze=False))
    families = list(dict.fromkeys(f for table in shown.values() for f in table.families))
    for row, (scenario, table) in zip(axes, shown.items(), strict=True):
        own = np.array(table.families)
        for ax, predictor in zip(row, PANELS, strict=True):
            for k, family in enumerate(families):
                chosen = own == family
                x, y = table.predictors[predictor][chosen], table.outcomes["learning phase"][chosen]
                ax.scatter(x, y, s=22, color=COLORS[k % len(COLORS)], label=family)
            ax.set_xscale("symlog", linthresh=1e-3)
            ax.set_xlabel(predictor)
            ax.grid(alpha=0.3)
        row[0].set_ylabel(f"{scenario}\naccuracy, learning phase")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(families), frameon=False)
    save_picture(figure, path, dpi=110)
    return path
