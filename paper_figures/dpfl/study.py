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

import topofl
from topofl import History, NotApplicable, Table, algorithms, config, data, metrics, models
from topofl.history import Personal
from topofl.runs.identity import Run, with_options

from ..kit.claims import OUR_QUESTION, Bound, Claim, at_least, at_most, judge
from ..kit.curves import plus_minus
from ..kit.drawing import dots
from ..kit.paper import Arms, Data, Scale, Setting, each_arm
from ..kit.store import Store
from .arms import BASELINES, Method, arm, budgets_of, method_of, scale_on, splits_of
from .claims import ANY_LEAD

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


def _methods(scale: Scale) -> dict[str, tuple[Method, dict[str, Any]]]:
    """Return the method of each arm and the graph of its runs, by label."""
    _, budget, *_ = budgets_of(scale).values()
    once = {"budget": budget, "first_epochs": "once"}
    cliques = {"name": "dcliques", "clique_size": budget, "inter": "ring"}
    return {
        LEARNED: (Method("dpfl", more=once), {}),
        RANDOM: (Method("random_collaboration", more=once), {}),
        CLIQUES: (Method("dfedavgm"), cliques),
        RANDOM_CLIQUES: (Method("dfedavgm"), cliques | {"steps": 0}),
        ALL_PEERS: (Method("fedavg"), {}),
        NO_PEERS: (BASELINES["Local"], {}),
    }


def arms(setting: Setting) -> Arms:
    """Return all arms by split, with one run per seed."""
    panels = {}
    for title in splits_of(setting, *SPLIT_TITLES):
        scale = scale_on(setting, title)
        panels[title] = {
            label: [tested_on_all(run, graph, scale) for run in arm(setting, title, method)]
            for label, (method, graph) in _methods(scale).items()
        }
    return panels


def tested_on_all(run: Run, graph: Mapping[str, Any], scale: Scale) -> Run:
    """Return a run over a graph whose models are also tested on all images, in fewer rounds."""
    every = getattr(scale, "study_every", scale.tuned_every)
    evaluation = {"every": every, "on": ["own_test", "own_val", "test"]}
    topology = {"topology": {**graph, "seed": run.seed}} if graph else {}
    changes = {"run": {"rounds": scale.rounds}, "evaluation": evaluation}
    return Run(with_options({**run.tables, **topology}, changes))


def personal_of(label: str, history: History) -> Personal:
    """Return the test accuracies of each client's best round in a run of an arm."""
    return method_of("Local" if label == NO_PEERS else label).personal(history)


