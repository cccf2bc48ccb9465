"""Read-only weights of exchanges: the MixingMatrix, with its spectrum, and the MixingSequence."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sparse
import torch
from scipy.sparse.csgraph import connected_components

from topofl._drawing.axes import draw_matrix, draw_spectrum, matrix_as_html
from topofl._linalg import second, spectral
from topofl._linalg.sparse import as_csr, is_symmetric
from topofl._support.check import TOLERANCE, check_int, shown
from topofl._support.notebook import as_html
from topofl._support.text import node_name
from topofl.topology import Topology, TopologyError, TopologySequence, as_labels, places_of
from topofl.topology.graph import check_generate, generated
from topofl.topology.interchange import as_pyg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False, repr=False)
class MixingMatrix:
    """The weights of one exchange, ``X <- W @ X``; row i holds the weights of receiver i.

    The properties of weights are in one class, so that they are found and documented together.

    See the page :doc:`One idea </docs/concepts/one-idea>`.

    Parameters
    ----------
    weights
        (n, n) non-negative matrix; ``weights[i, j]`` is the weight node i gives to what it receives
        from j. Rows sum to 1 (averaging, "pull"), columns sum to 1 (the sum is preserved, "push"),
        or both (gossip). Stored as a read-only ``scipy.sparse.csr_array`` of float64.
    name
        Reproducible label.
    nodes
        Labels of the nodes, as in a :class:`Topology`: ``nodes[i]`` is the label of row i. Empty:
        the matrix fits any graph of n nodes.

    Raises
    ------
    ValueError
        If the matrix is not square, has negative, masked or non-finite entries, or indices that do
        not fit its shape, or is neither row- nor column-stochastic; if `nodes` is not one distinct
        label per node.

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> W = mixing.metropolis_hastings(topologies.ring(16))
    >>> print(f"{W.spectral_gap:.5f}")
    0.05075
    """

    weights: sparse.csr_array
    name: str = "weights"
    nodes: tuple[Hashable, ...] = ()

    def __post_init__(self) -> None:
        weights = as_csr("weights", self.weights)
        for array in (weights.data, weights.indices, weights.indptr):
            array.setflags(write=False)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "nodes", as_labels(self.nodes, self.n))
        if not (self.is_row_stochastic or self.is_column_stochastic):
            rows, columns = weights.sum(axis=1), weights.sum(axis=0)
            row, column = int(np.abs(rows - 1).argmax()), int(np.abs(columns - 1).argmax())
            raise ValueError(
                "`weights` must have rows or columns that sum to 1; row "
                f"{row} sums to {rows[row]:.6g} and column {column} to {columns[column]:.6g}; "
                "divide each row by its sum, or use a rule such as metropolis_hastings(topology)"
            )

    def __repr__(self) -> str:
        kind, messages = self.stochasticity, self.n_messages
        return f"MixingMatrix({self.name!r}, n={self.n}, {kind}, messages={messages})"

    def _repr_html_(self) -> str:
        return as_html(repr(self), matrix_picture(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, since pickling and deep copies would make the arrays writable.
        return MixingMatrix, (self.weights, self.name, self.nodes)

    def __matmul__(self, values: np.ndarray) -> np.ndarray:
        return self.weights @ values

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.weights.shape[0]

    @cached_property
    def is_row_stochastic(self) -> bool:
        """Whether each row sums to 1, so that constant vectors are preserved."""
        return bool(np.allclose(self.weights.sum(axis=1), 1, rtol=0, atol=TOLERANCE))

    @cached_property
    def is_column_stochastic(self) -> bool:
        """Whether each column sums to 1, so that the sum over nodes is preserved."""
        return bool(np.allclose(self.weights.sum(axis=0), 1, rtol=0, atol=TOLERANCE))

    @property
    def is_doubly_stochastic(self) -> bool:
        """Whether rows and columns sum to 1, so that the mean over nodes is preserved."""
        return self.is_row_stochastic and self.is_column_stochastic

    @property
    def stochasticity(self) -> str:
        """``"doubly stochastic"``, ``"row stochastic"`` or ``"column stochastic"``."""
        if self.is_doubly_stochastic:
            return "doubly stochastic"
        return "row stochastic" if self.is_row_stochastic else "column stochastic"

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether ``weights[i, j]`` equals ``weights[j, i]`` up to rounding (1e-9)."""
        return is_symmetric(self.weights)

    @cached_property
    def slem_solution(self) -> spectral.Solution:
        """Second largest eigenvalue modulus, with its ``solver`` and ``residual``.

        Circulants (ring, exponential) of any size have a closed form, and other matrices of up to
        1,500 nodes are decomposed densely. Larger ones use Lanczos if symmetric, else Arnoldi, and
        shift-invert if these stall, as on long rings with permuted nodes. If a directed graph has
        several strongly connected classes, each is solved separately: the spectrum is their union,
        and computing it from the whole matrix, which may be defective, would be inexact. The
        modulus is exactly 0 for weights that average exactly after some exchanges: this is proven
        for fractions with denominators up to a million and if merging nodes with equal rows leaves
        a single one, and found densely for others.

        Raises
        ------
        TopologyError
            If no solver succeeds. This requires more than 6,000 nodes in one strongly connected
            class with asymmetric weights, and either iterations that do not converge (slow mixing)
            or an eigenvalue so small that it may be a 0 perturbed by rounding (exact averaging with
            weights that are not fractions). Symmetric weights fail only if shift-invert runs out of
            memory in its sparse factorization.
        """
        try:
            return second.second_modulus(self.weights)
        except spectral.NoConvergence as error:
            raise TopologyError(
                f"slem of {self.name}: {error}; use metrics.measured_contraction"
            ) from error

    @property
    def slem(self) -> float:
        """Second largest eigenvalue modulus, in [0, 1]; 0 for a single node."""
        return self.slem_solution.value

    @cached_property
    def spectral_gap(self) -> float:
        """``1 - slem``; each exchange multiplies consensus distance by ``slem`` in the long run.

        With column-stochastic weights this holds for push-sum only if no push-sum weight vanishes,
        which :func:`topofl.metrics.spectral_gap` checks.
        """
        return 1.0 - self.slem

    @cached_property
    def eigenvalues(self) -> np.ndarray:
        """All n eigenvalues: real and descending if symmetric, else by descending modulus.

        Circulants of any size take a Fourier transform; otherwise each strongly connected class is
        decomposed densely, up to 6,000 nodes per class (``ValueError`` above).
        """
        return spectral.eigenvalues(self.weights)

    @cached_property
    def is_uniform_mean(self) -> bool:
        """Whether one exchange is exact averaging: all entries 1/n."""
        return self.weights.nnz == self.n**2 and bool(
            np.abs(self.weights.data - 1 / self.n).max() <= TOLERANCE
        )

    @cached_property
    def out_messages(self) -> np.ndarray:
        """(n,) messages that each node sends per exchange, its nonzero weights in other rows."""
        return np.bincount(self.weights.indices, minlength=self.n) - (self.weights.diagonal() != 0)

    @cached_property
    def in_messages(self) -> np.ndarray:
        """(n,) messages that each node receives per exchange."""
        return np.diff(self.weights.indptr) - (self.weights.diagonal() != 0)

    @property
    def n_messages(self) -> int:
        """Messages per exchange, summed over all nodes."""
        return int(self.out_messages.sum())

    def support(self) -> Topology:
        """Return the graph of the nonzero weights: an edge j -> i where node i gives j a weight."""
        edges = sparse.csr_array(self.weights.T != 0, dtype=np.float64)
        edges.setdiag(0)
        return Topology(edges, name=f"support({self.name})", nodes=self.nodes)

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw the matrix, with receivers as rows and senders as columns, and return the figure.

        Rows and columns have the labels of their nodes, if the matrix has labels. Above 512 nodes
        each cell shows the largest of the weights that it covers. The graph of the nonzero weights
        is drawn by :meth:`topofl.Topology.plot` of :meth:`support`, which shows the class labels of
        nodes, too.

        Parameters
        ----------
        ax
            Axes to draw on; None: a new figure.

        Examples
        --------
        >>> from topofl import data, mixing, topologies
        >>> clients = data.shards(data.digits(), n=6, per_node=2, seed=0)
        >>> W = mixing.metropolis_hastings(topologies.ring(6))
        >>> W.plot().axes[0].get_ylabel()
        'receiver'
        >>> figure = W.support().plot(label_counts=clients)  # nodes as pie charts of their labels
        >>> len(figure.axes[0].get_legend().get_texts())  # classes
        10
        """
        return draw_matrix(self.weights, self.name, ax, labels=self.nodes)

    def plot_spectrum(self, ax: "Axes | None" = None) -> "Figure":
        """Draw all eigenvalues, mark :attr:`slem`, and return the figure.

        The real eigenvalues of symmetric weights are shown as a histogram from -1 to 1, those of
        other weights as points in the complex plane within the unit circle.

        Parameters
        ----------
        ax
            Axes to draw on; None: a new figure.

        Raises
        ------
        ValueError
            If there are more than 1,500 nodes, too many to compute all eigenvalues densely.
        """
        if self.n > spectral.DENSE_LIMIT:
            raise ValueError(
                f"`plot_spectrum` must have at most {spectral.DENSE_LIMIT} nodes, got "
                f"n={self.n}: all eigenvalues are computed densely; use slem or spectral_gap"
            )
        return draw_spectrum(self.eigenvalues, self.slem, self.name, ax)

    def to_torch(
        self, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Return the dense (n, n) matrix as a torch tensor on a device."""
        return as_tensor(self.weights, device, dtype)

    def to_pyg(self) -> "Data":
        """Return PyG ``Data`` whose sum of messages ``edge_weight * x_j`` is ``W @ x``.

        ``edge_index`` holds sources over targets, with a self-loop for each nonzero self-weight,
        ``edge_weight`` (float64) the weights, and ``num_nodes`` is n.
        """
        targets, sources = self.weights.nonzero()
        edges = np.stack([sources, targets]).astype(np.int64)
        return as_pyg(edges, self.weights.data, self.n)

    def check_on(self, topology: Topology) -> "MixingMatrix":
        """Return the matrix itself if all its weights are on edges of `topology` or the diagonal.

        Raises
        ------
        ValueError
            If a weight is off the edges (the message names the first one); if the numbers of nodes
            differ; if the matrix has labels other than those of `topology` in the same order.
        """
        if self.n != topology.n:
            raise ValueError(
                f"`weights` must have one row per node: got n={self.n}, {topology.name} has "
                f"n={topology.n}"
            )
        if self.nodes and self.nodes != topology.nodes:
            _check_labels(self, topology)
        receivers, senders = self.weights.nonzero()
        off_diagonal = receivers != senders
        receivers, senders = receivers[off_diagonal], senders[off_diagonal]
        off_edges = np.flatnonzero(~_are_edges(topology, senders, receivers))
        if len(off_edges):
            first = off_edges[np.lexsort((receivers[off_edges], senders[off_edges]))[0]]
            i, j = int(receivers[first]), int(senders[first])
            to, of = (node_name(topology.nodes, node) for node in (i, j))
            remedy = ""
            if _are_edges(topology, receivers, senders).all():
                remedy = (
                    "; those of its transpose are on edges: "
                    "from_weights(weights, topology, edges='u->v')"
                )
            raise ValueError(
                f"`weights` must be 0 off the edges of {topology.name}: node {to} gives "
                f"{self.weights[i, j]:g} to node {of}, but there is no edge {of} -> {to} "
                f"({len(off_edges)} such weights){remedy}"
            )
        return self


