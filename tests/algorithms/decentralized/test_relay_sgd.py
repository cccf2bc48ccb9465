"""RelaySGD equals means of earlier models in float64 and finds the optimum of the mean loss."""

import networkx as nx
import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.convergence import WHOLE, distances
from tests.algorithms.harness import BATCH, CLIENTS, HOW, SEED, N, check, engine, nodes_at_start
from topofl import algorithms, topologies
from topofl.topology import TopologyError, from_edges

ROUNDS = 7
"""More than any way is long."""

TREES = {
    "path": from_edges([(i, i + 1) for i in range(N - 1)], n=N),
    "star": from_edges([(0, i) for i in range(1, N)], n=N),
    "numbers in disorder": from_edges([(3, 0), (0, 5), (5, 1), (5, 4), (1, 2)], n=N),
}
GRAPHS = TREES | {"ring": topologies.ring(N), "complete": topologies.fully_connected(N)}
EVERY_TREE = pytest.mark.parametrize("tree", TREES.values(), ids=list(TREES))


def run(algorithm, clients, graph, model=None, rounds=ROUNDS, **settings):
    """Return the history and the models after every round."""
    kept = []
    history = topofl.run(
        algorithm,
        model=model or problems.linear(),
        clients=clients,
        topology=graph,
        rounds=rounds,
        seed=SEED,
        init="independent",
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **problems.options(dtype=torch.float64, **settings),
    )
    return history, kept


@HOW
@CLIENTS
@pytest.mark.parametrize(
    "local", [{}, {"momentum": 0.9, "local_steps": 2}], ids=["plain", "momentum"]
)
def test_relay_sgd_equals_naive_loop(local, make, settings):
    clients, tree = make(), TREES["numbers in disorder"]
    nodes = nodes_at_start(problems.convolutional(), clients)
    start = nodes.flat()
    naive.relay_sgd(nodes, tree.distances, ROUNDS, lr=0.1, **local)
    algorithm = algorithms.relay_sgd(0.1, batch_size=BATCH, **local)
    _, models = run(algorithm, clients, tree, problems.convolutional(), **settings)
    check(nodes.flat(), models[-1], start)


@pytest.mark.parametrize("name", GRAPHS)
def test_on_any_graph_it_goes_along_a_spanning_tree(name):
    clients, graph = problems.ragged_clients(), GRAPHS[name]
    history, models = run(algorithms.relay_sgd(0.1, batch_size=BATCH), clients, graph)
    (matrix,) = history.matrices
    tree = matrix.support()
    assert nx.is_tree(tree.to_networkx())
    assert not ((tree.adjacency > 0) > (graph.adjacency > 0)).nnz, (
        "it has edges that the graph has not"
    )
    assert name not in TREES or not ((tree.adjacency > 0) != (graph.adjacency > 0)).nnz
    nodes = nodes_at_start(problems.linear(), clients)
    naive.relay_sgd(nodes, tree.distances, ROUNDS, lr=0.1)
    torch.testing.assert_close(models[-1], nodes.flat(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("edges", "most"),
    [
        ([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (0, 4), (4, 8)], 5),
        ([(i, j) for i in range(9) for j in range(i)], 2),
    ],
    ids=["eight", "complete"],
)
def test_tree_paths_are_short(edges, most):
    """From a node in the middle: an eight from its crossing."""
    graph = from_edges(edges, n=9)
    history, _ = run(
        algorithms.relay_sgd(0.1, batch_size=BATCH), problems.equal_clients(9), graph, rounds=1
    )
    assert history.matrices[0].support().diameter <= most


@EVERY_TREE
def test_what_stays_the_same_has_its_exact_mean_everywhere_after_as_many_rounds_as_the_diameter(
    tree,
):
    """RelaySum: sums are complete once messages have come from the farthest node."""
    values, seen = torch.from_numpy(np.random.default_rng(0).normal(size=(N, 111))), []

    def fixed(models, state, round):
        if not models.flat.is_meta:
            models.flat.copy_(values)
        return state

    parts = algorithms.relay_sgd(0.1).phases
    again = algorithms.chain(
        "sums", local=algorithms.Phase(lambda models: {}, fixed), exchange=parts["exchange"]
    )
    _, seen = run(again, problems.equal_clients(), tree)
    reached = [bool((models - values.mean(0)).abs().max() < 1e-12) for models in seen]
    assert reached == [t >= tree.diameter for t in range(1, ROUNDS + 1)]


@EVERY_TREE
def test_it_reaches_the_optimum_of_the_mean_loss(tree):
    assert distances(algorithms.relay_sgd(0.1, batch_size=WHOLE), 300, topology=tree).max() < 1e-9


def test_dsgd_does_not():
    assert (
        distances(algorithms.dsgd(0.1, batch_size=WHOLE), 300, topology=TREES["path"]).min() > 1e-3
    )


def test_two_nodes_do_dsgd():
    clients = problems.equal_clients(2)
    graph = topologies.fully_connected(2)
    (_, relayed), (_, plain) = (
        run(one(0.1, batch_size=BATCH), clients, graph)
        for one in (algorithms.relay_sgd, algorithms.dsgd)
    )
    torch.testing.assert_close(relayed[-1], plain[-1], rtol=0, atol=1e-12)


def test_one_node_does_sgd():
    clients = problems.equal_clients(1)
    (_, relayed), (_, plain) = (
        run(one(0.1, batch_size=BATCH), clients, topologies.fully_connected(1))
        for one in (algorithms.relay_sgd, algorithms.local_only)
    )
    torch.testing.assert_close(relayed[-1], plain[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "graph", [TREES["path"], topologies.fully_connected(N)], ids=["tree", "complete"]
)
def test_an_edge_of_the_tree_carries_a_model_and_a_number_each_way(graph):
    history, models = run(algorithms.relay_sgd(0.1), problems.equal_clients(), graph)
    assert (history["messages"] == 2 * (N - 1)).all()
    assert (history["bytes"] == 2 * (N - 1) * (models[0].shape[1] + 1) * 8).all()


@pytest.mark.parametrize(
    ("graph", "named"),
    [
        (topologies.one_peer_exponential(N), "one graph|static"),
        (from_edges([(i, (i + 1) % N) for i in range(N)], n=N, directed=True), "undirected"),
        (from_edges([(0, 1), (2, 3), (3, 4), (4, 5)], n=N), "connected"),
    ],
    ids=["changing", "directed", "in parts"],
)
def test_other_graphs_are_refused(graph, named):
    with pytest.raises(TopologyError, match=named):
        engine(algorithms.relay_sgd(0.1), problems.linear(), problems.equal_clients(), graph)


def test_settings_hold_the_arguments():
    assert algorithms.relay_sgd(0.1, momentum=0.5).settings == {
        "local": {"lr": 0.1, "momentum": 0.5, "batch_size": 128, "steps": 1},
        "exchange": {"along": "a spanning tree"},
    }
