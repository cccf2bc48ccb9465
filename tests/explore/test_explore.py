"""The explorer without its page: choices, numbers, pictures, and code that does the same."""

import inspect
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest

import topofl
from topofl import data, metrics, topologies
from topofl._support.table import NotApplicable
from topofl.advice import predict_rounds
from topofl.explore import model, results

NODES = model.Nodes(n=20, seed=3)
TRAINING = model.Training(rounds=20, lr=0.1, batch_size=8, seed=3)
D_CLIQUES = model.titled(model.TOPOLOGIES)["D-Cliques"]
REGULAR = model.titled(model.TOPOLOGIES)["random regular"]
DIRECTED = model.titled(model.TOPOLOGIES)["directed ring"]
OUT = model.titled(model.TOPOLOGIES)["random receivers, changing"]
CALLS = model.candidates(
    {"A": (REGULAR, {"k": 3}), "B": (D_CLIQUES, {"clique_size": 5, "inter": "fractal"})}, 20, 3
)
CHANGING = model.candidates({"A": (OUT, {}), "B": (DIRECTED, {})}, 20, 3)


@pytest.fixture(scope="module")
def clients():
    return NODES.clients()


@pytest.fixture(scope="module")
def graphs(clients):
    return model.graphs_of(CALLS, clients)[0]


@pytest.mark.parametrize("choice", model.PARTITIONS + model.TOPOLOGIES, ids=lambda c: c.title)
def test_parameters_are_arguments_with_values_in_order(choice):
    known = inspect.signature(choice.function).parameters
    for name, (_, values, default) in choice.parameters.items():
        assert name in known
        assert default in values
        if not isinstance(default, str):
            assert list(values) == sorted(set(values))
    assert set(choice.options({}, 7)) <= set(known)
    assert choice.options({}, 7).get("seed", 7) == 7


@pytest.mark.parametrize("choice", model.PARTITIONS, ids=lambda c: c.title)
@pytest.mark.parametrize("end", [0, -1])
def test_all_settings_of_data_have_a_partition(choice, end):
    n = model.NODES[-1]
    values = {name: values[end] for name, (_, values, _) in choice.parameters.items()}
    assert model.Nodes(n, choice, values).clients().label_counts.sum(axis=1).min() > 0


@pytest.mark.parametrize("choice", model.PARTITIONS, ids=lambda c: c.title)
def test_code_of_data_makes_the_same_clients(choice):
    nodes = model.Nodes(20, choice, {}, 1)
    again = {"data": data}
    exec(nodes.code, again)
    assert (again["clients"].label_counts == nodes.clients().label_counts).all()


@pytest.mark.slow
@pytest.mark.parametrize("choice", model.TOPOLOGIES, ids=lambda c: c.title)
def test_code_of_graphs_makes_the_same_graphs(choice, clients):
    chosen = model.candidates({"A": (choice, {})}, 20, 2)
    graphs, reasons = model.graphs_of(chosen, clients)
    assert reasons == {}
    ((name, graph),) = graphs.items()
    again = eval(chosen[name][0].code, {"topologies": topologies, "clients": clients})
    assert again.period == graph.period
    for t in range(3):
        assert (again.at(t).adjacency != graph.at(t).adjacency).nnz == 0
    assert choice.push_sum == graph.at(0).is_directed


def test_a_graph_that_was_chosen_twice_is_built_once(clients):
    chosen = {"A": (REGULAR, {"k": 3}), "B": (REGULAR, {"k": 3}), "C": (REGULAR, {"k": 4})}
    graphs, reasons = model.graphs_of(model.candidates(chosen, 20, 2), clients)
    assert list(graphs) == ["A: random regular", "C: random regular"]
    assert reasons == {
        "B: random regular": "this is the graph of A: random regular; choose another topology or "
        "other arguments"
    }


@pytest.mark.slow
@pytest.mark.parametrize("choice", model.TOPOLOGIES, ids=lambda c: c.title)
def test_numbers_that_do_not_apply_have_a_reason(choice, clients):
    graphs, _ = model.graphs_of(model.candidates({"A": (choice, {})}, 20, 2), clients)
    (predicted,) = predicted_of(graphs, clients).values()
    (graph,) = graphs.values()
    spectrum = results.spectrum_of(graph, clients)
    matrices = [topofl.mixing.metropolis_or_uniform(graph.at(t)) for t in range(5)]
    if all(matrix.is_doubly_stochastic for matrix in matrices):
        rounds = None if graph.period else 60
        heterogeneity = metrics.neighborhood_heterogeneity(graph, clients, hops=10, rounds=rounds)
        assert predicted.heterogeneity == pytest.approx(heterogeneity)
        assert predicted.noise == pytest.approx(metrics.accumulated_noise(graph, 10, rounds=rounds))
    else:
        assert "doubly stochastic weights" in predicted.reason
    if choice.title.endswith("changing"):
        assert "changes from round to round" in spectrum.reason
    elif choice.title == "directed, designed for the labels":
        assert spectrum.reason.startswith("the heterogeneity spectrum needs symmetric weights")
    else:
        assert spectrum.is_exact


