"""``topofl doctor``, in installations where something is wrong or missing."""

import json
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

import topofl
from topofl.cli import self_test
from topofl.cli.doctor import _package, _release


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOPOFL_DATA", raising=False)
    return tmp_path


@pytest.fixture
def findings(shell):
    """Return a function that gives the findings of the command by name, and its errors."""

    def found(code=0, options=""):
        captured = shell(f"doctor --json {options}", code)
        return {row["check"]: row for row in json.loads(captured.out)}, captured.err

    return found


def test_a_working_installation(findings, shell, folder):
    found, errors = findings()
    assert errors == ""
    assert found["topofl"]["details"].startswith(topofl.__version__)
    assert found["torch"]["details"] == metadata.version("torch")
    assert {found[name]["status"] for name in ("Python", "numpy", "cpu", "self-test")} == {"ok"}
    assert found["datasets"]["status"] == "note"
    assert found["saving"]["details"].endswith("runs, which will be created")
    assert not list(folder.iterdir())
    lines = shell("doctor").out.splitlines()
    assert all(line.startswith(("ok    ", "note  ")) for line in lines)


def test_wrong_results_of_training_are_found(findings, monkeypatch):
    ours, reference = self_test.losses()
    assert np.abs(ours - reference).max() < 1e-4
    assert np.ptp(reference) > 0.01, "nodes that exchange nothing would not be found"
    monkeypatch.setattr(self_test, "losses", lambda: (ours + 1e-3, reference))
    found, errors = findings(1)
    assert found["self-test"]["status"] == "WRONG"
    assert errors.endswith("checks failed: self-test\n")


def test_folders_that_cannot_be_used_are_found(findings, folder, monkeypatch):
    (folder / "file").touch()
    found, errors = findings(1, "--out file --data nowhere")
    assert "cannot write to" in found["saving"]["details"]
    assert found["datasets"]["details"] == "--data must be a folder, got nowhere"
    assert "2 of" in errors
    monkeypatch.setenv("TOPOFL_DATA", "nowhere")
    assert findings(1)[0]["datasets"]["details"].startswith("TOPOFL_DATA must be a folder")


@pytest.mark.parametrize("way", ["data", "variable", "usual place"])
def test_datasets_are_found(findings, folder, way, monkeypatch):
    place = folder / ("data" if way == "usual place" else "elsewhere") / "mnist"
    place.mkdir(parents=True)
    (place / "train-images-idx3-ubyte.gz").touch()
    if way == "variable":
        monkeypatch.setenv("TOPOFL_DATA", str(place.parent))
    found, _ = findings(0, f"--data {place.parent}" if way == "data" else "")
    assert found["datasets"]["status"] == "ok"
    assert found["datasets"]["details"].startswith("mnist in ")


def test_missing_and_old_packages_are_found():
    missing = "not installed; needs nowhere-to-be-found>=1"
    assert _package("nowhere-to-be-found>=1")[1:] == ("WRONG", missing)
    assert _package("numpy>=1000.1").status == "WRONG"
    assert _package("numpy>=2.0") == ("numpy", "ok", metadata.version("numpy"))
    assert _release("2.13.0+cpu") > _release("2.6")


def test_it_works_without_torch():
    code = "import sys\nsys.modules['torch'] = None\nfrom topofl.cli import main\n"
    command = [sys.executable, "-c", code + "sys.exit(main(['doctor', '--json']))"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    found = {row["check"]: row["status"] for row in json.loads(done.stdout)}
    assert (found["Python"], found["saving"]) == ("ok", "ok")
    assert found["devices"] == found["self-test"] == "WRONG"
    assert done.stderr.startswith("topofl: error: ")
