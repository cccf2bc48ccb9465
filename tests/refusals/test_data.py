"""What datasets, partitions, partitioners, edits and readers of tables refuse."""

from dataclasses import replace
from functools import partial

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, TensorDataset
from torch_geometric.data import Data

from tests.refusals import named, refused, rows
from tests.rows.partitioners import ROWS as PARTITIONERS
from tests.rows.partitioners import clients_with, toy
from topofl import data

X, Y = np.arange(24.0).reshape(12, 2), np.array([0, 1, 2] * 4)
PETS = ["dog", "cat"] * 6
NAN, INF = float("nan"), float("inf")
IMAGES = torch.zeros(5, 3, 4, 4, dtype=torch.uint8)
RED = [1, 0, 0]


def made(**changes):
    """Return a dataset of 18 training and 2 test examples, with some fields changed."""
    return replace(toy(), **changes)


def arrays(x=X, y=Y, **more):
    return data.from_arrays(x, y, **more)


def pets(y=PETS, **more):
    return data.from_arrays(X, y, **more)


def mask(*where):
    return np.isin(np.arange(12), where)


def pixels(**more):
    return data.from_arrays(IMAGES, [0] * 5, **more)


FITTING = toy()
SIX = np.arange(6)
LABELED_TYPE_ERRORS = {
    # Datasets
    "a tensor of torch.float32 or torch.uint8": lambda: made(inputs=np.zeros((20, 1))),
    "got torch.int8; data.from_arrays": lambda: made(inputs=torch.zeros(20, 2).char()),
    "`labels` must be a tensor of torch.int64": lambda: made(labels=torch.zeros(20)),
    "`train` must be integer indices": lambda: made(train=[0.0]),
    "`targets` must be a dense tensor of real numbers": lambda: made(targets=[1, 2]),
    "`dtype` must be a floating-point dtype, got torch.int64": lambda: made().examples(
        dtype=torch.int64
    ),
    # Normalization
    "`std[1]` must be a number, got 'a'": lambda: pixels(std=(1, "a", 1)),
    "`mean[0]` must be a number": lambda: pixels(mean=np.zeros((3, 1, 1))),
    # Arrays
    "`x` must be real numbers, got dtype <U1": lambda: arrays([["a", "b"]] * 12),
    "`x` must be a dense tensor of real numbers": lambda: arrays(torch.eye(12).to_sparse()),
    "got torch.complex64 in": lambda: arrays(torch.zeros(12, 2) + 0j),
    "got no values (device meta)": lambda: arrays(torch.zeros(12, 2, device="meta")),
    "`y` must be integers, got dtype float64; if they": lambda: arrays(y=Y / 1),
    "`val` must be a number, got 'half'": lambda: arrays(val="half"),
    "of torch.float32, as `x` has, got torch.uint8": lambda: arrays(val=(X.astype("u1"), Y)),
    # Targets
    "or `targets`, got neither": lambda: data.from_arrays(X),
    "`targets` must be real numbers": lambda: arrays(targets=["a"] * 12),
    "if and only if they": lambda: arrays(y=None, targets=Y, test=(X, Y, Y)),
    # Digits
    "`test` must be an integer, got 0.2": lambda: data.digits(test=0.2),
    # Names of classes, and owners
    "one type, got str ('cat') in row 0": lambda: pets(["cat", 1] * 6),
    "`y` must be of one type, got bool": lambda: pets([True, 1] * 6),
    "`y` must be integers or hashable labels such": lambda: pets([["cat"]] * 12),
    "`class_names` must be a sequence of texts": lambda: pets(class_names="cat"),
    "must be texts, got 3 (int)": lambda: pets(class_names=["cat", 3]),
    "either integers or names": lambda: pets(test=(X, [0, 1] * 6)),
    "`test` must be a fraction, an array of booleans or": lambda: pets(test=Y),
}
LABELED_VALUE_ERRORS = {
    # Datasets
    "`inputs` must have shape (N, f": lambda: made(inputs=torch.zeros(20)),
    "with N >= 1, got (0, 2)": lambda: made(inputs=torch.zeros(0, 2)),
    "`labels` must have shape (11,)": lambda: made(inputs=torch.zeros(11, 2)),
    "`labels` must be in 0..2, got 3 at index 0 (20 such labels); set `n_classes`, or relabel": (
        lambda: made(labels=torch.full((20,), 3)),
        lambda: made(labels=torch.full((20,), 2)),
    ),
    "got -1 at index 0": lambda: made(labels=torch.tensor([-1] + [0] * 19)),
    "`n_classes` must be between 1 and": lambda: made(n_classes=0),
    "`train` must hold at least one example, got none": lambda: made(train=[]),
    "`train` must be a vector of indices": lambda: made(train=[[0, 1]]),
    "must be disjoint, got example 18 2 times": lambda: made(train=[0, 18]),
    "`val` must be in 0..19, got 20 at position 0": (
        lambda: made(train=SIX, val=[20]),
        lambda: made(train=SIX, val=[17]),
    ),
    "`inputs` must be finite, got nan at (3, 0) (2 such": lambda: made(
        inputs=torch.tensor([[0.0]] * 3 + [[NAN]] * 2 + [[0.0]] * 15)
    ),
    "`owners` must have shape (20,), one per label": lambda: made(owners=[0, 1]),
    "`class_names` must have 3 names, got 1": lambda: made(class_names=("one",)),
    "`owner_names` must have 2 names, got 1": (
        lambda: made(owners=[1] * 20, owner_names=("a",)),
        lambda: made(owners=[0] * 20, owner_names=("a",)),
    ),
    "`targets` must have shape (N, ...)": lambda: made(targets=torch.ones(2)),
    "`indices` must be in 0..4, got -1": lambda: pixels().examples([-1]),
    # Normalization
    "each of the 3 channels of `inputs` (5, 3": lambda: pixels(mean=(0.5, 0.5)),
    "`std` must be one number, or one for": lambda: pixels(std=()),
    "`mean` must be finite, got nan": lambda: pixels(mean=NAN),
    "`mean[1]` must be finite, got -inf": lambda: pixels(mean=(0, -INF, 0)),
    "`std` must be a finite number above 0, got 0": lambda: pixels(std=0),
    "`std[2]` must be a finite number above 0": lambda: pixels(std=(1, 1, -1)),
    "`std` must keep (pixel / 255 - mean) / std finite in float32, got 1e-39": (
        lambda: pixels(std=1e-39),
        lambda: pixels(std=1e-38),
    ),
    "with mean=1e+300": lambda: pixels(mean=1e300),
    "0 and 1 for float32 inputs": lambda: arrays(mean=0.5),
    "pass pixels as uint8": lambda: arrays(std=0.5),
    # Arrays
    "`inputs` must be finite, got inf": lambda: arrays(X * 1e300),
    "`x` must fit into int64, got 18446744073709551615": (
        lambda: arrays(np.array([[2**64 - 1]], np.uint64), [0]),
        lambda: arrays(np.array([[2**63 - 1]], np.uint64), [0]),
    ),
    "one label for each of the 12 inputs, got 5": lambda: arrays(y=Y[:5]),
    "`y` must be a non-empty vector": lambda: arrays(y=np.eye(12, dtype=int)),
    "`n_classes` must be at least 1, got 0": lambda: arrays(n_classes=0),
    "`test` must be in [0, 1), got 1": lambda: arrays(test=1.0),
    "`val` must leave an example for training, got 0.5 of 12 examples with 6 left": (
        lambda: arrays(test=0.5, val=0.5),
        lambda: arrays(test=0.5, val=0.2),
    ),
    "a fraction or a pair (x, y), got 3 items": lambda: arrays(test=(X, Y, Y)),
    "`test` must have inputs of shape (2,)": lambda: arrays(test=(X[:, :1], Y)),
    "`test[1]` must have one label": lambda: arrays(test=(X, Y[:3])),
    # Targets
    "one target for each": lambda: arrays(targets=Y[:5]),
    "`targets` must be finite": lambda: arrays(targets=[INF] * 12),
    "a triple (x, y, targets)": lambda: arrays(targets=Y, test=(X, Y)),
    "targets of shape ()": lambda: arrays(targets=Y, test=(X, Y, X)),
    "must be a vector of numbers": lambda: data.binned(X, 3),
    "`n` must be between 1 and the number of values=2, got 3": (
        lambda: data.binned([1.0, 2.0], 3),
        lambda: data.binned([1.0, 2.0], 2),
    ),
    # Digits
    "`test` must be between 0 and 1796, got 1797": lambda: data.digits(test=1797),
    "`val` must be between 0 and 796, got 797; one example must remain for training": (
        lambda: data.digits(test=1000, val=797),
        lambda: data.digits(test=1000, val=796),
    ),
    "small enough for images to fit": lambda: data.digits(enlarge=2**20),
    # Names of classes, and owners
    "got None in row 10; leave": lambda: pets(["cat"] * 10 + [None, "cat"]),
    "got nan in rows 10, 11; leave": lambda: pets(["cat"] * 10 + [NAN] * 2),
    "in rows 0, 2, 4, 6, 8 and 1 others": lambda: pets([pd.NA, "cat"] * 6),
    "rows 0, 2, 4": lambda: pets(np.array(["NaT", "2020"] * 6, "M8[D]")),
    "spaces around them, got 'cat' and 'cat '": lambda: pets(["cat", "cat "] * 6),
    ("one of the 2 classes ['cat', 'doge'], got 'dog' at index 0 (6", "did you mean 'doge'?"): (
        lambda: pets(class_names=["cat", "doge"]),
        lambda: pets(class_names=["cat", "dog"]),
    ),
    "`class_names` must differ, got 'cat' 2": lambda: pets(class_names=["cat"] * 2),
    "2 names, got 1": lambda: pets(class_names=["c"], n_classes=2),
    "`test[1]` must be one of the 2 classes": lambda: pets(test=(X, ["owl"] * 12)),
    "class 'b' in held-out examples only (example 11)": (
        lambda: pets(["a"] * 11 + ["b"], test=mask(11)),
        lambda: pets(["a"] * 10 + ["b"] * 2, test=mask(11)),
    ),
    "one boolean for each of the 12": lambda: pets(test=np.ones(7, bool)),
    "got True for all of the others": lambda: pets(test=mask(*range(12))),
    "`owners` must have one owner for each of the 12": lambda: pets(owners=["a"]),
    "a vector of owners, got shape (12, 2)": lambda: pets(owners=X),
    "`owners` must be a vector of owners": lambda: pets(owners=[]),
}
LABELED = rows(
    {TypeError: LABELED_TYPE_ERRORS, ValueError: LABELED_VALUE_ERRORS},
    (ValueError, "`x` must have shape (N, features...)", lambda: arrays(X[:, 0])),
    (ValueError, "`y` must be a non-empty vector", lambda: pets([])),
    (
        ValueError,
        "training examples of every class, got class '3' in held-out examples only (example 12)",
        lambda: arrays(test=(X[:1], [3])),
    ),
    (
        ValueError,
        "`test` must be a fraction or an array of booleans if there are `owners`, got a tuple",
        lambda: pets(owners=[0] * 12, test=(X, PETS)),
    ),
)


