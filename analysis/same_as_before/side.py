"""One side of a comparison: trains all cases with one version, and writes their numbers to a file.

It is started with the Python of that version and finds ``topofl`` in its checkout; this package is
that of the version that compares, so that both sides train the same cases.
"""

import argparse
import fnmatch
import importlib
import inspect
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

import topofl

from .cases import Case, cases, history_of

SEPARATOR = " | "
"""Between the name of a case and that of a column."""

OF_THE_MACHINE = ("versions", "threads", "workers", "asked")
"""What histories say about the machine, or about the way in which a choice was written."""


def numbers_of(history: topofl.History) -> dict[str, np.ndarray]:
    """Return all numbers of a history by name, except measured seconds, and its settings."""
    found = {f"round {name}": np.asarray(column) for name, column in history.rounds.items()}
    found.pop("round exchange_seconds", None)
    found |= {f"evaluation {name}": np.asarray(one) for name, one in history.evaluations.items()}
    found |= {"node_loss": history.node_loss, "matrix_of_round": history.matrix_of_round}
    found |= {f"matrix {k}": one.weights.toarray() for k, one in enumerate(history.matrices)}
    if history.models is not None:
        found["models"] = history.models.flat.numpy()
    meta = {name: value for name, value in history.meta.items() if name not in OF_THE_MACHINE}
    return found | {f"meta {name}": text(value) for name, value in meta.items()}


def text(value: Any) -> np.ndarray:
    """Return a setting as JSON."""
    return np.array(json.dumps(value, sort_keys=True, default=repr))


def result_of(case: Case, executor: str, distributed: bool, folder: Path) -> dict[str, np.ndarray]:
    """Return the numbers of a case, or the error that refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return numbers_of(history_of(case, executor, distributed, folder))
        except Exception as error:
            return {"refused": np.array(f"{type(error).__name__}: {error}")}


def train(about: str, only: str, out: Path, rank: int | None) -> None:
    """Train all cases whose names match a pattern, and write their numbers to one file."""
    found, start = dict[str, np.ndarray](), time.perf_counter()
    chosen = [
        (f"{name}, {executor}", case, executor)
        for name, case in cases(about).items()
        for executor in ("batched", "looped")
        if fnmatch.fnmatch(f"{name}, {executor}", only)
    ]
    for k, (name, case, executor) in enumerate(chosen):
        result = result_of(case, executor, rank is not None, out.with_suffix("") / str(k))
        found |= {f"{name}{SEPARATOR}{column}": values for column, values in result.items()}
    if not rank:
        with out.open("wb") as stream:
            np.savez(stream, **found)  # pyright: ignore[reportArgumentType]
        seconds = time.perf_counter() - start
        print(f"{len(chosen)} runs of {about} in {seconds:.0f} s", file=sys.stderr, flush=True)


def entries(prefix: str, module: ModuleType) -> Iterator[str]:
    """Yield the public names below a module: functions and classes with parameters, members.

    A name is public if it is in ``__all__`` of its module, and so is that module.
    """
    for name in sorted(getattr(module, "__all__", ())):
        value, full = getattr(module, name), f"{prefix}.{name}"
        if inspect.ismodule(value):
            yield from entries(full, importlib.import_module(value.__name__))
            continue
        yield f"{full}({', '.join(_parameters(value))})"
        if inspect.isclass(value):
            ours = (base for base in value.__mro__ if base.__module__.startswith("topofl"))
            members = {one for base in ours for one in vars(base)}
            yield from (f"{full}.{one}" for one in sorted(members) if not one.startswith("_"))


def _parameters(value: object) -> list[str]:
    try:
        names = inspect.signature(value).parameters if callable(value) else ()
    except (TypeError, ValueError):
        return []
    return [name for name in names if not name.startswith("_")]


def main(argv: Sequence[str] | None = None) -> int:
    """Train the cases of this side, or write its public names; returns the exit code."""
    parser = argparse.ArgumentParser(prog="side")
    parser.add_argument("about", choices=("histories", "methods", "names"))
    parser.add_argument("checkout", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="*")
    options = parser.parse_args(argv)
    own = Path(topofl.__file__).resolve().parents[1]
    if own != options.checkout.resolve():
        print(f"topofl is that of {own}, not of {options.checkout}", file=sys.stderr)
        return 2
    if options.about == "names":
        options.out.write_text("\n".join(entries("topofl", topofl)) + "\n")
        return 0
    torch.set_num_threads(1)
    rank = os.environ.get("RANK")
    train(options.about, options.only, options.out, None if rank is None else int(rank))
    return 0
