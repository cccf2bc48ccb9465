"""Commands that start what is not part of the command line: other parts of topofl, and a file."""

import inspect
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.resources import files
from typing import Any

from topofl._support.processes import prepare_fork
from topofl._support.text import printable
from topofl.cli.output import CommandFailed, by_options, json_rows, plain_cell, print_rows

_LAST_PORT = 65_535


def new(options: Namespace) -> None:
    """Write a commented configuration, which runs as it is."""
    path = options.file
    if path.suffix != ".toml":
        raise ValueError(f"`FILE` must end in .toml, got {path.name}")
    text = files("topofl.cli").joinpath("experiment.toml").read_text(encoding="utf-8")
    command = f"topofl run {shlex.quote(printable(str(path)))}"
    folder = shlex.quote(printable(f"runs/{path.stem}"))
    text = text.replace("topofl run experiment.toml", command).replace("runs/experiment", folder)
    try:
        with path.open("w" if options.force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ValueError(
            f"`FILE` must be a new file, got {path}, which exists; name another, or overwrite it "
            "with --force"
        ) from error
    print(f"wrote {printable(str(path))}; train with: {command}")


def explore(options: Namespace) -> None:
    """Serve the explorer until Ctrl-C."""
    if not 0 <= options.port <= _LAST_PORT:
        raise ValueError(f"`--port` must be between 0 and {_LAST_PORT}, got {options.port}")
    serve = import_module("topofl.explore.serve").serve
    serve(options.port, browser=not options.no_browser, folder=options.data)


def sweep(options: Namespace) -> None:
    """Perform the runs of a sweep; processes for them import torch while this one does."""
    try:
        if (options.jobs or 1) > 1 and not options.dry_run:
            prepare_fork()
        import_module("topofl.cli.runs").sweep(options)
    except KeyboardInterrupt as stopped:
        if str(stopped) or options.dry_run:
            raise
        raise KeyboardInterrupt(
            "interrupted while no run was in progress; start the same sweep again to go on"
        ) from None


def leaderboard(options: Namespace) -> None:
    """Train entries of the leaderboard, or build its page."""
    from topofl import leaderboard  # it loads torch

    if options.action == "build":
        if options.entries:
            raise ValueError("`build` must be given without entries; leave them out")
        _build_leaderboard(leaderboard, options)
        return
    if options.entry is not None:
        raise ValueError("`--entry` must be given to build, not to run; leave it out")
    if not options.entries:
        raise ValueError("name at least one ENTRY.toml; docs/leaderboard.md has an example")
    entries = leaderboard.read_entries(*options.entries)
    progress = "auto" if options.progress is None else options.progress
    how = {name: getattr(options, name) for name in ("store", "data", "jobs")}
    how["progress"] = progress
    chosen, rows = leaderboard.tasks(options.tasks), list[dict[str, Any]]()
    if options.tasks is None:
        chosen = [task for task in chosen if not task.needs_files]
    failed = list[str]()
    for entry, task in [(entry, task) for entry in entries for task in chosen]:
        try:
            found = leaderboard.run_entry(entry, task, **how)
        except leaderboard.Diverged as error:
            failed.append(str(error))
            continue
        mean, path = sum(found.learning) / len(found.learning), str(found.save(options.out))
        own = {"entry": entry.name, "task": task.key, "over rounds": mean, "lr": found.lr}
        rows.append(own | {"written": path})
        said = f"{entry.name}, {task.key}: {100 * mean:.1f} % over rounds; written: {path}"
        print(printable(said), file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print_rows(rows)
    if failed:
        raise CommandFailed("; ".join(failed))


def _build_leaderboard(leaderboard: Any, options: Namespace) -> None:
    """Write the page, and print the ranks of an entry if one is named."""
    path = str(leaderboard.build(options.out))
    found = None
    if options.entry is not None:
        try:
            found = leaderboard.ranks(options.out, options.entry)
        except ValueError as error:
            raise ValueError(by_options(str(error), ["entry"])) from error
    if options.json:
        rows = [] if found is None else json_rows(found)
        print_rows([{"written": path}, *rows])
        return
    print(f"written: {printable(path)}")
    if found is not None:
        print(f"\n{found}")


def study(options: Namespace) -> None:
    """Train over many graphs, and correlate their numbers with the outcomes."""
    if not options.scenarios:
        raise ValueError(
            "CONFIG.toml must be given, or scenarios of our study, or 'all' for the whole study, "
            "which trains thousands of models; --dry-run shows how many"
        )
    if options.scenarios == ["all"]:
        options.scenarios = []
    import_module("topofl.analysis.study.command").study(options)


def reproduce(options: Namespace) -> None:
    """Regenerate figures of the papers, or list them."""
    paper_figures = import_module("topofl.paper_figures")
    if options.list:
        _print_figures(paper_figures, options)
    elif options.name is None:
        raise ValueError("name a figure or a paper; topofl reproduce --list shows all")
    elif options.dry_run:
        table = _with_options(paper_figures.planned, options)()
        print_rows(json_rows(table)) if options.json else print(table)
    else:
        # The next figure may take minutes, and stdout is for JSON.
        show = partial(print, file=sys.stderr if options.json else sys.stdout, flush=True)
        try:
            results = _with_options(paper_figures.reproduce, options)(show=show)
        except paper_figures.Failed as error:
            raise CommandFailed(str(error)) from error
        if options.json:
            print_rows(row for result in results for row in _claims(result))


def _with_options(function: Callable[..., Any], options: Namespace) -> Callable[..., Any]:
    """Return a function with the options that are its parameters, which its errors call options."""
    known = inspect.signature(function).parameters
    given = {key: value for key, value in vars(options).items() if key in known}

    def call(**others: Any) -> Any:
        try:
            return function(**given, **others)
        except (ValueError, TypeError) as error:
            if type(error) not in (ValueError, TypeError):
                raise
            named = given.keys() - {"name"}  # which is given without an option
            raise type(error)(by_options(str(error), named)) from error

    return call


def _print_figures(paper_figures: Any, options: Namespace) -> None:
    """Print papers and figures, and the figures that are not reproduced."""
    listed, absent = paper_figures.listed(), paper_figures.absent()
    if not options.json:
        print(listed, absent, sep="\n\n")
        return
    reproduced = [{**row, "reproduced": True} for row in json_rows(listed)]
    others = [
        {"name": name, listed.columns[1]: reason, "data": None, "reproduced": False}
        for name, reason in absent.rows
    ]
    print_rows([*reproduced, *others])


def _claims(result: Any) -> Iterator[dict[str, Any]]:
    """Yield the claims about a figure, with our numbers and verdicts."""
    for claim in result.claims:
        yield {
            "figure": result.figure.id,
            "scale": result.setting.scale,
            "claim": claim.statement,
            "kind": claim.kind,
            "statistic": claim.statistic,
            "holds if": claim.threshold,
            "ours": plain_cell(claim.ours),
            "interval": claim.interval,
            "paper": claim.paper or None,
            "verdict": claim.verdict,
            "picture": str(result.picture),
        }
