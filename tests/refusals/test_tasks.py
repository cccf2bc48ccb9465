"""What tasks, their scores, and runs that learn them refuse."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.nn import functional

import topofl
from tests.refusals import named, refused, rows
from tests.rows.tasks import (
    CASES,
    LABELS,
    NUMBERS,
    TOKENS,
    X,
    clients_of,
    dataset_of,
    mlp,
    run,
    tokens_model,
)
from topofl import Task, algorithms
from topofl.tasks import Score, classification, multi_label, next_token, regression, squared_error

DATASET = CASES["regression"][2]


def per_batch(outputs, targets):
    return (outputs - targets).square().mean()


def rounded(outputs, targets):
    return (outputs - targets).round().detach().sum(1)


def among_others(outputs, targets):
    return (outputs - targets).square().mean(1) / outputs.square().mean(1).sum()


def in_numpy(outputs, targets):
    return (outputs - targets).detach().square().mean(1).numpy()


def of_tokens(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none")[:, :, 0]


def wrong(loss, **scores):
    return lambda: run("regression", task=Task("wrong", loss, scores))


def misfit(task, outputs, targets):
    """Return a run whose targets do not fit the outputs of its model."""
    clients, model = clients_of(dataset_of(X, targets)), mlp(outputs).double()
    return lambda: run("regression", task=task, model=model, clients=clients)


def tokens(inputs, targets, **more):
    return lambda: run("next token", clients=clients_of(dataset_of(inputs, targets)), **more)


def far(ids):
    """Return token ids of which one is beyond the vocabulary."""
    return np.where(ids == 3, 9, ids)


def votes():
    algorithm, options = algorithms.knn_per(lr=0.1), {"rounds": 1, "seed": 0}
    topofl.run(algorithm, model=mlp(2), clients=clients_of(DATASET), task=regression(), **options)


def without_classes():
    algorithm, clients = algorithms.fedproto(lr=0.1, head="2"), clients_of(dataset_of(FIRST, REST))
    options = {"rounds": 1, "seed": 0, "task": next_token()}
    topofl.run(algorithm, model=tokens_model(), clients=clients, **options)


class Turned(nn.Module):
    """A language model whose outputs are (b, vocabulary, T)."""

    def __init__(self):
        super().__init__()
        self.model = tokens_model().double()

    def forward(self, x):
        return self.model(x).transpose(1, 2)


class Placed(Turned):
    """A language model of sequences of four tokens."""

    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.zeros(4, 7).double())

    def forward(self, x):
        return self.model(x) + self.places


def score_called(name):
    def score(outputs, targets):
        return outputs.amax(1)

    score.__name__ = name
    return score


def scored(task, scores):
    return lambda: task(scores=scores)


FIRST, REST = TOKENS[:, :-1], TOKENS[:, 1:]
EXAMPLE, COLUMN = r"a loss per example, shape (b,)=(2,), got", "must differ from all columns"
TWICE, NAMELESS = (score_called("largest"), Score(score_called("largest"))), "functions with a name"
NORMALIZED = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, track_running_stats=False))
VALUE_ERRORS = {
    # Losses and scores
    "got shape (2, 2); take means": wrong(lambda o, t: (o - t).square()),
    "a loss that can be differentiated, got torch.float64 with": wrong(rounded),
    "a finite loss for finite outputs": wrong(lambda o, t: (o.sum(1) - 1e9).log()),
    "a loss that does not depend on other examples, got": wrong(among_others),
    "targets of shape (2, 2) and torch.float64, got": wrong(of_tokens),
    "'mse' per example, shape (b,)=(2,), got a numpy array of shape (2,); return a tensor": wrong(
        squared_error, mse=in_numpy
    ),
    "'mse' per example, shape (b,)=(2,)": wrong(squared_error, mse=per_batch),
    "a number for 'auc' of outputs (15, 2) and targets (15, 2), got ValueError": wrong(
        squared_error, auc=Score(sklearn_metrics.roc_auc_score, whole=True)
    ),
    "`task` must have a number for 'mse'": wrong(
        squared_error, mse=Score(squared_error, whole=True)
    ),
    # Targets
    "classes (N,) of int64, got shape": misfit(classification(), 2, NUMBERS[:, 0]),
    "`targets` must be classes in 0..1 for outputs (2, 2), got 0..6": (
        misfit(classification(), 2, TOKENS[:, 0]),
        misfit(classification(), 7, TOKENS[:, 0]),
    ),
    (
        "`targets` must be classes (N,) of int64, got shape (60, 5)",
        "or give run another task, e.g. task=topofl.tasks.next_token()",
    ): tokens(FIRST, REST, task=None),
    "the model's outputs, (3,) per": misfit(regression(), 3, NUMBERS),
    "`targets` must be 0 or 1, got": misfit(multi_label(), 2, NUMBERS),
    "(N, labels) with labels=(2,) as": misfit(multi_label(), 2, LABELS),
    "token ids (N, T) of int64 for outputs": misfit(next_token(), 7, TOKENS),
    ("which are (7, 5), so transpose them, got", "give run another task"): tokens(
        FIRST, REST, model=Turned()
    ),
    "`task` must be classification for fedproto, got targets of torch.int64": without_classes,
    "token ids in 0..6 for outputs (2, 5, 7), got 0..9": tokens(FIRST, far(REST)),
    "`model` cannot take ex": tokens(far(FIRST), REST),
    # Arguments
    "such as 'f1', got 'a b'": lambda: Task("x", per_batch, {"a b": per_batch}),
    "did you mean 'accuracy'": lambda: classification(("acuracy",)),
    "each score once, got mse, mse": lambda: regression(("mse", "mse")),
    "classification for": votes,
    "`model` must be more than one nn.Linear for examples of shape (5, 7)": tokens(
        np.eye(7)[FIRST], REST, model=nn.Linear(7, 7).double()
    ),
    "examples are torch.int64 and are not converted: give pixels as uint8, and other": lambda: run(
        "F1 of classes", clients=clients_of(dataset_of(TOKENS[:, :4], None))
    ),
    "give token ids as int64, below the number of embeddings, and": tokens(FIRST / 1.0, REST),
    ("int64, below the number of embeddings, such as", "embed as many positions"): tokens(
        FIRST + 7, REST
    ),
    "build it for sequences of that shape": tokens(FIRST, REST, model=Placed()),
    "use models.with_group_norm(": lambda: run("regression", model=NORMALIZED),
}
TYPE_ERRORS = {
    # Arguments
    "`task` must be a Task such as": lambda: run("regression", task="regression"),
    "`loss` of a Task must be a function": lambda: Task("x", None),
    "`name` of a Task must be text": lambda: Task("", per_batch),
    "must be a dict of functions": lambda: Task("x", per_batch, [per_batch]),
    "must be functions or Scores": lambda: Task("x", per_batch, {"f1": "f1"}),
    "`function` of a Score must be a function": lambda: Score(None),
    "`finish` of a Score must be": lambda: Score(per_batch, finish=3),
}
ROWS = rows(
    {ValueError: VALUE_ERRORS, TypeError: TYPE_ERRORS},
    (ValueError, f"`task` must have {EXAMPLE} shape ();", wrong(per_batch)),
    (ValueError, f"{EXAMPLE} float", wrong(lambda o, t: 1.0)),
    *(
        (ValueError, (COLUMN, f"got '{name}'; rename"), call)
        for name in ("loss", "messages", "node", "label", "busiest_bytes", "simulated_seconds")
        for call in (
            scored(classification, ("accuracy", score_called(name))),
            scored(partial(Task, "mine", per_batch), {name: per_batch}),
        )
    ),
    *(
        row
        for task in (regression, next_token, multi_label, classification)
        for row in (
            (ValueError, "got largest, largest", scored(task, TWICE)),
            (ValueError, NAMELESS, scored(task, lambda o, t: o[:, 0])),
            (ValueError, NAMELESS, scored(task, (Score(partial(per_batch)),))),
            (ValueError, "`scores` must be one of", scored(task, (3,))),
            (TypeError, "got 'f1' for 'my'", scored(task, {"my": "f1"})),
        )
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)


def test_messages_about_losses_have_one_line():
    for loss in (per_batch, rounded, among_others, of_tokens, lambda o, t: torch.ones(3)):
        with pytest.raises(ValueError, match="`task`") as error:
            wrong(loss)()
        assert "\n" not in str(error.value)
