"""Moments of evaluation: fine-tuned copies equal a naive loop and leave training as it is.

Columns say which moment they are of.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import naive, problems
from tests.engine import killed
from tests.engine.test_equivalence import modules_at_start
from tests.engine.train.test_divergence import BAD, clients_with_extremes
from topofl import algorithms, attacks, config, data, mixing, topologies
from topofl._support.seeding import stream
from topofl.engine import evaluation_stages
from topofl.engine import rounds as rounds
from topofl.engine.store.checkpoint import rounds_in

ROUNDS, SEED, BATCH, N = 3, 3, 4, 6
TUNED = algorithms.sgd(0.1, batch_size=BATCH, epochs=2, momentum=0.9)
HOW = pytest.mark.parametrize(
    "settings",
    [{"executor": "batched"}, {"executor": "batched", "chunk": 2}, {"executor": "looped"}],
)


def personal_clients(test_fraction=0.3, val_fraction=0.2, n=N):
    return data.iid(
        problems.dataset(), n, seed=0, test_fraction=test_fraction, val_fraction=val_fraction
    )


def ragged_clients():
    """Clients of 1 to 16 examples for training, one of whom has none for testing."""
    clients, blobs = problems.ragged_clients(), problems.dataset()
    return replace(clients, test=(blobs.test[:0], *np.array_split(blobs.test, 5)))


def run(algorithm=None, **changes):
    settings = {
        "model": problems.linear(),
        "clients": personal_clients(),
        "topology": topologies.ring(N),
        "rounds": 4,
        "every": 2,
        "seed": 0,
        "on": "own_test",
    }
    return topofl.run(
        algorithm or algorithms.dsgd(lr=0.1, batch_size=4, momentum=0.9),
        **problems.options(**(settings | changes)),
    )


# Fine-tuned models


def scores(module, blobs, indices):
    """Return accuracy and loss of a module on some examples."""
    indices = torch.tensor(np.asarray(indices))
    with torch.no_grad():
        logits = module(blobs.inputs[indices].double())
    right = (logits.argmax(1) == blobs.labels[indices]).double().mean()
    return float(right), float(nn.functional.cross_entropy(logits, blobs.labels[indices]))


def naive_nodes(model, clients):
    blobs = clients.dataset
    return naive.Nodes(
        modules_at_start(model, clients.n),
        blobs.inputs.double(),
        blobs.labels,
        clients.train,
        BATCH,
        SEED,
    )


def train_dfedpgp(nodes, graphs):
    matrices = [
        mixing.uniform(graphs.at(t), direction="push").weights.toarray() for t in range(ROUNDS)
    ]
    naive.dfedpgp(
        nodes,
        matrices,
        ROUNDS,
        mode="push",
        is_head=lambda name: name.startswith("5."),
        lr=0.1,
        head_lr=0.05,
        epochs=1,
    )


def members(t):
    return sorted(stream(SEED, "participation", t).permutation(N)[: N // 2].tolist())


METHODS = {
    "fedavg": (
        algorithms.fedavg(0.1, batch_size=BATCH, epochs=1, participation=0.5, fine_tune_epochs=2),
        lambda nodes, graphs: naive.fedavg(nodes, members, ROUNDS, lr=0.1, epochs=1, momentum=0.9),
        {"lr": 0.1, "epochs": 2, "momentum": 0.9},
    ),
    "fedbabu": (
        algorithms.fedbabu(
            0.1,
            batch_size=BATCH,
            epochs=1,
            participation=0.5,
            head="5",
            clip=0.5,
            fine_tune_lr=0.05,
            lr_decay=0.5,
        ),
        lambda nodes, graphs: naive.fedavg(
            nodes,
            members,
            ROUNDS,
            lr=0.1,
            epochs=1,
            momentum=0.9,
            clip=0.5,
            lr_decay=0.5,
            travels=lambda name: not name.startswith("5."),
            trains=lambda name: not name.startswith("5."),
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
}


@HOW
@pytest.mark.parametrize("make", [personal_clients, ragged_clients])
@pytest.mark.parametrize("name", METHODS)
def test_fine_tuned_scores_equal_a_naive_loop(name, make, settings):
    algorithm, train, local = METHODS[name]
    clients, model, graphs = make(), problems.convolutional(), topologies.random_out(N, 2, seed=1)
    nodes = naive_nodes(model, clients)
    train(nodes, graphs)
    tuned = naive.fine_tuned(nodes, ROUNDS - 1, **local)
    kept = []
    history = topofl.run(
        algorithm,
        model=model,
        clients=clients,
        topology=graphs,
        rounds=ROUNDS,
        seed=SEED,
        init="independent",
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **problems.options(
            dtype=torch.float64,
            on_disconnected="allow",
            on="own_test",
            before_exchange=True,
            **settings,
        ),
    )
    torch.testing.assert_close(kept[-1], nodes.flat(), rtol=0, atol=1e-9)
    for i in range(N):
        wanted = (
            (np.nan, np.nan)
            if not len(clients.test[i])
            else scores(tuned[i], clients.dataset, clients.test[i])
        )
        got = history["accuracy_fine_tuned"][-1, i], history["loss_fine_tuned"][-1, i]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9, err_msg=f"node {i}")
    trained = np.array([len(own) > 0 for own in clients.test])
    assert (np.abs(history["loss_fine_tuned"][-1] - history["loss"][-1])[trained] > 1e-4).all(), (
        "nothing was tuned"
    )


def test_with_a_server_everyone_is_fine_tuned_from_its_model():
    kept, algorithm = (
        [],
        algorithms.fedavg(0.1, batch_size=4, epochs=1, participation=2, fine_tune_epochs=1),
    )
    history = run(
        algorithm, callbacks=[problems.each_round(lambda t, m: kept.append(m.flat.clone()))]
    )
    assert (kept[-1] == kept[-1][0]).all()
    assert len(set(history["loss_fine_tuned"][-1])) == N
    assert (history["loss_fine_tuned"][-1] != history["loss"][-1]).all()


EVERYTHING = {
    "dsgd": {"lr": 0.1, "momentum": 0.9},
    "clique_averaging": {"lr": 0.1, "momentum": 0.9},
    "local_only": {"lr": 0.1, "momentum": 0.9},
    "centralized": {"lr": 0.1, "momentum": 0.9},
    "osgp": {"lr": 0.1, "delay": 2, "epochs": 1},
    "ditto": {"lr": 0.1, "participation": 0.5, "epochs": 1, "personal_epochs": 1},
    "fedrep": {"lr": 0.1, "participation": 0.5, "epochs": 1, "head": "1.bias"},
}


@pytest.mark.parametrize("name", EVERYTHING)
@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_training_does_not_notice(name, executor):
    clients = personal_clients()
    how = {
        "algorithm": getattr(algorithms, name)(batch_size=4, **EVERYTHING[name]),
        "model": problems.linear(),
        "clients": clients,
        "topology": problems.cliques(clients),
        "rounds": 4,
        "every": 1,
        "seed": 0,
        "init": "independent",
        "executor": executor,
        "before_exchange": True,
        "on": "own_test",
    }
    plain, models = killed.trained(how)
    tuned, same = killed.trained(how | {"fine_tune": TUNED, "fine_tune_every": 1})
    assert torch.equal(models, same)
    assert set(tuned.evaluations) - set(plain.evaluations) == {
        "accuracy_fine_tuned",
        "loss_fine_tuned",
    }
    np.testing.assert_array_equal(plain.node_loss, tuned.node_loss)
    for table in ("rounds", "evaluations"):
        for column, values in getattr(plain, table).items():
            np.testing.assert_array_equal(values, getattr(tuned, table)[column], err_msg=column)
    assert (tuned["loss_fine_tuned"][1:] != tuned["loss"][1:]).all()


@pytest.mark.parametrize("every", [None, 2, 4, 6])
def test_only_some_evaluations_have_it(every):
    history = run(rounds=5, every=2, fine_tune=TUNED, fine_tune_every=every)
    assert list(history["round"]) == [0, 2, 4, 5]
    wanted = {None: [3], 2: [1, 2, 3], 4: [2, 3], 6: [3]}[every]
    for column in ("accuracy_fine_tuned", "loss_fine_tuned"):
        assert np.flatnonzero(np.isfinite(history[column]).all(1)).tolist() == wanted
        assert np.isnan(np.delete(history[column], wanted, axis=0)).all()
    assert history.meta["evaluation"]["fine_tune_every"] == every
    seldom = run(rounds=5, every=5, fine_tune=TUNED)
    np.testing.assert_array_equal(history.last("loss_fine_tuned"), seldom.last("loss_fine_tuned"))


def test_the_phase_is_the_algorithms_unless_another_is_given():
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


def test_algorithms_name_their_fine_tuning():
    fedbabu = algorithms.fedbabu(0.1, momentum=0.5, weight_decay=0.1, clip=2.0, lr_decay=0.9)
    assert dict(fedbabu.fine_tune.settings) == {
        "lr": 0.1,
        "batch_size": 128,
        "epochs": 5,
        "momentum": 0.5,
        "weight_decay": 0.1,
        "clip": 2.0,
        "reset_momentum": True,
    }
    assert algorithms.fedbabu(0.1, fine_tune_lr=0.3).fine_tune.settings["lr"] == 0.3
    assert algorithms.fedbabu(0.1, fine_tune_epochs=None).fine_tune is None
    assert algorithms.fedavg(0.1).fine_tune is None
    for algorithm in (algorithms.fedavg, algorithms.fedbabu):
        with pytest.raises(ValueError, match="`fine_tune_epochs` must be at least 1, got 0"):
            algorithm(0.1, fine_tune_epochs=0)


def test_only_nodes_that_are_evaluated_are_trained(monkeypatch):
    sizes, original = [], rounds.local_steps
    monkeypatch.setattr(
        rounds,
        "local_steps",
        lambda *a, **k: sizes.append(a[2].models.n) or original(*a, **k),  # learner, each, descent
    )
    everyone = run(fine_tune=TUNED, rounds=1, chunk=3)
    assert sizes == [N, N]
    sizes.clear()
    some = run(fine_tune=TUNED, rounds=1, nodes=2, chunk=3)
    assert sizes == [N, 2]
    chosen = ~np.isnan(some["loss"][-1])
    for column in ("loss", "loss_fine_tuned"):
        np.testing.assert_allclose(
            some.last(column)[chosen], everyone.last(column)[chosen], rtol=1e-6
        )
        assert np.isnan(some.last(column)[~chosen]).all()


def test_what_is_told_of_an_evaluation_has_it():
    told = []
    history = run(fine_tune=TUNED, callbacks=[lambda event: told.append(event)])
    last = [event.values for event in told if event.kind == "evaluation"][-1]
    assert last["accuracy_fine_tuned_mean"] == pytest.approx(
        history.last("accuracy_fine_tuned").mean()
    )
    assert np.isnan(
        next(event.values for event in told if event.kind == "evaluation")["loss_fine_tuned_mean"]
    )
    assert history.to_pandas()["accuracy_fine_tuned_mean"].notna().sum() == 1


def test_graphs_are_asked_for_once():
    """A user's function of the round may be slow, or not be a function."""
    asked = []
    graphs = topofl.as_topology(
        lambda t: asked.append(t) or topologies.random_regular(N, 3, seed=t)
    )
    asked.clear()
    run(topology=graphs, rounds=3, every=1)
    plain = list(asked)
    asked.clear()
    run(topology=graphs, rounds=3, every=1, fine_tune=TUNED, fine_tune_every=1)
    assert asked == plain


