"""Keys change with everything that determines a run, and with nothing else."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runs.conftest import BASE
from topofl import config, data
from topofl.runs import sweep
from topofl.runs.identity import digest_of, key_of
from topofl.runs.plan import prepare


def key(tables: dict[str, Any]) -> str:
    return prepare(tables, None, seeds=None)[0].key


def test_a_graph_file_with_other_edges_is_another_run(tmp_path):
    path = tmp_path / "g.edgelist"
    tables = {**BASE, "topology": str(path)}
    keys = []
    for edges in ("0 1\n1 2\n2 3\n3 0\n", "0 1\n0 2\n0 3\n"):
        path.write_text(edges)
        keys.append(key(tables))
    assert len(set(keys)) == 2
    assert key(tables) == keys[1]


def test_a_custom_function_with_other_source_is_another_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "my_graphs_of_keys.py"
    keys = []
    for name in ("ring", "star"):
        module.write_text(f"from topofl.topologies import {name} as graph\n\n\n"
                          "def own(n: int):\n    return graph(n)\n")  # fmt: skip
        sys.modules.pop(module.stem, None)
        importlib.invalidate_caches()
        keys.append(key({**BASE, "topology": f"{module.stem}:own"}))
    assert len(set(keys)) == 2


@pytest.mark.parametrize(
    "edit", [{"flip_labels": [0, 2]}, {"with_validation": 0.2}, {"match_test": "per_client"}]
)
def test_edited_data_are_swept(edit, tmp_path):
    base = {**BASE, "data": {**BASE["data"], **edit}}
    found = sweep(base, seeds=2, store=tmp_path, progress=False)
    assert [failure.error for failure in found.failures] == []
    assert len(found.runs) == 2


def made(rate: float) -> Any:
    def experiment(point: dict[str, Any]) -> dict[str, Any]:
        return {**BASE, "algorithm": f"dsgd,lr={rate}", "run": {"rounds": point["rounds"]}}

    return experiment


def arguments_of(made_with: Any) -> Any:
    def experiment(point: dict[str, Any]) -> dict[str, Any]:
        built = config.build({**BASE, "algorithm": f"dsgd,lr={made_with}"})
        parts = {name: getattr(built, name) for name in ("algorithm", "model", "topology")}
        return {**parts, "clients": built.clients, "rounds": point["rounds"], "seed": 0}

    return experiment


def test_values_that_a_function_captures_are_in_the_key():
    grid = {"rounds": [1]}
    first, second = (prepare(arguments_of(rate), grid, seeds=None)[0].key for rate in (0.1, 0.5))
    assert first != second
    assert prepare(arguments_of(0.1), grid, seeds=None)[0].key == first
    assert (
        prepare(made(0.1), grid, seeds=None)[0].key != prepare(made(0.5), grid, seeds=None)[0].key
    )


def test_functions_whose_runs_cannot_be_found_again_are_refused():
    from functools import partial

    with pytest.raises(ValueError, match="captures only numbers, text or lists"):
        prepare(arguments_of(Rate()), {"rounds": [1]}, seeds=None)
    with pytest.raises(ValueError, match="`base` must be a function that is defined by def"):
        prepare(partial(arguments_of(0.1)), {"rounds": [1]}, seeds=None)


class Rate:
    def __format__(self, spec: str) -> str:
        return "0.1"


def test_any_error_of_a_function_is_collected():
    def faulty(point: dict[str, Any]) -> dict[str, Any]:
        raise AttributeError(f"no {point['lr']}")

    with pytest.raises(ValueError, match=r"2 of 2 points cannot be built(.|\n)*no 1(.|\n)*no 2"):
        prepare(faulty, {"lr": [1, 2]}, seeds=None)


def test_shape_and_classes_are_contents_of_a_dataset():
    flat = data.from_arrays(np.zeros((4, 4)), [0, 1, 0, 1], test=0.25)
    square = data.from_arrays(np.zeros((4, 2, 2)), [0, 1, 0, 1], test=0.25)
    assert digest_of(flat) != digest_of(square)


def test_the_place_of_data_is_not_in_the_key():
    tables = {"data": {"name": "mnist", "root": str(Path("here"))}, "run": {"rounds": 1}}
    there = {**tables, "data": {"name": "mnist", "root": str(Path("there"))}}
    assert key_of(tables, "0") == key_of(there, "0")
