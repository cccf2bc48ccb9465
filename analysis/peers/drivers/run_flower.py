"""The setting by Flower: FedAvg in its simulation engine, with a client per core at a time."""

# pyright: reportMissingImports=false

import functools
import json
import os
import sys

import protocol
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy

WORDS = "TOPOFL_PEERS_WORDS"
"""Variable with the command line of the driver, for the processes of clients."""

client = ClientApp()


@functools.cache
def loaded():
    """Return the setting, its network and all clients' data, once per process."""
    spec, arrays = protocol.read(json.loads(os.environ[WORDS]))
    return spec, protocol.network(spec), protocol.clients(arrays)


@client.train()
def train(message, context):
    """Train the server's model on the data of a client, and return it."""
    spec, network, clients = loaded()
    inputs, labels = clients[context.node_config["partition-id"]]
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    keys = {"lr": spec["lr"], "momentum": spec["momentum"], "weight_decay": spec["decay"]}
    optimizer = torch.optim.SGD(network.parameters(), **keys)
    network.train()
    for _ in range(spec["epochs"]):
        for rows in torch.randperm(len(labels)).split(spec["batch"]):
            optimizer.zero_grad()
            cross_entropy(network(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(labels)})
    arrays = ArrayRecord(network.state_dict())
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def main() -> None:
    """Run the setting of the command line."""
    os.environ[WORDS] = json.dumps(sys.argv[1:])
    spec, arrays = protocol.read()
    network = protocol.network(spec)
    clock, server = protocol.Clock(), ServerApp()

    @server.main()
    def serve(grid, context):
        def evaluated(completed, arrays):
            if completed:
                clock.tick()

        strategy = FedAvg(
            fraction_train=spec["cohort"] / spec["n"],
            fraction_evaluate=0.0,
            min_train_nodes=spec["cohort"],
            min_available_nodes=spec["n"],
        )
        start = ArrayRecord(network.state_dict())
        result = strategy.start(grid, start, spec["rounds"], evaluate_fn=evaluated)
        state = result.arrays.to_torch_state_dict()
        vector = torch.cat([state[name].flatten() for name, _ in network.named_parameters()])
        protocol.report(clock, spec, arrays, [vector])  # while the processes of Ray still run

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=spec["n"], backend_config=resources)


if __name__ == "__main__":
    import run_flower  # so that the processes of clients import it, with its cache

    run_flower.main()
