"""The benchmark times a stand-in with the interface of the D-Cliques authors' simulator."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.benchmark import timing
from analysis.benchmark.cases import TRAINING, clients_of, on_few_nodes, setting
from analysis.benchmark.timing import PARTS, simulator_steps
from topofl import mixing

CASE = on_few_nodes(replace(TRAINING[0], batch_size=4), 20, same_graph=True)

ALGORITHM = '''
import json

import setup.dataset
import setup.meta

TOOK = []

def optimizer(model, params):
    return [model, params["algorithm"]["learning-rate"]]

def init(nodes, topology, params):
    return {"nodes": nodes, "topology": topology, "calls": 0, "clock": 0}, 0, False

def next(state, params):
    """Call k takes k on the clock of the test; every third call ends an epoch and takes long."""
    state["calls"] += 1
    state["clock"] += 1000 if state["calls"] % 3 == 0 else state["calls"]
    with open(FILE, "w") as file:
        json.dump({
            "calls": state["calls"], "clock": state["clock"],
            "cliques": state["topology"]["cliques"], "edges": state["topology"]["edges"],
            "weights": state["topology"]["weights"].tolist(), "params": params,
            "examples": [[label for _, label in node["train-set"]] for node in state["nodes"]],
            "pixels": [float(node["train-set"][0][0].sum()) for node in state["nodes"]],
            "models": [node["model"] for node in state["nodes"]],
            "optimizer": state["nodes"][0]["optimizer"],
        }, file)
    return state, [], state["calls"] % 3 == 0
'''


@pytest.fixture
def sources(tmp_path):
    """Return a folder like the simulator's; seen.json records the arguments of its steps."""
    tools = tmp_path / "tools"
    for part in PARTS:
        file = tools / Path(*part.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"def create(params):\n    return {part.rpartition('.')[2]!r}\n")
    (tools / "setup" / "meta.py").write_text("")
    seen = tmp_path / "seen.json"
    (tools / "simulate" / "algorithm" / "d_sgd.py").write_text(
        ALGORITHM.replace("FILE", repr(str(seen)))
    )
    return tmp_path


def test_it_trains_what_we_train_and_its_modules_are_forgotten(sources):
    path = list(sys.path)
    simulator_steps(sources, CASE, rounds=1, budget=60)
    assert sys.path == path
    assert not [name for name in sys.modules if name.partition(".")[0] in ("setup", "simulate")]
    seen = json.loads((sources / "seen.json").read_text())
    clients = clients_of(CASE)
    graph, _ = setting(CASE, clients)
    weights = mixing.metropolis_hastings(graph).weights.toarray()
    np.testing.assert_allclose(seen["weights"], weights, rtol=1e-6)
    edges = [set(graph.to_networkx()[i]) for i in range(CASE.n)]
    assert [set(row) for row in seen["edges"]] == edges
    assert sorted(i for clique in seen["cliques"] for i in clique) == list(range(CASE.n))
    labels, inputs = clients.dataset.labels, clients.dataset.examples()
    assert seen["examples"] == [labels[list(train)].tolist() for train in clients.train]
    pixels = [float(inputs[train[0]].sum()) for train in clients.train]
    assert seen["pixels"] == pytest.approx(pixels, rel=1e-5)
    assert seen["optimizer"] == ["linear", CASE.network.lr]
    assert seen["params"]["algorithm"]["clique-gradient"] is True
    assert seen["params"]["model"]["input-size"] == 784


def test_only_steps_count_after_the_first(sources, monkeypatch):
    seen = sources / "seen.json"
    clock = SimpleNamespace(
        perf_counter=lambda: json.loads(seen.read_text())["clock"] if seen.exists() else 0
    )
    monkeypatch.setattr(timing, "time", clock)
    assert simulator_steps(sources, CASE, rounds=3, budget=60) == [2, 4, 5]
    assert json.loads(seen.read_text())["calls"] == 5, "4 steps and the end of an epoch"
    seen.unlink()
    simulator_steps(sources, CASE, rounds=100, budget=0)
    assert json.loads(seen.read_text())["calls"] == 2
