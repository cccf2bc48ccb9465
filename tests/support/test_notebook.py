"""What notebooks show of objects: their text, escaped, and at most one small picture."""

import base64
import io
import re
from html import escape

import numpy as np
import pytest
from PIL import Image

import topofl
from topofl import MixingMatrix, algorithms, data, mixing, models, topologies
from topofl._drawing.cells import CELLS

CLIENTS = data.shards(data.digits(), n=12, per_node=2, seed=0)
ESTIMATE = topofl.estimate(
    algorithms.dsgd(lr=0.1),
    model=models.logistic_regression(64),
    clients=CLIENTS,
    topology=topologies.ring(12),
)


def picture_of(html):
    """Return the pixels of the only picture in HTML."""
    (found,) = re.findall(r"base64,([^\"]*)", html)
    with Image.open(io.BytesIO(base64.b64decode(found))) as image:
        return np.asarray(image.convert("RGB"), dtype=int)


def words_of(html):
    """Return the words of HTML without its tags."""
    text = re.sub(r"<[^>]*>", " ", html)
    for entity, letter in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#x27;", "'")):
        text = text.replace(entity, letter)
    return text.replace("&amp;", "&").split()


def test_matrices_show_their_weights():
    weights = np.array([[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]])
    html = MixingMatrix(weights, name="<W>")._repr_html_()
    assert "MixingMatrix(&#x27;&lt;W&gt;&#x27;, n=3, doubly stochastic, messages=4)" in html
    assert "<W>" not in html
    red = picture_of(html)[:, :, 0]  # the darkest blue has no red
    np.testing.assert_array_equal(red, np.round(255 * (1 - weights / 0.75)))


def test_large_matrices_show_maxima_of_blocks():
    html = mixing.metropolis_hastings(topologies.ring(1_000))._repr_html_()
    assert picture_of(html).shape[:2] == (CELLS, CELLS)
    assert len(html) < 10_000


def test_partitions_show_classes_by_nodes():
    html = CLIENTS._repr_html_()
    assert words_of(html) == repr(CLIENTS).split()
    drawn = picture_of(html)[:, :, 0]
    np.testing.assert_array_equal(drawn < 255, CLIENTS.label_counts.T > 0)


def test_algorithms_show_phases_and_settings():
    algorithm = algorithms.dfedpgp(lr=0.1)
    html = algorithm._repr_html_()
    for name, settings in algorithm.settings.items():
        assert f"<tr><td>{name}</td>" in html
        for key, value in settings.items():
            assert f"{key}={value}" in html


@pytest.mark.parametrize(
    "value",
    [
        ESTIMATE,
        topofl.topologies.recommend(CLIENTS, max_degree=2, static=True),
        topofl.metrics.round_time(
            topologies.ring(4), n_parameters=9, hardware={"compute": 0.1, "latency": 0.2}
        ),
        topofl.metrics.push_sum_constants(topologies.ring(4)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_html_has_the_words_of_the_text(value):
    text = [word for word in str(value).split() if set(word) - set("-") and word != "note:"]
    shown = words_of(value._repr_html_())
    assert set(text) - {f"{k}." for k in range(9)} <= set(shown)  # numbers of an ordered list


def test_summaries_show_their_notes():
    scores = {"round": np.array([0]), "accuracy": np.array([[0.5, 0.7]])}
    run = topofl.History({}, {"messages": [], "bytes": []}, scores, np.zeros((0, 2)))
    summary = topofl.summarize({"<ring>": [run, run]})
    html = summary._repr_html_()
    assert "&lt;ring&gt;" in html
    for note in summary.notes:
        assert f"<p>note: {escape(note)}</p>" in html


def test_small_graphs_show_a_picture_and_large_ones_their_text():
    for graph in (topologies.ring(20), topologies.one_peer_exponential(16)):
        assert graph.name in graph._repr_svg_()
    assert topologies.ring(400)._repr_svg_() is None
