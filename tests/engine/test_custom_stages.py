"""User-defined evaluation stages."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine import killed
from tests.engine.evaluated_runs import (
    HOW,
    TUNED,
    N,
    arguments,
    need,
    personal_clients,
    run,
    scores,
    stopped,
    tuned,
)
from topofl import algorithms


def mean(models, round):
    """Return the mean of all nodes' models, for all nodes."""
    return models.flat.mean(0).expand(round.n, -1)


def received(models, round):
    """Return each node's mean over its in-neighbors in the round, itself included."""
    copies = models.like(models.flat.clone())
    round.mix(round.weights, copies.flat)
    return copies


@HOW
def test_custom_stages_score_the_returned_models(settings):
    found = []
    keep = problems.each_round(lambda t, models: found.append(models.flat.clone()))
    how = {
        "also": {"ensemble": mean},
        "on": ("own_test", "own_val"),
        "every": 1,
        "dtype": torch.float64,
    }
    history = run(**(how | settings), callbacks=[keep])
    clients, module = personal_clients(), problems.linear().double()
    for t, flat in enumerate(found, start=1):
        parameters = dict(module.named_parameters())
        sizes = [p.numel() for p in parameters.values()]
        with torch.no_grad():
            for parameter, part in zip(parameters.values(), flat.mean(0).split(sizes), strict=True):
                parameter.copy_(part.view(parameter.shape))
        for i in range(N):
            for ending, held in (("", clients.test), ("_own_val", clients.val)):
                accuracy, loss = scores(module, clients.dataset, held[i])
                assert history[f"accuracy_ensemble{ending}"][t, i] == pytest.approx(accuracy)
                assert history[f"loss_ensemble{ending}"][t, i] == pytest.approx(loss, abs=1e-9)
    assert not np.array_equal(history["loss_ensemble"][1:], history["loss"][1:])
    column = history.score_columns["accuracy_ensemble_own_val"]
    assert tuple(column) == ("accuracy", "ensemble", "own_val")
    assert history.meta["evaluation"]["also"] == {
        "ensemble": "tests.engine.test_custom_stages:mean"
    }


def test_custom_stages_score_initial_models():
    history = run(also={"same": lambda models, round: models})
    np.testing.assert_array_equal(history["loss_same"], history["loss"])
    assert history["round"][0] == 0


@HOW
def test_custom_stages_do_not_change_training(settings):
    plain = run(**settings)
    observed = run(also={"ensemble": mean, "mixed": received, "own_tuning": tuned}, **settings)
    for name in plain.evaluations:
        np.testing.assert_array_equal(observed[name], plain[name])
    for name in plain.rounds:
        np.testing.assert_array_equal(observed[name], plain[name])
    assert (observed["loss_own_tuning"][1:] != observed["loss"][1:]).all()
    np.testing.assert_array_equal(plain.models.flat, observed.models.flat)


def test_custom_stages_are_resumed_bitwise(tmp_path):
    own = {"also": {"ensemble": mean, "own_tuning": tuned}, "fine_tune": False}
    stopped(tmp_path, 3, **own)
    resumed = killed.trained(arguments(**own), saving=topofl.Saving(tmp_path, resume=True))
    assert killed.differences(resumed, killed.trained(arguments(**own))) == []
    assert np.isfinite(resumed[0]["loss_ensemble"]).all()


def test_changed_custom_stages_cannot_be_resumed(tmp_path):
    stopped(tmp_path, 2, also={"ensemble": mean})
    again = arguments(also={"ensemble": received})
    with pytest.raises(ValueError, match=r"evaluation\.also was .*mean.*, is .*received"):
        topofl.run(**problems.options(saving=topofl.Saving(tmp_path, resume=True), **again))


def test_estimates_include_columns_of_custom_stages():
    plain, more = (
        need(algorithms.dsgd(0.1), rounds=100),
        need(algorithms.dsgd(0.1), rounds=100, also={"a": mean}),
    )
    assert (
        more.history - plain.history == 8 * 2 * N * 11
    )  # accuracy and loss of all nodes, 11 times


def changing(models, round):
    models.flat[0] += 1
    return models


def changing_mass(models, round):
    models.push_sum_weights.mul_(1)
    return models


