"""Seconds of one local step, measured on this machine."""

import copy
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from topofl._support.check import check_int, shown
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl.data.partition import Partition
from topofl.metrics.hops.deviation import check_model_and_clients
from topofl.tasks import Task, classification

__all__ = ["step_seconds"]

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
    check_model_and_clients(model, clients, task)
    module = copy.deepcopy(model).train()
    loss = (classification() if task is None else task).loss
    parameters = [p for p in module.parameters() if p.requires_grad]
    device = parameters[0].device
    rng = stream(seed, "minibatches of measured steps")
    taken = []
    for _ in range(FIRST_STEPS + steps):
        indices = rng.permutation(clients.train[0])[:batch_size]
        began = time.perf_counter()
        try:
            _step(module, parameters, loss, clients, indices)
        except RuntimeError as error:
            raise ValueError(
                "`model` must take the inputs of `clients` and give what the task compares, it "
                f"raised {shown(error, 200)}"
            ) from error
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - began)
    return median(taken[FIRST_STEPS:])


def _step(
    module: nn.Module,
    parameters: list[nn.Parameter],
    loss: Callable[..., Tensor],
    clients: Partition,
    indices: np.ndarray,
) -> None:
    """Take one step of SGD; its length does not matter for its duration."""
    inputs = clients.dataset.examples(indices).to(parameters[0].device)
    targets = clients.dataset.learned()[torch.from_numpy(indices)].to(inputs.device)
    with torch.enable_grad():
        mean = loss(module(inputs), targets).mean()
    gradients = torch.autograd.grad(mean, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(gradient, alpha=1e-6)
