"""Sorting, links, the keyboard and printing of the spectral report in a browser."""

import base64
import re

import pytest

import topofl
from tests.browser import needs_browser
from tests.rows.pages import EVIL, GRAPHS, NAMES, PAGES

pytestmark = needs_browser


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(PAGES["spectral"].text, encoding="utf-8")
    return path


@pytest.fixture
def tab(started, file):
    started.resize(1400)
    started.visit(file)
    return started


ROWS = (
    "Array.from(document.querySelectorAll('#numbers-table tbody tr'), "
    "(row) => Number(row.dataset.row))"
)
PRINTED = ROWS.replace("#numbers-table", ".printed table:last-child")
SORTED = (
    "Array.from(document.querySelectorAll('#numbers-table th[aria-sort]'))"
    ".filter((th) => th.ariaSort !== 'none')"
)
SAID = f"{SORTED}.map((th) => [th.dataset.column, th.ariaSort])"
CLICK = "document.querySelector('#numbers-table th[data-column=\"{}\"] button').click()"


def by(table, column, *, descending=False):
    """Return row numbers sorted by a column, with missing values last."""
    values = table.column(column)
    known = [k for k, value in enumerate(values) if not isinstance(value, topofl.NotApplicable)]
    known.sort(key=lambda k: -values[k] if descending else values[k])
    return [k + 1 for k in known + [k for k in range(len(values)) if k not in known]]


@pytest.mark.parametrize("column", ["spectral gap", "edges", "diameter"])
def test_buttons_sort(tab, table, column):
    assert tab.run(ROWS) == list(range(1, 8))
    tab.run(CLICK.format(column))
    assert tab.run(ROWS) == tab.run(PRINTED) == by(table, column)
    assert tab.run(SAID) == [[column, "ascending"]]
    said = tab.run("document.getElementById('announcement').textContent")
    assert said == f"Sorted by {column}, ascending"
    tab.run(CLICK.format(column))
    assert tab.run(ROWS) == tab.run(PRINTED) == by(table, column, descending=True)
    assert tab.run(SAID) == [[column, "descending"]]


def test_names_are_sorted_as_text(tab):
    tab.run(CLICK.format("name"))
    order = [NAMES[number - 1] for number in tab.run(ROWS)]
    assert order == [EVIL, "all", "apart", "exponential", "one-peer", "random", "ring"]


def test_the_other_table_is_sorted_by_itself(tab):
    tab.run(
        "document.querySelector('#theory-table th[data-column=\"gap (measured)\"] button').click()"
    )
    assert tab.run(ROWS) == list(range(1, 8))
    assert tab.run(ROWS.replace("numbers", "theory")) != list(range(1, 8))


def test_links_open_it_sorted(tab, file, table):
    tab.visit(file, "#sort=spectral%20gap")
    assert tab.run(ROWS) == by(table, "spectral gap")
    tab.visit(file, "#sort=-edges")
    assert tab.run(ROWS) == by(table, "edges", descending=True)
    tab.visit(file, "#sort=luck")
    assert tab.run(ROWS) == list(range(1, 8))
    assert tab.named("Runtime.exceptionThrown") == []


FOCUS = (
    "(({id, tagName, parentElement: parent}) => [parent.dataset.column ?? id, tagName, "
    "parent.id, getComputedStyle(document.activeElement).outlineStyle])(document.activeElement)"
)


def test_the_page_works_with_the_keyboard(tab, table):
    stops = []
    while len(stops) < 80 and (not stops or stops[-1][0] != "edges"):
        tab.press("Tab")
        stops.append(tab.run(FOCUS))
        assert stops[-1][3] == "solid"  # a visible outline
        if stops[-1][1:3] == ["SUMMARY", "all-numbers"]:
            tab.press("Enter")
    assert {"show-structure", "show-averaging", "name", "nodes"} <= {stop[0] for stop in stops}
    tab.press("Enter")
    assert tab.run(ROWS) == by(table, "edges")
    tab.press(" ")
    assert tab.run(ROWS) == by(table, "edges", descending=True)


