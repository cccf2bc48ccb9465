"""Pictures show exactly the curves that they are given, and are saved whole."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from PIL import Image

from paper_figures.kit.curves import Curve
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


def curve(end, *, seeds=2, epochs=10, width=4.0):
    """Accuracy that rises from 10 to `end` in half of the epochs, seeds 1 point apart around it."""
    at = np.arange(epochs + 1.0)
    rising = 10 + (end - 10) * np.minimum(1, at / (epochs / 2))
    mean = rising + (np.arange(seeds) - (seeds - 1) / 2)[:, None]
    return Curve(np.arange(seeds), at, mean, mean - width, mean + width / 2, {})


PANELS = {
    "MNIST": {"full": curve(92), "cliques": curve(91), "ring": curve(60)},
    "CIFAR-10": {"cliques": curve(70), "full": curve(72, epochs=20), "random": curve(50)},
}
MNIST = {"MNIST": {"full": curve(92), "ring": curve(60)}}


def lines(ax, width):
    return [line for line in ax.get_lines() if line.get_linewidth() == width]


def look(ax):
    return {
        line.get_label(): (to_hex(line.get_color()), line._unscaled_dash_pattern, line.get_marker())
        for line in lines(ax, BOLD)
    }


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_panel_has_a_bold_mean_two_thin_extremes_and_a_band_of_seeds_an_arm():
    figure = convergence(PANELS)
    assert BOLD > 2 * THIN
    for ax, arms in zip(figure.axes, PANELS.values(), strict=True):
        assert list(look(ax)) == list(arms)
        for k, (bold, arm) in enumerate(zip(lines(ax, BOLD), arms.values(), strict=True)):
            low, high = lines(ax, THIN)[2 * k : 2 * k + 2]
            for line, part in ((bold, arm.mean), (low, arm.low), (high, arm.high)):
                assert np.array_equal(line.get_xdata(), arm.epochs)
                assert np.allclose(line.get_ydata(), part.mean(axis=0), rtol=0, atol=1e-12)
                assert line.get_color() == bold.get_color()
            x, y = ax.collections[k].get_paths()[0].vertices.T
            at_end = y[x == arm.epochs[-1]]
            assert (at_end.min(), at_end.max()) == (arm.mean[:, -1].min(), arm.mean[:, -1].max())
        assert len(ax.get_lines()) == 3 * len(arms)
    assert [ax.get_title() for ax in figure.axes] == ["(a) MNIST", "(b) CIFAR-10"]
    assert [ax.get_xlim() for ax in figure.axes] == [(0, 10), (0, 20)]
    assert [ax.get_title() for ax in convergence(MNIST).axes] == ["MNIST"]


def test_hidden_arms_are_absent_and_change_nothing():
    figure = convergence(PANELS, hidden=("ring", "not there"))
    assert "ring" not in look(figure.axes[0])
    assert len(figure.axes[0].get_lines()) == 6
    assert legend(figure) == ["full", "cliques", "random"]


@pytest.mark.parametrize(("end", "bottom"), [(91, 89), (88.4, 80), (80.2, 70), (60, 50), (12, 0)])
def test_the_axis_is_lowered_until_every_mean_is_seen_and_says_so(end, bottom):
    (ax,) = convergence({"MNIST": {"full": curve(92), "cliques": curve(end)}}, bottom=89).axes
    assert ax.get_ylim() == (bottom, 100)
    note = f" (axis starts at {bottom})" if bottom else ""
    assert ax.get_ylabel() == f"test accuracy, %{note}"


def test_axes_of_accuracy_are_shared_and_no_best_node_is_cut_off():
    (ax,) = convergence({"MNIST": {"full": curve(92, width=3)}}, bottom=89, top=92).axes
    assert ax.get_ylim() == (89, 94)  # the best node has 93.5
    assert {ax.get_ylim() for ax in convergence(PANELS, bottom=40).axes} == {(40, 100)}


def test_pictures_of_the_scale_smoke_say_so_and_start_at_0():
    figure = convergence(PANELS, bottom=20)
    note = figure.get_supxlabel()
    mark_smoke(figure, ["mnist"])
    assert [ax.get_title() for ax in figure.axes] == ["(a) digits for MNIST", "(b) CIFAR-10"]
    assert {ax.get_ylim() for ax in figure.axes} == {(0, 100)}
    assert figure.axes[0].get_ylabel() == "test accuracy, %"
    said = "scale smoke: only tests the code"
    assert figure.get_supxlabel() == f"{note}\n{said}, on digits of scikit-learn"
    plain, titled = plt.figure(), plt.figure()
    mark_smoke(plain, [])
    assert plain.get_supxlabel() == said
    titled.suptitle("row: a node")
    mark_smoke(titled, [])
    assert titled.get_suptitle() == f"row: a node; {said}"
    assert not titled.get_supxlabel()  # where a legend may be
    plt.close("all")


def test_histograms_count_every_value_once_over_the_same_bins():
    values = {
        "MNIST": {"random": np.linspace(0.3, 0.6, 100), "greedy": np.full(100, 0.06)},
        "CIFAR-10": {"random": np.linspace(0.2, 0.5, 100), "greedy": np.full(100, 0.03)},
    }
    figure = histogram(values)
    assert legend(figure) == ["random", "greedy"]
    for ax, rows in zip(figure.axes, values.values(), strict=True):
        faces = [to_hex(patch.get_facecolor()) for patch in ax.patches]
        assert faces == [to_hex(patch.get_facecolor()) for patch in figure.axes[0].patches]
        assert len(set(faces)) == len({patch.get_hatch() for patch in ax.patches}) == 2
        for patch, row in zip(ax.patches, rows.values(), strict=True):
            expected, edges = np.histogram(row, np.linspace(0, 0.6, BINS + 1))
            outline = patch.get_xy()
            assert np.allclose(np.unique(outline[:, 0].round(9)), edges, rtol=0, atol=1e-9)
            assert np.array_equal(outline[1 : 2 * len(expected) + 1 : 2, 1], expected)
    (ax,) = histogram({"MNIST": {"greedy": np.zeros(5)}}).axes
    assert ax.patches[0].get_xy()[:, 1].max() == 5


def test_a_descent_has_the_mean_in_bold_between_the_extremes():
    rows = {"MNIST": [[0.5, 0.2, 0.1], [0.3, 0.2, 0.0]], "CIFAR-10": [[0.7, 0.1, 0.0]]}
    first, second = descent({title: np.array(some) for title, some in rows.items()}).axes
    assert np.allclose(lines(first, BOLD)[0].get_ydata(), [0.4, 0.2, 0.05], rtol=0, atol=1e-12)
    thin = [line.get_ydata().tolist() for line in lines(first, THIN)]
    assert thin == [[0.3, 0.2, 0.0], [0.5, 0.2, 0.1]]
    assert first.get_xlim() == (0, 2)
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] == 0
    assert first.get_ylim()[1] > 0.7


@pytest.mark.slow
def test_files_are_the_same_to_the_last_byte(tmp_path):
    first = save(convergence(PANELS), tmp_path / "new" / "dcliques-fig08.v2")
    assert [path.name for path in first] == ["dcliques-fig08.v2.png", "dcliques-fig08.v2.pdf"]
    picture = convergence(PANELS)
    for name in ("second", "third"):  # the same object twice
        again = save(picture, tmp_path / name)
        assert [path.read_bytes() for path in again] == [path.read_bytes() for path in first]
    other = save(convergence(PANELS, hidden=("ring",)), tmp_path / "other")
    assert all(a.read_bytes() != b.read_bytes() for a, b in zip(first, other, strict=True))
    with Image.open(first[0]) as image:
        # A PNG counts whole pixels a meter.
        assert [round(dpi) for dpi in image.info["dpi"]] == [150, 150]
        assert "Software" not in image.info
    assert first[1].read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in first[1].read_bytes()
