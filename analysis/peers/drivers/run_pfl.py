"""The setting by pfl-research: FedAvg in its simulated backend."""

# pyright: reportMissingImports=false

import itertools
from functools import partial

import numpy as np
import protocol
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.dataset import Dataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector


class Learner(nn.Module):
    """A network with what pfl asks for; nothing is evaluated during training."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs, targets, eval=False):
        """Return the mean loss of a batch in training."""
        self.train()
        return cross_entropy(self.network(inputs), targets)

    def metrics(self, inputs, targets, eval=False):
        """Return a number that costs nothing."""
        return {"examples": Weighted(0, len(inputs))}


class Rounds(TrainingProcessCallback):
    """Notes when rounds end."""

    def __init__(self, clock: protocol.Clock) -> None:
        self.clock = clock

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Note the time, and go on."""
        self.clock.tick()
        return False, Metrics()


def main() -> None:
    """Run the setting of the command line."""
    spec, arrays = protocol.read()
    clock = protocol.Clock()
    users = protocol.clients(arrays)
    network = protocol.network(spec)
    sgd = partial(torch.optim.SGD, momentum=spec["momentum"], weight_decay=spec["decay"])
    learner = Learner(network)
    central = torch.optim.SGD(learner.parameters(), lr=1.0)
    model = PyTorchModel(learner, local_optimizer_create=sgd, central_optimizer=central)

    def dataset_of(user):
        inputs, labels = users[user]
        return Dataset((protocol.scaled(inputs), labels), user_id=user)

    # get_user_sampler("random") may draw a user twice in a round
    cohorts = (np.random.permutation(spec["n"])[: spec["cohort"]] for _ in itertools.count())  # noqa: NPY002
    dataset = FederatedDataset(dataset_of, itertools.chain.from_iterable(cohorts).__next__)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=spec["rounds"],
            evaluation_frequency=10**9,
            train_cohort_size=spec["cohort"],
            val_cohort_size=0,
        ),
        SimulatedBackend(dataset, dataset, [WeightByUser()]),
        model,
        NNTrainHyperParams(
            local_learning_rate=spec["lr"],
            local_num_epochs=spec["epochs"],
            local_batch_size=spec["batch"],
        ),
        callbacks=[Rounds(clock)],
    )
    vector = parameters_to_vector(network.parameters()).detach()
    protocol.report(clock, spec, arrays, [vector])


if __name__ == "__main__":
    main()
