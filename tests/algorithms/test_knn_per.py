"""kNN-Per equals a naive loop in float64; its neighbors, memory and invalid models."""

import numpy as np
import pytest
import torch

from tests import naive, problems
from tests.algorithms.harness import BATCH, EXECUTORS, ROUNDS, N, engine, members, nodes_at_start
from tests.algorithms.test_local_steps import with_test_sets
from tests.engine.evaluated_runs import personal_clients
from topofl import algorithms
from topofl.engine import neighbors, plan

HEADS = {problems.convolutional: "5", problems.linear: "1"}
MAKES = [problems.equal_clients, problems.ragged_clients]


@problems.paired(settings=EXECUTORS, make=MAKES, build=list(HEADS))
def test_knn_per(build, make, settings, monkeypatch):
    """Stores of 1 to 16 examples, looked at 3 at a time, of which up to 5 vote."""
    monkeypatch.setattr(neighbors, "EXAMPLES", 3)
    clients, model = with_test_sets(make()), build()
    nodes, how = nodes_at_start(model, clients), {"k": 5, "weight": 0.3, "scale": 0.5}
    naive.fedavg(nodes, members, ROUNDS, lr=0.1, epochs=2, momentum=0.9)
    base = {"batch_size": BATCH, "epochs": 2, "participation": 0.5}
    (history, models), (plain, same) = (
        engine(algorithm, model, clients, on=("own_test", "test"), **settings)
        for algorithm in (
            algorithms.knn_per(0.1, head=HEADS[build], **base, **how),
            algorithms.fedavg(0.1, **base),
        )
    )
    assert torch.equal(models.flat, same.flat), "training noticed"
    np.testing.assert_array_equal(history["loss"], plain["loss"])
    torch.testing.assert_close(models.flat, nodes.flat(), rtol=0, atol=1e-10)
    for ending, sets in (("", clients.test), ("_test", [clients.dataset.test] * N)):
        wanted = np.array([naive.knn_scores(nodes, i, sets[i], **how) for i in range(N)]).T
        got = [history[f"{column}_knn{ending}"][-1] for column in ("accuracy", "loss")]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9)
    assert len(set(history.last("loss_knn_test"))) > N // 2, "each node has neighbors of its own"
    assert len(set(history.last("loss_test"))) == 1


def near(chunk="auto", **changes):
    """Return the history of a run with neighbors, of linear models."""
    algorithm = algorithms.knn_per(0.1, batch_size=BATCH, epochs=1, head="1", **changes)
    how = {"on": ("own_test", "own_val"), "every": 1, "chunk": chunk}
    return engine(algorithm, None, personal_clients(), **how)[0]


def test_without_weight_neighbors_do_not_count_and_alone_they_need_no_model():
    none = near(weight=0.0)
    for moment in ("", "_own_val"):
        np.testing.assert_allclose(none[f"loss_knn{moment}"], none[f"loss{moment}"], rtol=1e-9)
        np.testing.assert_array_equal(none[f"accuracy_knn{moment}"], none[f"accuracy{moment}"])
    alone = near(weight=1.0, k=1)["accuracy_knn"]  # inputs are the features of a linear model
    assert (alone == alone[0]).all()
    everyone, clients = near(weight=1.0, k=1000, scale=1e12), personal_clients()
    classes = clients.dataset.labels.numpy()
    for i in range(N):
        counts = np.bincount(classes[clients.train[i]], minlength=3) / len(clients.train[i])
        wanted = -np.log(counts[classes[clients.test[i]]]).mean()
        assert everyone.last("loss_knn")[i] == pytest.approx(wanted, abs=1e-9)


def test_far_neighbors_vote_too_and_losses_stay_finite():
    """Where all kernels are zero as numbers, their ratios are not."""
    history = near(scale=1e-6)
    assert np.isfinite(history["loss_knn"]).all()
    assert (history["accuracy_knn"] > 0).any()
    judged = history.best_on_validation("accuracy_knn", validation="accuracy_knn_own_val")
    assert judged.shape == (N,)
    told = {"k": 10, "weight": 0.5, "scale": 1e-6, "head": "1"}
    assert history.meta["settings"]["neighbors"] == told


def test_threads_share_the_nodes(monkeypatch):
    monkeypatch.setattr(plan, "SHARED_WORK", 0)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(near(chunk=1))
    finally:
        torch.set_num_threads(before)
    assert [history.meta["workers"] for history in found] == [1, 3]
    np.testing.assert_allclose(found[0]["loss_knn"], found[1]["loss_knn"], rtol=1e-9)


def test_only_evaluated_nodes_have_neighbors():
    algorithm = algorithms.knn_per(0.1, batch_size=BATCH, epochs=1, head="1")
    history, _ = engine(algorithm, None, personal_clients(), on="own_test", nodes=2)
    np.testing.assert_array_equal(np.isnan(history["loss_knn"]), np.isnan(history["loss"]))
    assert np.isfinite(history.last("loss_knn")).sum() == 2


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_neighbors_of_models_that_diverge(policy):
    algorithm = algorithms.knn_per(1e30, batch_size=BATCH, epochs=1, head="5")
    model, clients = problems.convolutional(), personal_clients()
    history, _ = engine(algorithm, model, clients, on_divergence=policy)
    assert len(history.meta["diverged"]) == N
    near, own = history["loss_knn"], history["loss"]
    np.testing.assert_array_equal(np.isfinite(near), np.isfinite(own))
    assert np.isfinite(near[-1]).all() == (policy == "freeze")  # frozen models are finite ones
    assert (near[0] != own[0]).all()
