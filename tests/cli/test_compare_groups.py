"""``topofl compare --group-by``."""

import json
import math

import pandas as pd
import pytest

import topofl
from tests.cli.commands import fails
from topofl.cli import main
from topofl.cli.compare import _baseline


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


def test_mistakes(capsys, six):
    how = ["compare", *six]
    assert "did you mean 'topology'" in fails(capsys, 2, *how, "--group-by", "topolgy")
    assert "`by` must name every setting that varies" in fails(
        capsys, 2, *how, "--group-by", "init"
    )
    grouped = [*how, "--group-by", "topology"]
    assert "did you mean 'ring'" in fails(capsys, 2, *grouped, "--baseline", "rng")
    assert "must be between 0 and 1, got 80" in fails(capsys, 2, *grouped, "--target", "80")
    plotted = [*grouped, "--plot", "t.png", "--kind", "violin", "--x", "rounds"]
    assert "`--x` must come with --kind band or pareto" in fails(capsys, 2, *plotted)
    assert "must have two settings" in fails(
        capsys, 2, *grouped, "--plot", "t.png", "--kind", "heat_map"
    )
    assert "none, which does not exist" in fails(
        capsys, 2, "compare", "none", "--group-by", "topology"
    )
    values = {"--baseline": "ring", "--over": "ring", "--kind": "band", "--band": "range"}
    violins = [*grouped, "--plot", "t.png", "--kind", "violin", "--band", "range"]
    assert "`--band` must come with --kind band, nodes, pareto" in fails(capsys, 2, *violins)
    assert "`--band` must come with --plot" in fails(capsys, 2, *grouped, "--band", "range")
    for option, value in values.items():
        assert f"`{option}` must come with --group-by" in fails(capsys, 2, *how, option, value)


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
