"""Mutants change one place each, and those that a test notices are killed."""

from pathlib import Path

import pytest

from analysis import mutants
from analysis.mutants import Mutant, killed_by, main, mutants_of

SOURCE = '''"""1 < 2."""


def largest(values: list[int]) -> int:
    """Return the largest value, at least 3 - 4."""
    found = values[0]
    for value in values:
        if not value <= found and True:
            found = value
    print(f"{1 + 1}")
    return found
'''

TEST = """from topofl.metrics.small import largest


def test_largest() -> None:
    assert largest([2, 5, 3]) == 5
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a source tree with one module of a package, and its test."""
    for name, text in {
        "topofl/__init__.py": "",
        "topofl/metrics/__init__.py": "",
        "topofl/metrics/small.py": SOURCE,
        "tests/metrics/test_small.py": TEST,
        "tests/test_other.py": "def test_other() -> None:\n    pass\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def _changed_lines(mutant: Mutant) -> tuple[str, str]:
    _, before, after = map(str.strip, str(mutant).splitlines())
    return before, after


def test_each_place_is_changed_once_and_texts_are_left(tree: Path) -> None:
    found = mutants_of(tree / "topofl/metrics/small.py")
    assert [_changed_lines(mutant) for mutant in found] == [
        ("found = values[0]", "found = values[1]"),
        ("if not value <= found and True:", "if value <= found and True:"),
        ("if not value <= found and True:", "if not value < found and True:"),
        ("if not value <= found and True:", "if not value <= found or True:"),
        ("if not value <= found and True:", "if not value <= found and False:"),
        ('print(f"{1 + 1}")', "pass"),
    ]


@pytest.mark.slow
def test_survivors_are_listed_with_their_share(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutants, "PACKAGES", ("metrics",))
    monkeypatch.setattr(mutants, "__file__", str(tree / "analysis" / "mutants.py"))
    assert main(["--count", "6", "--jobs", "0"]) == 1
    printed = capsys.readouterr().out
    assert printed.count(": killed by tests/metrics/test_small.py::test_largest: ") == 3
    assert printed.count(": SURVIVED: ") == 3
    assert "3 of 6 mutants were killed, 50%" in printed


@pytest.mark.slow
def test_tests_that_hang_kill_a_mutant(tree: Path) -> None:
    (tree / "tests/metrics/test_small.py").write_text("while True:\n    pass\n")
    mutant = mutants_of(tree / "topofl/metrics/small.py")[0]
    assert killed_by(mutant, tree, 3) == "tests/metrics took more than 3 seconds"
