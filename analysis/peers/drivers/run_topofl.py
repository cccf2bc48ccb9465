"""The setting by topofl."""

from typing import Any

import protocol
import torch
from torch import nn

import topofl
from topofl import algorithms, data, mixing, tasks


class Quadratic(nn.Module):
    """The point x, at which inputs, a matrix A and a vector b in a row, give 1/2 x'Ax + b'x."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(d))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return a value for each row."""
        d = len(self.x)
        products = (inputs[:, :-d].unflatten(1, (d, d)) * self.x).sum(2)
        return ((products / 2 + inputs[:, -d:]) * self.x).sum(1)


def task_of(spec: dict[str, Any], arrays: protocol.Arrays) -> tuple[nn.Module, Any, dict[str, Any]]:
    """Return the model, the dataset, and what else a run takes."""
    if spec["model"]:
        scale: dict[str, Any] = {"mean": 0.5, "std": 0.25} if arrays["x"].dtype == "uint8" else {}
        return protocol.network(spec), data.from_arrays(arrays["x"], arrays["y"], **scale), {}
    n, d = arrays["vectors"].shape
    rows = torch.from_numpy(arrays["matrices"]).flatten(1)
    inputs = torch.cat([rows, torch.from_numpy(arrays["vectors"])], 1)
    dataset = data.from_arrays(inputs, targets=torch.zeros(n))
    values = tasks.Task("values", lambda outputs, _: outputs, {})
    exact = topofl.Compute(dtype=torch.float64)
    return Quadratic(d), dataset, {"task": values, "compute": exact}


def algorithm_of(spec: dict[str, Any]) -> algorithms.Algorithm:
    """Return FedAvg, or D-SGD with local steps or epochs."""
    how = {key: spec[key] for key in ("lr", "momentum")} | {"batch_size": spec["batch"]}
    how |= {"weight_decay": spec["decay"], "epochs": spec["epochs"] or None}
    if spec["cohort"]:
        return algorithms.fedavg(participation=spec["cohort"], **how)
    return algorithms.chain("d-sgd", local=algorithms.sgd(**how), exchange=algorithms.gossip())


def main() -> None:
    """Run the setting of the command line."""
    spec, arrays = protocol.read()
    clock = protocol.Clock()
    model, dataset, options = task_of(spec, arrays)
    if not spec["cohort"]:
        weights = mixing.MixingMatrix(arrays["weights"])
        graph = topofl.as_topology(arrays["weights"] > 0, drop_self_loops=True)
        options |= {"topology": graph, "mixing": weights}
    history = topofl.run(
        algorithm_of(spec),
        model=model,
        clients=data.Partition(dataset, list(arrays["owned"])),
        rounds=spec["rounds"],
        seed=spec["seed"],
        init="given",
        evaluation=topofl.Evaluation(every=spec["rounds"], on=()),
        callbacks=[lambda event: clock.tick() if event.kind == "round" else None],
        progress=False,
        **options,
    )
    count = 1 if spec["cohort"] else spec["n"]
    models: Any = history.models
    states = [models.state_dict(node) for node in range(count)]
    vectors = [
        torch.cat([state[k].flatten() for k, _ in model.named_parameters()]) for state in states
    ]
    protocol.report(clock, spec, arrays, vectors)


if __name__ == "__main__":
    main()
