"""The command line, verb by verb."""

import errno
import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse

import topofl
from topofl import _graph_files, algorithms, cli, config, models, topologies
from topofl._graph_files import read_graph
from topofl._spec import catalogue
from topofl._support import arrays as array_files
from topofl.cli import main
from topofl.cli.folders import NEXT
from topofl.cli.parser import KINDS_OF_NAMES
from topofl.engine import DivergenceError
from topofl.engine.rounds import EngineRound
from topofl.engine.store.checkpoint import rounds_in
from topofl.engine.store.lock import NAME as LOCK
from topofl.engine.store.lock import locked
from topofl.history import History

TEXT = """
topology = "dcliques,clique_size=5,inter=ring,seed=2"

[data]
name = "digits"
n = 10
seed = 1

[algorithm]
name = "dsgd"
lr = 0.5
batch_size = 8

[run]
rounds = 4
seed = 3

[evaluation]
every = 2
"""


@pytest.fixture
def toml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return str(path)


def fails(capsys, code, *argv):
    """Run a command that must fail; return its one line on stderr."""
    capsys.readouterr()
    assert main(argv) == code
    captured = capsys.readouterr()
    *notes, last = captured.err.splitlines()
    assert all(note.startswith("topofl: note: ") for note in notes)
    assert last.startswith("topofl: error: ")
    assert captured.out == ""
    return last


def train(monkeypatch, error):
    """Let training raise an error."""

    def run(self, **options):
        raise error

    monkeypatch.setattr(config.Experiment, "run", run)


def test_version_and_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "topofl", "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"topofl {topofl.__version__}\n", "")


