"""Tables of graphs: columns against their functions, and values that do not apply."""

import re

import networkx as nx
import numpy as np
import pytest
from torch import nn

from topofl import data, mixing, topologies
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
from topofl.mixing import MixingSequence
from topofl.topologies import random_in
from topofl.topology import Topology, TopologySequence, as_topology, from_edges

COUNTS = np.eye(6, dtype=int) + 1
RING = as_topology(nx.cycle_graph(6), name="ring")
GROUPED = from_edges(
    [(0, 1), (1, 2), (3, 4), (4, 5), (2, 3)], 6, name="grouped", groups=[(0, 1, 2), (3, 4, 5)]
)
CONSTANTS = push_sum_constants(RING, rounds=100)
LINE = from_edges([(i, i + 1) for i in range(5)], 6, name="line", directed=True)


def row(table: Table, k: int = 0) -> dict:
    return dict(zip(table.columns, table.rows[k], strict=True))


def test_rounds_of_a_sequence_are_not_made_for_their_groups():
    made = []

    def at(t):
        made.append(t)
        return GROUPED

    table = compare([TopologySequence(6, at, "sequence", period=50)], about="structure")
    assert table.column("nodes") == (6,)
    assert made == [*range(50)] * 2  # the graphs, and their matrices


@pytest.mark.parametrize(
    ("name", "need"),
    [
        ("neighborhood heterogeneity", "label counts; pass `label_counts=`"),
        ("seconds per round", "hardware; pass `hardware=`"),
    ],
)
def test_columns_that_need_more_say_what_to_pass(name, need):
    with pytest.raises(ValueError, match=f"but '{name}' needs {need}"):
        compare([RING], about="paths", metrics=name)


def test_columns_of_a_ring():
    found = row(compare([RING], about="all"))
    slem_of_ring = pytest.approx(2 / 3)  # (1 + 2 cos(2 pi / 6)) / 3
    expected = {
        "name": "ring",
        "nodes": 6,
        "edges": 6,
        "mean degree": 2,
        "max degree": 2,
        "sparsity": pytest.approx(1 - 12 / 30),
        "reciprocity": 1,
        "clustering": 0,
        "communities": len(communities(RING)),
        "modularity": pytest.approx(
            3 / 6 - 3 * (4 / 12) ** 2
        ),  # three pairs of neighbors; two triples have as much
        "diameter": 3,
        "mean distance": pytest.approx((1 + 1 + 2 + 2 + 3) / 5),
        "edge connectivity": 2,
        "node connectivity": 2,
        "algebraic connectivity": pytest.approx(1.0),  # 2 - 2 cos(2 pi / 6)
        "effective resistance": pytest.approx(
            (6 + 1) / 6
        ),  # Kirchhoff index (n^3 - n) / 12 over n (n - 1) / 2 pairs
        "spectral gap": pytest.approx(1 / 3),
        "slem": slem_of_ring,
        "lambda_n": pytest.approx(-1 / 3),
        "sigma": slem_of_ring,
        "pi-weighted gap": pytest.approx(1 / 3),
        "Perron skewness": 1,
        "Dobrushin coefficient": 1,
        "mixing time": 3,
        "effective neighbors": pytest.approx(effective_neighbors(RING, 0.9)),
        "worst effective neighbors": pytest.approx(
            effective_neighbors(RING, 0.9)
        ),  # all nodes alike
        "B": 1,
        "expected gap": pytest.approx(1 - 4 / 9),
        "measured contraction": slem_of_ring,
        "Delta": 3,
        "D_max": pytest.approx(3),
        "reach": 3,
        **{
            f"log10({what}), {kind}": pytest.approx(
                getattr(getattr(CONSTANTS, kind.lower()), field)
            )
            for what, kind, field in [
                ("1 - q", "SGP", "log10_gap"),
                ("C", "SGP", "log10_c"),
                ("1 - q", "DFedPGP", "log10_gap"),
                ("1 - q", "proven", "log10_gap"),
            ]
        },
        "q measured": pytest.approx(2 / 3, rel=1e-3),
        "C measured": pytest.approx(CONSTANTS.c_hat),
        "delta": 1,
        "messages per round": 12,
        "MB per round": pytest.approx(12 * 7850 * 4 / 1e6),
        "busiest node messages": 4,
    }
    assert {name: found[name] for name in expected} == expected


