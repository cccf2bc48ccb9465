"""FedProx, Per-FedAvg, APFL, kNN-Per and fine-tuned FedAvg equal naive loops in float64."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.harness import (
    BATCH,
    HOW,
    PAIRS,
    ROUNDS,
    N,
    check,
    engine,
    members,
    nodes_at_start,
)
from tests.engine.evaluated_runs import personal_clients, scores
from topofl import algorithms, mixing, topologies


@PAIRS
@pytest.mark.parametrize("strength", [0.5, [0.0, 0.1, 0.5, 1.0, 2.0, 0.3]], ids=["one", "per node"])
def test_fedprox(strength, local, make, settings):
    clients = make()
    model = problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start, how = nodes.flat(), {"lr": 0.1, "strength": strength, "epochs": 2, **local}
    naive.fedprox(nodes, members, ROUNDS, **how)
    _, models = engine(
        algorithms.fedprox(batch_size=BATCH, participation=0.5, **how), model, clients, **settings
    )
    check(nodes.flat(), models.flat, start)


@PAIRS
@pytest.mark.parametrize("epochs", [1, 2])
def test_per_fedavg(epochs, local, make, settings):
    clients = make()
    model = problems.convolutional()
    nodes = nodes_at_start(model, clients)
    start, how = nodes.flat(), {"lr": 0.1, "inner_lr": 0.3, "epochs": epochs, **local}
    naive.per_fedavg(nodes, members, ROUNDS, **how)
    _, models = engine(
        algorithms.per_fedavg(batch_size=BATCH, participation=0.5, **how),
        model,
        clients,
        **settings,
    )
    check(nodes.flat(), models.flat, start)


@PAIRS
@pytest.mark.parametrize("adaptive", [True, False])
def test_apfl(adaptive, local, make, settings):
    clients = with_test_sets(make())
    model = problems.convolutional()
    nodes, seen = nodes_at_start(model, clients), {}
    start, how = nodes.flat(), {"lr": 0.1, "alpha": 0.3, "adaptive": adaptive, "epochs": 2, **local}
    own, alphas = naive.apfl(nodes, members, ROUNDS, **how)
    algorithm = watched(algorithms.apfl(batch_size=BATCH, participation=0.5, **how), seen)
    history, models = engine(
        algorithm, model, clients, before_exchange=True, on="own_test", **settings
    )
    check(nodes.flat(), models.flat, start)
    np.testing.assert_allclose(seen["share"].numpy(), alphas, rtol=0, atol=1e-12)
    assert (len(set(alphas)) > 1) == adaptive
    for i in range(N):
        for column, module in (("loss_before_exchange", own[i]), ("loss", nodes.modules[i])):
            _, wanted = scores(module, clients.dataset, clients.test[i])
            assert history[column][-1, i] == pytest.approx(wanted, abs=1e-9), (
                "which mixture is evaluated when"
            )


def with_test_sets(clients):
    """Return the clients with examples of the common test set for each."""
    return replace(clients, test=tuple(np.array_split(clients.dataset.test, clients.n)))


def watched(algorithm, seen):
    """Return the algorithm, which leaves the state of its phase `local` in `seen`."""
    last = algorithm.phases["mixture"]

    def apply(models, state, round):
        seen.update(round.state("local"))
        return last.apply(models, state, round)

    return replace(algorithm, phases={**algorithm.phases, "mixture": last._replace(apply=apply)})


@HOW
@pytest.mark.parametrize("name", ["fedprox", "per_fedavg", "apfl"])
def test_linear_models_too(name, settings):
    clients = problems.ragged_clients()
    model = problems.linear()
    nodes, how = nodes_at_start(model, clients), {"lr": 0.1, "epochs": 2, "momentum": 0.9}
    how |= {"fedprox": {"strength": 2.0}, "per_fedavg": {"inner_lr": 0.2}, "apfl": {"alpha": 0.7}}[
        name
    ]
    start = nodes.flat()
    getattr(naive, name)(nodes, members, ROUNDS, **how)
    algorithm = getattr(algorithms, name)(batch_size=BATCH, participation=0.5, **how)
    check(nodes.flat(), engine(algorithm, model, clients, **settings)[1].flat, start)


# FedProx


def flat_of(algorithm, model=None, clients=None, **settings):
    return engine(
        algorithm,
        model or problems.convolutional(),
        clients or problems.equal_clients(),
        **settings,
    )[1].flat


def test_without_strength_fedprox_is_fedavg_and_so_is_one_step_of_it():
    how = {"batch_size": BATCH, "epochs": 2, "participation": 0.5}
    one, same = (
        flat_of(algorithm, executor="looped")
        for algorithm in (
            algorithms.fedprox(0.1, strength=0.0, **how),
            algorithms.fedavg(0.1, **how),
        )
    )
    assert torch.equal(one, same)
    whole = {"batch_size": 100, "epochs": 1}
    one = algorithms.fedprox(0.1, strength=5.0, **whole)
    same = algorithms.fedavg(0.1, **whole)
    torch.testing.assert_close(flat_of(one), flat_of(same), rtol=0, atol=1e-12)


def test_equal_strengths_per_node_are_one_strength():
    how = {"batch_size": BATCH, "epochs": 2, "participation": 0.5}
    one, each = (
        flat_of(algorithms.fedprox(0.1, strength=strength, **how)) for strength in (0.5, [0.5] * 6)
    )
    torch.testing.assert_close(one, each, rtol=0, atol=1e-12)
    told = algorithms.fedprox(0.1, strength=np.array([0.5] * 6)).settings["local"]["strength"]
    assert told == [0.5] * 6


def test_strengths_of_another_number_of_nodes_are_refused():
    with pytest.raises(
        ValueError, match="`strength` must be one number or one per node, n=6, got 2 numbers"
    ):
        flat_of(algorithms.fedprox(0.1, strength=[0.5, 0.1]))


def test_the_stronger_the_nearer_models_stay_to_the_servers():
    moved = []
    for strength in (0.0, 1.0, 5.0):
        local = algorithms.sgd(
            0.1, batch_size=BATCH, epochs=4, terms=[algorithms.proximal(strength)]
        )
        flat = flat_of(algorithms.chain("local", local=local), problems.linear())
        moved.append(
            float(
                (flat - nodes_at_start(problems.linear(), problems.equal_clients()).flat()).norm()
            )
        )
    assert moved[0] > moved[1] > moved[2] > 0


def test_proximal_anchor_is_of_the_round_even_with_mixed_gradients():
    clients = problems.equal_clients()
    model = problems.linear()
    graph = problems.cliques(clients)
    nodes = nodes_at_start(model, clients)
    for t in range(ROUNDS):
        anchors = copy.deepcopy(nodes.modules)
        for step in range(3):
            gradients = [nodes.gradient(i, 3 * t + step) for i in range(N)]
            for i, module in enumerate(nodes.modules):
                clique = next(c for c in graph.groups if i in c)
                for k, (p, a) in enumerate(
                    zip(module.parameters(), anchors[i].parameters(), strict=True)
                ):
                    mean = sum(gradients[j][k] for j in clique) / len(clique)
                    p.data.sub_(0.1 * (mean + 2.0 * (p.data - a.data)))
    local = algorithms.train(
        algorithms.descend(algorithms.proximal(2.0), lr=0.1),
        batch_size=BATCH,
        steps=3,
        gradient=mixing.within_groups,
    )
    got = flat_of(algorithms.chain("mixed", local=local), model, clients, graph=graph)
    torch.testing.assert_close(got, nodes.flat(), rtol=0, atol=1e-10)


# Per-FedAvg


def test_a_pass_of_per_fedavg_has_half_the_steps_rounded_up():
    sizes = np.array([1, 4, 5, 8, 9])
    how = algorithms.Training(
        algorithms.descend(lr=0.1), batch_size=4, epochs=1, at=algorithms.lookahead(0.1)
    )
    assert how.counts(sizes).tolist() == [1, 1, 1, 1, 2]
    assert replace(how, epochs=3).counts(sizes).tolist() == [2, 2, 3, 3, 5]
    assert replace(how, at=None).counts(sizes).tolist() == [1, 1, 2, 2, 3]
    assert replace(how, epochs=None, steps=3).counts(sizes).tolist() == [3] * 5


def test_per_fedavg_is_evaluated_after_plain_steps_of_the_inner_size():
    algorithm = algorithms.per_fedavg(
        0.1, inner_lr=0.05, momentum=0.9, batch_size=BATCH, weight_decay=0.1
    )
    assert dict(algorithm.fine_tune.settings) == {
        "lr": 0.05, "batch_size": BATCH, "epochs": 1,
    }  # fmt: skip
    assert algorithms.per_fedavg(0.1, fine_tune_epochs=None).fine_tune is None
    assert algorithm.settings["local"]["inner_lr"] == 0.05
    assert "inner_lr" not in algorithms.fedavg(0.1).settings["local"]


# APFL


def test_without_a_personal_share_apfl_is_fedavg_and_without_a_common_one_local_training():
    how = {"batch_size": BATCH, "epochs": 2, "momentum": 0.9}
    common = flat_of(algorithms.apfl(0.1, alpha=0.0, adaptive=False, **how))
    torch.testing.assert_close(common, flat_of(algorithms.fedavg(0.1, **how)), rtol=0, atol=1e-12)
    alone = algorithms.chain("alone", local=algorithms.sgd(0.1, reset_momentum=True, **how))
    personal = flat_of(algorithms.apfl(0.1, alpha=1.0, adaptive=False, **how))
    torch.testing.assert_close(personal, flat_of(alone), rtol=0, atol=1e-12)


def test_shares_start_to_adapt_in_the_second_round_and_stay_shares():
    for rounds, lr, moved in ((1, 0.1, False), (2, 0.1, True), (6, 5.0, True)):
        seen, clients = {}, problems.ragged_clients()
        topofl.run(
            watched(algorithms.apfl(lr, batch_size=BATCH, epochs=1, momentum=0.0), seen),
            model=problems.linear(),
            clients=clients,
            rounds=rounds,
            seed=0,
        )
        share = seen["share"]
        assert bool((share != 0.5).any()) == moved
        assert bool(((share >= 0) & (share <= 1)).all())


@pytest.mark.parametrize("name", ["fedprox", "per_fedavg", "apfl"])
def test_executors_agree_on_what_diverges(name):
    clients = problems.ragged_clients()
    algorithm = getattr(algorithms, name)(1e30, batch_size=BATCH, epochs=1, participation=0.5)
    for policy in ("freeze", "record"):
        one, apart = engine(
            algorithm, problems.convolutional(), clients, executor="looped", on_divergence=policy
        )
        two, joined = engine(
            algorithm,
            problems.convolutional(),
            clients,
            executor="batched",
            chunk=2,
            on_divergence=policy,
        )
        assert [found["node"] for found in one.meta["diverged"]] == [
            found["node"] for found in two.meta["diverged"]
        ]
        assert one.meta["diverged"] != []
        if policy == "freeze":
            assert bool(torch.isfinite(apart.flat).all())
            torch.testing.assert_close(joined.flat, apart.flat)


# kNN-Per


# FedAvg and FedProx, fine-tuned


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
def test_the_model_best_on_validation_then_fine_tuned(name):
    """As in DPFL, each node takes the server's model of the round best on its validation set."""
    clients = personal_clients()
    model = problems.linear()
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
    history, _ = engine(
        algorithm, model, clients, on=("own_test", "own_val"), every=1, fine_tune_every=1
    )
    got = history.best_on_validation("accuracy_fine_tuned", validation="accuracy_own_val")
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


