"""The report of a paper, in both forms. Long, since all tests read one report, made once."""

import base64
import dataclasses
import itertools
import re

import pytest
from matplotlib.figure import Figure as Picture

from paper_figures.kit import report
from paper_figures.kit.claims import (
    CHECK,
    OUR_QUESTION,
    PAPER,
    at_least,
    at_most,
    exactly,
    judge,
)
from paper_figures.kit.paper import Figure, Setting
from paper_figures.kit.report import Report, to_markdown
from paper_figures.kit.reproduce import Result
from tests import browser, markup
from topofl import NotApplicable, Spread, Table
from topofl.runs.identity import Run

EVIL = (
    "</section><script>hacked = 1</script> <img src=x onerror=hacked=1> "
    "& \"q\" 'r' {{ 7 * 7 }} | `c` *b* _i_ [l](u) $x$"
)
LONG = "W" * 300
"""No place to break a line."""

SETTING = Setting("quick", (3, 5))
MADE = {
    "versions": {"torch": "9.8.7", "numpy": "6.5.4"},
    "device": "cpu",
    "threads": 1,
    "finished": "yesterday",
}


def result(folder, id, title, claims, tables=(), **more):
    """Return a figure that was drawn in a folder."""
    picture = Picture(figsize=(3, 2))
    picture.subplots().plot([1, 2, len(id)])
    path = folder / f"{id} 50%.png"
    picture.savefig(path, dpi=100)
    figure = Figure(id, title, lambda *_: {}, lambda _: picture, lambda _: claims)
    figure = dataclasses.replace(
        figure,
        arms=lambda setting: {"": {"": [Run({"run": {"seed": seed}}) for seed in setting.seeds]}},
    )
    rest = {"differences": (), "seconds": 1.0, "megabytes": 1.0, "runs": 0, "made": ()} | more
    return Result(figure, SETTING, {}, tuple(claims), tuple(tables), path, **rest)


def some_results(folder):
    """Return two figures whose claims have all three verdicts."""
    claims = [
        judge(
            "A ≥ B | C < D",
            "A minus B, points",
            [1.25, 1.35],
            at_least(-1, "1 point is noise"),
            paper="~1 %",
        ),
        judge(EVIL, EVIL, [3.5, 3.6], at_most(1, EVIL), paper=EVIL),
        judge(f"1. {LONG}", LONG, [2.0, 9.0], at_least(5, LONG), paper=LONG),
    ]
    absent = NotApplicable(f"no cliques | {EVIL}")
    rows = (
        ("ring", Spread(88.25, 87.5, 89.0), 2, absent),
        (EVIL, 12345.678, 1234, 0.5),
        ("b\nb", float("nan"), 0, absent),
    )
    tables = [
        Table(("arm", "final <%>", "edges", "skew"), rows, title=EVIL),
        Table(("arm", LONG), ((LONG, 1),), "second"),
    ]
    more = {
        "differences": ("16 x 16 pixels | <b>", EVIL, "- - -"),
        "seconds": 7384.0,
        "megabytes": 4321.0,
        "runs": 1234,
    }
    first = result(
        folder,
        "some-fig01",
        f"One: {EVIL}",
        claims,
        tables,
        **more,
        made=(MADE, MADE | {"device": "cuda:0"}),
    )
    count = judge("There are 45 edges", "edges", 45, exactly(45, "10 choose 2"), paper="45")
    return [first, result(folder, "summary", "Two", [count], made=(MADE | {"finished": "today"},))]


