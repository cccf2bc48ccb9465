"""Runs: seeds, records and options, also of configurations."""

import importlib
import inspect
import sys
import warnings
from dataclasses import FrozenInstanceError, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine import runs
from tests.engine.runs import run, same
from tests.rows.runs import differences, weighted_ring
from topofl import Compute, Evaluation, Saving, algorithms, config, metrics, mixing, topologies
from topofl.engine.minibatches import Batches


def test_global_generators_are_not_used():
    model = problems.linear()
    first = run(model=model)
    np.random.seed(7)  # noqa: NPY002 - the point is that it does not matter
    torch.manual_seed(7)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    assert same(first, run(model=model))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_model_and_thread_setting_are_unchanged():
    model, threads = problems.convolutional(), torch.get_num_threads()
    kept = [p.clone() for p in model.parameters()]
    run(model=model, executor="looped")
    assert all(torch.equal(a, b) for a, b in zip(kept, model.parameters(), strict=True))
    assert torch.get_num_threads() == threads


def test_minibatches_do_not_depend_on_the_graph():
    first = run(algorithms.local_only(lr=0.1, batch_size=4))
    second = run(algorithms.local_only(lr=0.1, batch_size=4), topology=topologies.star(6))
    assert same(first, second)


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (algorithms.fedavg(lr=0.1), "communicate through a server only"),
        (algorithms.centralized(lr=0.1), "trains one model on all data"),
        (algorithms.local_only(lr=0.1), "exchanges nothing"),
        (algorithms.dsgd(lr=0.1), None),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_topologies_that_a_method_ignores_raise_one_warning(method, why, recwarn):
    warnings.simplefilter("always")
    run(method, rounds=1, topology=None if why else topologies.ring(6))
    assert not recwarn.list
    if why:
        history = run(method, rounds=1)
        assert history.n_rounds == 1, "the run goes on"
        (warning,) = recwarn.list
        assert str(warning.message).startswith(f"`topology` is ignored by {method.name}: ")
        assert why in str(warning.message)
        assert warning.filename == runs.__file__, "it points at the caller"


@pytest.mark.parametrize("init", ["common", "independent", "given"])
def test_initial_models(init):
    model = problems.linear()
    start = run(algorithms.local_only(lr=1e-30), model=model, init=init, rounds=1).models.flat
    assert bool((start == start[0]).all()) == (init != "independent")
    given = torch.nn.utils.parameters_to_vector(model.parameters())
    assert torch.equal(start[0], given) == (init == "given")


def test_messages_and_bytes_by_both_accountings():
    clients = problems.equal_clients()
    graph = problems.cliques(clients)  # two cliques of 3 and one edge between them: 7 edges
    averaging = algorithms.clique_averaging(lr=0.1, batch_size=4)
    history, d = run(averaging, clients=clients, topology=graph), 36 * 3 + 3
    assert graph.n_edges == 7
    wanted = {
        "messages": 2 * 7 + 2 * 6,  # models along all edges, gradients inside cliques
        "bytes": 26 * d * 4,
        "messages_paper": 2 * 2 * 7,  # the paper sends both to all neighbors
        "bytes_paper": 28 * d * 4,
        "busiest_messages": 2 * 3 + 2 * 2,  # an end of the bridge sends and receives 3 + 2
    }
    assert {name: set(history[name]) for name in wanted} == {k: {v} for k, v in wanted.items()}
    W, G = mixing.metropolis_hastings(graph), mixing.within_groups(graph)
    for accounting, column in (("exact", "messages"), ("paper", "messages_paper")):
        cost = metrics.round_cost(W, d, gradient_mixing=G, accounting=accounting)
        assert cost.messages == history[column][0]


def test_consensus_distance_and_gradient_diversity_are_recorded():
    kept = []
    keep = problems.each_round(lambda t, models: kept.append(models.flat.clone()))
    history = run(init="independent", every=1, callbacks=[keep])
    wanted = [metrics.consensus_distance(models) for models in kept]
    np.testing.assert_allclose(history["consensus_distance"][1:], wanted)
    assert np.isnan(history["gradient_diversity"][0])
    assert (history["gradient_diversity"][1:] >= 1 / 6 - 1e-12).all()


