"""What holds for every algorithm of the table; a missing row fails."""

import ast
import doctest
import inspect
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import topofl
from tests import problems
from tests.rows.methods import ALGORITHMS
from topofl import algorithms, data, metrics, topologies

ARGUMENTS = {name: row.arguments for name, row in ALGORITHMS.items()}
PERSONAL = [name for name, arguments in ARGUMENTS.items() if "head" in arguments]
WITHOUT_MOMENTUM = [
    name
    for name in ARGUMENTS
    if "momentum" not in inspect.signature(getattr(algorithms, name)).parameters
]
BAD = [("lr", 0.0), ("lr", float("nan")), ("batch_size", 0), ("momentum", 1.0)]


def build(name, **changes):
    return getattr(algorithms, name)(**ARGUMENTS[name] | changes)


def run(name, clients=None, **settings):
    clients = clients or (
        problems.validated_clients() if ALGORITHMS[name].validated else problems.equal_clients()
    )
    settings = {
        "rounds": 25,
        "topology": problems.cliques(clients),
        "seed": 0,
        "executor": "looped",
    } | settings
    model = problems.convolutional() if name in PERSONAL else problems.linear()
    return topofl.run(build(name), model=model, clients=clients, **problems.options(**settings))


def test_every_algorithm_has_a_row():
    assert set(ALGORITHMS) == set(algorithms.__all__)


OTHER_AVERAGES = {
    "sab": "pushes its gradients, so that the mean of all losses is minimized",
    "coordinate_median": "takes no weighted mean",
    "trimmed_mean": "takes no weighted mean, and does not read the weights",
    "dispfl": "averages each parameter over other nodes, whatever the weights",
    "dpfl": "nodes choose their peers",
    "pfeddst": "nodes choose their peers",
    "random_collaboration": "nodes choose their peers",
}
"""Methods of which a warning of unequal shares would be untrue, though models do not keep their
mean on a directed graph."""


