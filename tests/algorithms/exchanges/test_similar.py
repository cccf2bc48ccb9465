"""pFedGraph equals its loop over nodes in all executors, and its weights are as defined."""

import copy

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import BATCH, EXECUTORS, MAKES, ROUNDS, SEED, N, check
from topofl import algorithms, data, mixing, topologies
from topofl._linalg.distributions import simplex_projection
from topofl.algorithms.contract.phase import Phase
from topofl.engine.population import initial_population

LOCAL = {"momentum": 0.9, "weight_decay": 0.01, "lr_decay": 0.8, "clip": 0.5}
RING = topologies.circulant(N, (1,), directed=True)
NUMBERS = 111


def nodes_at_start(model, clients):
    """Modules that all start from the same draw."""
    (start,) = initial_population(
        model, 1, init="common", seed=SEED, device=torch.device("cpu"), dtype=torch.float64
    ).flat  # fmt: skip
    modules = [copy.deepcopy(model).double() for _ in range(clients.n)]
    for module in modules:
        torch.nn.utils.vector_to_parameters(start.clone(), module.parameters())
    blobs = clients.dataset
    return naive.Nodes(modules, blobs.inputs.double(), blobs.labels, clients.train, BATCH, SEED)


def pfedgraph(**changes):
    return algorithms.pfedgraph(0.1, **{"batch_size": BATCH, "epochs": 1, **LOCAL} | changes)


def engine(algorithm, model=None, clients=None, graph=None, **settings):
    """Return history and models of a run in float64."""
    kept, settings = [], {"rounds": ROUNDS, "on_disconnected": "allow"} | settings
    history = topofl.run(
        algorithm,
        model=model or problems.linear(),
        clients=clients or problems.ragged_clients(),
        topology=graph,
        seed=SEED,
        callbacks=[problems.each_round(lambda t, models: kept.append(models))],
        **problems.options(dtype=torch.float64, **settings),
    )
    return history, kept[-1]


def weights_in(history):
    return [history.mixing(t).weights.toarray() for t in range(history.n_rounds)]


@problems.paired(settings=EXECUTORS, make=MAKES, sign=[1, -1])
def test_pfedgraph_equals_its_loop(sign, make, settings):
    clients, model = make(), problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    wanted = naive.pfedgraph(
        nodes, ROUNDS, lr=0.1, epochs=1, regulariser=sign * 0.5, threshold=0.6, **LOCAL
    )
    algorithm = pfedgraph(regulariser=0.5, code_sign=sign < 0, threshold=0.6)
    history, models = engine(algorithm, model, clients, **settings)
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(weights_in(history), wanted, rtol=0, atol=1e-10)
    assert np.ptp(wanted, axis=0).max() > 1e-3, "weights stayed the same"
    without, others = engine(pfedgraph(regulariser=0.0, threshold=0.6), model, clients, **settings)
    assert not torch.allclose(models.flat, others.flat, atol=1e-4), "the regulariser did nothing"
    np.testing.assert_allclose(
        weights_in(without)[0], wanted[0], rtol=0, atol=1e-12, err_msg="it counts from round 1"
    )


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_peers_are_in_neighbors(executor):
    clients, model = problems.ragged_clients(), problems.linear()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    receives = [[(i - 1) % N, i] for i in range(N)]
    wanted = naive.pfedgraph(nodes, ROUNDS, lr=0.1, epochs=1, receives=receives, **LOCAL)
    history, models = engine(pfedgraph(), model, clients, RING, executor=executor)
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(weights_in(history), wanted, rtol=0, atol=1e-10)
    for t in range(ROUNDS):
        history.mixing(t).check_on(RING)


def test_graphs_may_change():
    graphs = topologies.random_in(N, 2, seed=4)
    history, _ = engine(pfedgraph(), graph=graphs)
    for t in range(ROUNDS):
        history.mixing(t).check_on(graphs.at(t))


def moved(ways, clients=None, settings=None, **options):
    """Return the weights after models moved by given vectors (n, d), without training."""

    def apply(models, state, round):
        models.flat.add_(torch.as_tensor(ways).to(models.flat))
        return state

    compare = algorithms.average_over_peers(algorithms.similar_peers(**options))
    algorithm = algorithms.chain(
        "moved", move=Phase(lambda models: {}, apply, {}), exchange=compare
    )
    return weights_in(engine(algorithm, clients=clients, rounds=1, **settings or {})[0])[0]


