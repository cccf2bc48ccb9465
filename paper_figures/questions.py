"""Experiments beyond the papers: why claims fail at scale quick, and what holds across papers.

``python -m paper_figures.questions --data DIR`` trains on the data of the second look, MNIST at
14 x 14 pixels with a small network, where a run takes seconds, and prints one table per question. A
row changes the number that is named in the first column, and nothing else. Other
settings are those of the second look. Questions, rows and numbers were fixed before the first run;
the question about images was added when longer training had left DPFL's graphs as they were.

Numbers are means over seeds with the half-width of their 95 % interval (Student's t). A table says
what happens on these data. That the cause is the same on the paper's data is a conclusion by
analogy.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topofl import History, NotApplicable, Table, TopologyError
from topofl.history import Personal
from topofl.runs.identity import Run, with_options
from topofl.summary.verdicts import mean_interval, with_interval

from .dcliques import arms as dcliques
from .dpfl import arms as dpfl
from .dpfl import graphs, study
from .kit import comparison
from .kit.curves import final
from .kit.paper import Setting, make_setting
from .kit.reproduce import write_text
from .kit.store import Store, compute_missing

SCALE = "mnist14"

ALONE, ROTATING = "training alone", "rotating cliques"

Arms = Mapping[str, Sequence[Run]]
"""Runs by label, one per seed."""

Numbers = Mapping[str, np.ndarray | Sequence[float] | NotApplicable]
"""Numbers by column, one per seed, (S,), or why there are none."""


@dataclass(frozen=True)
class Question:
    """An experiment.

    Parameters
    ----------
    title
        What is asked.
    changed
        What the rows change.
    rows
        Values of the first column.
    arms
        ``arms(setting, row)``: the runs of a row by label.
    measure
        ``measure(arms, store)``: the numbers of a row.
    """

    title: str
    changed: str
    rows: Sequence[Any]
    arms: Callable[[Setting, Any], Arms]
    measure: Callable[[Arms, Store], Numbers]

    def table(self, setting: Setting, store: Store) -> Table:
        """Return the numbers of all rows, whose runs are finished."""
        found = [self.measure(self.arms(setting, row), store) for row in self.rows]
        columns = (self.changed, *found[0])
        cells = zip(self.rows, found, strict=True)
        rows = tuple((row, *map(said, numbers.values())) for row, numbers in cells)
        return Table(columns, rows, title=self.title)


def said(values: Sequence[float] | np.ndarray | NotApplicable) -> Any:
    """Return the mean of one number per seed and the half-width of its 95 % interval.

    Examples
    --------
    >>> said([1.0, 2.0, 3.0])
    '2.00 ± 2.48'
    >>> said([1.0])
    '1.00'
    """
    if isinstance(values, NotApplicable):
        return values
    return with_interval(float(np.mean(values)), mean_interval(values), ".2f")


def changed(runs: Sequence[Run], **tables: Mapping[str, Any]) -> list[Run]:
    """Return runs with other values in tables of their configuration."""
    return [Run(with_options(run.tables, tables)) for run in runs]


def _of_dpfl(runs: Sequence[Run], **tables: Mapping[str, Any]) -> Arms:
    return {"DPFL": changed(runs, **tables)}


def flipped(setting: Setting, row: str) -> Arms:
    """Return DPFL with flipped labels of clients that only send, on a split and for some rounds."""
    (arms,) = dpfl.flips(setting, idle=True).values()
    alpha, rounds = row.split(", ")
    return _of_dpfl(
        arms["DPFL"], data={"alpha": float(alpha)}, run={"rounds": int(rounds.split()[0])}
    )


def malicious_peers(arms: Arms, store: Store) -> Numbers:
    """Return how many of a benign client's peers are malicious in the last round, in %."""
    (runs,) = arms.values()
    last = runs[0].tables["run"]["rounds"] - 1
    shares = 100 * graphs.malicious_shares(graphs.graphs_of(runs, store, [last]))[:, -1]
    n = runs[0].tables["data"]["n"]
    bad = [len(run.tables["data"]["flip_labels"]) for run in runs]
    chance = [100 * count / (n - 1) for count in bad]
    return {"malicious peers, %": shares, "by chance, %": chance}


def longer(setting: Setting, rounds: int) -> Arms:
    """Return DPFL without attackers for some rounds."""
    return _of_dpfl(dpfl.arm(setting, dpfl.DIR, dpfl.of_budget(None)), run={"rounds": rounds})


