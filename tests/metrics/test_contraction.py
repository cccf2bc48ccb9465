"""Measured contraction, and its picture."""

import networkx as nx
import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.metrics.graphs import dcliques, exponential, irregular_digraph, one_peer, push, ring
from topofl import metrics, mixing, topologies
from topofl.metrics import measured_contraction, slem
from topofl.mixing import MixingSequence
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology, from_edges


@pytest.mark.parametrize(
    ("x", "rule"),
    [
        (ring(16), None),
        (as_topology(nx.grid_2d_graph(4, 5)), None),
        (as_topology(nx.star_graph(7)), None),
        (exponential(20), None),
        (dcliques(30), None),
        (irregular_digraph(), None),
        (irregular_digraph(), push),
        (one_peer(12), None),
        (as_topology([nx.path_graph(6), nx.star_graph(5), nx.cycle_graph(6)]), None),
        (as_topology([irregular_digraph(), irregular_digraph().to_scipy().T]), None),
        (as_topology([irregular_digraph(), irregular_digraph().to_scipy().T]), push),
    ],
    ids=[
        "ring",
        "grid",
        "star",
        "exponential",
        "dcliques",
        "pull",
        "push",
        "one-peer",
        "periodic",
        "pulls",
        "pushes",
    ],
)
def test_measured_contraction_is_the_declared_slem(x, rule):
    # Complex pairs of eigenvalues make single rounds oscillate: over 2400 rounds that leaves below
    # 1e-3.
    measured = measured_contraction(x, rounds=2400, seed=0, weights=rule)
    assert measured == pytest.approx(slem(x, weights=rule), rel=1e-3)


def test_ring_of_16_contracts_by_its_gap():
    measured = measured_contraction(ring(16), rounds=500, seed=1)
    assert 1 - measured == pytest.approx(0.05075, abs=5e-6)  # 0.05075 to the digits given


def test_random_graphs_without_a_period_are_measured():
    def pulls(t: int) -> Topology:
        rng = np.random.default_rng([7, t])
        sources = [
            rng.choice(np.delete(np.arange(40), i), size=5, replace=False) for i in range(40)
        ]
        return from_edges([(int(j), i) for i in range(40) for j in sources[i]], 40, directed=True)

    measured = measured_contraction(TopologySequence(40, pulls), rounds=200, seed=0)
    # Mean square contraction of k-in pulls is (1/(k+1))(1 - k/(n-1)); the geometric mean lies a
    # little below its root.
    assert measured == pytest.approx(np.sqrt(1 / 6 * (1 - 5 / 39)), rel=0.06)


def test_contraction_of_exact_averaging_is_zero():
    assert measured_contraction(as_topology(nx.complete_graph(6)), rounds=5, seed=0) == 0.0
    assert measured_contraction(one_peer(16), rounds=8, seed=0) == 0.0
    assert measured_contraction(from_edges([], 1), rounds=3, seed=0) == 0.0


def test_contraction_of_a_disconnected_graph_is_one():
    apart = from_edges([(0, 1), (2, 3)], 4)
    assert measured_contraction(apart, rounds=50, seed=0) == pytest.approx(1.0, abs=1e-12)


def test_contraction_without_burn_in_is_the_ratio_of_consensus_distances():
    matrix = mixing.uniform(irregular_digraph())
    start = np.random.default_rng(5).standard_normal(6)
    end = np.linalg.matrix_power(matrix.weights.toarray(), 3) @ start
    measured = measured_contraction(matrix, rounds=3, seed=np.random.default_rng(5), burn_in=0)
    assert measured**3 == pytest.approx(np.std(end) / np.std(start), rel=1e-12)


def test_push_is_measured_on_debiased_models():
    matrix = push(irregular_digraph())
    start = np.random.default_rng(5).standard_normal(6)
    power = np.linalg.matrix_power(matrix.weights.toarray(), 4)
    measured = measured_contraction(matrix, rounds=4, seed=np.random.default_rng(5), burn_in=0)
    assert measured**4 == pytest.approx(
        np.std(power @ start / power.sum(axis=1)) / np.std(start), rel=1e-12
    )


