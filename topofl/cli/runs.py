"""``topofl sweep``: many runs over points and seeds; ``topofl runs``: what is stored of them.

Lists of runs are of stores and of folders of ``topofl run``. They have the runs that are not
finished, too, with what finishes them.
"""

import json
import shlex
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topofl import config
from topofl._support.calls import parse_value, table_of
from topofl._support.check import did_you_mean, shown
from topofl._support.locks import is_in_use
from topofl._support.plugins import imported
from topofl._support.table import NotApplicable, Table
from topofl._support.text import plain_text, printable
from topofl.citations import bibtex, citations, functions_of_tables
from topofl.cli.commands import check_alone
from topofl.cli.output import CommandFailed, print_notes, print_rows, print_table, runs_text
from topofl.config.toml import names_functions, with_modules
from topofl.engine.checkpoint import newest_round
from topofl.history import History
from topofl.history.files import FILES
from topofl.runs import Failure, RunStore, StoredRun, Sweep
from topofl.runs import sweep as perform
from topofl.runs.execute import dask_executor, ray_executor, slurm_executor
from topofl.runs.folder import begun_in, command_to_resume, is_finished, place_of
from topofl.runs.plan import Range, parse_grid, random_points
from topofl.runs.probe import planned
from topofl.runs.record import ABOUT, RECORD, cell_of, flat_settings, heads_of, in_folder_of_run
from topofl.runs.store import is_key, run_of_folder
from topofl.runs.sweep import search
from topofl.summary.groups import Settings, is_seed, levels_text

_RUNNING = "nothing: it is running"

_NOT_FINISHED = NotApplicable("the run is not finished")


