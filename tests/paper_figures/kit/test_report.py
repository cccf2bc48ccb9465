"""The contents of a paper's report, in both forms; what holds for every page is in contracts."""

import base64
import dataclasses
import itertools
import re

import pytest

from paper_figures.dfedpgp import PAPER as DFEDPGP
from paper_figures.kit import report
from paper_figures.kit.claims import CHECK, OUR_QUESTION, PAPER, at_least, exactly, judge
from paper_figures.kit.paper import Setting
from paper_figures.kit.report import command_of, to_markdown
from tests import markup
from tests.browser import needs_browser
from tests.rows.pages import EVIL, LONG, PAGES, result, some_report, some_results


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def told(folder):
    return some_report(some_results(folder))


@pytest.fixture(scope="module")
def page(told):
    return markup.read(report.to_html(told))


@pytest.fixture(scope="module")
def lines(told, folder):
    return to_markdown(told, folder).split("\n")


def section(page, id):
    (found,) = (element for element in page.all("section") if element.get("id") == id)
    return found


def rows(table):
    """Return the texts of the cells in the body of a table."""
    return [[flat(cell.text) for cell in row.children] for row in table.all("tbody")[0].all("tr")]


def facts(element):
    """Return the descriptions of a list by what they describe."""
    return {
        row.children[0].text: row.children[1].text for row in element.all("div") if row.all("dt")
    }


def flat(text):
    """Return a text on one line, as browsers show it."""
    return " ".join(text.split())


def test_pictures_are_inside_with_words(page, told):
    images = page.all("img")
    for image, one in zip(images, told.results, strict=True):
        assert base64.b64decode(image.get("src").partition(",")[2]) == one.picture.read_bytes()
        assert one.figure.title in image.get("alt")
        assert int(image.get("width")) / int(image.get("height")) == pytest.approx(1.5, abs=0.01)
    assert f"{EVIL}: ring, {EVIL}" in images[0].get("alt")


SUMMARY = "Of 4 claims of the paper about 2 figures, 2 hold, 1 fails and 1 is undecided."


def test_summary_counts_and_links(page):
    summary = section(page, "report:summary")
    assert SUMMARY in flat(summary.text)
    assert [int(b.text) for b in summary.all("b")] == [2, 1, 1]
    cost = (["1,234", "2 h 3 min", "4,321 MiB"], ["0", "1 s", "1 MiB"])
    assert rows(summary.all("table")[0]) == [
        ["some-fig01", flat(f"One: {EVIL}"), "1", "1", "1", "0", *cost[0]],
        ["summary", "Two", "1", "0", "0", "0", *cost[1]],
    ]
    links = [item.all("a")[0] for item in summary.all("li") if item.all("a")]
    assert {flat(link.text): link.get("href") for link in links} == {
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
        "3 more (“Check”) compare topofl with other implementations: 3 hold, 0 fail and 0 are",
        "1 more (“Ours”) are questions that the paper does not ask: 0 hold, 1 fails and 0 are",
    ):
        assert words in flat(summary.text)
        assert words in text
    assert [int(b.text) for b in summary.all("b")] == [1, 0, 0]
    assert rows(summary.all("table")[0])[0][2:6] == ["1", "0", "0", "4"]
    assert "### Claims of the paper that fail (0)" in text
    assert "### Our checks and questions (4)" in text
    assert "- FAILS: Ours: Ours is best. ([mixed](#mixed))" in text


