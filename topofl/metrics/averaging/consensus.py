"""Consensus distance: the spread of the nodes' models around their mean."""

from typing import Any, TypeVar

import numpy as np
import torch

from topofl._support.check import check_switch, check_unmasked
from topofl._support.public import public

__all__ = ["consensus_distance", "mean_model"]

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
    return _as_float64(models).mean(0)


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
    _check_model_matrix(models)
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


def _as_float64(models: Any) -> Any:
    _check_model_matrix(models)
    if isinstance(models, torch.Tensor):
        return models.detach().to(torch.float64)
    return models.astype(np.float64)


def _float64_copy(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return values.detach().to(torch.float64, copy=True)
    return values.astype(np.float64)


def _check_model_matrix(models: Any) -> None:
    if not isinstance(models, np.ndarray | torch.Tensor):
        raise TypeError(
            f"`models` must be a numpy array or a torch tensor, got {type(models).__name__}"
        )
    check_unmasked("models", models)
    if isinstance(models, torch.Tensor) and (models.layout != torch.strided or models.is_meta):
        raise TypeError(
            f"`models` must be a dense tensor with values, got {models.layout} on {models.device}"
        )
    if models.ndim != 2 or 0 in models.shape:
        raise ValueError(
            f"`models` must have shape (n, d), one model per row, got {tuple(models.shape)}"
        )
    is_real = (
        not models.is_complex() if isinstance(models, torch.Tensor) else models.dtype.kind in "buif"
    )
    if not is_real:
        raise TypeError(f"`models` must hold real numbers, got dtype {models.dtype}")
