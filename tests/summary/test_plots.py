"""Plots over many runs: what they show, and which runs they leave out."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

import topofl
from tests.summary.readable import assert_readable, heights_at, said
from tests.summary.samples import ROUNDS, runs_of, stored
from topofl.cli.commands import make_parser
from topofl.history.plots import KINDS as KINDS_OF_HISTORIES
from topofl.summary import plot_band, plot_heat_map, plot_nodes, plot_pareto, plot_violin
from topofl.summary.figures import KINDS


def test_bands_are_means_and_t_intervals():
    runs = runs_of(topology=["ring", "star"], seeds=5)
    ax = plot_band(runs, "topology").axes[0]
    curves = np.array([run.curves["scores"]["accuracy"]["mean"] for run in runs]).reshape(2, 5, -1)
    drawn = [line for line in ax.lines if len(line.get_xdata()) == len(ROUNDS)]
    for line, band, own in zip(drawn, ax.collections, curves, strict=True):
        assert line.get_xdata().tolist() == ROUNDS
        np.testing.assert_allclose(line.get_ydata(), own.mean(0), atol=1e-12)
        half = stats.t.ppf(0.975, 4) * stats.sem(own, axis=0)
        corners = band.get_paths()[0].vertices
        for x, mean, h in zip(ROUNDS, own.mean(0), half, strict=True):
            heights = corners[np.isclose(corners[:, 0], x), 1]
            assert heights.min() == pytest.approx(max(0, mean - h), abs=1e-9)
            assert heights.max() == pytest.approx(mean + h, abs=1e-9)


def test_bands_of_few_runs_are_ranges():
    runs = runs_of(topology=["ring", "star"], seeds=3)[:-1]
    figure = plot_band(runs, "topology")
    assert said(figure) == "round (mean over 2 to 3 runs; band: lowest to highest run)"
    finals = [run.curves["scores"]["accuracy"]["mean"][-1] for run in runs]
    for band, own in zip(figure.axes[0].collections, (finals[:3], finals[3:]), strict=True):
        assert heights_at(band, 40) == pytest.approx((min(own), max(own)))
    mean, half = np.mean(finals[3:]), stats.t.ppf(0.975, 1) * stats.sem(finals[3:])
    asked = plot_band(runs, "topology", band="interval")
    assert heights_at(asked.axes[0].collections[1], 40) == pytest.approx((mean - half, mean + half))
    assert "band: 95 % interval of the mean" in said(asked)
    assert said(plot_band(runs[:1])) == "round (single runs)"


def test_intervals_are_left_out_where_two_of_several_runs_have_values():
    runs = runs_of(seeds=3)
    runs[0].curves["scores"]["accuracy"]["mean"][0] = None
    axes = plot_band(runs, band="interval").axes[0]
    positions = axes.collections[0].get_paths()[0].vertices[:, 0]
    assert (positions.min(), positions.max()) == (10, 40)
    assert axes.lines[0].get_xdata().tolist() == ROUNDS
    spanned = plot_band(runs, band="range").axes[0].collections[0].get_paths()[0].vertices[:, 0]
    assert spanned.min() == 0


def test_bars_and_sorted_nodes_of_few_runs_are_ranges():
    runs = runs_of(seeds=2)
    finals = [run.curves["scores"]["accuracy"]["mean"][-1] for run in runs]
    figure = plot_pareto(runs)
    bar = figure.axes[0].collections[0].get_segments()[0][:, 1]
    assert bar == pytest.approx([min(finals), max(finals)])
    assert "(mean over 2 runs; bar: lowest to highest run; filled: Pareto front)" in said(figure)
    assert "(mean over 2 runs; band: lowest to highest run)" in said(plot_nodes(runs))
    assert "lowest to highest" in said(plot_pareto(runs_of(seeds=4)))
    more = plot_pareto(runs_of(seeds=5))
    assert "(mean over 5 runs; bar: 95 % interval of the mean" in said(more)
    bars = more.axes[0].collections[0].get_segments()[0][:, 1]
    finals = [run.curves["scores"]["accuracy"]["mean"][-1] for run in runs_of(seeds=5)]
    half = stats.t.ppf(0.975, 4) * stats.sem(finals)
    assert bars == pytest.approx([np.mean(finals) - half, np.mean(finals) + half])


@pytest.mark.parametrize("draw", [plot_band, plot_nodes, plot_pareto])
def test_intervals_of_accuracies_end_at_0_and_1(draw):
    def ends(runs):
        artist = draw(runs, band="interval").axes[0].collections[0]
        path = artist.get_segments()[0] if draw is plot_pareto else artist.get_paths()[0].vertices
        return path[:, 1].min(), path[:, 1].max()

    finals = [0.6, 0.98]  # the interval of the mean, 0.79, is 2.4 wide on either side
    low, high = ends([stored({"run.seed": k}, x) for k, x in enumerate(finals)])
    assert (low >= 0, high) == (True, 1)
    low, high = ends([stored({"run.seed": k}, x, low_is_good=True) for k, x in enumerate(finals)])
    assert high > 1  # losses have no such end


def test_runs_with_other_rounds_are_interpolated_until_the_first_one_ends():
    runs = [
        stored({"run.seed": 0}, 0.6, rounds=[0, 10, 20]),
        stored({"run.seed": 1}, 0.6, rounds=[0, 20, 40]),
    ]
    ax = plot_band(runs).axes[0]
    line = ax.lines[0]
    assert line.get_xdata().tolist() == [0, 10, 20]
    assert "until the first one ends" in ax.get_xlabel()
    assert "until" not in plot_band(runs[:1]).axes[0].get_xlabel()
    first, second = (run.curves["scores"]["accuracy"]["mean"] for run in runs)
    expected = [first[0] / 2 + second[0] / 2, (first[1] + (second[0] + second[1]) / 2) / 2]
    expected += [(first[2] + second[1]) / 2]
    assert line.get_ydata() == pytest.approx(expected)


def test_costs_are_on_the_horizontal_axis():
    runs = runs_of(seconds=True)
    assert plot_band(runs, x="megabytes").axes[0].lines[0].get_xdata().tolist() == ROUNDS
    seconds = plot_band(runs, x="seconds").axes[0].lines[0].get_xdata()
    assert seconds.tolist() == [1.5 * r for r in ROUNDS]


def test_nodes_are_sorted_from_the_worst():
    runs = runs_of(seeds=3)
    line = plot_nodes(runs).axes[0].lines[0]
    ranked = [np.sort(run.history["accuracy"][-1]) for run in runs]
    np.testing.assert_allclose(line.get_ydata(), np.mean(ranked, axis=0))
    low = plot_nodes(runs_of(low_is_good=True)).axes[0].lines[0]
    assert (np.diff(low.get_ydata()) < 0).all()


def test_violins_show_median_and_worst_tenth():
    runs = runs_of(seeds=3)
    pooled = np.sort(np.concatenate([run.history["accuracy"][-1] for run in runs]))
    median, span, worst = plot_violin(runs).axes[0].lines
    assert median.get_xdata() == pytest.approx([np.median(pooled)] * 2)
    assert span.get_xdata() == pytest.approx([pooled[0], pooled[-1]])
    assert worst.get_xdata() == pytest.approx([pooled[:3].mean()])


def test_heat_map_has_a_number_per_cell():
    runs = runs_of(topology=["ring", "star"], alpha=[10.0, 0.1], seeds=3)[:-3]
    ax = plot_heat_map(runs, by=["topology", "alpha"]).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["ring", "star"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.1", "10.0"]
    cells = {text.get_position(): float(text.get_text()) for text in ax.texts}
    frame = topofl.summarize(runs, by=["topology", "alpha"]).to_pandas()
    assert set(cells) == {(0, 0), (1, 0), (1, 1)}
    assert [cells[0, 0], cells[1, 0], cells[1, 1]] == pytest.approx(frame["accuracy"], abs=0.01)


def test_axes_of_the_caller_are_drawn_on():
    runs = runs_of(topology=["ring", "star"], alpha=[0.1, 1.0])
    for draw in KINDS.values():
        figure, ax = plt.subplots(figsize=(7, 4))
        assert draw(runs, ["topology", "alpha"], ax=ax) is figure
        assert ax.has_data()
        plt.close(figure)


def test_no_figure_stays_open():
    before = plt.get_fignums()
    plot_band(runs_of())
    assert plt.get_fignums() == before


def test_kinds_have_one_name_everywhere():
    assert list(KINDS) == [*KINDS_OF_HISTORIES, "heat_map"]
    assert {kind: draw.__name__ for kind, draw in KINDS.items()} == {
        kind: f"plot_{kind}" for kind in KINDS
    }
    with pytest.raises(ValueError, match="did you mean 'band'"):
        make_parser().parse_args(["compare", "a", "--kind", "bands"])
    for kind in KINDS:
        make_parser().parse_args(["compare", "a", "--kind", kind])


@pytest.mark.parametrize("draw", [plot_nodes, plot_violin])
def test_nodes_without_a_finite_score_are_counted(draw):
    runs = runs_of(topology=["ring", "star"], seeds=3)
    for run, worst in ((runs[0], [np.nan, np.inf]), (runs[1], [np.nan])):
        run.history.evaluations["accuracy"][-1, : len(worst)] = worst
    figure = draw(runs, "topology")
    assert said(figure).count("(not drawn, since not finite: 3 of 30 nodes of ring)") == 1
    assert_readable(figure)
    assert "not drawn" not in said(draw(runs[3:], "topology"))


@pytest.mark.parametrize("draw", [plot_band, plot_pareto])
def test_runs_without_a_finite_score_are_counted(draw):
    runs = runs_of(topology=["ring", "star"], seeds=3)
    runs[0].curves["scores"]["accuracy"]["mean"][:] = [None] * len(ROUNDS)
    figure = draw(runs, "topology")
    assert "(not drawn, since not finite: 1 of 3 runs of ring)" in said(figure)
    assert "(mean over 2 to 3 runs; ba" in said(figure)
    assert_readable(figure)
    assert "not drawn" not in said(draw(runs[3:], "topology"))


def test_runs_that_end_without_a_finite_score_do_not_cut_curves():
    runs = runs_of(seeds=3)
    mean = np.mean([run.curves["scores"]["accuracy"]["mean"] for run in runs[:2]], axis=0)
    diverged = runs[2].curves["scores"]["accuracy"]["mean"]
    for first in (20, 10):  # round 0 alone would be a dot
        diverged[ROUNDS.index(first) :] = [None] * (len(ROUNDS) - ROUNDS.index(first))
        figure = plot_band(runs)
        line = figure.axes[0].lines[0]
        assert line.get_xdata().tolist() == ROUNDS
        assert line.get_ydata() == pytest.approx(mean)
        assert "(mean over 2 runs; band" in said(figure)
        assert "(not drawn, since not finite: 1 of 3 runs of all runs)" in said(figure)


def test_a_diverged_run_that_stopped_does_not_end_the_mean():
    runs = runs_of(seeds=2)
    stopped = stored(runs[0].settings | {"run.seed": 9}, 0.5, rounds=[0, 10])
    stopped.curves["scores"]["accuracy"]["mean"][-1] = None
    figure = plot_band([*runs, stopped])
    assert figure.axes[0].lines[0].get_xdata().tolist() == ROUNDS
    assert "until the first one ends" not in said(figure)


def test_many_groups_have_a_panel_for_each_value_of_a_setting():
    names = {"ring": 0.0, "star": 0.1, "torus": 0.2}
    runs = runs_of(topology=list(names), alpha=[0.1, 1.0, 10.0], seeds=1, effect=names)
    panels = [ax for ax in plot_band(runs, ["alpha", "topology"]).axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == ["alpha = 0.1", "alpha = 1.0", "alpha = 10.0"]
    for ax in panels:
        assert {text.get_text() for text in ax.texts} == {*names}
