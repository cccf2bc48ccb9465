"""Random calls of everything public; ``TOPOFL_FUZZ_CALLS=3000`` makes more of them."""

import os
from contextlib import nullcontext

import numpy as np
import pytest

from tests import fuzz_calls
from tests.fuzz_arguments import callables, parameters, valid
from tests.fuzz_calls import Call, calls, fault

COUNT = int(os.environ.get("TOPOFL_FUZZ_CALLS", "640"))


@pytest.mark.parametrize("name", callables())
def test_every_public_function_works_with_the_arguments_that_are_then_changed(name):
    with (
        pytest.raises(FileNotFoundError)
        if name.rpartition(".")[2] in fuzz_calls.READERS
        else nullcontext()
    ):
        callables()[name](**valid(name))


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_work_or_name_the_argument(seed):
    found = {repr(call): said for call in calls(COUNT // 4, seed) if (said := fault(call))}
    assert not found, "\n\n".join(f"{call}\n    {said}" for call, said in found.items())


def test_every_function_is_called():
    assert {call.name for call in calls(4 * len(callables()), 0)} == set(callables())


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda n: [][1], "IndexError"),
        (lambda n: int("x"), "ValueError names no argument"),
        (lambda n: np.array([1.0]) / np.array([0.0]), "RuntimeWarning"),
        (lambda n: _raise("`m` is bad"), "names no argument"),
        (lambda n: _raise("`n` is\nbad"), "more than a sentence"),
        (lambda n: (_ for _ in ()).throw(FileNotFoundError("`n`")), "FileNotFoundError"),
    ],
)
def test_the_rule_can_fail(monkeypatch, function, what):
    monkeypatch.setattr(fuzz_calls, "callables", lambda: {"topologies.mine": function})
    assert list(parameters(function)) == ["n"]
    assert what in fault(Call("topologies.mine", {"n": 3}))


def _raise(message):
    raise ValueError(message)
