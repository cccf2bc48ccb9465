"""Random calls of everything public, with valid, odd and hostile arguments.

Run it as ``python -m tests.fuzz_calls 3000``.

What is called is what the packages export, so that a new name is covered by itself; an argument
without a default that has no valid value in :mod:`tests.fuzz_arguments` is a failure. A call works,
or raises a ValueError or TypeError whose message has one of its arguments in backticks. Warnings
are errors.
"""

import contextlib
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot  # so that `mpl` has it, and `figure`, whatever ran before
import numpy as np
import torch

import topofl
from tests import fuzz_arguments
from tests.fuzz_arguments import callables, parameters, pool, valid, values
from topofl import data, mixing

READERS = {*data.READERS, "read_idx"} - {"digits", "mnist1d"}
"""They may also raise what they document for files that are not there."""

PATIENCE = 20
"""Seconds after which a call counts as hanging."""

FILES = (__file__, fuzz_arguments.__file__)
"""Files with functions of the caller's, whose errors are their own."""


class Call(NamedTuple):
    """A call to be made: the name of a function, and its arguments."""

    name: str
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={short(value)}" for key, value in self.arguments.items())
        return f"{self.name}({shown})"


def short(value: Any) -> str:
    try:
        return " ".join(repr(value).split())[:70]
    except ValueError:
        return "an integer of thousands of digits"


def calls(count: int, seed: int) -> Iterator[Call]:
    """Yield calls of every function in turn, with one or two arguments drawn from the pool."""
    rng = np.random.default_rng(seed)
    names = list(callables())
    for k in range(count):
        name = names[k % len(names)]
        arguments, known = valid(name), list(parameters(callables()[name]))
        for _ in range(rng.integers(1, 3)):
            if known:
                arguments[known[rng.integers(len(known))]] = pool()[rng.integers(len(pool()))]
        if not is_left_out(name, arguments):
            yield Call(name, arguments)


def is_left_out(name: str, arguments: dict[str, Any]) -> bool:
    """Whether a call asks for work that must be waited for, or calls a function of the caller's."""
    if callable(arguments.get("reward")) and arguments["reward"] != values().get("reward"):
        return True  # whatever it raises is its own
    patient = {"rounds", "steps", "burn_in", "gossip_rounds", "windows", "enlarge"}
    patient |= {"train", "val", "test"} if name == "data.mnist1d" else set()
    asked = {key: value for key, value in arguments.items() if key in patient}
    return any(
        isinstance(value, int | float | np.number) and value > 10 for value in asked.values()
    )


def fault(call: Call) -> str:
    """Make a call, and return what is wrong with the way in which it fails, or an empty text."""
    function = callables()[call.name]
    try:
        with _impatient(), _quiet():
            _use(function(**call.arguments), call.name.endswith("Sequence"))
    except (ValueError, TypeError) as error:
        return _fault_of(call, error)
    except OSError as error:
        is_known = call.name.rpartition(".")[2] in READERS | {"run", "summarize"}
        return (
            _fault_of(call, error)
            if is_known
            else f"{type(error).__name__}: {error}\n{_place(error)}"
        )
    except topofl.DivergenceError:
        return ""
    except BaseException as error:
        if traceback.extract_tb(error.__traceback__)[-1].filename in FILES and not isinstance(
            error, TimeoutError
        ):
            return ""  # a function of the caller's raised it
        return f"{type(error).__name__}: {str(error)[:300]}\n{_place(error)}"
    return ""


def _use(result: Any, asked_for_by_hand: bool = False) -> None:
    """Ask a sequence for its first graphs, which are made then, unless a user generates them."""
    if (
        isinstance(result, topofl.TopologySequence | mixing.MixingSequence)
        and not asked_for_by_hand
    ):
        result.at(0), result.at(1)


def _fault_of(call: Call, error: Exception) -> str:
    message = str(error)
    named = set(re.findall(r"`([a-z_A-Z0-9]+)[^`]*`", message))
    if not named & {*parameters(callables()[call.name])}:
        return f"{type(error).__name__} names no argument: {message[:300]}\n{_place(error)}"
    return (
        ""
        if "\n" not in message.strip() and len(message) < 1200
        else f"more than a sentence: {message[:1500]}"
    )


def _place(error: BaseException) -> str:
    lines = traceback.extract_tb(error.__traceback__)
    ours = [line for line in lines if f"{os.sep}topofl{os.sep}" in line.filename]
    return "    " + " <- ".join(
        f"{Path(line.filename).name}:{line.lineno}" for line in [*ours[-3:], lines[-1]][::-1]
    )


@contextlib.contextmanager
def _impatient() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"still working after {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Warnings are errors, and what is written goes to an empty folder."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings(
            "ignore",
            "`weights` have columns|the edges of .* carry weights|`topology` is ignored by",
            UserWarning,
        )
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)
            mpl.pyplot.close("all")


def main(count: int, seed: int) -> int:
    """Make calls and print those that fail as they should not; return their number."""
    faults: dict[str, list[str]] = {}
    done = 0
    for call in calls(count, seed):
        done += 1
        if found := fault(call):
            faults.setdefault(f"{call.name}: {found}", []).append(repr(call))
    for found, made in sorted(faults.items()):
        print(f"{found}\n    {len(made)} calls such as {made[0]}\n")
    print(f"{done} calls of {len(callables())} functions, {len(faults)} kinds of faults")
    return len(faults)


if __name__ == "__main__":
    mpl.use("Agg")
    import matplotlib.pyplot

    torch.set_num_threads(1)
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0) > 0)
