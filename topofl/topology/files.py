"""Reading graphs from files, for the command line and configurations."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.arrays import Header, read_array, read_arrays
from topofl._support.check import check_nodes, check_switch, shown
from topofl._support.files import check_regular
from topofl._support.text import is_number
from topofl.topology import Topology, as_topology

if TYPE_CHECKING:
    import networkx as nx


LARGEST_TEXT = 2**27
"""Largest text file in bytes. An edge takes many times the memory of its line in networkx."""


def read_graph(
    path: Path,
    *,
    n: int | None = None,
    directed: bool | None = None,
    own_weights: bool = False,
    drop_self_loops: bool = False,
) -> Topology:
    """Return the graph in a file.

    Parameters
    ----------
    path
        Path of the file: ``.graphml``, ``.gml``, ``.edgelist``, ``.csv``, ``.npz`` or ``.npy``;
        text files may have at most 128 MiB. A line of an ``.edgelist`` is "source target" or
        "source target weight", and one of a ``.csv`` "source,target" or "source,target,weight",
        where no weight means 1; an edge may be repeated with the same weight. The first line of a
        ``.csv`` is a header if its third field is not a number, if its names are no numbers and all
        others are, or if it begins with "source,target", "from,to" or "src,dst". Entry [u, v] of a
        matrix is the weight of the edge from u to v. If all labels are whole numbers, they become
        integers and the nodes are sorted by them, whether they start at 0 or at 1. Other labels
        keep the order of the file.
    directed
        Whether the lines of an edge list or a CSV file are directed edges; None means undirected.
        The other formats store the direction and accept only None.
    n, own_weights, drop_self_loops
        As in :func:`topofl.as_topology`.

    Raises
    ------
    OSError
        If the file does not exist or cannot be read.
    ValueError, TypeError
        If the path is not a regular file, or the file is too large, does not match its suffix, or
        gives an edge two weights; or as :func:`topofl.as_topology`.
    """
    if directed is not None:
        check_switch("directed", directed, auto=False)
        if path.suffix.lower() not in (".edgelist", ".csv"):
            raise ValueError(
                f"`directed` must be left out for {path.suffix} files, which store whether they "
                "are directed"
            )
    check_regular(path, "path")
    try:
        graph = _read(path, bool(directed))
    except OSError:
        raise
    except Exception as error:  # networkx, numpy, zipfile and XML parsers raise their own
        raise ValueError(
            f"{path} cannot be read as {path.suffix}: {error or type(error).__name__}"
        ) from error
    options = {"n": n, "own_weights": own_weights, "drop_self_loops": drop_self_loops}
    try:
        topology = as_topology(graph, name=path.stem, **options)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{path}: {error}") from error
    if not isinstance(topology, Topology):
        raise TypeError(f"{path} must hold one graph, got {topology!r}")
    return topology


def _read(path: Path, directed: bool) -> Any:
    match path.suffix.lower():
        case ".npz":
            return _read_sparse(path)
        case ".npy":
            return np.atleast_2d(read_array(path))
        case suffix:
            import networkx as nx

            size = path.stat().st_size
            if size > LARGEST_TEXT:
                raise ValueError(
                    f"it has {size:,} bytes, above the limit of {LARGEST_TEXT:,}; save its matrix "
                    "with scipy.sparse.save_npz"
                )
            content = path.read_bytes()
            if suffix in (".edgelist", ".csv"):
                lines = (_csv_lines if suffix == ".csv" else _lines)(content.decode("utf-8-sig"))
                empty = nx.DiGraph() if directed else nx.Graph()
                return _with_integer_labels(_with_edges(empty, lines))
            read = nx.read_graphml if suffix == ".graphml" else nx.read_gml
            return _with_integer_labels(read(BytesIO(content)))


_Lines = Iterable[tuple[int, Sequence[str]]]
"""Numbers of lines, from 1, and their two or three words: source, target and weight."""


def _lines(text: str) -> _Lines:
    """Return the words of an edge list; ``#`` starts a comment."""
    for k, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words and len(words) not in (2, 3):
            raise ValueError(
                f"line {k} must be 'source target' or 'source target weight', got {shown(line)}"
            )
        if words:
            yield k, words


def _csv_lines(text: str) -> _Lines:
    """Return the fields of a CSV file without its header."""
    reader = csv.reader(text.splitlines(), skipinitialspace=True, strict=True)
    lines = [(reader.line_num, [field.strip() for field in fields]) for fields in reader if fields]
    for k, fields in lines:
        if len(fields) not in (2, 3) or not fields[0] or not fields[1]:
            raise ValueError(
                f"line {k} must be 'source,target' or 'source,target,weight', got "
                f"{shown(','.join(fields))}"
            )
    if not lines or not _is_header(*(fields for _, fields in lines)):
        return lines
    return lines[1:]