def test_every_claim_and_number_is_in_its_figure_with_reasons(page):
    shown, other = section(page, "some-fig01"), section(page, "summary")
    claims, counted = (
        next(t for t in one.all("table") if t.get("class") == "claims") for one in (shown, other)
    )
    ours = [
        "1.3 (1.25 to 1.35); 95 % interval 0.6647 to 1.935",
        "3.55 (3.5 to 3.6); 95 % interval 2.915 to 4.185",
        "5.5 (2 to 9); 95 % interval -38.97 to 49.97",
    ]
    first = ["A ≥ B | C < D", "A minus B, points", ours[0], "~1 %", "≥ -1: 1 point is noise"]
    assert rows(claims) == [
        ["✓ HOLDS", *first],
        ["✗ FAILS", EVIL, EVIL, ours[1], EVIL, f"≤ 1: {EVIL}"],
        ["? UNDECIDED", f"1. {LONG}", LONG, ours[2], LONG, f"≥ 5: {LONG}"],
    ]
    count = ["✓ HOLDS", "There are 45 edges", "edges", "45", "45", "= 45: 10 choose 2"]
    assert rows(counted) == [count]
    arms, second = (table for table in shown.all("table") if table.get("class") == "grid")
    reason = f"no cliques | {EVIL}"
    assert rows(arms) == [
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
    known = facts(shown)
    assert (known["Training runs"], known["Seeds"]) == ("1,234", "3, 5")
    assert known["Time"].startswith("2 h 3 min,")
    assert known["Memory"].startswith("4,321 MiB,")
    assert known["Made"] == "as in note 1, 2 of “How it was made”"
    assert "no second panel" in shown.text
    assert "None known." in section(page, "summary").text
    assert facts(section(page, "report:left-out")) == told.left_out


def test_how_it_was_made_is_told(page, told):
    made = section(page, "report:made")
    assert made.all("code")[0].text == told.command
    known = facts(made)
    assert known.pop("Scale").startswith("quick: ")
    assert known == {
        "Seeds": "3, 5",
        "Machine": told.machine,
        "Versions": "topofl 0.0.1, torch 9.8.7",
        "Generated": told.generated,
    }
    runs = "versions: torch 9.8.7, numpy 6.5.4; device: {}; threads: 1"
    assert [item.text for item in made.all("li")] == [runs.format("cpu"), runs.format("cuda:0")]
    assert "95 % confidence interval" in section(page, "report:verdicts").text
    assert told.title in page.all("h1")[0].text
    assert told.citation in page.all("header")[0].text


def test_markdown_tables_are_whole(lines):
    groups = itertools.groupby(lines, lambda line: line.startswith("|"))
    tables = [list(group) for is_row, group in groups if is_row]
    assert [len(table) for table in tables] == [4, 5, 5, 3, 3]
    for table in tables:
        assert len({len(re.split(r"(?<!\\)\|", line)) for line in table}) == 1
        assert all(line.endswith("|") for line in table)
        assert re.fullmatch(r"\|( :?-+:? \|)+", table[1])


def test_markdown_has_the_same_contents(lines, told):
    # What Markdown shows, its escapes undone.
    whole = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", "\n".join(lines)).replace("&#124;", "|")
    claims = [claim for one in told.results for claim in one.claims]
    texts = [text for claim in claims for text in (claim.statement, claim.threshold)]
    texts += [*told.results[0].differences, *told.left_out, *told.left_out.values(), told.title]
    texts += [told.citation, told.machine, told.generated, told.command, "topofl 0.0.1", SUMMARY]
    texts += ["no cliques | ", "device: cuda:0", "1.3 (1.25 to 1.35)", "88.25 (87.5 to 89)"]
    texts += ["12,346", "2 h 3 min", "4,321 MiB", "95 % confidence"]
    texts.append("Claims of the paper that fail (1)")
    assert [text for text in texts if flat(text) not in whole] == []
    verdicts = ("HOLDS", "FAILS", "UNDECIDED")
    counts = [sum(line.endswith(f"| {verdict} |") for line in lines) for verdict in verdicts]
    assert counts == [2, 1, 1]


def test_markdown_is_not_misread(lines, told):
    code = lines.index("````sh"), lines.index("````")
    assert code[1] == code[0] + 2
    prose = [line for k, line in enumerate(lines) if not code[0] <= k <= code[1]]
    anchors = [f'<a id="{one.figure.id}"></a>' for one in told.results]
    assert [line for line in prose if re.search(r"(?<!\\)<", line)] == anchors
    links = {link for line in prose for link in re.findall(r"(?<!\\)\]\((.*?)\)", line)}
    pictures = {"some-fig01%2050%25.png", "summary%2050%25.png"}
    assert links == pictures | {"#some-fig01", "#summary"}
    assert not [line for line in prose if re.search(r"(?<!\\)[`$]", line)]
    assert r"- \- - -" in prose
    assert any(line.startswith(rf"- 1\. {LONG}") for line in prose)
    assert any("https://example.org/a_b" in line for line in prose)


def test_both_files_are_written_whole(told, folder, tmp_path):
    assert report.write(told, tmp_path, "a.b") == (tmp_path / "a.b.html", tmp_path / "a.b.md")
    assert (tmp_path / "a.b.html").read_text(encoding="utf-8") == report.to_html(told)
    written = (tmp_path / "a.b.md").read_text(encoding="utf-8")
    assert f"](../{folder.name}/some-fig01%2050%25.png)" in written
    assert len(list(tmp_path.iterdir())) == 2


def test_no_figure_is_a_report_too(folder):
    empty = some_report([], left_out={})
    said = "Of 0 claims of the paper about 0 figures, 0 hold, 0 fail and 0 are undecided."
    assert said in report.to_html(empty)
    for text in (report.to_html(empty), to_markdown(empty, folder)):
        assert "No figure was left out." in text
    assert "Note" not in report.to_html(empty)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("verdicts say nothing", {"scale": "smoke"}),
        ("There is only one seed", {"seeds": (1,)}),
        ("MNIST-1D, which is not the paper's data", {"scale": "mnist1d"}),
    ],
)
def test_readers_are_warned_of_verdicts_that_mean_little(folder, words, changes):
    warned = some_report([], **changes)
    assert words in section(markup.read(report.to_html(warned)), "report:summary").text
    assert words in to_markdown(warned, folder)


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


