"""The setting by Flower: FedAvg in its simulation engine, with a client per core at a time."""

# pyright: reportMissingImports=false

import functools
import json
import os
import sys
from pathlib import Path

import protocol
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy

WORDS = "TOPOFL_PEERS_WORDS"
"""Variable with the setting and the folder of clients' data, for the processes of clients."""

client = ClientApp()


@functools.cache
def loaded():
    """Return the setting, its network and the folder of clients' data, once per process."""
    spec, folder = json.loads(os.environ[WORDS])
    return spec, protocol.network(spec), Path(folder)


@client.train()
def train(message, context):
    """Train the server's model on the data of a client, and return it."""
    spec, network, folder = loaded()
    inputs, labels = torch.load(folder / f"{context.node_config['partition-id']}.pt")
    inputs = protocol.scaled(inputs)
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
    spec, arrays = protocol.read()
    folder = Path(sys.argv[2]).parent
    os.environ[WORDS] = json.dumps([spec, str(folder)])
    for k, pair in enumerate(protocol.clients(arrays)):
        torch.save(pair, folder / f"{k}.pt")
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
