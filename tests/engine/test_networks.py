"""Networks that people train: each kind of layer equals a loop over torch modules, in float64."""

import copy
import random
import re
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import topofl
from tests import naive, problems
from tests.engine.train.test_divergence import BAD, clients_with_extremes
from tests.rows.methods import ALGORITHMS
from topofl import algorithms, attacks, mixing, topologies
from topofl._support.seeding import random_keys, seeded_torch, torch_seed
from topofl.engine.checkpoint import ResumeError
from topofl.engine.gradients import is_linear
from topofl.engine.model_checks import layers_of
from topofl.engine.network import Masks as Masked
from topofl.engine.network import copy_of_trained, network_of
from topofl.engine.population import Layout
from topofl.topology import from_edges

N, ROUNDS, LR, MOMENTUM, BATCH = 4, 3, 0.05, 0.9, 4


class Tokens(nn.Module):
    """Applies layers to images (b, 1, 6, 6) as sequences of 6 tokens of 6 numbers."""

    def __init__(self, layer, width=6, last=False):
        super().__init__()
        self.layer, self.last = layer, last
        self.head = nn.Linear(width if last else 6 * width, 3)

    def forward(self, x):
        found = self.layer(x[:, 0])
        found = found[0] if isinstance(found, tuple) else found
        return self.head(found[:, -1] if self.last else found.flatten(1))


class Attention(nn.Module):
    def __init__(self, direct=False, **options):
        super().__init__()
        self.direct, self.p = direct, options["dropout"]
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True, **options)
        self.head, self.with_weights = nn.Linear(36, 3), not direct

    def forward(self, x):
        x = x[:, 0]
        found, _ = self.attention(x, x, x, need_weights=self.with_weights)
        return self.head(found.flatten(1))


class Scaled(nn.Module):
    """Applies torch's attention function, with its dropout."""

    def __init__(self):
        super().__init__()
        self.inside, self.head = nn.Linear(6, 18), nn.Linear(36, 3)

    def forward(self, x):
        q, k, v = self.inside(x[:, 0]).split(6, -1)
        p = 0.3 if self.training else 0.0
        found = functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.head(found.flatten(1))


class Headed(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(36, 3)


class Drawing(Headed):
    """Adds noise of torch's generator in training."""

    def forward(self, x):
        x = x.flatten(1)
        return self.head(x + 0.1 * torch.randn_like(x) if self.training else x)


class Counting(Headed):
    """Keeps a moving maximum of its inputs, by which it divides."""

    def __init__(self):
        super().__init__()
        self.register_buffer("most", torch.ones(()))

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.most.mul_(0.9).add_(0.1 * x.detach().abs().max())
        return self.head(x / self.most)


def images(*layers):
    """Return a network of a convolution, layers on 4 channels, and a head."""
    return nn.Sequential(nn.Conv2d(1, 4, 3), *layers, nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


def flat(*layers):
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), *layers, nn.Linear(8, 3))


def frozen():
    model = flat(nn.ReLU())
    model[1].requires_grad_(False)
    return model


