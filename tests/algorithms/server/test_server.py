"""FedAdam, FedYogi, FedAvgM, FedNova and FedDyn equal their naive loops in float64.

They go where theory says.
"""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import naive, problems
from tests.algorithms.convergence import BY_RATE, watched
from tests.algorithms.harness import BATCH, CLIENTS, HOW, ROUNDS, SEED, check, members
from tests.engine.train.test_divergence import BAD as FROZEN
from topofl import algorithms, topologies
from topofl.algorithms.contract.local import Training
from topofl.algorithms.server.fednova import _counting, _server
from topofl.engine.population import initial_population

ADAPTIVE = {"server_lr": 0.05, "beta1": 0.8, "beta2": 0.7, "tau": 0.01}
STEPS = [1, 5, 2, 3, 1, 4]


def nodes_at_start(model, clients):
    """Return naive nodes that all start from one model."""
    start = initial_population(
        model, 1, init="common", seed=SEED, device=torch.device("cpu"), dtype=torch.float64
    )
    module, blobs = copy.deepcopy(model).double(), clients.dataset
    torch.nn.utils.vector_to_parameters(start.flat[0].clone(), module.parameters())
    modules = [copy.deepcopy(module) for _ in range(clients.n)]
    return naive.Nodes(modules, blobs.inputs.double(), blobs.labels, clients.train, BATCH, SEED)


def engine(algorithm, model, clients, **settings):
    kept = []
    history = topofl.run(
        algorithm, model=model, clients=clients,
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **problems.options(**{"rounds": ROUNDS, "seed": SEED, "dtype": torch.float64} | settings),
    )  # fmt: skip
    return history, kept[-1]


def compare(algorithm, twin, make, settings):
    clients = make()
    model = problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    twin(nodes)
    _, models = engine(algorithm, model, clients, **settings)
    check(nodes.flat(), models, start)
    torch.testing.assert_close(models, nodes.flat(), rtol=0, atol=1e-12)


@HOW
@CLIENTS
@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedavgm"])
def test_server_optimizers_equal_naive_loop(name, make, settings):
    how = {"server_lr": 0.7, "beta": 0.8} if name == "fedavgm" else ADAPTIVE
    same = {"server_lr": 0.7, "beta1": 0.8} if name == "fedavgm" else ADAPTIVE
    lr = algorithms.exponential(0.1, 0.5)
    algorithm = getattr(algorithms, name)(lr, batch_size=BATCH, epochs=2, participation=0.5, **how)
    twin = lambda nodes: naive.fedopt(nodes, members, ROUNDS, lr=lr, epochs=2, rule=name, **same)  # noqa: E731
    compare(algorithm, twin, make, settings)


@HOW
@CLIENTS
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fednova_equals_naive_loop(momentum, make, settings):
    algorithm = algorithms.fednova(
        0.1, batch_size=BATCH, epochs=None, steps=STEPS, momentum=momentum, participation=0.5
    )

    def twin(nodes):
        return naive.fednova(nodes, members, ROUNDS, lr=0.1, counts=STEPS, momentum=momentum)

    compare(algorithm, twin, make, settings)


@HOW
@CLIENTS
@BY_RATE
def test_feddyn_equals_naive_loop(lr, make, settings):
    algorithm = algorithms.feddyn(lr, alpha=0.3, batch_size=BATCH, epochs=2, participation=0.5)
    twin = lambda nodes: naive.feddyn(nodes, members, ROUNDS, lr=lr, alpha=0.3, epochs=2)  # noqa: E731
    compare(algorithm, twin, make, settings)


def noted(algorithm, seen):
    """Return the algorithm, which notes the models between local steps and server."""

    def note(models, state, round):
        seen.extend([] if models.flat.is_meta else [models.flat.clone()])
        return state

    phases = dict(algorithm.phases)
    local = phases.pop("local")
    return algorithms.chain(
        "noted", local=local, note=algorithms.Phase(lambda models: {}, note), **phases
    )


