"""Evaluations on several sets, in configurations, and after resuming."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine import killed
from tests.engine.evaluated_runs import BATCH, TUNED, arguments, personal_clients, run, stopped
from topofl import algorithms, config


def test_evaluation_events_include_fine_tuned_scores():
    told = []
    history = run(fine_tune=TUNED, callbacks=[lambda event: told.append(event)])
    last = [event.values for event in told if event.kind == "evaluation"][-1]
    assert last["accuracy_fine_tuned_mean"] == pytest.approx(
        history.last("accuracy_fine_tuned").mean()
    )
    assert np.isnan(
        next(event.values for event in told if event.kind == "evaluation")["loss_fine_tuned_mean"]
    )
    assert history.to_pandas()["accuracy_fine_tuned_mean"].notna().sum() == 1


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("at", [1, 2, 5])
def test_resumed_runs_equal_uninterrupted_ones(tmp_path, every, at):
    stopped(tmp_path, at, fine_tune_every=every)
    resumed = killed.trained(
        arguments(fine_tune_every=every), saving=topofl.Saving(tmp_path, resume=True)
    )
    assert killed.differences(resumed, killed.trained(arguments(fine_tune_every=every))) == []


@pytest.mark.parametrize("every", [None, 2, 4])
@pytest.mark.parametrize("first", [4, 6])
def test_extended_runs_equal_longer_runs(tmp_path, every, first):
    killed.trained(arguments(rounds=first, fine_tune_every=every), saving=tmp_path)
    longer = killed.trained(
        arguments(fine_tune_every=every), saving=topofl.Saving(tmp_path, resume=True)
    )
    assert killed.differences(longer, killed.trained(arguments(fine_tune_every=every))) == []


def test_a_run_cannot_end_at_a_round_without_fine_tuning(tmp_path):
    stopped(tmp_path, 4)
    with pytest.raises(
        ValueError, match=r"`rounds` must be at least 5, got 4: .* were not fine-tuned"
    ):
        topofl.run(
            **problems.options(saving=topofl.Saving(tmp_path, resume=True), **arguments(rounds=4))
        )
    stopped(tmp_path / "often", 4, fine_tune_every=2)
    short = killed.trained(
        arguments(rounds=4, fine_tune_every=2),
        saving=topofl.Saving(tmp_path / "often", resume=True),
    )
    assert killed.differences(short, killed.trained(arguments(rounds=4, fine_tune_every=2))) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"fine_tune": algorithms.sgd(0.2, batch_size=BATCH, epochs=2, momentum=0.9)},
            "fine_tune.lr was 0.1, is 0.2",
        ),
        ({"fine_tune": False}, "fine_tune.lr was 0.1, is None"),
        ({"fine_tune_every": 4}, "evaluation.fine_tune_every was None, is 4"),
        ({"on": ["test", "val"]}, r"evaluation.on was \['test'\], is \['test', 'val'\]"),
    ],
)
def test_changed_evaluations_cannot_be_resumed(tmp_path, changes, message):
    topofl.run(**problems.options(saving=tmp_path, **arguments(rounds=1)))
    with pytest.raises(ValueError, match=f"`resume` must continue the same run: .*{message}"):
        topofl.run(
            **problems.options(saving=topofl.Saving(tmp_path, resume=True), **arguments(**changes))
        )


def test_several_sets_have_the_scores_of_runs_with_one():
    names = ("own_test", "own_val", "test")
    how = {"before_exchange": True, "fine_tune": TUNED, "init": "independent"}
    together = run(on=names, **how)
    for place, name in enumerate(names):
        alone = run(on=name, **how)
        for moment in ("", "_before_exchange", "_fine_tuned"):
            for score in ("accuracy", "loss"):
                ending = f"_{name}" if place else ""
                np.testing.assert_allclose(
                    together[f"{score}{moment}{ending}"],
                    alone[f"{score}{moment}"],
                    rtol=1e-12,
                    err_msg=name,
                )
    assert together.meta["evaluation"]["on"] == list(names)
    assert len(together.evaluations) == 3 + 3 * 3 * 2
    assert not np.array_equal(together["loss"], together["loss_own_val"])


def test_a_list_of_one_set_equals_the_set(tmp_path):
    first = run(on=["own_test"], saving=tmp_path)
    assert first.meta["evaluation"]["on"] == ["own_test"]
    assert killed.differences(*[(one, torch.zeros(1)) for one in (first, run())]) == []
    run(on="own_test", saving=topofl.Saving(tmp_path, resume=True))
    run(on=("own_test",), saving=topofl.Saving(tmp_path, resume=True))


def test_several_sets_are_saved_and_reported(tmp_path):
    history = run(on=("own_test", "own_val"), fine_tune=TUNED)
    again = topofl.History.load(history.save(tmp_path / "run"))
    for name, values in history.evaluations.items():
        np.testing.assert_array_equal(again[name], values)
    assert {"accuracy_own_val", "accuracy_fine_tuned_own_val"} <= set(history.to_pandas(per="node"))


def test_sampled_nodes_have_examples_in_every_set():
    iid = personal_clients()
    clients = replace(
        iid,
        test=tuple(own if i in (1, 3, 4) else own[:0] for i, own in enumerate(iid.test)),
        val=tuple(own if i in (0, 1, 4) else own[:0] for i, own in enumerate(iid.val)),
    )
    history = run(clients=clients, on=("own_test", "own_val"), nodes=2)
    for column in ("loss", "loss_own_val"):
        assert np.flatnonzero(~np.isnan(history.last(column))).tolist() == [1, 4]
    with pytest.raises(
        ValueError, match=r"`evaluation.nodes` must be between 1 and .* examples=2, got 3"
    ):
        run(clients=clients, on=("own_test", "own_val"), nodes=3)
    everyone = run(clients=clients, on=("own_test", "own_val"), fine_tune=TUNED)
    assert np.flatnonzero(np.isnan(everyone.last("loss_fine_tuned"))).tolist() == [0, 2, 5]
    assert np.flatnonzero(np.isnan(everyone.last("loss_fine_tuned_own_val"))).tolist() == [2, 3, 5]
    personal = everyone.personal("accuracy_fine_tuned")
    assert (personal.n, personal.without) == (3, 3)


def test_configurations_evaluate_and_fine_tune():
    tables = {
        "data": {"name": "digits", "n": 4, "seed": 0, "test_fraction": 0.2, "val_fraction": 0.2},
        "algorithm": {"name": "fedavg", "lr": 0.1, "epochs": 1, "fine_tune_epochs": 1},
        "run": {"rounds": 2, "seed": 0},
        "evaluation": {"every": 1, "on": ["own_test", "own_val"], "fine_tune_every": 1},
    }
    experiment = config.build(tables)
    history = experiment.run()
    assert np.isfinite(history["accuracy_fine_tuned_own_val"][1:]).all()
    assert experiment.estimate().fine_tuning == experiment.estimate().parameters
    again = config.build(experiment.tables_of(history)).run()
    np.testing.assert_array_equal(history["loss_fine_tuned"][1:], again["loss_fine_tuned"][1:])
    off = config.build(
        tables
        | {"evaluation": tables["evaluation"] | {"fine_tune": False, "fine_tune_every": None}}
    )
    assert "loss_fine_tuned" not in off.run().evaluations
    assert off.estimate().fine_tuning == 0
    with pytest.raises(TypeError, match=r"\[evaluation\] `fine_tune` must be a Phase"):
        config.build(tables | {"evaluation": {"fine_tune": "sgd"}})
