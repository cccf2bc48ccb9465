"""Errors and warnings of tasks, their scores and their targets."""

import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.nn import functional

import topofl
from tests.tasks import cases
from tests.tasks.cases import (
    BINS,
    CASES,
    LABELS,
    NUMBERS,
    TOKENS,
    X,
    clients_of,
    dataset_of,
    mlp,
    run,
)
from topofl import Task, algorithms, data
from topofl.tasks import Score, classification, multi_label, next_token, regression, squared_error


def per_batch(outputs, targets):
    return (outputs - targets).square().mean()


def rounded(outputs, targets):
    return (outputs - targets).round().detach().sum(1)


def among_others(outputs, targets):
    return (outputs - targets).square().mean(1) / outputs.square().mean(1).sum()


WRONG_TASKS = {
    "loss of the batch": (
        per_batch,
        {},
        r"`task` must have a loss per example, shape \(b,\)=\(2,\), got shape \(\);",
    ),
    "loss per number": (
        lambda o, t: (o - t).square(),
        {},
        r"`task` must have a loss per example, .*got shape \(2, 2\); take means",
    ),
    "a number": (lambda o, t: 1.0, {}, r"`task` must have a loss per example, .*got float"),
    "detached": (
        rounded,
        {},
        "`task` must have a loss that can be differentiated, got torch.float64 with",
    ),
    "not finite": (
        lambda o, t: (o.sum(1) - 1e9).log(),
        {},
        r"`task` must have a finite loss for finite outputs",
    ),
    "of others": (
        among_others,
        {},
        "`task` must have a loss that does not depend on other examples, got",
    ),
    "raises": (
        lambda o, t: functional.cross_entropy(o, t, reduction="none")[:, :, 0],
        {},
        r"`task` must have a loss for outputs of shape \(2, 2\) and targets of shape \(2, 2\) and "
        "torch.float64, got",
    ),
    "score in numpy": (
        squared_error,
        {"mse": lambda o, t: (o - t).detach().square().mean(1).numpy()},
        r"`task` must have 'mse' per example, .*got a numpy array of shape \(2,\); return a tensor",
    ),
    "score of the batch": (
        squared_error,
        {"mse": per_batch},
        r"`task` must have 'mse' per example, shape \(b,\)=\(2,\), got shape",
    ),
    "whole score raises": (
        squared_error,
        {"auc": Score(sklearn_metrics.roc_auc_score, whole=True)},
        r"`task` must have a number for 'auc' of outputs \(15, 2\) and targets \(15, 2\), "
        "got ValueError",
    ),
    "whole score per example": (
        squared_error,
        {"mse": Score(squared_error, whole=True)},
        "`task` must have a number for 'mse'",
    ),
}


@pytest.mark.parametrize("case", WRONG_TASKS)
def test_wrong_tasks_are_refused(case):
    loss, scores, message = WRONG_TASKS[case]
    with pytest.raises(ValueError, match=message) as error:
        run("regression", task=Task("wrong", loss, scores))
    assert str(error.value).count("\n") == 0 or case == "whole score raises"