# What diverges


EXPLODING = algorithms.sgd(1e38, batch_size=4, epochs=2)


def test_divergence_of_a_copy_is_told_as_such():
    with pytest.raises(
        topofl.DivergenceError, match=r"^in fine-tuning, the .* of node \d .*lr=1e\+38; lower"
    ):
        run(fine_tune=EXPLODING)


@pytest.mark.parametrize("policy", ["freeze", "record"])
def test_divergence_of_a_copy_is_not_the_models(policy):
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


# Checkpoints


def arguments(**changes):
    return killed.settings("dsgd over a period") | {"fine_tune": TUNED, "every": 2} | changes


class Stop(Exception):
    pass


def stopped(folder, at, **changes):
    def callback(event):
        if (event.kind, event.round) == ("round", at):
            raise Stop

    with pytest.raises(Stop):
        topofl.run(
            **problems.options(saving=topofl.Saving(folder, every=1), **arguments(**changes)),
            callbacks=[callback],
        )
    assert rounds_in(folder)[-1] == at


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("at", [1, 2, 5])
def test_resumed_equals_never_stopped(tmp_path, every, at):
    stopped(tmp_path, at, fine_tune_every=every)
    resumed = killed.trained(
        arguments(fine_tune_every=every), saving=topofl.Saving(tmp_path, resume=True)
    )
    assert killed.differences(resumed, killed.trained(arguments(fine_tune_every=every))) == []


