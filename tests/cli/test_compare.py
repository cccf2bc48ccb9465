"""``topofl compare``."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.cli.commands import fails
from tests.full_disk import full_at
from topofl.cli import main
from topofl.history import History


def test_compare(capsys, runs, tmp_path):
    capsys.readouterr()
    assert main(["compare", *runs, "--plot", "t.png"]) == 0
    capsys.readouterr()
    assert main(["compare", *runs, "b/history", "--target", "0.3", "--csv", "t.csv"]) == 0
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


def test_the_same_run_twice_is_not_drawn(capsys, runs, tmp_path):
    twice = ["compare", *runs, "b/history", "--plot", "t.png"]
    assert "got the same one as 'b' and 'b/history'" in fails(capsys, 2, *twice)
    assert not (tmp_path / "t.png").exists()


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
    old = json.loads(meta.read_text())
    for name in ("columns", "format", "sha256"):  # older versions wrote no checksums
        del old[name]
    meta.write_text(json.dumps(old))
    assert "arrays.npz do not match (KeyError('columns'))" in fails(capsys, 2, "compare", "a")
    meta.write_text("{")
    assert "half-written or damaged" in fails(capsys, 2, "compare", "a")


@pytest.mark.parametrize("how", [[], ["--group-by", "algorithm"]])
def test_a_plot_on_a_full_disk_names_its_file(capsys, runs, how):
    with full_at(1000):
        line = fails(capsys, 1, "compare", *runs, *how, "--plot", "p.png")
    assert line.endswith("File too large: 'p.png'")
