"""Runs that evaluate nothing, for data without a test set."""

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine import killed
from tests.engine.evaluated_runs import N, run, stopped
from topofl import Evaluation, History, algorithms, data, models, topologies

WHY = r"evaluated nothing, since it ran with Evaluation\(on=\(\)\): run it again with a set of "


def untested(**changes):
    """Return the arguments of a run of data without a test set."""
    rng = np.random.default_rng(0)
    dataset = data.from_arrays(rng.normal(size=(60, 5)), rng.integers(0, 3, 60))
    settings = {
        "algorithm": algorithms.dsgd(lr=0.1),
        "clients": data.iid(dataset, N, seed=0),
        "model": models.logistic_regression(5, 3),
        "topology": topologies.ring(N),
        "rounds": 4,
        "seed": 0,
    }
    return settings | changes


@pytest.fixture(scope="module")
def history():
    return topofl.run(**untested(evaluation=Evaluation(on=(), every=2)))


def test_data_without_a_test_set_name_the_remedy(history):
    with pytest.raises(ValueError, match=r"'test' is empty; .*scores by Evaluation\(on=\(\)\)"):
        topofl.run(**untested())
    assert history.n_rounds == 4
    for short in ((), []):
        again = topofl.run(**untested(evaluation=short))
        assert again["round"].tolist() == [0, 4]
        assert torch.equal(again.models.flat, history.models.flat)


@pytest.mark.parametrize(
    "algorithm",
    [
        algorithms.dsgd(lr=0.1, batch_size=4),
        algorithms.osgp(lr=0.1, batch_size=4),
        algorithms.fedbabu(lr=0.1, batch_size=4, head="5"),
        algorithms.knn_per(lr=0.1, batch_size=4, k=2, head="5"),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_all_but_scores_is_as_in_other_runs(algorithm):
    settings = {"model": problems.perceptron()}
    settings |= {} if algorithm.name in ("dsgd", "osgp") else {"topology": None}
    scored = run(algorithm, **settings)
    unscored = run(algorithm, **settings, on=())
    assert torch.equal(scored.models.flat, unscored.models.flat)
    np.testing.assert_array_equal(scored.node_loss, unscored.node_loss)
    kept = {"round", "consensus_distance", "gradient_diversity", "push_weight"}
    assert unscored.evaluations.keys() == kept & scored.evaluations.keys()
    assert ("push_weight" in unscored.evaluations) == (algorithm.name == "osgp")
    for name, values in unscored.evaluations.items():
        np.testing.assert_array_equal(values, scored[name])
    assert unscored.score_columns == {}


ASKED = {
    "column": lambda history: history["accuracy"],
    "column of a set": lambda history: history["loss_own_val"],
    "last": lambda history: history.last("accuracy"),
    "primary": lambda history: history.last(),
    "best": lambda history: history.best(),
    "on validation": lambda history: history.best_on_validation(),
    "personal": lambda history: history.personal(),
    "target": lambda history: history.rounds_to(0.5),
    "name": lambda history: history.column(),
    "plot": lambda history: history.plot(),
    "comparison": lambda history: topofl.compare_histories([history]),
    "table": lambda history: history.to_pandas(per="node"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_asking_for_a_score_is_answered_with_the_reason(history, asked):
    with pytest.raises((KeyError, ValueError), match=WHY):
        ASKED[asked](history)


def test_what_is_no_score_is_there(history):
    assert repr(history) == f"History(dsgd on ring(n={N}): 4 rounds, n={N}, not evaluated)"
    assert history._repr_html_()
    assert history.to_pandas()["consensus_distance"].notna().tolist() == [1, 0, 1, 0, 1]
    assert history.plot("train_loss").axes[0].get_ylabel() == "train loss"
    with pytest.raises(KeyError, match=r"no column 'bites'; known are .* did you mean 'bytes'"):
        history["bites"]
    with pytest.raises(ValueError, match=r"runs with Evaluation\(on=\(\)\) evaluate nothing"):
        topofl.summarize({"one": history}, "seed")
    pushed = run(algorithms.osgp(lr=0.1), on=())
    assert list(pushed.to_pandas(per="node")) == ["round", "node", "push_weight"]


def test_files_hold_it(history, tmp_path):
    loaded = History.load(history.save(tmp_path / "a", models=True))
    assert loaded.meta == history.meta
    assert loaded.evaluations.keys() == history.evaluations.keys()
    assert torch.equal(loaded.models.flat, history.models.flat)
    with pytest.raises(KeyError, match=WHY):
        loaded.last()


@pytest.mark.parametrize("rounds", [7, 9])
def test_resumed_runs_are_as_if_uninterrupted(tmp_path, rounds):
    unscored = {"fine_tune": None, "on": ()}
    stopped(tmp_path, 3, **unscored)
    settings = killed.settings("dsgd over a period") | {"every": 2, "rounds": rounds, **unscored}
    whole = topofl.run(**problems.options(**settings))
    resumed = topofl.run(
        **problems.options(**settings, saving=topofl.Saving(tmp_path, resume=True))
    )
    assert torch.equal(whole.models.flat, resumed.models.flat)
    for name, values in whole.evaluations.items():
        np.testing.assert_array_equal(values, resumed[name])


def test_estimates_need_no_set():
    how = {key: value for key, value in untested().items() if key != "seed"}
    found = topofl.estimate(**how, evaluation=(), probe=True)
    assert found.seconds_per_evaluation >= 0
    assert found.evaluation == 0