def ways(seed=0):
    return np.random.default_rng(seed).standard_normal((N, NUMBERS)) + 0.5


def fractions(clients):
    return clients.sizes / clients.sizes.sum()


def test_weights_are_the_nearest_to_fractions_and_cosines():
    clients, went = problems.ragged_clients(), ways()
    went[1], went[2] = went[0] + 0.1 * went[3], -went[0]
    lengths = np.linalg.norm(went, axis=1)
    cosines = went @ went.T / np.outer(lengths, lengths)
    assert 0.9 < cosines[0, 1] < 1
    for threshold in (0.9, 1.0):
        alike = np.where(cosines > threshold, 1, cosines)
        wanted = simplex_projection(fractions(clients) + alike / (2 * 0.5))
        found = moved(went, strength=0.5, threshold=threshold)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
        assert (found >= 0).all()
        assert found[0, 2] == 0, "who went the opposite way is not heard"
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("strength", [0.01, 0.8, 100.0])
def test_equal_directions_give_shares_of_data(strength):
    clients = problems.ragged_clients()
    p = np.tile(fractions(clients), (N, 1))
    scales = np.arange(1, N + 1)[:, None]
    np.testing.assert_allclose(moved(scales * ways()[:1], strength=strength), p, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        moved(np.zeros((N, NUMBERS)), strength=strength), p, rtol=0, atol=1e-12
    )


def test_lengths_of_changes_do_not_matter_and_unchanged_models_have_cosine_zero():
    lengths = np.array([1e-6, 1.0, 3.0, 10.0, 1e3, 1e6])[:, None]
    np.testing.assert_allclose(moved(lengths * ways()), moved(ways()), rtol=0, atol=1e-7)
    np.testing.assert_allclose(moved(7.0 * ways()), moved(ways()), rtol=0, atol=1e-12)
    went = ways()
    went[4] = 0
    np.testing.assert_allclose(
        moved(went)[4], fractions(problems.ragged_clients()), rtol=0, atol=1e-12
    )


def test_weights_are_equivariant_under_permutations():
    clients, order = problems.ragged_clients(), np.array([3, 0, 5, 1, 4, 2])
    renamed = data.Partition(
        clients.dataset, tuple(clients.train[k] for k in order), name="renamed"
    )
    found, again = moved(ways(), clients), moved(ways()[order], renamed)
    np.testing.assert_allclose(again, found[np.ix_(order, order)], rtol=0, atol=1e-12)


def test_a_weak_pull_to_data_leaves_nodes_alone_and_a_strong_one_makes_fedavg():
    np.testing.assert_allclose(moved(ways(), strength=1e-3), np.eye(N), rtol=0, atol=1e-12)
    clients, model = problems.ragged_clients(), problems.convolutional()
    _, mine = engine(pfedgraph(strength=1e12, regulariser=0.0), model, clients)
    _, served = engine(algorithms.fedavg(0.1, batch_size=BATCH, epochs=1, **LOCAL), model, clients)
    torch.testing.assert_close(mine.flat, served.flat, rtol=0, atol=1e-10)


def test_a_part_of_the_models_may_be_compared_and_travel():
    went = ways()
    found = moved(went, compare="1.bias")
    bias = went[:, 108:]
    lengths = np.linalg.norm(bias, axis=1)
    cosines = bias @ bias.T / np.outer(lengths, lengths)
    alike = np.where(cosines > 0.9, 1, cosines)
    wanted = simplex_projection(fractions(problems.ragged_clients()) + alike / 1.6)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    bias = algorithms.part("1.bias")
    algorithm = algorithms.chain(
        "part", exchange=algorithms.average_over_peers(algorithms.similar_peers(compare=bias), bias)
    )
    history, _ = engine(algorithm, rounds=1)
    assert history["bytes"].tolist() == [2 * N * 3 * 8]


@pytest.mark.parametrize(("regulariser", "models"), [(0.0, 2), (0.1, 3)])
@pytest.mark.parametrize("graph", [None, RING])
def test_every_node_sends_one_message_and_gets_one(graph, regulariser, models):
    algorithm, clients = pfedgraph(regulariser=regulariser), problems.ragged_clients()
    history, _ = engine(algorithm, clients=clients, graph=graph)
    assert (history["messages"] == 2 * N).all()
    assert (history["bytes"] == models * N * NUMBERS * 8).all()
    assert (history["busiest_messages"] == 2 * N).all(), "the server"
    assert (history["busiest_bytes"] == models * N * NUMBERS * 8).all()
    need = topofl.estimate(
        algorithm,
        model=problems.linear(),
        clients=clients,
        topology=graph,
        compute=topofl.Compute(dtype=torch.float64),
    )
    assert (need.messages, need.bytes) == (2 * N, models * N * NUMBERS * 8)
    assert need.state == NUMBERS * 8 * (1 + N * bool(regulariser)), (
        "one start, and where each turns"
    )


