"""Fine-tuned evaluations: scores equal a naive loop and training does not change."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.engine import evaluated_runs
from tests.engine.evaluated_runs import BATCH, ROUNDS, SEED, TUNED, N, need, personal_clients, run
from tests.engine.train.test_divergence import BAD, clients_with_extremes
from tests.rows.runs import arguments, differences
from topofl import algorithms, attacks, mixing, topologies
from topofl._support.seeding import stream
from topofl.engine import stages, training


def ragged_clients():
    """Return clients with 1 to 16 training examples, one of them without test examples."""
    clients, blobs = problems.ragged_clients(), problems.dataset()
    return replace(clients, test=(blobs.test[:0], *np.array_split(blobs.test, 5)))


def train_dfedpgp(nodes, graphs):
    rounds = [mixing.uniform(graphs.at(t), direction="push") for t in range(ROUNDS)]
    naive.dfedpgp(
        nodes, [one.weights.toarray() for one in rounds], ROUNDS, mode="push", lr=0.1,
        head_lr=0.05, epochs=1, is_head=lambda name: name.startswith("5."),
    )  # fmt: skip


def members(t):
    return sorted(stream(SEED, "participation", t).permutation(N)[: N // 2].tolist())


def of_body(name):
    return not name.startswith("5.")


FEDAVG = {"batch_size": BATCH, "epochs": 1, "participation": 0.5}
NAIVE_FEDAVG = {"lr": 0.1, "epochs": 1, "momentum": 0.9}

METHODS = {
    "fedavg": (
        algorithms.fedavg(0.1, **FEDAVG, fine_tune_epochs=2),
        lambda nodes, graphs: naive.fedavg(nodes, members, ROUNDS, **NAIVE_FEDAVG),
        {"lr": 0.1, "epochs": 2, "momentum": 0.9},
    ),
    "fedbabu": (
        algorithms.fedbabu(
            0.1, **FEDAVG, head="5", clip=0.5, fine_tune_lr=0.05, lr_decay=0.5
        ),
        lambda nodes, graphs: naive.fedavg(
            nodes, members, ROUNDS, **NAIVE_FEDAVG, clip=0.5, lr_decay=0.5, travels=of_body,
            trains=of_body,
        ),
        {"lr": 0.05, "epochs": 5, "momentum": 0.9, "clip": 0.5},
    ),
    "dfedpgp": (
        replace(
            algorithms.dfedpgp(
                0.1, mode="push", head_lr=0.05, batch_size=BATCH, epochs=1, momentum=0.0, head="5"
            ),
            fine_tune=algorithms.sgd(0.2, batch_size=BATCH, epochs=3, weight_decay=0.01),
        ),
        train_dfedpgp,
        {"lr": 0.2, "epochs": 3, "weight_decay": 0.01},
    ),
}  # fmt: skip


@problems.by_turns(
    3, name=METHODS, make=[personal_clients, ragged_clients], settings=evaluated_runs.EXECUTORS
)
def test_fine_tuned_scores_equal_a_naive_loop(name, make, settings):
    algorithm, train, local = METHODS[name]
    clients, model, graphs = make(), problems.convolutional(), topologies.random_out(N, 2, seed=1)
    blobs, start = clients.dataset, problems.modules_at_start(model, clients.n)
    nodes = naive.Nodes(start, blobs.inputs.double(), blobs.labels, clients.train, BATCH, SEED)
    train(nodes, graphs)
    tuned = naive.fine_tuned(nodes, ROUNDS - 1, **local)
    history = run(
        algorithm, model=model, clients=clients, topology=graphs, rounds=ROUNDS, every=10,
        seed=SEED, init="independent", dtype=torch.float64, on_disconnected="allow",
        before_exchange=True, **settings,
    )  # fmt: skip
    torch.testing.assert_close(history.models.flat, nodes.flat(), rtol=0, atol=1e-9)
    for i, own in enumerate(clients.test):
        wanted = evaluated_runs.scores(tuned[i], blobs, own) if len(own) else (np.nan, np.nan)
        got = history["accuracy_fine_tuned"][-1, i], history["loss_fine_tuned"][-1, i]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9, err_msg=f"node {i}")
    trained = np.array([len(own) > 0 for own in clients.test])
    changes = np.abs(history["loss_fine_tuned"][-1] - history["loss"][-1])
    assert (changes[trained] > 1e-4).all(), "nothing was tuned"


@pytest.mark.parametrize("every", [None, 2, 4, 6])
def test_fine_tuning_follows_fine_tune_every(every):
    history = run(rounds=5, every=2, fine_tune=TUNED, fine_tune_every=every)
    assert list(history["round"]) == [0, 2, 4, 5]
    wanted = {None: [3], 2: [1, 2, 3], 4: [2, 3], 6: [3]}[every]
    for column in ("accuracy_fine_tuned", "loss_fine_tuned"):
        assert np.flatnonzero(np.isfinite(history[column]).all(1)).tolist() == wanted
        assert np.isnan(np.delete(history[column], wanted, axis=0)).all()
    assert history.meta["evaluation"]["fine_tune_every"] == every
    seldom = run(rounds=5, every=5, fine_tune=TUNED)
    np.testing.assert_array_equal(history.last("loss_fine_tuned"), seldom.last("loss_fine_tuned"))


def test_the_fine_tuning_of_an_algorithm_can_be_replaced():
    algorithm = algorithms.chain("mine", local=algorithms.sgd(0.1, batch_size=4), fine_tune=TUNED)
    own, other = run(algorithm), run(algorithm, fine_tune=algorithms.sgd(0.01, batch_size=4))
    assert own.meta["settings"]["fine_tune"]["epochs"] == 2
    assert other.meta["settings"]["fine_tune"]["lr"] == 0.01
    assert not np.array_equal(own.last("loss_fine_tuned"), other.last("loss_fine_tuned"))
    without = run(algorithm, fine_tune=False)
    assert "accuracy_fine_tuned" not in without.evaluations
    assert "fine_tune" not in without.meta["settings"]
    assert algorithm.fine_tune is TUNED
    assert "fine_tune(lr=0.1, momentum=0.9, batch_size=4, epochs=2)" in repr(algorithm)
    json.dumps(dict(own.meta))


def test_algorithms_declare_their_fine_tuning():
    fedbabu = algorithms.fedbabu(0.1, momentum=0.5, weight_decay=0.1, clip=2.0, lr_decay=0.9)
    wanted = {"lr": 0.1, "batch_size": 128, "epochs": 5, "momentum": 0.5, "weight_decay": 0.1}
    assert dict(fedbabu.fine_tune.settings) == wanted | {"clip": 2.0, "reset_momentum": True}
    assert algorithms.fedbabu(0.1, fine_tune_lr=0.3).fine_tune.settings["lr"] == 0.3
    assert algorithms.fedbabu(0.1, fine_tune_epochs=None).fine_tune is None
    assert algorithms.fedavg(0.1).fine_tune is None
    with pytest.raises(
        ValueError, match="`fine_tune_epochs` must be a finite number above 0, got 0"
    ):
        algorithms.fedavg(0.1, fine_tune_epochs=0)


def test_only_evaluated_nodes_are_fine_tuned(monkeypatch):
    sizes, take = [], training._take_steps

    def taken(executor, job, *rest):
        sizes.append(job.models.n)
        return take(executor, job, *rest)

    monkeypatch.setattr(training, "_take_steps", taken)
    everyone = run(fine_tune=TUNED, rounds=1, chunk=3)
    assert sizes == [N, N]
    sizes.clear()
    some = run(fine_tune=TUNED, rounds=1, nodes=2, chunk=3)
    assert sizes == [N, 2]
    chosen = ~np.isnan(some["loss"][-1])
    for column in ("loss", "loss_fine_tuned"):
        wanted = everyone.last(column)[chosen]
        np.testing.assert_allclose(some.last(column)[chosen], wanted, rtol=1e-6)
        assert np.isnan(some.last(column)[~chosen]).all()


def test_graphs_are_generated_once_per_round():
    """A user's generator of graphs may be slow, or not deterministic."""
    seen = []
    graphs = topofl.as_topology(lambda t: seen.append(t) or topologies.random_regular(N, 3, seed=t))
    seen.clear()
    run(topology=graphs, rounds=3, every=1)
    plain = list(seen)
    seen.clear()
    run(topology=graphs, rounds=3, every=1, fine_tune=TUNED, fine_tune_every=1)
    assert seen == plain