class Items(list):
    """The smallest map-style dataset."""


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(2), 0)])


def torches(*items, **more):
    return data.from_torch(Items(items), **more)


TWO, GOOD = torch.zeros(2), (torch.zeros(2), 0)
GRAPH = Data(x=torch.eye(2), y=torch.tensor([0, 1]), edge_index=torch.tensor([[0], [1]]))
AS_TOPOLOGY = "as a topology, to topofl.as_topology(graph)"
ONE_CLASS = TensorDataset(torch.zeros(4, 2), torch.zeros(4).long())
PAIRS = [(X[:4], Y[:4]), (X[:6], Y[:6]), (X[:5], Y[:5] % 2)]


def clients(given=PAIRS, **more):
    return data.from_clients(given, **more)


def with_client(*client):
    return clients([*PAIRS, client])


LETTERS = [(X[:4], list("abab"))]
ITEMS_TYPE_ERRORS = {
    # Torch datasets
    "map-style dataset with a length, got Stream": lambda: data.from_torch(Stream()),
    "a length, got array(3)": lambda: data.from_torch(np.array(3)),
    "use data.from_dataframe": lambda: data.from_torch(pd.DataFrame({"a": [1]})),
    "pairs (input, label), got Tensor in item 0": lambda: torches(TWO),
    "got str in item 1; add a transform such as": lambda: torches(GOOD, ("image", 1)),
    "integers or texts as labels, got 0.5 in item 0; pass targets=True if": (
        lambda: torches((TWO, 0.5)),
        lambda: torches((TWO, 0.5), targets=True),
    ),
    "a class in all items or in none, got 1 of 2": lambda: torches(
        (TWO, 0, 1.0), (TWO, 1.0), targets=True
    ),
    ("a PyG graph (Data);", AS_TOPOLOGY): lambda: data.from_torch(GRAPH),
    ("a networkx graph (Graph);", AS_TOPOLOGY): lambda: data.from_torch(nx.path_graph(3)),
    "pairs (input, target) or triples": lambda: data.from_torch(GRAPH, targets=True),
    "(Data) in item 0; pass": lambda: torches(GRAPH, GRAPH),
    "(Data) as input of item 0; pass": lambda: torches((GRAPH, 0)),
    ("`test` must give pairs", AS_TOPOLOGY): lambda: torches(GOOD, test=GRAPH),
    "`val` must be a map-style dataset": lambda: torches(GOOD, val=Stream()),
    "`val` must give pairs (input, label), got str": lambda: torches(GOOD, val="half"),
    # Clients
    "a sequence of pairs (x, y), got 3": lambda: clients(3),
    "`clients[0]` must give pairs": lambda: clients([X]),
    "`clients[0]` must be a pair": lambda: clients([(X,)]),
    "`test` must have inputs of": lambda: clients(test=(X.astype("u1"), Y)),
    "as clients[0] has, got names; convert one": lambda: with_client(X, PETS),
    "`clients[0][1]` must be integers": lambda: clients([(X, Y / 2)]),
    ("torch dataset, got 0.2;", "own_test="): lambda: clients(test=0.2),
}
ITEMS_VALUE_ERRORS = {
    # Torch datasets
    "`dataset` must have at least one item, got none": lambda: torches(),
    "got (2,) in item 0 and (3,) in": lambda: torches(GOOD, (torch.ones(3), 0)),
    "torch.int32 in item 1": lambda: torches(GOOD, (TWO.int(), 0)),
    "every class, got class '1'": lambda: data.from_torch(ONE_CLASS, test=[(TWO, 1)]),
    # Clients
    "`clients` must have at least one client, got none": lambda: clients([]),
    "`clients[3]` must have at least one ex": lambda: with_client(X[:0], []),
    "`own_test[1]` must have at least one example, got none; pass None": (
        lambda: clients(own_test=[None, (X[:0], []), None]),
        lambda: clients(own_test=[None, (X[:1], [0]), None]),
    ),
    "of shape (2,), as clients[0] has, got (1,)": lambda: with_client(X[:, :1], Y),
    "`clients[0][1]` must have one label": lambda: clients([(X, Y[:4])]),
    "`clients[0]` must have labels in 0..1, got 2": lambda: clients(n_classes=2),
    "the number of names, 2, got 3": lambda: clients(LETTERS, n_classes=3),
    "of every class, got class 'c'": lambda: clients(LETTERS, test=(X[:1], ["c"])),
    "`clients[3][0]` must be finite": lambda: with_client(X * NAN, Y),
    "each of the 3 clients, got 2": lambda: clients(own_test=PAIRS[:2]),
}
ITEMS = rows({TypeError: ITEMS_TYPE_ERRORS, ValueError: ITEMS_VALUE_ERRORS})


