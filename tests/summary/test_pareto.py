"""Final scores against costs: points, bars, and the Pareto front."""

import numpy as np
import pytest
from scipy import stats

from tests.summary.readable import crosses
from tests.summary.samples import runs_of, stored
from topofl.summary import (
    plot_pareto,
)


def test_bars_of_two_finite_runs_are_drawn_on_request():
    runs = runs_of(seeds=3)
    finals = [run.curves["scores"]["accuracy"]["mean"][-1] for run in runs[1:]]
    runs[0].curves["scores"]["accuracy"]["mean"][-1] = None
    bar = plot_pareto(runs, band="interval").axes[0].collections[0].get_segments()[0][:, 1]
    half = stats.t.ppf(0.975, 1) * stats.sem(finals)
    assert bar == pytest.approx([np.mean(finals) - half, np.mean(finals) + half])


def test_the_front_has_what_nothing_dominates():
    settings = {"ring": (0.5, 1), "torus": (0.6, 3), "star": (0.55, 4), "complete": (0.8, 9)}
    runs = [
        stored({"topology.name": name, "run.seed": 0}, final, cost=cost)
        for name, (final, cost) in settings.items()
    ]
    ax = plot_pareto(runs, "topology").axes[0]
    front = ax.lines[0].get_xydata()
    assert front == pytest.approx(np.array([[40, 0.5], [120, 0.6], [360, 0.8]]))


def test_costs_are_those_of_the_runs_that_count():
    runs = [
        stored({"run.seed": seed}, final, rounds=[0, 10], cost=cost)
        for seed, (final, cost) in enumerate([(0.5, 1), (0.6, 1), (0.7, 100)])
    ]
    runs[2].curves["scores"]["accuracy"]["mean"][-1] = None
    assert plot_pareto(runs).axes[0].lines[0].get_xydata() == pytest.approx(np.array([[10, 0.55]]))


def test_costs_of_many_magnitudes_are_logarithmic():
    runs = [
        stored({"topology.name": name, "run.seed": 0}, 0.5, cost=cost)
        for name, cost in (("ring", 1), ("complete", 100))
    ]
    assert plot_pareto(runs, "topology").axes[0].get_xscale() == "log"


def test_the_front_does_not_run_through_labels():
    rng = np.random.default_rng(0)
    runs = []
    for k in range(10):
        cost = 1 + 10 * rng.random()
        final = 0.3 + 0.4 * (1 - np.exp(-cost / 3)) * rng.uniform(0.7, 1)
        settings = {"topology.name": f"small_world_{k}", "run.seed": 0}
        runs.append(stored(settings, float(final), cost=cost))
    figure = plot_pareto(runs, "topology")
    ax = figure.axes[0]
    figure.draw_without_rendering()
    front = ax.lines[0]
    assert len(front.get_xdata()) > 3
    corners = np.repeat(front.get_xydata(), 2, axis=0)
    steps = ax.transData.transform(np.stack([corners[1:, 0], corners[:-1, 1]], axis=1))
    assert len(ax.texts) == 10
    for text in ax.texts:
        assert not crosses(steps, text.get_window_extent()), text.get_text()