def test_columns_are_chosen_by_group():
    by_group = {group: compare([RING], about=group).columns[1:] for group in ("cost", "rounds")}
    assert by_group["cost"][:3] == ("messages per round", "MB per round", "busiest node messages")
    assert by_group["rounds"][:3] == ("B", "expected gap", "measured contraction")
    both = ("name", *by_group["cost"], *by_group["rounds"])
    assert compare([RING], about=["cost", "rounds"]).columns == both
    assert compare([RING], about=["data"]).columns == ("name",)
    with pytest.raises(
        ValueError,
        match=r"`about` must be one of 'structure', .*, got 'path'; did you mean 'paths'",
    ):
        compare([RING], about=["path"])


def test_label_counts_add_columns():
    table = compare([RING, GROUPED], label_counts=COUNTS, about="all")
    about_data = {
        "neighborhood heterogeneity",
        "mean clique skew",
        "neighbor label distance",
        "label separation",
    }
    assert set(table.columns) - set(compare([RING], about="all").columns) >= about_data
    assert row(table)["neighbor label distance"] == neighbor_label_distance(RING, COUNTS)
    assert row(table)["communities"] == len(communities(RING))
    assert row(table)["modularity"] == modularity(RING, communities(RING))
    assert row(table)["label separation"] == label_separation(communities(RING), COUNTS)
    assert row(table)["neighborhood heterogeneity"] == neighborhood_heterogeneity(RING, COUNTS)
    assert row(table)["mean clique skew"] == NotApplicable("the graph has no groups of nodes")
    assert row(table, 1)["mean clique skew"] == clique_skew(GROUPED, COUNTS).mean()


def test_recorded_rounds_are_all_used():
    sequence = random_in(8, 3, seed=0)
    recorded = MixingSequence(8, lambda t: mixing.uniform(sequence.at(t)), "a run", length=20)
    ran, drawn = (
        row(compare([recorded], about="all")),
        row(compare([sequence], rounds=20, about="all")),
    )
    for name in ("edges", "B", "expected gap", "neighborhood heterogeneity", "messages per round"):
        assert ran.get(name) == drawn.get(name)
    assert ran["q measured"] == push_sum_constants(recorded).q_hat
    assert drawn["q measured"] == push_sum_constants(sequence, rounds=20).q_hat  # of uniform pushes
    assert ran["slem"] == NotApplicable(
        "a periodic sequence is needed, the graph has no period; use "
        "metrics.measured_contraction(sequence, rounds=..., seed=...)"
    )
    assert ran["lambda_n"] == NotApplicable("of one matrix: take a round of the sequence")


def test_expensive_columns_of_large_graphs_are_not_applicable():
    large = row(compare([as_topology(nx.cycle_graph(301))], about=["push-sum"]))
    assert {value for key, value in large.items() if key != "name"} == {
        NotApplicable(
            "computed here up to n=300: ask for the column by name, or use "
            "metrics.push_sum_constants"
        )
    }


def test_all_kinds_of_graphs_are_accepted():
    matrix = mixing.max_degree(GROUPED)
    table = compare(
        [
            nx.path_graph(6),
            matrix,
            [matrix, mixing.lazy(matrix)],
            RING.to_pyg(),
            np.ones((3, 3)) - np.eye(3),
        ],
        about="all",
    )
    assert table.column("nodes") == (6, 6, 6, 6, 3)
    assert table.column("edges") == (5, 5, 5, 6, 3)
    assert table.column("slem")[1:3] == (matrix.slem, slem([matrix, mixing.lazy(matrix)]))
    assert table.column("name") == ("networkx", "max_degree(grouped)", "matrices", "pyg", "matrix")


