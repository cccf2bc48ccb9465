"""Plots of one history, of all kinds, and their options."""

import dataclasses
from functools import partial

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from tests.history.helpers import ACCURACY, run_of, scored
from topofl import algorithms, topologies


def test_to_pandas_is_tidy(history):
    rounds = history.to_pandas()
    assert rounds.index.name == "round"
    assert list(rounds.index) == list(range(8))
    assert rounds["accuracy_mean"].notna().sum() == 4
    nodes = history.to_pandas(per="node")
    assert isinstance(nodes, pd.DataFrame)
    assert len(nodes) == 4 * 6
    assert {"round", "node", "accuracy", "loss", "accuracy_before_exchange"} <= set(nodes)
    with pytest.raises(ValueError, match="per"):
        history.to_pandas(per="edge")


def test_fine_tuned_evaluations_are_drawn_as_one_line():
    nothing = [np.nan] * 3
    history = scored(accuracy_fine_tuned=[nothing, ACCURACY[1], nothing, ACCURACY[3]])
    (line,) = history.plot("accuracy_fine_tuned").axes[0].lines
    assert line.get_xdata().tolist() == [1, 3]
    np.testing.assert_allclose(line.get_ydata(), [0.8125, 0.4375])
    figure = scored(accuracy_fine_tuned=[nothing, ACCURACY[1]]).plot("accuracy_fine_tuned")
    (once,) = figure.axes[0].lines
    assert once.get_marker() == "o"


def test_plot_returns_the_figure(history):
    figure = history.plot("accuracy", label="mine")
    (ax,) = figure.axes
    np.testing.assert_allclose(ax.lines[0].get_ydata(), history["accuracy"].mean(1))
    assert ax.get_xlabel() == "round\n(mean over nodes; band: 10 % to 90 %)"
    assert history.plot("messages", ax=ax) is figure


MB = 12 * 650 * 4 / 1e6


AXES = {
    "rounds": ("round", [0, 2, 4]),
    "steps": ("local steps per node", [0, 4, 8]),
    "seconds": ("simulated seconds", [0, 3, 6]),
    "megabytes": ("megabytes sent by all nodes", [0, 2 * MB, 4 * MB]),
}


@pytest.mark.parametrize("x", AXES)
def test_scores_are_drawn_against_costs(timed, x):
    name, places = AXES[x]
    axes = Figure().subplots(3)
    timed.plot("accuracy", x=x, ax=axes[0])
    ax = axes[0]
    assert ax.get_xlabel().split("\n")[0] == name
    np.testing.assert_allclose(ax.lines[0].get_xdata(), places)
    each = {"rounds": 1, "steps": 2, "seconds": 1.5, "megabytes": MB}[x]
    timed.plot("train_loss", x=x, ax=axes[1])
    np.testing.assert_allclose(axes[1].lines[0].get_xdata(), each * np.arange(1, 5))
    timed.plot("accuracy_before_exchange", x=x, ax=axes[2])
    early = axes[2].lines[0].get_xdata()
    np.testing.assert_allclose(early, [0, MB, 3 * MB] if x == "megabytes" else places)


def test_steps_count_those_of_all_nodes(timed, history):
    assert timed["steps"].tolist() == [12] * 4
    assert history["steps"].tolist() == [6] * 7


def test_axes_that_were_not_recorded_are_refused(history):
    with pytest.raises(
        ValueError, match=r"`x` must be a recorded cost, got 'seconds', dsgd on .* algorithms.timed"
    ):
        history.plot(x="seconds")
    with pytest.raises(ValueError, match="`x` must be one of 'rounds'"):
        history.plot(x="hours")
    rounds = {name: column for name, column in history.rounds.items() if name != "steps"}
    with pytest.raises(
        ValueError, match=r"got 'steps', .* has no steps in its rounds, .* run it again"
    ):
        dataclasses.replace(history, rounds=rounds).plot(x="steps")


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_asynchronous_runs_have_seconds_and_steps(build):
    history = run_of(partial(build, clock={"compute": 2.0}), topologies.ring(6), rounds=3, every=1)
    assert history.seconds_to(0.0, "accuracy") == 0
    seconds = history["simulated_seconds"]
    drawn = history.plot(x="seconds").axes[0].lines[0]
    assert drawn.get_xdata().tolist() == [0, *seconds]
    assert history["steps"].tolist() == [6] * 3
    assert f", {seconds[-1]:.4g} simulated seconds)" in repr(history)


RNG = np.random.default_rng(0)
SCORES = np.sort(RNG.random((4, 11)), axis=0)
RUN = scored(accuracy=SCORES)


