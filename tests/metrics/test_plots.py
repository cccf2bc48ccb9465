"""Plots of measured and predicted contraction show their values."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from topofl import metrics, mixing, topologies


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
