"""``--json``: stdout is one JSON list of objects, whatever a command does."""

import json

import pytest

from tests.cli.commands import TEXT, fails
from topofl.cli import main
from topofl.cli.app import make_parser
from topofl.cli.output import print_rows

WITHOUT_RESULTS = {"new", "completion", "explore"}

STUDY = """
data = { name = "digits", n = 8, seed = 0 }
algorithm = { name = "dsgd", lr = 0.5, batch_size = 8 }
run = { rounds = 2, seed = 0 }
study = { graphs = ["ring", "path"], seeds = [0] }
"""


@pytest.fixture
def rows(capsys):
    """Return a function that gives the rows that a command prints, and nothing else."""

    def printed(*words):
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert isinstance(found, list)
        assert all(isinstance(row, dict) for row in found)
        return found

    return printed


def test_every_command_with_results_has_json():
    verbs = make_parser()._subparsers._group_actions[0].choices
    having = {name for name, verb in verbs.items() if "--json" in verb._option_string_actions}
    assert having == set(verbs) - WITHOUT_RESULTS


def test_list(rows):
    found = {(row["kind"], row["name"]): row for row in rows("list")}
    assert found["topology", "ring"]["parameters"] == [{"name": "n"}]
    assert found["metric", "spectral gap"]["group"]
    assert {"name": "batch_size", "default": 128} in found["algorithm", "dsgd"]["parameters"]
    (need,) = [row for row in rows("list", "algorithm", "--needs") if row["name"] == "trimmed_mean"]
    assert need["needs"][0]["needs"] == "more than 2 * trim neighbors at each node"


def test_run_and_resume(rows, toml, capsys):
    (row,) = rows("run", toml, "--out", "a", "--progress")
    assert (row["run"], row["algorithm"]) == ("a", "dsgd")
    assert set(row["final accuracy"]) == {"mean", "low", "high"}
    assert rows("run", toml, "--out", "a", "--skip-done") == [row]
    assert rows("resume", "a") == [row]
    assert rows("compare", "a") == [row]
    (longer,) = rows("resume", "a", "--set", "run.rounds=6")
    assert longer["run"] == "a"
    assert main(["run", toml, "--out", "b", "--json"]) == 0
    assert "topofl: note: saved in b\n" in capsys.readouterr().err


def test_run_in_a_store_and_its_list(rows, toml):
    (row,) = rows("run", toml, "--store", "store")
    assert rows("run", toml, "--store", "store") == [row]
    (stored,) = rows("runs", "store")
    assert stored["key"] in row["run"]
    removed = rows("runs", "store", "--where", "algorithm.name=dsgd", "--remove")
    assert removed == [{"removed": stored["key"]}]
    assert rows("runs", "store") == []


def test_dry_runs(rows, toml):
    (need,) = rows("run", toml, "--dry-run")
    assert need["n"] == 10
    assert need["total"] >= need["parameters"] > 0
    assert need["seconds_per_round"] > 0
    (planned,) = rows("sweep", toml, "--grid", "topology=ring", "--dry-run")[:1]
    assert planned


def test_sweep_and_failures(rows, toml):
    assert len(rows("sweep", toml, "--grid", "topology=ring,star", "--store", "s")) == 2
    assert main(["sweep", toml, "--grid", "algorithm.lr=1e38", "--store", "s"]) == 1
    (failed,) = rows("runs", "s", "--failed", "--traceback")
    assert "Traceback" in failed["traceback"]


def test_spectral_and_graphs(rows, runs):
    assert [row["name"] for row in rows("spectral", "ring:8", "star:8")] == [
        "ring(n=8)",
        "star(n=8)",
    ]
    assert len(rows("graphs", "a", "--about", "structure")) == 4


def test_recommend(rows, capsys):
    found = rows("recommend", "--data", "digits", "--n", "12", "--max-degree", "3")
    assert len(found) > 1


def test_study(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    (planned,) = rows("study", "study.toml", "--dry-run")
    assert planned["runs"] == 2
    written = {row["written"] for row in rows("study", "study.toml")}
    assert "out/study/study/report.md" in written
    assert all((tmp_path / path).exists() for path in written)


def test_reproduce(rows, tmp_path):
    found = {row["name"]: row for row in rows("reproduce", "--list")}
    assert found["dcliques-fig05"]["reproduced"]
    assert not found["dcliques-fig02"]["reproduced"]
    figure = ["dcliques-fig05", "--scale", "smoke", "--out", str(tmp_path)]
    assert rows("reproduce", *figure, "--dry-run")[0]["figure"] == "dcliques-fig05"
    claims = rows("reproduce", *figure)
    assert {claim["verdict"] for claim in claims} == {"HOLDS"}
    assert {claim["figure"] for claim in claims} == {"dcliques-fig05"}


def test_errors_print_no_json(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(TEXT.replace("dsgd", "dgsd"))
    assert "did you mean 'dsgd'" in fails(capsys, 2, "run", "a.toml", "--json")


def test_numbers_that_json_lacks(capsys):
    inf, nan = float("inf"), float("nan")
    print_rows([{"a": inf, "b": -inf, "c": nan, "d": [nan, {"e": inf}]}])
    row = {"a": "inf", "b": "-inf", "c": None, "d": [None, {"e": "inf"}]}
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == [row]