@pytest.mark.parametrize("every", [None, 2, 4])
@pytest.mark.parametrize("first", [4, 6])
def test_more_rounds_are_as_if_asked_for_at_once(tmp_path, every, first):
    killed.trained(arguments(rounds=first, fine_tune_every=every), saving=tmp_path)
    longer = killed.trained(
        arguments(fine_tune_every=every), saving=topofl.Saving(tmp_path, resume=True)
    )
    assert killed.differences(longer, killed.trained(arguments(fine_tune_every=every))) == []


def test_a_round_that_was_not_the_last_cannot_become_it(tmp_path):
    stopped(tmp_path, 4)
    with pytest.raises(
        ValueError, match=r"`rounds` must be at least 5, got 4: .* was not fine-tuned"
    ):
        topofl.run(
            **problems.options(saving=topofl.Saving(tmp_path, resume=True), **arguments(rounds=4))
        )
    stopped(tmp_path / "often", 4, fine_tune_every=2)
    short = killed.trained(
        arguments(rounds=4, fine_tune_every=2),
        saving=topofl.Saving(tmp_path / "often", resume=True),
    )
    assert killed.differences(short, killed.trained(arguments(rounds=4, fine_tune_every=2))) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"fine_tune": algorithms.sgd(0.2, batch_size=BATCH, epochs=2, momentum=0.9)},
            "fine_tune.lr was 0.1, is 0.2",
        ),
        ({"fine_tune": False}, "fine_tune.lr was 0.1, is None"),
        ({"fine_tune_every": 4}, "evaluation.fine_tune_every was None, is 4"),
        ({"on": ["test", "val"]}, r"evaluation.on was \['test'\], is \['test', 'val'\]"),
    ],
)
def test_another_evaluation_is_another_run(tmp_path, changes, message):
    topofl.run(**problems.options(saving=tmp_path, **arguments(rounds=1)))
    with pytest.raises(ValueError, match=f"`resume` must continue the same run: .*{message}"):
        topofl.run(
            **problems.options(saving=topofl.Saving(tmp_path, resume=True), **arguments(**changes))
        )


