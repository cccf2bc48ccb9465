"""Time both versions in turns: seconds per round, and to the end of the first; peak memory.

Each version has a process of its own, which trains the cases of ``analysis.benchmark`` when it is
told to. Turns of the two alternate, so that what else the machine does slows both alike; every few
turns both start anew, since how a process came to lie in memory alone makes it a few percent faster
or slower. Ratios are medians over turns; memory is the growth of a fresh process's peak.
"""

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

import topofl
from topofl import algorithms, data, models, topologies

ROUNDS = 8
"""Rounds of a turn; the first is not among the seconds per round."""

TURNS = 3
"""Turns of a pair of processes."""


def settings() -> Mapping[str, tuple[str, int, int, Mapping[str, Any]]]:
    """Return network, nodes, batch size, and the arguments that differ, by the label of a case."""
    looped = {"compute": topofl.Compute(executor="looped")}
    cliques = {"method": "clique_averaging", "graph": "dcliques"}
    server = {"method": "fedavg", "graph": None}
    return {
        "logistic, D-Cliques + CA, 100 x 128": ("logistic_regression", 100, 128, cliques),
        "logistic, D-Cliques + CA, 1000 x 13": ("logistic_regression", 1000, 13, cliques),
        "logistic, fully connected, 100 x 128": (
            *("logistic_regression", 100, 128), {"graph": "fully_connected"},
        ),
        "logistic, exponential, 10 x 128": ("logistic_regression", 10, 128, {}),
        "logistic, exponential, 1000 x 13": ("logistic_regression", 1000, 13, {}),
        "logistic, FedAvg, 100 of 1000 x 13": (
            *("logistic_regression", 1000, 13), server | {"participation": 0.1},
        ),
        "GN-LeNet, exponential, 10 x 20": ("gn_lenet", 10, 20, looped),
        "GN-LeNet, exponential, 100 x 20": ("gn_lenet", 100, 20, looped),
        "GN-LeNet, D-Cliques + CA, 100 x 20": ("gn_lenet", 100, 20, cliques | looped),
        "GN-LeNet, FedAvg, 10 of 100 x 20": (
            *("gn_lenet", 100, 20), server | looped | {"participation": 0.1},
        ),
    }  # fmt: skip


def labels() -> list[str]:
    """Return the labels of all cases."""
    return list(settings())


def arguments(label: str) -> dict[str, Any]:
    """Return the arguments of a case for :func:`topofl.run`."""
    network, n, batch_size, special = settings()[label]
    linear = network == "logistic_regression"
    shape = (1, 28, 28) if linear else (3, 32, 32)
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 256, ((20_000 if linear else 4_000) + 500, *shape), dtype=np.uint8)
    classes = np.arange(len(inputs)) % 10
    dataset = data.from_arrays(
        inputs[500:], classes[500:], test=(inputs[:500], classes[:500]), mean=0.5, std=0.29,
        name="random",
    )  # fmt: skip
    clients = data.shards(dataset, n, per_node=2, seed=0)
    method, graph = special.get("method", "dsgd"), special.get("graph", "exponential")
    options = {"lr": 0.01, "batch_size": batch_size}
    if "participation" in special:
        options |= {"participation": special["participation"], "epochs": 1}
    if graph == "dcliques":
        topology = topologies.dcliques(clients.label_counts, clique_size=10, seed=0)
    else:
        topology = graph and getattr(topologies, graph)(n)
    size = {"in_features": 784} if linear else {}
    return {
        "algorithm": getattr(algorithms, method)(**options),
        "model": getattr(models, network)(**size),
        "clients": clients,
        "topology": topology,
        "compute": special.get("compute"),
    }


def _run(given: Mapping[str, Any], rounds: int) -> tuple[float, float]:
    """Return the median seconds of later rounds, and those until the end of the first."""
    ends = [perf_counter()]

    def note(event: topofl.callbacks.Event) -> None:
        if event.kind == "round":
            ends.append(perf_counter())

    topofl.run(**given, rounds=rounds, evaluation=rounds, seed=0, progress=False, callbacks=[note])
    seconds = np.diff(ends)
    return float(np.median(seconds[1:])), float(seconds[0])


def _growth(label: str) -> int:
    """Return how many bytes the peak memory of this process grows in a run."""
    given = arguments(label)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _memory("VmRSS")
    _run(given, 3)
    return _memory("VmHWM") - before


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def answer() -> None:
    """Answer each line of standard input, a task and a label, by a line of JSON."""
    torch.set_num_threads(2)
    known: dict[str, dict[str, Any]] = {}
    for line in sys.stdin:
        task, label = json.loads(line)
        if task == "memory":
            print(json.dumps(_growth(label)), flush=True)
            continue
        if label not in known:
            known = {label: arguments(label)}
        print(json.dumps(_run(known[label], ROUNDS)), flush=True)


class Side:
    """A process of a version, which answers tasks."""

    def __init__(self, command: list[str], checkout: Path, environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, cwd=checkout, env=environment, stdin=pipe, stdout=pipe, text=True
        )

    def ask(self, task: str, label: str) -> Any:
        """Return the answer to a task; RuntimeError if the process ended."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the process has no pipes")
        print(json.dumps([task, label]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} ended with {self.process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()  # closes its pipes


def ratios(
    start: Callable[[], tuple[Side, Side]], label: str, turns: int
) -> tuple[float, float, float]:
    """Return now / before: seconds per round, seconds of the first, and seconds per round before.

    `start` starts a process of the version before and one of this version. The ratio of a turn is
    that of two runs one after the other; which comes first alternates.
    """
    found = []
    for first in range(0, turns, TURNS):
        sides = start()
        try:
            found += _turns(sides, label, range(first, min(first + TURNS, turns)))
        finally:
            for side in sides:
                side.end()
    each = np.array(found)  # (turns, version, round or start)
    medians = np.median(each[:, 1] / each[:, 0], axis=0)
    return float(medians[0]), float(medians[1]), float(np.median(each[:, 0, 0]))


def _turns(sides: tuple[Side, Side], label: str, turns: range) -> list[tuple[float, float]]:
    """Return the times of both sides in each turn."""
    for side in sides:
        side.ask("time", label)  # to load, compile and allocate
    found = []
    for turn in turns:
        times = {side: side.ask("time", label) for side in (sides if turn % 2 else sides[::-1])}
        found.append((times[sides[0]], times[sides[1]]))
    return found
