"""What can be chosen in the explorer, and the data, graphs, training and program of a choice."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from topofl import algorithms, data, models, topologies
from topofl._support.datasets import dataset_folders, dataset_places
from topofl.advice.candidates import Call, Graph, takes_labels
from topofl.algorithms import Algorithm
from topofl.data import Dataset, Partition
from topofl.engine import run
from topofl.history import History

NODES = tuple(range(10, 101, 5))
"""Numbers of nodes."""

SEEDS = tuple(range(10))
"""Seeds of data, graphs and training."""

ROUNDS = (20, 40, 60, 100, 200, 400)
RATES = (0.05, 0.1, 0.2, 0.5, 1.0)
BATCHES = (4, 8, 16, 32, 64)


METHODS = {
    False: ("D-SGD", "algorithms.dsgd(lr={lr!r}, batch_size={batch_size})"),
    True: (
        "SGP (push-sum)",
        """\
algorithms.chain(
        "sgp",
        local=algorithms.sgd(lr={lr!r}, batch_size={batch_size}),
        exchange=algorithms.push_sum(),
    )""",
    ),
}
"""What the table calls the methods without and with push-sum, and the Python expressions for them.

Push-sum is for directed graphs. Where weights are doubly stochastic, its models are those of D-SGD.
"""


def algorithm_of(push_sum: bool, lr: float, batch_size: int) -> Algorithm:
    """Return the algorithm, with one minibatch per node and round."""
    if not push_sum:
        return algorithms.dsgd(lr=lr, batch_size=batch_size)
    local = algorithms.sgd(lr=lr, batch_size=batch_size)
    return algorithms.chain("sgp", local=local, exchange=algorithms.push_sum())


@dataclass(frozen=True)
class Choice:
    """A function that makes a partition or a graph, and the parameters that can be set.

    Parameters
    ----------
    title
        What the list of choices calls it.
    function
        Of :mod:`topofl.data` or :mod:`topofl.topologies`.
    parameters
        Those with a widget, by name: what the widget is called; the values, in ascending order if
        they are numbers, for a slider, or texts, for a list; and the default, one of them.
    fixed
        Keyword arguments without a widget.
    push_sum
        Whether nodes train on such a graph with push-sum.
    """

    title: str
    function: Callable[..., Any]
    parameters: Mapping[str, tuple[str, tuple[Any, ...], Any]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    push_sum: bool = False

    def options(self, values: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Return the keyword arguments: fixed ones, `values` or defaults, and a seed."""
        own = {name: values.get(name, default) for name, (*_, default) in self.parameters.items()}
        is_random = "seed" in inspect.signature(self.function).parameters
        return dict(self.fixed) | own | ({"seed": seed} if is_random else {})


PARTITIONS = (
    Choice(
        "shards of sorted data",
        data.shards,
        {"per_node": ("shards per node", tuple(range(1, 11)), 2)},
    ),
    Choice(
        "Dirichlet shares of classes",
        data.dirichlet_per_client,
        {"alpha": ("alpha (small: skewed)", (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0), 0.1)},
    ),
    Choice(
        "a number of classes per node",
        data.pathological,
        {"classes_per_node": ("classes per node", tuple(range(1, 11)), 2)},
    ),
    Choice("iid", data.iid),
)
"""Ways to divide the data among the nodes."""

_DEGREES = tuple(range(2, 13))
_EVEN = tuple(range(2, 13, 2))
_SHARES = tuple(round(0.05 * k, 2) for k in range(1, 21))

TOPOLOGIES = (
    Choice("ring", topologies.ring),
    Choice("torus", topologies.torus),
    Choice("exponential", topologies.exponential),
    Choice("random regular", topologies.random_regular, {"k": ("neighbors", _DEGREES, 4)}),
    Choice(
        "small world",
        topologies.small_world,
        {"k": ("neighbors", _EVEN, 4), "p": ("share of rewired edges", _SHARES, 0.1)},
    ),
    Choice("Erdos-Renyi", topologies.erdos_renyi, {"p": ("probability of an edge", _SHARES, 0.2)}),
    Choice(
        "D-Cliques",
        topologies.dcliques,
        {
            "clique_size": ("nodes per clique", tuple(range(2, 21)), 10),
            "inter": (
                "edges between cliques",
                ("ring", "fractal", "small_world", "fully_connected"),
                "ring",
            ),
        },
    ),
    Choice("designed for the labels", topologies.designed, {"degree": ("neighbors", _DEGREES, 4)}),
    Choice("star", topologies.star),
    Choice("complete", topologies.fully_connected),
    Choice(
        "directed ring",
        topologies.circulant,
        fixed={"offsets": (1,), "directed": True},
        push_sum=True,
    ),
    Choice("directed exponential", topologies.exponential, fixed={"directed": True}, push_sum=True),
    Choice(
        "directed, designed for the labels",
        topologies.designed_directed,
        {"degree": ("most neighbors each way", _DEGREES, 4)},
        push_sum=True,
    ),
    Choice("one-peer exponential, changing", topologies.one_peer_exponential, push_sum=True),
    Choice(
        "random receivers, changing",
        topologies.random_out,
        {"k": ("receivers per node", tuple(range(1, 10)), 3)},
        push_sum=True,
    ),
    Choice("random pairs, changing", topologies.random_matching),
)
"""Undirected graphs; directed ones, with push-sum; and graphs that change from round to round."""


