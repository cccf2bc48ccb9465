"""Suffixes of graph files, apart from the reader, which loads numpy, scipy and networkx."""

from pathlib import Path

__all__ = ["KINDS", "is_graph_file"]

KINDS = (".graphml", ".gml", ".edgelist", ".npz", ".npy")
"""Suffixes of graph files: three networkx formats, scipy sparse matrices and numpy arrays."""


def is_graph_file(name: object) -> bool:
    """Return whether a file name has the suffix of a graph file."""
    return isinstance(name, str) and Path(name).suffix.lower() in KINDS
