"""Pictures show exactly the curves that they are given; tables hold their numbers."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from PIL import Image

from paper_figures.kit.curves import Curve, arms_table
from paper_figures.kit.drawing import (
    BINS,
    BOLD,
    THIN,
    convergence,
    descent,
    histogram,
    mark_smoke,
    save,
)
from topofl import NotApplicable, Spread


def curve(end, *, seeds=2, epochs=10, width=4.0, **numbers):
    """Accuracy that rises from 10 to `end` in half of the epochs, seeds 1 point apart around it."""
    at = np.arange(epochs + 1.0)
    rising = 10 + (end - 10) * np.minimum(1, at / (epochs / 2))
    mean = rising + (np.arange(seeds) - (seeds - 1) / 2)[:, None]
    known = {
        "degree": 9.9,
        "messages": 18.9,
        "messages_paper": 19.8,
        "bytes": 2.5e6,
        "gap": 0.08,
        "heterogeneity": 0.1,
    }
    columns = {name: np.full(seeds, value) for name, value in (known | numbers).items()}
    return Curve(np.arange(seeds), at, mean, mean - width, mean + width / 2, columns)


@pytest.fixture
def panels():
    return {
        "MNIST": {"full": curve(92), "cliques": curve(91), "ring": curve(60)},
        "CIFAR-10": {"cliques": curve(70), "full": curve(72, epochs=20), "random": curve(50)},
    }


@pytest.fixture
def mnist():
    return {"MNIST": {"full": curve(92), "ring": curve(60)}}


def lines(ax, width):
    return [line for line in ax.get_lines() if line.get_linewidth() == width]


def look(ax):
    return {
        line.get_label(): (
            to_hex(line.get_color()),
            line.get_linestyle(),
            line._unscaled_dash_pattern,
            line.get_marker(),
        )
        for line in lines(ax, BOLD)
    }


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_panel_has_a_bold_mean_and_two_thin_extremes_an_arm(panels):
    figure = convergence(panels)
    assert BOLD > 2 * THIN
    for ax, arms in zip(figure.axes, panels.values(), strict=True):
        assert [line.get_label() for line in lines(ax, BOLD)] == list(arms)
        for k, (bold, arm) in enumerate(zip(lines(ax, BOLD), arms.values(), strict=True)):
            low, high = lines(ax, THIN)[2 * k : 2 * k + 2]
            for line, part in ((bold, arm.mean), (low, arm.low), (high, arm.high)):
                assert np.array_equal(line.get_xdata(), arm.epochs)
                assert np.allclose(line.get_ydata(), part.mean(axis=0), rtol=0, atol=1e-12)
                assert line.get_color() == bold.get_color()
                assert line.get_visible()
        assert len(ax.get_lines()) == 3 * len(arms)


def test_the_band_reaches_from_the_lowest_to_the_highest_seed(panels):
    ax = convergence(panels).axes[0]
    for band, arm in zip(ax.collections, panels["MNIST"].values(), strict=True):
        x, y = band.get_paths()[0].vertices.T
        at_end = y[x == arm.epochs[-1]]
        assert (at_end.min(), at_end.max()) == (arm.mean[:, -1].min(), arm.mean[:, -1].max())


def test_panels_are_lettered_only_if_there_are_several(panels):
    assert [ax.get_title() for ax in convergence(panels).axes] == ["(a) MNIST", "(b) CIFAR-10"]
    (ax,) = convergence({"MNIST": panels["MNIST"]}).axes
    assert ax.get_title() == "MNIST"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "test accuracy, %")


def test_a_label_looks_the_same_in_all_panels_and_different_from_others(panels):
    first, second = (look(ax) for ax in convergence(panels).axes)
    assert first["full"] == second["full"]
    assert first["cliques"] == second["cliques"]
    # The first label, most often what the others are compared with, is black.
    assert first["full"][:2] == ("#000000", "-")
    everything = first | second
    for k in (0, 2, 3):  # color, dashes, marker: each alone tells them apart
        assert len({str(style[k]) for style in everything.values()}) == len(everything) == 4


def test_as_many_labels_as_there_are_looks_differ():
    figure = convergence({"many": {str(k): curve(50, seeds=1, epochs=2) for k in range(35)}})
    looks = [str(style) for style in look(figure.axes[0]).values()]
    assert len(set(looks)) == 35
    assert all(one != other for one, other in pairwise(looks))
    drawn = list(look(figure.axes[0]).values())
    for one, again in zip(
        drawn, drawn[7:], strict=False
    ):  # where a color comes again, dashes and marker differ
        assert one[0] == again[0]
        assert one[2] != again[2]
        assert one[3] != again[3]


def test_hidden_arms_are_absent_and_change_nothing(panels):
    figure = convergence(panels, hidden=("ring", "not there"))
    assert "ring" not in look(figure.axes[0])
    assert len(figure.axes[0].get_lines()) == 6
    assert legend(figure) == ["full", "cliques", "random"]


def test_the_legend_has_every_label_once_and_hides_nothing(panels):
    long = {label * 6: arm for label, arm in panels["CIFAR-10"].items()}
    for shown in (panels, {"one": panels["MNIST"]}, {"one": long}, {"one": long, "two": long}):
        figure = convergence(shown)
        assert legend(figure) == list(
            dict.fromkeys(label for arms in shown.values() for label in arms)
        )
        figure.draw_without_rendering()
        box = figure.legends[0].get_window_extent()
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
        assert all(box.y0 >= ax.get_tightbbox().y1 for ax in figure.axes)


def test_labels_lie_inside_the_picture(panels):
    figure = convergence({"one": panels["MNIST"]}, bottom=50)
    figure.draw_without_rendering()
    label = figure.axes[0].yaxis.label.get_window_extent()
    assert figure.bbox.y0 < label.y0 < label.y1 < figure.bbox.y1
    note = figure._supxlabel.get_window_extent()
    assert figure.bbox.x0 < note.x0 < note.x1 < figure.bbox.x1


def test_the_axis_starts_where_it_is_told_and_says_so(panels):
    figure = convergence({"MNIST": panels["MNIST"]}, hidden=("ring",), bottom=89, top=95)
    (ax,) = figure.axes
    assert ax.get_ylim() == (89, 95)
    assert ax.get_ylabel() == "test accuracy, % (axis starts at 89)"


@pytest.mark.parametrize(("end", "bottom"), [(91, 89), (88.4, 80), (80.2, 70), (60, 50), (12, 0)])
def test_the_axis_is_lowered_until_every_mean_is_seen(end, bottom):
    (ax,) = convergence({"MNIST": {"full": curve(92), "cliques": curve(end)}}, bottom=89).axes
    assert ax.get_ylim() == (bottom, 100)
    for line in lines(ax, BOLD):
        assert line.get_ydata().max() > bottom
    assert ("starts at" in ax.get_ylabel()) == (bottom > 0)
    assert bottom == 0 or f"starts at {bottom})" in ax.get_ylabel()


def test_pictures_of_the_scale_smoke_say_so_and_start_at_0(panels):
    figure = convergence(panels, bottom=20)
    note = figure.get_supxlabel()
    mark_smoke(figure, ["mnist"])
    assert [ax.get_title() for ax in figure.axes] == [
        "(a) digits for MNIST",
        "(b) CIFAR-10",
    ]
    assert {ax.get_ylim() for ax in figure.axes} == {(0, 100)}
    assert figure.axes[0].get_ylabel() == "test accuracy, %"
    said = figure.get_supxlabel()
    assert said == f"{note}\nscale smoke: only tests the code, on digits of scikit-learn"
    plain, _ = plt.subplots()
    mark_smoke(plain, [])
    assert plain.get_supxlabel() == "scale smoke: only tests the code"
    titled, _ = plt.subplots()
    titled.suptitle("row: a node")
    mark_smoke(titled, [])
    assert titled.get_suptitle() == "row: a node; scale smoke: only tests the code"
    assert not titled.get_supxlabel()  # where a legend may be
    plt.close(plain)
    plt.close(titled)


def test_no_best_node_is_cut_off():
    (ax,) = convergence({"MNIST": {"full": curve(92, width=3)}}, bottom=89, top=92).axes
    assert ax.get_ylim() == (89, 94)  # the best node has 93.5


def test_all_panels_share_the_axis_of_accuracy(panels):
    first, second = convergence(panels, bottom=40).axes
    assert first.get_ylim() == second.get_ylim() == (40, 100)


def test_epochs_end_with_the_data(panels):
    assert [ax.get_xlim() for ax in convergence(panels).axes] == [(0, 10), (0, 20)]


def test_the_note_says_what_is_drawn(panels):
    note = convergence(panels).get_supxlabel()
    assert "averages over 2 seeds" in note
    assert "shaded" in note
    alone = convergence({"MNIST": {"full": curve(92, seeds=1)}}).get_supxlabel()
    assert "one seed" in alone
    assert "shaded" not in alone


def test_what_cannot_be_drawn_is_refused(panels):
    with pytest.raises(ValueError, match="`panels` must contain data in every panel"):
        convergence({})
    with pytest.raises(ValueError, match="panel 'MNIST' is empty"):
        convergence(panels, hidden=("full", "cliques", "ring"))
    with pytest.raises(ValueError, match="`bottom` must be below `top`, got 100 and 100"):
        convergence(panels, bottom=100)


def test_histograms_count_every_value_once_over_the_same_bins():
    values = {
        "MNIST": {"random": np.linspace(0.3, 0.6, 100), "greedy": np.full(100, 0.06)},
        "CIFAR-10": {
            "random": np.linspace(0.2, 0.5, 100),
            "greedy": np.linspace(0, 0.03, 100).tolist(),
        },
    }
    figure = histogram(values)
    assert [ax.get_title() for ax in figure.axes] == ["(a) MNIST", "(b) CIFAR-10"]
    assert legend(figure) == ["random", "greedy"]
    for ax, rows in zip(figure.axes, values.values(), strict=True):
        faces = [patch.get_facecolor() for patch in ax.patches]
        assert len(set(faces)) == len({patch.get_hatch() for patch in ax.patches}) == 2
        for patch, row in zip(ax.patches, rows.values(), strict=True):
            expected, edges = np.histogram(row, np.linspace(0, 0.6, BINS + 1))
            assert expected.sum() == 100
            outline = patch.get_xy()
            assert np.allclose(np.unique(outline[:, 0].round(9)), edges, rtol=0, atol=1e-9)
            assert np.array_equal(outline[1 : 2 * len(expected) + 1 : 2, 1], expected)
    colors = [[to_hex(patch.get_facecolor()) for patch in ax.patches] for ax in figure.axes]
    assert colors[0] == colors[1]


def test_histograms_of_nothing_but_zeros_are_drawn():
    (ax,) = histogram({"MNIST": {"greedy": np.zeros(5)}}).axes
    assert ax.patches[0].get_xy()[:, 1].max() == 5


@pytest.mark.parametrize("bad", [[-0.1, 0.2], [], [[0.1]], [np.nan], [np.inf]])
def test_histograms_refuse_what_they_would_leave_out(bad):
    with pytest.raises(ValueError, match=r"`values` must be vectors|`greedy` must be finite"):
        histogram({"MNIST": {"greedy": np.array(bad)}})
    with pytest.raises(ValueError, match="panel 'MNIST' is empty"):
        histogram({"MNIST": {}})


def test_a_descent_has_the_mean_in_bold_between_the_extremes():
    rows = {
        "MNIST": np.array([[0.5, 0.2, 0.1], [0.3, 0.2, 0.0]]),
        "CIFAR-10": [[0.4, 0.1, 0.0], [0.6, 0.3, 0.0]],
    }
    figure = descent(rows)
    first, second = figure.axes
    assert np.allclose(lines(first, BOLD)[0].get_ydata(), [0.4, 0.2, 0.05], rtol=0, atol=1e-12)
    assert np.allclose(lines(second, BOLD)[0].get_ydata(), [0.5, 0.2, 0.0], rtol=0, atol=1e-12)
    assert [line.get_ydata().tolist() for line in lines(first, THIN)] == [
        [0.3, 0.2, 0.0],
        [0.5, 0.2, 0.1],
    ]
    assert first.get_xlim() == (0, 2)
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] == 0
    assert first.get_ylim()[1] > 0.6
    assert "mean over 2 experiments" in figure.get_supxlabel()
    for bad, message in (
        (np.ones(3), "`panels` must have"),
        ([[np.nan, 1.0]], "`MNIST` must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            descent({"MNIST": bad})


def test_a_table_holds_what_the_curves_hold():
    cliques = curve(80, seeds=2, epochs=10, skew=0.0625)
    cliques.numbers["heterogeneity"][:] = 0.1, 0.3
    table = arms_table("MNIST", {"full": curve(90, degree=99.0), "cliques": cliques})
    row = dict(zip(table.columns, table.rows[1], strict=True))
    # The best arm ends at 90: 95 % of that is 85.5. `cliques` ends at 79.5 and 80.5, its nodes 4
    # below and 2 above.
    assert row == {
        "arm": "cliques",
        "mean degree": 9.9,
        "messages": 18.9,
        "messages, as in the paper": 19.8,
        "MB": 2.5,
        "spectral gap": 0.08,
        "heterogeneity": 0.2,
        "clique skew": 0.0625,
        "accuracy % mean": Spread(80.0, 79.5, 80.5),
        "worst node": Spread(76.0, 75.5, 76.5),
        "best node": Spread(82.0, 81.5, 82.5),
        "epochs to 85 %": NotApplicable("cliques: 2 of 2 seeds stayed below 85 %"),
    }
    assert table.column("mean degree") == (99.0, 9.9)
    assert table.column("clique skew")[0] == NotApplicable("the graph has no cliques")
    # From 10 to 90 in 5 epochs, half a point below and above: 85 is reached after (85 - 10 ± 0.5) /
    # 16 epochs.
    reached = table.column("epochs to 85 %")[0]
    assert (reached.low, reached.high) == pytest.approx((74.5 / 16, 75.5 / 16), abs=1e-12)
    assert reached.mean == pytest.approx(75 / 16, abs=1e-12)
    assert table.title.startswith("MNIST: ")
    assert table.title.endswith("of 2 seeds")


def test_one_seed_that_did_not_get_there_is_told():
    table = arms_table("MNIST", {"full": curve(90), "cliques": curve(85)})
    assert table.column("epochs to 85 %")[1] == NotApplicable(
        "cliques: 1 of 2 seeds stayed below 85 %"
    )


def test_numbers_that_are_missing_are_not_applicable():
    bare = Curve(**{**vars(curve(90, seeds=1)), "numbers": {"degree": np.array([2.0])}})
    table = arms_table("MNIST", {"bare": bare})
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["mean degree"] == 2.0
    for name in ("messages", "messages, as in the paper", "MB", "spectral gap", "heterogeneity"):
        assert row[name] == NotApplicable("was not recorded")
    assert table.title.endswith("of 1 seed")
    assert "| bare |" in table.to_markdown()
    assert table.to_csv()
    with pytest.raises(ValueError, match="`arms` must contain at least one curve"):
        arms_table("MNIST", {})


def test_means_of_equal_numbers_are_these_numbers():
    table = arms_table("MNIST", {"full": curve(90, seeds=3, gap=0.1, heterogeneity=1e-17)})
    assert table.column("spectral gap") == (0.1,)
    assert table.column("heterogeneity") == (0.0,)


def test_files_are_the_same_to_the_last_byte(panels, tmp_path):
    first = save(convergence(panels), tmp_path / "new" / "dcliques-fig08.v2")
    assert first == (
        tmp_path / "new" / "dcliques-fig08.v2.png",
        tmp_path / "new" / "dcliques-fig08.v2.pdf",
    )
    picture = convergence(panels)
    for name in ("second", "third"):  # the same object twice
        again = save(picture, tmp_path / name)
        assert [path.read_bytes() for path in again] == [path.read_bytes() for path in first]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert first[1].read_bytes().startswith(b"%PDF")
    with Image.open(first[0]) as image:
        assert [round(dpi) for dpi in image.info["dpi"]] == [
            150,
            150,
        ]  # a PNG counts whole pixels a meter
        assert "Software" not in image.info
    assert b"CreationDate" not in first[1].read_bytes()


def test_different_curves_give_different_files(mnist, tmp_path):
    one = save(convergence(mnist), tmp_path / "one")
    other = save(convergence(mnist, hidden=("ring",)), tmp_path / "other")
    assert all(a.read_bytes() != b.read_bytes() for a, b in zip(one, other, strict=True))


def test_files_are_replaced_as_a_whole_or_not_at_all(mnist, tmp_path, monkeypatch):
    old = save(convergence(mnist), tmp_path / "a")
    before = [path.read_bytes() for path in old]
    picture = histogram({"MNIST": {"greedy": np.ones(3)}})

    def fail(*args, **options):
        raise RuntimeError("inside")

    with monkeypatch.context() as patch:
        patch.setattr("matplotlib.backends.backend_pdf.FigureCanvasPdf.print_pdf", fail)
        with pytest.raises(RuntimeError, match="inside"):
            save(picture, tmp_path / "a")
    assert [path.read_bytes() for path in old] == before
    save(picture, tmp_path / "a")
    assert all(path.read_bytes() != content for path, content in zip(old, before, strict=True))
    assert sorted(tmp_path.iterdir()) == sorted(old)


def test_nothing_stays_open_and_threads_do_not_disturb_each_other(mnist, tmp_path):
    open_before = plt.get_fignums()
    with ThreadPoolExecutor(4) as pool:
        files = list(pool.map(lambda k: save(convergence(mnist), tmp_path / str(k)), range(4)))
    assert len({png.read_bytes() for png, _ in files}) == 1
    assert len({pdf.read_bytes() for _, pdf in files}) == 1
    assert plt.get_fignums() == open_before