def test_the_server_of_fedadam_is_adam_of_torch_without_its_bias_correction():
    """After very many steps there is none."""
    clients = problems.ragged_clients()
    model = problems.linear()
    seen = []
    algorithm = algorithms.fedadam(0.1, batch_size=BATCH, epochs=1, **ADAPTIVE)
    _, found = engine(noted(algorithm, seen), model, clients)
    x = nn.Parameter(nodes_at_start(model, clients).flat()[0])
    adam = torch.optim.Adam(
        [x], ADAPTIVE["server_lr"], (ADAPTIVE["beta1"], ADAPTIVE["beta2"]), ADAPTIVE["tau"]
    )
    squares = torch.full_like(x, ADAPTIVE["tau"] ** 2)
    adam.state[x] = {
        "step": torch.tensor(1e9),
        "exp_avg": torch.zeros_like(x),
        "exp_avg_sq": squares,
    }
    shares = torch.tensor([len(own) for own in clients.train]).double()
    for models in seen:
        x.grad = x.detach() - (shares / shares.sum()) @ models
        adam.step()
    assert len(seen) == ROUNDS
    torch.testing.assert_close(found, x.detach().expand_as(found), rtol=0, atol=1e-12)


def test_the_server_of_fedavgm_is_sgd_of_torch_with_momentum():
    clients = problems.ragged_clients()
    model = problems.linear()
    seen = []
    algorithm = algorithms.fedavgm(0.1, server_lr=0.7, beta=0.8, batch_size=BATCH, epochs=1)
    _, found = engine(noted(algorithm, seen), model, clients)
    x = nn.Parameter(nodes_at_start(model, clients).flat()[0])
    sgd = torch.optim.SGD([x], 0.7, momentum=0.8)
    shares = torch.tensor([len(own) for own in clients.train]).double()
    for models in seen:
        x.grad = x.detach() - (shares / shares.sum()) @ models
        sgd.step()
    assert len(seen) == ROUNDS
    torch.testing.assert_close(found, x.detach().expand_as(found), rtol=0, atol=1e-12)


FEDAVG = {"batch_size": BATCH, "epochs": 2, "participation": 0.5}
AS_FEDAVG = {
    "fedavgm": lambda: algorithms.fedavgm(0.1, beta=0.0, **FEDAVG),
    "fedadam": lambda: algorithms.fedadam(
        0.1, server_lr=1e12, beta1=0.0, beta2=0.0, tau=1e12, **FEDAVG
    ),
    "fedyogi": lambda: algorithms.fedyogi(
        0.1, server_lr=2e12, beta1=0.0, beta2=0.999999, tau=1e12, **FEDAVG
    ),
    "fednova": lambda: algorithms.fednova(0.1, **FEDAVG),
}


@pytest.mark.parametrize("name", AS_FEDAVG)
def test_limits_equal_fedavg(name):
    """Those of large tau without memory; the squares of FedYogi stay, and divide by 2 tau."""
    clients = problems.equal_clients()
    model = problems.convolutional()
    _, plain = engine(algorithms.fedavg(0.1, momentum=0.0, **FEDAVG), model, clients)
    _, same = engine(AS_FEDAVG[name](), model, clients)
    torch.testing.assert_close(same, plain, rtol=0, atol=1e-10)


def test_with_unlike_steps_fednova_is_not_fedavg():
    clients = problems.ragged_clients()
    model = problems.linear()
    (_, one), (_, other) = (
        engine(build(0.1, batch_size=BATCH, epochs=1, momentum=0.0), model, clients)
        for build in (algorithms.fednova, algorithms.fedavg)
    )
    assert not torch.allclose(one, other, atol=1e-3)