STATISTICS = {
    "BatchNorm1d": lambda: flat(nn.BatchNorm1d(8), nn.ReLU()),
    "BatchNorm2d": lambda: images(nn.BatchNorm2d(4)),
    "BatchNorm2d without affine": lambda: images(nn.BatchNorm2d(4, affine=False)),
    "BatchNorm2d with cumulative means": lambda: images(nn.BatchNorm2d(4, momentum=None)),
    "BatchNorm3d": lambda: images(nn.Unflatten(2, (2, 2)), nn.BatchNorm3d(4), nn.Flatten(2, 3)),
    "InstanceNorm2d with statistics": lambda: images(nn.InstanceNorm2d(4, 1e-5, 0.1, True, True)),
    "own buffer": Counting,
}
MASKED = {
    "Dropout": lambda: flat(nn.Dropout(0.4), nn.ReLU(), nn.Dropout(0.1)),
    "Dropout in place": lambda: flat(nn.Dropout(0.4, inplace=True), nn.ReLU()),
    "Dropout1d": lambda: Tokens(nn.Dropout1d(0.4)),
    "Dropout2d": lambda: images(nn.Dropout2d(0.4)),
    "Dropout3d": lambda: images(nn.Unflatten(2, (2, 2)), nn.Dropout3d(0.4), nn.Flatten(2, 3)),
    "AlphaDropout": lambda: flat(nn.SELU(), nn.AlphaDropout(0.4)),
    "FeatureAlphaDropout": lambda: images(nn.FeatureAlphaDropout(0.4)),
    "MultiheadAttention": lambda: Attention(dropout=0.3),
    "MultiheadAttention without weights": lambda: Attention(direct=True, dropout=0.3),
    "TransformerEncoderLayer": lambda: Tokens(
        nn.TransformerEncoderLayer(6, 2, 12, dropout=0.2, batch_first=True)
    ),
    "attention": Scaled,
    "BatchNorm and Dropout": lambda: flat(nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4)),
}
SEEDED = {
    "RReLU": lambda: flat(nn.RReLU()),
    "LSTM with dropout": lambda: Tokens(nn.LSTM(6, 5, 2, batch_first=True, dropout=0.3), 5, True),
    "noise": Drawing,
}
PLAIN = {
    "frozen": frozen,
    "LSTM": lambda: Tokens(nn.LSTM(6, 5, batch_first=True), 5, True),
    "GRU": lambda: Tokens(nn.GRU(6, 5, batch_first=True), 5, True),
    "weight_norm": lambda: flat(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))),
}
NETWORKS = STATISTICS | MASKED | SEEDED | PLAIN
LOOPED_ONLY = {*SEEDED, "LSTM", "GRU", "weight_norm", "BatchNorm2d with cumulative means"}
"""Networks that torch cannot batch."""


def network(name):
    with seeded_torch(0):
        return NETWORKS[name]().double()


class Masks(TorchFunctionMode):
    """Dropout by masks of Python's integers: the definition, one number after another."""

    def __init__(self, key):
        super().__init__()
        self.key, self.calls = int(key), 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.__name__ == "multi_head_attention_forward":
            return self.attention(*args, **kwargs)
        if func.__name__ == "scaled_dot_product_attention":
            return self.scaled(*args, **kwargs)
        if "dropout" not in func.__name__:
            return func(*args, **kwargs)
        x, p, training = [*args, *list(kwargs.values())][:3]
        return self.dropped(func.__name__, x, p) if training else x

    def dropped(self, name, x, p):
        self.calls += 1
        channels = name not in ("dropout", "alpha_dropout")
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if channels else x.shape
        kept = torch.tensor([self.kept(k, p) for k in range(torch.Size(shape).numel())])
        kept = kept.view(shape).double()
        if "alpha" in name:  # torch's own formula: a (x mask + alpha (1 - mask)) + b
            alpha = -1.7580993408473766
            a = (1 - p + p * (1 - p) * alpha**2) ** -0.5
            return a * (x * kept + alpha * (1 - kept)) - a * alpha * p
        return x * kept / (1 - p)

    def kept(self, place, p):
        bits = ((self.key ^ (self.calls << 40)) + place) % 2**64
        for factor in (0x2545F4914F6CDD1D, 0x369DEA0F31A53F85):
            bits = (bits ^ (bits >> 31)) * factor % 2**64
        return (bits >> 20) % 2**20 >= round(p * 2**20)

    def scaled(self, q, k, v, mask=None, p=0.0, is_causal=False, **options):
        p = options.get("dropout_p", p)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if is_causal:
            scores[..., torch.ones_like(scores[0]).triu(1) > 0] = -torch.inf
        return self.dropped("dropout", scores.softmax(-1), p) @ v

    def attention(self, x, _key, _value, width, heads, weight, bias, *rest, **options):
        """Multi-head attention of a sequence (length, b, width) to itself, by its definition."""
        p, out_weight, out_bias = rest[3:6]
        length, b, _ = x.shape
        parts = (x @ weight.T + bias).split(width, -1)
        q, k, v = (part.reshape(length, b * heads, -1).transpose(0, 1) for part in parts)
        scores = (q @ k.mT / (width / heads) ** 0.5).softmax(-1)
        if not options["need_weights"]:
            scores = scores.view(b, heads, length, length)
        mixed = self.dropped("dropout", scores, p).reshape(b * heads, length, length) @ v
        joined = mixed.transpose(0, 1).reshape(length * b, width)
        return (joined @ out_weight.T + out_bias).view(length, b, width), None


def key_of(node, step, seed=0):
    """Return the key from which a node draws in a step."""
    seeds = torch_seed(seed, "forward/local")
    return random_keys(seeds, [(step << 32) | node], [0]).view(np.int64)[0, 0]