@dataclass(frozen=True, eq=False)
class Unfinished:
    """A run that was begun and not finished.

    Parameters
    ----------
    key
        Its key in a store, or the name of its folder.
    tables
        Its configuration; empty if it is not known.
    round
        The round of its newest checkpoint; 0 if there is none.
    remedy
        What finishes it.
    """

    key: str
    tables: Mapping[str, Any]
    round: int
    remedy: str

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration as one new flat dictionary, with keys such as ``"data.alpha"``."""
        return flat_settings(self.tables)


Entry = StoredRun | Failure | Unfinished

Wanted = dict[str, tuple[Any, ...]]
"""Values that meet a condition, by the full name of a setting."""


def runs(options: Namespace) -> None:
    """Print or remove the runs of a store, or those that failed."""
    if options.bibtex and (options.failed or options.remove):
        raise ValueError("`--bibtex` must be given without --failed and --remove")
    _note_stores(options.store)
    if saved := _saved_histories(options.store):
        _cite(saved, options)
        return
    store = RunStore(options.store)
    starts = [text.partition("=")[2] for text in options.where if text.startswith("key=")]
    if options.remove and not options.failed and starts and len(starts) == len(options.where):
        _remove_by_key(store, starts, options)
        return
    every = _entries(store, options)
    matching = _selected(every, options.where)
    listed = StoredRun if options.remove else StoredRun | Unfinished
    kind = Failure if options.failed else listed
    found = [entry for entry in matching if isinstance(entry, kind)]
    if options.remove:
        if not options.where and not options.failed:
            raise ValueError(
                "`--remove` must be given with --where or --failed, which say what to remove; to "
                f"remove all runs, remove the folder {options.store}"
            )
        among = sum(isinstance(entry, kind) for entry in every)
        _remove(store, [entry.key for entry in found], among, options)
    elif options.bibtex:
        functions = [functions_of_tables(entry.tables) for entry in found]
        print(bibtex({name: f for one in functions for name, f in one.items()}), end="")
    elif options.failed and options.traceback:
        _print_tracebacks([entry for entry in found if isinstance(entry, Failure)], options)
    else:
        _print_table(store, found, matching, every, options)


def _note_stores(folder: Path) -> None:
    """Print a note on stores in a folder, whose runs are not those of the folder."""
    inside = [] if (folder / ABOUT).exists() else sorted(folder.glob(f"*/{ABOUT}"))
    print_notes(
        f"{path.parent} is a store of its own, whose runs are left out; see topofl runs "
        f"{shlex.quote(str(path.parent))}"
        for path in inside
    )


def _saved_histories(folder: Path) -> list[Path]:
    """Return the folders of ``History.save`` in a folder, or the folder itself.

    Those within a store or a folder of topofl run are parts of its runs.
    """
    if any((folder / name).exists() for name in (ABOUT, RECORD)) or any(folder.glob(f"*/{RECORD}")):
        return []
    places = [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    return [path for path in places if all((path / name).is_file() for name in FILES)]


def _cite(saved: Sequence[Path], options: Namespace) -> None:
    """Print what histories used; raise for what needs settings, which they do not have."""
    if not options.bibtex or options.where:
        example = shlex.join(map(printable, map(str, saved[:1])))
        raise ValueError(
            f"STORE must be a store or hold folders of topofl run, got {options.store}, which "
            "holds what History.save wrote, without settings to list or select by; compare by "
            f"topofl compare {example}, or cite by topofl runs {options.store} --bibtex"
        )
    print(citations([History.load(path) for path in saved]), end="")


def _remove_by_key(store: RunStore, starts: Sequence[str], options: Namespace) -> None:
    """Remove runs by the start of their keys without reading them, since they may be damaged."""
    if _in_folders(store):
        _entries(store, options)  # raises
    every = store.keys()
    found = [key for key in every if all(start and key.startswith(start) for start in starts)]
    _remove(store, found, len(every), options)


def _remove(store: RunStore, keys: Sequence[str], among: int, options: Namespace) -> None:
    for key in keys:
        store.remove(key)
    print_notes([f"removed {len(keys)} of {runs_text(among)}"])
    if options.json:
        print_rows({"removed": key} for key in keys)


def _print_tracebacks(failures: Sequence[Failure], options: Namespace) -> None:
    if options.json:
        names = ("key", "error", "traceback")
        print_rows({name: getattr(failure, name) for name in names} for failure in failures)
        return
    for failure in failures:
        print(f"{failure.key}: {printable(failure.error)}\n{failure.traceback}")


def _print_table(
    store: RunStore,
    found: list[Entry],
    matching: Sequence[Entry],
    every: Sequence[Entry],
    options: Namespace,
) -> None:
    """Print the runs with the settings that were asked for, and notes on the others."""
    columns = _columns(matching, every, options.columns)
    if (store.root / ABOUT).exists():  # otherwise folders are in the order of their names
        order = sorted(_columns(matching, every, None), key=is_seed)  # seeds come last
        found.sort(key=lambda entry: [*map(_place, map(entry.settings.get, order))])
    print_table(_table(found, columns), options)
    if not options.failed and (failed := sum(isinstance(one, Failure) for one in matching)):
        print_notes([f"{failed} failed, see --failed"])
    begun = [one for one in found if isinstance(one, Unfinished) and names_functions(one.tables)]
    if named := [one.key for one in begun if one.remedy.startswith("topofl resume")]:
        note = f"to resume {', '.join(named)}, whose settings name functions of modules, add "
        print_notes([f"{note}--trust if you trust them, as those of your own"])
    done = [entry for entry in found if isinstance(entry, StoredRun)]
    if unscored := sum(not entry.curves["scores"] for entry in done):
        print_notes(
            [f"{unscored} of {runs_text(len(done))} evaluated nothing: evaluation.on is []"]
        )


def _entries(store: RunStore, options: Namespace) -> Sequence[Entry]:
    """Return all runs of a store, also those that failed, or those in folders of topofl run."""
    if found := _in_folders(store):
        for name in ("remove", "failed"):
            if getattr(options, name):
                raise ValueError(
                    f"`--{name}` must be given for a store, {store.root} holds folders of topofl "
                    f"run, such as {found[0].key}; remove folders without topofl"
                )
        return found
    records = [store.root / RECORD, *store.root.glob(f"*/{RECORD}")]
    if not (store.root / ABOUT).exists() and any(map(in_folder_of_run, records)):
        return []  # all folders of topofl run are damaged, of which warnings tell
    return [*store.runs(), *store.failures(), *_unfinished_in_store(store)]


def _in_folders(store: RunStore) -> list[StoredRun | Unfinished]:
    """Return the runs in folders of topofl run, finished or not, by the names of the folders.

    The folder may also be that of one run.
    """
    if (store.root / ABOUT).exists():
        return []
    if single := _in_folder(store.root):
        return single
    folders = sorted(store.root.glob("*"))
    is_store = all(is_key(path.name) for path in folders)  # of an earlier version
    inside = _unfinished_in if is_store else _in_folder
    return [one for path in folders if not path.name.startswith(".") for one in inside(path)]


def _in_folder(folder: Path) -> list[StoredRun | Unfinished]:
    done = run_of_folder(folder)
    return [*([] if done is None else [done]), *_unfinished_in(folder)]


def _unfinished_in(folder: Path) -> Iterator[Unfinished]:
    """Yield the run in a folder if it is not finished."""
    place = place_of(folder)
    if is_finished(folder) or not (place / "checkpoints").is_dir():
        return
    with suppress(OSError, ValueError):  # without a configuration it cannot be continued
        tables = config.read(place / "config.toml")
        done = newest_round(place / "checkpoints") or 0
        way = _RUNNING if is_in_use(folder) else command_to_resume(folder)
        yield Unfinished(folder.absolute().name, tables, done, way)


def _unfinished_in_store(store: RunStore) -> Iterator[Unfinished]:
    """Yield the runs of a store that have checkpoints and no end, in the order of their keys.

    What finishes them is ``topofl run``, but not for a configuration that names functions of
    modules, which it would import.
    """
    for key, folder, tables, is_alive in begun_in(store.root):
        if store.has(key):
            continue
        file, remedy = folder / "config.toml", "the command that started it"
        if is_alive:
            remedy = _RUNNING
        elif file.is_file() and not names_functions(tables):
            remedy = shlex.join(["topofl", "run", str(file), "--store", str(store.root)])
        yield Unfinished(key, tables, newest_round(folder / "checkpoints") or 0, remedy)


def _selected(entries: Sequence[Entry], where: Sequence[str]) -> list[Entry]:
    """Return the entries that meet all conditions ``key=value``."""
    found, own = list(entries), [entry.settings for entry in entries]
    for text in where:
        name, equals, value = (word.strip() for word in text.partition("="))
        if not name or not equals:
            raise ValueError(f"`--where` must be key=value, as in data.alpha=0.1, got {text!r}")
        if name == "key":
            found = [entry for entry in found if entry.key.startswith(value)]
            continue
        wanted = _wanted(name, value, own)
        found = [entry for entry in found if _meets(entry.settings, wanted)]
        if not any(_meets(one, wanted) for one in own):
            print_notes(list(_existing(wanted, own)))
    return found


def _wanted(name: str, value: str, own: Collection[Mapping[str, Any]]) -> Wanted:
    """Return the condition ``name=value``; a table such as ``topology`` may have arguments."""
    full = _resolved("--where", name, own)
    if any(full in one for one in own) or not own:
        return {full: (parse_value(value), value)}
    table = table_of(value)
    return {f"{full}.{key}": (entry,) for key, entry in table.items()}


def _resolved(option: str, name: str, own: Collection[Mapping[str, Any]]) -> str:
    """Return the full name of a setting or table, from a short one as in topofl.summarize."""
    own = [one for one in own if one]  # stores of earlier versions have none of runs begun
    if not own or any(name in one for one in own):
        return name
    return Settings.of(list(own)).resolve(option, name)


def _meets(own: Mapping[str, Any], wanted: Wanted) -> bool:
    return all(name in own and own[name] in values for name, values in wanted.items())


def _existing(wanted: Wanted, own: Collection[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a note about each setting that has a wanted value in no run."""
    for name, values in wanted.items():
        known = sorted({plain_text(one[name]) for one in own if name in one})
        if known and not any(_meets(one, {name: values}) for one in own):
            yield (
                f"no run has {name}={values[-1]}, its values are {levels_text(known)}"
                f"{did_you_mean(str(values[-1]), known)}"
            )


