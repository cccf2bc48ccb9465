"""What notebooks show of objects: their text, escaped, and at most one small picture."""

import base64
import io
import json
import re
import shutil
from html import escape, unescape

import numpy as np
import pytest
from PIL import Image

import topofl
from topofl import MixingMatrix, algorithms, data, mixing, models, topologies
from topofl._drawing.axes import SMALL_CELLS
from topofl._support.table import as_text
from topofl.cli import main
from topofl.runs.store import ROWS

CLIENTS = data.shards(data.digits(), n=12, per_node=2, seed=0)
WHAT = {"model": models.logistic_regression(64), "clients": CLIENTS}
WHAT["topology"] = topologies.ring(12)
ESTIMATE = topofl.estimate(algorithms.dsgd(lr=0.1), **WHAT)
BASE = {"data": {"name": "digits", "n": 4}, "topology": "ring", "run": {"rounds": 1}}
GRID = {"algorithm": ["dsgd,lr=0.1", "dsgt,lr=0.1"]}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return topofl.sweep(BASE, GRID, store=tmp_path_factory.mktemp("store"))


def picture_of(html):
    """Return the pixels of the only picture in HTML."""
    (found,) = re.findall(r"base64,([^\"]*)", html)
    with Image.open(io.BytesIO(base64.b64decode(found))) as image:
        return np.asarray(image.convert("RGB"), dtype=int)


def words_of(html):
    """Return the words of HTML without its tags."""
    return unescape(re.sub(r"<[^>]*>", " ", html)).split()


def test_matrices_show_their_weights():
    weights = np.array([[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]])
    html = MixingMatrix(weights, name="<W>")._repr_html_()
    assert "MixingMatrix(&#x27;&lt;W&gt;&#x27;, n=3, doubly stochastic, messages=4)" in html
    assert "<W>" not in html
    red = picture_of(html)[:, :, 0]  # the darkest blue has no red
    np.testing.assert_array_equal(red, np.round(255 * (1 - weights / 0.75)))


def test_large_matrices_show_maxima_of_blocks():
    html = mixing.metropolis_hastings(topologies.ring(1_000))._repr_html_()
    assert picture_of(html).shape[:2] == (SMALL_CELLS, SMALL_CELLS)
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


def test_sweeps_show_the_first_rows_of_their_table(sweep):
    words = words_of(sweep._repr_html_())
    assert words[:6] == repr(sweep).split()
    printed = [word for word in str(sweep.table).split() if set(word) - set("-")]
    assert len(sweep.runs) == 2
    assert words[6:] == printed
    many = topofl.runs.Sweep(sweep.points[:1] * (ROWS + 5), sweep.runs, ())
    html = many._repr_html_()
    assert html.count("<tr>") == 1 + ROWS
    assert "<p>5 more rows are in the table</p>" in html


def test_stored_runs_show_settings_and_final_scores(sweep):
    for run in sweep.runs:
        html = run._repr_html_()
        assert html.startswith(f"<div><pre>StoredRun(&#x27;{run.key}&#x27;)</pre></div>")
        for name, value in run.settings.items():
            shown = "none" if value is None else as_text(value)
            assert f"<tr><td>{name}</td><td>{escape(shown)}</td></tr>" in html
        for score in ("accuracy", "loss"):
            final = as_text(run.curves["scores"][score]["mean"][-1])
            assert f"<td>{final}</td>" in html
            assert as_text(float(run.history[score][-1].mean())) == final


def test_stores_show_finished_runs_and_count_the_others(sweep, tmp_path):
    words = words_of(topofl.runs.RunStore(sweep.runs[0].folder.parent)._repr_html_())
    assert words[0].startswith("RunStore(root=")
    for run in sweep.runs:
        assert {run.key, run.settings["algorithm.name"]} <= set(words)
    missing = topofl.runs.RunStore(tmp_path / "<none>")._repr_html_()
    assert "&lt;none&gt;" in missing
    assert "<table>" not in missing
    store = topofl.runs.RunStore(tmp_path)
    keys = [f"f{k:015x}" for k in range(ROWS + 3)]
    for key in keys[:3]:
        store.add(key, sweep.runs[0].history, sweep.runs[0].tables)
    assert "<p>" not in store._repr_html_()
    for k in range(ROWS + 5):  # their keys are before those of finished runs
        store.fail(topofl.runs.Failure(f"a{k:015x}", {}, "ValueError: <x>"))
    for shown, notes in (
        (keys[:3], [f"{ROWS + 5} failed"]),
        (keys[:ROWS], ["3 more runs", f"{ROWS + 5} failed"]),
    ):
        html = store._repr_html_()
        assert re.findall(r"<td>([0-9a-f]{16})</td>", html) == shown
        assert re.findall(r"<p>(.*?)</p>", html) == notes
        for key in keys[3:]:
            shutil.copytree(tmp_path / keys[0], tmp_path / key, dirs_exist_ok=True)


