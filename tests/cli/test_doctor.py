"""``topofl doctor``, in installations where something is wrong or missing."""

import json
import re
import subprocess
import sys
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import topofl
from topofl.cli import doctor_training
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


@pytest.mark.parametrize("name", ["analysis", "paper_figures"])
def test_studies_of_another_copy_are_noticed(findings, folder, name, monkeypatch):
    def found_in(place):
        for other in ("analysis", "paper_figures"):
            at = place if other == name else Path(topofl.__file__).parents[1]
            spec = spec_from_file_location(f"topofl.{other}", at / other / "__init__.py")
            module = module_from_spec(spec)
            monkeypatch.setitem(sys.modules, f"topofl.{other}", module)
        return {key: row for key, row in findings()[0].items() if key.startswith("topofl.")}

    assert found_in(Path(topofl.__file__).parents[1]) == {}
    assert found_in(Path(topofl.__file__).parent) == {}
    found = found_in(folder)
    assert list(found) == [f"topofl.{name}"]
    assert found[f"topofl.{name}"]["status"] == "note"
    assert f"that of {(folder / name).resolve()} is used" in found[f"topofl.{name}"]["details"]


def test_wrong_results_of_training_are_found(findings, monkeypatch):
    ours, reference = doctor_training.losses()
    assert np.abs(ours - reference).max() < 1e-4
    assert np.ptp(reference) > 0.01, "nodes that exchange nothing would not be found"
    monkeypatch.setattr(doctor_training, "losses", lambda: (ours + 1e-3, reference))
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


NETWORKS = """
import random
from torch import nn


class Net(nn.Sequential):
    def __init__(self, width=4, noise=None):
        super().__init__(
            nn.Conv2d(3, width, 3),
            nn.BatchNorm2d(width),
            nn.RReLU() if noise is None else noise(),
            nn.Dropout(0.1),
            nn.Flatten(),
            nn.LazyLinear(10),
        )


class Python(nn.Module):
    def forward(self, x):
        return x + random.random() if self.training else x


class Counting(nn.Module):
    count = 0

    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, x):
        self.count += 1
        return x


class Batched(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.noise = nn.Linear(6, 3), Counting()

    def forward(self, x):
        return self.noise(self.first(x))


def refused():
    net = Net(noise=Python)
    net[5] = nn.Linear(4 * 30 * 30, 10)
    return net


def looped():
    net = Net()
    net[5] = nn.Linear(4 * 30 * 30, 10)
    return net


def deep():
    layers = [nn.Linear(4, 4) if k < 6 else nn.RReLU() for k in range(0, 10, 2)]
    return nn.Sequential(*(x for layer in layers for x in (layer, nn.Dropout(0.1))))

ready = Batched()
"""


@pytest.fixture
def mynets(folder):
    (folder / "mynets.py").write_text(NETWORKS)
    yield
    sys.modules.pop("mynets", None)


def layers(shell, line, code=0):
    captured = shell(f"doctor --model {line} --json", code)
    return {row["layer"]: row for row in json.loads(captured.out)}, captured.err


@pytest.mark.usefixtures("mynets")
def test_each_layer_of_a_network_is_batched_looped_or_refused(shell):
    found, errors = layers(shell, "mynets:looped --shape 3,32,32")
    kinds = ("0", "1", "2", "3", "4", "5", "the whole network")
    assert list(found) == list(kinds)
    assert [row["executor"] for row in found.values()] == [
        *("batched", "batched", "looped", "batched", "batched", "batched", "looped")
    ]
    assert found["1"]["why"] == "a row per node of running_mean, running_var, " + (
        "num_batches_tracked"
    )
    assert found["3"]["why"] == "draws for each node and step"
    assert found["2"]["why"].startswith("it draws random numbers in other ways than by dropout")
    assert (
        "36,130 trained parameters per node; 3 buffers per node"
        in (found["the whole network"]["why"])
    )
    assert errors == ""
    lines = shell("doctor --model mynets:looped").out.splitlines()
    assert lines[0].split() == ["layer", "type", "executor", "why"]
    assert len(lines) == 2 + len(kinds)