def with_more_images(setting: Setting, per_client: int) -> Arms:
    """Return DPFL without attackers, with some images per client, of which a fifth validates."""
    runs = dpfl.arm(setting, dpfl.DIR, dpfl.of_budget(None))
    return _of_dpfl(runs, data={"train": per_client * runs[0].tables["data"]["n"]})


def steadiness(arms: Arms, store: Store) -> Numbers:
    """Return common edges of graphs two rounds apart, and reciprocities, all in %."""
    (runs,) = arms.values()
    rounds = runs[0].tables["run"]["rounds"]
    seeds = [one["heard"] for one in graphs.graphs_of(runs, store, range(rounds))]
    late = [k for k in range(rounds) if k >= 0.6 * (rounds - 1)][::2]
    common = [graphs.steadiness([one[str(t)] for t in late]) for one in seeds]
    first, last = (
        np.array([graphs.reciprocity(one[str(t)]) for one in seeds]) for t in (0, rounds - 1)
    )
    return {
        "common edges, %": 100 * np.array(common),
        "reciprocity at first, %": 100 * first,
        "at the end, %": 100 * last,
    }


def accuracies(runs: Sequence[Run], store: Store) -> Iterator[np.ndarray]:
    """Yield accuracies in % by evaluation and node, without the untrained models, per run."""
    for run in runs:
        history, _ = store.load(run)
        yield 100 * np.asarray(history["accuracy"])[1:]


