"""Compare convergence over graphs with what should predict it. Long, since one script runs alone.

``python -m analysis.convergence_study`` compares nine topologies on scikit-learn's handwritten
digits in under a minute; ``--data FOLDER`` compares them on MNIST in the setting of the D-Cliques
paper. It prints a table and writes the table, the histories and a figure.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from tqdm.auto import tqdm

import topofl
from topofl import NotApplicable, Spread, Table, algorithms, data, metrics, mixing, models
from topofl.toolkit import save_picture

from .program import declared, parser_of, write
from .study.scenarios import graph_of_spec

HOPS = 10
"""Hops over which heterogeneity is accumulated."""

ACCUMULATED = f"heterogeneity over {HOPS} hops"

METRICS = {
    "spectral gap": "gap",
    "neighborhood heterogeneity": "heterogeneity",
    ACCUMULATED: "accumulated",
}
"""Attributes of results that should predict the rounds to the target, by name."""

STUDY = Path(__file__).parent / "results" / "study" / "runs.csv.gz"
"""Runs of ``python -m analysis.study``, which are not part of a wheel."""


@dataclass(frozen=True)
class StudyTask:
    """The task on which all contenders are compared.

    Parameters
    ----------
    dataset, n
        The data, and the number of nodes; every node gets two label shards.
    lr, batch_size, rounds
        Settings of every run; a round is one minibatch step and one exchange.
    every
        Rounds between evaluations of every node's model on the test images.
    target
        Target of the mean test accuracy over nodes.
    """

    dataset: data.Dataset
    n: int
    lr: float
    batch_size: int
    rounds: int
    every: int
    target: float


@dataclass(frozen=True)
class Contender:
    """A graph and an algorithm to compare.

    Parameters
    ----------
    label, color
        In tables and figures; the line is dashed if gradients are averaged within cliques.
    graph
        Spec of the graph, such as ``"random_regular,k=10"``.
    clique_averaging
        Whether gradients are averaged within cliques.
    """

    label: str
    color: str
    graph: str
    clique_averaging: bool = False


@dataclass(frozen=True)
class Result:
    """Graphs and histories of a contender, one per seed, and the means of three metrics."""

    contender: Contender
    graphs: tuple[topofl.Topology, ...]
    histories: tuple[topofl.History, ...]
    gap: float
    heterogeneity: float
    accumulated: float

    def rounds_to(self, accuracy: float) -> list[float]:
        """Return the rounds to a mean accuracy per seed; infinite if it was not reached."""
        reached = [history.rounds_to(accuracy) for history in self.histories]
        return [np.inf if isinstance(t, NotApplicable) else float(t) for t in reached]

    def final(self, statistic: Callable[..., Any]) -> np.ndarray:
        """Return a statistic over nodes of the final accuracy per seed."""
        return np.array([statistic(history["accuracy"][-1]) for history in self.histories])

    def mean_of(self, column: str) -> float:
        """Return the mean over rounds and seeds of a column of the histories."""
        return float(np.mean([history[column].mean() for history in self.histories]))


CONTENDERS = tuple(Contender(**row) for row in declared("convergence_study")["contenders"])
"""The graphs and algorithms that are compared."""


def digits() -> StudyTask:
    """Return the setting on scikit-learn's 1,797 handwritten digits with 50 nodes."""
    return StudyTask(data.digits(), n=50, lr=0.5, batch_size=8, rounds=150, every=1, target=0.8)


def mnist(root: str | Path) -> StudyTask:
    """Return the setting of the D-Cliques paper (section IV-A) on MNIST: 100 nodes, 10 epochs."""
    return StudyTask(
        data.mnist(root), n=100, lr=0.1, batch_size=128, rounds=40, every=4, target=0.8
    )


def compute(
    setting: StudyTask,
    seeds: Sequence[int],
    contenders: Sequence[Contender] = CONTENDERS,
    *,
    progress: bool | str = "auto",
) -> list[Result]:
    """Run every contender with every seed, which determines partition, random graphs and run."""
    total = len(contenders) * len(seeds)
    disable = None if progress == "auto" else not progress
    with tqdm(total=total, desc="runs", unit="run", disable=disable, leave=False) as bar:
        return [_result(setting, contender, seeds, bar) for contender in contenders]


