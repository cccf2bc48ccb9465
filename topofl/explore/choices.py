"""What can be chosen in the explorer: partitions and topologies, and values of their parameters."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topofl import algorithms, data, topologies
from topofl.algorithms import Algorithm

__all__ = [
    "BATCHES",
    "DSGD",
    "NODES",
    "PARTITIONS",
    "RATES",
    "ROUNDS",
    "SEEDS",
    "SGP",
    "TOPOLOGIES",
    "Choice",
    "Method",
    "Parameter",
    "titled",
]

NODES = tuple(range(10, 101, 5))
"""Numbers of nodes."""

SEEDS = tuple(range(10))
"""Seeds of data, graphs and training."""

ROUNDS = (20, 40, 60, 100, 200, 400)
RATES = (0.05, 0.1, 0.2, 0.5, 1.0)
BATCHES = (4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a choice.

    Parameters
    ----------
    name
        Name of the argument.
    title
        What the widget is called.
    values
        In ascending order if they are numbers, for a slider; texts, for a list.
    default
        One of them.
    """

    name: str
    title: str
    values: tuple[Any, ...]
    default: Any


@dataclass(frozen=True)
class Method:
    """A method with one minibatch per node and round.

    Parameters
    ----------
    title
        What the table of numbers calls it.
    function
        From the learning rate and the size of minibatches to the algorithm.
    template
        The Python expression that makes it, with ``{lr}`` and ``{batch_size}``.
    extra
        How many numbers a message has in addition to the model.
    """

    title: str
    function: Callable[[float, int], Algorithm]
    template: str
    extra: int = 0


def _dsgd(lr: float, batch_size: int) -> Algorithm:
    return algorithms.dsgd(lr=lr, batch_size=batch_size)


def _sgp(lr: float, batch_size: int) -> Algorithm:
    local = algorithms.sgd(lr=lr, batch_size=batch_size)
    return algorithms.chain("sgp", local=local, exchange=algorithms.push_sum())


DSGD = Method("D-SGD", _dsgd, "algorithms.dsgd(lr={lr!r}, batch_size={batch_size})")

SGP = Method(
    "SGP (push-sum)",
    _sgp,
    """\
algorithms.chain(
        "sgp",
        local=algorithms.sgd(lr={lr!r}, batch_size={batch_size}),
        exchange=algorithms.push_sum(),
    )""",
    extra=1,  # the push-sum weight
)
"""For directed graphs. Where weights are doubly stochastic, its models are those of D-SGD."""


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
        Those with a widget.
    of_clients
        Whether the nodes' data are its first argument, in place of their number.
    fixed
        Keyword arguments without a widget.
    method
        How nodes train on such a graph.
    """

    title: str
    function: Callable[..., Any]
    parameters: tuple[Parameter, ...] = ()
    of_clients: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)
    method: Method = DSGD

    def options(self, values: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Return the keyword arguments: fixed ones, `values` or defaults, and a seed."""
        own = {one.name: values.get(one.name, one.default) for one in self.parameters}
        is_random = "seed" in inspect.signature(self.function).parameters
        return dict(self.fixed) | own | ({"seed": seed} if is_random else {})


PARTITIONS = (
    Choice(
        "shards of sorted data",
        data.shards,
        (Parameter("per_node", "shards per node", tuple(range(1, 11)), 2),),
    ),
    Choice(
        "Dirichlet shares of classes",
        data.dirichlet_per_client,
        (Parameter("alpha", "alpha (small: skewed)", (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0), 0.1),),
    ),
    Choice(
        "a number of classes per node",
        data.pathological,
        (Parameter("classes_per_node", "classes per node", tuple(range(1, 11)), 2),),
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
    Choice(
        "random regular", topologies.random_regular, (Parameter("k", "neighbors", _DEGREES, 4),)
    ),
    Choice(
        "small world",
        topologies.small_world,
        (
            Parameter("k", "neighbors", _EVEN, 4),
            Parameter("p", "share of rewired edges", _SHARES, 0.1),
        ),
    ),
    Choice(
        "Erdos-Renyi",
        topologies.erdos_renyi,
        (Parameter("p", "probability of an edge", _SHARES, 0.2),),
    ),
    Choice(
        "D-Cliques",
        topologies.dcliques,
        (
            Parameter("clique_size", "nodes per clique", tuple(range(2, 21)), 10),
            Parameter(
                "inter",
                "edges between cliques",
                ("ring", "fractal", "small_world", "fully_connected"),
                "ring",
            ),
        ),
        of_clients=True,
    ),
    Choice(
        "designed for the labels",
        topologies.designed,
        (Parameter("degree", "neighbors", _DEGREES, 4),),
        of_clients=True,
    ),
    Choice("star", topologies.star),
    Choice("complete", topologies.fully_connected),
    Choice(
        "directed ring",
        topologies.circulant,
        fixed={"offsets": (1,), "directed": True},
        method=SGP,
    ),
    Choice("directed exponential", topologies.exponential, fixed={"directed": True}, method=SGP),
    Choice(
        "directed, designed for the labels",
        topologies.designed_directed,
        (Parameter("degree", "most neighbors each way", _DEGREES, 4),),
        of_clients=True,
        method=SGP,
    ),
    Choice("one-peer exponential, changing", topologies.one_peer_exponential, method=SGP),
    Choice(
        "random receivers, changing",
        topologies.random_out,
        (Parameter("k", "receivers per node", tuple(range(1, 10)), 3),),
        method=SGP,
    ),
    Choice("random pairs, changing", topologies.random_matching),
)
"""Undirected graphs; directed ones, with push-sum; and graphs that change from round to round."""


def titled(choices: tuple[Choice, ...]) -> dict[str, Choice]:
    """Return choices by their titles, as lists in a browser have them."""
    return {choice.title: choice for choice in choices}
