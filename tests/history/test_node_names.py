"""Labels of nodes: kept in histories, and shown where a message, an event or a plot names them."""

import argparse
import dataclasses
import functools
import io
import json
import re
import warnings

import networkx as nx
import pytest

import topofl
from tests import problems
from tests.rows import stored
from topofl import algorithms, attacks, callbacks, metrics, mixing, topologies
from topofl._support.text import node_name
from topofl.cli.run import print_report

NAMES = ("Zug", "Bern", "Genf")


def cities(*edges):
    """Return a directed graph of three cities in the order of their names."""
    graph = nx.DiGraph()
    graph.add_nodes_from(NAMES)
    graph.add_edges_from(edges)
    return topofl.as_topology(graph)


STAR = cities(
    ("Zug", "Bern"), ("Bern", "Genf"), ("Genf", "Zug"), ("Genf", "Bern")
)  # Genf is heard by all


def run(topology, algorithm=None, **options):
    return stored.run(algorithm, topology=topology, **options)


def unlabeled(topology):
    return dataclasses.replace(topology, nodes=())


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ((), "1"),
        (("Zug", "Bern"), "Bern"),
        ((0, 1), "1"),
        ((1, 0), "0 (index 1)"),
        (("a", "7"), "7 (index 1)"),
        (("a", " "), "  (index 1)"),
        (("a", (0, 1)), "(0, 1)"),
        (("a", "x\ny"), r"x\ny"),
        (("a", "b" * 40), "b" * 29 + "... (index 1)"),
    ],
)
def test_a_node_is_called_by_its_label_unless_that_could_be_mistaken(labels, name):
    assert node_name(labels, 1) == name


@pytest.mark.parametrize("labels", [NAMES, ()])
def test_the_warning_of_unequal_shares_and_the_summary_name_the_city(labels, tmp_path):
    graph = dataclasses.replace(STAR, nodes=labels)
    with pytest.warns(UserWarning, match="a share of") as caught:
        history = run(graph)
    node = history.meta["largest_share"][0]
    name = labels[node] if labels else str(node)
    assert f"give node {name} a share of" in str(caught[0].message)
    history.save(tmp_path / "run")
    for found in (history, topofl.History.load(tmp_path / "run")):
        assert f", node {name} has 0." in repr(found)


@pytest.mark.parametrize("labels", [NAMES, ()])
def test_plots_of_nodes_name_cities_also_after_loading(labels, tmp_path):
    graph = dataclasses.replace(topologies.ring(3), nodes=labels)
    run(graph).save(tmp_path / "run")
    history = topofl.History.load(tmp_path / "run")
    names = {f"node {name}" for name in labels or range(3)}
    for x in (None, "rank"):
        texts = [text.get_text() for text in history.plot(kind="nodes", x=x).axes[0].texts]
        assert names <= set(texts)
    figure = topofl.compare_histories({"a": history}, kind="nodes")
    assert names <= {text.get_text() for text in figure.axes[0].texts}


def diverging():
    return algorithms.dsgd(lr=1e38)


@pytest.mark.parametrize("labels", [NAMES, ()])
def test_divergence_names_the_city_in_errors_events_and_reports(labels, tmp_path, capsys):
    graph = dataclasses.replace(topologies.ring(3), nodes=labels)
    name = "(Zug|Bern|Genf)" if labels else r"\d"
    with pytest.raises(topofl.DivergenceError, match=rf"of node {name} is"):
        run(graph, diverging())
    log, stream = tmp_path / "log.jsonl", io.StringIO()
    history = run(
        graph, diverging(), on_divergence="record",
        callbacks=[callbacks.jsonl(log), callbacks.text(stream)],
    )  # fmt: skip
    found = history.meta["diverged"]
    events = [json.loads(line) for line in log.read_text().splitlines()]
    values = [event["values"] for event in events if event["kind"] == "divergence"]
    nodes = [one["node"] for one in found]
    assert [one["node"] for one in values] == nodes != []
    wanted = [labels[node] if labels else None for node in nodes]
    assert [one.get("label") for one in values] == wanted
    first = labels[nodes[0]] if labels else nodes[0]
    print_report("run", history, argparse.Namespace(json=False), "saved in run")
    shown = capsys.readouterr()
    assert f"diverged, first node {first} in round" in shown.out + shown.err
    label = f", label {first}" if labels else ""
    assert f"divergence: node {found[0]['node']}{label}, lr" in stream.getvalue()


def refused(topology, algorithm, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="node") as error:
            run(topology, algorithm, **options)
    return str(error.value)


