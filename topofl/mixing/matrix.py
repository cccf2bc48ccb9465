"""The class MixingMatrix: read-only weights of one exchange, with their spectrum."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sparse
import torch

from topofl import _drawing
from topofl._linalg import spectral
from topofl._support.check import TOLERANCE, as_csr, is_symmetric
from topofl._support.notebook import as_html
from topofl.mixing.export import as_pyg, as_tensor
from topofl.mixing.fit import check_on_edges, explain_sums
from topofl.topology import Topology, TopologyError, as_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch_geometric.data import Data

__all__ = ["MixingMatrix", "WeightRule", "matrix_picture"]


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
            raise ValueError(explain_sums(weights))

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
        kind = (
            "doubly" if self.is_doubly_stochastic else "row" if self.is_row_stochastic else "column"
        )
        return f"{kind} stochastic"

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
            return spectral.second_modulus(self.weights)
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
        return _drawing.figure_of(
            _drawing.draw_matrix(self.weights, self.name, ax, labels=self.nodes)
        )

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
        if self.n > spectral.limits.DENSE_LIMIT:
            raise ValueError(
                f"`plot_spectrum` must have at most {spectral.limits.DENSE_LIMIT} nodes, got "
                f"n={self.n}: all eigenvalues are computed densely; use slem or spectral_gap"
            )
        drawn = _drawing.draw_spectrum(self.eigenvalues, self.slem, self.name, ax)
        return _drawing.figure_of(drawn)

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
        return as_pyg(self.weights)

    def check_on(self, topology: Topology) -> "MixingMatrix":
        """Return the matrix itself if all its weights are on edges of `topology` or the diagonal.

        Raises
        ------
        ValueError
            If a weight is off the edges (the message names the first one); if the numbers of nodes
            differ; if the matrix has labels other than those of `topology` in the same order.
        """
        check_on_edges(self.weights, self.nodes, self.name, topology)
        return self


WeightRule: TypeAlias = Callable[[Topology], MixingMatrix]


def matrix_picture(matrix: MixingMatrix, when: str = "") -> str:
    """Return the small picture of a matrix in notebooks; `when` begins its text."""
    entries = matrix.weights.tocoo()
    rows, columns = entries.coords
    about = f"{when}weights of {matrix.name}: receivers as rows, senders as columns"
    return _drawing.matrix_as_html(rows, columns, entries.data, (matrix.n, matrix.n), about)
