"""Reading and writing networkx and PyG graphs."""

import sys
from collections.abc import Hashable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import check_nodes

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data

NODE_ORDER = "node_order"
"""Attribute of exported networkx graphs with the order of integer labels that are not sorted."""


def is_networkx(graph: Any) -> bool:
    """Return whether `graph` is a networkx graph; only a program that loaded networkx has one."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(graph, networkx.Graph)


def is_pyg(graph: Any) -> bool:
    """Return whether `graph` is a PyG ``Data`` or has the same attributes."""
    return hasattr(graph, "edge_index") and hasattr(graph, "num_nodes")


def read_networkx(
    argument: str, graph: "nx.Graph"
) -> tuple[sparse.csr_array, tuple[Hashable, ...]]:
    """Return the adjacency matrix and the node labels of a networkx graph.

    Rows of the matrix are sources. The labels are empty if they are 0..n-1.

    Raises
    ------
    ValueError, TypeError
        If the graph has parallel edges, no nodes, edges of weight 0, or weights that are not
        numbers. The message names the argument.
    """
    import networkx as nx

    if graph.is_multigraph():
        raise ValueError(
            f"`{argument}` must not have parallel edges; merge them first, e.g. "
            "nx.Graph(multigraph)"
        )
    if graph.number_of_nodes() == 0:
        raise ValueError(f"`{argument}` must have at least one node, got none")
    edges = graph.edges(data="weight", default=1)
    zero_edge = next(((u, v) for u, v, weight in edges if weight == 0), None)
    if zero_edge:
        raise ValueError(
            f"`{argument}` must have edge weights above 0, got 0 at {zero_edge}; remove such edges"
        )
    nodes = _ordered_labels(graph)
    try:
        matrix = nx.to_scipy_sparse_array(graph, nodelist=list(nodes), dtype=float, format="csr")
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{argument}` must have numbers as edge weights: {error}") from error
    return sparse.csr_array(matrix), () if nodes == tuple(range(len(nodes))) else nodes


def _ordered_labels(graph: "nx.Graph") -> tuple[Hashable, ...]:
    """Return the labels, ordered by :data:`NODE_ORDER` or ascending if 0..n-1, else as stored."""
    labels = set(graph.nodes)
    words = str(graph.graph.get(NODE_ORDER, "")).split()
    decimals = (word for word in words if word.removeprefix("-").isdecimal())
    order = tuple(int(word) for word in decimals if len(word) < 100)
    if words and len(order) == len(labels) and set(order) == labels:
        return order
    numbers = range(len(labels))
    return tuple(numbers) if labels == set(numbers) else tuple(graph.nodes)


def _is_whole(label: Hashable) -> bool:
    """Return whether a label is a whole number."""
    return isinstance(label, Integral) or (isinstance(label, float) and label.is_integer())


def lacks_labels(graph: Any) -> bool | None:
    """Return whether a PyG graph has no ``n_id``; None if `graph` is no PyG graph."""
    return graph.get("n_id") is None if is_pyg(graph) else None


def read_pyg(
    argument: str, graph: Any, *, own_weights: bool = False
) -> tuple[sparse.csr_array, tuple[Hashable, ...]]:
    """Return the adjacency matrix of a PyG graph and its ``n_id`` as node labels.

    Rows of the matrix are sources. The labels are empty if there is no ``n_id`` or if it has the
    numbers 0..n-1, by which nodes are then sorted, as by the labels of networkx graphs. With
    `own_weights`, edges must not have features in place of weights.

    Raises
    ------
    ValueError, TypeError
        If edges or weights are missing, of the wrong shape or kind, out of range or parallel. The
        message names the argument.
    """
    if graph.edge_index is None:
        raise ValueError(f"`{argument}` must have an `edge_index`, got a Data object without one")
    edge_index = graph.edge_index.cpu().numpy()
    n = check_nodes(int(graph.num_nodes), name="num_nodes")
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise ValueError(
            f"`edge_index` must have shape (2, E), sources over targets, got {edge_index.shape}"
        )
    if not np.issubdtype(edge_index.dtype, np.integer):
        raise TypeError(f"`edge_index` must be integers, got dtype {edge_index.dtype}")
    if edge_index.size and (edge_index.min() < 0 or edge_index.max() >= n):
        raise ValueError(
            f"`edge_index` must join nodes 0..{n - 1}, got {edge_index.min()} to {edge_index.max()}"
        )
    values = _pyg_weights(graph, edge_index.shape[1], own_weights)
    if len(np.unique(edge_index[0].astype(np.int64) * n + edge_index[1])) != edge_index.shape[1]:
        raise ValueError(f"`{argument}` must not have parallel edges; call graph.coalesce() first")
    matrix = sparse.csr_array((values, (edge_index[0], edge_index[1])), shape=(n, n))
    labels = graph.get("n_id")
    nodes = () if labels is None else tuple(labels.tolist())
    if len(nodes) != n or set(nodes) != set(range(n)):
        return matrix, nodes
    order = np.argsort(nodes)
    return sparse.csr_array(matrix[order][:, order]), ()


def _pyg_weights(graph: Any, n_edges: int, own_weights: bool) -> np.ndarray:
    """Return one weight per edge; those of edges with several features are 1."""
    found = {key: graph.get(key) for key in ("edge_weight", "edge_attr")}
    key, given = next(((key, w) for key, w in found.items() if w is not None), ("", None))
    if given is None:
        return np.ones(n_edges)
    shape = tuple(given.shape)
    if shape in ((n_edges,), (n_edges, 1)):
        return given.detach().cpu().double().numpy().reshape(-1)
    if key == "edge_weight" or shape[:1] != (n_edges,):
        remedy = "; choose one, as in graph.edge_weight[:, 0], or remove edge_weight"
        raise ValueError(
            f"`{key}` must have one number per edge, here {n_edges:,} edges, got shape {shape}"
            f"{remedy * (key == 'edge_weight')}"
        )
    if own_weights:
        raise ValueError(
            "`edge_attr` must have one number per edge to be mixing weights, got features of shape "
            f"{shape}; choose a column: graph.edge_weight = graph.edge_attr[:, 0]"
        )
    return np.ones(n_edges)


def as_networkx(
    adjacency: sparse.csr_array, nodes: tuple[Hashable, ...], *, directed: bool
) -> "nx.Graph":
    """Return a networkx graph with these weights, labels and, if needed, the order of labels."""
    import networkx as nx

    labels = nodes or range(adjacency.shape[0])
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(labels)
    if all(map(_is_whole, nodes)) and list(nodes) != sorted(nodes):  # type: ignore[type-var]
        graph.graph[NODE_ORDER] = " ".join(str(int(label)) for label in nodes)  # type: ignore[call-overload]
    is_weighted = bool((adjacency.data != 1).any())
    edges = adjacency.tocoo()
    for u, v, weight in zip(*(c.tolist() for c in edges.coords), edges.data.tolist(), strict=True):
        if directed or u < v:
            graph.add_edge(labels[u], labels[v], **({"weight": weight} if is_weighted else {}))
    return graph


def as_pyg(edge_index: np.ndarray, weights: np.ndarray, n: int) -> "Data":
    """Return PyG ``Data`` with these (2, E) edges and (E,) weights."""
    import torch
    from torch_geometric.data import Data

    return Data(
        edge_index=torch.from_numpy(edge_index.copy()),
        edge_weight=torch.from_numpy(weights.copy()),
        num_nodes=n,
    )
