"""Points of sweeps, and keys, which change with what determines a run and with nothing else."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runs.conftest import BASE, GRID
from tests.runs.functions import arguments, tables
from topofl import data
from topofl.runs import integers, log_uniform, random_points, sweep, uniform
from topofl.runs.identity import digest_of, key_of
from topofl.runs.plan import VARIED, grid_points, prepare, with_seeds
from topofl.runs.sweep import shard_of


def key(base: Any, grid: Any = None) -> str:
    return prepare(base, grid, seeds=None)[0].key


def test_a_grid_has_all_combinations_in_order():
    wanted = [{"a": 1, "b": 0.5}, {"a": 2, "b": 0.5}]
    assert grid_points({"a": [1, 2], "b": np.array([0.5])}) == wanted
    assert grid_points([{"a": 1}, {"b": 2}]) == [{"a": 1}, {"b": 2}]
    assert grid_points(None) == [{}]


def test_random_points_are_within_their_ranges_and_depend_on_the_seed():
    space = {"a": uniform(2, 3), "b": log_uniform(1e-3, 1), "c": integers(1, 2), "d": ["x", "y"]}
    points = random_points(space, 200, seed=0)
    assert points == random_points(space, 200, seed=0) != random_points(space, 200, seed=1)
    assert all(2 <= point["a"] <= 3 and 1e-3 <= point["b"] <= 1 for point in points)
    pairs = {(point["c"], point["d"]) for point in points}
    assert pairs == {(1, "x"), (1, "y"), (2, "x"), (2, "y")}
    below = np.mean([point["b"] < 10**-1.5 for point in points])
    assert 0.35 < below < 0.65  # half of the logarithms


def test_seeds_go_to_everything_that_draws():
    base = {
        "data": {"name": "digits", "n": 8},
        "run": {"rounds": 1},
        "topology": "link_failures,base=(random_regular:8,k=4),fail=0.1,recover=0.5",
    }
    found = with_seeds(base, 7, VARIED)
    assert (found["data"]["seed"], found["run"]["seed"], found["topology"]["seed"]) == (7, 7, 7)
    assert found["topology"]["base"]["seed"] == 7
    only = with_seeds(base, 7, ["run"])
    assert only["topology"] == base["topology"]
    assert "seed" not in only["data"]
    grid = {"topology": ["random_regular:4,k=2"]}
    points = prepare(BASE, grid, seeds=[3, 5])
    alone = [prepare(BASE, grid, seeds=[seed])[0] for seed in (3, 5)]
    assert [point.key for point in points] == [point.key for point in alone]
    assert len({point.key for point in points}) == 2


def test_seeds_are_given_to_functions_in_the_folder_of_modules(tmp_path):
    """They are looked up before any run is built, and nothing else has imported the module."""
    (tmp_path / "drawn_graphs_of_mine.py").write_text("def graph(n, *, seed):\n    pass\n")
    tables = {"topology": "drawn_graphs_of_mine:graph", "modules": {"folder": str(tmp_path)}}
    found = with_seeds(tables, 7, ["topology"])
    assert found["topology"] == {"name": "drawn_graphs_of_mine:graph", "seed": 7}
    with pytest.raises(ValueError, match="Python finds no module drawn_graphs_of_mine_too"):
        with_seeds({"topology": "drawn_graphs_of_mine_too:graph"}, 7, ["topology"])


def test_shards_are_disjoint_and_complete():
    points = prepare(BASE, GRID, seeds=2)
    parts = [shard_of(points, f"{k}/3") for k in (1, 2, 3)]
    assert sorted(p.key for part in parts for p in part) == sorted(p.key for p in points)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_two_spellings_are_one_run_also_of_functions_of_the_point():
    spelled = {**BASE, "topology": {"name": "ring"}, "algorithm": {"name": "dsgd", "lr": 0.1}}
    assert key(BASE) == key(spelled)
    one, two = prepare(arguments, {"lr": [0.1, 0.2]}, seeds=None)
    assert one.key != two.key
    assert key(arguments, [{"lr": 0.1}]) == one.key
    assert len({point.key for point in prepare(arguments, [{"lr": 0.1}], seeds=2)}) == 2
    assert prepare(tables, [{"lr": 0.1}], seeds=1)[0].key == prepare(BASE, None, seeds=1)[0].key


def test_graph_files_and_own_functions_of_other_contents_are_other_runs(tmp_path, monkeypatch):
    path = tmp_path / "g.edgelist"
    keys = []
    for edges in ("0 1\n1 2\n2 3\n3 0\n", "0 1\n0 2\n0 3\n"):
        path.write_text(edges)
        keys.append(key({**BASE, "topology": str(path)}))
    assert len(set(keys)) == 2
    assert key({**BASE, "topology": str(path)}) == keys[1]
    monkeypatch.syspath_prepend(tmp_path)
    module, keys = tmp_path / "my_graphs_of_keys.py", []
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


def of_rate(rate: float) -> Any:
    def experiment(point: dict[str, Any]) -> dict[str, Any]:
        return {**arguments({"lr": rate}), **point}

    return experiment


def test_values_that_a_function_captures_are_in_the_key():
    grid = {"rounds": [1]}
    assert key(of_rate(0.1), grid) == key(of_rate(0.1), grid) != key(of_rate(0.5), grid)


def test_shape_and_classes_are_contents_of_a_dataset():
    flat = data.from_arrays(np.zeros((4, 4)), [0, 1, 0, 1], test=0.25)
    square = data.from_arrays(np.zeros((4, 2, 2)), [0, 1, 0, 1], test=0.25)
    assert digest_of(flat) != digest_of(square)


def test_the_key_depends_on_settings_contents_and_version_but_not_on_place_or_device(monkeypatch):
    own = {"data": {"name": "mnist", "root": "a"}, "run": {"rounds": 1, "seed": 0}}
    known = key_of(own, "digest")
    same = {**own, "data": {"name": "mnist", "root": str(Path("b")), "cache": "c"}}
    same |= {"compute": {"device": "cuda"}, "saving": {"every": 3}}
    same["run"] = {**own["run"], "progress": False}
    assert key_of(same, "digest") == known
    assert key_of({**own, "evaluation": {"without": []}}, "digest") != known
    left_out = ({**own, "evaluation": {"without": one}} for one in ("a", ["a"]))
    assert len({key_of(one, "digest") for one in left_out}) == 1
    assert key_of(own, "other") != known
    assert key_of({**own, "run": {"rounds": 2, "seed": 0}}, "digest") != known
    assert key_of({**own, "compute": {"dtype": "float64"}}, "digest") != known
    monkeypatch.setattr("topofl.runs.identity.RESULTS", "99")
    assert key_of(own, "digest") != known
