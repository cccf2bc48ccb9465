"""Histories, estimates and resumed runs use the scores of the task."""

import json

import numpy as np
import pytest

import topofl
from tests.tasks.cases import CASES, clients_of, mlp, run
from topofl import Task, algorithms, data, topologies
from topofl.tasks import absolute_error, classification, regression


def test_estimates_know_the_task():
    need = [
        topofl.estimate(
            algorithms.dsgd(lr=0.1, batch_size=4),
            model=build(),
            clients=clients_of(dataset),
            topology=topologies.ring(4),
            task=task,
            compute=topofl.Compute(executor="batched"),
            rounds=10,
        )
        for task, build, dataset, _ in (CASES["next token"], CASES["regression"])
    ]
    assert all(one.activations > 0 for one in need)
    few, many = (
        topofl.estimate(
            algorithms.dsgd(lr=0.1),
            model=mlp(3),
            clients=clients_of(CASES["F1 of classes"][2]),
            topology=topologies.ring(4),
            task=classification(scores),
            compute=topofl.Compute(executor="looped"),
            rounds=1000,
        )
        for scores in (("accuracy",), ("accuracy", "f1", "auc"))
    )
    assert many.history - few.history == 8 * 2 * 4 * 101
    assert many.evaluation > few.evaluation, "outputs on a whole set are kept"


def test_a_history_follows_its_task(tmp_path):
    history = run("regression")
    assert history.primary == "mse"
    assert history.low_is_good("rmse")
    assert not history.low_is_good("r2")
    assert f"final mse {history.last().mean():.4f}" in repr(history)
    best = history["mse"].mean(1).argmin()
    assert np.array_equal(history.best(), history["mse"][best])
    assert np.array_equal(history.best("r2"), history["r2"][history["r2"].mean(1).argmax()])
    assert history.personal().worst_tenth == history.last().max()
    assert history.rounds_to(history["mse"].mean(1)[-1]) == 4
    assert history.bytes_to(-1.0).reason.endswith(
        f"or less: the lowest is {history['mse'].mean(1).min():.4g}"
    )
    json.dumps(history.meta["task"])
    loaded = topofl.History.load(history.save(tmp_path / "saved"))
    assert loaded.scores == history.scores
    assert np.array_equal(loaded["r2"], history["r2"])
    assert "mse_mean" in loaded.to_pandas()
    assert loaded.to_pandas(per="node").shape[0] == history["mse"].size
    assert loaded.plot().axes[0].get_ylabel() == "mse"


def test_best_on_validation_by_the_primary_score():
    dataset = CASES["regression"][2]
    clients = data.with_validation(clients_of(dataset), 0.3, seed=0)
    history = run("regression", clients=clients, on=("test", "own_val"))
    chosen = history["mse_own_val"].argmin(0)
    assert np.array_equal(history.best_on_validation(), history["mse"][chosen, np.arange(4)])


def test_resume_refuses_another_task(tmp_path):
    run("regression", saving := 2, saving=tmp_path, task=regression())
    with pytest.raises(
        ValueError, match=r"same run: task was .*squared_error.*, is .*absolute_error"
    ):
        run(
            "regression",
            saving + 2,
            saving=topofl.Saving(tmp_path, resume=True),
            task=Task("mae", absolute_error),
        )
    assert (
        run(
            "regression", saving + 2, saving=topofl.Saving(tmp_path, resume=True), task=regression()
        ).n_rounds
        == 4
    )


def test_runs_before_and_after_fine_tuning_report_every_score():
    tune = algorithms.sgd(lr=0.05, epochs=1)
    history = run("several labels", before_exchange=True, fine_tune=tune)
    for moment in ("before_exchange", "fine_tuned"):
        assert np.isfinite(history[f"subset_accuracy_{moment}"][-1]).all()
