"""What every weight rule promises, over random graphs."""

from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st

from tests.rows.topologies import graphs, seeds
from topofl import mixing, topologies
from topofl._linalg import second, spectral
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologyError, from_edges


def halved(graph: Topology) -> Topology:
    """Give each node half of its weight to itself, half to those it hears, where it hears any."""
    share = 0.5 / np.maximum(graph.in_degrees, 1)
    shared = sparse.csr_array(graph.adjacency.multiply(share[None, :]))
    return Topology(shared, name=graph.name, own_weights=True)


@dataclass(frozen=True)
class Rule:
    weigh: Callable[[Topology], MixingMatrix]
    stochasticity: set[str]
    takes_directed: bool = False
    all_edges: bool = True  # every edge has a positive weight


RULES = {
    "metropolis_hastings": Rule(mixing.metropolis_hastings, {"doubly stochastic"}),
    "max_degree": Rule(mixing.max_degree, {"doubly stochastic"}),
    "weighted_metropolis": Rule(mixing.weighted_metropolis, {"doubly stochastic"}),
    "uniform-pull": Rule(
        mixing.uniform, {"row stochastic", "doubly stochastic"}, takes_directed=True
    ),
    "uniform-push": Rule(
        lambda graph: mixing.uniform(graph, direction="push"),
        {"column stochastic", "doubly stochastic"},
        True,
    ),
    "metropolis_or_uniform": Rule(
        mixing.metropolis_or_uniform, {"row stochastic", "doubly stochastic"}, True
    ),
    "lazy": Rule(
        lambda graph: mixing.lazy(mixing.metropolis_hastings(graph), share=0.25),
        {"doubly stochastic"},
    ),
    "lazy-pull": Rule(
        lambda graph: mixing.lazy(mixing.uniform(graph)),
        {"row stochastic", "doubly stochastic"},
        takes_directed=True,
    ),
    "own_weights": Rule(
        lambda graph: mixing.own_weights(halved(graph)),
        {"row stochastic", "doubly stochastic"},
        takes_directed=True,
    ),
    "within_groups": Rule(
        mixing.within_groups, {"row stochastic", "doubly stochastic"}, all_edges=False
    ),
}
NOT_RULES = {"MixingMatrix", "MixingSequence", "average_of", "average_of_chosen", "from_weights"}

every_rule = pytest.mark.parametrize("name", RULES)


def draw_graph(data: st.DataObject, name: str) -> Topology:
    directed = None if RULES[name].takes_directed else False
    return data.draw(graphs(directed=directed, groups=name == "within_groups"))


def test_every_rule_has_a_row():
    assert {name.split("-")[0] for name in RULES} == set(mixing.__all__) - NOT_RULES


@every_rule
@given(data=st.data())
def test_entries_sums_and_support(name, data):
    rule, graph = RULES[name], draw_graph(data, name)
    W = rule.weigh(graph)
    assert W.n == graph.n
    assert (W.weights.data > 0).all()
    assert W.stochasticity in rule.stochasticity
    assert W.check_on(graph) is W
    assert (W.weights.diagonal() > 0).all()
    if rule.all_edges:
        assert (W.support().adjacency != graph.adjacency).nnz == 0
    if name in ("metropolis_hastings", "max_degree", "lazy"):
        assert W.is_symmetric


def second_of_blocks(weights: sparse.csr_array) -> float:
    """Return the second largest modulus over the strongly connected classes, by numpy.

    Numpy on all of them at once can be far off.
    """
    graph = nx.from_scipy_sparse_array(weights, create_using=nx.DiGraph)
    classes = map(sorted, nx.strongly_connected_components(graph))
    values = [np.linalg.eigvals(weights[c][:, c].toarray()) for c in classes]
    return float(np.sort(np.abs(np.concatenate(values)))[-2])


@every_rule
@given(data=st.data())
def test_eigenvalues_and_gap(name, data):
    """All weights leave something on the diagonal, so mixing is aperiodic.

    Then the gap is positive if and only if one closed class of nodes is heard, directly or not, by
    all (pull), or takes in what all have (push); for undirected graphs: if the graph is connected.
    """
    graph = draw_graph(data, name)
    W = RULES[name].weigh(graph)
    values = W.eigenvalues
    assert values[0] == pytest.approx(1, abs=1e-9)
    assert (np.abs(values) <= 1 + 1e-9).all()
    assert W.slem == pytest.approx(second_of_blocks(W.weights) if W.n > 1 else 0, abs=1e-7)
    matrix = W.weights if W.is_row_stochastic else W.weights.T
    arcs = nx.from_scipy_sparse_array(matrix, create_using=nx.DiGraph)
    classes = nx.number_attracting_components(arcs)
    assert (W.spectral_gap > 1e-6) == (classes == 1)
    if not graph.is_directed and RULES[name].all_edges:
        assert (W.spectral_gap > 1e-6) == graph.is_connected
    if name.startswith("lazy") and W.is_symmetric:
        assert values.min() >= (-0.5 if name == "lazy" else 0) - 1e-9  # share - (1 - share)


