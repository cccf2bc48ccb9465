"""Tables of graphs: columns against their functions, and values that do not apply."""

import re
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from torch import nn

from topofl import data, metrics, mixing, topologies
from topofl._support.table import NotApplicable, Table
from topofl.metrics import (
    clique_skew,
    communities,
    compare,
    effective_neighbors,
    label_separation,
    modularity,
    neighbor_label_distance,
    neighborhood_heterogeneity,
    push_sum_constants,
    round_cost,
    slem,
)
from topofl.metrics import shape as declaring
from topofl.metrics._columns import GROUPS, HARDWARE, LABELS, MetricColumn, limited, mean, need
from topofl.metrics.compare import MODULES, all_columns
from topofl.mixing import MixingSequence
from topofl.topologies import random_in
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology, from_edges

COUNTS = np.eye(6, dtype=int) + 1
RING = as_topology(nx.cycle_graph(6), name="ring")
CHAIN = [(0, 1), (1, 2), (3, 4), (4, 5), (2, 3)]
GROUPED = from_edges(CHAIN, 6, name="grouped", groups=[(0, 1, 2), (3, 4, 5)])
CONSTANTS = push_sum_constants(RING, rounds=100)
LINE = from_edges([(i, i + 1) for i in range(5)], 6, name="line", directed=True)
DIGITS = data.shards(data.digits(), n=6, per_node=2, seed=0)


def row(table: Table, k: int = 0) -> dict:
    return dict(zip(table.columns, table.rows[k], strict=True))


def all_of(graph, **options) -> dict:
    """Return all columns of one graph."""
    return row(compare([graph], about="all", **options))


# Values


def test_columns_of_a_ring():
    slem_of_ring = pytest.approx(2 / 3)  # (1 + 2 cos(2 pi / 6)) / 3
    bounds = {
        f"log10({what}), {kind}": pytest.approx(getattr(getattr(CONSTANTS, kind.lower()), field))
        for what, kind, field in [
            ("1 - q", "SGP", "log10_gap"),
            ("C", "SGP", "log10_c"),
            ("1 - q", "DFedPGP", "log10_gap"),
            ("1 - q", "proven", "log10_gap"),
        ]
    }
    expected = bounds | {
        "name": "ring",
        "nodes": 6,
        "edges": 6,
        "mean degree": 2,
        "max degree": 2,
        "sparsity": pytest.approx(1 - 12 / 30),
        "reciprocity": 1,
        "clustering": 0,
        "communities": len(communities(RING)),
        # three pairs of neighbors; two triples have as much
        "modularity": pytest.approx(3 / 6 - 3 * (4 / 12) ** 2),
        "diameter": 3,
        "mean distance": pytest.approx((1 + 1 + 2 + 2 + 3) / 5),
        "edge connectivity": 2,
        "node connectivity": 2,
        "algebraic connectivity": pytest.approx(1.0),  # 2 - 2 cos(2 pi / 6)
        # Kirchhoff index (n^3 - n) / 12 over n (n - 1) / 2 pairs
        "effective resistance": pytest.approx((6 + 1) / 6),
        "spectral gap": pytest.approx(1 / 3),
        "slem": slem_of_ring,
        "lambda_n": pytest.approx(-1 / 3),
        "sigma": slem_of_ring,
        "pi-weighted gap": pytest.approx(1 / 3),
        "Perron skewness": 1,
        "Dobrushin coefficient": 1,
        "mixing time": 3,
        "effective neighbors": pytest.approx(effective_neighbors(RING, 0.9)),
        "worst effective neighbors": pytest.approx(effective_neighbors(RING, 0.9)),  # all alike
        "B": 1,
        "expected gap": pytest.approx(1 - 4 / 9),
        "measured contraction": slem_of_ring,
        "Delta": 3,
        "D_max": pytest.approx(3),
        "reach": 3,
        "q measured": pytest.approx(2 / 3, rel=1e-3),
        "C measured": pytest.approx(CONSTANTS.c_hat),
        "delta": 1,
        "messages per round": 12,
        "MB per round": pytest.approx(12 * 7850 * 4 / 1e6),
        "busiest node messages": 4,
    }
    found = all_of(RING)
    assert {name: found[name] for name in expected} == expected


