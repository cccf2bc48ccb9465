"""The graphs of the study, by family: builders of a graph for given clients and a seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from topofl import Topology, TopologyError, TopologySequence, topologies
from topofl.data import Partition

__all__ = ["GRAPHS", "Graph", "StudyGraph", "build_graph"]

Graph = Topology | TopologySequence
Builder = Callable[[Partition, int], Graph]


@dataclass(frozen=True)
class StudyGraph:
    """A graph of the study.

    Parameters
    ----------
    name, family
        Label in tables and pages, and the family that is held out as a whole.
    build
        ``build(clients, seed)`` returns the graph.
    """

    name: str
    family: str
    build: Builder


def _plain(function: Callable[..., Graph], *args: Any, **options: Any) -> Builder:
    """Return the builder of a generator that takes the number of nodes."""
    return lambda clients, seed: function(clients.n, *args, **options)


def _seeded(function: Callable[..., Graph], *args: Any, **options: Any) -> Builder:
    """Return the builder of a random generator."""
    return lambda clients, seed: function(clients.n, *args, **options, seed=seed)


def _from_labels(function: Callable[..., Graph], **options: Any) -> Builder:
    """Return the builder of a generator that takes label counts and a seed."""
    return lambda clients, seed: function(clients, **options, seed=seed)


def _erdos_renyi(degree: int) -> Builder:
    def build(clients: Partition, seed: int) -> Graph:
        return topologies.erdos_renyi(clients.n, min(1.0, degree / (clients.n - 1)), seed=seed)

    return build


def _swapped(degree: int) -> Builder:
    def build(clients: Partition, seed: int) -> Graph:
        return topologies.neighborhood_swap(clients, degree, seed=seed)

    return build


def _learned(degree: int) -> Builder:
    return lambda clients, seed: topologies.stl_fw(clients, degree)


def _failing(clients: Partition, seed: int) -> Graph:
    torus = topologies.torus(clients.n)
    return topologies.link_failures(torus, fail=0.1, recover=0.5, seed=seed)


def _directed_design(clients: Partition, seed: int) -> Graph:
    return topologies.designed_directed(clients, 4)


def _cliques(size: int, inter: str) -> Builder:
    return _from_labels(topologies.dcliques, clique_size=size, inter=inter)


_FAMILIES: Mapping[str, Mapping[str, Builder]] = {
    "classic": {
        "complete": _plain(topologies.fully_connected),
        "ring": _plain(topologies.ring),
        "path": _plain(topologies.path),
        "torus": _plain(topologies.torus),
        "grid": _plain(topologies.grid),
        "tree": _plain(topologies.tree),
        "star": _plain(topologies.star),
        "circulant 1-2": _plain(topologies.circulant, [1, 2]),
        "circulant 1-5": _plain(topologies.circulant, [1, 2, 3, 4, 5]),
    },
    "random": {
        **{
            f"{degree}-regular": _seeded(topologies.random_regular, degree)
            for degree in (3, 4, 6, 10, 16)
        },
        "Erdos-Renyi 6": _erdos_renyi(6),
        "Erdos-Renyi 10": _erdos_renyi(10),
        "small world 4": _seeded(topologies.small_world, 4, 0.1),
        "small world 6": _seeded(topologies.small_world, 6, 0.3),
        "Barabasi-Albert 2": _seeded(topologies.barabasi_albert, 2),
        "Barabasi-Albert 4": _seeded(topologies.barabasi_albert, 4),
    },
    "exponential": {
        "exponential": _plain(topologies.exponential),
        "exponential directed": _plain(topologies.exponential, directed=True),
        "D-EquiStatic 4": _seeded(topologies.d_equistatic, 4),
        "U-EquiStatic 4": _seeded(topologies.u_equistatic, 4),
    },
    "D-Cliques": {
        f"D-Cliques {size} {inter}": _cliques(size, inter)
        for size, inter in (
            (5, "ring"),
            (5, "small_world"),
            (10, "ring"),
            (10, "fractal"),
            (10, "small_world"),
            (10, "fully_connected"),
            (20, "ring"),
            (20, "fully_connected"),
        )
    },
    "learned": {
        **{f"STL-FW {degree}": _learned(degree) for degree in (3, 5, 10)},
        "swapped 4": _swapped(4),
        "swapped 10": _swapped(10),
        "designed 4": _from_labels(topologies.designed, degree=4),
        "designed 10": _from_labels(topologies.designed, degree=10),
        "designed directed 4": _directed_design,
    },
    "time-varying": {
        "one-peer exponential": _plain(topologies.one_peer_exponential),
        "base graph 1": _plain(topologies.base_graph, 1),
        "random matching": _seeded(topologies.random_matching),
        "torus in turns": lambda clients, seed: topologies.matchings(topologies.torus(clients.n)),
        "3-regular anew": _seeded(topologies.random_regular_sequence, 3),
        "failing torus": _failing,
        "random out 3": _seeded(topologies.random_out, 3),
    },
}

GRAPHS: Mapping[str, StudyGraph] = {
    name: StudyGraph(name, family, build)
    for family, members in _FAMILIES.items()
    for name, build in members.items()
}
"""All graphs of the study by name; some do not exist for every number of nodes."""


def build_graph(graph: StudyGraph, clients: Partition, seed: int) -> Graph | str:
    """Return the graph, or the reason why there is none for these clients."""
    try:
        return graph.build(clients, seed)
    except (ValueError, TopologyError) as error:
        return str(error)