def test_the_servers_h_is_the_mean_of_those_of_nodes():
    seen, clients = [], problems.ragged_clients()
    algorithm = algorithms.feddyn(0.1, alpha=0.3, batch_size=BATCH, epochs=2, participation=0.5)

    def note(models, state, round):
        pair = round.state("local")["correction"], round.state("server")["h"]
        seen.extend([] if models.flat.is_meta else [[x.clone() for x in pair]])
        return state

    watch = algorithms.Phase(lambda models: {}, note)
    engine(
        algorithms.chain("watched", **algorithm.phases, watch=watch),
        problems.convolutional(),
        clients,
    )
    assert len(seen) == ROUNDS
    kept = torch.zeros_like(seen[0][0])
    for t, (corrections, h) in enumerate(seen):
        torch.testing.assert_close(-corrections.mean(0, keepdim=True), h, rtol=0, atol=1e-13)
        moved = ((corrections - kept).abs().sum(1) > 0).nonzero().flatten().tolist()
        assert moved == members(t), "those of others changed, or those of members did not"
        kept = corrections


def clients_with_later_extremes():
    """Return clients of whom one has some records, after its first two, whose logits overflow."""
    clients = problems.equal_clients()
    own = clients.train[FROZEN]
    first = naive.minibatch(own, FROZEN, 0, 2, "local", SEED)
    inputs = clients.dataset.inputs.clone()
    inputs[torch.tensor([record for record in own if record not in first])] = 3e38
    return dataclasses.replace(
        clients, dataset=dataclasses.replace(clients.dataset, inputs=inputs)
    ), problems.linear()


def test_fednova_counts_the_gradients_by_which_models_moved():
    seen = []
    algorithm = algorithms.fednova(0.1, batch_size=BATCH, epochs=None, steps=STEPS, momentum=0.5)
    engine(watched(algorithm, seen), problems.linear(), problems.equal_clients())
    by_hand = {1: 1, 2: 2.5, 3: 4.25, 4: 6.125, 5: 8.0625}  # 1, 1.5, 1.75, 1.875, 1.9375 a step
    np.testing.assert_allclose(
        seen[-1]["moved"][:, 0].numpy(), [by_hand[k] for k in STEPS], rtol=1e-14
    )


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_nodes_that_freeze_count_as_absent_in_fednova(executor):
    """A node that freezes after its first step has moved; others' steps weigh as without it."""
    clients, model = clients_with_later_extremes()
    seen, how = [], Training(algorithms.descend(lr=0.1), 2, 3)
    algorithm = algorithms.fednova(0.1, batch_size=2, epochs=None, steps=3)
    noting = noted(algorithm, seen)
    _, frozen = engine(
        noting, model, clients, executor=executor, on_divergence="freeze", dtype=torch.float32
    )
    start = nodes_at_start(model, clients).flat()[FROZEN].float()
    assert not torch.equal(seen[0][FROZEN], start), "it froze before its first step"
    participants = lambda round: np.arange(round.n) != FROZEN  # noqa: E731
    local = _counting(how, 0.0, participants)
    server = _server(participants)
    _, without = engine(
        algorithms.chain("five", local=local, server=server), model, clients, dtype=torch.float32
    )
    torch.testing.assert_close(frozen, without, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("fedadam", 222), ("fedyogi", 222), ("fedavgm", 222), ("feddyn", 222), ("fednova", 223)],
)
def test_messages_are_models_and_the_steps_of_fednova(name, numbers):
    """Three nodes send 111 numbers and get as many."""
    algorithm = getattr(algorithms, name)(0.1, batch_size=BATCH, epochs=1, participation=3)
    clients = problems.equal_clients()
    model = problems.linear()
    history, _ = engine(algorithm, model, clients, dtype=torch.float32)
    assert set(history["messages"]) == {6}
    assert set(history["bytes"]) == {3 * numbers * 4}
    need = topofl.estimate(algorithm, model=model, clients=clients)
    assert (need.messages, need.bytes) == (6, 3 * numbers * 4)


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedavgm", "fednova", "feddyn"])
def test_different_initial_models_are_refused(name):
    with pytest.raises(ValueError, match="`init` must be 'common'"):
        engine(
            getattr(algorithms, name)(0.1),
            problems.linear(),
            problems.equal_clients(),
            init="independent",
        )


