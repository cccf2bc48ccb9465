"""Scores of models equal naive evaluation, for shared and own sets."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests import problems
from tests.problems import evaluated, population
from topofl.engine import evaluation as module
from topofl.engine.gradients import stacked_forward
from topofl.engine.population import Layout, Population
from topofl.tasks import classification


def naive_scores(model, flat, inputs, labels):
    torch.nn.utils.vector_to_parameters(flat, model.parameters())
    with torch.no_grad():
        logits = model(inputs)
    return (logits.argmax(1) == labels).double().mean(), functional.cross_entropy(logits, labels)


@pytest.mark.parametrize("rows", [1, 50, 100_000])
@pytest.mark.parametrize("build", [problems.linear, problems.convolutional])
def test_equals_naive_evaluation_for_any_chunk(build, rows, monkeypatch):
    monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(module, "EXAMPLES", rows)
    blobs, model = problems.dataset(), build().double()
    models, inputs, test = (population(model), blobs.inputs.double(), torch.tensor(blobs.test))
    own = [torch.arange(3), torch.arange(20, 27), torch.arange(0), torch.tensor([5])]
    for on in ([test] * 4, own):
        found = evaluated(model, models, inputs, blobs.labels, test if on is not own else own)
        for i, indices in enumerate(on):
            row = models.flat[i].clone()
            accuracy, loss = naive_scores(model, row, inputs[indices], blobs.labels[indices])
            torch.testing.assert_close(
                found["accuracy"][i], accuracy, rtol=0, atol=0, equal_nan=True
            )
            torch.testing.assert_close(found["loss"][i], loss, equal_nan=True)
    assert torch.isnan(found["accuracy"][2]), "a node without examples has no score"


@pytest.mark.parametrize(
    ("dtype", "rounding"), [(torch.float64, 1e-15), (torch.float32, 2e-7), (torch.bfloat16, 2e-7)]
)
def test_scores_equal_cross_entropy_and_argmax(dtype, rounding):
    """Up to the rounding of one plus the other classes' share; bfloat16 is converted to float32."""
    logits, labels = torch.randn(5, 4, 60).to(dtype) * 3, torch.arange(60) % 4
    logits[0] = 0  # the first of equal ones is predicted
    logits[1, :, ::2] = 1e4 * torch.eye(4, dtype=dtype)[:, labels[::2]]  # sure of itself
    logits[2, 1, :7], logits[3, 2, 3] = -torch.inf, torch.inf
    logits[3, :, 9], logits[4, 0, 5] = -torch.inf, torch.nan
    each = logits.transpose(1, 2).reshape(-1, 1, 4), labels.repeat(5)[:, None], None
    scores = classification().reported
    sums = module.sums_on(scores, lambda inputs: inputs, [each], module._accuracy_and_loss)
    right, losses = sums.unflatten(1, (5, 60))
    for k, own in enumerate(logits):
        wanted = functional.cross_entropy(own.T.double(), labels, reduction="none")
        torch.testing.assert_close(losses[k], wanted, rtol=1e-6, atol=rounding, equal_nan=True)
        assert torch.equal(right[k].bool(), own.argmax(0) == labels)


def test_small_losses_with_large_logits_are_accurate():
    logits = torch.tensor([[[1000.0], [1000.0 - 15]]])
    assert module._accuracy_and_loss(logits, torch.tensor([[0]]))[1].item() == pytest.approx(
        np.log1p(np.exp(-15)), rel=0.2
    )


@pytest.mark.parametrize("nodes", [[2], [1, 2], [0, 3]])
@pytest.mark.parametrize("build", [problems.linear, problems.convolutional])
@pytest.mark.parametrize("shared", [True, False])
def test_sampled_nodes_have_the_scores_of_a_full_evaluation(build, nodes, shared):
    blobs, model = problems.dataset(), build().double()
    models, inputs, test = (population(model), blobs.inputs.double(), torch.tensor(blobs.test))
    on = test if shared else list(test[:16].split(4))
    everyone = evaluated(model, models, inputs, blobs.labels, on)
    some = evaluated(model, models, inputs, blobs.labels, on, nodes)
    others = [i for i in range(4) if i not in nodes]
    for few, all_of_them in zip(some.values(), everyone.values(), strict=True):
        torch.testing.assert_close(few[nodes], all_of_them[nodes])
        assert torch.isnan(few[others]).all()


