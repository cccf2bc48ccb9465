"""How far models and gradients of nodes are from their means."""

from typing import Any, TypeVar

import numpy as np
import torch

from topofl._support.check import check_finite, check_switch, check_unmasked
from topofl._support.public import public
from topofl.metrics._rounds import WeightRule, as_mixing, check_averaging
from topofl.mixing import MixingMatrix
from topofl.topology import Topology

__all__ = ["consensus_distance", "gradient_mixing_error", "mean_model"]


Models = TypeVar("Models", np.ndarray, torch.Tensor)

NUMBERS = 2**18
"""Numbers converted to float64 at a time; a copy of all models would take too much memory."""


@public
def mean_model(models: Models) -> Models:
    """Return the mean model over nodes, of shape (d,), in float64.

    Parameters
    ----------
    models
        (n, d) numpy array or torch tensor, one model per row. A tensor stays on its device; no
        gradient is recorded.

    Raises
    ------
    TypeError
        If it is neither an array nor a tensor, or does not hold real numbers.
    ValueError
        If it is not (n, d) with n and d at least 1.

    Examples
    --------
    >>> mean_model(np.array([[0.0, 1.0], [2.0, 5.0]]))
    array([1., 3.])
    """
    _check_vectors("models", models)
    return _float64_copy(models).mean(0)


@public
def consensus_distance(models: np.ndarray | torch.Tensor, *, relative: bool = False) -> float:
    """Return the consensus distance of models, ``sqrt((1/n) sum_i ||theta_i - mean||^2)``.

    Parameters
    ----------
    models
        (n, d) numpy array or torch tensor, one model per row; for push-sum the de-biased models. If
        only a part of the model is shared, the columns of that part.
    relative
        Divide by the norm of the mean model.

    Returns
    -------
    float
        At least 0, accumulated in float64; 0 exactly if all models are equal. NaN if a model holds
        NaN or infinity.

    Raises
    ------
    TypeError
        As :func:`mean_model`.
    ValueError
        As :func:`mean_model`; and if `relative` is requested for models whose mean is 0.

    References
    ----------
    Kong, Lin, Koloskova, Jaggi and Stich, "Consensus control for decentralized deep learning"
    (2021), section 3.

    Examples
    --------
    >>> consensus_distance(np.array([[0.0, 0.0], [6.0, 8.0]]))
    5.0
    >>> consensus_distance(np.array([[0.0, 0.0], [6.0, 8.0]]), relative=True)
    1.0
    """
    _check_vectors("models", models)
    squares: Any = 0.0
    norms: Any = 0.0
    columns = max(1, NUMBERS // len(models))
    for start in range(0, models.shape[1], columns):
        more = _squared_sums(models[:, start : start + columns])
        squares = squares + more[0]
        norms = norms + more[1]
    if isinstance(squares, torch.Tensor):
        squares, norms = torch.stack([squares, norms]).tolist()  # synchronizes the device once
    distance = (squares / len(models)) ** 0.5
    if not check_switch("relative", relative, auto=False):
        return distance
    if np.isinf(norms) and np.isfinite(distance):
        raise ValueError(
            "`models` must be below 1e154 for a relative distance, since float64 holds no larger "
            "squares"
        )
    if norms == 0:
        raise ValueError(
            "`models` must have a mean other than 0 for a relative distance; use relative=False"
        )
    return distance / norms**0.5


def _squared_sums(block: Any) -> tuple[Any, Any]:
    """Return the sums of squared deviations from the mean, and of the squared mean."""
    differences = _float64_copy(block)
    first = _float64_copy(block[0])
    # Values beyond 1e308 become infinite, as in torch. Differences from the first model are
    # exactly 0 for equal models, whose computed mean may be off by rounding.
    with np.errstate(over="ignore", invalid="ignore"):
        differences -= first
        mean_difference = differences.mean(0)
        differences -= mean_difference
        differences *= differences
        sums = differences.sum(), ((first + mean_difference) ** 2).sum()
        return sums if isinstance(block, torch.Tensor) else (float(sums[0]), float(sums[1]))


def _float64_copy(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return values.detach().to(torch.float64, copy=True)
    return values.astype(np.float64)


def _check_vectors(argument: str, vectors: Any, n: int | None = None, name: str = "") -> None:
    """Raise unless these are an array or a tensor (n, d) of real numbers; `name` is the graph's."""
    if not isinstance(vectors, np.ndarray | torch.Tensor):
        raise TypeError(
            f"`{argument}` must be a numpy array or a torch tensor, got {type(vectors).__name__}"
        )
    check_unmasked(argument, vectors)
    is_tensor = isinstance(vectors, torch.Tensor)
    if is_tensor and (vectors.layout != torch.strided or vectors.is_meta):
        raise TypeError(
            f"`{argument}` must be a dense tensor with values, got {vectors.layout} on "
            f"{vectors.device}"
        )
    if vectors.is_complex() if is_tensor else vectors.dtype.kind not in "buif":
        raise TypeError(f"`{argument}` must hold real numbers, got dtype {vectors.dtype}")
    if vectors.ndim != 2 or 0 in vectors.shape or n not in (None, len(vectors)):
        got = tuple(vectors.shape)
        raise ValueError(
            f"`{argument}` must have shape (n, d), one {argument[:-1]} per row"
            + (f": got {got}, {name} has n={n}" if name else f", got {got}")
        )


def check_gradients(gradients: Any, n: int, name: str) -> np.ndarray:
    """Return gradients (n, d) as float64, or raise; `name` is the graph's."""
    _check_vectors("gradients", gradients, n, name)
    return _as_float64(gradients)


def _as_float64(chunk: np.ndarray | torch.Tensor) -> np.ndarray:
    """Return gradients as a float64 array on the CPU; raise ``ValueError`` for NaN or infinity."""
    if isinstance(chunk, torch.Tensor):
        chunk = chunk.detach().to(device="cpu", dtype=torch.float64).numpy()
    return check_finite("gradients", chunk.astype(np.float64))


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
    check_averaging("the gradient mixing error needs", matrix)
    _check_vectors("gradients", gradients, matrix.n, matrix.name)
    width = max(1, CHUNK // matrix.n)
    total = 0.0
    for start in range(0, gradients.shape[1], width):
        chunk = _as_float64(gradients[:, start : start + width])
        total += float(np.square(matrix @ (chunk - chunk.mean(axis=0))).sum())
    return total / matrix.n
