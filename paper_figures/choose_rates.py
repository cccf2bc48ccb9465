"""Learning rates of the second look, by the rule of ``kit/comparison.toml``.

``python -m paper_figures.choose_rates --data DIR`` trains the arm of each paper that compares no
methods (training alone; in D-Cliques the complete graph) with every rate and with seeds that are
not judged, and prints the final accuracies and the rates that the rule chooses.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from topofl import NotApplicable, Table
from topofl.runs.identity import Run, with_options

from .dcliques import arms as dcliques
from .dpfl import arms as dpfl
from .kit import comparison
from .kit.paper import LOOKS, Setting, make_setting
from .kit.store import Failed, Store, compute_missing

ARMS: Mapping[str, Callable[[Setting], Sequence[Run]]] = {
    "D-Cliques": lambda setting: dcliques.fig08(setting)["CIFAR-10"][dcliques.FULLY],
    "DFedPGP, PFedDST": lambda setting: comparison.arm(setting, "CIFAR-10, Dir(0.3)", "Local"),
    "DPFL": lambda setting: dpfl.arm(setting, dpfl.DIR, dpfl.BASELINES["Local"]),
}
"""Runs of the arm that no claim is about, by paper."""

TIE = 0.1
"""Accuracies that differ by at most so many points are equal."""


def chosen(accuracies: Mapping[float, float]) -> float:
    """Return the rate with the highest accuracy, the lowest of those that are equal.

    Examples
    --------
    >>> chosen({0.1: 90.0, 0.05: 92.05, 0.02: 92.0, 0.01: 80.0})
    0.02
    """
    best = max(accuracies.values())
    return min(rate for rate, accuracy in accuracies.items() if accuracy >= best - TIE)


def final_accuracy(runs: Sequence[Run], store: Store) -> float:
    """Return the accuracy in % in the last tenth of the rounds, mean over nodes and seeds."""
    means = []
    for run in runs:
        history, _ = store.load(run)
        late = history["round"] > 0.9 * history.n_rounds
        means.append(100 * float(np.nanmean(history["accuracy"][late])))
    return float(np.mean(means))


def rates_table(setting: Setting, store: Store, jobs: int = 1) -> Table:
    """Return the final accuracies by paper and rate at a scale, and the chosen rates."""
    rule = comparison.DECLARED["second_look_rates"]
    setting, rates = replace(setting, seeds=tuple(rule["seeds"])), rule["rates"]
    rows = []
    for paper, arm in ARMS.items():
        found: dict[float, float] = {}
        failed: dict[float, NotApplicable] = {}
        for rate in rates:
            runs = [
                Run(with_options(run.tables, {"algorithm": {"lr": rate}})) for run in arm(setting)
            ]
            try:
                compute_missing(runs, store, jobs=jobs, title=f"{paper}, {rate:g}")
                found[rate] = final_accuracy(runs, store)
            except Failed as error:
                failed[rate] = NotApplicable(str(error))
        cells = [round(found[rate], 2) if rate in found else failed[rate] for rate in rates]
        rows.append((paper, *cells, chosen(found)))
    columns = ("paper", *(f"{rate:g}: %" for rate in rates), "chosen")
    return Table(columns, tuple(rows), title=f"Final accuracy by rate on {LOOKS[setting.scale]}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables of all data sets of the second look."""
    parser = argparse.ArgumentParser(
        prog="python -m paper_figures.choose_rates",
        description="Choose the learning rates of the second look by its rule.",
    )
    parser.add_argument("--data", metavar="DIR", help="folder that contains MNIST")
    parser.add_argument("--out", metavar="DIR", default="out/reproduce", help="folder of results")
    parser.add_argument("--jobs", metavar="J", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    for scale in LOOKS:
        setting = make_setting(scale, root=options.data)
        print(rates_table(setting, Store(Path(options.out, "runs")), options.jobs), end="\n\n")


if __name__ == "__main__":
    main()
