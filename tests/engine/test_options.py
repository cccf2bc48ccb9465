"""Options of a run: bad values are refused by name, shorthands mean the object, resolved once."""

import inspect
import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from topofl import Compute, Evaluation, Saving, algorithms, config, topologies
from topofl.engine.setup import resolve
from topofl.engine.shorthands import as_compute, as_evaluation, as_saving


def run(algorithm=None, **changes):
    settings = {
        "model": problems.linear(),
        "clients": problems.equal_clients(),
        "topology": topologies.ring(6),
        "rounds": 4,
        "seed": 0,
        "progress": False,
    }
    return topofl.run(algorithm or algorithms.dsgd(lr=0.1, batch_size=4), **settings | changes)


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
    one, other = run(**short), run(**long)
    assert one.meta == other.meta
    assert list(one.evaluations) == list(other.evaluations)
    np.testing.assert_array_equal(one["loss"], other["loss"])


@pytest.mark.parametrize("kind", [str, Path])
def test_paths_are_folders_of_checkpoints(tmp_path, kind):
    run(saving=kind(tmp_path / "here"))
    assert sorted(path.suffix for path in (tmp_path / "here").iterdir()) == [".json", ".pt"]


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (
            as_evaluation,
            True,
            (
                "`evaluation` must be a topofl.Evaluation, a number of rounds such as 4, or sets "
                "such as"
            ),
        ),
        (as_evaluation, 2.5, "`evaluation` must be a topofl.Evaluation, .* 'own_test', got 2.5"),
        (
            as_evaluation,
            {"every": 2},
            "`evaluation` must be a topofl.Evaluation, .*, got {'every': 2}",
        ),
        (as_evaluation, Compute, "`evaluation` must be a topofl.Evaluation"),
        (as_compute, 0, "`compute` must be a topofl.Compute or a device such as 'cuda', got 0"),
        (
            as_compute,
            torch.float64,
            "`compute` must be a topofl.Compute or a device such as 'cuda', got torch.float64",
        ),
        (
            as_saving,
            True,
            "`saving` must be a topofl.Saving or the path of a folder such as 'runs/a', got True",
        ),
        (
            as_saving,
            100,
            "`saving` must be a topofl.Saving or the path of a folder such as 'runs/a', got 100",
        ),
    ],
    ids=[
        "true",
        "a share",
        "a table",
        "a class",
        "0",
        "a dtype",
        "true for a path",
        "a number for a path",
    ],
)
def test_errors_of_other_types_name_accepted_ones(read, value, message):
    with pytest.raises(TypeError, match=message):
        read(value)


