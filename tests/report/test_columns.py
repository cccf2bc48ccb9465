"""Columns of a table are grouped by their names."""

import numpy as np
import pytest

from topofl import metrics, topologies
from topofl._support.table import NotApplicable, Spread, Table
from topofl.report.pages import by_group, group_of, view


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("nodes", "structure"),
        ("mean distance", "paths"),
        ("effective neighbors", "averaging"),
        ("B", "rounds"),
        ("delta", "push-sum"),
        ("neighborhood heterogeneity", "data"),
        ("busiest node messages", "cost"),
        ("MB per round", "cost"),
        ("luck", "other"),
    ],
)
def test_group(column, key):
    assert group_of(column) == key


def test_every_column_is_in_one_group_and_the_given_order_is_kept():
    counts = np.array([[1, 2], [2, 1], [1, 1]])
    table = metrics.compare([topologies.ring(3)], label_counts=counts, about="all")
    found = [column for _, columns in by_group(table.columns) for column in columns]
    assert sorted(found) == sorted(table.columns)
    assert len(found) == len(set(found))
    for _, columns in by_group(table.columns):
        assert columns == sorted(columns, key=table.columns.index)


def test_every_column_of_compare_is_explained():
    table = metrics.compare(
        [topologies.ring(3)], label_counts=np.array([[1, 2], [2, 1], [1, 1]]), about="all"
    )
    groups = view(table, "id", "caption")["groups"]
    columns = [column for _, members in groups for column in members]
    assert {column["name"] for column in columns} == set(table.columns) - {"name"}
    assert all(column["meaning"] for column in columns)


def test_cells_are_sorted_by_what_they_are():
    table = Table(
        ("name", "edges", "slem", "luck", "kind"),
        (
            ("a", 1200, NotApplicable("why"), Spread(0.5, 0.25, 1.0), "x"),
            ("b", 3, 0.123456789, float("inf"), "y"),
            ("c", 3, NotApplicable("not"), float("nan"), "z"),
            ("d", 3, NotApplicable("why"), -float("inf"), "z"),
        ),
    )
    seen = view(table, "id", "caption")
    assert [row["number"] for row in seen["rows"]] == [1, 2, 3, 4]
    assert seen["reasons"] == ["why", "not"]
    keys = [[cell["key"] for cell in row["cells"]] for row in seen["rows"]]
    assert [cell["column"]["name"] for cell in seen["rows"][0]["cells"]] == [
        "edges",
        "slem",
        "luck",
        "kind",
    ]
    assert keys[0] == ["1200.0", "", "0.5", "x"]
    assert keys[1] == ["3.0", "0.123456789", "Infinity", "y"]
    assert [key[2] for key in keys[2:]] == ["", "-Infinity"]
    assert [
        (row["cells"][1]["text"], row["cells"][1]["note"], row["cells"][1]["reason"])
        for row in seen["rows"]
    ] == [
        ("n/a", 1, "why"),
        ("0.1235", 0, ""),
        ("n/a", 2, "not"),
        ("n/a", 1, "why"),
    ]
    assert [cell["column"]["is_number"] for cell in seen["rows"][0]["cells"]] == [
        True,
        True,
        True,
        False,
    ]
    assert seen["rows"][0]["cells"][0]["text"] == "1,200"
