"""Invalid arguments of runs are refused before training."""

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine.runs import run
from topofl import algorithms, data, mixing, models, topologies


def changed(change):
    """Return a linear model after a change."""
    model = problems.linear()
    change(model)
    return model


BAD = {
    "not an algorithm": ({"algorithm": "dsgd"}, TypeError, "`algorithm` must be an Algorithm"),
    "not a partition": ({"clients": [1, 2]}, TypeError, "`clients` must be a Partition"),
    "no rounds": ({"rounds": 0}, ValueError, "`rounds` must be at least 1"),
    "rounds as float": ({"rounds": 1.5}, TypeError, "`rounds` must be an integer"),
    "seed": ({"seed": -1}, ValueError, "`seed`"),
    "every": ({"every": 0}, ValueError, "`every`"),
    "chunk": ({"chunk": 0}, ValueError, "`chunk`"),
    "chunk of a loop": (
        {"executor": "looped", "chunk": 8},
        ValueError,
        '`chunk` must be "auto" or 1 with executor="looped"',
    ),
    "on": ({"on": "tset"}, ValueError, "did you mean 'test'"),
    "examples": (
        {"examples": 0},
        ValueError,
        "`examples` must be at least 1, got 0",
    ),
    "more examples": (
        {"examples": 19},
        ValueError,
        r"`evaluation.examples` must be .*=18, got 19; None takes all",
    ),
    "examples of an empty set": (
        {
            "examples": 2,
            "on": "val",
            "clients": data.iid(data.from_arrays(np.eye(36), [0, 1, 2] * 12, test=0.2), 6, seed=0),
        },
        ValueError,
        "`evaluation.on` must name a set with examples",
    ),
    "examples of own sets": (
        {
            "examples": 2,
            "on": "own_test",
            "clients": data.iid(problems.dataset(), 6, seed=0, test_fraction=0.3),
        },
        ValueError,
        "`evaluation.examples` must be None with on='own_test'",
    ),
    "share of examples": ({"examples": 0.5}, TypeError, "`examples` must be an integer"),
    "more nodes": (
        {"nodes": 7},
        ValueError,
        "`evaluation.nodes` must be between 1 and n=6, got 7; None takes all",
    ),
    "nodes of a pooled run": (
        {"algorithm": algorithms.centralized(lr=0.1), "nodes": 2},
        ValueError,
        "`evaluation.nodes` must be between 1 and n=1",
    ),
    "before_exchange": (
        {"before_exchange": "both"},
        ValueError,
        "`before_exchange` must be True or False",
    ),
    "init": ({"init": "zero"}, ValueError, "`init`"),
    "executor": ({"executor": "batch"}, ValueError, "did you mean 'batched'"),
    "on_disconnected": ({"on_disconnected": "ignore"}, ValueError, "`on_disconnected`"),
    "dtype": ({"dtype": torch.int64}, ValueError, "`dtype`"),
    "no topology": ({"topology": None}, TypeError, "`topology` must be given"),
    "other size": ({"topology": topologies.ring(7)}, ValueError, "has n=7, `clients` has n=6"),
    "disconnected": (
        {"topology": topologies.random_cliques(6, 3, seed=0)},
        topofl.TopologyError,
        "must be connected",
    ),
    "disconnected sequence": (
        {"topology": [topologies.random_cliques(6, 3, seed=0)] * 2},
        topofl.TopologyError,
        "must be connected",
    ),
    "no groups": (
        {"algorithm": algorithms.clique_averaging(lr=0.1)},
        topofl.TopologyError,
        "`topology` must have groups for clique_averaging",
    ),
    "weights off the edges": (
        {"mixing": mixing.metropolis_hastings(topologies.fully_connected(6))},
        ValueError,
        "must be 0 off the edges",
    ),
    "push weights for gossip": (
        {"topology": topologies.star(6), "mixing": lambda g: mixing.uniform(g, direction="push")},
        ValueError,
        "`mixing` must have rows that sum to 1",
    ),
    "no own test data": ({"on": "own_test"}, ValueError, "partition with test_fraction"),
    "not a model": ({"model": "logistic"}, TypeError, "`model` must be an nn.Module"),
    "model of another shape": (
        {"model": models.logistic_regression(50)},
        ValueError,
        "cannot take examples of shape",
    ),
    "model of fewer classes": (
        {"model": nn.Sequential(nn.Flatten(), nn.Linear(36, 2))},
        ValueError,
        "at least n_classes=3 logits",
    ),
    "batch norm": (
        {"model": nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(36, 3))},
        ValueError,
        r"BatchNorm2d \(layer '0'\)",
    ),
    "dropout": (
        {"model": nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 3))},
        ValueError,
        "Dropout",
    ),
    "running statistics": (
        {
            "model": nn.Sequential(
                nn.InstanceNorm2d(1, track_running_stats=True), nn.Flatten(), nn.Linear(36, 3)
            )
        },
        ValueError,
        r"InstanceNorm2d \(layer '0'\)",
    ),
    "frozen": (
        {"model": changed(lambda m: m[1].bias.requires_grad_(False))},
        ValueError,
        "'1.bias' has requires_grad",
    ),
    "two dtypes": (
        {
            "model": changed(
                lambda m: setattr(m[1], "bias", nn.Parameter(torch.zeros(3, dtype=torch.float64)))
            )
        },
        ValueError,
        "parameters of one dtype",
    ),
    "unused": (
        {
            "model": changed(
                lambda m: m[1].register_parameter("spare", nn.Parameter(torch.zeros(2)))
            )
        },
        ValueError,
        "'1.spare' does not change its output",
    ),
    "mixing by name": (
        {"mixing": "metropolis_hastings"},
        TypeError,
        "`mixing` must be a weight rule",
    ),
    "mixing that returns an array": (
        {"mixing": lambda g: np.eye(6)},
        TypeError,
        "`mixing` must return a MixingMatrix",
    ),
    "dtype by name": ({"dtype": "float32"}, TypeError, "`dtype` must be a torch dtype"),
    "device": ({"device": "gpu"}, ValueError, "`device` must be such as"),
    "progress": ({"progress": "yes"}, ValueError, "`progress`"),
    "no parameters": ({"model": nn.Flatten()}, ValueError, "must have parameters"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_training(case):
    changes, error, message = BAD[case]
    rounds = []
    with pytest.raises(error, match=message):
        run(**{"callbacks": [problems.each_round(lambda t, m: rounds.append(t))]} | changes)
    assert not rounds


def test_records_that_do_not_fit_into_memory_are_refused():
    message = (
        r"`rounds` and `evaluation.every` must give records that fit into memory, got .*; "
        r"take fewer rounds"
    )
    with pytest.raises(ValueError, match=message):
        topofl.run(
            algorithms.dsgd(lr=0.1, batch_size=4),
            model=problems.linear(),
            clients=problems.equal_clients(),
            topology=topologies.ring(6),
            rounds=10**15,
            seed=0,
        )