def test_label_counts_add_columns():
    table = compare([RING, GROUPED], label_counts=COUNTS, about="all")
    found, groups = row(table), communities(RING)
    expected = {
        "neighbor label distance": neighbor_label_distance(RING, COUNTS),
        "label separation": label_separation(groups, COUNTS),
        "neighborhood heterogeneity": neighborhood_heterogeneity(RING, COUNTS),
        "mean clique skew": NotApplicable("the graph has no groups of nodes"),
    }
    assert {name: found[name] for name in expected} == expected
    assert not set(expected) & set(all_of(RING))
    assert (found["communities"], found["modularity"]) == (len(groups), modularity(RING, groups))
    assert row(table, 1)["mean clique skew"] == clique_skew(GROUPED, COUNTS).mean()


def test_all_kinds_of_graphs_are_accepted():
    matrix = mixing.max_degree(GROUPED)
    two, complete = [matrix, mixing.lazy(matrix)], np.ones((3, 3)) - np.eye(3)
    table = compare([nx.path_graph(6), matrix, two, RING.to_pyg(), complete], about="all")
    assert table.column("nodes") == (6, 6, 6, 6, 3)
    assert table.column("edges") == (5, 5, 5, 6, 3)
    assert table.column("slem")[1:3] == (matrix.slem, slem(two))
    assert table.column("name") == ("networkx", "max_degree(grouped)", "matrices", "pyg", "matrix")
    assert compare([], about="all").rows == ()


def test_names_and_weights_and_message_size_can_be_given():
    def rule(graph: Topology) -> mixing.MixingMatrix:
        return mixing.lazy(mixing.uniform(graph))

    options = {"weights": rule, "n_parameters": 10, "about": "all"}
    table = compare([RING, mixing.uniform(RING)], names=["a", "b"], **options)
    assert table.column("name") == ("a", "b")
    assert table.column("slem") == (pytest.approx(5 / 6), pytest.approx(2 / 3))
    assert table.column("MB per round") == (480e-6, 480e-6)
    graphs = {"one": RING, 2: GROUPED}
    named = compare(graphs, about="paths")
    assert named.column("name") == ("one", "2")
    assert named.rows == compare(list(graphs.values()), names=["one", "2"], about="paths").rows
    assert compare(graphs, names=["a", "b"], about="paths").column("name") == ("a", "b")


def test_messages_are_those_of_a_model():
    table = compare([RING], label_counts=DIGITS)
    assert table.column("MB per round") == (12 * 4 * 650 / 1e6,)
    assert "messages of 650 parameters, as of logistic regression on digits" in table.title
    assert "7,850 parameters, as of logistic regression on MNIST" in compare([RING]).title
    model = nn.Sequential(nn.Linear(64, 16), nn.Linear(16, 10))
    size = sum(parameter.numel() for parameter in model.parameters())
    given = compare([RING], label_counts=DIGITS, model=model)
    assert given.column("MB per round") == (12 * 4 * size / 1e6,)
    assert given.title.endswith(f"messages of {size:,} parameters")
    matrix = mixing.uniform(LINE)
    cost, line = round_cost(matrix, 7850), all_of(matrix)
    assert line["messages per round"] == cost.messages
    assert line["busiest node messages"] == cost.busiest_messages


# Sequences


def test_periodic_sequences_are_means_over_the_period():
    path = as_topology(nx.path_graph(6))
    both = all_of([path, RING], label_counts=COUNTS)
    assert (both["edges"], both["max degree"], both["diameter"]) == (5.5, 2, 4)
    assert both["mean degree"] == pytest.approx((10 / 6 + 2) / 2)
    assert both["spectral gap"] == pytest.approx(1 - slem(as_topology([path, RING])))
    values = [neighborhood_heterogeneity(graph, COUNTS) for graph in (path, RING)]
    assert both["neighborhood heterogeneity"] == pytest.approx(np.mean(values))
    assert both["messages per round"] == 11