# Several sets


def test_several_sets_are_those_of_runs_with_one():
    names = ("own_test", "own_val", "test")
    how = {"before_exchange": True, "fine_tune": TUNED, "init": "independent"}
    together = run(on=names, **how)
    for place, name in enumerate(names):
        alone = run(on=name, **how)
        for moment in ("", "_before_exchange", "_fine_tuned"):
            for score in ("accuracy", "loss"):
                ending = f"_{name}" if place else ""
                np.testing.assert_allclose(
                    together[f"{score}{moment}{ending}"],
                    alone[f"{score}{moment}"],
                    rtol=1e-12,
                    err_msg=name,
                )
    assert together.meta["evaluation"]["on"] == list(names)
    assert len(together.evaluations) == 3 + 3 * 3 * 2
    assert not np.array_equal(together["loss"], together["loss_own_val"])


def test_a_list_of_one_is_that_one(tmp_path):
    first = run(on=["own_test"], saving=tmp_path)
    assert first.meta["evaluation"]["on"] == ["own_test"]
    assert killed.differences(*[(one, torch.zeros(1)) for one in (first, run())]) == []
    run(on="own_test", saving=topofl.Saving(tmp_path, resume=True))
    run(on=("own_test",), saving=topofl.Saving(tmp_path, resume=True))


