"""The runs of a sweep: its points, built once to find errors before the first run trains."""

import inspect
import itertools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from topofl import config
from topofl._spec import check_keys, find, parameters
from topofl._support.calls import is_graph_file, parse_value, table_of
from topofl._support.check import (
    check_choice,
    check_int,
    check_number,
    check_path,
    check_sequence,
    shown,
)
from topofl._support.plugins import appended_folder
from topofl._support.text import plain_text, printable
from topofl.config.toml import as_table, is_none, with_modules
from topofl.engine import run
from topofl.engine.model_checks import as_task
from topofl.engine.options import Evaluation, as_options, device_of
from topofl.engine.setup import resolve
from topofl.runs.identity import DatasetCache, hash_of
from topofl.runs.work import Job, is_light, settings_of_call

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

    def drawn(values: Range | list[Any]) -> Any:
        if not isinstance(values, Range):
            return values[int(rng.integers(len(values)))]
        if values.whole:
            return int(rng.integers(int(values.low), int(values.high), endpoint=True))
        if values.log:
            return float(math.exp(rng.uniform(math.log(values.low), math.log(values.high))))
        return float(rng.uniform(values.low, values.high))

    points = range(check_int("count", count, minimum=1))
    return [{key: drawn(values) for key, values in lists.items()} for _ in points]


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
    names = [check_choice("vary", name, VARIED) for name in vary]
    folder = as_table("modules", tables.get("modules") or {}).get("folder")
    with appended_folder(folder if isinstance(folder, str) else None):
        for name in names:
            if name in tables and not is_none(tables[name]):
                tables[name] = _with_seed(name, tables[name], seed)
    return tables


def _with_seed(name: str, value: Any, seed: int) -> Any:
    """Return the table of runs, partitions or graphs with a seed if these draw something."""
    if name == "topology":
        return _graph_with_seed(value, seed)
    table = as_table(name, value)
    partition = table.get("partition", "shards")
    is_drawn = name == "run" or "seed" in parameters(find("partition", partition))
    return {**table, "seed": seed} if is_drawn else value


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


Base = Mapping[str, Any] | str | os.PathLike[str] | Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Configuration tables, the path of a TOML file, or a function of the point."""


@dataclass(frozen=True, eq=False)
class Point:
    """One run of a sweep.

    Parameters
    ----------
    values
        Its settings by key.
    seed
        Its seed; None: that of the base.
    job
        What a process needs to perform it.
    memory
        Estimated bytes of the run on its device; None if it was not estimated.
    device
        The device of the run, such as ``"cuda:0"``.
    ignores_topology
        Whether its algorithm does not use the topology that it has.
    scores
        Names of the scores that its evaluations report, and of the loss; empty if it has none.
    """

    values: Mapping[str, Any]
    seed: int | None
    job: Job
    memory: int | None = None
    device: str = "cpu"
    ignores_topology: bool = False
    scores: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Hash of all that determines its results."""
        return self.job.key


def prepare(
    base: Base,
    grid: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    *,
    seeds: int | Sequence[int] | None,
    vary: Sequence[str] = VARIED,
    with_memory: bool = False,
) -> list[Point]:
    """Return the runs of a sweep, each point with all of its seeds.

    Each point is built once, with its first seed; points of functions are built with every seed.

    Raises
    ------
    ValueError, TypeError
        If points cannot be built; the message names all of them.
    """
    values, numbers = grid_points(grid), seed_list(seeds)
    cache = DatasetCache()
    if numbers is not None:
        replaced = ["seed"] if callable(base) else [f"{name}.seed" for name in vary]
        given = next((key for point in values for key in point if key in replaced), None)
        if given is not None:
            raise ValueError(
                f"`grid` must be without {given!r} where `seeds` are given, which would replace "
                "it; give either, for example the list of seeds as `seeds`"
            )
    if callable(base):
        return _collected(
            [(dict(one), seed) for one in values for seed in numbers or [None]],
            lambda one, seed: [_point_of_call(base, one, seed, cache)],
        )
    if isinstance(base, str | os.PathLike):
        base = with_modules(config.read(check_path("base", base, "file")), base)
    if not isinstance(base, Mapping):
        raise TypeError(
            "`base` must be configuration tables, the path of a TOML file or a function of the "
            f"point, got {shown(base)}"
        )
    if isinstance(vary, str) or not vary:
        raise ValueError(f"`vary` must be a list of {', '.join(VARIED)}, got {shown(vary)}")
    for name in vary:
        check_choice("vary", name, VARIED)
    tables = base
    return _collected(
        [(one, None) for one in values],
        lambda one, _: _points_of_tables(tables, one, numbers, vary, cache, with_memory),
    )


def _collected(
    pairs: list[tuple[Values, int | None]], make: Callable[[Values, int | None], list[Point]]
) -> list[Point]:
    """Return all points, or raise one error that names each that cannot be built."""
    points: list[Point] = []
    errors: dict[str, list[str]] = {}
    for values, seed in pairs:
        try:
            points += make(values, seed)
        except Exception as error:  # also those of a user's function
            what = str(error) if isinstance(error, ValueError | TypeError) else repr(error)
            errors.setdefault(what, []).append(label_of(values, seed))
    if not errors:
        return points
    failed = sum(map(len, errors.values()))
    if len(pairs) == 1:
        raise ValueError(f"the run cannot be built: {next(iter(errors))}")
    lines = [
        f"{'all points' if len(labels) == len(pairs) else '; '.join(labels)}: {what}"
        for what, labels in errors.items()
    ]
    raise ValueError(
        f"{failed} of {len(pairs)} points cannot be built, nothing was trained:\n"
        + "\n".join(lines)
    )


