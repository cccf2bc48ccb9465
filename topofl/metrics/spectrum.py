"""The heterogeneity spectrum: how labels are spread over the eigenvectors of a mixing matrix."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from topofl._drawing.axes import set_title
from topofl._drawing.figures import MEASURED, WIDE, figure_of, own_axes
from topofl._linalg import spectral
from topofl._support.public import public
from topofl.metrics._rounds import WeightRule, as_mixing
from topofl.metrics.hops import check_discount, check_hops, geometric, values_of
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["HeterogeneitySpectrum", "heterogeneity_spectrum"]


EQUAL = 1e-9
"""Distance below which eigenvalues are one eigenvalue, whose energies are added."""

NODES = 64
"""Gauss nodes per label of the spectrum of large graphs."""

BARS = 40
"""Bars of the picture."""


@dataclass(frozen=True, eq=False)
class HeterogeneitySpectrum:
    """The energy of label shares (or gradients) along the eigenvectors of a mixing matrix.

    Parameters
    ----------
    eigenvalues
        (m,) distinct eigenvalues by descending modulus, without that of the mean; real if W is
        symmetric.
    energies
        (m,) share of ``(1/n) ||V - J V||_F^2`` along each. Their sum is the heterogeneity without
        communication.
    name
        Name of the matrix.
    is_exact
        Whether these are all eigenvalues. Otherwise they are Gauss nodes, and sums over up to 63
        hops are exact.

    Examples
    --------
    >>> spectrum = HeterogeneitySpectrum(np.array([0.5]), np.array([0.8]), name="W")
    >>> spectrum.heterogeneity(hops=2)  # 0.8 (1/4 + 1/16)
    0.25
    """

    eigenvalues: np.ndarray
    energies: np.ndarray
    name: str
    is_exact: bool = True

    def heterogeneity(self, hops: int | str = 1, discount: float = 1.0) -> float:
        """Return ``sum_i e_i sum_{k=1..hops} discount^(k-1) |lambda_i|^(2k)``.

        It equals :func:`topofl.metrics.neighborhood_heterogeneity` of the same hops.
        """
        hops, discount = check_hops(hops), check_discount(discount)
        squares = np.abs(self.eigenvalues) ** 2
        if hops == "inf":
            return geometric(squares, self.energies, discount)
        powers = squares[:, None] ** np.arange(1, int(hops) + 1)
        return float(self.energies @ powers @ discount ** np.arange(int(hops)))

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw the energy over eigenvalues on `ax` (None: a new figure), and return the figure.

        Energy near 0 is averaged away by one exchange; energy near 1 or -1 stays for many rounds.
        """
        ax = own_axes(ax, WIDE, 3.4)
        is_real = not np.iscomplexobj(self.eigenvalues)
        x = self.eigenvalues if is_real else np.abs(self.eigenvalues)
        edges = np.linspace(-1.0 if (x < -1e-9).any() else 0.0, 1.0, BARS + 1)
        heights, _ = np.histogram(np.clip(x, edges[0], edges[-1]), edges, weights=self.energies)
        ax.bar(edges[:-1], heights, np.diff(edges), align="edge", color=MEASURED)
        ax.set(
            xlim=(edges[0], edges[-1]),
            xlabel="eigenvalue" if is_real else "modulus of the eigenvalue",
            ylabel="energy of the labels",
        )
        set_title(ax, self.name)
        return figure_of(ax)


