"""The page of the study: content, and its behavior in a browser where one is installed."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from analysis.study import page
from analysis.study.page import write_page
from analysis.study.runs import PREDICTORS
from analysis.study.scenarios import GRAPHS
from analysis.study.statistics import OUTCOMES
from tests.browser import needs_browser
from tests.rows.pages import CELLS, PAGES, cell
from tests.rows.pages import STUDY_NAMES as NAMES

pytest.importorskip("vl_convert", reason="the page needs vl-convert-python")

LIMIT = 1_500_000


def expected(x, y, tables):
    """Return scipy's rank correlation of means over seeds."""
    a = np.mean([table.predictors[x] for table in tables], axis=0)
    b = np.mean([table.outcomes[y] for table in tables], axis=0)
    known = np.isfinite(a)
    return spearmanr(a[known], b[known]).statistic


@pytest.fixture(scope="module")
def text():
    return PAGES["study"].text


@pytest.mark.slow
def test_a_study_of_ones_own_has_neither_our_spectra_nor_empty_sections(tmp_path):
    own = replace(CELLS[0], scenario="mine", method="as configured", partition="as configured")
    (tmp_path / "own.html").symlink_to("new/own.html")  # in a folder that is created
    text = write_page([own], tmp_path / "own.html", spectra=False, draws=20).read_text()
    assert (tmp_path / "new" / "own.html").is_file()
    for part in ("remember", "spectra", "hypotheses"):
        assert f'id="{part}"' not in text
        assert f'href="#{part}"' not in text
    assert 'id="plot"' in text


@pytest.mark.slow
def test_the_page_is_small(text):
    assert len(text.encode()) < LIMIT


@pytest.mark.slow
def test_sentences_are_in_the_page(text):
    for sentence, counted in page.sentences(CELLS, draws=20):
        assert sentence in text
        assert counted in text


def test_numbers_of_sentences_come_from_the_cells():
    found = dict(page.sentences(CELLS[:1], draws=20))
    first = next(iter(found))
    table = CELLS[0]  # sentences compare predictors over the graphs that have all of them
    known = np.isfinite(table.predictors["spectral gap"])
    x, y = table.predictors["H_10"][known], table.outcomes["learning phase"][known]
    number = spearmanr(x, y).statistic
    assert f"H_10 has a rank correlation of {page.signed_text(number)} (" in first
    assert next(iter(found.values())) == "1 cell of up to 14 graphs: digits 60; 2 shards."
    (about_iid, _), *_ = page.sentences(CELLS[3:4], draws=20)
    assert about_iid.startswith("With iid data")


def test_the_pair_that_the_gap_orders_wrongly_is_found():
    table = cell("digits 60", "2 shards", "D-SGD")
    gap = np.linspace(0.1, 0.9, len(NAMES))
    accuracy = gap.copy()
    assert page._misled([changed(table, gap, accuracy)]) is None
    accuracy[3], accuracy[8] = 0.99, 0.01
    said = page._misled([changed(table, gap, accuracy)])
    assert said is not None
    assert f"that of {NAMES[3]} " in said
    assert "is 0.990 against 0.010" in said


def changed(table, gap, accuracy):
    outcomes = {**table.outcomes, "learning phase": accuracy}
    predictors = {**table.predictors, "spectral gap": gap}
    return replace(table, predictors=predictors, outcomes=outcomes)


def test_points_are_means_over_seeds_and_predictors_are_shared():
    cells, columns = page.cells_shown(CELLS)
    assert [one["seeds"] for one in cells] == [2, 1, 1, 1, 1]
    mean = np.mean([table.outcomes["final"] for table in CELLS[:2]], axis=0)
    assert cells[0]["y"]["final"] == pytest.approx(mean, rel=1e-5)
    assert columns[cells[0]["x"]]["spectral gap"][:2] == [None, None]
    same = [CELLS[0], changed(CELLS[0], CELLS[0].predictors["spectral gap"], np.ones(14))]
    assert page.cells_shown([same[0], *renamed(same[1])])[0][1]["x"] == 0


def renamed(table):
    yield replace(table, method="D2")


