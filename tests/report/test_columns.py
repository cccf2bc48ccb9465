"""Columns of a table are grouped by their names; titles of graphs and runs are for readers."""

import numpy as np
import pytest

from topofl import metrics, topologies
from topofl._support.table import NotApplicable, Spread, Table
from topofl.report.pages import by_group, title_of, view


def test_columns_are_in_the_groups_of_their_subjects():
    wanted = {
        "structure": ["nodes"],
        "paths": ["mean distance"],
        "averaging": ["effective neighbors"],
        "rounds": ["B"],
        "push-sum": ["delta"],
        "data": ["neighborhood heterogeneity"],
        "cost": ["busiest node messages", "MB per round"],
        "other": ["luck"],
    }
    groups = by_group([name for names in wanted.values() for name in names])
    assert {group["key"]: names for group, names in groups} == wanted


def test_every_column_of_compare_is_in_one_group_and_explained():
    counts = np.array([[1, 2], [2, 1], [1, 1]])
    table = metrics.compare([topologies.ring(3)], label_counts=counts, about="all")
    groups = by_group(table.columns)
    found = [column for _, columns in groups for column in columns]
    assert sorted(found) == sorted(table.columns)
    for _, columns in groups:
        assert columns == sorted(columns, key=table.columns.index)
    columns = [column for _, own in view(table, "id", "caption")["groups"] for column in own]
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
    rows = [row["cells"] for row in seen["rows"]]
    assert [row["number"] for row in seen["rows"]] == [1, 2, 3, 4]
    assert seen["reasons"] == ["why", "not"]
    columns = [cell["column"] for cell in rows[0]]
    assert [column["name"] for column in columns] == ["edges", "slem", "luck", "kind"]
    assert [column["is_number"] for column in columns] == [True, True, True, False]
    keys = [[cell["key"] for cell in row] for row in rows]
    assert keys[:2] == [["1200.0", "", "0.5", "x"], ["3.0", "0.123456789", "Infinity", "y"]]
    assert [key[2] for key in keys[2:]] == ["", "-Infinity"]
    assert [(row[1]["text"], row[1]["note"], row[1]["reason"]) for row in rows] == [
        ("n/a", 1, "why"),
        ("0.1235", 0, ""),
        ("n/a", 2, "not"),
        ("n/a", 1, "why"),
    ]
    assert rows[0][0]["text"] == "1,200"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (topologies.ring(9).name, "Ring, 9 nodes"),
        (topologies.erdos_renyi(9, 0.5, seed=1).name, "Erdős-Rényi, 9 nodes, p 0.5, seed 1"),
        ("pfedgraph over ring(n=4)", "pFedGraph over ring, 4 nodes"),
        (
            "dpfl over ring(n=4), 2 attackers (sign_flip)",
            "DPFL over ring, 4 nodes, 2 attackers (sign_flip)",
        ),
        ("link_failures(torus(n=9), fail=0.1)", "Link failures, torus (9 nodes), fail 0.1"),
        ("f(base=ring(n=4), loops=True, own=False)", "F, base ring (4 nodes), loops, no own"),
        ("dcliques(label_counts[50x10], inter='ring')", "D-Cliques, 50 nodes, inter ring"),
        ("ring", "ring"),
        ("my graph (new)", "my graph (new)"),
        ("", ""),
        ("f(", "f("),
    ],
)
def test_titles(name, title):
    assert title_of(name) == title
