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

from tests import problems
from tests.full_disk import full_at
from tests.rows.commands import TEXT, contents, train
from topofl import config
from topofl._support.files import backup_path
from topofl._support.locks import locked
from topofl.engine.checkpoint import rounds_in
from topofl.engine.mixing import Mixing
from topofl.history import History
from topofl.runs import RunStore, curves_of
from topofl.runs import folder as folders
from topofl.runs.folder import NEXT, RUNNING

COMPLETE = {"config.toml", "checkpoints", "history", "run.json"}
AGAIN = "run small.toml --out r --force --set run.seed=9"


@pytest.fixture
def r(toml, shell, tmp_path):
    """Return the folder of a finished run."""
    shell("run small.toml --out r")
    return tmp_path / "r"


def below(folder, found):
    """Return those contents that are in a folder, by their paths in it."""
    start = f"{folder}/"
    return {
        name.removeprefix(start): text for name, text in found.items() if name.startswith(start)
    }


def test_a_finished_run_is_replaced_only_by_force(r, shell, fails):
    (r / "notes.txt").write_text("mine")
    shell("run small.toml --out r --force --set run.rounds=2")
    assert History.load(r / "history").n_rounds == 2
    assert [path.name for path in (r / "checkpoints").iterdir()] == ["round-00000002"]
    assert (r / "notes.txt").read_text() == "mine"
    (r / "history" / "figure.pdf").write_text("mine, too")
    for line in ("run small.toml --out r --force", "resume r --set run.rounds=9"):
        assert "history must hold a history and nothing else" in fails(line)
    assert (r / "history" / "figure.pdf").exists()


def test_a_run_that_replaces_another_takes_its_place_or_leaves_it(r, shell, monkeypatch):
    older = History.load(r)
    shell(f"{AGAIN} --set algorithm.lr=1e38", 1)  # it fails before its first checkpoint
    np.testing.assert_array_equal(History.load(r)["loss"], older["loss"])
    assert config.load(r / "config.toml").tables["algorithm"]["lr"] != 1e38
    apply = Mixing.mix

    def interrupted(self, weights, values, t, *arguments):
        if t == 1:
            signal.raise_signal(signal.SIGINT)
        apply(self, weights, values, t, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Mixing, "mix", interrupted)
        said = "topofl: interrupted after round 2 of 4; resume with: topofl resume r\n"
        assert shell(AGAIN, 1).err == said
    shell("resume r")
    assert History.load(r).meta["seed"] == 9
    assert [path.name for path in r.parent.iterdir() if path.name.startswith(".")] == []


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
for name in ("_evaluate", "progress_bar"):
    setattr(sys.modules["topofl.engine.run"], name, \
deadly(getattr(sys.modules["topofl.engine.run"], name)))
for at in range(1, 1000):
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if sys.argv[1] == "--out":
            os.system(f"cp -r old out{at}")
        os._exit(cli.main(["run", "small.toml", *sys.argv[2:], sys.argv[1], f"out{at}"]))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != -signal.SIGKILL:
        break
