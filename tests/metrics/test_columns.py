"""Columns declared in the modules of the metrics are collected."""

import re
from pathlib import Path

import numpy as np
import pytest

from topofl import metrics, topologies
from topofl._support.table import NotApplicable
from topofl.metrics import shape as declaring
from topofl.metrics._columns import GROUPS, HARDWARE, LABELS, Limit, MetricColumn, Requirement, mean
from topofl.metrics.compare import MODULES, all_columns
from topofl.topology import TopologyError

FOLDER = Path(metrics.__path__[0])
RING = topologies.ring(4)
COUNTS = np.ones((4, 2), dtype=int)


@pytest.fixture
def declare(monkeypatch):
    """Return a function that adds columns to those of a module."""
    all_columns.cache_clear()

    def add(*columns):
        monkeypatch.setattr(declaring, "COLUMNS", (*declaring.COLUMNS, *columns))

    yield add
    all_columns.cache_clear()


def names(group):
    return [column.name for column in all_columns() if column.group == group]


def column(**changes):
    settings = {"name": "luck", "group": "paths", "meaning": "luck", "compute": lambda entry: 7}
    return MetricColumn(**settings | changes)


def test_every_module_that_declares_columns_is_found():
    declaring = {
        path.stem
        for path in FOLDER.glob("*.py")
        if re.search(r"^COLUMNS\b", path.read_text(), re.MULTILINE)
    }
    assert {module.__name__.rpartition(".")[2] for module in MODULES} == declaring
    assert {c.name for module in MODULES for c in module.COLUMNS} == {c.name for c in all_columns()}


def test_compare_shows_every_column_in_its_order():
    table = metrics.compare([RING], label_counts=COUNTS, hardware={"compute": 1.0}, about="all")
    assert table.columns == ("name", *(column.name for column in all_columns()))
    unlabeled = [
        column.name for column in all_columns() if not {LABELS, HARDWARE} & set(column.needs)
    ]
    assert metrics.compare([RING], about="all").columns == ("name", *unlabeled)


def test_meanings_of_columns_are_distinct():
    found = all_columns()
    assert len({column.name for column in found}) == len(found)
    for column in found:
        assert column.meaning
        assert column.group in GROUPS
        assert not column.meaning.endswith(".")


def test_limits_name_existing_functions_for_larger_graphs():
    for column in all_columns():
        if column.limit:
            owner, _, name = column.limit.instead.partition(".")
            assert hasattr({"metrics": metrics, "Topology": type(RING)}[owner], name)


def test_a_declared_column_is_shown_where_it_belongs(declare):
    order = names("paths")
    declare(column(name="a"), column(name="luck"))
    all_columns.cache_clear()
    assert names("paths") == [*order[:-1], "a", "luck", order[-1]]
    assert metrics.compare([RING], about="paths").column("luck") == (7,)
    assert metrics.compare([RING], about=[], metrics=["luck"]).column("luck") == (7,)
    assert "luck" in metrics.columns().column("column")


def test_columns_of_unknown_groups_are_refused(declare):
    declare(column(group="lore"))
    all_columns.cache_clear()
    with pytest.raises(ValueError, match="'lore' is not in list"):
        all_columns()


def test_limits_are_checked_before_requirements(declare):
    unlucky = Requirement("luck", lambda entry: "no luck")

    def failing(entry):
        raise TopologyError(f"`graph` must be another: {entry.name} is unlucky")

    declare(
        column(name="a", limit=Limit(3, "metrics.slem"), needs=(unlucky,)),
        column(name="b", limit=Limit(4, "metrics.slem"), needs=(unlucky,)),
        column(name="c", compute=failing),
        column(name="d", limit=Limit(1000, "metrics.slem", "luck is")),
    )
    all_columns.cache_clear()
    graphs = [RING, topologies.ring(1001)]
    found = metrics.compare(graphs, about="paths").select(list("abcd"))
    assert found.rows[0] == (
        NotApplicable("computed here up to n=3: ask for the column by name, or use metrics.slem"),
        NotApplicable("no luck"),
        NotApplicable("the graph is unlucky"),
        7,
    )
    assert found.column("d")[1].reason == (
        "luck is computed here up to n=1,000: ask for the column by name, or use metrics.slem"
    )
    named = metrics.compare(graphs, about=[], metrics=list("abcd"))
    assert named.rows[0][1:3] == (NotApplicable("no luck"),) * 2  # of any size, if asked for
    assert named.column("d") == (7, 7)


def test_shared_values_are_computed_once(declare):
    calls = []

    def costly(entry):
        calls.append(entry.name)
        return len(calls)

    declare(
        column(name="a", compute=lambda entry: entry.shared(costly)),
        column(name="b", compute=lambda entry: entry.shared(costly)),
    )
    all_columns.cache_clear()
    table = metrics.compare([RING, RING], names=["x", "y"], about=[], metrics=["a", "b"])
    assert calls == ["x", "y"]
    assert table.rows == (("x", 1, 1), ("y", 2, 2))


def test_the_table_of_columns_lists_the_declarations():
    table = metrics.columns()
    assert table.column("column") == tuple(column.name for column in all_columns())
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["diameter"] == (
        "paths",
        "hops between the two nodes that are farthest apart",
        "(strongly) connected graphs",
        2000,
    )
    assert rows["mean clique skew"][2:] == ("label counts, graphs with groups of nodes", "any")
    assert rows["nodes"][2:] == ("", "any")


def test_whole_means_are_integers():
    assert repr(mean([1, 2, 3])) == "2"
    assert mean([1, 2]) == 1.5