WeightRule: TypeAlias = Callable[[Topology], MixingMatrix]


def matrix_picture(matrix: MixingMatrix, when: str = "") -> str:
    """Return the small picture of a matrix in notebooks; `when` begins its text."""
    entries = matrix.weights.tocoo()
    rows, columns = entries.coords
    about = f"{when}weights of {matrix.name}: receivers as rows, senders as columns"
    return matrix_as_html(rows, columns, entries.data, (matrix.n, matrix.n), about)


ROUNDS = 6
"""Most rounds of which notebooks show the matrices, as of a sequence of graphs."""

NODES_LIMIT = 300
"""Larger matrices are not computed to be shown."""


@dataclass(frozen=True, eq=False, repr=False)
class MixingSequence:
    """Mixing matrices that change from round to round, on the same nodes.

    Parameters
    ----------
    n
        Number of nodes.
    generate
        Pure function of the round ``t >= 0`` that returns its mixing matrix.
    name
        Reproducible label.
    period
        Number of rounds after which the sequence repeats; None if it does not.
    length
        Number of rounds; None if unlimited. The matrices that a run recorded (``history.mixings``)
        have a length.

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> graphs = topologies.ring(4), topologies.star(4)
    >>> MixingSequence(4, lambda t: mixing.metropolis_hastings(graphs[t]), period=2).at(3).name
    'metropolis_hastings(star(n=4))'
    """

    n: int
    generate: Callable[[int], MixingMatrix]
    name: str = "matrices"
    period: int | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        check_generate(self.generate, MixingMatrix)
        for name in ("n", "period", "length"):
            if getattr(self, name) is not None or name == "n":
                check_int(name, getattr(self, name), minimum=1)
        if self.period is not None and self.length is not None and self.period > self.length:
            raise ValueError(
                f"`period` must be at most `length`={self.length}, got {self.period}; leave it None"
            )

    def __repr__(self) -> str:
        end = "" if self.length is None else f", length={self.length}"
        return f"MixingSequence({self.name!r}, n={self.n}, period={self.period}{end})"

    def _repr_html_(self) -> str:
        """Return the text, and pictures of the first rounds unless matrices are large."""
        if self.n > NODES_LIMIT:
            return as_html(repr(self))
        rounds = min(ROUNDS, self.period or ROUNDS, self.length or ROUNDS)
        text = f"{self!r}\nrounds 0 to {rounds - 1}:" if rounds > 1 else f"{self!r}\nround 0:"
        pictures = (matrix_picture(self.at(t), f"round {t}, ") for t in range(rounds))
        return as_html(text, "\n".join(pictures))

    def at(self, t: int) -> MixingMatrix:
        """Return the matrix of round `t`.

        Raises
        ------
        ValueError
            If `t` is negative or beyond the last round, or the number of nodes differs from that of
            the sequence.
        """
        last = None if self.length is None else self.length - 1
        remedy = f"{self.name} has {self.length} rounds"
        t = check_int("t", t, minimum=0, maximum=last, remedy=remedy)
        return generated(self, MixingMatrix, t)

    def one_period(self) -> list[MixingMatrix]:
        """Return the matrices of one period, or raise ``TopologyError`` if there is no period."""
        if self.period is None:
            raise TopologyError(
                f"a periodic sequence is needed, {self.name} has no period; use "
                "metrics.measured_contraction(sequence, rounds=..., seed=...) or "
                "metrics.expected_gap(sequence, rounds=...)"
            )
        return [self.at(t) for t in range(self.period)]

    def support(self) -> TopologySequence:
        """Return the graphs of the nonzero weights: an edge j -> i if node i gives j a weight."""
        return TopologySequence(
            self.n, lambda t: self.at(t).support(), f"support({self.name})", self.period
        )