def test_exit_code_of_the_process(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "topofl", "spectral", "rng:5"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "topofl: error: rng:5: there is no topology 'rng'; did you mean 'ring'?\n"


def test_output_may_be_cut_off(tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m topofl spectral ring:5 | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    "verb", [[], ["list"], ["spectral"], ["run"], ["resume"], ["compare"], ["reproduce"]]
)
def test_help(capsys, verb):
    with pytest.raises(SystemExit) as exit_:
        main([*verb, "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert "exit codes" in text if not verb else f"topofl {verb[0]}" in text.split("examples:")[1]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "arguments are required: COMMAND"),
        (["spectrl"], "got 'spectrl'; did you mean 'spectral'?"),
        (["spectral"], "arguments are required: SPEC"),
        (["spectral", "ring:5", "--cvs", "x"], "unrecognized arguments: --cvs"),
        (["spectral", "ring:5", "--json", "--markdown"], "not allowed with argument"),
        (["list", "topologie"], "got 'topologie'; did you mean 'topology'?"),
        (["compare", "x", "--target", "most"], "invalid float value: 'most'"),
    ],
)
def test_wrong_usage(capsys, argv, message):
    line = fails(capsys, 2, *argv)
    assert message in line
    assert "--help)" in line


def test_list(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    networks = [name for name in models.__all__ if name != "with_group_norm"]
    for name in [
        *topologies.__all__,
        *algorithms.__all__,
        *networks,
        "shards",
        "digits",
        "metropolis_hastings",
    ]:
        assert f"  {name}(" in text
    assert "with_group_norm" not in text
    assert "  ring(n)\n      Return the cycle" in text
    assert "  lazy(" not in text


def test_list_of_one_kind(capsys):
    assert main(["list", "algorithm"]) == 0
    text = capsys.readouterr().out
    assert "dsgd(lr, *, batch_size=128, momentum=0.0, local_steps=1)" in text
    assert "ring" not in text.split()
    assert ", head='head', fine_tune_epochs=None)" in text  # as a configuration says it
    assert "Part(" not in text


def test_spectral(capsys, tmp_path):
    path = tmp_path / "graphs.csv"
    assert main(["spectral", "ring:16", "dcliques:20,inter=ring,seed=0", "--csv", str(path)]) == 0
    captured = capsys.readouterr()
    assert "0.05075" in captured.out
    note = (
        "topofl: note: dcliques:20,inter=ring,seed=0: no data given; one class per node is used\n"
    )
    assert captured.err == note
    frame = pd.read_csv(path)
    assert frame["nodes"].tolist() == [16, 20]
    assert frame["spectral gap"][0] == pytest.approx(1 - (1 + 2 * np.cos(np.pi / 8)) / 3)


FAILING = "link_failures,base=({}),fail=0.1,recover=0.5,seed=0"


def test_spectral_of_a_graph_of_a_graph(capsys):
    assert main(["spectral", "ring:12", FAILING.format("ring:12"), "--json"]) == 0
    captured = capsys.readouterr()
    whole, failing = json.loads(captured.out)
    assert captured.err == ""
    assert failing["name"] == "link_failures(ring(n=12), fail=0.1, recover=0.5, seed=0)"
    assert failing["nodes"] == 12
    assert 0 < failing["edges"] < whole["edges"] == 12


def test_spectral_of_a_graph_of_a_graph_with_data(capsys):
    specs = ["ring:20", FAILING.format("dcliques:20,seed=0")]
    assert main(["spectral", *specs, "--data", "digits", "--json"]) == 0
    assert "label_counts[20x10]" in json.loads(capsys.readouterr().out)[1]["name"]


def test_spectral_notes_a_seed_of_its_own(capsys):
    assert main(["spectral", "random_regular:10,k=3"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "topofl: note: random_regular:10,k=3: no `seed` given; 0 is used\n"
    assert topologies.random_regular(10, 3, seed=0).name in captured.out


def test_spectral_in_other_formats(capsys):
    assert main(["spectral", "one_peer_exponential:8", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["nodes"] == 8
    assert row["algebraic connectivity"] is None
    assert row["C measured"] == "inf"
    assert main(["spectral", "ring:8", "--markdown"]) == 0
    assert "| name | nodes |" in capsys.readouterr().out


def test_spectral_with_data(capsys):
    assert (
        main(
            [
                "spectral",
                "ring:20",
                "dcliques:20,seed=0",
                "--data",
                "digits",
                "--seed",
                "4",
                "--json",
            ]
        )
        == 0
    )
    captured = capsys.readouterr()
    ring, cliques = json.loads(captured.out)
    assert captured.err == ""
    assert "label_counts[20x10]" in cliques["name"]
    assert cliques["neighborhood heterogeneity"] < ring["neighborhood heterogeneity"]
    assert ring["mean clique skew"] is None


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["rng:5"], "rng:5: there is no topology 'rng'; did you mean 'ring'?"),
        (
            ["ring:5", "torus:9,row=3"],
            "torus:9,row=3: `torus` takes n, rows, not 'row'; did you mean 'rows'?",
        ),
        (["ring"], "ring: `ring` needs `n`"),
        (
            [FAILING.format("rng:5")],
            "seed=0: `base`: there is no topology 'rng'; did you mean 'ring'?",
        ),
        (
            [FAILING.format("torus:9,row=3")],
            "`base`: `torus` takes n, rows, not 'row'; did you mean 'rows'?",
        ),
        (
            ["participation,base=(ring:5"],
            "'participation,base=(ring:5' must close its brackets, ')' is missing",
        ),
        (
            ["ring:5", FAILING.format("ring:6"), "--data", "digits"],
            "must have the same number of nodes",
        ),
        (["ring:x"], "Python finds no module ring; "),
        (["ring:x"], "for that of topofl, put a number after the colon, as in ring:100"),
        (
            ["ring:"],
            "'ring:' must have a number or a function after its colon: ring:100 or mymodule:wheel",
        ),
        (
            ["ring:5", "ring:6", "--data", "digits"],
            "must have the same number of nodes, as ring:100, got [5, 6]",
        ),
        (["dcliques", "--data", "digits"], "got none"),
        (["ring:5", "--data", "digits", "--per-node", "0"], "`per_node` must be at least 1, got 0"),
        (["ring:5", "--data", "no/such/folder"], "`root` must hold the four files"),
        (["ring:5", "--csv", "no/such/folder/x.csv"], "No such file or directory"),
    ],
)
def test_spectral_mistakes(capsys, argv, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, 2, "spectral", *argv)


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


def test_a_finished_run_is_replaced_only_by_force(capsys, toml, tmp_path):
    assert main(["run", toml, "--set", "run.rounds=1"]) == 0
    (tmp_path / "runs" / "small" / "notes.txt").write_text("mine")
    for where in ([], ["--out", "runs/small"]):
        line = fails(capsys, 2, "run", toml, *where)
        assert (
            "runs/small holds a finished run; choose another folder with --out, replace it with "
            "--force, or" in line
        )
    assert History.load("runs/small").n_rounds == 1
    assert main(["run", toml, "--force"]) == 0
    assert History.load("runs/small/history").n_rounds == 4
    assert (tmp_path / "runs" / "small" / "notes.txt").read_text() == "mine"
    (tmp_path / "runs" / "small" / "history" / "figure.pdf").write_text("mine, too")
    for verb in (["run", toml, "--force"], ["resume", "runs/small", "--set", "run.rounds=9"]):
        assert "history must hold a history and nothing else" in fails(capsys, 2, *verb)
    assert (tmp_path / "runs" / "small" / "history" / "figure.pdf").exists()


def test_what_is_done_is_skipped_where_asked(capsys, toml, tmp_path, monkeypatch):
    assert main(["run", toml, "--skip-done"]) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    train(monkeypatch, AssertionError("trained"))
    capsys.readouterr()
    assert main(["run", toml, "--skip-done"]) == 0
    assert capsys.readouterr() == ("runs/small is finished; nothing was done\n", "")
    assert (
        main(["run", toml, "--skip-done", "--set", "algorithm.lr=0.1", "--set", "run.rounds=9"])
        == 0
    )
    told = (
        "topofl: note: the finished run in runs/small has other settings: "
        "algorithm.lr, run.rounds\n"
    )
    assert capsys.readouterr().err == told
    assert {path: path.read_bytes() for path in before} == before
    assert "not allowed with argument" in fails(capsys, 2, "run", toml, "--skip-done", "--force")


def test_dry_run_keeps_nothing(capsys, toml, tmp_path):
    assert main(["run", toml, "--dry-run", "--out", "elsewhere"]) == 0
    text, wanted = capsys.readouterr().out, config.load(toml).estimate()
    assert text.startswith(wanted.name)
    assert all(
        word in text
        for word in ("at once, at most", "GiB free", "as the D-Cliques paper counts", "by a probe")
    )
    assert text.splitlines()[-1].startswith("in all about 0:00:0")
    assert text.endswith(" h for 4 rounds and 3 evaluations\n")
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


def test_dry_run_and_run_tell_what_does_not_fit(capsys, toml, tmp_path, monkeypatch):
    for module in ("topofl.estimate.predict", "topofl.engine.state"):
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


def test_results_that_cannot_be_saved_are_refused_before_training(
    capsys, toml, tmp_path, monkeypatch
):
    train(monkeypatch, AssertionError("trained"))
    line = fails(capsys, 1, "run", toml, "--out", "small.toml/results")
    assert "cannot write to small.toml/results" in line


def test_interruption_and_exhaustion(capsys, toml, monkeypatch):
    train(monkeypatch, KeyboardInterrupt())
    assert main(["run", toml]) == 1
    assert capsys.readouterr().err == "topofl: interrupted\n"
    train(monkeypatch, MemoryError())
    assert fails(capsys, 1, "run", toml) == "topofl: error: MemoryError"
    train(monkeypatch, AssertionError("a bug"))
    with pytest.raises(AssertionError):
        main(["run", toml])


@pytest.fixture
def runs(toml):
    assert main(["run", toml, "--out", "a"]) == 0
    assert main(["run", toml, "--out", "b", "--set", "algorithm=local_only,lr=0.5"]) == 0
    return ["a", "b"]


def test_folders_and_files_of_others_are_left_alone(capsys, toml, tmp_path):
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "chapter1.tex").write_text("years of work")
    assert "thesis holds files other than a run" in fails(capsys, 2, "run", toml, "--out", "thesis")
    assert [file.name for file in thesis.iterdir()] == ["chapter1.tex"]
    assert main(["run", toml, "--out", "a"]) == 0
    saved = (tmp_path / "a" / "config.toml").read_text()
    assert "would be overwritten" in fails(
        capsys, 2, "run", "a/config.toml", "--out", "a", "--set", "run.rounds=1"
    )
    assert (tmp_path / "a" / "config.toml").read_text() == saved


def stop_in_step(monkeypatch, step):
    """Let a Ctrl-C arrive while a step is taken."""
    take, steps = EngineRound.train, []

    def interrupted(self, models, how, own, **words):
        steps.append(self.t)
        if len(steps) == step:
            signal.raise_signal(signal.SIGINT)
        return take(self, models, how, own, **words)

    monkeypatch.setattr(EngineRound, "train", interrupted)


def test_interrupted_and_resumed_is_as_if_nothing_had_happened(capsys, toml, tmp_path, monkeypatch):
    assert main(["run", toml, "--out", "whole"]) == 0
    with monkeypatch.context() as patch:
        stop_in_step(patch, 3)
        capsys.readouterr()
        assert main(["run", toml, "--out", "a run"]) == 1
    line = "topofl: interrupted after round 3 of 4; resume with: topofl resume 'a run'\n"
    assert capsys.readouterr().err == line
    folder = tmp_path / "a run"
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "config.toml"]
    assert config.load(folder / "config.toml").options["seed"] == 3
    assert "is not finished (round 3); continue it with topofl resume" in fails(
        capsys, 2, "run", toml, "--out", "a run"
    )
    for verb in ("graphs", "compare"):
        assert "is not finished (round 3); continue it with topofl resume" in fails(
            capsys, 2, verb, "a run"
        )
    assert main(["resume", "a run"]) == 0
    assert "saved in a run" in capsys.readouterr().out
    whole, resumed = History.load("whole"), History.load("a run")
    for name in ("accuracy", "loss", "train_loss", "round"):
        np.testing.assert_array_equal(whole[name], resumed[name])
    assert whole.meta == resumed.meta
    assert (tmp_path / "whole" / "config.toml").read_text() == (folder / "config.toml").read_text()


def test_a_finished_run_says_so_and_takes_more_rounds(capsys, toml, tmp_path):
    assert main(["run", toml, "--out", "a", "--checkpoint-every", "1"]) == 0
    kept = ["state-00000004.json", "state-00000004.pt"]
    assert sorted(path.name for path in (tmp_path / "a" / "checkpoints").iterdir()) == kept
    capsys.readouterr()
    assert main(["resume", "a"]) == 0
    assert capsys.readouterr().out.startswith(
        "a is finished: all 4 rounds are done; train more with --set"
    )
    before = (tmp_path / "a" / "config.toml").read_text()
    assert "[saving]\nevery = 1\n" in before
    assert "a is finished, so only" in fails(capsys, 2, "resume", "a", "--set", "algorithm.lr=0.1")
    assert "lr was 0.5, is 0.1" in fails(
        capsys, 2, "resume", "a", "--set", "algorithm.lr=0.1", "--set", "run.rounds=6"
    )
    assert (tmp_path / "a" / "config.toml").read_text() == before
    assert main(["resume", "a", "--set", "run.rounds=7"]) == 0
    assert main(["run", toml, "--out", "b", "--set", "run.rounds=7"]) == 0
    np.testing.assert_array_equal(History.load("a")["loss"], History.load("b")["loss"])
    assert config.load("a/config.toml").options["rounds"] == 7
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    assert "its checkpoints were removed" in fails(
        capsys, 2, "resume", "a", "--set", "run.rounds=9"
    )


def test_a_longer_run_that_is_interrupted_keeps_what_was_asked_for(toml, tmp_path, monkeypatch):
    assert main(["run", toml, "--out", "a"]) == 0
    with monkeypatch.context() as patch:
        stop_in_step(patch, 1)
        assert main(["resume", "a", "--set", "run.rounds=7"]) == 1
    assert History.load("a").n_rounds == 4
    assert main(["resume", "a"]) == 0
    assert History.load("a").n_rounds == 7


def test_stopped_before_the_first_checkpoint_it_starts_again(capsys, toml, tmp_path, monkeypatch):
    train(monkeypatch, KeyboardInterrupt())
    assert main(["run", toml]) == 1
    assert sorted(path.name for path in (tmp_path / "runs" / "small").iterdir()) == [
        "checkpoints",
        "config.toml",
    ]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(["resume", "runs/small"]) == 0
    assert (
        "runs/small has no checkpoint yet; it starts from the beginning" in capsys.readouterr().err
    )
    assert History.load("runs/small").n_rounds == 4


def test_resume_needs_a_run(capsys, toml, tmp_path):
    (tmp_path / "thesis").mkdir()
    for folder in ("thesis", "nowhere", toml):
        assert "holds no run to continue: config.toml is missing" in fails(
            capsys, 2, "resume", folder
        )


def test_a_run_replaces_an_older_one_with_its_checkpoints(toml, tmp_path):
    assert main(["run", toml, "--out", "a"]) == 0
    assert main(["run", toml, "--out", "a", "--force", "--set", "run.rounds=2"]) == 0
    assert [path.name for path in (tmp_path / "a" / "checkpoints").glob("*.pt")] == [
        "state-00000002.pt"
    ]


def test_compare(capsys, runs, tmp_path):
    capsys.readouterr()
    assert (
        main(
            ["compare", *runs, "b/history", "--target", "0.3", "--csv", "t.csv", "--plot", "t.png"]
        )
        == 0
    )
    assert "rounds to 0.3" in capsys.readouterr().out
    frame = pd.read_csv("t.csv")
    history = History.load("a/history")
    assert frame["run"].tolist() == ["a", "b", "b/history"]
    assert frame["algorithm"].tolist() == ["dsgd", "local_only", "local_only"]
    assert frame["rounds to 0.3"][0] == history.rounds_to(0.3)
    assert frame["spectral gap"][0] == pytest.approx(history.mixing(0).spectral_gap)
    assert np.isnan(frame["spectral gap"][1])
    accuracy = history["accuracy"][-1]
    row = frame.loc[0, ["final accuracy", "final accuracy low", "final accuracy high"]].tolist()
    assert row == pytest.approx([accuracy.mean(), accuracy.min(), accuracy.max()])
    assert frame["messages per round"].tolist() == [history["messages"].mean(), 0, 0]
    assert frame["MB per round"][0] == pytest.approx(history["bytes"].mean() / 1e6)
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_compare_says_which_runs_were_attacked_and_timed(capsys, toml, tmp_path):
    words = ["--set", "algorithm.algorithm=(dsgd,lr=0.1)", "--set", "algorithm.clock.compute=2"]
    assert main(["run", toml, "--out", "a"]) == 0
    assert main(["run", toml, "--out", "b", "--set", "attackers=sign_flip,nodes=[1, 2]"]) == 0
    assert (
        main(["run", toml, "--out", "c", "--set", "algorithm=topofl.algorithms:timed", *words]) == 0
    )
    capsys.readouterr()
    how = ["--target", "0.01", "--csv", "t.csv"]
    assert main(["compare", "a", "b", "c", *how, "--plot", "t.png", "--x", "megabytes"]) == 0
    frame = pd.read_csv("t.csv")
    assert frame["attack"].tolist() == ["none", "2 attackers (sign_flip)", "none"]
    assert frame["simulated seconds to 0.01"].isna().tolist() == [True, True, False]
    assert frame["simulated seconds to 0.01"][2] == 2 * frame["rounds to 0.01"][2]
    assert "has no simulated seconds: run algorithms.timed" in capsys.readouterr().out
    assert main(["compare", "a", "--csv", "u.csv"]) == 0
    assert not {"attack", "simulated seconds to 0.8"} & set(pd.read_csv("u.csv"))
    assert "error: a: `x` must be a recorded cost, got 'seconds', dsgd on" in fails(
        capsys, 2, "compare", "c", "a", "--plot", "t.png", "--x", "seconds"
    )


def test_a_none_that_was_set_is_saved(capsys, toml, tmp_path):
    words = ["--set", "algorithm=fednova,lr=0.1,epochs=none,steps=3", "--set", "topology=none"]
    assert main(["run", toml, "--out", "a", *words, "--set", "attackers=none"]) == 0
    assert main(["resume", "a", "--set", "run.rounds=6"]) == 0
    assert main(["run", "a/config.toml", "--out", "b"]) == 0
    one, other = History.load("a"), History.load("b")
    assert one.n_rounds == 6
    np.testing.assert_array_equal(one["accuracy"], other["accuracy"])


def test_all_kinds_of_names_are_listed():
    assert [*catalogue(), "metric"] == list(KINDS_OF_NAMES)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("compressor", "top_k(share)"),
        ("clock", "exponential(mean)"),
        ("attack", "sign_flip(nodes, scale=1.0)"),
        ("schedule", "cosine(lr, *, rounds, warmup=0, end=0.0)"),
        ("algorithm", "timed(algorithm, clock=None)"),
    ],
)
def test_what_arguments_may_be_is_listed(capsys, kind, line):
    assert main(["list", kind]) == 0
    assert f"  {line}\n" in capsys.readouterr().out


