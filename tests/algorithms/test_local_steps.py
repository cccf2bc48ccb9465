"""Local steps and evaluations of single methods: momenta, anchors, mixtures, neighbors, passes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms import harness
from tests.algorithms.harness import BATCH, ROUNDS, WHOLE, N, engine, members, nodes_at_start
from tests.engine.evaluated_runs import personal_clients, scores
from tests.rows.methods import ALGORITHMS as METHODS
from topofl import algorithms, metrics, mixing, topologies
from topofl.engine import neighbors, training

BY_GRAPH = pytest.mark.parametrize(
    "graph", [topologies.ring(N), topologies.one_peer_exponential(N)], ids=["ring", "one peer"]
)


def flat_of(algorithm, **settings):
    return engine(algorithm, **settings)[1].flat


@BY_GRAPH
def test_the_mean_of_the_momenta_is_that_of_the_mean_gradients(graph):
    """Averaging keeps the mean of models: the means obey d <- mu d + (1 - mu) (beta d + g)."""
    seen, gradients, beta, mu = [], [], 0.8, 0.6

    def note(models, state, round):
        found = round.gradients(models, WHOLE, "there")
        gradients.extend([] if models.flat.is_meta else [found.mean(0)])
        return state

    quasi = algorithms.qg_dsgdm(0.1, batch_size=WHOLE, momentum=beta, global_momentum=mu)
    first = algorithms.Phase(lambda models: {}, note)
    noted = algorithms.chain("noted", first=first, **harness.watched(quasi, seen).phases)
    engine(noted, problems.convolutional(), problems.ragged_clients(), graph)
    wanted = torch.zeros_like(gradients[0])
    for state, gradient in zip(seen, gradients, strict=True):
        wanted = mu * wanted + (1 - mu) * (beta * wanted + gradient)
        torch.testing.assert_close(state["momentum"].mean(0), wanted, rtol=0, atol=1e-12)
        assert not torch.allclose(state["momentum"], wanted.expand_as(state["momentum"]), atol=1e-4)


@BY_GRAPH
def test_scales_keep_the_mean_of_what_they_track(graph):
    seen, clients = [], problems.ragged_clients()
    algorithm = algorithms.dadam(0.01, batch_size=BATCH, local_steps=2, track=True)
    engine(harness.watched(algorithm, seen), problems.convolutional(), clients, graph)
    assert len(seen) == ROUNDS
    for state in seen:
        scale, largest = state["scale"], state["largest"]
        torch.testing.assert_close(scale.mean(0), largest.mean(0), rtol=0, atol=1e-12)
        assert not torch.allclose(scale, largest, atol=1e-6), "nothing was mixed"


@problems.by_turns(2, lr=[0.05, 0.01])
@pytest.mark.slow
def test_nodes_that_agree_on_scales_reach_the_optimum_and_others_do_not(lr):
    """Otherwise each node weighs gradients by their inverse size, however small the steps."""
    falling, ring = algorithms.cosine(lr, rounds=600), topologies.ring(N)
    tracking, alone = (
        harness.distances(
            algorithms.dadam(falling, batch_size=WHOLE, track=track), 600, topology=ring
        )
        for track in (True, False)
    )
    assert tracking.max() < 0.01
    assert alone.min() > 0.5


def test_proximal_anchor_is_of_the_round_even_with_mixed_gradients():
    clients, model = problems.equal_clients(), problems.linear()
    graph, nodes = problems.cliques(clients), nodes_at_start(model, clients)
    for t in range(ROUNDS):
        anchors = copy.deepcopy(nodes.modules)
        for step in range(3):
            gradients = [nodes.gradient(i, 3 * t + step) for i in range(N)]
            for i, module in enumerate(nodes.modules):
                clique = next(c for c in graph.groups if i in c)
                pairs = zip(module.parameters(), anchors[i].parameters(), strict=True)
                for k, (p, a) in enumerate(pairs):
                    mean = sum(gradients[j][k] for j in clique) / len(clique)
                    p.data.sub_(0.1 * (mean + 2.0 * (p.data - a.data)))
    descent = algorithms.descend(algorithms.proximal(2.0), lr=0.1)
    how = {"batch_size": BATCH, "steps": 3, "gradient": mixing.within_groups}
    mixed = algorithms.chain("mixed", local=algorithms.train(descent, **how))
    got = flat_of(mixed, model=model, clients=clients, graph=graph)
    torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-10)


def test_a_pass_of_per_fedavg_has_half_the_steps_rounded_up():
    sizes, descent = np.array([1, 4, 5, 8, 9]), algorithms.descend(lr=0.1)
    how = algorithms.Training(descent, batch_size=4, epochs=1, at=algorithms.lookahead(0.1))
    assert how.counts(sizes).tolist() == [1, 1, 1, 1, 2]
    assert replace(how, epochs=3).counts(sizes).tolist() == [2, 2, 3, 3, 5]
    assert replace(how, epochs=0.5).counts(sizes).tolist() == [1] * 5
    many = replace(how, at=None, epochs=0.1).counts(np.array([4, 120, 121, 400]))
    assert many.tolist() == [1, 3, 4, 10]  # 0.1 * 30 is above 3 in floating point
    assert replace(how, at=None).counts(sizes).tolist() == [1, 1, 2, 2, 3]
    assert replace(how, epochs=None, steps=3).counts(sizes).tolist() == [3] * 5


def test_per_fedavg_is_evaluated_after_plain_steps_of_the_inner_size():
    how = {"momentum": 0.9, "batch_size": BATCH, "weight_decay": 0.1}
    tuned = algorithms.per_fedavg(0.1, inner_lr=0.05, **how).fine_tune
    assert dict(tuned.settings) == {"lr": 0.05, "batch_size": BATCH, "epochs": 1}
    assert algorithms.per_fedavg(0.1, fine_tune_epochs=None).fine_tune is None


@pytest.mark.parametrize(("rounds", "lr", "moved"), [(1, 0.1, False), (2, 0.1, True), (6, 5, True)])
def test_shares_start_to_adapt_in_the_second_round_and_stay_shares(rounds, lr, moved):
    seen, clients = [], problems.ragged_clients()
    algorithm = harness.watched(algorithms.apfl(lr, batch_size=BATCH, epochs=1, momentum=0.0), seen)
    engine(algorithm, clients=clients, rounds=rounds, seed=0, init="common")
    share = seen[-1]["share"]
    assert bool((share != 0.5).any()) == moved
    assert bool(((share >= 0) & (share <= 1)).all())


def with_test_sets(clients):
    """Return the clients with examples of the common test set for each."""
    return replace(clients, test=tuple(np.array_split(clients.dataset.test, clients.n)))


def test_mixtures_are_evaluated_before_and_after_the_exchange():
    clients, model = with_test_sets(problems.ragged_clients()), problems.convolutional()
    nodes, how = nodes_at_start(model, clients), {"lr": 0.1, "alpha": 0.3, "epochs": 2}
    own, _ = naive.apfl(nodes, members, ROUNDS, momentum=0.9, **how)
    algorithm = algorithms.apfl(batch_size=BATCH, participation=0.5, **how)
    history, _ = engine(algorithm, model, clients, before_exchange=True, on="own_test")
    for column, modules in (("loss_before_exchange", own), ("loss", nodes.modules)):
        pairs = zip(modules, clients.test, strict=True)
        wanted = [scores(module, clients.dataset, held)[1] for module, held in pairs]
        np.testing.assert_allclose(history[column][-1], wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
def test_the_model_best_on_validation_then_fine_tuned(name):
    """As in DPFL, each node takes the server's model of the round best on its validation set."""
    clients, model = personal_clients(), problems.linear()
    how = {"lr": 0.1, "epochs": 1, "momentum": 0.9}
    how |= {"strength": 0.5} if name == "fedprox" else {}
    best, wanted = [-1.0] * N, [np.nan] * N
    for t in range(ROUNDS):
        nodes = nodes_at_start(model, clients)
        getattr(naive, name)(nodes, members, t + 1, **how)
        tuned = naive.fine_tuned(nodes, t, epochs=2, lr=0.1, momentum=0.9)
        for i in range(N):
            judged, _ = scores(nodes.modules[i], clients.dataset, clients.val[i])
            if judged >= best[i]:
                best[i], (wanted[i], _) = judged, scores(tuned[i], clients.dataset, clients.test[i])
    algorithm = getattr(algorithms, name)(
        batch_size=BATCH, participation=0.5, fine_tune_epochs=2, **how
    )
    how = {"on": ("own_test", "own_val"), "every": 1, "fine_tune_every": 1}
    history, _ = engine(algorithm, model, clients, **how)
    got = history.best_on_validation("accuracy_fine_tuned", validation="accuracy_own_val")
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


