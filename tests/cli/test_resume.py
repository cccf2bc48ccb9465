"""``topofl resume``, after runs that were interrupted."""

import errno
import shutil
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.rows.commands import contents, rows_of, train
from topofl import config, summarize
from topofl._support.locks import locked
from topofl.engine import RankError
from topofl.engine.round import Round
from topofl.history import History
from topofl.runs.folder import RUNNING

OWN = """
from topofl import algorithms
from topofl.algorithms import Algorithm

def method(lr: float = 0.1) -> Algorithm:
    return algorithms.dsgd(lr=lr)
"""


@contextmanager
def watched(stop_in=None, also=lambda: None):
    """Note the rounds that are trained, and interrupt in a certain step."""
    take, steps = Round._train, []

    def noted(self, *arguments):
        steps.append(self.t)
        if len(steps) == stop_in:
            also()
            signal.raise_signal(signal.SIGINT)
        return take(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Round, "_train", noted)
        yield steps


@pytest.fixture
def stopped(shell):
    """Return a function that runs a command with a Ctrl-C in a step: its output and its rounds."""

    def run(line, step, also=lambda: None):
        with watched(step, also) as steps:
            return shell(line, 1), steps

    return run


def test_interrupted_and_resumed_is_as_if_nothing_had_happened(toml, shell, fails, stopped):
    shell("run small.toml --out whole")
    printed, _ = stopped("run small.toml --out 'a run'", 3)
    command = "topofl resume 'a run'"
    assert printed.err == f"topofl: interrupted after round 3 of 4; resume with: {command}\n"
    folder = Path("a run")
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "config.toml"]
    assert config.load(folder / "config.toml").options["seed"] == 3
    begun = "is not finished (round 3); continue it with topofl resume"
    for line in ("run small.toml --out", "run small.toml --skip-done --out", "graphs", "compare"):
        assert begun in fails(f"{line} 'a run'")
    assert "saved in a run" in shell("resume 'a run'").out
    whole, again = History.load("whole"), History.load("a run")
    for name in ("accuracy", "loss", "train_loss", "round"):
        np.testing.assert_array_equal(whole[name], again[name])
    assert whole.meta == again.meta
    assert Path("whole/config.toml").read_text() == (folder / "config.toml").read_text()
    shell("run small.toml --out 'a run' --skip-done")  # it has a record


def test_unfinished_runs_are_listed_with_what_finishes_them(toml, shell, rows, stopped):
    stopped("run small.toml --out 'r/a b' --set algorithm.lr=0.1", 3)
    (begun,) = rows("runs r")
    assert (begun["key"], begun["round"], begun["algorithm.name"]) == ("a b", 3, "dsgd")
    assert begun["finished by"] == "topofl resume 'r/a b'"
    with locked(Path("r/a b"), "--out"):
        assert rows("runs r")[0]["finished by"] == "nothing: it is running"
    shell("run small.toml --out r/c")
    first, second = rows("runs r")
    assert (first["accuracy"], second["finished by"]) == (None, "")
    assert [row["key"] for row in rows("runs r --where algorithm.lr=0.1")] == ["a b"]
    assert "2 runs, 1 not finished" in shell("runs r").out
    shell(first["finished by"].removeprefix("topofl "))
    assert "finished by" not in rows("runs r")[0]


@pytest.mark.parametrize("force", ["", "--force"])
def test_only_the_command_for_a_run_of_this_process_has_trust_where_it_needs_that(
    toml, shell, rows, fails, stopped, tmp_path, monkeypatch, force
):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    if force:
        shell("run small.toml --out 'r/a b'")
    printed, _ = stopped(f"run small.toml --out 'r/a b' {force} --set algorithm=own:method", 3)
    command, without = "topofl resume --trust 'r/a b'", "topofl resume 'r/a b'"
    assert printed.err.endswith(f"; resume with: {command}\n")
    listed = shell("runs r --json")
    assert rows_of(listed.out)[0]["finished by"] == without
    assert "to resume a b, whose settings name functions of modules, add --trust if" in listed.err
    assert f"continue it with {without}" in fails("graphs 'r/a b'")
    assert fails(without.removeprefix("topofl ")).endswith(command)
    if not force:
        with pytest.raises(FileNotFoundError, match=f"finish it with {without}"):
            summarize(["r/a b"], "seed")
    error = RankError("rank 1 of 2 ended in round 4", (1,))
    error.saved = tmp_path.joinpath("r", "a b", "checkpoints"), 3
    with monkeypatch.context() as patch:
        train(patch, error)
        place = str(tmp_path / "r" / "a b")
        said = fails("run small.toml --out c", 1)
        assert said.endswith(f"from the command line: topofl resume --trust '{place}'")
    shell(command.removeprefix("topofl "))


