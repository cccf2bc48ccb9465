"""What a run promises besides matching the naive loop: streams, records, and early checks."""

import functools
import importlib
import itertools
import json
import warnings
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from topofl import algorithms, data, metrics, mixing, models, topologies
from topofl.engine.evaluate import scores
from topofl.engine.train.batches import Batches


def run(algorithm=None, **changes):
    settings = {
        "model": problems.linear(),
        "clients": problems.equal_clients(),
        "topology": topologies.ring(6),
        "rounds": 4,
        "every": 2,
        "seed": 0,
    }
    return topofl.run(
        algorithm or algorithms.dsgd(lr=0.1, batch_size=4),
        **problems.options(**(settings | changes)),
    )


def same(a, b):
    return all(
        np.array_equal(a[name], b[name], equal_nan=True)
        for name in ("accuracy", "loss", "train_loss")
    )


def test_same_seed_same_bits_other_seed_other_run():
    assert same(run(), run())
    assert not same(run(), run(seed=1))


def test_global_generators_are_neither_read_nor_moved():
    model = problems.linear()
    first = run(model=model)
    np.random.seed(7)  # noqa: NPY002 - the point is that it does not matter
    torch.manual_seed(7)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    assert same(first, run(model=model))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_model_and_thread_setting_are_left_alone():
    model, threads = problems.convolutional(), torch.get_num_threads()
    kept = [p.clone() for p in model.parameters()]
    run(model=model, executor="looped")
    assert all(torch.equal(a, b) for a, b in zip(kept, model.parameters(), strict=True))
    assert torch.get_num_threads() == threads


def test_evaluating_more_often_changes_nothing():
    often, seldom = run(every=1, before_exchange=True), run(every=4)
    np.testing.assert_array_equal(often["accuracy"][-1], seldom["accuracy"][-1])
    np.testing.assert_array_equal(often["train_loss"], seldom["train_loss"])
    assert list(often["round"]) == [0, 1, 2, 3, 4]
    assert list(seldom["round"]) == [0, 4]


def test_minibatches_do_not_depend_on_the_graph():
    first = run(algorithms.local_only(lr=0.1, batch_size=4))
    second = run(algorithms.local_only(lr=0.1, batch_size=4), topology=topologies.star(6))
    assert same(first, second)


def test_auto_records_its_choice():
    assert run().meta["executor"] == "batched"
    assert run(model=problems.convolutional(), executor="auto").meta["executor"] in {
        "batched",
        "looped",
    }


