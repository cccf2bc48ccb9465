"""Graphs of PyTorch Geometric as data: clients train on subgraphs, or on whole graphs."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests import naive
from tests.degenerate.inputs import run
from topofl import algorithms, data, mixing, topologies
from topofl._support.seeding import seeded_torch

geometric = pytest.importorskip("torch_geometric")
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.datasets import KarateClub  # noqa: E402
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, global_mean_pool  # noqa: E402

LR = 0.1
CONVOLUTIONS = {
    "GCN": GCNConv,
    "SAGE": SAGEConv,
    "GIN": lambda inside, out: GINConv(nn.Linear(inside, out)),
}


class Network(nn.Module):
    def __init__(self, convolution, features, hidden, classes):
        super().__init__()
        make = CONVOLUTIONS[convolution]
        self.first, self.second = make(features, hidden), make(hidden, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x, edges, batch=None):
        x = self.first(x, edges).relu()
        x = self.second(x, edges).relu()
        return self.head(x if batch is None else global_mean_pool(x, batch))


@seeded_torch(0)
def network(convolution, features, classes):
    return Network(convolution, features, 8, classes).double()


@pytest.fixture(scope="module")
def karate():
    return data.from_pyg(KarateClub()[0], test=0.2, name="karate")


def trained(model, clients, graph, **how):
    options = {"rounds": 4, "every": 1, "init": "given", "dtype": torch.float64} | how
    algorithm = algorithms.dsgd(lr=LR, batch_size=64)
    return run(algorithm, model=model, clients=clients, topology=graph, **options)


def subgraph(graph, members):
    """Return features and edges of some vertices, renumbered, one edge after another."""
    place = {v: k for k, v in enumerate(members)}
    edges = [(place[a], place[b]) for a, b in graph.edges.T.tolist() if a in place and b in place]
    return graph.features[members].double(), torch.tensor(edges).T.reshape(2, -1)


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_clients_train_on_their_own_subgraphs(karate, convolution):
    clients, graph = karate.communities(3, seed=0), topologies.ring(3)
    weights = mixing.metropolis_hastings(graph).weights.toarray()
    modules = [network(convolution, 34, 4) for _ in range(3)]
    labels = karate.dataset.labels
    for _ in range(4):
        for i, module in enumerate(modules):
            members = np.sort(np.concatenate([clients.train[i], clients.val[i], clients.test[i]]))
            outputs = module(*subgraph(karate, members.tolist()))
            own = clients.train[i].copy()
            chosen = np.searchsorted(members, own)
            loss = functional.cross_entropy(outputs[chosen], labels[own])
            gradients = torch.autograd.grad(loss, module.parameters())
            for p, g in zip(module.parameters(), gradients, strict=True):
                p.data.sub_(LR * g)
        naive.average(modules, weights)
    model = karate.network(network(convolution, 34, 4), clients)
    history = trained(model, clients, graph)
    for i, module in enumerate(modules):
        wanted = nn.utils.parameters_to_vector(module.parameters()).detach()
        torch.testing.assert_close(history.models.flat[i], wanted, rtol=1e-11, atol=1e-11)
    assert history["loss"][-1].mean() < history["loss"][0].mean()


BATCHED = ["SAGE", "GIN"]


@pytest.mark.parametrize("between", ["drop", "keep"])
@pytest.mark.parametrize("convolution", BATCHED)
def test_subgraphs_of_several_nodes_are_batched(karate, convolution, between):
    clients, graph = karate.communities(3, seed=0), topologies.ring(3)
    model = karate.network(network(convolution, 34, 4), clients, between=between)
    looped = trained(model, clients, graph, executor="looped")
    for chunk in (2, 3):
        batched = trained(model, clients, graph, executor="batched", chunk=chunk)
        torch.testing.assert_close(batched.models.flat, looped.models.flat, rtol=0, atol=1e-13)


class Normalized(Network):
    """Normalizes over the vertices of a subgraph, among which there must be no padding."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x, edges):
        return self.head(self.second(self.norm(self.first(x, edges)).relu(), edges))


