"""Stored runs, which somebody else may have written, import no code without ``--trust``."""

import sys
from pathlib import Path

import pytest

from tests.cli.commands import fails
from topofl import config
from topofl.cli import main

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
def received(toml, tmp_path):
    """Return a function that replaces a table of a finished run."""
    assert main(["run", toml, "--out", "received"]) == 0
    path = tmp_path / "received" / "config.toml"
    tables = config.read(path)

    def with_table(name, value):
        changed = {key: value if key == name else table for key, table in tables.items()}
        changed = {**changed, name: value}
        path.write_text(config.dumps({k: v for k, v in changed.items() if v is not None}))
        return path.parent

    return with_table


COMMANDS = (["graphs", "received", "--labels"], ["resume", "received", "--set", "run.rounds=6"])

NAMED = {
    "algorithm": {"name": "os:system", "command": f"touch {CALLED}"},
    "topology": {"name": "os:system", "command": f"touch {CALLED}"},
    "mixing": {"name": "os:system", "command": f"touch {CALLED}"},
    "task": {"name": "os:system", "command": f"touch {CALLED}"},
    "attackers": {"name": "os:system", "command": f"touch {CALLED}"},
    "data": {"name": "os:system", "command": f"touch {CALLED}", "seed": 0},
    "evaluation": {"also": {"mine": "os:system"}},
}


@pytest.mark.parametrize("command", COMMANDS, ids=["graphs", "resume"])
@pytest.mark.parametrize("table", NAMED)
def test_names_of_functions_in_a_stored_run_are_refused(capsys, received, tmp_path, command, table):
    received(table, NAMED[table])
    line = fails(capsys, 2, *command)
    assert not (tmp_path / CALLED).exists()
    assert f"[{table}]" in line
    assert "the run names the function os:system" in line
    verb, *rest = command
    assert line.endswith(
        f"if you trust it, as a run of your own: topofl {verb} --trust {' '.join(rest)}"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=["graphs", "resume"])
@pytest.mark.parametrize(
    "arguments",
    [
        {
            "name": "choco_sgd",
            "lr": 0.1,
            "gamma": 0.3,
            "compressor": f"os:system('touch {CALLED}')",
        },
        {"name": "dsgd", "lr": f"os:system('touch {CALLED}')"},
        {
            "name": "timed",
            "algorithm": f"os:system,command=touch {CALLED}",
            "clock": {"compute": 1},
        },
    ],
    ids=["compressor", "schedule", "nested"],
)
def test_functions_in_arguments_are_refused(capsys, received, tmp_path, command, arguments):
    received("algorithm", arguments)
    assert "the run names the function os:system" in fails(capsys, 2, *command)
    assert not (tmp_path / CALLED).exists()


@pytest.mark.parametrize("command", COMMANDS, ids=["graphs", "resume"])
def test_modules_in_the_folder_are_imported_with_trust_only(capsys, received, monkeypatch, command):
    folder = received("algorithm", {"name": "sent:method", "lr": 0.5})
    (folder / "sent.py").write_text(CODE)
    monkeypatch.delitem(sys.modules, "sent", raising=False)
    fails(capsys, 2, *command)
    assert not Path(CALLED).exists()
    capsys.readouterr()
    main([command[0], "--trust", *command[1:]])
    assert Path(CALLED).exists()
    assert "--trust" not in capsys.readouterr().err


@pytest.mark.parametrize("inside", [False, True], ids=["folder", "current"])
def test_a_folder_cannot_pose_as_an_installed_package(capsys, received, monkeypatch, inside):
    folder = received("algorithm", {"name": "plugged", "lr": 0.5})
    with (folder / "config.toml").open("a") as file:
        file.write(f'[modules]\nfolder = "{folder}"\n')
    (folder / "sent.py").write_text(CODE)
    package = folder / "sent-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: sent\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[topofl.algorithms]\nplugged = sent:method\n")
    monkeypatch.delitem(sys.modules, "sent", raising=False)
    if inside:
        monkeypatch.chdir(folder)
    place = "." if inside else "received"
    before = list(sys.path)
    assert "there is no algorithm 'plugged'" in fails(capsys, 2, "graphs", place, "--labels")
    assert not Path(CALLED).exists()
    assert sys.path == before
    main(["graphs", "--trust", place, "--labels"])
    assert Path(CALLED).exists()


def test_installed_packages_need_no_trust(capsys, received, tmp_path, monkeypatch):
    packages = tmp_path / "site"
    package = packages / "sent-1.0.dist-info"
    package.mkdir(parents=True)
    (packages / "sent.py").write_text(CODE)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: sent\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[topofl.algorithms]\nplugged = sent:method\n")
    monkeypatch.delitem(sys.modules, "sent", raising=False)
    monkeypatch.syspath_prepend(str(packages))
    received("algorithm", {"name": "plugged", "lr": 0.5})
    assert main(["graphs", "received", "--labels"]) == 0


def test_a_file_that_the_user_names_may_name_functions(toml, tmp_path):
    (tmp_path / "sent.py").write_text(CODE)
    sys.modules.pop("sent", None)
    assert main(["run", toml, "--out", "own", "--set", "algorithm=sent:method,lr=0.5"]) == 0
    assert (tmp_path / CALLED).exists()


def test_records_choose_no_module_to_import(tmp_path, monkeypatch):
    from topofl.runs.identity import is_same

    (tmp_path / "sent.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "sent", raising=False)
    tables = {"data": {"name": "digits"}, "compute": {"executor": "auto"}}
    record = {"key": "0", "tables": {}, "asked": {"executor": "sent:method"}}
    assert not is_same(record, tables, "digest")
    assert not Path(CALLED).exists()
