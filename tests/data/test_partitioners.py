"""Partitioners: allocations by hand, the distributions that they draw from, and owners as nodes."""

import importlib
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import topofl
from tests.rows.partitioners import counted, datasets, lists, toy
from topofl import data, topologies
from topofl.data.partitioners import _dealing as allocation


@pytest.mark.parametrize(
    ("fractions", "sizes"),
    [
        ((0.2, 0), (8, 2, 0)),
        ((0, 0.3), (7, 0, 3)),
        ((0.01, 0.01), (8, 1, 1)),
        ((0.49, 0.5), (1, 4, 5)),
    ],
)
def test_held_out_sizes(fractions, sizes):
    val, test = fractions
    clients = data.iid(toy((10, 10)), 2, seed=0, val_fraction=val, test_fraction=test)
    parts = zip(clients.train, clients.val, clients.test, strict=True)
    assert [tuple(map(len, own)) for own in parts] == [sizes] * 2


def test_holding_out_keeps_class_proportions():
    clients = data.iid(toy((40, 20)), 1, seed=0, val_fraction=0.1, test_fraction=0.2)
    assert (counted(clients, "test"), counted(clients, "val")) == ([[8, 4]], [[4, 2]])


def test_names_tell_the_settings():
    digits = data.digits()
    assert data.shards(digits, 50, seed=0).name == "shards(digits, n=50, per_node=2)"
    held = data.dirichlet_per_class(digits, 5, alpha=1, seed=0, min_size=3, test_fraction=0.1)
    assert held.name == "dirichlet_per_class(digits, n=5, alpha=1, min_size=3, test_fraction=0.1)"
    drawn = data.pathological_dirichlet(toy((600,) * 10), 20, classes_per_node=3, seed=0)
    settings = "n=20, classes_per_node=3, alpha=0.5, min_per_class=10"
    assert drawn.name == f"pathological_dirichlet(toy, {settings})"


def test_shards_of_one_class_each_when_classes_are_multiples_of_shards():
    counts = data.shards(toy((20, 40, 20)), 8, per_node=1, seed=0).label_counts.tolist()
    assert sorted(counts) == [[0, 0, 10]] * 2 + [[0, 10, 0]] * 4 + [[10, 0, 0]] * 2


def test_dirichlet_per_client_follows_alpha():
    dataset = toy((500,) * 4)

    def counts(n, alpha, seed=0):
        return data.dirichlet_per_client(dataset, n, alpha=alpha, seed=seed).label_counts

    single, mixed, alike = (counts(20, alpha).max(axis=1).mean() / 100 for alpha in (1e-3, 1, 1e6))
    assert single > 0.6 > mixed > 0.4 > alike
    alone = counts(3, 1e-3, seed=1)
    assert (alone.max(axis=1) > 450).all(), "a node takes its class until that is used up"


def test_dirichlet_per_class_follows_alpha_and_gives_nothing_to_nodes_that_are_full():
    dataset = toy((500,) * 4)
    alike = data.dirichlet_per_class(dataset, 4, alpha=1e6, seed=0).label_counts
    single = data.dirichlet_per_class(dataset, 20, alpha=1e-3, seed=0, min_size=1).label_counts
    assert np.abs(alike - 125).max() <= 2
    assert (single.max(axis=0) > 400).all()
    counts = data.dirichlet_per_class(dataset, 10, alpha=0.3, seed=0, min_size=1).label_counts
    assert counts.min(axis=0).max() == 0
    full = np.cumsum(counts, axis=1) - counts >= 200
    assert full.any()
    assert (counts[full] == 0).all()


