"""What every partitioner promises, on datasets of any shape."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.partitions import (
    ARGUMENTS,
    NAMES,
    any_n,
    datasets,
    dirichlet_per_class,
    lists,
    one_class_per_node,
    pathological,
    pathological_dirichlet,
    pathological_shared,
    shards,
    stock,
)
from topofl import data

FEW_CLASSES = ("one_class_per_node", "pathological")
"""Partitioners that leave classes out if they have too few nodes for all of them."""


SHARED = ("pathological_shared",)
"""Partitioners by which several nodes may hold an example."""


every = pytest.mark.parametrize("name", NAMES)


def expected_total(name, dataset, call):
    """How many examples are dealt out."""
    total = len(dataset.train)
    if name in ("dirichlet_per_client", "pathological_shared"):
        return total // call["n"] * call["n"]
    if name == "pathological_dirichlet":
        return None  # depends on which classes are drawn
    if (
        name in FEW_CLASSES
        and call["n"] * call.get("classes_per_node", 1) < (stock(dataset) > 0).sum()
    ):
        return None  # depends on which classes are held
    return total


def test_every_partitioner_has_a_row():
    assert set(ARGUMENTS) == set(NAMES)
    assert set(NAMES) < set(data.__all__)


@every
@given(data_=st.data())
def test_deals_training_examples_once(name, data_):
    dataset = data_.draw(datasets())
    call = ARGUMENTS[name](data_.draw, dataset)
    clients = getattr(data, name)(dataset, **call, seed=data_.draw(st.integers(0, 1000)))
    dealt = np.concatenate(clients.train)
    assert clients.n == len(clients.train) == call["n"]
    for own in clients.train if name in SHARED else [dealt]:
        assert len(np.unique(own)) == len(own)
    assert set(dealt.tolist()) <= set(dataset.train.tolist())
    assert (clients.sizes > 0).all()
    assert not any(lists(clients.val) + lists(clients.test))
    assert clients.overlapping == (name in SHARED)
    total = expected_total(name, dataset, call)
    assert total is None or len(dealt) == total
    for counts, indices in zip(clients.label_counts, clients.train, strict=True):
        assert (
            counts.tolist()
            == np.bincount(dataset.labels.numpy()[indices], minlength=dataset.n_classes).tolist()
        )


@every
@given(data_=st.data())
def test_is_a_function_of_its_seed_and_leaves_global_generators_alone(name, data_):
    dataset = data_.draw(datasets())
    call = ARGUMENTS[name](data_.draw, dataset)
    seed = data_.draw(st.integers(0, 1000))
    np.random.seed(1)  # noqa: NPY002 - the global generator is what must not matter
    torch.manual_seed(1)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    first = getattr(data, name)(dataset, **call, seed=seed)
    assert before == (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(2)
    again = getattr(data, name)(dataset, **call, seed=seed)
    assert lists(first.train) == lists(again.train)
    assert first.name == again.name


@every
def test_seeds_matter_and_generators_are_accepted(name):
    dataset = data.digits()
    call = {
        "shards": {},
        "iid": {},
        "dirichlet_per_client": {"alpha": 1},
        "dirichlet_per_class": {"alpha": 1},
        "one_class_per_node": {},
        "pathological": {"classes_per_node": 2},
        "pathological_dirichlet": {"classes_per_node": 2, "min_per_class": 3},
        "pathological_shared": {"classes_per_node": 2},
    }[name]

    def deal(seed):
        return lists(getattr(data, name)(dataset, 10, **call, seed=seed).train)

    assert deal(0) != deal(1)
    assert deal(np.random.default_rng(3)) == deal(np.random.default_rng(3))


@every
@given(data_=st.data())
def test_holding_out_only_divides_each_nodes_share(name, data_):
    dataset = data_.draw(datasets())
    call = ARGUMENTS[name](data_.draw, dataset)
    fractions = [(0.2, 0.0), (0.5, 0.0), (0.0, 0.2), (0.1, 0.3), (0.49, 0.5), (1e-9, 0.9)]
    val, test = data_.draw(st.sampled_from(fractions[:2] if name in SHARED else fractions))
    held_out = {"val_fraction": val} | ({} if name in SHARED else {"test_fraction": test})
    whole = getattr(data, name)(dataset, **call, seed=0)
    needed = 1 + (val > 0) + (test > 0)
    if whole.sizes.min() < needed:
        with pytest.raises(
            ValueError, match=f"_fraction`.*node {int(np.argmax(whole.sizes < needed))} has"
        ):
            getattr(data, name)(dataset, **call, seed=0, **held_out)
        return
    held = getattr(data, name)(dataset, **call, seed=0, **held_out)
    for share, *parts in zip(whole.train, held.train, held.val, held.test, strict=True):
        assert sorted(np.concatenate(parts).tolist()) == share.tolist()
        for part, fraction in zip(parts[1:], (val, test), strict=True):
            assert (len(part) > 0) == (fraction > 0)
            assert abs(len(part) - fraction * len(share)) <= 1.5 + (len(share) < 10)


@given(dataset=datasets(), data_=st.data())
def test_shards_and_iid_are_balanced(dataset, data_):
    call = shards(data_.draw, dataset)
    sharded = data.shards(dataset, **call, seed=0)
    assert np.ptp(sharded.sizes) <= call["per_node"]
    assert np.ptp(data.iid(dataset, call["n"], seed=0).sizes) <= 1
    if len(dataset.train) % (call["n"] * call["per_node"]) == 0:
        assert np.ptp(sharded.sizes) == 0


@given(dataset=datasets(), data_=st.data())
def test_dirichlet_sizes_are_as_promised(dataset, data_):
    call = dirichlet_per_class(data_.draw, dataset)
    assert data.dirichlet_per_class(dataset, **call, seed=0).sizes.min() >= call["min_size"]
    equal = data.dirichlet_per_client(dataset, call["n"], alpha=call["alpha"], seed=0)
    assert (equal.sizes == len(dataset.train) // call["n"]).all()


@given(dataset=datasets(), data_=st.data())
def test_pathological_is_balanced(dataset, data_):
    call = pathological(data_.draw, dataset)
    clients = data.pathological(dataset, **call, seed=0)
    held = clients.label_counts > 0
    present = stock(dataset) > 0
    assert (held.sum(axis=1) == call["classes_per_node"]).all()
    assert np.ptp(held.sum(axis=0)[present]) <= 1
    for label in np.flatnonzero(held.any(axis=0)):
        counts = clients.label_counts[held[:, label], label]
        assert np.ptp(counts) <= 1
        assert counts.sum() == stock(dataset)[label]


@given(dataset=datasets(), data_=st.data(), seed=st.integers(0, 1000))
def test_one_class_per_node_is_balanced(dataset, data_, seed):
    clients = data.one_class_per_node(dataset, **one_class_per_node(data_.draw, dataset), seed=seed)
    held = clients.label_counts > 0
    assert (held.sum(axis=1) == 1).all()
    holders, has_more = held.sum(axis=0), held.sum(axis=0) < stock(dataset)
    if has_more.any():
        assert np.ptp(holders[has_more]) <= 1
        assert holders.max() <= holders[has_more].min() + 1
    for label in np.flatnonzero(holders):
        counts = clients.label_counts[held[:, label], label]
        assert np.ptp(counts) <= 1
        assert counts.sum() == stock(dataset)[label]


@given(dataset=datasets(), data_=st.data())
def test_pathological_works_or_names_a_setting_that_does(dataset, data_):
    n = any_n(data_.draw, dataset)
    classes = data_.draw(st.integers(1, int((stock(dataset) > 0).sum())))
    try:
        data.pathological(dataset, n, classes_per_node=classes, seed=0)
    except ValueError as error:
        message = str(error)
        n = int(message.split("use n=")[1].split(" ")[0])
        assert data.pathological(dataset, n, classes_per_node=classes, seed=0).n == n


@given(dataset=datasets(), n=st.integers(1, 5))
def test_pooled_does_not_depend_on_who_held_what(dataset, n):
    n = min(n, len(dataset.train))
    pooled = data.iid(dataset, n, seed=0).pooled()
    np.testing.assert_array_equal(pooled.train[0], np.sort(dataset.train))
    assert pooled.label_counts[0].tolist() == stock(dataset).tolist()


@given(dataset=datasets(), data_=st.data(), seed=st.integers(0, 1000))
def test_pathological_dirichlet_divides_every_class_over_those_that_drew_it(dataset, data_, seed):
    call = pathological_dirichlet(data_.draw, dataset)
    clients = data.pathological_dirichlet(dataset, **call, seed=seed)
    held = clients.label_counts > 0
    assert (held.sum(axis=1) == call["classes_per_node"]).all()
    assert clients.label_counts[held].min() >= call["min_per_class"]
    dealt = held.any(axis=0)
    np.testing.assert_array_equal(clients.label_counts.sum(axis=0)[dealt], stock(dataset)[dealt])


@given(dataset=datasets(), data_=st.data(), seed=st.integers(0, 1000))
def test_pathological_shared_gives_all_the_same_number_of_few_classes(dataset, data_, seed):
    call = pathological_shared(data_.draw, dataset)
    clients = data.pathological_shared(dataset, **call, seed=seed)
    assert (clients.sizes == len(dataset.train) // call["n"]).all()
    assert (clients.label_counts > 0).sum(axis=1).max() <= call["classes_per_node"]
    wanted, uses = (
        clients.label_counts.sum(axis=0),
        np.bincount(np.concatenate(clients.train), minlength=80),
    )
    labels = dataset.labels.numpy()
    for label in np.flatnonzero(wanted <= stock(dataset)):
        assert uses[: len(labels)][labels == label].max(initial=0) <= 1, (
            "shared although there are enough"
        )


@given(dataset=datasets(), data_=st.data())
def test_pathological_shared_works_or_names_settings_that_do(dataset, data_):
    n = any_n(data_.draw, dataset)
    classes = data_.draw(st.integers(1, int((stock(dataset) > 0).sum())))
    try:
        data.pathological_shared(dataset, n, classes_per_node=classes, seed=0)
    except ValueError as error:
        fewest, most = (
            int(word.split("=")[1].split(" ")[0])
            for word in str(error).split("; use ")[1].split(" or ")
        )
        assert (
            data.pathological_shared(dataset, fewest, classes_per_node=classes, seed=0).n == fewest
        )
        assert data.pathological_shared(dataset, n, classes_per_node=most, seed=0).n == n
        for worse in (
            {"n": fewest - 1, "classes_per_node": classes},
            {"n": n, "classes_per_node": most - 1},
        ):
            with pytest.raises(ValueError, match=r"`n`|`classes_per_node`"):
                data.pathological_shared(dataset, **worse, seed=0)


RULES = ["per_client", "disjoint"]


def matched(draw, rule, seed=0):
    """Return a partition of any kind, and the same with matched tests."""
    dataset = draw(datasets().filter(lambda dataset: len(dataset.test)))
    name = draw(st.sampled_from(NAMES))
    clients = getattr(data, name)(
        dataset, **ARGUMENTS[name](draw, dataset), seed=draw(st.integers(0, 1000))
    )
    return clients, data.match_test(clients, rule=rule, seed=seed)


@pytest.mark.parametrize("rule", RULES)
@given(data_=st.data())
def test_matched_tests_are_test_examples_of_the_classes_a_node_trains_on(rule, data_):
    clients, with_test = matched(data_.draw, rule)
    labels = clients.dataset.labels.numpy()
    assert lists(with_test.train) == lists(clients.train)
    assert lists(with_test.val) == lists(clients.val)
    assert with_test.overlapping == clients.overlapping
    for own, counts in zip(with_test.test, clients.label_counts, strict=True):
        assert set(own.tolist()) <= set(clients.dataset.test.tolist())
        assert len(np.unique(own)) == len(own)
        assert set(labels[own].tolist()) <= set(np.flatnonzero(counts).tolist())


@pytest.mark.parametrize("rule", RULES)
@given(data_=st.data())
def test_matched_tests_are_a_function_of_the_seed(rule, data_):
    seed = data_.draw(st.integers(0, 1000))
    clients, first = matched(data_.draw, rule, seed)
    assert lists(first.test) == lists(data.match_test(clients, rule=rule, seed=seed).test)


@given(data_=st.data())
def test_tests_matched_per_client_have_the_sizes_of_the_rule(data_):
    clients, with_test = matched(data_.draw, "per_client")
    labels = clients.dataset.labels.numpy()
    there = np.bincount(labels[clients.dataset.test], minlength=clients.n_classes)
    each = math.ceil(len(clients.dataset.test) / clients.n)
    for own, counts in zip(with_test.test, clients.label_counts.tolist(), strict=True):
        wanted = [math.ceil(Fraction(count, sum(counts)) * each) for count in counts]
        found = np.bincount(labels[own], minlength=clients.n_classes)
        assert found.tolist() == np.minimum(wanted, there).tolist()


@given(data_=st.data())
def test_disjoint_matched_tests_deal_every_test_example_of_a_class_that_is_trained_on_once(data_):
    clients, with_test = matched(data_.draw, "disjoint")
    labels, test = clients.dataset.labels.numpy(), clients.dataset.test
    dealt = np.concatenate(with_test.test)
    trained_on = clients.label_counts.any(axis=0)
    assert sorted(dealt.tolist()) == sorted(test[trained_on[labels[test]]].tolist())
    for label in np.flatnonzero(trained_on):
        held = clients.label_counts[:, label].tolist()
        size = int((labels[test] == label).sum())
        wanted = [round(Fraction(count * size, sum(held))) for count in held]
        found = [int((labels[own] == label).sum()) for own in with_test.test]
        assert found == naive_disjoint(wanted, held, size)


def naive_disjoint(wanted, held, size):
    """Return how many of `size` test examples each node gets, dealt aloud."""
    found, left = [], size
    for count in wanted:
        found.append(min(count, left))
        left -= found[-1]
    takers = [i for i, count in enumerate(wanted) if count] or [
        i for i, count in enumerate(held) if count
    ]
    for turn in range(left):
        found[takers[turn % len(takers)]] += 1
    return found
