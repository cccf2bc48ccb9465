"""Wrong grids, seeds, functions, stores and sweeps, which are refused before anything runs."""

from functools import partial

import numpy as np
import pytest

from tests.refusals import named, refused
from tests.runs.conftest import BASE
from tests.runs.functions import arguments, wrong
from topofl import History
from topofl.runs import (
    Failure,
    RunStore,
    integers,
    log_uniform,
    planned,
    random_points,
    sweep,
    uniform,
)
from topofl.runs.plan import grid_points, parse_grid, prepare, seed_list
from topofl.runs.sweep import shard_of

KEY = "0123456789abcdef"


def swept(**changes):
    """Sweep into a store that must not exist afterwards."""

    def call(path):
        try:
            sweep(**{"base": BASE, "store": path / "store", "progress": False} | changes)
        finally:
            assert not (path / "store").exists()

    return call


def of_another_version(use):
    def call(path):
        (path / "store.json").write_text('{"format": 99}')
        use(RunStore(path))

    return call


def beside(name, use):
    def call(path):
        (path / name).write_text("precious")
        use(path)

    return call


def capturing(value):
    def experiment(point):
        return arguments({"lr": 0.1 if value else 0.2})

    return experiment


def faulty(point):
    raise AttributeError(f"no {point['lr']}")


def prepared(base, grid, **how):
    return lambda: prepare(base, grid, **{"seeds": None} | how)


HISTORY = History({}, {"messages": [], "bytes": []}, {"round": np.array([0])}, np.zeros((0, 2)))
FORMAT = "must be a store of format 1, got format 99; use the"

VALUES = [
    # Grids and draws
    ("`grid` must have at least one key", lambda: grid_points({})),
    ("`grid` must have values for 'topology', got none", lambda: grid_points({"topology": []})),
    ("`grid` must have at least one point", lambda: grid_points([])),
    ("`low` must be below `high`, got 1.0 and 1.0", lambda: uniform(1, 1), lambda: uniform(1, 1.1)),
    (
        "`low` must be positive for log_uniform",
        lambda: log_uniform(0, 1),
        lambda: log_uniform(1e-9, 1),
    ),
    ("`low` must be", lambda: integers(2, 1), lambda: integers(1, 2)),
    ("`space` must have at least one key", lambda: random_points({}, 3, seed=0)),
    (
        "`count` must be at least 1",
        lambda: random_points({"a": [1]}, 0, seed=0),
        lambda: random_points({"a": [1]}, 1, seed=0),
    ),
    ("`--grid` must have each key once, got 'a' twice", lambda: parse_grid(["a=1", "a=2"])),
    ("`--grid` must have uniform(low, high)", lambda: parse_grid(["a=uniform(1)"])),
    # Seeds and shards
    ("`seeds` must be at least 1", lambda: seed_list(0), lambda: seed_list(1)),
    ("`seeds` must be a number or distinct seeds", lambda: seed_list([1, 1])),
    ("`seeds` must be a number or distinct seeds", lambda: seed_list([])),
    ("`shard` must be between 1 and 2", lambda: shard_of([], "3/2"), lambda: shard_of([], "2/2")),
    ("`shard` must be between 1 and 2", lambda: shard_of([], "0/2")),
    ("`shard` must be such as '1/2'", lambda: shard_of([], "half")),
    ("`vary` must be one of", prepared(BASE, None, seeds=2, vary=["rnu"])),
    ("`vary` must be a list", prepared(BASE, None, seeds=2, vary="run")),
    ("`grid` must be without 'run.seed' where `seeds`", swept(grid={"run.seed": [1, 2]}, seeds=2)),
    (
        ("all points: an experiment takes ", "did you mean 'topology'"),
        prepared(BASE, {"topolgy": [1, 2]}),
    ),
    ("did you mean 'rounds'", prepared(wrong, [{"lr": 0}])),
    ("`base` must return configuration tables or the arg", prepared(wrong, [{"lr": 1}])),
    ("must have numbers, text or lists for", prepared(arguments, [{"lr": 0.1, "graph": object()}])),
    (
        "captures only numbers, text or lists",
        prepared(capturing(object()), {"rounds": [1]}),
        prepared(capturing(0.1), {"rounds": [1]}),
    ),
    ("`base` must be a function that is defin", prepared(partial(capturing(0.1)), {"rounds": [1]})),
    (("2 of 2 points cannot be built", "no 1", "no 2"), prepared(faulty, {"lr": [1, 2]})),
    (
        (
            "3 of 4 points cannot be built, nothing was",
            "topology=rign, algorithm.lr=0.1; topology=rign, algorithm.lr=-1: ",
            "did you mean 'ring'?",
            "topology=ring, algorithm.lr=-1: ",
        ),
        prepared(BASE, {"topology": ["ring", "rign"], "algorithm.lr": [0.1, -1]}, seeds=2),
    ),
    # Sweeps
    ("`jobs` must be at least 1", swept(jobs=0)),
    ("`base` must be a function of a module", swept(jobs=2, base=lambda point: point)),
    ("`progress` must be True, False or 'auto'", swept(progress="yes")),
    ("`retry_failed` must be True or False", swept(retry_failed=1)),
    ("must be the path of a folder", swept(store="")),
    ("must return configuration table", lambda path: planned(arguments, [{"lr": 0.1}], store=path)),
    # Stores
    (FORMAT, of_another_version(lambda store: store.runs())),
    (FORMAT, of_another_version(lambda store: store.failures())),
    (FORMAT, of_another_version(lambda store: store.find(KEY))),
    (FORMAT, of_another_version(lambda store: store.remove(KEY))),
    (FORMAT, of_another_version(lambda store: store.add(KEY, HISTORY, {}))),
    (FORMAT, of_another_version(lambda store: store.fail(Failure(KEY, {}, "no")))),
    (FORMAT, of_another_version(lambda store: sweep(BASE, store=store.root, progress=False))),
    ("it holds thesis.tex; name anoth", beside("thesis.tex", lambda path: RunStore(path).create())),
    (
        "must be a folder, got a file",
        beside("thesis.tex", lambda path: RunStore(path / "thesis.tex").create()),
    ),
    ("`key` must be hexadecimal digits", lambda path: RunStore(path).find("../a")),
    ("`key` must be hexadecimal digits", lambda path: RunStore(path).find("")),
    ("`key` must be hexadecimal digits", lambda path: RunStore(path).find(3)),
]
"""Calls that raise ValueError, after parts of the message."""

TYPES = [
    ("`grid['topology']` must be a sequence of values,", lambda: grid_points({"topology": "ring"})),
    ("draw points by random_points", lambda: grid_points({"lr": uniform(0, 1)})),
    ("`grid` must have keys such as 'data.alpha', got 3", lambda: grid_points({3: [1]})),
    ("got the point 3", lambda: grid_points([3])),
    ("`grid` must be a sequence of points", lambda: grid_points("ring")),
    ("`base` must be configuration tables", prepared(3, None)),
    ("`executor` must have a method submit", swept(executor="dask")),
]
"""Calls that raise TypeError."""

ROWS = [
    *((ValueError, *row) for row in VALUES),
    *((TypeError, *row) for row in TYPES),
    (FileNotFoundError, "missing.toml, which does not exist", swept(base="missing.toml")),
    (FileNotFoundError, "does not exist", lambda path: RunStore(path / "missing").runs()),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)
