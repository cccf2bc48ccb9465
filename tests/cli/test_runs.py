"""``topofl sweep`` and ``topofl runs``, on stores and on folders of runs."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.commands import fails
from topofl import cli
from topofl.cli import main
from topofl.runs import RunStore

BASE = """
topology = "ring"
algorithm = "dsgd,lr=0.1"
[data]
name = "digits"
n = 4
[run]
rounds = 1
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("base.toml").write_text(BASE)
    return "base.toml"


def test_a_sweep_is_listed_filtered_and_removed(base, capsys):
    grid = ["--grid", "topology=ring,star", "algorithm.lr=0.1,1e38", "--set", "run.rounds=4"]
    assert main(["sweep", base, *grid, "--store", "store", "--json"]) == 1
    out, err = capsys.readouterr()
    assert len(json.loads(out)) == 4
    assert "2 of 4 runs failed, the others are stored; the first failed with" in err
    assert "topofl runs store --failed" in err
    assert main(["runs", "store", "--where", "topology.name=ring", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["topology.name"] == "ring"
    assert main(["runs", "store", "--failed", "--traceback"]) == 0
    assert "Traceback" in capsys.readouterr().out
    assert main(["runs", "store", "--where", f"key={row['key']}", "--remove"]) == 0
    assert row["key"] not in [run.key for run in RunStore(Path("store")).runs()]
    assert len(RunStore(Path("store")).runs()) == 1


def test_points_of_a_file_and_random_points(base, capsys):
    Path("points.json").write_text('[{"algorithm.lr": 0.5}]')
    assert main(["sweep", base, "--points", "points.json", "--store", "s"]) == 0
    random = ["--grid", "algorithm.lr=uniform(0.1,0.2)", "--random", "2"]
    assert main(["sweep", base, *random, "--store", "s", "--shard", "1/2"]) == 0
    capsys.readouterr()
    rates = sorted(run.settings["algorithm.lr"] for run in RunStore(Path("s")).runs())
    assert len(rates) == 2
    assert 0.1 < rates[0] < 0.2
    assert rates[1] == 0.5


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--grid", "topology"], "`--grid` must be key=value,value"),
        (["--grid", "topolgy=ring"], "did you mean 'topology'?"),
        (["--points", "missing.json"], "missing.json"),
        (["--points", "base.toml"], "`--points` must be a JSON file"),
        (["--points", "base.toml", "--grid", "a=1"], "`--points` must be given without `--grid`"),
        (["--search", "3", "--shard", "1/2"], "`--search` must be given without `--shard`"),
        (["--search", "3"], "give `--grid`"),
        (["--random", "3"], "give `--grid`"),
        (["--grid", "algorithm.lr=uniform(0.1,1)"], "draw points by --random K or --search K"),
        (["--grid", "run.seed=1,2", "--seeds", "2"], "'run.seed'"),
        (["--vary", "rnu", "--seeds", "2"], "did you mean 'run'?"),
        (["--seeds", "0"], "`seeds` must be at least 1"),
        (["--shard", "3/2"], "`shard` must be between 1 and 2"),
        (["--slurm", "timeout"], "`--slurm` must be key=value"),
        (["--slurm", "a=1", "--dask", "tcp://a:1"], "must be given without `--dask`"),
        (["--dask", "nowhere"], "must be such as tcp://host:8786"),
        (["--store", "base.toml"], "must be a folder, got a file"),
    ],
)
def test_wrong_commands_say_what_is_wrong(base, capsys, words, match):
    assert main(["sweep", base, *words]) == 2
    assert match in capsys.readouterr().err
    assert not list(Path().glob("runs/sweeps/*/run.json"))


def test_wrong_commands_on_stores(base, capsys):
    assert main(["runs", "missing"]) == 2
    assert "missing must be a store of runs, but it does not exist" in capsys.readouterr().err
    assert main(["sweep", base, "--store", "store"]) == 0
    for words, match in (
        (["--remove"], "`--remove` must be given with --where or --failed"),
        (["--where", "topology.nme=ring"], "did you mean 'topology.name'?"),
        (["--where", "ring"], "`--where` must be key=value"),
        (["--columns", "algorithm.rl"], "did you mean 'algorithm.lr'?"),
    ):
        assert main(["runs", "store", *words]) == 2
        assert match in capsys.readouterr().err
    assert len(RunStore(Path("store")).runs()) == 1


def test_an_interruption_before_the_engine_is_there_does_not_import_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "topofl.engine")
    assert cli._how_to_continue(KeyboardInterrupt()) == "interrupted"
    assert "topofl.engine" not in sys.modules