@pytest.mark.parametrize(
    ("model", "between", "why"),
    [
        (lambda: Normalized("SAGE", 34, 8, 4), "drop", "cannot be padded"),
        (lambda: network("GCN", 34, 4), "drop", "dynamic shape"),
        (lambda: network("GCN", 34, 4), "keep", "dynamic shape"),
    ],
)
def test_subgraphs_that_torch_cannot_batch_are_looped(karate, model, between, why):
    clients, graph = karate.communities(3, seed=0), topologies.ring(3)
    made = karate.network(model().double(), clients, between=between)
    with pytest.raises(ValueError, match=why):
        trained(made, clients, graph, executor="batched")
    auto, looped = (trained(made, clients, graph, executor=e) for e in ("auto", "looped"))
    assert torch.equal(auto.models.flat, looped.models.flat)


def test_normalization_over_the_vertices_of_a_whole_graph_is_batched(karate):
    clients, graph = karate.communities(3, seed=0), topologies.ring(3)
    made = karate.network(Normalized("SAGE", 34, 8, 4).double(), clients, between="keep")
    looped, batched = (
        trained(made, clients, graph, executor=executor) for executor in ("looped", "batched")
    )
    torch.testing.assert_close(batched.models.flat, looped.models.flat, rtol=0, atol=1e-12)


def test_clients_of_several_subgraphs_are_looped(karate):
    """The clients of the run are not those of the network: their subgraphs are others."""
    model = karate.network(network("SAGE", 34, 4), karate.communities(3, seed=0))
    others, graph = data.iid(karate.dataset, 3, seed=0, test_fraction=0.2), topologies.ring(3)
    auto, looped = (trained(model, others, graph, executor=e) for e in ("auto", "looped"))
    assert torch.equal(auto.models.flat, looped.models.flat)
    with pytest.raises(ValueError, match="cannot be padded"):
        trained(model, others, graph, executor="batched")
    assert model.alike, "the run changes a copy"


def test_edges_between_clients_are_left_out_or_kept(karate):
    clients = karate.communities(3, seed=0)
    module = network("GCN", 34, 4).float()
    numbers = torch.arange(34)[:, None]
    whole = module(karate.features, karate.edges)
    kept = karate.network(module, between="keep")
    torch.testing.assert_close(kept(numbers), whole)
    torch.testing.assert_close(kept(numbers[[5, 2]]), whole[[5, 2]])
    dropped = karate.network(module, clients)
    owner = np.zeros(34, dtype=int)
    for part in (clients.train, clients.test):
        for i, own in enumerate(part):
            owner[own] = i
    inside = torch.from_numpy(owner[karate.edges[0]] == owner[karate.edges[1]])
    assert 0 < inside.sum() < karate.edges.shape[1]
    torch.testing.assert_close(dropped(numbers), module(karate.features, karate.edges[:, inside]))
    for order in ([5, 33, 2], [7]):
        torch.testing.assert_close(dropped(numbers[order]), dropped(numbers)[order])


def test_communities_are_those_of_louvain_and_balanced(karate):
    clients = karate.communities(2, seed=0)
    sizes = [len(a) + len(b) for a, b in zip(clients.train, clients.test, strict=True)]
    assert sum(sizes) == 34
    assert min(sizes) >= 10
    again = karate.communities(2, seed=0)
    assert all(map(np.array_equal, clients.train, again.train))
    owner = np.zeros(34, dtype=int)
    owner[np.concatenate([clients.train[1], clients.test[1]])] = 1
    inside = (owner[karate.edges[0]] == owner[karate.edges[1]]).mean()
    share = max(sizes) / 34
    assert inside > share**2 + (1 - share) ** 2 + 0.2, "more edges are inside than by chance"


def test_a_higher_resolution_finds_more_communities(karate):
    clients = karate.communities(10, seed=0, resolution=3.0)
    assert clients.n == 10
    assert min(clients.sizes) >= 1


def test_graphs_are_shown_by_their_sizes(karate):
    assert repr(karate) == (
        "GraphData('karate', vertices=34, edges=156, features=(34,), n_classes=4, train=27, "
        "val=0, test=7)"
    )
    vertices, edges = (sum(map(count, graphs(4))) for count in (lambda g: len(g.x), edges_of))
    assert repr(data.from_pyg(graphs(4), test=0.5)) == (
        f"GraphData('graph', graphs=4, vertices={vertices}, edges={edges}, features=(1,), "
        "n_classes=2, train=2, val=0, test=2)"
    )