def _place(value: Any) -> tuple[bool, bool, float, str]:
    """Return a key by which settings are sorted: numbers, then text, then none."""
    number = isinstance(value, int | float)
    return value is None, not number, float(value) if number else 0.0, str(value)


def _columns(entries: Sequence[Entry], every: Sequence[Entry], names: str | None) -> list[str]:
    """Return the settings to show: those given, or those in which the runs differ."""
    own = [entry.settings for entry in entries if entry.settings]
    compared = Settings.of(own)
    differing = [name for name in compared.levels if len({shown(one.get(name)) for one in own}) > 1]
    if names is None:
        always = ("algorithm.name", "topology.name")
        return list(dict.fromkeys([*filter(compared.levels.__contains__, always), *differing]))
    chosen: list[str] = []
    for name in names.split(","):
        full = _resolved("--columns", name.strip(), [entry.settings for entry in every])
        if full not in compared.tables:
            chosen.append(full)
            continue
        # the function of a table, with those arguments in which runs differ
        inside = [one for one in differing if one.startswith(f"{full}.") and not is_seed(one)]
        chosen += [f"{full}.name", *inside]
    return list(dict.fromkeys(chosen))


def _table(entries: Sequence[Entry], columns: Sequence[str]) -> Table:
    """Return one row per run with its final scores, or per failure with its error."""
    done = [entry for entry in entries if isinstance(entry, StoredRun)]
    scores = list(dict.fromkeys(name for entry in done for name in entry.curves["scores"]))
    last = ["round", *scores, "seconds"]
    if any(isinstance(entry, Failure) for entry in entries):
        last = ["error"]
    begun = sum(isinstance(entry, Unfinished) for entry in entries)
    rows = []
    for entry in entries:
        own = entry.settings  # stores of earlier versions have none of a run begun
        values = [own.get(name) for name in columns]
        values = [shown(one) if isinstance(one, list | dict) else cell_of(one) for one in values]
        cells = values if own else [_NOT_FINISHED] * len(columns)
        row = [entry.key, *cells, *_last_cells(entry, scores)]
        remedy = [entry.remedy if isinstance(entry, Unfinished) else ""]
        rows.append(tuple(row + remedy if begun else row))
    last += ["finished by"] if begun else []
    heads = heads_of(columns, ["key", *last])
    title = runs_text(len(entries)) + (f", {begun} not finished" if begun else "")
    return Table(("key", *heads, *last), tuple(rows), title=title)


