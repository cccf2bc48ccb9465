"""``topofl run --skip-done`` and ``--store``: the same run is found, another one is refused."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import topofl
from tests.cli.commands import contents, fails, train
from topofl import config
from topofl._support.locks import locked
from topofl.cli import main
from topofl.cli import run as module_of_run
from topofl.cli.folders import PARTIAL_RECORD
from topofl.engine.mixing import Mixing
from topofl.history import History
from topofl.runs import RunStore, curves_of, sweep, work

HERE = "runs/small"
SKIP = ["--skip-done"]


POINTS = """
import numpy as np
from topofl import data

def points():
    labels = np.arange(40) % 2
    return data.from_arrays(np.load("points.npy"), labels, test=0.2, val=0)
"""


@pytest.fixture
def done(toml, monkeypatch, capsys):
    """Path of the configuration of a finished run; training again is an error."""
    assert main(["run", toml]) == 0
    train(monkeypatch, AssertionError("trained"))
    capsys.readouterr()
    return toml


def record(folder=HERE):
    return json.loads(Path(folder, "run.json").read_text())


def rewrite(found, folder=HERE):
    Path(folder, "run.json").write_text(json.dumps(found))


def test_the_record_is_that_of_a_stored_run(toml, tmp_path):
    assert main(["run", toml]) == 0
    (stored,) = sweep(config.read(toml), store=tmp_path / "store", progress=False).runs
    found, wanted = record(), json.loads((stored.folder / "run.json").read_text())
    assert set(found) == set(wanted)
    for name in ("key", "tables", "curves", "asked", "data"):
        assert found[name] == wanted[name]
    assert found["curves"] == json.loads(json.dumps(curves_of(History.load(HERE))))
    assert found["environment"]["versions"]["topofl"] == topofl.__version__
    assert found["seconds"] > 0
    assert found["megabytes"] > 1


def test_the_same_run_is_skipped_and_nothing_changes(done, capsys):
    before = contents(HERE)
    assert main(["run", done, *SKIP]) == 0
    assert capsys.readouterr() == (f"{HERE} is finished; nothing was done\n", "")
    same = ["--set", "saving.every=3", "--set", "run.progress=false", "--set", "compute.device=cpu"]
    assert main(["run", done, *SKIP, *same]) == 0
    assert main(["run", f"{HERE}/config.toml", *SKIP, "--out", HERE]) == 0
    assert contents(HERE) == before
    assert "not allowed with argument" in fails(capsys, 2, "run", done, *SKIP, "--force")


def test_a_run_that_is_not_there_is_trained(toml):
    assert main(["run", toml, *SKIP]) == 0
    assert History.load(HERE).n_rounds == 4


def test_other_settings_are_refused_before_training(done, capsys):
    before = contents(HERE)
    line = fails(
        capsys, 2, "run", done, *SKIP, "--set", "algorithm.lr=0.1", "--set", "run.rounds=9"
    )
    assert line == (
        f"topofl: error: {HERE} holds another finished run: algorithm.lr was 0.5, is 0.1; "
        "run.rounds was 4, is 9; choose another folder with --out, or replace the run with "
        "--force instead of --skip-done"
    )
    assert "topology.name was 'dcliques', is 'ring'" in fails(
        capsys, 2, "run", done, *SKIP, "--set", "topology=ring"
    )
    chosen = record()["tables"]["compute"]["executor"]
    other = {"batched": "looped", "looped": "batched"}[chosen]
    assert f"compute.executor was 'auto', is '{other}'" in fails(
        capsys, 2, "run", done, *SKIP, "--set", f"compute.executor={other}"
    )
    assert main(["run", done, *SKIP, "--set", f"compute.executor={chosen}"]) == 0
    assert contents(HERE) == before


def test_many_differences_are_counted(done, capsys):
    more = ["algorithm=dsgt,lr=0.3", "topology=ring", "data.n=12", "run.seed=8", "data.seed=7"]
    line = fails(capsys, 2, "run", done, *SKIP, *(word for one in more for word in ("--set", one)))
    assert "more differences; choose another" in line


def test_other_data_are_refused(toml, capsys, tmp_path):
    (tmp_path / "own_points.py").write_text(POINTS)
    np.save(tmp_path / "points.npy", np.arange(160.0).reshape(40, 4))
    words = ["run", toml, "--set", "data=own_points:points,n=4", "--set", "topology=ring"]
    assert main(words) == 0
    assert main([*words, *SKIP]) == 0
    np.save(tmp_path / "points.npy", np.arange(160.0).reshape(40, 4) + 1)
    line = fails(capsys, 2, *words, *SKIP)
    assert f"{HERE} holds another finished run: the contents of the data files are others;" in line


def test_other_versions_are_refused(done, capsys, monkeypatch):
    monkeypatch.setattr("topofl.runs.identity.__version__", "99")
    line = fails(capsys, 2, "run", done, *SKIP)
    assert f"another finished run: the version of topofl was {record_version()}, is 99;" in line


def record_version():
    return record()["environment"]["versions"]["topofl"]


def test_runs_of_earlier_versions_are_compared_by_settings(done, capsys):
    Path(HERE, "run.json").unlink()
    before = contents(HERE)
    assert main(["run", done, *SKIP]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{HERE} is finished; nothing was done\n"
    assert captured.err == (
        f"topofl: note: {HERE} has no run.json, so only its settings are compared, not data and "
        "versions\n"
    )
    line = fails(capsys, 2, "run", done, *SKIP, "--set", "algorithm.lr=0.1")
    assert "another finished run: algorithm.lr was 0.5, is 0.1;" in line
    assert contents(HERE) == before
    Path(HERE, "config.toml").unlink()
    assert "it has neither run.json nor config.toml" in fails(capsys, 2, "run", done, *SKIP)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"key": "01', "{}", '{"key": "a", "tables": {"a": 1}}']
)
def test_a_damaged_record_is_refused_and_kept(done, capsys, text):
    Path(HERE, "run.json").write_text(text)
    for words in (["run", done, *SKIP], ["run", done, "--force"]):
        line = fails(capsys, 2, *words)
        assert f"{HERE}/run.json" in line
        assert "remove it, or move it elsewhere; its run is then compared by config.toml" in line
    line = fails(capsys, 2, "resume", HERE, "--set", "run.rounds=6")
    assert "remove it, or move it elsewhere" in line
    assert Path(HERE, "run.json").read_text() == text
    Path(HERE, "run.json").unlink()
    assert main(["run", done, *SKIP]) == 0


def kill_before(monkeypatch, name):
    """Let the process end, without any further line of code, where a run is finished."""

    def killed(*_):
        raise SystemExit("killed")

    monkeypatch.setattr(module_of_run, name, killed)


def test_killed_before_the_record_has_its_name_it_is_completed(toml, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        kill_before(patch, "commit_record")
        with pytest.raises(SystemExit):
            main(["run", toml])
    assert not Path(HERE, "run.json").exists()
    assert Path(HERE, PARTIAL_RECORD).exists()
    train(monkeypatch, AssertionError("trained"))
    assert main(["run", toml, *SKIP]) == 0
    assert not Path(HERE, PARTIAL_RECORD).exists()
    assert record()["key"] == record_of_fresh_run(toml, monkeypatch)["key"]
    assert fails(capsys, 2, "run", toml, *SKIP, "--set", "run.seed=9").count("run.seed was 3")


def record_of_fresh_run(toml, monkeypatch):
    monkeypatch.undo()
    monkeypatch.chdir(Path(toml).parent)
    assert main(["run", toml, "--out", "fresh"]) == 0
    return record("fresh")


def test_killed_before_the_history_is_saved_it_is_not_finished(toml, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(History, "save", lambda *_: (_ for _ in ()).throw(SystemExit("killed")))
        with pytest.raises(SystemExit):
            main(["run", toml])
    assert Path(HERE, PARTIAL_RECORD).exists()
    assert "holds a run that is not finished (round 4)" in fails(capsys, 2, "run", toml, *SKIP)
    assert main(["resume", HERE]) == 0
    assert record()["curves"]["round"] == [0, 2, 4]
    assert main(["run", toml, *SKIP]) == 0


def test_killed_while_a_longer_run_is_saved_the_record_is_that_of_the_history(
    toml, monkeypatch, capsys
):
    longer = ["--set", "run.rounds=6"]
    assert main(["run", toml]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(History, "save", lambda *_: (_ for _ in ()).throw(SystemExit("killed")))
        with pytest.raises(SystemExit):
            main(["resume", HERE, *longer])
    assert History.load(HERE).n_rounds == 4
    assert main(["run", toml, *SKIP]) == 0
    assert "run.rounds was 4, is 6" in fails(capsys, 2, "run", toml, *SKIP, *longer)
    with monkeypatch.context() as patch:
        kill_before(patch, "write_config")
        with pytest.raises(SystemExit):
            main(["resume", HERE, *longer])
    assert main(["resume", HERE, *longer]) == 0


def test_a_longer_run_has_the_record_of_one_that_was_never_stopped(toml, capsys):
    assert main(["run", toml]) == 0
    longer = ["--set", "run.rounds=6"]
    assert main(["resume", HERE, *longer]) == 0
    assert main(["run", toml, *SKIP, *longer]) == 0
    assert "run.rounds was 6, is 4" in fails(capsys, 2, "run", toml, *SKIP)
    assert main(["run", toml, "--out", "whole", *longer]) == 0
    for name in ("key", "tables", "curves", "asked", "data"):
        assert record()[name] == record("whole")[name]


def test_an_interrupted_run_has_a_record_once_it_is_resumed(toml, monkeypatch):
    mix = Mixing.mix

    def interrupted(self, weights, values, t, *arguments):
        if t == 1:
            signal.raise_signal(signal.SIGINT)
        mix(self, weights, values, t, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Mixing, "mix", interrupted)
        assert main(["run", toml, *SKIP]) == 1
    assert not Path(HERE, "run.json").exists()
    assert main(["resume", HERE]) == 0
    assert main(["run", toml, *SKIP]) == 0


def test_a_run_that_replaces_another_replaces_its_record(toml):
    assert main(["run", toml]) == 0
    assert main(["run", toml, "--force", "--set", "run.seed=9"]) == 0
    assert record()["tables"]["run"]["seed"] == 9
    assert main(["run", toml, *SKIP, "--set", "run.seed=9"]) == 0


def test_a_run_whose_history_was_removed_is_trained_again(toml):
    assert main(["run", toml]) == 0
    shutil.rmtree(f"{HERE}/history")
    shutil.rmtree(f"{HERE}/checkpoints")
    Path(HERE, "checkpoints").mkdir()
    assert main(["run", toml, *SKIP, "--set", "run.seed=9"]) == 0
    assert record()["tables"]["run"]["seed"] == 9


def test_a_record_of_somebody_else_stays(toml, capsys, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("{}")
    assert "mine holds files other than a run" in fails(capsys, 2, "run", toml, "--out", "mine")
    assert (tmp_path / "mine" / "run.json").read_text() == "{}"


def test_a_second_writer_waits_or_finds_the_run(toml, capsys, monkeypatch):
    with locked(Path(HERE)):
        assert "no other run is using" in fails(capsys, 1, "run", toml, *SKIP)
    assert main(["run", toml, "--out", "other"]) == 0
    claimed = module_of_run.claimed

    def late(out):  # another command finishes the run before this one has the lock
        shutil.copytree("other", out, dirs_exist_ok=True)
        return claimed(out)

    monkeypatch.setattr(module_of_run, "claimed", late)
    train(monkeypatch, AssertionError("trained"))
    capsys.readouterr()
    assert main(["run", toml, *SKIP]) == 0
    assert capsys.readouterr().out == f"{HERE} is finished; nothing was done\n"


def test_a_run_is_trained_into_a_store_once(toml, capsys, monkeypatch, tmp_path):
    assert main(["run", toml, "--store", "store"]) == 0
    (run,) = RunStore(tmp_path / "store").runs()
    assert f"saved in store/{run.key}\n" in capsys.readouterr().out
    assert not Path("runs").exists()
    monkeypatch.setattr(work, "_train", lambda *_: pytest.fail("trained"))
    assert main(["run", toml, "--store", "store", *SKIP]) == 0
    assert f"found in store/{run.key}; nothing was done\n" in capsys.readouterr().out
    assert len(sweep(config.read(toml), store="store", progress=False).runs) == 1
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["run", toml, "--store", "store", "--set", "run.seed=9"]) == 0
    assert len(RunStore(tmp_path / "store").runs()) == 2
    np.testing.assert_array_equal(
        config.load(toml).run(progress=False)["loss"], run.history["loss"]
    )


def test_runs_of_a_store_that_fail_or_are_interrupted_say_so(toml, capsys, monkeypatch):
    words = ["run", toml, "--store", "store"]
    line = fails(capsys, 1, *words, "--set", "algorithm.lr=1e38")
    assert "the run failed: DivergenceError: the loss of node 0" in line
    assert "topofl runs store --failed --traceback" in line
    with monkeypatch.context() as patch:
        train(patch, KeyboardInterrupt())
        assert main(words) == 1
    assert capsys.readouterr().err == ("topofl: interrupted; the same command continues the run\n")
    assert main(words) == 0


@pytest.mark.parametrize(
    "more", [["--out", "a"], ["--force"], ["--log", "a.jsonl"], ["--tensorboard", "a"]]
)
def test_options_for_folders_are_refused_with_a_store(toml, capsys, more):
    line = fails(capsys, 2, "run", toml, "--store", "store", *more)
    assert f"`--store` must be given without `{more[0]}`; leave one out" in line


@pytest.mark.slow
def test_two_commands_train_one_run_into_a_store(toml, tmp_path):
    command = [sys.executable, "-m", "topofl", "run", toml, "--store", "store"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate()[0].splitlines()[-1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    (run,) = RunStore(tmp_path / "store").runs()
    assert all(f"in store/{run.key}" in line for line in told)
    np.testing.assert_array_equal(
        config.load(toml).run(progress=False)["loss"], run.history["loss"]
    )


def test_folders_of_runs_are_listed_and_compared(toml, capsys):
    for lr in ("0.1", "0.5"):
        assert main(["run", toml, "--out", f"r/lr{lr}", "--set", f"algorithm.lr={lr}"]) == 0
    capsys.readouterr()
    assert main(["runs", "r", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["key"], row["algorithm.lr"]) for row in rows] == [("lr0.1", 0.1), ("lr0.5", 0.5)]
    assert rows[0]["accuracy"] == pytest.approx(History.load("r/lr0.1")["accuracy"][-1].mean())
    for option in ("--failed", "--remove"):
        line = fails(capsys, 2, "runs", "r", option)
        assert f"`{option}` must be given for a store, r holds folders of topofl run" in line
    assert main(["compare", "r/lr0.1", "r/lr0.5", "--group-by", "algorithm.lr"]) == 0
