"""Runs with models in a file and in memory are measured on the same results."""

import sys

import pytest

from analysis.larger_than_memory import CASES, DiskCase, Measured, main, table, train

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


def test_models_in_a_file_and_in_memory_train_alike(tmp_path):
    case = CASES["smoke"][0]
    found = [train(case, place) for place in (str(tmp_path), None)]
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-6)
    assert found[0].models == 4 * 20 * 85_354
    assert all(one.seconds > 0 and one.peak > one.models for one in found)


def test_tables_have_medians_and_slowdowns():
    case = DiskCase("gn_lenet", 1000, 2)
    times = {"file": (3.0, 5.0, 9.0), "memory": (1.0, 2.0, 2.0)}
    found = [
        (case, place, Measured(seconds, 2**31, 2**30, 0.0))
        for place, some in times.items()
        for seconds in some
    ]
    assert table(found).rows == (
        ("gn_lenet x 1,000, batch 2", "file", 1.0, 2.0, 5.0, 2.5),
        ("gn_lenet x 1,000, batch 2", "memory", 1.0, 2.0, 2.0, 1.0),
    )


def test_the_command_prints_a_table(capsys, tmp_path):
    main(["--preset", "smoke", "--scratch", str(tmp_path)])
    assert capsys.readouterr().out.count("gn_lenet x 20, batch 2") == 2