def _last_cells(entry: Entry, scores: Sequence[str]) -> Sequence[Any]:
    """Return how far a run came: its final scores, its error, or its newest checkpoint."""
    if isinstance(entry, Failure):
        return [" ".join(entry.error.split())]
    if isinstance(entry, Unfinished):
        return [entry.round, *([_NOT_FINISHED] * (len(scores) + 1))]
    curves, none = entry.curves, NotApplicable("none recorded")
    finals = [curves["scores"].get(name, {}).get("mean", [None])[-1] for name in scores]
    cells = [none if value is None else value for value in finals]
    return [curves["round"][-1], *cells, entry.note.get("seconds", none)]


def sweep(options: Namespace) -> None:
    """Perform the runs of a sweep and print their table."""
    if options.search is not None:
        check_alone(options, "search", "points", "random", "shard", "dry_run")
    space = parse_grid(options.grid)
    if options.points is None:
        _check_space(options, space)
    tables = config.override(config.read(options.config), options.set)
    base = with_modules(tables, options.config)
    how: dict[str, Any] = {
        "seeds": options.seeds,
        "vary": [name.strip() for name in options.vary.split(",")],
        "store": options.store,
        "jobs": options.jobs,
    }
    if options.search is None:
        how |= {"grid": _grid(options, space), "shard": options.shard}
        if options.dry_run:
            print_table(planned(base, **how), options)
            return
    executor = _executor(options)
    progress = "auto" if options.progress is None else options.progress
    how |= {"executor": executor, "retry_failed": options.retry_failed, "progress": progress}
    best: list[str] = []
    if options.search is None:
        found = perform(base, **how)
    else:
        how["seeds"] = 1 if options.seeds is None else options.seeds
        how |= {"trials": options.search, "column": options.column, "seed": options.draw_seed}
        found = search(base, space, **how)
        with suppress(ValueError):  # no trial is finished, as the error below says
            best = [f"best: {found.best(options.column)}"]
    print_table(found.table, options)
    print_notes(best)
    _print_counts(found, options)


