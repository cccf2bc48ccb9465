"""``topofl compare``, of runs and of groups of them."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import topofl
from tests.cli.commands import fails
from tests.full_disk import full_at
from topofl.cli import main
from topofl.cli.compare import _baseline
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
    how = ["--column", "accuracy_before_exchange", "--csv", "t.csv", "--plot", "t.png"]
    assert main(["compare", "a", "b", *how]) == 0
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


@pytest.fixture
def six(toml, capsys):
    """Return the folders of runs with two topologies and three seeds."""
    folders = []
    for name in ("ring", "star"):
        for seed in (0, 1, 2):
            folders.append(f"{name}{seed}")
            words = ["--set", f"topology={name}", "--set", f"run.seed={seed}"]
            assert main(["run", toml, "--out", folders[-1], *words]) == 0
    capsys.readouterr()
    return folders


def test_groups(capsys, six, tmp_path):
    histories = [topofl.History.load(folder) for folder in six]
    finals = [history.last().mean() for history in histories]
    target = float(f"{sorted(finals)[2] - 1e-3:.4f}")  # reached by four runs at least
    how = ["--group-by", "topology", "--baseline", "ring", "--target", str(target)]
    assert main(["compare", *six, *how, "--csv", "t.csv", "--plot", "t.png"]) == 0
    printed = capsys.readouterr().out
    assert "better than ring" in printed
    assert "note: ±: 95 % interval (Student's t), averaged over run.seed" in printed
    frame = pd.read_csv("t.csv")
    assert frame["topology"].tolist() == ["ring", "star"]
    assert frame["runs"].tolist() == [3, 3]
    assert frame["accuracy"].tolist() == pytest.approx([sum(finals[:3]) / 3, sum(finals[3:]) / 3])
    tenth = [history.personal().worst_tenth for history in histories[:3]]
    assert frame["worst tenth"][0] == pytest.approx(sum(tenth) / 3)
    reached = [not isinstance(one.rounds_to(target), topofl.NotApplicable) for one in histories]
    assert frame[f"reached {target:g}"].tolist() == [sum(reached[:3]), sum(reached[3:])]
    assert sum(reached) >= 4
    sent = [
        one.bytes_to(target) if r else math.inf for one, r in zip(histories, reached, strict=True)
    ]
    assert frame[f"MB to {target:g}"].tolist() == [
        sorted(sent[:3])[1] / 1e6,
        sorted(sent[3:])[1] / 1e6,
    ]
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_formats_of_groups(capsys, six):
    how = ["compare", *six, "--group-by", "topology"]
    assert main([*how, "--json"]) == 0
    captured = capsys.readouterr()
    rows = json.loads(captured.out)
    assert [row["topology"] for row in rows] == ["ring", "star"]
    assert "topofl: note: ±: 95 % interval" in captured.err
    assert main([*how, "--latex"]) == 0
    assert capsys.readouterr().out.startswith("\\begin{tabular}{lrrrrr}\n\\toprule")
    assert main([*how, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("| topology | runs | accuracy |")


@pytest.mark.parametrize("kind", ["band", "violin", "nodes", "pareto"])
def test_kinds_of_plots(six, kind, tmp_path):
    how = ["--group-by", "topology", "--plot", "p.pdf", "--kind", kind]
    assert main(["compare", *six, *how]) == 0
    assert (tmp_path / "p.pdf").read_bytes().startswith(b"%PDF")


def test_a_store_is_compared_by_groups(capsys, six, tmp_path):
    store = topofl.runs.RunStore(tmp_path / "store")
    for k, folder in enumerate(six):
        tables = topofl.config.read(f"{folder}/config.toml")
        store.add(f"{k:016x}", topofl.History.load(folder), tables)
    how = ["--group-by", "topology", "--json"]
    assert main(["compare", "store", *how]) == 0
    stored = capsys.readouterr().out
    assert main(["compare", *six, *how]) == 0
    assert stored == capsys.readouterr().out


def test_latex_without_groups(capsys, runs):
    capsys.readouterr()
    assert main(["compare", *runs, "--latex"]) == 0
    assert "\\toprule" in capsys.readouterr().out


PLOTTED = ["--group-by", "topology", "--plot", "t.png"]


def test_mistakes_in_groups(capsys, six):
    """One test, since training the runs takes longer than all refusals."""
    refused = [
        (["--group-by", "topolgy"], "did you mean 'topology'"),
        (["--group-by", "init"], "`by` must name every setting that varies"),
        (["--group-by", "topology", "--baseline", "rng"], "did you mean 'ring'"),
        (["--group-by", "topology", "--target", "80"], "must be between 0 and 1, got 80"),
        (["--group-by", "topology", "--band", "range"], "`--band` must come with --plot"),
        ([*PLOTTED, "--kind", "heat_map"], "must have two settings"),
        (
            [*PLOTTED, "--kind", "violin", "--x", "rounds"],
            "`--x` must come with --kind band or pareto",
        ),
        (
            [*PLOTTED, "--kind", "violin", "--band", "range"],
            "`--band` must come with --kind band, nodes, pareto",
        ),
        (["--baseline", "ring"], "`--baseline` must come with --group-by"),
        (["--over", "ring"], "`--over` must come with --group-by"),
        (["--kind", "band"], "`--kind` must come with --group-by"),
        (["--band", "range"], "`--band` must come with --group-by"),
    ]
    for words, message in refused:
        assert message in fails(capsys, 2, "compare", *six, *words)
    missing = ["compare", "none", "--group-by", "topology"]
    assert "none, which does not exist" in fails(capsys, 2, *missing)


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


def test_columns_are_those_of_all_formats(capsys, six):
    how = ["compare", *six, "--group-by", "topology", "--columns", "std, accuracy,topology"]
    assert main([*how, "--csv", "t.csv"]) == 0
    assert capsys.readouterr().out.split()[:3] == ["std", "accuracy", "topology"]
    precise = ["accuracy std", "accuracy", "accuracy low", "accuracy high", "topology"]
    assert pd.read_csv("t.csv").columns.tolist() == precise
    assert main([*how, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)[0]) == precise
    assert main([*how, "--latex"]) == 0
    assert r"std & accuracy & topology \\" in capsys.readouterr().out
    assert main([*how, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("| std | accuracy | topology |")
    assert "`--columns` must be one of 'topology', 'runs'" in fails(capsys, 2, *how[:-1], "stdd")
    precise = fails(capsys, 2, *how[:-1], "accuracy std")
    assert "`--columns` must be named as in the printed table, got 'accuracy std'" in precise


def test_columns_of_single_runs(capsys, six):
    assert main(["compare", *six[:2], "--columns", 'topology,"run"', "--latex"]) == 0
    assert r"topology & run \\" in capsys.readouterr().out
    assert "did you mean 'topology'" in fails(
        capsys, 2, "compare", *six[:2], "--columns", "topolgy"
    )


@pytest.mark.parametrize("groups", [[], ["--group-by", "topology"]])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("topology,topology", "`--columns` must have distinct names, got 'topology' twice"),
        ("", "`--columns` must name at least one column, got none; omit it for all"),
    ],
)
def test_columns_are_refused_by_the_name_of_the_option(groups, names, message, capsys, six):
    assert message in fails(capsys, 2, "compare", *six[:2], *groups, "--columns", names)