def loops(name, clients, weights, rounds=ROUNDS, averaged=True):
    """D-SGD by one torch module and one torch optimizer per node; returns the modules."""
    modules = [copy.deepcopy(network(name)).train() for _ in range(N)]
    changed = [[p for p in m.parameters() if p.requires_grad] for m in modules]
    optimizers = [torch.optim.SGD(own, LR, MOMENTUM) for own in changed]
    inputs = clients.dataset.examples(range(len(clients.dataset.labels)), torch.float64)
    for t in range(rounds):
        for i, (module, optimizer) in enumerate(zip(modules, optimizers, strict=True)):
            chosen = naive.minibatch(clients.train[i], i, t, BATCH, "local", 0)
            optimizer.zero_grad()
            key = key_of(i, t)
            with seeded_torch(int(key) & (2**63 - 1)) if name in SEEDED else Masks(key):
                outputs = module(inputs[chosen])
            functional.cross_entropy(outputs, clients.dataset.labels[chosen]).backward()
            optimizer.step()
        shared = [dict(m.named_parameters()) for m in modules]
        if averaged:
            shared = [own | dict(m.named_buffers()) for own, m in zip(shared, modules, strict=True)]
        old = [{key: x.detach().clone() for key, x in own.items()} for own in shared]
        for i, own in enumerate(shared):
            for key, x in own.items():
                if x.is_floating_point():
                    x.data.copy_(sum(weights[i, j] * old[j][key] for j in range(N)))
    return modules


def trained(name, executor="looped", chunk="auto", rounds=ROUNDS, **changes):
    """Return the history of D-SGD with momentum over a ring."""
    settings = {"clients": problems.equal_clients(N), "rounds": rounds, "seed": 0, "init": "given"}
    settings |= {"topology": topologies.ring(N), "dtype": torch.float64, "device": "cpu"} | changes
    options = problems.options(executor=executor, chunk=chunk, **settings)
    method = options.pop("method", algorithms.dsgd(lr=LR, batch_size=BATCH, momentum=MOMENTUM))
    return topofl.run(method, model=network(name), **options)