def test_several_sets_are_saved_and_shown(tmp_path):
    history = run(on=("own_test", "own_val"), fine_tune=TUNED)
    again = topofl.History.load(history.save(tmp_path / "run"))
    for name, values in history.evaluations.items():
        np.testing.assert_array_equal(again[name], values)
    assert {"accuracy_own_val", "accuracy_fine_tuned_own_val"} <= set(history.to_pandas(per="node"))


def test_drawn_nodes_have_examples_in_every_set():
    iid = personal_clients()
    clients = replace(
        iid,
        test=tuple(own if i in (1, 3, 4) else own[:0] for i, own in enumerate(iid.test)),
        val=tuple(own if i in (0, 1, 4) else own[:0] for i, own in enumerate(iid.val)),
    )
    history = run(clients=clients, on=("own_test", "own_val"), nodes=2)
    for column in ("loss", "loss_own_val"):
        assert np.flatnonzero(~np.isnan(history.last(column))).tolist() == [1, 4]
    with pytest.raises(
        ValueError, match=r"`evaluation.nodes` must be between 1 and .* examples=2, got 3"
    ):
        run(clients=clients, on=("own_test", "own_val"), nodes=3)
    everyone = run(clients=clients, on=("own_test", "own_val"), fine_tune=TUNED)
    assert np.flatnonzero(np.isnan(everyone.last("loss_fine_tuned"))).tolist() == [0, 2, 5]
    assert np.flatnonzero(np.isnan(everyone.last("loss_fine_tuned_own_val"))).tolist() == [2, 3, 5]
    personal = everyone.personal("accuracy_fine_tuned")
    assert (personal.n, personal.without) == (3, 3)


# Configurations and estimates


def test_configurations_evaluate_and_fine_tune():
    tables = {
        "data": {"name": "digits", "n": 4, "seed": 0, "test_fraction": 0.2, "val_fraction": 0.2},
        "algorithm": {"name": "fedavg", "lr": 0.1, "epochs": 1, "fine_tune_epochs": 1},
        "run": {"rounds": 2, "seed": 0},
        "evaluation": {"every": 1, "on": ["own_test", "own_val"], "fine_tune_every": 1},
    }
    experiment = config.build(tables)
    history = experiment.run()
    assert np.isfinite(history["accuracy_fine_tuned_own_val"][1:]).all()
    assert experiment.estimate().fine_tuning == experiment.estimate().parameters
    again = config.build(experiment.tables_of(history)).run()
    np.testing.assert_array_equal(history["loss_fine_tuned"][1:], again["loss_fine_tuned"][1:])
    off = config.build(
        tables
        | {"evaluation": tables["evaluation"] | {"fine_tune": False, "fine_tune_every": None}}
    )
    assert "loss_fine_tuned" not in off.run().evaluations
    assert off.estimate().fine_tuning == 0
    with pytest.raises(TypeError, match=r"\[evaluation\] `fine_tune` must be a Phase"):
        config.build(tables | {"evaluation": {"fine_tune": "sgd"}})


