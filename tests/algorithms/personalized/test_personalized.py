"""Methods with local passes, parts, masses and servers equal their naive loops in float64."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import (
    BATCH,
    CLIENTS,
    EXECUTORS,
    HEAD,
    HOW,
    LOCAL,
    MAKES,
    PAIRS,
    ROUNDS,
    SEED,
    N,
    check,
    engine,
    is_body,
    is_head,
    members,
    nodes_at_start,
)
from tests.engine.test_equivalence import modules_at_start
from topofl import algorithms, metrics, mixing, topologies


@PAIRS
@pytest.mark.parametrize("mode", ["push", "pull"])
def test_dfedpgp(mode, local, make, settings):
    clients = make()
    model = problems.convolutional()
    graphs = (
        topologies.random_out(N, 2, seed=1)
        if mode == "push"
        else topologies.random_in(N, 2, seed=1)
    )
    matrices = [
        mixing.uniform(graphs.at(t), direction=mode).weights.toarray() for t in range(ROUNDS)
    ]
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    how = {"lr": 0.1, "head_lr": 0.05, "epochs": 2, **local}
    masses = naive.dfedpgp(nodes, matrices, ROUNDS, mode=mode, is_head=is_head, **how)
    algorithm = algorithms.dfedpgp(mode=mode, batch_size=BATCH, head=HEAD, **how)
    history, models = engine(algorithm, model, clients, graphs, **settings)
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(models.push_sum_weights.numpy(), masses, rtol=1e-12)
    np.testing.assert_allclose(sum(masses), N, rtol=1e-12)
    if mode == "push":
        assert history["smallest_push_weight"][-1] == pytest.approx(min(masses))
        np.testing.assert_allclose(history["push_weight"][-1], masses, rtol=1e-12)


@HOW
@CLIENTS
@pytest.mark.parametrize("local", LOCAL)
def test_dfedavgm_and_its_personal_kin(local, make, settings):
    clients = make()
    model = problems.convolutional()
    graph = problems.cliques(clients)
    matrices = [mixing.metropolis_hastings(graph).weights.toarray()] * ROUNDS
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    naive.dfedavgm(nodes, matrices, ROUNDS, lr=0.1, epochs=2, **local)
    _, models = engine(
        algorithms.dfedavgm(0.1, batch_size=BATCH, epochs=2, **local),
        model,
        clients,
        graph,
        **settings,
    )
    check(nodes.flat(), models.flat, start)

    nodes = nodes_at_start(model, clients)
    how = {"lr": 0.1, "head_lr": 0.05, "epochs": 2, **local}
    naive.dfedpgp(nodes, matrices, ROUNDS, mode="pull", is_head=is_head, **how)
    algorithm = algorithms.dfedavgm_p(batch_size=BATCH, head=HEAD, **how)
    _, models = engine(algorithm, model, clients, graph, **settings)
    check(nodes.flat(), models.flat, start)


@problems.paired(settings=EXECUTORS, make=MAKES, delay=[0, 1, 2])
def test_osgp(delay, make, settings):
    clients = make()
    model = problems.convolutional()
    graphs = topologies.random_out(N, 2, seed=1)
    matrices = [
        mixing.uniform(graphs.at(t), direction="push").weights.toarray() for t in range(ROUNDS)
    ]
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    how = {"lr": 0.1, "epochs": 2, "momentum": 0.9, "delay": delay}
    masses, under_way = naive.osgp(nodes, matrices, ROUNDS, **how)
    _, models = engine(algorithms.osgp(batch_size=BATCH, **how), model, clients, graphs, **settings)
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(models.push_sum_weights.numpy(), masses, rtol=1e-12)
    np.testing.assert_allclose(sum(masses) + under_way, N, rtol=1e-12)


SERVED = {
    "fedavg": ({}, {}),
    "fedper": ({"head": HEAD}, {"travels": is_body}),
    "fedrep": (
        {"head": HEAD, "head_lr": 0.05},
        {"travels": is_body, "trains": is_body, "head": (is_head, 0.05, 1)},
    ),
    "fedbabu": ({"head": HEAD}, {"travels": is_body, "trains": is_body}),
}


@PAIRS
@pytest.mark.parametrize("name", SERVED)
def test_methods_with_a_server(name, local, make, settings):
    clients = make()
    model = problems.convolutional()
    nodes, (options, reference) = nodes_at_start(model, clients), SERVED[name]
    start = nodes.flat()
    naive.fedavg(nodes, members, ROUNDS, lr=0.1, epochs=2, **reference, **local)
    algorithm = getattr(algorithms, name)(
        0.1, batch_size=BATCH, epochs=2, participation=0.5, **options, **local
    )
    history, models = engine(algorithm, model, clients, **settings)
    check(nodes.flat(), models.flat, start)
    assert (history["messages"] == N).all(), "3 up and 3 down"
    active = members(ROUNDS - 1)
    assert np.isfinite(history.node_loss[-1][active]).all()
    assert np.isnan(np.delete(history.node_loss[-1], active)).all()


@PAIRS
def test_ditto(local, make, settings):
    clients = make()
    model = problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    how = {"lr": 0.1, "personal_lr": 0.05, "strength": 0.5, **local}
    naive.ditto(nodes, members, ROUNDS, **how)
    _, models = engine(
        algorithms.ditto(batch_size=BATCH, participation=0.5, **how), model, clients, **settings
    )
    check(nodes.flat(), models.flat, start)


def test_nodes_may_do_different_numbers_of_passes():
    clients = problems.ragged_clients()
    model = problems.convolutional()
    epochs = [1, 2, 3, 0, 2, 1]
    nodes = nodes_at_start(model, clients)
    for t in range(ROUNDS):
        for i in range(N):
            naive.passes(nodes, i, t, "local", epochs=epochs[i], lr=0.1, momentum=0.9)
    for settings in (
        {"executor": "batched"},
        {"executor": "batched", "chunk": 4},
        {"executor": "looped"},
    ):
        phase = algorithms.sgd(
            0.1, batch_size=BATCH, epochs=epochs, momentum=0.9, reset_momentum=True
        )
        _, models = engine(algorithms.chain("uneven", local=phase), model, clients, **settings)
        torch.testing.assert_close(models.flat, nodes.flat(), rtol=0, atol=1e-10)


def exchanged(phase, graph, rounds=1, model=None, **settings):
    """Return history and models of rounds without training."""
    clients, kept = problems.equal_clients(), []
    history = topofl.run(
        algorithms.chain("exchange", exchange=phase),
        model=model or problems.convolutional(),
        clients=clients,
        topology=graph,
        rounds=rounds,
        seed=SEED,
        init="independent",
        callbacks=[
            problems.each_round(
                lambda t, models: kept.append(
                    (models.flat.clone(), models.push_sum_weights.clone())
                )
            )
        ],
        **problems.options(dtype=torch.float64, on_disconnected="allow", **settings),
    )
    return history, kept


def start_of(model):
    return torch.stack(
        [
            torch.nn.utils.parameters_to_vector(m.parameters()).detach()
            for m in modules_at_start(model, N)
        ]
    )


def test_push_conserves_mass_and_what_is_pushed_and_weights_stay_positive():
    history, kept = exchanged(algorithms.push_sum(), topologies.random_out(N, 2, seed=4), rounds=40)
    start = start_of(problems.convolutional())
    for flat, push_sum_weights in kept:
        assert float(push_sum_weights.sum()) == pytest.approx(N, rel=1e-14)
        assert bool((push_sum_weights > 0).all())
        torch.testing.assert_close((push_sum_weights[:, None] * flat).sum(0), start.sum(0))
    assert len({round(float(push_sum_weights.min()), 9) for _, push_sum_weights in kept}) > 5, (
        "weights did not move"
    )
    torch.testing.assert_close(kept[-1][0], start.mean(0).expand(N, -1), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(
        history["smallest_push_weight"],
        [float(push_sum_weights.min()) for _, push_sum_weights in kept],
    )


def test_smallest_push_weight_is_delta_and_distances_stay_below_the_proven_bound():
    """Without gradients, the measured rate, the proven bound and SGP's form hold in every round."""
    history, kept = exchanged(algorithms.push_sum(), topologies.random_out(N, 2, seed=4), rounds=60)
    constants = metrics.push_sum_constants(
        history, dimension=start_of(problems.convolutional()).shape[1]
    )
    assert constants.delta == pytest.approx(history["smallest_push_weight"].min(), rel=1e-12)
    start = start_of(problems.convolutional())
    mean = start.mean(0)
    size = float(start.abs().max())
    for t, (flat, _) in enumerate(kept, start=1):
        farthest = float((flat - mean).abs().max())
        # Weights of z_i on x_j / n differ from 1 / n by tau / delta at most, summed over j by twice
        # as much.
        assert (
            farthest
            <= 2 * constants.c_hat * constants.q_hat**t / constants.delta * size * N + 1e-12
        )
        assert (
            farthest
            <= 2 * 10**constants.proven.log10_c * constants.proven.q**t / constants.delta * size * N
        )
        norms = start.norm(dim=1).max()
        distances = (flat - mean).norm(dim=1).max()
        assert distances <= 10**constants.sgp.log10_c * constants.sgp.q**t * norms, (
            "the published form"
        )


