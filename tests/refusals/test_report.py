"""What reports refuse."""

import pytest

import topofl
from tests.refusals import named, refused, rows
from tests.rows.pages import COUNTS, GRAPHS, MATRICES, RUN, over_rounds, table
from topofl import metrics, report, topologies
from topofl.report import replacing


def spectral(**change):
    given = {"graphs": GRAPHS, "table": table(), "seed": 0, "rounds": 2} | change
    return report.spectral_report(**given)


def over(t=None, run=RUN, **options):
    return report.rounds_report(run, over_rounds() if t is None else t, **options)


def written(path):
    with replacing(path):
        pytest.fail("the body ran")


def below_a_file(path):
    (path / "file").write_text("")
    written(path / "file" / "a.txt")


NO_SLEM = topofl.Table(("name",), (("x",),) * 7)
LARGE = topologies.ring(1001)

TYPE_ERRORS = {
    "`graphs` must be a list, got Topology; for a History use": lambda: spectral(graphs=GRAPHS[0]),
    "`rounds` must be an integer": lambda: spectral(rounds=1.5),
}

VALUE_ERRORS = {
    "one row per graph: got 7 rows for 1 graphs": lambda: spectral(graphs=GRAPHS[:1]),
    "the column 'slem', got 1 others; use metrics.compare": lambda: spectral(table=NO_SLEM),
    "`seed` must be at least 0": (lambda: spectral(seed=-1), lambda: spectral(seed=0)),
    "`rounds` must be at least 1, got 0": (lambda: spectral(rounds=0), lambda: spectral(rounds=1)),
    "`table` must be returned by metrics.over_rounds": lambda: over(metrics.compare(MATRICES[:1])),
    "`table` must be returned by": lambda: over(topofl.Table(over_rounds().columns, ())),
    "must be returned by metrics.over_rounds": lambda: over("a table"),
    "`table` must have rounds in ascending order": (
        lambda: over(metrics.over_rounds(RUN, rounds=[2, 0], about=[]))
    ),
    "`marked`": (lambda: over(marked=[6]), lambda: over(marked=[5])),
    "one row per node": lambda: over(label_counts=COUNTS[:5]),
    "at most 1,000 nodes can be drawn": lambda: over(metrics.over_rounds(LARGE, about=[]), LARGE),
}

ROWS = rows(
    {
        TypeError: TYPE_ERRORS,
        ValueError: VALUE_ERRORS,
        NotADirectoryError: {"file is not a folder": below_a_file},
        IsADirectoryError: {"it is a folder; name a file in it": written},
        FileNotFoundError: {
            ("there is no folder", "none; create it first"): (
                lambda path: written(path / "none" / "a.txt")
            )
        },
    }
)


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)
