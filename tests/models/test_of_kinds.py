"""Nodes with networks of different architectures: what they train, exchange and refuse."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import naive, problems
from tests.algorithms import harness
from tests.rows.methods import ALGORITHMS
from topofl import algorithms, models
from topofl._support.seeding import seeded_torch
from topofl.models import of_kinds

N, BATCH, SEED, ROUNDS = harness.N, harness.BATCH, harness.SEED, harness.ROUNDS
KINDS = [0, 1, 1, 0, 1, 0]
HEAD = "5"
LOCAL = {"epochs": 2, "momentum": 0.9}


@seeded_torch(0)
def networks(width=4):
    """Return two networks that have nothing in common but their last layer."""
    dense = nn.Sequential(
        nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, width), nn.ReLU(),
        nn.Linear(width, 3),
    )  # fmt: skip
    convolutional = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4), nn.ReLU(), nn.Linear(4, 3)
    )
    return [dense, convolutional]


def model():
    return of_kinds(networks(), KINDS)


def loop(clients):
    """Return plain modules of both kinds with the initial parameters of a run."""
    start = problems.modules_at_start(model(), N)
    modules = [each.networks[kind] for each, kind in zip(start, KINDS, strict=True)]
    inputs, labels = clients.dataset.inputs.double(), clients.dataset.labels
    return naive.Nodes(modules, inputs, labels, clients.train, BATCH, SEED)


def own_networks(history):
    return [history.models.module(i).networks[kind] for i, kind in enumerate(KINDS)]


METHODS = {
    "local_only": (
        algorithms.local_only(0.1, batch_size=BATCH, reset_momentum=True, **LOCAL),
        lambda nodes: [
            naive.passes(nodes, i, t, "local", lr=0.1, **LOCAL)
            for t in range(ROUNDS)
            for i in range(N)
        ],
    ),
    "fedper": (
        algorithms.fedper(
            0.1, batch_size=BATCH, participation=0.5, head=algorithms.part(HEAD).rest, **LOCAL
        ),
        lambda nodes: naive.fedavg(
            nodes, harness.members, ROUNDS, lr=0.1, travels=harness.is_head, **LOCAL
        ),
    ),
    "fedproto": (
        algorithms.fedproto(
            0.1, batch_size=BATCH, participation=0.5, strength=2.0, head=HEAD, **LOCAL
        ),
        lambda nodes: naive.fedproto(nodes, harness.members, ROUNDS, lr=0.1, strength=2.0, **LOCAL),
    ),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("clients", [problems.equal_clients, problems.ragged_clients])
def test_each_node_ends_where_a_loop_over_plain_modules_does(method, clients):
    algorithm, train = METHODS[method]
    nodes = loop(clients())
    train(nodes)
    history, _ = harness.engine(algorithm, model(), clients())
    for found, wanted in zip(own_networks(history), nodes.modules, strict=True):
        for one, other in zip(found.parameters(), wanted.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_equal_layers_are_one_and_keep_their_names():
    found, (dense, _) = model(), networks()
    names = [name for name, _ in found.named_parameters()]
    assert names[:2] == [f"{HEAD}.weight", f"{HEAD}.bias"]
    assert all(name.startswith("networks.") for name in names[2:])
    assert found.networks[0][5] is found.networks[1][5]
    assert torch.equal(found.networks[1][5].weight, dense[5].weight)
    x = torch.rand(2, 1, 6, 6)
    assert torch.equal(found(x), dense(x))  # until a run sets the kind of each node


class Nested(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.body = nn.ModuleDict({"own": nn.Linear(36, width), "equal": nn.Linear(4, 4)})
        self.frozen = nn.Linear(4, 3).requires_grad_(False)
        nn.init.constant_(self.frozen.weight, scale)

    def forward(self, x):
        wide = self.body["own"](x.flatten(1))[:, :4]
        return self.frozen(self.body["equal"](wide))


def test_layers_inside_of_others_are_found_and_frozen_ones_must_have_equal_values():
    unlike = of_kinds([Nested(4, 1.0), Nested(5, 2.0)], [0, 1])
    names = {name.split(".networks")[0] for name, _ in unlike.named_parameters()}
    assert {"body.equal.weight", "networks.0.body.own.weight"} <= names
    assert "frozen.weight" not in names
    twins = [Nested(4, 1.0), Nested(5, 1.0)]
    twins[1].frozen.load_state_dict(twins[0].frozen.state_dict())
    assert "frozen.weight" in dict(of_kinds(twins, [0, 1]).named_parameters())


class Scaled(nn.Module):
    """Has a buffer that is not in its state, and a plain attribute."""

    def __init__(self, scale, power):
        super().__init__()
        self.head, self.power = nn.Linear(4, 3), power
        self.register_buffer("scale", torch.tensor(scale), persistent=False)

    def forward(self, x):
        return self.head((x * self.scale) ** self.power)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: nn.Conv2d(1, 2, 3), lambda: nn.Conv2d(1, 2, 3, stride=2)),
        (lambda: nn.GroupNorm(1, 4), lambda: nn.GroupNorm(4, 4)),
        (
            lambda: nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.01)),
            lambda: nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.5)),
        ),
        (lambda: Scaled(1.0, 1), lambda: Scaled(2.0, 1)),
        (lambda: Scaled(1.0, 1), lambda: Scaled(1.0, 2)),
    ],
    ids=["stride", "groups", "slope", "buffer", "attribute"],
)
def test_layers_that_differ_in_more_than_values_are_not_one(one, other):
    first, second = (nn.ModuleDict({"layer": make()}) for make in (one, other))
    made = of_kinds([first, second], [0, 1])
    a, b = (network["layer"] for network in made.networks)
    assert a is not b
    twins = of_kinds([first, copy.deepcopy(first)], [0, 1]).networks
    assert twins[0]["layer"] is twins[1]["layer"]


class Own(nn.Module):
    """Gives each node a factor of its own, in a buffer."""

    def __init__(self, n):
        super().__init__()
        self.head = nn.Linear(36, 3)
        self.register_buffer("factor", torch.ones(()))
        self.node_buffers = {"factor": torch.arange(1.0, n + 1)}

    def forward(self, x):
        return self.head(self.factor * x.flatten(1))


def test_own_values_of_nodes_stay_at_their_nodes():
    clients = problems.equal_clients()
    how = {"clients": clients, "topology": problems.cliques(clients), "rounds": 2, "seed": 0}
    history = topofl.run(algorithms.dsgd(0.01), model=Own(N), **how)
    assert history.models.buffers["factor"].tolist() == list(range(1, N + 1))
    plain = topofl.run(algorithms.dsgd(0.01), model=problems.linear(), **how)
    assert history.rounds["bytes"].tolist() == plain.rounds["bytes"].tolist()
    wrong = Own(N)
    wrong.node_buffers = {"fctor": torch.ones(N)}
    with pytest.raises(ValueError, match="must name its buffers in `node_buffers`"):
        topofl.run(algorithms.dsgd(0.01), model=wrong, **how)


KEEPING = {
    "local_only": None,
    **dict.fromkeys(("fedper", "fedrep", "dfedavgm_p", "dfedpgp"), algorithms.part(HEAD).rest),
    "fedproto": HEAD,
}
"""Methods that exchange no parameters of one kind alone, and their heads."""


@problems.by_turns(2, 1, method=ALGORITHMS)
def test_methods_exchange_what_all_nodes_have_or_are_refused(method):
    row, head = ALGORITHMS[method], KEEPING.get(method)
    given = {"head": head} if head else {"local": HEAD} if method == "fedbn" else {}
    algorithm = getattr(algorithms, method)(**row.arguments | given)
    clients = problems.validated_clients() if row.validated else problems.equal_clients()
    how = {
        "model": model(), "clients": clients, "rounds": 2, "seed": 0,
        "topology": None if "server" in algorithm.phases else problems.cliques(clients),
    }  # fmt: skip
    if method not in KEEPING:
        one = "one value of 'kind' for each of n=1"  # after the nodes were pooled
        with pytest.raises(ValueError, match=f"only nodes of some kinds use|{one}"):
            topofl.run(algorithm, **how)
        return
    start = topofl.run(algorithms.local_only(1e-30), **how | {"rounds": 1}).models.flat
    trained = topofl.run(algorithm, **how).models.flat
    names = [name for name, p in model().named_parameters() for _ in range(p.numel())]
    for i, kind in enumerate(KINDS):
        others = torch.tensor([name.startswith(f"networks.{1 - kind}.") for name in names])
        assert torch.equal(trained[i, others], start[i, others]), method
        assert not torch.equal(trained[i, ~others], start[i, ~others])


def test_runs_resume_and_their_histories_are_loaded(tmp_path):
    how = {"clients": problems.equal_clients(), "seed": 0, "model": model()}
    saving = topofl.Saving(tmp_path / "here", every=1)
    whole = topofl.run(METHODS["fedproto"][0], rounds=4, **how)

    def stop(event):
        if event.kind == "round" and event.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        topofl.run(METHODS["fedproto"][0], rounds=4, saving=saving, callbacks=[stop], **how)
    resuming = topofl.Saving(tmp_path / "here", every=1, resume=True)
    again = topofl.run(METHODS["fedproto"][0], rounds=4, saving=resuming, **how)
    assert torch.equal(whole.models.flat, again.models.flat)
    whole.save(tmp_path / "history", models=True)
    loaded = topofl.History.load(tmp_path / "history").models
    x = np.zeros((1, 1, 6, 6), dtype=np.float32)
    for i in range(N):
        found = loaded.predict(x, node=i, network=model())
        assert torch.equal(found, whole.models.predict(x, node=i))


REFUSALS = [
    (ValueError, "`networks` must be at least two, got 1", lambda: of_kinds(networks()[:1], [0])),
    (TypeError, "`networks` must be torch.nn.Modules", lambda: of_kinds([nn.ReLU(), 3], [0, 1])),
    (
        ValueError,
        r"`kinds` must be between 0 and len\(networks\) - 1=1, got 2",
        lambda: of_kinds(networks(), [0, 2]),
    ),
    (ValueError, "every index of `networks`, 1 is of no", lambda: of_kinds(networks(), [0, 0])),
    (
        ValueError,
        "must not have layers called 'kind'",
        lambda: of_kinds([nn.ModuleDict({"kind": nn.Linear(2, 2)}), nn.Linear(2, 2)], [0, 1]),
    ),
]


@pytest.mark.parametrize(("error", "message", "call"), REFUSALS, ids=lambda x: "")
def test_wrong_kinds_are_refused(error, message, call):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("made", "how", "message"),
    [
        (lambda: of_kinds(networks(), [0, 1]), {}, "one value of 'kind' for each of n=6 nodes"),
        (model, {"compute": {"executor": "batched"}}, "torch.func cannot batch it"),
        (model, {"compute": {"compile": True}}, "several kinds of nodes"),
    ],
)
def test_a_run_refuses_models_of_kinds_that_do_not_fit_it(made, how, message):
    how = {name: topofl.Compute(**options) for name, options in how.items()}
    with pytest.raises(ValueError, match=message):
        topofl.run(
            METHODS["fedproto"][0],
            model=made(),
            clients=problems.equal_clients(),
            rounds=1,
            seed=0,
            **how,
        )


def test_features_of_different_widths_have_no_common_prototypes():
    wide = models.of_kinds(networks(width=5), KINDS)
    algorithm = algorithms.fedproto(0.1, head=algorithms.part("networks.*.5"))
    with pytest.raises(ValueError, match="must be one layer"):
        topofl.run(algorithm, model=wide, clients=problems.equal_clients(), rounds=1, seed=0)


def test_refused_methods_are_answered_with_the_layers_that_all_nodes_have():
    message = rf"head=algorithms.part\('{HEAD}'\)\.rest\), the columns"
    with pytest.raises(ValueError, match=message):
        topofl.run(
            algorithms.fedavg(0.1),
            model=model(),
            clients=problems.equal_clients(),
            rounds=1,
            seed=0,
        )


def test_only_kinds_with_batch_norm_need_two_examples_at_once():
    """Of six nodes with an odd minibatch at the end of an epoch, two are of the other kind."""
    plain = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    normal = nn.Sequential(nn.Flatten(), nn.Linear(36, 3), nn.BatchNorm1d(3))
    clients = problems.ragged_clients()
    last = clients.sizes % 2 == 1
    assert 0 < last.sum() < len(last)
    algorithm = algorithms.local_only(0.1, batch_size=2)
    fits = of_kinds([plain, normal], np.where(last, 0, 1))
    topofl.run(algorithm, model=fits, clients=clients, rounds=1, seed=0)
    lone = of_kinds([plain, normal], np.where(last, 1, 0))
    node = int(np.flatnonzero(last)[0])
    with pytest.raises(ValueError, match=f"at least 2 examples.* node {node} trains on"):
        topofl.run(algorithm, model=lone, clients=clients, rounds=1, seed=0)
