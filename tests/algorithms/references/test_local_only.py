"""Training alone, by steps as ever and by epochs as the methods that it is compared with."""

import numpy as np
import pytest
import torch

from tests import naive, problems
from tests.algorithms.harness import BATCH, PAIRS, ROUNDS, N, check, engine, nodes_at_start
from topofl import algorithms


@PAIRS
def test_by_epochs_it_is_dfedavgm_without_an_exchange(local, make, settings):
    clients = make()
    model = problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    naive.dfedavgm(nodes, [np.eye(N)] * ROUNDS, ROUNDS, lr=0.1, epochs=2, **local)
    algorithm = algorithms.local_only(0.1, batch_size=BATCH, epochs=2, reset_momentum=True, **local)
    history, models = engine(algorithm, model, clients, **settings)
    check(nodes.flat(), models.flat, start)
    assert not history["messages"].any()


def test_epochs_per_node_equal_common_epochs():
    clients = problems.ragged_clients()
    model = problems.convolutional()
    epochs = [1, 2, 3] * (N // 3)
    how = {"batch_size": BATCH, "momentum": 0.9, "reset_momentum": True}
    _, mixed = engine(algorithms.local_only(0.1, epochs=epochs, **how), model, clients)
    for passes in set(epochs):
        _, same = engine(algorithms.local_only(0.1, epochs=passes, **how), model, clients)
        nodes = [i for i in range(N) if epochs[i] == passes]
        torch.testing.assert_close(mixed.flat[nodes], same.flat[nodes], rtol=0, atol=1e-9)


def test_an_epoch_is_its_steps_and_momentum_lasts():
    clients = problems.equal_clients()
    model = problems.convolutional()
    steps = -(-int(clients.sizes.max()) // BATCH)
    one = algorithms.local_only(0.1, batch_size=BATCH, epochs=1, momentum=0.9)
    other = algorithms.local_only(0.1, batch_size=BATCH, local_steps=steps, momentum=0.9)
    fresh = algorithms.local_only(
        0.1, batch_size=BATCH, epochs=1, momentum=0.9, reset_momentum=True
    )
    how = {"executor": "looped"}  # to the bit, where the clock chooses nothing
    by_epochs, by_steps, reset = (
        engine(a, model, clients, **how)[1].flat for a in (one, other, fresh)
    )
    assert torch.equal(by_epochs, by_steps)
    assert not torch.allclose(by_epochs, reset, atol=1e-4)


def test_description_of_the_defaults():
    assert algorithms.local_only(0.1).settings == {
        "local": {"lr": 0.1, "batch_size": 128, "steps": 1}
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [("epochs", 0), ("lr_decay", 1.5), ("weight_decay", -1), ("clip", 0), ("epochs", [1, -1])],
)
def test_bad_values_are_named(name, value):
    with pytest.raises(ValueError, match=f"`{name}"):
        algorithms.local_only(0.1, **{name: value})


@pytest.mark.parametrize(
    "function", [algorithms.local_only, algorithms.sgd], ids=["local_only", "sgd"]
)
def test_steps_and_epochs_are_not_given_together(function):
    name = "local_steps" if function is algorithms.local_only else "steps"
    with pytest.raises(
        ValueError,
        match=f"one of `{name}` and `epochs` must be None, .* got {name}=3 and epochs=2; give",
    ):
        function(0.1, epochs=2, **{name: 3})
    assert "epochs=2" in repr(algorithms.local_only(0.1, epochs=2))
    assert "steps=1" in repr(algorithms.local_only(0.1))
