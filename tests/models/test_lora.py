"""Adapters of low rank: what they compute, what is trained, and what is refused."""

import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.degenerate.inputs import run
from topofl import algorithms, topologies
from topofl._support.seeding import seeded_torch
from topofl.engine.memory import AllocationTrace
from topofl.engine.network import network_of
from topofl.models import lora

N = 4


class Transformer(nn.Module):
    """Classifies images (b, 1, 6, 6) as sequences of 6 tokens."""

    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True, **options)
        self.encoder = nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0, batch_first=True)
        self.head = nn.Linear(36, 3)

    def forward(self, x):
        x = x[:, 0]
        keys = x[..., : self.attention.kdim]
        found, _ = self.attention(x, keys, keys)
        return self.head(self.encoder(found).flatten(1))


@seeded_torch(0)
def transformer(**options):
    return Transformer(**options).double()


def filled(module):
    """Return a module whose adapters are not 0."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name.endswith(".b"):
                p.copy_(torch.arange(p.numel()).view_as(p) % 5 / 10)
    return module


def adapters(module):
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("options", [{}, {"kdim": 3, "vdim": 3}])
@pytest.mark.parametrize("training", [True, False])
def test_a_new_adapter_changes_nothing_and_a_filled_one_adds_its_product(options, training):
    plain, x = transformer(**options).train(training), torch.rand(5, 1, 6, 6).double()
    adapted = lora(plain, rank=2, alpha=6).train(training)
    torch.testing.assert_close(adapted(x), plain(x))
    filled(adapted)
    with torch.no_grad():  # W + alpha / rank * B A, written into a network without adapters
        for name, a in adapters(adapted).items():
            if name.endswith(".a"):
                b = adapted.get_parameter(name.removesuffix("a") + "b")
                own = name.removesuffix(".a").replace(".adapter", ".weight")
                own = own.replace("parametrizations.", "").removesuffix(".0")
                plain.get_parameter(own).add_(3 * (b @ a))
    torch.testing.assert_close(adapted(x), plain(x))
    assert torch.equal(adapted.head.weight, plain.head.weight)
    assert torch.equal(adapted.head.bias, plain.head.bias)


def test_names_choose_what_is_adapted_and_what_is_trained_as_a_whole():
    names = set(adapters(lora(transformer(), layers="encoder.linear?", also="head", rank=1)))
    adapted = {f"encoder.linear{k}.adapter.{x}" for k in (1, 2) for x in "ab"}
    assert names == adapted | {"head.weight", "head.bias"}
    assert set(adapters(lora(nn.Linear(3, 2), rank=1))) == {"adapter.a", "adapter.b"}


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of attention in a batch
@pytest.mark.parametrize("executor", ["looped", "batched"])
def test_nodes_store_send_and_train_adapters_only(executor):
    plain = transformer()
    adapted = lora(plain, rank=1)
    options = {"clients": problems.equal_clients(N), "topology": topologies.ring(N)}
    options |= {"saving": topofl.Saving(models=True), "dtype": torch.float64}
    algorithm = algorithms.dsgd(lr=0.1, batch_size=8)
    history = run(algorithm, model=adapted, executor=executor, **options)
    d = sum(p.numel() for p in adapters(adapted).values())
    assert history.models.flat.shape == (N, d)
    assert history.rounds["bytes"][0] == 2 * N * d * 8
    module = history.models.module(1)
    assert torch.equal(module.head.frozen.weight, plain.head.weight)
    assert (module.head.adapter.b != 0).all(), "B starts at 0, and is trained"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": "heed"}, "`layers` must be names of layers, 'heed' matches none; did you mean"),
        ({"also": ["body"]}, "`also` must be names of layers, 'body' matches none"),
        ({"layers": "encoder.norm1"}, "`layers` must match an nn.Linear or nn.MultiheadAttention"),
        ({"also": "*"}, "that is not trained as a whole"),
        ({"rank": 4}, "`rank` must be between 1 and a weight's side=3, got 4"),
        ({"rank": 0}, "`rank` must be at least 1"),
        ({"alpha": 0.0}, "`alpha` must be a finite number above 0"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        lora(transformer(), **options)
    lora(transformer(), rank=3)


def test_what_is_no_network_is_refused():
    with pytest.raises(TypeError, match="`module` must be a"):
        lora("net")


def test_a_layer_with_two_names_is_adapted_in_both():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net.append(net[0])
    adapted = lora(net, rank=1)
    assert adapted[0] is adapted[2]
    assert set(adapters(adapted)) == {"0.adapter.a", "0.adapter.b"}


@problems.by_turns(3, init=["common", "independent", "given"])
@pytest.mark.slow
def test_a_run_starts_with_one_copy_of_what_is_frozen(init):
    """At no time until the first round does it take half of another one."""
    with seeded_torch(0):
        layers = (x for _ in range(30) for x in (nn.Linear(64, 64), nn.BatchNorm1d(64)))
        net = lora(
            nn.Sequential(nn.Flatten(), nn.Linear(36, 64), *layers, nn.Linear(64, 3)), rank=1
        )
    frozen = sum(p.nbytes for p in net.parameters() if not p.requires_grad)
    clients, seen = problems.equal_clients(20), []
    own = sum(p.nbytes for p in adapters(net).values()) + sum(x.nbytes for x in net.buffers())
    before = [p.clone() for p in net.parameters()]
    with AllocationTrace() as allocations:
        history = topofl.run(
            algorithms.dsgd(1e-6, batch_size=100), model=net, clients=clients, init=init, rounds=1,
            topology=topologies.ring(20), seed=0, compute=topofl.Compute("cpu", executor="looped"),
            callbacks=[lambda event: seen.append(allocations.peak)],
        )  # fmt: skip
    assert frozen < seen[0] < 1.5 * frozen + 20 * own
    module = history.models.module(0)
    for (name, p), old in zip(net.named_parameters(), before, strict=True):
        assert torch.equal(p, old)
        assert p.requires_grad or torch.equal(module.get_parameter(name), p)


def test_checks_of_a_network_keep_no_adapted_weights():
    """An adapted layer of attention computes its whole weight in each forward."""
    with seeded_torch(0):
        net = lora(nn.Sequential(*(Whole(64) for _ in range(20))), rank=1)
    frozen = sum(p.nbytes for p in net.parameters() if not p.requires_grad)
    with AllocationTrace() as allocations:
        found = network_of(net.eval(), torch.rand(2, 1, 64))
    assert found.drawing is None
    assert allocations.peak < frozen / 4


class Whole(nn.MultiheadAttention):
    """Attention of a sequence to itself."""

    def __init__(self, width):
        super().__init__(width, 2, batch_first=True)

    def forward(self, x):
        return super().forward(x, x, x)[0]
