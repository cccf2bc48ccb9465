"""The command as a process, its output off a terminal, and ``--json``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import topofl
from tests.rows.commands import STUDY
from topofl import cli
from topofl.cli.output import print_rows


@pytest.mark.slow
def test_the_module_is_the_command(tmp_path):
    command = [sys.executable, "-m", "topofl", "spectral", "rng:5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    said = "topofl: error: rng:5: there is no topology 'rng'; did you mean 'ring'?\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    version = subprocess.check_output([*command[:3], "--version"], text=True, cwd=tmp_path)
    assert version == f"topofl {topofl.__version__}\n"


@pytest.mark.slow
def test_output_may_be_cut_off(tmp_path):
    command = f"{sys.executable} -m topofl spectral ring:5 | true"
    done = subprocess.run(command, shell=True, capture_output=True, check=False, cwd=tmp_path)
    assert done.stderr == b""


def test_names_do_not_steer_a_terminal(toml, shell):
    place = "--out 'a\x1b[2Jb'"
    commands = [f"run small.toml {place}", "resume 'a\x1b[2Jb'", "compare 'a\x1b[2Jb'"]
    printed = [shell(line) for line in commands]
    assert r"saved in a\x1b[2Jb" in printed[0].out
    printed += [shell(f"run small.toml {place} --skip-done --set run.rounds=3", 2)]
    printed += [shell(f"run small.toml {place}", 2)]
    assert r"a\x1b[2Jb holds a finished run" in printed[-1].err
    assert not [one for one in printed if "\x1b" in one.out + one.err]


def test_json_of_a_run_is_the_same_at_every_door(rows, toml):
    (row,) = rows("run small.toml --out a --progress")
    assert (row["run"], row["algorithm"]) == ("a", "dsgd")
    assert set(row["final accuracy"]) == {"mean", "low", "high"}
    assert rows("run small.toml --out a --skip-done") == [row]
    assert rows("resume a") == [row]
    assert rows("compare a") == [row]
    (longer,) = rows("resume a --set run.rounds=6")
    assert longer["run"] == "a"


def test_json_of_a_run_in_a_store(rows, toml):
    (row,) = rows("run small.toml --store store")
    assert rows("run small.toml --store store") == [row]
    (stored,) = rows("runs store")
    assert stored["key"] in row["run"]
    removed = rows("runs store --where algorithm.name=dsgd --remove")
    assert removed == [{"removed": stored["key"]}]
    assert rows("runs store") == []


def test_json_of_lists_and_files(rows, toml, tmp_path):
    found = {(row["kind"], row["name"]): row for row in rows("list")}
    n = {"name": "n", "meaning": "Number of nodes, at least 1."}
    assert found["topology", "ring"]["parameters"] == [n]
    assert found["metric", "spectral gap"]["group"]
    defaults = {p["name"]: p.get("default") for p in found["algorithm", "dsgd"]["parameters"]}
    assert defaults["batch_size"] == 128
    (need,) = [row for row in rows("list algorithm --needs") if row["name"] == "trimmed_mean"]
    assert need["needs"][0]["needs"] == "more than 2 * trim neighbors at each node"
    figures = {row["name"]: row["reproduced"] for row in rows("reproduce --list")}
    assert (figures["dcliques-fig05"], figures["dcliques-fig02"]) == (True, False)
    (tmp_path / "study.toml").write_text(STUDY)
    written = {row["written"] for row in rows("study study.toml")}
    assert "out/study/study/report.md" in written
    assert all((tmp_path / path).exists() for path in written)


def test_numbers_that_json_lacks(capsys):
    inf, nan = float("inf"), float("nan")
    print_rows([{"a": inf, "b": -inf, "c": nan, "d": [nan, {"e": inf}]}])
    row = {"a": "inf", "b": "-inf", "c": None, "d": [None, {"e": "inf"}]}
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == [row]


def test_an_interruption_before_the_engine_is_there_does_not_import_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "topofl.engine")
    assert cli._how_to_continue(KeyboardInterrupt()) == "interrupted"
    assert "topofl.engine" not in sys.modules


@pytest.mark.slow
def test_output_off_a_terminal_has_neither_bars_nor_colors(toml, tmp_path):
    for line in (
        "run small.toml",
        "sweep small.toml --grid topology=ring,star --store store",
        "resume runs/small --set run.rounds=6",
    ):
        done = subprocess.run(
            [sys.executable, "-m", "topofl", *line.split()],
            capture_output=True,
            check=True,
            cwd=tmp_path,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"},
        )
        assert not {b"\r", b"\x1b"} & {bytes([c]) for c in done.stdout + done.stderr}
        lines = done.stderr.decode().splitlines()
        assert all(line.startswith("topofl: note: ") for line in lines)


@pytest.mark.parametrize("way", [[], ["--json"]])
@pytest.mark.slow
def test_the_place_of_a_run_can_be_read_in_any_locale(toml, tmp_path, way):
    environment = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    command = [sys.executable, "-m", "topofl", "run", toml, "--out", "caf\xe9", *way]
    root = str(Path(topofl.__file__).parents[1])
    done = subprocess.run(
        [os.fsencode(word) for word in command],
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, **environment, "PYTHONPATH": root},
    )
    assert b"saved in caf\\xe9\n" in done.stdout + done.stderr
