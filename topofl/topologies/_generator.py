"""Declarations of generators: the family and example graphs, next to the function."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar, get_args

from topofl._support.public import public
from topofl.topology import Topology, TopologySequence

__all__ = ["FAMILIES", "GENERATORS", "Example", "Generator", "generator"]

Family: TypeAlias = Literal[
    "classic",
    "random",
    "exponential",
    "finite-time",
    "EquiTopo",
    "time-varying",
    "derived",
    "D-Cliques",
    "learned from data",
    "learned from rewards",
    "social",
]

FAMILIES: tuple[str, ...] = get_args(Family)
"""Families of generators, in the order of lists."""

Example: TypeAlias = str | Callable[[], Topology | TopologySequence]
"""A graph as written on the command line, ``"ring:12"``, or a function that returns it."""

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Topology | TopologySequence])


class Generator(NamedTuple):
    """A generator with its family and examples.

    Attributes
    ----------
    function
        Function that returns the graph.
    family
        One of :data:`FAMILIES`.
    examples
        Graphs of at most 100 nodes (16 if they change over time) that can be built and drawn within
        a second. Lists show the first one.
    """

    function: Callable[..., Topology | TopologySequence]
    family: Family
    examples: tuple[Example, ...]


GENERATORS: dict[str, Generator] = {}
"""Every generator of :mod:`topofl.topologies` by name."""


def generator(
    *, family: Family, examples: Sequence[Example]
) -> Callable[[AnyFunction], AnyFunction]:
    """Return a decorator that declares a generator, a public function.

    The gallery, the property tests, ``topologies.__all__`` and the command line read these
    declarations.

    Parameters
    ----------
    family, examples
        As in :class:`Generator`; at least one example.
    """

    def declare(function: AnyFunction) -> AnyFunction:
        function = public(function)
        GENERATORS[function.__name__] = Generator(function, family, tuple(examples))
        return function

    return declare