def test_names_and_weights_and_message_size_can_be_given():
    def rule(graph: Topology) -> mixing.MixingMatrix:
        return mixing.lazy(mixing.uniform(graph))

    table = compare(
        [RING, mixing.uniform(RING)], names=["a", "b"], weights=rule, n_parameters=10, about="all"
    )
    assert table.column("name") == ("a", "b")
    assert table.column("slem") == (pytest.approx(5 / 6), pytest.approx(2 / 3))
    assert table.column("MB per round") == (480e-6, 480e-6)


def test_directed_graphs_have_no_algebraic_connectivity():
    line = row(compare([LINE], about="all"))
    assert line["algebraic connectivity"] == NotApplicable("defined for undirected graphs")
    assert (
        line["diameter"]
        == line["mean distance"]
        == NotApplicable("some nodes cannot reach each other")
    )
    assert (line["edges"], line["mean degree"], line["max degree"]) == (5, pytest.approx(5 / 6), 1)


def test_disconnected_graphs_never_average():
    apart = row(compare([from_edges([(0, 1), (2, 3)], 4)], about="all"))
    assert (apart["spectral gap"], apart["algebraic connectivity"]) == (0.0, 0.0)
    assert isinstance(apart["diameter"], NotApplicable)


def test_periodic_sequences_are_means_over_the_period():
    path = as_topology(nx.path_graph(6))
    both = row(compare([[path, RING]], label_counts=COUNTS, about="all"))
    assert (both["edges"], both["mean degree"], both["max degree"], both["diameter"]) == (
        5.5,
        pytest.approx((10 / 6 + 2) / 2),
        2,
        4,
    )
    assert both["spectral gap"] == pytest.approx(1 - slem(as_topology([path, RING])))
    values = [neighborhood_heterogeneity(graph, COUNTS) for graph in (path, RING)]
    assert both["neighborhood heterogeneity"] == pytest.approx(np.mean(values))
    assert both["messages per round"] == 11


def test_other_sequences_are_means_over_their_first_ten_rounds():
    sequence = TopologySequence(
        6, lambda t: RING if t < 5 else GROUPED if t < 10 else LINE, name="changing"
    )
    changing = row(compare([sequence], about="all"))
    assert changing["edges"] == 5.5
    assert changing["spectral gap"] == changing["slem"]
    assert "measured_contraction" in changing["slem"].reason
    assert "measured_contraction" in str(compare([sequence], about="all"))


def test_columns_that_the_weights_do_not_allow_are_not_applicable():
    push, pull = (mixing.uniform(LINE, direction=d) for d in ("push", "pull"))
    table = compare([push, [push, pull]], label_counts=COUNTS, about="all")
    assert "the weight of node 0 tends to 0" in row(table)["neighborhood heterogeneity"].reason
    assert "row-stochastic in all rounds" in row(table, 1)["H_10"].reason
    assert "row-stochastic" in row(table, 1)["slem"].reason


def test_distances_of_large_graphs_are_left_out():
    large = row(compare([as_topology(nx.star_graph(2000))], about="all"))
    assert "n=2,000" in large["diameter"].reason
    assert "n=2,000" in large["mean distance"].reason
    assert (large["nodes"], large["spectral gap"]) == (2001, pytest.approx(1 / 2001, rel=1e-6))
    assert large["algebraic connectivity"] == pytest.approx(1.0)  # of every star


def test_no_cell_is_nan():
    table = compare(
        [RING, LINE, [LINE, RING], TopologySequence(6, lambda t: RING), from_edges([], 6)],
        label_counts=COUNTS,
    )
    assert not any(
        isinstance(cell, float) and np.isnan(cell) for cells in table.rows for cell in cells
    )


