"""``topofl spectral`` and ``topofl graphs``."""

import functools
import json
import re
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import topofl
from tests.rows.commands import FAILING
from tests.rows.readers import save_images, save_pickles
from topofl import config, data, metrics, mixing, topologies
from topofl.history import History
from topofl.topology.files import read_graph

pytestmark = pytest.mark.usefixtures("folder")

MORE = "topofl: note: these numbers decide; --all prints all columns, --about GROUPS some\n"


def test_numbers_of_graphs_and_a_note(shell):
    captured = shell("spectral ring:16 dcliques:20,inter=ring,seed=0 --csv graphs.csv")
    assert "0.05075" in captured.out
    alone = "dcliques:20,inter=ring,seed=0: no data given; one class per node is used\n"
    assert captured.err == f"topofl: note: {alone}{MORE}"
    frame = pd.read_csv("graphs.csv")
    assert frame["nodes"].tolist() == [16, 20]
    assert frame["spectral gap"][0] == pytest.approx(1 - (1 + 2 * np.cos(np.pi / 8)) / 3)
    captured = shell("spectral random_regular:10,k=3")
    assert (
        captured.err == f"topofl: note: random_regular:10,k=3: no `seed` given; 0 is used\n{MORE}"
    )
    assert topologies.random_regular(10, 3, seed=0).name in captured.out


@pytest.mark.slow
def test_a_graph_of_a_graph(shell, rows):
    captured = shell(f"spectral ring:12 {FAILING.format('ring:12')} --json")
    whole, failing = json.loads(captured.out)
    assert captured.err == ""
    assert failing["name"] == "link_failures(ring(n=12), fail=0.1, recover=0.5, seed=0)"
    assert failing["nodes"] == 12
    assert 0 < failing["edges"] < whole["edges"] == 12
    found = rows(f"spectral ring:20 {FAILING.format('dcliques:20,seed=0')} --data digits")
    assert "label_counts[20x10]" in found[1]["name"]


@pytest.mark.parametrize("spec", ["network.graphml", "network.csv,directed=true"])
def test_the_number_of_nodes_with_data_is_that_of_the_graph_file(rows, fails, spec):
    nx.write_graphml(nx.cycle_graph(7), "network.graphml")
    Path("network.csv").write_text("".join(f"{k},{(k + 1) % 7}\n" for k in range(7)))
    base = f"link_failures,base=({spec}),fail=0.1,recover=0.5,seed=0"
    assert [row["nodes"] for row in rows(f"spectral {spec} {base} --data digits")] == [7, 7]
    assert rows(f"spectral {spec} --data digits,n=7")[0]["nodes"] == 7
    assert "got [7, 8]" in fails(f"spectral {spec} ring:8 --data digits")


def test_unequal_shares_are_noted_below_the_table(shell):
    Path("hub.csv").write_text("source,target\n0,1\n1,2\n2,0\n0,2\n")
    assert "hub gives node 0 a share of" in shell("spectral hub.csv,directed=true").out


def test_data_are_found_below_a_folder(shell, fails, folder, monkeypatch):
    mnist = data.mnist
    small = functools.wraps(mnist)(lambda **given: mnist(**given | {"verify": False, "val": 0}))
    monkeypatch.setitem(data.READERS, "mnist", small)
    save_images(folder / "all" / "mnist" / "raw", ("train", "t10k"), np.arange(20) % 10)
    command = "spectral ring:5 --about data --json --data"
    near = shell(f"{command} all/mnist").out
    assert shell(f"{command} {folder}").out == near
    assert json.loads(near)[0]["neighborhood heterogeneity"] > 0
    shell(f"recommend --data {folder} --n 5 --max-degree 2")
    for file in folder.rglob("t10k*"):
        file.unlink()
    assert "`--data`: `root` must hold the four files" in fails(f"{command} {folder}")


