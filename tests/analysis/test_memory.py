"""Studies of memory: runs with models in a file, checkpoints of several processes, predictions."""

import sys

import pytest

from analysis import larger_than_memory, rank_checkpoints
from analysis.larger_than_memory import CASES, DiskCase, Measured, train
from analysis.peak_memory import SETTINGS, MemoryCase, estimate_of, peak_of

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


@pytest.mark.slow
def test_a_peak_is_predicted_within_20_percent():
    sizes = {"shape": (1, 28, 28), "examples": 14_000}
    setting = MemoryCase("logistic_regression", 100, 128, "auto", clique_averaging=True, **sizes)
    assert estimate_of(setting).added == pytest.approx(peak_of(setting), rel=0.2)


def test_labels_tell_settings_apart():
    assert len({setting.label for setting in SETTINGS}) == len(SETTINGS)


def test_models_in_a_file_and_in_memory_train_alike(tmp_path):
    case = CASES["smoke"][0]
    found = [train(case, place) for place in (str(tmp_path), None)]
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-6)
    assert found[0].models == 4 * 20 * 85_354
    assert all(one.seconds > 0 and one.peak > one.models for one in found)


def test_tables_of_models_in_a_file_have_medians_and_slowdowns():
    case = DiskCase("gn_lenet", 1000, 2)
    times = {"file": (3.0, 5.0, 9.0), "memory": (1.0, 2.0, 2.0)}
    found = [
        (case, place, Measured(seconds, 2**31, 2**30, 0.0))
        for place, some in times.items()
        for seconds in some
    ]
    assert larger_than_memory.table(found).rows == (
        ("gn_lenet x 1,000, batch 2", "file", 1.0, 2.0, 5.0, 2.5),
        ("gn_lenet x 1,000, batch 2", "memory", 1.0, 2.0, 2.0, 1.0),
    )


@pytest.mark.slow
def test_the_command_prints_a_table(capsys, tmp_path):
    larger_than_memory.main(["--preset", "smoke", "--scratch", str(tmp_path)])
    assert capsys.readouterr().out.count("gn_lenet x 20, batch 2") == 2


def measured(rank, saved, peak, seconds):
    row = {"rank": rank, "saved": saved, "peak": peak * 2**20, "models": 2**30}
    return row | {"seconds": seconds, "bytes": 2**21}


def test_tables_of_checkpoints_have_medians_by_process():
    found = [measured(rank, False, 100 + rank, None) for rank in (0, 1)]
    found += [
        measured(rank, True, peak, seconds)
        for rank in (0, 1)
        for peak, seconds in [(130, 1.0), (110, 2.0), (120, 9.0)]
    ]
    assert rank_checkpoints.table(found).rows == (
        (0, 1024.0, 100.0, 120.0, 20.0, 2.0, 2.0),
        (1, 1024.0, 101.0, 120.0, 19.0, "-", "-"),
    )


@pytest.mark.slow
def test_the_command_measures_each_process(capsys):
    rank_checkpoints.main(["--preset", "smoke", "--turns", "1"])
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[1].strip() for row in rows] == ["0", "1"]
    for row in rows:
        assert float(row[2]) == pytest.approx(4 * 20 * 85_354 / 2**20, rel=1e-3)
        assert float(row[3]) > 0
    assert float(rows[0][7]) > float(rows[0][2])
