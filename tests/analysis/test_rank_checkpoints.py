"""Checkpoints of several processes are measured, with what they add to the memory of each."""

import sys

import pytest

from analysis.rank_checkpoints import main, table

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


def measured(rank, saved, peak, seconds):
    row = {"rank": rank, "saved": saved, "peak": peak * 2**20, "models": 2**30}
    return row | {"seconds": seconds, "bytes": 2**21}


def test_tables_have_medians_by_process():
    found = [measured(rank, False, 100 + rank, None) for rank in (0, 1)]
    found += [
        measured(rank, True, peak, seconds)
        for rank in (0, 1)
        for peak, seconds in [(130, 1.0), (110, 2.0), (120, 9.0)]
    ]
    assert table(found).rows == (
        (0, 1024.0, 100.0, 120.0, 20.0, 2.0, 2.0),
        (1, 1024.0, 101.0, 120.0, 19.0, "-", "-"),
    )


def test_the_command_measures_each_process(capsys):
    main(["--preset", "smoke", "--turns", "1"])
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[1].strip() for row in rows] == ["0", "1"]
    for row in rows:
        assert float(row[2]) == pytest.approx(4 * 20 * 85_354 / 2**20, rel=1e-3)
        assert float(row[3]) > 0
    assert float(rows[0][7]) > float(rows[0][2])