BAD = [
    ("fedadam", {"server_lr": 0.0}, ValueError, "`server_lr`"),
    ("fedadam", {"beta1": 1.0}, ValueError, "`beta1`"),
    ("fedyogi", {"beta2": -0.1}, ValueError, "`beta2`"),
    ("fedyogi", {"tau": 0}, ValueError, "`tau`"),
    ("fedavgm", {"beta": 1.0}, ValueError, "`beta`"),
    (
        "fednova",
        {"epochs": None, "steps": [1, 0, 1, 1, 1, 1]},
        ValueError,
        r"`steps\[1\]` must be at least 1, got 0",
    ),
    (
        "fednova",
        {"steps": 3, "epochs": 5},
        ValueError,
        "one of `steps` and `epochs` must be None, .* got steps=3 and epochs=5; give",
    ),
    (
        "fednova",
        {"epochs": 2, "steps": [1] * 6},
        ValueError,
        "one of `steps` and `epochs` must be None",
    ),
    ("fednova", {"epochs": 0}, ValueError, "`epochs`"),
    ("fednova", {"batch_size": None}, TypeError, "`batch_size`"),
    ("feddyn", {"alpha": 0.0}, ValueError, "`alpha`"),
    ("feddyn", {"participation": 1.5}, ValueError, "`participation`"),
]


@pytest.mark.parametrize(
    ("name", "change", "error", "message"), BAD, ids=[f"{one[0]}: {[*one[1]][-1]}" for one in BAD]
)
def test_bad_arguments_are_named(name, change, error, message):
    with pytest.raises(error, match=message):
        getattr(algorithms, name)(0.1, **change)


def test_steps_of_another_number_of_nodes_are_refused():
    with pytest.raises(ValueError, match="`steps` must be one number or one per node, n=6, got 2"):
        engine(
            algorithms.fednova(0.1, epochs=None, steps=[1, 2]),
            problems.linear(),
            problems.equal_clients(),
        )


def test_settings_hold_the_arguments():
    assert algorithms.fedadam(0.1).settings["server"] == {
        "server_lr": 0.01,
        "beta1": 0.9,
        "beta2": 0.99,
        "tau": 0.001,
        "weights": "data",
        "participation": "1 of all",
    }
    assert algorithms.feddyn(0.1, participation=3).settings == {
        "local": {
            "lr": 0.1,
            "correction": "correction",
            "strength": 0.1,
            "anchor": "start of the round",
            "batch_size": 128,
            "epochs": 5,
            "participation": "3 nodes",
        },
        "server": {"alpha": 0.1, "weights": "equal", "participation": "3 nodes"},
    }
    assert algorithms.fednova(0.1, epochs=None, steps=(1, 2)).settings["local"]["steps"] == [1, 2]


def test_fednova_takes_steps_in_place_of_its_five_epochs():
    assert algorithms.fednova(0.1).settings["local"]["epochs"] == 5
    told = algorithms.fednova(0.1, steps=3).settings["local"]
    assert told["steps"] == 3
    assert "epochs" not in told
    with pytest.raises(ValueError, match="one of `steps` and `epochs` must be None"):
        algorithms.fednova(0.1, steps=3, epochs=5)


@pytest.mark.parametrize("name", ["fedavg", "feddyn", "fednova", "scaffold"])
def test_a_topology_is_ignored(name):
    method = getattr(algorithms, name)(0.1)
    model, clients = problems.linear(), problems.equal_clients()
    known = engine(method, model, clients)[0]
    ignored = engine(method, model, clients, topology=topologies.ring(clients.n))[0]
    np.testing.assert_array_equal(known["loss"], ignored["loss"])
    assert (known["messages"] == ignored["messages"]).all()
