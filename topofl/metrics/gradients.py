"""Measurements at a model: statistics of gradients, predicted deviation, seconds of steps."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from topofl._support.check import check_choice, check_int, shown
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.data.partition import Partition, check_clients
from topofl.metrics._rounds import Mixable, WeightRule
from topofl.metrics.hops import HOPS, accumulated_noise, check_hops, neighborhood_heterogeneity
from topofl.metrics.labels import label_spread
from topofl.tasks import Task, classification

__all__ = [
    "GradientStatistics",
    "PredictedDeviation",
    "gradient_statistics",
    "predicted_deviation",
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


@dataclass(frozen=True)
class PredictedDeviation:
    """Prediction of nodes' squared deviation from the mean model, per squared learning rate.

    Parameters
    ----------
    value
        ``zeta2 * heterogeneity + (sigma2 / batch_size) * noise``.
    heterogeneity, noise
        H_K and N_K of the graph.
    zeta2
        Squared heterogeneity of gradients per squared heterogeneity of label shares.
    sigma2
        `batch_size` times the variance of minibatch gradients: the variance of the gradient of one
        example if minibatches are small against the nodes' data. Minibatches are drawn without
        replacement, and nodes with fewer examples take all of theirs, so it is less for large ones.
    batch_size
        Examples per minibatch.
    hops
        K.

    Examples
    --------
    >>> found = PredictedDeviation(
    ...     value=2.5, heterogeneity=0.5, noise=1.0, zeta2=4.0, sigma2=4.0, batch_size=8, hops=10
    ... )
    >>> found.zeta2 * found.heterogeneity + found.sigma2 / found.batch_size * found.noise
    2.5
    >>> float(found)
    2.5
    """

    value: float
    heterogeneity: float
    noise: float
    zeta2: float
    sigma2: float
    batch_size: int
    hops: int | str

    def __float__(self) -> float:
        return self.value


@public
def predicted_deviation(
    x: Mixable,
    clients: Partition,
    *,
    model: nn.Module | None = None,
    batch_size: int | None = None,
    statistics: GradientStatistics | None = None,
    hops: int | str = HOPS,
    task: Task | None = None,
    by: str = "labels",
    minibatches: int | None = None,
    seed: int = 0,
    rounds: int | None = None,
    weights: WeightRule | None = None,
) -> PredictedDeviation:
    """Return the predicted deviation of nodes from their mean model, with nothing fitted.

    ``zeta^2 H_K + (sigma^2 / batch) N_K``: the models of D-SGD deviate from their mean by ``-lr
    sum_k (W^k - J) g_k`` with the gradients g_k of k rounds ago. If their heterogeneity has the
    same distribution over the nodes in all rounds, in directions that are unrelated from round to
    round, it contributes the first term; minibatch noise contributes the second. Both scales are
    measured at one model.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a sequence of either, or a History.
    clients
        The data of the nodes.
    model
        The model at which gradients are measured, such as the initial one. It is not changed.
    batch_size
        Examples per minibatch; nodes with fewer take all of theirs.
    statistics
        What :func:`gradient_statistics` has measured for these clients, in place of `model`,
        `batch_size`, `task` and `minibatches`, which are refused with it; spares the measurement
        for every further graph.
    hops
        K, or ``"inf"``; few hops predict early deviations, more hops late ones.
    task
        What is learned; default: classification.
    by
        ``"labels"``: H_K of label shares times ``zeta^2``, the heterogeneity of gradients over that
        of label shares. ``"gradients"``: H_K of the measured gradients themselves, for regression
        too; then ``zeta2`` is 1.
    minibatches, seed
        Minibatches per node, at least 2 (default 8), and the seed with which they are drawn.
    rounds, weights
        As in :func:`topofl.metrics.accumulated_noise`.

    Returns
    -------
    PredictedDeviation
        Its ``value`` is in squared units of the model's parameters per squared learning rate, and
        ranks graphs for the same clients and model.

    Raises
    ------
    TopologyError
        As :func:`topofl.metrics.accumulated_noise`.
    TypeError, ValueError
        If an argument is of another kind or out of range, the numbers of nodes differ, neither
        `statistics` nor `model` with `batch_size` is given, or `statistics` is given together with
        what would be measured.

    References
    ----------
    The decomposition is derived in topofl's documentation ("What predicts convergence").

    Examples
    --------
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=20, per_node=2, seed=0)
    >>> model = models.logistic_regression(64)
    >>> ring, torus = (
    ...     predicted_deviation(graph, clients, model=model, batch_size=16)
    ...     for graph in (topologies.ring(20), topologies.torus(20))
    ... )
    >>> float(torus) < float(ring)
    True

    For many graphs, measure gradients once:

    >>> found = gradient_statistics(clients, model=model, batch_size=16)
    >>> again = predicted_deviation(topologies.ring(20), clients, statistics=found)
    >>> float(again) == float(ring)
    True
    """
    hops, by = check_hops(hops), check_choice("by", by, ["labels", "gradients"])
    measured = {"model": model, "batch_size": batch_size, "task": task, "minibatches": minibatches}
    given = {name: value for name, value in measured.items() if value is not None}
    found = _statistics(statistics, clients, given, seed)
    noise = accumulated_noise(x, hops, rounds=rounds, weights=weights, seed=seed)
    of = {"hops": hops, "rounds": rounds, "weights": weights}
    if by == "labels":
        spread = label_spread(clients)
        zeta2 = found.heterogeneity / spread if spread > 0 else 0.0
        heterogeneity = neighborhood_heterogeneity(x, clients, **of)
    else:
        zeta2 = 1.0
        of_gradients = neighborhood_heterogeneity(x, gradients=found.means, **of)
        heterogeneity = max(of_gradients - found.noise / found.minibatches * noise, 0.0)
    return PredictedDeviation(
        value=zeta2 * heterogeneity + found.noise * noise,
        heterogeneity=heterogeneity,
        noise=noise,
        zeta2=zeta2,
        sigma2=found.noise * found.batch_size,
        batch_size=found.batch_size,
        hops=hops,
    )


def _statistics(
    statistics: Any, clients: Partition, measured: dict[str, Any], seed: int
) -> GradientStatistics:
    """Return the given statistics, or measure them with these arguments; raise for both."""
    if statistics is None:
        missing = [name for name in ("model", "batch_size") if name not in measured]
        if len(missing) == 2:
            raise ValueError(
                "`statistics`, or `model` and `batch_size`, must be given, got none: pass what "
                "gradient_statistics(...) returns, or the model at which it is to be measured"
            )
        if missing:
            given = "model" if missing == ["batch_size"] else "batch_size"
            raise ValueError(f"`{missing[0]}` must be given with `{given}`, got None")
        return gradient_statistics(clients, **measured, seed=seed)
    if not isinstance(statistics, GradientStatistics):
        raise TypeError(
            "`statistics` must be what gradient_statistics(...) returns, got "
            f"{type(statistics).__name__}"
        )
    if measured:
        raise ValueError(
            f"`{next(iter(measured))}` must be left out with `statistics`, which were measured "
            "before; or leave out `statistics` to measure them again"
        )
    check_clients(clients)
    if len(statistics.means) != clients.n:
        raise ValueError(
            f"`statistics` must be of the {clients.n} nodes of `clients`, got those of "
            f"{len(statistics.means)}; measure them with gradient_statistics(clients, ...)"
        )
    return statistics


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
        As in :func:`predicted_deviation`. Dropout is off.

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
        vectors = (torch.cat([part.reshape(-1) for part in parts]) for parts in found)
        gradients = np.stack([vector.double().cpu().numpy() for vector in vectors])
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
) -> tuple[Tensor, ...]:
    """Return the gradients of the mean loss on a minibatch."""
    inputs = clients.dataset.examples(indices).to(parameters[0].device)
    targets = clients.dataset.learned()[torch.from_numpy(indices)].to(inputs.device)
    with torch.enable_grad():
        return torch.autograd.grad(loss(module(inputs), targets).mean(), parameters)


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
        try:
            gradients = _gradients(module, parameters, loss, clients, indices)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.sub_(gradient, alpha=1e-6)  # its length does not matter
        except RuntimeError as error:
            raise ValueError(
                "`model` must take the inputs of `clients` and give what the task compares, it "
                f"raised {shown(error, 200)}"
            ) from error
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - began)
    return median(taken[FIRST_STEPS:])
