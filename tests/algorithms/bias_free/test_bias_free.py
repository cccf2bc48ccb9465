"""EXTRA, D^2, K-GT, Push-DIGing and S-AB equal naive loops in float64.

They also find the optimum of the mean loss.
"""

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag
from torch import nn

import topofl
from tests import naive, problems
from tests.algorithms.convergence import BY_RATE, WHOLE, distances, unlike_lines, watched
from tests.algorithms.harness import BATCH, CLIENTS, HOW, ROUNDS, N, check, engine, nodes_at_start
from tests.engine.train.test_divergence import BAD, clients_with_extremes
from topofl import algorithms, mixing, tasks, topologies

LR = 0.1


def irregular():
    """Return a strongly connected digraph; neither kind of equal weights is doubly stochastic."""
    graph = topologies.random_out(N, 2, seed=1).at(0)
    assert graph.is_connected
    assert not mixing.uniform(graph).is_doubly_stochastic
    return graph


def weights_of(graph):
    return mixing.metropolis_hastings(graph).weights.toarray()


def compare(algorithm, naively, make, settings, graph=None):
    """Check that a run ends with the models of a naive loop; return its models."""
    clients = make()
    model = problems.convolutional()
    graph = problems.cliques(clients) if graph is None else graph
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    found = naively(nodes, graph)
    _, models = engine(algorithm, model, clients, graph, **settings)
    check(nodes.flat(), models.flat, start)
    torch.testing.assert_close(models.flat, nodes.flat(), rtol=0, atol=1e-12)
    return models, found


LOCAL = {"local_steps": 3, "global_lr": 0.7}


def naive_local_gt(lr, **options):
    return lambda nodes, graph: naive.local_gt(nodes, weights_of(graph), ROUNDS, lr=lr, **options)


def naive_push_diging(lr):
    return lambda nodes, graphs: naive.push_diging(
        nodes, equal_weights(graphs, "push"), ROUNDS, lr=lr
    )


def naive_sab(lr):
    return lambda nodes, graphs: naive.sab(
        nodes, equal_weights(graphs, "pull"), equal_weights(graphs, "push"), ROUNDS, lr=lr
    )


def equal_weights(graphs, direction):
    return [
        mixing.uniform(graphs.at(t), direction=direction).weights.toarray() for t in range(ROUNDS)
    ]


@HOW
@CLIENTS
def test_local_gt_equals_naive_loop(make, settings):
    how = LOCAL | {"lr": algorithms.constant(LR)}
    compare(algorithms.local_gt(batch_size=BATCH, **how), naive_local_gt(**how), make, settings)


@HOW
@CLIENTS
def test_extra_equals_naive_loop(make, settings):
    compare(
        algorithms.extra(LR, batch_size=BATCH),
        lambda nodes, graph: naive.extra(
            nodes, weights_of(graph), ROUNDS, lr=algorithms.constant(LR)
        ),
        make,
        settings,
    )


@HOW
@CLIENTS
@pytest.mark.parametrize("lazy", [True, False])
def test_d2_equals_naive_loop(lazy, make, settings):
    compare(
        algorithms.d2(LR, batch_size=BATCH, lazy=lazy),
        lambda nodes, graph: naive.d2(
            nodes, weights_of(graph), ROUNDS, lr=algorithms.constant(LR), lazy=lazy
        ),
        make,
        settings,
    )


@HOW
@CLIENTS
def test_push_diging_equals_naive_loop(make, settings):
    lr = algorithms.constant(LR)
    graphs = topologies.random_out(N, 2, seed=1)
    algorithm = algorithms.push_diging(lr, batch_size=BATCH)
    models, weights = compare(algorithm, naive_push_diging(lr), make, settings, graphs)
    np.testing.assert_allclose(models.push_sum_weights.numpy(), weights, rtol=1e-12)
    assert np.ptp(weights) > 0.1


@HOW
@CLIENTS
def test_sab_equals_naive_loop(make, settings):
    lr = algorithms.constant(LR)
    compare(algorithms.sab(lr, batch_size=BATCH), naive_sab(lr), make, settings, irregular())


@BY_RATE
@pytest.mark.parametrize("name", ["extra", "d2"])
def test_rates_of_rounds_where_corrections_are_gradients(name, lr):
    one = getattr(algorithms, name)(lr, batch_size=BATCH)
    twin = getattr(naive, name)
    compare(
        one,
        lambda nodes, graph: twin(nodes, weights_of(graph), ROUNDS, lr=lr),
        problems.ragged_clients,
        {},
    )


@BY_RATE
def test_rates_of_rounds_and_steps(lr):
    make, graphs = problems.ragged_clients, topologies.random_out(N, 2, seed=1)
    compare(
        algorithms.local_gt(lr, batch_size=BATCH, **LOCAL), naive_local_gt(lr, **LOCAL), make, {}
    )
    compare(algorithms.push_diging(lr, batch_size=BATCH), naive_push_diging(lr), make, {}, graphs)
    compare(algorithms.sab(lr, batch_size=BATCH), naive_sab(lr), make, {}, graphs)


