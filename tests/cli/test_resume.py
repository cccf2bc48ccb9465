"""``topofl resume``, after runs that were interrupted."""

import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.cli.commands import contents, fails, train
from topofl import config, summarize
from topofl._support.locks import locked
from topofl.cli import main
from topofl.engine import RankError
from topofl.engine.round import Round
from topofl.history import History
from topofl.runs.work import RUNNING

OWN = """
from topofl import algorithms
from topofl.algorithms import Algorithm

def method(lr: float = 0.1) -> Algorithm:
    return algorithms.dsgd(lr=lr)
"""


def stop_in_step(monkeypatch, step):
    """Let a Ctrl-C arrive while a step is taken."""
    take, steps = Round._train, []

    def interrupted(self, *arguments):
        steps.append(self.t)
        if len(steps) == step:
            signal.raise_signal(signal.SIGINT)
        return take(self, *arguments)

    monkeypatch.setattr(Round, "_train", interrupted)


def rounds_of(monkeypatch, words):
    """Return the rounds that a command trains."""
    take, rounds = Round._train, []

    def noted(self, *arguments):
        rounds.append(self.t)
        return take(self, *arguments)

    monkeypatch.setattr(Round, "_train", noted)
    assert main(words) == 0
    return rounds


def test_interrupted_and_resumed_is_as_if_nothing_had_happened(capsys, toml, tmp_path, monkeypatch):
    assert main(["run", toml, "--out", "whole"]) == 0
    with monkeypatch.context() as patch:
        stop_in_step(patch, 3)
        capsys.readouterr()
        assert main(["run", toml, "--out", "a run"]) == 1
    line = "topofl: interrupted after round 3 of 4; resume with: topofl resume 'a run'\n"
    assert capsys.readouterr().err == line
    folder = tmp_path / "a run"
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "config.toml"]
    assert config.load(folder / "config.toml").options["seed"] == 3
    assert "is not finished (round 3); continue it with topofl resume" in fails(
        capsys, 2, "run", toml, "--out", "a run"
    )
    for verb in ("graphs", "compare"):
        assert "is not finished (round 3); continue it with topofl resume" in fails(
            capsys, 2, verb, "a run"
        )
    assert main(["resume", "a run"]) == 0
    assert "saved in a run" in capsys.readouterr().out
    whole, resumed = History.load("whole"), History.load("a run")
    for name in ("accuracy", "loss", "train_loss", "round"):
        np.testing.assert_array_equal(whole[name], resumed[name])
    assert whole.meta == resumed.meta
    assert (tmp_path / "whole" / "config.toml").read_text() == (folder / "config.toml").read_text()


