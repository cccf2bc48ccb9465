"""Points of a sweep: grids, lists and random draws of settings, and the seeds of each."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl import config
from topofl._spec import find, parameters
from topofl._support.calls import parse_value, table_of
from topofl._support.check import check_choice, check_int, check_number, check_sequence, shown
from topofl._support.suffixes import is_graph_file
from topofl.config.toml import as_table, is_none

__all__ = [
    "VARIED",
    "Range",
    "assigned",
    "check_space",
    "grid_points",
    "integers",
    "log_uniform",
    "parse_grid",
    "random_points",
    "seed_list",
    "uniform",
    "with_seeds",
]

VARIED = ("run", "data", "topology")
"""Tables whose seeds a sweep varies."""

Values = dict[str, Any]
"""Settings of a point, by keys such as ``"data.alpha"``."""


@dataclass(frozen=True)
class Range:
    """An interval from which settings are drawn; see :func:`uniform` and its relatives.

    Parameters
    ----------
    low, high
        Its ends.
    log
        Whether the logarithm is uniform.
    whole
        Whether only integers are drawn, both ends included.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, rng: np.random.Generator) -> float | int:
        """Return a number drawn from the interval."""
        if self.whole:
            return int(rng.integers(int(self.low), int(self.high), endpoint=True))
        if self.log:
            return float(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        return float(rng.uniform(self.low, self.high))


def uniform(low: float, high: float) -> Range:
    """Return the uniform distribution between two numbers.

    Raises
    ------
    ValueError
        Unless `low` is below `high`.

    Examples
    --------
    >>> uniform(0, 1)
    Range(low=0.0, high=1.0, log=False, whole=False)
    """
    return _range(low, high)


def log_uniform(low: float, high: float) -> Range:
    """Return the distribution whose logarithm is uniform, as for learning rates.

    Raises
    ------
    ValueError
        Unless `low` is positive and below `high`.

    Examples
    --------
    >>> log_uniform(1e-3, 1).log
    True
    """
    found = _range(low, high, log=True)
    if found.low <= 0:
        raise ValueError(f"`low` must be positive for log_uniform, got {low}; use uniform")
    return found


def integers(low: int, high: int) -> Range:
    """Return the uniform distribution over integers from 0, both ends included.

    Raises
    ------
    ValueError
        Unless `low` is below `high`.

    Examples
    --------
    >>> integers(1, 10).whole
    True
    """
    return _range(check_int("low", low, minimum=0), check_int("high", high, minimum=1), whole=True)


def _range(low: float, high: float, **kind: bool) -> Range:
    low, high = check_number("low", low), check_number("high", high)
    if not low < high:
        raise ValueError(f"`low` must be below `high`, got {low} and {high}; exchange them")
    return Range(low, high, **kind)


def grid_points(grid: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> list[Values]:
    """Return the points of a grid, or of a list of points; None is one point without settings.

    Raises
    ------
    ValueError, TypeError
        If it is empty, or is neither lists of values by key nor a list of points.

    Examples
    --------
    >>> grid_points({"topology": ["ring", "torus"], "data.alpha": [0.1]})
    [{'topology': 'ring', 'data.alpha': 0.1}, {'topology': 'torus', 'data.alpha': 0.1}]
    """
    if grid is None:
        return [{}]
    if isinstance(grid, Mapping):
        lists = check_space("grid", grid)
        for key, values in lists.items():
            if isinstance(values, Range):
                raise TypeError(
                    f"`grid` must have a list of values for each key, got {values} for {key!r}; "
                    "draw points by random_points or by search"
                )
        return [
            dict(zip(lists, chosen, strict=True)) for chosen in itertools.product(*lists.values())
        ]
    points = check_sequence("grid", grid, "points")
    if not points:
        raise ValueError("`grid` must have at least one point, got none; leave it out")
    for point in points:
        if not isinstance(point, Mapping) or not all(isinstance(key, str) for key in point):
            raise TypeError(
                "`grid` must be lists of values by key, or a list of points such as "
                f'{{"data.alpha": 0.1}}, got the point {shown(point)}'
            )
    return [{key: _plain(value) for key, value in point.items()} for point in points]


def check_space(name: str, space: Mapping[str, Any]) -> dict[str, Any]:
    """Return lists of values and ranges by key, or raise for anything else.

    Raises
    ------
    ValueError
        If there are no keys, or a list is empty.
    TypeError
        If a key is not text, or its values are not a list.
    """
    if not isinstance(space, Mapping) or not space:
        raise ValueError(
            f"`{name}` must have at least one key with a list of values, got {shown(space)}; "
            "leave it out"
        )
    found: dict[str, Any] = {}
    for key, values in space.items():
        if not isinstance(key, str):
            raise TypeError(f"`{name}` must have keys such as 'data.alpha', got {shown(key)}")
        if isinstance(values, Range):
            found[key] = values
            continue
        items = [_plain(value) for value in check_sequence(f"{name}[{key!r}]", values, "values")]
        if not items:
            raise ValueError(f"`{name}` must have values for {key!r}, got none; leave it out")
        found[key] = items
    return found


def random_points(space: Mapping[str, Any], count: int, *, seed: int) -> list[Values]:
    """Return points drawn independently from lists of values and from ranges.

    Parameters
    ----------
    space
        A list of values, or a :func:`uniform`, :func:`log_uniform` or :func:`integers`, by key.
    count
        Number of points.
    seed
        Seed of the draws.

    Raises
    ------
    ValueError, TypeError
        If `space` has no keys or an empty list, or `count` is below 1.

    Examples
    --------
    >>> points = random_points({"topology": ["ring"], "algorithm.lr": uniform(0, 1)}, 2, seed=0)
    >>> [sorted(point) for point in points]
    [['algorithm.lr', 'topology'], ['algorithm.lr', 'topology']]
    """
    lists = check_space("space", space)
    rng = np.random.default_rng(check_int("seed", seed, minimum=0))
    return [
        {
            key: values.draw(rng)
            if isinstance(values, Range)
            else values[int(rng.integers(len(values)))]
            for key, values in lists.items()
        }
        for _ in range(check_int("count", count, minimum=1))
    ]


def parse_grid(texts: Sequence[str]) -> dict[str, Any]:
    """Return lists of values and ranges by key from ``key=value,value`` and ``key=uniform(0,1)``.

    Raises
    ------
    ValueError
        If a text has another form, or a key occurs twice.

    Examples
    --------
    >>> parse_grid(["topology=ring,(dcliques,inter=ring)", "data.alpha=0.1,1"])
    {'topology': ['ring', '(dcliques,inter=ring)'], 'data.alpha': [0.1, 1]}
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, values = (word.strip() for word in text.partition("="))
        if not key or not equals or not values:
            raise ValueError(
                f"`--grid` must be key=value,value, as in data.alpha=0.1,1, got {text!r}"
            )
        if key in found:
            raise ValueError(f"`--grid` must have each key once, got {key!r} twice; join its lists")
        found[key] = _parse_range(values) or parse_value(f"[{values}]")
    return found


def _parse_range(text: str) -> Range | None:
    kinds = {"uniform": uniform, "log_uniform": log_uniform, "integers": integers}
    name, parenthesis, rest = text.partition("(")
    if name not in kinds or not parenthesis or not rest.endswith(")"):
        return None
    ends = parse_value(f"[{rest[:-1]}]")
    if len(ends) != 2:
        raise ValueError(f"`--grid` must have {name}(low, high), got {text!r}")
    return kinds[name](*ends)


def seed_list(seeds: int | Sequence[int] | None) -> list[int] | None:
    """Return the seeds of each point: ``range(seeds)`` for a number, None for those of the base.

    Raises
    ------
    ValueError, TypeError
        If there are none, one is negative, or one occurs twice.

    Examples
    --------
    >>> seed_list(3), seed_list([7, 11]), seed_list(None)
    ([0, 1, 2], [7, 11], None)
    """
    if seeds is None:
        return None
    if not isinstance(seeds, Sequence | range):
        return list(range(check_int("seeds", seeds, minimum=1)))
    found = [check_int("seeds", seed, minimum=0) for seed in check_sequence("seeds", seeds)]
    if not found or len(set(found)) < len(found):
        raise ValueError(f"`seeds` must be a number or distinct seeds, got {shown(seeds)}")
    return found


def assigned(tables: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return configuration tables with the settings of a point; see :func:`config.assign`."""
    for key, value in values.items():
        tables = config.assign(tables, key, value)
    return dict(tables)


def with_seeds(tables: Mapping[str, Any], seed: int, vary: Sequence[str]) -> dict[str, Any]:
    """Return configuration tables with one seed of runs, partitions and graphs alike.

    Graphs and partitions that draw nothing get none. A graph's `base` gets the seed, too.

    Examples
    --------
    >>> tables = {"data": {"name": "digits"}, "topology": "ring", "run": {"rounds": 1}}
    >>> with_seeds(tables, 3, VARIED)
    {'data': {'name': 'digits', 'seed': 3}, 'topology': 'ring', 'run': {'rounds': 1, 'seed': 3}}
    """
    tables = dict(tables)
    for name in (check_choice("vary", name, VARIED) for name in vary):
        if name not in tables or is_none(tables[name]):
            continue
        if name == "topology":
            tables[name] = _graph_with_seed(tables[name], seed)
            continue
        table = as_table(name, tables[name])
        partition = table.get("partition", "shards")
        if name == "run" or "seed" in parameters(find("partition", partition)):
            tables[name] = {**table, "seed": seed}
    return tables


def _graph_with_seed(graph: Any, seed: int) -> Any:
    table = table_of(graph)
    if is_graph_file(table.get("name")):
        return graph
    takes = parameters(find("topology", table.get("name")))
    changed = {"seed": seed} if "seed" in takes else {}
    base = table.get("base")
    if isinstance(base, str | Mapping) and "base" in takes:
        inner = _graph_with_seed(base, seed)
        changed |= {} if inner is base else {"base": inner}
    return {**table, **changed} if changed else graph


def _plain(value: Any) -> Any:
    """Return numbers of numpy as those of Python, and tuples as lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