@every_rule
@given(data=st.data())
def test_what_an_exchange_keeps(name, data):
    W = RULES[name].weigh(draw_graph(data, name))
    x = np.random.default_rng(data.draw(seeds)).standard_normal((W.n, 3))
    if W.is_column_stochastic:
        assert np.allclose((W @ x).sum(axis=0), x.sum(axis=0), rtol=0, atol=1e-12)
    if W.is_row_stochastic:
        assert np.allclose(W @ np.ones((W.n, 2)), 1, rtol=0, atol=1e-12)
    if W.is_doubly_stochastic:
        assert np.allclose((W @ x).mean(axis=0), x.mean(axis=0), rtol=0, atol=1e-12)
        spread = np.linalg.norm(x - x.mean(axis=0))
        assert np.linalg.norm(W @ x - x.mean(axis=0)) <= spread * spectral.sigma(W.weights) + 1e-9


@every_rule
@given(data=st.data())
def test_rules_refuse_directed_graphs_or_take_them(name, data):
    graph = data.draw(graphs(directed=True, groups=name == "within_groups"))
    if graph.is_directed and not RULES[name].takes_directed:
        with pytest.raises(TopologyError, match="needs an undirected graph"):
            RULES[name].weigh(graph)
    else:
        assert RULES[name].weigh(graph).n == graph.n


@given(graph=graphs(directed=False))
def test_metropolis_hastings_is_its_equation(graph):
    """D-Cliques, equation 2, and the diagonal it implies: at least 1 / (deg_i + 1)."""
    W, degree = mixing.metropolis_hastings(graph).weights.toarray(), graph.out_degrees
    for i in range(graph.n):
        for j in graph.in_neighbors(i):
            assert W[i, j] == pytest.approx(1 / (max(degree[i], degree[j]) + 1), abs=1e-12)
        assert W[i, i] == pytest.approx(1 - W[i].sum() + W[i, i], abs=1e-12)
        assert W[i, i] >= 1 / (degree[i] + 1) - 1e-12


@given(graph=graphs())
def test_uniform_push_is_pull_on_the_reversed_graph(graph):
    reverse = Topology(graph.adjacency.T)
    push = mixing.uniform(graph, direction="push").weights
    pull = mixing.uniform(reverse, direction="pull").weights
    assert np.allclose(push.toarray(), pull.T.toarray(), rtol=0, atol=1e-15)


def circulant_slem(n: int, offsets: list[int]) -> float:
    """Return the second modulus of uniform weights on i -> i + offset, by the Fourier transform."""
    row = np.zeros(n)
    row[[0, *(np.array(offsets) % n)]] = 1 / (1 + len(offsets))
    return float(np.sort(np.abs(np.fft.fft(row)))[-2])


LARGE = 2000  # above DENSE_LIMIT, so found iteratively
POWERS = [2**e for e in range(11)]
ODD = [int(d) for d in np.random.default_rng(0).choice(np.arange(1, LARGE), size=6, replace=False)]


def circulant(n: int, offsets: list[int]) -> Topology:
    start = np.arange(n)
    edges = np.concatenate([np.stack([start, (start + d) % n], axis=1) for d in offsets])
    return from_edges(edges, n, directed=True)


def relabelled(graph: Topology) -> Topology:
    """Return the same graph with its nodes in random order: what was circulant no longer is."""
    order = np.random.default_rng(0).permutation(graph.n)
    return from_edges(order[graph.edge_index.T], graph.n, directed=graph.is_directed)


