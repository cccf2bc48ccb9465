"""``topofl list`` reads the source; importing the catalogue gives the same."""

import ast
import gc
import inspect

import pytest

from topofl._spec import catalogue
from topofl.algorithms import Part
from topofl.cli import main, sources
from topofl.cli.declared import KINDS_OF_NAMES, declarations, declared_columns
from topofl.metrics.compare import all_columns


@pytest.fixture(scope="module")
def imported():
    return catalogue()


def as_configured(default):
    """Return a default as declarations give it: a part as its pattern, and a tuple as a list."""
    if isinstance(default, Part):
        assert len(default.patterns) == 1
        assert not default.complement
        return default.patterns[0]
    return list(default) if isinstance(default, tuple) else default


@pytest.mark.parametrize("kind", KINDS_OF_NAMES[:-1])
def test_declarations_equal_the_catalogue(kind, imported):
    found = declarations(kind)
    assert list(found) == list(imported[kind])
    for name, function in imported[kind].items():
        real = inspect.signature(function).parameters.values()
        assert [(p.name, p.kind, p.default) for p in found[name].parameters] == [
            (p.name, p.kind, as_configured(p.default)) for p in real
        ], name
        assert found[name].summary == inspect.getdoc(function).partition("\n")[0], name


def test_columns_equal_those_of_compare():
    assert [(c.name, c.group, c.meaning) for c in declared_columns()] == [
        (c.name, c.group, c.meaning) for c in all_columns()
    ]


def test_there_are_names_of_every_kind(imported):
    assert (*imported, "metric") == KINDS_OF_NAMES
    assert all(len(declarations(kind)) > 0 for kind in imported)
    assert len(declarations("algorithm")) > 40


@pytest.mark.parametrize("kind", KINDS_OF_NAMES[:-1])
def test_list_with_needs_only_adds_lines(kind, capsys):
    assert main(["list", kind]) == 0
    plain = capsys.readouterr().out.splitlines()
    assert main(["list", kind, "--needs"]) == 0
    more = capsys.readouterr().out.splitlines()
    assert [line for line in more if not line.startswith("      needs")] == plain
    assert (more != plain) == (kind == "algorithm")


def test_a_default_that_cannot_be_read_is_named():
    node = ast.parse("compute()", mode="eval").body
    with pytest.raises(ValueError, match=r"compute\(\) in topofl.tasks must be a literal"):
        sources.value_of("topofl.tasks", node)
    with pytest.raises(ValueError, match=r"topofl.tasks must define clasification, or import it"):
        sources.find("topofl.tasks", "clasification")
    with pytest.raises(ValueError, match=r"regression of topofl.tasks must be a constant"):
        sources.constant("topofl.tasks", "regression")


@pytest.mark.parametrize("enabled", [True, False])
def test_reading_restores_the_collector(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with sources.reading():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
