"""Properties of the graphs of every generator."""

import inspect
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.rows.topologies import (
    ROWS,
    called,
    clique_arguments,
    every_generator,
    label_counts,
    n_of,
    rounds,
    row_of,
    row_of_examples,
    same,
    seeds,
    swapping,
)
from topofl import mixing, topologies
from topofl.topologies import greedy_swap_trace
from topofl.topology import Topology, as_topology


def test_rows_are_of_generators() -> None:
    assert set(ROWS) <= set(topologies.__all__)


def test_a_generator_without_a_row_is_tried_on_its_examples() -> None:
    row = row_of_examples(("exponential:16,directed=true", "exponential:8,directed=true"))
    assert row.directed({})
    assert not row.own_weights
    assert not row.redrawn
    assert row_of_examples(("od_equidyn:12,seed=0",)).redrawn


@every_generator
@given(data=st.data())
def test_graphs_are_simple_read_only_and_as_declared(name: str, data: st.DataObject) -> None:
    row = row_of(name)
    arguments = data.draw(row.arguments)
    graph = getattr(topologies, name)(**arguments)
    assert graph.n == (row.n or n_of(arguments))
    union = nx.DiGraph()
    union.add_nodes_from(range(graph.n))
    for member in rounds(graph):
        assert member.n == graph.n
        assert member.adjacency.has_canonical_format  # no edge twice
        assert not member.adjacency.diagonal().any()
        assert member.own_weights == row.own_weights
        if row.own_weights:
            assert (member.adjacency.data > 0).all()
            assert (member.adjacency.sum(axis=0) <= 1 + 1e-9).all()
        else:
            assert (member.adjacency.data == 1).all()
        assert not member.is_directed or row.directed(arguments)
        for array in (
            member.adjacency.data,
            member.adjacency.indices,
            member.adjacency.indptr,
            member.edge_index,
        ):
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0
        union.add_edges_from(member.edge_index.T.tolist())
    assert (graph.period is None) == row.redrawn
    if row.redrawn or row.connected is None:
        return
    assert nx.is_strongly_connected(union) == row.connected(arguments)
    if isinstance(graph, Topology):
        assert graph.is_connected == row.connected(arguments)


@every_generator
@given(data=st.data())
@pytest.mark.slow
def test_same_arguments_same_graph_and_no_global_generator(name: str, data: st.DataObject) -> None:
    arguments = data.draw(row_of(name).arguments)
    before = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    graph = getattr(topologies, name)(**arguments)
    after = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(before[0], after[0], strict=True))  # not moved
    assert torch.equal(before[1], after[1])
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    again = getattr(topologies, name)(**arguments)  # not read
    np.random.set_state(before[0])  # noqa: NPY002
    torch.set_rng_state(before[1])
    assert graph.name == again.name
    assert all(same(a, b) for a, b in zip(rounds(graph), rounds(again), strict=True))


@every_generator
def test_seeds_are_required_keywords(name: str) -> None:
    parameters = inspect.signature(getattr(topologies, name)).parameters
    if "seed" in parameters:
        assert parameters["seed"].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters["seed"].default is inspect.Parameter.empty
    assert not parameters or next(iter(parameters)) in ("n", "label_counts", "base", "reward")


@every_generator
@given(data=st.data())
def test_a_generator_as_seed_is_used_as_it_is(name: str, data: st.DataObject) -> None:
    arguments = data.draw(row_of(name).arguments)
    if "seed" not in arguments:
        return
    if row_of(name).redrawn:  # a round may not depend on which rounds were drawn before it
        with pytest.raises(TypeError, match="`seed` must be an integer"):
            getattr(topologies, name)(**arguments | {"seed": np.random.default_rng(0)})
        return
    rng, twin = np.random.default_rng(arguments["seed"]), np.random.default_rng(arguments["seed"])
    graph = getattr(topologies, name)(**arguments | {"seed": rng})
    assert same(graph, getattr(topologies, name)(**arguments | {"seed": twin}))
    assert "seed=Generator" in graph.name
    assert rng.bit_generator.state == twin.bit_generator.state
    assert (
        graph.n < 3
        or rng.bit_generator.state != np.random.default_rng(arguments["seed"]).bit_generator.state
    )