@pytest.mark.parametrize(
    ("graph", "slem", "solver"),
    [
        (topologies.ring(LARGE), (1 + 2 * np.cos(2 * np.pi / LARGE)) / 3, "shift-invert"),
        (topologies.torus(LARGE), (3 + 2 * np.cos(2 * np.pi / 50)) / 5, "lanczos"),
        (topologies.star(LARGE), 1 - 1 / LARGE, "lanczos"),
        (
            topologies.exponential(LARGE),
            circulant_slem(LARGE, [*POWERS, *(-d for d in POWERS)]),
            "lanczos",
        ),
        (topologies.exponential(2048, directed=True), 1 - 2 / 12, "arnoldi"),
        (circulant(LARGE, ODD), circulant_slem(LARGE, ODD), "arnoldi"),
        (
            circulant(LARGE, [1]),
            np.cos(np.pi / LARGE),
            "shift-invert",
        ),  # where plain Arnoldi does not converge
    ],
    ids=[
        "ring",
        "torus",
        "star",
        "exponential",
        "directed exponential",
        "random circulant",
        "directed ring",
    ],
)
def test_iterative_spectra_equal_closed_forms(graph, slem, solver, monkeypatch):
    assert graph.n > spectral.DENSE_LIMIT
    monkeypatch.setattr(spectral, "STEPS", 500)  # enough for all but the rings
    W = mixing.metropolis_or_uniform(relabelled(graph))
    assert W.slem_solution.solver == solver
    assert W.slem_solution.residual < 1e-8
    assert W.spectral_gap == pytest.approx(1 - slem, abs=1e-8)
    assert W.slem == pytest.approx(slem, abs=1e-12)
    if solver != "lanczos" or graph.name.startswith("exponential"):
        straight = mixing.metropolis_or_uniform(graph).slem_solution
        assert straight.solver == "circulant DFT"
        assert straight.residual < 1e-13
        assert straight.value == pytest.approx(slem, abs=1e-12)


@pytest.mark.parametrize(("steps", "solver"), [(300, "shift-invert"), (3000, "lanczos")])
def test_iterative_spectra_of_slow_graphs_with_negative_eigenvalues(steps, solver, monkeypatch):
    """W = half to each neighbor on a ring: -1 is an eigenvalue for even n, and nearly for odd n."""
    monkeypatch.setattr(spectral, "STEPS", steps)
    for n, slem in ((LARGE, 1.0), (LARGE + 1, np.cos(np.pi / (LARGE + 1)))):
        W = mixing.from_weights(relabelled(topologies.ring(n)).to_scipy() / 2)
        assert W.slem_solution.solver == solver
        assert W.slem == pytest.approx(slem, abs=1e-12)


def test_eigenvalues_near_one_are_not_taken_for_the_largest_without_proof():
    """The second modulus of a bipartite expander is near -1, far from eigenvalues near 1."""
    half = topologies.random_regular(150, 6, seed=0).to_scipy()
    bipartite = sparse.csr_array(sparse.block_array([[None, half], [half, None]]) / 6)
    W = mixing.lazy(mixing.from_weights(bipartite), share=0.02)
    assert second.second_near_one(W.weights).value == pytest.approx(0.96, abs=1e-12)


def test_eigenvalues_near_one_are_enough_for_slow_graphs():
    # not symmetric, since the ends have fewer neighbors
    W = mixing.uniform(topologies.grid(60, rows=1))
    assert second.second_near_one(W.weights).value == pytest.approx(W.slem, abs=1e-12)


def test_iterative_spectra_of_disconnected_graphs():
    two = from_edges(np.stack([np.arange(0, LARGE, 2), np.arange(1, LARGE, 2)], axis=1), LARGE)
    assert mixing.metropolis_hastings(two).spectral_gap == 0
    assert two.algebraic_connectivity == 0


@pytest.mark.parametrize(
    ("graph", "second"),
    [
        (topologies.ring(LARGE), 2 - 2 * np.cos(2 * np.pi / LARGE)),
        (topologies.grid(LARGE, rows=1), 2 - 2 * np.cos(np.pi / LARGE)),
        (topologies.star(LARGE), 1.0),
    ],
    ids=["ring", "path", "star"],
)
def test_iterative_algebraic_connectivity(graph, second):
    assert graph.algebraic_connectivity == pytest.approx(second, abs=1e-10)
    assert relabelled(graph).algebraic_connectivity == pytest.approx(second, abs=1e-10)


@pytest.mark.parametrize("name", ["ring", "star", "exponential"])
def test_dense_and_iterative_paths_agree(name, monkeypatch):
    graph = relabelled(getattr(topologies, name)(60))
    W, P = mixing.metropolis_hastings(graph), mixing.uniform(graph, direction="push")
    dense = W.slem, P.slem, spectral.sigma(W.weights), graph.algebraic_connectivity
    monkeypatch.setattr(spectral, "DENSE_LIMIT", 10)
    iterative = (
        second.second_modulus(W.weights).value,
        second.second_modulus(P.weights).value,
        spectral.sigma(W.weights),
        spectral.algebraic_connectivity(graph.adjacency),
    )
    assert np.allclose(dense, iterative, rtol=0, atol=1e-9)
