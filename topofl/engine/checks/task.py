"""Checks that task, model and targets of a run fit each other, before any work is done."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from topofl._support.callers import warn_caller
from topofl.algorithms.contract.phase import Algorithm
from topofl.data import Dataset
from topofl.engine.evaluation import CLASSIFICATION
from topofl.engine.gradients import is_linear
from topofl.tasks import Function, Task, cross_entropy

__all__ = ["as_task", "check_task", "check_voters"]


def as_task(task: Any) -> Task:
    """Return the task of a run, classification for None; raise ``TypeError`` for other types.

    Examples
    --------
    >>> as_task(None).name
    'classification'
    """
    if task is not None and not isinstance(task, Task):
        raise TypeError(
            f"`task` must be a Task such as topofl.tasks.regression(), got {type(task).__name__}"
        )
    return CLASSIFICATION if task is None else task


def check_voters(algorithm: Algorithm, task: Task) -> None:
    """Raise ``ValueError`` if nearest neighbors vote for classes and the task has none."""
    if algorithm.neighbors is not None and task.loss is not cross_entropy:
        raise ValueError(
            f"`task` must be classification for {algorithm.name}, in whose evaluation nearest "
            f"neighbors vote for classes, got {task.name}; choose another algorithm"
        )


def check_task(module: nn.Module, inputs: Tensor, dataset: Dataset, task: Task) -> None:
    """Check a task on the outputs of the model for a few examples.

    Parameters
    ----------
    module, inputs
        The model, and at most two examples as its inputs.
    dataset
        The dataset of the run.
    task
        The task of the run.

    Raises
    ------
    ValueError
        If the targets do not fit the outputs; if the loss is not one number per example, depends on
        other examples, is not finite or cannot be differentiated; if a score per example does not
        return as many numbers.
    """
    _check_ids(module, inputs, dataset)
    outputs = module(inputs)
    targets = dataset.learned(inputs.dtype if inputs.is_floating_point() else _dtype(module))
    if is_linear(module) and outputs.dim() != 2:
        raise ValueError(
            "`model` must be more than one nn.Linear for examples of shape "
            f"{tuple(inputs.shape[1:])}, to which it is applied position by position; use "
            "nn.Sequential(linear, nn.Identity())"
        )
    if task.misfit is not None and (why := task.misfit(outputs.detach().cpu(), targets)):
        raise ValueError(
            f"`targets` must be {why}, in the task {task.name}; change the targets or the model's "
            "last layer, or give run another task, e.g. task=topofl.tasks.regression()"
        )
    # cloned, since the targets may have been created in inference mode
    sample = targets[: len(inputs)].to(outputs.device).clone()
    losses = _numbers("a loss", task.loss, outputs, sample)
    _check_differentiable(module, losses)
    if bool(torch.isfinite(outputs).all()) and not bool(torch.isfinite(losses).all()):
        raise ValueError(
            f"`task` must have a finite loss for finite outputs, got {losses.tolist()}; check its "
            "logarithms"
        )
    losses = losses.detach()
    alone = _numbers("a loss", task.loss, outputs[:1], sample[:1]).detach()
    if not torch.allclose(alone, losses[:1], rtol=1e-2, atol=1e-3, equal_nan=True):
        raise ValueError(
            "`task` must have a loss that does not depend on other examples, got "
            f"{float(alone[0]):g} for an example alone and {float(losses[0]):g} for it in a batch "
            "of two; remove terms that compare examples"
        )
    for name, score in task.reported.items():
        if not score.whole:
            _numbers(f"{name!r}", score.function, outputs.detach(), sample)
    _warn_of_probabilities(outputs.detach(), task)


def _dtype(module: nn.Module) -> torch.dtype:
    return next(module.parameters()).dtype


def _check_ids(module: nn.Module, inputs: Tensor, dataset: Dataset) -> None:
    """Raise ``ValueError`` if a model cannot take the largest integer input of the dataset."""
    if inputs.is_floating_point():
        return
    row = int(dataset.inputs.flatten(1).amax(1).argmax())
    try:
        with torch.no_grad():
            module(dataset.inputs[row : row + 1].to(inputs.device))
    except (IndexError, RuntimeError) as error:
        raise ValueError(
            f"`model` cannot take example {row}, which holds the largest id, "
            f"{int(dataset.inputs[row].max())}: {error}; enlarge its embedding to one more than "
            "that"
        ) from error


def _numbers(what: str, function: Function, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the values (b,) of a loss or score per example; raise ``ValueError`` if wrong."""
    try:
        found = function(outputs, targets)
    except Exception as error:  # whatever the user's function raises
        raise ValueError(
            f"`task` must have {what} for outputs of shape {tuple(outputs.shape)} and targets of "
            f"shape {tuple(targets.shape)} and {targets.dtype}, got {type(error).__name__}: "
            f"{error}; check its arguments"
        ) from error
    if not isinstance(found, Tensor) or found.shape != outputs.shape[:1] or found.is_complex():
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        remedy = (
            "take means over the numbers of an example, but not over examples (reduction='none')"
        )
        if isinstance(found, np.ndarray):
            got, remedy = f"a numpy array of shape {found.shape}", "return a tensor"
        raise ValueError(
            f"`task` must have {what} per example, shape (b,)=({len(outputs)},), got {got}; "
            f"{remedy}"
        )
    return found


def _check_differentiable(module: nn.Module, losses: Tensor) -> None:
    why = f"got {losses.dtype} with requires_grad={losses.requires_grad}"
    if losses.is_floating_point() and losses.requires_grad:
        try:
            torch.autograd.grad(losses.sum(), list(module.parameters()), allow_unused=True)
            return
        except RuntimeError as error:
            why = f"got {str(error).partition(chr(10))[0]}"
    raise ValueError(
        f"`task` must have a loss that can be differentiated, {why}; compute it by torch functions "
        "of the outputs, neither rounded nor detached"
    )


def _warn_of_probabilities(outputs: Tensor, task: Task) -> None:
    """Warn if the task takes a softmax of probabilities, which makes training slow."""
    if not task.logits or outputs.shape[-1] < 2:
        return
    tolerance = 100 * torch.finfo(outputs.dtype).eps
    ones = torch.allclose(
        outputs.sum(-1), torch.ones_like(outputs.sum(-1)), rtol=tolerance, atol=tolerance
    )
    if bool((outputs >= 0).all()) and ones:
        warn_caller(
            f"`model` returns probabilities, as by a final nn.Softmax, but the task {task.name} "
            "applies a softmax itself, so that training is slow; remove that layer, so that the "
            "model returns logits"
        )
