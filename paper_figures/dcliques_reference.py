"""MNIST with 100 nodes: our accuracy curves beside those of the D-Cliques authors' own simulator.

``python -m paper_figures.dcliques_reference --data FOLDER`` runs three of the topologies of D-Cliques (Bellet,
Kermarrec and Lavoie 2022) in its setting (section IV-A: logistic regression, two shards a node, minibatches of 128,
learning rate 0.1, independent initial models), prints our accuracies beside the simulator's, and judges whether the
simulator's single seed could be one of ours.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats
from tqdm.auto import tqdm

import topofl
from topofl import Table, algorithms, data, models, topologies

__all__ = ["REFERENCE", "claims", "compute", "draw"]

STEPS_PER_EPOCH = 4
"""500 examples a node in minibatches of 128, the last one smaller."""

REFERENCE: Mapping[str, Mapping[int, float]] = {
    "fully-connected": {1: 72.52, 2: 77.80, 3: 86.14, 5: 88.63, 7: 89.18, 10: 89.69},
    "D-Cliques + CA": {1: 73.55, 2: 79.53, 3: 85.16, 5: 88.26, 7: 88.95, 10: 89.61},
    "ring": {1: 34.12, 2: 42.35, 3: 46.50, 5: 51.47, 7: 55.17, 10: 58.34},
}
"""Mean test accuracy over nodes in % after some epochs, measured with the authors' simulator (its seed 1337)."""

JUDGED_FROM = 5
"""Epoch from which curves are judged; before it they move by up to five points from seed to seed."""

Curves = Mapping[str, Sequence[topofl.History]]


def compute(root: str | Path, seeds: Sequence[int], *, epochs: int = 10, progress: bool | str = "auto") -> Curves:
    """Run the three topologies with every seed.

    Parameters
    ----------
    root
        Folder with MNIST's IDX files.
    seeds
        Each gives the split, the partition, the cliques, the initial models and the minibatches their numbers.
    epochs
        Passes over the local data.
    """
    runs: dict[str, list[topofl.History]] = {name: [] for name in REFERENCE}
    disable = None if progress == "auto" else not progress
    for seed in tqdm(seeds, desc="seeds", disable=disable):
        clients = data.shards(data.mnist(root, seed=seed), n=100, per_node=2, seed=seed)
        cliques = topologies.dcliques(clients.label_counts, clique_size=10, inter="fully_connected", seed=seed)
        arms = {
            "fully-connected": (algorithms.dsgd(0.1), topologies.fully_connected(100)),
            "D-Cliques + CA": (algorithms.clique_averaging(0.1), cliques),
            "ring": (algorithms.dsgd(0.1), topologies.ring(100)),  # shards are dealt at random, so is the order
        }
        for name, (algorithm, graph) in arms.items():
            history = topofl.run(
                algorithm,
                model=models.logistic_regression(),
                clients=clients,
                topology=graph,
                rounds=STEPS_PER_EPOCH * epochs,
                eval_every=STEPS_PER_EPOCH,
                init="independent",
                seed=seed,
                progress=False,
            )
            runs[name].append(history)
    return runs


def means(histories: Sequence[topofl.History], epoch: int) -> np.ndarray:
    """Return the mean accuracy over nodes after `epoch` epochs, in %, one a seed."""
    return np.array([100 * history["accuracy"][epoch].mean() for history in histories])


def could_be_ours(ours: np.ndarray, theirs: float) -> bool:
    """Return whether `theirs` lies in the 95 % prediction interval for one more seed, from our seeds alone.

    ``mean +- t(k - 1) * s * sqrt(1 + 1 / k)`` for k seeds with standard deviation s.
    """
    k = len(ours)
    half = stats.t.ppf(0.975, k - 1) * ours.std(ddof=1) * np.sqrt(1 + 1 / k)
    return bool(abs(ours.mean() - theirs) <= half)


def claims(curves: Curves) -> Table:
    """Return one row a topology and epoch: the simulator's accuracy, ours with its spread over seeds, and the verdict.

    HOLDS if the simulator's value lies in our 95 % prediction interval (:func:`could_be_ours`), else FAILS; epochs
    before :data:`JUDGED_FROM` are shown, not judged, and so are single seeds.
    """
    columns = ("topology", "epoch", "simulator %", "ours %", "seeds from", "to", "worst node", "best node", "verdict")
    rows = []
    for name, histories in curves.items():
        for epoch, theirs in REFERENCE[name].items():
            if epoch < len(histories[0]["accuracy"]):
                rows.append((name, epoch, theirs, *_ours(histories, epoch, theirs)))
    return Table(columns, tuple(rows), title=f"MNIST, 100 nodes, {len(next(iter(curves.values())))} seeds of ours")


def _ours(histories: Sequence[topofl.History], epoch: int, theirs: float) -> tuple[float | str, ...]:
    values = means(histories, epoch)
    worst = 100 * float(np.mean([history["accuracy"][epoch].min() for history in histories]))
    best = 100 * float(np.mean([history["accuracy"][epoch].max() for history in histories]))
    verdict = "-"
    if epoch >= JUDGED_FROM and len(values) > 1:
        verdict = "HOLDS" if could_be_ours(values, theirs) else "FAILS"
    return (*(round(float(v), 2) for v in (values.mean(), values.min(), values.max(), worst, best)), verdict)


def draw(curves: Curves, path: str | Path) -> None:
    """Write the figure: our mean over nodes and seeds as a line with the seeds' range, the simulator's as crosses."""
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for (name, histories), color in zip(curves.items(), ("#000000", "#0072B2", "#D55E00"), strict=True):
        accuracy = np.array([100 * history["accuracy"].mean(axis=1) for history in histories])
        epochs = np.arange(accuracy.shape[1])
        ax.plot(epochs, accuracy.mean(axis=0), color=color, label=f"{name}, topofl")
        ax.fill_between(epochs, accuracy.min(axis=0), accuracy.max(axis=0), color=color, alpha=0.2, linewidth=0)
        ax.plot(*zip(*REFERENCE[name].items(), strict=True), "x", color=color, label=f"{name}, authors' simulator")
    ax.set(xlabel="epoch (4 steps)", ylabel="mean test accuracy over nodes, %", ylim=(0, 100))
    ax.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m paper_figures.dcliques_reference",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", required=True, metavar="FOLDER", help="folder with MNIST's four IDX files")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default 5)")
    parser.add_argument("--out", type=Path, default=Path("out/dcliques_reference"), help="where to write")
    options = parser.parse_args(argv)
    try:
        curves = compute(options.data, range(options.seeds))
    except (ValueError, OSError) as error:
        print(f"dcliques_reference: error: {error}", file=sys.stderr)
        return 2
    table = claims(curves)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "claims.md").write_text(table.to_markdown() + "\n")
    draw(curves, options.out / "figure.png")
    print(table)
    print(f"wrote {options.out}/figure.png and claims.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