class Branching(nn.Module):
    """A model whose path depends on values, which torch.func cannot batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(36, 3)

    def forward(self, x):
        logits = self.layer(x.flatten(1))
        return logits if logits.sum() > 0 else 2 * logits


def test_models_that_cannot_be_batched_are_looped():
    history = run(model=Branching(), executor="auto")
    assert history.meta["executor"] == "looped"
    assert history["loss"][-1].mean() < history["loss"][0].mean()


@pytest.mark.parametrize("init", ["common", "independent", "given"])
def test_initial_models(init):
    start = {}
    model = problems.linear()
    run(
        model=model,
        init=init,
        rounds=1,
        algorithm=algorithms.local_only(lr=1e-30),
        callbacks=[problems.each_round(lambda t, m: start.update(m=m.flat.clone()))],
    )
    rows_equal = bool((start["m"] == start["m"][0]).all())
    assert rows_equal == (init != "independent")
    given = torch.nn.utils.parameters_to_vector(model.parameters())
    assert torch.equal(start["m"][0], given) == (init == "given")


def test_messages_and_bytes_by_both_accountings():
    clients = problems.equal_clients()
    graph = problems.cliques(clients)  # two cliques of 3 and one edge between them: 7 edges
    history = run(
        algorithms.clique_averaging(lr=0.1, batch_size=4), clients=clients, topology=graph
    )
    assert graph.n_edges == 7
    d = 36 * 3 + 3
    assert set(history["messages"]) == {2 * 7 + 2 * 6}, (
        "models along all edges, gradients inside cliques"
    )
    assert set(history["bytes"]) == {26 * d * 4}
    assert set(history["messages_paper"]) == {2 * 2 * 7}, "the paper sends both to all neighbors"
    assert set(history["bytes_paper"]) == {28 * d * 4}
    assert set(history["busiest_messages"]) == {2 * 3 + 2 * 2}, (
        "an end of the bridge sends and receives 3 + 2"
    )
    W, G = mixing.metropolis_hastings(graph), mixing.within_groups(graph)
    for accounting, column in (("exact", "messages"), ("paper", "messages_paper")):
        cost = metrics.round_cost(W, d, gradient_mixing=G, accounting=accounting)
        assert cost.messages == history[column][0]


def test_algorithms_without_exchange_send_nothing():
    history = run(algorithms.local_only(lr=0.1), topology=None)
    assert not history["messages"].any()
    with pytest.raises(ValueError, match="exchanges nothing"):
        history.mixing(0)


def test_centralized_trains_one_model_on_everything():
    history = run(algorithms.centralized(lr=0.1, batch_size=24), topology=None, rounds=30)
    assert history["accuracy"].shape[1] == 1
    assert history["loss"][-1, 0] < 0.5 * history["loss"][0, 0]


def test_consensus_distance_and_gradient_diversity_are_recorded():
    kept = []
    history = run(
        init="independent",
        every=1,
        callbacks=[problems.each_round(lambda t, m: kept.append(m.flat.clone()))],
    )
    np.testing.assert_allclose(
        history["consensus_distance"][1:], [metrics.consensus_distance(m) for m in kept]
    )
    assert np.isnan(history["gradient_diversity"][0])
    assert (history["gradient_diversity"][1:] >= 1 / 6 - 1e-12).all()


def test_gradient_diversity_is_its_definition():
    clients, model = problems.equal_clients(), problems.linear().double()
    history = run(rounds=1, model=model, clients=clients, init="given", dtype=torch.float64)
    blobs = clients.dataset
    batch = Batches(clients.train, 0).at(0, 4, "local")
    gradients = []
    for indices in batch.indices:
        model.zero_grad()
        nn.functional.cross_entropy(
            model(blobs.inputs[indices.tolist()].double()), blobs.labels[indices.tolist()]
        ).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    g = torch.stack(gradients)
    np.testing.assert_allclose(
        history["gradient_diversity"][1], g.square().sum() / g.sum(0).square().sum()
    )


def test_moment_before_the_exchange_differs_from_after():
    history = run(before_exchange=True, init="independent")
    assert not np.array_equal(history["loss_before_exchange"][-1], history["loss"][-1])
    alone = run(algorithms.local_only(lr=0.1), before_exchange=True)
    np.testing.assert_array_equal(alone["loss_before_exchange"], alone["loss"])


@pytest.mark.parametrize("where", ["test", "val", "own_test", "own_val"])
def test_evaluation_sets_are_those_named(where):
    clients, kept = data.iid(problems.dataset(), 6, seed=0, val_fraction=0.2, test_fraction=0.3), []
    model = problems.linear()
    history = run(
        clients=clients,
        on=where,
        model=model,
        callbacks=[problems.each_round(lambda t, m: kept.append(m.flat.clone()))],
    )
    blobs = clients.dataset
    shared = {
        "test": [blobs.test] * 6,
        "val": [blobs.val] * 6,
        "own_test": clients.test,
        "own_val": clients.val,
    }
    for node, indices in enumerate(shared[where]):
        nn.utils.vector_to_parameters(kept[-1][node], model.parameters())
        logits = model(blobs.inputs[torch.tensor(indices)])
        wanted = nn.functional.cross_entropy(logits, blobs.labels[torch.tensor(indices)]).item()
        assert history["loss"][-1, node] == pytest.approx(wanted, rel=1e-5)


def test_a_sample_of_examples_is_shared_by_all_nodes_and_rounds():
    kept, model = [], problems.linear()
    history = run(
        examples=5,
        model=model,
        callbacks=[problems.each_round(lambda t, m: kept.append(m.flat.clone()))],
    )
    whole = run()
    assert same_training(history, whole)
    blobs = problems.dataset()
    nn.utils.vector_to_parameters(kept[-1][2], model.parameters())
    losses = nn.functional.cross_entropy(
        model(blobs.inputs[torch.tensor(blobs.test)]),
        blobs.labels[torch.tensor(blobs.test)],
        reduction="none",
    )
    means = [
        losses[list(five)].mean().item() for five in itertools.combinations(range(len(losses)), 5)
    ]
    assert np.abs(np.array(means) - history["loss"][-1, 2]).min() < 1e-6
    assert history["loss"][-1, 2] != whole["loss"][-1, 2]
    assert set(history["accuracy"].ravel() * 5) <= set(range(6))
    assert same(history, run(examples=5))
    assert same(whole, run(examples=len(blobs.test), nodes=6))


def test_a_sample_of_nodes_has_the_scores_that_it_has_among_all():
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


def same_training(a, b):
    return all(
        np.array_equal(a[name], b[name], equal_nan=True)
        for name in ("train_loss", "consensus_distance")
    )


def test_samples_are_drawn_from_the_seed_and_larger_ones_include_smaller():
    drawn = {
        (size, seed): np.flatnonzero(
            ~np.isnan(run(rounds=1, nodes=size, seed=seed)["loss"][0])
        ).tolist()
        for size in (2, 4)
        for seed in range(4)
    }
    assert all(set(drawn[2, seed]) < set(drawn[4, seed]) for seed in range(4))
    assert len({tuple(drawn[2, seed]) for seed in range(4)}) > 1


def test_nodes_without_examples_of_their_own_are_not_drawn():
    iid = data.iid(problems.dataset(), 6, seed=0, test_fraction=0.3)
    clients = replace(
        iid, test=tuple(own if i in (1, 4) else own[:0] for i, own in enumerate(iid.test))
    )
    history = run(clients=clients, on="own_test", nodes=2)
    assert np.flatnonzero(~np.isnan(history["loss"][-1])).tolist() == [1, 4]
    with pytest.raises(
        ValueError, match=r"`evaluation.nodes` must be between 1 and .* examples=2, got 3"
    ):
        run(clients=clients, on="own_test", nodes=3)


def test_samples_are_recorded_and_said():
    history = run(rounds=1, examples=np.int64(5), nodes=np.int64(2))
    assert [history.meta["evaluation"][name] for name in ("examples", "nodes")] == [5, 2]
    assert repr(history).endswith(" of a sample of 2 nodes and 5 examples)")
    json.dumps(dict(history.meta))
    assert "sample" not in repr(run(rounds=1))


def test_divergence_of_an_evaluated_node_is_told_by_its_number():
    drawn = np.flatnonzero(~np.isnan(run(rounds=1, nodes=2)["loss"][0])).tolist()
    with pytest.raises(
        topofl.DivergenceError, match=rf"loss of node {drawn[0]} is \w+ after round 1"
    ):
        run(algorithms.dsgd(lr=1e38, batch_size=4), rounds=1, nodes=2)


def test_models_are_equal_after_exact_averaging_and_evaluated_once(monkeypatch):
    found = []
    original = scores._all_equal
    monkeypatch.setattr(
        scores, "_all_equal", lambda flat: found.append(original(flat)) or found[-1]
    )
    equal = run(topology=topologies.fully_connected(6), init="independent")
    assert found == [False, True, True]
    assert (equal["accuracy"][-1] == equal["accuracy"][-1, 0]).all()
    monkeypatch.setattr(scores, "_all_equal", lambda flat: False)
    each = run(topology=topologies.fully_connected(6), init="independent")
    np.testing.assert_array_equal(equal["accuracy"], each["accuracy"])
    np.testing.assert_allclose(equal["loss"], each["loss"], rtol=1e-6)


def test_a_period_is_connected_if_its_union_is():
    halves = [[(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4), (5, 0)]]
    graphs = [topofl.as_topology(half) for half in halves]
    assert np.isfinite(run(topology=graphs)["accuracy"]).all()
    with pytest.raises(topofl.TopologyError, match="must be connected"):
        run(topology=[graphs[0], graphs[0]])


def test_long_periods_have_each_matrix_computed_once():
    graphs = [topologies.random_regular(6, 3, seed=seed) for seed in range(70)]
    assert len(run(topology=graphs, rounds=150, every=150).matrices) == 70


def test_equal_matrices_of_new_graphs_are_kept_once():
    graphs = topofl.as_topology(lambda t: topologies.random_regular(6, 3, seed=t % 2))
    history = run(topology=graphs, rounds=5)
    assert list(history.matrix_of_round) == [0, 1, 0, 1, 0]
    assert len(history.matrices) == 2


def test_numpy_integers_are_integers(tmp_path):
    history = run(seed=np.int64(3), rounds=np.int32(2), every=np.int64(1))
    assert same(history, run(seed=3, rounds=2, every=1))
    topofl.History.load(history.save(tmp_path / "run"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_on_sparse_graphs(dtype):
    clients = data.iid(problems.dataset(), 12, seed=0)
    history = run(clients=clients, topology=topologies.ring(12), dtype=dtype)
    assert np.isfinite(history["loss"]).all()


class Summed(nn.Module):
    """Two parameters that are only added up: autograd gives them one and the same gradient."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(36, 3)), nn.Parameter(torch.ones(36, 3))

    def forward(self, x):
        return x.flatten(1) @ (self.a + self.b)


