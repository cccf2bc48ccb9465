"""Servers of FedAdam, FedYogi, FedAvgM, FedNova and FedDyn go where theory says."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import naive, problems
from tests.algorithms import harness
from tests.algorithms.harness import BATCH, ROUNDS, SEED, WHOLE, members, unlike_lines, watched
from tests.engine.train.test_divergence import BAD as FROZEN
from tests.engine.train.test_divergence import too_large, with_inputs
from tests.rows.methods import STEPS
from topofl import algorithms, tasks, topologies
from topofl.algorithms.contract.local import Training
from topofl.algorithms.server.fedavg import _counting, _server


def engine(algorithm, model, clients, graph=None, **settings):
    """Return the history and the final models, from one start."""
    settings = {"init": "common"} | settings
    history, models = harness.engine(algorithm, model, clients, graph, **settings)
    return history, models.flat


def noted(algorithm, seen):
    """Return the algorithm, which notes the models between local steps and server."""

    def note(models, state, round):
        seen.extend([] if models.flat.is_meta else [models.flat.clone()])
        return state

    phases = dict(algorithm.phases)
    note = algorithms.Phase(lambda models: {}, note)
    return algorithms.chain("noted", local=phases.pop("local"), note=note, **phases)


@pytest.mark.parametrize("amount", [0.5, 2, np.float32(0.5)])
def test_samples_are_values_that_other_processes_can_read(amount):
    rule = algorithms.sampled(amount)
    assert pickle.loads(pickle.dumps(rule)) == rule
    assert str(rule) == ("2 nodes" if amount == 2 else "0.5 of all")
    assert rule != algorithms.sampled(3)


def test_the_nodes_of_a_trace_train_and_send(tmp_path):
    trace = [[1, 0, 0, 1, 0, 0], [0, 1, 1, 1, 0, 0]]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in trace))
    rules = [algorithms.available(trace), algorithms.sampled(str(path))]
    assert rules[0] == rules[1] == pickle.loads(pickle.dumps(rules[0]))
    assert str(rules[0]) != str(algorithms.available(trace[::-1]))
    model, clients = problems.convolutional(), problems.ragged_clients()
    found = [
        topofl.run(
            algorithms.fedavg(0.1, batch_size=BATCH, epochs=1, participation=rule),
            model=model,
            clients=clients,
            rounds=ROUNDS,
            compute=topofl.Compute(executor="batched"),
            seed=SEED,
            progress=False,
        )
        for rule in (lambda round: np.array(trace[round.t % 2]) == 1, rules[0], str(path))
    ]
    for history in found:
        assert history["messages"].tolist() == [2 * sum(trace[t % 2]) for t in range(ROUNDS)]
        assert history.models.flat.equal(found[0].models.flat)


def test_the_servers_h_is_the_mean_of_those_of_nodes():
    seen, server = [], []
    how = {"batch_size": BATCH, "epochs": 2, "participation": 0.5}
    algorithm = watched(algorithms.feddyn(0.1, alpha=0.3, **how), seen)
    both = watched(algorithm, server, "server")
    engine(both, problems.convolutional(), problems.ragged_clients())
    assert len(seen) == len(server) == ROUNDS
    kept = torch.zeros_like(seen[0]["correction"])
    for t, (corrections, h) in enumerate(zip(seen, server, strict=True)):
        mean = -corrections["correction"].mean(0, keepdim=True)
        torch.testing.assert_close(mean, h["h"], rtol=0, atol=1e-13)
        moved = (corrections["correction"] - kept).abs().sum(1) > 0
        assert moved.nonzero().flatten().tolist() == members(t)
        kept = corrections["correction"]


def clients_with_later_extremes():
    """Return clients of whom one has some records, after its first two, whose logits overflow."""
    clients = problems.equal_clients()
    own = clients.train[FROZEN]
    first = naive.minibatch(own, FROZEN, 0, 2, "local", SEED)
    return with_inputs(clients, np.setdiff1d(own, first), too_large)


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_nodes_that_freeze_count_as_absent_in_fednova(executor):
    """A node that freezes after its first step has moved; others' steps weigh as without it."""
    clients, model, seen = clients_with_later_extremes(), problems.linear(), []
    how, short = Training(algorithms.descend(lr=0.1), 2, 3), {"dtype": torch.float32}
    noting = noted(algorithms.fednova(0.1, batch_size=2, epochs=None, steps=3), seen)
    _, frozen = engine(noting, model, clients, executor=executor, on_divergence="freeze", **short)
    start = harness.nodes_at_start(model, clients, "common").flat()[FROZEN].float()
    assert not torch.equal(seen[0][FROZEN], start), "it froze before its first step"
    participants = lambda round: np.arange(round.n) != FROZEN  # noqa: E731
    phases = {"local": _counting(how, 0.0, participants), "server": _server(participants)}
    _, without = engine(algorithms.chain("five", **phases), model, clients, **short)
    torch.testing.assert_close(frozen, without, rtol=0, atol=1e-6)


def test_fednova_takes_steps_in_place_of_its_five_epochs():
    assert algorithms.fednova(0.1).settings["local"]["epochs"] == 5
    told = algorithms.fednova(0.1, steps=(3, 2)).settings["local"]
    assert told["steps"] == [3, 2]
    assert "epochs" not in told


@pytest.mark.parametrize("name", ["fedavg", "feddyn", "fednova", "scaffold"])
def test_a_topology_is_ignored(name):
    method, world = getattr(algorithms, name)(0.1), (problems.linear(), problems.equal_clients())
    known, _ = engine(method, *world)
    ignored, _ = engine(method, *world, topologies.ring(6))
    np.testing.assert_array_equal(known["loss"], ignored["loss"])
    np.testing.assert_array_equal(known["messages"], ignored["messages"])


def rest(lr, normalized):
    """Return where whole-batch linear regression of `unlike_lines` rests, by its matrices alone.

    K steps from x end at ``w + (1 - lr H)^K (x - w)``, where H is the matrix and w the optimum of a
    node's loss.
    """
    clients, _ = unlike_lines()
    left, right = np.zeros((3, 3)), np.zeros(3)
    inputs, targets = (
        part.double().numpy() for part in (clients.dataset.inputs, clients.dataset.targets)
    )
    for own, steps in zip(clients.train, STEPS, strict=True):
        x, y = inputs[own], targets[own]
        curvature = 2 * x.T @ x / len(x)
        best = np.linalg.solve(x.T @ x, x.T @ y)
        pull = np.eye(3) - np.linalg.matrix_power(np.eye(3) - lr * curvature, steps)
        pull /= steps if normalized else 1
        left, right = left + pull, right + pull @ best
    return np.linalg.solve(left, right)


@pytest.mark.slow
@pytest.mark.parametrize("normalized", [True, False], ids=["fednova", "fedavg"])
def test_fixed_points_with_different_local_steps(normalized):
    lr, rounds = 0.05, 200
    algorithm = algorithms.fednova(lr, batch_size=WHOLE, epochs=None, steps=STEPS)
    if not normalized:
        local = algorithms.sgd(lr, batch_size=WHOLE, steps=STEPS)
        algorithm = algorithms.chain("fedavg", local=local, server=algorithms.server_average())
    how = {"task": tasks.regression(), "rounds": rounds, "every": rounds}
    _, models = engine(algorithm, nn.Linear(3, 1, bias=False), unlike_lines()[0], **how)
    np.testing.assert_allclose(models[0].numpy(), rest(lr, normalized), rtol=0, atol=1e-9)
