"""Setups of runs from arguments, tables and assignments, and suggestions for unknown arguments."""

import json

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine.option_runs import run
from topofl import Compute, Evaluation, Saving, algorithms, config, topologies
from topofl.engine.setup import resolve


@pytest.mark.parametrize(
    "changes",
    [{}, {"rounds": None}, {"evaluation": Evaluation(fine_tune=algorithms.sgd(0.1))}],
    ids=["as given", "no rounds", "another fine-tuning"],
)
def test_resolve_expands_arguments(changes):
    algorithm, clients = algorithms.fedbabu(0.1, head="5"), problems.equal_clients()
    arguments = {
        "model": problems.convolutional(),
        "clients": clients,
        "rounds": np.int64(3),
        "compute": "cpu",
    }
    arguments |= changes
    setup = resolve(algorithm, **arguments)
    wanted = arguments.get("evaluation", Evaluation()).fine_tune or algorithm.fine_tune
    assert setup.algorithm.fine_tune is wanted
    assert setup.rounds == arguments["rounds"]
    assert setup.graphs.name == "a server"
    assert setup.compute == Compute(device="cpu")
    assert (
        setup.device
        == setup.sample.device
        == next(setup.module.parameters()).device
        == torch.device("cpu")
    )
    assert list(setup.sets) == ["test"]
    json.dumps(setup.evaluation_settings)


def test_resolve_pools_clients_and_removes_fine_tuning():
    setup = resolve(
        algorithms.centralized(0.1),
        model=problems.linear(),
        clients=problems.equal_clients(),
        rounds=1,
        evaluation=Evaluation(fine_tune=False),
    )
    assert (setup.clients.n, setup.graphs.n, setup.algorithm.fine_tune) == (1, 1, None)


def test_estimate_takes_the_same_options():
    how = {
        "model": problems.convolutional(),
        "clients": problems.equal_clients(),
        "topology": topologies.ring(6),
    }
    one = topofl.estimate(
        algorithms.dsgd(0.1), **how, evaluation=2, compute=Compute(executor="looped"), rounds=8
    )
    other = topofl.estimate(
        algorithms.dsgd(0.1),
        **how,
        evaluation=Evaluation(every=4),
        compute=Compute("cpu", executor="batched"),
        rounds=8,
    )
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


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"evaluation": {"evry": 3}},
            r"\[evaluation\] `Evaluation` takes every, .* not 'evry'; did you mean 'every'",
        ),
        ({"evaluation": True}, r"\[evaluation\] `every` must be an integer, got True"),
        ({"evaluation": {"nodes": 7}}, "`evaluation.nodes` must be between 1 and n=6, got 7"),
        ({"compute": {"compile": 1}}, r"\[compute\] `compile` must be true or false, got 1"),
        ({"compute": "tpu"}, r"\[compute\] `device` must be such as 'cpu' or 'cuda:0', got 'tpu'"),
        ({"saving": {"folder": "x"}}, r"\[saving\] `Saving` takes every, models, not 'folder'"),
        (
            {"run": {"rounds": 1, "evaluation": 3}},
            r"\[run\] `run` takes rounds, .* not 'evaluation'",
        ),
    ],
    ids=str,
)
def test_errors_name_mistakes_in_tables(tables, message):
    with pytest.raises((ValueError, TypeError), match=message):
        config.build(TABLES | tables)


def test_history_records_evaluation_settings():
    evaluated = run(evaluation=Evaluation(every=2, nodes=3)).meta["evaluation"]
    assert evaluated == {
        "every": 2,
        "on": ["test"],
        "examples": None,
        "nodes": 3,
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


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("device", r"; write compute=Compute\(device=...\)"),
        ("eval_every", r"; write evaluation=Evaluation\(every=...\)"),
        ("every", r"; write evaluation=Evaluation\(every=...\) or saving=Saving\(every=...\)"),
        ("save", r"; did you mean 'saving'"),
        ("topolgy", r"; did you mean 'topology'"),
        ("zzz", ""),
    ],
)
def test_errors_of_unknown_arguments_suggest_options(word, wanted):
    rest = (
        r"(; i|\? I)t has algorithm, model, clients, .*, progress; see the reference of topofl.run"
    )
    with pytest.raises(TypeError, match=rf"^run\(\) has no argument '{word}'{wanted}{rest}$"):
        topofl.run(algorithms.dsgd(0.1), **{word: 1})


def test_suggestions_are_limited_to_arguments_of_the_function():
    with pytest.raises(
        TypeError, match=r"^estimate\(\) has no argument 'resume'; it has algorithm, "
    ):
        topofl.estimate(algorithms.dsgd(0.1), resume=True)
