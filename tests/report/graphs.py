"""Graphs of all kinds for reports; one name is an attempted script injection."""

import topofl
from topofl import mixing, topologies

__all__ = ["EVIL", "GRAPHS", "NAMES"]

EVIL = "<script>hacked = 1</script> & \"quotes\" 'too' {{ 7 * 7 }}"
GRAPHS = [
    topologies.ring(12),
    topologies.one_peer_exponential(8),
    topologies.exponential(20),
    topologies.random_out(12, 3, seed=0),
    topologies.fully_connected(12),
    mixing.uniform(topologies.random_out(12, 3, seed=1).at(0), direction="push"),
    topofl.from_edges([(0, 1)], 3),
]
NAMES = ["ring", "one-peer", "exponential", "random", "all", EVIL, "apart"]