EXPLODING = algorithms.sgd(1e38, batch_size=4, epochs=2)


@pytest.mark.parametrize(
    ("attackers", "cause"),
    [(None, "lower"), (attacks.sign_flip(nodes=[2]), "messages from 1 attacker.* may be the")],
)
def test_divergence_errors_name_fine_tuning(attackers, cause):
    """The divergence monitor of fine-tuning is a separate one, which knows the attackers too."""
    message = rf"^in fine-tuning, the .* of node \d .*lr=1e\+38; {cause}"
    with pytest.raises(topofl.DivergenceError, match=message):
        run(fine_tune=EXPLODING, attackers=attackers, on="test")


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_divergence_of_a_copy_does_not_affect_the_model(policy):
    history = run(fine_tune=EXPLODING, fine_tune_every=2, on_divergence=policy)
    assert history.meta["diverged"] == []
    np.testing.assert_array_equal(history["loss"], run()["loss"])
    assert not np.isfinite(history.last("loss_fine_tuned")).any()


def test_frozen_nodes_are_not_fine_tuned():
    clients = clients_with_extremes()
    options = {"clients": clients, "topology": problems.cliques(clients), "on": "test"}
    history = run(fine_tune=TUNED, on_divergence="freeze", **options)
    assert [one["node"] for one in history.meta["diverged"]] == [BAD]
    changed = history.last("loss_fine_tuned") != history.last("loss")
    assert np.flatnonzero(~changed).tolist() == [BAD]


