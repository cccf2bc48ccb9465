"""The report of a changing graph, and its slider in a browser."""

import base64
import json
import re

import numpy as np
import pytest

import topofl
from tests import markup
from tests.browser import needs_browser
from tests.history.helpers import run_of
from tests.rows import pages
from tests.rows.pages import EVIL, MATRICES
from topofl import NotApplicable, metrics, report, topologies
from topofl.metrics.compare import headline
from topofl.mixing import MixingSequence
from topofl.report.rounds import node_order

# Those with most of class 0, with most of class 1, then the marked ones likewise.
ORDER = [1, 3, 2, 5, 4, 0]


@pytest.fixture
def numbers():
    return pages.over_rounds()


@pytest.fixture
def text():
    return pages.PAGES["rounds"].text


def test_attackers_of_a_run_are_marked_over_its_rounds():
    attack = topofl.attacks.Attack("flip", (1, 4), lambda sent, bad, weights, rng: -sent)
    ring, more = topologies.ring(6), {"rounds": 2, "attackers": attack}
    history = run_of(topofl.algorithms.dsgd, ring, **more)
    assert history.attackers == [1, 4]
    page = report.rounds_report(history, metrics.over_rounds(history))
    assert "2 attacking nodes last" in page
    shown = json.loads(re.search(r'id="graphs">(.*?)</script>', page)[1])
    assert shown["marked"] == 2
    unmarked = report.rounds_report(history, metrics.over_rounds(history), marked=())
    assert "attacking" not in unmarked


def received(t):
    """Return the pairs of a round in the order of the page."""
    return [[int(i != j and MATRICES[t].weights.toarray()[i, j] > 0) for j in ORDER] for i in ORDER]


def shown_by(page):
    """Return the data of the script, with the graph of each stage as bits."""
    shown = json.loads(re.search(r'id="graphs">(.*?)</script>', page).group(1))
    n = shown["n"]
    flat = [
        np.unpackbits(np.frombuffer(base64.b64decode(bits), np.uint8))[: n * n].reshape(n, n)
        for bits in shown["graphs"]
    ]
    return shown | {"drawn": [flat[k] for k in shown["graph"]]}


def test_encoded_pairs_agree_with_the_weights(text):
    shown = shown_by(text)
    assert (shown["n"], shown["starts"], shown["marked"]) == (6, [0, 2, 4], 2)
    assert shown["labels"] == ["0", "2", "4"]
    for t, drawn in zip(shown["starts"], shown["drawn"], strict=True):
        assert drawn.tolist() == received(t)


def test_equal_rounds_are_shown_once_and_a_static_graph_cannot_be_played():
    static = MixingSequence(6, lambda t: MATRICES[0], "static", length=100)
    page = report.rounds_report(static, metrics.over_rounds(static, about=["structure"]))
    assert shown_by(page)["labels"] == ["0 to 99"]
    found = markup.read(page)
    assert "The graph is the same in all 100 rounds shown." in found.all("header")[0].text
    assert not found.all("button", "input", "output")
    assert {len(body.all("tr")) for body in found.all("tbody")} == {1}
    every = metrics.over_rounds(static, about=["structure"], rounds=range(0, 100, 10))
    assert shown_by(report.rounds_report(static, every))["labels"] == ["0 to 90 (10 shown)"]
    twice = [MATRICES[k] for k in (0, 0, 1, 0)]
    changing = MixingSequence(6, twice.__getitem__, "changing", length=4)
    page = report.rounds_report(changing, metrics.over_rounds(changing, about=[]))
    shown = shown_by(page)
    assert len(shown["graphs"]) == 2
    assert [shown["graph"][shown["starts"].index(t)] for t in (0, 2, 3)] == [0, 1, 0]
    assert len(markup.read(page).all("button")) == 1


def test_cliques_are_squares_on_the_diagonal():
    counts = np.tile(np.eye(4, dtype=int), (3, 1)) * 9 + 1
    graph = topologies.dcliques(counts, clique_size=4, inter="ring", seed=0)
    table = metrics.over_rounds(graph, label_counts=counts)
    page = report.rounds_report(graph, table, label_counts=counts)
    (drawn,) = shown_by(page)["drawn"]
    for start in (0, 4, 8):
        assert drawn[start : start + 4, start : start + 4].tolist() == (1 - np.eye(4)).tolist()
    caption = markup.read(page).all("figcaption")[0].text
    assert "ordered by group (3), then by most frequent class" in caption
    assert [f"class {k}" in caption for k in range(5)] == [True] * 4 + [False]
    assert "no groups" not in page
    assert "D-Cliques, 12 nodes, clique size 4, inter ring, seed 0" in page
    across = re.findall(r"linear-gradient\(to right, (.*?)\)\"", page)
    assert across[0].split(", ")[:2] == ["var(--soft) 0% 33.33%", "var(--rule) 33.33% 66.67%"]
    assert len(across[1].split(", ")) == 12