def test_gradients_that_share_memory_are_mixed_once():
    mine = algorithms.chain(
        "mine",
        local=algorithms.train(
            algorithms.descend(lr=0.1), batch_size=4, gradient=mixing.metropolis_hastings
        ),
    )
    settings = {"model": Summed(), "init": "given", "dtype": torch.float64}
    batched, looped = (
        run(mine, executor=executor, **settings) for executor in ("batched", "looped")
    )
    np.testing.assert_allclose(batched["loss"], looped["loss"], rtol=1e-12)


def test_any_callable_is_a_rule_for_gradients():
    rule = functools.partial(mixing.uniform, direction="pull")
    mine = algorithms.chain(
        "mine", local=algorithms.train(algorithms.descend(lr=0.1), batch_size=4, gradient=rule)
    )
    assert "partial" in run(mine).meta["settings"]["local"]["gradient"]
    with pytest.raises(TypeError, match="`gradient` must be a weight rule"):
        algorithms.train(algorithms.descend(lr=0.1), gradient="metropolis")


def test_one_node_and_isolated_nodes_are_local_training():
    alone = run(clients=problems.equal_clients(1), topology=topologies.ring(1))
    assert np.isfinite(alone["accuracy"]).all()
    parts = topologies.random_cliques(6, 3, seed=0)
    apart = run(topology=parts, on_disconnected="allow", init="independent")
    assert apart["consensus_distance"][-1] > 0


