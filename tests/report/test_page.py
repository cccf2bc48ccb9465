"""What the spectral report shows; what holds for every page is in tests/contracts."""

import numpy as np
import pytest

import topofl
from tests import markup
from tests.rows.pages import EVIL, GRAPHS, NAMES
from topofl import metrics, report, topologies


def cells(page):
    (body,) = (t.all("tbody")[0] for t in page.all("table") if t.get("id") == "numbers-table")
    return [[child.text.strip() for child in row.children] for row in body.all("tr")]


def test_the_page_shows_all_values(page, table):
    seen = cells(page)
    assert len(page.all("svg", "img")) > 2 * len(GRAPHS)
    assert [row[0].endswith(name) for row, name in zip(seen, NAMES, strict=True)] == [True] * 7
    (own,) = (t for t in page.all("table") if t.get("id") == "numbers-table")
    headings = [h.get("data-column") for h in own.all("th") if h.get("data-column")]
    assert sorted(headings) == sorted(table.columns)
    assert {len(row) for row in seen} == {len(headings)}
    for column in ("nodes", "edges", "messages per round"):
        wanted = [f"{x:,}" if isinstance(x, int) else f"{x:.4g}" for x in table.column(column)]
        assert [row[headings.index(column)] for row in seen] == wanted
    for heading in page.all("th"):
        if heading.get("aria-sort"):
            assert [child.get("type") for child in heading.all("button")] == ["button"]


def test_the_page_shows_all_reasons(page, table):
    absent = [cell for row in table.rows for cell in row if isinstance(cell, topofl.NotApplicable)]
    reasons = {cell.reason for cell in absent}
    assert len(reasons) >= 3
    lists = [item.text for found in page.all("ol") for item in found.all("li")]
    links = [link for link in page.all("a") if link.get("class") == "na"]
    for reason in reasons:
        assert reason in lists
        assert any(link.get("title") == reason and reason in link.text for link in links)
    by_id = {element.get("id"): element.text for element in page.all("li")}
    for link in links:
        assert by_id[link.get("href")[1:]] == link.get("title")


def test_names_notes_and_missing_figures_are_said(page):
    cards = {card.all("h3")[0].text.split(" ", 1)[1]: card for card in page.all("article")}
    assert list(cards) == NAMES
    assert "topofl 'a < b'" in page.text
    assert "a <note>" in page.text
    assert len(page.all("script")) == 1
    assert "no period" in cards["random"].text
    assert len(cards["random"].all("svg", "img")) == 2
    assert len(cards["ring"].all("svg", "img")) == 3
    assert "complex plane" in cards[EVIL].text
    assert "Histogram of 12 real eigenvalues between -0.3333 and 1" in cards["ring"].text
    assert "theory predicts 1 per round" in cards["apart"].text


@pytest.mark.slow
def test_the_seed_decides_what_is_measured():
    graphs = [topologies.ring(6)]
    table = metrics.compare(graphs, about="all")
    pages = [report.spectral_report(graphs, table, seed=seed, rounds=5) for seed in (0, 1)]
    one, other = ([f.text for f in markup.read(text).all("figure")] for text in pages)
    assert one != other


def test_columns_of_any_table_are_shown():
    columns = ("name", "slem", "spectral gap", "luck")
    table = topofl.Table(columns, (("x", 0.5, 0.5, "much"), ("y", 0.0, 1.0, "none")))
    text = report.spectral_report([topologies.ring(3), topologies.ring(4)], table, seed=0, rounds=2)
    shown = [row[1:] for row in cells(markup.read(text))]
    assert shown == [["0.5", "0.5", "much"], ["0", "1", "none"]]
    assert "other numbers" in text


def test_a_report_without_graphs_is_a_page():
    page = markup.read(report.spectral_report([], metrics.compare([], about="all"), seed=0))
    assert page.all("h1")[0].text == "Spectral report of 0 graphs"


@pytest.mark.slow
def test_push_sum_bounds_are_drawn_against_measurements():
    directed = topologies.exponential(8, directed=True)
    graphs = [directed, topologies.ring(4), topofl.from_edges([(0, 1)], 3)]
    table = metrics.compare(graphs, about="all")
    page = markup.read(report.spectral_report(graphs, table, seed=0, rounds=10))
    words = {figure.all("title")[0].text: figure for figure in page.all("figure")}
    for quantity, column in (("log10(1 - q)", "q measured"), ("log10(C)", "C measured")):
        figure = words[f"Push-sum: {quantity}, theory against measured"]
        assert "a value is not finite: 3." in figure.text
        theory, seen = table.column(f"{quantity}, SGP")[0], table.column(column)[0]
        seen = 1 - seen if column[0] == "q" else seen
        assert f"1: theory {theory:.4g}, measured {np.log10(seen):.4g}" in figure.text
