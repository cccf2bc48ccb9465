"""The runs of a sweep: its points, built once to find errors before the first run trains."""

import inspect
import json
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import topofl
from topofl import config
from topofl._spec import check_keys, parameters
from topofl._support.check import check_choice, check_int, check_path, plain_text, shown
from topofl._support.text import printable
from topofl.config.toml import with_modules
from topofl.engine.model_checks import as_task
from topofl.engine.options import Evaluation, as_options, device_of
from topofl.engine.setup import resolve
from topofl.runs.datasets import DatasetCache
from topofl.runs.points import VARIED, Values, assigned, grid_points, seed_list, with_seeds
from topofl.runs.run import hash_of
from topofl.runs.work import Job, settings_of_call

__all__ = ["Base", "Point", "check_picklable", "label_of", "one_per_key", "prepare", "shard_of"]

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
        _check_seeds(values, ["seed"] if callable(base) else [f"{name}.seed" for name in vary])
    if callable(base):
        return _collected(
            [(dict(one), seed) for one in values for seed in numbers or [None]],
            lambda one, seed: [_point_of_call(base, one, seed, cache)],
        )
    tables = _tables_of(base)
    _check_vary(vary)
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


def _tables_of(base: Any) -> Mapping[str, Any]:
    """Return the configuration tables of a base that is not a function."""
    if isinstance(base, Mapping):
        return base
    if isinstance(base, str | os.PathLike):
        return with_modules(config.read(check_path("base", base, "file")), base)
    raise TypeError(
        "`base` must be configuration tables, the path of a TOML file or a function of the point, "
        f"got {shown(base)}"
    )


def _check_vary(vary: Sequence[str]) -> None:
    if isinstance(vary, str) or not vary:
        raise ValueError(f"`vary` must be a list of {', '.join(VARIED)}, got {shown(vary)}")
    for name in vary:
        check_choice("vary", name, VARIED)


def _check_seeds(points: Sequence[Values], replaced: Sequence[str]) -> None:
    """Raise if points have a seed that `seeds` would replace."""
    given = next((key for point in points for key in point if key in replaced), None)
    if given is not None:
        raise ValueError(
            f"`grid` must be without {given!r} where `seeds` are given, which would replace it; "
            "give either, for example the list of seeds as `seeds`"
        )


def _points_of_tables(
    base: Mapping[str, Any],
    values: Values,
    seeds: list[int] | None,
    vary: Sequence[str],
    cache: DatasetCache,
    with_memory: bool,
) -> list[Point]:
    """Return the runs of a point, one per seed, of which the first is built."""
    tables = assigned(base, values)
    if seeds is not None:
        tables = with_seeds(tables, seeds[0], vary)
    experiment = config.build(tables, read=cache.read)
    digest = cache.digest(experiment.dataset)
    memory = experiment.estimate().total if with_memory else None
    device = device_of(experiment.options["compute"])
    ignores = experiment.topology is not None and not experiment.uses_topology

    def point(seed: int | None) -> Point:
        full = experiment.tables if seed is None else with_seeds(experiment.tables, seed, vary)
        job = Job.of(full, digest)
        return Point(values, seed, job, memory, str(device), ignores, _scores(experiment))

    return [point(seed) for seed in seeds or [None]]


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
        digest = cache.digest(experiment.dataset)
        ignores = experiment.topology is not None and not experiment.uses_topology
        job = Job.of(experiment.tables, digest)
        scores = _scores(experiment)
        return Point(values, seed, job, ignores_topology=ignores, scores=scores)
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


def _scores(experiment: config.Experiment) -> tuple[str, ...]:
    return _scores_of(experiment.options["evaluation"], experiment.task)


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
    return [f"{function.__module__}.{function.__qualname__}", _source(function), captured]


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise ValueError(
            "`base` must be a function whose source can be read, since runs are found by it, got "
            f"{shown(function)}; define it in a file"
        ) from error


def _check_call(arguments: Mapping[str, Any]) -> None:
    """Raise the errors about arguments that :func:`topofl.run` would raise."""
    check_keys("`topofl.run`", arguments, parameters(topofl.run))
    left_out = ("saving", "callbacks", "progress")
    checked = {key: value for key, value in arguments.items() if key not in left_out}
    missing = [key for key in ("algorithm", "model", "rounds", "seed") if key not in checked]
    if missing:
        raise ValueError(f"`topofl.run` needs {', '.join(f'`{key}`' for key in missing)}")
    resolve(checked.pop("algorithm"), **checked)


def check_picklable(base: object) -> None:
    """Raise ``ValueError`` for a function that cannot be sent to other processes."""
    if callable(base):
        with _explaining_pickle(base):
            pickle.dumps(base)


@contextmanager
def _explaining_pickle(base: object) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # pickle raises errors of many types
        raise ValueError(
            "`base` must be a function of a module for several processes, got "
            f"{shown(base)}: {error}; define it at the top level of a file, or use jobs=1"
        ) from error


def one_per_key(points: Sequence[Point]) -> list[Point]:
    """Return the points without those that repeat the run of an earlier one."""
    found: dict[str, Point] = {}
    for point in points:
        found.setdefault(point.key, point)
    return list(found.values())


def shard_of(points: Sequence[Point], shard: str | tuple[int, int] | None) -> list[Point]:
    """Return the part of the points that one of several machines performs.

    Parameters
    ----------
    points
        Points with distinct runs.
    shard
        ``"1/2"`` or ``(1, 2)``: the first of two parts; None: all.

    Raises
    ------
    ValueError
        If it has another form, or names a part that does not exist.

    Examples
    --------
    >>> shard_of([], "1/2")
    []
    """
    if shard is None:
        return list(points)
    try:
        part, parts = map(int, shard.split("/") if isinstance(shard, str) else shard)
    except (TypeError, ValueError):
        raise ValueError(
            f"`shard` must be such as '1/2', the first of two parts, got {shown(shard)}"
        ) from None
    check_int("shard", parts, minimum=1)
    check_int("shard", part, minimum=1, maximum=parts)
    return list(points[part - 1 :: parts])
