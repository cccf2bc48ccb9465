"""Comparisons of several histories in one figure."""

import dataclasses
import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure

import topofl
from tests.history.helpers import run_of, scored
from tests.summary.readable import assert_readable, crosses, shown_texts
from topofl import algorithms, topologies
from topofl._drawing.charts import LABELED

KINDS = [
    ("band", {}),
    ("violin", {}),
    ("violin", {"at": [0, 2]}),
    ("nodes", {}),
    ("nodes", {"x": "rank"}),
    ("pareto", {}),
]


def runs_of(count, nodes=9):
    """Return runs with long names, rising scores, and different costs."""
    rng, found = np.random.default_rng(1), {}
    for k in range(count):
        scores = 0.8 * (1 - np.exp(-np.arange(5) / (1 + k / 6)))[:, None] * np.ones(nodes)
        run = scored(accuracy=scores + rng.normal(0, 0.02, (5, nodes)))
        sent = {**run.rounds, "bytes": np.full(4, 10**6 * (1 + k))}
        found[f"small_world(n=100, k={k}, p=0.25)"] = dataclasses.replace(run, rounds=sent)
    return found


@pytest.mark.parametrize(("kind", "options"), KINDS)
@pytest.mark.parametrize("count", [2, 24])
@pytest.mark.slow
def test_labels_are_readable(kind, options, count):
    runs = runs_of(count)
    if kind == "nodes" and not options:
        options = {"worst": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = topofl.compare_histories(runs, kind=kind, **options)
        assert_readable(figure)
    assert not figure.legends
    assert not any(ax.get_legend() for ax in figure.axes)
    texts = " ".join(text.get_text().replace("\n", " ") for text in shown_texts(figure))
    if kind == "pareto" and count > LABELED:  # the first run is cheaper and better than all others
        assert f"({count - 1} of {count} points not labeled)" in texts
        count = 1
    for k in range(count):
        assert f"k={k}," in texts


def ending_at(megabytes, runs):
    """Return runs that have sent these megabytes per round, under short names."""
    return {
        f"graph {k}": dataclasses.replace(
            run, rounds={**run.rounds, "bytes": np.full(4, 10**6 * sent)}
        )
        for k, (run, sent) in enumerate(zip(runs.values(), megabytes, strict=True))
    }


def test_curves_that_end_early_have_labels_at_their_own_ends():
    figure = topofl.compare_histories(ending_at([1, 10, 25, 40], runs_of(4)), x="megabytes")
    assert_readable(figure)
    ax = figure.axes[0]
    curves = [line for line in ax.lines if len(line.get_xdata()) == 5]
    ends = ax.transData.transform([line.get_xydata()[-1] for line in curves])
    assert len(ax.lines) == 5  # only the longest curve is joined to its label
    for text, curve in zip(ax.texts, curves, strict=True):
        box = text.get_window_extent()
        away = np.hypot(*np.maximum(box.min - ends, ends - box.max).clip(0).T)
        assert curve is curves[away.argmin()], text.get_text()
        assert away.min() < 25 * figure.dpi / 72
        for line in curves:
            pixels = ax.transData.transform(line.get_xydata())
            assert not crosses(pixels, box), text.get_text()


def test_labels_that_have_no_room_at_the_ends_of_curves_have_a_piece_of_their_line():
    figure = topofl.compare_histories(runs_of(8), x="megabytes")
    assert_readable(figure)
    ax = figure.axes[0]
    curves, pieces = ax.lines[:8], ax.lines[8:]
    longest = max(line.get_xdata()[-1] for line in curves)
    for curve, piece, text in zip(curves, pieces, ax.texts, strict=True):
        assert piece.get_color() == curve.get_color()
        assert piece.get_linestyle() == curve.get_linestyle()
        assert piece.get_xdata()[0] > longest
        assert piece.get_xdata()[1] < text.get_position()[0]
        assert piece.get_ydata().tolist() == [text.get_position()[1]] * 2


def test_bands_are_those_of_each_history():
    runs = runs_of(2)
    ax = topofl.compare_histories(runs, quantiles=(0, 0.5)).axes[0]
    drawn = [line for line in ax.lines if len(line.get_xdata()) == 5]
    for line, band, run in zip(drawn, ax.collections, runs.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), run["accuracy"].mean(1))
        corners = band.get_paths()[0].vertices
        heights = corners[np.isclose(corners[:, 0], 3), 1]
        ends = np.quantile(run["accuracy"][3], (0, 0.5))
        np.testing.assert_allclose([heights.min(), heights.max()], ends)