def _result(setting: StudyTask, contender: Contender, seeds: Sequence[int], bar: tqdm) -> Result:
    images, graphs, histories, numbers = setting.dataset, [], [], []
    for seed in seeds:
        bar.set_postfix_str(contender.label)
        clients = data.shards(images, n=setting.n, per_node=2, seed=seed)
        graph: Any = graph_of_spec(contender.graph, clients, seed)
        w = mixing.metropolis_hastings(graph)
        spreads = (metrics.neighborhood_heterogeneity(w, clients, hops=k) for k in (1, HOPS))
        numbers.append((w.spectral_gap, *spreads))
        graphs.append(graph)
        method = algorithms.clique_averaging if contender.clique_averaging else algorithms.dsgd
        history = topofl.run(
            method(setting.lr, batch_size=setting.batch_size),
            model=models.logistic_regression(images.inputs[0].numel(), images.n_classes),
            clients=clients,
            topology=graph,
            rounds=setting.rounds,
            evaluation=setting.every,
            seed=seed,
            progress=False,
        )
        histories.append(history)
        bar.update()
    means = np.mean(numbers, axis=0).tolist()
    return Result(contender, tuple(graphs), tuple(histories), *means)


def table(setting: StudyTask, results: Sequence[Result]) -> Table:
    """Return one row per contender; spreads are the lowest and highest value over seeds."""
    target = f"rounds to {setting.target:.0%}"
    columns = (
        *("graph", "edges", "mean degree", "messages", "as paper counts", "MB"),
        *(
            "spectral gap",
            "heterogeneity",
            ACCUMULATED,
            target,
            "accuracy % mean",
            "min node",
            "max node",
        ),
    )
    title = (
        f"{setting.dataset.name}, {setting.n} nodes of two label shards, {setting.rounds} rounds, "
        f"{len(results[0].histories)} seeds; messages and MB per round over all nodes; CA = Clique "
        "Averaging"
    )
    return Table(columns, tuple(_row(setting, result) for result in results), title=title)


def _row(setting: StudyTask, result: Result) -> tuple[Any, ...]:
    edges = float(np.mean([graph.n_edges for graph in result.graphs]))
    rounds = result.rounds_to(setting.target)
    if np.isinf(rounds).any():
        count = int(np.isinf(rounds).sum())
        missed = f"{count} of {len(rounds)} seeds stayed below {setting.target:.0%}"
        reached: Spread | NotApplicable = NotApplicable(f"{result.contender.label}: {missed}")
    else:
        reached = _spread(np.array(rounds))
    accuracy = [_spread(100 * result.final(statistic)) for statistic in (np.mean, np.min, np.max)]
    return (
        result.contender.label,
        round(edges),
        2 * edges / setting.n,
        round(result.mean_of("messages")),
        round(result.mean_of("messages_paper")),
        result.mean_of("bytes") / 1e6,
        result.gap,
        round(result.heterogeneity, 9),  # 0 up to rounding on the complete graph
        round(result.accumulated, 9),
        reached,
        *accuracy,
    )


def _spread(values: np.ndarray) -> Spread:
    return Spread(float(values.mean()), float(values.min()), float(values.max()))


def rank_correlations(
    setting: StudyTask, results: Sequence[Result]
) -> dict[str, float | NotApplicable]:
    """Return Spearman's rank correlations of the metrics with the rounds to the target in D-SGD.

    A perfect predictor has -1 (spectral gap) or +1 (heterogeneity). Graphs that did not reach the
    target share the last rank. Metrics and rounds are means over seeds.
    """
    plain = [result for result in results if not result.contender.clique_averaging]
    rounds = [np.mean(result.rounds_to(setting.target)) for result in plain]
    finite = np.where(np.isinf(rounds), setting.rounds + 1, rounds)
    if len(set(finite.tolist())) == 1:
        return dict.fromkeys(METRICS, NotApplicable("all graphs took the same number of rounds"))
    return {
        name: float(spearmanr([getattr(result, key) for result in plain], finite).statistic)
        for name, key in METRICS.items()
    }


def many_nodes(path: Path = STUDY) -> list[str]:
    """Return what the runs of the study say about 1,000 nodes; empty without such runs."""
    if not path.exists():
        return []
    runs = pd.read_csv(path)
    runs = runs[runs["scenario"] == "MNIST 1000"]
    if runs.empty:
        return []
    found = {
        name: float(spearmanr(runs[name], runs["learning phase"], nan_policy="omit").statistic)
        for name in ("spectral gap", "H_1", f"H_{HOPS}")
    }
    shown = ", ".join(f"{name} {value:+.2f}" for name, value in found.items())
    return [
        f"with 1,000 nodes on MNIST ({len(runs)} graphs, analysis/results/study), rank "
        f"correlations with mean accuracy in the learning phase: {shown}"
    ]


