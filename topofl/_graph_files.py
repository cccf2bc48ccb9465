"""Graphs from files, for the command line and configurations: in Python, ``as_topology(nx.read_graphml(path))``."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sparse

from topofl._check import check_switch
from topofl.topology import Topology, as_topology

__all__ = ["KINDS", "is_graph_file", "read_graph"]

KINDS = (".graphml", ".gml", ".edgelist", ".npz", ".npy")
"""Suffixes of files that hold graphs: three of networkx, sparse matrices of scipy, and arrays of numpy."""


def is_graph_file(name: object) -> bool:
    """Return whether a name is that of a file with a graph, by its suffix."""
    return isinstance(name, str) and Path(name).suffix.lower() in KINDS


def read_graph(
    path: Path,
    *,
    n: int | None = None,
    directed: bool = False,
    own_weights: bool = False,
    drop_self_loops: bool = False,
) -> Topology:
    """Return the graph in a file.

    Parameters
    ----------
    path
        Its suffix is one of :data:`KINDS`. A line of an ``.edgelist`` is "source target" or "source target weight";
        entry [u, v] of a matrix is the weight of the edge from u to v. Labels that are all whole numbers become
        integers, so that nodes 0..n-1 stand in the order of their numbers.
    directed
        Whether the lines of an edge list are directed edges; other files say so themselves.
    n, own_weights, drop_self_loops
        As in :func:`topofl.as_topology`.

    Raises
    ------
    OSError
        If there is no such file, or it cannot be read.
    ValueError, TypeError
        If it does not hold what its suffix says, or as :func:`topofl.as_topology`.
    """
    check_switch("directed", directed, auto=False)
    try:
        graph = _read(path, directed)
    except OSError:
        raise
    except Exception as error:  # networkx, numpy, zipfile and XML parsers each have their own
        raise ValueError(f"{path} cannot be read as {path.suffix}: {error or type(error).__name__}") from error
    how = {"n": n, "own_weights": own_weights, "drop_self_loops": drop_self_loops}
    topology = as_topology(graph, name=path.stem, **how)
    if not isinstance(topology, Topology):
        raise TypeError(f"{path} must hold one graph, got {topology!r}")
    return topology


def _read(path: Path, directed: bool) -> Any:
    match path.suffix.lower():
        case ".graphml":
            return _with_numbers(nx.read_graphml(path))
        case ".gml":
            return _with_numbers(nx.read_gml(path))
        case ".edgelist":
            return _with_numbers(_read_edges(path, nx.DiGraph() if directed else nx.Graph()))
        case ".npz":
            return sparse.load_npz(path)
        case _:
            return np.atleast_2d(np.load(path, allow_pickle=False))


def _read_edges(path: Path, graph: nx.Graph) -> nx.Graph:
    """Return the graph with the edges, with weights or without, of an edge list; ``#`` begins a comment."""
    for k, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words and len(words) not in (2, 3):
            raise ValueError(f"line {k} must be 'source target' or 'source target weight', got {line!r}")
        if words:
            graph.add_edge(*words[:2], **({"weight": float(words[2])} if len(words) == 3 else {}))
    return graph


def _with_numbers(graph: nx.Graph) -> nx.Graph:
    """Return the graph with its labels as integers if all are whole numbers, in ASCII digits and each written once."""
    numbers = {str(label): label for label in graph}
    whole = all(text.isascii() and text.isdigit() and str(int(text[:40])) == text for text in numbers)
    return nx.relabel_nodes(graph, {label: int(text) for text, label in numbers.items()}) if whole else graph
