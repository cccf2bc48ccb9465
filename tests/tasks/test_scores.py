"""Scores equal plain loops and scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.nn import functional

import topofl
from tests import problems
from tests.tasks.cases import CASES, by_hand, clients_of, label_losses, run
from topofl.tasks import classification, f1_of_labels, hamming_loss, macro_auc, subset_accuracy


def outputs_of(modules, case, indices):
    dataset = CASES[case][2]
    inputs = dataset.examples(dtype=torch.float64)
    where = torch.tensor(indices)
    with torch.no_grad():
        return [module(inputs[where]) for module in modules], dataset.learned(torch.float64)[where]


def plain_regression(outputs, targets):
    mse = float((outputs - targets).square().mean())
    r2 = sklearn_metrics.r2_score(targets, outputs)
    return {
        "mse": mse,
        "mae": float((outputs - targets).abs().mean()),
        "rmse": mse**0.5,
        "r2": r2,
        "loss": mse,
    }


def plain_tokens(outputs, targets):
    rows = [
        (row[t], int(wanted[t]))
        for row, wanted in zip(outputs, targets, strict=True)
        for t in range(len(wanted))
    ]
    loss = np.mean([float(torch.logsumexp(logits, 0) - logits[token]) for logits, token in rows])
    right = np.mean([int(logits.argmax()) == token for logits, token in rows])
    return {"accuracy": right, "perplexity": np.exp(loss), "loss": loss}


def plain_labels(outputs, targets):
    right = np.mean(
        [
            all((o > 0) == bool(t) for o, t in zip(*pair, strict=True))
            for pair in zip(outputs, targets, strict=True)
        ]
    )
    return {"subset_accuracy": right, "loss": float(label_losses(outputs, targets).mean())}


def plain_classes(outputs, targets):
    f1 = sklearn_metrics.f1_score(targets, outputs.argmax(1), average="macro", zero_division=0.0)
    right = float((outputs.argmax(1) == targets).double().mean())
    return {"f1": f1, "accuracy": right, "loss": float(functional.cross_entropy(outputs, targets))}


PLAIN = {
    "regression": plain_regression,
    "next token": plain_tokens,
    "several labels": plain_labels,
    "F1 of classes": plain_classes,
}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("case", PLAIN)
def test_scores_equal_plain_ones(case, own):
    """On one set for all, and on sets of the nodes' own, of which one is empty."""
    clients = clients_of(CASES[case][2])
    parts = np.array_split(clients.dataset.test, 3)
    clients = (
        replace(clients, test=(parts[0], np.zeros(0, np.int64), parts[1], parts[2]))
        if own
        else clients
    )
    history = run(case, clients=clients, on="own_test" if own else "test")
    assert list(history.scores) == list(history.meta["task"]["scores"])
    modules = by_hand(case, 4)
    for i, module in enumerate(modules):
        indices = clients.test[i] if own else clients.dataset.test
        if not len(indices):
            assert all(np.isnan(history.last(name)[i]) for name in history.scores)
            continue
        (outputs,), targets = outputs_of([module], case, indices)
        for name, value in PLAIN[case](outputs, targets).items():
            np.testing.assert_allclose(
                history[name][-1, i], value, rtol=1e-9, err_msg=f"{name} of node {i}"
            )


@pytest.mark.parametrize("threads", [1, 3])
def test_scores_of_linear_models_are_of_each_node_alone(threads, monkeypatch):
    """Linear models are evaluated together, but one by one for scores of whole sets."""
    from topofl.engine import evaluation as module

    monkeypatch.setattr(module, "EXAMPLES", 4)
    monkeypatch.setattr(module, "ROWS", 7)
    blobs = problems.dataset()
    linear = problems.linear().double()
    flat = torch.stack(
        [nn.utils.parameters_to_vector(linear.parameters()).detach() + k for k in range(4)]
    )
    flat += 0.1 * torch.from_numpy(np.random.default_rng(1).standard_normal(flat.shape))
    population = topofl.engine.population.Population.alone(
        flat, topofl.engine.population.Layout.of(linear)
    )
    task = classification(scores=("accuracy", "f1", "auc", "calibration"))
    found = problems.evaluated(
        linear, population, blobs.inputs.double(), blobs.labels, torch.tensor(blobs.test),
        task=task, workers=threads,
    )  # fmt: skip
    for i in range(4):
        nn.utils.vector_to_parameters(flat[i], linear.parameters())
        with torch.no_grad():
            outputs = linear(blobs.inputs[blobs.test.tolist()].double())
        targets = blobs.labels[blobs.test.tolist()]
        for name, value in plain_classes(outputs, targets).items():
            np.testing.assert_allclose(float(found[name][i]), value, rtol=1e-9)
        shares = torch.softmax(outputs, 1).numpy()
        auc = sklearn_metrics.roc_auc_score(targets, shares, multi_class="ovr", average="macro")
        np.testing.assert_allclose(float(found["auc"][i]), auc)
        np.testing.assert_allclose(
            float(found["calibration"][i]), calibration_by_hand(shares, targets.numpy())
        )


def calibration_by_hand(shares, targets, bins=15):
    total = 0.0
    for k in range(bins):
        inside = [
            row for row in range(len(targets)) if k / bins < shares[row].max() <= (k + 1) / bins
        ]
        if inside:
            right = np.mean([shares[row].argmax() == targets[row] for row in inside])
            total += (
                len(inside)
                / len(targets)
                * abs(right - np.mean([shares[row].max() for row in inside]))
            )
    return total


def test_auc_is_of_the_classes_that_are_there():
    outputs = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    targets = torch.tensor([0, 1, 0])
    assert macro_auc(outputs, targets) == 1.0
    assert np.isnan(macro_auc(outputs[:1], targets[:1])), "one class has no curve"


def test_labels_by_their_own_scores():
    outputs = torch.tensor([[1.0, -1.0], [1.0, 1.0], [-2.0, -3.0]])
    targets = torch.tensor([[1, 0], [0, 1], [1, 0]])
    assert subset_accuracy(outputs, targets).tolist() == [True, False, False]
    assert hamming_loss(outputs, targets).tolist() == [0, 0.5, 0.5]
    assert f1_of_labels(outputs, targets) == pytest.approx((0.5 + 1) / 2)