def titled(choices: tuple[Choice, ...]) -> dict[str, Choice]:
    """Return choices by their titles, as lists in a browser have them."""
    return {choice.title: choice for choice in choices}


TRAIN, TEST = 6_000, 2_000
"""Most training and test examples, so that training in the page takes seconds."""


@dataclass(frozen=True, eq=False)
class Source:
    """A dataset that can be chosen, read when it is first used.

    Of a large one, every k-th example is used, in the order of classes and, within a class, of
    owners. However the examples are stored, each class keeps its share of a part to within one
    example, and so does each owner within each class.

    Parameters
    ----------
    title
        What the list of datasets calls it.
    reader
        Of :mod:`topofl.data`.
    root
        Folder with its files; None: it needs none.
    options
        Keyword arguments of the reader.
    """

    title: str
    reader: Callable[..., Dataset]
    root: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _whole(self) -> Dataset:
        return self.reader(*([] if self.root is None else [self.root]), **self.options)

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset, with at most :data:`TRAIN` and :data:`TEST` examples.

        Raises
        ------
        ValueError, OSError
            As the reader.
        """
        whole = self._whole
        order = np.lexsort([getattr(whole, key) for key in self._keys])
        kept = {
            name: order[np.isin(order, getattr(whole, name))][::step]
            for name, step in self._steps.items()
        }
        return replace(whole, **kept)

    @property
    def _keys(self) -> list[str]:
        """What examples are sorted by before every k-th is used; the last key is the first."""
        return ["labels"] if self._whole.owners is None else ["owners", "labels"]

    @property
    def _steps(self) -> dict[str, int]:
        """The k of every k-th example that is used, by part, of parts that are too large."""
        train, test = len(self._whole.train), len(self._whole.test)
        steps = {"train": -(-train // TRAIN), "test": -(-test // TEST)}
        return {name: step for name, step in steps.items() if step > 1}

    @property
    def code(self) -> str:
        """The statements that make ``dataset``."""
        words = [] if self.root is None else [repr(str(self.root))]
        words += [f"{key}={value!r}" for key, value in self.options.items()]
        lines = [f"dataset = data.{self.reader.__name__}({', '.join(words)})"]
        if self._steps:
            keys = ", ".join(f"dataset.{key}" for key in self._keys)
            lines += [f"order = np.lexsort([{keys}])  # so that classes keep their shares"]
            lines += ["dataset = replace(  # every k-th example, to train fast", "    dataset,"]
            lines += [
                f"    {name}=order[np.isin(order, dataset.{name})][::{step}],"
                for name, step in self._steps.items()
            ]
            lines += [")"]
        return "\n".join(lines)

    @property
    def note(self) -> str:
        """How many examples are used, in words."""
        train, test = len(self.dataset.train), len(self.dataset.test)
        counts = f"{train:,} training examples and {test:,} test examples"
        if not self._steps:
            return f"{counts}."
        whole = f"{len(self._whole.train):,} and {len(self._whole.test):,}"
        return (
            f"{counts} of {whole}, with the same shares of classes, so that training takes seconds."
        )


DIGITS = Source("handwritten digits", data.digits)

READERS: dict[str, tuple[str, Callable[..., Dataset], dict[str, Any]]] = {
    "mnist": ("MNIST", data.mnist, {"val": 0}),
    # Subsets are accepted; smaller images make smaller models.
    "cifar10": ("CIFAR-10, 16 x 16 pixels", data.cifar10, {"verify": False, "downscale": 2}),
    "cifar100": ("CIFAR-100, 16 x 16 pixels", data.cifar100, {"verify": False, "downscale": 2}),
    "cinic10": ("CINIC-10, 16 x 16 pixels", data.cinic10, {"size": 16}),
    "femnist": ("FEMNIST", data.femnist, {}),
}
"""Title, reader and its options, by the names of datasets that are found."""


def sources(folder: Path | None = None) -> dict[str, Source]:
    """Return the digits and the datasets on this machine, by their titles.

    Parameters
    ----------
    folder
        Where to look for them; None: in $TOPOFL_DATA, or else in data/ and ../shared/data.

    Raises
    ------
    ValueError
        If `folder`, or $TOPOFL_DATA, is not a folder.
    """
    found: dict[str, Path] = {}
    for place in dataset_places(folder):
        found = dataset_folders(place) | found
    chosen = [
        Source(title, reader, found[name].absolute(), options)
        for name, (title, reader, options) in READERS.items()
        if name in found
    ]
    return {one.title: one for one in (DIGITS, *chosen)}


Candidate = tuple[Call, bool]
"""The call that makes a graph, and whether nodes train on it with push-sum."""

EVALUATIONS = 20
"""About how many points a curve has."""


@dataclass(frozen=True)
class Nodes:
    """The nodes and their data: those of `source`, divided by `partition`."""

    n: int = 30
    partition: Choice = PARTITIONS[0]
    values: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    source: Source = DIGITS

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of the partition, apart from the data."""
        return {"n": self.n} | self.partition.options(self.values, self.seed)

    def clients(self) -> Partition:
        """Return the partition.

        Raises
        ------
        ValueError, OSError
            If the data cannot be read, or divided in this way.
        """
        return self.partition.function(self.source.dataset, **self.options)

    @property
    def code(self) -> str:
        """The statements that make ``dataset`` and ``clients``."""
        words = [f"{key}={value!r}" for key, value in self.options.items()]
        call = f"data.{self.partition.function.__name__}(dataset, {', '.join(words)})"
        return f"{self.source.code}\nclients = {call}"


