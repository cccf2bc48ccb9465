"""Modules next to the file of an experiment."""

import shutil
import sys

import pytest

from tests.rows.user_code import topofl_in
from topofl import config
from topofl._support.plugins import appended_folder, current_folder, load_function
from topofl.runs import RunStore, sweep

TABLES = """
topology = "ring"
algorithm = "{},lr=0.1"
data = {{name = "digits", n = 4, seed = 0}}
run = {{rounds = {}, seed = 0}}
"""

NAMED = """
from topofl.algorithms import chain, sgd

def twice(lr):
    return chain("{0}", local=sgd(lr, batch_size=16))

def thrice(lr):
    return chain("{0} again", local=sgd(lr, batch_size=8))
"""


@pytest.fixture(autouse=True)
def forgotten():
    """Forget the modules that a test imports."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if not name.startswith("topofl"):
            del sys.modules[name]


def write(folder, files, name, rounds=1):
    """Write files into a folder, and an experiment that names a function; return its path."""
    for file, text in {**files, "run.toml": TABLES.format(name, rounds)}.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder / "run.toml"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with an experiment and its module, which is not the current folder."""
    write(tmp_path / "experiment", {"beside_.py": NAMED.format("twice")}, "beside_:twice", 2)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "experiment"


def topofl_elsewhere(*words, code=0):
    """Run topofl in the current folder, and return what it says."""
    done = topofl_in(None, *map(str, words))
    assert done.returncode == code, done.stderr
    return done.stderr


def test_a_module_next_to_the_file_is_found_and_python_s_path_restored(folder):
    before = list(sys.path)
    experiment = config.load(folder / "run.toml")
    assert experiment.algorithm.name == "twice"
    assert sys.path == before
    assert experiment.tables["modules"] == {"folder": str(folder)}
    del sys.modules["beside_"]
    assert config.build(experiment.tables).algorithm.name == "twice"
    assert "modules" not in config.load(folder / "run.toml", ["algorithm=dsgd,lr=1"]).tables
    (folder / "colorsys.py").write_text("1 / 0\n")
    sys.modules.pop("colorsys", None)
    with appended_folder(str(folder)):  # installed modules take precedence
        assert load_function("colorsys:rgb_to_hsv")(0, 0, 0) == (0.0, 0.0, 0)


def test_the_table_modules_names_another_folder_relative_to_the_file(folder):
    (folder / "lib").mkdir()
    (folder / "beside_.py").rename(folder / "lib" / "beside_.py")
    path = folder / "run.toml"
    with pytest.raises(ValueError, match=f"Python finds no module beside_ in .*{folder}, instal"):
        config.load(path)
    path.write_text(path.read_text() + '[modules]\nfolder = "lib"\n')
    assert config.load(path).tables["modules"] == {"folder": str(folder / "lib")}


def test_two_modules_of_one_name_are_not_mistaken_for_each_other(folder, tmp_path):
    config.load(folder / "run.toml")
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(ValueError, match=r"must be one file in a process, got .*rename one of"):
        config.load(tmp_path / "copy" / "run.toml")


@pytest.mark.slow
def test_runs_are_resumed_from_another_folder(folder, tmp_path):
    topofl_elsewhere("run", folder / "run.toml", "--out", "a")
    topofl_elsewhere("resume", "--trust", "a", "--set", "run.rounds=3")
    again = topofl_elsewhere("run", folder / "run.toml", "--out", "a", "--skip-done", code=2)
    assert "run.rounds was 3, is 2" in again
    folder.rename(tmp_path / "moved")
    said = topofl_elsewhere("resume", "--trust", "a", "--set", "run.rounds=4", code=2)
    assert f"{folder} (which does not exist)" in said
    assert "put that folder on PYTHONPATH" in said


@pytest.mark.slow
def test_processes_of_a_sweep_find_it(folder, tmp_path):
    grid = {"algorithm": ["beside_:twice,lr=0.1", "beside_:thrice,lr=0.1"]}
    found = sweep(folder / "run.toml", grid, store=tmp_path / "a", jobs=2, progress=False)
    assert len(found.runs) == 2
    words = ["--grid", "algorithm.lr=0.1,0.2", "--jobs", "2", "--store", tmp_path / "b"]
    topofl_elsewhere("sweep", folder / "run.toml", *words)
    moved = shutil.copytree(folder, tmp_path / "copy")
    keys = {run.key for run in RunStore(tmp_path / "b").runs()}
    topofl_elsewhere("sweep", moved / "run.toml", *words)
    assert {run.key for run in RunStore(tmp_path / "b").runs()} == keys  # the folder is no setting