def test_unfinished_runs_are_listed_with_what_finishes_them(capsys, toml, tmp_path, monkeypatch):
    def listed(*words):
        capsys.readouterr()
        assert main(["runs", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    with monkeypatch.context() as patch:
        stop_in_step(patch, 3)
        assert main(["run", toml, "--out", "r/a b", "--set", "algorithm.lr=0.1"]) == 1
    (begun,) = listed("r")
    assert (begun["key"], begun["round"], begun["algorithm.name"]) == ("a b", 3, "dsgd")
    assert begun["finished by"] == "topofl resume 'r/a b'"
    with locked(tmp_path / "r" / "a b", "--out"):
        assert listed("r")[0]["finished by"] == "nothing: it is running"
    assert main(["run", toml, "--out", "r/c"]) == 0
    first, second = listed("r")
    assert (first["accuracy"], second["finished by"]) == (None, "")
    assert [row["key"] for row in listed("r", "--where", "algorithm.lr=0.1")] == ["a b"]
    assert main(["runs", "r"]) == 0
    assert "2 runs, 1 not finished" in capsys.readouterr().out
    assert main(shlex.split(first["finished by"])[1:]) == 0
    assert "finished by" not in listed("r")[0]


@pytest.mark.parametrize("replaces", [False, True])
def test_only_the_command_for_a_run_of_this_process_has_trust_where_it_needs_that(
    capsys, toml, tmp_path, monkeypatch, replaces
):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    if replaces:
        assert main(["run", toml, "--out", "r/a b"]) == 0
    capsys.readouterr()
    words = ["run", toml, "--out", "r/a b", *["--force"] * replaces]
    with monkeypatch.context() as patch:
        stop_in_step(patch, 3)
        assert main([*words, "--set", "algorithm=own:method"]) == 1
    command = "topofl resume --trust 'r/a b'"
    assert capsys.readouterr().err.endswith(f"; resume with: {command}\n")
    assert main(["runs", "r", "--json"]) == 0
    without = "topofl resume 'r/a b'"
    assert json.loads(capsys.readouterr().out)[0]["finished by"] == without
    assert f"continue it with {without}" in fails(capsys, 2, "graphs", "r/a b")
    assert fails(capsys, 2, *shlex.split(without)[1:]).endswith(command)
    if not replaces:
        with pytest.raises(FileNotFoundError, match=f"finish it with {without}"):
            summarize(["r/a b"], "seed")
    error = RankError("rank 1 of 2 ended in round 4", (1,))
    error.saved = tmp_path.joinpath("r", "a b", "checkpoints"), 3
    with monkeypatch.context() as patch:
        train(patch, error)
        place = str(tmp_path / "r" / "a b")
        assert fails(capsys, 1, "run", toml, "--out", "c").endswith(
            f"from the command line: topofl resume --trust '{place}'"
        )
    assert main(shlex.split(command)[1:]) == 0


def test_a_store_lists_its_unfinished_runs(capsys, toml, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_in_step(patch, 3)
        assert main(["run", toml, "--store", "store"]) == 1
    (folder,) = (tmp_path / "store" / RUNNING).iterdir()
    key = folder.name.partition("+")[0]
    capsys.readouterr()
    assert main(["runs", "store", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["key"], row["round"], row["seconds"]) == (key, 3, None)
    assert (row["algorithm.name"], row["topology.name"]) == ("dsgd", "dcliques")
    assert row["finished by"] == "nothing: it is running"
    assert main(["runs", "store", "--where", "algorithm=dsgd", "--columns", "run.rounds"]) == 0
    assert "1 run, 1 not finished" in capsys.readouterr().out
    process = subprocess.Popen(["true"])
    process.wait()
    dead = folder.rename(
        folder.with_name(folder.name.replace(f"+{os.getpid()}+", f"+{process.pid}+"))
    )
    assert main(["runs", "store", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["finished by"] == f"topofl run store/.running/{dead.name}/config.toml --store store"
    (dead / "config.toml").rename(tmp_path / "aside.toml")  # as for runs of functions
    assert main(["runs", "store"]) == 0
    assert "the command that started it" in capsys.readouterr().out
    (tmp_path / "aside.toml").rename(dead / "config.toml")
    with monkeypatch.context() as patch:
        assert rounds_of(patch, shlex.split(row["finished by"])[1:]) == [3]
    capsys.readouterr()
    assert main(["runs", "store", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert "finished by" not in row
    assert row["key"] == key


def test_a_finished_run_says_so_and_takes_more_rounds(capsys, toml, tmp_path):
    assert main(["run", toml, "--out", "a", "--checkpoint-every", "1"]) == 0
    kept = ["round-00000004"]
    assert sorted(path.name for path in (tmp_path / "a" / "checkpoints").iterdir()) == kept
    capsys.readouterr()
    assert main(["resume", "a"]) == 0
    assert capsys.readouterr().out.startswith(
        "a is finished: all 4 rounds are done; train more with --set"
    )
    before = (tmp_path / "a" / "config.toml").read_text()
    assert "[saving]\nevery = 1\n" in before
    assert "a is finished, so only" in fails(capsys, 2, "resume", "a", "--set", "algorithm.lr=0.1")
    for change, named in (
        ("algorithm.lr=0.1", "algorithm.lr was 0.5, is 0.1; leave"),
        ("algorithm.momentum=0.4", "algorithm.momentum was 0.0, is 0.4; leave"),
        ("data.seed=7", "data.seed was 1, is 7; leave"),
    ):
        line = fails(capsys, 2, "resume", "a", "--set", change, "--set", "run.rounds=6")
        assert f"continued with the settings of its run, but {named}" in line
    assert (tmp_path / "a" / "config.toml").read_text() == before
    assert main(["resume", "a", "--set", "run.rounds=7"]) == 0
    assert main(["run", toml, "--out", "b", "--set", "run.rounds=7"]) == 0
    np.testing.assert_array_equal(History.load("a")["loss"], History.load("b")["loss"])
    assert config.load("a/config.toml").options["rounds"] == 7
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    assert "its checkpoints were removed" in fails(
        capsys, 2, "resume", "a", "--set", "run.rounds=9"
    )


def test_a_longer_run_that_is_interrupted_keeps_what_was_asked_for(toml, tmp_path, monkeypatch):
    assert main(["run", toml, "--out", "a"]) == 0
    with monkeypatch.context() as patch:
        stop_in_step(patch, 1)
        assert main(["resume", "a", "--set", "run.rounds=7"]) == 1
    assert History.load("a").n_rounds == 4
    assert main(["resume", "a"]) == 0
    assert History.load("a").n_rounds == 7


def test_stopped_before_the_first_checkpoint_it_starts_again(capsys, toml, tmp_path, monkeypatch):
    train(monkeypatch, KeyboardInterrupt())
    assert main(["run", toml]) == 1
    assert sorted(path.name for path in (tmp_path / "runs" / "small").iterdir()) == [
        "checkpoints",
        "config.toml",
    ]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(["resume", "runs/small"]) == 0
    assert (
        "runs/small has no checkpoint yet; it starts from the beginning" in capsys.readouterr().err
    )
    assert History.load("runs/small").n_rounds == 4


def test_resume_needs_a_run(capsys, toml, tmp_path):
    (tmp_path / "thesis").mkdir()
    for folder in ("thesis", "nowhere", toml):
        assert "holds no run to continue: config.toml is missing" in fails(
            capsys, 2, "resume", folder
        )


def test_an_interrupted_run_that_replaces_another_says_how_to_go_on(capsys, toml, monkeypatch):
    assert main(["run", toml, "--out", "r"]) == 0
    with monkeypatch.context() as patch:
        stop_in_step(patch, 2)
        capsys.readouterr()
        assert main(["run", toml, "--out", "r", "--force", "--set", "run.seed=9"]) == 1
    assert (
        capsys.readouterr().err
        == "topofl: interrupted after round 2 of 4; resume with: topofl resume r\n"
    )
    assert main(["resume", "r"]) == 0
    assert History.load("r").meta["seed"] == 9


@pytest.mark.filterwarnings("always:the checkpoint of round")
def test_an_interruption_of_which_nothing_could_be_saved_leaves_the_finished_run(
    capsys, toml, monkeypatch
):
    assert main(["run", toml, "--out", "r"]) == 0
    before = contents("r")

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["topofl.engine.saving"], "write_checkpoint", full)
        stop_in_step(patch, 2)
        capsys.readouterr()
        assert main(["run", toml, "--out", "r", "--force", "--set", "run.seed=9"]) == 1
    assert capsys.readouterr().err.endswith(
        "after round 2 of 4, saved nothing; the finished run is unchanged\n"
    )
    assert contents("r") == before


@pytest.mark.parametrize("verb", ["run", "force", "resume"])
def test_a_folder_that_vanishes_while_a_run_lasts_can_be_gone_on_with(
    capsys, toml, tmp_path, monkeypatch, verb
):
    words = ["run", toml, "--out", "r", "--set", "run.rounds=6", "--checkpoint-every", "1"]
    words += ["--force"] * (verb == "force")
    if verb != "run":
        assert main(["run", toml, "--out", "r"]) == 0
    if verb == "resume":
        words = ["resume", "r", "--set", "run.rounds=6"]
    take, steps, first = Round._train, [], 4 if verb == "resume" else 0

    def vanishing(self, *arguments):
        steps.append(self.t)
        if len(steps) == (1 if verb == "resume" else 3):
            shutil.rmtree(tmp_path / "r")
            signal.raise_signal(signal.SIGINT)
        return take(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Round, "_train", vanishing)
        capsys.readouterr()
        assert main(words) == 1
    done = first + len(steps)
    assert (
        f"interrupted after round {done} of 6; resume with: topofl resume r\n"
        in capsys.readouterr().err
    )
    assert main(["resume", "r"]) == 0
    assert main(["run", toml, "--out", "whole", "--set", "run.rounds=6"]) == 0
    np.testing.assert_array_equal(History.load("r")["loss"], History.load("whole")["loss"])
