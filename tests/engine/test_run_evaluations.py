"""Evaluations of runs: sets, samples of nodes and examples, and divergence."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine.runs import run, same
from topofl import algorithms, data, topologies
from topofl.engine import evaluation


def test_scores_before_exchange_differ_from_those_after():
    history = run(before_exchange=True, init="independent")
    assert not np.array_equal(history["loss_before_exchange"][-1], history["loss"][-1])
    alone = run(algorithms.local_only(lr=0.1), before_exchange=True)
    np.testing.assert_array_equal(alone["loss_before_exchange"], alone["loss"])


@pytest.mark.parametrize("where", ["test", "val", "own_test", "own_val"])
def test_evaluation_uses_the_named_sets(where):
    clients, kept = data.iid(problems.dataset(), 6, seed=0, val_fraction=0.2, test_fraction=0.3), []
    model = problems.linear()
    history = run(
        clients=clients,
        on=where,
        model=model,
        callbacks=[problems.each_round(lambda t, m: kept.append(m.flat.clone()))],
    )
    blobs = clients.dataset
    shared = {
        "test": [blobs.test] * 6,
        "val": [blobs.val] * 6,
        "own_test": clients.test,
        "own_val": clients.val,
    }
    for node, indices in enumerate(shared[where]):
        nn.utils.vector_to_parameters(kept[-1][node], model.parameters())
        logits = model(blobs.inputs[torch.tensor(indices)])
        wanted = nn.functional.cross_entropy(logits, blobs.labels[torch.tensor(indices)]).item()
        assert history["loss"][-1, node] == pytest.approx(wanted, rel=1e-5)


def test_a_sample_of_examples_is_shared_by_all_nodes_and_rounds():
    kept, model = [], problems.linear()
    history = run(
        examples=5,
        model=model,
        callbacks=[problems.each_round(lambda t, m: kept.append(m.flat.clone()))],
    )
    whole = run()
    assert same_training(history, whole)
    blobs = problems.dataset()
    nn.utils.vector_to_parameters(kept[-1][2], model.parameters())
    losses = nn.functional.cross_entropy(
        model(blobs.inputs[torch.tensor(blobs.test)]),
        blobs.labels[torch.tensor(blobs.test)],
        reduction="none",
    )
    means = [
        losses[list(five)].mean().item() for five in itertools.combinations(range(len(losses)), 5)
    ]
    assert np.abs(np.array(means) - history["loss"][-1, 2]).min() < 1e-6
    assert history["loss"][-1, 2] != whole["loss"][-1, 2]
    assert set(history["accuracy"].ravel() * 5) <= set(range(6))
    assert same(history, run(examples=5))
    assert same(whole, run(examples=len(blobs.test), nodes=6))


def test_sampled_nodes_have_the_scores_of_a_full_evaluation():
    some, whole = run(nodes=2, before_exchange=True), run(before_exchange=True)
    assert same_training(some, whole)
    nodes = np.flatnonzero(~np.isnan(some["accuracy"][0]))
    assert len(nodes) == 2
    for name in ("accuracy", "loss", "accuracy_before_exchange", "loss_before_exchange"):
        np.testing.assert_allclose(some[name][:, nodes], whole[name][:, nodes], rtol=1e-6)
        assert np.isnan(np.delete(some[name], nodes, axis=1)).all()
    table = some.to_pandas()
    assert table["accuracy_mean"].iloc[-1] == pytest.approx(some["accuracy"][-1, nodes].mean())
    assert table["loss_max"].iloc[-1] == some["loss"][-1, nodes].max()


def same_training(a, b):
    return all(
        np.array_equal(a[name], b[name], equal_nan=True)
        for name in ("train_loss", "consensus_distance")
    )


def test_samples_depend_on_the_seed_and_are_nested():
    drawn = {
        (size, seed): np.flatnonzero(
            ~np.isnan(run(rounds=1, nodes=size, seed=seed)["loss"][0])
        ).tolist()
        for size in (2, 4)
        for seed in range(4)
    }
    assert all(set(drawn[2, seed]) < set(drawn[4, seed]) for seed in range(4))
    assert len({tuple(drawn[2, seed]) for seed in range(4)}) > 1


def test_nodes_without_own_examples_are_not_sampled():
    iid = data.iid(problems.dataset(), 6, seed=0, test_fraction=0.3)
    clients = replace(
        iid, test=tuple(own if i in (1, 4) else own[:0] for i, own in enumerate(iid.test))
    )
    history = run(clients=clients, on="own_test", nodes=2)
    assert np.flatnonzero(~np.isnan(history["loss"][-1])).tolist() == [1, 4]
    with pytest.raises(
        ValueError, match=r"`evaluation.nodes` must be between 1 and .* examples=2, got 3"
    ):
        run(clients=clients, on="own_test", nodes=3)


def test_samples_are_recorded_and_reported():
    history = run(rounds=1, examples=np.int64(5), nodes=np.int64(2))
    assert [history.meta["evaluation"][name] for name in ("examples", "nodes")] == [5, 2]
    assert repr(history).endswith(" of a sample of 2 nodes and 5 examples)")
    json.dumps(dict(history.meta))
    assert "sample" not in repr(run(rounds=1))


def test_divergence_errors_name_the_evaluated_node():
    drawn = np.flatnonzero(~np.isnan(run(rounds=1, nodes=2)["loss"][0])).tolist()
    with pytest.raises(
        topofl.DivergenceError, match=rf"loss of node {drawn[0]} is \w+ after round 1"
    ):
        run(algorithms.dsgd(lr=1e38, batch_size=4), rounds=1, nodes=2)


def test_equal_models_after_exact_averaging_are_evaluated_once(monkeypatch):
    found = []
    original = evaluation._all_equal
    monkeypatch.setattr(
        evaluation, "_all_equal", lambda models: found.append(original(models)) or found[-1]
    )
    equal = run(topology=topologies.fully_connected(6), init="independent")
    assert found == [False, True, True]
    assert (equal["accuracy"][-1] == equal["accuracy"][-1, 0]).all()
    monkeypatch.setattr(evaluation, "_all_equal", lambda models: False)
    each = run(topology=topologies.fully_connected(6), init="independent")
    np.testing.assert_array_equal(equal["accuracy"], each["accuracy"])
    np.testing.assert_allclose(equal["loss"], each["loss"], rtol=1e-6)


class Exploding(nn.Module):
    """A model that returns NaN for one node's data only."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(36, 3)

    def forward(self, x):
        x = x.flatten(1)
        return self.layer(x) * torch.where(x[:, :1] > 1e6, torch.nan, 1.0)


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_nan_loss_names_node_round_and_learning_rate(executor):
    blobs = problems.dataset()
    clients = data.iid(blobs, 6, seed=0)
    blobs.inputs[clients.train[4][-1]] = 1e9
    with pytest.raises(
        topofl.DivergenceError, match=r"loss of node 4 is nan in step \d+ of round \d+ with lr=0.25"
    ):
        run(
            algorithms.dsgd(lr=0.25, batch_size=4),
            clients=clients,
            model=Exploding(),
            executor=executor,
        )


def test_divergence_in_the_last_step_is_detected():
    with pytest.raises(topofl.DivergenceError, match=r"after round 1 with lr=1e\+38"):
        run(algorithms.dsgd(lr=1e38, batch_size=4), rounds=1)


def test_divergence_by_learning_rate():
    with pytest.raises(topofl.DivergenceError, match=r"lr=1e\+38; lower the learning rate"):
        run(algorithms.dsgd(lr=1e38, batch_size=4), rounds=20)