@pytest.mark.usefixtures("mynets")
def test_a_refused_network_fails_with_its_layer(shell):
    found, errors = layers(shell, "mynets:refused --shape 3,32,32", 1)
    assert found["2"]["executor"] == found["the whole network"]["executor"] == "refused"
    assert "'2' draws others, as of Python's random" in found["2"]["why"]
    assert "runs refuse mynets:refused: `model` must draw random numbers by torch's" in errors


@pytest.mark.usefixtures("mynets")
def test_networks_may_be_modules_or_named(shell):
    found, errors = layers(shell, "mynets:ready")
    assert "topofl: note: examples of shape 6, as the first layer takes" in errors
    assert found["noise"]["executor"] == found["the whole network"]["executor"] == "batched"
    assert "changes the attribute 'noise.count'" in found["the whole network"]["why"]
    found, _ = layers(shell, "gn_lenet,n_classes=7 --shape 3,32,32")
    assert found["the whole network"]["executor"] == "batched"


@pytest.mark.usefixtures("mynets")
def test_layers_that_are_trained_alike_have_one_row(shell):
    """In the table; JSON has a row for each layer."""
    found, _ = layers(shell, "mynets:deep --shape 4")
    lines = shell("doctor --model mynets:deep --shape 4").out.splitlines()[2:]
    assert [line.split("  ")[0] for line in lines] == [
        *("0, 2, 4", "1, 3, ..., 9 (5)", "6, 8", "the whole network")
    ]
    kinds = [re.split(" {2,}", line)[1] for line in lines[:3]]
    assert kinds == ["Linear", "Dropout", "RReLU"]
    assert len(found) == 10 + 1


@pytest.mark.parametrize("name", ["mynets", "mynets.py"])
@pytest.mark.usefixtures("mynets")
def test_a_file_without_a_name_is_told_how_to_write_it(shell, name):
    errors = " ".join(shell(f"doctor --model {name}", 2).err.split())
    hint = "of the module mynets, write mynets:function"
    assert f"there is no model '{name}'; {hint}" in errors


KINDS = """
from torch import nn
from topofl import models
from noisy import Noisy

def flat():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def fine():
    images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10))
    return models.of_kinds([flat(), images], [0, 1])

def noisy():
    return models.of_kinds([flat(), Noisy()], [0, 1])
"""

NOISY = """
import numpy as np, torch
from torch import nn

class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        x = x.flatten(1)
        noise = torch.from_numpy(np.random.standard_normal(x.shape)).to(x)
        return self.last(x + noise if self.training else x)
"""


def test_every_kind_of_nodes_is_checked_and_wrong_shapes_are_one_sentence(
    shell, tmp_path, monkeypatch
):
    (tmp_path / "nodes_of_kinds.py").write_text(KINDS)
    (tmp_path / "noisy.py").write_text(NOISY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found, _ = layers(shell, "nodes_of_kinds:fine --shape 1,8,8")
    assert {"networks.0.1", "networks.1.0", "networks.1.2"} <= set(found)
    whole = found["the whole network"]
    assert whole["executor"] == "looped"
    assert "nodes have several kinds of networks" in whole["why"]
    found, errors = layers(shell, "nodes_of_kinds:noisy --shape 1,8,8", 1)
    assert "'networks.1' draws others, as of numpy" in errors
    found, errors = layers(shell, "nodes_of_kinds:fine --shape 3,8,8", 1)
    assert "cannot take" in errors


def test_hints_for_files_and_networks_of_graphs(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edged.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n"
        "    def forward(self, x, edge_index):\n        return super().forward(x)\n\n\n"
        "net = Net(3, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    errors = " ".join(shell("doctor --model edged.py:net", 2).err.split())
    assert "not of its file, got edged.py; write edged:net" in errors
    for shape in ("", " --shape 3"):
        errors = " ".join(shell(f"doctor --model edged:net{shape}", 2).err.split())
        assert "takes the edges of a graph" in errors
        assert "graphs.network(model, clients)" in errors