print(json.dumps([at, status]))
"""


def killed_at_any_moment(folder, *words):
    """Kill the command with these words at each call, into out1, out2, ...; return their end."""
    command = [sys.executable, "-c", KILLED, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    last, status = json.loads(done.stdout)
    assert (status, last > 20) == (0, True), "or nothing was looked at"
    return last


def assert_same_run(folder, seed):
    """Check that the record of a folder is that of the run with this seed."""
    record = json.loads(Path(folder, "run.json").read_text())
    wanted = json.loads(Path({3: "old", 9: "new"}[seed], "run.json").read_text())
    assert (record["key"], record["curves"]) == (wanted["key"], wanted["curves"])
    assert record["tables"]["run"]["seed"] == seed


@pytest.mark.slow
def test_killed_at_any_moment_a_run_that_replaces_another_is_one_of_both(toml, shell, tmp_path):
    text = TEXT.replace("rounds = 4", "rounds = 1") + '[compute]\nexecutor = "batched"\n'
    Path(toml).write_text(text)
    shell("run small.toml --out old")
    shell("run small.toml --out new --set run.seed=9")
    wanted = {seed: History.load(name)["loss"] for seed, name in ((3, "old"), (9, "new"))}
    last = killed_at_any_moment(tmp_path, "--out", "--force", "--set", "run.seed=9")
    had = set()
    for at in range(1, last):
        folder = Path(f"out{at}")
        saved = rounds_in(folder / NEXT / "checkpoints")
        if not saved and (folder / "history" / "meta.json").exists():
            had.add(History.load(folder).meta["seed"])
        shell(f"resume {folder}")
        history = History.load(folder)
        had.add(("resumed", history.meta["seed"]))
        np.testing.assert_array_equal(history["loss"], wanted[history.meta["seed"]])
        assert config.load(folder / "config.toml").options["seed"] == history.meta["seed"]
        assert len(rounds_in(folder / "checkpoints")) == 1
        assert {path.name for path in folder.iterdir()} == COMPLETE
        assert_same_run(folder, history.meta["seed"])
    assert had == {3, 9, ("resumed", 3), ("resumed", 9)}


@pytest.mark.slow
def test_killed_at_any_moment_a_run_of_a_store_is_whole_or_continued(toml, shell, tmp_path):
    text = TEXT.replace("rounds = 4", "rounds = 1") + '[compute]\nexecutor = "batched"\n'
    Path(toml).write_text(text)
    wanted, had = config.load(toml).run(progress=False)["loss"], set()
    for at in range(1, killed_at_any_moment(tmp_path, "--store")):
        store = RunStore(Path(f"out{at}"))
        had.add(len(store.runs()) if store.root.exists() else None)
        shell(f"run small.toml --store out{at}")
        (run,) = store.runs()
        np.testing.assert_array_equal(run.history["loss"], wanted)
        assert run.curves == json.loads(json.dumps(curves_of(run.history)))
        assert {path.name for path in run.folder.iterdir()} == COMPLETE - {"checkpoints"}
        assert config.load(run.folder / "config.toml").options["rounds"] == 1
        found = {path.name for path in store.root.glob("[!.]*")}  # not a store.json half written
        assert found == {run.key, "store.json"}
        assert list((store.root / RUNNING).iterdir()) == []
    assert {0, 1} <= had


@pytest.mark.parametrize("name", ["checkpoints", "history"])
@pytest.mark.parametrize("line", [AGAIN, "resume r"])
def test_what_a_link_leads_to_is_not_replaced(r, shell, fails, tmp_path, line, name):
    if line == "resume r":
        shell("run small.toml --out new --set run.seed=9")
        shutil.rmtree("new/history")
        Path("new").rename(r / NEXT)
    (r / name).rename(tmp_path / "far")
    (r / name).symlink_to(tmp_path / "far")
    before = contents("r") | contents("far")
    assert f"r/{name} must be a folder in r itself" in fails(line)
    assert contents("r") | contents("far") == before
    assert (r / name).is_symlink()


def test_what_cannot_be_moved_stays_and_the_finished_run_is_not_lost(r, shell, fails, monkeypatch):
    shell("run small.toml --out whole --set run.seed=9")
    before, replace = contents("r"), os.replace

    def crossing(source, target):
        if Path(target).parent.name == "checkpoints" and Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(source), None, str(target))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crossing)
        line = fails(AGAIN, 1)
    assert "cross-device link" in line
    assert "its history is saved in r/history-not-in-place; once nothing is in its way, " in line
    assert "topofl resume r puts" in line
    assert contents("r/history-not-in-place") == contents("whole/history")
    assert contents(f"r/{NEXT}/replaced") == below("history", before)
    assert contents("r/checkpoints") == below("checkpoints", before)
    shutil.rmtree(r / "history-not-in-place")
    shell("resume r")
    assert History.load("r").meta["seed"] == 9
    assert {path.name for path in r.iterdir()} == COMPLETE


def foreign(place):
    """Make a folder with somebody's work."""
    place.mkdir(parents=True)
    (place / "meta.json").write_text("{}")
    (place / "thesis.tex").write_text("years of work")
    return contents(place)