@pytest.mark.parametrize("package", [{"pkg_/__init__.py": ""}, {}], ids=["package", "namespace"])
@pytest.mark.parametrize("second", ["one", "two"])
def test_modules_of_two_packages_of_one_name_are_not_mistaken(tmp_path, package, second):
    files = {f"pkg_/{name}.py": NAMED.format("first") for name in ("one", "two")}
    path = write(tmp_path / "a", package | files, "pkg_.one:twice")
    assert config.load(path).algorithm.name == "first"
    files = {f"pkg_/{name}.py": NAMED.format("second") for name in ("one", "two")}
    path = write(tmp_path / "b", package | files, f"pkg_.{second}:twice")
    if second == "two" and not package:  # the folders of a namespace package change with the path
        assert config.load(path).algorithm.name == "second"
        return
    with pytest.raises(ValueError, match=r"module pkg_(\.one)? must be one file in a process"):
        config.load(path)


def test_modules_that_modules_import_are_not_mistaken(tmp_path):
    first, second = (
        write(
            tmp_path / name,
            {f"main_{name}_.py": "from helper_x_ import *", "helper_x_.py": NAMED.format(name)},
            f"main_{name}_:twice",
        )
        for name in ("a", "b")
    )
    experiment = config.load(first)
    with pytest.raises(ValueError, match=r"module helper_x_ must be one file .*a/h.*b/h.*rename"):
        config.load(second)
    config.load(second, ["algorithm=dsgd,lr=0.1"])  # names no module of the folder
    experiment.run(progress=False)


LAZY = """
from topofl.algorithms import chain, sgd

def mean(params, round):
    import lazy_help_
    return lazy_help_.same(params)

def scheduled(lr):
    def rate(round, rounds):
        import lazy_help_
        return lr

    return chain("scheduled", local=sgd(rate, batch_size=16))
"""


def test_modules_that_functions_import_are_found_during_a_run_and_by_an_estimate(tmp_path):
    text = "def same(params):\n    return params\n"
    path = write(tmp_path, {"lazy_.py": LAZY, "lazy_help_.py": text}, "lazy_:scheduled")
    experiment = config.load(path)
    del sys.modules["lazy_help_"]
    assert experiment.estimate().messages == 0
    path.write_text(path.read_text() + 'evaluation = {also = {copied = "lazy_:mean"}}\n')
    before = list(sys.path)
    history = config.load(path).run(progress=False)
    assert "accuracy_copied" in history.columns
    assert sys.path == before


@pytest.mark.slow
def test_modules_next_to_the_file_precede_those_of_the_current_folder(tmp_path, monkeypatch):
    path = write(tmp_path / "a", {"methods_.py": NAMED.format("next to it")}, "methods_:twice")
    (tmp_path / "methods_.py").write_text(NAMED.format("current"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    with current_folder():
        experiment = config.load("a/run.toml")
    assert experiment.algorithm.name == "next to it"
    assert experiment.tables["modules"] == {"folder": str(path.parent)}
    topofl_elsewhere("run", path, "--out", "done")
    (tmp_path / "done" / "methods_.py").write_text(NAMED.format("next to the results"))
    topofl_elsewhere("resume", "--trust", "done", "--set", "run.rounds=2")


@pytest.mark.slow
def test_a_folder_given_at_the_shell_is_relative_to_the_file(tmp_path, monkeypatch):
    path = write(tmp_path / "a", {"lib/methods_.py": NAMED.format("in lib")}, "methods_:twice")
    monkeypatch.chdir(tmp_path)
    experiment = config.load(path, ["modules.folder=lib"])
    assert experiment.tables["modules"] == {"folder": str(path.parent / "lib")}
    words = ["--set", "modules.folder=lib", "--store", "store", "--grid", "algorithm.lr=0.1,0.2"]
    topofl_elsewhere("sweep", path, *words)
