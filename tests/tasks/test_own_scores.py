"""Functions and Scores beside the names of known scores, in all tasks."""

from functools import partial

import numpy as np
import pytest
import torch

from tests.tasks.cases import CASES, by_hand, run
from topofl import tasks
from topofl.tasks import Score

TASKS = {
    "regression": (tasks.regression, "mse"),
    "next token": (tasks.next_token, "accuracy"),
    "several labels": (tasks.multi_label, "subset_accuracy"),
    "F1 of classes": (tasks.classification, "accuracy"),
}
"""The task and one of its scores, by the case of a run that has a dataset for it."""


def largest(outputs, targets):
    """Return the largest output of each example."""
    return outputs.flatten(1).amax(1)


def spread(outputs, targets):
    """Return the distance between the extreme outputs on a whole set."""
    return outputs.max() - outputs.min()


@pytest.mark.parametrize("case", TASKS)
def test_functions_and_scores_are_evaluated_beside_known_ones(case):
    task, known = TASKS[case]
    scores = (known, largest, Score(spread, low_is_good=True, whole=True))
    history = run(case, task=task(scores=scores))
    assert list(history.scores) == [known, "largest", "spread", "loss"]
    assert (history.scores["largest"], history.scores["spread"]) == ("high", "low")
    plain = run(case, task=task(scores=(known,)))
    np.testing.assert_array_equal(history[known], plain[known])
    dataset = CASES[case][2]
    inputs = dataset.examples(dtype=torch.float64)[torch.tensor(dataset.test)]
    for i, module in enumerate(by_hand(case, 4)):
        with torch.no_grad():
            outputs = module(inputs)
        assert history.last("largest")[i] == pytest.approx(float(largest(outputs, None).mean()))
        assert history.last("spread")[i] == pytest.approx(float(spread(outputs, None)))


@pytest.mark.parametrize("case", TASKS)
def test_one_function_is_the_primary_score(case):
    task, _ = TASKS[case]
    assert task(scores=largest).directions == {"largest": "high", "loss": "low"}


@pytest.mark.parametrize("case", TASKS)
def test_a_dictionary_names_functions_and_scores(case):
    task, known = TASKS[case]
    found = task(scores={"my": largest, "other": Score(spread, low_is_good=True, whole=True)})
    assert found.directions == {"my": "high", "other": "low", "loss": "low"}
    assert found.scores["my"].function is largest
    with pytest.raises(TypeError, match=f"must be functions or Scores, got '{known}' for 'my'"):
        task(scores={"my": known})


@pytest.mark.parametrize("case", TASKS)
def test_functions_without_a_name_and_names_given_twice_are_refused(case):
    task, known = TASKS[case]
    nameless = (lambda outputs, targets: outputs[:, 0], partial(largest), Score(partial(largest)))
    for given in nameless:
        with pytest.raises(
            ValueError, match=r"must have functions with a name, .*define it by def"
        ):
            task(scores=(known, given))
    with pytest.raises(ValueError, match="must name each score once, got largest, largest"):
        task(scores=(largest, Score(largest)))
    with pytest.raises(ValueError, match=r"`scores` must be one of .*, got 3"):
        task(scores=(known, 3))


@pytest.mark.parametrize(
    "name", ["messages", "node", "label", "busiest_bytes", "simulated_seconds"]
)
def test_names_of_other_columns_are_refused(name):
    def score(outputs, targets):
        return largest(outputs, targets)

    score.__name__ = name
    with pytest.raises(
        ValueError, match=rf"`scores` must differ from all .*, got '{name}'; rename"
    ):
        tasks.classification(scores=("accuracy", score))
    with pytest.raises(
        ValueError, match=rf"`scores` must differ from all .*, got '{name}'; rename"
    ):
        tasks.Task("mine", largest, {name: largest})
