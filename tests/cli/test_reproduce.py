"""``topofl reproduce``."""

import pytest

from tests.cli.commands import fails, train
from topofl.cli import main
from topofl.engine import DivergenceError


def test_reproduce_lists_figures(capsys):
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if line]
    assert {"dcliques", "dcliques-fig01", "dcliques-fig19", "dcliques-numbers"} < set(names)
    (missing,) = (line for line in lines if line.startswith("dfedpgp-appendix-accuracy"))
    assert "Tiny-ImageNet" in missing


def test_the_help_does_not_promise_hours_for_one_figure(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "quick (default; minutes a figure and hours a paper on 2 cores)" in printed


def test_reproduce_dry_run_stores_nothing(capsys, tmp_path):
    out = tmp_path / "out"
    argv = ["dcliques-fig05", "--scale", "smoke", "--out", str(out), "--dry-run"]
    assert main(["reproduce", *argv]) == 0
    assert "dcliques-fig05     0      0" in capsys.readouterr().out
    assert not out.exists()


def test_reproduce_computes_draws_and_judges(capsys, tmp_path):
    assert (
        main(
            ["reproduce", "dcliques-fig05", "--scale", "smoke", "--out", str(tmp_path), "--report"]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.count("  HOLDS  ") == 7
    assert "FAILS" not in out
    kinds = {path.suffix for path in (tmp_path / "smoke").iterdir()}
    assert kinds == {".html", ".json", ".md", ".pdf", ".png"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "name a figure or a paper"),
        (["dcliques-fig05", "--scale", "huge"], "`scale` must be one of"),
        (["dclique"], "there is no figure 'dclique'; did you mean 'dcliques'"),
        (["dcliques-fig2"], "dcliques-fig02 is not reproduced: pseudocode of D-SGD"),
        (["dcliques-fig01"], "dcliques-fig01 needs the files of mnist"),
        (["dcliques-fig01", "--data", "nowhere"], "there is no folder nowhere"),
        (["dcliques-fig05", "--jobs", "0"], "`jobs` must be at least 1"),
        (["dcliques-fig05", "--device", "abacus"], "abacus"),
    ],
)
def test_reproduce_mistakes(capsys, argv, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, 2, "reproduce", *argv)
    assert list(tmp_path.iterdir()) == []


def test_reproduce_whose_runs_fail(capsys, tmp_path, monkeypatch):
    train(monkeypatch, DivergenceError("node 3 left the finite numbers"))
    argv = (
        "reproduce",
        "dcliques-fig09",
        "--scale",
        "smoke",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
    )
    assert main(argv) == 1
    captured = capsys.readouterr()
    assert "node 3 left the finite numbers" in captured.err.splitlines()[-1]
    assert "dcliques-fig09: failed: 3 of 3 runs failed" in captured.out
