"""Calls of generators, which are carried out and shown as the line of Python that repeats them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topofl.topology import Topology, TopologySequence

__all__ = ["Call"]


@dataclass(frozen=True)
class Call:
    """A call of a generator of :mod:`topofl.topologies`.

    Parameters
    ----------
    function
        The generator.
    arguments
        Positional arguments: numbers, lists, or a Call that makes the base graph.
    options
        Keyword arguments.
    of_clients
        Whether the nodes' data are the first argument.
    """

    function: Callable[..., Topology | TopologySequence]
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    of_clients: bool = False

    @property
    def code(self) -> str:
        """The line of Python, in which ``clients`` stands for the nodes' data."""
        words = ["clients"] if self.of_clients else []
        words += [
            value.code if isinstance(value, Call) else _argument(key, value)
            for key, value in self._given().items()
        ]
        return f"topologies.{self.function.__name__}({', '.join(words)})"

    @property
    def spec(self) -> str:
        """The text that stands for it in configuration files and on the command line."""
        given = {key: value for key, value in self._given().items() if key != "n"}
        words = [f"{key}={_word(value)}" for key, value in given.items()]
        return ",".join([self.function.__name__, *words])

    @property
    def label(self) -> str:
        """The line of Python without what all candidates share: the module, data and seed."""
        words = [
            value.label if isinstance(value, Call) else _argument(key, value)
            for key, value in self._given().items()
            if key != "seed"
        ]
        return f"{self.function.__name__}({', '.join(words)})"

    def _given(self) -> dict[str, Any]:
        """Return all arguments by name, without the nodes' data."""
        names = list(inspect.signature(self.function).parameters)[int(self.of_clients) :]
        return {**dict(zip(names, self.arguments, strict=False)), **self.options}

    def build(self, clients: Any) -> Topology | TopologySequence:
        """Return the graph for these clients; raise as the generator."""
        given = [clients] if self.of_clients else []
        given += [v.build(clients) if isinstance(v, Call) else v for v in self.arguments]
        return self.function(*given, **self.options)


def _argument(key: str, value: Any) -> str:
    """Return an argument of a line of Python; only the number of nodes has no name."""
    return repr(value) if key == "n" else f"{key}={value!r}"


def _word(value: Any) -> str:
    """Return a value in a spec; the base graph is in parentheses."""
    return f"({value.spec})" if isinstance(value, Call) else str(value)
