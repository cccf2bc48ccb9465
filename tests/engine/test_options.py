"""Options of a run: defaults, shorthands and refused values."""

import inspect
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import topofl
from tests.engine.option_runs import run
from topofl import Compute, Evaluation, Saving
from topofl.engine.options import as_options


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
    (folder,) = (tmp_path / "here").iterdir()
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (
            Evaluation,
            True,
            (
                "`evaluation` must be a topofl.Evaluation, a number of rounds such as 4, or sets "
                "such as"
            ),
        ),
        (Evaluation, 2.5, "`evaluation` must be a topofl.Evaluation, .* 'own_test', got 2.5"),
        (
            Evaluation,
            {"every": 2},
            "`evaluation` must be a topofl.Evaluation, .*, got {'every': 2}",
        ),
        (Evaluation, Compute, "`evaluation` must be a topofl.Evaluation"),
        (Compute, 0, "`compute` must be a topofl.Compute or a device such as 'cuda', got 0"),
        (
            Compute,
            torch.float64,
            "`compute` must be a topofl.Compute or a device such as 'cuda', got torch.float64",
        ),
        (
            Saving,
            True,
            "`saving` must be a topofl.Saving or the path of a folder such as 'runs/a', got True",
        ),
        (
            Saving,
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
def test_errors_of_other_types_name_accepted_ones(kind, value, message):
    with pytest.raises(TypeError, match=message):
        as_options(kind, value)


BAD = [
    (Evaluation, {"every": 0}, ValueError, "`every` must be at least 1, got 0"),
    (Evaluation, {"every": None}, TypeError, "`every` must be an integer, got None"),
    (Evaluation, {"every": True}, TypeError, "`every` must be an integer, got True"),
    (Evaluation, {"examples": 0}, ValueError, "`examples` must be at least 1, got 0"),
    (Evaluation, {"nodes": 1.5}, TypeError, "`nodes` must be an integer, got 1.5"),
    (Evaluation, {"on": "tset"}, ValueError, "`on` must be one of .* did you mean 'test'"),
    (
        Evaluation,
        {"on": None},
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