def label_of(values: Mapping[str, Any], seed: int | None) -> str:
    """Return the settings of a run as one line of text, for messages."""
    named = {**values, **({} if seed is None else {"seed": seed})}
    text = ", ".join(f"{key}={plain_text(value)}" for key, value in named.items())
    return printable(text) or "base"


def _points_of_tables(
    base: Mapping[str, Any],
    values: Values,
    seeds: list[int] | None,
    vary: Sequence[str],
    cache: DatasetCache,
    with_memory: bool,
) -> list[Point]:
    """Return the runs of a point, one per seed, of which the first is built."""
    tables = dict(base)
    for key, value in values.items():
        tables = config.assign(tables, key, value)
    if seeds is not None:
        tables = with_seeds(tables, seeds[0], vary)
    experiment = config.build(tables, read=cache.read)
    first = _point_of_experiment(experiment, values, None, cache)
    if with_memory:
        first = replace(first, memory=experiment.estimate().total)
    if seeds is None:
        return [first]
    how = first.job.digest, first.job.is_light
    return [
        replace(first, seed=seed, job=Job.of(with_seeds(experiment.tables, seed, vary), *how))
        for seed in seeds
    ]


def _point_of_experiment(
    experiment: config.Experiment, values: Values, seed: int | None, cache: DatasetCache
) -> Point:
    """Return the run of an experiment that was built for a point."""
    job = Job.of(experiment.tables, cache.digest(experiment.dataset), is_light(experiment))
    ignores = experiment.topology is not None and not experiment.uses_topology
    scores = _scores_of(experiment.options["evaluation"], experiment.task)
    device = str(device_of(experiment.options["compute"]))
    return Point(values, seed, job, device=device, ignores_topology=ignores, scores=scores)


def _point_of_call(
    function: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    values: Values,
    seed: int | None,
    cache: DatasetCache,
) -> Point:
    """Return the run that a user's function describes for a point and a seed."""
    point = {**values, **({} if seed is None else {"seed": seed})}
    found = function(dict(point))
    if not isinstance(found, Mapping):
        raise TypeError(
            "`base` must return configuration tables or the arguments of topofl.run, got "
            f"{shown(found)}"
        )
    if "clients" not in found:
        experiment = config.build(found, read=cache.read)
        return _point_of_experiment(experiment, values, seed, cache)
    _check_call(found)
    digest = cache.digest(found["clients"].dataset)
    identity = _identity(function)
    try:
        key = hash_of([point, *identity, digest])
    except TypeError as error:
        raise TypeError(
            f"`grid` must have numbers, text or lists for a function, got {shown(point)}: {error}; "
            "name objects, and let the function make them"
        ) from error
    job = Job(key, settings_of_call(found, point), digest, function, point)
    scores = _scores_of(found.get("evaluation"), found.get("task"))
    return Point(values, seed, job, scores=scores)


def _scores_of(evaluation: Any, task: Any) -> tuple[str, ...]:
    """Return the scores that these arguments of :func:`topofl.run` report, and the loss."""
    return tuple(as_task(task).reported) if as_options(Evaluation, evaluation).on else ()


def _identity(function: Callable[..., Any]) -> list[Any]:
    """Return what distinguishes a user's function: name, source, and the values that it captures.

    Raises
    ------
    ValueError
        If it is not a plain function whose source can be read, or captures other values than
        numbers, text or lists, which cannot be compared.
    """
    if not inspect.isfunction(function):
        raise ValueError(
            f"`base` must be a function that is defined by def, got {shown(function)}; give its "
            "values by the point"
        )
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    captured = [cells, function.__defaults__, function.__kwdefaults__]
    try:
        json.dumps(captured)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`base` must be a function that captures only numbers, text or lists, by which its "
            f"runs can be found, got {shown(function)}: {error}; make objects in the function"
        ) from error
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise ValueError(
            "`base` must be a function whose source can be read, since runs are found by it, got "
            f"{shown(function)}; define it in a file"
        ) from error
    return [f"{function.__module__}.{function.__qualname__}", source, captured]


def _check_call(arguments: Mapping[str, Any]) -> None:
    """Raise the errors about arguments that :func:`topofl.run` would raise."""
    check_keys("`topofl.run`", arguments, parameters(run))
    left_out = ("saving", "callbacks", "progress")
    checked = {key: value for key, value in arguments.items() if key not in left_out}
    missing = [key for key in ("algorithm", "model", "rounds", "seed") if key not in checked]
    if missing:
        raise ValueError(f"`topofl.run` needs {', '.join(f'`{key}`' for key in missing)}")
    resolve(checked.pop("algorithm"), **checked)


def by_settings(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points in groups that differ in their seeds only."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(json.dumps(point.values, sort_keys=True), []).append(point)
    return list(groups.values())