def need(algorithm, **options):
    clients = personal_clients()
    return topofl.estimate(
        algorithm,
        model=problems.linear(),
        clients=clients,
        topology=topologies.ring(N),
        **problems.options(**options),
    )


def test_memory_counts_copies_their_momentum_and_their_minibatches():
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
    monkeypatch.setattr(evaluation_stages, "fine_tuned", lambda *args: pytest.fail("fine-tuned"))
    assert need(algorithms.dsgd(0.1), fine_tune=TUNED, probe=True).seconds_per_evaluation > 0


# Stages of the user's own


def mean(models, round):
    """Return one model for all: the mean of all nodes'."""
    return models.flat.mean(0).expand(round.n, -1)


def received(models, round):
    """Return the mean of whom a node hears in the round, itself included."""
    copies = models.like(models.flat.clone())
    round.mix(round.weights, copies.flat)
    return copies


def tuned(models, round):
    """Return what Evaluation(fine_tune=TUNED) makes of the models."""
    copies = models.like(models.flat.clone())
    TUNED.apply(copies, TUNED.init(copies), round)
    return copies


@HOW
def test_own_stage_scores_what_the_function_returns(settings):
    found = []
    keep = problems.each_round(lambda t, models: found.append(models.flat.clone()))
    how = {
        "also": {"ensemble": mean},
        "on": ("own_test", "own_val"),
        "every": 1,
        "dtype": torch.float64,
    }
    history = run(**(how | settings), callbacks=[keep])
    clients, module = personal_clients(), problems.linear().double()
    for t, flat in enumerate(found, start=1):
        parameters = dict(module.named_parameters())
        sizes = [p.numel() for p in parameters.values()]
        with torch.no_grad():
            for parameter, part in zip(parameters.values(), flat.mean(0).split(sizes), strict=True):
                parameter.copy_(part.view(parameter.shape))
        for i in range(N):
            for ending, held in (("", clients.test), ("_own_val", clients.val)):
                accuracy, loss = scores(module, clients.dataset, held[i])
                assert history[f"accuracy_ensemble{ending}"][t, i] == pytest.approx(accuracy)
                assert history[f"loss_ensemble{ending}"][t, i] == pytest.approx(loss, abs=1e-9)
    assert not np.array_equal(history["loss_ensemble"][1:], history["loss"][1:])
    column = history.columns["accuracy_ensemble_own_val"]
    assert tuple(column) == ("accuracy", "ensemble", "own_val")
    assert history.meta["evaluation"]["also"] == {"ensemble": "tests.engine.test_stages:mean"}


def test_an_own_stage_before_training_is_of_the_models_at_the_start():
    history = run(also={"same": lambda models, round: models})
    np.testing.assert_array_equal(history["loss_same"], history["loss"])
    assert history["round"][0] == 0


@HOW
def test_training_does_not_notice_own_stages(settings):
    plain = run(**settings)
    observed = run(also={"ensemble": mean, "mixed": received, "own_tuning": tuned}, **settings)
    for name in plain.evaluations:
        np.testing.assert_array_equal(observed[name], plain[name])
    for name in plain.rounds:
        np.testing.assert_array_equal(observed[name], plain[name])
    assert (observed["loss_own_tuning"][1:] != observed["loss"][1:]).all()
    np.testing.assert_array_equal(plain.models.flat, observed.models.flat)


def test_own_stages_are_resumed_to_the_last_bit(tmp_path):
    own = {"also": {"ensemble": mean, "own_tuning": tuned}, "fine_tune": False}
    stopped(tmp_path, 3, **own)
    resumed = killed.trained(arguments(**own), saving=topofl.Saving(tmp_path, resume=True))
    assert killed.differences(resumed, killed.trained(arguments(**own))) == []
    assert np.isfinite(resumed[0]["loss_ensemble"]).all()