def test_push_sum_is_d_sgd_where_weights_are_doubly_stochastic(clients):
    ring = topologies.circulant(20, (1,), directed=True)
    one, other = (TRAINING.history(ring, push, clients) for push in (False, True))
    np.testing.assert_allclose(one["accuracy"], other["accuracy"], atol=0.01)


def predicted_of(graphs, clients):
    return results.predictions(graphs, clients, TRAINING)


def executed(program, folder, monkeypatch):
    """Return the names that a program makes when it is executed in a folder."""
    monkeypatch.chdir(folder)
    made = {"__name__": "program"}
    exec(compile(program, "program", "exec"), made)
    plt.close("all")
    return made


def test_the_program_does_the_same(clients, graphs, tmp_path, monkeypatch, capsys):
    made = executed(results.code_of(NODES, CALLS, TRAINING), tmp_path, monkeypatch)
    assert (made["clients"].label_counts == clients.label_counts).all()
    assert list(made["graphs"]) == list(graphs) == ["A: random regular", "B: D-Cliques"]
    shown = results.numbers(graphs, CALLS, clients, predicted_of(graphs, clients))
    for column, title in results.MEASURES.items():
        (row,) = (row for row in shown.rows if row[0] == title)
        found = [table.column(column)[0] for table in made["tables"].values()]
        assert found == list(row[1:]), column
    out = capsys.readouterr().out
    for name, graph in graphs.items():
        predicted = predict_rounds(graph, clients, lr=0.1, batch_size=8, hops=results.HOPS)
        assert f"{name} {predicted.rounds} times the rounds" in out
        history = TRAINING.history(graph, CALLS[name][1], clients)
        assert (made["histories"][name]["accuracy"] == history["accuracy"]).all()
        assert len(history["round"]) == 21
    assert (tmp_path / "accuracy.png").stat().st_size > 1000


def test_the_program_of_directed_and_changing_graphs_does_the_same(
    clients, tmp_path, monkeypatch, capsys
):
    found = model.graphs_of(CHANGING, clients)[0]
    made = executed(results.code_of(NODES, CHANGING, TRAINING), tmp_path, monkeypatch)
    out = capsys.readouterr().out
    predicted = predicted_of(found, clients)
    name = "A: random receivers, changing"
    assert f"{name} n/a: {predicted[name].reason}" in out
    assert "B: directed ring 2" in out
    for name, graph in found.items():
        history = TRAINING.history(graph, True, clients)
        (megabytes,) = made["tables"][name].column("MB per round")
        assert history["bytes"] / 1e6 == pytest.approx(megabytes)
        assert (made["histories"][name]["accuracy"] == history["accuracy"]).all()
        assert history["push_weight"].sum(axis=1) == pytest.approx(20)


def test_numbers_of_directed_and_changing_graphs(clients):
    found = model.graphs_of(CHANGING, clients)[0]
    predicted = predicted_of(found, clients)
    table = results.numbers(found, CHANGING, clients, predicted)
    rows = {row[0].split(",")[0]: row[1:] for row in table.rows}
    assert rows["method"] == ("SGP (push-sum)", "SGP (push-sum)")
    assert rows["messages of all nodes per round"] == (60, 20)
    assert isinstance(rows["spectral gap"][0], NotApplicable)
    for attribute, title in (("heterogeneity", "H_10"), ("rounds", "predicted rounds")):
        wanted = [getattr(one, attribute, one) for one in predicted.values()]
        assert [*rows[title]] == wanted
    assert "doubly stochastic" in table._repr_html_()
    assert results.warnings_of(predicted)
    changing, ring = (text for _, text in results.spectra(found, clients))
    assert changing.startswith("A: random receivers, changing: energy")
    assert "weighted by energy: n/a (the mixing matrix changes" in changing
    assert "weighted by energy: 0." in ring
    changing, ring = (text for _, text in results.drawings(found, clients))
    assert changing.startswith("A: random receivers, changing, round 0 has 60 edges")
    assert ring.startswith("B: directed ring has 20 edges")


