"""Pages become notebooks, the reference has every public name, and figures have alt texts."""

import importlib
import json
import re
from pathlib import Path

import pytest

from tests.test_docstrings import DOCUMENTED, NAMES

pytest.importorskip("sphinx")

DOCS = Path(__file__).resolve().parents[1] / "docs"


def extension(name):
    """Import an extension of the site."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS / "_ext")
        return importlib.import_module(name)


pages, reference, versions = map(extension, ("pages", "reference", "versions"))

PAGE = """# Title

```python
x = 1
```

<!--
```python
assert x == 1
```
-->

<!-- alt: A "line" from
left to right. -->
```python
plot(x)
```

<!-- a remark -->

```toml
x = 1
```
"""


def test_blocks_become_cells():
    shown = pages.as_notebook(PAGE)
    header, setup, *cells = shown.split("```{code-cell} python\n")
    assert "file_format: mystnb" in header
    assert "remove-cell" in setup
    assert cells[0].startswith("x = 1\n```")
    assert cells[1].startswith('---\ntags: ["remove-cell"]\n---\nassert x == 1\n```')
    assert 'alt: "A \\"line\\" from left to right."\n---\nplot(x)\n```' in cells[2]
    assert len(cells) == 3
    assert "<!-- a remark -->" in cells[2]
    assert "```toml\nx = 1\n```" in cells[2]


def test_reports_have_titles_and_unique_anchors():
    text = '[a](#fig1)\n\n<a id="fig1"></a>\n\n## Figure\n'
    page = pages.as_page("results/dcliques/paper/report", text)
    assert page.startswith("# Table: paper, report")
    assert "[a](#paper-fig1)" in page
    assert "(paper-fig1)=\n\n## Figure" in page
    assert pages.as_page("CHANGELOG", "# Changelog\n") == "# Changelog\n"


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_names_have_pages(name):
    assert id(NAMES[name]) in reference.public_names()


def drawing(block):
    return re.search(r"\.plot\w*\(|plt\.subplots|^show\(", block, flags=re.MULTILINE)


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_figures_have_alt_texts(path):
    text = path.read_text()
    assert "![](" not in text
    if pages.NOT_EXECUTED in text:
        return
    undescribed = pages.COMMENT.sub("", pages.ALT.sub("", text))
    blocks = pages.BLOCK.findall(undescribed)
    assert [block for block in blocks if drawing(block) and "def show" not in block] == []


def test_the_newest_release_is_preferred_among_versions_of_the_site(tmp_path):
    for name in ("1.2.0", "1.10.0", "2.0.0rc1", "assets"):
        (tmp_path / name).mkdir()
    found = versions.write(tmp_path, "https://example.org/topofl/")
    assert json.loads((tmp_path / "versions.json").read_text()) == found
    assert [entry["version"] for entry in found] == ["2.0.0rc1", "1.10.0", "1.2.0"]
    assert [entry["preferred"] for entry in found] == [False, True, False]
    assert found[1]["url"] == "https://example.org/topofl/1.10.0/"
    assert "url=https://example.org/topofl/1.10.0/" in (tmp_path / "index.html").read_text()
    options = versions.switcher("1.10.0", "https://example.org/topofl/")["switcher"]
    assert options["json_url"] == "https://example.org/topofl/versions.json"
    assert versions.listed(["0.2.0rc1"])[0]["preferred"]