def test_a_server_receives_from_nodes_without_out_neighbors():
    first = mixing.from_weights(np.eye(N)[[0] * N])
    policy = algorithms.Policy(lambda *_: algorithms.Choice(first, server=1))
    history, _ = engine(
        algorithms.chain("copies", exchange=algorithms.average_over_peers(policy)), rounds=1
    )
    assert history["messages"].tolist() == [2 * N]
    np.testing.assert_array_equal(weights_in(history)[0], first.weights.toarray())
    assert history["bytes"].tolist() == [2 * N * NUMBERS * 8]


def test_gradients_of_the_cosine_pull_equal_autograd():
    draw = torch.Generator().manual_seed(0)
    shapes = [(3, 2, 2), (3, 4), (3,)]
    thetas, towards, gradients = (
        [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]
        for _ in range(3)
    )
    for theta in thetas:
        theta[2] = 0
    before = [g.clone() for g in gradients]
    flat, theta, cosine_directions = (
        torch.cat([x.reshape(3, -1) for x in some], 1) for some in (gradients, thetas, towards)
    )
    pull = algorithms.cosine_pull("toward")
    turned = pull.update(flat, theta, {"toward": cosine_directions}, algorithms.Step(0, 0, 0.1))
    gradients = [
        part.view(x.shape) for part, x in zip(turned.split([4, 4, 1], 1), thetas, strict=True)
    ]
    for i in range(2):
        own = [theta[i].clone().requires_grad_() for theta in thetas]
        wanted = naive.turning(
            own, torch.cat([cosine_directions[i].flatten() for cosine_directions in towards])
        )
        for k, turn in enumerate(wanted):
            torch.testing.assert_close(gradients[k][i] - before[k][i], turn)
    assert all(torch.equal(g[2], b[2]) for g, b in zip(gradients, before, strict=True)), (
        "0 has no direction"
    )


def test_resumed_runs_equal_uninterrupted_ones(tmp_path):
    whole, models = engine(pfedgraph(), rounds=4, executor="batched")
    engine(pfedgraph(), rounds=2, executor="batched", saving=topofl.Saving(tmp_path, every=1))
    again = topofl.Saving(tmp_path, every=1, resume=True)
    resumed, others = engine(pfedgraph(), rounds=4, executor="batched", saving=again)
    assert torch.equal(models.flat, others.flat)
    np.testing.assert_array_equal(weights_in(whole), weights_in(resumed))


def test_models_that_diverged_do_not_stop_a_run_that_goes_on():
    went = ways()
    went[2] = np.inf
    found = moved(went, settings={"on_divergence": "record"})
    np.testing.assert_allclose(found[2], fractions(problems.ragged_clients()), rtol=0, atol=1e-12)


def test_nodes_must_start_from_the_same_model():
    with pytest.raises(
        ValueError, match=r"`init` must be 'common' or 'given' for pfedgraph.*got 'independent'"
    ):
        engine(pfedgraph(), init="independent")
    history, _ = engine(pfedgraph(), init="given")
    assert history.n_rounds == ROUNDS
    need = topofl.estimate(
        pfedgraph(), model=problems.linear(), clients=problems.equal_clients(), probe=True
    )
    assert need.seconds_per_round > 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strength", 0),
        ("strength", -1.0),
        ("regulariser", -0.1),
        ("threshold", 1.5),
        ("epochs", 0),
        ("code_sign", "yes"),
    ],
)
def test_bad_values_are_named(name, value):
    with pytest.raises(ValueError, match=f"`{name}"):
        pfedgraph(**{name: value})


def test_bad_parts_are_named():
    with pytest.raises(TypeError, match="`compare` must be a part of the model"):
        algorithms.similar_peers(compare=3)
    with pytest.raises(ValueError, match="'body' matches none"):
        moved(ways(), compare="body")


def test_settings():
    text = str(pfedgraph(code_sign=True))
    assert (
        "exchange(weights=similar, strength=0.8, threshold=0.9, regulariser=0.01, code_sign=True)"
        in text
    )
