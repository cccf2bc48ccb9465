"""Folders of ``topofl run``: what is replaced, and what belongs to others and stays."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import topofl
from tests.cli.commands import TEXT, contents, fails, train
from tests.full_disk import full_at
from topofl import config
from topofl._support.locks import locked
from topofl.cli import main
from topofl.cli.folders import NEXT
from topofl.engine.checkpoint import rounds_in
from topofl.engine.mixing import Mixing
from topofl.history import History


def test_a_finished_run_is_replaced_only_by_force(capsys, toml, tmp_path):
    assert main(["run", toml, "--set", "run.rounds=1"]) == 0
    (tmp_path / "runs" / "small" / "notes.txt").write_text("mine")
    for where in ([], ["--out", "runs/small"]):
        line = fails(capsys, 2, "run", toml, *where)
        assert (
            "runs/small holds a finished run; choose another folder with --out, replace it with "
            "--force, or" in line
        )
    assert History.load("runs/small").n_rounds == 1
    assert main(["run", toml, "--force"]) == 0
    assert History.load("runs/small/history").n_rounds == 4
    assert (tmp_path / "runs" / "small" / "notes.txt").read_text() == "mine"
    (tmp_path / "runs" / "small" / "history" / "figure.pdf").write_text("mine, too")
    for verb in (["run", toml, "--force"], ["resume", "runs/small", "--set", "run.rounds=9"]):
        assert "history must hold a history and nothing else" in fails(capsys, 2, *verb)
    assert (tmp_path / "runs" / "small" / "history" / "figure.pdf").exists()


def test_results_that_cannot_be_saved_are_refused_before_training(
    capsys, toml, tmp_path, monkeypatch
):
    train(monkeypatch, AssertionError("trained"))
    line = fails(capsys, 1, "run", toml, "--out", "small.toml/results")
    wanted = "`--out` must be a folder that can be written to, "
    assert wanted in line
    assert line.endswith("small.toml is not, got small.toml/results; name another")


def test_folders_and_files_of_others_are_left_alone(capsys, toml, tmp_path):
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "chapter1.tex").write_text("years of work")
    assert "thesis holds files other than a run" in fails(capsys, 2, "run", toml, "--out", "thesis")
    assert [file.name for file in thesis.iterdir()] == ["chapter1.tex"]
    assert main(["run", toml, "--out", "a"]) == 0
    saved = (tmp_path / "a" / "config.toml").read_text()
    assert "would be overwritten" in fails(
        capsys, 2, "run", "a/config.toml", "--out", "a", "--set", "run.rounds=1"
    )
    assert (tmp_path / "a" / "config.toml").read_text() == saved


def test_a_run_replaces_an_older_one_with_its_checkpoints(toml, tmp_path):
    assert main(["run", toml, "--out", "a"]) == 0
    assert main(["run", toml, "--out", "a", "--force", "--set", "run.rounds=2"]) == 0
    assert [path.name for path in (tmp_path / "a" / "checkpoints").glob("*")] == ["round-00000002"]


def test_a_run_that_replaces_another_takes_its_place_or_leaves_it(
    toml, tmp_path, capsys, monkeypatch
):
    out = str(tmp_path / "r")
    assert main(["run", toml, "--out", out]) == 0
    older = History.load(out)
    assert (
        main(["run", toml, "--set", "algorithm.lr=1e38", "--force", "--out", out]) == 1
    )  # it fails before its first checkpoint
    np.testing.assert_array_equal(History.load(out)["loss"], older["loss"])
    assert config.load(tmp_path / "r" / "config.toml").tables["algorithm"]["lr"] != 1e38
    apply = Mixing.mix

    def interrupted(self, weights, values, t, *arguments):
        if t == 1:
            signal.raise_signal(signal.SIGINT)
        apply(self, weights, values, t, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Mixing, "mix", interrupted)
        assert main(["run", toml, "--set", "run.seed=9", "--force", "--out", out]) == 1
    assert main(["resume", out]) == 0
    capsys.readouterr()
    assert History.load(out).meta["seed"] == 9
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


KILLED = """
import json, os, signal, sys
from topofl import cli, config
calls = [0]
config.load("small.toml").run(progress=False)  # what is imported on first use

def deadly(function):
    def counted(*arguments, **words):
        calls[0] += 1
        if calls[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **words)
    return counted

for name in ("replace", "rename", "unlink", "rmdir"):
    setattr(os, name, deadly(getattr(os, name)))