def test_a_run_with_another_own_stage_is_another_run(tmp_path):
    stopped(tmp_path, 2, also={"ensemble": mean})
    again = arguments(also={"ensemble": received})
    with pytest.raises(ValueError, match=r"evaluation\.also was .*mean.*, is .*received"):
        topofl.run(**problems.options(saving=topofl.Saving(tmp_path, resume=True), **again))


def test_own_stages_are_part_of_what_is_estimated():
    plain, more = (
        need(algorithms.dsgd(0.1), rounds=100),
        need(algorithms.dsgd(0.1), rounds=100, also={"a": mean}),
    )
    assert (
        more.history - plain.history == 8 * 2 * N * 11
    )  # accuracy and loss of all nodes, 11 times


def changing(models, round):
    models.flat[0] += 1
    return models


def changing_mass(models, round):
    models.push_sum_weights.mul_(1)
    return models


def training(models, round):
    TUNED.apply(models, TUNED.init(models), round)
    return models


OWN = {
    "no dict": ([mean], TypeError, r"`also` must be a dictionary such as .*, got \["),
    "no function": (
        {"mean": 3},
        TypeError,
        r"`also\['mean'\]` must be a function of \(models, round\), got 3",
    ),
    "no identifier": (
        {"the mean": mean},
        ValueError,
        "`also` must be identifiers other than .*, got 'the mean'",
    ),
    "ours": (
        {"fine_tuned": mean},
        ValueError,
        "must be identifiers other than .*, got 'fine_tuned'; name it otherwise",
    ),
    "a set": ({"own_val": mean}, ValueError, "must be identifiers other than"),
    "nothing": (
        {"a": lambda models, round: None},
        TypeError,
        r"must return models or a tensor .*, got None",
    ),
    "shape": (
        {"a": lambda models, round: models.flat[:1]},
        ValueError,
        r"shape \(n, d\)=\(6, 111\), got shape \(1, 111\); "
        r"one model for all is flat\.expand\(n, -1\)",
    ),
    "dtype": (
        {"a": lambda models, round: models.flat.double()},
        ValueError,
        r"of torch\.float32 on cpu, got torch\.float64 on cpu; return flat\.to\(models\.flat\)",
    ),
    "changed": (
        {"a": changing},
        ValueError,
        r"`evaluation\.also\['a'\]` must not change the models.*work on a copy",
    ),
    "changed mass": ({"a": changing_mass}, ValueError, "must not change the models"),
    "trained": ({"a": training}, ValueError, "must not change the models"),
}


@pytest.mark.parametrize("case", OWN)
def test_own_stages_that_cannot_be_are_refused(case):
    also, error, message = OWN[case]
    with pytest.raises(error, match=message):
        run(also=also)


def test_an_own_stage_cannot_take_the_column_of_another():
    task = topofl.tasks.Task(
        "two", nn.functional.cross_entropy, {"loss_a": lambda outputs, targets: targets.float()}
    )
    task = replace(
        task,
        loss=lambda outputs, targets: nn.functional.cross_entropy(
            outputs, targets, reduction="none"
        ),
    )
    with pytest.raises(
        ValueError,
        match=r"`evaluation\.also` must give every column a name of its own, got 'loss_a'",
    ):
        run(task=task, also={"a": mean})
    train = replace(task, scores={"train": lambda outputs, targets: targets.float()})
    with pytest.raises(ValueError, match="must not give a column the name 'train_loss' of another"):
        run(task=train, also={"loss": mean})


def test_an_own_stage_that_diverges_is_named():
    def diverging(models, round):
        copies = models.like(models.flat * torch.inf)
        TUNED.apply(copies, TUNED.init(copies), round)
        return copies

    with pytest.raises(topofl.DivergenceError, match="in the evaluation 'worse'"):
        run(also={"worse": diverging})


# What is refused

