"""Points of sweeps: grids, lists, random draws and seeds; wrong ones are refused."""

import numpy as np
import pytest

from tests.runs.conftest import BASE, GRID
from tests.runs.functions import arguments, tables, wrong
from topofl.runs import integers, log_uniform, random_points, uniform
from topofl.runs.plan import (
    VARIED,
    grid_points,
    parse_grid,
    prepare,
    seed_list,
    shard_of,
    with_seeds,
)


def test_a_grid_has_all_combinations_in_order():
    assert grid_points({"a": [1, 2], "b": np.array([0.5])}) == [
        {"a": 1, "b": 0.5},
        {"a": 2, "b": 0.5},
    ]
    assert grid_points([{"a": 1}, {"b": 2}]) == [{"a": 1}, {"b": 2}]
    assert grid_points(None) == [{}]


@pytest.mark.parametrize(
    ("grid", "match"),
    [
        ({}, "`grid` must have at least one key"),
        ({"topology": []}, "`grid` must have values for 'topology', got none"),
        ({"topology": "ring"}, r"`grid\['topology'\]` must be a sequence of values, got 'ring'"),
        ({"lr": uniform(0, 1)}, "draw points by random_points"),
        ({3: [1]}, "`grid` must have keys such as 'data.alpha', got 3"),
        ([], "`grid` must have at least one point"),
        ([3], "got the point 3"),
        ("ring", "`grid` must be a sequence of points"),
    ],
)
def test_wrong_grids(grid, match):
    with pytest.raises((ValueError, TypeError), match=match):
        grid_points(grid)


def test_random_points_are_within_their_ranges_and_depend_on_the_seed():
    space = {"a": uniform(2, 3), "b": log_uniform(1e-3, 1), "c": integers(1, 2), "d": ["x", "y"]}
    points = random_points(space, 200, seed=0)
    assert points == random_points(space, 200, seed=0) != random_points(space, 200, seed=1)
    assert all(2 <= point["a"] <= 3 and 1e-3 <= point["b"] <= 1 for point in points)
    assert {(point["c"], point["d"]) for point in points} == {
        (1, "x"), (1, "y"), (2, "x"), (2, "y"),
    }  # fmt: skip
    below = np.mean([point["b"] < 10**-1.5 for point in points])
    assert 0.35 < below < 0.65  # half of the logarithms


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: uniform(1, 1), "`low` must be below `high`, got 1.0 and 1.0"),
        (lambda: log_uniform(0, 1), "`low` must be positive for log_uniform"),
        (lambda: random_points({}, 3, seed=0), "`space` must have at least one key"),
        (lambda: random_points({"a": [1]}, 0, seed=0), "`count` must be at least 1"),
        (lambda: parse_grid(["topology"]), "`--grid` must be key=value,value"),
        (lambda: parse_grid(["a=1", "a=2"]), "`--grid` must have each key once, got 'a' twice"),
        (lambda: parse_grid(["a=uniform(1)"]), r"`--grid` must have uniform\(low, high\)"),
        (lambda: seed_list(0), "`seeds` must be at least 1"),
        (lambda: seed_list([1, 1]), "`seeds` must be a number or distinct seeds"),
        (lambda: seed_list([]), "`seeds` must be a number or distinct seeds"),
        (lambda: shard_of([], "3/2"), "`shard` must be between 1 and 2"),
        (lambda: shard_of([], "half"), "`shard` must be such as '1/2'"),
        (lambda: prepare(BASE, None, seeds=2, vary=["rnu"]), "`vary` must be one of"),
        (lambda: prepare(BASE, None, seeds=2, vary="run"), "`vary` must be a list"),
        (lambda: prepare(3, None, seeds=None), "`base` must be configuration tables"),  # type: ignore
    ],
)
def test_wrong_arguments(make, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make()


def test_text_of_the_command_line():
    found = parse_grid(
        ["data.alpha=0.1,1", "topology=ring,(dcliques,inter=ring)", "a=uniform(0,1)"]
    )
    assert found == {
        "data.alpha": [0.1, 1],
        "topology": ["ring", "(dcliques,inter=ring)"],
        "a": uniform(0, 1),
    }


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


def test_keys_of_other_seeds_are_those_of_building_with_them():
    points = prepare(BASE, {"topology": ["random_regular:4,k=2"]}, seeds=[3, 5])
    alone = [prepare(BASE, {"topology": ["random_regular:4,k=2"]}, seeds=[s])[0] for s in (3, 5)]
    assert [point.key for point in points] == [point.key for point in alone]
    assert len({point.key for point in points}) == 2


def test_two_spellings_are_one_run():
    spelled = {**BASE, "topology": {"name": "ring"}, "algorithm": {"name": "dsgd", "lr": 0.1}}
    assert prepare(BASE, None, seeds=None)[0].key == prepare(spelled, None, seeds=None)[0].key


def test_all_points_that_cannot_be_built_are_named():
    grid = {"topology": ["ring", "rign"], "algorithm.lr": [0.1, -1]}
    with pytest.raises(ValueError, match="3 of 4 points cannot be built, nothing was") as error:
        prepare(BASE, grid, seeds=2)
    text = str(error.value)
    assert "topology=rign, algorithm.lr=0.1; topology=rign, algorithm.lr=-1: " in text
    assert "did you mean 'ring'?" in text
    assert "topology=ring, algorithm.lr=-1: " in text


@pytest.mark.parametrize(
    ("key", "match"),
    [
        ("topolgy", "all points: an experiment takes .*did you mean 'topology'"),
        ("algorithm.lrr", "all points: .*did you mean 'lr'"),
        ("run.rounds.x", "must name a key of a table"),
    ],
)
def test_unknown_keys_suggest_the_nearest(key, match):
    with pytest.raises(ValueError, match=match):
        prepare({**BASE, "run": {"rounds": 1}}, {key: [1, 2]}, seeds=None)


def test_shards_are_disjoint_and_complete():
    points = prepare(BASE, GRID, seeds=2)
    parts = [shard_of(points, f"{k}/3") for k in (1, 2, 3)]
    assert sorted(p.key for part in parts for p in part) == sorted(p.key for p in points)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_functions_of_the_point():
    (one, two) = prepare(arguments, {"lr": [0.1, 0.2]}, seeds=None)
    assert one.key != two.key
    assert prepare(arguments, [{"lr": 0.1}], seeds=None)[0].key == one.key
    seeds = prepare(arguments, [{"lr": 0.1}], seeds=2)
    assert len({point.key for point in seeds}) == 2
    assert prepare(tables, [{"lr": 0.1}], seeds=1)[0].key == prepare(BASE, None, seeds=1)[0].key


@pytest.mark.parametrize(
    ("lr", "match"),
    [(0, "did you mean 'rounds'"), (1, "`base` must return configuration tables or the arg")],
)
def test_functions_that_return_something_else(lr, match):
    with pytest.raises(ValueError, match=match):
        prepare(wrong, [{"lr": lr}], seeds=None)


def test_points_of_functions_are_plain():
    with pytest.raises(ValueError, match="must have numbers, text or lists for a function"):
        prepare(arguments, [{"lr": 0.1, "graph": object()}], seeds=None)