def test_other_sequences_are_means_over_their_first_ten_rounds():
    graphs = [RING] * 5 + [GROUPED] * 5
    sequence = TopologySequence(6, lambda t: graphs[t] if t < 10 else LINE, name="changing")
    table = compare([sequence], about="all")
    changing = row(table)
    assert changing["edges"] == 5.5
    assert changing["spectral gap"] == changing["slem"]
    assert "measured_contraction" in changing["slem"].reason
    assert "measured_contraction" in str(table)


def test_recorded_rounds_are_all_used():
    sequence = random_in(8, 3, seed=0)
    recorded = MixingSequence(8, lambda t: mixing.uniform(sequence.at(t)), "a run", length=20)
    ran, drawn = all_of(recorded), all_of(sequence, rounds=20)
    for name in ("edges", "B", "expected gap", "messages per round"):
        assert ran[name] == drawn[name]
    assert ran["q measured"] == push_sum_constants(recorded).q_hat
    assert drawn["q measured"] == push_sum_constants(sequence, rounds=20).q_hat  # of uniform pushes
    assert ran["slem"] == NotApplicable(
        "a periodic sequence is needed, the graph has no period; use "
        "metrics.measured_contraction(sequence, rounds=..., seed=...) or "
        "metrics.expected_gap(sequence, rounds=...)"
    )
    assert ran["lambda_n"] == NotApplicable("of one matrix: take a round of the sequence")
    once = MixingSequence(4, lambda t: mixing.from_weights(np.eye(4)), "once", length=1)
    one = all_of(once)
    assert one["measured contraction"] == NotApplicable("one round was recorded: two are needed")
    assert one["edges"] == 0


def test_rounds_of_a_sequence_are_not_made_for_their_groups():
    made = []
    sequence = TopologySequence(6, lambda t: made.append(t) or GROUPED, "sequence", period=50)
    assert compare([sequence], about="structure").column("nodes") == (6,)
    assert made == [*range(50)] * 2  # the graphs, and their matrices


# What does not apply


def test_directed_and_disconnected_graphs_have_reasons():
    line = all_of(LINE)
    assert line["algebraic connectivity"] == NotApplicable("defined for undirected graphs")
    unreachable = NotApplicable("some nodes cannot reach each other")
    assert line["diameter"] == line["mean distance"] == unreachable
    assert (line["edges"], line["mean degree"], line["max degree"]) == (5, pytest.approx(5 / 6), 1)
    apart = all_of(from_edges([(0, 1), (2, 3)], 4))
    assert (apart["spectral gap"], apart["algebraic connectivity"]) == (0.0, 0.0)
    assert apart["diameter"] == unreachable
    push, pull = (mixing.uniform(LINE, direction=d) for d in ("push", "pull"))
    table = compare([push, [push, pull]], label_counts=COUNTS, about="all")
    assert "the weight of node 0 tends to 0" in row(table)["neighborhood heterogeneity"].reason
    assert "row-stochastic in all rounds" in row(table, 1)["H_10"].reason
    assert "row-stochastic" in row(table, 1)["slem"].reason


def test_no_cell_is_nan():
    endless = TopologySequence(6, lambda t: RING)
    table = compare([RING, LINE, [LINE, RING], endless, from_edges([], 6)], label_counts=COUNTS)
    cells = [cell for cells in table.rows for cell in cells]
    assert not any(isinstance(cell, float) and np.isnan(cell) for cell in cells)


@pytest.mark.parametrize("name", ["weights", "symmetric", "graph", "a", "ring(n=6)"])
def test_reasons_say_the_graph_instead_of_its_name(name):
    weights = mixing.from_weights([[0.5, 0.5], [0.2, 0.8]], name=name)
    graph = Topology(LINE.adjacency, name=name)
    table = compare([weights, graph], about="averaging")
    reason, other = (cell.reason for cell in table.column("lambda_n"))
    begin = "the smallest eigenvalue needs symmetric weights, "
    assert reason == f"{begin}the graph is not symmetric; use metrics.slem"
    assert other.startswith(begin)
    assert other.count("the graph") + other.count(f"uniform({name}") == 1


