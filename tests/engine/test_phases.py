"""What a phase of one's own may ask of the round, and what it must declare for it."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import topofl
from tests import naive, problems
from topofl import algorithms, mixing, topologies
from topofl.algorithms import Phase
from topofl.algorithms.phase import LocalSGD
from topofl.engine import round as round_module
from topofl.engine.population import initial_population

N, BATCH, SEED = 6, 4, 3
UNIFORM = mixing.uniform(topologies.ring(N))


def stateless(models):
    return {}


def phase(use, **declared):
    """Return the phase that uses the round by ``use(models, round)``."""

    def apply(models, state, round):
        use(models, round)
        return state

    return Phase(stateless, apply, {"batch_size": BATCH}, **declared)


def run(tried, rounds=2, **settings):
    settings = {"clients": problems.equal_clients(N), "model": problems.linear(), "executor": "looped"} | settings
    algorithm = algorithms.chain("own", local=algorithms.sgd(0.1, batch_size=BATCH), tried=tried)
    return topofl.run(algorithm, rounds=rounds, seed=SEED, **problems.options(every=1, **settings))


DOORS = {
    "mix": lambda models, round: round.mix(UNIFORM, models.flat),
    "weights": lambda models, round: models.flat.copy_(round.weights.to_torch(models.flat.device) @ models.flat),
    "push_weights": lambda models, round: round.mix(round.push_weights, models.flat),
    "send": lambda models, round: round.send(UNIFORM, 8),
    "local_sgd": lambda models, round: round.local_sgd(models, LocalSGD(0.1, BATCH, gradient=mixing.uniform)),
}


@pytest.mark.parametrize("topology", [None, topologies.ring(N)], ids=["no topology", "ring"])
@pytest.mark.parametrize("door", DOORS)
def test_a_phase_that_exchanges_without_declaring_it_is_refused(door, topology):
    mixed = []
    with pytest.raises(
        ValueError, match=rf"the phase 'tried' must declare .* round\.{door} .*exchanges='(models|gradi)"
    ):
        run(phase(DOORS[door]), topology=topology, callbacks=[problems.each_round(lambda t, models: mixed.append(t))])
    assert mixed == []


@pytest.mark.parametrize("door", DOORS)
def test_without_a_topology_it_is_refused_before_anything_is_trained(door, monkeypatch):
    monkeypatch.setattr(round_module, "local_sgd", None)
    with pytest.raises(ValueError, match="the phase 'tried' must declare"):
        run(phase(DOORS[door]))


def test_a_phase_that_needs_numbers_is_refused_in_the_first_round():
    def use(models, round):
        assert float(models.flat.sum()) != 0
        round.mix(UNIFORM, models.flat)

    done = []
    with pytest.raises(ValueError, match="the phase 'tried' must declare"):
        run(phase(use), callbacks=[problems.each_round(lambda t, models: done.append(t))])
    assert done == []


def test_a_server_has_no_weights_of_a_graph():
    with pytest.raises(ValueError, match=r"the phase 'tried' must declare .*over='server'.*over='graph'"):
        run(phase(DOORS["weights"], exchanges="models", over="server"))


def test_fine_tuning_is_of_each_node_alone():
    tuning = algorithms.sgd(0.1)._replace(apply=phase(DOORS["mix"]).apply)
    with pytest.raises(ValueError, match="the phase 'fine_tune' must declare"):
        run(algorithms.sgd(0.1, batch_size=BATCH), fine_tune=tuning, topology=topologies.ring(N))


def test_estimates_refuse_what_runs_refuse():
    algorithm = algorithms.chain("own", tried=phase(DOORS["mix"]))
    with pytest.raises(ValueError, match="the phase 'tried' must declare"):
        topofl.estimate(algorithm, model=problems.linear(), clients=problems.equal_clients(N))


@pytest.mark.parametrize("door", ["mix", "weights", "send"])
def test_what_is_declared_is_done(door):
    declared = phase(DOORS[door], exchanges="models")
    with pytest.raises(TypeError, match="`topology` must be given"):
        run(declared)
    history = run(declared, topology=topologies.ring(N))
    assert (history["messages"] > 0).all() or door == "weights"


def own_descent(keys, lr=0.1):
    """Return the algorithm that takes a step for each key, by gradients that it asks for, and those that it got."""
    seen = []

    def use(models, round):
        for key in keys:
            gradients = round.gradients(models, BATCH, key)
            if not models.flat.is_meta:
                seen.append(gradients.clone())
            models.flat.sub_(gradients, alpha=lr)

    return algorithms.chain("own", step=phase(use, gradients=True)), seen


def descended(keys, rounds=3, clients=None, **settings):
    algorithm, seen = own_descent(keys)
    history = topofl.run(
        algorithm, model=problems.linear(), clients=clients or problems.ragged_clients(N), rounds=rounds, seed=SEED,
        **problems.options(dtype=torch.float64, **settings),
    )  # fmt: skip
    return history, seen


SETTINGS = [{"executor": "looped"}, {"executor": "batched", "chunk": 2}]


@pytest.mark.parametrize("settings", SETTINGS, ids=["looped", "batched"])
def test_losses_where_gradients_are_taken_are_recorded(settings):
    """A loop over nodes finds the same losses and gradients, on minibatches of the key."""
    clients = problems.ragged_clients(N)
    history, seen = descended(["first", "second"], clients=clients, **settings)
    nodes = naive.Nodes(
        [problems.linear().double() for _ in range(N)], clients.dataset.inputs.double(), clients.dataset.labels,
        clients.train, BATCH, SEED,
    )  # fmt: skip
    start = initial_population(
        problems.linear(), N, init="common", seed=SEED, device=torch.device("cpu"), dtype=torch.float64
    )
    wanted, steps = np.zeros((3, N)), []
    for i, module in enumerate(nodes.modules):
        torch.nn.utils.vector_to_parameters(start.flat[i].clone(), module.parameters())
        for t in range(3):
            for key in ("first", "second"):
                places = naive.minibatch(clients.train[i], i, t, BATCH, f"step/{key}", SEED)
                batch = torch.as_tensor(places)
                loss = functional.cross_entropy(module(nodes.inputs[batch]), nodes.labels[batch])
                gradients = torch.autograd.grad(loss, list(module.parameters()))
                steps.append((i, torch.cat([g.flatten() for g in gradients])))
                wanted[t, i] += loss.item() / 2
                with torch.no_grad():
                    for p, g in zip(module.parameters(), gradients, strict=True):
                        p.sub_(g, alpha=0.1)
    np.testing.assert_allclose(history.node_loss, wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(history["train_loss"], wanted.mean(1), rtol=0, atol=1e-12)
    for i in range(N):
        mine = torch.stack([gradients[i] for gradients in seen])
        torch.testing.assert_close(mine, torch.stack([g for j, g in steps if j == i]), rtol=0, atol=1e-12)


def test_keys_tell_minibatches_apart():
    def look(key):
        found = []

        def use(models, round):
            if not models.flat.is_meta:
                found.extend(round.gradients(models, BATCH, one).clone() for one in key)

        topofl.run(
            algorithms.chain("own", step=phase(use, gradients=True)), model=problems.linear(),
            clients=problems.equal_clients(N), rounds=1, seed=SEED,
        )  # fmt: skip
        return found

    a, b, again, phases_own = look(["a", "b", "a", ""])
    assert torch.equal(a, again)
    assert not torch.equal(a, b)
    assert not torch.equal(a, phases_own)
    assert torch.equal(look(["b"])[0], b), "a key's minibatches do not depend on other calls"


def test_losses_of_local_steps_come_first():
    """As of Dis-PFL, which asks for gradients after it has trained."""
    looking = phase(lambda models, round: round.gradients(models, BATCH, "look"), gradients=True)
    local = algorithms.sgd(0.1, batch_size=BATCH)
    settings = {"model": problems.linear(), "clients": problems.equal_clients(N), "rounds": 3, "seed": SEED}
    plain = topofl.run(algorithms.chain("plain", local=local), **problems.options(**settings))
    for order in ({"local": local, "look": looking}, {"look": looking, "local": local}):
        history = topofl.run(algorithms.chain("looking", **order), **problems.options(**settings))
        np.testing.assert_array_equal(history.node_loss, plain.node_loss)


@pytest.mark.parametrize("key", [None, 0])
def test_a_key_is_text(key):
    with pytest.raises(TypeError, match="`key` must be text"):
        descended([key])


def test_divergence_of_steps_of_ones_own_is_noticed():
    algorithm, _ = own_descent(["step"], lr=1e38)
    settings = {"model": problems.linear(), "clients": problems.equal_clients(N), "rounds": 4, "seed": SEED}
    with pytest.raises(topofl.DivergenceError, match=r"the loss of node \d is (nan|inf) in round 2"):
        topofl.run(algorithm, **problems.options(every=10, **settings))
    history = topofl.run(algorithm, **problems.options(every=10, on_divergence="record", **settings))
    assert {found["round"] for found in history.meta["diverged"]} == {2}


def test_gradients_of_two_keys_lie_side_by_side():
    apart = {}

    def use(models, round):
        if not models.flat.is_meta:
            first = round.gradients(models, BATCH, "first")
            before = first.clone()
            second = round.gradients(models, BATCH, "second")
            apart["kept"], apart["other"] = torch.equal(first, before), torch.equal(first, second)

    method = algorithms.chain("own", step=phase(use, gradients=True))
    topofl.run(method, model=problems.linear(), clients=problems.equal_clients(N), rounds=1, seed=SEED)
    assert apart == {"kept": True, "other": False}


def test_gradients_must_be_declared():
    def use(models, round):
        round.gradients(models, BATCH, "mine")

    with pytest.raises(ValueError, match="phase 'tried' must declare that it takes all nodes' gradients at once"):
        run(phase(use))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"over": "psh"}, ValueError, "`over` must be one of .* got 'psh'; did you mean 'push'.* .of the phase 'step'"),
        ({"exchanges": "model"}, ValueError, "`exchanges` must be one of .* did you mean 'models'"),
        ({"asks": "test"}, ValueError, "`asks` must be one of '', 'train', 'val', got 'test'"),
        ({"init": None}, TypeError, "`init` of the phase 'step' must be a function, got None"),
        ({"apply": 3}, TypeError, "`apply` of the phase 'step' must be a function, got 3"),
        ({"settings": None}, TypeError, "`settings` of the phase 'step' must be a dictionary, got None"),
    ],
)
def test_words_of_phases_that_nobody_knows_are_refused(changed, error, message):
    with pytest.raises(error, match=message):
        algorithms.chain("own", step=phase(lambda models, round: None)._replace(**changed))