BAD = [
    (Evaluation, {"every": 0}, ValueError, "`every` must be at least 1, got 0"),
    (Evaluation, {"every": None}, TypeError, "`every` must be an integer, got None"),
    (Evaluation, {"every": True}, TypeError, "`every` must be an integer, got True"),
    (Evaluation, {"examples": 0}, ValueError, "`examples` must be at least 1, got 0"),
    (Evaluation, {"nodes": 1.5}, TypeError, "`nodes` must be an integer, got 1.5"),
    (Evaluation, {"on": "tset"}, ValueError, "`on` must be one of .* did you mean 'test'"),
    (
        Evaluation,
        {"on": ()},
        ValueError,
        "`on` must be one of 'test', 'val', 'own_test', 'own_val'",
    ),
    (Evaluation, {"on": ("val", "val")}, ValueError, "`on` must name each set once, got val, val"),
    (
        Evaluation,
        {"before_exchange": "both"},
        ValueError,
        "`before_exchange` must be True or False, got 'both'",
    ),
    (Evaluation, {"fine_tune": True}, TypeError, "`fine_tune` must be a Phase"),
    (Evaluation, {"fine_tune_every": 0}, ValueError, "`fine_tune_every` must be at least 1, got 0"),
    (
        Compute,
        {"device": "tpu"},
        ValueError,
        "`device` must be such as 'cpu' or 'cuda:0', got 'tpu'",
    ),
    (Compute, {"device": 1.5}, ValueError, "`device` must be"),
    (
        Compute,
        {"dtype": "float32"},
        TypeError,
        "`dtype` must be a torch dtype such as torch.float32, got 'float32'",
    ),
    (Compute, {"dtype": torch.int64}, ValueError, "`dtype` must be a floating-point type"),
    (
        Compute,
        {"dtype": torch.float64, "precision": "bf16"},
        ValueError,
        "`dtype` must be torch.float32 with precision",
    ),
    (Compute, {"precision": "fp16"}, ValueError, "`precision` must be one of 'fp32', 'bf16'"),
    (
        Compute,
        {"executor": "batch"},
        ValueError,
        "`executor` must be one of .* did you mean 'batched'",
    ),
    (Compute, {"chunk": 0}, ValueError, "`chunk` must be at least 1, got 0"),
    (Compute, {"chunk": "all"}, TypeError, "`chunk` must be an integer or \"auto\", got 'all'"),
    (
        Compute,
        {"chunk": 8, "executor": "looped"},
        ValueError,
        '`chunk` must be "auto" or 1 with executor="looped"',
    ),
    (
        Compute,
        {"channels_last": 1},
        ValueError,
        "`channels_last` must be True, False or 'auto', got 1",
    ),
    (Compute, {"compile": "auto"}, ValueError, "`compile` must be True or False, got 'auto'"),
    (
        Compute,
        {"on_disconnected": "ignore"},
        ValueError,
        "`on_disconnected` must be one of 'raise', 'allow'",
    ),
    (
        Compute,
        {"on_divergence": "stop"},
        ValueError,
        "`on_divergence` must be one of 'raise', 'freeze', 'record'",
    ),
    (
        Saving,
        {"folder": ""},
        ValueError,
        "`folder` must be the path of a folder, got an empty text",
    ),
    (
        Saving,
        {"folder": 3},
        TypeError,
        "`folder` must be the path of a folder, as text or a pathlib.Path, got 3",
    ),
    (Saving, {"every": 0}, ValueError, "`every` must be at least 1, got 0"),
    (Saving, {"every": "often"}, TypeError, "`every` must be an integer or \"auto\", got 'often'"),
    (
        Saving,
        {"folder": "a", "resume": "yes"},
        ValueError,
        "`resume` must be True or False, got 'yes'",
    ),
    (
        Saving,
        {"resume": True},
        ValueError,
        "`resume` must be False without a folder to resume from; give one as `fold",
    ),
]


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"), BAD, ids=[f"{b[0].__name__}: {b[3][:40]}" for b in BAD]
)
def test_errors_name_invalid_options(kind, options, error, message):
    with pytest.raises(error, match=message):
        kind(**options)


@pytest.mark.parametrize("kind", [Evaluation, Compute, Saving])
def test_options_are_immutable_and_comparable(kind):
    one = kind()
    assert one == kind() == replace(one)
    with pytest.raises(FrozenInstanceError):
        one.every = 3


def test_numpy_integers_become_ints():
    found = [
        Evaluation(every=np.int64(3)).every,
        Compute(chunk=np.int32(2)).chunk,
        Saving(every=np.int8(1)).every,
    ]
    assert list(map(type, found)) == [int] * 3


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
        ("device", r"; write compute=Compute\(device=...\)$"),
        ("eval_every", r"; write evaluation=Evaluation\(every=...\)$"),
        ("every", r"; write evaluation=Evaluation\(every=...\) or saving=Saving\(every=...\)$"),
        ("save", r"; did you mean 'saving'\?$"),
        ("topolgy", r"; did you mean 'topology'\?$"),
        ("zzz", r"; it has algorithm, model, clients, .*, progress$"),
    ],
)
def test_errors_of_unknown_arguments_suggest_options(word, wanted):
    with pytest.raises(TypeError, match=rf"^run\(\) has no argument '{word}'{wanted}"):
        topofl.run(algorithms.dsgd(0.1), **{word: 1})


def test_suggestions_are_limited_to_arguments_of_the_function():
    with pytest.raises(
        TypeError, match=r"^estimate\(\) has no argument 'resume'; it has algorithm, "
    ):
        topofl.estimate(algorithms.dsgd(0.1), resume=True)
