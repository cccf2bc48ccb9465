"""The parsed HTML of the spectral report."""

import itertools
import re

import numpy as np
import pytest

import topofl
from tests import markup
from tests.report.graphs import EVIL, GRAPHS, NAMES
from topofl import metrics, report, topologies


def cells(page):
    (body,) = (t.all("tbody")[0] for t in page.all("table") if t.get("id") == "numbers-table")
    return [[child.text.strip() for child in row.children] for row in body.all("tr")]


@pytest.mark.slow
def test_ids_are_distinct_and_every_link_has_a_target(page):
    ids = [element.get("id") for element in page.all() if element.get("id")]
    assert len(ids) == len(set(ids))
    links = [element.get("href") for element in page.all() if element.get("href")]
    assert links
    assert {link[:1] for link in links} == {"#"}
    assert {link[1:] for link in links} <= set(ids)
    for element in page.all():
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(element.get(name).split()) <= set(ids)


def test_nothing_is_loaded_from_anywhere(text, page):
    assert not re.findall(
        r"https?:|//[a-z]", re.sub(r"(?m)^\s*//.*$", "", text)
    )  # comments begin with //
    assert not page.all("link", "iframe", "object", "embed", "base")
    assert all(element.get("src").startswith("data:") for element in page.all("img"))
    assert not any(element.get("src") for element in page.all("script"))
    assert not re.findall(r"@import|url\((?!#)", text)
    (policy,) = [
        e.get("content")
        for e in page.all("meta")
        if e.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'")


def test_the_page_is_accessible(page):
    assert page.all("html")[0].get("lang") == "en"
    images = page.all("svg", "img")
    assert len(images) > 2 * len(GRAPHS)
    for image in images:
        if image.tag == "img":
            assert image.get("alt")
        else:
            assert image.get("role") == "img"
            assert [child.tag for child in image.children[:2]] == ["title", "desc"]
            assert all(child.text for child in image.children[:2])
    for heading in page.all("th"):
        assert heading.get("scope") in ("col", "row", "colgroup")
    for found in page.all("table"):
        assert found.children[0].tag == "caption"
        assert found.children[0].text.strip()
    for heading in page.all("th"):
        if heading.get("aria-sort"):
            assert [child.get("type") for child in heading.all("button")] == ["button"]
    levels = [int(element.tag[1]) for element in page.all("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))


def test_the_page_shows_all_values(page, table):
    seen = cells(page)
    assert len(seen) == len(GRAPHS)
    for row, name in zip(seen, NAMES, strict=True):
        assert len(row) == len(table.columns)
        assert row[0].endswith(name)
    headings = [
        h.get("data-column")
        for t in page.all("table")
        if t.get("id") == "numbers-table"
        for h in t.all("th")
    ]
    headings = [heading for heading in headings if heading]
    assert sorted(headings) == sorted(table.columns)
    for column in ("nodes", "edges", "messages per round"):
        wanted = [
            f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
            for value in table.column(column)
        ]
        assert [row[headings.index(column)] for row in seen] == wanted


def test_the_page_shows_all_reasons(page, table):
    reasons = {
        cell.reason for row in table.rows for cell in row if isinstance(cell, topofl.NotApplicable)
    }
    assert len(reasons) >= 3
    lists = [item.text for found in page.all("ol") for item in found.all("li")]
    links = [link for link in page.all("a") if link.get("class") == "na"]
    for reason in reasons:
        assert reason in lists
        assert any(link.get("title") == reason and reason in link.text for link in links)
    by_id = {element.get("id"): element.text for element in page.all("li")}
    for link in links:
        assert by_id[link.get("href")[1:]] == link.get("title")


def test_names_are_escaped(text, page):
    assert "<script>hacked" not in text
    assert len(page.all("script")) == 1
    assert "49" not in page.all("h3")[-2].text
    headings = [heading.text for heading in page.all("h3")]
    assert any(heading.endswith(EVIL) for heading in headings)
    assert "topofl 'a < b'" in page.text
    assert "a <note>" in page.text


def test_missing_figures_have_a_reason(page):
    cards = {card.all("h3")[0].text.split(" ", 1)[1]: card for card in page.all("article")}
    assert "no period" in cards["random"].text
    assert len(cards["random"].all("svg", "img")) == 2
    assert len(cards["ring"].all("svg", "img")) == 3
    assert "complex plane" in cards[EVIL].text
    assert "Histogram of 12 real eigenvalues between -0.3333 and 1" in cards["ring"].text
    assert "theory predicts 1 per round" in cards["apart"].text


@pytest.mark.slow
def test_the_same_arguments_give_the_same_bytes(text, table):
    again = report.spectral_report(
        GRAPHS, table, seed=0, rounds=30, command="topofl 'a < b'", notes=["a <note>"]
    )
    assert again == text


@pytest.mark.slow
def test_the_seed_decides_what_is_measured():
    graphs = [topologies.ring(6)]
    table = metrics.compare(graphs, about="all")
    first, other = (report.spectral_report(graphs, table, seed=seed, rounds=5) for seed in (0, 1))
    curves = [
        [figure.text for figure in markup.read(text).all("figure")] for text in (first, other)
    ]
    assert curves[0] != curves[1]


def test_columns_of_any_table_are_shown():
    table = topofl.Table(
        ("name", "slem", "spectral gap", "luck"), (("x", 0.5, 0.5, "much"), ("y", 0.0, 1.0, "none"))
    )
    text = report.spectral_report([topologies.ring(3), topologies.ring(4)], table, seed=0, rounds=2)
    assert [row[1:] for row in cells(markup.read(text))] == [
        ["0.5", "0.5", "much"],
        ["0", "1", "none"],
    ]
    assert "other numbers" in text


def test_a_report_without_graphs_is_a_page():
    page = markup.read(report.spectral_report([], metrics.compare([], about="all"), seed=0))
    assert page.all("h1")[0].text == "Spectral report of 0 graphs"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"graphs": GRAPHS[:1]},
            ValueError,
            "`table` must have one row per graph: got 7 rows for 1 graphs",
        ),
        (
            {"table": topofl.Table(("name",), (("x",),) * 7)},
            ValueError,
            "`table` must have the column 'slem', got 1 others; use metrics.compare",
        ),
        (
            {"graphs": GRAPHS[0]},
            TypeError,
            "`graphs` must be a list, got Topology; for a History use report.rounds_r",
        ),
        ({"seed": -1}, ValueError, "`seed` must be at least 0"),
        ({"rounds": 0}, ValueError, "`rounds` must be at least 1, got 0"),
        ({"rounds": 1.5}, TypeError, "`rounds` must be an integer"),
    ],
)
def test_bad_arguments_are_refused(table, change, error, message):
    arguments = {"graphs": GRAPHS, "table": table, "seed": 0, "rounds": 2} | change
    with pytest.raises(error, match=message):
        report.spectral_report(**arguments)


