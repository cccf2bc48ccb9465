"""The program that compares this version with another: that it agrees with itself, and notices."""

import sys
from pathlib import Path

import numpy as np
import pytest

from analysis.same_as_before import cases, command
from analysis.same_as_before.command import differences, laid_out, main
from analysis.same_as_before.side import SEPARATOR
from topofl import algorithms

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_this_version_equals_itself(capsys):
    words = ["--before", str(ROOT), "--ranks", "1"]
    assert main(["histories", *words, "--only", "dsgd, *"]) == 0
    said = capsys.readouterr().out
    assert "equal in every bit, 0 within 1e-12, 0 different" in said
    assert "refused" not in said


def test_every_algorithm_is_a_case():
    assert {*algorithms.__all__} <= {*cases.cases("histories")}


@pytest.mark.slow
def test_a_changed_step_is_noticed(monkeypatch, capsys):
    monkeypatch.setattr(
        command, "START", command.START + "from same_as_before import cases as changed; "
        "changed.LEAST['lr'] *= 1 + 1e-9 * sys.argv[3].endswith('now.npz'); ",
    )  # fmt: skip
    words = ["--before", str(ROOT), "--ranks", "1", "--only", "dsgd, batched"]
    assert main(["histories", *words]) == 1
    assert "1 different" in capsys.readouterr().out


def stored(path, **columns):
    found = {f"dsgd{SEPARATOR}{name}": np.array(values) for name, values in columns.items()}
    with path.open("wb") as stream:
        np.savez(stream, **found)
    return path


@pytest.mark.parametrize(
    ("before", "now", "size"),
    [
        ({"a": [1.0, np.nan]}, {"a": [1.0, np.nan]}, 0.0),
        ({"a": [1000.0]}, {"a": [1001.0]}, 1e-3),
        ({"a": [0.0]}, {"a": [1e-3]}, 1e-3),
        ({"a": [1.0]}, {"a": [np.nan]}, np.inf),
        ({"a": [1.0]}, {"a": [1.0], "b": [1.0]}, np.inf),
        ({"a": [1.0]}, {"a": np.ones(1, dtype=np.float32)}, np.inf),
        ({"a": "one"}, {"a": "two"}, np.inf),
        ({"refused": "ValueError: n"}, {"refused": "ValueError: n"}, 0.0),
        ({"refused": "ValueError: n"}, {"refused": "ValueError: m"}, np.inf),
        ({"refused": "ValueError: n"}, {"a": [1.0]}, np.inf),
    ],
)
def test_size_of_differences(tmp_path, before, now, size):
    (found,) = differences(stored(tmp_path / "a", **before), stored(tmp_path / "b", **now))
    assert found.size == pytest.approx(size)


def test_a_case_of_one_version_is_listed(tmp_path):
    one, none = stored(tmp_path / "a", a=[1.0]), stored(tmp_path / "b")
    assert [found.size for found in differences(one, none)] == [np.inf]
    assert [found.size for found in differences(one, none, ["dsgd*"])] == [0.0]


@pytest.mark.slow
def test_names_that_are_gone(tmp_path, capsys):
    (tmp_path / "names.txt").write_text("topofl.run(algorithm, gone)\ntopofl.Gone(a)\n")
    assert main(["names", "--file", str(tmp_path / "names.txt")]) == 1
    said = capsys.readouterr().out
    assert "topofl.run(gone) is gone" in said
    assert "topofl.Gone is gone" in said


def test_black_box_tests_name_nothing_private(tmp_path):
    chosen = laid_out(ROOT, ROOT, tmp_path)
    assert Path("tests/mixing/test_matrix.py") in chosen
    assert Path("tests/algorithms/test_cliques.py") not in chosen
    assert (tmp_path / "topofl").resolve() == ROOT / "topofl"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.slow
def test_versions_are_timed_in_turns(capsys):
    words = ["--before", str(ROOT), "--only", "logistic, exponential, 10 x 128", "--turns", "1"]
    main(["speed", *words])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "10 x 128" in line]
    seconds, first, memory = map(float, row.split()[:3])
    assert min(seconds, first) > 0
    assert 0.5 < memory < 2