def draw(setting: StudyTask, results: Sequence[Result], path: str | Path) -> None:
    """Write the figure: accuracy by round, and rounds to the target by each metric."""
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(12, 7.5), layout="constrained")
    grid = figure.add_gridspec(3, 2, width_ratios=[1.7, 1])
    _draw_curves(setting, results, figure.add_subplot(grid[:, 0]))
    correlations = rank_correlations(setting, results)
    for row, name in enumerate(METRICS):
        _draw_ranks(setting, results, figure.add_subplot(grid[row, 1]), name, correlations[name])
    save_picture(figure, path, dpi=150)
    plt.close(figure)


def _draw_curves(setting: StudyTask, results: Sequence[Result], ax: Any) -> None:
    for result in results:
        t = result.histories[0]["round"]
        # (seeds, evaluations, n)
        accuracy = 100 * np.array([history["accuracy"] for history in result.histories])
        line = "--" if result.contender.clique_averaging else "-"
        style = {"color": result.contender.color, "linestyle": line}
        ax.plot(t, accuracy.mean(axis=(0, 2)), label=result.contender.label, linewidth=1.8, **style)
        low, high = accuracy.min(axis=2).mean(axis=0), accuracy.max(axis=2).mean(axis=0)
        ax.fill_between(t, low, high, color=result.contender.color, alpha=0.08, linewidth=0)
    ax.axhline(100 * setting.target, color="gray", linewidth=0.8, linestyle=":")
    ax.set(xlabel="round", ylabel="test accuracy of the nodes' models, %", ylim=(0, 100))
    ax.set_xlim(0, setting.rounds if setting.rounds <= 60 else 60)
    ax.set_title("line: mean over nodes, band: worst to best node (means over seeds)", fontsize=9)
    ax.legend(loc="lower right", fontsize=8, framealpha=0.9)


def _draw_ranks(
    setting: StudyTask,
    results: Sequence[Result],
    ax: Any,
    name: str,
    correlation: float | NotApplicable,
) -> None:
    for result in results:
        mean = float(np.mean(result.rounds_to(setting.target)))
        x, y = getattr(result, METRICS[name]), setting.rounds if np.isinf(mean) else mean
        filled = "none" if result.contender.clique_averaging else result.contender.color
        marker = "^" if np.isinf(mean) else "o"
        ax.scatter(
            x, y, color=result.contender.color, facecolors=filled, marker=marker, s=36, zorder=3
        )
    ax.set_xscale("symlog", linthresh=1e-3)
    ax.set(xlabel=name, ylabel=f"rounds to {setting.target:.0%}", yscale="log")
    expected = "-1" if name == "spectral gap" else "+1"
    said = f"rank correlation {_signed(correlation)} (a perfect predictor: {expected})"
    ax.set_title(said, fontsize=9)
    ax.grid(alpha=0.3)


def _signed(value: float | NotApplicable) -> str:
    return f"{value} ({value.reason})" if isinstance(value, NotApplicable) else f"{value:+.2f}"


def save(setting: StudyTask, results: Sequence[Result], out: Path) -> Table:
    """Write table, histories and figure to the folder `out`, and return the table."""
    summary = table(setting, results)
    write(out, table=summary.to_markdown() + "\n")
    summary.to_csv(out / "table.csv")
    for result in results:
        label = result.contender.label.lower()
        slug = "".join(c if c.isalnum() else "-" for c in label).strip("-")
        for seed, history in enumerate(result.histories):
            history.save(out / "histories" / f"{slug}-{seed}")
    draw(setting, results, out / "figure.png")
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study from the command line; returns the exit code."""
    options = parser_of(
        "convergence_study",
        __doc__,
        data=(str, "folder with MNIST's IDX files, in it or below; default: the embedded digits"),
        seeds=(5, "number of seeds"),
        out=(Path, "folder of the results (default: out/demo, with --data out/mnist)"),
    ).parse_args(argv)
    out = options.out or Path("out", "mnist" if options.data else "demo")
    try:
        setting = mnist(options.data) if options.data else digits()
        if options.seeds < 1:
            raise ValueError(f"`--seeds` must be at least 1, got {options.seeds}")
        results = compute(setting, range(options.seeds))
        print(save(setting, results, out))
    except (ValueError, OSError) as error:
        print(f"convergence_study: error: {error}", file=sys.stderr)
        return 2
    for name, value in rank_correlations(setting, results).items():
        print(
            f"rank correlation of {name} with rounds to {setting.target:.0%} under D-SGD: "
            f"{_signed(value)}"
        )
    print(*many_nodes(), sep="\n")
    print(f"wrote {out}/figure.png, table.csv, table.md and histories/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