def some_report(results, **changes):
    told = {
        "title": f"A paper {EVIL}",
        "citation": f"Somebody 2022, https://example.org/a_b {EVIL}",
        "left_out": {"other-fig03": f"needs 41 h | {EVIL}", "some-fig01": "no second panel"},
        "command": "python -m x --title '<a> & ```b```' | tee",
        "scale": "quick",
        "seeds": (3, 5),
        "machine": f"a <machine> {EVIL}",
        "versions": {"topofl": "0.0.1", "torch": "9.8.7"},
        "generated": "2026-01-02 03:04 UTC",
    }
    return Report(results=results, **(told | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def told(folder):
    return some_report(some_results(folder))


@pytest.fixture(scope="module")
def text(told):
    return report.to_html(told)


@pytest.fixture(scope="module")
def page(text):
    return markup.read(text)


@pytest.fixture(scope="module")
def lines(told, folder):
    return to_markdown(told, folder).split("\n")


def section(page, id):
    (found,) = (element for element in page.all("section") if element.get("id") == id)
    return found


def rows(table):
    """Return the texts of the cells in the body of a table."""
    return [
        [" ".join(cell.text.split()) for cell in row.children]
        for row in table.all("tbody")[0].all("tr")
    ]


def flat(text):
    """Return a text on one line, as browsers show it."""
    return " ".join(text.split())


def test_ids_are_distinct_and_every_link_has_a_target(page):
    ids = [element.get("id") for element in page.all() if element.get("id")]
    assert len(ids) == len(set(ids))
    links = [element.get("href") for element in page.all("a")]
    assert {link[:1] for link in links} == {"#"}
    assert {link[1:] for link in links} <= set(ids)
    for element in page.all():
        assert set(element.get("aria-labelledby").split()) <= set(ids)


def test_nothing_is_loaded_and_nothing_runs(text, page):
    assert not page.all("script", "link", "iframe", "object", "embed", "base")
    assert all(image.get("src").startswith("data:image/png;base64,") for image in page.all("img"))
    assert not re.findall(r"@import|url\(", text)
    assert not [
        name for element in page.all() for name in element.attributes if name.startswith("on")
    ]
    (policy,) = [
        e.get("content")
        for e in page.all("meta")
        if e.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_it_can_be_read_without_eyes(page):
    assert page.all("html")[0].get("lang") == "en"
    assert [len(page.all(tag)) for tag in ("header", "nav", "main", "h1")] == [1, 1, 1, 1]
    levels = [int(element.tag[1]) for element in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    for table in page.all("table"):
        assert table.children[0].tag == "caption"
        assert flat(table.children[0].text)
        assert {heading.get("scope") for heading in table.all("th")} == {"col", "row"}
    for badge in (
        element for element in page.all("span") if element.get("class").startswith("verdict")
    ):
        assert badge.text.split()[-1] in ("HOLDS", "FAILS", "UNDECIDED")


def test_pictures_are_inside_with_words(page, told):
    images = page.all("img")
    assert len(images) == 2
    for image, result in zip(images, told.results, strict=True):
        assert base64.b64decode(image.get("src").partition(",")[2]) == result.picture.read_bytes()
        assert result.figure.title in image.get("alt")
        assert int(image.get("width")) / int(image.get("height")) == pytest.approx(1.5, abs=0.01)
    assert f"{EVIL}: ring, {EVIL}" in images[0].get("alt")


def test_summary_counts_and_links(page):
    summary = section(page, "report:summary")
    assert "Of 4 claims of the paper about 2 figures, 2 hold, 1 fails and 1 is undecided." in flat(
        summary.text
    )
    assert [int(b.text) for b in summary.all("b")] == [2, 1, 1]
    cost = (["1,234", "2 h 3 min", "4,321 MiB"], ["0", "1 s", "1 MiB"])
    assert rows(summary.all("table")[0]) == [
        ["some-fig01", flat(f"One: {EVIL}"), "1", "1", "1", "0", *cost[0]],
        ["summary", "Two", "1", "0", "0", "0", *cost[1]],
    ]
    links = {
        flat(item.all("a")[0].text): item.all("a")[0].get("href")
        for item in summary.all("li")
        if item.all("a")
    }
    assert links == {
        flat(EVIL): "#some-fig01:claim-2",
        f"1. {LONG}": "#some-fig01:claim-3",
        "A ≥ B | C < D": "#some-fig01:claim-1",
        "There are 45 edges": "#summary:claim-1",
    }


def test_headlines_count_what_the_paper_says_and_the_rest_apart(folder):
    """Checks and questions of ours neither add to the paper's counts nor hide in them."""
    said = judge("The paper says so.", "points", [1.0, 1.1], at_least(0, "any"))
    checks = [judge("As theirs.", "gap", 3, exactly(3, "exact"), kind=CHECK) for _ in range(3)]
    behind = {"A": [-9.0, -9.1]}
    ours = judge("Ours is best.", "points", behind, at_least(0, "any"), kind=OUR_QUESTION)
    told = some_report([result(folder, "mixed", "All kinds", [said, *checks, ours])], left_out={})
    assert told.tally == {"HOLDS": 1}
    assert (told.claims(PAPER), told.claims(CHECK, OUR_QUESTION)) == ([said], [*checks, ours])
    page, text = markup.read(report.to_html(told)), to_markdown(told, folder)
    summary = section(page, "report:summary")
    for words in (
        "Of 1 claim of the paper about 1 figure, 1 holds, 0 fail and 0 are undecided.",
        "the 1 claims judged by an interval may hold, or fail, by chance in one case in forty",
        (
            "3 more (“Check”) compare topofl with other implementations: 3 hold, 0 fail and 0 are "
            "undecided."
        ),
        "1 more (“Ours”) are questions that the paper does not ask: 0 hold, 1 fails and 0 are "
        "undecided.",
    ):
        assert words in flat(summary.text)
        assert words in text
    assert [int(b.text) for b in summary.all("b")] == [1, 0, 0]
    assert rows(summary.all("table")[0])[0][2:6] == ["1", "0", "0", "4"]
    assert "### Claims of the paper that fail (0)" in text
    assert "### Our checks and questions (4)" in text
    assert "- FAILS: Ours: Ours is best. ([mixed](#mixed))" in text


def test_every_claim_is_in_its_figure(page):
    table = next(t for t in section(page, "some-fig01").all("table") if t.get("class") == "claims")
    assert rows(table) == [
        [
            "✓ HOLDS",
            "A ≥ B | C < D",
            "A minus B, points",
            "1.3 (1.25 to 1.35); 95 % interval 0.6647 to 1.935",
            "~1 %",
            "≥ -1: 1 point is noise",
        ],
        [
            "✗ FAILS",
            EVIL,
            EVIL,
            "3.55 (3.5 to 3.6); 95 % interval 2.915 to 4.185",
            EVIL,
            f"≤ 1: {EVIL}",
        ],
        [
            "? UNDECIDED",
            f"1. {LONG}",
            LONG,
            "5.5 (2 to 9); 95 % interval -38.97 to 49.97",
            LONG,
            f"≥ 5: {LONG}",
        ],
    ]
    table = next(t for t in section(page, "summary").all("table") if t.get("class") == "claims")
    assert rows(table) == [
        ["✓ HOLDS", "There are 45 edges", "edges", "45", "45", "= 45: 10 choose 2"]
    ]


def test_every_number_of_the_arms_is_there_with_reasons(page):
    shown = section(page, "some-fig01")
    first, second = (table for table in shown.all("table") if table.get("class") == "grid")
    reason = f"no cliques | {EVIL}"
    assert rows(first) == [
        ["ring", "88.25 (87.5 to 89)", "2", f"n/a [1] {reason}"],
        [EVIL, "12,346", "1,234", "0.5"],
        [r"b\nb", "nan", "0", f"n/a [1] {reason}"],
    ]
    assert rows(second) == [[LONG, "1"]]
    assert [heading.text for heading in second.all("thead")[0].all("th")] == ["arm", LONG]
    assert reason in [item.text for found in shown.all("ol") for item in found.all("li")]


def test_differences_cost_and_what_was_left_out_are_there(page, told):
    shown = section(page, "some-fig01")
    assert set(told.results[0].differences) <= {item.text for item in shown.all("li")}
    facts = {
        row.children[0].text: row.children[1].text for row in shown.all("div") if row.all("dt")
    }
    assert facts["Training runs"] == "1,234"
    assert facts["Time"].startswith("2 h 3 min,")
    assert facts["Memory"].startswith("4,321 MiB,")
    assert facts["Seeds"] == "3, 5"
    assert facts["Made"] == "as in note 1, 2 of “How it was made”"
    assert "no second panel" in shown.text
    assert "None known." in section(page, "summary").text
    left_out = {
        row.children[0].text: row.children[1].text
        for row in section(page, "report:left-out").all("div")
    }
    assert left_out == told.left_out


def test_how_it_was_made_is_told(page, told):
    made = section(page, "report:made")
    assert made.all("code")[0].text == told.command
    facts = {row.children[0].text: row.children[1].text for row in made.all("div")}
    assert facts["Scale"].startswith("quick: ")
    assert (facts["Seeds"], facts["Machine"], facts["Versions"]) == (
        "3, 5",
        told.machine,
        "topofl 0.0.1, torch 9.8.7",
    )
    assert facts["Generated"] == told.generated
    runs = "versions: torch 9.8.7, numpy 6.5.4; device: {}; threads: 1"
    assert [item.text for item in made.all("li")] == [runs.format("cpu"), runs.format("cuda:0")]
    assert "95 % confidence interval" in section(page, "report:verdicts").text
    assert told.title in page.all("h1")[0].text
    assert told.citation in page.all("header")[0].text


def test_texts_stay_texts(page):
    body = page.all("body")[0].text
    assert "49" not in body.replace("= 45: 10 choose 2", "").replace("-38.97 to 49.97", "")
    assert EVIL in page.all("h1")[0].text
    assert len(page.all("section")) == 6


def split_cells(line):
    """Return the cells of a row of a pipe table."""
    return re.split(r"(?<!\\)\|", line)[1:-1]


def test_markdown_tables_are_whole(lines):
    tables = [
        list(group)
        for is_row, group in itertools.groupby(lines, lambda line: line.startswith("|"))
        if is_row
    ]
    assert [len(table) for table in tables] == [4, 5, 5, 3, 3]
    for table in tables:
        assert len({len(split_cells(line)) for line in table}) == 1
        assert all(line.endswith("|") for line in table)
        assert re.fullmatch(r"\|( :?-+:? \|)+", table[1])


def plain(line):
    """Return what a line of Markdown shows, its escapes undone."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", line).replace("&#124;", "|")


def test_markdown_has_the_same_contents(lines, told):
    whole = "\n".join(map(plain, lines))
    texts = [claim.statement for result in told.results for claim in result.claims]
    texts += [claim.threshold for result in told.results for claim in result.claims]
    texts += [
        *told.results[0].differences,
        *told.left_out,
        *told.left_out.values(),
        told.title,
        told.citation,
    ]
    texts += [
        told.machine,
        told.generated,
        told.command,
        "topofl 0.0.1",
        "no cliques | ",
        "device: cuda:0",
    ]
    texts += [
        "1.3 (1.25 to 1.35)",
        "88.25 (87.5 to 89)",
        "12,346",
        "2 h 3 min",
        "4,321 MiB",
        "95 % confidence",
    ]
    texts += [
        "Of 4 claims of the paper about 2 figures, 2 hold, 1 fails and 1 is undecided.",
        "Claims of the paper that fail (1)",
    ]
    for text in texts:
        assert flat(text) in whole
    for verdict in ("HOLDS", "FAILS", "UNDECIDED"):
        assert sum(line.endswith(f"| {verdict} |") for line in lines) == {"HOLDS": 2}.get(
            verdict, 1
        )


def test_markdown_is_not_misread(lines, told):
    code = lines.index("````sh"), lines.index("````")
    assert code[1] == code[0] + 2
    prose = [line for k, line in enumerate(lines) if not code[0] <= k <= code[1]]
    anchors = [f'<a id="{result.figure.id}"></a>' for result in told.results]
    assert [line for line in prose if re.search(r"(?<!\\)<", line)] == anchors
    links = [link for line in prose for link in re.findall(r"(?<!\\)\]\((.*?)\)", line)]
    assert {link for link in links if not link.startswith("#")} == {
        "some-fig01%2050%25.png",
        "summary%2050%25.png",
    }
    assert {link for link in links if link.startswith("#")} == {"#some-fig01", "#summary"}
    assert not [line for line in prose if re.search(r"(?<!\\)[`$]", line)]
    assert r"- \- - -" in prose
    assert any(line.startswith(rf"- 1\. {LONG}") for line in prose)
    assert any("https://example.org/a_b" in line for line in prose)


def test_both_files_are_written_whole(told, text, folder, tmp_path):
    assert report.write(told, tmp_path, "a.b") == (tmp_path / "a.b.html", tmp_path / "a.b.md")
    assert (tmp_path / "a.b.html").read_text(encoding="utf-8") == text
    written = (tmp_path / "a.b.md").read_text(encoding="utf-8")
    assert f"](../{folder.name}/some-fig01%2050%25.png)" in written
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_is_written_without_a_picture(told, tmp_path):
    lost = dataclasses.replace(told.results[1], picture=tmp_path / "lost.png")
    with pytest.raises(FileNotFoundError, match=r"lost\.png"):
        report.write(dataclasses.replace(told, results=[told.results[0], lost]), tmp_path, "a")
    assert list(tmp_path.iterdir()) == []


def test_no_figure_is_a_report_too(folder):
    empty = some_report([], left_out={})
    assert (
        "Of 0 claims of the paper about 0 figures, 0 hold, 0 fail and 0 are undecided."
        in report.to_html(empty)
    )
    assert "No figure was left out." in report.to_html(empty)
    assert "No figure was left out." in to_markdown(empty, folder)
    assert "Note" not in report.to_html(empty)


def test_readers_are_warned_of_verdicts_that_mean_little(folder):
    for words, changes in (
        ("verdicts say nothing", {"scale": "smoke"}),
        ("There is only one seed", {"seeds": (1,)}),
    ):
        warned = some_report([], **changes)
        assert words in section(markup.read(report.to_html(warned)), "report:summary").text
        assert f"**{words}" in to_markdown(warned, folder) or words in to_markdown(warned, folder)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.123, "0.12 s"),
        (9.96, "10 s"),
        (99.4, "99 s"),
        (99.6, "2 min"),
        (5960, "99 min"),
        (5971, "1 h 40 min"),
    ],
)
def test_times_are_short(told, folder, seconds, shown):
    one = dataclasses.replace(told.results[1], seconds=seconds)
    assert f"**Time:** {shown}," in to_markdown(some_report([one]), folder)


def test_mistakes(told):
    with pytest.raises(ValueError, match="`results` must have distinct ids"):
        some_report([told.results[0], told.results[0]])
    odd = dataclasses.replace(
        told.results[0], figure=dataclasses.replace(told.results[0].figure, id="a b:c")
    )
    with pytest.raises(ValueError, match="distinct ids of letters, digits, _, "):
        some_report([odd])
    with pytest.raises(ValueError, match="`scale` must be one of"):
        some_report([], scale="huge")
    claim = dataclasses.replace(told.results[1].claims[0], verdict="-")
    unknown = some_report([dataclasses.replace(told.results[1], claims=(claim,))])
    with pytest.raises(ValueError, match="`verdict` must be one of"):
        report.to_html(unknown)


needs_browser = pytest.mark.skipif(
    browser.CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome"
)


@pytest.fixture
def tab(started, text, folder):
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    started.call(
        "Emulation.setDeviceMetricsOverride",
        width=1400,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    started.call("Emulation.setEmulatedMedia", media="", features=[])
    started.visit(path)
    return started


@needs_browser
def test_browser_has_nothing_to_complain_of_and_nothing_to_load(tab):
    assert tab.named("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    loaded = [event["request"]["url"] for event in tab.named("Network.requestWillBeSent")]
    assert [url for url in loaded if not url.startswith(("file:", "data:"))] == []
    assert tab.run("typeof hacked") == "undefined"
    assert tab.run("document.compatMode") == "CSS1Compat"
    assert tab.run("Array.from(document.images, (image) => image.naturalWidth)") == [300, 300]


@needs_browser
@pytest.mark.parametrize("width", [320, 400, 800, 1920])
def test_only_boxes_scroll_sideways(tab, width):
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=800,
        deviceScaleFactor=1,
        mobile=True,
    )
    assert tab.run("document.documentElement.scrollWidth") <= width


@needs_browser
@pytest.mark.parametrize("width", [1200, 1500])
def test_tables_fit_wide_windows_and_titles_have_room(started, folder, width):
    """The table has the columns of the arms of D-Cliques, the widest of the reports."""
    heads = ("arm", "mean degree", "messages", "messages, as in the paper", "MB", "spectral gap")
    heads += ("heterogeneity", "clique skew", "accuracy % mean", "worst node", "best node")
    spread = Spread(16.25, 15.5, 17.0)
    row = ("D-Cliques (fully-connected)", 19.0, 19.0, 19.0, 0.00806, 0.08575, 0.002282)
    arms = Table((*heads, "epochs to 47 %"), ((*row, NotApplicable("none"), *([spread] * 4)),))
    title = (
        "D-SGD on the complete graph, a grid and a ring, with IID data and with two label shards"
    )
    some = result(folder, "dcliques-fig01", title, (), (arms,))
    path = folder / "wide.html"
    path.write_text(report.to_html(some_report([some])), encoding="utf-8")
    started.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    started.visit(path)
    boxes = "Array.from(document.querySelectorAll('.scroller'), (box) => [box.scrollWidth, "
    sizes = started.run(f"{boxes}box.clientWidth])")
    assert len(sizes) > 1
    assert all(inner <= outer for inner, outer in sizes)
    shown = "document.querySelector('.linked td:nth-child(2)').offsetWidth"
    assert started.run(shown) >= 15 * 16


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_enough(tab, scheme):
    tab.run("document.querySelector('details').open = true")
    browser.check_contrast(tab, scheme)


@needs_browser
def test_screen_readers_are_told_everything(tab, told):
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=400,
        height=800,
        deviceScaleFactor=1,
        mobile=True,
    )
    named = {}
    for node in tab.call("Accessibility.getFullAXTree")["nodes"]:
        if not node["ignored"]:
            named.setdefault(node["role"]["value"], []).append(
                node.get("name", {}).get("value", "")
            )
    assert {"verdict", "claim", "ours", "holds if"} <= set(
        named["columnheader"]
    )  # also where claims are no table
    assert {claim.statement for result in told.results for claim in result.claims} <= set(
        named["rowheader"]
    )
    assert all(named.get("image", []) + named.get("img", []))
    assert all(named["region"])


@needs_browser
def test_it_prints_in_full(tab):
    assert base64.b64decode(tab.call("Page.printToPDF", preferCSSPageSize=True)["data"]).startswith(
        b"%PDF"
    )
    tab.call(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.run("getComputedStyle(document.querySelector('.claims tr')).display") == "table-row"
    assert tab.run("getComputedStyle(document.querySelector('nav')).display") == "none"
