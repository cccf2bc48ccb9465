"""Degenerate clients, graphs, data and models that are valid give correct results."""

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import topofl
from tests import naive, problems
from tests.degenerate.inputs import (
    DISCONNECTED,
    Applied,
    Attentive,
    Buffered,
    Recurrent,
    clients_of,
    dense,
    models_of,
    naive_nodes,
    run,
)
from topofl import algorithms, data, metrics, mixing, topologies
from topofl.engine.minibatches import Batches
from topofl.engine.model_checks import check_output

SMALL = ([0], [1, 2, 3, 4, 5], range(6, 14))


@pytest.mark.parametrize("executor", ["batched", "looped"])
@pytest.mark.parametrize("model", [problems.linear, problems.convolutional])
def test_small_clients_train_as_the_naive_loop(executor, model):
    clients = clients_of(*SMALL)
    nodes = naive_nodes(clients, model())
    naive.local_only(nodes, 5, lr=0.1)
    options = {"clients": clients, "topology": None, "rounds": 5, "executor": executor}
    got = models_of(algorithms.local_only(lr=0.1, batch_size=4), model=model(), **options)
    torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-12)


def test_a_remainder_of_one_example_is_a_minibatch_of_one():
    batches = Batches(clients_of(*SMALL).train, seed=0)
    steps = [batches.at(step, 4, "local") for step in range(4)]
    sizes = [(batch.weights > 0).sum(1).tolist() for batch in steps]
    assert sizes == [[1, 4, 4], [1, 1, 4]] * 2
    for first, last in (steps[:2], steps[2:]):
        used = sorted([*first.indices[1], last.indices[1, 0]])
        assert used == sorted(clients_of(*SMALL).train[1])


def test_single_class_clients_learn_their_class():
    clients = data.one_class_per_node(problems.dataset(), 6, seed=0)
    assert ((clients.label_counts > 0).sum(1) == 1).all()
    algorithm = algorithms.local_only(lr=1.0, batch_size=4)
    history = run(algorithm, clients=clients, topology=None, rounds=60)
    assert all(np.isfinite(history[name]).all() for name in ("accuracy", "loss", "train_loss"))
    assert history["train_loss"][-1] < 0.1 * history["train_loss"][0]


def test_clients_without_test_examples_have_no_score():
    blobs = problems.dataset()
    clients = clients_of([0], [1, 2], [3, 4], test=[[], blobs.test[:2], blobs.test[2:3]])
    history = run(clients=clients, topology=topologies.ring(3), on="own_test")
    assert np.isnan(history["accuracy"]).tolist() == [[True, False, False]] * 2
    frame = history.to_pandas()
    assert np.isfinite(frame["accuracy_mean"].iloc[-1])


