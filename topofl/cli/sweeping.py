"""``topofl sweep``: many runs over points and seeds."""

import argparse
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from topofl import config
from topofl._support.calls import parse_value
from topofl._support.check import shown
from topofl._support.optional import imported
from topofl.cli.notes import print_notes, runs_text
from topofl.cli.output import print_table
from topofl.config.toml import with_modules
from topofl.runs.clusters import dask_executor, ray_executor, slurm_executor
from topofl.runs.dry import planned
from topofl.runs.points import Range, parse_grid, random_points
from topofl.runs.search import search
from topofl.runs.sweep import Sweep
from topofl.runs.sweep import sweep as perform

__all__ = ["SweepFailed", "sweep"]


class SweepFailed(RuntimeError):
    """Runs of a sweep failed; the others are stored."""


def sweep(options: argparse.Namespace) -> None:
    """Perform the runs of a sweep and print their table."""
    if options.search is not None:
        _check_alone(options, "search", "points", "random", "shard", "dry_run")
    _check_space(options)
    tables = config.override(config.read(options.config), options.set)
    base = with_modules(tables, options.config)
    how: dict[str, Any] = {
        "seeds": options.seeds,
        "vary": [name.strip() for name in options.vary.split(",")],
        "store": options.store,
        "jobs": options.jobs,
    }
    if options.search is not None:
        found = _search(options, base, how)
    else:
        how |= {"grid": _grid(options), "shard": options.shard}
        if options.dry_run:
            print_table(planned(base, **how), options)
            return
        found = perform(base, **how, **_execution(options))
    _report(found, options)


def _check_space(options: argparse.Namespace) -> None:
    """Raise, in words of the shell, if what is drawn from --grid does not fit how it is drawn."""
    name = next((one for one in ("random", "search") if getattr(options, one) is not None), None)
    if options.points is not None:
        return
    if name is not None and not options.grid:
        raise ValueError(
            f"`--{name}` must come with settings to choose from; give `--grid`, as in --grid "
            "'algorithm.lr=log_uniform(0.01,1)'"
        )
    drawn = {key: one for key, one in parse_grid(options.grid).items() if isinstance(one, Range)}
    if name is None and drawn:
        raise ValueError(
            f"`--grid` must list values for {next(iter(drawn))!r}, got a range; list values, or "
            "draw points by --random K or --search K"
        )


def _search(options: argparse.Namespace, base: Mapping[str, Any], how: dict[str, Any]) -> Sweep:
    return search(
        base,
        parse_grid(options.grid),
        trials=options.search,
        column=options.column,
        seed=options.draw_seed,
        **how | {"seeds": 1 if options.seeds is None else options.seeds},
        **_execution(options),
    )


def _grid(options: argparse.Namespace) -> Any:
    """Return the grid, the points of a file, or random points."""
    if options.points is not None:
        _check_alone(options, "points", "grid", "random")
        try:
            return json.loads(options.points.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(
                f"`--points` must be a JSON file, {options.points} is not: {error}"
            ) from error
    grid = parse_grid(options.grid) if options.grid else None
    if options.random is None:
        return grid
    return random_points(grid or {}, options.random, seed=options.draw_seed)


def _check_alone(options: argparse.Namespace, name: str, *others: str) -> None:
    """Raise if options that exclude each other are given."""
    given = [other for other in others if getattr(options, other)]
    if given:
        raise ValueError(
            f"`--{name}` must be given without `--{given[0].replace('_', '-')}`; leave one out"
        )


def _execution(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of a sweep on how runs are performed."""
    chosen = [name for name in ("slurm", "dask", "ray") if getattr(options, name) is not None]
    if len(chosen) > 1:
        raise ValueError(f"`--{chosen[0]}` must be given without `--{chosen[1]}`; leave one out")
    executor = None
    if options.slurm is not None:
        executor = slurm_executor(str(options.store / "slurm"), **_parameters(options.slurm))
    elif options.dask is not None:
        executor = dask_executor(options.dask)
    elif options.ray is not None:
        executor = _ray(options.ray)
    progress = "auto" if options.progress is None else options.progress
    return {
        "executor": executor,
        "retry_failed": options.retry_failed,
        "progress": progress,
    }


def _ray(address: str) -> Any:
    imported("ray", "ray", "`--ray`", name="Ray").init(address=address)
    return ray_executor()


def _parameters(texts: list[str]) -> dict[str, Any]:
    """Return submitit's parameters from ``key=value``."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ValueError(f"`--slurm` must be key=value, as in timeout_min=60, got {text!r}")
        found[key.strip()] = parse_value(value)
    return found


def _report(found: Sweep, options: argparse.Namespace) -> None:
    """Print the table with notes, and raise if runs failed."""
    print_table(found.table, options)
    if options.search is not None:
        with suppress(ValueError):  # no trial is finished, as the error below says
            print_notes([f"best: {found.best(options.column)}"])
    total = len({point.key for point in found.points})
    if found.failures:
        first = found.failures[0]
        raise SweepFailed(
            f"{len(found.failures)} of {runs_text(total)} failed, the others are stored; "
            f"the first failed with {shown(first.error, 200)}; see topofl runs {options.store} "
            "--failed, and repeat them with --retry-failed"
        )
    if found.trained:
        print_notes(
            [f"{runs_text(total)} {'is' if total == 1 else 'are'} stored in {options.store}"]
        )
        return
    was = "was" if total == 1 else "were"
    print_notes([f"{total} of {runs_text(total)} {was} stored already; nothing was trained"])
