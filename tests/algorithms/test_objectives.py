"""What local steps minimize: objectives of a phase, and sums of features over own examples."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests import problems
from tests.algorithms import harness
from topofl import algorithms
from topofl.algorithms import Objective, chain, descend, gossip, part, train

N, HEAD = harness.N, part(harness.HEAD)
STEP = {"batch_size": harness.BATCH, "steps": 2}


def of_task(apply, inputs, targets, own, loss):
    return loss(apply(inputs)[0], targets)


def steps(objective, **options):
    """Return D-SGD with an objective."""
    local = train(descend(lr=0.1), objective=objective, **STEP | options)
    return chain("steps", local=local, exchange=gossip())


def ended(algorithm, **how):
    given = {"model": problems.convolutional(), "clients": problems.ragged_clients()} | how
    graph = problems.cliques(given["clients"])
    return harness.engine(algorithm, graph=graph, **given)[1].flat


@pytest.mark.parametrize("model", [problems.linear, problems.convolutional])
def test_the_loss_of_the_task_as_objective_changes_nothing(model):
    layer = HEAD if model is problems.convolutional else part("1")
    found = ended(steps(Objective("task", of_task, layer)), model=model())
    torch.testing.assert_close(found, ended(steps(None), model=model()), rtol=0, atol=1e-12)


class Repeated(nn.Module):
    """A network that calls its last layer twice, so that no layer has features of it."""

    def __init__(self):
        super().__init__()
        self.first, self.last = problems.linear(), nn.Linear(3, 3)

    def forward(self, x):
        return self.last(self.last(self.first(x)))


def without_features(apply, inputs, targets, own, loss):
    outputs, features = apply(inputs)
    assert features is None
    return loss(outputs, targets)


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_an_objective_without_features_trains_a_model_that_has_none(executor):
    objective = Objective("task", without_features, None)
    found = ended(steps(objective), model=Repeated(), executor=executor)
    torch.testing.assert_close(found, ended(steps(None), model=Repeated()), rtol=0, atol=1e-12)
    assert "features" not in steps(objective).settings["local"]
    with pytest.raises(ValueError, match=r"a layer that the model calls once"):
        ended(steps(Objective("task", of_task, part("last"))), model=Repeated())


def contrast(apply, inputs, targets, own, loss):
    """Return a loss that compares features with those of another model, as MOON does."""
    outputs, features = apply(inputs)
    _, others = apply(inputs, own["other"])
    return loss(outputs, targets) + functional.cosine_similarity(features, others, dim=1)


def starts(models):
    return {"other": models.flat.clone()}


def loop(clients):
    nodes = harness.nodes_at_start(problems.convolutional(), clients)
    others = [problems.convolutional().double() for _ in range(N)]
    for other, module in zip(others, nodes.modules, strict=True):
        other.load_state_dict(module.state_dict())

    def seen(module, x):
        return nn.Sequential(*list(module)[:-1])(x)

    weights = harness.weights_of(problems.cliques(clients))
    for t in range(harness.ROUNDS):
        for i, (module, other) in enumerate(zip(nodes.modules, others, strict=True)):
            for k in range(2):
                chosen = harness.naive.minibatch(
                    clients.train[i], i, 2 * t + k, harness.BATCH, "local", harness.SEED
                )
                x, y = nodes.inputs[torch.tensor(chosen)], nodes.labels[torch.tensor(chosen)]
                near = functional.cosine_similarity(seen(module, x), seen(other, x).detach(), dim=1)
                losses = functional.cross_entropy(module(x), y, reduction="none") + near
                gradients = torch.autograd.grad(losses.mean(), list(module.parameters()))
                for p, g in zip(module.parameters(), gradients, strict=True):
                    p.data.sub_(0.1 * g)
        harness.naive.average(nodes.modules, weights)
    return nodes.flat()


@pytest.mark.parametrize("clients", [problems.equal_clients, problems.ragged_clients])
@harness.HOW
def test_an_objective_with_another_model_equals_its_loop(clients, settings):
    found = ended(
        steps(Objective("contrast", contrast, HEAD, starts)), clients=clients(), **settings
    )
    torch.testing.assert_close(found, loop(clients()), rtol=0, atol=1e-12)


def twice(apply, inputs, targets, own, loss):
    apply(inputs, own["other"])
    return of_task(apply, inputs, targets, own, loss)


@harness.HOW
def test_another_model_changes_no_running_statistics(settings):
    with_statistics = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.BatchNorm1d(4))
    model = with_statistics.append(nn.ReLU()).append(nn.Identity()).append(nn.Linear(4, 3))
    clients = problems.equal_clients()
    graph = problems.cliques(clients)
    found = [
        harness.engine(steps(objective, batch_size=6), model, clients, graph, **settings)[0].models
        for objective in (Objective("twice", twice, HEAD, starts), None)
    ]
    torch.testing.assert_close(found[0].flat, found[1].flat, rtol=0, atol=1e-12)
    for name, values in found[0].buffers.items():
        torch.testing.assert_close(values, found[1].buffers[name], rtol=0, atol=1e-12)


def branching(apply, inputs, targets, own, loss):
    return of_task(apply, inputs, targets, own, loss) * (1 if inputs.sum() > 0 else 2)


def test_settings_name_the_objective_and_its_layer():
    settings = steps(Objective("contrast", contrast, HEAD, settings={"strength": 2})).settings
    assert settings["local"]["objective"] == "contrast"
    assert (settings["local"]["features"], settings["local"]["strength"]) == ("5", 2)


def test_sums_of_features_are_those_of_each_nodes_own_examples():
    clients, found = problems.ragged_clients(), []

    def look(models, state, round):
        sums = round.feature_sums(models, HEAD, lambda x, y: torch.stack([x.sum(), y.sum().to(x)]))
        if not sums.is_meta:
            found.append((models.flat.clone(), sums.clone()))
        return state

    harness.engine(
        chain("look", look=algorithms.Phase(lambda models: {}, look)),
        problems.convolutional(), clients, rounds=1,
    )  # fmt: skip
    (flat, sums), module = found[0], problems.convolutional().double()
    for i, own in enumerate(clients.train):
        nn.utils.vector_to_parameters(flat[i], module.parameters())
        x, y = clients.dataset.inputs[own.copy()].double(), clients.dataset.labels[own.copy()]
        features = nn.Sequential(*list(module)[:-1])(x)
        wanted = torch.stack([features.sum(), y.sum().to(features)])
        torch.testing.assert_close(sums[i], wanted.detach(), rtol=1e-12, atol=1e-12)


def started(objective, **options):
    return ended(steps(objective, **options))


def per_batch(apply, inputs, targets, own, loss):
    return loss(apply(inputs)[0], targets).mean()


def summed_wrongly():
    def look(models, state, round):
        round.feature_sums(models, HEAD, lambda features, targets: features @ targets)
        return state

    phase = algorithms.Phase(lambda models: {}, look)
    harness.engine(chain("look", look=phase), problems.convolutional())


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, "`objective` must be an Objective", lambda: train(descend(lr=1), objective=3)),
        (
            TypeError,
            "`losses` of the objective 'odd' must be a function of",
            lambda: train(descend(lr=1), objective=Objective("odd", lambda apply: 0)),
        ),
        (
            ValueError,
            "`gradient` must be None with objective='task'",
            lambda: train(
                descend(lr=1), objective=Objective("task", of_task), gradient=len, batch_size=2
            ),
        ),
        (
            ValueError,
            r"`losses` of the objective 'mean' must return one loss per example",
            lambda: started(Objective("mean", per_batch, HEAD)),
        ),
        (
            ValueError,
            "without branching on values, but it raised",
            lambda: ended(steps(Objective("odd", branching, HEAD)), executor="batched"),
        ),
        (
            ValueError,
            "`losses` of the objective 'odd' must .* raised KeyError: 'other'",
            lambda: started(Objective("odd", twice, HEAD)),
        ),
        (ValueError, "`function` of round.feature_sums must work on", summed_wrongly),
        (
            ValueError,
            "must be one layer",
            lambda: started(Objective("task", of_task, algorithms.everything)),
        ),
    ],
    ids=[
        "kind",
        "arguments",
        "averaged gradients",
        "one loss",
        "branch",
        "state",
        "function",
        "layers",
    ],
)
def test_wrong_objectives_are_refused(error, message, call):
    with pytest.raises(error, match=message):
        call()