def test_messages_agree_with_round_cost():
    matrix = mixing.uniform(LINE)
    cost, line = round_cost(matrix, 7850), row(compare([matrix], about="all"))
    assert (line["messages per round"], line["busiest node messages"]) == (
        cost.messages,
        cost.busiest_messages,
    )


def test_an_empty_comparison_is_an_empty_table():
    assert compare([], about="all").rows == ()


def test_bad_input():
    with pytest.raises(TypeError, match="`graphs` must be a list of graphs, got Graph"):
        compare(nx.path_graph(3))
    with pytest.raises(TypeError, match="`graphs` must be a list of graphs, got Topology"):
        compare(RING)
    with pytest.raises(TypeError, match="`graphs`"):
        compare([object()], about="all")
    with pytest.raises(
        ValueError, match="`names` must have one name per graph: got 1 names for 2 graphs"
    ):
        compare([RING, RING], names=["ring"], about="all")
    with pytest.raises(
        ValueError, match="`label_counts` must have one row per node: got 5 rows, ring has n=6"
    ):
        compare([RING], label_counts=COUNTS[:5], about="all")
    with pytest.raises(TypeError, match="`label_counts` must be integers"):
        compare([RING], label_counts=COUNTS / 2, about="all")
    with pytest.raises(TypeError, match="`weights`"):
        compare([RING], weights="uniform", about="all")
    with pytest.raises(ValueError, match="`n_parameters`"):
        compare([RING], n_parameters=0, about="all")


def test_one_recorded_round_is_enough_for_all_but_a_measurement():
    one = row(
        compare(
            [MixingSequence(4, lambda t: mixing.from_weights(np.eye(4)), "once", length=1)],
            about="all",
        )
    )
    assert one["measured contraction"] == NotApplicable("one round was recorded: two are needed")
    assert one["edges"] == 0


def test_names_are_a_list():
    with pytest.raises(TypeError, match="`names` must be a list of names, got str"):
        compare([RING, RING], names="ab", about="all")


@pytest.mark.parametrize("name", ["weights", "symmetric", "graph", "a", "ring(n=6)"])
def test_reasons_say_the_graph_instead_of_its_name(name):
    weights = mixing.from_weights([[0.5, 0.5], [0.2, 0.8]], name=name)
    reason = row(compare([weights], about="averaging"))["lambda_n"].reason
    assert reason == (
        "the smallest eigenvalue needs symmetric weights, the graph is not symmetric; "
        "use metrics.slem"
    )
    reason = row(compare([Topology(LINE.adjacency, name=name)], about="averaging"))[
        "lambda_n"
    ].reason
    assert reason.startswith("the smallest eigenvalue needs symmetric weights, ")
    assert reason.count("the graph") + reason.count(f"uniform({name}") == 1


def weighted_ring():
    graph = nx.Graph()
    graph.add_weighted_edges_from((i, (i + 1) % 6, (0.1, 0.4)[i % 2]) for i in range(6))
    return graph


def test_unused_edge_weights_are_warned_about_once():
    own = as_topology(weighted_ring(), own_weights=True)
    expected = 0.5 - abs(
        0.1 + 0.4 * np.exp(2j * np.pi / 3)
    )  # a period of two: eigenvalues 1/2 +- |a + b exp(i theta)|
    assert expected == pytest.approx(0.139, abs=1e-3)
    assert row(compare([own], about="all"))["spectral gap"] == pytest.approx(expected)
    assert 1 - slem(own) == pytest.approx(expected)
    for rule in (mixing.metropolis_hastings, mixing.own_weights, mixing.metropolis_or_uniform):
        compare([weighted_ring()], weights=rule, about="all")  # which says nothing
    graph = as_topology(weighted_ring())
    for measure in (
        lambda: compare([graph], about="all"),
        lambda: slem(graph),
        lambda: slem(as_topology([graph, graph])),
    ):
        with pytest.warns(
            UserWarning, match=r"which are ignored: .* own_weights=True\), .* weights=mixing.metrop"
        ) as caught:
            measure()
        assert [str(warning.filename) for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match="weights from 0.1 to 0.4") as caught:
        compare([as_topology(lambda t: RING if t < 3 else graph)], about="averaging")
    assert len(caught) == 1


