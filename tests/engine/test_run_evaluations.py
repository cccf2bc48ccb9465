"""Evaluations of runs: sets, samples, stages and columns of users, and runs without scores."""

import itertools
import json
import operator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine.evaluated_runs import HOW, TUNED, N, need, personal_clients, scores, tuned
from tests.engine.evaluated_runs import run as own_run
from tests.engine.runs import run, same
from tests.rows.runs import differences
from topofl import Evaluation, algorithms, config, data, models, topologies
from topofl.algorithms import Phase, chain, gossip, sgd


def test_scores_before_exchange_differ_from_those_after():
    history = run(before_exchange=True, init="independent")
    assert not np.array_equal(history["loss_before_exchange"][-1], history["loss"][-1])
    alone = run(algorithms.local_only(lr=0.1), before_exchange=True)
    np.testing.assert_array_equal(alone["loss_before_exchange"], alone["loss"])


def loss_of(models, node, indices):
    """Return the loss of a node's model on each of some examples."""
    model, blobs = problems.linear(), problems.dataset()
    nn.utils.vector_to_parameters(models.flat[node], model.parameters())
    own = torch.tensor(np.asarray(indices))
    outputs = model(blobs.inputs[own])
    return nn.functional.cross_entropy(outputs, blobs.labels[own], reduction="none")


@pytest.mark.parametrize("where", ["test", "val", "own_test", "own_val"])
def test_evaluation_uses_the_named_sets(where):
    clients, blobs = personal_clients(), problems.dataset()
    history = run(clients=clients, on=where)
    kind = where.removeprefix("own_")
    held = getattr(clients, kind) if kind != where else [getattr(blobs, kind)] * 6
    for node, indices in enumerate(held):
        wanted = loss_of(history.models, node, indices).mean().item()
        assert history["loss"][-1, node] == pytest.approx(wanted, rel=1e-5)


def same_training(a, b):
    return same(a, b, "train_loss", "consensus_distance")


def test_a_sample_of_examples_is_shared_by_all_nodes_and_rounds():
    history, whole = run(examples=5), run()
    assert same_training(history, whole)
    losses = loss_of(history.models, 2, problems.dataset().test).detach().numpy()
    means = [losses[list(five)].mean() for five in itertools.combinations(range(len(losses)), 5)]
    assert np.abs(np.array(means) - history["loss"][-1, 2]).min() < 1e-6
    assert history["loss"][-1, 2] != whole["loss"][-1, 2]
    assert set(history["accuracy"].ravel() * 5) <= set(range(6))
    assert same(history, run(examples=5))
    assert same(whole, run(examples=len(losses), nodes=6))


def test_sampled_nodes_have_the_scores_of_a_full_evaluation():
    some, whole = run(nodes=2, before_exchange=True), run(before_exchange=True)
    assert same_training(some, whole)
    nodes = np.flatnonzero(~np.isnan(some["accuracy"][0]))
    assert len(nodes) == 2
    for name in ("accuracy", "loss", "accuracy_before_exchange", "loss_before_exchange"):
        np.testing.assert_allclose(some[name][:, nodes], whole[name][:, nodes], rtol=1e-6)
        assert np.isnan(np.delete(some[name], nodes, axis=1)).all()
    table = some.to_pandas()
    assert table["accuracy_mean"].iloc[-1] == pytest.approx(some["accuracy"][-1, nodes].mean())
    assert table["loss_max"].iloc[-1] == some["loss"][-1, nodes].max()


def test_samples_depend_on_the_seed_and_are_nested():
    def drawn(size, seed):
        return {*np.flatnonzero(~np.isnan(run(rounds=1, nodes=size, seed=seed)["loss"][0]))}

    assert all(drawn(2, seed) < drawn(4, seed) for seed in range(4))
    assert len({frozenset(drawn(2, seed)) for seed in range(4)}) > 1


def test_sampled_nodes_have_examples_in_every_set():
    clients, sets = personal_clients(), ("own_test", "own_val")
    clients = replace(
        clients,
        test=tuple(own if i in (1, 3, 4) else own[:0] for i, own in enumerate(clients.test)),
        val=tuple(own if i in (0, 1, 4) else own[:0] for i, own in enumerate(clients.val)),
    )
    history = run(clients=clients, on=sets, nodes=2)
    for column in ("loss", "loss_own_val"):
        assert np.flatnonzero(~np.isnan(history.last(column))).tolist() == [1, 4]
    for on, most in ((sets, 2), ("own_test", 3)):
        message = rf"`evaluation.nodes` must be between 1 and .* examples={most}, got {most + 1}"
        with pytest.raises(ValueError, match=message):
            run(clients=clients, on=on, nodes=most + 1)
    everyone = run(clients=clients, on=sets, fine_tune=TUNED)
    assert np.flatnonzero(np.isnan(everyone.last("loss_fine_tuned"))).tolist() == [0, 2, 5]
    assert np.flatnonzero(np.isnan(everyone.last("loss_fine_tuned_own_val"))).tolist() == [2, 3, 5]
    personal = everyone.personal("accuracy_fine_tuned")
    assert (personal.n, personal.without) == (3, 3)