@pytest.fixture
def ax():
    return Figure(figsize=(5, 3.5), layout="constrained").subplots()


def band_of(ax, x):
    """Return the ends of the first band at a position."""
    corners = ax.collections[0].get_paths()[0].vertices
    heights = corners[np.isclose(corners[:, 0], x), 1]
    return heights.min(), heights.max()


@pytest.mark.parametrize("quantiles", [None, (0.25, 0.5), (0, 1)])
def test_bands_are_quantiles_over_nodes(ax, quantiles):
    RUN.plot(ax=ax, quantiles=quantiles)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), SCORES.mean(1))
    for x, row in enumerate(SCORES):
        expected = np.quantile(row, quantiles or (0.1, 0.9))
        np.testing.assert_allclose(band_of(ax, x), expected)
    said = {None: "10 % to 90 %", (0.25, 0.5): "25 % to 50 %", (0, 1): "lowest to highest"}
    assert f"band: {said[quantiles]})" in ax.get_xlabel()


def test_rounds_are_whole_numbers(ax):
    RUN.plot(ax=ax)
    ax.figure.draw_without_rendering()
    assert all(tick == int(tick) for tick in ax.get_xticks())


def test_nodes_without_a_score_are_left_out(ax):
    holes = SCORES.copy()
    holes[2, :5] = np.nan
    holes[3] = np.nan
    scored(accuracy=holes).plot(ax=ax)
    assert band_of(ax, 2) == pytest.approx(np.quantile(SCORES[2, 5:], (0.1, 0.9)))
    drawn = ax.lines[0].get_ydata()
    assert drawn[2] == pytest.approx(SCORES[2, 5:].mean())
    assert np.isnan(drawn[3])


def test_histories_on_one_axes_differ_in_color_and_line(ax):
    RUN.plot(ax=ax)
    RUN.plot(ax=ax)
    first, second = ax.lines
    assert first.get_color() != second.get_color()
    assert first.get_linestyle() != second.get_linestyle()


def test_columns_of_rounds_have_no_band(ax):
    RUN.plot("train_loss", ax=ax)
    assert not ax.collections
    assert ax.get_xlabel() == "round"


def test_violins_show_the_last_evaluation_or_given_rounds(ax):
    RUN.plot(kind="violin", ax=ax, label="mine")
    median, span, worst = ax.lines
    assert median.get_xdata() == pytest.approx([np.median(SCORES[3])] * 2)
    assert span.get_xdata() == pytest.approx([SCORES[3].min(), SCORES[3].max()])
    assert worst.get_xdata() == pytest.approx([SCORES[3].min()])  # a tenth of 11 nodes is one
    assert [label.get_text() for label in ax.get_yticklabels()] == ["mine"]
    two = RUN.plot(kind="violin", at=[0, 2]).axes[0]
    assert [label.get_text() for label in two.get_yticklabels()] == ["round 0", "round 2"]
    assert two.lines[3].get_xdata() == pytest.approx([np.median(SCORES[2])] * 2)


@pytest.mark.parametrize("low_is_good", [False, True])
def test_lines_of_nodes_highlight_the_worst(ax, low_is_good):
    run = scored(**{"loss" if low_is_good else "accuracy": SCORES})
    run.plot("loss" if low_is_good else "accuracy", kind="nodes", worst=2, ax=ax)
    order = np.argsort(SCORES[-1])[:: -1 if low_is_good else 1]
    (gray,) = [one for one in ax.collections if isinstance(one, LineCollection)]
    np.testing.assert_allclose([path.vertices[:, 1] for path in gray.get_paths()], SCORES.T)
    drawn = [line.get_ydata() for line in ax.lines if len(line.get_ydata()) == 4]
    np.testing.assert_allclose(drawn, [SCORES.mean(1), SCORES[:, order[0]], SCORES[:, order[1]]])
    names = ["mean", f"node {order[0]}", f"node {order[1]}"]
    assert [text.get_text() for text in ax.texts] == names


def test_nodes_are_sorted_from_the_worst_to_the_best(ax):
    RUN.plot(kind="nodes", x="rank", worst=1, ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.sort(SCORES[-1]))
    np.testing.assert_allclose(ax.lines[0].get_xdata(), 100 * (np.arange(11) + 0.5) / 11)
    assert [text.get_text() for text in ax.texts] == [f"node {SCORES[-1].argmin()}"]
    assert ax.lines[1].get_ydata() == pytest.approx([SCORES[-1].min()])
    assert not ax.lines[1].get_clip_on()  # the point of the worst node is not cut by the axis


