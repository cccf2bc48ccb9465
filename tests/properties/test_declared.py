"""What spectra declare is what averaging does, for one graph of every family."""

import math
from functools import cache

import pytest

from analysis.gallery import EXAMPLES, example
from topofl import metrics, mixing
from topofl.topology import Topology, TopologyError

GRAPHS = {name: example(spec) for name, spec in EXAMPLES.items()}
PERIODIC = [name for name, graph in GRAPHS.items() if graph.period]
RANDOM = [name for name, graph in GRAPHS.items() if not graph.period]

ROUNDS = 400


def test_every_family_is_here() -> None:
    assert len(PERIODIC) + len(RANDOM) == len(EXAMPLES) > 40


@pytest.mark.parametrize("name", PERIODIC)
def test_declared_contraction_is_measured(name: str) -> None:
    graph = GRAPHS[name]
    declared = metrics.slem(graph)
    rounds = math.ceil(ROUNDS / graph.period) * graph.period
    measured = metrics.measured_contraction(graph, rounds=rounds, seed=0)
    # What a random start hides, in or outside the slowest direction, is a constant: to the power 1
    # / rounds, under 1 %.
    assert measured == pytest.approx(declared, rel=0.01, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in PERIODIC if isinstance(GRAPHS[name], Topology)])
def test_one_exchange_shrinks_at_most_by_the_declared_sigma(name: str) -> None:
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
def test_the_expected_gap_bounds_what_random_graphs_do(name: str) -> None:
    graph = GRAPHS[name]
    drawn_once = cache(
        lambda t: mixing.metropolis_or_uniform(graph.at(t))
    )  # both look at the same rounds
    matrices = mixing.MixingSequence(graph.n, drawn_once, graph.name)
    factor = math.sqrt(1 - metrics.expected_gap(matrices, rounds=ROUNDS))
    measured = metrics.measured_contraction(matrices, rounds=ROUNDS, seed=0)
    # Jensen: the mean logarithm lies below the logarithm of the root mean square, which the gap
    # bounds.
    assert measured <= factor * 1.02
    assert measured > 0