def test_on_quadratics_sab_is_a_power_of_one_matrix():
    """It acts on models and trackers, stacked: gradients of squared errors are linear in models."""
    clients, _ = unlike_lines(N)
    graph = irregular()
    rounds = 40
    kept = []
    model = nn.Linear(3, 1, bias=False)
    topofl.run(
        algorithms.sab(LR, batch_size=WHOLE),
        model=model,
        clients=clients,
        topology=graph,
        rounds=rounds,
        seed=0,
        init="given",
        task=tasks.regression(),
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **problems.options(dtype=torch.float64, every=rounds),
    )
    inputs = clients.dataset.inputs.double().numpy()
    targets = clients.dataset.targets.double().numpy()
    x, y = (np.stack([values[own] for own in clients.train]) for values in (inputs, targets))
    hessian = block_diag(*(2 * a.T @ a / len(a) for a in x))
    a, b = (np.kron(equal_weights(graph, way)[0], np.eye(3)) for way in ("pull", "push"))
    step = np.block([[a, -LR * np.eye(3 * N)], [hessian @ (a - np.eye(3 * N)), b - LR * hessian]])
    start = np.tile(model.weight.detach().double().numpy()[0], N)
    tracked = hessian @ start - np.concatenate(
        [2 * u.T @ v / len(v) for u, v in zip(x, y, strict=True)]
    )
    wanted = np.linalg.matrix_power(step, rounds) @ np.concatenate([start, tracked])
    np.testing.assert_allclose(kept[-1].numpy().ravel(), wanted[: 3 * N], rtol=0, atol=1e-12)


def ends_alike(one, other, graph, **settings):
    """Check that two methods end alike on minibatches of ragged data, from unlike starts."""
    clients = problems.ragged_clients()
    model = problems.convolutional()
    (_, mine), (_, theirs) = (
        engine(algorithm, model, clients, graph, **settings) for algorithm in (one, other)
    )
    torch.testing.assert_close(mine.flat, theirs.flat, rtol=0, atol=1e-10)


@BY_RATE
def test_with_one_local_step_local_gt_is_dsgt(lr):
    one = algorithms.local_gt(lr, local_steps=1, batch_size=BATCH)
    other = algorithms.dsgt(lr, batch_size=BATCH)
    ends_alike(one, other, topologies.ring(N))


@BY_RATE
def test_by_doubly_stochastic_weights_push_diging_is_dsgt(lr):
    one, other = (
        method(lr, batch_size=BATCH) for method in (algorithms.push_diging, algorithms.dsgt)
    )
    ends_alike(one, other, topologies.one_peer_exponential(N), mixing=mixing.uniform)


def test_d2_is_dsgd_on_the_complete_graph():
    one = algorithms.d2(LR, lazy=False, batch_size=BATCH)
    other = algorithms.dsgd(LR, batch_size=BATCH)
    ends_alike(one, other, topologies.fully_connected(N))


@pytest.mark.parametrize("name", ["extra", "d2"])
def test_the_first_round_is_one_of_gossip_and_a_local_step(name):
    """EXTRA takes the step at models before they are mixed, D^2 mixes after the step."""
    clients = problems.ragged_clients()
    model = problems.convolutional()
    graph = topologies.ring(N)
    nodes = nodes_at_start(model, clients)
    weights = weights_of(graph)
    start, kept = nodes.flat(), []
    naive.local_only(nodes, 1, lr=LR)
    wanted = weights @ start.numpy() - start.numpy() + nodes.flat().numpy()
    wanted = wanted if name == "extra" else (np.eye(N) + weights) / 2 @ nodes.flat().numpy()
    topofl.run(
        getattr(algorithms, name)(LR, batch_size=BATCH),
        model=model,
        clients=clients,
        topology=graph,
        rounds=1,
        seed=3,
        init="independent",
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **problems.options(dtype=torch.float64),
    )
    np.testing.assert_allclose(kept[0].numpy(), wanted, rtol=0, atol=1e-12)


NUMBERS = {"local_gt": (2, 0), "extra": (1, 0), "d2": (1, 0), "push_diging": (2, 1), "sab": (2, 0)}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_per_message(name):
    """On a ring of 6 nodes, 12 messages of float64."""
    per_parameter, further = NUMBERS[name]
    d = 36 * 3 + 3
    history, _ = engine(
        getattr(algorithms, name)(LR),
        problems.linear(),
        problems.equal_clients(),
        topologies.ring(N),
    )
    assert history["messages"].tolist() == [12] * ROUNDS
    assert history["bytes"].tolist() == [12 * (per_parameter * d + further) * 8] * ROUNDS


def test_sab_records_the_weights_by_which_models_are_averaged():
    history, models = engine(
        algorithms.sab(LR), problems.linear(), problems.equal_clients(), irregular()
    )
    assert {matrix.stochasticity for matrix in history.matrices} == {"row stochastic"}
    assert (models.push_sum_weights == 1).all()