def tuned(rounds, every, **more):
    """Return the history of a run that is fine-tuned in some rounds, or at the end."""
    return topofl.run(
        **arguments("graphs repeat", rounds=rounds, fine_tune=TUNED, fine_tune_every=every), **more
    )


@problems.by_turns(3, first=[4, 5, 6], every=[None, 2, 4])
def test_extended_runs_equal_longer_runs(tmp_path, every, first):
    tuned(first, every, saving=tmp_path)
    longer = tuned(7, every, saving=topofl.Saving(tmp_path, resume=True))
    assert differences(longer, tuned(7, every)) == []


def test_a_run_cannot_end_at_a_round_without_fine_tuning(tmp_path):
    def stop(event):
        if (event.kind, event.round) == ("round", 4):
            raise ZeroDivisionError

    message = r"`rounds` must be at least 5, got 4: .* were not fine-tuned"
    for every in (None, 2):
        folder = tmp_path / str(every)
        with pytest.raises(ZeroDivisionError):
            tuned(7, every, saving=topofl.Saving(folder, every=1), callbacks=[stop])
        saving = topofl.Saving(folder, resume=True)
        if every:
            assert differences(tuned(4, every, saving=saving), tuned(4, every)) == []
        else:
            with pytest.raises(ValueError, match=message):
                tuned(4, every, saving=saving)


def test_memory_estimates_include_fine_tuned_copies():
    plain = need(algorithms.dsgd(0.1, batch_size=4))
    heavy = need(algorithms.dsgd(0.1, batch_size=4), fine_tune=TUNED)
    assert plain.fine_tuning == 0
    assert heavy.fine_tuning == 2 * plain.parameters
    assert heavy.total == plain.total + heavy.fine_tuning
    wide = need(algorithms.dsgd(0.1, batch_size=2), fine_tune=algorithms.sgd(0.1, batch_size=4))
    assert wide.fine_tuning == plain.parameters
    assert wide.minibatches == plain.minibatches
    assert need(algorithms.fedbabu(0.1, head="1.weight"), fine_tune=False).fine_tuning == 0
    two = need(algorithms.dsgd(0.1), on=("own_test", "test"))
    assert two.evaluation == need(algorithms.dsgd(0.1), on="test").evaluation


def test_a_probe_does_not_fine_tune(monkeypatch):
    monkeypatch.setattr(stages, "_fine_tuned", lambda *args: pytest.fail("fine-tuned"))
    assert need(algorithms.dsgd(0.1), fine_tune=TUNED, probe=True).seconds_per_evaluation > 0
