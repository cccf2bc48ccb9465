"""What catalogs of software read agrees with pyproject.toml."""

import json

import pytest
import yaml

import topofl
from analysis.metadata import HERE, files, project
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


def test_bibtex_has_the_same_title_and_authors():
    own = next(work for work in references() if work.key == "topofl")
    assert own.fields["title"] == project()["title"]
    assert own.fields["author"].strip("{}") == project()["authors"][0]["name"]
