"""Gradient mixing error: how far mixed gradients are from the global mean gradient."""

import numpy as np
import torch

from topofl._support.public import public
from topofl.metrics._rounds import WeightRule, as_mixing
from topofl.metrics.data_fit.gradients import as_float64, check_shape
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError

__all__ = ["gradient_mixing_error"]

CHUNK = 5_000_000
"""Numbers mixed at a time in float64, so that gradients of large models are not copied."""


@public
def gradient_mixing_error(
    x: MixingMatrix | Topology,
    gradients: np.ndarray | torch.Tensor,
    *,
    weights: WeightRule | None = None,
) -> float:
    """Return the gradient mixing error ``(1/n) ||(W - J) G||_F^2`` after one exchange.

    ``G`` holds the nodes' current gradients, and all entries of ``J`` are 1/n, so row i compares
    the weighted gradients that node i receives with the mean over all nodes. The error depends on
    the data: a sparse graph can mix given gradients as well as a dense one.

    Parameters
    ----------
    x
        A MixingMatrix with rows that sum to 1, or a Topology.
    gradients
        (n, d) numpy array or torch tensor, one gradient per row, or any other values that differ
        between nodes.
    weights
        Rule from Topology to MixingMatrix; default: Metropolis-Hastings if undirected, else uniform
        pull.

    Returns
    -------
    float
        At least 0, accumulated in float64: 0 if every neighborhood has the mean gradient. For
        doubly stochastic W at most ``sigma(W)^2`` times its value without communication (W = I),
        the variance of the gradients.

    Raises
    ------
    TopologyError
        If rows of W do not sum to 1.
    TypeError
        If `x` is a sequence, or `gradients` is neither an array nor a tensor of real numbers.
    ValueError
        If `gradients` is not (n, d) with n the number of nodes and d at least 1, or holds NaN or
        infinity.

    Notes
    -----
    It equals :func:`neighborhood_heterogeneity` if the gradients are label shares. The paper's
    normalization may differ, which does not affect comparisons of graphs of equal size.

    References
    ----------
    Dandi, Koloskova, Jaggi and Stich, "Data-heterogeneity-aware mixing for decentralized learning"
    (2022), where the weights are chosen to make the gradient mixing error small.

    Examples
    --------
    >>> from topofl import topologies
    >>> gradients = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    >>> print(f"{gradient_mixing_error(topologies.ring(4), gradients):.4f}")
    0.1111
    """
    matrix = as_mixing(x, weights)
    if not matrix.is_row_stochastic:
        raise TopologyError(
            f"the gradient mixing error needs rows that sum to 1, {matrix.name} is "
            f"{matrix.stochasticity}; use mixing.uniform(topology, direction='pull')"
        )
    check_shape(gradients, matrix.n, matrix.name)
    width = max(1, CHUNK // matrix.n)
    chunks = (
        as_float64(gradients[:, start : start + width])
        for start in range(0, gradients.shape[1], width)
    )
    return (
        sum(float(np.square(matrix @ (chunk - chunk.mean(axis=0))).sum()) for chunk in chunks)
        / matrix.n
    )
