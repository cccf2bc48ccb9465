"""The self-test of ``topofl doctor``: D-SGD on embedded data, by topofl and by numpy."""

import numpy as np
import torch

import topofl
from topofl import algorithms, data, models, topologies
from topofl.data import Partition

__all__ = ["NODES", "ROUNDS", "losses"]

NODES, ROUNDS, LR = 6, 10, 0.5


def losses() -> tuple[np.ndarray, np.ndarray]:
    """Return the final test losses of all nodes, by topofl and by a loop in numpy.

    Nodes on a ring train logistic regression on all of their examples in every round, from zero.
    Hence the result depends on no random numbers, apart from those of the partition.

    Examples
    --------
    >>> ours, reference = losses()
    >>> bool(np.abs(ours - reference).max() < 1e-4), bool(reference.max() < np.log(10))
    (True, True)
    """
    clients = data.shards(data.digits(), n=NODES, per_node=2, seed=0)
    model = models.logistic_regression(64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    history = topofl.run(
        algorithms.dsgd(lr=LR, batch_size=int(clients.sizes.max())),
        model=model,
        clients=clients,
        topology=topologies.ring(NODES),
        rounds=ROUNDS,
        evaluation=ROUNDS,
        init="given",
        seed=0,
        progress=False,
    )
    return np.asarray(history.last("loss")), _reference(clients)


def _reference(clients: Partition) -> np.ndarray:
    """Return the losses of D-SGD in float64: a gradient step, then the mean with two neighbors."""
    dataset = clients.dataset
    inputs = dataset.inputs.flatten(1).double().numpy()
    inputs = np.hstack([inputs, np.ones((len(inputs), 1))])  # a last weight for the bias
    classes = np.eye(10)[dataset.labels.numpy()]
    weights = np.zeros((NODES, inputs.shape[1], 10))
    for _ in range(ROUNDS):
        for node, own in enumerate(clients.train):
            errors = _softmax(inputs[own] @ weights[node]) - classes[own]
            weights[node] -= LR * inputs[own].T @ errors / len(own)
        weights = (weights + np.roll(weights, 1, axis=0) + np.roll(weights, -1, axis=0)) / 3
    likelihoods = _softmax(inputs[dataset.test] @ weights)  # (node, example, class)
    return -np.log((likelihoods * classes[dataset.test]).sum(2)).mean(1)


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