def _print_counts(found: Sweep, options: Namespace) -> None:
    """Print how many runs are stored, or raise :class:`CommandFailed` if any failed."""
    total = len({point.key for point in found.points})
    if found.failures:
        first = found.failures[0]
        raise CommandFailed(
            f"{len(found.failures)} of {runs_text(total)} failed, the others are stored; "
            f"the first failed with {shown(first.error, 200)}; see topofl runs {options.store} "
            "--failed, and repeat them with --retry-failed"
        )
    if found.trained:
        are = "is" if total == 1 else "are"
        joined = f"; {found.together} of them were trained together" if found.together else ""
        print_notes([f"{runs_text(total)} {are} stored in {options.store}{joined}"])
    else:
        was = "was" if total == 1 else "were"
        print_notes([f"{total} of {runs_text(total)} {was} stored already; nothing was trained"])


def _check_space(options: Namespace, space: Mapping[str, Any]) -> None:
    """Raise, in words of the shell, if what is drawn from --grid does not fit how it is drawn."""
    name = next((one for one in ("random", "search") if getattr(options, one) is not None), None)
    if name is not None and not space:
        raise ValueError(
            f"`--{name}` must come with settings to choose from; give `--grid`, as in --grid "
            "'algorithm.lr=log_uniform(0.01,1)'"
        )
    drawn = [key for key, one in space.items() if isinstance(one, Range)]
    if name is None and drawn:
        raise ValueError(
            f"`--grid` must list values for {drawn[0]!r}, got a range; list values, or "
            "draw points by --random K or --search K"
        )


def _grid(options: Namespace, space: Mapping[str, Any]) -> Any:
    """Return the grid, the points of a file, or random points."""
    if options.points is not None:
        check_alone(options, "points", "grid", "random")
        try:
            return json.loads(options.points.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ValueError(
                f"`--points` must be a JSON file with a list of points, got {options.points}, "
                "which does not exist"
            ) from error
        except ValueError as error:
            raise ValueError(
                f"`--points` must be a JSON file, {options.points} is not: {error}"
            ) from error
    if options.random is None:
        return space or None
    return random_points(space, options.random, seed=options.draw_seed)


def _executor(options: Namespace) -> Any:
    """Return the executor of the cluster that the options name, or None."""
    chosen = [name for name in ("slurm", "dask", "ray") if getattr(options, name) is not None]
    check_alone(options, *chosen)
    if options.slurm is not None:
        return slurm_executor(str(options.store / "slurm"), **_parameters(options.slurm))
    if options.dask is not None:
        return dask_executor(options.dask)
    if options.ray is None:
        return None
    imported("ray", "ray", "`--ray`", name="Ray").init(address=options.ray)
    return ray_executor()


def _parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Return submitit's parameters from ``key=value``."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ValueError(f"`--slurm` must be key=value, as in timeout_min=60, got {text!r}")
        found[key.strip()] = parse_value(value)
    return found
