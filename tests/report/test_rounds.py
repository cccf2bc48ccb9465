"""The report of a changing graph, and its slider in a browser."""

import base64
import json
import re

import numpy as np
import pytest

import topofl
from tests import browser, markup, problems
from tests.report.graphs import EVIL
from topofl import Table, metrics, mixing, report, topologies
from topofl.mixing import MixingSequence

SENDERS = topologies.random_in(6, 2, seed=0)
MATRICES = [mixing.uniform(SENDERS.at(t), direction="pull") for t in range(5)]
RUN = MixingSequence(6, MATRICES.__getitem__, "a run", length=5)
COUNTS = np.array([[0, 9], [9, 0], [0, 9], [9, 1], [9, 0], [0, 9]])
MARKED = (4, 0)
ORDER = [
    1,
    3,
    2,
    5,
    4,
    0,
]  # those with most of class 0, with most of class 1, then the marked ones likewise


@pytest.fixture(scope="module")
def numbers():
    return metrics.over_rounds(RUN, label_counts=COUNTS, rounds=[0, 2, 4])


@pytest.fixture(scope="module")
def text(numbers):
    return report.rounds_report(
        RUN,
        numbers,
        label_counts=COUNTS,
        marked=MARKED,
        marked_name="malicious",
        title=EVIL,
        command="a < b",
        notes=["<i>"],
    )


def test_attackers_of_a_run_are_marked_over_its_rounds():
    attack = topofl.attacks.Attack("flip", (1, 4), lambda sent, bad, weights, rng: -sent)
    history = topofl.run(
        topofl.algorithms.dsgd(0.1, batch_size=4),
        model=problems.linear(),
        clients=problems.equal_clients(6),
        topology=topologies.ring(6),
        rounds=2,
        seed=0,
        attackers=attack,
    )
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


def test_encoded_pairs_agree_with_the_weights(text):
    shown = json.loads(re.search(r'id="graphs">(.*?)</script>', text).group(1))
    assert (shown["n"], shown["rounds"], shown["marked"]) == (6, [0, 2, 4], 2)
    for t, bits in zip(shown["rounds"], shown["bits"], strict=True):
        flat = np.unpackbits(np.frombuffer(base64.b64decode(bits), np.uint8))[:36]
        assert flat.reshape(6, 6).tolist() == received(t)


def test_the_page_is_complete_and_escaped(text, numbers):
    page = markup.read(text)
    assert page.all("h1")[0].text == EVIL
    ids = [element.get("id") for element in page.all() if element.get("id")]
    assert len(ids) == len(set(ids))
    (table,) = page.all("table")
    assert [row.children[0].text for row in table.all("tbody")[0].all("tr")] == ["0", "2", "4"]
    assert len(table.all("thead")[0].all("th")) == len(numbers.columns)
    assert not re.findall(r"https?:", re.sub(r"(?m)^\s*//.*$", "", text))
    assert {element.text for element in page.all("dd")} >= {"<i>"}
    assert text == report.rounds_report(
        RUN,
        numbers,
        label_counts=COUNTS,
        marked=MARKED,
        marked_name="malicious",
        title=EVIL,
        command="a < b",
        notes=["<i>"],
    )


def test_changing_columns_are_drawn_over_rounds(text, numbers):
    titles = [t.text for t in markup.read(text).all("title")[1:]]
    changing = [
        name
        for name in numbers.columns[1:]
        if len({v for v in numbers.column(name) if isinstance(v, int | float) and np.isfinite(v)})
        > 1
    ]
    assert titles == changing
    assert "nodes" not in titles


def test_bad_arguments_are_refused(numbers):
    with pytest.raises(ValueError, match=r"`table` must be returned by metrics\.over_rounds"):
        report.rounds_report(RUN, metrics.compare([MATRICES[0]]))
    for bad in (Table(numbers.columns, ()), "a table"):
        with pytest.raises(ValueError, match=r"`table` must be returned by metrics\.over_rounds"):
            report.rounds_report(RUN, bad)
    with pytest.raises(ValueError, match="`table` must have rounds in ascending order"):
        report.rounds_report(RUN, metrics.over_rounds(RUN, rounds=[2, 0], about=[]))
    with pytest.raises(ValueError, match="`marked`"):
        report.rounds_report(RUN, numbers, marked=[6])
    with pytest.raises(ValueError, match="one row per node"):
        report.rounds_report(RUN, numbers, label_counts=COUNTS[:5])
    large = topologies.ring(1001)
    with pytest.raises(ValueError, match="at most 1,000 nodes can be drawn"):
        report.rounds_report(large, metrics.over_rounds(large, about=[]))


PIXELS = (
    'Array.from(document.getElementById("pairs").getContext("2d").getImageData(0, 0, 6, 6).data)'
)
BLUE, PALE, ORANGE, WHITE = [8, 81, 156], [198, 219, 239], [213, 94, 0], [255, 255, 255]


def expected(t):
    """Return the color of each pair in a round."""
    colors = []
    for now, first in zip(received(t), received(0), strict=True):
        for place in range(6):
            color = (
                (ORANGE if place >= 4 else BLUE) if now[place] else PALE if first[place] else WHITE
            )
            colors.append(color)
    return colors


@pytest.mark.skipif(
    browser.CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome"
)
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
    started.run("document.getElementById('play').click()")
    assert started.run(now) == "round 0"  # from the end it starts anew
    started.run("document.getElementById('play').click()")
    started.visit(file, "#round=3")
    assert started.run(now) == "round 2"
    assert started.run("typeof hacked") == "undefined"
    assert (
        started.named("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    )
    assert started.run(browser.CONTRAST)[1] == []
