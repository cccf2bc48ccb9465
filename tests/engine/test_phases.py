"""Phases of users: what their calls count and take, their training, gradients and losses."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional

import topofl
from tests import naive, problems
from tests.engine import runs
from tests.engine.train.test_divergence import clients_with_extremes
from topofl import algorithms, mixing, topologies

N, BATCH, SEED = 6, 4, 3
UNIFORM = mixing.uniform(topologies.ring(N))
MIXED = algorithms.Training(algorithms.descend(lr=0.1), BATCH, gradient=mixing.uniform)
LOCAL = algorithms.sgd(0.1, batch_size=BATCH)


def phase(use):
    """Return a phase that calls ``use(models, round)``."""

    def apply(models, state, round):
        use(models, round)
        return state

    return algorithms.Phase(lambda models: {}, apply)


def alone(tried):
    return algorithms.chain("own", tried=tried)


run = partial(runs.run, rounds=2, seed=SEED, every=1, topology=None)


def need(tried, **settings):
    clients, model = problems.equal_clients(N), problems.linear()
    return topofl.estimate(alone(tried), model=model, clients=clients, **settings)


OF_A_GRAPH = {
    "weights": lambda models, round: round.mix(round.weights, models.flat),
    "push_weights": lambda models, round: round.mix(round.push_weights, models.flat),
    "topology": lambda models, round: round.mix(mixing.uniform(round.topology), models.flat),
    "gradient": lambda models, round: round.train(models, MIXED, {}),
}


@pytest.mark.parametrize("door", OF_A_GRAPH)
def test_calls_over_a_topology_are_counted_and_estimated(door):
    graph = topologies.ring(N) if door != "push_weights" else topologies.random_out(N, 2, seed=0)
    history = run(alone(phase(OF_A_GRAPH[door])), topology=graph)
    found = need(phase(OF_A_GRAPH[door]), topology=graph)
    assert (history["messages"] > 0).all()
    assert (found.messages, found.bytes) == (history["messages"][0], history["bytes"][0])


@pytest.mark.parametrize("door", OF_A_GRAPH)
@pytest.mark.parametrize("topology", [None, topologies.ring(N)], ids=["no topology", "ring"])
def test_calls_first_made_in_later_rounds_are_refused(door, topology):
    """Otherwise a missing topology or an unexpected exchange would go unnoticed."""
    later = phase(lambda models, round: OF_A_GRAPH[door](models, round) if round.t == 4 else None)
    done = []
    callbacks = [problems.each_round(lambda t, models: done.append(t))]
    message = r"the phase 'tried' must use round\..* in the first rounds too.* in round 5"
    with pytest.raises(ValueError, match=message):
        run(alone(later), rounds=6, topology=topology, callbacks=callbacks)
    assert done == [1, 2, 3, 4]


@pytest.mark.parametrize("own", [(1, 3), (0, 2)])
def test_rounds_without_an_exchange_have_the_identity(own, tmp_path):
    """Their histories are saved and loaded, and continued, with the matrix of each round."""

    def mix(models, round):
        if models.flat.is_meta or round.t in own:
            round.mix(UNIFORM, models.flat)

    whole = run(alone(phase(mix)), rounds=4)
    whole.save(tmp_path / "whole")
    run(alone(phase(mix)), rounds=2, saving=tmp_path / "saved")
    saving = topofl.Saving(tmp_path / "saved", resume=True)
    resumed = run(alone(phase(mix)), rounds=4, saving=saving)
    for history in (whole, topofl.History.load(tmp_path / "whole"), resumed):
        for t in range(4):
            wanted = UNIFORM.weights.toarray() if t in own else np.eye(N)
            np.testing.assert_array_equal(history.mixing(t).weights.toarray(), wanted)
        assert [bool(sent) for sent in history["messages"]] == [t in own for t in range(4)]


def test_custom_matrices_need_no_topology():
    history = run(alone(phase(lambda models, round: round.mix(UNIFORM, models.flat))))
    assert history["messages"].tolist() == [2 * N, 2 * N]


def test_before_exchange_is_right_before_the_first_phase_that_mixes():
    """Models differ before the exchange and are equal after it."""
    everybody = mixing.uniform(topologies.fully_connected(N))
    exchange = phase(lambda models, round: round.mix(everybody, models.flat))
    history = run(algorithms.chain("own", local=LOCAL, tried=exchange), before_exchange=True)
    assert np.ptp(history["accuracy_before_exchange"][-1]) > 0
    assert np.ptp(history["accuracy"][-1]) == 0


def test_memory_depends_on_calls_not_on_settings():
    """Settings do not matter; copies, gradients, late states and early scratch do."""

    def two_copies(models, round):
        first, second = models.flat.clone(), round.gradients(models, BATCH, "mine")
        models.flat.copy_(first - second)

    def grows(models, state, round):
        copies = [models.flat.clone() for _ in range(5 if round.t == 0 else 1)]
        return state | {"kept": copies[0]}

    found, nothing = need(phase(two_copies)), need(phase(lambda models, round: None))
    assert found == need(phase(two_copies)._replace(settings={"batch_size": 4000}))
    assert found.phases == 2 * N * found.d * 4  # a copy and a difference
    assert found.gradients == nothing.gradients + N * found.d * 4
    grown = need(algorithms.Phase(lambda models: {}, grows))
    assert (grown.state, grown.phases) == (grown.parameters, 5 * grown.parameters)


def test_each_call_of_train_draws_other_minibatches():
    training = algorithms.Training(algorithms.descend(lr=0.1), BATCH)

    def trained(tried):
        return run(alone(tried), rounds=1).models.flat

    def once(models, round):
        round.train(models, training, {})

    def twice(models, round):
        round.train(models, training, {})
        round.train(models, training, {})

    two_steps = algorithms.sgd(0.1, batch_size=BATCH, steps=2)
    assert not torch.equal(trained(phase(twice)), trained(phase(once)))
    assert not torch.equal(trained(phase(twice)), trained(two_steps))


def descent(keys, lr=0.1):
    """Return an algorithm that takes a gradient step for each key, and a list of the gradients."""
    seen = []

    def use(models, round):
        for key in keys:
            gradients = round.gradients(models, BATCH, key)
            if not models.flat.is_meta:
                seen.append(gradients.clone())
            models.flat.sub_(gradients, alpha=lr)

    return algorithms.chain("own", step=phase(use)), seen


@pytest.mark.parametrize("settings", [{"executor": "looped"}, {"executor": "batched", "chunk": 2}])
def test_losses_of_gradient_evaluations_are_recorded(settings):
    """A loop over nodes gives the same losses and gradients, on the minibatches of the key."""
    clients, (algorithm, seen) = problems.ragged_clients(N), descent(["first", "second"])
    history = run(algorithm, rounds=3, clients=clients, dtype=torch.float64, **settings)
    start = problems.population(problems.linear(), N, "common", SEED)
    blobs, module = clients.dataset, problems.linear().double()
    wanted, steps = np.zeros((3, N)), {}
    for i in range(N):
        torch.nn.utils.vector_to_parameters(start.flat[i].clone(), module.parameters())
        for t, key in itertools.product(range(3), ("first", "second")):
            places = naive.minibatch(clients.train[i], i, t, BATCH, f"step/{key}", SEED)
            batch = torch.as_tensor(places)
            outputs = module(blobs.inputs[batch].double())
            loss = functional.cross_entropy(outputs, blobs.labels[batch])
            gradients = torch.autograd.grad(loss, list(module.parameters()))
            steps[t, key, i] = torch.cat([g.flatten() for g in gradients])
            wanted[t, i] += loss.item() / 2
            with torch.no_grad():
                for p, g in zip(module.parameters(), gradients, strict=True):
                    p.sub_(g, alpha=0.1)
    np.testing.assert_allclose(history.node_loss, wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(history["train_loss"], wanted.mean(1), rtol=0, atol=1e-12)
    for k, (t, key) in enumerate(itertools.product(range(3), ("first", "second"))):
        mine = torch.stack([steps[t, key, i] for i in range(N)])
        torch.testing.assert_close(seen[k], mine, rtol=0, atol=1e-12)


def test_gradient_diversity_is_that_of_the_first_evaluation():
    algorithm, seen = descent(["first", "second"])
    history = run(algorithm, clients=problems.ragged_clients(N), dtype=torch.float64)
    for t in range(2):
        first = seen[2 * t]
        wanted = first.square().sum() / first.sum(0).square().sum()
        assert history["gradient_diversity"][1 + t] == pytest.approx(float(wanted), rel=1e-12)


def test_each_key_draws_other_minibatches():
    def look(*keys):
        found = []

        def use(models, round):
            gradients = [round.gradients(models, BATCH, one).clone() for one in keys]
            found.extend([] if models.flat.is_meta else gradients)

        run(algorithms.chain("own", step=phase(use)), rounds=1)
        return found

    a, b, again, phases_own = look("a", "b", "a", "")
    assert torch.equal(a, again)
    assert not torch.equal(a, b)
    assert not torch.equal(a, phases_own)
    assert torch.equal(look("b")[0], b), "a key's minibatches do not depend on other calls"


def test_losses_of_local_steps_take_precedence():
    """For example in Dis-PFL, which evaluates gradients after training."""
    looking = phase(lambda models, round: round.gradients(models, BATCH, "look"))
    plain = run(algorithms.chain("plain", local=LOCAL), rounds=3)
    for order in ({"local": LOCAL, "look": looking}, {"look": looking, "local": LOCAL}):
        history = run(algorithms.chain("looking", **order), rounds=3)
        np.testing.assert_array_equal(history.node_loss, plain.node_loss)
        assert history["steps"].tolist() == [2 * N] * 3, "gradients count as steps, too"


def test_divergence_in_custom_phases_is_detected():
    algorithm, _ = descent(["step"], lr=1e38)
    message = r"the loss of node \d is (nan|inf) in step \d of round 2"
    with pytest.raises(topofl.DivergenceError, match=message):
        run(algorithm, rounds=4, every=10)
    history = run(algorithm, rounds=4, every=10, on_divergence="record")
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

    tried = algorithms.Phase(lambda models: {"last": torch.zeros_like(models.flat)}, apply)
    run(alone(tried), rounds=3)
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

    run(algorithms.chain("own", step=phase(use)), rounds=1)
    assert apart == {"kept": True, "other": False}


def test_frozen_nodes_take_no_steps():
    history = run(
        algorithms.dsgd(0.1, batch_size=BATCH), rounds=3, clients=clients_with_extremes(),
        topology=topologies.ring(N), on_divergence="freeze",
    )  # fmt: skip
    assert [found["round"] for found in history.meta["diverged"]] == [1]
    assert history["steps"].tolist() == [N - 1] * 3
    steps = run(algorithms.dsgt(0.1), rounds=3, topology=topologies.ring(N))["steps"]
    assert steps.tolist() == [N] * 3, "one gradient per node and round"