def test_disconnected_parts_train_separately_if_allowed():
    parts = nx.Graph([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    clients = problems.equal_clients()
    got = models_of(topology=parts, on_disconnected="allow")
    nodes = naive_nodes(clients, problems.linear())
    naive.dsgd(nodes, np.kron(np.eye(2), np.full((3, 3), 1 / 3)), 3, lr=0.1)
    torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-12)
    assert metrics.compare([parts]).rows


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_node_is_plain_sgd(momentum):
    clients = data.iid(problems.dataset(), 1, seed=0)
    algorithm = algorithms.dsgd(lr=0.1, batch_size=1000, momentum=momentum)
    got = models_of(algorithm, clients=clients, topology=topologies.ring(1), rounds=5)
    model, blobs = problems.linear().double(), problems.dataset()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    examples = torch.tensor(clients.train[0])
    for _ in range(5):
        optimizer.zero_grad()
        outputs = model(blobs.inputs[examples].double())
        functional.cross_entropy(outputs, blobs.labels[examples]).backward()
        optimizer.step()
    wanted = nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.testing.assert_close(got[0], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_isolated_nodes_train_as_without_a_graph_bit_for_bit(executor):
    options = {"dtype": torch.float32, "init": "common", "executor": executor}
    isolated = models_of(topology=DISCONNECTED, on_disconnected="allow", **options)
    alone = models_of(algorithms.local_only(lr=0.1, batch_size=4), topology=None, **options)
    assert torch.equal(isolated[3:], alone[3:])
    assert not torch.equal(isolated[:3], alone[:3])


def test_node_labels_are_kept_and_change_nothing():
    names = ["d", "b", ("a", 1), 7, "f", "e"]
    graph = nx.relabel_nodes(nx.cycle_graph(6), dict(enumerate(names)))
    assert topofl.as_topology(graph).nodes == tuple(names)
    assert torch.equal(models_of(topology=graph), models_of(topology=topologies.ring(6)))


def test_asymmetric_weights_are_not_symmetrized():
    adjacency = np.zeros((6, 6))
    for i in range(6):
        adjacency[i, (i + 1) % 6] = 0.1 * (i + 1)  # node i + 1 receives from i with this weight
    adjacency[0, 3] = 0.25
    for rule in (mixing.own_weights, mixing.uniform):
        weights = run(topology=adjacency, mixing=rule).mixing(0).weights.toarray()
        received = weights - np.diag(np.diag(weights))
        wanted = adjacency.T.astype(bool) * np.diag(weights)[:, None]
        if rule is mixing.own_weights:
            wanted = adjacency.T
        np.testing.assert_allclose(received, wanted)
        nodes = naive_nodes(problems.equal_clients(), problems.linear())
        naive.dsgd(nodes, weights, 3, lr=0.1)
        got = models_of(topology=adjacency, mixing=rule)
        torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-12)


def test_spectra_of_disconnected_graphs():
    table = metrics.compare([DISCONNECTED], about="all")
    row = dict(zip(table.columns, table.rows[0], strict=True))
    keys = ("spectral gap", "algebraic connectivity", "effective resistance")
    assert [row[key] for key in keys] == [0, 0, np.inf]
    assert row["diameter"].reason == "some nodes cannot reach each other"
    assert "n/a" in str(table)


class Tied(nn.Module):
    """Two layers that share a weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(36, 36), nn.Linear(36, 36), nn.Linear(36, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(self.second(self.first(x.flatten(1)).tanh()))


class WithEmptyParameter(Applied):
    """A linear layer and a parameter without elements."""

    def __init__(self):
        super().__init__(own=nn.Parameter(torch.zeros(0)))

    def forward(self, x):
        return super().forward(x) + self.own.sum()


def test_advice_for_outputs_without_classes_is_no_classifier():
    match = r"e\.g\. nn\.Sequential\(nn\.Flatten\(\), nn\.Linear\(36, 1"
    with pytest.raises(ValueError, match=match):
        check_output(nn.Linear(10, 1), torch.ones(3, 1, 6, 6), None)


def test_checks_of_random_models_do_not_change_the_global_generator():
    model, before = Applied(before=functional.dropout), torch.get_rng_state()
    with pytest.raises(ValueError, match="random numbers"):
        check_output(model, torch.ones(3, 36), 3)
    assert torch.equal(before, torch.get_rng_state())


def reproducible(build):
    """Return a model with the same values in every call."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


def applied():
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    model(problems.dataset().inputs[:1])
    return model


def normalized():
    return nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.InstanceNorm2d(1, affine=True), *dense())


ACCEPTED = {
    "no dropout": (lambda: dense(nn.Dropout(0.0)), "batched"),
    "instance norm": (normalized, "batched"),
    "layers without dropout": (Recurrent, "looped"),
    "attention without dropout": (Attentive, "looped"),
    "tied weights": (Tied, "batched"),
    "a constant buffer": (lambda: Buffered(0), "batched"),
    "evaluation mode": (lambda: problems.convolutional().eval(), "batched"),
    "an empty parameter": (WithEmptyParameter, "batched"),
    "half precision": (lambda: problems.linear().half(), "batched"),
    "a lazy layer that was applied": (applied, "batched"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_unusual_models_train_as_the_naive_loop(case):
    build, executor = ACCEPTED[case]
    model, clients = reproducible(build), problems.equal_clients()
    nodes = naive_nodes(clients, model)
    naive.dsgd(nodes, mixing.metropolis_hastings(topologies.ring(6)).weights.toarray(), 3, lr=0.1)
    for one in {executor, "looped"}:
        got = models_of(model=model, executor=one)
        torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-10)


def test_models_may_have_more_outputs_than_classes():
    history = run(model=nn.Sequential(nn.Flatten(), nn.Linear(36, 7)), rounds=30, every=30)
    assert history["accuracy"][-1].min() > 0.9
