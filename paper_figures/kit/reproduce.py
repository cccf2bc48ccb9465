"""Compute, draw and judge figures one after another; their data on disk, and the plan of a command.

The data of a figure are computed once, or read from an earlier report.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topofl import Table
from topofl.report import replacing
from topofl.runs.identity import (
    RESULTS,
    Run,
    content,
    peak_memory_megabytes,
    reset_peak_memory,
    versions,
)
from topofl.runs.probe import probe

from . import drawing
from .claims import Claim, claims_table
from .paper import Data, Figure, Setting
from .store import Failed, Store, compute_missing, keyed, load_earlier_report


@dataclass(frozen=True, repr=False)
class Result:
    """A figure that was computed, drawn and judged.

    Parameters
    ----------
    figure, setting
        The figure, and the setting of its reproduction.
    data
        Output of ``figure.compute``.
    claims
        Output of ``figure.claims``.
    tables
        Numbers of the figure's arms, one table per panel; empty for figures without training.
    picture
        Path of the PNG; a PDF is next to it.
    differences
        Differences from the paper's setting, one sentence each.
    seconds, megabytes, runs
        Wall time of all its runs (including those shared with other figures) and of the figure
        itself; largest memory of a process; number of training runs.
    made
        Distinct environments of its runs: versions, device, executor, machine, threads.
    kept
        Number of runs whose numbers were read from an earlier report.
    untimed, unnoted
        How many of these lack time and memory, and how many lack their environment.
    page
        Path of the HTML page with a slider over rounds; None if there is none.
    """

    figure: Figure
    setting: Setting
    data: Data
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...]
    picture: Path
    differences: tuple[str, ...]
    seconds: float
    megabytes: float
    runs: int
    made: tuple[Mapping[str, Any], ...]
    kept: int = 0
    untimed: int = 0
    unnoted: int = 0
    page: Path | None = None

    def __repr__(self) -> str:
        verdicts = ", ".join(claim.verdict for claim in self.claims)
        return (
            f"Result({self.figure.id!r}, scale={self.setting.scale!r}, "
            f"verdicts=[{verdicts}], {str(self.picture)!r})"
        )


@dataclass(frozen=True)
class LeftOut:
    """A figure without a result.

    Parameters
    ----------
    figure
        The figure.
    reason
        Why there is no result.
    failed
        True if runs failed, False if data are missing.
    """

    figure: Figure
    reason: str
    failed: bool = False


def panels_lacking(result: Result) -> str:
    """Return a phrase that names the datasets missing from a figure; empty if there are none."""
    names = [name for name in result.figure.datasets if name not in result.setting.datasets]
    return (
        f"the panels of {' and '.join(names)}, which was not available or not selected"
        if names
        else ""
    )


def needed(figure: Figure, setting: Setting, store: Store) -> dict[str, Run]:
    """Return the runs of a figure that are missing from an earlier report, by key."""
    runs = keyed(figure.runs(setting))
    if _is_in_earlier_report(figure, setting, store, runs):
        return {}
    if figure.arms is None or not figure.from_curves:
        return runs
    arms = [arm for panel in figure.arms(setting).values() for arm in panel.values()]
    return keyed(run for arm in arms if store.earlier_curves(arm) is None for run in arm)


def computed(
    figure: Figure, setting: Setting, store: Store, path: Path, runs: Mapping[str, Run]
) -> dict[str, Any]:
    """Return the record of a figure's data and cost; computed unless stored with the same key.

    A page with a slider over rounds is written only where the figure's runs are stored.
    """
    key = _key(figure, setting, list(runs))
    known = stored(path)
    page = None if figure.page is None else path.with_name(figure.page_name)
    is_complete = page is None or page.exists() or not all(map(store.has, runs.values()))
    if known.get("key") == key and is_complete:
        return known
    if _is_in_earlier_report(figure, setting, store, runs):
        if page is not None:
            page.unlink(missing_ok=True)  # it would show other runs
        return _written(path, store.earlier.figures[key])
    reset_peak_memory()
    start = time.perf_counter()
    data = figure.compute(setting, store)
    if page is not None and figure.page is not None:
        write_text(page, figure.page(setting, store))
    record = {
        "figure": figure.id,
        "scale": setting.scale,
        "seeds": setting.seeds,
        "seeds_of_verdicts": len(setting.seeds) if figure.judged is None else figure.judged,
        "versions": versions(),
        "key": key,
        "seconds": time.perf_counter() - start,
        "megabytes": peak_memory_megabytes(),
        "runs": {key: _without_root(run) for key, run in runs.items()},
        "data": data,
        "notes": {name: note_of(store, run) for name, run in runs.items()},
    }
    return _written(path, record)


def _written(path: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Write a record and return it with the rounding of JSON, as it is read the next time."""
    write_text(path, json.dumps(record, separators=(",", ":")))
    return stored(path)