@pytest.mark.slow
def test_datasets_and_partitions_of_configurations(shell, rows, folder, monkeypatch):
    monkeypatch.setenv("TOPOFL_DATA", str(folder))
    save_pickles(folder / "cifar" / "cifar-10-batches-py")
    own = data.cifar10(folder, verify=False)
    clients = data.dirichlet_per_client(own, 4, alpha=0.3, seed=3)
    table = metrics.compare([topologies.ring(4)], label_counts=clients, about="data")
    (wanted,) = table.column("neighborhood heterogeneity")
    command, skew = "spectral ring:4 --about data --seed 3 --data", "dirichlet_per_client,alpha=0.3"
    for words in (
        f"cifar10,verify=false --partition {skew}",
        f"cifar10,verify=false,partition={skew},root={folder}",
    ):
        (row,) = rows(f"{command} {words}")
        assert row["neighborhood heterogeneity"] == pytest.approx(wanted)
    printed = shell("spectral ring:4 --data cifar10,verify=false").out
    assert "messages of 30,730 parameters, as of logistic regression on cifar10" in printed
    shell("spectral ring:4 --data 'digits,flip_labels=[0]' --partition iid --html a.html")
    assert "--partition iid" in Path("a.html").read_text()
    recommend = "recommend --data digits --n 8 --max-degree 2 --static"
    assert rows(recommend) != rows(f"{recommend} --partition one_class_per_node")


@pytest.mark.filterwarnings("always:the edges of s ")
def test_a_weight_rule(shell):
    Path("s.edgelist").write_text("0 1 7\n1 2 1\n2 3 2\n3 0 4\n")
    command = "spectral s.edgelist --about averaging --json"
    plain = shell(command)
    assert "--weights weighted_metropolis of topofl spectral" in plain.err
    scaled = shell(f"{command} --weights weighted_metropolis --html page.html")
    assert "carry weights" not in scaled.err
    expected = mixing.weighted_metropolis(read_graph(Path("s.edgelist"))).spectral_gap
    assert json.loads(scaled.out)[0]["spectral gap"] == pytest.approx(expected)
    assert json.loads(plain.out)[0]["spectral gap"] != pytest.approx(expected)
    assert "--weights weighted_metropolis" in Path("page.html").read_text()


def test_few_numbers_are_printed_unless_more_are_asked_for(shell):
    first = ["N_10", "spectral gap", "max degree", "messages per round", "MB per round"]
    short = shell("spectral ring:8 star:8")
    head, _, ring, star, *meanings = short.out.splitlines()[1:]
    assert re.split("  +", head) == ["name", *first]
    assert (ring[:4], star[:4]) == ("ring", "star")
    assert [line.partition(": ")[0] for line in meanings] == first
    assert short.err == MORE
    # files have all columns, and the text has not
    assert shell("spectral ring:8 star:8 --csv t.csv --html page.html") == short
    of_labels = {"label counts", "hardware"}
    everything = {"name", *(row[0] for row in metrics.columns().rows
                            if not of_labels & {*row[3].split(", ")})}  # fmt: skip
    assert set(pd.read_csv("t.csv").columns) == everything
    complete = shell("spectral one_peer_exponential:8 star:8 --json")
    row = json.loads(complete.out)[0]
    assert set(row) == everything
    assert (row["nodes"], row["algebraic connectivity"], row["C measured"]) == (8, None, "inf")
    assert complete.err == shell("spectral ring:8 --all").err == ""


def test_the_first_numbers_are_followed_by_metrics_that_are_asked_for(shell):
    command = "spectral ring:20 --data digits --metrics 'slem,max degree' --markdown"
    assert shell(command).out.splitlines()[2] == (
        "| name | H_10 | neighborhood heterogeneity | N_10 | spectral gap | max degree | "
        "messages per round | MB per round | slem |"
    )


def test_graphs_are_those_of_the_data(shell):
    captured = shell("spectral ring:20 dcliques:20,seed=0 --data digits --seed 4 --json")
    ring, cliques = json.loads(captured.out)
    assert captured.err == ""
    assert "label_counts[20x10]" in cliques["name"]
    assert cliques["neighborhood heterogeneity"] < ring["neighborhood heterogeneity"]
    assert ring["mean clique skew"] is None