def test_samples_are_recorded_and_reported():
    history = run(rounds=1, examples=np.int64(5), nodes=np.int64(2))
    assert [history.meta["evaluation"][name] for name in ("examples", "nodes")] == [5, 2]
    assert repr(history).endswith(" of a sample of 2 nodes and 5 examples)")
    json.dumps(dict(history.meta))
    assert "sample" not in repr(run(rounds=1))


def test_several_sets_have_the_scores_of_runs_with_one():
    names = ("own_test", "own_val", "test")
    how = {"before_exchange": True, "fine_tune": TUNED, "init": "independent"}
    together = own_run(on=names, **how)
    for place, name in enumerate(names):
        alone = own_run(on=[name], **how)
        stages, names_of_scores = ("", "_before_exchange", "_fine_tuned"), ("accuracy", "loss")
        for moment, score in itertools.product(stages, names_of_scores):
            column, wanted = f"{score}{moment}{f'_{name}' * bool(place)}", alone[score + moment]
            np.testing.assert_allclose(together[column], wanted, rtol=1e-12, err_msg=name)
    assert together.meta["evaluation"]["on"] == list(names)
    assert len(together.evaluations) == 3 + 3 * 3 * 2
    assert not np.array_equal(together["loss"], together["loss_own_val"])
    assert {"accuracy_own_val", "accuracy_fine_tuned"} <= {*together.to_pandas(per="node")}


def test_a_list_of_one_set_equals_the_set(tmp_path):
    first = own_run(on=["own_test"], saving=tmp_path)
    assert first.meta["evaluation"]["on"] == ["own_test"]
    assert differences(first, own_run()) == []
    own_run(on=("own_test",), saving=topofl.Saving(tmp_path, resume=True))


def test_divergence_errors_name_node_round_and_remedy():
    """In the last step, which only an evaluation shows, and of the first node that is evaluated."""
    drawn = np.flatnonzero(~np.isnan(run(rounds=1, nodes=2)["loss"][0]))
    for message, options in (
        (rf"loss of node {drawn[0]} is \w+ after round 1", {"rounds": 1, "nodes": 2}),
        (r"after round 1 with lr=1e\+38", {"rounds": 1}),
        (r"lr=1e\+38; lower the learning rate", {"rounds": 20}),
    ):
        with pytest.raises(topofl.DivergenceError, match=message):
            run(algorithms.dsgd(lr=1e38, batch_size=4), **options)


def mean(models, round):
    """Return the mean of all nodes' models, for all nodes."""
    return models.flat.mean(0).expand(round.n, -1)


def received(models, round):
    """Return each node's mean over its in-neighbors in the round, itself included."""
    copies = models.like(models.flat.clone())
    round.mix(round.weights, copies.flat)
    return copies


@HOW
def test_custom_stages_score_the_returned_models(settings):
    found = []
    keep = problems.each_round(lambda t, models: found.append(models.flat.mean(0)))
    how = {"also": {"ensemble": mean}, "on": ("own_test", "own_val"), "every": 1}
    history = own_run(**(how | settings), dtype=torch.float64, callbacks=[keep])
    clients, module = personal_clients(), problems.linear().double()
    sets = (("", clients.test), ("_own_val", clients.val))
    for t, flat in enumerate(found, start=1):
        nn.utils.vector_to_parameters(flat, module.parameters())
        for i, (ending, held) in itertools.product(range(N), sets):
            accuracy, loss = scores(module, clients.dataset, held[i])
            assert history[f"accuracy_ensemble{ending}"][t, i] == pytest.approx(accuracy)
            assert history[f"loss_ensemble{ending}"][t, i] == pytest.approx(loss, abs=1e-9)
    assert not np.array_equal(history["loss_ensemble"][1:], history["loss"][1:])
    column = history.score_columns["accuracy_ensemble_own_val"]
    assert tuple(column) == ("accuracy", "ensemble", "own_val")
    assert history.meta["evaluation"]["also"] == {"ensemble": f"{__name__}:mean"}


def drift(models, round):
    """Return each model's distance from the average."""
    return (models.flat - models.flat.mean(0)).norm(dim=1)