def _key(figure: Figure, setting: Setting, keys: Sequence[str]) -> str:
    """Return a hash of everything that determines a figure's data, 16 hexadecimal digits."""
    determined = [figure.id, setting.scale, setting.seeds, setting.datasets]
    determined += [list(keys), RESULTS]
    determined += [] if figure.judged is None else [figure.judged]
    if not keys and setting.scale != "smoke":  # the keys of runs would include the datasets
        shown = [name for name in (*figure.datasets, *figure.optional) if name in setting.datasets]
        determined.append([content(name, setting.root_of(name), False) for name in shown])
    return hashlib.sha256(json.dumps(determined).encode()).hexdigest()[:16]


def _is_in_earlier_report(
    figure: Figure, setting: Setting, store: Store, runs: Mapping[str, Run]
) -> bool:
    """Return whether an earlier report has the figure, and some of its runs are not stored."""
    if not store.earlier.figures or all(map(store.has, runs.values())):
        return False
    return _key(figure, setting, list(runs)) in store.earlier.figures


def note_of(store: Store, run: Run) -> dict[str, Any]:
    """Return a run's time, memory and environment; an earlier report may lack some of them."""
    note = store.load_note(run) if store.has(run) else store.earlier.notes.get(run.key, {})
    made = note.get("environment", note.get("made"))  # its name in earlier versions
    costs = {name: note[name] for name in ("seconds", "megabytes") if name in note}
    return costs if made is None else {**costs, "made": made}


def _without_root(run: Run) -> dict[str, Any]:
    """Return the configuration tables of a run without the data folder."""
    data = {name: value for name, value in run.tables["data"].items() if name != "root"}
    return {**run.tables, "data": data}


