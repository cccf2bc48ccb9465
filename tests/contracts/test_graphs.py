"""What holds for the graphs of every generator, and for single graphs of which facts are known."""

import inspect
import math
from functools import cache

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from analysis.gallery import EXAMPLES, example
from tests import problems
from tests.rows.topologies import (
    KNOWN,
    NAMED,
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
from topofl import TopologySequence, metrics, mixing, topologies
from topofl._spec import build_topology
from topofl._support.calls import parse_spec
from topofl.topologies import greedy_swap_trace
from topofl.topology import Topology, TopologyError, as_topology


def test_rows_are_of_generators():
    assert set(ROWS) <= set(topologies.__all__)


def test_a_generator_without_a_row_is_tried_on_its_examples():
    row = row_of_examples(("exponential:16,directed=true", "exponential:8,directed=true"))
    assert row.directed({})
    assert not row.own_weights
    assert not row.redrawn
    assert row_of_examples(("od_equidyn:12,seed=0",)).redrawn


@every_generator
@given(data=st.data())
def test_graphs_are_simple_read_only_and_as_declared(name, data):
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
        names = ("data", "indices", "indptr")
        for array in (member.edge_index, *(getattr(member.adjacency, name) for name in names)):
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
def test_same_arguments_same_graph_and_no_global_generator(name, data):
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
def test_seeds_are_required_keywords(name):
    parameters = inspect.signature(getattr(topologies, name)).parameters
    if "seed" in parameters:
        assert parameters["seed"].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters["seed"].default is inspect.Parameter.empty
    assert not parameters or next(iter(parameters)) in ("n", "label_counts", "base", "reward")


@every_generator
@given(data=st.data())
def test_a_generator_as_seed_is_used_as_it_is(name, data):
    arguments = data.draw(row_of(name).arguments)
    if "seed" not in arguments:
        return
    if isinstance(getattr(topologies, name)(**arguments), TopologySequence):
        # A round may not depend on which rounds were drawn before it.
        with pytest.raises(TypeError, match="`seed` must be an integer"):
            getattr(topologies, name)(**arguments | {"seed": np.random.default_rng(0)})
        return
    rng, twin = np.random.default_rng(arguments["seed"]), np.random.default_rng(arguments["seed"])
    graph = getattr(topologies, name)(**arguments | {"seed": rng})
    assert same(graph, getattr(topologies, name)(**arguments | {"seed": twin}))
    assert "seed=Generator" in graph.name
    assert rng.bit_generator.state == twin.bit_generator.state
    fresh = np.random.default_rng(arguments["seed"])
    assert graph.n < 3 or rng.bit_generator.state != fresh.bit_generator.state


@problems.by_turns(2, 1, name=topologies.__all__)
@given(data=st.data())
def test_names_are_the_calls_that_made_the_graphs(name, data):
    arguments = data.draw(row_of(name).arguments)
    graph = getattr(topologies, name)(**arguments)
    if "label_counts" in arguments:
        n, classes = arguments["label_counts"].shape
        assert graph.name.startswith(f"{name}(label_counts[{n}x{classes}], ")
    elif "trace" in arguments:
        n_rounds, n = len(arguments["trace"]), graph.n
        assert graph.name == f"{name}({arguments['base'].name}, trace[{n_rounds}x{n}])"
    else:
        again = called(graph.name, **arguments)
        assert all(same(a, b) for a, b in zip(rounds(graph), rounds(again), strict=True))
        if not isinstance(graph, Topology):  # whose only round is itself
            assert all(same(a, called(a.name, **arguments)) for a in rounds(graph))


@problems.by_turns(2, name=topologies.__all__)
@given(data=st.data())
def test_relabelling_leaves_spectra_unchanged(name, data):
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
def test_greedy_swap_keeps_a_partition_and_never_adds_skew(arguments):
    graph = topologies.greedy_swap(**arguments)
    n, size = n_of(arguments), arguments["clique_size"]
    assert sorted(node for group in graph.groups for node in group) == list(range(n))
    sizes = [size] * (n // size) + [n % size] * (n % size > 0)
    assert [len(group) for group in graph.groups] == sizes
    unswapped = topologies.greedy_swap(**arguments | {"steps": 0})
    assert unswapped.groups == topologies.random_cliques(n, size, seed=arguments["seed"]).groups


@given(counts=label_counts(least=2), data=st.data())
def test_the_trace_belongs_to_the_swap_and_its_total_never_grows(counts, data):
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


MEASURES = {
    "edges": lambda graph, W: graph.n_edges,
    "degree": lambda graph, W: graph.out_degrees.mean(),
    "diameter": lambda graph, W: graph.diameter,
    "gap": lambda graph, W: W.spectral_gap,
    "slem": lambda graph, W: W.slem,
}


@pytest.mark.parametrize(("graph", "facts"), KNOWN, ids=lambda value: getattr(value, "name", ""))
def test_facts_of_single_graphs(graph, facts):
    first, facts = graph.at(0), dict(facts)
    if "twin" in facts:
        directed = (nx.DiGraph(one) for one in (first.to_networkx(), facts.pop("twin")))
        assert nx.is_isomorphic(*directed)
    rounds, exact = facts.pop("rounds", None), facts.pop("exact", False)
    for name, value in facts.items():
        found = MEASURES[name](first, mixing.metropolis_or_uniform(first))
        assert found == pytest.approx(value, rel=0, abs=5e-7 if name == "slem" else 1e-12), name
    if rounds is not None:
        assert graph.period == rounds
        for start in range(rounds):  # any consecutive period
            product = np.eye(graph.n)
            for t in range(start, start + rounds):
                product = mixing.metropolis_or_uniform(graph.at(t)) @ product
            assert np.abs(product - 1 / graph.n).max() <= (0 if exact else 1e-14)


@pytest.mark.parametrize(("graph", "name"), NAMED, ids=lambda value: getattr(value, "name", ""))
def test_names_of_single_graphs(graph, name):
    assert graph.name == name


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.redrawn])
def test_rounds_are_pure_in_seed_and_t_and_differ(name):
    _, arguments = parse_spec(topologies.GENERATORS[name].examples[0])
    graphs, again, other = (
        build_topology(name, arguments | {"seed": seed}).value for seed in (1, 1, 2)
    )
    later = [again.at(t) for t in reversed(range(6))][::-1]  # the last is asked for first
    rounds = [graphs.at(t) for t in range(6)]
    assert all(same(a, b) for a, b in zip(rounds, later, strict=True))
    assert any((rounds[0].adjacency != one.adjacency).nnz for one in rounds[1:])
    assert any((other.at(t).adjacency != rounds[t].adjacency).nnz for t in range(6))


