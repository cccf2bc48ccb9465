"""Plots of one history, of all kinds: they show its numbers, and say what they leave out."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from tests.history.helpers import ACCURACY, NAN, RUN, SCORES, scored
from tests.summary.readable import heights_at, said

ONCE = ["band", "violin", "nodes", "pareto"]
DIVERGED = scored(loss=[[2.0] * 8, [np.inf] * 4 + [NAN, 0.5, 0.75, 0.25]])
EARLY = "loss_before_exchange"
STOPPED = scored(loss_before_exchange=[[2.0, 3.0], [1.0, 1.5], [NAN, NAN], [NAN, NAN]])


@pytest.fixture
def ax():
    return Figure(figsize=(5, 3.5), layout="constrained").subplots()


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_fine_tuned_evaluations_are_drawn_as_one_line():
    nothing = [NAN] * 3
    history = scored(accuracy_fine_tuned=[nothing, ACCURACY[1], nothing, ACCURACY[3]])
    (line,) = history.plot("accuracy_fine_tuned").axes[0].lines
    assert line.get_xdata().tolist() == [1, 3]
    np.testing.assert_allclose(line.get_ydata(), [0.8125, 0.4375])
    figure = scored(accuracy_fine_tuned=[nothing, ACCURACY[1]]).plot("accuracy_fine_tuned")
    (once,) = figure.axes[0].lines
    assert once.get_marker() == "o"


MB = 12 * 650 * 4 / 1e6
AXES = {
    "rounds": ("round", 1),
    "steps": ("local steps per node", 2),
    "seconds": ("simulated seconds", 1.5),
    "megabytes": ("megabytes sent by all nodes", MB),
}


@pytest.mark.parametrize("x", AXES)
def test_scores_are_drawn_against_costs(timed, x):
    (name, each), axes = AXES[x], Figure().subplots(3)
    for ax, column in zip(
        axes, ("accuracy", "train_loss", "accuracy_before_exchange"), strict=True
    ):
        timed.plot(column, x=x, ax=ax)
    assert axes[0].get_xlabel().split("\n")[0] == name
    late, rounds, early = (ax.lines[0].get_xdata() for ax in axes)
    np.testing.assert_allclose(late, each * np.array([0, 2, 4]))
    np.testing.assert_allclose(rounds, each * np.arange(1, 5))
    np.testing.assert_allclose(early, [0, MB, 3 * MB] if x == "megabytes" else late)


@pytest.mark.parametrize("quantiles", [None, (0.25, 0.5), (0, 1)])
def test_bands_are_quantiles_over_nodes(ax, quantiles):
    assert RUN.plot(ax=ax, quantiles=quantiles) is ax.figure
    np.testing.assert_allclose(ax.lines[0].get_ydata(), SCORES.mean(1))
    for x, row in enumerate(SCORES):
        wanted = np.quantile(row, quantiles or (0.1, 0.9))
        np.testing.assert_allclose(heights_at(ax.collections[0], x), wanted)
    named = {None: "10 % to 90 %", (0.25, 0.5): "25 % to 50 %", (0, 1): "lowest to highest"}
    assert ax.get_xlabel() == f"round\n(mean over nodes; band: {named[quantiles]})"


def test_nodes_without_a_score_are_left_out(ax):
    holes = SCORES.copy()
    holes[2, :5], holes[3] = NAN, NAN
    scored(accuracy=holes).plot(ax=ax)
    assert heights_at(ax.collections[0], 2) == pytest.approx(np.quantile(SCORES[2, 5:], (0.1, 0.9)))
    drawn = ax.lines[0].get_ydata()
    assert drawn[2] == pytest.approx(SCORES[2, 5:].mean())
    assert np.isnan(drawn[3])


def test_histories_on_one_axes_differ_and_columns_of_rounds_have_no_band(ax):
    for _ in range(2):
        RUN.plot("train_loss", ax=ax)
    first, second = ax.lines
    assert first.get_color() != second.get_color()
    assert first.get_linestyle() != second.get_linestyle()
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
    column = "loss" if low_is_good else "accuracy"
    scored(**{column: SCORES}).plot(column, kind="nodes", worst=2, ax=ax)
    order = np.argsort(SCORES[-1])[:: -1 if low_is_good else 1]
    (gray,) = [one for one in ax.collections if isinstance(one, LineCollection)]
    np.testing.assert_allclose([path.vertices[:, 1] for path in gray.get_paths()], SCORES.T)
    drawn = [line.get_ydata() for line in ax.lines if len(line.get_ydata()) == 4]
    np.testing.assert_allclose(drawn, [SCORES.mean(1), SCORES[:, order[0]], SCORES[:, order[1]]])
    assert texts(ax) == ["mean", f"node {order[0]}", f"node {order[1]}"]


def test_nodes_are_sorted_from_the_worst_to_the_best(ax):
    RUN.plot(kind="nodes", x="rank", worst=1, ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.sort(SCORES[-1]))
    np.testing.assert_allclose(ax.lines[0].get_xdata(), 100 * (np.arange(11) + 0.5) / 11)
    assert texts(ax) == [f"node {SCORES[-1].argmin()}"]
    assert ax.lines[1].get_ydata() == pytest.approx([SCORES[-1].min()])
    assert not ax.lines[1].get_clip_on()  # the point of the worst node is not cut by the axis


def test_the_front_has_evaluations_that_no_earlier_one_reaches(ax):
    scored(accuracy=[[0.1], [0.5], [0.4], [0.6]]).plot(kind="pareto", ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.1, 0.5, 0.6])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [0, 8e-6, 24e-6])
    assert {*texts(ax)} == {"round 0", "round 1", "round 3"}


@pytest.mark.parametrize("kind", ONCE)
def test_a_figure_is_made_that_pyplot_does_not_know_also_of_a_single_score(kind):
    before = plt.get_fignums()
    figure = scored(accuracy=[[0.5]]).plot(kind=kind)
    figure.canvas.draw()
    assert figure.axes[0].has_data()
    assert plt.get_fignums() == before


@pytest.mark.parametrize(
    ("worst", "drawn"), [(2, " (points: 2 worst)"), (4, " (points: 3 worst)"), (0, "")]
)
def test_sorted_nodes_count_those_that_are_not_finite(ax, worst, drawn):
    DIVERGED.plot("loss", kind="nodes", x="rank", worst=worst, ax=ax)
    assert ax.lines[0].get_ydata().tolist() == [0.75, 0.5, 0.25]
    assert texts(ax) == ["node 6", "node 5", "node 7"][: min(worst, 3)]
    assert said(ax.figure).endswith(f"{drawn} (not drawn, since not finite: 5 of 8 nodes)")


def test_violins_and_fronts_count_what_is_not_finite(ax):
    DIVERGED.plot("loss", kind="violin", at=[0, 1], ax=ax)
    assert "(not drawn, since not finite: 5 of 8 nodes in round 1)" in said(ax.figure)
    figure = DIVERGED.plot("loss", kind="pareto")
    assert said(figure).endswith("(not drawn, since not finite: 1 of 2 evaluations)")
    some = scored(loss=[[NAN, NAN, 2.0, NAN], [NAN, np.inf, NAN, 1.0]])  # two nodes have one each
    figure = some.plot("loss", kind="nodes")
    assert said(figure).endswith("(not drawn, since not finite: 2 of 4 nodes)")


@pytest.mark.parametrize("options", [{"kind": "violin"}, {"kind": "nodes", "x": "rank"}])
def test_last_scores_of_an_earlier_round_have_its_number(options):
    assert "(last scores: round 1 of 3)" in said(STOPPED.plot(EARLY, **options))
    whole = scored(**{EARLY: [[2.0, 3.0], [1.0, 1.5]]})
    assert "last scores:" not in said(whole.plot(EARLY, **options))
    assert "last scores:" not in said(STOPPED.plot(EARLY, kind="violin", at=1))