def parted(train=((0,), (1,)), **more):
    return data.Partition(FITTING, train, **more)


def dealt(name, n=3, *, of=FITTING, **call):
    return getattr(data, name)(of, n, **{"seed": 0} | PARTITIONERS[name].plain | call)


def held_out(n=3, **parts):
    return dealt("iid", n, **{f"{part}_fraction": share for part, share in parts.items()})


per_class = partial(dealt, "dirichlet_per_class")
drawn = partial(dealt, "pathological_dirichlet")
shared = partial(dealt, "pathological_shared")
RARE = pets(["a"] * 11 + ["b"])
OWNED = toy(owners=np.arange(20) % 4 * (np.arange(20) < 16))
WITH_NAMES = pets(owners=list("aabbcccccccc"), name="shops")


def natural(dataset=OWNED, **call):
    return data.natural(dataset, **{"seed": 0, "min_size": 1} | call)


def shops(owners, **call):
    return natural(WITH_NAMES, owners=owners, **call)


HELD = clients_with([[3, 3]], [1, 1])
EVEN = data.iid(data.digits(), 5, seed=0)


def with_inputs(*shape, dtype=torch.float32):
    """Return two nodes with other inputs, (20, *shape)."""
    return replace(parted(), dataset=replace(FITTING, inputs=torch.zeros(20, *shape, dtype=dtype)))