def test_memory_counts_what_steps_need_besides_and_what_lasts():
    def need(algorithm):
        world = {"model": problems.linear(), "clients": problems.equal_clients()}
        compute = topofl.Compute(executor="looped")
        return topofl.estimate(algorithm, topology=topologies.ring(N), compute=compute, **world)

    plain, prox, ahead, mixed = (
        need(method(0.1))
        for method in (
            algorithms.fedavg,
            algorithms.fedprox,
            algorithms.per_fedavg,
            algorithms.apfl,
        )
    )
    model = plain.parameters // N
    # the start of the round, and the difference from it; the point, and the way there
    assert prox.activations == ahead.activations == plain.activations + 2 * model
    assert ahead.fine_tuning == plain.parameters
    assert need(algorithms.knn_per(0.1, head="1")).evaluation > 2 * plain.evaluation
    # the point, the velocity of the common models, two gradients that are kept; and the shares of
    # before
    assert mixed.activations == plain.activations + 4 * model + 4
    assert (plain.state, mixed.state) == (0, 2 * plain.parameters + 4 * N)


@pytest.mark.parametrize(
    "settings",
    [harness.EXECUTORS[0], pytest.param(harness.EXECUTORS[1], marks=pytest.mark.slow)],
    ids=str,
)
def test_nodes_trained_in_one_piece_keep_their_velocities_and_stay_frozen(settings):
    world = {"clients": problems.ragged_clients(), "model": problems.convolutional()}

    def sides(lr, **policy):
        how = {"batch_size": BATCH, "epochs": [1, 2, 0, 1, 2, 1], "momentum": 0.9}
        algorithm = algorithms.chain("own", local=algorithms.sgd(lr, **how))
        one, apart = engine(algorithm, executor="looped", **world, **policy)
        two, joined = engine(algorithm, **world, **policy, **settings)
        return one, two, apart.flat, joined.flat

    _, history, apart, together = sides(0.1)
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-10)
    assert np.isnan(history.node_loss[:, 2]).all()
    for policy in ("freeze", "record"):
        one, two, apart, together = sides(1e30, on_divergence=policy)
        assert one.meta["diverged"] == two.meta["diverged"] != []
        assert 2 not in [found["node"] for found in two.meta["diverged"]], "it never trained"
        if policy == "freeze":
            torch.testing.assert_close(together, apart)


