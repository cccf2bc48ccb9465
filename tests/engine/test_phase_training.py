"""Training, gradients and losses of user-defined phases."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional

import topofl
from tests import naive, problems
from tests.engine.phases import BATCH, SEED, N, phase, run
from tests.engine.train.test_divergence import clients_with_extremes
from topofl import algorithms, topologies
from topofl.engine.population import initial_population


def test_each_call_of_train_draws_other_minibatches():
    training = algorithms.Training(algorithms.descend(lr=0.1), BATCH)

    def twice(models, round):
        round.train(models, training, {})
        round.train(models, training, {})

    def flat(apply):
        kept = []
        algorithm = algorithms.chain("own", tried=phase(apply))
        topofl.run(
            algorithm,
            model=problems.linear(),
            clients=problems.equal_clients(N),
            rounds=1,
            seed=SEED,
            callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        )
        return kept[0]

    same = algorithms.chain("same", tried=algorithms.sgd(0.1, batch_size=BATCH, steps=2))
    kept = []
    topofl.run(
        same, model=problems.linear(), clients=problems.equal_clients(N), rounds=1, seed=SEED,
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
    )  # fmt: skip
    first = flat(lambda models, round: round.train(models, training, {}))
    assert not torch.equal(flat(twice), first)
    assert not torch.equal(flat(twice), kept[0])


def own_descent(keys, lr=0.1):
    """Return an algorithm that takes a gradient step for each key, and a list of the gradients."""
    seen = []

    def use(models, round):
        for key in keys:
            gradients = round.gradients(models, BATCH, key)
            if not models.flat.is_meta:
                seen.append(gradients.clone())
            models.flat.sub_(gradients, alpha=lr)

    return algorithms.chain("own", step=phase(use)), seen


def descended(keys, rounds=3, clients=None, **settings):
    algorithm, seen = own_descent(keys)
    history = topofl.run(
        algorithm,
        model=problems.linear(),
        clients=clients or problems.ragged_clients(N),
        rounds=rounds,
        seed=SEED,
        **problems.options(dtype=torch.float64, **settings),
    )
    return history, seen


SETTINGS = [{"executor": "looped"}, {"executor": "batched", "chunk": 2}]


@pytest.mark.parametrize("settings", SETTINGS, ids=["looped", "batched"])
def test_losses_of_gradient_evaluations_are_recorded(settings):
    """A loop over nodes gives the same losses and gradients, on the minibatches of the key."""
    clients = problems.ragged_clients(N)
    history, seen = descended(["first", "second"], clients=clients, **settings)
    nodes = naive.Nodes(
        [problems.linear().double() for _ in range(N)],
        clients.dataset.inputs.double(),
        clients.dataset.labels,
        clients.train,
        BATCH,
        SEED,
    )
    start = initial_population(
        problems.linear(),
        N,
        init="common",
        seed=SEED,
        device=torch.device("cpu"),
        dtype=torch.float64,
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
        torch.testing.assert_close(
            mine, torch.stack([g for j, g in steps if j == i]), rtol=0, atol=1e-12
        )


def test_each_key_draws_other_minibatches():
    def look(key):
        found = []

        def use(models, round):
            gradients = [round.gradients(models, BATCH, one).clone() for one in key]
            found.extend([] if models.flat.is_meta else gradients)

        topofl.run(
            algorithms.chain("own", step=phase(use)), model=problems.linear(),
            clients=problems.equal_clients(N), rounds=1, seed=SEED,
        )  # fmt: skip
        return found

    a, b, again, phases_own = look(["a", "b", "a", ""])
    assert torch.equal(a, again)
    assert not torch.equal(a, b)
    assert not torch.equal(a, phases_own)
    assert torch.equal(look(["b"])[0], b), "a key's minibatches do not depend on other calls"


def test_losses_of_local_steps_take_precedence():
    """For example in Dis-PFL, which evaluates gradients after training."""
    looking = phase(lambda models, round: round.gradients(models, BATCH, "look"))
    local = algorithms.sgd(0.1, batch_size=BATCH)
    settings = {
        "model": problems.linear(),
        "clients": problems.equal_clients(N),
        "rounds": 3,
        "seed": SEED,
    }
    plain = topofl.run(algorithms.chain("plain", local=local), **problems.options(**settings))
    for order in ({"local": local, "look": looking}, {"look": looking, "local": local}):
        history = topofl.run(algorithms.chain("looking", **order), **problems.options(**settings))
        np.testing.assert_array_equal(history.node_loss, plain.node_loss)


@pytest.mark.parametrize("key", [None, 0])
def test_keys_must_be_text(key):
    with pytest.raises(TypeError, match="`key` must be text"):
        descended([key])


def test_divergence_in_custom_phases_is_detected():
    algorithm, _ = own_descent(["step"], lr=1e38)
    settings = {
        "model": problems.linear(),
        "clients": problems.equal_clients(N),
        "rounds": 4,
        "seed": SEED,
    }
    with pytest.raises(
        topofl.DivergenceError, match=r"the loss of node \d is (nan|inf) in step \d of round 2"
    ):
        topofl.run(algorithm, **problems.options(every=10, **settings))
    history = topofl.run(
        algorithm, **problems.options(every=10, on_divergence="record", **settings)
    )
    assert {found["round"] for found in history.meta["diverged"]} == {2}


def test_gradients_in_the_state_are_those_of_the_round_before():
    """Although each round computes its gradients in the same memory."""
    seen = []

    def apply(models, state, round):
        gradients = round.gradients(models, BATCH, "")
        if not models.flat.is_meta:
            seen.append((state["last"].clone(), gradients.clone()))
        models.flat.sub_(gradients, alpha=0.1)
        return {"last": gradients}

    run(algorithms.Phase(lambda models: {"last": torch.zeros_like(models.flat)}, apply), rounds=3)
    for (_, before), (last, now) in itertools.pairwise(seen):
        assert torch.equal(last, before)
        assert not torch.equal(last, now)


def test_gradients_of_two_keys_do_not_share_memory():
    apart = {}

    def use(models, round):
        first = round.gradients(models, BATCH, "first")
        before = first.clone()
        second = round.gradients(models, BATCH, "second")
        if not models.flat.is_meta:
            apart["kept"], apart["other"] = torch.equal(first, before), torch.equal(first, second)

    method = algorithms.chain("own", step=phase(use))
    topofl.run(
        method, model=problems.linear(), clients=problems.equal_clients(N), rounds=1, seed=SEED
    )
    assert apart == {"kept": True, "other": False}


def test_gradient_evaluations_count_as_steps():
    """DSGT evaluates one gradient per node and round; local steps and gradients add up."""
    history = topofl.run(
        algorithms.dsgt(0.1), model=problems.linear(), clients=problems.equal_clients(N),
        topology=topologies.ring(N), rounds=3, seed=SEED,
    )  # fmt: skip
    assert history["steps"].tolist() == [N] * 3
    looking = phase(lambda models, round: round.gradients(models, BATCH, "look"))
    assert run(looking, rounds=3)["steps"].tolist() == [2 * N] * 3


def test_frozen_nodes_take_no_steps():
    clients = clients_with_extremes()
    history = topofl.run(
        algorithms.dsgd(0.1, batch_size=BATCH),
        model=problems.linear(),
        clients=clients,
        topology=topologies.ring(N),
        rounds=3,
        seed=SEED,
        **problems.options(on_divergence="freeze"),
    )
    assert [found["round"] for found in history.meta["diverged"]] == [1]
    assert history["steps"].tolist() == [N - 1] * 3