# What spectra declare is what averaging does, for one graph of every family


GRAPHS = {name: example(spec) for name, spec in EXAMPLES.items()}
PERIODIC = [name for name, graph in GRAPHS.items() if graph.period]
RANDOM = [name for name, graph in GRAPHS.items() if not graph.period]

ROUNDS = 400


def test_every_family_is_here():
    assert len(PERIODIC) + len(RANDOM) == len(EXAMPLES) > 40


@pytest.mark.parametrize("name", PERIODIC)
def test_declared_contraction_is_measured(name):
    graph = GRAPHS[name]
    declared = metrics.slem(graph)
    rounds = math.ceil(ROUNDS / graph.period) * graph.period
    measured = metrics.measured_contraction(graph, rounds=rounds, seed=0)
    # What a random start hides, in or outside the slowest direction, is a constant: to the power 1
    # / rounds, under 1 %.
    assert measured == pytest.approx(declared, rel=0.01, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in PERIODIC if isinstance(GRAPHS[name], Topology)])
def test_one_exchange_shrinks_at_most_by_the_declared_sigma(name):
    graph = GRAPHS[name]
    if not mixing.metropolis_or_uniform(
        graph
    ).is_doubly_stochastic:  # directed and not regular: learned graphs
        with pytest.raises(TopologyError, match="needs a doubly stochastic matrix"):
            metrics.sigma(graph)
        return
    sigma = metrics.sigma(graph)
    once = metrics.measured_contraction(graph, rounds=1, burn_in=0, seed=1)
    assert metrics.slem(graph) <= sigma + 1e-9
    assert once <= sigma + 1e-9
    assert 1 - metrics.expected_gap(graph) == pytest.approx(sigma**2, abs=1e-9)


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.slow
def test_the_expected_gap_bounds_what_random_graphs_do(name):
    graph = GRAPHS[name]
    # both look at the same rounds
    drawn_once = cache(lambda t: mixing.metropolis_or_uniform(graph.at(t)))
    matrices = mixing.MixingSequence(graph.n, drawn_once, graph.name)
    factor = math.sqrt(1 - metrics.expected_gap(matrices, rounds=ROUNDS))
    measured = metrics.measured_contraction(matrices, rounds=ROUNDS, seed=0)
    # Jensen: the mean logarithm lies below the logarithm of the root mean square, which the gap
    # bounds.
    assert measured <= factor * 1.02
    assert measured > 0
