"""Stored runs, which somebody else may have written, import no code without ``--trust``."""

import sys
from pathlib import Path

import pytest

from topofl import config
from topofl.cli import main
from topofl.runs.identity import differences

CALLED = "called"
"""A file that the code in a received folder writes."""

CODE = f"""
from pathlib import Path
from topofl import algorithms
from topofl.algorithms import Algorithm

Path({CALLED!r}).write_text("imported")

def method(lr: float = 0.1) -> Algorithm:
    return algorithms.dsgd(lr=lr)
"""


@pytest.fixture
def received(toml, shell, tmp_path):
    """Return a function that replaces a table of a finished run."""
    shell("run small.toml --out received")
    path = tmp_path / "received" / "config.toml"
    tables = config.read(path)

    def with_table(name, value):
        changed = {key: value if key == name else table for key, table in tables.items()}
        changed = {**changed, name: value}
        path.write_text(config.dumps({k: v for k, v in changed.items() if v is not None}))
        return path.parent

    return with_table


commands = pytest.mark.parametrize(
    "command", ["graphs received --labels", "resume received --set run.rounds=6"]
)

TOUCH = {"name": "os:system", "command": f"touch {CALLED}"}
NAMED = dict.fromkeys(["algorithm", "topology", "mixing", "task", "attackers"], TOUCH) | {
    "data": {**TOUCH, "seed": 0},
    "evaluation": {"also": {"mine": "os:system"}},
}


@commands
@pytest.mark.parametrize("table", NAMED)
def test_names_of_functions_in_a_stored_run_are_refused(fails, received, tmp_path, command, table):
    received(table, NAMED[table])
    line = fails(command)
    assert not (tmp_path / CALLED).exists()
    assert f"[{table}]" in line
    assert "the run names the function os:system" in line
    verb, _, rest = command.partition(" ")
    assert line.endswith(f"if you trust it, as a run of your own: topofl {verb} --trust {rest}")


@commands
@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "choco_sgd", "gamma": 0.3, "compressor": f"os:system('touch {CALLED}')", "lr": 1},
        {"name": "dsgd", "lr": f"os:system('touch {CALLED}')"},
        {
            "name": "timed",
            "algorithm": f"os:system,command=touch {CALLED}",
            "clock": {"compute": 1},
        },
    ],
    ids=["compressor", "schedule", "nested"],
)
def test_functions_in_arguments_are_refused(fails, received, tmp_path, command, arguments):
    received("algorithm", arguments)
    assert "the run names the function os:system" in fails(command)
    assert not (tmp_path / CALLED).exists()


@commands
def test_modules_in_the_folder_are_imported_with_trust_only(
    capsys, fails, received, monkeypatch, command
):
    folder = received("algorithm", {"name": "sent:method", "lr": 0.5})
    (folder / "sent.py").write_text(CODE)
    monkeypatch.delitem(sys.modules, "sent", raising=False)
    fails(command)
    assert not Path(CALLED).exists()
    main([*command.split(), "--trust"])
    assert Path(CALLED).exists()
    assert "--trust" not in capsys.readouterr().err


def install(place):
    """Write a package with an algorithm as an entry point."""
    package = place / "sent-1.0.dist-info"
    package.mkdir(parents=True)
    (place / "sent.py").write_text(CODE)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: sent\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[topofl.algorithms]\nplugged = sent:method\n")


@pytest.mark.parametrize("place", ["received", "."])
def test_a_folder_cannot_pose_as_an_installed_package(fails, received, monkeypatch, place):
    folder = received("algorithm", {"name": "plugged", "lr": 0.5})
    with (folder / "config.toml").open("a") as file:
        file.write(f'[modules]\nfolder = "{folder}"\n')
    install(folder)
    monkeypatch.delitem(sys.modules, "sent", raising=False)
    if place == ".":
        monkeypatch.chdir(folder)
    before = list(sys.path)
    assert "there is no algorithm 'plugged'" in fails(f"graphs {place} --labels")
    assert not Path(CALLED).exists()
    assert sys.path == before
    main(["graphs", "--trust", place, "--labels"])
    assert Path(CALLED).exists()


def test_installed_packages_need_no_trust(shell, received, tmp_path, monkeypatch):
    install(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "sent", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    received("algorithm", {"name": "plugged", "lr": 0.5})
    shell("graphs received --labels")


def test_a_file_that_the_user_names_may_name_functions(toml, shell, tmp_path):
    (tmp_path / "sent.py").write_text(CODE)
    sys.modules.pop("sent", None)
    shell("run small.toml --out own --set algorithm=sent:method,lr=0.5")
    assert (tmp_path / CALLED).exists()


def test_records_choose_no_module_to_import(tmp_path, monkeypatch):
    (tmp_path / "sent.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "sent", raising=False)
    tables = {"data": {"name": "digits"}, "compute": {"executor": "auto"}}
    record = {"key": "0", "tables": {}, "asked": {"executor": "sent:method"}}
    assert differences(record, tables, "digest")
    assert not Path(CALLED).exists()