def test_same_seed_same_contraction():
    values = [measured_contraction(dcliques(20), rounds=3, seed=s, burn_in=0) for s in (3, 3, 4)]
    assert values[0] == values[1] != values[2]


def test_contraction_refuses_bad_numbers_of_rounds():
    with pytest.raises(ValueError, match="`rounds`"):
        measured_contraction(ring(5), rounds=0, seed=0)
    with pytest.raises(ValueError, match="`burn_in`"):
        measured_contraction(ring(5), rounds=5, seed=0, burn_in=-1)
    with pytest.raises(ValueError, match="`seed`"):
        measured_contraction(ring(5), rounds=5, seed=-1)


def test_contraction_refuses_push_sum_weights_of_zero():
    taken = mixing.from_weights([[1, 1], [0, 0]], edges="u<-v")
    with pytest.raises(TopologyError, match="node 1 became 0 in round 0"):
        measured_contraction(MixingSequence(2, lambda t: taken, "endless"), rounds=2, seed=0)
    with pytest.raises(TopologyError, match="the weight of node 1 tends to 0"):
        measured_contraction(taken, rounds=2, seed=0)


def test_rounds_of_different_stochasticity_are_refused() -> None:
    row = mixing.from_weights([[0.5, 0.5], [0.2, 0.8]])
    column = mixing.from_weights([[0.5, 0.2], [0.5, 0.8]], edges="u<-v")
    mixed = MixingSequence(2, lambda t: row if t < 3 else column)
    with pytest.raises(
        TopologyError, match="row-stochastic in all rounds, or column-stochastic in all"
    ):
        measured_contraction(mixed, rounds=5, seed=0)


@pytest.fixture
def ax():
    return Figure().subplots()


def test_symmetric_weights_stay_below_the_prediction_and_end_parallel(ax):
    graph = topologies.torus(25)
    assert metrics.plot_contraction(graph, rounds=80, seed=0, ax=ax) is ax.figure
    measured, predicted = (line.get_ydata() for line in ax.lines)
    rate = metrics.slem(graph)
    np.testing.assert_allclose(predicted, rate ** np.arange(81))
    assert measured[0] == 1
    assert (measured <= predicted * (1 + 1e-9)).all()
    assert measured[-1] / measured[-2] == pytest.approx(rate, abs=1e-3)
    assert ax.get_yscale() == "log"


def test_measured_line_agrees_with_exchanges(ax):
    graph = topologies.random_regular(12, 3, seed=0)
    metrics.plot_contraction(graph, rounds=10, seed=np.random.default_rng(3), ax=ax)
    models = np.random.default_rng(3).standard_normal((12, 1))
    distances = [metrics.consensus_distance(models)]
    for _ in range(10):
        models = mixing.metropolis_hastings(graph) @ models
        distances.append(metrics.consensus_distance(models))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.array(distances) / distances[0])


def test_exact_averaging_ends_the_line(ax):
    metrics.plot_contraction(topologies.one_peer_exponential(8), rounds=10, seed=0, ax=ax)
    measured, cross, predicted = ax.lines
    assert len(measured.get_ydata()) == 3
    assert cross.get_label() == "then exact averaging"
    assert predicted.get_label() == "predicted: exact averaging within a period"


def test_without_a_period_the_legend_says_that_no_rate_is_predicted(ax):
    metrics.plot_contraction(
        topologies.random_out(10, 2, seed=0), rounds=5, seed=0, ax=ax, weights=mixing.uniform
    )
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[1].startswith("no rate predicted")
    assert len(ax.lines[0].get_ydata()) == 6


def test_bad_arguments_are_named(ax):
    with pytest.raises(ValueError, match="`rounds` must be at least 1"):
        metrics.plot_contraction(topologies.ring(5), rounds=0, seed=0, ax=ax)
    with pytest.raises(TypeError, match="`x` must be"):
        metrics.plot_contraction("ring", rounds=3, seed=0, ax=ax)