@pytest.mark.parametrize(
    ("n", "alpha"), [(100, 0.1), (500, 0.5), pytest.param(6000, 1e-3, marks=pytest.mark.slow)]
)
def test_dirichlet_finishes_where_redrawing_until_it_fits_does_not(n, alpha):
    dataset = toy((6000,) * 10)
    clients = data.dirichlet_per_class(dataset, n, alpha=alpha, seed=0, min_size=10)
    assert clients.sizes.min() >= 10
    assert clients.sizes.sum() == 60_000
    clients = data.dirichlet_per_client(dataset, n, alpha=alpha, seed=0)
    assert (clients.sizes == 60_000 // n).all()


def test_pathological_spreads_holders_evenly_and_in_no_order():
    clients = data.pathological(toy((100,) * 10, ()), 50, classes_per_node=2, seed=0)
    held = clients.label_counts > 0
    assert (held.sum(axis=1) == 2).all()
    assert (held.sum(axis=0) == 10).all()
    assert (clients.label_counts[held] == 10).all()
    blocks = held.reshape(10, 5, 10).sum(axis=1)
    covered = (blocks == 1).all(axis=1)
    assert not covered.any(), "runs of five nodes must not always cover all ten classes"


def test_pathological_shared_starts_a_class_again_only_when_it_has_run_out():
    clients = data.pathological_shared(toy((200,) * 5), 25, classes_per_node=2, seed=0)
    uses = np.bincount(np.concatenate(clients.train), minlength=1000)[:1000].reshape(5, 200)
    wanted = clients.label_counts.sum(axis=0)
    assert wanted.max() > 200 > wanted.min(), "or the seed shows nothing"
    assert (uses.sum(axis=1) == wanted).all()
    assert (uses[wanted >= 200] >= 1).all()
    assert (uses[wanted <= 200] <= 1).all()


def test_pathological_shared_draws_classes_and_examples_uniformly():
    dataset = toy((300,) * 6)

    def counts(n, seed=0):
        return data.pathological_shared(dataset, n, classes_per_node=2, seed=seed).label_counts

    held = sum(counts(60, seed) > 0 for seed in range(50))
    assert abs(held.sum(axis=0) / 3000 - 2 / 6).max() < 0.05
    assert (counts(3).max(axis=1) == 300).all(), "two classes are just enough"
    drawn = counts(60)[counts(60) > 0]
    assert len(set(drawn.tolist())) > 5, "numbers are drawn, not divided evenly"
    assert abs(drawn.mean() - 15) < 1


def test_dealt_again_goes_on_from_a_random_place_with_what_a_taker_has_not():
    rng = np.random.default_rng(0)

    def dealt(*takers):
        return allocation.dealt_again(np.array([10, 11, 12]), np.array(takers), rng).tolist()

    assert dealt(5, 6, 5) == [10, 11, 12]
    assert {dealt(1, 1, 2, 3)[3] for _ in range(50)} == {10, 11, 12}
    assert {dealt(1, 2, 1, 1)[3] for _ in range(20)} == {11}


def test_pathological_dirichlet_follows_alpha():
    dataset = toy((600,) * 10)

    def counts(classes, alpha):
        call = {"classes_per_node": classes, "alpha": alpha, "seed": 0}
        return data.pathological_dirichlet(dataset, 20, **call).label_counts

    assert np.abs(counts(10, 1e6) - 30).max() <= 2
    for held in counts(3, 1e-3).T:  # nearly all to few nodes, 10 to each of the others
        assert (held[held > 0] == 10).sum() >= (held > 0).sum() - 3


def test_pathological_dirichlet_draws_until_every_node_has_enough():
    """As in DPFL on CIFAR-10: one draw in 600 gives each of a class's 30 nodes 10 examples."""
    dataset = toy((5000,) * 10)
    held = data.pathological_dirichlet(dataset, 100, classes_per_node=3, seed=0).label_counts
    assert ((held > 0).sum(axis=1) == 3).all()
    assert held[held > 0].min() >= 10
    assert (held == 10).sum() < 30, "a repaired division has far more that have just enough"


def extended(rng, sizes, n, classes, alpha, min_size):
    """Return (n, n_classes) counts: the extended Dirichlet strategy, read aloud."""
    while True:
        own = [set(rng.choice(len(sizes), classes, replace=False).tolist()) for _ in range(n)]
        nodes = [[i for i in range(n) if label in own[i]] for label in range(len(sizes))]
        if min(map(len, nodes)) >= max(classes * n // len(sizes) // 5, 1):
            break
    while True:
        counts = np.zeros((n, len(sizes)), int)
        for label, size in enumerate(sizes):
            room = [i for i in nodes[label] if counts[i].sum() < sum(sizes) / n] or nodes[label]
            cuts = np.floor(size * np.cumsum(rng.dirichlet([alpha] * len(room)))).astype(int)
            counts[room, label] = np.diff([*cuts[:-1], size], prepend=0)
        if counts.sum(axis=1).min() >= min_size:
            return counts


@pytest.mark.parametrize(("n", "classes", "alpha"), [(10, 2, 1.0), (8, 3, 0.3), (12, 1, 10.0)])
def test_extended_dirichlet_draws_from_the_distribution_of_the_published_rule(n, classes, alpha):
    sizes, rng = (60, 90, 120, 150, 180), np.random.default_rng(0)

    def described(counts):
        own = counts.sum(axis=1)
        return [own.std(), own.max(), (counts > 0).sum(), counts.max(), np.square(counts).sum()]

    ours = [
        described(
            data.extended_dirichlet(
                toy(sizes), n, classes_per_node=classes, alpha=alpha, min_size=5, seed=seed
            ).label_counts
        )
        for seed in range(400)
    ]
    theirs = [described(extended(rng, sizes, n, classes, alpha, 5)) for _ in range(400)]
    apart = np.mean(ours, axis=0) - np.mean(theirs, axis=0)
    error = np.sqrt((np.var(ours, axis=0) + np.var(theirs, axis=0)) / 400)
    assert (np.abs(apart) <= 4 * error).all()


def test_extended_dirichlet_finishes_where_drawing_until_it_fits_does_not():
    dataset = toy((100,) * 10)
    clients = data.extended_dirichlet(
        dataset, 10, classes_per_node=1, alpha=1e-3, min_size=100, seed=0
    )
    assert (clients.label_counts.max(axis=1) == 100).all(), "a node per class: one draw in 2,756"
    clients = data.extended_dirichlet(
        dataset, 100, classes_per_node=2, alpha=1e-3, min_size=2, seed=0
    )
    assert clients.sizes.min() >= 2
    assert (clients.label_counts > 0).sum(axis=1).max() <= 2


def test_best_cut_is_the_first_draw_that_will_do():
    def cut(seed):
        return allocation.best_cut(4, 100, 0.5, 5, np.random.default_rng(seed))

    counts = [cut(seed) for seed in range(300)]
    assert {int(own.sum()) for own in counts} == {100}
    assert min(own.min() for own in counts) == 5
    assert abs(np.mean(counts, axis=0) - 25).max() < 3
    logs = allocation.log_dirichlet(0.5, (allocation.BLOCK, 4), np.random.default_rng(7))
    shares = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    drawn = np.diff(np.floor(100 * np.cumsum(shares, axis=1) + 1e-9), axis=1, prepend=0)
    assert cut(7).tolist() == drawn[(drawn >= 5).all(axis=1)][0].tolist()


def test_best_cut_lacks_little_where_no_draw_will_do():
    rng = np.random.default_rng(0)
    counts = allocation.best_cut(20, 200, 0.5, 10, rng)
    assert counts.sum() == 200
    others = [allocation.best_division(20, np.array([200]), 0.5, 1, rng) for _ in range(50)]
    lacking = [np.maximum(10 - own, 0).sum() for own in (counts, *others)]
    assert lacking[0] < min(lacking[1:])
    assert allocation.best_cut(1, 7, 1e-300, 7, rng).tolist() == [7]


def test_log_dirichlet_has_the_moments_of_the_distribution():
    alpha, k, draws = 0.5, 4, 20_000
    logs = allocation.log_dirichlet(alpha, (draws, k), np.random.default_rng(0))
    shares = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    variance = (1 / k) * (1 - 1 / k) / (k * alpha + 1)
    assert np.abs(shares.mean(axis=0) - 1 / k).max() < 5 * np.sqrt(variance / draws)
    assert np.abs(shares.var(axis=0) / variance - 1).max() < 0.05


def test_fill_renormalizes_over_the_classes_that_are_left():
    log_priors = np.array([[0.0, -1e100, -1e99], [-1e100, 0.0, -1e99]])
    counts = allocation.fill(log_priors, np.array([3, 3, 4]), 5, np.random.default_rng(0))
    assert counts.tolist() == [[3, 0, 2], [0, 3, 2]]


def test_repaired_moves_from_the_largest_node_and_its_most_frequent_class():
    counts = np.array([[8, 2], [0, 1], [3, 0]])
    assert allocation.repaired(counts, 3).tolist() == [[6, 2], [2, 1], [3, 0]]
    assert counts.tolist() == [[8, 2], [0, 1], [3, 0]]
    counts = np.array([[0, 0], [2, 3], [4, 0], [0, 0]])
    assert allocation.repaired(counts, 2).tolist() == [[1, 1], [1, 1], [3, 0], [1, 1]]


def test_one_class_per_node_draws_classes_at_random():
    def classes(n, seed):
        counts = data.one_class_per_node(toy((30,) * 3), n, seed=seed).label_counts
        return tuple(counts.argmax(axis=1))

    assert len({classes(1, seed) for seed in range(30)}) == 3
    assert len({classes(6, seed) for seed in range(5)}) == 5


# Owners as nodes


def written(owners, labels, test=(), val=(), n_classes=3):
    train = np.setdiff1d(np.arange(len(labels)), [*test, *val])
    parts, inputs = (train, np.array(val, int), np.array(test, int)), torch.zeros(len(labels), 1)
    whole = data.Dataset(inputs, torch.tensor(labels), n_classes, "toy", *parts)
    return replace(whole, owners=np.array(owners))


def test_nodes_and_classes_are_drawn_uniformly():
    nodes, classes = np.zeros(5), np.zeros(3)
    dataset = written(np.repeat(np.arange(5), 6), [0, 1, 2] * 10)
    for seed in range(400):
        clients = data.natural(dataset, 2, classes_per_node=1, min_size=2, seed=seed)
        assert clients.sizes.tolist() == [2, 2]
        nodes += np.bincount(dataset.owners[[own[0] for own in clients.train]], minlength=5)
        classes += clients.label_counts.sum(axis=0) / 2
    assert abs(nodes / 400 - 2 / 5).max() < 0.1
    assert abs(classes / 800 - 1 / 3).max() < 0.07


@given(dataset=datasets(), data_=st.data(), seed=st.integers(0, 1000))
def test_every_node_is_one_owner(dataset, data_, seed):
    size = len(dataset.labels)
    numbers = st.integers(0, min(6, size - 1))
    owners = np.array(data_.draw(st.lists(numbers, min_size=size, max_size=size)))
    dataset, labels = replace(dataset, owners=owners), dataset.labels.numpy()
    most, least = data_.draw(st.none() | st.integers(1, 7)), data_.draw(st.integers(1, 4))
    call = {"classes_per_node": most, "min_size": least, "seed": seed}
    try:
        whole = data.natural(dataset, **call)
    except ValueError as error:
        assert "`min_size` must leave at least one node" in str(error)  # noqa: PT017 - no node at all
        return
    n = data_.draw(st.integers(1, whole.n))
    clients = data.natural(dataset, n, **call)
    assert clients.n == n
    assert clients.sizes.min() >= least
    makers, sets = [], (dataset.train, dataset.val, dataset.test)
    for *parts, counts in zip(
        clients.train, clients.val, clients.test, clients.label_counts, strict=True
    ):
        (maker,) = {int(owners[place]) for part in parts for place in part}
        makers.append(maker)
        kept = np.flatnonzero(counts)
        own = dataset.train[owners[dataset.train] == maker]
        assert len(kept) == min(most or 99, len(set(labels[own].tolist())))
        for part, there in zip(parts, sets, strict=True):
            mine = [i for i in sorted(there) if owners[i] == maker and labels[i] in kept]
            assert part.tolist() == mine
    assert makers == sorted(set(makers))
    assert lists(data.natural(dataset, n, **call).train) == lists(clients.train)


X = np.arange(16.0).reshape(8, 2)
SHOPS = data.from_arrays(X, [0, 1] * 4, owners=list("aabbcccc"))


def test_nodes_are_the_given_owners_or_those_of_a_graph_in_their_order():
    clients = data.natural(SHOPS, owners=["c", "a"], min_size=2, seed=0)
    assert lists(clients.train) == [[4, 5, 6, 7], [0, 1]]
    assert clients.name == "natural(arrays, n=2, owners given, min_size=2)"
    graph = topofl.as_topology(nx.Graph([("c", "a"), ("a", "b")]))
    clients = data.natural(SHOPS, owners=graph.nodes, min_size=2, seed=0)
    assert lists(clients.train) == [[4, 5, 6, 7], [0, 1], [2, 3]]
    numbered = topofl.as_topology(topologies.path(2).to_networkx(), name="p")
    assert numbered.nodes == ()
    dataset = data.from_arrays(X, [0, 1] * 4, owners=[1, 1, 0, 0] * 2)
    clients = data.natural(dataset, min_size=1, seed=0)
    assert lists(clients.train) == [[2, 3, 6, 7], [0, 1, 4, 5]]


def test_names_alike_are_sought_for_an_unknown_owner_only(monkeypatch):
    dataset = data.from_arrays(X, [0, 1] * 4, owners=[f"id{k}" for k in range(8)])
    sought = []
    module = importlib.import_module("topofl.data.partitioners.natural")
    monkeypatch.setattr(module, "did_you_mean", lambda word, _: sought.append(word))
    data.natural(dataset, owners=dataset.owner_names, min_size=1, seed=0)
    assert sought == []
    with pytest.raises(ValueError, match="got 'id8'; they are"):
        data.natural(dataset, owners=["id0", "id8"], min_size=1, seed=0)
    assert sought == ["id8"]


@given(
    n=st.integers(1, 40),
    exponent=st.floats(0, 3),
    min_size=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_sizes_by_a_power_law_are_those_of_the_law_within_one(n, exponent, min_size, seed):
    clients = data.power_law(toy((120, 90)), n, exponent=exponent, min_size=min_size, seed=seed)
    weights = [k**-exponent for k in range(1, n + 1)]
    wanted = [min_size + (210 - n * min_size) * weight / sum(weights) for weight in weights]
    found = sorted(clients.sizes.tolist(), reverse=True)
    assert sum(found) == 210
    assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) < 1
    assert sorted(np.concatenate(clients.train)) == sorted(clients.dataset.train)


def test_large_nodes_and_examples_of_a_power_law_are_drawn_at_random():
    draws = [data.power_law(toy((30, 30)), 3, seed=seed) for seed in range(300)]
    largest = np.bincount([clients.sizes.argmax() for clients in draws], minlength=3)
    assert stats.chisquare(largest).pvalue > 1e-3
    first = np.array([clients.label_counts[0] / clients.sizes[0] for clients in draws])
    assert abs(first.mean(0) - 0.5).max() < 0.03