@pytest.mark.parametrize(
    "spec",
    [
        "neighborhood_swap:20,base=4,seed=0",
        "neighborhood_swap:20,base=(random_regular,k=4,seed=0),seed=0",
        "link_failures,base=(neighborhood_swap:20,base=4,seed=0),fail=.1,recover=.5,seed=0",
    ],
)
@pytest.mark.slow
def test_a_base_may_be_a_degree_or_have_the_nodes_of_its_graph(rows, spec):
    assert rows(f"spectral {spec} --data digits")[0]["nodes"] == 20
    rows(f"spectral {spec}")


def test_rounds_and_groups_of_columns_are_those_asked_for(rows):
    command = "spectral random_matching:12,seed=0 --about rounds --rounds"
    (few,), (many,) = rows(f"{command} 10"), rows(f"{command} 40")
    assert set(few) == {"name", "B", "expected gap", "measured contraction"}
    assert few["expected gap"] < many["expected gap"]  # a mean over more rounds


@pytest.mark.slow
def test_graphs_of_a_run_are_shown_round_by_round(shell, rows, toml):
    shell(
        "run small.toml --out a --set data.flip_labels=[1] --set data.with_validation=0.2 "
        "--set algorithm=dpfl,lr=0.1,epochs=1,budget=2 --set topology=fully_connected"
    )
    printed = shell("graphs a --labels --html a.html --csv t.csv").out
    assert "neighbor label distance" in printed
    frame, history = pd.read_csv("t.csv"), History.load("a/history")
    clients = config.load("a/config.toml").clients
    assert frame["round"].tolist() == [0, 1, 2, 3]
    for t in range(4):
        assert frame["edges"][t] == history.mixing(t).support().n_edges
        distance = topofl.metrics.neighbor_label_distance(history.mixing(t).support(), clients)
        assert frame["neighbor label distance"][t] == pytest.approx(distance)
    page = Path("a.html").read_text()
    assert "1 mislabelled node last" in page
    about = "--about structure,averaging,data --html a.html"
    assert f"topofl graphs a --labels --every 1 {about}" in page
    found = rows("graphs a/history --every 2 --about structure")
    assert [row["round"] for row in found] == [0, 2, 3]
    assert "label separation" not in found[0]
    assert len(rows("graphs a --about structure")) == 4


def test_equal_graphs_of_a_run_are_one_row_of_text(shell, rows, toml):
    shell("run small.toml --out a")
    printed = shell("graphs a --about structure --csv t.csv").out.splitlines()
    last = History.load("a/history").n_rounds - 1
    title, heads, _, row, *_ = printed
    assert title.endswith(f"{last + 1} rounds, which all have the same row")
    assert heads.split()[0] == "round"
    assert row.startswith(f"0 to {last} ")
    assert f"| 0 to {last} |" in shell("graphs a --about structure --markdown").out
    assert len(pd.read_csv("t.csv")) == len(rows("graphs a --about structure")) == last + 1


def test_graphs_without_a_period_show_their_expected_gap(shell, rows):
    spec = "matcha,base=(grid:9),budget=0.5,seed=0"
    printed = shell(f"spectral '{spec}' ring:9 --rounds 20").out
    assert "expected gap: guaranteed relative decrease of squared consensus distance" in printed
    assert "or metrics.expected_gap(sequence, rounds=...)" in printed
    graph = topologies.matcha(topologies.grid(9), budget=0.5, seed=0)
    wanted = metrics.expected_gap(graph, rounds=20)
    assert f" {wanted:.4g}" in printed
    assert rows(f"spectral '{spec}' --rounds 20")[0]["expected gap"] == pytest.approx(wanted)
    assert "expected gap" not in shell("spectral ring:9 one_peer_exponential:8").out