def test_stages_of_users_may_mix_and_train_copies():
    also = {"mixed": received, "own_tuning": tuned, "same": lambda models, round: models}
    per_node = {"change": lambda models, round: received(models, round).flat.norm(dim=1)}
    plain, observed = own_run(), own_run(also=also, per_node=per_node)
    assert same(observed, plain, *plain.columns)
    np.testing.assert_array_equal(observed["loss_same"], plain["loss"])  # from round 0 on
    assert (observed["loss_own_tuning"][1:] != observed["loss"][1:]).all()


def test_divergence_errors_name_the_custom_stage():
    def diverging(models, round):
        copies = models.like(models.flat * torch.inf)
        TUNED.apply(copies, TUNED.init(copies), round)
        return copies

    with pytest.raises(topofl.DivergenceError, match="in the evaluation 'worse'"):
        own_run(also={"worse": diverging})


def test_functions_that_read_all_models_leave_equal_ones_stored_once():
    def mass(models, round):
        return models.push_sum_weights + models.flat[:, 0]

    stored = []
    own_run(
        algorithms.fedavg(0.1, batch_size=4, participation=0.5), topology=None,
        also={"ensemble": mean}, per_node={"mass": mass}, fine_tune=TUNED,
        callbacks=[lambda event: stored.append(event.models.distinct)],
    )  # fmt: skip
    assert set(stored) == {1}


def degrees(models, round):
    return np.diff(round.topology.adjacency.indptr)


def noting(note):
    """Return D-SGD with a phase between its step and its exchange that notes."""

    def apply(models, state, round):
        note(models, round)
        return state

    recorded = Phase(lambda models: {}, apply)
    return chain("noting", local=sgd(0.1, batch_size=4), record=recorded, gossip=gossip())


def note_drift(models, round):
    round.note("drift", drift(models, round))
    round.note("largest", drift(models, round).max())
    round.note("third", round.t / 3)
    if round.t % 2 or models.flat.is_meta:
        round.note("odd", np.arange(N) + round.t)
        round.note("odd_round", round.t)


def test_values_per_node_are_columns_of_evaluations_and_in_tables_and_events():
    seen, told = [], []

    def follow(event):
        if event.kind == "round":
            seen.append(drift(event.models, None).numpy())
        told.append(event)

    per_node = {"end": drift, "degree": degrees}
    history = own_run(noting(note_drift), rounds=5, per_node=per_node, callbacks=[follow])
    assert history["round"].tolist() == [0, 2, 4, 5]
    for name in ("drift", "odd", "end", "degree"):
        assert history[name].shape == (4, N)
        assert name in history.columns
        assert name not in history.score_columns
    np.testing.assert_array_equal(history["end"][1:], np.array(seen)[[1, 3, 4]])
    assert (history["end"][0] < 1e-6).all()  # all start from one model
    assert (history["degree"] == 2).all()
    assert np.isnan(history["drift"][0]).all()
    assert (history["drift"][1:] > history["end"][1:]).all()  # averaging brings models together
    np.testing.assert_array_equal(history["drift"].max(1)[1:], history["largest"][[1, 3, 4]])
    odd = [np.full(N, np.nan), np.arange(N) + 1, np.arange(N) + 3, np.full(N, np.nan)]
    np.testing.assert_array_equal(history["odd"], odd)
    np.testing.assert_array_equal(history["third"], np.arange(5) / 3)
    np.testing.assert_array_equal(history["odd_round"], [np.nan, 1, np.nan, 3, np.nan])
    np.testing.assert_array_equal(history.last("end"), history["end"][-1])
    assert history.meta["evaluation"]["per_node"]["end"] == f"{__name__}:drift"
    table = history.to_pandas(per="node")
    np.testing.assert_array_equal(table["drift"], history["drift"].reshape(-1))
    last = table[(table["round"] == 5) & (table["node"] == 3)]
    assert last["end"].tolist() == [history["end"][-1, 3]]
    assert history.to_pandas().loc[4, "end_max"] == history["end"][2].max()
    rounds, evaluations = (
        [event.values for event in told if event.kind == kind] for kind in ("round", "evaluation")
    )
    assert [values["largest"] for values in rounds] == history["largest"].tolist()
    assert evaluations[-1]["drift_mean"] == pytest.approx(history["drift"][-1].mean())


def test_estimates_count_columns_of_users():
    """Eleven evaluations: two scores of a stage, and a value of a column or of a phase."""

    def history(algorithm=None, **changes):
        return need(algorithm or algorithms.dsgd(0.1), rounds=100, **changes).history

    plain = history(noting(lambda models, round: None))
    assert history(noting(lambda m, round: round.note("a", m.flat[:, 0]))) - plain == 8 * 11 * N
    assert history(per_node={"a": drift}) - history() == pytest.approx(8 * 11 * N)
    assert history(also={"a": mean}) - history() == 8 * 2 * 11 * N