def _are_edges(topology: Topology, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Return for each pair whether the graph has an edge from the sender to the receiver."""
    if len(senders) == 0:
        return np.zeros(0, bool)
    return np.asarray(topology.adjacency[senders, receivers]).reshape(-1) != 0


def rows_of(topology: Topology, labels: tuple[Hashable, ...]) -> np.ndarray:
    """Return the row of each node of a graph in weights with these labels, or raise."""
    try:
        return places_of(topology.nodes, labels, topology.n)
    except KeyError as missing:
        raise ValueError(
            f"`weights` must have the nodes of {topology.name}, node {missing} is missing; use the "
            "same labels in both, or take rows as nodes 0..n-1: "
            "dataclasses.replace(weights, nodes=())"
        ) from None


def _check_labels(matrix: MixingMatrix, topology: Topology) -> None:
    """Raise ``ValueError`` unless rows have the labels of the graph; no labels mean 0..n-1."""
    rows = rows_of(topology, matrix.nodes)
    moved = rows != np.arange(topology.n)
    if moved.any():
        i = int(moved.argmax())
        label = (topology.nodes or range(topology.n))[i]
        raise ValueError(
            f"`weights` must have the nodes of {topology.name} in the same order: node {label!r} "
            f"is row {rows[i]} of {matrix.name} and node {i} of the graph; create them with "
            "from_weights(graph, topology)"
        )


def as_tensor(
    weights: sparse.csr_array, device: torch.device | str, dtype: torch.dtype
) -> torch.Tensor:
    """Return the weights as a dense tensor, or raise if `device` or `dtype` is not valid."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(
            f"`dtype` must be a floating-point dtype, got {shown(dtype)}; e.g. torch.float32"
        )
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"`device` must be a torch device, got {shown(device)}; e.g. 'cpu' or 'cuda:0'"
        ) from error
    return torch.from_numpy(weights.toarray()).to(device=device, dtype=dtype)