# What is refused, and what it takes

MISTAKES = [
    (
        lambda: algorithms.fedprox(0.1, strength=-0.1),
        ValueError,
        "`strength` must be .* at least 0",
    ),
    (lambda: algorithms.fedprox(0.1, strength=[0.1, -1]), ValueError, r"`strength\[1\]` must be"),
    (lambda: algorithms.fedprox(0.1, strength=[0.1, None]), TypeError, r"`strength\[1\]` must be"),
    (lambda: algorithms.fedprox(0.1, strength=[]), ValueError, "`strength` must be .*, got none"),
    (lambda: algorithms.fedprox(0.1, strength="0.1"), TypeError, "`strength` must be a number"),
    (lambda: algorithms.per_fedavg(0.1, inner_lr=0), ValueError, "`inner_lr`"),
    (lambda: algorithms.per_fedavg(0.1, fine_tune_epochs=0), ValueError, "`fine_tune_epochs`"),
    (lambda: algorithms.lookahead("x"), TypeError, "`inner_lr`"),
    (
        lambda: algorithms.train(
            algorithms.descend(lr=0.1), at=algorithms.lookahead(0.1), gradient=mixing.within_groups
        ),
        ValueError,
        "`gradient` must be None with at=lookahead",
    ),
    (lambda: algorithms.knn_per(0.1, k=0), ValueError, "`k` must be at least 1"),
    (lambda: algorithms.knn_per(0.1, weight=1.1), ValueError, "`weight` must be between 0 and 1"),
    (lambda: algorithms.knn_per(0.1, scale=0), ValueError, "`scale`"),
    (lambda: algorithms.knn_per(0.1, head=3), TypeError, "`head`"),
    (lambda: algorithms.apfl(0.1, alpha=1.5), ValueError, "`alpha` must be between 0 and 1"),
    (lambda: algorithms.apfl(0.1, adaptive="yes"), (TypeError, ValueError), "`adaptive`"),
]


@pytest.mark.parametrize(("build", "error", "message"), MISTAKES)
def test_mistakes_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_memory_counts_what_steps_need_besides_and_what_lasts():
    def need(algorithm):
        return topofl.estimate(
            algorithm,
            model=problems.linear(),
            clients=problems.equal_clients(),
            topology=topologies.ring(N),
            compute=topofl.Compute(executor="looped"),
        )

    plain = need(algorithms.fedavg(0.1))
    model = plain.parameters // N
    # the start of the round, and the difference from it
    assert need(algorithms.fedprox(0.1)).activations == plain.activations + 2 * model
    assert (
        need(algorithms.per_fedavg(0.1)).activations == plain.activations + 2 * model
    )  # the point, the way there
    assert need(algorithms.per_fedavg(0.1)).fine_tuning == plain.parameters
    assert need(algorithms.knn_per(0.1, head="1")).evaluation > 2 * plain.evaluation
    mixed = need(algorithms.apfl(0.1))
    # the point, the velocity of the common models, two gradients that are kept; and the shares of
    # before
    assert mixed.activations == plain.activations + 4 * model + 4
    assert (plain.state, mixed.state) == (0, 2 * plain.parameters + 4 * N)