SETTINGS = [
    ("smoke", 1, ("mnist",), "--seeds 1 --datasets mnist"),
    ("quick", 2, (), "--seeds 2"),
    ("mnist14", 20, ("cifar10",), "--seeds 20 --data DIR"),
    ("mnist1d", 20, ("cifar10",), "--seeds 20"),
    ("paper", 1, ("mnist", "cifar10", "cifar100"), "--seeds 1 --data DIR"),
    ("paper", 1, ("cifar10",), "--seeds 1 --data DIR --datasets cifar10"),
]


@pytest.mark.parametrize(("scale", "seeds", "datasets", "words"), SETTINGS)
def test_the_command_in_the_report_repeats_it(scale, seeds, datasets, words):
    setting = Setting(scale, tuple(range(seeds)), datasets=datasets)
    shown = command_of("dfedpgp", DFEDPGP.figures, setting)
    assert shown == f"topofl reproduce dfedpgp --scale {scale} {words} --report"


@needs_browser
def test_claims_are_tables_for_screen_readers_and_on_paper(started, told, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(PAGES["paper"].text, encoding="utf-8")
    started.resize(400)  # where claims look like no table
    started.visit(path)
    named = {}
    for node in started.call("Accessibility.getFullAXTree")["nodes"]:
        if not node["ignored"]:
            name = node.get("name", {}).get("value", "")
            named.setdefault(node["role"]["value"], set()).add(name)
    assert {"verdict", "claim", "ours", "holds if"} <= named["columnheader"]
    statements = {claim.statement for one in told.results for claim in one.claims}
    assert statements <= named["rowheader"]
    started.call("Emulation.setEmulatedMedia", media="print", features=[])
    display = "getComputedStyle(document.querySelector('{}')).display"
    assert started.run(display.format(".claims tr")) == "table-row"
    assert started.run(display.format("nav")) == "none"