def test_the_warning_about_edge_weights_recommends_what_works():
    strengths = nx.Graph()
    strengths.add_weighted_edges_from([(0, 1, 7), (1, 2, 1), (2, 0, 4)])
    graph = as_topology(strengths)
    call = r"metrics\.spectral_gap\(graph, weights=mixing\.weighted_metropolis\)"
    with pytest.warns(UserWarning, match=f"into a node sum to up to 11, above 1; .*{call}") as told:
        slem(graph)
    assert "own_weights" not in str(told[0].message)
    with pytest.raises(ValueError, match="sum to 11"):
        as_topology(strengths, own_weights=True)
    scaled = mixing.weighted_metropolis(graph).spectral_gap
    assert 1 - slem(graph, weights=mixing.weighted_metropolis) == pytest.approx(scaled)
    assert row(compare([graph], weights=mixing.weighted_metropolis, about="all"))[
        "spectral gap"
    ] == (pytest.approx(scaled))


def test_names_are_the_keys_of_a_dictionary():
    graphs = {"one": RING, 2: GROUPED}
    table = compare(graphs, about="paths")
    assert table.column("name") == ("one", "2")
    assert table.rows == compare(list(graphs.values()), names=["one", "2"], about="paths").rows
    assert compare(graphs, names=["a", "b"], about="paths").column("name") == ("a", "b")


DIGITS = data.shards(data.digits(), n=6, per_node=2, seed=0)


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
    monkeypatch.setitem(compare.__wrapped__.__globals__, "ITERATED_LIMIT", 11)
    assert "biased gives unequal shares, not computed for more" in compare(graphs).notes[-1]


def test_equal_shares_need_no_note():
    pushed = mixing.uniform(hub(6), direction="push")
    graphs = [topologies.ring(6), topologies.exponential(6), random_in(6, 2, seed=0), pushed]
    table = compare(graphs)
    assert len(table.notes) == 1
    assert "Shares of nodes" not in str(table)
    assert "Shares of nodes" in str(compare([*graphs, hub(6)]))


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
    everything = compare([RING], label_counts=DIGITS, about="all")
    assert set(everything.columns) > set(compare([RING], label_counts=DIGITS).columns)
    assert 'about="all"' not in str(everything)
    assert compare([RING], metrics=["slem"]).columns == (*plain.columns, "slem")


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
    with pytest.raises(ValueError, match="`model` or `n_parameters` must be given, not both"):
        compare([RING], model=model, n_parameters=3)
    with pytest.raises(TypeError, match="`model` must be a torch"):
        compare([RING], model="mlp")


def test_long_names_are_shortened_as_heads_only():
    names = [f"a graph with a long name, {'and more ' * 5}{k}" for k in range(2)]
    table = compare([RING, RING], names=names, about="all")
    head = str(table).splitlines()[1]
    assert names[0] not in head
    assert head.count("…") == 2
    assert re.split("  +", head)[1:] == [f"{name[:14]}…{name[-13:]}" for name in names]
    assert table.column("name") == tuple(names)
    assert names[0] in str(table.select(["name", "slem"]))


@pytest.mark.parametrize("n", [4000, 1_000_000])
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


def test_large_graphs_without_closed_forms_say_how_to_ask_for_them():
    graph = topologies.path(5001)
    refused = row(compare([graph], about="averaging"))
    for name in ("spectral gap", "slem", "lambda_n", "sigma", "pi-weighted gap"):
        assert "up to n=5,000: ask for the column by name" in refused[name].reason
