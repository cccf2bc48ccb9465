"""``topofl study``, up to the first run; the study itself has tests of its own."""

import os
import sys

import pytest

from tests.cli.commands import fails
from topofl.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "CONFIG.toml must be given, or scenarios of our study, or 'all'"),
        (["a.toml", "--html", "a.pdf"], "`--html` must be a file that ends in .html, got a.pdf"),
        (["a.toml"], "`path` must be a TOML file, got a.toml, which does not exist"),
        (["digits 31"], "SCENARIO must be one of 'digits 60'"),
    ],
)
def test_faulty_arguments_are_refused(words, message, capsys):
    assert main(["study", *words]) == 2
    assert message in capsys.readouterr().err


def test_all_is_every_scenario_whose_data_are_there(capsys):
    assert main(["study", "all", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert all(line.startswith("digits") and line.endswith(" runs") for line in lines)


NOW = ("study", "digits 30", "--minutes", "0")
"""A study that starts no run."""


def test_a_page_needs_its_package_before_any_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    line = fails(capsys, 2, *NOW, "--html", "a.html")
    assert "`--html` needs vl-convert-python, which is not installed" in line
    assert "pip install 'topofl[pages]'" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("folder.html", "`--html` must be a file, got folder.html, a folder; name a file in it"),
        ("file/a.html", "must be a file that can be written, got file/a.html: Not a directory: "),
        ("link.html", "must be a file that can be written, got link.html: Not a directory: "),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_any_run(
    place, message, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link.html").symlink_to("file/a.html")
    assert message in fails(capsys, 2, *NOW, "--html", place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.html", "link.html"]


def test_a_read_only_page_is_refused_before_any_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.html").write_text("kept")
    (tmp_path / "a.html").chmod(0o444)
    # root may write to all files
    monkeypatch.setattr(os, "access", lambda path, _: bool(os.stat(path).st_mode & 0o222))
    line = fails(capsys, 1, *NOW, "--html", "a.html")
    assert "must be a file that can be written, got a.html, which is read-only; name ano" in line
    assert (tmp_path / "a.html").read_text() == "kept"


def test_a_page_may_be_in_a_new_folder(capsys, monkeypatch, tmp_path):
    pytest.importorskip("vl_convert", reason="the page needs vl-convert-python")
    monkeypatch.chdir(tmp_path)
    assert main([*NOW, "--dry-run", "--html", "new/a.html"]) == 0
    assert "digits 30: " in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
