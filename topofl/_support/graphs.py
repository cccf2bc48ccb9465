"""Graphs of other libraries, recognized without importing these libraries."""

import sys
from typing import Any

__all__ = ["is_networkx", "is_pyg"]


def is_networkx(graph: Any) -> bool:
    """Return whether `graph` is a networkx graph; only a program that loaded networkx has one."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(graph, networkx.Graph)


def is_pyg(graph: Any) -> bool:
    """Return whether `graph` is a PyG ``Data`` or has the same attributes."""
    return hasattr(graph, "edge_index") and hasattr(graph, "num_nodes")