BAD_INPUT = {
    "no phase": (
        {"fine_tune": "sgd"},
        TypeError,
        "`fine_tune` must be a Phase such as sgd.*, got 'sgd'",
    ),
    "true": ({"fine_tune": True}, TypeError, "`fine_tune` must be a Phase"),
    "exchange": (
        {"fine_tune": algorithms.gossip()},
        ValueError,
        "`fine_tune` must be a phase of each node alone",
    ),
    "gradients": (
        {"fine_tune": algorithms.train(algorithms.descend(lr=0.1), gradient=mixing.max_degree)},
        ValueError,
        "got one that uses mixed",
    ),
    "another's state": (
        {"fine_tune": algorithms.on_kept_models("local", algorithms.sgd(0.1))},
        ValueError,
        "got one that uses the state",
    ),
    "part": (
        {"fine_tune": algorithms.sgd(0.1, part=algorithms.part("fc"))},
        ValueError,
        "'fc' matches none",
    ),
    "epochs": (
        {"fine_tune": algorithms.sgd(0.1, epochs=[1, 2])},
        ValueError,
        "`epochs` must be .* one per node, n=6, got 2",
    ),
    "lr": (
        {"fine_tune": algorithms.sgd(1e300)},
        ValueError,
        "`lr` must be at most .* in the phase 'fine_tune'",
    ),
    "every, of nothing": (
        {"fine_tune_every": 2},
        ValueError,
        "`evaluation.fine_tune_every` must be None where",
    ),
    "every 0": (
        {"fine_tune": TUNED, "fine_tune_every": 0},
        ValueError,
        "`fine_tune_every` must be at least 1",
    ),
    "every 1.5": (
        {"fine_tune": TUNED, "fine_tune_every": 1.5},
        TypeError,
        "`fine_tune_every` must be an integer",
    ),
    "every 3": (
        {"fine_tune": TUNED, "fine_tune_every": 3},
        ValueError,
        "must be a multiple of every=2, .* got 3",
    ),
    "no set": ({"on": ()}, ValueError, "`on` must be one of 'test', 'val', 'own_test', 'own_val'"),
    "unknown set": ({"on": ("own_test", "own_vel")}, ValueError, "`on` .* did you mean 'own_val'"),
    "twice": ({"on": ("test", "test")}, ValueError, "`on` must name each set once, got test, test"),
    "no own test examples": (
        {"clients": problems.equal_clients()},
        ValueError,
        "'own_test' is empty; partition with test_fraction",
    ),
    "no validation": (
        {"clients": personal_clients(val_fraction=0.0), "on": ("own_test", "own_val")},
        ValueError,
        "'own_val' is empty; partition with val_fraction",
    ),
    "no shared validation": (
        {
            "clients": data.iid(data.from_arrays(np.eye(36), [0, 1, 2] * 12, test=0.2), N, seed=0),
            "on": ("test", "val"),
        },
        ValueError,
        "'val' is empty; load the data with val=",
    ),
    "examples of one": (
        {"on": ("test", "own_test"), "examples": 3},
        ValueError,
        "`evaluation.examples` must",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_before_work_is_done(case):
    changes, error, message = BAD_INPUT[case]
    rounds = []
    with pytest.raises(error, match=message):
        run(**{"callbacks": [problems.each_round(lambda t, m: rounds.append(t))]} | changes)
    assert not rounds


def test_chains_refuse_what_cannot_fine_tune():
    local = algorithms.sgd(0.1)
    with pytest.raises(TypeError, match="`fine_tune` must be a Phase"):
        algorithms.chain("mine", local=local, fine_tune=3)


def test_attackers_are_named_as_a_cause_where_copies_diverge():
    """Fine-tuning has a divergence monitor of its own, which knows of the attackers too."""
    flip = attacks.sign_flip(nodes=[2])
    huge = algorithms.sgd(1e38, batch_size=4, epochs=2)
    with pytest.raises(
        topofl.DivergenceError, match=r"in fine-tuning, .*; messages from 1 attacker.* may be the"
    ):
        run(attackers=flip, fine_tune=huge, on="test")
