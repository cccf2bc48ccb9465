"""``topofl run``."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.commands import FAILING, fails, train
from topofl import config
from topofl.cli import main
from topofl.engine import RankError
from topofl.engine.saving import naming_checkpoints
from topofl.history import History


def test_run_saves_and_can_be_repeated(capsys, toml, tmp_path):
    assert main(["run", toml, "--no-progress"]) == 0
    out = capsys.readouterr()
    assert out.err == ""
    assert "saved in runs/small" in out.out
    folder = tmp_path / "runs" / "small"
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoints",
        "config.toml",
        "history",
        "run.json",
    ]
    history = History.load(folder / "history")
    wanted = config.load(toml).run()
    np.testing.assert_array_equal(history["accuracy"], wanted["accuracy"])
    assert main(["run", str(folder / "config.toml"), "--out", "again"]) == 0
    again = History.load("again/history")
    np.testing.assert_array_equal(again["accuracy"], history["accuracy"])
    np.testing.assert_array_equal(again["loss"], history["loss"])
    assert_repeated(again, history)
    assert (folder / "config.toml").read_text() == (tmp_path / "again" / "config.toml").read_text()


def assert_repeated(again, first):
    """Compare all but what was asked for: what was left to be chosen, the first time."""
    assert first.meta["asked"] == {"executor": "auto", "chunk": "auto"}
    assert again.meta == first.meta | {
        "asked": {name: first.meta[name] for name in ("executor", "chunk")}
    }


def test_run_on_a_graph_of_a_graph_can_be_repeated(toml, tmp_path):
    assert (
        main(
            [
                "run",
                toml,
                "--set",
                f"topology={FAILING.format('dcliques,clique_size=5,seed=2')}",
                "--out",
                "a",
            ]
        )
        == 0
    )
    assert main(["run", "a/config.toml", "--out", "b"]) == 0
    first, again = History.load("a/history"), History.load("b/history")
    np.testing.assert_array_equal(first["loss"], again["loss"])
    assert_repeated(again, first)
    assert first.meta["topology"].startswith(
        "link_failures(dcliques(label_counts[10x10], clique_size=5,"
    )
    assert (tmp_path / "a" / "config.toml").read_text() == (
        tmp_path / "b" / "config.toml"
    ).read_text()


def test_run_with_assignments(toml, tmp_path):
    changes = ["--set", "run.rounds=1", "--set", "topology=ring", "--set", "algorithm.momentum=0.5"]
    assert main(["run", toml, *changes, "--out", "other"]) == 0
    history = History.load("other/history")
    assert history.n_rounds == 1
    assert history.meta["topology"] == "ring(n=10)"
    assert history.meta["settings"]["local"]["momentum"] == 0.5
    assert "momentum = 0.5" in (tmp_path / "other" / "config.toml").read_text()


def test_run_notes_seeds_that_were_not_given(capsys, toml):
    assert main(["run", toml, "--set", "data=digits,n=10", "--set", "run.rounds=1"]) == 0
    assert (
        capsys.readouterr().err.splitlines()[0] == "topofl: note: [data] no `seed` given; 0 is used"
    )


def test_run_shows_progress_where_asked(capsys, toml):
    assert main(["run", toml, "--progress"]) == 0
    assert "dsgd on dcliques" in capsys.readouterr().err


def test_dry_run_keeps_nothing(capsys, toml, tmp_path):
    assert main(["run", toml, "--dry-run", "--out", "elsewhere"]) == 0
    text, wanted = capsys.readouterr().out, config.load(toml).estimate()
    assert text.startswith(wanted.name)
    assert all(
        word in text
        for word in ("at once, at most", "GiB free", "as the D-Cliques paper counts", "by a probe")
    )
    assert re.search(
        r"^in all (less than a second|about \d+ s) for 4 rounds and 3 evaluations$",
        text.splitlines()[-1],
    )
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


def test_dry_run_and_run_tell_what_does_not_fit(capsys, toml, tmp_path, monkeypatch):
    for module in ("topofl.estimate", "topofl.engine.state"):
        monkeypatch.setattr(sys.modules[module], "free_memory", lambda device: 1)
    assert main(["run", toml, "--dry-run"]) == 0
    assert "of 1 MiB free: DOES NOT FIT; torch alone take" in capsys.readouterr().out
    assert "the run must fit into memory" in fails(capsys, 2, "run", toml)
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("run.round=3", "small.toml: [run] `run` takes rounds"),
        ("saving.every=0", "small.toml: [saving] `every` must be at least 1, got 0"),
        ("saving.resume=true", "small.toml: [saving] `Saving` takes every, models, not"),
        ("run.rounds=0", "small.toml: [run] `rounds` must be at least 1, got 0"),
        ("topolgy=ring", "not 'topolgy'; did you mean 'topology'?"),
        ("topology=rng", "small.toml: [topology] there is no topology 'rng'; did you mean 'ring'?"),
        ("algorithm.lrr=3", "small.toml: [algorithm] `dsgd` takes"),
        ("algorithm.lr=quick", "small.toml: [algorithm] `lr` must be such as 0.1 or cosine"),
        (
            "data=mnist,n=10,root=no/such/folder",
            "small.toml: [data] `root` must hold the four files",
        ),
        ("model=gn_lenet", "[model] `in_shape[1]` must be at least 15, got 8"),
        ("rounds", "`--set` must be table.key=value"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_wrong_configurations(capsys, toml, tmp_path, change, message, dry):
    assert message in fails(capsys, 2, "run", toml, "--set", change, *dry)
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


def test_files_that_are_no_configuration(capsys, toml, tmp_path):
    (tmp_path / "bad.toml").write_text("[run\nrounds = 1")
    assert "bad.toml: not TOML: Expected ']'" in fails(capsys, 2, "run", "bad.toml")
    assert "`path` must be a TOML file, got none.toml, which does not exist" in fails(
        capsys, 2, "run", "none.toml"
    )
    for folder in (str(tmp_path), "."):
        assert "`path` must be a TOML file, got" in (line := fails(capsys, 2, "run", folder))
        assert "which is a folder; pass a file such as run.toml" in line


def test_divergence(capsys, toml, tmp_path):
    line = fails(capsys, 1, "run", toml, "--set", "algorithm.lr=1e38")
    for word in ("loss of node", "round", "lr=1e+38"):
        assert word in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("place", ["runs/a b", "runs/a b/.topofl-next"])
def test_a_killed_rank_names_the_command_that_continues_the_run(capsys, toml, monkeypatch, place):
    def fail(*_, **__):
        with naming_checkpoints(Path(place, "checkpoints")):
            raise RankError("rank 1 of 2 ended in round 4", (1,))

    monkeypatch.setattr("topofl.engine.saving.newest_round", lambda folder: 3)
    monkeypatch.setattr(config.Experiment, "run", fail)
    message = fails(capsys, 1, "run", toml, "--out", "elsewhere")
    assert "rank 1 of 2 ended in round 4; " in message
    assert "has one of round 3" in message
    assert message.endswith("from the command line: topofl resume 'runs/a b'")


def test_interruption_and_exhaustion(capsys, toml, monkeypatch):
    train(monkeypatch, KeyboardInterrupt())
    assert main(["run", toml]) == 1
    assert capsys.readouterr().err == "topofl: interrupted\n"
    train(monkeypatch, MemoryError())
    assert fails(capsys, 1, "run", toml) == "topofl: error: MemoryError"
    train(monkeypatch, AssertionError("a bug"))
    with pytest.raises(AssertionError):
        main(["run", toml])


def test_a_none_that_was_set_is_saved(capsys, toml, tmp_path):
    words = ["--set", "algorithm=fednova,lr=0.1,epochs=none,steps=3", "--set", "topology=none"]
    assert main(["run", toml, "--out", "a", *words, "--set", "attackers=none"]) == 0
    assert main(["resume", "a", "--set", "run.rounds=6"]) == 0
    assert main(["run", "a/config.toml", "--out", "b"]) == 0
    one, other = History.load("a"), History.load("b")
    assert one.n_rounds == 6
    np.testing.assert_array_equal(one["accuracy"], other["accuracy"])


def test_a_run_is_logged_where_asked(toml, tmp_path, capsys):
    log, board = tmp_path / "log.jsonl", tmp_path / "board"
    assert (
        main(
            [
                "run",
                toml,
                "--out",
                str(tmp_path / "r"),
                "--log",
                str(log),
                "--tensorboard",
                str(board),
            ]
        )
        == 0
    )
    kinds = [json.loads(line)["kind"] for line in log.read_text().splitlines()]
    assert kinds[0] == "start"
    assert kinds[-1] == "end"
    assert kinds.count("round") == History.load(tmp_path / "r").n_rounds
    assert list(board.glob("events*"))
    capsys.readouterr()


@pytest.mark.slow
def test_output_off_a_terminal_has_neither_bars_nor_colors(toml, tmp_path):
    sweep = ["sweep", toml, "--grid", "topology=ring,star", "--store", "store"]
    for words in (["run", toml], sweep, ["resume", "runs/small", "--set", "run.rounds=6"]):
        done = subprocess.run(
            [sys.executable, "-m", "topofl", *words],
            capture_output=True,
            check=True,
            cwd=tmp_path,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"},
        )
        assert not {b"\r", b"\x1b"} & {bytes([c]) for c in done.stdout + done.stderr}
        lines = done.stderr.decode().splitlines()
        assert all(line.startswith("topofl: note: ") for line in lines)