def mean_model(name, graph):
    """Return the mean of the models after rounds without training, and whether shares are named."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        history = topofl.run(
            build(name, lr=1e-30),
            model=problems.convolutional() if name in PERSONAL else problems.linear(),
            clients=(
                problems.validated_clients()
                if ALGORITHMS[name].validated
                else problems.equal_clients()
            ),
            topology=graph,
            rounds=20,
            seed=0,
            init="independent",
        )
    warned = [one for one in told if "a share of" in str(one.message)]
    return history.models.flat.mean(0), len(warned)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.slow
def test_methods_that_average_by_rows_of_weights_warn_of_unequal_shares_and_declare_it(name):
    """If only rows of W sum to 1, averaging moves the mean of the models; with columns it is kept.

    A new method that moves it must warn, or be listed with a reason.
    """
    edges = {(i, (i + 1) % 6) for i in range(6)} | {(0, j) for j in range(1, 6)}
    graph = topofl.from_edges(sorted(edges), 6, directed=True)
    declared = "equal shares" in {need.name for need in build(name).needs}
    assert declared == ("metrics.perron_vector" in inspect.getdoc(getattr(algorithms, name)))
    try:
        directed, warned = mean_model(name, graph)
    except topofl.TopologyError:
        assert not declared
        return
    except ValueError as error:
        if "a common start" not in str(error):
            raise
        run(name, topology=None, rounds=1)  # no rows: models are averaged by a server
        return
    undirected, _ = mean_model(name, topologies.ring(6))
    moved = float((directed - undirected).abs().max()) > 0.01
    assert moved == (declared or name in OTHER_AVERAGES)
    assert warned == declared


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rows_name_the_arguments_that_must_be_given_and_the_test_of_the_naive_loop(name):
    row = ALGORITHMS[name]
    getattr(algorithms, name)(row.lr, **row.required)
    folder = Path(__file__).parent
    path = folder.parent / row.compared if "/" in row.compared else folder / row.compared
    text = path.with_suffix(".py").read_text()
    assert "naive" in text
    assert re.search(rf"\b{name}\b", text)


@pytest.mark.parametrize("name", algorithms.__all__)
def test_every_algorithm_has_an_example(name):
    """The suite runs the examples as doctests."""
    assert doctest.DocTestParser().get_examples(inspect.getdoc(getattr(algorithms, name)))


def statements(source):
    """Return how many statements a module has, without imports and docstrings."""
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.walk(ast.parse(source))
    )


def test_statements_are_counted():
    text = [
        '"""Text."""',
        "import ast",
        "def f(a):",
        '    """More."""',
        "    return (a,",
        "b)",
        "c = 1; d = 2",
    ]
    assert statements("\n".join(text)) == 4


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_method_is_a_short_file_of_its_own(name):
    """At most 60 statements: a chain of terms and phases that other methods may use too."""
    module = sys.modules[getattr(algorithms, name).__module__]
    assert module.__name__.rpartition(".")[2] == (ALGORITHMS[name].module or name)
    assert name in module.__all__
    assert statements(inspect.getsource(module)) <= 60


@pytest.mark.parametrize("name", ARGUMENTS)
def test_loss_falls_and_seed_decides(name):
    history, again = run(name, every=5), run(name, every=5, rounds=5)
    assert history["train_loss"][-1] < 0.5 * history["train_loss"][0]
    for column in ("loss", "train_loss"):
        np.testing.assert_array_equal(history[column][: len(again[column])], again[column])
    assert list(again["round"]) == [0, 5]


@pytest.mark.parametrize("name", ["dsgd", "clique_averaging", "centralized", "local_only"])
def test_on_one_node_it_is_plain_sgd(name):
    clients = problems.equal_clients(1)
    graph = topofl.Topology(topologies.fully_connected(1).adjacency, groups=((0,),))
    mine = topofl.run(
        getattr(algorithms, name)(lr=0.1, batch_size=8),
        model=problems.linear(),
        clients=clients,
        topology=graph,
        rounds=9,
        seed=0,
    )
    plain = topofl.run(
        algorithms.local_only(lr=0.1, batch_size=8),
        model=problems.linear(),
        clients=clients,
        rounds=9,
        seed=0,
    )
    np.testing.assert_allclose(mine["loss"], plain["loss"], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        (name, argument, value)
        for argument, value in BAD
        for name in ARGUMENTS
        if argument != "momentum" or name not in WITHOUT_MOMENTUM
    ],
)
def test_bad_arguments_are_named(name, argument, value):
    with pytest.raises(ValueError, match=f"`{argument}`"):
        build(name, **{argument: value})


@pytest.mark.parametrize("name", ["dfedavgm", "fedavg", "osgp"])
def test_on_one_node_passes_are_plain_sgd(name):
    clients = problems.equal_clients(1)
    model = problems.linear()
    mine = topofl.run(
        getattr(algorithms, name)(lr=0.1, batch_size=8, epochs=2), model=model, clients=clients,
        topology=topologies.fully_connected(1), rounds=3, seed=0,
    )  # fmt: skip
    phase = algorithms.sgd(0.1, batch_size=8, epochs=2, momentum=0.9, reset_momentum=True)
    plain = topofl.run(
        algorithms.chain("plain", local=phase), model=model, clients=clients, rounds=3, seed=0
    )
    np.testing.assert_allclose(mine["loss"], plain["loss"], rtol=1e-6)


def test_local_steps_are_checked():
    for name in ("dsgd", "local_only"):
        with pytest.raises(ValueError, match="`local_steps`"):
            build(name, local_steps=0)


def test_chain_refuses_what_is_no_phase():
    with pytest.raises(ValueError, match="at least one phase"):
        algorithms.chain("empty")
    with pytest.raises(TypeError, match="`local` must be a Phase"):
        algorithms.chain("wrong", local=lambda models: models)
    with pytest.raises(
        TypeError,
        match=r"must have a name, got one without; write chain\('wrong', local=sgd\(lr=0.1",
    ):
        algorithms.chain("wrong", algorithms.sgd(0.1))


def test_fully_connected_with_whole_minibatches_is_one_model_on_all_data():
    """D-SGD with W = J and equal minibatches is SGD on their union."""
    clients = problems.equal_clients(6)
    size = int(clients.sizes.min())
    equal = data.Partition(clients.dataset, tuple(m[:size] for m in clients.train), name="equal")
    settings = {"model": problems.linear(), "clients": equal, "rounds": 5, "seed": 0, "every": 1}
    many = topofl.run(
        algorithms.dsgd(0.1, batch_size=size),
        topology=topologies.fully_connected(6),
        **problems.options(**settings),
    )
    one = topofl.run(
        algorithms.centralized(0.1, batch_size=6 * size), **problems.options(**settings)
    )
    np.testing.assert_allclose(
        many["loss"], np.broadcast_to(one["loss"], many["loss"].shape), rtol=1e-5
    )


def test_one_clique_with_clique_averaging_is_fully_connected():
    """One clique of all nodes and common initial models."""
    clients = problems.equal_clients(6)
    graph = topologies.dcliques(clients.label_counts, clique_size=6, seed=0)
    averaged = run("clique_averaging", topology=graph)
    plain = run("dsgd", topology=topologies.fully_connected(6))
    np.testing.assert_allclose(averaged["loss"], plain["loss"], rtol=1e-4)


def test_complete_cliques_take_the_same_step():
    clients, models = problems.equal_clients(), []
    graph = topologies.random_cliques(6, 3, seed=0)
    topofl.run(
        algorithms.clique_averaging(lr=0.1, batch_size=4, momentum=0.9),
        model=problems.linear(),
        clients=clients,
        topology=graph,
        compute=topofl.Compute(on_disconnected="allow"),
        rounds=6,
        seed=0,
        callbacks=[problems.each_round(lambda t, m: models.append(m.flat.clone()))],
    )
    for group in graph.groups:
        assert metrics.consensus_distance(models[-1][list(group)]) < 1e-6


def test_local_only_on_any_graph_equals_gossip_with_the_identity():
    identity = topofl.mixing.from_weights(np.eye(6))
    graph = problems.cliques(problems.equal_clients())
    np.testing.assert_array_equal(
        run("dsgd", mixing=identity, topology=graph)["loss"], run("local_only")["loss"]
    )