def test_with_one_node_a_value_is_a_number_of_the_round():
    history = own_run(
        noting(lambda models, round: round.note("drift", drift(models, round))),
        clients=personal_clients(n=1), topology=topologies.ring(1), per_node={"end": drift},
    )  # fmt: skip
    assert history["drift"].shape == (4,)
    assert history["end"].shape == (3, 1)


WHY = r"evaluated nothing, since it ran with Evaluation\(on=\(\)\): run it again with a set of "


def untested(**changes):
    """Return the arguments of a run of data without a test set."""
    rng = np.random.default_rng(0)
    dataset = data.from_arrays(rng.normal(size=(60, 5)), rng.integers(0, 3, 60))
    how = {"model": models.logistic_regression(5, 3), "topology": topologies.ring(N), "rounds": 4}
    how |= {"algorithm": algorithms.dsgd(lr=0.1), "clients": data.iid(dataset, N, seed=0)}
    return how | changes


@pytest.fixture(scope="module")
def unscored():
    return topofl.run(**untested(evaluation=Evaluation(on=(), every=2)), seed=0)


def test_data_without_a_test_set_name_the_remedy(unscored):
    with pytest.raises(ValueError, match=r"'test' is empty; .*scores by Evaluation\(on=\(\)\)"):
        topofl.run(**untested(), seed=0)
    assert unscored.n_rounds == 4
    for short in ((), []):
        again = topofl.run(**untested(evaluation=short), seed=0)
        assert again["round"].tolist() == [0, 4]
        assert torch.equal(again.models.flat, unscored.models.flat)
    found = topofl.estimate(**untested(evaluation=()), probe=True)
    assert found.seconds_per_evaluation >= 0
    assert found.evaluation == 0


@pytest.mark.parametrize("name", ["consensus_distance", "gradient_diversity"])
def test_columns_that_are_left_out_are_nan_and_all_else_is_as_before(name):
    whole, run = (own_run(algorithms.dsgd(lr=0.1), without=without) for without in ((), name))
    assert torch.equal(run.models.flat, whole.models.flat)
    assert np.isnan(run[name]).all()
    assert not np.isnan(whole[name][1:]).any()
    others = {*whole.evaluations} - {name}
    assert others == {*run.evaluations} - {name}
    for other in others:
        np.testing.assert_array_equal(run[other], whole[other])
    assert run.meta["evaluation"]["without"] == [name]
    assert "without" not in whole.meta["evaluation"]


def test_runs_without_scores_record_what_is_no_score():
    pushed = own_run(algorithms.osgp(lr=0.1), on=())
    kept = {"round", "consensus_distance", "gradient_diversity", "push_weight"}
    assert pushed.evaluations.keys() == kept
    assert pushed.score_columns == {}
    assert list(pushed.to_pandas(per="node")) == ["round", "node", "push_weight"]
    assert own_run(on=()).evaluations.keys() == kept - {"push_weight"}


METHODS = ("last", "best", "best_on_validation", "personal", "column", "plot")
ASKED = {name: operator.methodcaller(name) for name in METHODS} | {
    "a column": lambda history: history["accuracy"],
    "a column of a set": lambda history: history["loss_own_val"],
    "last of a column": lambda history: history.last("accuracy"),
    "target": lambda history: history.rounds_to(0.5),
    "comparison": lambda history: topofl.compare_histories([history]),
    "table": lambda history: history.to_pandas(per="node"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_asking_for_a_score_is_answered_with_the_reason(unscored, asked):
    with pytest.raises((KeyError, ValueError), match=WHY):
        ASKED[asked](unscored)


def test_what_is_no_score_is_there(unscored, tmp_path):
    assert repr(unscored) == f"History(dsgd on ring(n={N}): 4 rounds, n={N}, not evaluated)"
    assert unscored._repr_html_()
    assert unscored.to_pandas()["consensus_distance"].notna().tolist() == [1, 0, 1, 0, 1]
    assert unscored.plot("train_loss").axes[0].get_ylabel() == "train loss"
    with pytest.raises(KeyError, match=r"no column 'bites'; known are .* did you mean 'bytes'"):
        unscored["bites"]
    with pytest.raises(ValueError, match=r"runs with Evaluation\(on=\(\)\) evaluate nothing"):
        topofl.summarize({"one": unscored}, "seed")
    loaded = topofl.History.load(unscored.save(tmp_path / "a", models=True))
    with pytest.raises(KeyError, match=WHY):
        loaded.last()


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
    assert same(history, again, "loss_fine_tuned")
    off = config.build(tables | {"evaluation": {"on": "own_test", "fine_tune": False}})
    assert "loss_fine_tuned" not in off.run().evaluations
    assert off.estimate().fine_tuning == 0
