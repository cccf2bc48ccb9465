"""``topofl run --skip-done`` and ``--store``: the same run is found, another one is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import topofl
from tests.rows.commands import contents, train
from topofl import config
from topofl._support.locks import locked
from topofl.history import History
from topofl.runs import RunStore, curves_of, sweep, work
from topofl.runs import folder as folders
from topofl.runs.folder import PARTIAL_RECORD

HERE = "runs/small"
SKIP = "run small.toml --skip-done"
LONGER = "--set run.rounds=6"
SAME = ("key", "tables", "curves", "asked", "data")
"""What the record of a run has, wherever and in however many parts it was trained."""

POINTS = """
import numpy as np
from topofl import data

def points():
    labels = np.arange(40) % 2
    return data.from_arrays(np.load("points.npy"), labels, test=0.2, val=0)
"""


@pytest.fixture
def done(toml, monkeypatch, shell):
    """Finish a run; training again is an error."""
    shell("run small.toml")
    train(monkeypatch, AssertionError("trained"))


def record(folder=HERE):
    return json.loads(Path(folder, "run.json").read_text())


def test_the_record_is_that_of_a_stored_run(toml, shell, tmp_path):
    shell("run small.toml")
    (stored,) = sweep(config.read(toml), store=tmp_path / "store", progress=False).runs
    found, wanted = record(), json.loads((stored.folder / "run.json").read_text())
    assert set(found) == set(wanted)
    assert {name: found[name] for name in SAME} == {name: wanted[name] for name in SAME}
    assert found["curves"] == json.loads(json.dumps(curves_of(History.load(HERE))))
    assert found["environment"]["versions"]["topofl"] == topofl.__version__
    assert found["seconds"] > 0
    assert found["megabytes"] > 1


def test_the_same_run_is_skipped_and_nothing_changes(done, shell, fails):
    before = contents(HERE)
    said = f"{HERE} is finished; nothing was done\n"
    assert shell(SKIP) == (said, "")
    same = "--set saving.every=3 --set run.progress=false --set compute.device=cpu"
    assert shell(f"{SKIP} {same}").out == said
    assert shell(f"run {HERE}/config.toml --skip-done --out {HERE}").out == said
    chosen = record()["tables"]["compute"]["executor"]
    other = {"batched": "looped", "looped": "batched"}[chosen]
    named = f"compute.executor was 'auto', is '{other}'"
    assert named in fails(f"{SKIP} --set compute.executor={other}")
    assert shell(f"{SKIP} --set compute.executor={chosen}").out == said
    assert contents(HERE) == before


def test_other_data_and_other_versions_are_refused(toml, shell, fails, tmp_path, monkeypatch):
    (tmp_path / "own_points.py").write_text(POINTS)
    np.save(tmp_path / "points.npy", np.arange(160.0).reshape(40, 4))
    data = "--set data=own_points:points,n=4 --set topology=ring"
    shell(f"run small.toml {data}")
    shell(f"{SKIP} {data}")
    np.save(tmp_path / "points.npy", np.arange(160.0).reshape(40, 4) + 1)
    line = fails(f"{SKIP} {data}")
    assert f"{HERE} holds another finished run: the contents of the data files are others;" in line
    shell(f"run small.toml {data} --force")
    monkeypatch.setattr("topofl._support.machine.__version__", "99")
    shell(f"{SKIP} {data}")
    monkeypatch.setattr("topofl.runs.identity.RESULTS", "99")
    version = f"the version of topofl was {topofl.__version__}, is 99;"
    assert version in fails(f"{SKIP} {data}")
    written = record()
    del written["environment"]["results"]  # as before it was recorded
    Path(HERE, "run.json").write_text(json.dumps(written))
    assert version in fails(f"{SKIP} {data}")


def test_runs_of_earlier_versions_are_compared_by_settings(done, shell, fails):
    Path(HERE, "run.json").unlink()
    before = contents(HERE)
    assert shell(SKIP) == (
        f"{HERE} is finished; nothing was done\n",
        f"topofl: note: {HERE} has no run.json, so only its settings are compared, not data and "
        "versions\n",
    )
    line = fails(f"{SKIP} --set algorithm.lr=0.1")
    assert "another finished run: algorithm.lr was 0.5, is 0.1;" in line
    assert contents(HERE) == before
    Path(HERE, "config.toml").unlink()
    assert "it has neither run.json nor config.toml" in fails(SKIP)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"key": "01', "{}", '{"key": "a", "tables": {"a": 1}}']
)
def test_a_damaged_record_is_refused_and_kept(done, shell, fails, text):
    Path(HERE, "run.json").write_text(text)
    for line in (SKIP, "run small.toml --force", f"resume {HERE} {LONGER}"):
        said = fails(line)
        assert f"{HERE}/run.json" in said
        assert "remove it, or move it elsewhere; its run is then compared by config.toml" in said
    assert Path(HERE, "run.json").read_text() == text
    Path(HERE, "run.json").unlink()
    shell(SKIP)


def killed(line, shell, place, name):
    """Run a command whose process ends, without a further line of code, where it calls a name."""

    def kill(*_):
        raise SystemExit("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, kill)
        with pytest.raises(SystemExit):
            shell(line)


def test_killed_before_the_record_has_its_name_it_is_completed(toml, shell, fails, monkeypatch):
    killed("run small.toml", shell, folders, "commit_record")
    assert not Path(HERE, "run.json").exists()
    assert Path(HERE, PARTIAL_RECORD).exists()
    with monkeypatch.context() as patch:
        train(patch, AssertionError("trained"))
        shell(SKIP)
    assert not Path(HERE, PARTIAL_RECORD).exists()
    shell("run small.toml --out fresh")
    assert record()["key"] == record("fresh")["key"]
    assert fails(f"{SKIP} --set run.seed=9").count("run.seed was 3")


def test_killed_before_the_history_is_saved_it_is_not_finished(toml, shell, fails):
    killed("run small.toml", shell, History, "save")
    assert Path(HERE, PARTIAL_RECORD).exists()
    assert "holds a run that is not finished (round 4)" in fails(SKIP)
    shell(f"resume {HERE}")
    assert record()["curves"]["round"] == [0, 2, 4]
    shell(SKIP)


def test_killed_while_a_longer_run_is_saved_the_record_is_that_of_the_history(toml, shell, fails):
    shell("run small.toml")
    killed(f"resume {HERE} {LONGER}", shell, History, "save")
    assert History.load(HERE).n_rounds == 4
    shell(SKIP)
    assert "run.rounds was 4, is 6" in fails(f"{SKIP} {LONGER}")
    killed(f"resume {HERE} {LONGER}", shell, folders, "write_config")
    shell(f"resume {HERE} {LONGER}")
    shell(f"{SKIP} {LONGER}")
    assert "run.rounds was 6, is 4" in fails(SKIP)
    shell(f"run small.toml --out whole {LONGER}")
    assert [record()[name] for name in SAME] == [record("whole")[name] for name in SAME]


def test_a_run_that_replaces_another_replaces_its_record(toml, shell):
    shell(f"{SKIP}")
    shell("run small.toml --force --set run.seed=9")
    assert record()["tables"]["run"]["seed"] == 9
    shell(f"{SKIP} --set run.seed=9")


def test_a_run_whose_history_was_removed_is_trained_again(toml, shell):
    shell("run small.toml")
    shutil.rmtree(f"{HERE}/history")
    shutil.rmtree(f"{HERE}/checkpoints")
    Path(HERE, "checkpoints").mkdir()
    shell(f"{SKIP} --set run.seed=9")
    assert record()["tables"]["run"]["seed"] == 9


def test_a_second_writer_waits_or_finds_the_run(toml, shell, fails, monkeypatch):
    with locked(Path(HERE)):
        assert "no other run is using" in fails(SKIP, 1)
    shell("run small.toml --out other")
    claimed = folders.claimed

    def late(out):  # another command finishes the run before this one has the lock
        shutil.copytree("other", out, dirs_exist_ok=True)
        return claimed(out)

    monkeypatch.setattr(folders, "claimed", late)
    train(monkeypatch, AssertionError("trained"))
    assert shell(SKIP).out == f"{HERE} is finished; nothing was done\n"


def test_a_run_is_trained_into_a_store_once(toml, shell, monkeypatch):
    printed = shell("run small.toml --store store").out
    (run,) = RunStore(Path("store")).runs()
    assert f"saved in store/{run.key}\n" in printed
    assert not Path("runs").exists()
    with monkeypatch.context() as patch:
        patch.setattr(work, "_train", lambda *_: pytest.fail("trained"))
        printed = shell(f"{SKIP} --store store").out
        assert f"found in store/{run.key}; nothing was done\n" in printed
        assert len(sweep(config.read(toml), store="store", progress=False).runs) == 1
    shell("run small.toml --store store --set run.seed=9")
    assert len(RunStore(Path("store")).runs()) == 2
    wanted = config.load(toml).run(progress=False)["loss"]
    np.testing.assert_array_equal(wanted, run.history["loss"])


def test_runs_of_a_store_that_fail_or_are_interrupted_say_so(toml, shell, fails, monkeypatch):
    line = fails("run small.toml --store store --set algorithm.lr=1e38", 1)
    assert "the run failed: DivergenceError: the loss of node 0" in line
    assert "topofl runs store --failed --traceback" in line
    with monkeypatch.context() as patch:
        train(patch, KeyboardInterrupt())
        said = "topofl: interrupted; the same command continues the run\n"
        assert shell("run small.toml --store store", 1).err == said
    shell("run small.toml --store store")


@pytest.mark.slow
def test_two_commands_train_one_run_into_a_store(toml, tmp_path):
    command = [sys.executable, "-m", "topofl", "run", toml, "--store", "store"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate()[0].splitlines()[-1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    (run,) = RunStore(tmp_path / "store").runs()
    assert all(f"in store/{run.key}" in line for line in told)
    wanted = config.load(toml).run(progress=False)["loss"]
    np.testing.assert_array_equal(wanted, run.history["loss"])