def test_runs_that_diverged_and_missing_graphs_are_marked():
    one, two = CELLS[:2]
    accuracy = one.outcomes["learning phase"].copy()
    accuracy[4] = -0.5
    lost = changed(one, one.predictors["spectral gap"], accuracy)
    rest = range(1, len(NAMES))
    fewer = replace(
        two,
        graphs=NAMES[1:],
        families=two.families[1:],
        predictors={name: values[list(rest)] for name, values in two.predictors.items()},
        outcomes={name: values[list(rest)] for name, values in two.outcomes.items()},
    )
    (shown,), _ = page.cells_shown([lost, fewer])
    assert shown["graphs"] == NAMES[1:]
    assert [k for k, diverged in enumerate(shown["diverged"]) if diverged] == [3]
    mean = (one.outcomes["final"][5] + two.outcomes["final"][5]) / 2
    assert shown["y"]["final"][4] == pytest.approx(mean, rel=1e-5)


@pytest.mark.slow
def test_spectra_have_the_heterogeneity_of_their_graphs():
    shown = {one["graph"]: one for one in page.spectra_shown()}
    assert set(shown) == set(page.SPECTRA)
    energies = [sum(one["heights"]) for one in shown.values()]
    assert energies == pytest.approx([energies[0]] * len(energies), rel=1e-3)
    assert shown["designed 10"]["H_10"] < shown["4-regular"]["H_10"] < shown["ring"]["H_10"]
    assert shown["D-Cliques 10 ring"]["slow"] < 0.01 < shown["ring"]["slow"]


@pytest.fixture
def tab(started, text, tmp_path):
    path = tmp_path / "study.html"
    path.write_text(text, encoding="utf-8")
    return opened(started, path)


def opened(tab, path):
    tab.resize(1280)
    tab.visit(path)
    tab.wait_for(PAGES["study"].ready)
    return tab


MARKS = "document.querySelectorAll('#scatter path[aria-roledescription=point]')"
SHOWN = "document.getElementById('correlation').textContent"
DRAWN = "Number(document.body.dataset.drawn)"
OPACITY = f"Array.from({MARKS}, (mark) => Number(mark.getAttribute('opacity')))"


def choose(tab, key, down):
    """Focus a select and move down by the keyboard."""
    before = tab.run(DRAWN)
    tab.run(f"document.getElementById('{key}').focus()")
    for _ in range(down):
        for kind in ("keyDown", "keyUp"):
            tab.call(
                "Input.dispatchKeyEvent",
                type=kind, key="ArrowDown", code="ArrowDown", windowsVirtualKeyCode=40,
            )  # fmt: skip
    tab.wait_for(f"{DRAWN} >= {before + down}")


def shown_number(tab):
    text = tab.run(SHOWN).replace("\N{MINUS SIGN}", "-")
    found = re.search(r"correlation ([+-][\d.]+) over (\d+) graphs", text)
    assert found is not None, text
    return float(found[1]), int(found[2])


@needs_browser
def test_the_printed_correlation_is_that_of_scipy(tab):
    number = expected("H_10", "learning phase", CELLS[:2])
    assert shown_number(tab) == (pytest.approx(number, abs=6e-4), len(NAMES))
    said = tab.run("document.querySelector('#scatter path[aria-roledescription=point]').ariaLabel")
    assert NAMES[0] in said


@needs_browser
def test_any_number_of_families_is_drawn_with_colors_and_markers_of_their_own(started, tmp_path):
    families = [f"family_{k},of_specs={k}" for k in range(12)]
    chosen = [*range(12), 12, 13]
    table = replace(
        cell("mine 60", "as configured", "as configured"),
        graphs=[f"family_{k},of_specs={k},seed={k}" for k in chosen],
        families=[families[k % 12] for k in chosen],
    )
    table.predictors["H_10"][3] = 0.0
    opened(started, write_page([table], tmp_path / "many.html", spectra=False, draws=20))
    assert started.run(f"{MARKS}.length") == len(chosen)
    assert "undefined" not in started.run("document.body.innerText")
    buttons = "document.querySelectorAll('[data-legend=family] .entry')"
    look = "`${one.dataset.symbol} ${one.style.getPropertyValue('--own')}`"
    looks = started.run(f"Array.from({buttons}, (one) => {look})")
    assert len(set(looks)) == len(families)
    assert all("undefined" not in one for one in looks)
    colors = f"Array.from({MARKS}, (mark) => getComputedStyle(mark).fill)"
    assert len(set(started.run(colors))) == 7
    names = "document.querySelector('.names')"
    assert started.run(f"{names}.scrollWidth") <= started.run(f"{names}.clientWidth")
    edge = "document.querySelector('#scatter .background').getBoundingClientRect().left"
    left = f"Math.min(...Array.from({MARKS}, (mark) => mark.getBoundingClientRect().left))"
    assert started.run(left) > started.run(edge)


