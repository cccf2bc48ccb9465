"""``topofl spectral``."""

import functools
import json
import re
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import topofl
from tests.cli.commands import FAILING, fails
from tests.rows.readers import save_images, save_pickles
from topofl import config, data, metrics, mixing, topologies
from topofl.cli import main
from topofl.history import History
from topofl.topology.files import read_graph

MORE = "topofl: note: these numbers decide; --all prints all columns, --about GROUPS some\n"


def test_spectral(capsys, tmp_path):
    path = tmp_path / "graphs.csv"
    assert main(["spectral", "ring:16", "dcliques:20,inter=ring,seed=0", "--csv", str(path)]) == 0
    captured = capsys.readouterr()
    assert "0.05075" in captured.out
    note = (
        "topofl: note: dcliques:20,inter=ring,seed=0: no data given; one class per node is used\n"
    )
    assert captured.err == note + MORE
    frame = pd.read_csv(path)
    assert frame["nodes"].tolist() == [16, 20]
    assert frame["spectral gap"][0] == pytest.approx(1 - (1 + 2 * np.cos(np.pi / 8)) / 3)


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


@pytest.mark.parametrize("spec", ["network.graphml", "network.csv,directed=true"])
def test_the_number_of_nodes_with_data_is_that_of_the_graph_file(
    capsys, tmp_path, monkeypatch, spec
):
    monkeypatch.chdir(tmp_path)
    nx.write_graphml(nx.cycle_graph(7), "network.graphml")
    Path("network.csv").write_text("".join(f"{k},{(k + 1) % 7}\n" for k in range(7)))
    base = f"link_failures,base=({spec}),fail=0.1,recover=0.5,seed=0"
    assert main(["spectral", spec, base, "--data", "digits", "--json"]) == 0
    assert [row["nodes"] for row in json.loads(capsys.readouterr().out)] == [7, 7]
    assert "got [7, 8]" in fails(capsys, 2, "spectral", spec, "ring:8", "--data", "digits")


def test_unequal_shares_are_noted_below_the_table(capsys, tmp_path):
    path = tmp_path / "hub.csv"
    path.write_text("source,target\n0,1\n1,2\n2,0\n0,2\n")
    assert main(["spectral", f"{path},directed=true"]) == 0
    assert "hub gives node 0 a share of" in capsys.readouterr().out