def assert_equal(history, modules):
    for i, module in enumerate(modules):
        found, wanted = history.models.state_dict(i), module.state_dict()
        for key, value in found.items():
            torch.testing.assert_close(value, wanted[key], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_equals_the_loop_over_modules(name):
    clients = problems.equal_clients(N)
    weights = mixing.metropolis_hastings(topologies.ring(N)).weights.toarray()
    modules = loops(name, clients, weights)
    for executor, chunk in (("looped", "auto"), ("batched", 1), ("batched", 3)):
        if executor == "looped" or name not in LOOPED_ONLY:
            assert_equal(trained(name, executor, chunk), modules)
    start = nn.utils.parameters_to_vector(network(name).parameters())
    assert not torch.allclose(nn.utils.parameters_to_vector(modules[0].parameters()), start)


def test_nodes_may_keep_their_own_statistics():
    clients = problems.equal_clients(N)
    weights = mixing.metropolis_hastings(topologies.ring(N)).weights.toarray()
    modules = loops("BatchNorm2d", clients, weights, averaged=False)
    assert_equal(trained("BatchNorm2d", buffers="own"), modules)


@pytest.mark.parametrize("name", ["BatchNorm2d", "BatchNorm2d without affine", "own buffer"])
def test_statistics_travel_with_the_parameters_of_their_layer(name):
    """A layer without parameters of its own travels with whole models."""
    kept = {}
    for part in ("*", "0", "1"):
        share = algorithms.part(part)
        if part != "*" and (name == "own buffer" or (part == "1" and "without" in name)):
            continue
        local = algorithms.sgd(LR, batch_size=BATCH)
        method = algorithms.chain("method", local=local, average=algorithms.gossip(share))
        how = {"method": method, "rounds": 1}
        own, shared = (trained(name, buffers=kind, **how) for kind in ("own", "average"))
        torch.testing.assert_close(own.models.flat, shared.models.flat)
        pairs = [(x, shared.models.buffers[key]) for key, x in own.models.buffers.items()]
        kept[part] = [torch.allclose(x, y) for x, y in pairs if x.is_floating_point()]
    assert not any(kept["*"])
    assert all(kept.get("0", [True])), "the statistics of layer 1 stay with layer 0 alone"
    assert not any(kept.get("1", [False]))


@pytest.mark.parametrize("part", ["*", "0", "1"])
def test_slices_of_the_models_are_their_columns(part):
    """A phase may mix `models.flat` or a slice of it: the statistics of its layers travel, too."""
    share = algorithms.part(part)

    def mix_slices(models, state, round):
        (columns,) = models.columns(share)
        round.mix(round.weights, models.flat[:, columns])
        return state

    sliced = algorithms.Phase(lambda models: {}, mix_slices)
    local = algorithms.sgd(LR, batch_size=BATCH)
    one, other = (
        trained("BatchNorm2d", method=algorithms.chain("own", local=local, average=average))
        for average in (sliced, algorithms.gossip(share))
    )
    assert one.rounds["bytes"].tolist() == other.rounds["bytes"].tolist()
    assert torch.equal(one.models.flat, other.models.flat)
    for name, x in one.models.buffers.items():
        assert torch.equal(x, other.models.buffers[name])


def test_pushed_statistics_are_averaged_by_push_sum_weights():
    graph = from_edges([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], N, directed=True)
    graphs = {"topology": graph, "rounds": 1}
    method = algorithms.osgp(lr=LR, batch_size=BATCH, epochs=1)
    own = trained("BatchNorm2d", method=method, buffers="own", **graphs).models.buffers
    found = trained("BatchNorm2d", method=method, **graphs).models.buffers
    weights = mixing.uniform(graph, direction="push").weights.toarray()
    shares = torch.from_numpy(weights / weights.sum(1, keepdims=True))  # all start with weight 1
    for key in ("1.running_mean", "1.running_var"):
        torch.testing.assert_close(found[key], shares @ own[key], rtol=1e-12, atol=1e-12)


def test_a_server_averages_statistics_over_its_cohort():
    method = algorithms.fedavg(lr=LR, batch_size=BATCH, epochs=1, participation=0.5)
    stored = []
    note = problems.each_round(lambda t, models: stored.append(models.buffers["1.running_mean"]))
    history = trained("BatchNorm2d", method=method, rounds=2, callbacks=[note])
    assert len(stored[-1].stored) == 1, "equal rows are stored once"
    buffers = history.models.buffers
    for key in ("1.running_mean", "1.running_var"):
        assert torch.equal(buffers[key], buffers[key][:1].expand_as(buffers[key]))
        assert not torch.equal(buffers[key][0], network("BatchNorm2d").state_dict()[key])


def test_messages_count_statistics_and_estimates_say_so():
    graph, sent = topologies.ring(N), {}
    for buffers in ("own", "average"):
        history = trained("BatchNorm2d", buffers=buffers)
        compute = topofl.Compute(dtype=torch.float64, device="cpu", buffers=buffers)
        how = {"model": network("BatchNorm2d"), "clients": problems.equal_clients(N)}
        method = algorithms.dsgd(lr=LR, batch_size=BATCH)
        estimate = topofl.estimate(method, topology=graph, compute=compute, **how)
        sent[buffers] = history.rounds["bytes"][0]
        assert estimate.bytes == sent[buffers]
    assert sent["average"] - sent["own"] == 2 * N * 8 * 8  # messages x numbers x bytes


def test_a_node_tries_models_of_others_with_its_own_statistics():
    """Once one class of node is far from others, the losses of tried models depend on whose."""
    method = algorithms.dpfl(lr=LR, batch_size=BATCH, budget=2, epochs=1, first_epochs=1)
    clients = problems.validated_clients(N)
    histories = [
        trained("BatchNorm2d", executor, chunk, method=method, clients=clients, rounds=2)
        for executor, chunk in (("looped", "auto"), ("batched", 2))
    ]
    torch.testing.assert_close(histories[0].models.flat, histories[1].models.flat)


def test_saved_models_predict_with_their_statistics(tmp_path):
    history = trained("BatchNorm2d", saving=topofl.Saving(models=True))
    x = problems.dataset().examples(range(5), torch.float64)
    wanted = [history.models.module(i)(x) for i in range(N)]
    module = network("BatchNorm2d").eval()
    module.load_state_dict(history.models.state_dict(1), strict=True)
    assert torch.equal(module(x), wanted[1])
    history.save(tmp_path / "history", models=True)
    loaded = topofl.History.load(tmp_path / "history").models
    for i in range(N):
        assert torch.equal(loaded.predict(x, i, network("BatchNorm2d")), wanted[i])
    together = loaded.predict(x, network=network("BatchNorm2d"))
    torch.testing.assert_close(together, torch.stack(wanted))


def test_frozen_parameters_are_stored_once_and_not_sent():
    history, whole = trained("frozen"), trained("Dropout")
    assert history.models.flat.shape == (N, 8 * 3 + 3)
    assert history.rounds["bytes"][0] < whole.rounds["bytes"][0]
    model = network("frozen")
    module = history.models.module(0)
    assert torch.equal(module[1].weight, model[1].weight)
    assert not torch.equal(module[3].weight, model[3].weight)


def test_copies_of_a_network_share_its_frozen_parameters_alone():
    model = network("frozen")
    copied = copy_of_trained(model)
    for one, other in zip(model.parameters(), copied.parameters(), strict=True):
        assert (one.data_ptr() == other.data_ptr()) == (not one.requires_grad)
    assert all(
        one is not other for one, other in zip(model.buffers(), copied.buffers(), strict=True)
    )


def test_shapes_of_ragged_clients_change_nothing():
    """Nodes with fewer examples train on whole minibatches of their own, without padding."""
    clients = problems.ragged_clients(6)
    run = {"clients": clients, "topology": topologies.ring(6)}
    looped = trained("Dropout2d", **run)
    for chunk in (1, 4, 6):
        batched = trained("Dropout2d", "batched", chunk, **run)
        torch.testing.assert_close(batched.models.flat, looped.models.flat, rtol=1e-11, atol=1e-11)


def test_fedbn_keeps_normalization_layers_with_their_statistics():
    options = {"lr": LR, "batch_size": BATCH, "epochs": 1}
    found = trained("BatchNorm2d", method=algorithms.fedbn(**options)).models
    wanted = trained("BatchNorm2d", method=algorithms.fedper(head="1", **options)).models
    assert torch.equal(found.flat, wanted.flat)
    names = ["weight", "bias", "running_mean", "running_var"]
    for i in range(1, N):
        first, own = found.state_dict(0), found.state_dict(i)
        assert torch.equal(own["0.weight"], first["0.weight"])
        assert not any(torch.equal(own[f"1.{name}"], first[f"1.{name}"]) for name in names)


def test_parts_are_named_by_types_of_layers():
    layout = Layout.of(network("TransformerEncoderLayer"))
    norms = [name for name in layout.names if "norm" in name]
    for pattern in (nn.LayerNorm, "*Norm()", "LayerNorm()"):
        assert [layout.names[k] for k in layout.places(algorithms.part(pattern))] == norms
    rest = layout.places(algorithms.part(nn.LayerNorm, "head").rest)
    assert not {"layer.norm1.weight", "head.bias"} & {layout.names[k] for k in rest}
    message = r"'LayrNorm\(\)' matches none; did you mean 'LayerNorm\(\)'"
    with pytest.raises(ValueError, match=message):
        layout.places(algorithms.part("LayrNorm()"))
    with pytest.raises(TypeError, match="`patterns` must be names"):
        algorithms.part(3)


class Global(Headed):
    def __init__(self):
        super().__init__()
        self.noise = Numpy()

    def forward(self, x):
        return self.head(self.noise(x.flatten(1)))


class Numpy(nn.Module):
    def forward(self, x):
        noise = torch.from_numpy(np.random.standard_normal(x.shape))  # noqa: NPY002
        return x + noise.to(x) if self.training else x


class Python(nn.Module):
    """Skips itself at random, seldom enough that outputs are equal most times."""

    def __init__(self, rng=None):
        super().__init__()
        self.head, self.rng = nn.Linear(36, 3), rng

    def forward(self, x):
        skipped = self.training and (self.rng or random).random() < 1e-9
        return self.head(x.flatten(1)) * (not skipped)


class Replacing(Counting):
    def forward(self, x):
        if self.training:
            self.most = self.most * 0.9
        return self.head(x.flatten(1) / self.most)


class Always(Headed):
    def forward(self, x):
        return self.head(functional.dropout(x.flatten(1), 0.5))


REFUSED = {
    "draws of numpy": (Global, "'noise' draws others, as of numpy"),
    "draws of Python": (Python, "'Python' draws others, as of Python's random"),
    "replaced buffers": (Replacing, "change its buffers in place, 'most' is replaced"),
    "draws in evaluation": (Always, "draw them only if self.training"),
    "no running statistics": (
        lambda: images(nn.BatchNorm2d(4, track_running_stats=False)),
        "let it track running statistics",
    ),
    "nothing to train": (lambda: flat().requires_grad_(False), "all 4 have requires_grad=False"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_networks_are_told_why(name):
    make, message = REFUSED[name]
    clients = problems.equal_clients(N)
    with pytest.raises(ValueError, match=message):
        topofl.run(algorithms.local_only(lr=LR), model=make(), clients=clients, rounds=1, seed=0)


@pytest.mark.parametrize(
    ("rng", "whose"),
    [
        (random.Random(0), "Python's random"),
        (np.random.RandomState(0), "numpy"),
        (np.random.default_rng(0), "numpy"),
    ],
)
def test_layers_that_hold_a_generator_are_refused(rng, whose):
    """Each thread would draw from its own copy."""
    with pytest.raises(ValueError, match=f"'Python' draws others, as of {whose}"):
        network_of(Python(rng), torch.rand(2, 1, 6, 6))


def test_draws_of_other_threads_are_not_those_of_the_network():
    done = threading.Event()

    def draw():
        while not done.is_set():
            random.random()
            np.random.random()  # noqa: NPY002

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        assert network_of(flat(nn.Dropout(0.4)), torch.rand(2, 1, 6, 6)).drawing is Masked
    finally:
        done.set()
        thread.join()


class Stepping(nn.Module):
    """Changes attributes of several kinds in a forward pass."""

    def __init__(self, name):
        super().__init__()
        self.head, self.name = nn.Linear(36, 3), name
        self.count, self.mean, self.seen, self.cache = 0, torch.zeros(3), [], None
        self.fixed, self.scale = [1, 2], torch.ones(())

    def forward(self, x):
        found = self.head(x.flatten(1)) * self.scale
        if self.name == "count":
            self.count += 1
        elif self.name == "mean":
            self.mean += found.detach().mean(0)
        elif self.name == "seen":
            self.seen.append(len(x))
        elif self.name == "cache":
            self.cache = found.detach()
        return found


@pytest.mark.parametrize("name", ["count", "mean", "seen", "cache"])
def test_attributes_that_a_forward_changes_are_noticed(name):
    inside = nn.Sequential(nn.Identity(), Stepping(name))
    message = rf"'1\.{name}' in a forward pass.*self\.register_buffer\('{name}', \.\.\.\)"
    with pytest.warns(UserWarning, match=message):
        network_of(inside, torch.rand(2, 1, 6, 6))
    network_of(Stepping(""), torch.rand(2, 1, 6, 6))  # changes none


WORSE = ["batched", "looped", "refused"]
BY_ITSELF = {"noise", "draws of Python", "replaced buffers", "draws in evaluation"}
BY_ITSELF |= {"nothing to train"}
"""Networks whose own forward is looped or refused, and none of their layers."""


@pytest.mark.parametrize("name", [*NETWORKS, *REFUSED])
def test_layers_explain_what_the_whole_network_gets(name):
    make = NETWORKS.get(name) or REFUSED[name][0]
    *layers, whole = layers_of(make(), torch.rand(2, 1, 6, 6))
    expected = "refused" if name in REFUSED else "looped" if name in LOOPED_ONLY else "batched"
    assert whole.executor == expected, whole
    worst = max([layer.executor for layer in layers], key=WORSE.index)
    assert worst == (expected if name not in BY_ITSELF else "batched")
    if name in REFUSED:
        assert re.search(REFUSED[name][1], whole.why)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (algorithms.apfl(0.1, epochs=1), "phase .* trains copies of the models"),
        (algorithms.dp_dsgd(0.1, clip=1.0, noise=1.0, batch_size=4), "sent without noise"),
        (algorithms.dp_fedavg(0.1, batch_size=4), "sent without noise"),
        (algorithms.proxyfl(0.1, epochs=1, head="5"), "whose nodes train two models each"),
    ],
)
def test_methods_that_would_lose_or_leak_statistics_refuse_them(method, message):
    with pytest.raises(ValueError, match=message):
        trained("BatchNorm2d", method=method)
    trained("Dropout", method=method, rounds=1)


class Late(nn.Module):
    """Normalizes what is 0 at the start, so that a mean does not change by value."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(36, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        nn.init.zeros_(self.first.weight)
        nn.init.zeros_(self.first.bias)

    def forward(self, x):
        return self.head(self.norm(self.first(x.flatten(1))))


class Centered(Headed):
    """Subtracts the mean of the minibatch in training."""

    def forward(self, x):
        x = x.flatten(1)
        return self.head(x - x.mean(0) if self.training else x)


def test_what_a_forward_changes_is_found_by_layer_and_coupling_by_outputs():
    inputs = torch.rand(2, 1, 6, 6)
    names = ("running_mean", "running_var", "num_batches_tracked")
    assert network_of(Late(), inputs).buffers == tuple(f"norm.{name}" for name in names)
    assert network_of(Centered(), inputs).unpadded
    assert not network_of(flat(nn.LayerNorm(8)), inputs).unpadded


def test_frozen_nodes_keep_their_statistics_where_gradients_are_mixed():
    clients = problems.equal_clients(6)
    method = algorithms.clique_averaging(lr=1e200, batch_size=BATCH)
    how = {"topology": problems.cliques(clients), "clients": clients, "on_divergence": "freeze"}
    found = trained("BatchNorm1d", method=method, **how)
    assert found.meta["diverged"]
    assert all(bool(values.isfinite().all()) for values in found.models.buffers.values())


@pytest.mark.parametrize("executor", ["looped", "batched"])
def test_frozen_nodes_keep_their_statistics_where_a_phase_takes_gradients(executor):
    """The round in which a node diverges changes neither, as in local steps."""
    stored = {}

    def descend(models, state, round):
        before = {name: held.rows(slice(None)).clone() for name, held in models.buffers.items()}
        models.flat.sub_(round.gradients(models, BATCH, ""), alpha=LR)
        if not models.flat.is_meta:
            after = {name: held.rows(slice(None)) for name, held in models.buffers.items()}
            same = [before[k].eq(after[k]).view(6, -1).all(1) for k in before]
            stored[round.t] = torch.stack(same).all(0).tolist()
        return state

    method = algorithms.chain("own", only=algorithms.Phase(lambda models: {}, descend))
    found = topofl.run(
        method, model=network("BatchNorm1d"), clients=clients_with_extremes(6), rounds=ROUNDS,
        seed=0, evaluation=topofl.Evaluation(on=()),
        compute=topofl.Compute("cpu", executor=executor, on_divergence="freeze"),
    )  # fmt: skip
    assert found.meta["diverged"]
    assert stored == {t: [k == BAD for k in range(6)] for t in range(ROUNDS)}
    assert all(bool(values.isfinite().all()) for values in found.models.buffers.values())


def arguments_of(name):
    """Return what a row of the table gives to its method."""
    row = ALGORITHMS[name]
    given = {**row.required, **row.killed}
    given |= {"head": "4"} if "head" in given else {}
    return given | ({"local": "1"} if "local" in given else {})


@problems.by_turns(
    2,
    name=sorted(
        {*ALGORITHMS}
        - {"apfl", "ad_psgd", "ditto", "dp_dsgd", "dp_fedavg", "dsgd_ceca", "fedala", "pfedme"}
        - {"fedasync", "fedbuff", "proxyfl"}
    ),
)
def test_statistics_travel_where_their_bytes_are_counted(name):
    """After rounds that send them they differ from each node's own, and elsewhere they do not."""
    clients = problems.validated_clients(6)
    method = getattr(algorithms, name)(lr=LR, batch_size=4, **arguments_of(name))
    own, shared = (
        topofl.run(
            method, model=network("BatchNorm2d"), clients=clients,
            topology=problems.cliques(clients), rounds=2, seed=0, init="common",
            compute=topofl.Compute("cpu", dtype=torch.float64, executor="looped", buffers=buffers),
        )
        for buffers in ("own", "average")
    )  # fmt: skip
    moved = any(
        not torch.equal(own.models.buffers[key], shared.models.buffers[key])
        for key in ("1.running_mean", "1.running_var")
    )
    more = (shared["bytes"] - own["bytes"]).sum()
    assert moved == (more > 0)
    size = 2 * 4 * 8  # two statistics of four channels in float64
    assert more % size == 0
    assert more <= shared["messages"].sum() * size


def test_a_clock_waits_for_statistics():
    seconds = {}
    for buffers in ("own", "average"):
        method = algorithms.dsgd(lr=LR, batch_size=BATCH)
        method = algorithms.timed(method, {"compute": 1.0, "bandwidth": 100.0})
        history = trained("BatchNorm2d", method=method, rounds=1, buffers=buffers)
        seconds[buffers] = history["simulated_seconds"][-1]
    assert seconds["average"] - seconds["own"] == pytest.approx(2 * 4 * 8 / 100)


def test_attackers_do_not_forge_statistics():
    graph = from_edges([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], N, directed=True)
    osgp = algorithms.osgp(lr=LR, batch_size=BATCH, epochs=1)
    for how in ({}, {"method": osgp, "topology": graph}):
        found = trained("BatchNorm2d", attackers=attacks.sign_flip([0], scale=3), **how)
        assert (found.models.buffers["1.running_var"] > 0).all()


def test_rows_of_attention_that_see_nothing_are_0():
    x = torch.rand(1, 3, 4)
    mask = torch.tensor([[True, False, False], [False, False, False], [True, True, True]])
    with Masked(torch.tensor(5)):
        found = functional.scaled_dot_product_attention(x, x, x, mask, dropout_p=0.1)
    assert (found[0, 1] == 0).all()
    assert found.isfinite().all()


def test_a_minibatch_of_one_example_is_refused_with_its_node():
    with pytest.raises(ValueError, match=r"at least 2 examples.* node 0 trains on 1 examples"):
        trained("BatchNorm1d", clients=problems.ragged_clients(N))
    trained("BatchNorm2d", clients=problems.ragged_clients(N), rounds=1)  # has several pixels


@pytest.mark.parametrize("policy", ["raise", "freeze"])
def test_nodes_that_take_no_step_keep_their_statistics(policy):
    how = {"method": algorithms.local_only(lr=LR, batch_size=4, epochs=1), "topology": None}
    how |= {"clients": problems.ragged_clients(6), "on_divergence": policy}
    plans = ("looped", "auto"), ("batched", 4)
    found = [trained("BatchNorm2d", *plan, **how).models.buffers for plan in plans]
    assert found[0]["1.num_batches_tracked"].tolist() == [3, 3, 3, 6, 9, 12]
    for key, looped in found[0].items():
        torch.testing.assert_close(found[1][key], looped, rtol=1e-12, atol=1e-12)


def test_checkpoints_keep_statistics(tmp_path):
    whole = trained("BatchNorm and Dropout", rounds=4).models
    trained("BatchNorm and Dropout", rounds=2, saving=topofl.Saving(tmp_path))
    saving = topofl.Saving(tmp_path, resume=True)
    resumed = trained("BatchNorm and Dropout", rounds=4, saving=saving).models
    assert torch.equal(resumed.flat, whole.flat)
    for name, values in whole.buffers.items():
        assert torch.equal(resumed.buffers[name], values)
    with pytest.raises(ResumeError, match="buffers"):
        trained("BatchNorm and Dropout", rounds=5, buffers="own", saving=saving)


def test_frozen_linear_layers_have_no_closed_form():
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    assert is_linear(model)
    model[1].weight.requires_grad_(False)
    assert not is_linear(model)


def test_equal_models_with_different_statistics_are_scored_apart():
    """As after an exact average of parameters, without their statistics."""
    method = algorithms.fedavg(lr=LR, batch_size=4, epochs=1)
    history = trained("BatchNorm2d", method=method, buffers="own")
    flat = history.models.flat
    assert torch.equal(flat, flat[:1].expand_as(flat))
    assert len(np.unique(history["loss"][-1])) == N


def test_the_page_says_how_each_layer_is_trained():
    page = (Path(__file__).parents[2] / "docs" / "bring-your-network.md").read_text()
    table = page.split("| Layer |")[1].partition("\n\n")[0].splitlines()[2:]
    cells = ([cell.strip() for cell in row.split("|")[1:-1]] for row in table)
    rows = {name: (batched, looped) for name, batched, looped, *_ in cells}
    batched = dict.fromkeys(NETWORKS, ("yes", "yes")) | dict.fromkeys(LOOPED_ONLY, ("no", "yes"))
    assert rows == batched | dict.fromkeys(REFUSED, ("no", "no"))


@pytest.mark.parametrize("name", sorted(LOOPED_ONLY - {"weight_norm"}))
def test_networks_that_cannot_be_batched_are_looped(name):
    with pytest.raises(ValueError, match="`executor` must be 'looped' or 'auto' for this model"):
        trained(name, "batched", 2)
    assert trained(name, "auto").meta["executor"] == "looped"


def test_parts_are_equal_whatever_argument_gave_them():
    assert replace(algorithms.part("head"), argument="shared") == algorithms.part("head")
    assert algorithms.part("head") != algorithms.part("head").rest