def stored(path: Path) -> dict[str, Any]:
    """Return the record in a figure's JSON file; empty if the file is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as file:
        file.write(text)


def output_folder(out: str | Path, setting: Setting) -> Path:
    """Create the folders of runs and results, and return that of the results at a scale."""
    folder = Path(out) / setting.scale
    for each in (Path(out) / "runs", folder):
        try:
            each.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise type(error)(
                f"`--out` must be a writable folder, got {each}: {error.strerror}"
            ) from error
    return folder


def reproduce_each(
    figures: Sequence[Figure],
    setting: Setting,
    *,
    out: str | Path = "out/reproduce",
    kept: str | Path | None = None,
    jobs: int = 1,
    progress: bool | str = "auto",
) -> Iterator[Result | LeftOut]:
    """Compute, draw and judge figures one after another; finished runs are not repeated.

    Parameters
    ----------
    figures, setting
        See :func:`figures_named` and :func:`make_setting`.
    out
        Output folder: runs (``runs/``, shared by all figures and scales) and, per scale, pictures
        (PNG and PDF), data and claims.
    kept
        Folder with the JSON files of an earlier report. Figures, and the curves of arms, whose runs
        are not in `out` are read from there if settings, data and versions are the same.
    jobs, progress
        As for :func:`paper_figures.kit.store.compute_missing`.

    Yields
    ------
    Result or LeftOut
        The outcome of each figure as soon as it is complete; an interrupted command leaves
        complete figures behind.

    Raises
    ------
    ValueError, FileNotFoundError
        If the files of a dataset are missing, damaged or not the original ones; before any run.
    OSError
        If `out` cannot be written to.
    """
    store = Store(Path(out) / "runs", load_earlier_report(kept))
    planned = {figure.id: keyed(figure.runs(setting)) for figure in figures}
    folder = output_folder(out, setting)
    failed: dict[str, str] = {}
    for figure in figures:
        if missing := missing_data(figure, setting):
            yield LeftOut(figure, missing)
            continue
        try:
            runs = needed(figure, setting, store).values()
            compute_missing(
                runs, store, jobs=jobs, progress=progress, failed=failed, title=figure.id
            )
        except Failed as error:
            failed |= error.errors
            yield LeftOut(figure, str(error), failed=True)
            continue
        yield _result(figure, setting, store, folder, planned[figure.id])


def missing_data(figure: Figure, setting: Setting) -> str:
    """Return why a figure cannot be computed; empty if at least one of its panels can."""
    lacking = [name for name in figure.datasets if name not in setting.datasets]
    if figure.datasets and len(lacking) == len(figure.datasets):
        return (
            f"needs the files of {' or '.join(lacking)}; give the folder that contains them with "
            "--data"
        )
    if figure.arms is not None and not figure.runs(setting):
        return f"has no panel at scale {setting.scale}"
    return ""


def _result(
    figure: Figure, setting: Setting, store: Store, folder: Path, runs: Mapping[str, Run]
) -> Result:
    record = computed(figure, setting, store, folder / f"{figure.id}.json", runs)
    claims = tuple(figure.claims(record["data"]))
    tables = tuple(figure.tables(record["data"]))
    drawn = figure.draw(record["data"])
    if setting.scale == "smoke":
        drawing.mark_smoke(drawn, (*figure.datasets, *figure.optional))
    picture, _ = drawing.save(drawn, folder / figure.id)
    write_text(folder / f"{figure.id}.md", _claims_text(figure, setting, claims, tables))
    notes = [note_of(store, run) for run in runs.values()]
    timed = [note for note in notes if "seconds" in note]
    page = folder / figure.page_name
    return Result(
        figure, setting, record["data"], claims, tables, picture,
        tuple(figure.differences(setting)),
        seconds=record["seconds"] + sum(note["seconds"] for note in timed),
        megabytes=max([record["megabytes"], *(note["megabytes"] for note in timed)]),
        runs=len(notes),
        made=_distinct([note["made"] for note in notes if "made" in note]),
        kept=sum(not store.has(run) for run in runs.values()),
        untimed=len(notes) - len(timed),
        unnoted=sum("made" not in note for note in notes),
        page=page if figure.page is not None and page.exists() else None,
    )  # fmt: skip


def _claims_text(
    figure: Figure, setting: Setting, claims: Sequence[Claim], tables: Sequence[Table]
) -> str:
    parts = [
        f"# {figure.id}: {figure.title}",
        f"Scale {setting.scale}, seeds {', '.join(map(str, setting.seeds))}.{_more_seeds(figure)}",
        claims_table(claims).to_markdown(),
        "\n".join(f"- {text}" for text in figure.differences(setting)),
        *(table.to_markdown() for table in tables),
    ]
    return "\n\n".join(parts) + "\n"


def _more_seeds(figure: Figure) -> str:
    """Return a sentence on seeds that were added to some arms; empty if verdicts use no others."""
    if figure.judged is None:
        return ""
    return (
        f" Verdicts use up to {figure.judged} seeds of an arm; picture and tables show the seeds "
        "that all arms have."
    )


def _distinct(notes: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the distinct environments of runs, ignoring when they finished."""
    environments = {
        json.dumps({k: v for k, v in note.items() if k != "finished"}, sort_keys=True)
        for note in notes
    }
    return tuple(json.loads(text) for text in sorted(environments))


def plan(figures: Sequence[Figure], setting: Setting, store: Store) -> Table:
    """Return one row per figure: its training runs, those to do, and their time and memory.

    Times are for a single process, estimated by :func:`probe` from one run of every kind; a run
    that figures share is counted for the first of them. The seconds that figures take in addition
    to training are not included.
    """
    seen: set[str] = set()
    kinds: dict[str, tuple[float, float]] = {}
    rows: list[tuple[Any, ...]] = []
    for figure in figures:
        runs = keyed(figure.runs(setting))
        todo = [
            run
            for key, run in needed(figure, setting, store).items()
            if key not in seen and not store.has(run)
        ]
        seen |= set(runs)
        costs = [_known_or_probed(run, kinds) for run in todo]
        minutes = sum(seconds for seconds, _ in costs) / 60
        peak = max((megabytes for _, megabytes in costs), default=0.0)
        rows.append((figure.id, len(runs), len(todo), minutes, peak))
    todo_total, minutes_total = (sum(row[k] for row in rows) for k in (2, 3))
    rows.append(
        ("all", len(seen), todo_total, minutes_total, max([0.0, *(row[4] for row in rows)]))
    )
    count = len(setting.seeds)
    title = f"scale {setting.scale}, {count} seed{'s' * (count > 1)}; estimated from probes"
    columns = ("figure", "runs", "to do", "minutes", "MiB per process")
    return Table(columns, tuple(rows), title=title)


def _known_or_probed(run: Run, kinds: dict[str, tuple[float, float]]) -> tuple[float, float]:
    kind = json.dumps(_without_seeds(run.tables), sort_keys=True, default=str)
    if kind not in kinds:
        kinds[kind] = probe(run.tables)
    return kinds[kind]


def _without_seeds(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_seeds(entry)
            for key, entry in value.items()
            if key not in ("seed", "split_seed")
        }
    return value
