"""What plots leave out: diverged nodes and runs, and evaluations without scores."""

import dataclasses
import json

import numpy as np
import pytest
from matplotlib.figure import Figure

import topofl
from tests.history.helpers import scored
from tests.summary.readable import assert_readable

INF, NAN = np.inf, np.nan
WHOLE = scored(loss=[[2.0] * 8, [1.0] * 8])
DIVERGED = scored(loss=[[2.0] * 8, [INF, INF, INF, INF, NAN, 0.5, 0.75, 0.25]])
STOPPED = scored(loss_before_exchange=[[2.0, 3.0], [1.0, 1.5], [NAN, NAN], [NAN, NAN]])
NEVER = scored(loss_before_exchange=[[NAN, NAN], [NAN, NAN]])
EARLY = "loss_before_exchange"


@pytest.fixture
def ax():
    return Figure(figsize=(5, 3.5), layout="constrained").subplots()


def copy_of(history):
    """Return another run with the same values."""
    return dataclasses.replace(history)


def said(figure):
    """Return the label of the horizontal axis, which panels share, in one line."""
    return (figure.axes[0].get_xlabel() or figure.get_supxlabel()).replace("\n", " ")


def test_sorted_nodes_count_those_that_are_not_finite(ax):
    DIVERGED.plot("loss", kind="nodes", x="rank", worst=2, ax=ax)
    assert ax.lines[0].get_ydata().tolist() == [0.75, 0.5, 0.25]
    assert [text.get_text() for text in ax.texts] == ["node 6", "node 5"]
    assert said(ax.figure).endswith("(points: 2 worst) (not drawn, since not finite: 5 of 8 nodes)")


def test_only_points_that_are_drawn_are_counted(ax):
    DIVERGED.plot("loss", kind="nodes", x="rank", worst=4, ax=ax)
    assert "(points: 3 worst)" in said(ax.figure)
    none = Figure(figsize=(5, 3.5)).subplots()
    DIVERGED.plot("loss", kind="nodes", x="rank", worst=0, ax=none)
    assert "points" not in said(none.figure)


@pytest.mark.parametrize(("kind", "x"), [("nodes", "rank"), ("violin", None)])
def test_comparisons_name_the_runs_with_nodes_that_are_not_finite(kind, x):
    runs = {"whole": WHOLE, "diverged": DIVERGED}
    figure = topofl.compare_histories(runs, "loss", kind=kind, x=x)
    assert "(not drawn, since not finite: 5 of 8 nodes of diverged)" in said(figure)
    assert_readable(figure)
    whole = topofl.compare_histories(
        {"whole": WHOLE, "more": copy_of(WHOLE)}, "loss", kind=kind, x=x
    )
    assert "not drawn" not in said(whole)


def test_violins_count_nodes_in_each_round(ax):
    DIVERGED.plot("loss", kind="violin", at=[0, 1], ax=ax)
    assert "(not drawn, since not finite: 5 of 8 nodes in round 1)" in said(ax.figure)


def test_fronts_name_what_has_no_finite_mean(ax):
    runs = {"ok": WHOLE, "$_diverged_$": DIVERGED}
    figure = topofl.compare_histories(runs, "loss", kind="pareto")
    assert [text.get_text() for text in figure.axes[0].texts] == ["ok"]
    assert said(figure).endswith("(not drawn, since not finite: $_diverged_$)")
    assert_readable(figure)
    DIVERGED.plot("loss", kind="pareto", ax=ax)
    assert said(ax.figure).endswith("(not drawn, since not finite: 1 of 2 evaluations)")


def test_long_lists_of_runs_are_counted():
    runs = {f"run {k}": copy_of(DIVERGED) for k in range(12)}
    figure = topofl.compare_histories(runs, "loss", kind="violin")
    assert "nodes of run 2 and 9 more)" in said(figure)
    assert "run 3" not in said(figure)
    assert_readable(figure)


@pytest.mark.parametrize("options", [{"kind": "violin"}, {"kind": "nodes", "x": "rank"}])
def test_last_scores_of_an_earlier_round_have_its_number(options, ax):
    STOPPED.plot(EARLY, **options, ax=ax)
    assert "(last scores: round 1 of 3)" in said(ax.figure)
    for column, run in ((EARLY, scored(**{EARLY: [[2.0, 3.0], [1.0, 1.5]]})), ("loss", WHOLE)):
        whole = Figure(figsize=(5, 3.5)).subplots()
        run.plot(column, **options, ax=whole)
        assert "last scores:" not in said(whole.figure)


@pytest.mark.parametrize(("kind", "x"), [("violin", None), ("nodes", "rank"), ("pareto", None)])
def test_comparisons_name_the_runs_whose_last_scores_are_earlier(kind, x):
    whole = scored(**{EARLY: [[2.0, 3.0]] * 3 + [[1.0, 1.5]]})
    figure = topofl.compare_histories({"whole": whole, "stopped": STOPPED}, EARLY, kind=kind, x=x)
    assert "(last scores: stopped, round 1 of 3)" in said(figure)
    assert_readable(figure)


def test_given_rounds_need_no_note(ax):
    STOPPED.plot(EARLY, kind="violin", at=1, ax=ax)
    assert "last scores:" not in said(ax.figure)
    with pytest.raises(ValueError, match=f"`at` must be .* with scores in '{EARLY}', 0, 1, got 2"):
        STOPPED.plot(EARLY, kind="violin", at=2, ax=ax)