def training(models, round):
    TUNED.apply(models, TUNED.init(models), round)
    return models


OWN = {
    "no dict": ([mean], TypeError, r"`also` must be a dictionary such as .*, got \["),
    "no function": (
        {"mean": 3},
        TypeError,
        r"`also\['mean'\]` must be a function of \(models, round\), got 3",
    ),
    "no identifier": (
        {"the mean": mean},
        ValueError,
        "`also` must be identifiers other than .*, got 'the mean'",
    ),
    "ours": (
        {"fine_tuned": mean},
        ValueError,
        "must be identifiers other than .*, got 'fine_tuned'; rename it",
    ),
    "a set": ({"own_val": mean}, ValueError, "must be identifiers other than"),
    "nothing": (
        {"a": lambda models, round: None},
        TypeError,
        r"must return models or a tensor .*, got None",
    ),
    "shape": (
        {"a": lambda models, round: models.flat[:1]},
        ValueError,
        r"shape \(n, d\)=\(6, 111\), got shape \(1, 111\); "
        r"for one model for all nodes, return flat\.expand\(n, -1\)",
    ),
    "dtype": (
        {"a": lambda models, round: models.flat.double()},
        ValueError,
        r"of torch\.float32 on cpu, got torch\.float64 on cpu; return flat\.to\(models\.flat\)",
    ),
    "changed": (
        {"a": changing},
        ValueError,
        r"`evaluation\.also\['a'\]` must not change the models.*work on a copy",
    ),
    "changed mass": ({"a": changing_mass}, ValueError, "must not change the models"),
    "trained": ({"a": training}, ValueError, "must not change the models"),
}


@pytest.mark.parametrize("case", OWN)
def test_invalid_custom_stages_are_refused(case):
    also, error, message = OWN[case]
    with pytest.raises(error, match=message):
        run(also=also)


def dividing(models, round):
    return 1 / (models.flat[0, 0].item() * 0)


@pytest.mark.parametrize("argument", ["also", "per_node"])
def test_functions_that_raise_or_take_other_arguments_are_named(argument):
    with pytest.raises(
        ValueError,
        match=rf"`evaluation\.{argument}\['d'\]` must return a result for models of shape "
        r"\(6, 111\) after round 0, got ZeroDivisionError: .*; correct the function",
    ) as refused:
        run(**{argument: {"d": dividing}})
    assert isinstance(refused.value.__cause__, ZeroDivisionError)
    with pytest.raises(
        TypeError,
        match=rf"`{argument}\['d'\]` must be a function of \(models, round\), got one of ",
    ):
        topofl.Evaluation(**{argument: {"d": lambda models: models.flat[:, 0]}})


def test_custom_stages_cannot_reuse_columns():
    task = topofl.tasks.Task(
        "two", nn.functional.cross_entropy, {"loss_a": lambda outputs, targets: targets.float()}
    )
    task = replace(
        task,
        loss=lambda outputs, targets: nn.functional.cross_entropy(
            outputs, targets, reduction="none"
        ),
    )
    with pytest.raises(
        ValueError,
        match=r"`evaluation\.also` must give every column a unique name, got 'loss_a'",
    ):
        run(task=task, also={"a": mean})
    train = replace(task, scores={"train": lambda outputs, targets: targets.float()})
    with pytest.raises(ValueError, match="must not give a column the name 'train_loss', which"):
        run(task=train, also={"loss": mean})


def test_divergence_errors_name_the_custom_stage():
    def diverging(models, round):
        copies = models.like(models.flat * torch.inf)
        TUNED.apply(copies, TUNED.init(copies), round)
        return copies

    with pytest.raises(topofl.DivergenceError, match="in the evaluation 'worse'"):
        run(also={"worse": diverging})


def test_functions_that_read_all_models_leave_equal_ones_stored_once():
    def mass(models, round):
        return models.push_sum_weights + models.flat[:, 0]

    stored = []
    run(
        algorithms.fedavg(0.1, batch_size=4, participation=0.5), topology=None,
        also={"ensemble": mean}, per_node={"mass": mass}, fine_tune=TUNED,
        callbacks=[lambda event: stored.append(event.models.distinct)],
    )  # fmt: skip
    assert set(stored) == {1}
