"""``topofl compare``, of runs and of groups of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topofl
from tests.full_disk import full_at
from tests.rows.commands import SIX
from topofl.cli.compare import _baseline
from topofl.history import History

GROUPS = f"compare {SIX} --group-by topology"


@pytest.fixture
def six(toml, shell):
    """Make the folders of runs with two topologies and three seeds."""
    for name in SIX.split():
        change = f"--set topology={name[:4]} --set run.seed={name[4]}"
        shell(f"run small.toml --out {name} {change}")
    return SIX.split()


def test_single_runs(shell, rows, runs, tmp_path):
    shell("compare a b --plot t.png")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert "rounds to 0.3" in shell("compare a b b/history --target 0.3 --csv t.csv").out
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
    (row,) = rows("compare a --target 1")
    assert row["rounds to 1"] is None
    assert set(row["final accuracy"]) == {"mean", "low", "high"}
    assert r"topology & run \\" in shell("""compare a b --columns 'topology,"run"' --latex""").out


def test_which_runs_were_attacked_and_timed_is_said(shell, toml):
    shell("run small.toml --out a")
    shell("run small.toml --out b --set 'attackers=sign_flip,nodes=[1, 2]'")
    shell(
        "run small.toml --out c --set algorithm=topofl.algorithms:timed --set "
        "'algorithm.algorithm=(dsgd,lr=0.1)' --set algorithm.clock.compute=2"
    )
    drawn = "compare a b c --target 0.01 --csv t.csv --plot t.png --x megabytes"
    assert "has no simulated seconds: run algorithms.timed" in shell(drawn).out
    frame = pd.read_csv("t.csv")
    assert frame["attack"].tolist() == ["none", "2 attackers (sign_flip)", "none"]
    assert frame["simulated seconds to 0.01"].isna().tolist() == [True, True, False]
    assert frame["simulated seconds to 0.01"][2] == 2 * frame["rounds to 0.01"][2]
    shell("compare a --csv u.csv")
    assert not {"attack", "simulated seconds to 0.8"} & set(pd.read_csv("u.csv"))


@pytest.mark.parametrize("how", ["", " --group-by topology", " --group-by topology --kind pareto"])
def test_an_axis_of_seconds_needs_runs_that_have_them(shell, fails, toml, how):
    shell("run small.toml --out a")
    drawn = f"compare a --plot t.png --x seconds{how}"
    assert "`--x seconds` must come with --hardware" in fails(drawn)
    assert not Path("t.png").exists()
    shell(f"{drawn} --hardware 'Hardware(compute=0.1, latency=0.02, bandwidth=1.25e6)'")
    assert Path("t.png").exists()


def test_another_accuracy_and_where_there_is_more_to_see(shell, fails, toml):
    shell("run small.toml --out a --set evaluation.before_exchange=true")
    shell("run small.toml --out b")
    drawn = "compare a b --column accuracy_before_exchange --csv t.csv --plot t.png"
    assert "accuracy: accuracy_before_exchange" in shell(drawn).out
    frame, history = pd.read_csv("t.csv"), History.load("a/history")
    before = history["accuracy_before_exchange"]
    assert frame["final accuracy"][0] == pytest.approx(before[-1].mean())
    tenth = history.personal("accuracy_before_exchange").worst_tenth
    assert frame["worst tenth"][0] == pytest.approx(tenth)
    assert np.isnan(frame["final accuracy"][1])
    known = "accuracy, accuracy_before_exchange, loss, loss_before_exchange"
    assert f"`--column` must be one of {known}, got 'x'" in fails("compare a --column x")
    server = "fedavg,lr=0.1,epochs=1,fine_tune_epochs=1,participation=2"
    shell(f"run small.toml --out c --set algorithm={server}")
    printed = shell("compare c")
    assert "c were also evaluated after fine-tuning: topofl compare --column acc" in printed.err
    assert "matrices change over rounds" in printed.out


@pytest.mark.parametrize("how", ["", "--group-by algorithm"])
def test_a_plot_on_a_full_disk_names_its_file(fails, runs, how):
    with full_at(1000):
        line = fails(f"compare a b {how} --plot p.png", 1)
    assert line.endswith("File too large: 'p.png'")


def test_groups(shell, six, tmp_path):
    printed = shell(f"{GROUPS} --baseline ring --target 0.3 --csv t.csv --plot t.png").out
    assert "better than ring" in printed
    assert "note: ±: 95 % interval (Student's t), averaged over run.seed" in printed
    wanted = topofl.summarize(six, "topology", baseline="ring", target=0.3)
    assert Path("t.csv").read_text() == wanted.to_csv()
    assert Path("t.png").read_bytes().startswith(b"\x89PNG")
    for kind in ("band", "violin", "nodes", "pareto"):
        shell(f"{GROUPS} --plot {kind}.pdf --kind {kind}")
        assert (tmp_path / f"{kind}.pdf").read_bytes().startswith(b"%PDF")


def test_groups_at_equal_bytes(shell, six):
    printed = shell(f"{GROUPS} --baseline ring --equal megabytes --csv t.csv").out
    assert "note: compared at equal megabytes: " in printed
    wanted = topofl.summarize(six, "topology", baseline="ring", equal="megabytes")
    assert Path("t.csv").read_text() == wanted.to_csv()
    at_end = topofl.summarize(six, "topology", baseline="ring")
    assert wanted.to_csv() != at_end.to_csv()
    assert "not at equal bytes: " in str(at_end)
    assert "; `--equal` 'megabytes' compares there" in shell(f"{GROUPS} --baseline ring").out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("ring", "ring"),
        ("topology=ring, alpha=0.1", {"topology": "ring", "alpha": 0.1}),
        ("dcliques, clique_size=5", "dcliques, clique_size=5"),
    ],
)
def test_baselines(text, expected):
    assert _baseline(text) == expected


def test_columns_are_those_of_all_formats(shell, rows, six):
    how = f"{GROUPS} --columns 'std, accuracy,topology'"
    assert shell(f"{how} --csv t.csv").out.split()[:3] == ["std", "accuracy", "topology"]
    precise = ["accuracy std", "accuracy", "accuracy low", "accuracy high", "topology"]
    assert pd.read_csv("t.csv").columns.tolist() == precise
    assert list(rows(how)[0]) == precise
    assert r"std & accuracy & topology \\" in shell(f"{how} --latex").out
    assert shell(f"{how} --markdown").out.startswith("| std | accuracy | topology |")


def test_all_reduces_are_counted_where_groups_averaged(shell, runs):
    shell("run small.toml --out c --set topology=fully_connected")
    shell("compare a b c --csv t.csv")
    frame, history = pd.read_csv("t.csv"), History.load("c/history")
    reduced, sent = frame["MB per round by all-reduce"], frame["MB per round"]
    assert reduced[:2].tolist() == sent[:2].tolist()
    assert reduced[2] == pytest.approx(2 / history.node_loss.shape[1] * sent[2])
    shell("compare a b --csv u.csv")
    assert "MB per round by all-reduce" not in pd.read_csv("u.csv")


def test_what_runs_differ_in_is_advised_to_group_by(shell, fails, toml):
    shell("run small.toml --out a")
    shell("run small.toml --out b --set algorithm.lr=0.25")
    assert fails("compare a b --equal rounds").endswith("; add --group-by lr")
    assert "lr" in shell("compare a b --equal rounds --group-by lr").out
    assert fails("compare a --baseline ring").endswith("; add --group-by topology")
