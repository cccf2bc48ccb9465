import pytest
import torch
from torch.nn import functional

from tests import problems
from topofl.engine import evaluate as module
from topofl.engine.evaluate import Evaluated, evaluate
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
    shared = evaluate(model, models, inputs, blobs.labels, Evaluated(torch.tensor(blobs.test), range(4)))
    each = evaluate(model, models, inputs, blobs.labels, Evaluated(own, range(4)))
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


@pytest.mark.parametrize("nodes", [[2], [1, 2], [0, 3]])
@pytest.mark.parametrize("build", [problems.linear, problems.convolutional])
@pytest.mark.parametrize("shared", [True, False])
def test_some_nodes_have_the_scores_they_have_among_all(build, nodes, shared):
    blobs, model = problems.dataset(), build().double()
    models, inputs, test = population(model), blobs.inputs.double(), torch.tensor(blobs.test)
    on = test if shared else list(test[:16].split(4))
    everyone = evaluate(model, models, inputs, blobs.labels, Evaluated(on, range(4)))
    some = evaluate(model, models, inputs, blobs.labels, Evaluated(on, nodes))
    others = [i for i in range(4) if i not in nodes]
    for few, all_of_them in zip(some, everyone, strict=True):
        torch.testing.assert_close(few[nodes], all_of_them[nodes])
        assert torch.isnan(few[others]).all()