def test_compare_by_another_accuracy(capsys, toml, tmp_path):
    assert main(["run", toml, "--out", "a", "--set", "evaluation.before_exchange=true"]) == 0
    assert main(["run", toml, "--out", "b"]) == 0
    capsys.readouterr()
    assert (
        main(
            [
                "compare",
                "a",
                "b",
                "--column",
                "accuracy_before_exchange",
                "--csv",
                "t.csv",
                "--plot",
                "t.png",
            ]
        )
        == 0
    )
    told = capsys.readouterr().out
    assert "accuracy: accuracy_before_exchange" in told
    frame, history = pd.read_csv("t.csv"), History.load("a/history")
    assert frame["final accuracy"][0] == pytest.approx(
        history["accuracy_before_exchange"][-1].mean()
    )
    assert frame["worst tenth"][0] == pytest.approx(
        history.personal("accuracy_before_exchange").worst_tenth
    )
    assert np.isnan(frame["final accuracy"][1])
    assert (
        "`--column` must be one of accuracy, accuracy_before_exchange, loss, loss_before_exchange, "
        "got 'x'" in fails(capsys, 2, "compare", "a", "--column", "x")
    )


def test_compare_says_where_there_is_more_to_see(capsys, toml):
    server = "algorithm=fedavg,lr=0.1,epochs=1,fine_tune_epochs=1,participation=2"
    assert main(["run", toml, "--out", "a", "--set", server]) == 0
    capsys.readouterr()
    assert main(["compare", "a"]) == 0
    captured = capsys.readouterr()
    assert (
        "models of a were also evaluated after fine-tuning: topofl compare --column accuracy_fine_t"
        in captured.err
    )
    assert "matrices change over rounds" in captured.out