def flipped(nodes=(0, 1), **call):
    return data.flip_labels(**{"clients": parted(((0, 1), (2, 3))), "nodes": nodes} | call)


def hidden(target=1, **call):
    """Return a partition with a backdoor whose trigger is a larger number."""
    usual = {"clients": parted(((0, 1), (2, 3))), "trigger": lambda inputs: inputs + 1}
    return data.backdoor(**usual | {"target": target} | call)


def private(counts=((1, 2),), **call):
    return data.private_label_histograms(counts, **{"epsilon": 1.0, "seed": 0} | call)


AGAIN = [[0], [1, 0]]
DISJOINT = "disjoint, example 0 is held by nodes 0 and 1; pass overlapping=True"
DIVIDED_TYPE_ERRORS = {
    # Partitions
    "got ndarray; make one with data.from_arrays": lambda: data.Partition(X, [[0]]),
    "a sequence of index arrays, one for each node, got 3 (int)": lambda: parted(3),
    # Partitioners
    "`dataset` must be a data.Dataset": lambda: dealt("shards", of="digits"),
    "1 required keyword-only argument: 'seed'": lambda: data.shards(FITTING, 3),
    "`seed` must be": lambda: dealt("shards", seed=None),
    # Natural partitions
    # Edits
    "a data.Partition, got Dataset": lambda: flipped(clients=FITTING),
    "`clients` must be a data.Partition, got Dataset": lambda: hidden(clients=FITTING),
    "`trigger` must be a function": lambda: hidden(trigger=3),
    "`nodes` must be an integer": lambda: flipped(0.4),
    "`label_counts` must be integers": lambda: private([[0.5, 0.5]]),
}
DIVIDED_VALUE_ERRORS = {
    # Partitions
    "`train` must hold at least one example": lambda: parted([]),
    "[1, 3] of 4 nodes have none; use fewer": lambda: parted([[0], [], [1], []]),
    "[0, 1, 2, 3, 4, 5, 6, 7, ...] of 9": lambda: parted([[]] * 9),
    "[0, 1, 2, 3, 4, 5, 6, 7] of 8": lambda: parted([[]] * 8),
    "`train[1]` must be in 0..19, got 20": lambda: parted([[0], [20]]),
    "each of the n=2 nodes, got 1": lambda: parted(val=[[2]]),
    "example 0 is held twice by node 0; remove it": lambda: parted([[0, 0]]),
    "4 is held twice by node 1": lambda: parted([[3], [4, 4]], overlapping=True),
    "1 is held twice by node 1": lambda: parted(val=[[], [1]], overlapping=True),
    "not hold test examples, node 1 holds example 18": lambda: parted([[0], [18]]),
    "test examples, node 1": lambda: parted(test=[[1], []], overlapping=True),
    "example 2 is held by nodes 0 and 1": lambda: parted(test=[[2], [2]]),
    "disjoint, example 18 is held twice by node 1": (
        lambda: parted(test=[[], [18, 18]]),
        lambda: parted(test=[[18], [18]]),
    ),
    "node 1 holds example 19 (1 such": lambda: parted(val=[[], [2, 19]]),
    "`val` must not": lambda: parted(val=[[19], []], test=[[], [19]]),
    "in 0..1, got 2": (lambda: parted(flipped=[2]), lambda: parted(flipped=[1])),
    "`overlapping` must be True or False": lambda: parted(overlapping=1),
    "`seed` must be at least 0, got -1": lambda: parted(seed=-1),
    # Partitioners
    "`n` must be between 1 and 18, got 0": lambda: dealt("iid", 0),
    "19; every node needs": (lambda: dealt("iid", 19), lambda: dealt("iid", 18)),
    "`val_fraction` must be in [0, 1), got 1": lambda: held_out(val=1),
    "must sum to less than 1, got 1": lambda: held_out(2, val=0.5, test=0.5),
    "`val_fraction` must leave every node an example for training, got 0.2 where node 0 has 1 "
    "examples and needs 2": (lambda: held_out(18, val=0.2), lambda: held_out(9, val=0.2)),
    "`test_fraction` must leave": lambda: held_out(18, test=0.2),
    "has 2 examples and needs 3": lambda: held_out(9, val=0.1, test=0.1),
    "`per_node` must be at most 4 for n=4 nodes and 18 training examples, got 5": (
        lambda: dealt("shards", 4, per_node=5),
        lambda: dealt("shards", 4, per_node=4),
    ),
    "`alpha` must be a finite number above 0": lambda: per_class(alpha=INF),
    "`min_size` must be at most 6 for n=3 nodes and 18 training examples, got 7": (
        lambda: dealt("power_law", min_size=7),
        lambda: dealt("power_law", min_size=6),
    ),
    "`exponent` must be a finite number of at least 0, got -1": lambda: dealt(
        "power_law", exponent=-1
    ),
    ("`min_size` must be at most 4 for", "use min_size=4 or n=3"): (
        lambda: per_class(4, min_size=5),
        lambda: per_class(4, min_size=4),
    ),
    "got 18; use min_size=4 or n=1": lambda: per_class(4, min_size=18),
    "`classes_per_node` must be between 1 and 3, got 4": (
        lambda: shared(classes_per_node=4),
        lambda: shared(classes_per_node=3),
    ),
    "`classes_per_node` must provide 9 different examples per node, got 1 with n=2, where the "
    "rarest such classes have 6 examples together; use n=3 or classes_per_node=2": lambda: shared(
        2, classes_per_node=1
    ),
    "each of the 3 nodes that drew class 0, which has 6 training examples, got 3; use "
    "min_per_class=2, or fewer nodes": (
        lambda: drawn(classes_per_node=3, min_per_class=3),
        lambda: drawn(classes_per_node=3, min_per_class=2),
    ),
    "got 1; use fewer nodes or classes_per_node": (
        lambda: drawn(7, classes_per_node=3),
        lambda: drawn(6, classes_per_node=3),
    ),
    "`classes_per_node` must be at least 2 for n=2 nodes, so that each of 3 classes has a node, "
    "got 1": (
        lambda: dealt("extended_dirichlet", 2, classes_per_node=1),
        lambda: dealt("extended_dirichlet", 2, classes_per_node=2),
    ),
    "`min_size` must be at most 4 for n=4 nodes and 18 training examples, got 5": (
        lambda: dealt("extended_dirichlet", 4, min_size=5),
        lambda: dealt("extended_dirichlet", 4, classes_per_node=3, min_size=4),
    ),
    "got 6; use min_size=3, or fewer nodes or more classes_per_node": (
        lambda: dealt("extended_dirichlet", classes_per_node=1, of=toy((3, 9, 9)), min_size=6),
        lambda: dealt("extended_dirichlet", classes_per_node=1, of=toy((3, 9, 9)), min_size=3),
    ),
    "got 2 with n=10, where class 0 has 6 training examples; use n=9 or classes_per_node=1": (
        lambda: dealt("pathological", 10),
        lambda: dealt("pathological", 9),
    ),
    "class 2 has 2 training examples; use n=8": (
        lambda: dealt("pathological", 12, of=toy((20, 20, 2)), classes_per_node=1),
        lambda: dealt("pathological", 8, of=toy((20, 20, 2)), classes_per_node=1),
    ),
    "class b has 1 training": lambda: dealt("pathological", of=RARE),
    # Natural partitions
    "got none in digits; name their column": lambda: natural(data.digits()),
    "at least 1, got 0; None keeps all": lambda: natural(classes_per_node=0),
    "`min_size` must leave at least one node, got 7 where the largest would have 6": (
        lambda: natural(min_size=7),
        lambda: natural(min_size=6),
    ),
    "`n` must be between 1 and 1, got 2; only 1 of the 4 owners have min_size=5 training": (
        lambda: natural(n=2, min_size=5),
        lambda: natural(n=1, min_size=5),
    ),
    "in shops, got 'd'; they are ['a', 'b', 'c']": lambda: shops(["c", "d"]),
    "`owners` must differ, got 'c' twice": lambda: shops(["c", "c"]),
    "min_size=3 training examples each, 'a' has 2; leave it out": (
        lambda: shops(["c", "a"], min_size=3),
        lambda: shops(["c", "a"], min_size=2),
    ),
    "as many as `n` if it is given, got 1 and n=2": lambda: shops(["c"], n=2),
    "got none; leave `owners` out; labels 0..n-1": lambda: shops(()),
    # Edits
    "`nodes` must be between 1 and n=2, got 0": lambda: flipped(0),
    "between 1 and n=2, got 3": (lambda: flipped(3), lambda: flipped(2)),
    "`nodes` must list different nodes, got []": lambda: flipped([]),
    "`nodes` must list different nodes, got [1, 1]": lambda: flipped([1, 1]),
    "flipped already, node 1 is": lambda: flipped(clients=flipped([1])),
    "contain each of 0..2 once, got [0, 1]": lambda: flipped(permutation=[0, 1]),
    "`permutation` must contain each": lambda: flipped(permutation=[0, 1, 1]),
    "`permutation` must be in 0..2, got 3": lambda: flipped(permutation=[0, 1, 3]),
    "`target` must be between 0 and 2, got 3": lambda: hidden(3),
    "`nodes` must list different nodes, got [0, 0]": lambda: hidden(nodes=[0, 0]),
    "`nodes` must be in 0..1, got 2": lambda: hidden(nodes=[2]),
    "`share` must be above 0 and at most 1, got 0": (
        lambda: hidden(share=0.0),
        lambda: hidden(share=0.1),
    ),
    "must have no triggered images yet": lambda: hidden(clients=hidden()),
    "has targets of shape (20,); make triggered targets": lambda: hidden(
        clients=replace(parted(), dataset=replace(FITTING, targets=torch.zeros(20)))
    ),
    "test examples of other labels than target=0": lambda: hidden(
        clients=clients_with([[1, 1]], [0, 0]), target=0
    ),
    "`trigger` must return torch.float32 of shape": (
        lambda: hidden(trigger=lambda inputs: inputs.double()),
        lambda: hidden(trigger=lambda inputs: inputs + 1),
    ),
    "but returned 3": lambda: hidden(trigger=lambda inputs: 3),
    "`trigger` must be smaller than the images": lambda: hidden(trigger=None),
    "`size` must be at least 1, got 0": lambda: data.pixel_patch(0),
    "`corner` must be": lambda: data.pixel_patch(corner="middle"),
    "got 0; use the partition unchanged": lambda: data.with_validation(HELD, 0),
    "two training examples per node, node 1 has one; use": (
        lambda: data.with_validation(clients_with([[2], [1]], [1])),
        lambda: data.with_validation(clients_with([[2], [2]], [1])),
    ),
    "`clients` must hold out no validation examples, got some that would be replaced": lambda: (
        data.with_validation(data.with_validation(HELD))
    ),
    "did you mean 'disjoint'?": lambda: data.match_test(HELD, rule="disjoined"),
    "a dataset with test examples, got none in toy": lambda: data.match_test(
        clients_with([[1, 1]], [0, 0]), rule="disjoint"
    ),
    "`clients` must hold out no test examples": lambda: data.match_test(
        parted(test=[[2], []]), rule="disjoint"
    ),
    "must have true labels": lambda: data.match_test(flipped(), rule="disjoint"),
    "`clients` must hold images, (N, channels, height, width), got inputs of shape (20, 1)": (
        lambda: data.rotated(parted(), [90])
    ),
    "`angles` must be a list of numbers, at least one, got shape (0,)": lambda: data.rotated(
        EVEN, []
    ),
    "`angles` must be finite": lambda: data.rotated(EVEN, [NAN]),
    "`variance` must be a finite number of at least 0, got -1": lambda: data.noisy(EVEN, -1),
    "`variance` must be at most 1e+30, got 1e+300": lambda: data.noisy(EVEN, 1e300),
    "`clients` must have float32 inputs or uint8 pixels, to which noise can be added, got int64": (
        lambda: data.noisy(with_inputs(2, dtype=torch.int64), 1),
        lambda: data.noisy(with_inputs(2), 1),
    ),
    "`clients` must hold gray images, with one channel, got inputs of shape (20, 3, 2, 2)": (
        lambda: data.tinted(with_inputs(3, 2, 2), [RED]),
        lambda: data.tinted(with_inputs(1, 2, 2), [RED]),
    ),
    "`colors` must be a list of lists of 3 numbers, at least one, got shape (3,)": (
        lambda: data.tinted(EVEN, RED),
        lambda: data.tinted(EVEN, [RED]),
    ),
    "`colors` must hold numbers from 0 to 1, got [[2, 0, 0]]": (
        lambda: data.tinted(EVEN, [[2, 0, 0]])
    ),
    "`epsilon` must be a finite number above 0, got 0": lambda: private(epsilon=0),
    "`epsilon` must be at least 1e-300, got 9.99e-301, whose noise is too large": (
        lambda: private(epsilon=9.99e-301),
        lambda: private(epsilon=1e-300),
    ),
    "'sd', 'replace_one', got 'variance'": lambda: private(noise="variance"),
    "one example per node, nodes 1 have none": lambda: private([[1, 0], [0, 0]]),
    "`label_counts` must have shape": lambda: private([1, 2]),
}
DIVIDED = rows(
    {TypeError: DIVIDED_TYPE_ERRORS, ValueError: DIVIDED_VALUE_ERRORS},
    (ValueError, DISJOINT, lambda: parted(AGAIN), lambda: parted(AGAIN, overlapping=True)),
    (ValueError, DISJOINT, lambda: parted(val=[[], [0]])),
    (
        ValueError,
        "a dataset whose labels are learned, toy has targets of shape (20,); change its targets",
        lambda: flipped(clients=replace(parted(), dataset=toy(targets=torch.ones(20)))),
    ),
)