def forwards(models, model, monkeypatch, on=None, nodes=range(4)):
    """Return the scores of an evaluation, and for how many models logits were computed."""
    blobs, counted = problems.dataset(), []
    forward = stacked_forward(model)

    def noted(parameters, shared):
        counted.append(len(parameters[0]))
        return forward(parameters, shared)

    monkeypatch.setattr(module, "stacked_forward", lambda *given: noted)
    on = torch.tensor(blobs.test) if on is None else on
    scores = evaluated(model, models, blobs.inputs.double(), blobs.labels, on, nodes)
    return scores, sum(counted)


@pytest.mark.parametrize("nodes", [range(4), [1, 3]])
@pytest.mark.parametrize("build", [problems.linear, problems.convolutional])
def test_equal_models_are_evaluated_once(build, nodes, monkeypatch):
    model = build().double()
    models = population(model)
    models.flat[:] = models.flat[2].clone()
    scores, count = forwards(models, model, monkeypatch, nodes=nodes)
    assert count == 1
    monkeypatch.setattr(module, "_all_equal", lambda models: False)
    wanted, every = forwards(models, model, monkeypatch, nodes=nodes)
    assert every == len(nodes)
    for values, expected in zip(scores.values(), wanted.values(), strict=True):
        torch.testing.assert_close(values, expected, rtol=1e-12, atol=0, equal_nan=True)


def test_models_that_differ_in_a_bit_or_in_their_sets_are_evaluated_separately(monkeypatch):
    model = problems.convolutional().double()
    for node in (None, 0, 1, 3):
        models = population(model)
        models.flat[:] = models.flat[0].clone()
        if node is not None:
            above = torch.tensor(torch.inf, dtype=torch.float64)
            models.flat[node, 5] = torch.nextafter(models.flat[node, 5], above)
        own = list(torch.arange(8).split(2)) if node is None else None
        assert forwards(models, model, monkeypatch, on=own)[1] == 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_zeros_of_both_signs_are_not_bitwise_equal(dtype):
    flat = torch.zeros(3, 2, dtype=dtype)
    models = Population.alone(flat, Layout(("w",), (torch.Size([2]),)))
    assert module._all_equal(models)
    flat[1, 0] = -0.0
    assert not module._all_equal(models)


@pytest.mark.parametrize("on", [torch.arange(40, 90), [torch.arange(k, k + 3) for k in range(40)]])
def test_models_that_are_stored_once_stay_so_while_they_are_evaluated(on):
    blobs, model = problems.dataset(), problems.convolutional().double()
    models, apart = (population(model, 40, "common") for _ in range(2))
    assert len(apart.flat) == apart.distinct == 40
    inputs = blobs.inputs.double()
    scores, wanted = (evaluated(model, m, inputs, blobs.labels, on) for m in (models, apart))
    assert models.distinct == 1
    for values, expected in zip(scores.values(), wanted.values(), strict=True):
        assert torch.equal(values, expected)


SHARED = torch.arange(40, 90)


class Constant(torch.nn.Module):
    """A model whose logits are a view of its parameter, which evaluation must not write to."""

    def __init__(self):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.arange(3.0))

    def forward(self, x):
        return self.logits.expand(len(x), -1)


@pytest.mark.parametrize("build", [problems.linear, problems.convolutional, Constant])
def test_evaluation_does_not_change_models(build):
    blobs, model = problems.dataset(), build().double()
    models = population(model)
    models.flat[1] += 1
    before = models.flat.clone()
    evaluated(model, models, blobs.inputs.double(), blobs.labels, SHARED)
    assert torch.equal(models.flat, before)