def test_notes_say_what_was_trained_and_what_is_best(base, capsys):
    words = ["sweep", base, "--grid", "algorithm.lr=0.00001,0.1", "--store", "s"]
    assert main([*words, "--seeds", "2"]) == 0
    assert "note: 4 runs are stored in s\n" in capsys.readouterr().err
    assert main([*words, "--seeds", "2"]) == 0
    assert "4 of 4 runs were stored already; nothing was trained" in capsys.readouterr().err
    assert main(["sweep", base, "--store", "one"]) == 0
    assert "note: 1 run is stored in one\n" in capsys.readouterr().err


def test_a_search_says_which_point_is_best(base, capsys):
    pytest.importorskip("optuna")
    words = ["--grid", "algorithm.lr=0.00001,0.1", "--search", "4", "--seeds", "2"]
    assert main(["sweep", base, *words, "--store", "s"]) == 0
    assert "note: best: algorithm.lr=0.1, accuracy 0." in capsys.readouterr().err


def test_runs_are_listed_by_settings_with_short_names(base, capsys):
    grid = ["--grid", "topology=star,ring", "algorithm.lr=0.1,0.5,1e38", "--seeds", "2"]
    assert main(["sweep", base, *grid, "--set", "run.rounds=4", "--store", "s"]) == 1
    capsys.readouterr()

    def listed(*words):
        assert main(["runs", "s", "--json", *words]) == 0
        out, err = capsys.readouterr()
        return json.loads(out), err

    found, err = listed()
    names = ("topology.name", "algorithm.lr", "run.seed")
    order = [tuple(row[name] for name in names) for row in found]
    assert order == [(a, b, c) for a in ("ring", "star") for b in (0.1, 0.5) for c in (0, 1)]
    assert "note: 4 failed, see --failed" in err
    failed, _ = listed("--failed")
    assert [row["algorithm.lr"] for row in failed] == [1e38] * 4
    assert not any("\n" in row["error"] for row in failed)
    short, _ = listed("--where", "topology=ring", "lr=0.5", "--columns", "lr,topology")
    assert [(row["topology.name"], row["algorithm.lr"]) for row in short] == [("ring", 0.5)] * 2
    none, err = listed("--where", "topology.name=rng")
    assert none == []
    assert "no run has topology.name=rng, its values are ring, star; did you mean 'ring'?" in err
    assert main(["compare", "s"]) == 2
    assert "add --group-by" in capsys.readouterr().err
    assert main(["compare", "s", "--group-by", "topology", "--kind", "heat_map"]) == 2
    assert "`--kind` must come with --plot" in capsys.readouterr().err


@pytest.fixture
def folder(base, tmp_path, capsys):
    """Return a folder with a configuration and the folder of a run, which is the current one."""
    assert main(["run", base, "--out", "one"]) == 0
    capsys.readouterr()
    return tmp_path


def keys(capsys, place):
    assert main(["runs", str(place), "--json"]) == 0
    return [row["key"] for row in json.loads(capsys.readouterr().out)]


def test_the_folder_of_one_run_lists_that_run(folder, capsys, monkeypatch):
    assert keys(capsys, folder) == keys(capsys, "one") == ["one"]
    monkeypatch.chdir(folder / "one")
    assert keys(capsys, ".") == ["one"]
    shutil.rmtree("history")
    (folder / "one" / "run.json").unlink()
    assert keys(capsys, ".") == ["one"]
    main(["runs", "."])
    assert "1 not finished" in capsys.readouterr().out


@pytest.mark.filterwarnings("default")
def test_a_damaged_record_among_other_files_is_told_with_what_trains_the_run_again(folder, capsys):
    (folder / "one" / "run.json").write_text("{")
    assert main(["runs", ".", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == []
    assert "move one/config.toml elsewhere, remove the folder one, and run" in captured.err
    assert "--remove" not in captured.err
    (folder / "one" / "config.toml").rename(folder / "config.toml")
    shutil.rmtree("one")
    assert main(["run", "config.toml", "--out", "one"]) == 0
    capsys.readouterr()
    assert keys(capsys, ".") == ["one"]


def test_other_settings_of_a_finished_run_are_refused_before_they_are_checked(folder, capsys):
    line = fails(capsys, 2, "resume", "one", "--set", "data.n=9")
    assert "one is finished, so only `--set run.rounds=N` is allowed, got ['data.n=9']" in line


def test_a_folder_without_runs_is_refused(folder, capsys):
    shutil.rmtree("one")
    assert "must be a store of runs or an empty folder" in fails(capsys, 2, "runs", ".")