def edges_of(graph):
    return graph.edge_index.shape[1]


def graphs(count=24):
    """Return rings of class 0 and stars of class 1, of different sizes."""
    rng, found = np.random.default_rng(0), []
    for k in range(count):
        n = int(rng.integers(5, 9))
        made = topologies.ring(n) if k % 2 == 0 else topologies.star(n)
        edges = np.array(made.adjacency.nonzero())
        degrees = torch.tensor(made.in_degrees[:, None]).float()
        found.append(Data(x=degrees, edge_index=torch.from_numpy(edges), y=torch.tensor([k % 2])))
    return found


def test_whole_graphs_are_classified():
    every = data.from_pyg(graphs(), test=0.25)
    assert every.dataset.inputs.shape == (24, 1)
    clients = data.iid(every.dataset, 3, seed=0)
    module = network("GIN", 1, 2)
    model = every.network(module)
    zeros = [torch.zeros(len(one.x), dtype=torch.int64) for one in graphs()]
    pairs = zip(graphs(), zeros, strict=True)
    single = torch.cat([module(one.x.double(), one.edge_index, zero) for one, zero in pairs])
    double = copy.deepcopy(model).double()
    order = torch.tensor([[3], [20], [3], [0]])
    torch.testing.assert_close(double(order), single[order[:, 0]])
    history = trained(model, clients, topologies.ring(3))
    assert history["loss"][-1].mean() < history["loss"][0].mean()
    with pytest.raises(ValueError, match="`communities` needs one graph"):
        every.communities(2, seed=0)


def test_masks_of_the_graph_are_its_split():
    graph = KarateClub()[0]
    graph.test_mask = torch.arange(34) >= 30
    dataset = data.from_pyg(graph).dataset
    assert dataset.train.tolist() == graph.train_mask.nonzero().view(-1).tolist()
    assert dataset.test.tolist() == [30, 31, 32, 33]


def test_refused(karate):
    graph, module = KarateClub()[0], nn.Linear(34, 4)
    clients, half = karate.communities(3, seed=0), data.iid(karate.dataset, 2, seed=0)
    other = data.from_pyg(graph, test=0.2)

    def pyg(**changes):
        fields = {"x": graph.x, "edge_index": graph.edge_index, "y": graph.y}
        return lambda: data.from_pyg(Data(**fields | changes))

    for message, call in {
        "`graphs` must have at least one graph": lambda: data.from_pyg([]),
        "nodes from 0 to 33, got 1 to 34": pyg(edge_index=graph.edge_index + 1),
        "must have one class per node": pyg(y=graph.y[:3]),
        r"`graphs\[0\].y` must have one class, got": lambda: data.from_pyg([graph]),
        r"must be integers of shape \(2, E\)": pyg(edge_index=graph.edge_index.T),
        "must have edges without numbers, .* got edge_attr": pyg(edge_attr=graph.x),
        r"communities, 4, got 20; use n=4, a `resolution` above 1,": lambda: karate.communities(
            20, seed=0
        ),
        "`resolution` must be .* above 0": lambda: karate.communities(3, seed=0, resolution=0),
        "`clients` must be a partition of this graph": lambda: karate.network(module),
        r"test, too, .* but 7 are of no .* or remove these masks": lambda: karate.network(
            module, half
        ),
        "must be a partition of this graph": lambda: other.network(module, clients),
        "`between` must be one of": lambda: karate.network(module, clients, between="cut"),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match=r"`graphs` must be a torch_geometric.data.Data"):
        data.from_pyg(graph.x)
    with pytest.raises(TypeError, match=r"got GraphData; give its `.dataset`"):
        data.iid(karate, 3, seed=0)
    with pytest.raises(TypeError, match=r"got GraphData; divide .* by its .communities\(10"):
        trained(karate.network(network("GCN", 34, 4), clients), karate, topologies.ring(3))
    with pytest.raises(ValueError, match=r"let graphs = data.from_pyg\(...\) make the clients"):
        trained(network("GCN", 34, 4), clients, topologies.ring(3))
    with pytest.raises(TypeError, match=r"`module` must be a torch.nn.Module"):
        karate.network(3, clients)
