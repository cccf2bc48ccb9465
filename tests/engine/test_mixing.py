"""Mixing in place equals W @ X for every structure that the mixer recognises."""

from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Barrier

import numpy as np
import pytest
import torch

from tests.simulated_device import SimulatedDevice
from topofl import as_topology, mixing, topologies
from topofl.engine import mixing as module
from topofl.engine.mixing import COLUMNS, mixer
from topofl.engine.ranks import Ranks, one_process

CPU = torch.device("cpu")


def mixer_of(weights, device, dtype):
    return mixer(weights, one_process(weights.n, device), dtype)


def cliques(n=12):
    return topologies.dcliques(n=n, clique_size=3, inter="ring", seed=0)


DRAWN = np.random.default_rng(0).random((23, 23))

MATRICES = {
    "mean": mixing.metropolis_hastings(topologies.fully_connected(12)),
    "group means": mixing.within_groups(cliques()),
    "uneven group means": mixing.within_groups(topologies.random_cliques(11, 3, seed=0)),
    "identity": mixing.from_weights(np.eye(5)),
    "sparse": mixing.metropolis_hastings(topologies.ring(40)),
    "dense": mixing.metropolis_hastings(cliques()),
    "directed": mixing.uniform(topologies.exponential(9, directed=True)),
    "not uniform": mixing.metropolis_hastings(topologies.star(7)),
    "random": mixing.uniform(as_topology(np.triu(DRAWN < 0.2, 1))),
    "one node": mixing.from_weights([[1.0]]),
    "rows with equal sums": mixing.from_weights([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]]),
}


ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}


def check_product(weights, columns, dtype):
    drawn = np.random.default_rng(0).standard_normal((weights.n, columns))
    values = torch.from_numpy(drawn).to(dtype)
    wanted = weights.weights.toarray() @ values.double().numpy()
    mixer_of(weights, CPU, dtype)(values)
    np.testing.assert_allclose(values.double().numpy(), wanted, atol=ROUNDING[dtype], rtol=0)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("columns", [0, 1, 7, COLUMNS, COLUMNS + 3])
@pytest.mark.parametrize("name", MATRICES)
def test_equals_product(name, columns, dtype):
    check_product(MATRICES[name], columns, dtype)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_group_sums_are_not_taken_in_16_bits(dtype):
    """The sum of 1,000 gradients of 100 would overflow in float16."""
    assert (mixer_of(MATRICES["group means"], CPU, dtype).means is None) == (dtype.itemsize < 4)
    assert mixer_of(MATRICES["dense"], CPU, dtype).means is None


@pytest.mark.parametrize("numbers", [1, 40 * 70, 40 * 200])
def test_equals_product_for_blocks_of_any_width(numbers, monkeypatch):
    monkeypatch.setattr(module, "GATHERED", numbers)
    check_product(MATRICES["sparse"], 201, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sparse_matrix_may_have_empty_rows(dtype):
    """A column-stochastic matrix has one if a node receives nothing, not even its own model."""
    weights = np.zeros((9, 9))
    weights[[0, 0, 3, 3, 3, 5, 6, 6, 6], range(9)] = 1
    check_product(mixing.from_weights(weights, edges="u<-v"), 5, dtype)


@pytest.mark.parametrize("name", ["sparse", "dense", "directed"])
def test_no_second_copy_of_the_models_is_allocated(name):
    weights = MATRICES[name]
    values = torch.ones(weights.n, 20 * COLUMNS)
    mix = mixer_of(weights, CPU, torch.float32)
    with torch.profiler.profile(profile_memory=True) as profile:
        mix(values)
    taken = [event.self_cpu_memory_usage for event in profile.events()]
    assert 0 < max(taken) <= 4 * max(weights.n * COLUMNS, module.GATHERED)


def test_mixing_some_columns_leaves_the_others_unchanged():
    weights = MATRICES["sparse"]
    values = torch.randn(40, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = values.clone()
    wanted[:, 2:5] = torch.from_numpy(weights.weights.toarray()) @ values[:, 2:5]
    mixer_of(weights, CPU, torch.float64)(values[:, 2:5])
    torch.testing.assert_close(values, wanted)


def test_off_cpu_blocks_are_few_and_large(monkeypatch):
    assert module.columns_at_a_time(1000, CPU) == COLUMNS
    assert module.columns_at_a_time(1000, torch.device("cuda")) == 2**26 // 1000
    assert module.columns_at_a_time(2**20, torch.device("cuda")) == COLUMNS
    monkeypatch.setattr(module, "COLUMNS", 3)
    monkeypatch.setattr(module, "PRODUCTS", 12 * 7)
    values = torch.from_numpy(np.random.default_rng(0).standard_normal((12, 100)))
    wanted = MATRICES["dense"].weights.toarray() @ values.numpy()
    with SimulatedDevice():
        moved = values.to("cuda")
        mixer_of(MATRICES["dense"], moved.device, torch.float64)(moved)
        found = moved.cpu()
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-13, rtol=0)


class Linked(Ranks):
    """One of several ranks that are threads of this process; queues take what they send."""

    def link(self, queues, barrier):
        self.queues, self.barrier = queues, barrier
        return self

    def numbers(self, own):
        return np.array([own] * self.size)

    def post(self, outgoing, incoming):
        for peer, part in outgoing:
            self.sent += part.numel() * part.element_size()
            self.queues[self.rank, peer].put(part)
        return incoming

    def finish(self, requests):
        for peer, part in requests:
            part.copy_(self.queues[peer, self.rank].get(timeout=30))

    def sum_(self, values):
        self.sent += 2 * (self.size - 1) * values.numel() * values.element_size() / self.size
        for peer in range(self.size):
            self.queues[self.rank, peer].put(values.clone())
        self.barrier.wait(30)
        return values.copy_(sum(self.queues[k, self.rank].get() for k in range(self.size)))


def mixed_by(weights, owner, values):
    """Return values that ranks mixed, and the bytes that they sent."""
    size = owner.max() + 1
    queues = {(i, j): Queue() for i in range(size) for j in range(size)}
    barrier, found = Barrier(size), torch.empty_like(values)

    def work(rank):
        own = Linked(rank, size, owner, CPU).link(queues, barrier)
        part = values[own.nodes]
        mixer(weights, own, values.dtype)(part)
        found[own.nodes] = part
        return own.sent

    with ThreadPoolExecutor(int(size)) as threads:
        return found, sum(threads.map(work, range(size)))


@pytest.mark.parametrize("size", [2, 3, 4, 6])
@pytest.mark.parametrize(("n", "most"), [(24, 2), (24, 5), (23, 12)])
def test_sums_of_groups_travel_between_the_ranks_that_hold_them(n, most, size, monkeypatch):
    monkeypatch.setattr(module, "SENT", 60)  # several blocks of columns
    rng = np.random.default_rng(size)
    graph = topologies.random_cliques(n, most, seed=0)
    owner = rng.permutation(np.arange(n) % size)
    values, weights = torch.from_numpy(rng.standard_normal((n, 24))), mixing.uniform(graph)
    found, sent = mixed_by(weights, owner, values)
    np.testing.assert_allclose(found, weights.weights @ values.numpy(), rtol=0, atol=1e-13)
    holders = [len(set(owner[list(group)])) for group in graph.groups]
    rows = [len(group) * (r - 1) for group, r in zip(graph.groups, holders, strict=True)]
    assert sent == 24 * 8 * sum(2 * (r - 1) for r in holders) <= 24 * 8 * sum(rows)
    for group in graph.groups:  # members leave with one model, bit by bit, on all ranks
        assert (found[list(group)] == found[group[0]]).all()
