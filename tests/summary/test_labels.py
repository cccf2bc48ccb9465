"""Labels of plots over many runs can be read."""

import itertools
import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure

import topofl
from tests.summary.readable import assert_readable, said, shown_texts
from tests.summary.samples import ROUNDS, runs_of
from topofl._drawing.charts.fronts import LABELED
from topofl._drawing.charts.labels import spread
from topofl.summary import (
    plot_band,
    plot_heat_map,
    plot_nodes,
    plot_pareto,
    plot_violin,
)
from topofl.summary.figures import KINDS

NAMES = ["ring", "torus", "exponential", "dcliques", "complete", "random_regular"]
LONG = [f"small_world(n=100, k={k}, p=0.25)" for k in range(24)]


@pytest.fixture(scope="module")
def two_settings():
    """Return 192 runs: 6 topologies, 4 alphas, 8 seeds."""
    return runs_of(topology=NAMES, alpha=[0.01, 0.1, 1.0, 10.0], seeds=8)


@pytest.fixture(scope="module")
def one_setting():
    """Return 192 runs: 24 topologies with long names, whose scores are close, and 8 seeds."""
    effect = {name: 0.002 * k for k, name in enumerate(LONG)}
    return runs_of(topology=LONG, seeds=8, effect=effect)


def on_the_front(runs, by):
    """Return the names of groups that no other one dominates, by comparing all pairs."""
    frame = topofl.summarize(runs, by).to_pandas()
    costs = {run.settings["topology.name"]: run.curves["bytes"][-1] for run in runs}
    points = [
        (-costs[name], score) for name, score in zip(frame[by[0]], frame["accuracy"], strict=True)
    ]
    return [
        ", ".join(f"{name}={value}" if name == "alpha" else value for name, value in row.items())
        for row, own in zip(frame[by].to_dict("records"), points, strict=True)
        if not any(a >= own[0] and b >= own[1] and (a, b) != own for a, b in points)
    ]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "heat_map"])
@pytest.mark.parametrize("which", ["two_settings", "one_setting"])
def test_200_runs_are_readable(kind, which, request):
    runs = request.getfixturevalue(which)
    by = ["topology", "alpha"] if which == "two_settings" else ["topology"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = topofl.summarize(runs, by).plot(kind)
        assert_readable(figure)
    assert not figure.legends
    assert not any(ax.get_legend() for ax in figure.axes)
    texts = " ".join(text.get_text().replace("\n", " ") for text in shown_texts(figure))
    names = NAMES if which == "two_settings" else LONG
    if kind == "pareto":
        names = on_the_front(runs, by)
        if len(names) > LABELED:
            names = [names[round(k)] for k in np.linspace(0, len(names) - 1, LABELED)]
        assert len(names) == (len(NAMES) if which == "two_settings" else LABELED)
        assert f"({24 - len(names)} of 24 points not labeled)" in texts
    for name in names:
        assert name in texts


def test_200_runs_in_a_heat_map_are_readable(two_settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_readable(plot_heat_map(two_settings, by=["topology", "alpha"]))
        assert_readable(plot_heat_map(two_settings, by=["alpha", "topology"]))


@pytest.mark.parametrize("count", [1, 2, 8])
def test_few_groups_are_readable_even_if_they_are_equal(count):
    effect = dict.fromkeys(LONG[:count], 0.0)
    runs = runs_of(topology=LONG[:count], effect=effect, noise=1e-9, cost=1)
    for draw in (plot_band, plot_nodes, plot_violin, plot_pareto):
        assert_readable(draw(runs, "topology"))


def test_the_check_of_labels_can_fail():
    figure = Figure()
    ax = figure.subplots()
    ax.text(0.5, 0.5, "one label")
    assert_readable(figure)
    ax.text(0.52, 0.5, "another")
    with pytest.raises(AssertionError, match="one label"):
        assert_readable(figure)


def test_bands_of_many_groups_are_lighter():
    shades = [
        {band.get_alpha() for band in plot_band(runs_of(topology=LONG[:n])).axes[0].collections}
        for n in (4, 5, 8)
    ]
    assert [len(own) for own in shades] == [1, 1, 1]
    few, five, eight = (max(own) for own in shades)
    assert few > five == eight


def test_axes_must_have_room(one_setting):
    ax = Figure().subplots()
    with pytest.raises(ValueError, match="`ax` must be None for more than 8 groups"):
        plot_band(one_setting, ax=ax)
    with pytest.raises(ValueError, match="`ax` must be None for more than 24 groups"):
        plot_violin(runs_of(topology=[*LONG, "ring"]), ax=ax)
    small = Figure(figsize=(1.5, 4)).subplots()
    with pytest.raises(ValueError, match=r"`ax` must be at least .* inches wide"):
        plot_band(runs_of(topology=LONG[:2]), ax=small)
    flat = Figure(figsize=(8, 1)).subplots()
    with pytest.raises(ValueError, match=r"`ax` must be at least .* inches high"):
        plot_band(runs_of(topology=LONG[:8]), ax=flat)
    with pytest.raises(ValueError, match="`ax` must have room for 16 labels"):
        plot_pareto(one_setting, ax=Figure(figsize=(2, 2)).subplots())


def test_labels_are_spread_without_overlap():
    rng = np.random.default_rng(0)
    for _ in range(200):
        k = int(rng.integers(1, 12))
        heights = rng.uniform(1, 3, k)
        wanted = rng.uniform(-5, 40, k)
        low, high = 0.0, float(heights.sum() + rng.uniform(0, 20))
        centers = spread(wanted, heights, low, high)
        assert (centers - heights / 2 >= low - 1e-9).all()
        assert (centers + heights / 2 <= high + 1e-9).all()
        order = np.argsort(wanted, kind="stable")
        gaps = np.diff(centers[order]) - (heights[order][1:] + heights[order][:-1]) / 2
        assert (gaps >= -1e-9).all()


def test_labels_with_room_stay_where_they_are():
    wanted = np.array([9.0, 1.0, 5.0])
    assert spread(wanted, np.ones(3), 0.0, 10.0).tolist() == wanted.tolist()


def test_groups_without_any_finite_score_have_no_label():
    runs = runs_of(topology=["ring", "star"], seeds=3)
    for run in runs[:3]:
        run.curves["scores"]["accuracy"]["mean"][1:] = [None] * (len(ROUNDS) - 1)
    for draw, band in itertools.product((plot_band, plot_pareto), ("interval", "range")):
        figure = draw(runs, "topology", band=band)
        assert [text.get_text() for text in figure.axes[0].texts] == ["star"]
        assert "(not drawn, since not finite: 3 of 3 runs of ring)" in said(figure)