def test_the_front_has_last_scores_and_costs():
    runs = {
        name: dataclasses.replace(
            scored(accuracy=[[0.0, 0.0], [score, score + 0.1]]), rounds={"bytes": np.array([cost])}
        )
        for name, score, cost in (("ring", 0.5, 10**6), ("star", 0.4, 2e6), ("all", 0.8, 3e6))
    }
    front = topofl.compare_histories(runs, kind="pareto").axes[0].lines[0].get_xydata()
    np.testing.assert_allclose(front, [[1, 0.55], [3, 0.85]])


def test_sequences_are_named_after_what_differs():
    run = scored(accuracy=[[0.1], [0.5]])

    def named(*metas):
        runs = [dataclasses.replace(run, meta=meta) for meta in metas]
        ax = topofl.compare_histories(runs, kind="violin").axes[0]
        return [label.get_text() for label in ax.get_yticklabels()]

    ring, star = (
        {"algorithm": "dsgd", "topology": "ring"},
        {"algorithm": "dsgd", "topology": "star"},
    )
    assert named(ring, star) == ["ring", "star"]
    assert named(ring, {**ring, "algorithm": "dsgt"}) == ["dsgd", "dsgt"]
    assert named(ring, {**star, "algorithm": "dsgt"}) == ["dsgd, ring", "dsgt, star"]
    assert named({**ring, "seed": 0}, {**ring, "seed": 1}) == [
        "dsgd, ring, seed 0",
        "dsgd, ring, seed 1",
    ]
    assert named(ring, ring, star) == ["ring (1)", "ring (2)", "star"]


def test_axes_of_the_caller_are_drawn_on_if_there_is_one_panel():
    runs = runs_of(3)
    for kind, options in KINDS:
        figure = Figure(figsize=(6, 4))
        ax = figure.subplots()
        if (kind, options) == ("nodes", {}):
            with pytest.raises(ValueError, match="`ax` must be None for several groups"):
                topofl.compare_histories(runs, kind=kind, ax=ax)
            continue
        assert topofl.compare_histories(runs, kind=kind, ax=ax, **options) is figure
        assert ax.has_data()
    with pytest.raises(ValueError, match="`ax` must be None for more than 8 groups"):
        topofl.compare_histories(runs_of(9), ax=ax)


def test_a_column_of_a_paper_has_room_for_labels():
    figure = Figure(figsize=(3.5, 2.6), layout="constrained")
    topofl.compare_histories(runs_of(4), ax=figure.subplots())
    assert_readable(figure)


@pytest.mark.parametrize(
    ("kind", "x", "message"),
    [
        ("band", None, r"`ax` must be at least [\d.]+ inches wide for its labels, got 0\."),
        ("nodes", "rank", r"`ax` must be at least [\d.]+ inches wide for its labels, got 0\."),
        ("pareto", None, "`ax` must have room for 4 labels, got Axes that are too small"),
    ],
)
def test_axes_that_are_too_small_for_labels_are_refused(kind, x, message):
    ax = Figure(figsize=(1, 1), layout="constrained").subplots()
    with pytest.raises(ValueError, match=message):
        topofl.compare_histories(runs_of(4), kind=kind, x=x, ax=ax)


RUN = scored(accuracy=[[0.1], [0.5]])

RUN_OF_3 = scored(accuracy=[[0.1], [0.5], [0.6]])