def compute(setting: Setting, store: Store) -> Data:
    """Return accuracies and metrics of the last graph, one entry per seed, by split and arm."""

    def measured(label: str, run: Run) -> dict[str, Any]:
        history, _ = store.load(run)
        on_all_images = history.last(history.column(on="test"))
        return {
            OWN_IMAGES: 100 * personal_of(label, history).mean,
            ALL_IMAGES: 100 * float(on_all_images.mean()),
            "graph": _numbers(history, run) if history.matrices else {},
        }

    return {
        "panels": each_arm(
            arms(setting), lambda label, runs: [measured(label, run) for run in runs]
        )
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


def draw(data: Data) -> Picture:
    """Return a dot plot of all arms' accuracies, one panel per split and set of images."""
    panels = {
        f"{title}: {what}": {_name(label): _values(data, title, label, what) for label in panel}
        for title, panel in data["panels"].items()
        for what in (OWN_IMAGES, ALL_IMAGES)
    }
    return dots(panels, xlabel="test accuracy, %")


def tables(data: Data) -> list[Table]:
    """Return tables with one row per arm: its accuracies and the metrics of its last graph."""
    images = (OWN_IMAGES, ALL_IMAGES)
    columns = ("peers", *(f"accuracy on {what}, %" for what in images), *COLUMNS)
    note = "mean ± standard deviation over seeds; graph: means over seeds, of the last round"
    tables = []
    for title, panel in data["panels"].items():
        rows = []
        for label, seeds in panel.items():
            graph: list[Any] = []
            for name in COLUMNS:
                known = [seed["graph"][name] for seed in seeds if name in seed["graph"]]
                absent = NotApplicable("not defined for this graph")
                graph.append(float(np.mean(known)) if known else absent)
            accuracies = (plus_minus(_values(data, title, label, what)) for what in images)
            rows.append((_name(label), *accuracies, *graph))
        tables.append(Table(columns, tuple(rows), title=f"{title}: {note}"))
    return tables


def _name(label: str) -> str:
    return NAMES.get(label, label)


def judged(data: Data) -> Sequence[Claim]:
    """Judge what follows from each paper's recommendation, and properties of learned graphs."""
    return [claim for title in data["panels"] for claim in _of_split(data, title)]


def _of_split(data: Data, title: str) -> list[Claim]:
    def lead(label: str, other: str, what: str) -> Claim:
        one, two = (_values(data, title, name, what) for name in (label, other))
        return judge(
            f"{title}: on {what} models are more accurate with {_name(label)} than with "
            f"{_name(other)}.",
            f"accuracy on {what}: {_name(label)} minus {_name(other)}, points",
            one - two,
            ANY_LEAD,
            kind=OUR_QUESTION,
        )

    def of_graph(statement: str, name: str, chance: Bound) -> Claim:
        # The value expected by chance where the metric does not apply.
        graphs = [seed["graph"] for seed in data["panels"][title][LEARNED]]
        values = np.array([graph.get(name, chance.value) for graph in graphs], float)
        statistic = f"{name} of the last round"
        return judge(f"{title}: {statement}", statistic, values, chance, kind=OUR_QUESTION)

    return [
        lead(LEARNED, CLIQUES, OWN_IMAGES),
        lead(CLIQUES, LEARNED, ALL_IMAGES),
        lead(LEARNED, RANDOM, OWN_IMAGES),
        lead(CLIQUES, RANDOM_CLIQUES, ALL_IMAGES),
        of_graph(
            "DPFL's clients choose peers with labels similar to their own.",
            "neighbor label distance",
            at_most(1, "1 is the value expected by chance"),
        ),
        of_graph(
            "communities of DPFL's graph are groups of clients with similar labels.",
            "label separation",
            at_least(0, "0 is the value expected by chance"),
        ),
    ]


CLIENTS: tuple[Mapping[int, int], ...] = (
    {0: 50, 4: 50, 6: 50, 8: 50},
    {0: 300, 6: 300, 1: 200, 3: 200},
    {4: 300, 8: 300, 5: 200, 7: 200},
)
"""Training images of each client, by class."""

GROUPS: Mapping[str, tuple[int, ...]] = {
    "alone": (0,),
    "with 2": (0, 1),
    "with 3": (0, 2),
    "with both": (0, 1, 2),
}
"""Collaborating clients by label."""


def compute_clients(setting: Setting, store: Store) -> Data:
    """Return the accuracies in % of the first client's model, one per seed, by group.

    All clients of a group train by FedAvg; the first one then fine-tunes the model for the epochs
    of a round and tests it on all test images of its classes. Alone, it trains for the same total
    number of epochs. At scale ``smoke`` a tenth of the images is used.
    """
    smoke = setting.scale == "smoke"
    rounds, epochs, share = (2, 1, 0.1) if smoke else (20, 5, 1.0)
    return {
        "accuracies": {
            label: [
                100 * _accuracy(setting, group, seed, rounds, epochs, share)
                for seed in setting.seeds
            ]
            for label, group in GROUPS.items()
        }
    }


def _accuracy(
    setting: Setting, group: tuple[int, ...], seed: int, rounds: int, epochs: int, share: float
) -> float:
    if setting.scale == "smoke":
        dataset = data.digits(enlarge=2)
    else:
        dataset = data.cifar10(setting.root_of("cifar10"), verify=setting.scale == "paper")
    clients = three_clients(dataset, seed, share)
    parts = (clients.train, clients.val, clients.test)
    some = (tuple(part[i] for i in group) for part in parts)
    training = {"batch_size": 16, "epochs": epochs, "weight_decay": 1e-3}
    channels, height, width = dataset.inputs.shape[1:]
    history = topofl.run(
        algorithms.fedavg(0.01, **training, fine_tune_epochs=epochs),
        model=models.dpfl_cnn((channels, height, width)),
        clients=data.Partition(dataset, *some, name="some"),
        rounds=rounds,
        seed=seed,
        evaluation=topofl.Evaluation(every=rounds, on="own_test"),
        compute=setting.device,
        progress=False,
    )
    return float(history.last(history.column(stage="fine_tuned"))[0])


def three_clients(dataset: data.Dataset, seed: int, share: float = 1.0) -> data.Partition:
    """Return the partition: disjoint training images, and all test images of a client's classes."""
    rng = np.random.default_rng(seed)
    labels = dataset.labels.numpy()
    left: dict[int, Any] = {
        y: rng.permutation(dataset.train[labels[dataset.train] == y]) for y in range(10)
    }
    held = []
    for client in CLIENTS:
        own = []
        for y, count in client.items():
            size = max(1, round(share * count))
            own.append(left[y][:size])
            left[y] = left[y][size:]
        held.append(np.concatenate(own))
    tests = tuple(dataset.test[np.isin(labels[dataset.test], list(client))] for client in CLIENTS)
    none = tuple(np.zeros(0, dtype=np.int64) for _ in CLIENTS)
    return data.Partition(dataset, tuple(held), none, tests, name="three clients", overlapping=True)


def draw_clients(data: Data) -> Picture:
    """Return a dot plot of the first client's accuracies."""
    arms = {label: np.array(row) for label, row in data["accuracies"].items()}
    return dots({"client 1": arms}, xlabel="test accuracy, %")


def judged_clients(accuracies: Mapping[str, Sequence[float]]) -> list[Claim]:
    """Judge that each of two partners alone hurts the first client, and that both together help."""
    values = {label: np.array(row) for label, row in accuracies.items()}
    hurt = at_most(0, ANY_LEAD.why)

    def lead(statement: str, label: str, bound: Bound, paper: str) -> Claim:
        statistic = f"accuracy of client 1: {label} minus alone, points"
        return judge(statement, statistic, values[label] - values["alone"], bound, paper=paper)

    return [
        lead("Collaboration with client 2 alone hurts client 1.", "with 2", hurt, "-11 points"),
        lead("Collaboration with client 3 alone hurts client 1.", "with 3", hurt, "-11 points"),
        lead("Collaboration with both helps client 1.", "with both", ANY_LEAD, "+6 points"),
    ]
