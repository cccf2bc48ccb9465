"""What catalogs of software read agrees with pyproject.toml."""

import json
import re

import pytest
import yaml

import topofl
from analysis.metadata import HERE, PAPER, cited, files, project
from topofl.citations import references


@pytest.mark.parametrize("name", files())
def test_files_are_as_written(name):
    assert (HERE / name).read_text("utf-8") == files()[name], "run python -m analysis.metadata"


def test_each_format_has_title_version_and_authors():
    citation = yaml.safe_load(files()["CITATION.cff"])
    codemeta = json.loads(files()["codemeta.json"])
    zenodo = json.loads(files()[".zenodo.json"])
    assert citation["title"] == zenodo["title"] == project()["title"]
    assert citation["version"] == codemeta["version"] == zenodo["version"] == topofl.__version__
    names = [author["name"] for author in project()["authors"]]
    for authors in (citation["authors"], codemeta["author"], zenodo["creators"]):
        assert [author["name"] for author in authors] == names


def test_the_conda_recipe_needs_what_the_package_needs():
    recipe = yaml.safe_load(files()[".ci/conda/recipe.yaml"])
    python, *run = recipe["requirements"]["run"]
    assert python == f"python {project()['requires-python']}"
    assert len(run) == len(project()["dependencies"])
    assert {"pytorch >=2.6.0", "networkx >=3.3", "matplotlib-base >=3.9.0"} <= set(run)
    assert recipe["build"]["python"]["entry_points"] == ["topofl = topofl.cli:main"]


def test_bibtex_has_the_same_title_and_authors():
    own = next(work for work in references() if work.key == "topofl")
    assert own.fields["title"] == project()["title"]
    assert own.fields["author"].strip("{}") == project()["authors"][0]["name"]


def test_the_paper_has_the_same_title_authors_and_keywords_and_cites_what_it_lists():
    _, header, text = (PAPER / "paper.md").read_text("utf-8").split("---\n", 2)
    about = yaml.safe_load(header)
    assert about["title"] == project()["title"]
    assert about["tags"] == project()["keywords"]
    assert [one["name"] for one in about["authors"]] == [
        one["name"] for one in project()["authors"]
    ]
    listed = re.findall(r"^@\w+\{(\w+),$", files()["docs/paper/paper.bib"], flags=re.MULTILINE)
    assert sorted(listed) == sorted(cited())
    assert 750 <= len(text.split()) <= 1750


def test_the_paper_quotes_the_measured_race():
    """Each row has medians and ratio of a row of the results, rounded."""
    text = (PAPER / "paper.md").read_text("utf-8")
    page = (HERE / "docs" / "results" / "peers.md").read_text("utf-8")
    measured = [[cell.strip() for cell in row.split("|")] for row in page.splitlines()]
    known = {(row[2], *row[3].split(", "), row[4]) for row in measured if len(row) == 8}
    rows = [[cell.strip() for cell in row.split("|")] for row in text.splitlines()]
    quoted = [
        tuple(row[2:6]) for row in rows if len(row) == 8 and row[2] not in ("best peer", ":--")
    ]
    assert len(quoted) == 6
    for peer, ours, theirs, ratio in quoted:
        assert (peer.replace("pfl-research", "pfl"), ours, theirs, ratio) in known