def test_gradient_diversity_equals_its_definition():
    clients, model = problems.equal_clients(), problems.linear().double()
    history = run(rounds=1, model=model, clients=clients, init="given", dtype=torch.float64)
    blobs = clients.dataset
    batch = Batches(clients.train, 0).at(0, 4, "local")
    gradients = []
    for indices in batch.indices:
        model.zero_grad()
        outputs = model(blobs.inputs[indices.tolist()].double())
        nn.functional.cross_entropy(outputs, blobs.labels[indices.tolist()]).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    g = torch.stack(gradients)
    wanted = g.square().sum() / g.sum(0).square().sum()
    np.testing.assert_allclose(history["gradient_diversity"][1], wanted)


def test_numpy_integers_are_accepted(tmp_path):
    history = run(seed=np.int64(3), rounds=np.int32(2), every=np.int64(1))
    assert same(history, run(seed=3, rounds=2, every=1))
    topofl.History.load(history.save(tmp_path / "run"))


@pytest.mark.parametrize("fast", [True, False])
def test_emulated_bf16_raises_a_warning(fast, monkeypatch, recwarn):
    warnings.simplefilter("always")
    monkeypatch.setattr(
        importlib.import_module("topofl.engine.run"), "emulates_bf16", lambda device: not fast
    )
    run(rounds=1)
    assert not recwarn.list
    run(rounds=1, precision="bf16")
    assert len(recwarn.list) == (0 if fast else 1)
    assert fast or "is emulated on cpu" in str(recwarn.list[0].message)
    assert fast or recwarn.list[0].filename == runs.__file__, "it points at the caller"


def test_history_records_requested_and_chosen_executors():
    history = run(rounds=1)
    assert history.meta["asked"] == {"executor": "auto", "chunk": "auto"}
    assert history.meta["executor"] == "batched"
    history = run(rounds=1, executor="batched", chunk=np.int64(2))
    assert history.meta["asked"] == {"executor": "batched", "chunk": 2}
    assert run(rounds=1, executor="looped", chunk=1).meta["chunk"] == 1


def test_progress_bars_are_hidden_off_terminals(capfd):
    run()
    assert capfd.readouterr() == ("", "")
    run(progress=True)
    assert "round" in capfd.readouterr().err


@pytest.mark.parametrize("shell", [SimpleNamespace(kernel=None), SimpleNamespace(), None])
def test_progress_bars_show_where_cells_run_not_where_a_kernel_is(shell, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    run()
    assert ("round" in capfd.readouterr().err) == hasattr(shell, "kernel")


def test_estimates_of_weighted_graphs_do_not_warn():
    for chosen in ({"mixing": mixing.metropolis_hastings}, {}):
        need = topofl.estimate(
            algorithms.dsgd(lr=0.1), model=problems.linear(), clients=problems.equal_clients(),
            topology=topofl.as_topology(weighted_ring(), own_weights=not chosen),
            probe=True, **chosen,
        )  # fmt: skip
        assert need.seconds_per_round > 0


def test_run_has_at_most_fifteen_parameters():
    assert len(inspect.signature(topofl.run).parameters) <= 15


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"evaluation": 2}, {"evaluation": Evaluation(every=2)}),
        ({"evaluation": np.int64(2)}, {"evaluation": Evaluation(every=2)}),
        ({"evaluation": "val"}, {"evaluation": Evaluation(on="val")}),
        ({"evaluation": ["test", "val"]}, {"evaluation": Evaluation(on=("test", "val"))}),
        ({"evaluation": None}, {"evaluation": Evaluation()}),
        ({"compute": "cpu"}, {"compute": Compute(device="cpu")}),
        ({"compute": torch.device("cpu")}, {"compute": Compute(device="cpu")}),
        ({"compute": None}, {"compute": Compute()}),
        ({"saving": None}, {"saving": Saving()}),
    ],
    ids=str,
)
def test_shorthands_equal_option_objects(short, long):
    one, other = (run(**{"evaluation": 4} | options) for options in (short, long))
    assert differences(one, other) == []
    assert list(one.evaluations) == list(other.evaluations)


