"""Commands on runs that evaluate nothing."""

import json
import sys

import pytest

from tests.rows.commands import TEXT
from topofl import History, config
from topofl.runs import log_uniform, search

CODE = """
import numpy as np
from topofl import data

def untested():
    rng = np.random.default_rng(0)
    return data.from_arrays(rng.normal(size=(80, 5)), rng.integers(0, 3, 80))
"""

WHY = "evaluated nothing, since it ran with Evaluation(on=()): run it again with a set"


@pytest.fixture
def toml(tmp_path, monkeypatch):
    """Return a configuration of data without a test set, without scores."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    (tmp_path / "own.py").write_text(CODE)
    path = tmp_path / "small.toml"
    path.write_text(TEXT.replace('"digits"', '"own:untested"') + "on = []\n")
    return str(path)


def test_runs_are_saved_continued_and_listed(toml, shell, fails):
    line = fails("run small.toml --set evaluation.on=test")
    assert "'test' is empty" in line
    assert "Evaluation(on=())" in line
    printed = shell("run small.toml --out r/a")
    assert printed.out.count(WHY) == 1
    assert printed.err == ""
    assert config.read("r/a/config.toml")["evaluation"]["on"] == []
    shell("resume --trust r/a --set run.rounds=6")
    assert History.load("r/a")["round"].tolist() == [0, 2, 4, 6]
    printed = shell("run small.toml --out r/b --json")
    assert json.loads(printed.out)[0]["final accuracy"] is None
    assert printed.err.count(WHY) == 1
    printed = shell("runs r")
    assert "accuracy" not in printed.out
    assert "2 of 2 runs evaluated nothing: evaluation.on is []" in printed.err
    shell("run small.toml --dry-run --set evaluation.on=[]")


def test_stores_and_comparisons(toml, shell, fails):
    shell("run small.toml --store store")
    shell("run small.toml --out a")
    assert shell("compare a").out.count(WHY) == 1
    assert WHY in fails("compare a --plot a.png")
    assert "evaluate nothing" in fails("compare store --group-by seed")
    assert "1 of 1 run evaluated nothing" in shell("runs store").err


def test_sweeps(toml, shell, fails):
    sweep = "sweep small.toml --grid algorithm.lr=0.1,0.5 --store store --no-progress"
    shell(f"{sweep} --dry-run")
    assert "accuracy" not in shell(sweep).out
    line = fails(f"{sweep} --search 2")
    assert "its first trial evaluates nothing; run it with a set, as in evaluation.on=test" in line


@pytest.mark.parametrize(
    ("assigned", "column", "error"),
    [
        ([], "accuracy", "`column` must be a score of the runs, got 'accuracy', but its first"),
        (["test"], "acuracy", "`column` must be one of accuracy, loss, got 'acuracy'"),
    ],
)
def test_a_search_without_its_score_is_refused_before_it_trains(tmp_path, assigned, column, error):
    pytest.importorskip("optuna")
    base = {"data": {"name": "digits", "n": 4, "seed": 0}, "topology": "ring"}
    base |= {"algorithm": "dsgd", "run": {"rounds": 1}, "evaluation": {"on": assigned}}
    space = {"algorithm.lr": log_uniform(0.1, 1)}
    for made in (base, lambda point: {**base, "algorithm": f"dsgd,lr={point['algorithm.lr']}"}):
        with pytest.raises(ValueError, match=error):
            search(made, space, trials=1, store=tmp_path / "store", column=column)
    assert not (tmp_path / "store").exists()