@every_generator
@given(data=st.data())
def test_names_are_the_calls_that_made_the_graphs(name: str, data: st.DataObject) -> None:
    arguments = data.draw(row_of(name).arguments)
    graph = getattr(topologies, name)(**arguments)
    if "label_counts" in arguments:
        n, classes = arguments["label_counts"].shape
        assert graph.name.startswith(f"{name}(label_counts[{n}x{classes}], ")
    else:
        again = called(graph.name, **arguments)
        assert all(same(a, b) for a, b in zip(rounds(graph), rounds(again), strict=True))
        if not isinstance(graph, Topology):  # whose only round is itself
            assert all(same(a, called(a.name, **arguments)) for a in rounds(graph))


@every_generator
@given(data=st.data())
def test_relabelling_leaves_spectra_unchanged(name: str, data: st.DataObject) -> None:
    arguments = data.draw(row_of(name).arguments)
    graph = rounds(getattr(topologies, name)(**arguments))[0]
    order = np.random.default_rng(data.draw(seeds)).permutation(graph.n)
    relabelled = as_topology(graph.adjacency[order][:, order])
    assert isinstance(relabelled, Topology)
    assert relabelled.n_edges == graph.n_edges
    assert sorted(relabelled.out_degrees) == sorted(graph.out_degrees)
    assert relabelled.diameter == graph.diameter
    if graph.is_directed:
        pull, other = (mixing.uniform(g).weights.toarray() for g in (graph, relabelled))
        assert np.allclose(np.linalg.svdvals(pull), np.linalg.svdvals(other), atol=1e-9)
        return
    weights = [g.adjacency.toarray() for g in (graph, relabelled)]
    spectra = [np.linalg.eigvalsh(np.diag(w.sum(axis=1)) - w) for w in weights]
    assert np.allclose(*spectra, rtol=0, atol=1e-9)
    expected = spectra[0][1] if graph.n > 1 else 0.0
    assert graph.algebraic_connectivity == pytest.approx(expected, abs=1e-9)
    assert relabelled.algebraic_connectivity == pytest.approx(expected, abs=1e-9)
    gaps = [mixing.metropolis_hastings(g).spectral_gap for g in (graph, relabelled)]
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-9)


@given(arguments=clique_arguments(**swapping))
def test_greedy_swap_keeps_a_partition_and_never_adds_skew(arguments: dict[str, Any]) -> None:
    graph = topologies.greedy_swap(**arguments)
    n, size = n_of(arguments), arguments["clique_size"]
    assert sorted(node for group in graph.groups for node in group) == list(range(n))
    assert [len(group) for group in graph.groups] == [size] * (n // size) + [n % size] * (
        n % size > 0
    )
    unswapped = topologies.greedy_swap(**arguments | {"steps": 0})
    assert unswapped.groups == topologies.random_cliques(n, size, seed=arguments["seed"]).groups


@given(counts=label_counts(least=2), data=st.data())
def test_the_trace_belongs_to_the_swap_and_its_total_never_grows(
    counts: np.ndarray, data: st.DataObject
) -> None:
    size, seed = data.draw(st.integers(2, len(counts))), data.draw(seeds)
    how = {key: data.draw(value) for key, value in swapping.items()}
    groups, skews = greedy_swap_trace(counts, size, seed=seed, **how)
    assert groups == topologies.greedy_swap(counts, size, seed=seed, **how).groups
    assert skews.shape == (how["steps"] + 1, len(groups))
    assert (np.diff(skews.sum(axis=1)) <= 1e-9).all()
    assert (skews >= 0).all()
    assert how["distance"] == "kl" or (skews <= 2 + 1e-9).all()
    longer = greedy_swap_trace(counts, size, seed=seed, **how | {"steps": how["steps"] + 5})[1]
    assert np.array_equal(longer[: len(skews)], skews)  # more steps go on along the same path
