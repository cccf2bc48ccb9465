"""Malformed or oversized input is refused instead of crashing the process."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
import torch

from topofl import data, history, metrics, mixing, topologies
from topofl._spec import parameters
from topofl._support.check import NODES_LIMIT
from topofl.topology import Topology, TopologySequence, as_topology, from_edges


def crafted(form: str, bad: int) -> Any:
    """Return a sparse matrix whose entries lie elsewhere than its shape allows."""
    matrix = sparse.coo_array(topologies.ring(6).to_scipy()).asformat(form)
    if form == "coo":
        matrix.coords[0][0] = bad
    elif form == "lil":
        matrix.rows[0][0] = bad
    else:
        matrix.indices[0] = bad
    return matrix


def with_pointers(pointers: list[int]) -> sparse.csr_array:
    matrix = sparse.csr_array(topologies.ring(3).to_scipy())
    matrix.indptr = np.array(pointers, dtype=np.int32)
    return matrix


CRAFTED = [
    *(
        crafted(form, bad)
        for form in ("csr", "csc", "coo", "lil", "bsr")
        for bad in (10**8, -(10**8))
    ),
    with_pointers([0, 2, 10**8, 6]),
    with_pointers([0, 10**8, 0, 0]),
    with_pointers([0, 2, 4, 10**8]),
    with_pointers([-(10**8), 2, 4, 6]),
    with_pointers([0, -1, -1, -1]),
    with_pointers([0, 6]),
]


@pytest.mark.parametrize("matrix", CRAFTED, ids=lambda matrix: matrix.format)
@pytest.mark.parametrize(
    "door",
    [
        Topology,
        as_topology,
        lambda matrix: as_topology(matrix, drop_self_loops=True),
        lambda matrix: as_topology([matrix], own_weights=True),
        mixing.MixingMatrix,
        mixing.from_weights,
        lambda matrix: mixing.from_weights(matrix, edges="u->v"),
    ],
)
def test_indices_outside_of_sparse_matrices_are_refused(matrix: Any, door: Any) -> None:
    with pytest.raises(
        ValueError, match=r"must be a well-formed sparse matrix, got .*; build it again"
    ):
        door(matrix)


def test_lists_of_lists_with_more_places_than_values_are_refused() -> None:
    matrix = sparse.lil_array(topologies.ring(6).to_scipy())
    matrix.rows[0] = [0, 1] * 10_000
    with pytest.raises(ValueError, match="`rows` that do not fit its `data`"):
        Topology(matrix)


def test_edges_of_pyg_of_other_shapes_are_refused(data_class: type) -> None:
    with pytest.raises(ValueError, match=r"`edge_index` must have shape \(2, E\), .* got \(3, 2\)"):
        as_topology(data_class(edge_index=torch.zeros((3, 2), dtype=torch.long), num_nodes=3))
    with pytest.raises(ValueError, match="`num_nodes` must be at most 10,000,000"):
        as_topology(data_class(edge_index=torch.tensor([[0], [1]]), num_nodes=2**40))
    learned = data_class(
        edge_index=torch.tensor([[0], [1]]),
        edge_weight=torch.tensor([0.5], requires_grad=True),
        num_nodes=2,
    )
    assert as_topology(learned).adjacency[0, 1] == 0.5


@pytest.mark.parametrize("node", [10**7, 10**9, 2**40, 2**63, 10**30, 10**5000], ids=int.bit_length)
def test_edge_lists_are_refused_by_their_size(node: int) -> None:
    with pytest.raises(
        ValueError, match=r"`graph` must have nodes below 10,000,000, .*; number them 0..n-1"
    ):
        as_topology([(0, node)])
    with pytest.raises(ValueError, match="`n` must be at most 10,000,000"):
        from_edges([(0, 1)], node + 1)
    with pytest.raises(ValueError, match="`n` must be at most 10,000,000"):
        TopologySequence(node + 1, lambda t: topologies.ring(3))
    assert as_topology(nx.Graph([(0, node)])).nodes == (0, node)


def test_matrices_are_refused_by_their_size() -> None:
    matrix = sparse.coo_array(([1.0], ([0], [1])), shape=(2**40, 2**40))
    for door in (Topology, as_topology, mixing.from_weights):
        with pytest.raises(ValueError, match="must be at most 10,000,000"):
            door(matrix)


SIZED = [name for name in topologies.__all__ if "n" in parameters(getattr(topologies, name))]


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (lambda: topologies.fully_connected(10**6), "`n` must"),
        (lambda: topologies.complete_bipartite(10**6), "`n` and `left`"),
        (lambda: topologies.hypercube(2**23), "`n` must"),
        (lambda: topologies.circulant(10**6, range(1, 1000)), "`n` and `offsets`"),
        (lambda: topologies.exponential(10**7), "`n` must"),
        (lambda: topologies.one_peer_exponential(10**7), "`n` must .* per period"),
        (lambda: topologies.p_peer_exponential(10**6, 1000), "`n` and `p` .* per period"),
        (lambda: topologies.random_regular(10**6, 1000, seed=0), "`n` and `k`"),
        (lambda: topologies.random_regular(20_000, 19_999, seed=0), "`n` and `k`"),
        (lambda: topologies.erdos_renyi(10**6, p=0.5, seed=0), "`n` and `p`"),
        (lambda: topologies.small_world(10**6, 1000, seed=0), "`n` and `k`"),
        (lambda: topologies.barabasi_albert(10**6, 1000, seed=0), "`n` and `m`"),
        (
            lambda: topologies.stochastic_block_model(10**6, 2, p_in=0.5, p_out=0.1, seed=0),
            "`p_in` and `p_out`",
        ),
        (lambda: topologies.random_out(10**6, 1000, seed=0), "`n` and `k` .* per round"),
        (lambda: topologies.random_in(10**6, 1000, seed=0), "`n` and `k` .* per round"),
        (lambda: topologies.random_regular_sequence(10**6, 1000, seed=0), "`n` and `k`"),
        (lambda: topologies.erdos_renyi_sequence(10**6, p=0.5, seed=0), "`n` and `p` .* per round"),
        (lambda: topologies.d_equistatic(10**6, 1000, seed=0), "`n` and `m`"),
        (lambda: topologies.u_equistatic(10**6, 1000, seed=0), "`n` and `m`"),
        (lambda: topologies.random_cliques(10**6, 10**6, seed=0), "`n` and `clique_size`"),
        (lambda: topologies.base_graph(10**6, 1000), "`n` and `k` .* per round"),
        (lambda: topologies.hyper_hypercube(10**6, 1000), "`n` and `k` .* per round"),
    ],
)
def test_generators_are_refused_by_their_edges(make, arguments):
    with pytest.raises(ValueError, match=arguments) as refused:
        make()
    assert "at most 50,000,000 edges" in str(refused.value)


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("n", [10**8, 10**30, 10**5000], ids=int.bit_length)
def test_generators_are_refused_by_their_size(name: str, n: int) -> None:
    generator = getattr(topologies, name)
    needed = {
        key: (lambda node, members: 0.0)
        if key == "reward"
        else 1
        if key == "seed"
        else 0.5
        if key in ("p", "p_in", "p_out")
        else 2
        for key, parameter in parameters(generator).items()
        if parameter.default is parameter.empty and key != "n"
    }
    with pytest.raises(
        ValueError, match=r"`n` must be at most 10,000,000, .* got (1000000|about 10)"
    ):
        generator(**needed, n=n)


def test_other_sizes_and_numbers_beyond_all_arrays_are_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match="`steps` must be between 0 and 9223372036854775807, got 1000000"
    ):
        topologies.greedy_swap(n=20, steps=10**30, seed=0)
    for p, shown in ((10**400, "inf"), (-(10**400), "-inf")):
        with pytest.raises(ValueError, match=f"`p` must be between 0 and 1, got {shown}"):
            topologies.erdos_renyi(10, p, seed=0)
    assert topologies.erdos_renyi(10, 0.5, seed=10**30).n == 10  # seeds are no sizes


@pytest.mark.parametrize("label", [10**6, 2**40])
def test_labels_are_refused_by_their_size(label: int) -> None:
    with pytest.raises(
        ValueError, match=r"`y` must be below 1,000,000, .* got \d+ at index 1; number the classes"
    ):
        data.from_arrays(np.zeros((3, 2)), [0, label, 1])
    with pytest.raises(ValueError, match="`n_classes` must be between 1 and 1000000"):
        data.from_arrays(np.zeros((3, 2)), [0, 1, 1], n_classes=label + 1)


def test_the_largest_size_is_fine() -> None:
    assert from_edges([(0, NODES_LIMIT - 1)], NODES_LIMIT).n_edges == 1


MASKED = np.ma.masked_array([[0.0, 1.0], [1.0, 0.0]], mask=[[False, True], [False, False]])


@pytest.mark.parametrize(
    "door",
    [
        Topology,
        as_topology,
        lambda array: as_topology([array, array]),
        lambda array: as_topology(list(array)),
        lambda array: from_edges(array.astype(int), 3),
        mixing.MixingMatrix,
        mixing.from_weights,
        mixing.average_of_chosen,
        lambda array: mixing.average_of(array[0]),
        lambda array: topologies.greedy_swap(array.astype(int) + 1, clique_size=2, seed=0),
        lambda array: topologies.remove_edges(topologies.ring(3), array.astype(int)),
        lambda array: topologies.ring(2).plot(positions=array),
        lambda array: topologies.ring(2).plot(label_counts=array),
        lambda array: data.from_arrays(array, [0, 1]),
        lambda array: data.from_arrays(np.zeros((2, 1)), array[0].astype(int)),
        metrics.consensus_distance,
        lambda array: metrics.clique_skew([array[0].astype(int)], np.ones((2, 2), int)),
        lambda array: history.Personal.of(array[0]),
    ],
)
def test_masked_entries_are_refused(door: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"must have no masked entries, got \d+; replace them first, as in array.fil",
    ):
        door(MASKED)


def test_arrays_without_masked_entries_are_taken() -> None:
    assert as_topology(np.ma.masked_array([[0, 1], [1, 0]])).n_edges == 1


def test_groups_may_come_from_a_generator():
    graph = from_edges([(0, 1), (2, 3)], 4, groups=(range(k, k + 2) for k in (0, 2)))
    assert graph.groups == ((0, 1), (2, 3))