def test_the_front_has_evaluations_that_no_earlier_one_reaches(ax):
    run = scored(accuracy=[[0.1], [0.5], [0.4], [0.6]])
    run.plot(kind="pareto", ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.1, 0.5, 0.6])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [0, 8e-6, 24e-6])
    assert {text.get_text() for text in ax.texts} == {"round 0", "round 1", "round 3"}


@pytest.mark.parametrize("kind", ["band", "violin", "nodes", "pareto"])
def test_without_axes_a_figure_is_made_that_pyplot_does_not_know(kind):
    before = plt.get_fignums()
    assert len(RUN.plot(kind=kind).axes) == 1
    assert plt.get_fignums() == before


@pytest.mark.parametrize("kind", ["band", "violin", "nodes", "pareto"])
def test_a_single_node_and_a_single_evaluation_can_be_drawn(kind, ax):
    scored(accuracy=[[0.5]]).plot(kind=kind, ax=ax)
    ax.figure.canvas.draw()
    assert ax.has_data()


@pytest.mark.parametrize("kind", ["band", "violin", "nodes", "pareto"])
def test_histories_without_evaluations_are_refused(kind, ax):
    none = scored(accuracy=SCORES)
    empty = {name: values[:0] for name, values in none.evaluations.items()}
    none = dataclasses.replace(none, evaluations=empty)
    with pytest.raises(ValueError, match=r"`column` must have been evaluated, .* no evaluations"):
        none.plot(kind=kind, ax=ax)
    with pytest.raises(KeyError, match="no column 'accuracy'"):
        dataclasses.replace(none, evaluations={}).plot(kind=kind, ax=ax)


NOTHING = scored(accuracy=np.full((2, 3), np.nan))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "bands"}, r"`kind` must be one of .*'bands'.*did you mean 'band'"),
        ({"kind": "violin", "x": "rounds"}, "`x` must be left out for kind='violin'"),
        ({"at": 2}, "`at` must be left out for kind='band', got 2; it is for kind='violin'"),
        ({"worst": 2}, "`worst` must be left out for kind='band'"),
        ({"x": "rank"}, "`x` must be one of 'rounds', .* got 'rank'; take kind='nodes' for it"),
        ({"kind": "violin", "x": "rank"}, "`x` must be left out .*; take kind='nodes' for it"),
        ({"x": "megabyte"}, "did you mean 'megabytes'"),
        ({"kind": "violin", "at": 9}, "`at` must be an evaluated round of .*, 0, 1, 2, 3, got 9"),
        ({"kind": "violin", "at": []}, "`at` must be at least one evaluated round"),
        ({"kind": "violin", "at": [0] * 25}, "`at` must have at most 24 rounds, got 25"),
        ({"kind": "nodes", "worst": -1}, "`worst` must be at least 0"),
        ({"quantiles": (0.9, 0.1)}, "`quantiles` must ascend"),
        ({"quantiles": (0.1, 1.5)}, "`quantiles` must be between 0 and 1"),
        ({"kind": "nodes", "column": "train_loss"}, "`column` must have one value per node"),
    ],
)
def test_bad_options_are_refused(options, message, ax):
    with pytest.raises(ValueError, match=message):
        RUN.plot(**options, ax=ax)


def test_wrong_types_are_refused(ax):
    with pytest.raises(TypeError, match="`quantiles` must be two numbers"):
        RUN.plot(quantiles=0.1, ax=ax)
    with pytest.raises(TypeError, match="`at` must be an integer"):
        RUN.plot(kind="violin", at="last", ax=ax)
    for kind in ("band", "violin", "nodes", "pareto"):
        with pytest.raises(TypeError, match="`ax` must be the Axes"):
            RUN.plot(kind=kind, ax="here")
    with pytest.raises(ValueError, match="`column` must have a finite value for some node"):
        NOTHING.plot(kind="violin", ax=ax)


def test_notebooks_show_the_text_and_the_curve():
    text = dataclasses.replace(RUN, meta={"algorithm": "<b>", "topology": "ring"})._repr_html_()
    assert "&lt;b&gt; on ring" in text
    assert "<b>" not in text
    assert text.count("<img") == 1
    assert "accuracy by round" in text
    for run in (NOTHING, scored(accuracy=[[0.5]])):
        assert "<img" not in run._repr_html_()
    none = dataclasses.replace(RUN, evaluations={})
    assert repr(none) == "History(the run on no graph: 3 rounds, n=11, not evaluated)"
    assert "not evaluated" in none._repr_html_()