@pytest.mark.slow
def test_expensive_columns_of_large_graphs_are_not_applicable():
    cells = row(compare([topologies.ring(301)], about=["push-sum"], names=["ring"]))
    ask = "ask for the column by name, or use metrics.push_sum_constants"
    reason = NotApplicable(f"computed here up to n=300: {ask}")
    assert {cell for name, cell in cells.items() if name != "name"} == {reason}
    star = all_of(as_topology(nx.star_graph(2000)))
    assert "n=2,000" in star["diameter"].reason
    assert "n=2,000" in star["mean distance"].reason
    assert (star["nodes"], star["spectral gap"]) == (2001, pytest.approx(1 / 2001, rel=1e-6))
    assert star["algebraic connectivity"] == pytest.approx(1.0)  # of every star
    path = row(compare([topologies.path(5001)], about="averaging"))
    for name in ("spectral gap", "slem", "lambda_n", "sigma", "pi-weighted gap"):
        assert "up to n=5,000: ask for the column by name" in path[name].reason


@pytest.mark.parametrize("n", [4000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_rings_of_any_size_are_compared_by_closed_forms(n):
    found = row(compare([topologies.ring(n)], about="averaging"))
    gap = (2 - 2 * np.cos(2 * np.pi / n)) / 3
    for name in ("spectral gap", "pi-weighted gap"):
        assert found[name] == pytest.approx(gap, abs=1e-15)
    steps = {0: 1.0}  # walks of 2k steps that return, far from the ends of the ring
    noise = 0.0
    for length in range(1, 21):
        spread = [(at + by, share / 3) for at, share in steps.items() for by in (-1, 0, 1)]
        steps = {}
        for at, share in spread:
            steps[at] = steps.get(at, 0.0) + share
        noise += steps[0] - 1 / n if length % 2 == 0 else 0.0
    assert found["N_10"] == pytest.approx(noise, rel=1e-9)


# Weights of edges


def weighted(*edges):
    graph = nx.Graph()
    graph.add_weighted_edges_from(edges)
    return graph


def test_unused_edge_weights_are_warned_about_once():
    ring = weighted(*((i, (i + 1) % 6, (0.1, 0.4)[i % 2]) for i in range(6)))
    own, graph = as_topology(ring, own_weights=True), as_topology(ring)
    # a period of two: eigenvalues 1/2 +- |a + b exp(i theta)|
    expected = 0.5 - abs(0.1 + 0.4 * np.exp(2j * np.pi / 3))
    assert expected == pytest.approx(0.139, abs=1e-3)
    assert all_of(own)["spectral gap"] == pytest.approx(expected)
    assert 1 - slem(own) == pytest.approx(expected)
    for rule in (mixing.metropolis_hastings, mixing.own_weights, mixing.metropolis_or_uniform):
        compare([ring], weights=rule, about="all")  # which says nothing
    told = r"which are ignored: .* own_weights=True\), .* weights=mixing.metrop"
    for measure, x in ((compare, [graph]), (slem, graph), (slem, as_topology([graph, graph]))):
        with pytest.warns(UserWarning, match=told) as caught:
            measure(x)
        assert [str(warning.filename) for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match="weights from 0.1 to 0.4") as caught:
        compare([as_topology(lambda t: RING if t < 3 else graph)], about="averaging")
    assert len(caught) == 1


def test_the_warning_about_edge_weights_recommends_what_works():
    strengths = weighted((0, 1, 7), (1, 2, 1), (2, 0, 4))
    graph, rule = as_topology(strengths), mixing.weighted_metropolis
    call = r"metrics\.spectral_gap\(graph, weights=mixing\.weighted_metropolis\)"
    with pytest.warns(UserWarning, match=f"into a node sum to up to 11, above 1; .*{call}") as told:
        slem(graph)
    assert "own_weights" not in str(told[0].message)
    with pytest.raises(ValueError, match="sum to 11"):
        as_topology(strengths, own_weights=True)
    scaled = pytest.approx(rule(graph).spectral_gap)
    assert 1 - slem(graph, weights=rule) == scaled
    assert all_of(graph, weights=rule)["spectral gap"] == scaled


# Notes and columns


def hub(n: int) -> Topology:
    """Return the directed cycle with edges from node 0 to all, which give it a share of 0.4."""
    edges = {(k, (k + 1) % n) for k in range(n)} | {(0, k) for k in range(1, n)}
    return from_edges(sorted(edges), n, directed=True)


def test_a_note_names_the_graphs_whose_nodes_have_unequal_shares(monkeypatch):
    ring = topologies.ring(12)
    counts = data.shards(data.digits(), n=12, per_node=2, seed=0)
    graphs = {"biased": hub(12), "changing": [hub(12), ring], "ring": ring}
    for about in (None, "averaging"):
        note = compare(graphs, label_counts=counts, about=about).notes[-1]
        assert "biased gives node 0 a share of 0.400 (4.8 times 1/n)" in note
        assert "changing gives node 0 a share of" in note
        assert "ring gives" not in note
        for cure in ("algorithms.sab", "algorithms.push_diging", "algorithms.osgp"):
            assert cure in note
    star = {"star": topologies.star(4)}
    assert "star gives node 0 a share of 0.400" in str(compare(star, weights=mixing.uniform))
    pushed = mixing.uniform(hub(6), direction="push")
    equal = [topologies.ring(6), topologies.exponential(6), random_in(6, 2, seed=0), pushed]
    assert len(compare(equal).notes) == 1
    assert "Shares of nodes" not in str(compare(equal))
    assert "Shares of nodes" in str(compare([*equal, hub(6)]))
    monkeypatch.setitem(compare.__wrapped__.__globals__, "ITERATED_LIMIT", 11)
    assert "biased gives unequal shares, not computed for more" in compare(graphs).notes[-1]


def test_few_columns_are_shown_and_explained_unless_more_are_asked_for():
    costs = ("max degree", "messages per round", "MB per round")
    plain = compare([RING])
    assert plain.columns == ("name", "N_10", "spectral gap", *costs)
    of_data = compare([RING], label_counts=DIGITS, hardware={"compute": 1.0})
    first = ("H_10", "neighborhood heterogeneity", "N_10", "spectral gap", *costs)
    assert of_data.columns == ("name", *first, "seconds per round")
    below = str(of_data).splitlines()[4:]
    assert [line.partition(": ")[0] for line in below[:-1]] == list(of_data.columns[1:])
    assert below[-1].endswith('about="all" shows all columns.')
    assert 'about="all"' not in str(compare([RING], about="all"))
    assert compare([RING], metrics=["slem"]).columns == (*plain.columns, "slem")
    by_group = {group: compare([RING], about=group).columns[1:] for group in ("cost", "rounds")}
    assert by_group["cost"][:3] == ("messages per round", "MB per round", "busiest node messages")
    assert by_group["rounds"][:3] == ("B", "expected gap", "measured contraction")
    both = ("name", *by_group["cost"], *by_group["rounds"])
    assert compare([RING], about=["cost", "rounds"]).columns == both
    assert compare([RING], about=["data"]).columns == ("name",)


def test_long_names_are_shortened_as_heads_only():
    names = [f"a graph with a long name, {'and more ' * 5}{k}" for k in range(2)]
    table = compare([RING, RING], names=names, about="all")
    head = str(table).splitlines()[1]
    assert re.split("  +", head)[1:] == [f"{name[:14]}…{name[-13:]}" for name in names]
    assert table.column("name") == tuple(names)
    assert names[0] in str(table.select(["name", "slem"]))


@pytest.fixture
def declare(monkeypatch):
    """Return a function that adds columns to those of a module."""

    def add(*names, **settings):
        column = {"group": "paths", "meaning": "luck", "compute": lambda entry: 7} | settings
        added = [MetricColumn(name=name, **column) for name in names]
        monkeypatch.setattr(declaring, "COLUMNS", (*declaring.COLUMNS, *added))
        all_columns.cache_clear()

    yield add
    all_columns.cache_clear()


def test_every_module_that_declares_columns_is_found():
    files = Path(metrics.__path__[0]).glob("*.py")
    declaring = {path.stem for path in files if re.search(r"(?m)^COLUMNS\b", path.read_text())}
    assert {module.__name__.rpartition(".")[2] for module in MODULES} == declaring
    found = all_columns()
    assert {c.name for module in MODULES for c in module.COLUMNS} == {c.name for c in found}
    assert len({column.name for column in found}) == len(found)
    for column in found:
        assert column.meaning
        assert column.group in GROUPS
        assert not column.meaning.endswith(".")
        if column.limit:  # names a function for larger graphs
            owner, _, name = column.limit[1].partition(".")
            assert hasattr({"metrics": metrics, "Topology": Topology}[owner], name)


def test_all_columns_are_shown_and_listed_in_their_order():
    names = [column.name for column in all_columns()]
    options = {"label_counts": COUNTS, "hardware": {"compute": 1.0}}
    assert list(all_of(RING, **options)) == ["name", *names]
    unlabeled = [c.name for c in all_columns() if not {LABELS, HARDWARE} & set(c.needs)]
    assert list(all_of(RING)) == ["name", *unlabeled]
    table = metrics.columns()
    assert list(table.column("column")) == names
    rows = {row[0]: row[1:] for row in table.rows}
    meaning = "hops between the two nodes that are farthest apart"
    assert rows["diameter"] == ("paths", meaning, "(strongly) connected graphs", 2000)
    assert rows["mean clique skew"][2:] == ("label counts, graphs with groups of nodes", "any")
    assert rows["nodes"][2:] == ("", "any")
    limits = [rows[name][-1] for name in ("Delta", "communities", "diameter", "slem", "N_10")]
    assert limits == [300, 300, 2000, 5000, 200_000]
    assert [repr(mean(values)) for values in ([1, 2, 3], [1, 2])] == ["2", "1.5"]


def test_a_declared_column_is_shown_where_it_belongs(declare):
    order = [column.name for column in all_columns() if column.group == "paths"]
    declare("a", "luck")
    found = [column.name for column in all_columns() if column.group == "paths"]
    assert found == [*order[:-1], "a", "luck", order[-1]]
    assert compare([RING], about="paths").column("luck") == (7,)
    assert compare([RING], about=[], metrics=["luck"]).column("luck") == (7,)
    assert "luck" in metrics.columns().column("column")
    declare("other", group="lore")
    with pytest.raises(ValueError, match="'lore' is not in list"):
        all_columns()


def test_limits_are_checked_before_requirements(declare):
    unlucky = need("luck", lambda entry: False, "no luck")

    def failing(entry):
        raise TopologyError(f"`graph` must be another: {entry.name} is unlucky")

    declare("a", limit=limited(5, "metrics.slem"), needs=(unlucky,))
    declare("b", limit=limited(6, "metrics.slem"), needs=(unlucky,))
    declare("c", compute=failing)
    declare("d", limit=limited(1000, "metrics.slem"))
    graphs = [topologies.ring(6), topologies.ring(1001)]
    found = compare(graphs, about="paths").select(list("abcd"))
    ask = "ask for the column by name, or use metrics.slem"
    reasons = [f"computed here up to n=5: {ask}", "no luck", "the graph is unlucky"]
    assert found.rows[0] == (*map(NotApplicable, reasons), 7)
    assert found.column("d")[1].reason == f"computed here up to n=1,000: {ask}"
    named = compare(graphs, about=[], metrics=list("abcd"))
    assert named.rows[0][1:3] == (NotApplicable("no luck"),) * 2  # of any size, if asked for
    assert named.column("d") == (7, 7)


def test_shared_values_are_computed_once(declare):
    calls = []

    def costly(entry):
        calls.append(entry.name)
        return len(calls)

    declare("a", "b", compute=lambda entry: entry.shared(costly))
    table = compare([RING, RING], names=["x", "y"], about=[], metrics=["a", "b"])
    assert calls == ["x", "y"]
    assert table.rows == (("x", 1, 1), ("y", 2, 2))
