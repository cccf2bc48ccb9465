"""Regression by the mean squared error, and its scores."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from topofl._support.public import public
from topofl.tasks.task import Function, Score, Task, choose_scores

__all__ = ["absolute_error", "r2", "regression", "squared_error"]


@public
def regression(
    scores: Sequence[str | Score | Function] | Mapping[str, Score | Function] = ("mse",),
) -> Task:
    """Return the task of regression by the mean squared error.

    Outputs and targets are numbers of the same shape (b, ...); targets (b,) also match outputs (b,
    1).

    Parameters
    ----------
    scores
        Some of ``"mse"``, ``"mae"`` (the mean absolute error), ``"rmse"`` (the root of ``"mse"``),
        and ``"r2"``, the coefficient of determination, by scikit-learn; or functions, as in
        :func:`topofl.tasks.classification`. The first is the primary one.

    Raises
    ------
    ValueError
        If a score is unknown or given twice, or a function has no name.

    Examples
    --------
    >>> import numpy as np
    >>> import topofl
    >>> from torch import nn
    >>> from topofl import algorithms, data, tasks, topologies
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = x @ [1.0, -2.0, 0.5]
    >>> dataset = data.from_arrays(x, data.binned(y, 5), targets=y, test=0.25)
    >>> clients = data.shards(dataset, n=5, per_node=1, seed=0)  # each node holds a range of y
    >>> history = topofl.run(algorithms.dsgd(lr=0.1), model=nn.Linear(3, 1), clients=clients,
    ...                      topology=topologies.ring(5), rounds=50, seed=0,
    ...                      task=tasks.regression(scores=("mse", "r2")))
    >>> bool((history.last("r2") > 0.99).all())
    True
    """
    known = {
        "mse": Score(squared_error, low_is_good=True),
        "mae": Score(absolute_error, low_is_good=True),
        "rmse": Score(squared_error, low_is_good=True, finish=torch.sqrt),
        "r2": Score(r2, whole=True),
    }
    return Task("regression", squared_error, choose_scores(known, scores), _misfit)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared errors (b,), each the mean over the coordinates of an example."""
    return (outputs.reshape(targets.shape) - targets).square().reshape(len(targets), -1).mean(1)


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the absolute errors (b,), each the mean over the coordinates of an example."""
    return (outputs.reshape(targets.shape) - targets).abs().reshape(len(targets), -1).mean(1)


def r2(outputs: Tensor, targets: Tensor) -> float:
    """Return the coefficient of determination, averaged over coordinates.

    It is NaN for a single example, or if an output is not finite.
    """
    from sklearn.metrics import r2_score

    wanted, given = (x.double().reshape(len(targets), -1).numpy() for x in (targets, outputs))
    return (
        float(r2_score(wanted, given)) if len(wanted) > 1 and np.isfinite(given).all() else np.nan
    )


def _misfit(outputs: Tensor, targets: Tensor) -> str:
    """Return why targets do not have the shape of outputs, or an empty text."""
    single = targets.dim() == 1 and outputs.shape[1:] == (1,)
    if outputs.shape[1:] != targets.shape[1:] and not single:
        each, given = tuple(outputs.shape[1:]), tuple(targets.shape[1:])
        return f"of the shape of the model's outputs, {each} per example, got {given}"
    return ""
