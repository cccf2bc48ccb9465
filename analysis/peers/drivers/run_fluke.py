"""The setting by fluke: FedAvg."""

# pyright: reportMissingImports=false

from typing import Any

import protocol  # before the peer, which imports torchvision

# isort: split
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import FastDataLoader
from fluke.utils import FederationObserver
from torch.nn.utils import parameters_to_vector


class Clients:
    """In place of a splitter of fluke, gives clients the examples of the setting."""

    def __init__(self, arrays: protocol.Arrays) -> None:
        self.arrays = arrays

    def assign(self, n_clients: int, batch_size: int) -> tuple[Any, None]:
        """Return training sets and no test sets, and no test set of the server."""
        how: dict[str, Any] = {"shuffle": True, "transforms": protocol.scaled}
        sets = [
            FastDataLoader(*pair, num_labels=10, batch_size=batch_size, **how)
            for pair in protocol.clients(self.arrays)
        ]
        return (sets, [None] * n_clients), None


class Rounds(FederationObserver):
    """Notes when rounds end."""

    def __init__(self, clock: protocol.Clock) -> None:
        super().__init__()
        self.clock = clock

    def end_round(self, round: int) -> None:
        """Note the time."""
        self.clock.tick()


def main() -> None:
    """Run the setting of the command line."""
    spec, arrays = protocol.read()
    environment = FlukeENV()
    environment.set_seed(spec["seed"])
    environment.set_device("cpu")
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    clock = protocol.Clock()
    optimizer = {"lr": spec["lr"], "momentum": spec["momentum"], "weight_decay": spec["decay"]}
    client = {
        "batch_size": spec["batch"],
        "local_epochs": spec["epochs"],
        "loss": "CrossEntropyLoss",
        "persistency": False,  # momentum starts anew in each round
        "optimizer": optimizer,
        "scheduler": {"gamma": 1, "step_size": 1},
    }
    network = protocol.network(spec)
    settings = DDict(client=client, server={"weighted": True}, model=network)
    federation = FedAVG(spec["n"], Clients(arrays), settings)
    federation.set_callbacks([Rounds(clock)])
    federation.run(spec["rounds"], spec["cohort"] / spec["n"], finalize=False)
    vector = parameters_to_vector(federation.server.model.parameters()).detach()
    protocol.report(clock, spec, arrays, [vector])


if __name__ == "__main__":
    main()