SQUEEZED = algorithms.deepsqueeze(0.1, gamma=0.5)
COMPLETE = cities(*nx.complete_graph(NAMES, nx.DiGraph).edges)


@pytest.mark.parametrize(
    ("graph", "algorithm", "options", "message"),
    [
        (cities(("Zug", "Bern"), ("Bern", "Zug")), algorithms.dsgd(0.1), {}, "with node Genf"),
        (STAR, algorithms.random_walks(0.1, walks=1), {}, "from node (Zug|Bern|Genf) to node"),
        (COMPLETE, algorithms.trimmed_mean(0.1, trim=1), {}, "node Zug receives from 2 others"),
        (STAR, SQUEEZED, {"mixing": mixing.uniform}, "of node (Zug|Bern|Genf) sums to"),
    ],
)
def test_needs_name_cities(graph, algorithm, options, message):
    assert re.search(message, refused(graph, algorithm, **options))
    numbered = refused(unlabeled(graph), algorithm, **options)
    assert not any(name in numbered for name in NAMES)


@pytest.mark.parametrize(
    "method",
    [
        algorithms.trimmed_mean(0.1, trim=1),
        algorithms.coordinate_median(0.1),
        algorithms.clipped_gossip(0.1, delta=0.1),
    ],
    ids=lambda method: method.name,
)
def test_warnings_of_attackers_name_the_city_that_hears_them(method):
    names = ("Zug", "Bern", "Genf", "Basel", "Chur")
    graph = dataclasses.replace(topologies.fully_connected(5), nodes=names)
    how = {"clients": problems.equal_clients(5), "attackers": attacks.sign_flip(nodes=[1, 2, 3])}
    with pytest.warns(UserWarning, match="attackers") as caught:
        run(graph, method, **how)
    texts = [str(one.message) for one in caught]
    assert any("node Zug" in text for text in texts), texts


def test_a_term_that_is_not_finite_is_reported_with_its_city():
    broken = algorithms.Term("broken", lambda g, theta, own, step: g / 0)
    method = algorithms.chain(
        "mine", local=algorithms.train(algorithms.descend(broken, lr=0.1)),
        exchange=algorithms.gossip(),
    )  # fmt: skip
    graph = dataclasses.replace(topologies.ring(3), nodes=NAMES)
    assert "not for node Zug in round 1" in refused(graph, method)


SINK = cities(("Zug", "Bern"), ("Bern", "Genf"), ("Zug", "Genf"))


def test_metrics_name_cities_that_lose_their_weight():
    push = functools.partial(mixing.uniform, direction="push")
    with pytest.raises(topofl.TopologyError, match="the weight of node Zug tends to 0"):
        metrics.measured_contraction(SINK, rounds=5, seed=0, weights=push)
    with pytest.raises(topofl.TopologyError, match=r"node (Bern|Genf) of"):
        metrics.pi_weighted_gap(mixing.uniform(SINK))


def ticks(ax):
    return [[text.get_text() for text in axis.get_ticklabels()] for axis in (ax.xaxis, ax.yaxis)]


def test_matrices_have_cities_at_their_rows_and_columns():
    grouped = dataclasses.replace(STAR, groups=((2,), (0, 1)))
    assert ticks(STAR.plot_adjacency().axes[0]) == [list(NAMES)] * 2
    assert ticks(grouped.plot_adjacency().axes[0]) == [["Genf", "Zug", "Bern"]] * 2
    assert ticks(mixing.uniform(STAR).plot().axes[0]) == [list(NAMES)] * 2
    assert not set(ticks(unlabeled(STAR).plot_adjacency().axes[0])[0]) & set(NAMES)


def test_tables_per_node_show_labels_that_are_stored_also_of_a_resumed_run(tmp_path):
    graph = dataclasses.replace(topologies.ring(3), nodes=NAMES)
    saving = topofl.Saving(tmp_path / "saved", every=1, resume=True)
    runs = [run(graph, saving=saving) for _ in range(2)]  # the second time, it is returned
    for found in (*runs, topofl.History.load(runs[0].save(tmp_path / "run"))):
        table = found.to_pandas(per="node")
        assert table.columns[:3].tolist() == ["round", "node", "label"]
        assert table["label"].tolist() == [*NAMES] * len(found["round"])
        assert table["node"].tolist() == [0, 1, 2] * len(found["round"])
    history = run(topologies.ring(3))
    assert "nodes" not in history.meta
    assert "label" not in history.to_pandas(per="node")