@pytest.mark.slow
def test_ten_graphs_of_a_hundred_nodes_fit_into_five_megabytes():
    makers = (
        topologies.fully_connected,
        topologies.exponential,
        topologies.ring,
        topologies.star,
        topologies.torus,
    )
    graphs = [make(100) for make in makers]
    graphs += [topologies.erdos_renyi(100, p, seed=0) for p in (0.1, 0.2, 0.3, 0.5, 0.9)]
    text = report.spectral_report(
        graphs, metrics.compare(graphs, about=["structure", "averaging"]), seed=0, rounds=100
    )
    assert len(text.encode()) < 5e6


@pytest.mark.slow
def test_push_sum_bounds_are_drawn_against_measurements():
    graphs = [
        topologies.exponential(8, directed=True),
        topologies.ring(4),
        topofl.from_edges([(0, 1)], 3),
    ]
    table = metrics.compare(graphs, about="all")
    page = markup.read(report.spectral_report(graphs, table, seed=0, rounds=10))
    words = {
        figure.all("title")[0].text: figure for figure in page.all("figure") if figure.all("title")
    }
    for quantity, column in (("log10(1 - q)", "q measured"), ("log10(C)", "C measured")):
        figure = words[f"Push-sum: {quantity}, theory against measured"]
        assert "a value is not finite: 3." in figure.text
        theory, seen = table.column(f"{quantity}, SGP")[0], table.column(column)[0]
        seen = 1 - seen if column[0] == "q" else seen
        assert f"1: theory {theory:.4g}, measured {np.log10(seen):.4g}" in figure.text
