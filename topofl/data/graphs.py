"""Graphs as data: examples are the nodes of one graph, or the graphs of a list.

An example is a number; the graph itself is a part of the network, which all nodes of a run share.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from topofl._support.check import check_choice, check_kind, check_nodes, check_positive, shown
from topofl._support.public import public
from topofl._support.seeding import Seed, stream
from topofl.data.arrays import from_arrays
from topofl.data.dataset import Dataset
from topofl.data.partition import Partition

__all__ = ["GraphData", "from_pyg"]

MOST_PADDING = 8
"""Largest ratio of the vertices of padded subgraphs to the vertices that there are."""


@public
@dataclass(frozen=True, eq=False)
class GraphData:
    """A graph whose vertices are the examples, or graphs that are; see :func:`from_pyg`.

    Parameters
    ----------
    dataset
        Inputs (N, 1) int64: the number of the vertex, or of the graph.
    features
        (V, features...) of the vertices of all graphs.
    edges
        (2, E) int64, from and to, as ``edge_index``.
    graph_of
        (V,) int64, the graph of each vertex, ascending; None: vertices are the examples.

    Examples
    --------
    >>> path = Dataset(torch.arange(4)[:, None], torch.tensor([0, 0, 1, 1]), 2, "path",
    ...                np.arange(4), np.arange(0), np.arange(0))
    >>> edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    >>> graph = GraphData(path, torch.eye(4), edges)
    >>> [part.tolist() for part in graph.communities(2, seed=0).train]
    [[0, 1], [2, 3]]
    """

    dataset: Dataset
    features: Tensor
    edges: Tensor
    graph_of: Tensor | None = None

    def __repr__(self) -> str:
        """Return the name, and the numbers of graphs, vertices, edges, classes and examples."""
        data, several = self.dataset, self.graph_of is not None
        return (
            f"GraphData({data.name!r}, {f'graphs={len(data.labels)}, ' * several}"
            f"vertices={len(self.features)}, edges={self.edges.shape[1]}, "
            f"features={tuple(self.features.shape[1:])}, n_classes={data.n_classes}, "
            f"train={len(data.train)}, val={len(data.val)}, test={len(data.test)})"
        )

    def communities(self, n: int, *, seed: Seed, resolution: float = 1.0) -> Partition:
        """Return a partition in which clients hold communities of the graph, found by Louvain.

        The largest communities come first, each to the client with the fewest vertices.

        Parameters
        ----------
        n
            Number of clients, at most that of communities.
        seed
            Seed of the algorithm.
        resolution
            Above 1, communities are smaller and more of them are found; below 1, larger and fewer.

        Raises
        ------
        ValueError
            If examples are graphs; if there are fewer communities; if a client gets no training
            examples.
        """
        import networkx as nx  # which takes longer to load than most uses of this module

        n, resolution = check_nodes(n), check_positive("resolution", resolution)
        if self.graph_of is not None:
            raise ValueError(
                "`communities` needs one graph, whose vertices are the examples; partition graphs "
                "by any partitioner, such as data.iid"
            )
        graph = nx.Graph(self.edges.T.tolist())
        graph.add_nodes_from(range(len(self.features)))
        drawn = int(stream(seed, "communities").integers(2**31))
        found = nx.community.louvain_communities(graph, resolution=resolution, seed=drawn)
        if len(found) < n:
            raise ValueError(
                f"`n` must be at most the number of communities, {len(found)}, got {n}; use "
                f"n={len(found)}, a `resolution` above {resolution:g}, which finds more of them, "
                "or any partitioner of `.dataset`, such as data.iid"
            )
        owner, sizes = np.zeros(len(self.features), np.int64), np.zeros(n, np.int64)
        for members in sorted(found, key=lambda own: (-len(own), min(own))):
            client = int(sizes.argmin())
            owner[list(members)] = client
            sizes[client] += len(members)
        parts = [
            tuple(some[owner[some] == i] for i in range(n))
            for some in (self.dataset.train, self.dataset.val, self.dataset.test)
        ]
        return Partition(self.dataset, *parts, name=f"communities(n={n})")

    def network(
        self, module: nn.Module, clients: Partition | None = None, *, between: str = "drop"
    ) -> nn.Module:
        """Return a network for runs, which applies a module to the graphs of its examples.

        Parameters
        ----------
        module
            Called as ``module(x, edge_index)``, and returns a row for each vertex; for lists of
            graphs as ``module(x, edge_index, batch)``, and returns a row for each graph. For
            example a model of ``torch_geometric.nn``. Its parameters are those of the run, named
            ``network.*``.
        clients
            The partition of one graph among the clients, with all vertices for validation and
            test; other vertices of no client have no edges.
        between
            Edges between vertices of two clients: ``"drop"`` leaves them out, so that each client
            trains on its own subgraph; ``"keep"`` keeps them and all features, as context.

        Raises
        ------
        TypeError, ValueError
            If `module` is no network; if `clients` is missing for one graph, is of another dataset,
            or has vertices that two clients hold.
        """
        check_kind("module", module, nn.Module, "a torch.nn.Module")
        check_choice("between", between, ["drop", "keep"])
        edges, blocks = self.edges, self.graph_of
        if blocks is None and between == "keep":
            blocks = torch.zeros(len(self.features), dtype=torch.int64, device="cpu")
        elif blocks is None:
            blocks = self._owners(clients)
            source, target = blocks[edges]
            edges = edges[:, (source == target) & (source >= 0)]
        return _OnGraphs(module, self.features, edges, blocks, whole=self.graph_of is not None)

    def _owners(self, clients: Partition | None) -> Tensor:
        """Return the client of each vertex, -1 for those of no client."""
        if not isinstance(clients, Partition) or clients.dataset is not self.dataset:
            raise ValueError(
                "`clients` must be a partition of this graph, whose edges between clients are left "
                f"out, got {shown(clients)}; partition `.dataset`, or give between='keep'"
            )
        owner = np.full(len(self.features), -1)
        for part in (clients.train, clients.val, clients.test):
            for i, own in enumerate(part):
                held = owner[own]
                if ((held >= 0) & (held != i)).any():
                    raise ValueError(
                        "`clients` must hold each vertex at most once, so that it has one "
                        "subgraph; use a partition without overlap, or between='keep'"
                    )
                owner[own] = i
        held_out = np.concatenate([self.dataset.val, self.dataset.test])
        if len(alone := held_out[owner[held_out] < 0]):
            raise ValueError(
                "`clients` must hold the vertices for validation and test, too, which would "
                f"otherwise have no neighbors, but {len(alone)} are of no client, such as "
                f"{alone[0]}; use .communities(n), or remove these masks and give the "
                "partitioner test_fraction, or use between='keep'"
            )
        return torch.from_numpy(owner)


@public
def from_pyg(
    graphs: Any, *, test: float | None = None, val: float | None = None, seed: int = 0,
    name: str = "graph",
) -> GraphData:  # fmt: skip
    """Return the graphs of PyTorch Geometric as data: nodes of one graph, or a list of graphs.

    Parameters
    ----------
    graphs
        A ``torch_geometric.data.Data`` with ``x``, ``edge_index`` and ``y``, one class for each of
        its nodes; or a sequence of these, with one class each.
    test, val
        Shares of the examples that are held out, drawn at random in the proportions of classes. If
        both are None, the masks of the graph are its split, if it has some; vertices outside of
        ``train_mask`` are then left out of training.
    seed
        Seed of this draw.
    name
        Label of the dataset.

    Raises
    ------
    TypeError
        If something is neither such an object nor a sequence of them.
    ValueError
        If features, edges and classes do not fit each other.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> path = SimpleNamespace(
    ...     x=torch.eye(4), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]),
    ...     y=torch.tensor([0, 0, 1, 1]),
    ... )
    >>> from_pyg(path).dataset
    Dataset('graph', inputs=(4, 1), n_classes=2, train=4, val=0, test=0)
    """
    several = isinstance(graphs, list | tuple) or type(graphs).__name__.endswith("Dataset")
    every: list[Any] = list(graphs) if several else [graphs]
    if not every:
        raise ValueError("`graphs` must have at least one graph, got none")
    for k, one in enumerate(every):
        _check_graph(one, f"graphs[{k}]" if several else "graphs", 1 if several else None)
    starts = np.cumsum([0, *(len(one.x) for one in every)])
    features = torch.cat([one.x for one in every]).float()
    edges = torch.cat(
        [one.edge_index + int(start) for one, start in zip(every, starts, strict=False)], 1
    )
    labels = torch.cat([one.y.reshape(-1) for one in every]).numpy()
    train: np.ndarray | None = None
    held: dict[str, Any] = {"test": test, "val": val}
    if not several and test is None and val is None:
        train, *masks = (_mask(graphs, f"{key}_mask") for key in ("train", "test", "val"))
        held = dict[str, Any](zip(held, masks, strict=True))
    numbers = np.arange(len(labels))[:, None]
    dataset = from_arrays(numbers, labels, **held, seed=seed, name=name)
    if train is not None:
        dataset = replace(dataset, train=np.flatnonzero(train))
    graph_of = torch.from_numpy(np.repeat(np.arange(len(every)), np.diff(starts)))
    return GraphData(dataset, features, edges, graph_of if several else None)


def _mask(graph: Any, name: str) -> np.ndarray | None:
    """Return a mask of nodes; None if there is none, or it has another split in each column."""
    found = getattr(graph, name, None)
    return found.numpy() if isinstance(found, Tensor) and found.dim() == 1 else None


def _check_graph(graph: Any, name: str, labels: int | None) -> None:
    """Raise unless a graph has features, edges, and a class of each node, or `labels` classes."""
    for key in ("x", "edge_index", "y"):
        if not isinstance(part := getattr(graph, key, None), Tensor):
            raise TypeError(
                f"`{name}` must be a torch_geometric.data.Data with x, edge_index and y, got "
                f"{shown(part)} as {key}"
            )
    x, edges, y = graph.x, graph.edge_index, graph.y
    if not len(x):
        raise ValueError(f"`{name}` must have at least one node, got none")
    for key in ("edge_weight", "edge_attr"):
        if getattr(graph, key, None) is not None:
            raise ValueError(
                f"`{name}` must have edges without numbers, which networks do not get, got {key}; "
                "remove it"
            )
    if edges.dim() != 2 or len(edges) != 2 or edges.is_floating_point():
        raise ValueError(
            f"`{name}.edge_index` must be integers of shape (2, E), got {edges.dtype} of shape "
            f"{tuple(edges.shape)}"
        )
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < len(x):
        raise ValueError(
            f"`{name}.edge_index` must be nodes from 0 to {len(x) - 1}, got "
            f"{int(edges.min())} to {int(edges.max())}"
        )
    if y.numel() != (len(x) if labels is None else labels):
        raise ValueError(
            f"`{name}.y` must have {'one class per node' if labels is None else 'one class'}, got "
            f"shape {tuple(y.shape)} for {len(x)} nodes"
        )


class _OnGraphs(nn.Module):
    """A module, applied to the blocks of vertices in which its examples are.

    Blocks are graphs, or the subgraphs of clients: no edge is between two of them, so that the
    output for an example depends on its own block only.
    """

    features: Tensor
    edges: Tensor
    block_of: Tensor
    vertices: Tensor
    edges_within: Tensor
    place: Tensor

    def __init__(
        self, network: nn.Module, features: Tensor, edges: Tensor, block_of: Tensor, *, whole: bool
    ) -> None:
        super().__init__()
        self.network, self.whole = network, whole
        stored = {"features": features, "edges": edges, "block_of": block_of}
        padded = {} if whole else _padded(edges, block_of)
        self.alike = bool(padded)
        stored |= padded
        for name, values in stored.items():
            self.register_buffer(name, values, persistent=False)
        self.alike = self.alike and self._is_local()

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the rows of examples, (b, 1) int64."""
        numbers, block_of = numbers[:, 0], self.block_of
        wanted = numbers if self.whole else block_of[numbers]
        try:
            blocks, place = torch.unique(wanted, return_inverse=True)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # within torch.func.vmap, whose tensors have one shape for all nodes
            return self._on_one_block(numbers)
        inside = torch.isin(block_of, blocks)
        new = inside.cumsum(0) - 1
        parts = self.features[inside], new[self.edges[:, inside[self.edges[0]]]]
        if self.whole:
            return self.network(*parts, torch.searchsorted(blocks, block_of[inside]))[place]
        return self.network(*parts)[new[numbers]]

    def _on_one_block(self, numbers: Tensor) -> Tensor:
        """Return the rows of vertices (b,) of one block; of others, rows of NaN.

        Raises ``RuntimeError`` unless blocks can be padded to one shape.
        """
        if not self.alike:
            raise RuntimeError("its graphs cannot be padded to one number of vertices")
        block = self.block_of[numbers[:1]]
        rows = self._of_block(self.network, block)[self.place[numbers]]
        others = (self.block_of[numbers] != block) | (block < 0)
        return rows.masked_fill(others[:, None], torch.nan)

    def set_clients(self, train: Sequence[np.ndarray]) -> None:
        """Batch no nodes if a client of the run trains on vertices of several blocks."""
        if self.alike:
            blocks = (self.block_of[torch.from_numpy(own.copy())] for own in train)
            self.alike = all(bool(((own == own[:1]) & (own >= 0)).all()) for own in blocks)

    def _of_block(self, network: nn.Module, block: Tensor) -> Tensor:
        """Return the rows of all vertices of a block (1,), and of its padding."""
        vertices = self.vertices[block][0]
        x = self.features[vertices.clamp(min=0)] * (vertices >= 0)[:, None]
        return network(x, self.edges_within[block][0])

    def _is_local(self) -> bool:
        """Return whether the padding of a block changes no row of its vertices in training."""
        if bool((self.vertices >= 0).all()):
            return True
        network = copy.deepcopy(self.network).to(self.features).train()
        for layer in network.modules():
            if isinstance(layer, _DropoutNd):
                layer.eval()
        block = (self.vertices >= 0).sum(1).argmin()[None]
        inside = self.vertices[block][0] >= 0
        edges = self.edges_within[block][0]
        own = edges[:, edges[0] < int(inside.sum())]
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                padded = self._of_block(network, block)[inside]
                alone = network(self.features[self.vertices[block][0][inside]], own)
        except Exception:  # whatever a user's network raises; a run says why
            return False
        return bool(torch.allclose(padded, alone, rtol=1e-3, atol=1e-4))