CSV = "a,b,k\n1,2,x\n3,4,y\n5,6,x\n7,8,y\n"
SPLIT = "a,k,s,c\n1,x,Train,7\n2,y,train,9\n3,x,test,7\n4,y,valid,9\n"


def csv(content=CSV, **arguments):
    """Return a function that writes a file in a folder and reads it."""

    def read(path):
        path /= "pets.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return data.from_csv(path, **{"label": "k", **arguments})

    return read


def frame(change=None, **arguments):
    """Return a function that reads a frame with some columns changed."""
    table = pd.DataFrame({"a": [1.0, 2, 3, 4], "k": ["x", "y"] * 2, **(change or {})})
    return lambda: data.from_dataframe(table, **{"label": "k", **arguments})


class Hub(dict):
    """Columns with the attributes of a dataset of the package ``datasets``."""

    def __init__(self, columns):
        super().__init__(columns)
        self.features, self.column_names = dict.fromkeys(columns), list(columns)
        self.num_rows = len(next(iter(columns.values())))

    def with_format(self, kind):
        return self


def hub(*, of=(), label=(0, 1), **columns):
    """Return a function that reads columns, or splits, as a dataset of the Hub."""
    table = Hub({**columns, "label": list(label)})
    read = dict.fromkeys(("train", "test"), table) if of else table
    return lambda: from_hub(read, **dict(of))


