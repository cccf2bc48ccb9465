"""What drivers share: the setting that they read, its network, the clock, and the printed result.

A driver runs in the environment of its peer, as ``python run_PEER.py SPEC FILE`` with a setting as
JSON and its arrays in an ``.npz`` file, and prints a line of JSON after the word RESULT.
"""

import importlib.util
import json
import random
import sys
import time
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

if importlib.util.find_spec("torchvision") is None:
    for part in ("", ".datasets", ".models", ".transforms"):  # imported by peers, used by none
        name = f"torchvision{part}"
        sys.modules[name] = MagicMock(__spec__=ModuleSpec(name, None))

Arrays = dict[str, np.ndarray]
SCORED = 100
"""Models of gossip that are scored at most, evenly spaced among the nodes."""


def read() -> tuple[dict[str, Any], Arrays]:
    """Return the fields and the arrays of the setting on the command line."""
    text, file_of_arrays = sys.argv[1:]
    spec = json.loads(text)
    random.seed(spec["seed"])
    np.random.seed(spec["seed"])  # noqa: NPY002 (peers draw from it)
    with np.load(file_of_arrays) as file:
        return spec, dict(file)


def network(spec: dict[str, Any]) -> Any:
    """Return the network with the parameters from which a run with the seed of a setting starts."""
    import torch
    from torch import nn

    torch.manual_seed(spec["seed"])
    if spec["model"] == "cnn":
        convolutions = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
        pooled = [nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()]
        dense = [nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)]
        made = nn.Sequential(*convolutions, *pooled, *dense)
        for layer in made:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
        return made
    widths = [int(width) for width in spec["model"].split("-")]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def scaled(inputs: Any) -> Any:
    """Return a tensor of inputs as floats, of which bytes x become (x / 255 - 0.5) / 0.25."""
    return inputs if inputs.is_floating_point() else inputs.float().sub_(127.5).div_(63.75)


def clients(arrays: Arrays) -> list[tuple[Any, Any]]:
    """Return each client's inputs, which are scaled where they are used, and labels."""
    import torch

    x, y = (torch.from_numpy(arrays[key]) for key in "xy")
    return [(x[own], y[own]) for own in arrays["owned"]]


def processes() -> tuple[int, float]:
    """Return peak bytes and CPU seconds of this process and its descendants, summed.

    The CPU seconds of this process are exact: the system counts those of the others in hundredths,
    and a few small rounds take less.
    """
    me, found = int(Path("/proc/self").readlink().name), dict[int, tuple[int, float]]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            counted = fields[13:15] if pid == me else fields[11:15]  # of me, children that ended
            found[pid] = int(fields[1]), sum(map(int, counted)) / 100
        except OSError:  # it has ended
            continue
    own, peak, seconds = {me}, 0, time.process_time()
    while more := {pid for pid, (parent, _) in found.items() if parent in own} - own:
        own |= more
    for pid in own & set(found):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        peak += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
        seconds += found[pid][1]
    return peak, seconds


class Clock:
    """The times at which rounds end, from the moment at which the data are in memory."""

    def __init__(self) -> None:
        self.times = [time.perf_counter()]
        self.cpu = 0.0

    def tick(self) -> None:
        """Note that a round has ended, and the CPU seconds until the end of the first one."""
        self.times.append(time.perf_counter())
        if len(self.times) == 2:
            self.cpu = processes()[1]


def report(clock: Clock, spec: dict[str, Any], arrays: Arrays, models: Any) -> None:
    """Print the result: `models` are flat parameters, of the server or of all nodes."""
    peak, cpu = processes()
    rounds = [b - a for a, b in pairwise(clock.times)]
    later = (cpu - clock.cpu) / max(1, len(rounds) - 1)
    found: dict[str, Any] = {"rounds": rounds, "peak": peak, "cpu": later}
    found |= score_network(spec, arrays, models) if spec["model"] else score(arrays, models)
    print("RESULT", json.dumps(found), flush=True)


def score(arrays: Arrays, models: np.ndarray) -> dict[str, float]:
    """Return the mean over agents of the mean of all quadratics at their points."""
    matrix, vector = arrays["matrices"].mean(0), arrays["vectors"].mean(0)
    values = [0.5 * x @ matrix @ x + vector @ x for x in np.asarray(models, np.float64)]
    return {"loss": float(np.mean(values))}


def score_network(spec: dict[str, Any], arrays: Arrays, models: Any) -> dict[str, float]:
    """Return accuracy and loss on the test examples, as means over models."""
    import torch
    from torch.nn import functional
    from torch.nn.utils import vector_to_parameters

    judged, scores = network(spec).eval(), []
    inputs, labels = (torch.from_numpy(arrays[key]) for key in ("x_test", "y_test"))
    for k in np.unique(np.linspace(0, len(models) - 1, SCORED).astype(int)):
        vector_to_parameters(torch.as_tensor(models[k]), judged.parameters())
        with torch.no_grad():
            outputs = torch.cat([judged(scaled(part)) for part in inputs.split(1000)])
        accuracy = (outputs.argmax(1) == labels).float().mean()
        scores.append([accuracy.item(), functional.cross_entropy(outputs, labels).item()])
    accuracy, loss = np.mean(scores, axis=0)
    return {"accuracy": float(accuracy), "loss": float(loss)}
