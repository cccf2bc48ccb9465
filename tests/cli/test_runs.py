"""``topofl sweep`` and ``topofl runs``, on stores and on folders of runs."""

import json
import shutil
from pathlib import Path

import pytest

import topofl
from tests.rows.commands import BASE
from topofl import algorithms, data, models, topologies
from topofl.history import History
from topofl.runs import RunStore


@pytest.fixture(autouse=True)
def base(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("base.toml").write_text(BASE)


def test_a_sweep_is_listed_filtered_and_removed(shell, rows):
    grid = "--grid topology=ring,star algorithm.lr=0.1,1e38 --set run.rounds=4"
    out, err = shell(f"sweep base.toml {grid} --store store --json", 1)
    assert len(json.loads(out)) == 4
    assert "2 of 4 runs failed, the others are stored; the first failed with" in err
    assert "topofl runs store --failed" in err
    (row,) = rows("runs store --where topology.name=ring")
    assert row["topology.name"] == "ring"
    assert "Traceback" in shell("runs store --failed --traceback").out
    assert "Traceback" in rows("runs store --failed --traceback")[0]["traceback"]
    shell(f"runs store --where key={row['key']} --remove")
    (left,) = RunStore(Path("store")).runs()
    assert left.key != row["key"]


@pytest.mark.parametrize("place", ["prepare_fork", "import_module"])
def test_a_sweep_that_is_interrupted_before_its_first_run_says_how_it_goes_on(
    place, shell, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"topofl.cli.programs.{place}", interrupted)
    said = "topofl: interrupted while no run was in progress; start the same sweep again to go on\n"
    assert shell("sweep base.toml --seeds 2 --jobs 2", 1).err == said


def test_saved_histories_are_cited_and_are_not_listed(shell, fails):
    clients = data.iid(data.digits(), n=4, seed=0)
    for name, method in {"a": algorithms.dsgt(lr=0.1), "b": algorithms.extra(lr=0.1)}.items():
        topofl.run(
            method, model=models.logistic_regression(64), clients=clients,
            topology=topologies.ring(4), rounds=1, seed=0,
        ).save(f"saved/{name}")  # fmt: skip
    cited = shell("runs saved --bibtex").out
    assert cited == topofl.citations([History.load("saved/a"), History.load("saved/b")])
    assert "% extra" in cited
    assert "% extra" not in shell("runs saved/a --bibtex").out
    for line in ("runs saved", "runs saved/a --bibtex --where run.seed=0"):
        said = fails(line)
        assert "which holds what History.save wrote, without settings to list or select by" in said
        assert "compare by topofl compare saved/a, or cite by topofl runs saved" in said


def test_a_store_in_a_folder_of_runs_is_left_out_with_a_note(shell):
    shell("run base.toml --out all/one --set algorithm=dsgt,lr=0.1")
    shell("sweep base.toml --store all/sweeps")
    note = (
        "topofl: note: all/sweeps is a store of its own, whose runs are left out; see topofl runs "
        "all/sweeps\n"
    )
    for line in ("runs all", "runs all --bibtex"):
        assert shell(line).err == note
    assert shell("runs all/sweeps").err == shell("runs all/one").err == ""


def test_points_of_a_file_and_random_points(shell):
    Path("points.json").write_text('[{"algorithm.lr": 0.5}]')
    shell("sweep base.toml --points points.json --store s")
    shell("sweep base.toml --grid 'algorithm.lr=uniform(0.1,0.2)' --random 2 --store s --shard 1/2")
    rates = sorted(run.settings["algorithm.lr"] for run in RunStore(Path("s")).runs())
    assert len(rates) == 2
    assert 0.1 < rates[0] < 0.2
    assert rates[1] == 0.5


def test_notes_say_what_was_trained_and_what_is_best(shell):
    line = "sweep base.toml --grid algorithm.lr=0.00001,0.1 --store s --seeds 2"
    assert "note: 4 runs are stored in s; 4 of them were trained together\n" in shell(line).err
    assert "4 of 4 runs were stored already; nothing was trained" in shell(line).err
    assert "note: 1 run is stored in one\n" in shell("sweep base.toml --store one").err
    pytest.importorskip("optuna")
    assert "note: best: algorithm.lr=0.1, accuracy 0." in shell(f"{line} --search 4").err


def test_runs_are_listed_by_settings_with_short_names(shell):
    grid = "--grid topology=star,ring algorithm.lr=0.1,0.5,1e38 --seeds 2 --set run.rounds=4"
    shell(f"sweep base.toml {grid} --store s", 1)

    def listed(words=""):
        out, err = shell(f"runs s --json {words}")
        return json.loads(out), err

    found, err = listed()
    names = ("topology.name", "algorithm.lr", "run.seed")
    order = [tuple(row[name] for name in names) for row in found]
    assert order == [(a, b, c) for a in ("ring", "star") for b in (0.1, 0.5) for c in (0, 1)]
    assert "note: 4 failed, see --failed" in err
    failed, _ = listed("--failed")
    assert [row["algorithm.lr"] for row in failed] == [1e38] * 4
    assert not any("\n" in row["error"] for row in failed)
    short, _ = listed("--where topology=ring lr=0.5 --columns lr,topology")
    assert [(row["topology.name"], row["algorithm.lr"]) for row in short] == [("ring", 0.5)] * 2
    none, err = listed("--where topology.name=rng")
    assert none == []
    assert "no run has topology.name=rng, its values are ring, star; did you mean 'ring'?" in err


def test_folders_of_runs_are_listed(shell, rows, monkeypatch):
    for lr in ("0.1", "0.5"):
        shell(f"run base.toml --out r/lr{lr} --set algorithm.lr={lr}")
    found = rows("runs r")
    assert [(row["key"], row["algorithm.lr"]) for row in found] == [("lr0.1", 0.1), ("lr0.5", 0.5)]
    final = History.load("r/lr0.1")["accuracy"][-1].mean()
    assert found[0]["accuracy"] == pytest.approx(final)
    assert [row["key"] for row in rows("runs r/lr0.1")] == ["lr0.1"]
    monkeypatch.chdir("r/lr0.1")
    assert [row["key"] for row in rows("runs .")] == ["lr0.1"]
    shutil.rmtree("history")
    Path("run.json").unlink()
    assert [row["key"] for row in rows("runs .")] == ["lr0.1"]
    assert "1 not finished" in shell("runs .").out


@pytest.mark.filterwarnings("default")
def test_a_damaged_record_among_other_files_is_told_with_what_trains_the_run_again(shell, rows):
    shell("run base.toml --out one")
    Path("one/run.json").write_text("{")
    out, err = shell("runs . --json")
    assert json.loads(out) == []
    assert "move one/config.toml elsewhere, remove the folder one, and run" in err
    assert "--remove" not in err
    Path("one/config.toml").rename("config.toml")
    shutil.rmtree("one")
    shell("run config.toml --out one")
    assert [row["key"] for row in rows("runs .")] == ["one"]
