"""What every partitioner promises, on datasets of any shape."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import partitioners as rows
from tests.rows.partitioners import ROWS, any_n, datasets, lists, partitions, stock
from topofl import data
from topofl.data import partitioners

every = pytest.mark.parametrize("name", ROWS)
BY_LABEL = [name for name in ROWS if name not in ("iid", "power_law")]


def divided(name, dataset, seed=0, **call):
    return getattr(data, name)(dataset, seed=seed, **call)


def size_of(name, dataset, call):
    """Return how many examples are dealt out; None if it depends on which classes are held."""
    n, size = call["n"], len(dataset.train)
    if name in ("dirichlet_per_client", "pathological_shared"):
        return size // n * n
    held = n * call.get("classes_per_node", 1)
    few = name in ("one_class_per_node", "pathological") and held < (stock(dataset) > 0).sum()
    return None if few or name == "pathological_dirichlet" else size


def test_every_partitioner_has_a_row():
    assert set(ROWS) == {*partitioners.__all__} - {"natural"}
    assert set(ROWS) < set(data.__all__)


@every
@given(data_=st.data())
def test_deals_training_examples_once(name, data_):
    dataset = data_.draw(datasets())
    call, is_sharing = ROWS[name].draw(data_.draw, dataset), ROWS[name].is_sharing
    clients = divided(name, dataset, data_.draw(st.integers(0, 1000)), **call)
    dealt = np.concatenate(clients.train)
    assert clients.n == len(clients.train) == call["n"]
    for own in clients.train if is_sharing else [dealt]:
        assert len(np.unique(own)) == len(own)
    assert set(dealt.tolist()) <= set(dataset.train.tolist())
    assert (clients.sizes > 0).all()
    assert not any(lists(clients.val) + lists(clients.test))
    assert clients.overlapping == is_sharing
    assert size_of(name, dataset, call) in (None, len(dealt))
    assert clients.label_counts.tolist() == rows.counted(clients, "train")


@every
@given(data_=st.data())
def test_is_a_function_of_its_seed_and_leaves_global_generators_alone(name, data_):
    dataset = data_.draw(datasets())
    call, seed = ROWS[name].draw(data_.draw, dataset), data_.draw(st.integers(0, 1000))
    np.random.seed(1)  # noqa: NPY002 - the global generator is what must not matter
    torch.manual_seed(1)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    first = divided(name, dataset, seed, **call)
    assert before == (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(2)
    again = divided(name, dataset, seed, **call)
    assert lists(first.train) == lists(again.train)
    assert first.name == again.name


@every
def test_seeds_matter_and_generators_are_accepted(name):
    def deal(seed):
        return lists(divided(name, data.digits(), seed, n=10, **ROWS[name].plain).train)

    assert deal(0) != deal(1)
    assert deal(np.random.default_rng(3)) == deal(np.random.default_rng(3))


@every
@given(data_=st.data())
def test_holding_out_only_divides_each_nodes_share(name, data_):
    dataset = data_.draw(datasets())
    call, is_sharing = ROWS[name].draw(data_.draw, dataset), ROWS[name].is_sharing
    fractions = [(0.2, 0.0), (0.5, 0.0), (0.0, 0.2), (0.1, 0.3), (0.49, 0.5), (1e-9, 0.9)]
    val, test = data_.draw(st.sampled_from(fractions[:2] if is_sharing else fractions))
    held_out = {"val_fraction": val} | ({} if is_sharing else {"test_fraction": test})
    whole = divided(name, dataset, **call)
    needed = 1 + (val > 0) + (test > 0)
    if whole.sizes.min() < needed:
        node = int(np.argmax(whole.sizes < needed))
        with pytest.raises(ValueError, match=f"_fraction`.*node {node} has"):
            divided(name, dataset, **call, **held_out)
        return
    held = divided(name, dataset, **call, **held_out)
    for share, *parts in zip(whole.train, held.train, held.val, held.test, strict=True):
        assert sorted(np.concatenate(parts).tolist()) == share.tolist()
        for part, fraction in zip(parts[1:], (val, test), strict=True):
            assert (len(part) > 0) == (fraction > 0)
            assert abs(len(part) - fraction * len(share)) <= 1.5 + (len(share) < 10)


@pytest.mark.parametrize("name", BY_LABEL)
def test_a_single_class_of_examples_with_targets_is_divided_with_a_warning(name):
    numbers = data.from_arrays(np.eye(24), targets=np.arange(24.0), name="numbers")
    call = ROWS[name].plain
    call = call | ({"classes_per_node": 1} if "classes_per_node" in call else {})
    remedy = r"same class, so all nodes have the same distribution; pass .*`y`.*data\.binned"
    with pytest.warns(UserWarning, match=f"`dataset`: all training examples of numbers.*{remedy}"):
        divided(name, numbers, n=3, **call)
    divided(name, numbers, n=1, **call)
    data.iid(numbers, 3, seed=0)


@given(dataset=datasets(), data_=st.data())
def test_shards_and_iid_are_balanced(dataset, data_):
    call = rows.shards(data_.draw, dataset)
    sharded = data.shards(dataset, **call, seed=0)
    assert np.ptp(sharded.sizes) <= call["per_node"]
    assert np.ptp(data.iid(dataset, call["n"], seed=0).sizes) <= 1
    if len(dataset.train) % (call["n"] * call["per_node"]) == 0:
        assert np.ptp(sharded.sizes) == 0


@given(dataset=datasets(), data_=st.data())
def test_dirichlet_sizes_are_as_promised(dataset, data_):
    call = rows.dirichlet_per_class(data_.draw, dataset)
    assert data.dirichlet_per_class(dataset, **call, seed=0).sizes.min() >= call["min_size"]
    equal = data.dirichlet_per_client(dataset, call["n"], alpha=call["alpha"], seed=0)
    assert (equal.sizes == len(dataset.train) // call["n"]).all()


def divides_evenly(clients):
    """Check that every class is divided evenly among the nodes that hold it; return who does."""
    held = clients.label_counts > 0
    for label in np.flatnonzero(held.any(axis=0)):
        counts = clients.label_counts[held[:, label], label]
        assert np.ptp(counts) <= 1
        assert counts.sum() == stock(clients.dataset)[label]
    return held


@given(dataset=datasets(), data_=st.data())
def test_pathological_is_balanced(dataset, data_):
    call = rows.pathological(data_.draw, dataset)
    held = divides_evenly(data.pathological(dataset, **call, seed=0))
    assert (held.sum(axis=1) == call["classes_per_node"]).all()
    assert np.ptp(held.sum(axis=0)[stock(dataset) > 0]) <= 1


@given(dataset=datasets(), data_=st.data(), seed=st.integers(0, 1000))
def test_one_class_per_node_is_balanced(dataset, data_, seed):
    n = any_n(data_.draw, dataset)
    held = divides_evenly(data.one_class_per_node(dataset, n, seed=seed))
    assert (held.sum(axis=1) == 1).all()
    holders, has_more = held.sum(axis=0), held.sum(axis=0) < stock(dataset)
    if has_more.any():
        assert np.ptp(holders[has_more]) <= 1
        assert holders.max() <= holders[has_more].min() + 1


@given(dataset=datasets(), data_=st.data())
def test_pathological_works_or_names_a_setting_that_does(dataset, data_):
    n = any_n(data_.draw, dataset)
    classes = data_.draw(st.integers(1, int((stock(dataset) > 0).sum())))
    try:
        data.pathological(dataset, n, classes_per_node=classes, seed=0)
    except ValueError as error:
        n = int(str(error).split("use n=")[1].split(" ")[0])
        assert data.pathological(dataset, n, classes_per_node=classes, seed=0).n == n


@given(dataset=datasets(), n=st.integers(1, 5))
def test_pooled_does_not_depend_on_who_held_what(dataset, n):
    pooled = data.iid(dataset, min(n, len(dataset.train)), seed=0).pooled()
    np.testing.assert_array_equal(pooled.train[0], np.sort(dataset.train))
    assert pooled.label_counts[0].tolist() == stock(dataset).tolist()


@given(dataset=datasets(), data_=st.data(), seed=st.integers(0, 1000))
def test_pathological_dirichlet_divides_every_class_over_those_that_drew_it(dataset, data_, seed):
    call = rows.pathological_dirichlet(data_.draw, dataset)
    clients = data.pathological_dirichlet(dataset, **call, seed=seed)
    held = clients.label_counts > 0
    assert (held.sum(axis=1) == call["classes_per_node"]).all()
    assert clients.label_counts[held].min() >= call["min_per_class"]
    dealt = held.any(axis=0)
    np.testing.assert_array_equal(clients.label_counts.sum(axis=0)[dealt], stock(dataset)[dealt])


@given(dataset=datasets(), data_=st.data(), seed=st.integers(0, 1000))
def test_extended_dirichlet_gives_few_classes_and_enough_examples(dataset, data_, seed):
    call = rows.extended_dirichlet(data_.draw, dataset)
    clients = data.extended_dirichlet(dataset, **call, seed=seed)
    assert (clients.label_counts > 0).sum(axis=1).max() <= call["classes_per_node"]
    assert clients.sizes.min() >= call["min_size"]


@given(dataset=datasets(), data_=st.data(), seed=st.integers(0, 1000))
def test_pathological_shared_gives_all_the_same_number_of_few_classes(dataset, data_, seed):
    call = rows.pathological_shared(data_.draw, dataset)
    clients = data.pathological_shared(dataset, **call, seed=seed)
    assert (clients.sizes == len(dataset.train) // call["n"]).all()
    assert (clients.label_counts > 0).sum(axis=1).max() <= call["classes_per_node"]
    uses = np.bincount(np.concatenate(clients.train), minlength=len(dataset.labels))
    for label in np.flatnonzero(clients.label_counts.sum(axis=0) <= stock(dataset)):
        shared = uses[dataset.labels.numpy() == label].max(initial=0) > 1
        assert not shared, "although there are enough"


@given(dataset=datasets(), data_=st.data())
def test_pathological_shared_works_or_names_settings_that_do(dataset, data_):
    def deal(n, classes):
        return data.pathological_shared(dataset, n, classes_per_node=classes, seed=0)

    n = any_n(data_.draw, dataset)
    classes = data_.draw(st.integers(1, int((stock(dataset) > 0).sum())))
    try:
        deal(n, classes)
    except ValueError as error:
        words = str(error).split("; use ")[1].split(" or ")
        fewest, most = (int(word.split("=")[1].split(" ")[0]) for word in words)
        assert (deal(fewest, classes).n, deal(n, most).n) == (fewest, n)
        for worse in ((fewest - 1, classes), (n, most - 1)):
            with pytest.raises(ValueError, match=r"`n`|`classes_per_node`"):
                deal(*worse)


RULES = ["per_client", "disjoint"]


def matched(draw, rule, seed=0):
    """Return a partition of any kind, and the same with matched tests."""
    clients = draw(partitions(datasets().filter(lambda dataset: len(dataset.test))))
    return clients, data.match_test(clients, rule=rule, seed=seed)


@pytest.mark.parametrize("rule", RULES)
@given(data_=st.data(), seed=st.integers(0, 1000))
def test_matched_tests_are_test_examples_of_the_classes_a_node_trains_on(rule, data_, seed):
    clients, with_test = matched(data_.draw, rule, seed)
    labels = clients.dataset.labels.numpy()
    assert lists(with_test.test) == lists(data.match_test(clients, rule=rule, seed=seed).test)
    assert lists(with_test.train) == lists(clients.train)
    assert lists(with_test.val) == lists(clients.val)
    assert with_test.overlapping == clients.overlapping
    for own, counts in zip(with_test.test, clients.label_counts, strict=True):
        assert set(own.tolist()) <= set(clients.dataset.test.tolist())
        assert len(np.unique(own)) == len(own)
        assert set(labels[own].tolist()) <= set(np.flatnonzero(counts).tolist())


@given(data_=st.data())
def test_tests_matched_per_client_have_the_sizes_of_the_rule(data_):
    clients, with_test = matched(data_.draw, "per_client")
    there = np.bincount(clients.dataset.labels[clients.dataset.test.tolist()], minlength=6)
    each = math.ceil(len(clients.dataset.test) / clients.n)
    for found, counts in zip(rows.counted(with_test), clients.label_counts.tolist(), strict=True):
        wanted = [math.ceil(Fraction(count, sum(counts)) * each) for count in counts]
        assert found == np.minimum(wanted, there[: len(wanted)]).tolist()


@given(data_=st.data())
def test_disjoint_matched_tests_deal_every_test_example_of_a_class_that_is_trained_on_once(data_):
    clients, with_test = matched(data_.draw, "disjoint")
    labels, test = clients.dataset.labels.numpy(), clients.dataset.test
    trained_on = clients.label_counts.any(axis=0)
    dealt = sorted(np.concatenate(with_test.test).tolist())
    assert dealt == sorted(test[trained_on[labels[test]]].tolist())
    for label in np.flatnonzero(trained_on):
        held = clients.label_counts[:, label].tolist()
        size = int((labels[test] == label).sum())
        wanted = [round(Fraction(count * size, sum(held))) for count in held]
        found = [counts[label] for counts in rows.counted(with_test)]
        assert found == naive_disjoint(wanted, held, size)


def naive_disjoint(wanted, held, size):
    """Return how many of `size` test examples each node gets, dealt aloud."""
    found, left = [], size
    for count in wanted:
        found.append(min(count, left))
        left -= found[-1]
    takers = np.flatnonzero(wanted if any(wanted) else held)
    for turn in range(left):
        found[takers[turn % len(takers)]] += 1
    return found