@needs_browser
def test_selects_work_by_the_keyboard_and_change_plot_and_correlation(tab):
    places = f"Array.from({MARKS}, (mark) => mark.getAttribute('transform'))"
    before = tab.run(places)
    down = list(PREDICTORS).index("predicted deviation (20)") - list(PREDICTORS).index("H_10")
    choose(tab, "x", down)
    assert tab.run(places) != before
    number = expected("predicted deviation (20)", "learning phase", CELLS[:2])
    assert shown_number(tab)[0] == pytest.approx(number, abs=6e-4)
    choose(tab, "y", list(OUTCOMES).index("spread"))
    choose(tab, "method", 1)
    number = expected("predicted deviation (20)", "spread", CELLS[2:3])
    assert shown_number(tab)[0] == pytest.approx(number, abs=6e-4)
    choose(tab, "scenario", 1)
    assert tab.run("document.getElementById('method').value") == "D-SGD"
    assert tab.named("Runtime.exceptionThrown") == []


@needs_browser
def test_graphs_without_the_predictor_are_named(tab):
    change = "const x = document.getElementById('x'); x.value = 'spectral gap'"
    tab.run(f"(() => {{ {change}; x.dispatchEvent(new Event('change')); }})()")
    tab.wait_for(f"{MARKS}.length === {len(NAMES) - 2}")
    number = expected("spectral gap", "learning phase", CELLS[:2])
    assert shown_number(tab) == (pytest.approx(number, abs=6e-4), len(NAMES) - 2)
    caption = tab.run("document.getElementById('caption').textContent")
    assert f"is not defined: {', '.join(NAMES[:2])}." in caption


@needs_browser
@pytest.mark.parametrize(
    ("place", "value"), [("#legends", GRAPHS[NAMES[0]].family), ("#names", NAMES[3])]
)
def test_buttons_highlight_the_same_graphs_in_all_plots(tab, place, value):
    button = f"document.querySelector('{place} [data-value=\"{value}\"]')"
    tab.run(f"{button}.focus()")
    tab.press("Enter")
    tab.wait_for(f"{OPACITY}.some((opacity) => opacity < 0.5)")
    assert tab.run(f"{button}.getAttribute('aria-pressed')") == "true"
    lit = [k for k, name in enumerate(NAMES) if value in (name, GRAPHS[name].family)]
    assert [k for k, opacity in enumerate(tab.run(OPACITY)) if opacity > 0.5] == lit
    panel = OPACITY.replace("#scatter", "#panels figure:last-child")
    tab.wait_for(f"{panel}.filter((opacity) => opacity > 0.5).length === {len(lit)}")
    faint = "document.querySelectorAll('#spectra-panels .faint').length"
    assert tab.run(faint) >= 4
    tab.run("document.getElementById('clear').click()")
    tab.wait_for(f"{OPACITY}.length && {OPACITY}.every((opacity) => opacity > 0.5)")


@needs_browser
def test_dragging_over_the_plot_highlights_what_is_inside(tab):
    tab.run("document.getElementById('scatter').scrollIntoView()")
    area = "document.querySelector('#scatter svg').getBoundingClientRect()"
    left, top, wide = (tab.run(f"{area}.{key}") for key in ("left", "top", "width"))
    start, end = (left + 0.5 * wide, top + 15), (left + 0.97 * wide, top + 400)
    steps = (
        ("mouseMoved", start),
        ("mousePressed", start),
        ("mouseMoved", end),
        ("mouseReleased", end),
    )
    for kind, (x, y) in steps:
        tab.call(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
        )
    tab.wait_for(f"{OPACITY}.some((opacity) => opacity < 0.5)")
    box = "{ x, y, width, height } = mark.getBoundingClientRect()"
    center = (
        f"Array.from({MARKS}, (mark) => {{ const {box}; return [x + width / 2, y + height / 2]; }})"
    )
    lit = [opacity > 0.5 for opacity in tab.run(OPACITY)]
    inside = [x > start[0] and start[1] < y < end[1] for x, y in tab.run(center)]
    assert lit == inside
    assert 0 < sum(lit) < len(NAMES)