def _padded(edges: Tensor, block_of: Tensor) -> dict[str, Tensor]:
    """Return blocks of vertices and their edges, padded to equal numbers, by name.

    If some are so large that most of it would be padding, nothing is returned.

    They are ``vertices`` (blocks, v), of which padding is -1; ``edges_within`` (blocks, 2, e), of
    which padding is between the last vertex, which is padding, and itself; and ``place`` (V,), of
    each vertex in its block.
    """
    blocks, order = int(block_of.max()) + 1, torch.argsort(block_of, stable=True)
    order = order[block_of[order] >= 0]
    sizes = torch.bincount(block_of[order], minlength=blocks)
    counts = torch.bincount(block_of[edges[0]], minlength=blocks)
    if not len(order) or len(sizes) * int(sizes.max()) > MOST_PADDING * len(order):
        return {}
    equal = len(sizes.unique()) == 1 and len(counts.unique()) == 1
    width = int(sizes.max()) + (not equal)
    place = torch.zeros_like(block_of)
    place[order] = torch.cat([torch.arange(int(size), device="cpu") for size in sizes])
    vertices = torch.full((blocks, width), -1, dtype=torch.int64, device="cpu")
    vertices[block_of[order], place[order]] = order
    inside = torch.full((blocks, 2, int(counts.max())), width - 1, dtype=torch.int64, device="cpu")
    by_block = torch.argsort(block_of[edges[0]], stable=True)
    starts = counts.cumsum(0) - counts
    own = block_of[edges[0, by_block]]
    at = torch.arange(len(by_block), device="cpu") - starts[own]
    inside[own, :, at] = place[edges[:, by_block]].T
    return {"vertices": vertices, "edges_within": inside, "place": place}