@pytest.mark.parametrize(
    ("histories", "error", "message"),
    [
        ({}, ValueError, "`histories` must be a dictionary .*, got none"),
        ([], ValueError, "`histories` must be a dictionary .*, got none"),
        (RUN, TypeError, r"take history.plot\(\) for a single one"),
        ("runs", TypeError, "`histories` must be a dictionary"),
        ([RUN, 3], TypeError, "got an item 3"),
        (3, TypeError, "`histories` must be a dictionary"),
        (
            {1: RUN, "1": RUN},
            ValueError,
            "`histories` must have names that differ, got '1' 2 times",
        ),
    ],
)
def test_what_is_no_history_is_refused(histories, error, message):
    with pytest.raises(error, match=message):
        topofl.compare_histories(histories)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_a_run_under_two_names_is_refused(kind, options):
    runs = {"ring": RUN_OF_3, "other": scored(accuracy=[[0.2], [0.3], [0.4]]), "again": RUN_OF_3}
    message = "`histories` must be different runs, got the same one as 'ring' and 'again'; leave"
    with pytest.raises(ValueError, match=message):
        topofl.compare_histories(runs, kind=kind, **options)


def test_a_run_that_was_loaded_twice_is_refused(tmp_path):
    run_of(algorithms.dsgd, topologies.ring(6), rounds=2).save(tmp_path / "run")
    one, other = (topofl.History.load(tmp_path / "run") for _ in range(2))
    message = "got the same one as 'one' and 'other'; leave one of them out"
    for x in ("rounds", "megabytes"):
        with pytest.raises(ValueError, match=message):
            topofl.compare_histories({"one": one, "other": other}, x=x)
    with pytest.raises(ValueError, match=r"as 'dsgd.* \(1\)' and 'dsgd.* \(2\)'"):
        topofl.compare_histories([one, other])
    fast, slow = (one.with_seconds({"compute": seconds}) for seconds in (1, 2))
    topofl.compare_histories({"fast": fast, "slow": slow}, x="seconds")
    seeds = [dataclasses.replace(one, meta={**one.meta, "seed": seed}) for seed in (1, 2)]
    topofl.compare_histories(seeds)  # other runs, whatever their values


def test_runs_from_different_weights_are_not_one_run():
    settings = {"seed": 0, "init": "given", "name": "dsgd"}
    one, other = (scored(accuracy=[[start], [0.4]]) for start in (0.1, 0.2))
    runs = {
        name: dataclasses.replace(run, meta={**run.meta, **settings})
        for name, run in (("one", one), ("other", other))
    }
    for column in ("accuracy", "bytes"):
        topofl.compare_histories(runs, column)
    copied = dataclasses.replace(runs["one"], meta=dict(runs["one"].meta))
    with pytest.raises(ValueError, match="got the same one as 'one' and 'copy'"):
        topofl.compare_histories({**runs, "copy": copied}, "bytes")


def test_errors_name_the_history():
    both = {"a": scored(accuracy=[[1]], accuracy_knn=[[1]]), "b": RUN}
    with pytest.raises(KeyError, match="b: no column 'accuracy_knn'"):
        topofl.compare_histories(both, "accuracy_knn")
    with pytest.raises(ValueError, match="b: `x` must be a recorded cost, got 'seconds'"):
        topofl.compare_histories({"b": RUN}, x="seconds")
    for options in ({"kind": "nodes"}, {"kind": "nodes", "x": "rank"}, {"kind": "violin"}):
        with pytest.raises(ValueError, match="got 'consensus_distance' of b with one for all"):
            topofl.compare_histories({"b": RUN}, "consensus_distance", **options)
    nothing = scored(accuracy=[[np.nan]])
    for kind in ("violin", "pareto"):
        with pytest.raises(ValueError, match="'accuracy' of b has none in round 0"):
            topofl.compare_histories({"a": RUN, "b": nothing}, kind=kind)


def test_scores_that_are_missing_leave_gaps():
    holes = scored(accuracy=[[0.1, 0.2], [np.nan, 0.4], [np.nan, np.nan]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ("band", "nodes"):
            figure = topofl.compare_histories({"holes": holes, "other": RUN}, kind=kind)
            assert_readable(figure)
