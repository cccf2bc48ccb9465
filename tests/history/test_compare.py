"""Comparisons of several histories in one figure: what they show, and what they leave out."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

import topofl
from tests.history.helpers import KINDS, NAN, run_of, runs_of, scored
from tests.summary.readable import assert_readable, crosses, said, shown_texts
from topofl import algorithms, compare_histories, topologies
from topofl._drawing.charts import LABELED

INF, EARLY = np.inf, "loss_before_exchange"
WHOLE = scored(loss=[[2.0] * 8, [1.0] * 8])
DIVERGED = scored(loss=[[2.0] * 8, [INF, INF, INF, INF, NAN, 0.5, 0.75, 0.25]])
STOPPED = scored(loss_before_exchange=[[2.0, 3.0], [1.0, 1.5], [NAN, NAN], [NAN, NAN]])
RUN = scored(accuracy=[[0.1], [0.5]])


@pytest.mark.parametrize(("kind", "options"), KINDS)
@pytest.mark.parametrize("count", [2, 24])
@pytest.mark.slow
def test_labels_are_readable(kind, options, count):
    runs = runs_of(count)
    if kind == "nodes" and not options:
        options = {"worst": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = compare_histories(runs, kind=kind, **options)
        assert_readable(figure)
    assert not figure.legends
    assert not any(ax.get_legend() for ax in figure.axes)
    texts = " ".join(text.get_text().replace("\n", " ") for text in shown_texts(figure))
    if kind == "pareto" and count > LABELED:  # the first run is cheaper and better than all others
        assert f"({count - 1} of {count} points not labeled)" in texts
        count = 1
    for k in range(count):
        assert f"k={k}," in texts


def test_curves_that_end_early_have_labels_at_their_own_ends():
    runs = dict(zip("abcd", runs_of(4).values(), strict=True))
    for run, sent in zip(runs.values(), [1, 10, 25, 40], strict=True):
        run.rounds["bytes"][:] = 10**6 * sent
    figure = compare_histories(runs, x="megabytes")
    assert_readable(figure)
    ax = figure.axes[0]
    curves = [line for line in ax.lines if len(line.get_xdata()) == 5]
    ends = ax.transData.transform([line.get_xydata()[-1] for line in curves])
    assert len(ax.lines) == 5  # only the longest curve is joined to its label
    for text, curve in zip(ax.texts, curves, strict=True):
        box = text.get_window_extent()
        away = np.hypot(*np.maximum(box.min - ends, ends - box.max).clip(0).T)
        assert curve is curves[away.argmin()], text.get_text()
        assert not any(crosses(ax.transData.transform(one.get_xydata()), box) for one in curves)


def test_bands_are_those_of_each_history():
    runs = runs_of(2)
    ax = compare_histories(runs, quantiles=(0, 0.5)).axes[0]
    drawn = [line for line in ax.lines if len(line.get_xdata()) == 5]
    for line, band, run in zip(drawn, ax.collections, runs.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), run["accuracy"].mean(1))
        corners = band.get_paths()[0].vertices
        heights = corners[np.isclose(corners[:, 0], 3), 1]
        ends = np.quantile(run["accuracy"][3], (0, 0.5))
        np.testing.assert_allclose([heights.min(), heights.max()], ends)


def test_the_front_has_last_scores_and_costs():
    points = {"ring": (0.5, 1e6), "star": (0.4, 2e6), "all": (0.8, 3e6)}
    runs = {
        name: replace(scored(accuracy=[[0, 0], [x, x + 0.1]]), rounds={"bytes": np.array([cost])})
        for name, (x, cost) in points.items()
    }
    front = compare_histories(runs, kind="pareto").axes[0].lines[0].get_xydata()
    np.testing.assert_allclose(front, [[1, 0.55], [3, 0.85]])


def test_sequences_are_named_after_what_differs():
    def named(*metas):
        runs = [replace(RUN, meta=meta) for meta in metas]
        ax = compare_histories(runs, kind="violin").axes[0]
        return [label.get_text() for label in ax.get_yticklabels()]

    ring = {"algorithm": "dsgd", "topology": "ring"}
    star = {"algorithm": "dsgd", "topology": "star"}
    assert named(ring, star) == ["ring", "star"]
    assert named(ring, {**ring, "algorithm": "dsgt"}) == ["dsgd", "dsgt"]
    assert named(ring, {**star, "algorithm": "dsgt"}) == ["dsgd, ring", "dsgt, star"]
    seeds = named({**ring, "seed": 0}, {**ring, "seed": 1})
    assert seeds == ["dsgd, ring, seed 0", "dsgd, ring, seed 1"]
    assert named(ring, ring, star) == ["ring (1)", "ring (2)", "star"]


def test_axes_of_the_caller_are_drawn_on_if_there_is_one_panel():
    runs = runs_of(3)
    for kind, options in KINDS:
        if (kind, options) != ("nodes", {}):
            ax = Figure(figsize=(6, 4)).subplots()
            assert compare_histories(runs, kind=kind, ax=ax, **options) is ax.figure
            assert ax.has_data()


def test_runs_that_differ_in_anything_are_not_one_run(tmp_path):
    one = run_of(algorithms.dsgd, topologies.ring(6), rounds=2)
    fast, slow = (one.with_seconds({"compute": seconds}) for seconds in (1, 2))
    compare_histories({"fast": fast, "slow": slow}, x="seconds")
    compare_histories([replace(one, meta={**one.meta, "seed": seed}) for seed in (1, 2)])
    settings = {"seed": 0, "init": "given", "name": "dsgd"}
    runs = {
        f"{start}": replace(scored(accuracy=[[start], [0.4]]), meta=settings)
        for start in (0.1, 0.2)
    }
    for column in ("accuracy", "bytes"):  # from other weights
        compare_histories(runs, column)
    copied = replace(runs["0.1"], meta=dict(reversed(settings.items())))
    with pytest.raises(ValueError, match=r"got the same one as '0\.1' and 'copy'"):
        compare_histories({**runs, "copy": copied}, "bytes")


def test_scores_that_are_missing_leave_gaps():
    holes = scored(accuracy=[[0.1, 0.2], [NAN, 0.4], [NAN, NAN]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ("band", "nodes"):
            assert_readable(compare_histories({"holes": holes, "other": RUN}, kind=kind))


@pytest.mark.parametrize(("kind", "x"), [("nodes", "rank"), ("violin", None)])
def test_runs_with_nodes_that_are_not_finite_are_named(kind, x):
    runs = {"whole": WHOLE, "diverged": DIVERGED}
    figure = compare_histories(runs, "loss", kind=kind, x=x)
    assert "(not drawn, since not finite: 5 of 8 nodes of diverged)" in said(figure)
    assert_readable(figure)
    whole = {"whole": WHOLE, "more": replace(WHOLE)}
    assert "not drawn" not in said(compare_histories(whole, "loss", kind=kind, x=x))


def test_fronts_name_what_has_no_finite_mean():
    runs = {"ok": WHOLE, "$_diverged_$": DIVERGED}
    figure = compare_histories(runs, "loss", kind="pareto")
    assert [text.get_text() for text in figure.axes[0].texts] == ["ok"]
    assert said(figure).endswith("(not drawn, since not finite: $_diverged_$)")
    assert_readable(figure)


def test_long_lists_of_runs_are_counted():
    runs = {f"run {k}": replace(DIVERGED) for k in range(12)}
    figure = compare_histories(runs, "loss", kind="violin")
    assert "nodes of run 2 and 9 more)" in said(figure)
    assert "run 3" not in said(figure)
    assert_readable(figure)


@pytest.mark.parametrize(("kind", "x"), [("violin", None), ("nodes", "rank"), ("pareto", None)])
def test_runs_whose_last_scores_are_earlier_are_named(kind, x):
    whole = scored(**{EARLY: [[2.0, 3.0]] * 3 + [[1.0, 1.5]]})
    figure = compare_histories({"whole": whole, "stopped": STOPPED}, EARLY, kind=kind, x=x)
    assert "(last scores: stopped, round 1 of 3)" in said(figure)
    assert_readable(figure)


@pytest.mark.parametrize("kind", ["band", "nodes"])
@pytest.mark.parametrize("column", [EARLY, "loss"])
def test_a_run_without_any_score_has_no_line_and_is_named(kind, column):
    never = scored(**{column: [[NAN, NAN], [NAN, NAN]]})
    scores = scored(**{column: [[2.0, 3.0], [1.0, 1.5]]})
    for runs in ({"never": never, "other": scores}, {"other": scores, "never": never}):
        figure = compare_histories(runs, column, kind=kind)
        labels = {text.get_text() for ax in figure.axes for text in ax.texts}
        assert labels == ({"other"} if kind == "band" else {"mean", "node 0", "node 1"})
        assert said(figure).endswith("(not drawn, since not finite: never)")
        assert_readable(figure)
    figure = compare_histories({"one": never, "two": replace(never)}, column)
    assert said(figure).endswith("(not drawn, since not finite: one two)")


def test_nodes_without_any_score_have_no_line_and_are_counted():
    some = scored(loss=[[NAN, NAN, 2.0, NAN], [NAN, INF, NAN, 1.0]])  # nodes 2 and 3 have one each
    figure = compare_histories({"some": some, "whole": WHOLE}, "loss", kind="nodes")
    assert said(figure).endswith("(not drawn, since not finite: 2 of 4 nodes of some)")
    assert_readable(figure)
    begun = compare_histories({"a": WHOLE, "b": DIVERGED}, "loss", kind="nodes")
    assert "not drawn" not in said(begun)  # each node has a line up to its divergence


def test_runs_without_any_score_do_not_move_the_labels_of_others():
    long = scored(loss=[[4.0, 4.0], [3.0, 3.0], [2.0, 2.0]])
    runs = {"a": scored(loss=[[4.0, 4.0], [1.0, 1.0]]), "b": long}
    whole, more = (
        {
            text.get_text(): (text.get_position(), text.get_horizontalalignment())
            for text in compare_histories(shown, "loss", x="megabytes").axes[0].texts
        }
        for shown in (runs, runs | {"c": scored(loss=[[NAN, NAN]])})
    )
    assert whole["a"][1] == "center"  # at its own end
    assert whole.keys() == more.keys()
    for name in runs:
        assert whole[name][1] == more[name][1]
        assert whole[name][0] == pytest.approx(more[name][0], rel=0.02)


@pytest.fixture
def diverged(history):
    """Return a run in which node 0 became NaN or infinite, and finally all nodes."""
    evaluations = {name: column.copy() for name, column in history.evaluations.items()}
    evaluations["loss"][1:, 0], evaluations["accuracy"][1:, 0] = INF, NAN
    evaluations["loss"][-1] = evaluations["accuracy"][-1] = NAN
    evaluations["loss"][2, :2] = INF, -INF
    evaluations["consensus_distance"][-1] = INF
    losses = np.array([2.0, 1.0, INF, NAN, NAN, NAN, NAN])
    return replace(
        history,
        rounds={**history.rounds, "train_loss": losses},
        evaluations=evaluations,
        node_loss=history.node_loss * NAN,
    )


def test_a_run_that_diverged_is_saved_tabulated_and_plotted(diverged, tmp_path):
    loaded = topofl.History.load(diverged.save(tmp_path / "run"))
    np.testing.assert_array_equal(loaded["train_loss"], np.array([2.0, 1.0] + 5 * [NAN]))
    assert loaded["train_loss"].dtype == np.float64
    assert loaded["messages"].dtype == diverged["messages"].dtype
    for name in diverged.evaluations:
        np.testing.assert_array_equal(loaded[name], diverged[name])
    assert "final accuracy nan" in repr(diverged)
    assert diverged.rounds_to(0.0) == 0
    table = diverged.to_pandas()
    assert table["loss_max"][3] == INF
    assert np.isnan(table["accuracy_mean"][7])
    assert len(diverged.to_pandas(per="node")) == 24
    for column in ("accuracy", "loss", "train_loss", "consensus_distance"):
        diverged.plot(column).figure.canvas.draw()