@problems.by_turns(
    2, name=[".history.bak", ".history.older", ".history.topofl-older", ".next", ".lock"]
)
def test_what_others_keep_in_the_folder_of_a_run_stays(r, shell, name):
    before = foreign(r / name)
    for line in ("run small.toml --out r --force", "resume r --set run.rounds=6", "resume r"):
        shell(line)
        assert contents(f"r/{name}") == before
    assert History.load("r").n_rounds == 6


@pytest.mark.filterwarnings("always:.* is not removed")
def test_a_folder_that_somebody_else_has_in_the_way_is_told(r, shell, fails):
    foreign(r / NEXT)
    before = contents("r")
    line = fails("run small.toml --out r --force")
    assert f"r/{NEXT} must be free, got files that topofl did not write" in line
    assert contents("r") == before
    printed = shell("resume r --set run.rounds=5")
    assert f"{NEXT} is not removed: it holds files that topofl did not write" in printed.err
    assert contents(f"r/{NEXT}") == below(NEXT, before)


@pytest.mark.parametrize("name", ["config.toml", "run.json", "checkpoints/best.pt"])
@pytest.mark.parametrize("more", ["", "--set algorithm.lr=1e38"])
def test_files_of_somebody_else_stay(fails, toml, tmp_path, name, more):
    for file in ("config.toml", name) if "/" in name else (name,):
        (tmp_path / "project" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / file).write_text("mine = 1")
    before = contents("project")
    line = fails(f"run small.toml --out project {more}")
    assert "project holds files other than a run" in line
    assert contents("project") == before


def test_the_history_of_the_current_folder_is_not_replaced(r, fails, monkeypatch):
    before = contents(r)
    monkeypatch.chdir(r / "history")
    line = fails("run ../../small.toml --out .. --force")
    assert "must not be the current folder" in line
    assert contents(r) == before


def test_two_commands_do_not_share_a_folder(fails, toml, tmp_path, monkeypatch):
    train(monkeypatch, AssertionError("trained"))
    with locked(tmp_path / "a"):
        using = "must be a folder that no other run is using"
        assert f"`--out` {using}" in fails("run small.toml --out a", 1)
        assert [path.name for path in (tmp_path / "a").iterdir()] == [".topofl.lock"]
        (tmp_path / "a" / "config.toml").write_text(TEXT)
        assert f"`DIR` {using}" in fails("resume a", 1)


@pytest.mark.parametrize(
    ("size", "file"), [(0, "r/config.toml"), (200, "r/config.toml"), (1000, r"r/\.run\.json.*")]
)
@pytest.mark.filterwarnings("ignore:the checkpoint of round")
def test_a_full_disk_names_the_file(fails, toml, size, file):
    with full_at(size):
        line = fails("run small.toml --out r", 1)
    assert re.search(f"File too large: '{file}'$", line), line


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="folders can be created elsewhere")
def test_a_folder_that_cannot_be_created_names_the_option(fails, toml, monkeypatch):
    train(monkeypatch, AssertionError("trained"))
    for place in ("/proc/x", "/proc/x/y"):
        line = fails(f"run small.toml --out {place}")
        assert f"`--out` must be a folder that can be created, got {place}: No such file" in line


@pytest.mark.parametrize("done", [False, True], ids=["now", "before"])
@pytest.mark.parametrize(
    ("whole", "of_kill"),
    [(True, False), (True, True), (False, True)],
    ids=["in place", "beside one of a kill", "only that of a kill"],
)
def test_of_an_older_history_one_copy_is_kept_while_it_is_replaced(r, whole, done, of_kill):
    """A killed process may leave the older history at another name, or moved away already."""
    history, replaced = r / "history", r / NEXT / "replaced"
    older, here = contents(history), [history] * whole
    here += [backup_path(history)] * of_kill
    kept = shutil.copytree(history, r / "copy")
    shutil.rmtree(history)
    for place in [*here, *[replaced] * done]:
        shutil.copytree(kept, place)
    (r / NEXT).mkdir(exist_ok=True)
    folders._set_aside(history, replaced)
    assert contents(replaced) == older
    assert not any(place.exists() for place in here)
