"""Measurements at a model: statistics of gradients, curvature, and seconds of steps."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from topofl._support.check import as_array, check_finite, check_int, shown
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.data.partition import Partition, check_clients
from topofl.tasks import Task, classification

__all__ = [
    "GradientStatistics",
    "curvature",
    "gradient_statistics",
    "step_seconds",
]


MINIBATCHES = 8
"""Default number of minibatches per node."""


@dataclass(frozen=True, eq=False)
class GradientStatistics:
    """Heterogeneity and noise of the nodes' gradients at one model.

    Parameters
    ----------
    means
        (n, d) float64 mean gradient of each node over its minibatches.
    heterogeneity
        ``(1/n) sum_i ||E g_i - mean_j E g_j||^2``, without the part that is noise (at least 0).
    noise
        ``(1/n) sum_i E ||g_i - E g_i||^2``, the variance of minibatch gradients, 0 for minibatches
        of all of a node's examples.
    batch_size, minibatches
        Examples per minibatch, and minibatches per node.

    Examples
    --------
    >>> from topofl import data, metrics, models
    >>> clients = data.shards(data.digits(), n=5, per_node=2, seed=0)
    >>> model = models.logistic_regression(64)
    >>> found = metrics.gradient_statistics(clients, model=model, batch_size=32)
    >>> found.means.shape, bool(found.heterogeneity > 0)
    ((5, 650), True)
    """

    means: np.ndarray
    heterogeneity: float
    noise: float
    batch_size: int
    minibatches: int


@public
def gradient_statistics(
    clients: Partition,
    *,
    model: nn.Module,
    batch_size: int,
    task: Task | None = None,
    minibatches: int = MINIBATCHES,
    seed: int = 0,
) -> GradientStatistics:
    """Return the heterogeneity and the noise of the nodes' gradients at one model.

    Parameters
    ----------
    clients, model, batch_size, task, minibatches, seed
        As in :func:`topofl.metrics.predicted_deviation`. Dropout is off.

    Returns
    -------
    GradientStatistics
        The noise of means over few minibatches is taken off the heterogeneity. The difference
        would be unbiased, but it is 0 where it is negative, so heterogeneity that is small against
        noise is overestimated on average.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or out of range.

    Examples
    --------
    >>> from topofl import data, models
    >>> clients = data.iid(data.digits(), n=5, seed=0)
    >>> found = gradient_statistics(clients, model=models.logistic_regression(64), batch_size=32)
    >>> found.means.shape, bool(found.noise > found.heterogeneity)
    ((5, 650), True)
    """
    check_int("batch_size", batch_size, minimum=1)
    check_int("minibatches", minibatches, minimum=2)
    loss = _checked_loss(model, clients, task)
    module = copy.deepcopy(model).eval()
    parameters = [p for p in module.parameters() if p.requires_grad]
    means, variances = [], []
    for node, examples in enumerate(clients.train):
        rng = stream(seed, "minibatches of gradient statistics", node)
        drawn = (rng.permutation(examples)[:batch_size] for _ in range(minibatches))
        found = (_gradients(module, parameters, loss, clients, indices) for indices in drawn)
        gradients = np.stack([_flat(parts).double().cpu().numpy() for parts in found])
        means.append(gradients.mean(axis=0))
        variances.append(gradients.var(axis=0, ddof=1).sum())
    stacked, noise = np.stack(means), float(np.mean(variances))
    apart = float(np.square(stacked - stacked.mean(axis=0)).sum() / clients.n)
    part_of_noise = noise / minibatches * (1 - 1 / clients.n)
    heterogeneity = max(apart - part_of_noise, 0.0)
    return GradientStatistics(stacked, heterogeneity, noise, batch_size, minibatches)


def check_model(model: Any) -> None:
    """Raise unless a model is a module with trainable parameters."""
    if not isinstance(model, nn.Module) or not any(p.requires_grad for p in model.parameters()):
        raise TypeError(
            f"`model` must be a torch.nn.Module with trainable parameters, got {shown(model)}"
        )


def _checked_loss(model: Any, clients: Any, task: Any) -> Callable[..., Tensor]:
    """Return the loss of the task; raise unless these are a model, data of nodes, and a task."""
    check_clients(clients)
    check_model(model)
    if task is not None and not isinstance(task, Task):
        raise TypeError(f"`task` must be a Task such as tasks.regression(), got {shown(task)}")
    return (classification() if task is None else task).loss


def _gradients(
    module: nn.Module,
    parameters: list[nn.Parameter],
    loss: Callable[..., Tensor],
    clients: Partition,
    indices: np.ndarray,
    shares: np.ndarray | None = None,
) -> tuple[Tensor, ...]:
    """Return the gradients of the mean loss on a minibatch.

    With the share of each example, those of the sum with these, which are differentiable.
    """
    device, dtype = parameters[0].device, parameters[0].dtype
    inputs = clients.dataset.examples(indices, dtype).to(device)
    targets = clients.dataset.learned(dtype)[torch.from_numpy(indices)].to(device)
    try:
        with torch.enable_grad():
            losses = loss(module(inputs), targets)
            if shares is None:
                return torch.autograd.grad(losses.mean(), parameters)
            total = losses @ torch.from_numpy(shares).to(losses)
            return torch.autograd.grad(total, parameters, create_graph=True)
    except RuntimeError as error:
        raise ValueError(
            "`model` must take the inputs of `clients` and give what the task compares, it "
            f"raised {shown(error, 200)}"
        ) from error


def _flat(parts: Sequence[Tensor]) -> Tensor:
    """Return one vector of all numbers."""
    return torch.cat([part.reshape(-1) for part in parts])


EXAMPLES = 512
"""Examples of which second derivatives are taken at a time."""


@public
def curvature(
    clients: Partition,
    directions: GradientStatistics | np.ndarray,
    *,
    model: nn.Module,
    task: Task | None = None,
) -> float:
    """Return the curvature of the loss along directions, ``<V, V A> / ||V||_F^2``.

    A is the Hessian of the mean over nodes of their losses, each on all of a node's examples. Along
    one direction this is the Rayleigh quotient of A; along several, their mean by squared lengths.

    See the page :doc:`How many hops count </docs/concepts/how-many-hops>`.

    Parameters
    ----------
    clients
        The data of the nodes.
    directions
        V, (m, d): a direction in each row, with the trained parameters in the order of
        ``model.parameters()``. Or what :func:`gradient_statistics` has measured: V are the
        deviations of the nodes' gradients from their mean, and the result is the curvature that
        :func:`predicted_deviation` takes. Each direction takes a pass over all examples.
    model, task
        As in :func:`predicted_deviation`. Dropout is off. Derivatives have the precision of the
        model; piecewise linear layers such as ReLU count as linear.

    Returns
    -------
    float
        Negative if the loss curves downward along the directions, as it may for deep networks.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, if `directions` do not fit the model, are not finite or
        are all 0, or if a layer of the model has no second derivative.

    References
    ----------
    Pearlmutter, "Fast exact multiplication by the Hessian" (1994).

    Examples
    --------
    >>> from topofl import data, models
    >>> clients = data.shards(data.digits(), n=5, per_node=2, seed=0)
    >>> model = models.logistic_regression(64)
    >>> found = gradient_statistics(clients, model=model, batch_size=32)
    >>> 0 < curvature(clients, found, model=model) < 10
    True
    """
    loss = _checked_loss(model, clients, task)
    module = copy.deepcopy(model).eval()
    parameters = [p for p in module.parameters() if p.requires_grad]
    measured = isinstance(directions, GradientStatistics)
    if measured and len(directions.means) != clients.n:
        raise ValueError(
            f"`directions` must be gradients of the n={clients.n} nodes of `clients`, got those of "
            f"{len(directions.means)} nodes; measure them with the same clients"
        )
    rows = _checked_directions(directions, sum(p.numel() for p in parameters))
    order = np.concatenate(clients.train)
    shares = np.concatenate([np.full(len(own), 1 / len(own)) for own in clients.train]) / clients.n
    total = 0.0
    for first in range(0, len(order), EXAMPLES):
        some = slice(first, first + EXAMPLES)
        found = _gradients(module, parameters, loss, clients, order[some], shares[some])
        with torch.enable_grad():
            gradient = _flat(found)
        if gradient.requires_grad:  # the loss is not linear
            total += _along(gradient, parameters, rows)
    return total / float(np.square(rows).sum())


def _checked_directions(directions: Any, d: int) -> np.ndarray:
    """Return directions (m, d) as float64, of which the largest entry is 1 or -1, or raise."""
    if isinstance(directions, GradientStatistics):
        directions = directions.means - directions.means.mean(axis=0)
    rows = check_finite("directions", as_array("directions", directions, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != d:
        raise ValueError(
            f"`directions` must have one number for each of the {d} trained parameters of `model` "
            f"in each row, shape (m, {d}), got shape {rows.shape}"
        )
    largest = np.abs(rows).max(initial=0.0)
    if largest == 0:
        raise ValueError(
            "`directions` must have an entry other than 0, got none; where the gradients of all "
            "nodes are equal, such as of a single node, give other directions"
        )
    return rows / largest


def _along(gradient: Tensor, parameters: list[nn.Parameter], rows: np.ndarray) -> float:
    """Return the sum of the second derivatives along rows, of which `gradient` is the first."""
    how: dict[str, Any] = {"retain_graph": True, "materialize_grads": True}
    try:
        return sum(
            float(_flat(torch.autograd.grad(gradient, parameters, row, **how)) @ row)
            for row in (torch.from_numpy(one).to(gradient) for one in rows)
        )
    except RuntimeError as error:
        raise ValueError(
            f"`model` must have second derivatives, it raised {shown(error, 200)}; attention has "
            "them inside torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
        ) from error


FIRST_STEPS = 2
"""Steps before the measurement, which take longer since memory is allocated."""

MOST_STEPS = 10_000


@public
def step_seconds(
    model: nn.Module,
    clients: Partition,
    *,
    batch_size: int,
    task: Task | None = None,
    steps: int = 20,
    seed: int = 0,
) -> float:
    """Return the median wall-clock seconds of one local step of one node on this machine.

    A step gathers a minibatch, computes its gradient and moves the model, by plain PyTorch without
    the batching over nodes of :func:`topofl.run`, as on a machine that hosts a single node. It uses
    the threads that PyTorch is set to and the device of `model`.

    Parameters
    ----------
    model
        The model, which is not changed.
    clients
        Data of the nodes; minibatches are of node 0.
    batch_size
        Examples per minibatch; at most those of the node are used.
    task
        What is learned; default: classification.
    steps
        Number of measured steps, at most 10,000.
    seed
        Seed of the minibatches.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind or out of range.

    Examples
    --------
    >>> from topofl import data, metrics, models
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> model = models.logistic_regression(64)
    >>> seconds = step_seconds(model, clients, batch_size=32, steps=3)
    >>> 0 < seconds < 1
    True
    >>> hardware = metrics.Hardware(compute=seconds, latency=0.02, bandwidth=1.25e6)
    """
    check_int("batch_size", batch_size, minimum=1)
    check_int("steps", steps, minimum=1, maximum=MOST_STEPS)
    check_int("seed", seed, minimum=0)
    loss = _checked_loss(model, clients, task)
    module = copy.deepcopy(model).train()
    parameters = [p for p in module.parameters() if p.requires_grad]
    device = parameters[0].device
    rng = stream(seed, "minibatches of measured steps")
    taken = []
    for _ in range(FIRST_STEPS + steps):
        indices = rng.permutation(clients.train[0])[:batch_size]
        began = time.perf_counter()
        gradients = _gradients(module, parameters, loss, clients, indices)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=1e-6)  # its length does not matter
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - began)
    return median(taken[FIRST_STEPS:])