def test_node_losses_are_means_over_the_steps_that_a_node_took():
    clients, model, epochs = problems.ragged_clients(), problems.linear(), [1, 2, 3, 0, 2, 1]
    phase = algorithms.sgd(1e-9, batch_size=BATCH, epochs=epochs)
    history, _ = engine(algorithms.chain("still", local=phase), model, clients)
    nodes, wanted = nodes_at_start(model, clients), []
    for i, own in enumerate(nodes.members):
        losses = []
        for k in range(epochs[i] * -(-len(own) // BATCH)):
            inputs, labels = naive.batch_of(nodes, i, k, "local")
            outputs = nodes.modules[i](inputs).detach()
            losses.append(float(torch.nn.functional.cross_entropy(outputs, labels)))
        wanted.append(np.mean(losses) if losses else np.nan)
    np.testing.assert_allclose(history.node_loss[0], wanted, rtol=1e-6)


def test_participants_alone_have_losses():
    history, _ = engine(algorithms.fedavg(0.1, batch_size=BATCH, epochs=1, participation=0.5))
    active = members(ROUNDS - 1)
    assert np.isfinite(history.node_loss[-1][active]).all()
    assert np.isnan(np.delete(history.node_loss[-1], active)).all()


def test_consensus_is_of_what_is_shared_and_the_server_is_the_busiest_node():
    model = problems.convolutional()
    body = sum(p.numel() for name, p in model.named_parameters() if harness.is_body(name))
    how = {"batch_size": BATCH, "epochs": 1, "head": harness.HEAD}
    algorithm = algorithms.dfedpgp(0.1, mode="push", **how)
    history, models = engine(algorithm, model, graph=topologies.random_out(N, 2, seed=1))
    distance = metrics.consensus_distance(models.flat[:, :body])
    assert history["consensus_distance"][-1] == pytest.approx(distance, rel=1e-12)
    history, _ = engine(algorithms.fedper(0.1, participation=2, **how), model)
    assert history["busiest_messages"].tolist() == [4] * ROUNDS  # the server: 2 in, 2 out
    assert history["busiest_bytes"].tolist() == [4 * body * 8] * ROUNDS
    phases = {"server": algorithms.server_average(), "exchange": algorithms.gossip()}
    history, _ = engine(algorithms.chain("both", **phases), graph=topologies.ring(N))
    assert history["busiest_messages"].tolist() == [12] * ROUNDS  # the server; a node has 2 + 4


def test_a_probe_takes_all_nodes_where_each_has_its_own_number_of_passes():
    world = {"model": problems.linear(), "clients": problems.equal_clients()}
    uneven = algorithms.dfedavgm(0.1, epochs=[1, 2, 1, 2, 1, 2])
    for algorithm in (algorithms.fedavg(0.1, participation=5), uneven):
        need = topofl.estimate(algorithm, topology=topologies.ring(N), probe=True, **world)
        assert need.seconds_per_round > 0


HEADS = {problems.convolutional: "5", problems.linear: "1"}
MAKES = [problems.equal_clients, problems.ragged_clients]


@problems.paired(settings=harness.EXECUTORS, make=MAKES, build=list(HEADS))
def test_knn_per(build, make, settings, monkeypatch):
    """Stores of 1 to 16 examples, looked at 3 at a time, of which up to 5 vote."""
    monkeypatch.setattr(neighbors, "EXAMPLES", 3)
    clients, model = with_test_sets(make()), build()
    nodes, how = nodes_at_start(model, clients), {"k": 5, "weight": 0.3, "scale": 0.5}
    naive.fedavg(nodes, members, ROUNDS, lr=0.1, epochs=2, momentum=0.9)
    base = {"batch_size": BATCH, "epochs": 2, "participation": 0.5}
    (history, models), (plain, same) = (
        engine(algorithm, model, clients, on=("own_test", "test"), **settings)
        for algorithm in (
            algorithms.knn_per(0.1, head=HEADS[build], **base, **how),
            algorithms.fedavg(0.1, **base),
        )
    )
    assert torch.equal(models.flat, same.flat), "training noticed"
    np.testing.assert_array_equal(history["loss"], plain["loss"])
    torch.testing.assert_close(models.flat, nodes.flat(), rtol=0, atol=1e-10)
    for ending, sets in (("", clients.test), ("_test", [clients.dataset.test] * N)):
        wanted = np.array([naive.knn_scores(nodes, i, sets[i], **how) for i in range(N)]).T
        got = [history[f"{column}_knn{ending}"][-1] for column in ("accuracy", "loss")]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9)
    assert len(set(history.last("loss_knn_test"))) > N // 2, "each node has neighbors of its own"
    assert len(set(history.last("loss_test"))) == 1


def near(chunk="auto", **changes):
    """Return the history of a run with neighbors, of linear models."""
    algorithm = algorithms.knn_per(0.1, batch_size=BATCH, epochs=1, head="1", **changes)
    how = {"on": ("own_test", "own_val"), "every": 1, "chunk": chunk}
    return engine(algorithm, None, personal_clients(), **how)[0]


def test_without_weight_neighbors_do_not_count_and_alone_they_need_no_model():
    none = near(weight=0.0)
    for moment in ("", "_own_val"):
        np.testing.assert_allclose(none[f"loss_knn{moment}"], none[f"loss{moment}"], rtol=1e-9)
        np.testing.assert_array_equal(none[f"accuracy_knn{moment}"], none[f"accuracy{moment}"])
    alone = near(weight=1.0, k=1)["accuracy_knn"]  # inputs are the features of a linear model
    assert (alone == alone[0]).all()
    everyone, clients = near(weight=1.0, k=1000, scale=1e12), personal_clients()
    classes = clients.dataset.labels.numpy()
    for i in range(N):
        counts = np.bincount(classes[clients.train[i]], minlength=3) / len(clients.train[i])
        wanted = -np.log(counts[classes[clients.test[i]]]).mean()
        assert everyone.last("loss_knn")[i] == pytest.approx(wanted, abs=1e-9)


def test_far_neighbors_vote_too_and_losses_stay_finite():
    """Where all kernels are zero as numbers, their ratios are not."""
    history = near(scale=1e-6)
    assert np.isfinite(history["loss_knn"]).all()
    assert (history["accuracy_knn"] > 0).any()
    judged = history.best_on_validation("accuracy_knn", validation="accuracy_knn_own_val")
    assert judged.shape == (N,)
    told = {"k": 10, "weight": 0.5, "scale": 1e-6, "head": "1"}
    assert history.meta["settings"]["neighbors"] == told


def test_threads_share_the_nodes():
    found = []
    for threads in (1, 3):
        with harness.on_threads(threads):
            found.append(near(chunk=1))
    assert [history.meta["workers"] for history in found] == [1, 3]
    np.testing.assert_allclose(found[0]["loss_knn"], found[1]["loss_knn"], rtol=1e-9)


def test_only_evaluated_nodes_have_neighbors():
    algorithm = algorithms.knn_per(0.1, batch_size=BATCH, epochs=1, head="1")
    history, _ = engine(algorithm, None, personal_clients(), on="own_test", nodes=2)
    np.testing.assert_array_equal(np.isnan(history["loss_knn"]), np.isnan(history["loss"]))
    assert np.isfinite(history.last("loss_knn")).sum() == 2


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_neighbors_of_models_that_diverge(policy):
    algorithm = algorithms.knn_per(1e30, batch_size=BATCH, epochs=1, head="5")
    model, clients = problems.convolutional(), personal_clients()
    history, _ = engine(algorithm, model, clients, on_divergence=policy)
    assert len(history.meta["diverged"]) == N
    near, own = history["loss_knn"], history["loss"]
    np.testing.assert_array_equal(np.isfinite(near), np.isfinite(own))
    assert np.isfinite(near[-1]).all() == (policy == "freeze")  # frozen models are finite ones
    assert (near[0] != own[0]).all()


@pytest.mark.parametrize(
    "algorithm",
    [
        algorithms.fedavg(0.1, epochs=2, momentum=0.9, weight_decay=0.01),
        algorithms.dfedavgm(0.1, epochs=2, clip=0.1),
        algorithms.dfedpgp(0.1, momentum=0.9, **METHODS["dfedpgp"].killed),
        algorithms.dadam(0.01, local_steps=2),
        algorithms.scaffold(0.1, epochs=2),
    ],
    ids=problems.without_addresses,
)
@pytest.mark.parametrize("frozen", [False, True])
def test_nodes_take_steps_in_any_number_at_a_time(algorithm, frozen, monkeypatch):
    given = algorithm, problems.convolutional(), problems.ragged_clients(), topologies.ring(N)
    how, found = {"on_divergence": "freeze" if frozen else "raise"}, []
    for size in (1, 2 * 8 * 300, 2**30):
        monkeypatch.setattr(training, "STEPPED", size)
        found.append(engine(*given, executor="batched", **how)[1].flat.clone())
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[2])