MISFITS = {
    "numbers as classes": (
        classification(),
        lambda: mlp(2),
        NUMBERS[:, 0],
        r"classes \(N,\) of int64, got shape",
    ),
    "too many classes": (
        classification(),
        lambda: mlp(2),
        TOKENS[:, 0],
        r"classes in 0\.\.1 for outputs \(2, 2\), got 0\.\.6",
    ),
    "another width": (
        regression(),
        lambda: mlp(3),
        NUMBERS,
        r"of the shape of the model's outputs, \(3,\) per",
    ),
    "labels that are numbers": (multi_label(), lambda: mlp(2), NUMBERS, "0 or 1, got"),
    "labels of another number": (
        multi_label(),
        lambda: mlp(2),
        LABELS,
        r"\(N, labels\) with labels=\(2,\) as",
    ),
    "tokens of one position": (
        next_token(),
        lambda: mlp(7),
        TOKENS,
        r"token ids \(N, T\) of int64 for outputs",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_targets_that_do_not_fit_are_refused(case):
    task, build, targets, message = MISFITS[case]
    dataset = dataset_of(X, targets)
    with pytest.raises(ValueError, match="`targets` must be " + message):
        run("regression", task=task, model=build().double(), clients=clients_of(dataset))


def test_token_ids_beyond_the_vocabulary_are_refused():
    far = dataset_of(np.where(TOKENS[:, :-1] == 3, 9, TOKENS[:, :-1]), TOKENS[:, 1:])
    few = dataset_of(TOKENS[:, :-1], np.where(TOKENS[:, 1:] == 3, 9, TOKENS[:, 1:]))
    with pytest.raises(ValueError, match=r"`model` cannot take ex.*9.*(larg|number of embeddings)"):
        run("next token", clients=clients_of(far))
    with pytest.raises(
        ValueError,
        match=r"`targets` must be token ids in 0\.\.6 for outputs \(2, 5, 7\), got 0\.\.9",
    ):
        run("next token", clients=clients_of(few))


ARGUMENTS = {
    "no task": (
        lambda: run("regression", task="regression"),
        TypeError,
        "`task` must be a Task such as",
    ),
    "no loss": (lambda: Task("x", None), TypeError, "`loss` of a Task must be a function"),
    "no name": (lambda: Task("", per_batch), TypeError, "`name` of a Task must be text"),
    "scores in a list": (
        lambda: Task("x", per_batch, [per_batch]),
        TypeError,
        "`scores` of a Task must be a dict",
    ),
    "score is text": (
        lambda: Task("x", per_batch, {"f1": "f1"}),
        TypeError,
        "`scores` of a Task must be functions",
    ),
    "name of a column": (
        lambda: Task("x", per_batch, {"loss": per_batch}),
        ValueError,
        "names in `scores` must differ from all columns .*got 'loss'; rename",
    ),
    "name with a space": (
        lambda: Task("x", per_batch, {"a b": per_batch}),
        ValueError,
        "such as 'f1', .*got 'a b'",
    ),
    "Score of nothing": (
        lambda: Score(None),
        TypeError,
        "`function` of a Score must be a function",
    ),
    "unknown score": (lambda: classification(("acuracy",)), ValueError, "did you mean 'accuracy'"),
    "score twice": (
        lambda: regression(("mse", "mse")),
        ValueError,
        "`scores` must name each score once, got mse, mse",
    ),
    "no votes": (
        lambda: topofl.run(
            algorithms.knn_per(lr=0.1),
            model=mlp(2),
            clients=clients_of(CASES["regression"][2]),
            task=regression(),
            rounds=1,
            seed=0,
        ),
        ValueError,
        "`task` must be classification for .*, in whose evaluation nearest neighbors vote",
    ),
    "lone linear layer": (
        lambda: run(
            "next token",
            model=nn.Linear(7, 7).double(),
            clients=clients_of(dataset_of(np.eye(7)[TOKENS[:, :-1]], TOKENS[:, 1:])),
        ),
        ValueError,
        "`model` must be more than one nn.Linear for examples of shape (5, 7)",
    ),
    "integers in a linear layer": (
        lambda: run("F1 of classes", clients=clients_of(dataset_of(TOKENS[:, :4], None))),
        ValueError,
        "examples are torch.int64 and are not converted: give pixels as uint8, and other",
    ),
    "floats in an embedding": (
        lambda: run(
            "next token", clients=clients_of(dataset_of(TOKENS[:, :-1] / 1.0, TOKENS[:, 1:]))
        ),
        ValueError,
        "give token ids as int64",
    ),
    "batch normalization": (
        lambda: run("regression", model=nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))),
        ValueError,
        "use models.with_group_norm(model)",
    ),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_are_refused_by_name(case):
    call, error, message = ARGUMENTS[case]
    with pytest.raises(
        error, match=message.replace("(5, 7)", r"\(5, 7\)").replace("(model)", r"\(model\)")
    ):
        call()


@pytest.mark.parametrize(
    ("layer", "warned"),
    [(nn.Softmax(1), True), (nn.LogSoftmax(1), False), (nn.Identity(), False)],
    ids=str,
)
def test_a_final_softmax_is_warned_about(layer, warned):
    model = nn.Sequential(mlp(3), layer).double()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run("F1 of classes", model=model, rounds=1)
    texts = [str(one.message) for one in found if "probabilities" in str(one.message)]
    assert bool(texts) == warned
    assert not warned or ("remove that layer" in texts[0] and found[0].filename == cases.__file__)


DATA = {
    "neither": (
        lambda: data.from_arrays(X),
        TypeError,
        "`y` must be given, .*or `targets`, got neither",
    ),
    "fewer": (
        lambda: data.from_arrays(X, targets=NUMBERS[:5]),
        ValueError,
        "`targets` must have one target for each",
    ),
    "text": (
        lambda: data.from_arrays(X, targets=["a"] * 60),
        TypeError,
        "`targets` must be real numbers",
    ),
    "infinite": (
        lambda: data.from_arrays(X, targets=[np.inf] * 60),
        ValueError,
        "`targets` must be finite",
    ),
    "pair": (
        lambda: data.from_arrays(X, targets=BINS, test=(X, BINS)),
        ValueError,
        r"a triple \(x, y, targets\)",
    ),
    "other targets": (
        lambda: data.from_arrays(X, targets=BINS, test=(X, None, NUMBERS)),
        ValueError,
        r"must have targets of shape \(\)",
    ),
    "labels of one only": (
        lambda: data.from_arrays(X, targets=BINS, test=(X, BINS, BINS)),
        TypeError,
        "if and only if they are given for",
    ),
    "a list": (
        lambda: data.Dataset(
            torch.ones(2, 1), torch.tensor([0, 0]), 1, "x", [0, 1], [], [], targets=[1, 2]
        ),
        TypeError,
        "`targets` must be a dense tensor of real numbers, got list",
    ),
    "floats as classes": (
        lambda: data.from_torch([(torch.ones(2), 0.5)]),
        TypeError,
        "must give integers or texts as labels, got 0.5 .*targets=True",
    ),
    "flipped": (
        lambda: data.flip_labels(clients_of(CASES["regression"][2]), 1),
        ValueError,
        "must be of a dataset whose labels are learned",
    ),
    "bins of a table": (
        lambda: data.binned(X, 3),
        ValueError,
        "`values` must be a vector of numbers",
    ),
    "more bins than numbers": (lambda: data.binned([1.0, 2.0], 3), ValueError, "`n` must be "),
}


@pytest.mark.parametrize("case", DATA)
def test_wrong_targets_are_refused(case):
    call, error, message = DATA[case]
    with pytest.raises(error, match=message):
        call()
