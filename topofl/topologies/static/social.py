"""Social networks from the literature, included in networkx; nothing is downloaded."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from topofl.topologies._generator import generator
from topofl.topology import Topology, from_edges

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["davis_southern_women", "florentine_families", "karate_club"]


@generator(family="social", examples=["karate_club"])
def karate_club() -> Topology:
    """Return Zachary's karate club: 34 members, 78 friendships, and two clubs as groups.

    The first group is the club of the instructor (node 0), the second that of the officers (node
    33), with 17 nodes each. Edges have weight 1; the weights in networkx are numbers of contexts in
    which two members met.

    References
    ----------
    Zachary, "An information flow model for conflict and fission in small groups" (1977).

    Examples
    --------
    >>> karate_club()
    Topology('karate_club()', n=34, edges=78, undirected)
    """
    import networkx as nx

    graph = nx.karate_club_graph()
    clubs = nx.get_node_attributes(graph, "club")
    return _unweighted(
        graph, "karate_club()", [[i for i in graph if clubs[i] == clubs[head]] for head in (0, 33)]
    )


@generator(family="social", examples=["davis_southern_women"])
def davis_southern_women() -> Topology:
    """Return Davis's Southern women: 18 women, 14 club meetings, and 89 attendances as edges.

    The graph is bipartite: the groups are the women and the meetings, whose names are in ``nodes``.

    References
    ----------
    Davis, Gardner and Gardner, "Deep South" (1941).

    Examples
    --------
    >>> graph = davis_southern_women()
    >>> graph, graph.nodes[0], graph.nodes[-1]
    (Topology('davis_southern_women()', n=32, edges=89, undirected), 'Evelyn Jefferson', 'E14')
    """
    import networkx as nx

    graph = nx.davis_southern_women_graph()
    return _unweighted(graph, "davis_southern_women()", [graph.graph["top"], graph.graph["bottom"]])


@generator(family="social", examples=["florentine_families"])
def florentine_families() -> Topology:
    """Return the graph of 20 marriages between 15 Florentine families, named in ``nodes``.

    References
    ----------
    Breiger and Pattison, "Cumulated social roles: the duality of persons and their algebras"
    (1986).

    Examples
    --------
    >>> graph = florentine_families()
    >>> graph.nodes[graph.out_degrees.argmax()]
    'Medici'
    """
    import networkx as nx

    return _unweighted(nx.florentine_families_graph(), "florentine_families()")


def _unweighted(graph: "nx.Graph", name: str, groups: Iterable[Iterable[object]] = ()) -> Topology:
    """Return a networkx graph with its labels but without weights; groups contain labels."""
    index_of = {label: i for i, label in enumerate(graph)}
    labels = () if list(graph) == list(range(len(graph))) else tuple(graph)
    members = [[index_of[label] for label in group] for group in groups]
    edges = [(index_of[u], index_of[v]) for u, v in graph.edges]
    return replace(from_edges(edges, len(graph), name=name, groups=members), nodes=labels)