def test_corrections_of_frozen_nodes_still_sum_to_zero():
    """A frozen node takes no steps, whose mean direction is then 0, and sends it."""
    seen = []
    algorithm = watched(algorithms.local_gt(LR, batch_size=BATCH), seen)
    topofl.run(
        algorithm,
        model=problems.linear(),
        clients=clients_with_extremes(),
        topology=topologies.ring(N),
        rounds=4,
        seed=0,
        compute=topofl.Compute(on_divergence="freeze"),
    )
    for state in seen:
        assert state["length"][BAD] == 0
        assert state["correction"].abs().max() > 1e-3
        assert state["correction"].sum(0).abs().max() < 1e-5


def test_where_local_steps_are_of_no_length_corrections_stay():
    """A schedule may end at 0."""
    seen = []
    rate = lambda t, k: LR * (t == 0)  # noqa: E731
    algorithm = watched(algorithms.local_gt(rate, batch_size=BATCH), seen)
    engine(algorithm, problems.linear(), problems.equal_clients(), topologies.ring(N))
    assert seen[0]["correction"].abs().max() > 0.01
    torch.testing.assert_close(seen[-1]["correction"], seen[0]["correction"], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        *(
            (lambda name=name: getattr(algorithms, name)("0.1"), TypeError, "`lr`")
            for name in NUMBERS
        ),
        *(
            (
                lambda name=name: getattr(algorithms, name)(LR, batch_size=0.5),
                TypeError,
                "`batch_size`",
            )
            for name in NUMBERS
        ),
        (lambda: algorithms.local_gt(LR, local_steps=0), ValueError, "`local_steps`"),
        (lambda: algorithms.local_gt(LR, local_steps=[1, 2]), TypeError, "`local_steps`"),
        (lambda: algorithms.local_gt(LR, global_lr=0.0), ValueError, "`global_lr`"),
        (lambda: algorithms.d2(LR, lazy="no"), ValueError, "`lazy`"),
    ],
    ids=[
        *(f"rate of {name}" for name in NUMBERS),
        *(f"half an example of {name}" for name in NUMBERS),
        "no step",
        "steps by node",
        "no rate",
        "no switch",
    ],
)
def test_bad_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_d2_refuses_weights_without_convergence():
    with pytest.raises(
        ValueError,
        match=r"must have eigenvalues above -1/3 for d2 .*ring.n=6.* is -0.333333; use lazy=True",
    ):
        distances(algorithms.d2(LR, lazy=False, batch_size=WHOLE), 1, topology=topologies.ring(N))


def test_extra_refuses_weights_without_convergence():
    """On a ring of an even number of nodes whose nodes give all to their neighbors."""
    halves = lambda graph: mixing.from_weights(graph.adjacency.toarray() / 2)  # noqa: E731
    algorithm = algorithms.extra(LR, batch_size=WHOLE)
    with pytest.raises(
        topofl.TopologyError,
        match=r"must have eigenvalues above -1 for extra .* is -1; use .*mixing.lazy",
    ):
        distances(algorithm, 1, topology=topologies.ring(N), mixing=halves)
    little = lambda graph: mixing.lazy(halves(graph), share=0.1)  # noqa: E731
    assert distances(algorithm, 300, topology=topologies.ring(N), mixing=little).max() < 1e-9


@pytest.mark.parametrize(
    ("name", "graph", "message"),
    [
        ("local_gt", irregular(), "`mixing` must be doubly stochastic for local_gt"),
        ("extra", topologies.one_peer_exponential(N), "`topology` must be static for extra"),
        ("extra", irregular(), "`mixing` must be symmetric for extra"),
        ("d2", topologies.random_out(N, 2, seed=0), "`topology` must be static for d2"),
        ("d2", irregular(), "`mixing` must be symmetric for d2"),
        (
            "push_diging",
            topologies.random_out(N, 2, seed=0).at(0),
            "`topology` must be strongly connected for push",
        ),
        (
            "sab",
            topologies.random_out(N, 2, seed=0).at(0),
            "`topology` must be strongly connected for sab",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_unsuitable_graphs_are_refused(name, graph, message):
    with pytest.raises(topofl.TopologyError, match=message):
        engine(getattr(algorithms, name)(LR), problems.linear(), problems.equal_clients(), graph)


def test_settings_hold_the_arguments():
    assert algorithms.local_gt(LR, local_steps=2, global_lr=0.5).settings == {
        "local": {"lr": 0.1, "correction": "correction", "batch_size": 128, "steps": 2},
        "exchange": {"weights": "round", "global_lr": 0.5},
    }
    assert algorithms.d2(LR).settings["exchange"] == {"weights": "round", "lazy": True}
    assert algorithms.sab(LR).settings["exchange"] == {"weights": "round", "tracked": "push"}
