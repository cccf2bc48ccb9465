"""The setting by gossipy: all-to-all gossip, in which all nodes act in the same time step."""

# pyright: reportMissingImports=false

from typing import Any

import protocol  # before the peer, which imports torchvision

# isort: split
import numpy as np
import torch
from gossipy.core import (
    AntiEntropyProtocol,
    CreateModelMode,
    StaticP2PNetwork,
    UniformMixing,
)
from gossipy.model import TorchModel
from gossipy.model.handler import WeightedTMH
from gossipy.node import All2AllGossipNode
from gossipy.simul import All2AllGossipSimulator, SimulationEventReceiver
from torch.nn.utils import parameters_to_vector

STEPS = 100
"""Time steps per round, as in main_all2all.py."""


class Learner(TorchModel):
    """A network that starts from the parameters of the setting."""

    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__()
        self.network = protocol.network(spec)

    def init_weights(self) -> None:
        """Keep the parameters."""

    def forward(self, inputs):
        """Return the outputs of the network."""
        return self.network(protocol.scaled(inputs))


class Uniform(UniformMixing):
    """Uniform weights, also of node 0, for which gossipy takes all nodes for neighbors."""

    def get(self, node_id: int) -> np.ndarray:
        """Return the weights of a node's own model and of its neighbors' models."""
        size = len(self.p2p_net.get_peers(node_id)) + 1
        return np.full(size, 1 / size)


class Data:
    """In place of a dispatcher, gives nodes the examples of the setting; there is no test set."""

    def __init__(self, arrays: protocol.Arrays) -> None:
        self.clients = protocol.clients(arrays)

    def __getitem__(self, node: int) -> tuple[Any, None]:
        return self.clients[node], None

    def has_test(self) -> bool:
        """Return that nothing is evaluated."""
        return False


class Rounds(SimulationEventReceiver):
    """Notes when rounds end."""

    def __init__(self, clock: protocol.Clock) -> None:
        self.clock = clock

    def update_timestep(self, t: int) -> None:
        """Note the time after the last step of a round."""
        if (t + 1) % STEPS == 0:
            self.clock.tick()

    def update_message(self, failed, msg=None) -> None:
        """Ignore messages."""

    def update_evaluation(self, round, on_user, evaluation) -> None:
        """Ignore evaluations."""

    def update_end(self) -> None:
        """Do nothing."""


def main() -> None:
    """Run the setting of the command line, and average with neighbors after the last steps."""
    spec, arrays = protocol.read()
    clock = protocol.Clock()
    given = Data(arrays)
    links = arrays["weights"] > 0
    graph = StaticP2PNetwork(
        spec["n"], topology=(links & ~np.eye(spec["n"], dtype=bool)).astype(int)
    )
    handler = WeightedTMH(
        net=Learner(spec),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": spec["lr"], "weight_decay": spec["decay"]},
        criterion=torch.nn.CrossEntropyLoss(),
        local_epochs=spec["epochs"],
        batch_size=spec["batch"],
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    nodes = All2AllGossipNode.generate(given, graph, handler, STEPS, sync=True)
    for node in nodes.values():
        node.delta = 0
    simulator = All2AllGossipSimulator(nodes, given, STEPS, AntiEntropyProtocol.PUSH)
    simulator.add_receiver(Rounds(clock))
    simulator.init_nodes(spec["seed"])
    simulator.start(Uniform(graph), n_rounds=spec["rounds"])
    learners = [nodes[k].model_handler.model for k in range(spec["n"])]
    vectors = torch.stack([parameters_to_vector(one.parameters()).detach() for one in learners])
    averaged = torch.from_numpy(arrays["weights"]).float() @ vectors
    protocol.report(clock, spec, arrays, averaged)


if __name__ == "__main__":
    main()
