"""Compute, draw and judge figures one after another."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from topofl import Table
from topofl.runs.identity import Run

from . import drawing
from .claims import Claim, claims_table
from .figure import Figure
from .figure_data import computed, needed, note_of, write_text
from .results import LeftOut, Result
from .setting import Setting
from .training.compute import Failed, compute_missing
from .training.earlier_report import load_earlier_report
from .training.keys import keyed
from .training.store import Store


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
        As for :func:`paper_figures.kit.training.compute.compute_missing`.

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
    folder = Path(out) / setting.scale
    planned = {figure.id: keyed(figure.runs(setting)) for figure in figures}
    for each in (store.root, folder):
        _make_folder(each)
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


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(
            f"`--out` must be a writable folder, got {path}: {error.strerror}"
        ) from error


def missing_data(figure: Figure, setting: Setting) -> str:
    """Return why a figure cannot be computed; empty if at least one of its panels can."""
    lacking = [name for name in figure.datasets if name not in setting.datasets]
    if figure.datasets and len(lacking) == len(figure.datasets):
        return (
            f"needs the files of {' or '.join(lacking)}; give the folder that contains them with "
            "--data"
        )
    if figure.runs is not Figure.__dataclass_fields__["runs"].default and not figure.runs(setting):
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
    head = [
        f"# {figure.id}: {figure.title}",
        f"Scale {setting.scale}, seeds {', '.join(map(str, setting.seeds))}.",
    ]
    differences = "\n".join(f"- {text}" for text in figure.differences(setting))
    parts = [
        *head,
        claims_table(claims).to_markdown(),
        differences,
        *(table.to_markdown() for table in tables),
    ]
    return "\n\n".join(parts) + "\n"


def _distinct(notes: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the distinct environments of runs, ignoring when they finished."""
    environments = {
        json.dumps({k: v for k, v in note.items() if k != "finished"}, sort_keys=True)
        for note in notes
    }
    return tuple(json.loads(text) for text in sorted(environments))
