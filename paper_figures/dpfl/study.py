"""Beyond the paper: learned graphs, and whether similar or different neighbors are better.

DPFL connects clients whose models help each other; D-Cliques connects nodes whose labels together
match the global label distribution. Here both have the same data, the same training between
exchanges, and the same largest number of peers. Models are judged by their accuracy on their own
node's test images, as in DPFL, and on all test images, as in D-Cliques.

The claims follow from each paper's own recommendations and were written down before the results of
any run were known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture

from topofl import History, NotApplicable, Table, config, metrics
from topofl.runs.identity import Run, with_options

from ..kit.claims import OUR_QUESTION, Claim
from ..kit.dots import Dots, dots
from ..kit.figure import Data
from ..kit.judging import judge_seeds
from ..kit.setting import Setting
from ..kit.tables import plus_minus
from ..kit.training.store import Store
from .arms import Arm, arm, scale_of, split, splits_of
from .methods import END, TRAINED, Method
from .settings import Scale

LEARNED, RANDOM = "DPFL", "random"
CLIQUES, RANDOM_CLIQUES = "D-Cliques", "random cliques"
ALL_PEERS, NO_PEERS = "everybody", "nobody"  # keys of stored data; shown as in NAMES
NAMES = {RANDOM: "random graphs", ALL_PEERS: "all clients", NO_PEERS: "training alone"}
"""Names of arms in tables, pictures and claims, where they differ from the keys of stored data."""

OWN_IMAGES, ALL_IMAGES = "own test images", "all test images"
SPLIT_TITLES = ("CIFAR-10, Dir(0.1)", "CIFAR-10, Patho(3)", "MNIST, Dir(0.1)")
COLUMNS = (
    "mean degree",
    "reciprocity",
    "spectral gap",
    "neighborhood heterogeneity",
    "neighbor label distance",
    "communities",
    "modularity",
    "label separation",
)
"""Metrics of graphs, defined in :func:`topofl.metrics.compare`."""

DIFFERENCES = (
    "this study is not an experiment of the paper: all arms train for the same number of rounds "
    "and epochs, also in DPFL's first round, and clients average with at most a fifth of the "
    "clients (except in “all clients” and “training alone”); D-Cliques have cliques of this size, "
    "joined in a ring, without Clique Averaging",
    "DPFL, “random graphs” and “all clients” weight models by numbers of training images; "
    "D-Cliques and “random cliques”, of the same size and joined in the same way but with random "
    "members, have Metropolis-Hastings weights, as in their paper: each method is compared with a "
    "random graph under its own weights, while a comparison of DPFL with D-Cliques is one of whole "
    "methods",
    "DPFL downloads all models once to choose peers, and uses validation images, which in other "
    "arms only select the round",
    "models are tested as often as fine-tuned models elsewhere; on their own images, the model of "
    "the round that is best by validation is tested, after local training; on all images, that of "
    "the last round, after the exchange (MNIST: both of the last round)",
    "D-Cliques use the labels of all clients, DPFL uses none",
    "without peers, or if every client is its own community, claims use the values expected by "
    "chance",
)


def _methods(scale: Scale) -> dict[str, tuple[Method, dict[str, Any]]]:
    """Return the method of each arm and additional tables of its runs, by label."""
    budget = scale.budgets[1] or 1
    once = {"budget": budget, "first_epochs": "once"}
    cliques = {"topology": {"name": "dcliques", "clique_size": budget, "inter": "ring"}}
    shuffled = {"topology": cliques["topology"] | {"steps": 0}}
    return {
        LEARNED: (Method("dpfl", TRAINED, once), {}),
        RANDOM: (Method("random_collaboration", TRAINED, once), {}),
        CLIQUES: (Method("dfedavgm", TRAINED), cliques),
        RANDOM_CLIQUES: (Method("dfedavgm", TRAINED), shuffled),
        ALL_PEERS: (Method("fedavg", TRAINED), {}),
        NO_PEERS: (Method("local_only", END, {"reset_momentum": True}), {}),
    }


def arms(setting: Setting) -> Mapping[str, Mapping[str, Arm]]:
    """Return all arms by split, with one run per seed."""
    return {title: _of_title(setting, title) for title in splits_of(setting, *SPLIT_TITLES)}


def _of_title(setting: Setting, title: str) -> dict[str, Arm]:
    scale = scale_of(setting).of(split(title).dataset)
    return {
        label: _tested_on_all(arm(setting, title, method), more, scale)
        for label, (method, more) in _methods(scale).items()
    }


def _tested_on_all(one: Arm, more: Mapping[str, Any], scale: Scale) -> Arm:
    """Return an arm whose models are also tested on all images, in fewer rounds."""
    evaluation = {
        "every": scale.study_every or scale.tuned_every,
        "on": ["own_test", "own_val", "test"],
    }
    more_tables = {"run": {"rounds": scale.rounds}, "evaluation": evaluation}
    runs = []
    for run in one.runs:
        graph = {"topology": {**more["topology"], "seed": run.seed}} if more else {}
        runs.append(Run(with_options({**run.tables, **graph}, more_tables)))
    return Arm(runs, one.stage, one.chosen_at)


def runs(setting: Setting) -> list[Run]:
    """Return all training runs."""
    return [run for panel in arms(setting).values() for one in panel.values() for run in one.runs]


def compute(setting: Setting, store: Store) -> Data:
    """Return accuracies and metrics of the last graph, one entry per seed, by split and arm."""
    return {
        "panels": {
            title: {
                label: [_of_run(one, run, store) for run in one.runs]
                for label, one in panel.items()
            }
            for title, panel in arms(setting).items()
        }
    }


def _of_run(one: Arm, run: Run, store: Store) -> dict[str, Any]:
    history, _ = store.load(run)
    on_own_images = one.personal(history)
    on_all_images = history.last(history.column(on="test"))
    return {
        OWN_IMAGES: 100 * on_own_images.mean,
        ALL_IMAGES: 100 * float(on_all_images.mean()),
        "graph": _numbers(history, run) if history.matrices else {},
    }


def _numbers(history: History, run: Run) -> dict[str, float]:
    """Return the metrics of the last round's graph that apply."""
    counts = config.build(run.tables).clients.label_counts
    table = metrics.compare(
        [history.mixing(-1)], label_counts=counts, about=["structure", "averaging", "data"]
    )
    values = {name: table.column(name)[0] for name in COLUMNS}
    return {
        name: float(value) for name, value in values.items() if not isinstance(value, NotApplicable)
    }


