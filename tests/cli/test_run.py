"""``topofl run``: what it saves, and that it can be repeated."""

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.rows.commands import FAILING, train
from topofl import config
from topofl.engine import RankError
from topofl.engine.saving import naming_checkpoints
from topofl.history import History


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ([], "dcliques(label_counts[10x10], clique_size=5,"),
        (
            [f"topology={FAILING.format('dcliques,clique_size=5,seed=2')}"],
            "link_failures(dcliques(",
        ),
    ],
)
def test_run_saves_and_can_be_repeated(shell, toml, tmp_path, changes, name):
    words = shlex.join(word for change in changes for word in ("--set", change))
    printed = shell(f"run small.toml --no-progress {words}")
    assert printed.err == ""
    assert "saved in runs/small" in printed.out
    folder = tmp_path / "runs" / "small"
    saved = ["checkpoints", "config.toml", "history", "run.json"]
    assert sorted(path.name for path in folder.iterdir()) == saved
    first = History.load(folder / "history")
    wanted = config.load(toml, changes).run(progress=False)
    np.testing.assert_array_equal(first["accuracy"], wanted["accuracy"])
    assert first.meta["topology"].startswith(name)
    shell("run runs/small/config.toml --out again")
    again = History.load("again/history")
    for name in ("accuracy", "loss"):
        np.testing.assert_array_equal(again[name], first[name])
    # all but what was asked for: what was left to be chosen, the first time
    assert first.meta["asked"] == {"executor": "auto", "chunk": "auto"}
    chosen = {name: first.meta[name] for name in ("executor", "chunk")}
    assert again.meta == first.meta | {"asked": chosen}
    assert (folder / "config.toml").read_text() == Path("again/config.toml").read_text()


def test_dry_run_keeps_nothing(shell, toml, tmp_path):
    text = shell("run small.toml --dry-run --out elsewhere").out
    assert text.startswith(config.load(toml).estimate().name)
    assert "as the D-Cliques paper counts" in text
    total = r"in all (less than a second|about \d+ s) for 4 rounds and 3 evaluations"
    assert re.fullmatch(total, text.splitlines()[-1])
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


def test_dry_run_and_run_tell_what_does_not_fit(shell, fails, toml, tmp_path, monkeypatch):
    for module in ("topofl.estimate", "topofl.engine.state"):
        monkeypatch.setattr(sys.modules[module], "free_memory", lambda device: 1)
    text = shell("run small.toml --dry-run").out
    assert "of 1 MiB free: DOES NOT FIT; torch alone take" in text
    assert "the run must fit into memory" in fails("run small.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


@pytest.mark.parametrize("place", ["runs/a b", "runs/a b/.topofl-next"])
def test_a_killed_rank_names_the_command_that_continues_the_run(fails, toml, monkeypatch, place):
    def fail(*_, **__):
        with naming_checkpoints(Path(place, "checkpoints")):
            raise RankError("rank 1 of 2 ended in round 4", (1,))

    monkeypatch.setattr("topofl.engine.saving.newest_round", lambda folder: 3)
    monkeypatch.setattr(config.Experiment, "run", fail)
    message = fails("run small.toml --out elsewhere", 1)
    assert "rank 1 of 2 ended in round 4; " in message
    assert "has one of round 3" in message
    assert message.endswith("from the command line: topofl resume 'runs/a b'")


def test_interruption_and_exhaustion(shell, fails, toml, monkeypatch):
    train(monkeypatch, KeyboardInterrupt())
    assert shell("run small.toml", 1).err == "topofl: interrupted\n"
    train(monkeypatch, MemoryError())
    assert fails("run small.toml", 1) == "topofl: error: MemoryError"
    train(monkeypatch, AssertionError("a bug"))
    with pytest.raises(AssertionError):
        shell("run small.toml")


def test_a_none_that_was_set_is_saved(shell, toml):
    method = "--set algorithm=fednova,lr=0.1,epochs=none,steps=3"
    shell(f"run small.toml --out a {method} --set topology=none --set attackers=none")
    shell("resume a --set run.rounds=6")
    shell("run a/config.toml --out b")
    one, other = History.load("a"), History.load("b")
    assert one.n_rounds == 6
    np.testing.assert_array_equal(one["accuracy"], other["accuracy"])


def test_a_run_is_logged_where_asked(shell, toml, tmp_path):
    shell("run small.toml --out r --log log.jsonl --tensorboard board")
    kinds = [json.loads(line)["kind"] for line in Path("log.jsonl").read_text().splitlines()]
    assert (kinds[0], kinds[-1]) == ("start", "end")
    assert kinds.count("round") == History.load("r").n_rounds
    assert list((tmp_path / "board").glob("events*"))


OWN_METHOD = """
from topofl import algorithms

def apply(models, state, round):
    if WHEN:
        raise ValueError("models drifted")  # line 6
    return state

def method(lr: float = 0.1):
    tried = algorithms.Phase(lambda models: {}, apply)
    return algorithms.chain("own", local=algorithms.sgd(lr), tried=tried)
"""


@pytest.mark.parametrize("place", ["", "--store store"])
@pytest.mark.parametrize("when", ["models.flat.is_meta", "not models.flat.is_meta"])
def test_errors_of_an_own_method_name_its_phase_and_line(
    fails, toml, tmp_path, monkeypatch, place, when
):
    text = OWN_METHOD.replace("WHEN", when)
    (tmp_path / "drifting.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    code = 1 if place and "not" in when else 2
    said = fails(f"run small.toml --set algorithm=drifting:method {place}", code)
    sys.modules.pop("drifting")
    assert "models drifted; raised in the phase 'tried' (line 6 of drifting.py)" in said