def test_pull_keeps_weights_and_constants_but_no_sum():
    _, kept = exchanged(algorithms.gossip(), topologies.random_in(N, 2, seed=4), rounds=3)
    start = start_of(problems.convolutional())
    flat, push_sum_weights = kept[-1]
    assert bool((push_sum_weights == 1).all())
    assert not torch.allclose(flat.mean(0), start.mean(0), atol=1e-3)
    phase = algorithms.chain("exchange", exchange=algorithms.gossip())
    same = []
    topofl.run(
        phase,
        model=problems.convolutional(),
        clients=problems.equal_clients(),
        seed=SEED,
        rounds=3,
        topology=topologies.random_in(N, 2, seed=4),
        compute=topofl.Compute(dtype=torch.float64),
        callbacks=[problems.each_round(lambda t, models: same.append(models.flat.clone()))],
    )
    torch.testing.assert_close(same[-1], same[-1][:1].expand(N, -1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("mode", ["push", "pull"])
def test_with_all_others_as_neighbors_bodies_are_averaged_exactly(mode):
    graphs = topologies.random_out(N, N - 1, seed=0)
    phase = algorithms.push_sum if mode == "push" else algorithms.gossip
    _, ((flat, push_sum_weights),) = exchanged(phase(algorithms.part(HEAD).rest), graphs)
    start = start_of(problems.convolutional())
    torch.testing.assert_close(flat[:, :-111], start[:, :-111].mean(0).expand(N, -1))
    torch.testing.assert_close(flat[:, -111:], start[:, -111:], rtol=0, atol=0)
    torch.testing.assert_close(push_sum_weights, torch.ones(N, dtype=torch.float64))


def test_dfedavgm_p_among_all_is_fedrep_with_all():
    clients = problems.equal_clients()
    model = problems.convolutional()
    how = {"head_lr": 0.05, "batch_size": BATCH, "epochs": 1, "head": HEAD}
    size = int(clients.sizes.min())
    clients = topofl.data.Partition(
        clients.dataset, tuple(m[:size] for m in clients.train), name="equal"
    )
    _, gossiped = engine(
        algorithms.dfedavgm_p(0.1, **how), model, clients, topologies.fully_connected(N)
    )
    _, served = engine(algorithms.fedrep(0.1, **how), model, clients)
    torch.testing.assert_close(gossiped.flat, served.flat, rtol=0, atol=1e-10)


def test_without_a_head_dfedpgp_is_sgp_with_local_passes():
    clients = problems.equal_clients()
    model = problems.convolutional()
    graphs = topologies.random_out(N, 2, seed=1)
    chained = algorithms.chain(
        "no head",
        local=algorithms.sgd(0.1, batch_size=BATCH, epochs=2, momentum=0.9, reset_momentum=True),
        exchange=algorithms.push_sum(),
    )
    _, mine = engine(chained, model, clients, graphs)
    _, sgp = engine(algorithms.osgp(0.1, batch_size=BATCH, epochs=2), model, clients, graphs)
    torch.testing.assert_close(mine.flat, sgp.flat, rtol=0, atol=1e-12)


REFUSED = [
    (
        "a head that is not there",
        {"head": "hed"},
        r"`head`, or a part, must name parameters.*'hed' matches none.*layers are",
    ),
    (
        "a head that is everything",
        {"head": "*"},
        r"`head`, or a part, must leave some parameters, '\*' matches all",
    ),
    (
        "a column stochastic matrix to pull",
        {"mode": "pull", "mixing": "push"},
        r"`mixing` must have rows that sum to 1",
    ),
    (
        "a row stochastic matrix to push",
        {"mode": "push", "mixing": "pull"},
        r"`mixing` must have columns that sum to 1",
    ),
]


@pytest.mark.parametrize(
    ("options", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused_before_training(options, message):
    options = {"head": HEAD} | options
    direction = options.pop("mixing", None)
    rule = None if direction is None else lambda graph: mixing.uniform(graph, direction=direction)
    with pytest.raises(ValueError, match=message):
        engine(
            algorithms.dfedpgp(0.1, **options), problems.convolutional(), problems.equal_clients(),
            topologies.random_in(N, 2, seed=0), mixing=rule,
        )  # fmt: skip


def test_numbers_of_passes_must_be_one_a_node():
    phase = algorithms.sgd(0.1, epochs=[1, 2])
    with pytest.raises(
        ValueError, match=r"`epochs` must be one number or one per node, n=6, got 2 numbers"
    ):
        engine(algorithms.chain("uneven", local=phase), problems.linear(), problems.equal_clients())


@pytest.mark.parametrize(
    ("amount", "error"),
    [(0.0, ValueError), (1.5, ValueError), (0, ValueError), ("half", TypeError), (True, TypeError)],
)
def test_participation_is_checked(amount, error):
    with pytest.raises(error, match="`participation`"):
        algorithms.fedavg(0.1, participation=amount)


def test_more_participants_than_nodes_are_refused():
    with pytest.raises(ValueError, match=r"`participation` must be at most n=6 nodes, got 7"):
        engine(algorithms.fedavg(0.1, participation=7), problems.linear(), problems.equal_clients())


def test_parts_may_lie_anywhere_in_a_model():
    names = ["a.weight", "a.bias", "norm.weight", "b.weight", "b.bias"]
    part = algorithms.part("norm", "b.bias")
    assert part.places(names) == [2, 4]
    assert part.rest.places(names) == [0, 1, 3]
    assert part.rest.rest == part
    assert str(part.rest) == "all but norm, b.bias"
    with pytest.raises(TypeError, match="`patterns`"):
        algorithms.part()


def test_what_travels_is_counted_and_compared():
    """Hand-counted: 6 nodes, each sending to 2 a body of 48 numbers of 8 bytes, and a weight."""
    clients = problems.equal_clients()
    model = problems.convolutional()
    body = sum(p.numel() for name, p in model.named_parameters() if is_body(name))
    algorithm = algorithms.dfedpgp(0.1, mode="push", batch_size=BATCH, epochs=1, head=HEAD)
    history, models = engine(algorithm, model, clients, topologies.random_out(N, 2, seed=1))
    np.testing.assert_array_equal(history["bytes"], [2 * N * (body + 1) * 8] * ROUNDS)
    distance = metrics.consensus_distance(models.flat[:, :body])
    assert history["consensus_distance"][-1] == pytest.approx(distance, rel=1e-12)
    history, _ = engine(
        algorithms.fedper(0.1, participation=2, batch_size=BATCH, epochs=1, head=HEAD),
        model,
        clients,
    )
    np.testing.assert_array_equal(
        history["busiest_messages"], [4] * ROUNDS
    )  # the server: 2 in, 2 out
    np.testing.assert_array_equal(history["busiest_bytes"], [4 * body * 8] * ROUNDS)


def test_a_server_and_neighbors_do_not_add_up_to_one_busiest_node():
    clients = problems.equal_clients()
    model = problems.linear()
    both = algorithms.chain(
        "both", server=algorithms.server_average(), exchange=algorithms.gossip()
    )
    history, _ = engine(both, model, clients, topologies.ring(N))
    np.testing.assert_array_equal(
        history["busiest_messages"], [12] * ROUNDS
    )  # the server; a node has 2 + 4


@pytest.mark.parametrize("settings", [{"executor": "batched"}, {"executor": "batched", "chunk": 4}])
def test_nodes_trained_in_one_piece_keep_their_velocities_and_stay_frozen(settings):
    clients = problems.ragged_clients()
    model = problems.convolutional()
    epochs = [1, 2, 0, 1, 2, 1]
    lasting = algorithms.chain(
        "lasting", local=algorithms.sgd(0.1, batch_size=BATCH, epochs=epochs, momentum=0.9)
    )
    _, looped = engine(lasting, model, clients, executor="looped")
    history, together = engine(lasting, model, clients, **settings)
    torch.testing.assert_close(together.flat, looped.flat, rtol=0, atol=1e-10)
    assert np.isnan(history.node_loss[:, 2]).all()

    wild = algorithms.chain(
        "wild", local=algorithms.sgd(1e30, batch_size=BATCH, epochs=epochs, momentum=0.9)
    )
    for policy in ("freeze", "record"):
        one, apart = engine(wild, model, clients, executor="looped", on_divergence=policy)
        two, joined = engine(wild, model, clients, on_divergence=policy, **settings)
        assert one.meta["diverged"] == two.meta["diverged"] != []
        assert 2 not in [found["node"] for found in two.meta["diverged"]], "it never trained"
        if policy == "freeze":
            torch.testing.assert_close(joined.flat, apart.flat)


def test_node_losses_are_means_over_the_steps_that_a_node_took():
    clients = problems.ragged_clients()
    model = problems.linear()
    epochs = [1, 2, 3, 0, 2, 1]
    phase = algorithms.sgd(1e-9, batch_size=BATCH, epochs=epochs)
    history, _ = engine(algorithms.chain("still", local=phase), model, clients)
    nodes, wanted = nodes_at_start(model, clients), []
    for i, own in enumerate(nodes.members):
        steps = epochs[i] * -(-len(own) // BATCH)
        losses = []
        for k in range(steps):
            batch = torch.as_tensor(naive.minibatch(own, i, k, BATCH, "local", SEED))
            outputs = nodes.modules[i](nodes.inputs[batch])
            losses.append(
                float(torch.nn.functional.cross_entropy(outputs, nodes.labels[batch]).detach())
            )
        wanted.append(np.mean(losses) if losses else np.nan)
    np.testing.assert_allclose(history.node_loss[0], wanted, rtol=1e-6)


MISTAKES = [
    (lambda: algorithms.proximal(-1.0), ValueError, "`strength` must be .* at least 0"),
    (
        lambda: algorithms.sgd(0.1, epochs=[]),
        ValueError,
        "`epochs` must be one number or one per node",
    ),
    (
        lambda: algorithms.sgd(0.1, participants=0.3),
        TypeError,
        "`participants` must be a function of the round",
    ),
    (lambda: algorithms.dfedpgp(0.1, head_lr=-1), ValueError, "`head_lr`"),
    (lambda: algorithms.dfedpgp(0.1, head_epochs=0), ValueError, "`head_epochs`"),
    (lambda: algorithms.ditto(0.1, personal_lr="x"), TypeError, "`personal_lr`"),
    (lambda: algorithms.fedrep(0.1, head_lr=0), ValueError, "`head_lr`"),
]


@pytest.mark.parametrize(("build", "error", "message"), MISTAKES)
def test_mistakes_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_mistakes_that_show_in_the_first_round_are_named():
    clients = problems.equal_clients()
    model = problems.linear()
    free = algorithms.sgd(0.1)
    with pytest.raises(
        ValueError, match="`owner` must be a phase that keeps models as 'anchor', 'a' has none"
    ):
        engine(
            algorithms.chain("no anchor", a=free, b=algorithms.on_kept_models("a", free)),
            model,
            clients,
        )
    with pytest.raises(
        ValueError, match=r"`owner` must be another phase .* asks for the state of 'c'; there are a"
    ):
        engine(
            algorithms.chain("no owner", a=free, b=algorithms.on_kept_models("c", free)),
            model,
            clients,
        )
    push = algorithms.push_sum()
    with pytest.raises(ValueError, match="must push models once a round"):
        engine(
            algorithms.chain("two", a=push, b=push),
            model,
            clients,
            topologies.random_out(N, 2, seed=1),
        )
    for participants in (
        lambda round: np.arange(N),
        lambda round: np.ones(3, bool),
        lambda round: {1, 2},
    ):
        with pytest.raises(ValueError, match="`participants` must return one boolean per node"):
            engine(
                algorithms.chain("participation", a=algorithms.sgd(0.1, participants=participants)),
                model,
                clients,
            )


def test_only_what_is_pushed_has_its_steps_divided():
    """Averaged heads and pushed bodies touch different columns, so their order is the same."""
    clients = problems.equal_clients()
    model = problems.convolutional()
    graphs = topologies.random_out(N, 2, seed=1)
    local = algorithms.sgd(0.1, batch_size=BATCH)
    push = algorithms.push_sum(algorithms.part(HEAD).rest)
    serve = algorithms.server_average(algorithms.part(HEAD))
    _, one = engine(algorithms.chain("one", local=local, a=push, b=serve), model, clients, graphs)
    _, other = engine(
        algorithms.chain("other", local=local, a=serve, b=push), model, clients, graphs
    )
    torch.testing.assert_close(one.flat, other.flat, rtol=0, atol=1e-12)


def test_a_probe_takes_all_nodes_where_each_has_its_own_number_of_passes():
    clients = problems.equal_clients()
    for algorithm in (
        algorithms.fedavg(0.1, participation=5),
        algorithms.dfedavgm(0.1, epochs=[1, 2, 1, 2, 1, 2]),
    ):
        result = topofl.estimate(
            algorithm,
            model=problems.linear(),
            clients=clients,
            topology=topologies.ring(N),
            probe=True,
        )
        assert result.seconds_per_round > 0


def test_an_estimate_refuses_the_matrices_that_a_run_refuses():
    with pytest.raises(ValueError, match="`mixing` must have columns that sum to 1"):
        topofl.estimate(
            algorithms.osgp(0.1), model=problems.linear(), clients=problems.equal_clients(),
            topology=topologies.random_in(N, 2, seed=0), mixing=mixing.uniform,
        )  # fmt: skip