@pytest.mark.parametrize(
    "options", [{"kind": "violin"}, {"kind": "nodes", "x": "rank"}, {"kind": "pareto"}]
)
def test_columns_without_any_score_are_refused(options):
    with pytest.raises(ValueError, match=f"finite value .*'{EARLY}' of never has none in round 1"):
        topofl.compare_histories({"never": NEVER, "other": STOPPED}, EARLY, **options)


@pytest.mark.parametrize("kind", ["band", "nodes"])
@pytest.mark.parametrize("column", [EARLY, "loss"])
def test_a_run_without_any_score_has_no_line_and_is_named(kind, column):
    never = scored(**{column: [[NAN, NAN], [NAN, NAN]]})
    scores = scored(**{column: [[2.0, 3.0], [1.0, 1.5]]})
    for runs in ({"never": never, "other": scores}, {"other": scores, "never": never}):
        figure = topofl.compare_histories(runs, column, kind=kind)
        labels = {text.get_text() for ax in figure.axes for text in ax.texts}
        assert labels == ({"other"} if kind == "band" else {"mean", "node 0", "node 1"})
        assert said(figure).endswith("(not drawn, since not finite: never)")
        assert_readable(figure)


def test_nodes_without_any_score_have_no_line_and_are_counted(ax):
    some = scored(loss=[[NAN, NAN, 2.0, NAN], [NAN, INF, NAN, 1.0]])  # nodes 2 and 3 have one each
    figure = topofl.compare_histories({"some": some, "whole": WHOLE}, "loss", kind="nodes")
    assert said(figure).endswith("(not drawn, since not finite: 2 of 4 nodes of some)")
    assert_readable(figure)
    some.plot("loss", kind="nodes", ax=ax)
    assert said(ax.figure).endswith("(not drawn, since not finite: 2 of 4 nodes)")
    begun = topofl.compare_histories({"a": WHOLE, "b": DIVERGED}, "loss", kind="nodes")
    assert "not drawn" not in said(begun)  # each node has a line up to its divergence


def test_runs_without_any_score_do_not_move_the_labels_of_others():
    long = scored(loss=[[4.0, 4.0], [3.0, 3.0], [2.0, 2.0]])
    runs = {"a": scored(loss=[[4.0, 4.0], [1.0, 1.0]]), "b": long}
    places = [
        {
            text.get_text(): (text.get_position(), text.get_horizontalalignment())
            for text in topofl.compare_histories(shown, "loss", x="megabytes").axes[0].texts
        }
        for shown in (runs, runs | {"c": scored(loss=[[NAN, NAN]])})
    ]
    assert places[0]["a"][1] == "center"  # at its own end
    for name in runs:
        assert places[0][name][1] == places[1][name][1]
        assert places[0][name][0] == pytest.approx(places[1][name][0], rel=0.02)
    assert "c" not in places[1]


def test_runs_that_all_lack_scores_are_named():
    never = scored(loss=[[NAN, NAN], [NAN, NAN]])
    figure = topofl.compare_histories({"one": never, "two": copy_of(never)}, "loss")
    assert not figure.axes[0].texts
    assert said(figure).endswith("(not drawn, since not finite: one two)")


@pytest.fixture
def diverged(history):
    """Return a run in which node 0 became NaN or infinite, and finally all nodes."""
    evaluations = {name: column.copy() for name, column in history.evaluations.items()}
    for name, value in (("loss", np.inf), ("accuracy", np.nan)):
        evaluations[name][1:, 0] = value
        evaluations[name][-1] = np.nan
    evaluations["loss"][2, :2] = np.inf, -np.inf
    evaluations["consensus_distance"][-1] = np.inf
    rounds = dict(history.rounds) | {
        "train_loss": np.array([2.0, 1.0, np.inf, np.nan, np.nan, np.nan, np.nan])
    }
    return topofl.History(
        history.meta,
        rounds,
        evaluations,
        history.node_loss * np.nan,
        history.matrices,
        history.matrix_of_round,
    )


def test_a_run_that_diverged_is_saved_and_loaded(diverged, tmp_path):
    path = diverged.save(tmp_path / "run")
    records = [
        json.loads(line, parse_constant=pytest.fail)
        for line in (path / "rounds.jsonl").read_text().splitlines()
    ]
    assert [record.get("train_loss") for record in records] == [
        None,
        2.0,
        1.0,
        None,
        None,
        None,
        None,
        None,
    ]
    assert records[3]["loss_max"] is None
    assert records[3]["accuracy_mean"] == pytest.approx(np.nanmean(diverged["accuracy"][1]))
    assert {records[7][name] for name in ("accuracy_mean", "loss_min", "consensus_distance")} == {
        None
    }
    loaded = topofl.History.load(path)
    np.testing.assert_array_equal(loaded["train_loss"], np.array([2.0, 1.0] + 5 * [np.nan]))
    assert loaded["train_loss"].dtype == np.float64
    assert loaded["messages"].dtype == diverged["messages"].dtype
    for name in diverged.evaluations:
        np.testing.assert_array_equal(loaded[name], diverged[name])


def test_a_run_that_diverged_can_be_tabulated_and_plotted(diverged):
    assert "final accuracy nan" in repr(diverged)
    assert diverged.rounds_to(0.0) == 0
    table = diverged.to_pandas()
    assert table["loss_max"][3] == np.inf
    assert np.isnan(table["accuracy_mean"][7])
    assert table["train_loss"].dtype == np.float64
    assert len(diverged.to_pandas(per="node")) == 24
    for column in ("accuracy", "loss", "train_loss", "consensus_distance"):
        diverged.plot(column).figure.canvas.draw()