@public
def heterogeneity_spectrum(
    x: MixingMatrix | Topology,
    label_counts: Any = None,
    *,
    gradients: Any = None,
    weights: WeightRule | None = None,
) -> HeterogeneitySpectrum:
    """Return the energy of label shares along each eigenvector of W: why a graph fits the data.

    With ``W = sum_i lambda_i v_i v_i^T``, the label shares Pi have the energy ``e_i = (1/n) ||v_i^T
    (Pi - J Pi)||^2`` along eigenvector i. Heterogeneity over several hops is ``H_K = sum_i e_i
    sum_{k=1..K} |lambda_i|^(2k)``: it is small if the energy lies at eigenvalues near 0, even where
    the spectral gap is small.

    Parameters
    ----------
    x
        A MixingMatrix or a Topology. Weights must be symmetric, or circulant and doubly stochastic
        (for example, a directed ring).
    label_counts
        (n, classes) non-negative integers, examples of each class at each node, or an object with
        an attribute ``label_counts``, such as a Partition.
    gradients
        (n, d) values in place of label shares, such as the gradients of the nodes at a model.
    weights
        Rule from Topology to MixingMatrix; default: Metropolis-Hastings if undirected, else uniform
        pull.

    Returns
    -------
    HeterogeneitySpectrum
        All eigenvalues for up to 6,000 nodes and for circulants of any size. For larger graphs, the
        eigenvalues are the nodes of a Gauss quadrature (Lanczos, 64 nodes per label).

    Raises
    ------
    TopologyError
        If the weights are neither symmetric nor a doubly stochastic circulant.
    TypeError, ValueError
        If `x` is a sequence, or the values are not valid or do not have one row per node.

    References
    ----------
    Golub and Meurant, "Matrices, moments and quadrature with applications" (2010), for the
    quadrature.

    Examples
    --------
    >>> from topofl import topologies
    >>> labels = np.eye(2, dtype=int)[[0, 1] * 4]  # neighbors on the ring have different labels
    >>> found = heterogeneity_spectrum(topologies.ring(8), labels)
    >>> strongest = int(found.energies.argmax())
    >>> print(f"{found.eigenvalues[strongest]:.3f} {found.energies[strongest]:.3f}")
    -0.333 0.500
    """
    matrix = as_mixing(x, weights)
    values = values_of(matrix.n, matrix.name, label_counts, gradients)
    deviations = values - values.mean(axis=0)
    spectrum = spectral.circulant_spectrum(matrix.weights)
    if spectrum is not None and matrix.is_doubly_stochastic:
        eigenvalues = np.real(spectrum) if matrix.is_symmetric else spectrum
        energies = np.square(np.abs(np.fft.fft(deviations, axis=0))).sum(axis=1) / matrix.n
        return _distinct(eigenvalues, energies / matrix.n, matrix.name)
    if not matrix.is_symmetric:
        raise TopologyError(
            f"the heterogeneity spectrum needs symmetric weights, {matrix.name} has others; use "
            "metrics.neighborhood_heterogeneity(..., hops=10)"
        )
    if matrix.n > spectral.SPECTRUM_LIMIT:
        return _quadrature(matrix, deviations)
    eigenvalues, vectors = scipy.linalg.eigh(matrix.weights.toarray())
    energies = np.square(vectors.T @ deviations).sum(axis=1) / matrix.n
    return _distinct(eigenvalues, energies, matrix.name)


def _distinct(eigenvalues: np.ndarray, energies: np.ndarray, name: str) -> HeterogeneitySpectrum:
    """Return the spectrum with energies of equal eigenvalues added, without a simple eigenvalue 1.

    Deviations from the mean have no energy along the constant vector, whose eigenvalue is 1.
    """
    order = np.lexsort((np.imag(eigenvalues), np.real(eigenvalues), -np.abs(eigenvalues).round(9)))
    eigenvalues, energies = eigenvalues[order], energies[order]
    is_new = np.abs(np.diff(eigenvalues, prepend=np.inf)) > EQUAL
    group = np.cumsum(is_new) - 1
    summed = np.bincount(group, weights=energies)
    kept = (np.abs(eigenvalues[is_new] - 1) > EQUAL) | (np.bincount(group) > 1)
    return HeterogeneitySpectrum(eigenvalues[is_new][kept], summed[kept], name)


def _quadrature(matrix: MixingMatrix, deviations: np.ndarray) -> HeterogeneitySpectrum:
    """Return Gauss nodes and weights of the spectral measure of each column, by Lanczos."""
    nodes, energies = [], []
    for column in deviations.T:
        norm = np.linalg.norm(column)
        if norm == 0:
            continue
        basis, alphas, betas = [column / norm], [], []
        for _ in range(NODES):
            step = matrix @ basis[-1]
            alphas.append(float(basis[-1] @ step))
            for _ in range(2):  # twice is enough for orthogonality up to rounding
                step = step - sum((vector @ step) * vector for vector in basis)
            betas.append(float(np.linalg.norm(step)))
            if betas[-1] < 1e-12:
                break
            basis.append(step / betas[-1])
        values, vectors = scipy.linalg.eigh_tridiagonal(alphas, betas[: len(alphas) - 1])
        nodes.append(values)
        energies.append(vectors[0] ** 2 * norm**2 / matrix.n)
    if not nodes:
        return HeterogeneitySpectrum(np.zeros(1), np.zeros(1), matrix.name, is_exact=False)
    eigenvalues, shares = np.concatenate(nodes), np.concatenate(energies)
    order = np.argsort(-np.abs(eigenvalues), kind="stable")
    return HeterogeneitySpectrum(eigenvalues[order], shares[order], matrix.name, is_exact=False)