for name in ("_evaluate", "_progress_bar"):
    setattr(sys.modules["topofl.engine.run"], name, \
deadly(getattr(sys.modules["topofl.engine.run"], name)))
for at in range(1, 1000):
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.system(f"cp -r old out{at}")
        os._exit(cli.main(["run", "small.toml", "--force", "--set", "run.seed=9", \
"--out", f"out{at}"]))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != -signal.SIGKILL:
        break
print(json.dumps([at, status]))
"""


def assert_same_run(folder, seed):
    """Check that the record of a folder is that of the run with this seed."""
    record = json.loads(Path(folder, "run.json").read_text())
    wanted = json.loads(Path({3: "old", 9: "new"}[seed], "run.json").read_text())
    assert (record["key"], record["curves"]) == (wanted["key"], wanted["curves"])
    assert record["tables"]["run"]["seed"] == seed


@pytest.mark.slow
def test_killed_at_any_moment_a_run_that_replaces_another_is_one_of_both(toml, tmp_path, capsys):
    Path(toml).write_text(
        TEXT.replace("rounds = 4", "rounds = 1") + '[compute]\nexecutor = "batched"\n'
    )
    assert main(["run", toml, "--out", "old"]) == 0
    assert main(["run", toml, "--out", "new", "--set", "run.seed=9"]) == 0
    wanted = {seed: History.load(name)["loss"] for seed, name in ((3, "old"), (9, "new"))}
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    last, status = json.loads(done.stdout)
    assert (status, last > 20) == (0, True), "or nothing was looked at"
    had = set()
    for at in range(1, last):
        folder = f"out{at}"
        saved = rounds_in(Path(folder, NEXT, "checkpoints"))
        if not saved and (Path(folder) / "history" / "meta.json").exists():
            had.add(History.load(folder).meta["seed"])
        assert main(["resume", folder]) == 0, at
        history = History.load(folder)
        had.add(("resumed", history.meta["seed"]))
        np.testing.assert_array_equal(history["loss"], wanted[history.meta["seed"]])
        assert config.load(f"{folder}/config.toml").options["seed"] == history.meta["seed"]
        assert len(rounds_in(Path(folder, "checkpoints"))) == 1
        assert {path.name for path in Path(folder).iterdir()} == {
            "config.toml",
            "checkpoints",
            "history",
            "run.json",
        }
        assert_same_run(folder, history.meta["seed"])
    assert had == {3, 9, ("resumed", 3), ("resumed", 9)}
    capsys.readouterr()


@pytest.mark.parametrize("name", ["checkpoints", "history"])
@pytest.mark.parametrize("verb", ["run", "resume"])
def test_what_a_link_leads_to_is_not_replaced(capsys, toml, tmp_path, verb, name):
    assert main(["run", toml, "--out", "r"]) == 0
    if verb == "resume":
        assert main(["run", toml, "--out", "new", "--set", "run.seed=9"]) == 0
        shutil.rmtree(tmp_path / "new" / "history")
        (tmp_path / "new").rename(tmp_path / "r" / NEXT)
    (tmp_path / "r" / name).rename(tmp_path / "far")
    (tmp_path / "r" / name).symlink_to(tmp_path / "far")
    before = contents("r") | contents("far")
    words = (
        ["resume", "r"]
        if verb == "resume"
        else ["run", toml, "--out", "r", "--force", "--set", "run.seed=9"]
    )
    assert f"r/{name} must be a folder in r itself" in fails(capsys, 2, *words)
    assert contents("r") | contents("far") == before
    assert (tmp_path / "r" / name).is_symlink()


def test_what_cannot_be_moved_stays_and_the_finished_run_is_not_lost(
    capsys, toml, tmp_path, monkeypatch
):
    assert main(["run", toml, "--out", "r"]) == 0
    assert main(["run", toml, "--out", "whole", "--set", "run.seed=9"]) == 0
    before, replace = contents("r"), os.replace

    def crossing(source, target):
        if Path(target).parent.name == "checkpoints" and Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(source), None, str(target))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crossing)
        line = fails(capsys, 1, "run", toml, "--out", "r", "--force", "--set", "run.seed=9")
    assert "cross-device link" in line
    assert (
        "its history is saved in r/history-not-in-place; once nothing is in its way, topofl resume "
        "r puts" in line
    )
    assert contents("r/history-not-in-place") == contents("whole/history")
    assert contents(f"r/{NEXT}/replaced") == {
        name.removeprefix("history/"): text
        for name, text in before.items()
        if name.startswith("history/")
    }
    assert contents("r/checkpoints") == {
        name.removeprefix("checkpoints/"): text
        for name, text in before.items()
        if name.startswith("checkpoints/")
    }
    shutil.rmtree(tmp_path / "r" / "history-not-in-place")
    assert main(["resume", "r"]) == 0
    assert History.load("r").meta["seed"] == 9
    assert {path.name for path in Path("r").iterdir()} == {
        *("config.toml", "checkpoints", "history", "run.json")
    }


def foreign(folder, name):
    """Put a folder with somebody's work into another one."""
    (Path(folder) / name).mkdir(parents=True)
    (Path(folder) / name / "meta.json").write_text("{}")
    (Path(folder) / name / "thesis.tex").write_text("years of work")
    return contents(Path(folder) / name)