def test_numbers_are_those_of_the_graphs(clients, graphs):
    table = results.numbers(graphs, CALLS, clients, predicted_of(graphs, clients))
    assert table.columns == ("", *graphs)
    rows = {row[0].split(",")[0]: row[1:] for row in table.rows}
    for k, graph in enumerate(graphs.values()):
        sent = graph.adjacency.nnz
        assert rows["edges"][k] == sent / 2
        assert rows["largest degree"][k] == graph.adjacency.sum(axis=0).max()
        assert rows["messages of all nodes per round"][k] == sent
        assert rows["MB of all nodes per round"][k] == pytest.approx(sent * 4 * 650 / 1e6)
        spectrum = metrics.heterogeneity_spectrum(graph, clients)
        assert rows["H_10"][k] == pytest.approx(spectrum.heterogeneity(10))
        assert rows["N_10"][k] == pytest.approx(metrics.accumulated_noise(graph, 10))
        assert rows["predicted rounds"][k].low <= rows["predicted rounds"][k].mean
    assert {*model.message_sizes(CALLS, clients.dataset).values()} == {650}


def test_warnings_are_shown_once(clients, graphs):
    found = results.warnings_of(predicted_of(graphs, clients))
    assert sum("number of nodes" in text for text in found) == 1
    assert not any("learning rate" in text for text in found)


def test_a_graph_that_there_is_not_leaves_the_other(clients):
    calls = model.candidates({"A": (REGULAR, {"k": 3}), "B": (D_CLIQUES, {})}, 15, 0)
    few = model.Nodes(15).clients()
    graphs, reasons = model.graphs_of(calls, few)
    assert list(graphs) == ["B: D-Cliques"]
    assert "odd" in reasons["A: random regular"] or "even" in reasons["A: random regular"]
    assert len(results.numbers(graphs, calls, few, predicted_of(graphs, few)).columns) == 2
    assert len(results.spectra(graphs, few)) == 1


def test_pictures_have_descriptions(clients, graphs):
    histories = {
        name: TRAINING.history(graph, CALLS[name][1], clients) for name, graph in graphs.items()
    }
    mean = histories["A: random regular"].last("accuracy").mean()
    shown = {
        "A: random regular has 30 edges": results.drawings(graphs, clients)[0],
        "eigenvalues, weighted by energy: 0.": results.spectra(graphs, clients)[1],
        f"after the last one: A: random regular {mean:.3f}": results.curves(histories),
    }
    for text, (figure, said) in shown.items():
        assert any(ax.has_data() for ax in figure.axes)
        assert text in said
        assert figure.get_figwidth() == results.WIDTH


def test_equal_data_have_no_energy():
    nodes = data.from_arrays(np.zeros((40, 4)), np.tile([0, 1], 20))
    equal = data.iid(nodes, 4, seed=0)
    ((_, said),) = results.spectra({"A": topologies.fully_connected(4)}, equal)
    assert "weighted by energy: 0.00" in said


def test_the_notebook_wires_them():
    pytest.importorskip("marimo", reason="needs marimo")
    from topofl.explore.app import app

    _, found = app.run()
    assert list(found["graphs"]) == ["A: exponential", "B: D-Cliques"]
    assert found["program"] == results.code_of(model.Nodes(), found["chosen"], model.Training())
    assert (found["clients"].label_counts == model.Nodes().clients().label_counts).all()


def test_the_notebook_says_why_there_is_no_graph():
    pytest.importorskip("marimo", reason="needs marimo")
    from topofl.explore.app import app

    odd = {"n_of": SimpleNamespace(value=15), "seed_of": SimpleNamespace(value=0)}
    odd |= {"known": {}, "source_of": SimpleNamespace(value=model.DIGITS)}
    odd["partition_of"] = SimpleNamespace(value=model.PARTITIONS[-1])
    odd["a_values"] = SimpleNamespace(value={"k": 5}, values=lambda: [])
    chosen = {"a_of": SimpleNamespace(value=REGULAR), "b_of": SimpleNamespace(value=D_CLIQUES)}
    shown, found = app.run(defs=odd | chosen | {"topologies": {}})
    assert list(found["graphs"]) == ["B: D-Cliques"]
    assert "A: random regular: `n` * `k` must be even, got n=15" in "".join(map(as_html, shown))


def as_html(output):
    """Return the HTML of an output of a cell."""
    return str(getattr(output, "text", ""))