def learning(runs: Sequence[Run], store: Store) -> np.ndarray:
    """Return the mean accuracy over the first half of the evaluations, (S,) in %."""
    return np.array([one[: len(one) // 2].mean() for one in accuracies(runs, store)])


def distance(runs: Sequence[Run], store: Store) -> np.ndarray:
    """Return best minus worst node, mean over training, (S,) in points."""
    return np.array([np.ptp(one, axis=1).mean() for one in accuracies(runs, store)])


def of_minibatches(setting: Setting, batch_size: int) -> Arms:
    """Return the complete graph and D-Cliques with another size of minibatches."""
    arms = dcliques.fig08(setting)["CIFAR-10"]
    return {k: changed(runs, algorithm={"batch_size": batch_size}) for k, runs in arms.items()}


def gap(arms: Arms, store: Store) -> Numbers:
    """Return how much the complete graph is ahead while nodes learn, in points."""
    complete = learning(arms[dcliques.FULLY], store)
    return {
        "complete graph, %": complete,
        "minus D-Cliques, points": complete - learning(arms[dcliques.CA], store),
    }


def with_fewer_edges(setting: Setting, removed: int) -> Arms:
    """Return D-Cliques of which none, and some, edges per clique are removed."""
    panel = dcliques.fig16(setting)["with Clique Averaging"]
    whole, thinner = panel["0 removed"], panel["1 removed"]
    return {"all": whole, "fewer": changed(thinner, topology={"removed": removed})}


def cost_of_edges(arms: Arms, store: Store) -> Numbers:
    """Return what the removed edges cost while nodes learn, and between nodes, in points."""
    return {
        "accuracy lost, points": learning(arms["all"], store) - learning(arms["fewer"], store),
        "best minus worst node, gained, points": distance(arms["fewer"], store)
        - distance(arms["all"], store),
    }


def tested_on(setting: Setting, examples: int) -> Arms:
    """Return D-Cliques of Greedy-Swap and random cliques, tested on some images."""
    panel = dcliques.fig19(setting)["CIFAR-10"]
    labels = dcliques.CA, dcliques.RANDOM_CLIQUES
    return {k: changed(panel[k], evaluation={"examples": examples}) for k in labels}


def ratio_of_distances(arms: Arms, store: Store) -> Numbers:
    """Return best minus worst node with Greedy-Swap, over that of random cliques."""
    swapped, random = (distance(runs, store) for runs in arms.values())
    return {
        "Greedy-Swap, points": swapped,
        "random cliques, points": random,
        "ratio": swapped / random,
    }


def personal(setting: Setting, rounds: int) -> Arms:
    """Return PFedDST and DFedPGP with two classes per client, for some rounds."""
    return {
        label: changed(
            comparison.arm(setting, "CIFAR-10, c=2", label),
            run={"rounds": rounds},
            evaluation={"every": rounds // 15},
        )
        for label in ("PFedDST", "DFedPGP", "Local")
    }


def lead(arms: Arms, store: Store) -> Numbers:
    """Return final accuracies, each at the stage at which the method ends best, in %."""
    stages = {k: comparison.stage_curves(runs, store, k) for k, runs in arms.items()}
    ends = {k: final(curve) for k, curve in comparison.reported({"": stages})[""].items()}
    return {
        "PFedDST, %": ends["PFedDST"],
        "minus DFedPGP, points": ends["PFedDST"] - ends["DFedPGP"],
        "minus training alone, points": ends["PFedDST"] - ends["Local"],
    }


def at_equal_messages(setting: Setting, peers: int) -> Arms:
    """Return graphs of some in-neighbors: learned, random, designed and rotating, and none.

    Trained for as many epochs, and tested on clients' own images and on all, as in the study of
    DPFL.
    """
    (title,) = dpfl.splits_of(setting, dpfl.DIR)
    scale = dpfl.scale_on(setting, title)
    learned = {"budget": peers, "first_epochs": "once"}
    methods: dict[str, tuple[dpfl.Method, dict[str, Any]]] = {
        study.LEARNED: (dpfl.Method("dpfl", more=learned), {}),
        "random graph": (dpfl.Method("random_collaboration", more=learned), {}),
        "designed": (dpfl.Method("dfedavgm"), {"name": "designed", "degree": peers}),
        ROTATING: (
            dpfl.Method("dfedavgm"),
            {"name": "rotating_cliques", "clique_size": peers + 1},
        ),
        ALONE: (dpfl.BASELINES["Local"], {}),
    }
    return {
        label: [study.tested_on_all(run, graph, scale) for run in dpfl.arm(setting, title, method)]
        for label, (method, graph) in methods.items()
    }


def on_own_images(arms: Arms, store: Store) -> Numbers:
    """Return accuracies of each client's best round on its own test images, in %."""
    return _with_lead(
        {
            label: 100 * np.array([_personal(label, store.load(run)[0]).mean for run in runs])
            for label, runs in arms.items()
        }
    )


def _with_lead(found: Mapping[str, np.ndarray]) -> Numbers:
    """Return accuracies with the lead of rotating cliques over learned graphs, by seed."""
    return {**found, f"{ROTATING} minus DPFL": found[ROTATING] - found[study.LEARNED]}


def _personal(label: str, history: History) -> Personal:
    return dpfl.method_of("Local" if label == ALONE else label).personal(history)


def on_all_images(arms: Arms, store: Store) -> Numbers:
    """Return accuracies of the last round's models, after the exchange, on all images, in %."""
    found = {}
    for label, runs in arms.items():
        histories = [store.load(run)[0] for run in runs]
        last = [one.last(one.column(on="test")).mean() for one in histories]
        found[label] = 100 * np.array(last)
    return _with_lead(found)


def of_a_method(setting: Setting, label: str) -> Arms:
    """Return a method of DFedPGP's tables with two classes per client."""
    return {label: comparison.arm(setting, "CIFAR-10, c=2", label)}


def by_stage(arms: Arms, store: Store) -> Numbers:
    """Return final accuracies after the exchange and after training, in %."""
    ((label, runs),) = arms.items()
    curves = comparison.stage_curves(runs, store, label)
    after, trained = (final(curves[stage]) for stage in ("after exchange", "after training"))
    return {"after exchange, %": after, "after training, %": trained, "points": trained - after}


def with_the_cheapest(setting: Setting, label: str) -> Arms:
    """Return a method of DFedPGP's tables, and the one of fewest bytes, two classes per client."""
    return {k: comparison.arm(setting, "CIFAR-10, c=2", k) for k in (label, CHEAPEST)}


def at_equal_cost(arms: Arms, store: Store) -> Numbers:
    """Return accuracies when all rounds, or the bytes or seconds of the cheapest, are spent, in %.

    Methods are tested at the stage at which they end best, and accuracies are interpolated linearly
    between rounds.
    """
    label = next(iter(arms))
    stages = {"": {label: comparison.stage_curves(arms[label], store, label)}}
    curve = comparison.reported(stages)[""][label]
    own, cheapest = ([store.load(run)[0] for run in runs] for runs in (arms[label], arms[CHEAPEST]))
    found: dict[str, Sequence[float] | np.ndarray | NotApplicable] = {
        "equal rounds, %": curve.mean[:, -1]
    }
    for what, cost in (("bytes", _bytes), ("seconds", _seconds)):
        try:
            shares = [cost(b) / cost(a) for a, b in zip(own, cheapest, strict=True)]
        except TopologyError as error:
            found[f"equal {what}, %"] = NotApplicable(str(error))
            continue
        rounds = [min(share, 1.0) * curve.epochs[-1] for share in shares]
        found[f"equal {what}, %"] = [
            float(np.interp(r, curve.epochs, mean))
            for r, mean in zip(rounds, curve.mean, strict=True)
        ]
    return found


def _bytes(history: History) -> float:
    return float(history["bytes"].sum())


def _seconds(history: History) -> float:
    return float(history.with_seconds(LINKS, seed=0)["simulated_seconds"][-1])


CHEAPEST = "FedPer"

LINKS = {"compute": 0.05, "latency": 0.02, "bandwidth": 1.25e6}
"""Seconds per step, seconds per message, and bytes per second of a node, as of homes."""

EXCHANGED = ("DFedAvgM", "OSGP", "Dis-PFL", "DFedPGP")
"""Methods over a graph, whose rounds train and then exchange."""

PEERS = (2, 4)

FAILING = (
    Question(
        "DPFL: are malicious clients avoided if splits are even, or if clients train longer?",
        "Dirichlet alpha, rounds",
        [f"{alpha:g}, {rounds} rounds" for alpha in (0.1, 1, 100) for rounds in (12, 48)],
        flipped,
        malicious_peers,
    ),
    Question(
        "DPFL: are graphs static, and more symmetric, if clients train longer?",
        "rounds",
        (12, 24, 48, 96),
        longer,
        steadiness,
    ),
    Question(
        "DPFL: are they if clients have more images, of which a fifth decides on peers?",
        "images per client",
        (125, 500, 1000),
        with_more_images,
        steadiness,
    ),
    Question(
        "D-Cliques: do minibatches decide how far the complete graph is ahead?",
        "minibatch",
        (5, 20, 80),
        of_minibatches,
        gap,
    ),
    Question(
        "D-Cliques: how many removed edges are noticed, with Clique Averaging?",
        "edges removed per clique",
        (1, 2, 5, 10),
        with_fewer_edges,
        cost_of_edges,
    ),
    Question(
        "Greedy-Swap: does the number of test images hide what it does between nodes?",
        "test images",
        (150, 1000, 10_000),
        tested_on,
        ratio_of_distances,
    ),
    Question(
        "PFedDST: does it overtake DFedPGP if clients train longer?",
        "rounds",
        (30, 120),
        personal,
        lead,
    ),
)
"""Why claims fail."""

ACROSS = (
    Question(
        "Learned graphs, or graphs known before training? Accuracy on own test images, %",
        "peers",
        PEERS,
        at_equal_messages,
        on_own_images,
    ),
    Question(
        "Learned graphs, or graphs known before training? Accuracy on all test images, %",
        "peers",
        PEERS,
        at_equal_messages,
        on_all_images,
    ),
    Question(
        "Equal rounds, equal bytes, or equal seconds? Accuracy with two classes per client",
        "method",
        (*EXCHANGED, "PFedDST", CHEAPEST, "Ditto"),
        with_the_cheapest,
        at_equal_cost,
    ),
    Question(
        "When is a model tested?",
        "method",
        EXCHANGED,
        of_a_method,
        by_stage,
    ),
)
"""What holds across papers."""

QUESTIONS = (*FAILING, *ACROSS)
"""All questions, in the order of the page."""


PAGE = """\
# Questions beyond the papers

Written by `python -m paper_figures.questions --data DIR`, with {seeds} seeds. Means over seeds, and
half-widths of 95 % intervals.

{tables}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing, print the tables, and write them as a page."""
    parser = argparse.ArgumentParser(
        prog="python -m paper_figures.questions",
        description="Train the experiments beyond the papers, and print their tables.",
    )
    parser.add_argument("--data", metavar="DIR", help="folder that contains MNIST")
    parser.add_argument("--out", metavar="DIR", default="out/reproduce", help="folder of results")
    parser.add_argument("--seeds", metavar="K", type=int, default=5, help="runs of every arm")
    parser.add_argument("--jobs", metavar="J", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    setting = make_setting(SCALE, seeds=options.seeds, root=options.data)
    store, tables = Store(Path(options.out, "runs")), []
    for question in QUESTIONS:
        arms = [question.arms(setting, row) for row in question.rows]
        runs = [run for panel in arms for one in panel.values() for run in one]
        compute_missing(runs, store, jobs=options.jobs, title=question.title)
        tables.append(question.table(setting, store).to_markdown())
        print(tables[-1], end="\n\n", flush=True)
    page = PAGE.format(seeds=options.seeds, tables="\n\n".join(tables))
    write_text(Path(options.out, "questions.md"), page)


if __name__ == "__main__":
    main()