@pytest.mark.parametrize("kind", [str, Path])
def test_paths_are_folders_of_checkpoints(tmp_path, kind):
    run(saving=kind(tmp_path / "here"))
    (folder,) = (tmp_path / "here").iterdir()
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize("kind", [Evaluation, Compute, Saving])
def test_options_are_immutable_and_comparable(kind):
    one = kind()
    assert one == kind() == replace(one)
    with pytest.raises(FrozenInstanceError):
        one.every = 3


def test_numpy_integers_become_ints():
    found = [Evaluation(every=np.int64(3)).every, Compute(chunk=np.int32(2)).chunk]
    assert list(map(type, [*found, Saving(every=np.int8(1)).every])) == [int] * 3


def test_estimate_takes_the_same_options():
    how = {"model": problems.convolutional(), "clients": problems.equal_clients(), "rounds": 8}
    estimate = partial(topofl.estimate, algorithms.dsgd(0.1), topology=topologies.ring(6), **how)
    one = estimate(evaluation=2, compute=Compute(executor="looped"))
    compute = Compute("cpu", executor="batched")
    other = estimate(evaluation=Evaluation(every=4), compute=compute)
    assert (one.executor, other.executor) == ("looped", "batched")
    assert one.history > other.history


TABLES = {
    "data": {"name": "digits", "n": 6, "seed": 1},
    "algorithm": {"name": "dsgd", "lr": 0.5, "batch_size": 8},
    "topology": "ring",
    "run": {"rounds": 2, "seed": 3, "progress": False},
}


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"evaluation": 2}, {"evaluation": {"every": 2}}),
        ({"evaluation": "test"}, {"evaluation": {"on": ["test"]}}),
        ({"compute": "cpu"}, {"compute": {"device": "cpu"}}),
        ({"saving": 5}, {"saving": {"every": 5}}),
    ],
    ids=str,
)
def test_shorthands_in_configurations(short, long):
    one, other = config.build(TABLES | short), config.build(TABLES | long)
    assert one.tables == other.tables
    assert one.options == other.options


@pytest.mark.parametrize(
    ("assignments", "name", "wanted"),
    [
        (["evaluation=2"], "evaluation", Evaluation(every=2)),
        (["evaluation=2", "evaluation.nodes=3"], "evaluation", Evaluation(every=2, nodes=3)),
        (
            ["evaluation.on=[test]", "evaluation.before_exchange=true"],
            "evaluation",
            Evaluation(before_exchange=True),
        ),
        (["compute=cpu", "compute.dtype=float64"], "compute", Compute("cpu", dtype=torch.float64)),
        (["saving.every=7"], "saving", Saving(every=7)),
    ],
    ids=str,
)
def test_command_line_assignments_set_options(assignments, name, wanted):
    assert config.build(config.override(TABLES, assignments)).options[name] == wanted


def test_history_records_evaluation_settings():
    evaluated = run(evaluation=Evaluation(every=2, nodes=3)).meta["evaluation"]
    assert evaluated == {"every": 2, "on": ["test"], "examples": None, "nodes": 3} | {
        "before_exchange": False,
        "fine_tune_every": None,
    }


def test_evaluation_events_have_seconds():
    events = []
    run(callbacks=[events.append], evaluation=2)
    spent = {
        kind: [e.values["seconds"] for e in events if e.kind == kind]
        for kind in ("round", "evaluation")
    }
    assert len(spent["evaluation"]) == 3
    assert all(
        0 < part < whole
        for part, whole in zip(spent["evaluation"][1:], spent["round"][1::2], strict=True)
    )