@pytest.mark.parametrize(
    "name", [".history.bak", ".history.older", ".history.topofl-older", ".next", ".lock"]
)
def test_what_others_keep_in_the_folder_of_a_run_stays(capsys, toml, tmp_path, name):
    assert main(["run", toml, "--out", "r"]) == 0
    before = foreign("r", name)
    for words in (
        ["run", toml, "--out", "r", "--force"],
        ["resume", "r", "--set", "run.rounds=6"],
        ["resume", "r"],
    ):
        assert main(words) == 0
        assert contents(f"r/{name}") == before
    assert History.load("r").n_rounds == 6


def test_a_folder_that_somebody_else_has_in_the_way_is_told(capsys, toml, tmp_path):
    assert main(["run", toml, "--out", "r"]) == 0
    foreign("r", NEXT)
    before = contents("r")
    line = fails(capsys, 2, "run", toml, "--out", "r", "--force")
    assert f"r/{NEXT} must be free, got files that topofl did not write" in line
    assert contents("r") == before
    assert main(["resume", "r", "--set", "run.rounds=5"]) == 0
    assert (
        f"{NEXT} is not removed: it holds files that topofl did not write"
        in capsys.readouterr().err
    )
    assert contents(f"r/{NEXT}") == {
        name.removeprefix(f"{NEXT}/"): text
        for name, text in before.items()
        if name.startswith(NEXT)
    }


@pytest.mark.parametrize("with_checkpoints", [False, True])
@pytest.mark.parametrize("more", [[], ["--set", "algorithm.lr=1e38"]])
def test_a_configuration_of_somebody_else_stays(capsys, toml, tmp_path, with_checkpoints, more):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "config.toml").write_text("mine = 1")
    if with_checkpoints:
        (tmp_path / "project" / "checkpoints").mkdir()
        (tmp_path / "project" / "checkpoints" / "best.pt").write_text("mine, too")
    before = contents("project")
    line = fails(capsys, 2, "run", toml, "--out", "project", *more)
    assert "project holds files other than a run" in line
    assert contents("project") == before


def test_the_history_of_the_current_folder_is_not_replaced(capsys, toml, tmp_path, monkeypatch):
    assert main(["run", toml, "--out", "r"]) == 0
    before = contents("r")
    monkeypatch.chdir(tmp_path / "r" / "history")
    assert "must not be the current folder" in fails(
        capsys, 2, "run", toml, "--out", "..", "--force"
    )
    assert contents(tmp_path / "r") == before


def test_two_commands_do_not_share_a_folder(toml, tmp_path, capsys, monkeypatch):
    train(monkeypatch, AssertionError("trained"))
    with locked(tmp_path / "a"):
        assert "`--out` must be a folder that no other run is using" in fails(
            capsys, 1, "run", toml, "--out", "a"
        )
        assert [path.name for path in (tmp_path / "a").iterdir()] == [".topofl.lock"]
        (tmp_path / "a" / "config.toml").write_text(Path(toml).read_text())
        assert "`DIR` must be a folder that no other run is using" in fails(
            capsys, 1, "resume", "a"
        )


@pytest.mark.parametrize(
    ("size", "file"),
    [(0, "r/config.toml"), (200, "r/config.toml"), (1000, r"r/\.run\.json.*")],
)
@pytest.mark.filterwarnings("ignore:the checkpoint of round")
def test_a_full_disk_names_the_file(capsys, toml, size, file):
    with full_at(size):
        line = fails(capsys, 1, "run", toml, "--out", "r")
    assert re.search(f"File too large: '{file}'$", line), line


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="folders can be created elsewhere")
def test_a_folder_that_cannot_be_created_names_the_option(capsys, toml, monkeypatch):
    train(monkeypatch, AssertionError("trained"))
    for place in ("/proc/x", "/proc/x/y"):
        line = fails(capsys, 2, "run", toml, "--out", place)
        assert f"`--out` must be a folder that can be created, got {place}: No such file" in line


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