def test_the_first_number_is_seen_without_scrolling(tab, table):
    for width, height in ((1280, 720), (390, 844)):
        tab.resize(width, height)
        right, bottom = tab.run(
            "(({right, bottom}) => [right, bottom])(document.querySelector("
            "'#glance-table tbody tr td').getBoundingClientRect())"
        )
        assert right <= width
        assert bottom <= height
    assert tab.run("document.querySelectorAll('details[open]').length") == 0
    shown = "document.querySelector('#glance-table {}').textContent.trim()"
    assert tab.run(shown.format("th:nth-child(2)")) == "N_10"
    assert tab.run(shown.format("tbody td")) == f"{table.column('N_10')[0]:.4g}"


def test_links_to_reasons_and_columns_open_what_is_folded(tab, file):
    tab.visit(file, "#numbers-reason-1")
    assert tab.run("document.getElementById('all-numbers').open")
    tab.visit(file, "#sort=edges")
    assert tab.run("document.getElementById('all-numbers').open")


def test_the_table_of_contents_stays_in_view_on_wide_screens(tab):
    tab.run("document.getElementById('graph-7').scrollIntoView()")
    top = "document.querySelector('nav').getBoundingClientRect().top"
    assert 0 <= tab.run(top) < 100
    graphs = "Array.from(document.querySelectorAll('nav ol a'), (a) => a.checkVisibility())"
    assert tab.run(graphs) == [True] * len(GRAPHS)


SHOWN = (
    "Array.from(document.querySelectorAll('{} [data-group={}]'), (cell) => cell.checkVisibility())"
    ".reduce((all, shown) => all.includes(shown) ? all : [...all, shown], [])"
)


def test_groups_of_columns_are_shown_and_hidden(tab):
    tab.unfold()
    assert tab.run(SHOWN.format("#numbers-table", "averaging")) == [True]
    tab.run("document.getElementById('show-averaging').click()")
    assert tab.run(SHOWN.format("#numbers-table", "averaging")) == [False]
    assert tab.run(SHOWN.format("#numbers-table", "structure")) == [True]
    assert tab.run(SHOWN.format("#theory-table", "other")) == [True]
    tab.run("document.getElementById('show-averaging').click()")
    assert tab.run(SHOWN.format("#numbers-table", "averaging")) == [True]


def test_screen_readers_have_all_information(tab, table):
    tab.unfold()
    named = tab.names()
    links = " ".join(named["link"])
    absent = [cell for row in table.rows for cell in row if isinstance(cell, topofl.NotApplicable)]
    assert [cell for cell in absent if cell.reason not in links] == []
    assert len(named.get("image", []) + named.get("img", [])) > 2 * len(GRAPHS)
    assert set(table.columns) <= {name.strip() for name in named["columnheader"]}
    assert "1 ring" in named["rowheader"]


def test_names_stay_in_view_while_tables_scroll(tab):
    tab.resize(400)
    tab.unfold()
    first = "document.querySelector('#numbers-table tbody th').getBoundingClientRect().left"
    before = tab.run(first)
    tab.run("document.querySelector('#content .scroller').scrollLeft = 150")
    assert abs(tab.run(first) - before) <= 1


def test_groups_of_columns_are_printed_one_below_the_other_in_landscape(tab):
    pdf = base64.b64decode(tab.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    wide, high = map(int, re.findall(rb"/MediaBox \[0 0 (\d+)[\d.]* (\d+)", pdf)[0])
    assert (wide in (841, 842), high in (594, 595)) == (True, True)
    tab.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert tab.run(SHOWN.format("#numbers-table", "structure")) == [False]
    assert tab.run(SHOWN.format(".printed", "structure")) == [True]
    assert tab.run("getComputedStyle(document.querySelector('.card')).breakInside") == "avoid"