def test_data_are_found_below_a_folder(capsys, tmp_path, monkeypatch):
    mnist = data.mnist
    small = functools.wraps(mnist)(lambda **given: mnist(**given | {"verify": False, "val": 0}))
    monkeypatch.setitem(data.READERS, "mnist", small)
    save_images(tmp_path / "all" / "mnist" / "raw", ("train", "t10k"), np.arange(20) % 10)
    command = ["spectral", "ring:5", "--about", "data", "--json"]
    assert main([*command, "--data", str(tmp_path / "all" / "mnist")]) == 0
    near = capsys.readouterr().out
    assert main([*command, "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == near
    assert json.loads(near)[0]["neighborhood heterogeneity"] > 0
    assert main(["recommend", "--data", str(tmp_path), "--n", "5", "--max-degree", "2"]) == 0
    (tmp_path / "none").mkdir()
    assert "a folder with MNIST, got" in fails(
        capsys, 2, *command, "--data", str(tmp_path / "none")
    )
    for file in tmp_path.rglob("t10k*"):
        file.unlink()
    assert "`--data`: `root` must hold the four files" in fails(
        capsys, 2, *command, "--data", str(tmp_path)
    )


def test_spectral_takes_datasets_and_partitions_of_configurations(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOPOFL_DATA", str(tmp_path))
    save_pickles(tmp_path / "cifar" / "cifar-10-batches-py")
    command = ["spectral", "ring:4", "--about", "data", "--json", "--data"]
    skew = "dirichlet_per_client,alpha=0.3"
    for words in (
        ["cifar10,verify=false", "--partition", skew],
        [f"cifar10,verify=false,partition=dirichlet_per_client,alpha=0.3,root={tmp_path}"],
    ):
        assert main([*command, *words, "--seed", "3"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        own = data.cifar10(tmp_path, verify=False)
        clients = data.dirichlet_per_client(own, 4, alpha=0.3, seed=3)
        expected = metrics.compare([topologies.ring(4)], label_counts=clients, about="data")
        assert row["neighborhood heterogeneity"] == pytest.approx(
            dict(zip(expected.columns, expected.rows[0], strict=True))["neighborhood heterogeneity"]
        )
    assert main(["spectral", "ring:4", "--data", "cifar10,verify=false"]) == 0
    assert "messages of 30,730 parameters, as of logistic regression on cifar10" in (
        capsys.readouterr().out
    )
    words = ["digits,flip_labels=[0]", "--partition", "iid"]
    assert main([*command, *words]) == 0
    assert main(["spectral", "ring:4", "--data", words[0], *words[1:], "--html", "a.html"]) == 0
    assert "--partition iid" in Path("a.html").read_text()
    recommend = ["recommend", "--data", "digits", "--n", "8", "--max-degree", "2", "--json"]
    found = []
    for more in ([], ["--partition", "one_class_per_node"]):
        capsys.readouterr()
        assert main([*recommend, "--static", *more]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] != found[1]


def test_the_data_may_state_the_number_of_nodes_of_a_file(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.edgelist").write_text("0 1\n1 2\n2 0\n")
    assert main(["spectral", "a.edgelist", "--data", "digits,n=3"]) == 0
    assert "H_10" in capsys.readouterr().out


@pytest.mark.filterwarnings("always:the edges of s ")
def test_spectral_with_a_weight_rule(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s.edgelist").write_text("0 1 7\n1 2 1\n2 3 2\n3 0 4\n")
    command = ["spectral", "s.edgelist", "--about", "averaging", "--json"]
    assert main(command) == 0
    plain = capsys.readouterr()
    assert "--weights weighted_metropolis of topofl spectral" in plain.err
    assert main([*command, "--weights", "weighted_metropolis", "--html", "page.html"]) == 0
    scaled = capsys.readouterr()
    assert "carry weights" not in scaled.err
    expected = mixing.weighted_metropolis(read_graph(Path("s.edgelist"))).spectral_gap
    assert json.loads(scaled.out)[0]["spectral gap"] == pytest.approx(expected)
    assert json.loads(plain.out)[0]["spectral gap"] != pytest.approx(expected)
    assert "--weights weighted_metropolis" in Path("page.html").read_text()
    assert "`--weights`: there is no mixing 'metropolis'" in fails(
        capsys, 2, *command, "--weights", "metropolis"
    )


def test_spectral_notes_a_seed_of_its_own(capsys):
    assert main(["spectral", "random_regular:10,k=3"]) == 0
    captured = capsys.readouterr()
    note = "topofl: note: random_regular:10,k=3: no `seed` given; 0 is used\n"
    assert captured.err == note + MORE
    assert topologies.random_regular(10, 3, seed=0).name in captured.out


def test_spectral_in_other_formats(capsys):
    assert main(["spectral", "one_peer_exponential:8", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["nodes"] == 8
    assert row["algebraic connectivity"] is None
    assert row["C measured"] == "inf"
    assert main(["spectral", "ring:8", "--markdown"]) == 0
    assert "| name | N_10 | spectral gap |" in capsys.readouterr().out
    assert main(["spectral", "ring:8", "--markdown", "--all"]) == 0
    assert "| name | nodes |" in capsys.readouterr().out


def test_few_numbers_are_printed_unless_more_are_asked_for(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = ["N_10", "spectral gap", "max degree", "messages per round", "MB per round"]
    assert main(["spectral", "ring:8", "star:8"]) == 0
    short = capsys.readouterr()
    head, _, ring, star, *meanings = short.out.splitlines()[1:]
    assert re.split("  +", head) == ["name", *first]
    assert (ring[:4], star[:4]) == ("ring", "star")
    assert [line.partition(": ")[0] for line in meanings] == first
    assert short.err == MORE
    assert main(["spectral", "ring:8", "star:8", "--csv", "t.csv", "--html", "page.html"]) == 0
    assert capsys.readouterr() == short  # files have all columns, and the text has not
    everything = {"name", *(column for column, *_ in _shown_without_labels())}
    assert set(pd.read_csv("t.csv").columns) == everything
    assert main(["spectral", "ring:8", "star:8", "--json"]) == 0
    complete = capsys.readouterr()
    assert set(json.loads(complete.out)[0]) == everything
    assert complete.err == ""
    for more, column in ((["--all"], "slem"), (["--about", "paths"], "diameter")):
        assert main(["spectral", "ring:8", "star:8", *more]) == 0
        long = capsys.readouterr()
        assert column in long.out
        assert long.err == ""


def _shown_without_labels():
    return [
        row
        for row in metrics.columns().rows
        if not {"label counts", "hardware"} & {*row[3].split(", ")}
    ]


def test_the_first_numbers_are_followed_by_metrics_that_are_asked_for(capsys):
    command = ["spectral", "ring:20", "--data", "digits", "--metrics", "slem,max degree"]
    assert main([*command, "--markdown"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == (
        "| name | H_10 | neighborhood heterogeneity | N_10 | spectral gap | max degree | "
        "messages per round | MB per round | slem |"
    )
    assert "not allowed with argument" in fails(capsys, 2, *command, "--all", "--about", "data")


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
        (["ring:x"], "Python finds no module ring in "),
        (
            ["ring:x"],
            "to use topofl's own, put the number of nodes after the colon, as in ring:100",
        ),
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
        (
            ["ring:5", "--data", "no/such/folder"],
            "or a folder with MNIST, got 'no/such/folder', which does not exist",
        ),
        (["ring:5", "--data", "digitz"], "`--data`: there is no dataset 'digitz'; did you mean"),
        (["ring:5", "--data", "digits,n=6"], "the same number of nodes, as ring:100, got [5, 6]"),
        (["ring:5", "--partition", "iid"], "`--partition` must come with --data, got --partition"),
        (["ring:5", "--per-node", "2"], "`--per-node` must come with --data"),
        (
            ["ring:5", "--data", "digits", "--partition", "shard"],
            "`--partition`: there is no partition 'shard'; did you mean 'shards'?",
        ),
        (
            ["ring:5", "--data", "digits,partition=iid", "--partition", "iid"],
            "`--partition` must not repeat what `--data` says, got 'partition' in both",
        ),
        (["ring:5", "--csv", "no/such/folder/x.csv"], "No such file or directory"),
    ],
)
def test_spectral_mistakes(capsys, argv, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, 2, "spectral", *argv)


@pytest.mark.parametrize(
    "spec",
    [
        "neighborhood_swap:20,base=4,seed=0",
        "neighborhood_swap:20,base=(random_regular,k=4,seed=0),seed=0",
        "link_failures,base=(neighborhood_swap:20,base=4,seed=0),fail=.1,recover=.5,seed=0",
    ],
)
@pytest.mark.slow
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


@pytest.mark.parametrize("n", ["100000000", "1" + 400 * "0"])
def test_graphs_are_refused_by_their_size(capsys, n):
    assert "`n` must be at most 10,000,000" in fails(capsys, 2, "spectral", f"ring:{n}")
