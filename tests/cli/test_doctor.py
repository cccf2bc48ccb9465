"""``topofl doctor``, in installations where something is wrong or missing."""

import json
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

import topofl
from topofl.cli import main, self_test
from topofl.cli.doctor import _package, _release


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    return tmp_path


def findings(capsys, code, *options):
    """Return the findings of the command by name, and its last line on stderr."""
    assert main(["doctor", "--json", *options]) == code
    captured = capsys.readouterr()
    found = {row["check"]: row for row in json.loads(captured.out)}
    return found, captured.err


def test_a_working_installation(capsys, folder):
    found, errors = findings(capsys, 0)
    assert errors == ""
    assert found["topofl"]["details"].startswith(topofl.__version__)
    assert found["torch"]["details"] == metadata.version("torch")
    assert {found[name]["status"] for name in ("Python", "numpy", "cpu", "self-test")} == {"ok"}
    assert found["datasets"]["status"] == "note"
    assert found["saving"]["details"].endswith("runs, which will be created")
    assert not list(folder.iterdir())


def test_text_has_one_line_per_finding(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ok    Python: 3.") for line in lines)
    assert all(line.startswith(("ok    ", "note  ")) for line in lines)


def test_wrong_results_of_training_are_found(capsys, monkeypatch):
    ours, reference = self_test.losses()
    assert np.abs(ours - reference).max() < 1e-4
    monkeypatch.setattr(self_test, "losses", lambda: (ours + 1e-3, reference))
    found, errors = findings(capsys, 1)
    assert found["self-test"]["status"] == "WRONG"
    assert errors.endswith("checks failed: self-test\n")


def test_the_reference_depends_on_the_exchange():
    """The self-test would find nodes that exchange nothing."""
    _, reference = self_test.losses()
    assert np.ptp(reference) > 0.01


def test_folders_that_cannot_be_used_are_found(capsys, folder, monkeypatch):
    (folder / "file").touch()
    found, errors = findings(capsys, 1, "--out", "file", "--data", "nowhere")
    assert "cannot write to" in found["saving"]["details"]
    assert found["datasets"]["details"] == "--data must be a folder, got nowhere"
    assert "2 of" in errors
    monkeypatch.setenv("TOPOFL_DATA", "nowhere")
    assert findings(capsys, 1)[0]["datasets"]["details"].startswith("TOPOFL_DATA must be a folder")


@pytest.mark.parametrize("way", ["data", "variable", "usual place"])
def test_datasets_are_found(capsys, folder, way, monkeypatch):
    place = folder / ("data" if way == "usual place" else "elsewhere") / "mnist"
    place.mkdir(parents=True)
    (place / "train-images-idx3-ubyte.gz").touch()
    if way == "variable":
        monkeypatch.setenv("TOPOFL_DATA", str(place.parent))
    options = ["--data", str(place.parent)] if way == "data" else []
    found, _ = findings(capsys, 0, *options)
    assert found["datasets"]["status"] == "ok"
    assert found["datasets"]["details"].startswith("mnist in ")


def test_missing_and_old_packages_are_found():
    assert _package("nowhere-to-be-found>=1")[1:] == (
        "WRONG",
        "not installed; needs nowhere-to-be-found>=1",
    )
    assert _package("numpy>=1000.1").status == "WRONG"
    assert _package("numpy>=2.0") == ("numpy", "ok", metadata.version("numpy"))
    assert _release("2.13.0+cpu") > _release("2.6")


def test_it_works_without_torch(folder):
    code = "import sys\nsys.modules['torch'] = None\nfrom topofl.cli import main\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "sys.exit(main(['doctor', '--json']))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    found = {row["check"]: row["status"] for row in json.loads(done.stdout)}
    assert (found["Python"], found["saving"]) == ("ok", "ok")
    assert found["devices"] == found["self-test"] == "WRONG"
    assert done.stderr.startswith("topofl: error: ")