def test_a_store_lists_its_unfinished_runs(toml, shell, rows, stopped, tmp_path):
    stopped("run small.toml --store store", 3)
    (folder,) = (tmp_path / "store" / RUNNING).iterdir()
    key = folder.name.partition("+")[0]
    (row,) = rows("runs store")
    assert (row["key"], row["round"], row["seconds"]) == (key, 3, None)
    assert (row["algorithm.name"], row["topology.name"]) == ("dsgd", "dcliques")
    file = f"store/{RUNNING}/{folder.name}/config.toml"
    assert row["finished by"] == f"topofl run {file} --store store"
    found = shell("runs store --where algorithm=dsgd --columns run.rounds").out
    assert "1 run, 1 not finished" in found
    with locked(folder):
        assert rows("runs store")[0]["finished by"] == "nothing: it is running"
    of_another = folder.rename(folder.with_name(f"{key}+elsewhere+1"))
    assert rows("runs store")[0]["finished by"] == "nothing: it is running"
    of_another.rename(folder)
    (folder / "config.toml").rename("aside.toml")  # as for runs of functions
    assert "the command that started it" in shell("runs store").out
    Path("aside.toml").rename(folder / "config.toml")
    with watched() as steps:
        shell(row["finished by"].removeprefix("topofl "))
    assert steps == [3]
    (row,) = rows("runs store")
    assert "finished by" not in row
    assert row["key"] == key


def test_a_finished_run_says_so_and_takes_more_rounds(toml, shell, fails, tmp_path):
    shell("run small.toml --out a --checkpoint-every 1")
    assert [path.name for path in Path("a/checkpoints").iterdir()] == ["round-00000004"]
    done = "a is finished: all 4 rounds are done; train more with --set"
    assert shell("resume a").out.startswith(done)
    assert "[saving]\nevery = 1\n" in Path("a/config.toml").read_text()
    shell("resume a --set run.rounds=7")
    shell("run small.toml --out b --set run.rounds=7")
    np.testing.assert_array_equal(History.load("a")["loss"], History.load("b")["loss"])
    assert config.load("a/config.toml").options["rounds"] == 7
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    assert "its checkpoints were removed" in fails("resume a --set run.rounds=9")


def test_a_longer_run_that_is_interrupted_keeps_what_was_asked_for(toml, shell, stopped):
    shell("run small.toml --out a")
    stopped("resume a --set run.rounds=7", 1)
    assert History.load("a").n_rounds == 4
    shell("resume a")
    assert History.load("a").n_rounds == 7


def test_stopped_before_the_first_checkpoint_it_starts_again(toml, shell, monkeypatch):
    with monkeypatch.context() as patch:
        train(patch, KeyboardInterrupt())
        shell("run small.toml", 1)
    begun = sorted(path.name for path in Path("runs/small").iterdir())
    assert begun == ["checkpoints", "config.toml"]
    started = "runs/small has no checkpoint yet; it starts from the beginning"
    assert started in shell("resume runs/small").err
    assert History.load("runs/small").n_rounds == 4


@pytest.mark.filterwarnings("always:the checkpoint of round")
def test_an_interruption_of_which_nothing_could_be_saved_leaves_the_finished_run(
    toml, shell, stopped, monkeypatch
):
    shell("run small.toml --out r")
    before = contents("r")

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys.modules["topofl.engine.saving"], "write_checkpoint", full)
    printed, _ = stopped("run small.toml --out r --force --set run.seed=9", 2)
    said = "after round 2 of 4, saved nothing; the finished run is unchanged\n"
    assert printed.err.endswith(said)
    assert contents("r") == before


@pytest.mark.parametrize("verb", ["run", "force", "resume"])
def test_a_folder_that_vanishes_while_a_run_lasts_can_be_gone_on_with(toml, shell, stopped, verb):
    line = "run small.toml --out r --set run.rounds=6 --checkpoint-every 1"
    line += " --force" * (verb == "force")
    if verb != "run":
        shell("run small.toml --out r")
    if verb == "resume":
        line = "resume r --set run.rounds=6"
    first, step = (4, 1) if verb == "resume" else (0, 3)
    printed, steps = stopped(line, step, lambda: shutil.rmtree("r"))
    done = f"interrupted after round {first + len(steps)} of 6; resume with: topofl resume r\n"
    assert done in printed.err
    shell("resume r")
    shell("run small.toml --out whole --set run.rounds=6")
    np.testing.assert_array_equal(History.load("r")["loss"], History.load("whole")["loss"])
