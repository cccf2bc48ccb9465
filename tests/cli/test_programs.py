"""``topofl new``, ``explore``, ``study`` and ``reproduce``, whose parts have tests of their own."""

import os
import socket
import sys

import pytest

from tests.cli.commands import fails, train
from topofl import config
from topofl.cli import main
from topofl.engine import DivergenceError

SMALL = "dcliques-fig05"
"""A figure that needs no files."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["new", "mine.json"], "`FILE` must end in .toml, got mine.json"),
        (["new", "nowhere/mine.toml"], "No such file or directory"),
        (["explore", "--port", "-1"], "`--port` must be between 0 and 65535, got -1"),
        (["explore", "--port", "65536"], "`--port` must be between 0 and 65535, got 65536"),
        (["explore", "--data", "nowhere"], "--data must be a folder, got nowhere"),
        (["study"], "CONFIG.toml must be given, or scenarios of our study, or 'all'"),
        (
            ["study", "a.toml", "--html", "a.pdf"],
            "`--html` must be a file that ends in .html, got a.pdf",
        ),
        (["study", "a.toml"], "`path` must be a TOML file, got a.toml, which does not exist"),
        (["study", "digits 31"], "SCENARIO must be one of 'digits 60'"),
        (["reproduce"], "name a figure or a paper"),
        (["reproduce", SMALL, "--scale", "huge"], "`scale` must be one of"),
        (["reproduce", "dclique"], "there is no figure 'dclique'; did you mean 'dcliques'"),
        (["reproduce", "dcliques-fig2"], "dcliques-fig02 is not reproduced: pseudocode of D-SGD"),
        (["reproduce", "dcliques-fig01"], "dcliques-fig01 needs the files of mnist"),
        (["reproduce", "dcliques-fig01", "--data", "nowhere"], "there is no folder nowhere"),
        (["reproduce", SMALL, "--jobs", "0"], "`jobs` must be at least 1"),
        (["reproduce", SMALL, "--device", "abacus"], "abacus"),
    ],
)
def test_refusals(capsys, folder, words, message):
    assert message in fails(capsys, 2, *words)
    assert list(folder.iterdir()) == []


def test_the_file_runs_as_it_is(folder, capsys):
    assert main(["new"]) == 0
    assert "train with: topofl run experiment.toml" in capsys.readouterr().out
    assert main(["run", "experiment.toml"]) == 0
    assert (folder / "runs/experiment/history").is_dir()


def test_commands_in_the_comments_name_the_file(folder):
    assert main(["new", "my ring.toml"]) == 0
    text = (folder / "my ring.toml").read_text()
    assert "#   topofl run 'my ring.toml' --dry-run" in text
    assert "'runs/my ring'" in text
    assert "experiment.toml" not in text


def test_lines_that_are_comments_can_be_turned_on(folder):
    assert main(["new"]) == 0
    path = folder / "experiment.toml"
    text = path.read_text()
    for line in ("[saving]", "every = 25", "[compute]", "device = "):
        assert f"# {line}" in text
        text = text.replace(f"# {line}", line)
    path.write_text(text.replace('"cuda"', '"cpu"'))
    tables = config.load(path).tables
    assert (tables["saving"]["every"], tables["compute"]["device"]) == (25, "cpu")


def test_a_file_is_overwritten_only_with_force(folder, capsys):
    path = folder / "mine.toml"
    path.write_text("mine")
    assert "got mine.toml, which exists" in fails(capsys, 2, "new", "mine.toml")
    assert path.read_text() == "mine"
    assert main(["new", "mine.toml", "--force"]) == 0
    assert config.load(path).tables["topology"]["name"] == "ring"


def test_missing_packages_of_the_explorer_are_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "marimo", None)
    assert "pip install 'topofl[explore]'" in fails(capsys, 2, "explore", "--no-browser")


def test_a_port_in_use_is_refused(capsys):
    pytest.importorskip("marimo")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = fails(capsys, 1, "explore", "--port", str(port))
    assert f"`--port` must be a free port, got {port}: " in line


def test_a_folder_of_data_that_there_is_not_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("TOPOFL_DATA", "elsewhere")
    assert "TOPOFL_DATA must be a folder, got elsewhere" in fails(capsys, 2, "explore")


def test_all_is_every_scenario_whose_data_are_there(capsys):
    assert main(["study", "all", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert all(line.startswith("digits") and line.endswith(" runs") for line in lines)


NOW = ("study", "digits 30", "--minutes", "0")
"""A study that starts no run."""


def test_a_page_needs_its_package_before_any_run(capsys, monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    line = fails(capsys, 2, *NOW, "--html", "a.html")
    assert "`--html` needs vl-convert-python, which is not installed" in line
    assert "pip install 'topofl[pages]'" in line
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("folder.html", "`--html` must be a file, got folder.html, a folder; name a file in it"),
        ("file/a.html", "must be a file that can be written, got file/a.html: Not a directory: "),
        ("link.html", "must be a file that can be written, got link.html: Not a directory: "),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_any_run(place, message, capsys, folder):
    (folder / "folder.html").mkdir()
    (folder / "file").touch()
    (folder / "link.html").symlink_to("file/a.html")
    assert message in fails(capsys, 2, *NOW, "--html", place)
    assert sorted(path.name for path in folder.iterdir()) == ["file", "folder.html", "link.html"]


def test_a_read_only_page_is_refused_before_any_run(capsys, monkeypatch, folder):
    (folder / "a.html").write_text("kept")
    (folder / "a.html").chmod(0o444)
    # root may write to all files
    monkeypatch.setattr(os, "access", lambda path, _: bool(os.stat(path).st_mode & 0o222))
    line = fails(capsys, 1, *NOW, "--html", "a.html")
    assert "must be a file that can be written, got a.html, which is read-only; name ano" in line
    assert (folder / "a.html").read_text() == "kept"


def test_a_page_may_be_in_a_new_folder(capsys, folder):
    pytest.importorskip("vl_convert", reason="the page needs vl-convert-python")
    assert main([*NOW, "--dry-run", "--html", "new/a.html"]) == 0
    assert "digits 30: " in capsys.readouterr().out
    assert list(folder.iterdir()) == []


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


def test_reproduce_dry_run_stores_nothing(capsys, folder):
    out = folder / "out"
    argv = ["dcliques-fig05", "--scale", "smoke", "--out", str(out), "--dry-run"]
    assert main(["reproduce", *argv]) == 0
    assert "dcliques-fig05     0      0" in capsys.readouterr().out
    assert not out.exists()


def test_reproduce_computes_draws_and_judges(capsys, folder):
    words = ["--scale", "smoke", "--out", str(folder), "--report"]
    assert main(["reproduce", "dcliques-fig05", *words]) == 0
    out = capsys.readouterr().out
    assert out.count("  HOLDS  ") == 7
    assert "FAILS" not in out
    kinds = {path.suffix for path in (folder / "smoke").iterdir()}
    assert kinds == {".html", ".json", ".md", ".pdf", ".png"}


def test_reproduce_whose_runs_fail(capsys, folder, monkeypatch):
    train(monkeypatch, DivergenceError("node 3 left the finite numbers"))
    words = ["--scale", "smoke", "--seeds", "1", "--out", str(folder)]
    assert main(["reproduce", "dcliques-fig09", *words]) == 1
    captured = capsys.readouterr()
    assert "node 3 left the finite numbers" in captured.err.splitlines()[-1]
    assert "dcliques-fig09: failed: 3 of 3 runs failed" in captured.out
