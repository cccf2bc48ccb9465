"""Plots and tables of histories."""

import dataclasses
from functools import partial

import numpy as np
import pandas as pd
import pytest
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
        ValueError,
        match=r"`x` must be a recorded cost, got 'seconds', dsgd on .* algorithms.timed",
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