def test_compare_as_json(capsys, runs):
    capsys.readouterr()
    assert main(["compare", *runs, "--target", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["rounds to 1"] is None
    assert set(rows[0]["final accuracy"]) == {"mean", "low", "high"}


def test_compare_mistakes(capsys, runs, tmp_path):
    assert "none is not a complete history" in fails(capsys, 2, "compare", "a", "none")
    assert "must be above 0 and at most 1, got 80" in fails(
        capsys, 2, "compare", "a", "--target", "80"
    )
    assert main(["compare", "a", "--plot", "t.tpg"]) == 2
    assert "'tpg' is not supported" in capsys.readouterr().err
    meta = tmp_path / "a" / "history" / "meta.json"
    meta.write_text(meta.read_text().replace('"columns"', '"colums"'))
    assert "arrays.npz do not match (KeyError('columns'))" in fails(capsys, 2, "compare", "a")
    meta.write_text("{")
    assert "half-written or damaged" in fails(capsys, 2, "compare", "a")


@pytest.mark.parametrize("verb", ["list", "spectral", "run", "compare", "reproduce"])
def test_examples_of_the_help_can_be_parsed(capsys, verb):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    examples = capsys.readouterr().out.split("examples:")[1].strip().splitlines()
    assert examples
    for example in examples:
        program, *argv = shlex.split(example)
        assert (program, argv[0]) == ("topofl", verb)
        assert cli.parser.make_parser().parse_args(argv)


@pytest.mark.parametrize(
    "spec",
    [
        "neighborhood_swap:20,base=4,seed=0",
        "neighborhood_swap:20,base=(random_regular,k=4,seed=0),seed=0",
        "link_failures,base=(neighborhood_swap:20,base=4,seed=0),fail=.1,recover=.5,seed=0",
    ],
)
def test_a_base_may_be_a_degree_or_have_the_nodes_of_its_graph(capsys, spec):
    assert main(["spectral", spec, "--data", "digits", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["nodes"] == 20
    assert main(["spectral", spec, "--json"]) == 0
    capsys.readouterr()


def test_rounds_and_groups_of_columns_are_those_asked_for(capsys):
    found = []
    for rounds in ("10", "40"):
        assert (
            main(
                [
                    "spectral",
                    "random_matching:12,seed=0",
                    "--rounds",
                    rounds,
                    "--about",
                    "rounds",
                    "--json",
                ]
            )
            == 0
        )
        found += json.loads(capsys.readouterr().out)
    assert set(found[0]) == {"name", "B", "expected gap", "measured contraction"}
    assert found[0]["expected gap"] < found[1]["expected gap"]  # a mean over more rounds
    assert main(["spectral", "ring:5", "--rounds", "0"]) == 2
    assert "`rounds` must be at least 1" in capsys.readouterr().err
    assert main(["spectral", "ring:5", "--about", "path"]) == 2
    assert "did you mean 'paths'" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["no", "maybe", "0"])
def test_what_is_true_or_false_is_said_so(capsys, value):
    assert main(["spectral", f"exponential:8,directed={value}"]) == 2
    assert "`directed` must be true or false, got" in capsys.readouterr().err


def test_list_shows_which_arguments_need_their_names(capsys):
    assert main(["list", "topology"]) == 0
    shown = capsys.readouterr().out
    assert "random_regular(n, k, *, seed)" in shown
    assert "circulant(n, offsets=[1, 2], *, directed=False)" in shown


def test_reproduce_lists_figures(capsys):
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if line]
    assert {"dcliques", "dcliques-fig01", "dcliques-fig19", "dcliques-numbers"} < set(names)
    (missing,) = (line for line in lines if line.startswith("dfedpgp-appendix-accuracy"))
    assert "Tiny-ImageNet" in missing


def test_reproduce_dry_run_stores_nothing(capsys, tmp_path):
    out = tmp_path / "out"
    argv = ["dcliques-fig05", "--scale", "smoke", "--out", str(out), "--dry-run"]
    assert main(["reproduce", *argv]) == 0
    assert "dcliques-fig05     0      0" in capsys.readouterr().out
    assert not out.exists()


def test_reproduce_computes_draws_and_judges(capsys, tmp_path):
    assert (
        main(
            ["reproduce", "dcliques-fig05", "--scale", "smoke", "--out", str(tmp_path), "--report"]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.count("  HOLDS  ") == 7
    assert "FAILS" not in out
    kinds = {path.suffix for path in (tmp_path / "smoke").iterdir()}
    assert kinds == {".html", ".json", ".md", ".pdf", ".png"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "name a figure or a paper"),
        (["dcliques-fig05", "--scale", "huge"], "`scale` must be one of"),
        (["dclique"], "there is no figure 'dclique'; did you mean 'dcliques'"),
        (["dcliques-fig2"], "dcliques-fig02 is not reproduced: pseudocode of D-SGD"),
        (["dcliques-fig01"], "dcliques-fig01 needs the files of mnist"),
        (["dcliques-fig01", "--data", "nowhere"], "there is no folder nowhere"),
        (["dcliques-fig05", "--jobs", "0"], "`jobs` must be at least 1"),
        (["dcliques-fig05", "--device", "abacus"], "abacus"),
    ],
)
def test_reproduce_mistakes(capsys, argv, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, 2, "reproduce", *argv)
    assert list(tmp_path.iterdir()) == []


def test_reproduce_whose_runs_fail(capsys, tmp_path, monkeypatch):
    train(monkeypatch, DivergenceError("node 3 left the finite numbers"))
    argv = (
        "reproduce",
        "dcliques-fig09",
        "--scale",
        "smoke",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
    )
    assert main(argv) == 1
    captured = capsys.readouterr()
    assert "node 3 left the finite numbers" in captured.err.splitlines()[-1]
    assert "dcliques-fig09: failed: 3 of 3 runs failed" in captured.out


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


def test_a_run_that_replaces_another_takes_its_place_or_leaves_it(
    toml, tmp_path, capsys, monkeypatch
):
    out = str(tmp_path / "r")
    assert main(["run", toml, "--out", out]) == 0
    older = History.load(out)
    assert (
        main(["run", toml, "--set", "algorithm.lr=1e38", "--force", "--out", out]) == 1
    )  # it fails before its first checkpoint
    np.testing.assert_array_equal(History.load(out)["loss"], older["loss"])
    assert config.load(tmp_path / "r" / "config.toml").tables["algorithm"]["lr"] != 1e38
    apply = EngineRound.mix

    def interrupted(self, *arguments):
        if self.t == 1:
            signal.raise_signal(signal.SIGINT)
        apply(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(EngineRound, "mix", interrupted)
        assert main(["run", toml, "--set", "run.seed=9", "--force", "--out", out]) == 1
    assert main(["resume", out]) == 0
    capsys.readouterr()
    assert History.load(out).meta["seed"] == 9
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


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
for name in ("_run_rounds", "_evaluate_start"):
    setattr(sys.modules["topofl.engine.run"], name, \
deadly(getattr(sys.modules["topofl.engine.run"], name)))
for at in range(1, 1000):
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.system(f"cp -r old out{at}")
        os._exit(cli.main(["run", "small.toml", "--force", "--set", "run.seed=9", \
"--out", f"out{at}"]))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != -signal.SIGKILL:
        break
print(json.dumps([at, status]))
"""


def test_killed_at_any_moment_a_run_that_replaces_another_is_one_of_both(toml, tmp_path, capsys):
    Path(toml).write_text(
        TEXT.replace("rounds = 4", "rounds = 1") + '[compute]\nexecutor = "batched"\n'
    )
    assert main(["run", toml, "--out", "old"]) == 0
    assert main(["run", toml, "--out", "new", "--set", "run.seed=9"]) == 0
    wanted = {seed: History.load(name)["loss"] for seed, name in ((3, "old"), (9, "new"))}
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    last, status = json.loads(done.stdout)
    assert (status, last > 20) == (0, True), "or nothing was looked at"
    had = set()
    for at in range(1, last):
        folder = f"out{at}"
        saved = rounds_in(Path(folder, NEXT, "checkpoints"))
        if not saved and (Path(folder) / "history" / "meta.json").exists():
            had.add(History.load(folder).meta["seed"])
        assert main(["resume", folder]) == 0, at
        history = History.load(folder)
        had.add(("resumed", history.meta["seed"]))
        np.testing.assert_array_equal(history["loss"], wanted[history.meta["seed"]])
        assert config.load(f"{folder}/config.toml").options["seed"] == history.meta["seed"]
        assert len(rounds_in(Path(folder, "checkpoints"))) == 1
        assert {path.name for path in Path(folder).iterdir()} == {
            "config.toml",
            "checkpoints",
            "history",
        }
    assert had == {3, 9, ("resumed", 3), ("resumed", 9)}
    capsys.readouterr()


def contents(folder):
    """Return what is in all files of a folder, by their paths in it; locks apart."""
    found = {
        path.relative_to(folder): path for path in sorted(Path(folder).rglob("*")) if path.is_file()
    }
    return {name.as_posix(): path.read_bytes() for name, path in found.items() if path.name != LOCK}


@pytest.mark.parametrize("name", ["checkpoints", "history"])
@pytest.mark.parametrize("verb", ["run", "resume"])
def test_what_a_link_leads_to_is_not_replaced(capsys, toml, tmp_path, verb, name):
    assert main(["run", toml, "--out", "r"]) == 0
    if verb == "resume":
        assert main(["run", toml, "--out", "new", "--set", "run.seed=9"]) == 0
        shutil.rmtree(tmp_path / "new" / "history")
        (tmp_path / "new").rename(tmp_path / "r" / NEXT)
    (tmp_path / "r" / name).rename(tmp_path / "far")
    (tmp_path / "r" / name).symlink_to(tmp_path / "far")
    before = contents("r") | contents("far")
    words = (
        ["resume", "r"]
        if verb == "resume"
        else ["run", toml, "--out", "r", "--force", "--set", "run.seed=9"]
    )
    assert f"r/{name} must be a folder in r itself" in fails(capsys, 2, *words)
    assert contents("r") | contents("far") == before
    assert (tmp_path / "r" / name).is_symlink()


def test_what_cannot_be_moved_stays_and_the_finished_run_is_not_lost(
    capsys, toml, tmp_path, monkeypatch
):
    assert main(["run", toml, "--out", "r"]) == 0
    assert main(["run", toml, "--out", "whole", "--set", "run.seed=9"]) == 0
    before, replace = contents("r"), os.replace

    def crossing(source, target):
        if Path(target).parent.name == "checkpoints" and Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(source), None, str(target))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crossing)
        line = fails(capsys, 1, "run", toml, "--out", "r", "--force", "--set", "run.seed=9")
    assert "cross-device link" in line
    assert (
        "its history is saved in r/history-not-in-place; once nothing is in its way, topofl resume "
        "r puts" in line
    )
    assert contents("r/history-not-in-place") == contents("whole/history")
    assert contents(f"r/{NEXT}/replaced") == {
        name.removeprefix("history/"): text
        for name, text in before.items()
        if name.startswith("history/")
    }
    assert contents("r/checkpoints") == {
        name.removeprefix("checkpoints/"): text
        for name, text in before.items()
        if name.startswith("checkpoints/")
    }
    shutil.rmtree(tmp_path / "r" / "history-not-in-place")
    assert main(["resume", "r"]) == 0
    assert History.load("r").meta["seed"] == 9
    assert {path.name for path in Path("r").iterdir()} == {"config.toml", "checkpoints", "history"}


def foreign(folder, name):
    """Put a folder with somebody's work into another one."""
    (Path(folder) / name).mkdir(parents=True)
    (Path(folder) / name / "meta.json").write_text("{}")
    (Path(folder) / name / "thesis.tex").write_text("years of work")
    return contents(Path(folder) / name)


@pytest.mark.parametrize(
    "name", [".history.bak", ".history.older", ".history.topofl-older", ".next", ".lock"]
)
def test_what_others_keep_in_the_folder_of_a_run_stays(capsys, toml, tmp_path, name):
    assert main(["run", toml, "--out", "r"]) == 0
    before = foreign("r", name)
    for words in (
        ["run", toml, "--out", "r", "--force"],
        ["resume", "r", "--set", "run.rounds=6"],
        ["resume", "r"],
    ):
        assert main(words) == 0
        assert contents(f"r/{name}") == before
    assert History.load("r").n_rounds == 6


def test_a_folder_that_somebody_else_has_in_the_way_is_told(capsys, toml, tmp_path):
    assert main(["run", toml, "--out", "r"]) == 0
    foreign("r", NEXT)
    before = contents("r")
    line = fails(capsys, 2, "run", toml, "--out", "r", "--force")
    assert f"r/{NEXT} must be free, got files that topofl did not write" in line
    assert contents("r") == before
    assert main(["resume", "r", "--set", "run.rounds=5"]) == 0
    assert (
        f"{NEXT} is not removed: it holds files that topofl did not write"
        in capsys.readouterr().err
    )
    assert contents(f"r/{NEXT}") == {
        name.removeprefix(f"{NEXT}/"): text
        for name, text in before.items()
        if name.startswith(NEXT)
    }


@pytest.mark.parametrize("with_checkpoints", [False, True])
@pytest.mark.parametrize("more", [[], ["--set", "algorithm.lr=1e38"]])
def test_a_configuration_of_somebody_else_stays(capsys, toml, tmp_path, with_checkpoints, more):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "config.toml").write_text("mine = 1")
    if with_checkpoints:
        (tmp_path / "project" / "checkpoints").mkdir()
        (tmp_path / "project" / "checkpoints" / "best.pt").write_text("mine, too")
    before = contents("project")
    line = fails(capsys, 2, "run", toml, "--out", "project", *more)
    assert "project holds files other than a run" in line
    assert contents("project") == before


def test_an_interrupted_run_that_replaces_another_says_how_to_go_on(capsys, toml, monkeypatch):
    assert main(["run", toml, "--out", "r"]) == 0
    with monkeypatch.context() as patch:
        stop_in_step(patch, 2)
        capsys.readouterr()
        assert main(["run", toml, "--out", "r", "--force", "--set", "run.seed=9"]) == 1
    assert (
        capsys.readouterr().err
        == "topofl: interrupted after round 2 of 4; resume with: topofl resume r\n"
    )
    assert main(["resume", "r"]) == 0
    assert History.load("r").meta["seed"] == 9


@pytest.mark.filterwarnings("always:the checkpoint of round")
def test_an_interruption_of_which_nothing_could_be_saved_leaves_the_finished_run(
    capsys, toml, monkeypatch
):
    assert main(["run", toml, "--out", "r"]) == 0
    before = contents("r")

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["topofl.engine.store.schedule"], "save", full)
        stop_in_step(patch, 2)
        capsys.readouterr()
        assert main(["run", toml, "--out", "r", "--force", "--set", "run.seed=9"]) == 1
    assert capsys.readouterr().err.endswith(
        "after round 2 of 4, saved nothing; the finished run is unchanged\n"
    )
    assert contents("r") == before


@pytest.mark.parametrize("verb", ["run", "force", "resume"])
def test_a_folder_that_vanishes_while_a_run_lasts_can_be_gone_on_with(
    capsys, toml, tmp_path, monkeypatch, verb
):
    words = ["run", toml, "--out", "r", "--set", "run.rounds=6", "--checkpoint-every", "1"]
    words += ["--force"] * (verb == "force")
    if verb != "run":
        assert main(["run", toml, "--out", "r"]) == 0
    if verb == "resume":
        words = ["resume", "r", "--set", "run.rounds=6"]
    take, steps, first = EngineRound.train, [], 4 if verb == "resume" else 0

    def vanishing(self, models, how, own, **more):
        steps.append(self.t)
        if len(steps) == (1 if verb == "resume" else 3):
            shutil.rmtree(tmp_path / "r")
            signal.raise_signal(signal.SIGINT)
        return take(self, models, how, own, **more)

    with monkeypatch.context() as patch:
        patch.setattr(EngineRound, "train", vanishing)
        capsys.readouterr()
        assert main(words) == 1
    done = first + len(steps)
    assert (
        f"interrupted after round {done} of 6; resume with: topofl resume r\n"
        in capsys.readouterr().err
    )
    assert main(["resume", "r"]) == 0
    assert main(["run", toml, "--out", "whole", "--set", "run.rounds=6"]) == 0
    np.testing.assert_array_equal(History.load("r")["loss"], History.load("whole")["loss"])


@pytest.mark.parametrize(
    "words", [["compare", ""], ["resume", ""], ["run", "small.toml", "--out", ""], ["graphs", ""]]
)
def test_an_empty_text_is_no_path(capsys, toml, words):
    assert "must be a path, got empty text; the current folder is '.'" in fails(capsys, 2, *words)


def test_the_history_of_the_current_folder_is_not_replaced(capsys, toml, tmp_path, monkeypatch):
    assert main(["run", toml, "--out", "r"]) == 0
    before = contents("r")
    monkeypatch.chdir(tmp_path / "r" / "history")
    assert "must not be the current folder" in fails(
        capsys, 2, "run", toml, "--out", "..", "--force"
    )
    assert contents(tmp_path / "r") == before


def test_names_do_not_steer_a_terminal(toml, capsys):
    out = "a\x1b[2Jb"
    assert main(["run", toml, "--out", out]) == 0
    assert main(["resume", out]) == 0
    assert main(["run", toml, "--out", out, "--skip-done", "--set", "run.rounds=3"]) == 0
    assert main(["run", toml, "--out", out]) == 2
    assert main(["compare", out]) == 0
    captured = capsys.readouterr()
    assert r"saved in a\x1b[2Jb" in captured.out
    assert r"a\x1b[2Jb holds a finished run" in captured.err
    assert "\x1b" not in captured.out + captured.err


def test_two_commands_do_not_share_a_folder(toml, tmp_path, capsys, monkeypatch):
    train(monkeypatch, AssertionError("trained"))
    with locked(tmp_path / "a"):
        assert "`--out` must be a folder that no other run is using" in fails(
            capsys, 1, "run", toml, "--out", "a"
        )
        assert [path.name for path in (tmp_path / "a").iterdir()] == [".topofl.lock"]
        (tmp_path / "a" / "config.toml").write_text(Path(toml).read_text())
        assert "`DIR` must be a folder that no other run is using" in fails(
            capsys, 1, "resume", "a"
        )


def test_graphs_of_a_run_are_shown_round_by_round(capsys, toml):
    flips = ["--set", "data.flip_labels=[1]", "--set", "data.with_validation=0.2"]
    learned = "algorithm=dpfl,lr=0.1,epochs=1,budget=2"
    assert (
        main(
            [
                "run",
                toml,
                "--out",
                "a",
                *flips,
                "--set",
                learned,
                "--set",
                "topology=fully_connected",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert main(["graphs", "a", "--labels", "--html", "a.html", "--csv", "t.csv"]) == 0
    assert "neighbor label distance" in capsys.readouterr().out
    frame, history = pd.read_csv("t.csv"), History.load("a/history")
    clients = config.load("a/config.toml").clients
    assert frame["round"].tolist() == [0, 1, 2, 3]
    for t in range(4):
        assert frame["edges"][t] == history.mixing(t).support().n_edges
        distance = topofl.metrics.neighbor_label_distance(history.mixing(t).support(), clients)
        assert frame["neighbor label distance"][t] == pytest.approx(distance)
    page = Path("a.html").read_text()
    assert "1 mislabelled node last" in page
    assert (
        "topofl graphs a --labels --every 1 --about structure,averaging,data --html a.html" in page
    )
    assert main(["graphs", "a/history", "--every", "2", "--about", "structure", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["round"] for row in rows] == [0, 2, 3]
    assert "label separation" not in rows[0]


def test_graphs_that_are_not_there_are_told(capsys, runs):
    assert "has no mixing matrices, since its algorithm exchanges nothing" in fails(
        capsys, 2, "graphs", "b"
    )
    assert "`--labels` needs the configuration of the run" in fails(
        capsys, 2, "graphs", "a/history", "--labels"
    )
    assert "`--every` must be at least 1, got 0" in fails(capsys, 2, "graphs", "a", "--every", "0")
    assert "got 'colour'" in fails(capsys, 2, "graphs", "a", "--about", "colour")
    assert "is not a complete history" in fails(capsys, 2, "graphs", "none")


def weighted_ring(n):
    graph = nx.Graph()
    graph.add_weighted_edges_from((i, (i + 1) % n, (0.1, 0.4)[i % 2]) for i in range(n))
    return graph


WRITERS = {
    "ring.graphml": lambda path: nx.write_graphml(weighted_ring(10), path),
    "ring.gml": lambda path: nx.write_gml(weighted_ring(10), path),
    "ring.edgelist": lambda path: nx.write_weighted_edgelist(weighted_ring(10), path),
    "ring.npz": lambda path: sparse.save_npz(path, nx.to_scipy_sparse_array(weighted_ring(10))),
    "ring.npy": lambda path: np.save(path, nx.to_numpy_array(weighted_ring(10))),
}


@pytest.mark.filterwarnings("always:the edges of ring")
@pytest.mark.parametrize("name", WRITERS)
def test_graphs_of_files_mix_by_their_own_weights_where_asked(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    WRITERS[name](name)
    assert main(["spectral", f"{name}:10,own_weights=true", "--about", "averaging", "--json"]) == 0
    captured = capsys.readouterr()
    own = topofl.as_topology(weighted_ring(10), own_weights=True)
    assert json.loads(captured.out)[0]["spectral gap"] == pytest.approx(
        topofl.metrics.spectral_gap(own)
    )
    assert captured.err == ""
    assert main(["spectral", name, "--about", "averaging", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["spectral gap"] == pytest.approx(
        1 - (1 + 2 * np.cos(np.pi / 5)) / 3
    )
    assert captured.err.startswith(
        "topofl: note: the edges of ring carry weights from 0.1 to 0.4, which are ignored"
    )
    assert len(captured.err.splitlines()) == 1


@pytest.mark.filterwarnings("always:the edges of ring")
def test_a_run_on_the_graph_of_a_file_can_be_repeated_from_elsewhere(
    capsys, toml, tmp_path, monkeypatch
):
    WRITERS["ring.graphml"]("ring.graphml")
    assert main(["run", toml, "--set", "topology=ring.graphml,own_weights=true", "--out", "a"]) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["run", "../a/config.toml", "--out", "b"]) == 0
    first, again = History.load("../a"), History.load("b")
    np.testing.assert_array_equal(first["loss"], again["loss"])
    assert first.mixing(0).name == "own_weights(ring)"
    assert (
        main(["run", "../a/config.toml", "--set", "topology.own_weights=false", "--out", "c"]) == 0
    )
    assert "carry weights from 0.1 to 0.4" in capsys.readouterr().err
    assert History.load("c").mixing(0).name == "metropolis_hastings(ring)"


def test_files_with_directed_edges_and_labels(tmp_path):
    path = tmp_path / "directed.edgelist"
    path.write_text(
        "# who sends to whom, and how much of it is taken\n2 0 0.25\n\n0 1 0.5  # half\n"
    )
    graph = read_graph(path, directed=True, own_weights=True)
    assert graph.nodes == ()
    assert graph.adjacency.toarray().tolist() == [[0, 0.5, 0], [0, 0, 0], [0.25, 0, 0]]
    assert not read_graph(path).is_directed
    path.write_text("b a\na 01\n")
    assert read_graph(path).nodes == ("b", "a", "01")
    path.write_text("b a\na c 1 2\n")
    with pytest.raises(
        ValueError, match=r"cannot be read as .edgelist: line 2 must be 'source target' or"
    ):
        read_graph(path)


@pytest.mark.parametrize("name", WRITERS)
def test_files_that_are_no_graphs_are_refused_by_name(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert "No such file" in fails(capsys, 2, "spectral", name)
    Path(name).write_bytes(b"\x00<no graph> of any kind \xff")
    assert f"{name} cannot be read as {Path(name).suffix}" in fails(capsys, 2, "spectral", name)
    WRITERS[name](name)
    assert "takes n, directed, own_weights, drop_self_loops, not 'seed'" in fails(
        capsys, 2, "spectral", f"{name},seed=0"
    )
    assert "`n` must be left out or be 10" in fails(capsys, 2, "spectral", f"{name}:9")


def test_directed_is_said_of_edge_lists_only(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nx.write_graphml(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), "g.graphml")
    for said in ("false", "true"):
        text = fails(capsys, 2, "spectral", f"g.graphml,directed={said}")
        assert "`directed` must be left out for .graphml files" in text
    assert main(["spectral", "g.graphml"]) == 0


def test_two_weights_of_one_edge_in_a_file_are_refused(tmp_path):
    path = tmp_path / "g.edgelist"
    path.write_text("0 1 0.5\n# back\n1 0 0.1\n")
    with pytest.raises(
        ValueError, match=r"line 3 must give the edge 1 0 .* 0.5, got 0.1; pass directed=true"
    ):
        read_graph(path, own_weights=True)
    both = read_graph(path, own_weights=True, directed=True)
    assert both.adjacency.toarray().tolist() == [[0, 0.5], [0.1, 0]]
    path.write_text("0 1\n0 1 0.5\n")
    for directed, remedy in ((False, "pass directed=true"), (True, "remove one of the lines")):
        with pytest.raises(
            ValueError, match=f"line 2 must repeat the weight 1 of the edge .*, got 0.5; {remedy}"
        ):
            read_graph(path, directed=directed)
    path.write_text("0 1 0.5\n1 0 0.5\n0 1 0.50\n")
    assert read_graph(path).n_edges == 1


def test_whole_numbers_of_files_stand_in_order(tmp_path):
    (tmp_path / "g.edgelist").write_text("1 5\n2 3\n4 3\n")
    graph = read_graph(tmp_path / "g.edgelist")
    assert graph.nodes == (1, 2, 3, 4, 5)
    assert graph.out_neighbors(2).tolist() == [1, 3]
    for label in (1, 7):
        moved = nx.relabel_nodes(nx.Graph([(3, 1), (1, 2)]), {1: label})
        nx.write_graphml(moved, tmp_path / "g.graphml")
        nx.write_gml(moved, tmp_path / "g.gml")
        for name in ("g.graphml", "g.gml"):
            assert read_graph(tmp_path / name).nodes == tuple(sorted(moved))


@pytest.mark.parametrize("nodes", [(2, 0, 3, 1), (7, 3, 5, 1), ("b", "d", "a", "c")])
def test_graphs_come_back_from_files_with_their_nodes_in_order(tmp_path, nodes):
    graph = topofl.Topology(topofl.topologies.path(4).adjacency, nodes=nodes)
    nx.write_graphml(graph.to_networkx(), tmp_path / "g.graphml")
    nx.write_gml(graph.to_networkx(), tmp_path / "g.gml")
    for name in ("g.graphml", "g.gml"):
        back = read_graph(tmp_path / name)
        assert back.nodes == nodes
        assert (back.adjacency != graph.adjacency).nnz == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", WRITERS)
def test_pipes_are_no_graphs(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(name)
    assert "`path` must be a regular file" in fails(capsys, 2, "spectral", name)
    assert f"{name}, which is a named pipe" in fails(capsys, 2, "spectral", name)


FORMATS = ("csr", "csc", "coo", "bsr", "dia")


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("form", FORMATS)
def test_sparse_matrices_of_all_formats_are_read(tmp_path, form, kind):
    matrix = topofl.topologies.ring(6).to_scipy()
    matrix.data[:] = 0.25
    made = getattr(sparse, f"{form}_{kind}")(matrix)
    for compressed in (True, False):
        sparse.save_npz(tmp_path / "g.npz", made, compressed=compressed)
        assert (read_graph(tmp_path / "g.npz").adjacency != matrix).nnz == 0


def saved(path, form="csr", **changes):
    matrix = getattr(sparse, f"{form}_array")(topofl.topologies.ring(4).to_scipy())
    sparse.save_npz(path, matrix)
    with np.load(path) as parts:
        content = dict(parts) | changes
    np.savez_compressed(path, **{name: part for name, part in content.items() if part is not None})


@pytest.mark.parametrize(
    ("form", "changes", "match"),
    [
        (
            "csr",
            {"data": np.zeros(10**6)},
            r"`data` must hold at most 16 entries for .* \(4, 4\), got \(1000000,\)",
        ),
        ("csr", {"indices": np.zeros(10**6, np.int32)}, r"`indices` must have shape \(8,\)"),
        ("csc", {"indptr": np.zeros(10**6, np.int32)}, r"`indptr` must have shape \(5,\)"),
        ("coo", {"col": np.zeros(10**6, np.int32)}, r"`col` must have shape \(8,\)"),
        (
            "bsr",
            {"data": np.zeros((8, 0, 1))},
            r"`data` of a matrix in the format bsr cannot have shape",
        ),
        ("dia", {"data": np.zeros((4, 10**6))}, r"`data` must hold at most 28 entries"),
        ("csr", {"shape": np.array([10**12, 10**12])}, "`shape` must be at most 10,000,000"),
        ("csr", {"shape": np.zeros(10**6, np.int64)}, r"`shape` of shape \(2,\) is missing"),
        ("csr", {"format": np.array("x" * 10**6)}, r"`format` of shape \(\) is missing"),
        ("csr", {"format": np.array("os")}, "`format` must be one of .*, got 'os'"),
        ("csr", {"data": None}, "`data` is missing"),
        ("csr", {"data": np.array([{}], object)}, "dtype object are not those of numbers"),
    ],
)
def test_sparse_matrices_that_do_not_fit_their_shape_are_refused_before_they_are_unpacked(
    tmp_path, monkeypatch, form, changes, match
):
    path = tmp_path / "g.npz"
    saved(path, form, **changes)
    read = []
    unpack = array_files._read_member
    monkeypatch.setattr(
        array_files,
        "_read_member",
        lambda archive, info: read.append(info.filename) or unpack(archive, info),
    )
    with pytest.raises(ValueError, match=rf"g\.npz cannot be read as \.npz: .*{match}"):
        read_graph(path)
    assert set(read) <= {"format.npy", "shape.npy"}


def testarray_files_and_texts_that_claim_too_much_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "g.npy"
    header = (
        repr({"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}).ljust(117).encode()
        + b"\n"
    )
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header + bytes(80))
    with pytest.raises(ValueError, match="has 80 bytes of entries, not 8000000000000"):
        read_graph(path)
    np.save(path, np.array([[{}]]), allow_pickle=True)
    with pytest.raises(ValueError, match="dtype object are not those of numbers"):
        read_graph(path)
    monkeypatch.setattr(_graph_files, "LARGEST_TEXT", 50)
    for name in ("ring.graphml", "ring.gml", "ring.edgelist"):
        WRITERS[name](tmp_path / name)
        with pytest.raises(
            ValueError, match="bytes, above the limit of 50; save its matrix with scipy"
        ):
            read_graph(tmp_path / name)


@pytest.mark.filterwarnings("always:the edges of ring")
def test_a_graph_of_a_file_is_a_base(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    WRITERS["ring.gml"]("ring.gml")
    assert main(["spectral", "matchings,base=(ring.gml)", "--about", "structure", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["edges"] == 5
    assert captured.err.startswith(
        "topofl: note: the edges of ring carry weights from 0.1 to 0.4, which are ignored"
    )
    assert "`base` must not have its own mixing weights, ring does" in fails(
        capsys, 2, "spectral", "matchings,base=(ring.gml,own_weights=true)"
    )


@pytest.mark.parametrize("n", ["100000000", "1" + 400 * "0"])
def test_graphs_are_refused_by_their_size(capsys, n):
    assert "`n` must be at most 10,000,000" in fails(capsys, 2, "spectral", f"ring:{n}")


def test_matrices_with_crafted_indices_are_refused(capsys, runs, tmp_path):
    path = tmp_path / "a" / "history" / "arrays.npz"
    with np.load(path) as file:
        arrays = dict(file)
    for part, value in (("indices", 10**8), ("indices", -(10**8)), ("indptr", 10**8)):
        changed = arrays[f"matrix.0.{part}"].copy()
        changed[1] = value
        np.savez_compressed(path, **(arrays | {f"matrix.0.{part}": changed}))
        assert "must be a well-formed sparse matrix" in fails(capsys, 2, "compare", "a")
