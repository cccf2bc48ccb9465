"""Suffixes of graph files, apart from the reader, which loads numpy, scipy and networkx."""

from pathlib import Path

__all__ = ["KINDS", "is_graph_file"]

KINDS = (".graphml", ".gml", ".edgelist", ".csv", ".npz", ".npy")
"""Suffixes of graph files: networkx formats, edges as CSV, scipy sparse matrices, numpy arrays."""


def is_graph_file(name: object) -> bool:
    """Return whether a file name has the suffix of a graph file."""
    return isinstance(name, str) and Path(name).suffix.lower() in KINDS