@dataclass(frozen=True)
class Training:
    """How candidates are trained, with logistic regression."""

    rounds: int = 60
    lr: float = 0.5
    batch_size: int = 8
    seed: int = 0

    @property
    def evaluation(self) -> int:
        """Rounds between evaluations."""
        return max(1, self.rounds // EVALUATIONS)

    def history(self, graph: Graph, push_sum: bool, clients: Partition) -> History:
        """Return the history of one run, without or with push-sum."""
        return run(
            algorithm_of(push_sum, self.lr, self.batch_size),
            model=model_of(clients.dataset),
            clients=clients,
            topology=graph,
            rounds=self.rounds,
            evaluation=self.evaluation,
            seed=self.seed,
            progress=False,
        )


def model_of(dataset: Dataset) -> nn.Module:
    """Return the model: logistic regression of the classes on all numbers of an example."""
    return models.logistic_regression(dataset.inputs[0].numel(), dataset.n_classes)


def message_sizes(chosen: Mapping[str, Candidate], dataset: Dataset) -> dict[str, int]:
    """Return how many numbers a message of each candidate has; push-sum also sends a weight."""
    size = sum(parameter.numel() for parameter in model_of(dataset).parameters())
    return {name: size + push_sum for name, (_, push_sum) in chosen.items()}


def clients_of(nodes: Nodes) -> tuple[Partition | None, str]:
    """Return the partition, or None and the reason why there is none."""
    try:
        return nodes.clients(), ""
    except (ValueError, OSError) as error:  # such as damaged files, or too few examples
        return None, str(error)


def candidates(
    chosen: Mapping[str, tuple[Choice, Mapping[str, Any]]], n: int, seed: int
) -> dict[str, Candidate]:
    """Return the candidates by name: the letter and the title of its choice.

    Parameters
    ----------
    chosen
        Choices with the values of their parameters, by letter.
    n, seed
        Number of nodes, and the seed of random graphs.
    """
    return {
        f"{letter}: {choice.title}": (
            Call(
                choice.function,
                () if takes_labels(choice.function) else (n,),
                choice.options(values, seed),
            ),
            choice.push_sum,
        )
        for letter, (choice, values) in chosen.items()
    }


def graphs_of(
    chosen: Mapping[str, Candidate], clients: Partition
) -> tuple[dict[str, Graph], dict[str, str]]:
    """Return the graphs by name, and the reasons for those that there are not."""
    graphs, reasons = {}, {}
    for name, (call, _) in chosen.items():
        if same := [other for other in graphs if chosen[other][0] == call]:
            remedy = "choose another topology or other arguments"
            reasons[name] = f"this is the graph of {same[0]}; {remedy}"
            continue
        try:
            graphs[name] = call.build(clients)
        except ValueError as error:  # such as a regular graph with an odd sum of degrees
            reasons[name] = str(error)
    return graphs, reasons
