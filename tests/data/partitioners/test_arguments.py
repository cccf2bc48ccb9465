"""Arguments that partitioners refuse, and the settings that messages name."""

import inspect

import numpy as np
import pytest

from tests.data.partitioners.small import toy
from topofl import data
from topofl.data import partitioners

CALLS = {
    "shards": {},
    "iid": {},
    "dirichlet_per_client": {"alpha": 0.5},
    "dirichlet_per_class": {"alpha": 0.5, "min_size": 1},
    "one_class_per_node": {},
    "pathological": {"classes_per_node": 2},
    "pathological_dirichlet": {"classes_per_node": 2, "min_per_class": 1},
    "pathological_shared": {"classes_per_node": 2},
}


NAMES = [name for name in partitioners.__all__ if name != "natural"]


REFUSED = (
    ({"n": 0}, ValueError, "`n` must be between 1 and 18, got 0"),
    ({"n": 19}, ValueError, "`n` must be between 1 and 18, got 19; every node needs"),
    ({"n": 2.0}, TypeError, "`n`"),
    ({"dataset": "digits"}, TypeError, "`dataset` must be a data.Dataset"),
    ({"seed": None}, TypeError, "`seed`"),
    ({"seed": -1}, ValueError, "`seed`"),
    ({"val_fraction": 1}, ValueError, "`val_fraction`"),
    ({"val_fraction": "a"}, TypeError, "`val_fraction`"),
    ({"test_fraction": -0.1}, ValueError, "`test_fraction`"),
    (
        {"val_fraction": 0.5, "test_fraction": 0.5},
        ValueError,
        "`val_fraction` and `test_fraction`.*less than 1",
    ),
)


@pytest.mark.parametrize(
    ("name", "call", "error", "match"),
    [
        (name, *row)
        for name in NAMES
        for row in REFUSED
        if set(row[0]) <= {"dataset", *inspect.signature(getattr(data, name)).parameters}
    ],
)
def test_every_partitioner_refuses(name, call, error, match):
    with pytest.raises(error, match=match):
        getattr(data, name)(**({"dataset": toy(), "n": 3, "seed": 0} | CALLS[name] | call))


@pytest.mark.parametrize("name", NAMES)
def test_every_partitioner_requires_a_seed(name):
    with pytest.raises(TypeError, match="seed"):
        getattr(data, name)(toy(), 3, **CALLS[name])


@pytest.mark.parametrize(
    ("name", "call", "match"),
    [
        ("shards", {"per_node": 0}, "`per_node` must be at least 1"),
        (
            "shards",
            {"n": 4, "per_node": 5},
            "`per_node` must be at most 4 for n=4 nodes and 18 training examples, got 5",
        ),
        ("dirichlet_per_client", {"alpha": 0}, "`alpha`"),
        ("dirichlet_per_client", {"alpha": np.inf}, "`alpha`"),
        ("dirichlet_per_class", {"alpha": -1}, "`alpha`"),
        ("dirichlet_per_class", {"alpha": np.nan}, "`alpha`"),
        ("dirichlet_per_class", {"min_size": 0}, "`min_size` must be at least 1"),
        (
            "dirichlet_per_class",
            {"n": 4, "min_size": 5},
            "`min_size` must be at most 4 .* use min_size=4 or n=3$",
        ),
        (
            "dirichlet_per_class",
            {"n": 4, "min_size": 19},
            "`min_size` must be at most 4 .* use min_size=4$",
        ),
        ("pathological", {"classes_per_node": 0}, "`classes_per_node`"),
        (
            "pathological",
            {"classes_per_node": 4},
            "`classes_per_node` must be between 1 and 3, got 4",
        ),
        (
            "pathological_shared",
            {"classes_per_node": 0},
            "`classes_per_node` must be between 1 and 3",
        ),
        (
            "pathological_shared",
            {"classes_per_node": 4},
            "`classes_per_node` must be between 1 and 3",
        ),
        (
            "pathological_shared",
            {"n": 2, "classes_per_node": 1},
            (
                "`classes_per_node` must provide 9 .* got 1 with n=2, .* 6 examples together; "
                "use n=3 or classes_per_node=2"
            ),
        ),
        (
            "pathological_dirichlet",
            {"classes_per_node": 4},
            "`classes_per_node` must be between 1 and 3",
        ),
        ("pathological_dirichlet", {"alpha": 0}, "`alpha`"),
        ("pathological_dirichlet", {"min_per_class": 0}, "`min_per_class` must be at least 1"),
        (
            "pathological_dirichlet",
            {"classes_per_node": 3, "min_per_class": 3},
            (
                "`min_per_class` .* 3 nodes that drew class 0, which has 6 .*, got 3; use "
                "min_per_class=2, or fewer nodes"
            ),
        ),
        (
            "pathological_dirichlet",
            {"n": 7, "classes_per_node": 3},
            "7 nodes that drew class 0, which has 6 .*; use fewer nodes or classes_per_node",
        ),
        (
            "pathological",
            {"n": 10},
            "`classes_per_node`.*got 2 with n=10.*6 .*; use n=9 or classes_per_node=1",
        ),
    ],
)
def test_partitioners_refuse_their_own_arguments(name, call, match):
    with pytest.raises(ValueError, match=match):
        getattr(data, name)(**({"dataset": toy(), "n": 3, "seed": 0} | CALLS[name] | call))


def test_pathological_names_a_setting_that_exists_when_a_class_is_rare():
    rare = toy(counts=(20, 20, 2))
    with pytest.raises(ValueError, match=r"class 2 has 2 training examples; use n=8$"):
        data.pathological(rare, 12, classes_per_node=1, seed=0)
    assert (data.pathological(rare, 8, classes_per_node=1, seed=0).sizes > 0).all()


BY_LABEL = [name for name in NAMES if name != "iid"]


@pytest.mark.parametrize("name", BY_LABEL)
def test_a_single_class_of_examples_with_targets_is_divided_with_a_warning(name):
    numbers = data.from_arrays(np.eye(24), targets=np.arange(24.0), name="numbers")
    arguments = CALLS[name] | ({"classes_per_node": 1} if "classes_per_node" in CALLS[name] else {})
    remedy = r"same class, so all nodes have the same distribution; pass .*`y`.*data\.binned"
    with pytest.warns(UserWarning, match=f"`dataset`: all training examples of numbers.*{remedy}"):
        getattr(data, name)(numbers, 3, seed=0, **arguments)
    getattr(data, name)(numbers, 1, seed=0, **arguments)


def test_binned_targets_make_nodes_differ():
    values = np.arange(24.0)
    dataset = data.from_arrays(np.eye(24), data.binned(values, 3), targets=values)
    assert (np.count_nonzero(data.shards(dataset, 3, 1, seed=0).label_counts, axis=1) == 1).all()
    data.iid(data.from_arrays(np.eye(24), targets=values), 3, seed=0)
