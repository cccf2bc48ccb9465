"""Modules next to the file of an experiment."""

import shutil
import subprocess
import sys

import pytest

from topofl import config
from topofl._support.module_folders import appended_folder
from topofl._support.plugins import load_function
from topofl.runs import RunStore, sweep

MODULE = """
from topofl.algorithms import chain, gossip, sgd

def twice(lr):
    return chain("twice", local=sgd(lr, batch_size=16), first=gossip(), second=gossip())

def thrice(lr):
    return chain("thrice", **{key: gossip() for key in "abc"}, local=sgd(lr))
"""

EXPERIMENT = """
topology = "ring"
algorithm = "beside_{}:twice,lr=0.1"
data = {{name = "digits", n = 4, seed = 0}}
run = {{rounds = 2, seed = 0}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, request):
    """Return a folder with an experiment and its module, which is not the current folder."""
    name = request.node.name
    place = tmp_path / "experiment"
    place.mkdir()
    (place / f"beside_{name}.py").write_text(MODULE)
    (place / "run.toml").write_text(EXPERIMENT.format(name))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    yield place
    sys.modules.pop(f"beside_{name}", None)


def topofl_elsewhere(*words):
    """Run topofl as a process in the current folder, which is not on Python's path."""
    code = (
        "import sys; sys.path = [p for p in sys.path if p]; "
        "from topofl.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_module_next_to_the_file_is_found_and_python_s_path_restored(folder):
    before = list(sys.path)
    experiment = config.load(folder / "run.toml")
    assert experiment.algorithm.name == "twice"
    assert sys.path == before
    assert experiment.tables["modules"] == {"folder": str(folder)}
    name = experiment.tables["algorithm"]["name"].partition(":")[0]
    del sys.modules[name]
    assert config.build(experiment.tables).algorithm.name == "twice"
    assert "modules" not in config.load(folder / "run.toml", ["algorithm=dsgd,lr=1"]).tables


def test_the_table_modules_names_another_folder_relative_to_the_file(folder):
    (folder / "lib").mkdir()
    for module in folder.glob("*.py"):
        module.rename(folder / "lib" / module.name)
    path = folder / "run.toml"
    with pytest.raises(ValueError, match=f"Python finds no module beside_.* in .*{folder}, instal"):
        config.load(path)
    path.write_text(path.read_text() + '[modules]\nfolder = "lib"\n')
    assert config.load(path).tables["modules"] == {"folder": str(folder / "lib")}
    with pytest.raises(ValueError, match=r"\[modules\] the table takes folder, not 'folders'"):
        config.build({**config.read(path), "modules": {"folders": "lib"}})


def test_installed_modules_take_precedence(folder):
    (folder / "colorsys.py").write_text("1 / 0\n")
    sys.modules.pop("colorsys", None)
    with appended_folder(str(folder)):
        assert load_function("colorsys:rgb_to_hsv")(0, 0, 0) == (0.0, 0.0, 0)


def test_two_modules_of_one_name_are_not_mistaken_for_each_other(folder, tmp_path):
    config.load(folder / "run.toml")
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(ValueError, match=r"must be one file in a process, got .*rename one of"):
        config.load(tmp_path / "copy" / "run.toml")


def test_runs_are_resumed_from_another_folder(folder, tmp_path):
    done = topofl_elsewhere("run", folder / "run.toml", "--out", "a")
    assert done.returncode == 0, done.stderr
    done = topofl_elsewhere("resume", "a", "--set", "run.rounds=3")
    assert done.returncode == 0, done.stderr
    again = topofl_elsewhere("run", folder / "run.toml", "--out", "a", "--skip-done")
    assert "run.rounds was 3, is 2" in again.stderr
    folder.rename(tmp_path / "moved")
    done = topofl_elsewhere("resume", "a", "--set", "run.rounds=4")
    assert done.returncode == 2
    assert f"{folder} (which does not exist)" in done.stderr
    assert "put that folder on PYTHONPATH" in done.stderr


def test_processes_of_a_sweep_find_it(folder, tmp_path):
    for module in folder.glob("*.py"):
        names = [f"{module.stem}:{name},lr=0.1" for name in ("twice", "thrice")]
    found = sweep(
        folder / "run.toml", {"algorithm": names}, store=tmp_path / "a", jobs=2, progress=False
    )
    assert len(found.runs) == 2
    words = ["--grid", "algorithm.lr=0.1,0.2", "--jobs", "2", "--store", tmp_path / "b"]
    done = topofl_elsewhere("sweep", folder / "run.toml", *words)
    assert done.returncode == 0, done.stderr
    moved = shutil.copytree(folder, tmp_path / "copy")
    keys = {run.key for run in RunStore(tmp_path / "b").runs()}
    done = topofl_elsewhere("sweep", moved / "run.toml", *words)
    assert done.returncode == 0, done.stderr
    assert {run.key for run in RunStore(tmp_path / "b").runs()} == keys  # the folder is no setting