@pytest.mark.parametrize(("classes", "listed"), [(20, 20), (21, 2)])
def test_of_many_classes_the_first_and_the_last_are_listed(classes, listed):
    *_, (strip,) = node_order(classes, (), np.eye(classes, dtype=int), (), "graph")
    names = [name for _, name in strip["legend"]]
    assert (len(names), names[0], names[-1]) == (listed, "class 0", f"class {classes - 1}")


def has_value(cells):
    return any(not isinstance(cell, NotApplicable) for cell in cells)


def test_the_page_has_all_columns_and_says_which_are_missing(text, numbers):
    page = markup.read(text)
    assert page.all("h1")[0].text == EVIL
    (table,) = (found for found in page.all("table") if found.get("id") == "numbers-table")
    assert [row.children[0].text for row in table.all("tbody")[0].all("tr")] == ["0", "2", "4"]
    known = [name for name in numbers.columns if has_value(numbers.column(name))]
    assert len(table.all("thead")[0].all("th")) == len(known) < len(numbers.columns)
    (folded,) = (part for part in page.all("details") if part.get("class") == "missing-columns")
    missing = {term.text for term in folded.all("dt")}
    assert missing == {name for name in numbers.columns if name not in known}
    assert {element.text for element in page.all("dd")} >= {"<i>"}


def test_changing_columns_are_drawn_over_rounds(text, numbers):
    page = markup.read(text)
    titles = [t.text for t in page.all("title")[1:]]
    changing = []
    for name in numbers.columns[1:]:
        known = [v for v in numbers.column(name) if isinstance(v, int | float) and np.isfinite(v)]
        changing += [name] * (len({*known}) > 1)
    assert sorted(titles) == sorted(changing)
    assert "nodes" not in titles
    (folded,) = (
        {title.text for title in part.all("title")}
        for part in page.all("details")
        if part.all("title")
    )
    assert set(titles) - folded == set(headline(numbers.columns[1:])) & set(changing)


PIXELS = (
    'Array.from(document.getElementById("pairs").getContext("2d").getImageData(0, 0, 6, 6).data)'
)
BLUE, PALE, ORANGE, WHITE = [8, 81, 156], [198, 219, 239], [213, 94, 0], [255, 255, 255]


def expected(t):
    """Return the color of each pair in a round."""
    colors = []
    for now, first in zip(received(t), received(0), strict=True):
        for place in range(6):
            new = ORANGE if place >= 4 else BLUE
            colors.append(new if now[place] else PALE if first[place] else WHITE)
    return colors


@needs_browser
def test_the_slider_selects_the_round(started, text, tmp_path, numbers):
    file = tmp_path / "rounds.html"
    file.write_text(text, encoding="utf-8")
    started.visit(file)
    now = "document.getElementById('now').textContent"
    for place, t in enumerate((0, 2, 4)):
        started.run(
            f"slider = document.getElementById('slider'); slider.value = {place}; "
            "slider.dispatchEvent(new Event('input'))"
        )
        data = started.run(PIXELS)
        assert [data[4 * k : 4 * k + 3] for k in range(36)] == expected(t)
        assert started.run(now) == f"round {t}"
        assert started.run(
            "Array.from(document.querySelectorAll('tr.current > th'), (th) => th.textContent)"
        ) == [str(t)]
        edges = str(numbers.column("edges")[place])
        assert edges in started.run(
            "Array.from(document.querySelectorAll('#values dd'), (dd) => dd.textContent)"
        )
    started.unfold()
    started.run("document.getElementById('play').click()")
    assert started.run(now) == "round 0"  # from the end it starts anew
    started.run("document.getElementById('play').click()")
    started.run("document.getElementById('slider').focus()")
    started.press("ArrowRight")
    assert started.run(now) == "round 2"
    assert started.run("document.getElementById('slider').ariaValueText") == "round 2"
    started.visit(file, "#round=3")
    assert started.run(now) == "round 2"
    assert started.run("typeof hacked") == "undefined"
    assert started.named("Runtime.exceptionThrown") == []