def _values(data: Data, title: str, label: str, what: str) -> np.ndarray:
    """Return one accuracy per seed."""
    return np.array([seed[what] for seed in data["panels"][title][label]])


def _of_graph(data: Data, title: str, label: str, name: str) -> np.ndarray:
    """Return a metric per seed; the value expected by chance where it does not apply."""
    by_chance = {"neighbor label distance": 1.0, "label separation": 0.0}
    return np.array(
        [seed["graph"].get(name, by_chance.get(name)) for seed in data["panels"][title][label]],
        float,
    )


def draw(data: Data) -> Picture:
    """Return a dot plot of all arms' accuracies, one panel per split and set of images."""
    return dots(
        {
            f"{title}: {what}": {
                _name(label): Dots(_values(data, title, label, what)) for label in panel
            }
            for title, panel in data["panels"].items()
            for what in (OWN_IMAGES, ALL_IMAGES)
        },
        xlabel="test accuracy, %",
    )


def tables(data: Data) -> list[Table]:
    """Return tables with one row per arm: its accuracies and the metrics of its last graph."""
    accuracies = (f"accuracy on {what}, %" for what in (OWN_IMAGES, ALL_IMAGES))
    columns = ("peers", *accuracies, *COLUMNS)
    note = "mean ± standard deviation over seeds; graph: means over seeds, of the last round"
    return [
        Table(columns, tuple(_row(data, title, label) for label in panel), title=f"{title}: {note}")
        for title, panel in data["panels"].items()
    ]


def _row(data: Data, title: str, label: str) -> tuple[Any, ...]:
    seeds = [seed["graph"] for seed in data["panels"][title][label]]
    known = [np.array([graph[name] for graph in seeds if name in graph]) for name in COLUMNS]
    graph = [
        float(values.mean()) if len(values) else NotApplicable("not defined for this graph")
        for values in known
    ]
    return (
        _name(label),
        *(plus_minus(_values(data, title, label, what)) for what in (OWN_IMAGES, ALL_IMAGES)),
        *graph,
    )


def _name(label: str) -> str:
    return NAMES.get(label, label)


def judged(data: Data) -> Sequence[Claim]:
    """Judge what follows from each paper's recommendation, and properties of learned graphs."""
    return [claim for title in data["panels"] for claim in _of_split(data, title)]


def _of_split(data: Data, title: str) -> list[Claim]:
    def lead(label: str, other: str, what: str) -> Claim:
        return judge_seeds(
            f"{title}: on {what} models are more accurate with {_name(label)} than with "
            f"{_name(other)}.",
            f"accuracy on {what}: {_name(label)} minus {_name(other)}, points",
            _values(data, title, label, what) - _values(data, title, other, what),
            at_least=0,
            why="any consistent difference over seeds counts",
            kind=OUR_QUESTION,
        )

    return [
        lead(LEARNED, CLIQUES, OWN_IMAGES),
        lead(CLIQUES, LEARNED, ALL_IMAGES),
        lead(LEARNED, RANDOM, OWN_IMAGES),
        lead(CLIQUES, RANDOM_CLIQUES, ALL_IMAGES),
        judge_seeds(
            f"{title}: DPFL's clients choose peers with labels similar to their own.",
            "neighbor label distance of the last round",
            _of_graph(data, title, LEARNED, "neighbor label distance"),
            at_most=1,
            why="1 is the value expected by chance",
            kind=OUR_QUESTION,
        ),
        judge_seeds(
            f"{title}: communities of DPFL's graph are groups of clients with similar labels.",
            "label separation of the last round",
            _of_graph(data, title, LEARNED, "label separation"),
            at_least=0,
            why="0 is the value expected by chance",
            kind=OUR_QUESTION,
        ),
    ]