def _is_header(first: Sequence[str], *others: Sequence[str]) -> bool:
    """Return whether the first fields name columns, or raise ``ValueError`` if nothing tells."""
    names = {name for fields in others for name in fields[:2]}
    if tuple(name.lower() for name in first[:2]) in _HEADS:
        return True
    if len(first) == 3 and first[2]:
        return not is_number(first[2])
    if not names or any(map(is_number, first[:2])) or not names.isdisjoint(first[:2]):
        return False
    if all(map(is_number, names)):
        return True
    raise ValueError(
        f"line 1 must be an edge or a header, got {shown(','.join(first))}, whose names are in no "
        "other line; begin with the header source,target"
    )


_HEADS = {("source", "target"), ("from", "to"), ("src", "dst")}
"""Names of the first two columns of a CSV file that are never names of nodes."""


def _with_edges(graph: "nx.Graph", lines: _Lines) -> "nx.Graph":
    """Add the edges of lines to the graph and return it; a repeated one must have its weight."""
    for k, (u, v, *more) in lines:
        text = more[0] if more and more[0] else "1"
        if not is_number(text):
            raise ValueError(f"line {k} must have a number as weight, got {shown(text)}")
        weight = float(text)
        before = graph.get_edge_data(u, v, {"weight": weight})["weight"]
        if before != weight:
            remedy = "pass directed=true if these are two edges"
            remedy = "remove one of the lines" if graph.is_directed() else remedy
            raise ValueError(
                f"line {k} must repeat the weight {before:g} of the edge {u} {v}, got {weight:g}; "
                f"{remedy}"
            )
        graph.add_edge(u, v, weight=weight)
    return graph


def _with_integer_labels(graph: "nx.Graph") -> "nx.Graph":
    """Return the graph with sorted integer labels if all its labels are whole numbers.

    Whole numbers are written in ASCII digits without leading zeros. A node order that
    :meth:`Topology.to_networkx` recorded is preserved.
    """
    numbers = {str(label): label for label in graph}
    decimals = (text for text in numbers if text.isascii() and text.isdigit())
    if sum(str(int(text[:40])) == text for text in decimals) < len(numbers):
        return graph
    ordered = graph.__class__()
    ordered.graph.update(graph.graph)
    ordered.add_nodes_from(sorted(int(text) for text in numbers))
    named = {label: int(text) for text, label in numbers.items()}
    ordered.add_edges_from((named[u], named[v], data) for u, v, data in graph.edges(data=True))
    return ordered


def _read_sparse(path: Path) -> Any:
    """Return a matrix saved with ``scipy.sparse.save_npz``; shapes are checked before reading."""
    header = read_arrays(path, _header_arrays, texts=["format"])
    form = header["format"].item()
    shape = tuple(header["shape"].tolist())
    form = form.decode("ascii") if isinstance(form, bytes) else form
    if form not in _PARTS:
        raise ValueError(
            f"`format` must be one of {', '.join(_PARTS)}, got {form!r}; save the matrix in one of "
            "these"
        )
    check_nodes(max(shape), name="shape")
    parts = read_arrays(path, partial(_matrix_arrays, form, shape), texts=["format"])
    data, *positions = (parts[name] for name in _PARTS[form])
    entries = (data, tuple(positions)) if form == "coo" else (data, *positions)
    return getattr(sparse, f"{form}_array")(entries, shape=shape)


_PARTS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}
"""Arrays of each sparse matrix format, by the name of the format."""


def _header_arrays(headers: Mapping[str, Header]) -> list[str]:
    """Return the names of the arrays with format and shape, or raise ``ValueError``."""
    wanted = {"format": (), "shape": (2,)}
    for name, shape in wanted.items():
        found = headers.get(name)
        if found is None or found.shape != shape or found.dtype.itemsize > 100:
            raise ValueError(
                f"`{name}` of shape {shape} is missing; save the matrix with scipy.sparse.save_npz"
            )
    if headers["shape"].dtype.kind not in "iu":
        raise ValueError(f"`shape` must be integers, got dtype {headers['shape'].dtype}")
    return list(wanted)


def _matrix_arrays(form: str, shape: tuple[int, int], headers: Mapping[str, Header]) -> list[str]:
    """Return the names of the arrays of a matrix, or raise ``ValueError`` if one does not fit."""
    missing = next((name for name in _PARTS[form] if name not in headers), None)
    if missing:
        raise ValueError(f"`{missing}` is missing; save the matrix with scipy.sparse.save_npz")
    data, *positions = (headers[name].shape for name in _PARTS[form])
    if len(data) != {"bsr": 3, "dia": 2}.get(form, 1) or 0 in data[1:]:
        raise ValueError(f"`data` of a matrix in the format {form} cannot have shape {data}")
    rows, columns = shape
    length = data[0]
    limit = (rows + columns - 1) * max(shape) if form == "dia" else rows * columns
    if math.prod(data) > limit:
        raise ValueError(
            f"`data` must hold at most {limit:,} entries for a matrix of shape {shape}, got {data}"
        )
    major = columns if form == "csc" else rows // (data[1] if form == "bsr" else 1)
    wanted = [length] + [length if form == "coo" else major + 1] * (len(positions) - 1)
    for name, found, size in zip(_PARTS[form][1:], positions, wanted, strict=True):
        if found != (size,):
            raise ValueError(
                f"`{name}` must have shape ({size},) for a matrix of shape {shape}, got {found}"
            )
    return list(_PARTS[form])
