"""Tables of DPFL's experiments: our numbers next to the paper's."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topofl import NotApplicable, Table

from ..kit.tables import plus_minus
from .arms import Outcome
from .graphs import malicious_share, reciprocity, sparsity
from .printed_numbers import TABLE_1


def accuracy_tables(panels: Mapping[str, Mapping[str, Outcome]]) -> list[Table]:
    """Return one table per panel with one row per method."""
    columns = ("method", "accuracy, %", "variance, points²", "worst tenth, %", "paper, %")
    return [
        Table(
            columns,
            tuple(_row(title, label, one) for label, one in arms.items()),
            title=f"{title}: {NOTES}",
        )
        for title, arms in panels.items()
    ]


NOTES = "each client's best model by validation; mean ± standard deviation over seeds"


def _row(title: str, label: str, one: Outcome) -> tuple[Any, ...]:
    paper = TABLE_1.get(label, {}).get(title)
    printed: Any = (
        NotApplicable("the paper does not print it")
        if paper is None
        else f"{paper[0]:.2f} ± {paper[1]:.2f}"
    )
    return (
        label,
        *(plus_minus(values) for values in (one.accuracy, one.variance, one.worst_tenth)),
        printed,
    )


def grid_tables(
    paper: Mapping[int, tuple[float, ...]], name: str
) -> Callable[[Mapping[str, Mapping[str, Outcome]]], list[Table]]:
    """Return a function that makes a table with one row per number (`name`) and budget."""

    def tables(panels: Mapping[str, Mapping[str, Outcome]]) -> list[Table]:
        ((title, arms),) = panels.items()
        labels = list(dict.fromkeys(label.rpartition("; ")[0] for label in arms))
        rows = []
        for label, one in arms.items():
            budget, _, number = label.rpartition("; ")
            row = paper.get(int(number))
            column = labels.index(budget)
            printed = NotApplicable("the paper does not print it") if row is None else row[column]
            rows.append((int(number), budget, plus_minus(one.accuracy), printed))
        return [
            Table(
                (name, "budget", "accuracy, %", "paper, %"), tuple(rows), title=f"{title}: {NOTES}"
            )
        ]

    return tables


def graph_table(label: str, seeds: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with one row per round shown: means over seeds."""
    columns = (
        "round",
        "peers per node",
        "sparsity",
        "reciprocity",
        "malicious among benign clients' peers",
    )
    rows = []
    for t in seeds[0]["heard"]:
        shown = [(seed["heard"][t], seed["malicious"]) for seed in seeds]
        bad = sum(malicious_share(neighbors, nodes) for neighbors, nodes in shown) / len(shown)
        means = [
            sum(f(neighbors) for neighbors, _ in shown) / len(shown)
            for f in (_degree, sparsity, reciprocity)
        ]
        share = bad if seeds[0]["malicious"] else NotApplicable("no client is malicious")
        rows.append((int(t), *means, share))
    return Table(
        columns, tuple(rows), title=f"{label}: learned graphs, means over {len(seeds)} seeds"
    )


def _degree(neighbors: Sequence[Sequence[int]]) -> float:
    return sum(map(len, neighbors)) / len(neighbors)