class Exploding(nn.Module):
    """NaN for one node's data only."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(36, 3)

    def forward(self, x):
        x = x.flatten(1)
        return self.layer(x) * torch.where(x[:, :1] > 1e6, torch.nan, 1.0)


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_nan_loss_names_node_round_and_learning_rate(executor):
    blobs = problems.dataset()
    clients = data.iid(blobs, 6, seed=0)
    blobs.inputs[clients.train[4][-1]] = 1e9
    with pytest.raises(
        topofl.DivergenceError, match=r"loss of node 4 is nan in round \d+ .* lr=0.25"
    ):
        run(
            algorithms.dsgd(lr=0.25, batch_size=4),
            clients=clients,
            model=Exploding(),
            executor=executor,
        )


@pytest.mark.parametrize("fast", [True, False])
def test_emulated_products_are_warned_about(fast, monkeypatch, recwarn):
    warnings.simplefilter("always")
    monkeypatch.setattr(
        importlib.import_module("topofl.engine.run"), "emulates_bf16", lambda device: not fast
    )
    run(algorithms.dsgd(lr=0.1, batch_size=4), rounds=1)
    assert not recwarn.list
    run(algorithms.dsgd(lr=0.1, batch_size=4), rounds=1, precision="bf16")
    assert len(recwarn.list) == (0 if fast else 1)
    assert fast or "is emulated on cpu" in str(recwarn.list[0].message)
    assert fast or recwarn.list[0].filename == __file__, "it points at the caller"


def test_what_was_asked_for_is_kept_beside_what_ran():
    algorithm = algorithms.dsgd(lr=0.1, batch_size=4)
    assert run(algorithm, rounds=1).meta["asked"] == {"executor": "auto", "chunk": "auto"}
    history = run(algorithm, rounds=1, executor="batched", chunk=np.int64(2))
    assert history.meta["asked"] == {"executor": "batched", "chunk": 2}
    assert run(algorithm, rounds=1, executor="looped", chunk=1).meta["chunk"] == 1


def test_divergence_in_the_last_step_is_noticed():
    with pytest.raises(topofl.DivergenceError, match=r"after round 1 with lr=1e\+38"):
        run(algorithms.dsgd(lr=1e38, batch_size=4), rounds=1)


def test_divergence_by_learning_rate():
    with pytest.raises(topofl.DivergenceError, match=r"lr=1e\+38; lower the learning rate"):
        run(algorithms.dsgd(lr=1e38, batch_size=4), rounds=20)


def changed(change):
    """Return a linear model after some change."""
    model = problems.linear()
    change(model)
    return model


BAD = {
    "not an algorithm": ({"algorithm": "dsgd"}, TypeError, "`algorithm` must be an Algorithm"),
    "not a partition": ({"clients": [1, 2]}, TypeError, "`clients` must be a Partition"),
    "no rounds": ({"rounds": 0}, ValueError, "`rounds` must be at least 1"),
    "rounds as float": ({"rounds": 1.5}, TypeError, "`rounds` must be an integer"),
    "seed": ({"seed": -1}, ValueError, "`seed`"),
    "every": ({"every": 0}, ValueError, "`every`"),
    "chunk": ({"chunk": 0}, ValueError, "`chunk`"),
    "chunk of a loop": (
        {"executor": "looped", "chunk": 8},
        ValueError,
        '`chunk` must be "auto" or 1 with executor="looped"',
    ),
    "on": ({"on": "tset"}, ValueError, "did you mean 'test'"),
    "examples": (
        {"examples": 0},
        ValueError,
        "`examples` must be at least 1, got 0",
    ),
    "more examples": (
        {"examples": 19},
        ValueError,
        r"`evaluation.examples` must be .*=18, got 19; None takes all",
    ),
    "examples of an empty set": (
        {
            "examples": 2,
            "on": "val",
            "clients": data.iid(data.from_arrays(np.eye(36), [0, 1, 2] * 12, test=0.2), 6, seed=0),
        },
        ValueError,
        "`evaluation.on` must name a set with examples",
    ),
    "examples of own sets": (
        {
            "examples": 2,
            "on": "own_test",
            "clients": data.iid(problems.dataset(), 6, seed=0, test_fraction=0.3),
        },
        ValueError,
        "`evaluation.examples` must be None with on='own_test'",
    ),
    "share of examples": ({"examples": 0.5}, TypeError, "`examples` must be an integer"),
    "more nodes": (
        {"nodes": 7},
        ValueError,
        "`evaluation.nodes` must be between 1 and n=6, got 7; None takes all",
    ),
    "nodes of a pooled run": (
        {"algorithm": algorithms.centralized(lr=0.1), "nodes": 2},
        ValueError,
        "`evaluation.nodes` must be between 1 and n=1",
    ),
    "before_exchange": (
        {"before_exchange": "both"},
        ValueError,
        "`before_exchange` must be True or False",
    ),
    "init": ({"init": "zero"}, ValueError, "`init`"),
    "executor": ({"executor": "batch"}, ValueError, "did you mean 'batched'"),
    "on_disconnected": ({"on_disconnected": "ignore"}, ValueError, "`on_disconnected`"),
    "dtype": ({"dtype": torch.int64}, ValueError, "`dtype`"),
    "no topology": ({"topology": None}, TypeError, "`topology` must be given"),
    "other size": ({"topology": topologies.ring(7)}, ValueError, "has n=7, `clients` has n=6"),
    "disconnected": (
        {"topology": topologies.random_cliques(6, 3, seed=0)},
        topofl.TopologyError,
        "must be connected",
    ),
    "disconnected sequence": (
        {"topology": [topologies.random_cliques(6, 3, seed=0)] * 2},
        topofl.TopologyError,
        "must be connected",
    ),
    "no groups": (
        {"algorithm": algorithms.clique_averaging(lr=0.1)},
        topofl.TopologyError,
        "`topology` must have groups for clique_averaging",
    ),
    "weights off the edges": (
        {"mixing": mixing.metropolis_hastings(topologies.fully_connected(6))},
        ValueError,
        "must be 0 off the edges",
    ),
    "push weights for gossip": (
        {"topology": topologies.star(6), "mixing": lambda g: mixing.uniform(g, direction="push")},
        ValueError,
        "`mixing` must have rows that sum to 1",
    ),
    "no own test data": ({"on": "own_test"}, ValueError, "partition with test_fraction"),
    "not a model": ({"model": "logistic"}, TypeError, "`model` must be an nn.Module"),
    "model of another shape": (
        {"model": models.logistic_regression(50)},
        ValueError,
        "cannot take examples of shape",
    ),
    "model of fewer classes": (
        {"model": nn.Sequential(nn.Flatten(), nn.Linear(36, 2))},
        ValueError,
        "at least n_classes=3 logits",
    ),
    "batch norm": (
        {"model": nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(36, 3))},
        ValueError,
        r"BatchNorm2d \(layer '0'\)",
    ),
    "dropout": (
        {"model": nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 3))},
        ValueError,
        "Dropout",
    ),
    "running statistics": (
        {
            "model": nn.Sequential(
                nn.InstanceNorm2d(1, track_running_stats=True), nn.Flatten(), nn.Linear(36, 3)
            )
        },
        ValueError,
        r"InstanceNorm2d \(layer '0'\)",
    ),
    "frozen": (
        {"model": changed(lambda m: m[1].bias.requires_grad_(False))},
        ValueError,
        "'1.bias' has requires_grad",
    ),
    "two dtypes": (
        {
            "model": changed(
                lambda m: setattr(m[1], "bias", nn.Parameter(torch.zeros(3, dtype=torch.float64)))
            )
        },
        ValueError,
        "parameters of one dtype",
    ),
    "unused": (
        {
            "model": changed(
                lambda m: m[1].register_parameter("spare", nn.Parameter(torch.zeros(2)))
            )
        },
        ValueError,
        "'1.spare' does not change its output",
    ),
    "mixing by name": (
        {"mixing": "metropolis_hastings"},
        TypeError,
        "`mixing` must be a weight rule",
    ),
    "mixing that returns an array": (
        {"mixing": lambda g: np.eye(6)},
        TypeError,
        "`mixing` must return a MixingMatrix",
    ),
    "dtype by name": ({"dtype": "float32"}, TypeError, "`dtype` must be a torch dtype"),
    "device": ({"device": "gpu"}, ValueError, "`device` must be such as"),
    "progress": ({"progress": "yes"}, ValueError, "`progress`"),
    "no parameters": ({"model": nn.Flatten()}, ValueError, "must have parameters"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_work_is_done(case):
    changes, error, message = BAD[case]
    rounds = []
    with pytest.raises(error, match=message):
        run(**{"callbacks": [problems.each_round(lambda t, m: rounds.append(t))]} | changes)
    assert not rounds


def test_progress_is_silent_off_a_terminal(capfd):
    run()
    assert capfd.readouterr() == ("", "")
    run(progress=True)
    assert "round" in capfd.readouterr().err


EVEN, ODD = [(0, 1), (2, 3), (4, 5)], [(1, 2), (3, 4), (5, 0)]


def test_matchings_of_networkx_alternate():
    turns = topologies.matchings(topologies.ring(6))  # the same two, without networkx
    told = [topofl.from_edges(edges, 6) for edges in (EVEN, ODD)]
    assert {frozenset(map(tuple, turns.at(t).edge_index.T.tolist())) for t in (0, 1)} == {
        frozenset(map(tuple, graph.edge_index.T.tolist())) for graph in told
    }
    wanted = run(topology=told, rounds=6)
    histories = [
        run(topology=lambda t: nx.Graph([EVEN, ODD][t % 2]), rounds=6, on_disconnected="allow"),
        run(topology=[nx.Graph(EVEN), nx.Graph(ODD)], rounds=6),
        run(
            topology=lambda t: nx.relabel_nodes(
                nx.Graph([EVEN, ODD][t % 2]), dict(enumerate("abcdef"))
            ),
            rounds=6,
        ),
    ]
    for history in histories:
        np.testing.assert_array_equal(history["accuracy"], wanted["accuracy"])
        np.testing.assert_array_equal(history["loss"], wanted["loss"])
    alone = run(topology=told[0], rounds=6, on_disconnected="allow")
    assert (
        wanted["consensus_distance"][-1] < 0.5 * alone["consensus_distance"][-1]
    )  # one matching leaves pairs apart


def weighted_ring(n=6):
    graph = nx.Graph()
    graph.add_weighted_edges_from((i, (i + 1) % n, (0.1, 0.4)[i % 2]) for i in range(n))
    return graph


def test_weights_of_a_users_graph_are_used_or_dropped_with_a_word():
    graph = weighted_ring()
    with pytest.warns(
        UserWarning, match=r"edges of networkx carry weights from 0.1 to 0.4, .*own_weights=True"
    ) as told:
        dropped = run(topology=graph, rounds=2)
    assert [str(warning.filename) for warning in told] == [__file__]  # one, where the user called
    assert "mixing=mixing.metropolis_hastings" in str(told[0].message)
    named = run(topology=graph, rounds=2, mixing=mixing.metropolis_hastings)  # and no warning
    np.testing.assert_array_equal(named["loss"], dropped["loss"])
    own = run(topology=topofl.as_topology(graph, own_weights=True), rounds=2)
    given = run(
        topology=graph,
        rounds=2,
        mixing=mixing.from_weights(nx.to_numpy_array(graph) + 0.5 * np.eye(6)),
    )
    np.testing.assert_array_equal(own["loss"], given["loss"])
    assert (own["loss"] != dropped["loss"]).any()
    with pytest.warns(UserWarning, match="carry weights"):
        run(topology=lambda t: graph, rounds=2)
    for rule in (mixing.metropolis_or_uniform, mixing.uniform):
        run(topology=graph, rounds=2, mixing=rule)  # named, the default too, and no warning


def test_weights_that_a_later_round_drops_are_told_once():
    unweighted = nx.cycle_graph(6)
    later = topofl.as_topology(lambda t: weighted_ring() if t >= 4 else unweighted, name="later")
    few = topologies.participation(weighted_ring(), fraction=1, seed=0)
    down = topologies.link_failures(weighted_ring(), fail=0.5, recover=0.5, seed=0)
    for graphs in (later, few, down):
        seen = []
        with pytest.warns(
            UserWarning, match="carry weights from 0.1 to 0.4, which are not used"
        ) as told:
            run(
                topology=graphs,
                rounds=6,
                on_disconnected="allow",
                callbacks=[problems.each_round(lambda t, m: seen.append((t, len(told))))],  # noqa: B023
            )
        assert [str(warning.filename) for warning in told] == [__file__]
        if graphs is later:
            assert dict(seen) == {1: 0, 2: 0, 3: 0, 4: 0, 5: 1, 6: 1}
        run(topology=graphs, rounds=6, on_disconnected="allow", mixing=mixing.metropolis_hastings)
    run(topology=lambda t: unweighted, rounds=2)
    own = topofl.as_topology(weighted_ring(), own_weights=True)
    run(
        topology=topologies.participation(own, fraction=0.7, seed=0),
        rounds=2,
        on_disconnected="allow",
    )


def test_own_weights_that_cannot_push_are_named_and_a_rule_that_can():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((i, (i + 1) % 6, (0.1, 0.4)[i % 2]) for i in range(6))
    own = {"topology": topofl.as_topology(graph, own_weights=True), "rounds": 2}
    with pytest.raises(
        ValueError, match=r"`topology` must, with `own_weights`, .* node 0 of networkx .*; push"
    ):
        run(algorithms.osgp(lr=0.1), **own)
    assert len(
        run(
            algorithms.osgp(lr=0.1),
            **own,
            mixing=functools.partial(mixing.uniform, direction="push"),
        ).rounds
    )
    with pytest.warns(
        UserWarning,
        match=r"name a rule: mixing=functools.partial\(mixing.uniform, direction='push'\)",
    ):
        run(algorithms.osgp(lr=0.1), topology=graph, rounds=2)


def test_a_fixed_matrix_with_labels_stands_where_its_graph_does():
    ring = nx.relabel_nodes(nx.cycle_graph(6), dict(enumerate("abcdef")))
    weights = nx.DiGraph()
    weights.add_nodes_from("fedcba")
    weights.add_weighted_edges_from(
        [(u, v, 0.3) for u, v in nx.DiGraph(ring).edges] + [(u, u, 0.4) for u in ring]
    )
    with pytest.raises(
        ValueError, match="the nodes of networkx in the same order: node 'a' is row 5"
    ):
        run(topology=ring, mixing=mixing.from_weights(weights))
    run(topology=ring, rounds=1, mixing=mixing.from_weights(weights, topofl.as_topology(ring)))


def test_a_run_by_own_weights_is_saved_loaded_and_resumed(tmp_path):
    own = {"topology": topofl.as_topology(weighted_ring(), own_weights=True)}
    whole = run(**own, rounds=4)
    run(**own, rounds=2, saving=tmp_path / "c")
    resumed = run(**own, rounds=4, saving=topofl.Saving(tmp_path / "c", resume=True))
    np.testing.assert_array_equal(resumed["loss"], whole["loss"])
    loaded = topofl.History.load(resumed.save(tmp_path / "h"))
    assert loaded.mixing(0).spectral_gap == whole.mixing(0).spectral_gap
    with (
        pytest.raises(ValueError, match="topology"),
        pytest.warns(UserWarning, match="carry weights"),
    ):
        run(topology=weighted_ring(), rounds=4, saving=topofl.Saving(tmp_path / "c", resume=True))


def test_estimating_a_weighted_graph_by_a_probe_warns_of_nothing():
    for chosen in ({"mixing": mixing.metropolis_hastings}, {}):
        topology = topofl.as_topology(weighted_ring(), own_weights=not chosen)
        parts = {
            "model": problems.linear(),
            "clients": problems.equal_clients(),
            "topology": topology,
        }
        assert (
            topofl.estimate(
                algorithms.dsgd(lr=0.1), **problems.options(**parts, **chosen), probe=True
            ).seconds_per_round
            > 0
        )


def test_rounds_whose_records_do_not_fit_into_memory_are_refused():
    message = (
        r"`rounds` and `evaluation.every` must give records that fit into memory, got .*; "
        r"take fewer rounds"
    )
    with pytest.raises(ValueError, match=message):
        topofl.run(
            algorithms.dsgd(lr=0.1, batch_size=4),
            model=problems.linear(),
            clients=problems.equal_clients(),
            topology=topologies.ring(6),
            rounds=10**15,
            seed=0,
        )
