"""Figures show their values, and descriptions state them."""

import itertools
import re
from secrets import token_hex

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.transforms import Bbox

from tests import markup
from topofl import topologies
from topofl.report import figures
from topofl.report.figures import against_identity, decay, inline, picture, spectrum


def axes(drawn):
    return drawn.figure.axes[0]


def test_every_eigenvalue_is_in_a_bar():
    values = np.concatenate([[1 + 1e-12, 1, -1 - 1e-12], np.linspace(-0.9, 0.9, 17)])
    drawn = spectrum(np.sort(values)[::-1])
    assert sum(bar.get_height() for bar in axes(drawn).patches) == 20
    middle = axes(drawn).patches[figures.BINS // 2]  # 0 is in the middle of a bar
    assert middle.get_x() + middle.get_width() / 2 == pytest.approx(0, abs=1e-9)
    assert "20 real eigenvalues between -1 and 1" in drawn.description


def test_complex_eigenvalues_are_in_the_plane():
    values = np.array([1, 0.5j, -0.5j])
    drawn = spectrum(values, rounds=3)
    np.testing.assert_array_equal(axes(drawn).lines[1].get_xydata(), [[1, 0], [0, 0.5], [0, -0.5]])
    assert "second largest modulus is 0.5" in drawn.description
    assert "one period's 3 mixing matrices" in drawn.description
    assert "second" not in spectrum(np.array([1 + 0j])).description


def test_decay_is_drawn_with_its_predicted_rate():
    drawn = decay(np.array([1.0, 0.6, 0.3]), 0.5)
    theory, measured = axes(drawn).lines
    np.testing.assert_array_equal(theory.get_ydata(), [1, 0.5, 0.25])
    np.testing.assert_array_equal(measured.get_ydata(), [1, 0.6, 0.3])
    assert drawn.description == (
        "Consensus distance is 0.3 of its initial value after 2 rounds; "
        "theory predicts 0.5 per round in the long run."
    )


def test_decay_without_a_rate_and_to_zero():
    assert len(axes(decay(np.array([1.0, 0.6]), None)).lines) == 1
    assert "theory predicts no rate" in decay(np.array([1.0, 0.6]), None).description
    exact = decay(np.array([1.0, 0.9, 0.0]), 0.0, period=2)
    assert axes(exact).lines[0].get_xdata() == [2, 2]
    assert exact.description == (
        "Consensus distance is 0 up to rounding after 2 rounds; "
        "theory predicts exact averaging within a period."
    )


MADE_UP = [("ring", 150.0, 0.8), ("all", 0.5, 0.5), ("all again", 0.5, 0.5)]


def test_measured_values_are_drawn_with_the_line_of_equality():
    drawn = against_identity(MADE_UP, "C", "C, theory", "C, measured", logarithmic=False)
    line, points = axes(drawn).lines
    np.testing.assert_array_equal(points.get_xydata(), [[150, 0.8], [0.5, 0.5], [0.5, 0.5]])
    assert (line.get_xdata() == line.get_ydata()).all()
    assert sorted(text.get_text() for text in axes(drawn).texts) == ["all, all again", "ring"]
    assert axes(drawn).get_xlabel() == "C, theory"
    assert "ring: theory 150, measured 0.8" in drawn.description


def gaps(points):
    return against_identity(points, "gaps", "theory", "measured", logarithmic=True)


def test_many_graphs_at_one_place_are_all_named():
    names = [str(k) for k in range(1, 101)]
    drawn = gaps([(name, 0.1, 0.1) for name in names] + [("101", 1.0, 1.0)])
    label, other = axes(drawn).texts
    assert label.get_text().replace("\n", " ").split(", ") == names
    assert other.get_text() == "101"
    box, inside = label.get_window_extent(), axes(drawn).bbox
    assert inside.x0 <= box.x0 <= box.x1 <= inside.x1
    assert inside.y0 <= box.y0 <= box.y1 <= inside.y1


def test_gaps_of_all_magnitudes_are_inside_the_axes():
    drawn = gaps([("1", 1e-6, 3e-6), ("2", 1.0, 1.0)])
    assert axes(drawn).get_xlim() == pytest.approx((1e-6 / 1.5, 1.5))
    assert axes(drawn).get_ylim() == axes(drawn).get_xlim()


def inline_figure(key="k", title="a <title>", words="with & in it"):
    drawn = decay(np.array([1.0, 0.6, 0.3]), 0.5)
    return str(inline(drawn._replace(title=title, description=words), key))


def test_svg_can_be_embedded_in_a_page():
    text = inline_figure()
    assert "http" not in text
    assert "xmlns" not in text
    assert "<?xml" not in text
    assert "<style" not in text
    (element,) = markup.read(text).all("svg")
    assert element.get("role") == "img"
    assert [(child.tag, child.text) for child in element.children[:2]] == [
        ("title", "a <title>"),
        ("desc", "with & in it"),
    ]
    ids = {child.get("id") for child in element.all()} - {""}
    assert set(element.get("aria-labelledby").split()) <= ids
    assert all(name.startswith("k-") for name in ids)
    used = set(re.findall(r'(?:href="#|url\(#)([\w.-]+)', text))
    assert used
    assert used <= ids


def test_ids_do_not_depend_on_the_last_bits_of_coordinates(monkeypatch):
    whole = inline_figure()
    monkeypatch.setattr(RendererSVG, "_make_id", lambda self, kind, content: kind + token_hex(5))
    assert inline_figure() == whole


def test_colors_and_fonts_are_those_of_the_page():
    text = inline_figure()
    for name in ("ink", "rule", "measured", "theory"):
        assert f"var(--{name})" in text
    assert "font-family" not in text
    assert "#0072b2" not in text


def test_large_figures_are_images(monkeypatch):
    monkeypatch.setattr(figures, "SVG_LIMIT", 1000)
    (element,) = markup.read(inline_figure(words='a "quoted" <word>')).all("img")
    assert element.get("src").startswith("data:image/png;base64,iVBOR")
    assert element.get("alt") == element.get("title") == 'a <title>. a "quoted" <word>'


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.slow
def test_labels_cover_no_points_and_no_labels(seed):
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(-2, 0.3, 12))
    points = [(str(k), x, x * 1.02) for k, x in enumerate(values, start=1)]
    figure = gaps([*points, ("13", *points[0][1:])]).figure
    (ax,) = figure.axes
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in ax.texts]
    names = [label.get_text().split(", ") for label in ax.texts]
    assert sorted(map(int, itertools.chain(*names))) == list(range(1, 14))
    assert len(names) >= 8  # only points at the same place share a label
    assert any({"1", "13"} <= set(shared) for shared in names)
    for box, other in itertools.combinations(boxes, 2):
        assert Bbox.intersection(box, other) is None
    for place in ax.transData.transform([point[1:] for point in points]):
        assert not any(box.contains(*place) for box in boxes)
    (legend,) = figure.legends
    assert Bbox.intersection(legend.get_window_extent(), ax.bbox) is None


def test_picture_of_a_graph():
    drawn = picture(topologies.ring(5).renamed("hidden"))
    assert drawn.description == "5 nodes and 5 undirected edges."
    assert "hidden" not in drawn.figure.axes[0].get_title()


def test_groups_and_labels_are_shown():
    counts = np.eye(4, dtype=int)[np.arange(8) % 4]
    drawn = picture(topologies.dcliques(label_counts=counts, clique_size=4, seed=0), counts)
    assert drawn.description.endswith("in 2 groups.")
    assert drawn.figure.axes[0].get_legend() is not None


def test_picture_of_a_sequence():
    before = plt.get_fignums()
    drawn = picture(topologies.one_peer_exponential(16))
    assert drawn.description == "Rounds 0 to 3 of a period of 4, 16 nodes."
    assert len(drawn.figure.axes) == 4
    changing = picture(topologies.random_out(6, 2, seed=0))
    assert changing.description == "Rounds 0 to 5 without a period, 6 nodes."
    assert plt.get_fignums() == before


@pytest.mark.slow
def test_large_graphs_are_drawn_as_matrices():
    drawn = picture(topologies.ring(100_000))
    assert "Drawn: adjacency" in drawn.description
    assert len(drawn.figure.axes[0].images) == 1
