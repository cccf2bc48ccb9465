"""What holds for every page: links, safety, names for screen readers, contrast, width, print."""

import base64
import itertools
import re

import pytest

from tests import browser, markup
from tests.browser import needs_browser
from tests.rows.pages import PAGES

SLOW = pytest.param("study", marks=pytest.mark.slow)


@pytest.fixture(params=[*(name for name in PAGES if name != "study"), SLOW])
def page(request):
    """Return each of the pages."""
    if request.param == "study":
        pytest.importorskip("vl_convert", reason="the page needs vl-convert-python")
    return PAGES[request.param]


@pytest.fixture
def parsed(page):
    return markup.read(page.text)


def test_ids_are_distinct_and_every_link_has_a_target(parsed):
    ids = [element.get("id") for element in parsed.all() if element.get("id")]
    assert len(ids) == len(set(ids))
    links = [element.get("href") for element in parsed.all() if element.get("href")]
    assert {link[:1] for link in links} <= {"#"}
    assert {link[1:] for link in links} <= set(ids)
    for element in parsed.all():
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(element.get(name).split()) <= set(ids)


def test_nothing_is_loaded_from_elsewhere_and_texts_stay_texts(page, parsed):
    assert not parsed.all("link", "iframe", "object", "embed", "base")
    assert all(image.get("src").startswith("data:image/png;") for image in parsed.all("img"))
    assert not any(script.get("src") for script in parsed.all("script"))
    names = [name for element in parsed.all() for name in element.attributes]
    assert not [name for name in names if name.startswith("on")]
    assert not re.findall(r"@import|url\((?!#)", re.sub(r"(?s)<script>.*?</script>", "", page.text))
    metas = {element.get("http-equiv"): element.get("content") for element in parsed.all("meta")}
    assert metas["Content-Security-Policy"].startswith("default-src 'none'")
    assert "<script>hacked" not in page.text
    assert "{{ 7 * 7 }}" in parsed.text


def test_it_can_be_read_without_eyes(parsed):
    assert parsed.all("html")[0].get("lang") == "en"
    assert [len(parsed.all(tag)) for tag in ("main", "h1")] == [1, 1]
    levels = [int(element.tag[1]) for element in parsed.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    for table in parsed.all("table"):
        caption = table.children[0]
        assert caption.tag == "caption"
        assert caption.text.strip() or caption.get("id")  # the study's script writes one
    scopes = {heading.get("scope") for heading in parsed.all("th")}
    assert scopes <= {"col", "row", "colgroup"}
    assert all(image.get("alt") for image in parsed.all("img"))
    for image in parsed.all("svg"):
        assert image.get("role") == "img"
        assert [child.tag for child in image.children[:2]] == ["title", "desc"]
        assert all(child.text for child in image.children[:2])


@pytest.mark.slow
def test_the_same_arguments_give_the_same_bytes(page):
    assert page.made() == page.text


WIDE = "document.documentElement.scrollWidth"


@pytest.fixture
def tab(started, page, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page.text, encoding="utf-8")
    started.resize(1280)
    started.visit(path)
    started.wait_for(page.ready)  # some pictures are drawn after the page is loaded
    return started


@needs_browser
def test_browser_has_nothing_to_complain_of_and_nothing_to_load(tab):
    assert tab.named("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    loaded = [event["request"]["url"] for event in tab.named("Network.requestWillBeSent")]
    assert [url for url in loaded if not url.startswith(("file:", "data:"))] == []
    assert tab.run("typeof hacked") == "undefined"
    assert tab.run("document.compatMode") == "CSS1Compat"
    assert tab.run("Array.from(document.images).every((image) => image.naturalWidth)")


@needs_browser
def test_contrast_is_enough(tab):
    tab.unfold()
    for scheme in ("dark", "light"):
        browser.check_contrast(tab, scheme)


@needs_browser
def test_only_boxes_scroll_sideways(tab, page):
    for width in (1920, 800, 400, 320):
        tab.resize(width)
        tab.run("dispatchEvent(new Event('resize'))")
        tab.wait_for(f"{WIDE} <= {width}")
    if page.folds:
        tab.unfold()
        assert tab.run(WIDE) <= 320


@needs_browser
def test_screen_readers_have_names(tab):
    tab.unfold()
    named = tab.names()
    for role in ("button", "combobox", "image", "img", "link", "region", "slider"):
        assert all(named.get(role, [])), role
    assert named["heading"]


@needs_browser
def test_it_prints_on_white(tab):
    pdf = base64.b64decode(tab.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert pdf.startswith(b"%PDF")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    tab.call("Emulation.setEmulatedMedia", media="print", features=dark)
    brightness, _ = tab.run(browser.CONTRAST)
    assert brightness > 0.9
