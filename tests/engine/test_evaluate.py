import pytest
import torch
from torch.nn import functional

from tests import problems
from topofl.engine import evaluate as module
from topofl.engine.evaluate import evaluate
from topofl.engine.population import initial_population


def population(model, n=4):
    return initial_population(model, n, init="independent", seed=0, device=torch.device("cpu"), dtype=torch.float64)


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
    models = population(model)
    own = [torch.arange(3), torch.arange(20, 27), torch.arange(0), torch.tensor([5])]
    inputs = blobs.inputs.double()
    shared = evaluate(model, models, inputs, blobs.labels, torch.tensor(blobs.test))
    each = evaluate(model, models, inputs, blobs.labels, own)
    for i in range(4):
        accuracy, loss = naive_scores(
            model, models.flat[i].clone(), inputs[blobs.test.tolist()], blobs.labels[blobs.test.tolist()]
        )
        assert shared.accuracy[i] == accuracy
        torch.testing.assert_close(shared.loss[i], loss)
        if len(own[i]):
            accuracy, loss = naive_scores(model, models.flat[i].clone(), inputs[own[i]], blobs.labels[own[i]])
            assert each.accuracy[i] == accuracy
            torch.testing.assert_close(each.loss[i], loss)
    assert torch.isnan(each.accuracy[2]), "a node without examples has no score"