OWN = ("key", "round", "loss", "accuracy", "MB sent")
"""Columns of tables of runs, and parameters of the function of a sweep."""


def named_as_columns(point):
    """Return arguments of :func:`topofl.run`; a point has parameters named as columns are."""
    method = algorithms.dsgd(lr=0.1 * point["round"])
    return {"algorithm": method, **WHAT, "rounds": 1, "seed": 0}


def test_settings_with_the_name_of_a_column_are_renamed(tmp_path, capsys):
    grid = {name: [1, 2] if name == "round" else [3] for name in OWN}
    found = topofl.sweep(named_as_columns, grid, store=tmp_path, progress=False)
    assert found.table.columns[:5] == ("key", *(f"setting {name}" for name in OWN[1:]))
    assert found.table.column("setting round") == (1, 2)
    assert found.table.column("round") == (1, 1)
    html = topofl.runs.RunStore(tmp_path)._repr_html_()
    heads = re.findall(r"<th[^>]*>(.*?)</th>", html)
    assert heads[0] == "key"
    assert {"setting round", "round", "loss", "accuracy", "MB sent"} <= set(heads)
    assert main(["runs", str(tmp_path), "--columns", "round,key", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted(row["setting round"] for row in rows) == [1, 2]
    assert {row["key"] for row in rows} == {run.key for run in found.runs}


def test_failures_and_best_points_are_shown(sweep):
    failure = topofl.runs.Failure("0a", {"algorithm": {"lr": 9.0}}, "ValueError: <x>", "Trace")
    html = failure._repr_html_()
    assert "Failure(&#x27;0a&#x27;): ValueError: &lt;x&gt;" in html
    assert "<td>algorithm.lr</td><td>9</td>" in html
    assert "Trace" not in html
    best = sweep.best()
    assert words_of(best._repr_html_()) == ["Best:", *str(best).split()]


@pytest.mark.parametrize(
    ("period", "length", "rounds"), [(2, None, 2), (None, 3, 3), (None, None, 6), (None, 1, 1)]
)
def test_sequences_of_matrices_show_their_first_rounds(period, length, rounds):
    graphs = topologies.ring(4), topologies.star(4)
    sequence = mixing.MixingSequence(
        4, lambda t: mixing.uniform(graphs[t % 2]), "<W>", period=period, length=length
    )
    html = sequence._repr_html_()
    assert html.startswith(f"<div><pre>{escape(repr(sequence))}\n")
    assert [int(t) for t in re.findall(r'title="round (\d+), weights of', html)] == [*range(rounds)]
    first = re.findall(r"<img[^>]*>", html)[0]
    expected = mixing.uniform(graphs[0])._repr_html_()
    np.testing.assert_array_equal(picture_of(first), picture_of(expected))


def test_large_matrices_of_sequences_are_not_computed():
    def generate(t):
        raise AssertionError(t)

    sequence = mixing.MixingSequence(301, generate)
    assert words_of(sequence._repr_html_()) == repr(sequence).split()


def test_summaries_show_their_notes():
    scores = {"round": np.array([0]), "accuracy": np.array([[0.5, 0.7]])}
    runs = [
        topofl.History({"seed": seed}, {"messages": [], "bytes": []}, scores, np.zeros((0, 2)))
        for seed in (0, 1)
    ]
    summary = topofl.summarize({"<ring>": runs})
    html = summary._repr_html_()
    assert "&lt;ring&gt;" in html
    for note in summary.notes:
        assert f"<p>note: {escape(note)}</p>" in html


def test_small_graphs_show_a_picture_and_large_ones_their_text():
    for graph in (topologies.ring(20), topologies.one_peer_exponential(16)):
        assert graph.name in graph._repr_svg_()
    assert topologies.ring(400)._repr_svg_() is None