from_hub = data.from_huggingface
LATIN = CSV.replace("y", "é").encode("latin-1")
NUMBERS = np.array([[1.0], [2.0]])
GRAY = Image.new("L", (6, 8))
STREAMED = type("IterableDataset", (), {"column_names": [], "features": {}, "with_format": 1})()
TABLES_VALUE_ERRORS = {
    # CSV files
    "`label` must be a column of `path`, got 'kk'; did you mean 'k'": csv(label="kk"),
    "got ' K'; did you mean 'k'": csv(label=" K"),
    "got 'zzz'; there are ['a', 'b', 'k']": csv(label="zzz"),
    "got neither; the columns are ['a', 'b'": csv(label=None),
    "`features` must be a column of `path`, got 'B'; did": csv(features=["a", "B"]),
    "`features` must not contain what models predict": csv(features=["a", "k"]),
    "`features` must be columns, each once, got []": csv(features=[]),
    "`features` must be columns, each once": csv(features=["a", "a"]),
    "a column of features in addition to ['k']": csv("k\nx\ny\n"),
    "`path` must have a line of column names and lines of values": csv(""),
    "`path` must have at least one row, got none": csv("a,k\n"),
    "begin with a line of column names, got ['1', '2'] in": csv("1,2\n3,4\n"),
    "the name of column 1 (counted from 0) is empty": csv("a,,k\n1,2,x\n"),
    ("got 'a' 2 times in", "pets.csv; rename"): csv("a,a,k\n1,2,x\n"),
    ("as many fields in every line", "line 6, saw 4"): csv(CSV + "1,2,x,4\n"),
    "as many fields in every line": csv("a,k\n1,x,3\n2,y,4\n"),
    ("separated by ','", "; pass delimiter=';'"): csv(CSV.replace(",", ";")),
    ("encoding utf-8,", "0xe9", "'latin-1'"): csv(LATIN),
    "`encoding` must be an encoding of Python": csv(encoding="utf9"),
    "`delimiter` must be one character": csv(delimiter="ab"),
    "'a' has nan in rows 1, 3; drop these rows": csv("a,k\n1,x\n,y\n3,x\n,y\n"),
    "'k' has none (empty or NaN) in row 1; drop": csv("a,k\n1,x\n2,\n3,y\n"),
    "column 'a' has 1e+300 in row 1": csv("a,k\n1,x\n1e300,y\n"),
    "at least two classes, column 'k' has 'x' in all 2 rows": csv("a,k\n1,x\n2,x\n"),
    "`target` must vary": csv("a,t\n1,2\n3,2\n", label=None, target="t"),
    "`split` must be given without `test`": csv(SPLIT, split="s", test=0.2),
    "True for test, got 2 in rows 1, 2, 3 of column 'a'": csv(SPLIT, split="a"),
    ("'tset' in row 3", "did you mean 'test'"): csv(SPLIT.replace("valid", "tset"), split="s"),
    ("training examples of every class, got class 'z'", "(example 2)"): csv(
        "a,k,s\n1,x,0\n2,y,0\n3,z,1\n", split="s"
    ),
    # Frames
    "different names, got 'a' 2": lambda: data.from_dataframe(
        pd.DataFrame([[1, 2]], columns=["a", "a"]), label="a"
    ),
    "has nan in row 1": frame({"a": pd.array([1, None, 2, 3], "Int64")}),
    "column 'a', got (1,) in row 0 and": frame({"a": [[1], [1, 2], [1], [1]]}),
    "finite numbers in column 'a', row 1": frame({"a": [[1], [NAN], [1], [1]]}),
    "`features` must be a single column of images or arrays": frame({"b": [[1]] * 4}),
    "`features` must be a column of `test`": frame(test=pd.DataFrame({"k": ["x"]})),
    # Datasets of the Hub
    "-1 in column 'label', which means": hub(a=[1.0, 2.0], label=[0, -1]),
    "`label` must be the column": lambda: from_hub(Hub({"a": [1, 2]})),
    ("in column 'a'", "row 1; pad or cut"): hub(a=[[1, 2], [1]]),
    "(1, 3, 3) in row 1; resize": hub(image=[GRAY, GRAY.resize((3, 3))]),
    "pass features='image'": hub(image=[GRAY] * 2, id=[1, 2]),
    "got 'tset'; did you mean 'test'": hub(of={"test": "tset"}, a=[1, 2]),
    "['train', 'test'], got 'all'": hub(of={"train": "all"}, a=[1, 2]),
    "`train` must be one of the splits": lambda: from_hub({}),
}
TABLES_TYPE_ERRORS = {
    # CSV files
    "`label` must be the name of a column, got ['k'] (list)": csv(label=["k"]),
    "'a' (such as 'u' in row 1); mend that cell": csv("a,k\n1,x\nu,x\nv,y\n"),
    ("such as 'u' in row 0", "features=['a'], or", "get_dummies"): csv("a,b,k\n1,u,x\n1,v,y\n"),
    ("a column of texts", "pass target='k'"): csv("a,k\n1,1.5\n2,2\n"),
    ("column 'k'", "of text as `label`"): csv(label=None, target="k"),
    # Frames
    "use data.from_arrays": lambda: data.from_dataframe(NUMBERS, label="k"),
    "a data frame, got": lambda: data.from_dataframe({"a": [1]}, label="k"),
    "(such as '1' in row 0); turn": frame({"a": list("1234")}),
    "such as '2020-01-01": frame({"a": pd.to_datetime(["2020"] * 4)}),
    "arrays of numbers in column 'a'": frame({"a": [["u"]] * 4}),
    "`test` must be a data frame, got 'pets.csv'": frame(test="pets.csv"),
    # Datasets of the Hub
    ("str in column 'text'", "by a tokenizer"): hub(text=["hi", "yo"]),
    "got mode I;16 in row 1; convert them": hub(image=[GRAY, GRAY.convert("I;16")]),
    "`train` must be the name of a split, got 3": hub(of={"train": 3}, a=[1, 2]),
    "load it without streaming=True": lambda: from_hub(STREAMED),
    "got ndarray; use data.from_arr": lambda: from_hub(X),
    "decoded images in column 'image', got files; pass dataset.cast_column('image'": hub(
        image=[{"bytes": b"", "path": None}] * 2
    ),
}
TABLES_FILE_ERRORS = {
    # CSV files
    "`test` must be a CSV file, there is none": csv(test="nowhere.csv"),
    # Datasets of the Hub
    "load a dataset of the Hub first": lambda: from_hub("mnist"),
}
TABLES = rows({ValueError: TABLES_VALUE_ERRORS, TypeError: TABLES_TYPE_ERRORS})
TABLES += rows({FileNotFoundError: TABLES_FILE_ERRORS})


@pytest.mark.parametrize("row", [*LABELED, *ITEMS, *DIVIDED, *TABLES], ids=named)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)
