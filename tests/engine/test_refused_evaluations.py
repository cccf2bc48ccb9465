"""Invalid evaluations and fine-tuning are refused before training."""

import numpy as np
import pytest

from tests import problems
from tests.engine.evaluated_runs import (
    TUNED,
    N,
    personal_clients,
    run,
)
from topofl import algorithms, data, mixing

BAD_INPUT = {
    "no phase": (
        {"fine_tune": "sgd"},
        TypeError,
        "`fine_tune` must be a Phase such as sgd.*, got 'sgd'",
    ),
    "true": ({"fine_tune": True}, TypeError, "`fine_tune` must be a Phase"),
    "exchange": (
        {"fine_tune": algorithms.gossip()},
        ValueError,
        "`fine_tune` must be a phase of each node alone",
    ),
    "gradients": (
        {"fine_tune": algorithms.train(algorithms.descend(lr=0.1), gradient=mixing.max_degree)},
        ValueError,
        "got one that uses mixed",
    ),
    "another's state": (
        {"fine_tune": algorithms.on_kept_models("local", algorithms.sgd(0.1))},
        ValueError,
        "got one that uses the state",
    ),
    "part": (
        {"fine_tune": algorithms.sgd(0.1, part=algorithms.part("fc"))},
        ValueError,
        "'fc' matches none",
    ),
    "epochs": (
        {"fine_tune": algorithms.sgd(0.1, epochs=[1, 2])},
        ValueError,
        "`epochs` must be .* one per node, n=6, got 2",
    ),
    "lr": (
        {"fine_tune": algorithms.sgd(1e300)},
        ValueError,
        "`lr` must be at most .* in the phase 'fine_tune'",
    ),
    "every, of nothing": (
        {"fine_tune_every": 2},
        ValueError,
        "`evaluation.fine_tune_every` must be None without",
    ),
    "every 0": (
        {"fine_tune": TUNED, "fine_tune_every": 0},
        ValueError,
        "`fine_tune_every` must be at least 1",
    ),
    "every 1.5": (
        {"fine_tune": TUNED, "fine_tune_every": 1.5},
        TypeError,
        "`fine_tune_every` must be an integer",
    ),
    "every 3": (
        {"fine_tune": TUNED, "fine_tune_every": 3},
        ValueError,
        "must be a multiple of every=2, .* got 3",
    ),
    "no set and before exchange": (
        {"on": (), "before_exchange": True},
        ValueError,
        r"`before_exchange` must be False with on=\(\), which scores no models, got True; leave",
    ),
    "no set and fine-tuning": (
        {"on": (), "fine_tune": TUNED},
        ValueError,
        r"`fine_tune` must be None with on=\(\)",
    ),
    "no set and when to fine-tune": (
        {"on": (), "fine_tune_every": 2},
        ValueError,
        r"`fine_tune_every` must be None with on=\(\), .* got 2",
    ),
    "no set and a user's stage": (
        {"on": (), "also": {"mean": lambda models, round: models}},
        ValueError,
        r"`also` must be None with on=\(\)",
    ),
    "no set and examples": (
        {"on": [], "examples": 3},
        ValueError,
        r"`examples` must be None with on=\(\), .* got 3",
    ),
    "no set and nodes": (
        {"on": [], "nodes": 3},
        ValueError,
        r"`nodes` must be None with on=\(\), .* got 3",
    ),
    "unknown set": ({"on": ("own_test", "own_vel")}, ValueError, "`on` .* did you mean 'own_val'"),
    "twice": ({"on": ("test", "test")}, ValueError, "`on` must name each set once, got test, test"),
    "no own test examples": (
        {"clients": problems.equal_clients()},
        ValueError,
        "'own_test' is empty; partition with test_fraction",
    ),
    "no validation": (
        {"clients": personal_clients(val_fraction=0.0), "on": ("own_test", "own_val")},
        ValueError,
        "'own_val' is empty; partition with val_fraction",
    ),
    "no shared validation": (
        {
            "clients": data.iid(data.from_arrays(np.eye(36), [0, 1, 2] * 12, test=0.2), N, seed=0),
            "on": ("test", "val"),
        },
        ValueError,
        "'val' is empty; load the data with val=",
    ),
    "examples of one": (
        {"on": ("test", "own_test"), "examples": 3},
        ValueError,
        "`evaluation.examples` must",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_before_training(case):
    changes, error, message = BAD_INPUT[case]
    rounds = []
    with pytest.raises(error, match=message):
        run(**{"callbacks": [problems.each_round(lambda t, m: rounds.append(t))]} | changes)
    assert not rounds


def test_chains_refuse_invalid_fine_tuning():
    local = algorithms.sgd(0.1)
    with pytest.raises(TypeError, match="`fine_tune` must be a Phase"):
        algorithms.chain("mine", local=local, fine_tune=3)
