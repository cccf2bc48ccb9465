"""The table of start-up times; nothing is timed here."""

import pytest

from analysis.start_up import CASES, Start, main, modules_loaded_by, table


def test_the_table_subtracts_torch():
    found = {label: [Start(3.0, 4.0), Start(1.0, 9.0), Start(2.0, 5.0)] for label in CASES}
    found["import torch"] = [Start(1.5, 2.0)]
    rows = {row[0]: row[1:] for row in table(found, dict.fromkeys(CASES, 7)).rows}
    assert rows["import topofl"] == (2.0, 1.0, 0.5, 5.0, 7)
    assert rows["import torch"] == (1.5, 1.5, 0.0, 2.0, 7)
    assert list(rows) == list(CASES)


def test_modules_are_counted():
    few, more = (modules_loaded_by(("-c", code)) for code in ("pass", "import wave, decimal"))
    assert 0 < few < more
    assert more - few >= 2


def test_there_is_at_least_one_turn(capsys):
    with pytest.raises(SystemExit):
        main(["--repeats", "0"])
    assert "--repeats must be at least 1, got 0" in capsys.readouterr().err
