"""CHOCO-SGD, BEER and DeepSqueeze equal naive loops in float64 and obey their theorems."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.convergence import WHOLE, distances, watched
from tests.algorithms.harness import BATCH, ROUNDS, SEED, N, check, engine, nodes_at_start
from tests.algorithms.personalized.test_dispfl import convolutional
from topofl import algorithms, mixing, topologies

RATE = algorithms.cosine(0.2, rounds=ROUNDS)
FEW = algorithms.top_k(0.3)
EXECUTORS = [{"executor": "batched"}, {"executor": "batched", "chunk": 2}, {"executor": "looped"}]
COMPRESSORS = pytest.mark.parametrize(
    "compressor",
    [
        FEW,
        algorithms.random_k(0.3),
        algorithms.sign(),
        algorithms.quantized(3),
        algorithms.no_compression(),
    ],
    ids=str,
)


@COMPRESSORS
@pytest.mark.parametrize(
    ("name", "local"),
    [("choco_sgd", {}), ("deepsqueeze", {"momentum": 0.9, "local_steps": 2}), ("beer", {})],
    ids=["choco_sgd", "deepsqueeze", "beer"],
)
def test_equals_naive_loop(name, local, compressor):
    clients = problems.ragged_clients()
    model = convolutional()
    graph = problems.cliques(clients)
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    how = {"lr": RATE, "compressor": compressor, "gamma": 0.4} | local
    getattr(naive, name)(nodes, mixing.metropolis_hastings(graph).weights.toarray(), ROUNDS, **how)
    for settings in EXECUTORS:
        _, models = engine(
            getattr(algorithms, name)(batch_size=BATCH, **how), model, clients, graph, **settings
        )
        check(nodes.flat(), models.flat, start)
        torch.testing.assert_close(models.flat, nodes.flat(), rtol=0, atol=1e-12)


def test_choco_takes_momentum_and_local_steps_too():
    clients = problems.ragged_clients()
    model = convolutional()
    graph = topologies.ring(N)
    nodes = nodes_at_start(model, clients)
    how = {"lr": RATE, "compressor": FEW, "gamma": 0.4, "momentum": 0.9, "local_steps": 2}
    naive.choco_sgd(nodes, mixing.metropolis_hastings(graph).weights.toarray(), ROUNDS, **how)
    _, models = engine(algorithms.choco_sgd(batch_size=BATCH, **how), model, clients, graph)
    torch.testing.assert_close(models.flat, nodes.flat(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["choco_sgd", "deepsqueeze"])
def test_without_compression_it_is_dsgd(name):
    clients = problems.ragged_clients()
    model = problems.convolutional()
    graph = topologies.ring(N)
    how = {"lr": 0.1, "batch_size": BATCH, "momentum": 0.5, "local_steps": 2}
    whole = getattr(algorithms, name)(compressor=algorithms.no_compression(), gamma=1.0, **how)
    (one, models), (other, plain) = (
        engine(a, model, clients, graph) for a in (whole, algorithms.dsgd(**how))
    )
    torch.testing.assert_close(models.flat, plain.flat, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(one["bytes"], other["bytes"])


def test_without_compression_beer_is_gradient_tracking_that_mixes_before_the_step():
    def keep(models, state, round):
        return {"models": models.flat.clone()}

    def mix(models, state, round):
        before = round.state("keep")["models"]
        mixed = before.clone()
        round.mix(round.weights, mixed)
        models.flat.add_(mixed - before)
        round.mix(round.weights, round.state("local")["tracked"])
        return state

    local = algorithms.train(algorithms.descend(algorithms.tracking(), lr=RATE), batch_size=BATCH)
    first = algorithms.Phase(lambda models: {"models": models.flat.clone()}, keep)
    diging = algorithms.chain(
        "diging", keep=first, local=local, mix=algorithms.Phase(lambda models: {}, mix)
    )
    beer = algorithms.beer(
        RATE, gamma=1.0, compressor=algorithms.no_compression(), batch_size=BATCH
    )
    kept = []
    for algorithm in (beer, diging):
        history = topofl.run(
            algorithm,
            model=problems.convolutional(),
            clients=problems.ragged_clients(),
            topology=topologies.ring(N),
            rounds=6,
            seed=SEED,
            callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
            **problems.options(dtype=torch.float64),
        )
    torch.testing.assert_close(kept[5], kept[11], rtol=0, atol=1e-13)
    assert (history["bytes"] == 2 * 2 * N * 8 * kept[0].shape[1]).all()


def averaging(algorithm, graph, rounds):
    """Return models (rounds + 1, n, d) that only exchange, and what the exchange keeps of each.

    The models start apart.
    """
    kept, states = [], []

    def note(models, state, round):
        if not models.flat.is_meta:
            kept.append(models.flat.clone())
            if "exchange" in algorithm.phases and round.t:
                states.append({name: x.clone() for name, x in round.state("exchange").items()})
        return state

    noted = algorithms.Phase(lambda models: {}, note)
    topofl.run(
        algorithms.chain("averaging", note=noted, exchange=algorithm.phases["exchange"]),
        model=problems.linear(),
        clients=problems.equal_clients(),
        topology=graph,
        rounds=rounds + 1,
        seed=0,
        init="independent",
        **problems.options(dtype=torch.float64, every=rounds + 1),
    )
    return torch.stack(kept), states


def apart(models):
    return ((models - models.mean(-2, keepdim=True)) ** 2).sum((-2, -1))


@COMPRESSORS
@pytest.mark.parametrize("name", ["choco_sgd", "deepsqueeze"])
def test_exchanges_keep_the_mean(name, compressor):
    models, _ = averaging(
        getattr(algorithms, name)(0.1, compressor=compressor, gamma=0.3), topologies.ring(N), 20
    )
    torch.testing.assert_close(
        models.mean(1), models.mean(1)[:1].expand(21, -1), rtol=0, atol=1e-13
    )
    assert apart(models[-1]) < 0.7 * apart(models[0])


@pytest.mark.parametrize("name", ["choco_sgd", "deepsqueeze"])
def test_without_compression_exchanges_are_powers_of_one_matrix(name):
    gamma, rounds = 0.3, 20
    weights = mixing.metropolis_hastings(topologies.ring(N)).weights.toarray()
    whole = getattr(algorithms, name)(0.1, compressor=algorithms.no_compression(), gamma=gamma)
    models, _ = averaging(whole, topologies.ring(N), rounds)
    power = np.linalg.matrix_power((1 - gamma) * np.eye(N) + gamma * weights, rounds)
    np.testing.assert_allclose(models[-1].numpy(), power @ models[0].numpy(), rtol=0, atol=1e-13)


def test_gamma_is_required_without_a_spectral_gap():
    """Nodes of an even ring that give all to their neighbors never agree by averaging alone."""
    halves = lambda graph: mixing.from_weights(graph.adjacency.toarray() / 2)  # noqa: E731
    with pytest.raises(
        topofl.TopologyError,
        match=r"must have a spectral gap above 0 .* gap is 0, since W has the eigenvalue -1; "
        r"mixing\.lazy.*give a `gamma`",
    ):
        started(algorithms.choco_sgd(0.1), topologies.ring(N), mixing=halves)
    started(algorithms.choco_sgd(0.1, gamma=0.1), topologies.ring(N), mixing=halves)
    started(
        algorithms.choco_sgd(0.1),
        topologies.ring(N),
        mixing=lambda graph: mixing.lazy(halves(graph)),
    )


@pytest.mark.parametrize(
    "compressor", [algorithms.top_k(0.3), algorithms.sign(), algorithms.quantized(3)], ids=str
)
def test_deepsqueeze_sends_in_the_end_what_it_left_out(compressor):
    """What was sent is the sum of the models less the last error, which stays bounded."""
    rounds, sent = 40, []
    spying = algorithms.Compressor(
        compressor.name,
        lambda values, rng: (
            made := compressor.apply(values, rng),
            sent.append(made) if len(made) == N and not made.is_meta else None,
        )[0],
        compressor.nbytes,
        compressor.contraction,
        compressor.unbiased,
    )
    models, states = averaging(
        algorithms.deepsqueeze(0.1, compressor=spying, gamma=0.05), topologies.ring(N), rounds
    )
    total = models[:rounds].sum(0) - torch.stack(sent[:rounds]).sum(0)
    torch.testing.assert_close(states[-1]["error"], total, rtol=0, atol=1e-11)
    left = (1 - compressor.contraction(models.shape[2])) ** 0.5
    largest = float(models.norm(dim=2).max())
    for state in states:
        assert float(state["error"].norm(dim=1).max()) <= left / (1 - left) * largest * (1 + 1e-12)


def test_deepsqueeze_stays_apart_where_choco_agrees():
    """It compresses models and not differences."""
    how = {"compressor": algorithms.top_k(0.3), "gamma": 0.3}
    squeezed, _ = averaging(algorithms.deepsqueeze(0.1, **how), topologies.ring(N), 200)
    choco, _ = averaging(algorithms.choco_sgd(0.1, **how), topologies.ring(N), 200)
    assert apart(choco[-1]) < 1e-12 * apart(choco[0])
    assert apart(squeezed[-1]) > 1e-4 * apart(squeezed[0])


@COMPRESSORS
@pytest.mark.parametrize("directed", [False, True])
def test_what_beer_tracks_has_the_mean_of_the_gradients(directed, compressor):
    """Directed exponential graphs have doubly stochastic matrices that are not symmetric."""
    seen, algorithm = [], algorithms.beer(0.1, gamma=0.3, compressor=compressor, batch_size=BATCH)
    engine(watched(algorithm, seen), convolutional(), problems.ragged_clients(),
           topologies.exponential(N, directed=directed))  # fmt: skip
    assert len(seen) == ROUNDS
    for state in seen:
        torch.testing.assert_close(
            state["tracked"].mean(0), state["gradient"].mean(0), rtol=0, atol=1e-12
        )
        assert not torch.allclose(state["tracked"], state["gradient"], atol=1e-4), (
            "nothing was mixed"
        )


@pytest.mark.parametrize("compressor", [algorithms.top_k(0.34), algorithms.quantized(1)], ids=str)
def test_beer_reaches_the_optimum_of_the_mean_loss_and_others_do_not(compressor):
    ring, how = topologies.ring(6), {"gamma": 0.5, "compressor": compressor, "batch_size": WHOLE}
    assert distances(algorithms.beer(0.1, **how), 300, topology=ring).max() < 1e-7
    for one in (algorithms.choco_sgd, algorithms.deepsqueeze):
        assert distances(one(0.1, **how), 300, topology=ring).min() > 1e-2


@pytest.mark.parametrize(
    ("algorithm", "size"),
    [
        (
            algorithms.choco_sgd(0.1, compressor=algorithms.top_k(0.1)),
            12 * 4 + 11,
        ),  # of 111; 12 places of 7 bits
        (algorithms.choco_sgd(0.1, compressor=algorithms.random_k(0.1)), 12 * 4 + 8),
        (algorithms.deepsqueeze(0.1, gamma=0.1, compressor=algorithms.sign()), 4 + 14),
        (
            algorithms.beer(0.1, gamma=0.1, compressor=algorithms.quantized(7)),
            2 * (4 + 56),
        ),  # 15 values: 4 bits
        (algorithms.beer(0.1, gamma=0.1, compressor=algorithms.no_compression()), 2 * 444),
    ],
    ids=["top_k", "random_k", "sign", "quantized", "none"],
)
def test_rounds_send_compressed_messages_only(algorithm, size):
    history = topofl.run(algorithm, model=problems.linear(), clients=problems.equal_clients(),
                         topology=topologies.ring(N), rounds=2, seed=0)  # fmt: skip
    assert (history["messages"] == 2 * N).all()
    assert (history["bytes"] == 2 * N * size).all()


METHODS = {
    "choco_sgd": algorithms.choco_sgd,
    "beer": lambda lr, **rest: algorithms.beer(lr, **({"gamma": 0.3} | rest)),
    "deepsqueeze": lambda lr, **rest: algorithms.deepsqueeze(lr, **({"gamma": 0.3} | rest)),
}


def started(algorithm, topology, **settings):
    return topofl.run(
        algorithm,
        model=problems.linear(),
        clients=problems.equal_clients(),
        topology=topology,
        rounds=1,
        seed=0,
        **settings,
    )


@pytest.mark.parametrize("name", METHODS)
def test_messages_that_would_grow_are_refused_before_a_run(name):
    with pytest.raises(ValueError, match="`compressor` must make messages smaller, got top_k"):
        started(METHODS[name](0.1, compressor=algorithms.top_k(0.999)), topologies.ring(N))


def test_unsuitable_graphs_are_refused():
    changing = topologies.one_peer_exponential(N)
    directed = topologies.exponential(N, directed=True)
    for name in ("choco_sgd", "beer"):
        with pytest.raises(topofl.TopologyError, match=f"`topology` must be static for {name}"):
            started(METHODS[name](0.1), changing)
    with pytest.raises(topofl.TopologyError, match="`mixing` must be symmetric for choco_sgd"):
        started(METHODS["choco_sgd"](0.1), directed)
    with pytest.raises(
        topofl.TopologyError, match="`mixing` must be doubly stochastic for deepsqueeze"
    ):
        started(METHODS["deepsqueeze"](0.1), topologies.star(N), mixing=mixing.uniform)
    started(METHODS["deepsqueeze"](0.1), changing)
    started(METHODS["beer"](0.1), directed)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"gamma": 0.0}, ValueError, "`gamma`"),
        ({"gamma": 1.5}, ValueError, "`gamma`"),
        ({"gamma": "all"}, TypeError, "`gamma`"),
        ({"compressor": 3}, TypeError, "`compressor`"),
        ({"compressor": "signs"}, ValueError, "`compressor`"),
        ({"compressor": algorithms.sign}, TypeError, "`compressor`"),
        ({"batch_size": 0.5}, TypeError, "`batch_size`"),
    ],
    ids=[
        "no step",
        "beyond the mean",
        "text",
        "number",
        "unknown name",
        "function",
        "half an example",
    ],
)
def test_bad_arguments_are_named(name, arguments, error, message):
    with pytest.raises(error, match=message):
        METHODS[name](0.1, **arguments)


def test_settings_hold_the_arguments():
    told = {"compressor": "top_k(share=0.1)", "gamma": 0.3}
    assert METHODS["beer"](0.1).settings == {
        "local": {"lr": 0.1, "tracking": True, "batch_size": 128, "steps": 1},
        "exchange": told,
    }
    assert METHODS["deepsqueeze"](0.1, momentum=0.5).settings == {
        "local": {"lr": 0.1, "momentum": 0.5, "batch_size": 128, "steps": 1},
        "exchange": told,
    }
    assert METHODS["choco_sgd"](0.1).settings["exchange"] == told | {"gamma": "proven"}
