"""Graphs over which nodes send models. Mixing weights are in :mod:`topofl.mixing`."""

from topofl.topology.convert import as_pairs as as_pairs
from topofl.topology.convert import as_topology, from_edges
from topofl.topology.convert import graph_of as graph_of
from topofl.topology.convert import places_of as places_of
from topofl.topology.convert import static_graph as static_graph
from topofl.topology.graph import Topology, TopologyError, TopologySequence
from topofl.topology.graph import as_labels as as_labels
from topofl.topology.graph import need_topology as need_topology
from topofl.topology.graph import restricted as restricted
from topofl.topology.graph import unused_weights as unused_weights
from topofl.topology.interchange import read_networkx as read_networkx
from topofl.topology.interchange import read_pyg as read_pyg

__all__ = ["Topology", "TopologyError", "TopologySequence", "as_topology", "from_edges"]