def complete_components(pattern: sparse.csr_array) -> np.ndarray | None:
    """Return each node's component if all its entries, with the diagonal, are nonzero, else None.

    Examples
    --------
    >>> complete_components(sparse.csr_array([[1, 1, 0], [1, 1, 0], [0, 0, 1]])).tolist()
    [0, 0, 1]
    """
    labels = connected_components(pattern, directed=False)[1]
    sizes = np.bincount(labels)[labels]
    return labels if (np.diff(pattern.indptr) == sizes).all() else None


def component_means(weights: MixingMatrix) -> np.ndarray | None:
    """Return each node's component if every row is the mean over its component, else None.

    Examples
    --------
    >>> from topofl.mixing import uniform
    >>> from topofl.topologies import fully_connected, ring
    >>> component_means(uniform(fully_connected(3))).tolist(), component_means(uniform(ring(4)))
    ([0, 0, 0], None)
    """
    matrix = weights.weights
    labels, rows = complete_components(matrix), np.diff(matrix.indptr)
    if labels is None or np.abs(matrix.data * np.repeat(rows, rows) - 1).max() > TOLERANCE:
        return None
    return labels


def all_reduce_share(weights: MixingMatrix) -> float:
    """Return the bytes that all-reduces in groups send over those of messages.

    A group of k sends 2 (k - 1) models in place of k (k - 1). 1 unless all rows are means of
    groups.

    Examples
    --------
    >>> from topofl.mixing import uniform
    >>> from topofl.topologies import fully_connected, ring
    >>> all_reduce_share(uniform(fully_connected(4))), all_reduce_share(uniform(ring(4)))
    (0.5, 1.0)
    """
    labels = component_means(weights)
    if labels is None or not weights.n_messages:
        return 1.0
    return float(2 * (np.bincount(labels) - 1).sum() / weights.n_messages)
