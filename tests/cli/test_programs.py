"""``topofl new``, ``explore``, ``study`` and ``reproduce``, whose parts have tests of their own."""

import os
import socket
import sys
from argparse import Namespace

import pytest

from tests.rows.commands import train
from topofl import config
from topofl.cli import programs
from topofl.engine import DivergenceError

pytestmark = pytest.mark.usefixtures("folder")


def test_the_file_runs_as_it_is(folder, shell):
    assert "train with: topofl run experiment.toml" in shell("new").out
    shell("run experiment.toml")
    assert (folder / "runs/experiment/history").is_dir()


def test_commands_in_the_comments_name_the_file(folder, shell):
    shell("new 'my ring.toml'")
    text = (folder / "my ring.toml").read_text()
    assert "#   topofl run 'my ring.toml' --dry-run" in text
    assert "'runs/my ring'" in text
    assert "experiment.toml" not in text


def test_lines_that_are_comments_can_be_turned_on(folder, shell):
    shell("new")
    path = folder / "experiment.toml"
    text = path.read_text()
    for line in ("[saving]", "every = 25", "[compute]", "device = "):
        assert f"# {line}" in text
        text = text.replace(f"# {line}", line)
    path.write_text(text.replace('"cuda"', '"cpu"'))
    tables = config.load(path).tables
    assert (tables["saving"]["every"], tables["compute"]["device"]) == (25, "cpu")


def test_a_file_is_overwritten_only_with_force(folder, shell):
    (folder / "mine.toml").write_text("mine")
    shell("new mine.toml --force")
    assert config.load("mine.toml").tables["topology"]["name"] == "ring"


def test_missing_packages_of_the_explorer_are_named(fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "marimo", None)
    assert "pip install 'topofl[explore]'" in fails("explore --no-browser")


def test_a_port_in_use_is_refused(fails):
    pytest.importorskip("marimo")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = fails(f"explore --port {port}", 1)
    assert f"`--port` must be a free port, got {port}: " in line


def test_a_folder_of_data_that_there_is_not_is_refused(fails, monkeypatch):
    monkeypatch.setenv("TOPOFL_DATA", "elsewhere")
    assert "TOPOFL_DATA must be a folder, got elsewhere" in fails("explore")


def test_all_is_every_scenario_whose_data_are_there(shell):
    lines = shell("study all --dry-run").out.splitlines()
    assert len(lines) > 5
    assert all(line.startswith("digits") and line.endswith(" runs") for line in lines)


NOW = "study 'digits 30' --minutes 0"
"""A study that starts no run."""


def test_a_page_needs_its_package_before_any_run(fails, monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    line = fails(f"{NOW} --html a.html")
    assert "`--html` needs vl-convert-python, which is not installed" in line
    assert "pip install 'topofl[pages]'" in line
    assert list(folder.iterdir()) == []


def test_a_read_only_page_is_refused_before_any_run(fails, monkeypatch, folder):
    (folder / "a.html").write_text("kept")
    (folder / "a.html").chmod(0o444)
    # root may write to all files
    monkeypatch.setattr(os, "access", lambda path, _: bool(os.stat(path).st_mode & 0o222))
    line = fails(f"{NOW} --html a.html", 1)
    assert "must be a file that can be written, got a.html, which is read-only; name ano" in line
    assert (folder / "a.html").read_text() == "kept"


def test_a_page_may_be_in_a_new_folder(shell, folder):
    pytest.importorskip("vl_convert", reason="the page needs vl-convert-python")
    assert "digits 30: " in shell(f"{NOW} --dry-run --html new/a.html").out
    assert list(folder.iterdir()) == []


def test_reproduce_computes_draws_and_judges(shell, folder):
    out = shell("reproduce dcliques-fig05 --scale smoke --out new --report").out
    assert out.count("  HOLDS  ") == 7
    assert "FAILS" not in out
    kinds = {path.suffix for path in (folder / "new" / "smoke").iterdir()}
    assert kinds == {".html", ".json", ".md", ".pdf", ".png"}


def test_reproduce_whose_runs_fail(shell, monkeypatch):
    train(monkeypatch, DivergenceError("node 3 left the finite numbers"))
    captured = shell("reproduce dcliques-fig09 --scale smoke --seeds 1 --out new", 1)
    assert "node 3 left the finite numbers" in captured.err.splitlines()[-1]
    assert "dcliques-fig09: failed: 3 of 3 runs failed" in captured.out


@pytest.mark.parametrize("kind", [ValueError, TypeError])
def test_errors_of_other_parts_call_parameters_by_their_options(kind):
    def fails(max_seeds, name):
        raise kind(f"`max_seeds` must be a whole number, got {max_seeds} for `name` {name}")

    call = programs._with_options(fails, Namespace(max_seeds=3.5, name="a", other=1))
    with pytest.raises(kind, match=r"^`--max-seeds` must be .* got 3.5 for `name` a$"):
        call()
