"""The package has all of its modules and files, in a checkout and as it is installed."""

import importlib
import importlib.metadata
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

DATA = [
    ("topofl", "py.typed"),
    ("topofl.advice", "calibration.json"),
    ("topofl.cli", "experiment.toml"),
    ("topofl.report", "templates/page.html"),
    ("topofl.analysis", "studies.toml"),
    ("topofl.analysis.peers", "requirements/pfl.txt"),
    ("topofl.analysis.study", "scenarios.toml"),
    ("topofl.analysis.study", "templates/study.html"),
    ("topofl.paper_figures.kit", "templates/report.html"),
    ("topofl.paper_figures.kit", "comparison.toml"),
]

needs_checkout = pytest.mark.skipif(
    not (ROOT / "topofl").is_dir(), reason="an installed package is tested without its checkout"
)


@pytest.mark.parametrize(("package", "name"), DATA)
def test_files_that_are_no_modules_are_there(package, name):
    importlib.import_module(package)
    assert files(package).joinpath(name).is_file()


def test_the_version_is_that_of_the_package():
    topofl = importlib.import_module("topofl")
    assert importlib.metadata.version("topofl") == topofl.__version__


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def folder_of(package, project):
    """Return the folder of a package, from the longest prefix that has a folder of its own."""
    for prefix, folder in project["tool"]["setuptools"]["package-dir"].items():
        if f"{package}.".startswith(f"{prefix}."):
            return ROOT / folder / package.removeprefix(prefix).lstrip(".").replace(".", "/")
    return ROOT / package.replace(".", "/")


@needs_checkout
def test_every_package_is_declared(project):
    declared = {folder_of(name, project) for name in project["tool"]["setuptools"]["packages"]}
    found = {
        path.parent
        for top in ("topofl", "analysis", "paper_figures")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert declared == found


@needs_checkout
def test_every_file_of_a_package_is_declared(project):
    """Results, the technical report and pages of text are not part of a wheel."""
    setting = project["tool"]["setuptools"]
    declared = {
        path
        for package, patterns in setting["package-data"].items()
        for pattern in patterns
        for path in folder_of(package, project).glob(pattern)
    }
    found = {
        path
        for top in ("topofl", "analysis", "paper_figures")
        for path in (ROOT / top).rglob("*")
        if path.is_file()
        and path.suffix not in (".py", ".pyc", ".md")
        and not {"results", "__pycache__"} & set(path.relative_to(ROOT).parts)
        and ROOT / "analysis" / "report" not in path.parents
    }
    assert declared == found


@needs_checkout
def test_lower_bounds_are_the_oldest_versions_that_are_tested(project):
    text = (ROOT / "constraints-oldest.txt").read_text()
    oldest = dict(re.findall(r"^([\w-]+)==(\S+)$", text, flags=re.MULTILINE))
    needed = dict(re.fullmatch(r"([\w-]+)>=(\S+)", one).groups() for one in dependencies(project))
    assert needed == {name: oldest[name] for name in needed}


def dependencies(project):
    return project["project"]["dependencies"]


@pytest.mark.skipif(not (ROOT / ".ci").is_dir(), reason="only in a checkout")
def test_files_that_the_wheel_is_tested_with_are_there():
    named = re.findall(r"(?<=\s)tests/\S+\.py", (ROOT / ".ci" / "package").read_text())
    for name in named:
        start, choices, end = re.fullmatch(r"([^{]*)(?:\{(.*)\})?(.*)", name).groups()
        for choice in (choices or "").split(","):
            assert (ROOT / f"{start}{choice}{end}").exists(), name
