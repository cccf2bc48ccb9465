"""Numbers of an earlier report, used in place of training the same runs again.

A figure's JSON file contains the keys of its runs, hashes of everything that determines them.
Numbers of runs with the same keys are read from the file; all other runs are trained.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class EarlierReport:
    """Contents of the JSON files of figures.

    Parameters
    ----------
    figures
        Contents of whole files by the figure's key, a hash of everything that determines its data.
    arms
        Curves of an arm as the figure stored them, by the keys of its runs, one per seed.
    notes
        Cost and environment of runs by key: ``seconds``, ``megabytes`` and, if recorded, ``made``.
    """

    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    arms: Mapping[tuple[str, ...], Mapping[str, Any]] = field(default_factory=dict)
    notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load_earlier_report(folder: str | Path | None) -> EarlierReport:
    """Return the contents of the figures' JSON files in a folder; empty if it is None.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or contains no such file.
    ValueError
        If a file is damaged.
    """
    if folder is None:
        return EarlierReport()
    files = [_content(path) for path in sorted(Path(folder).glob("*.json"))]
    figures = [file for file in files if isinstance(file, dict) and {"key", "data"} <= set(file)]
    if not figures:
        raise FileNotFoundError(
            "`kept` must be a folder with the JSON files of an earlier report, found none in "
            f"{folder}"
        )
    arms = {keys: entry for file in figures for keys, entry in _arms(file)}
    notes = {key: note for keys, entry in arms.items() for key, note in _costs(keys, entry)}
    notes |= {key: note for file in figures for key, note in file.get("notes", {}).items()}
    return EarlierReport({file["key"]: file for file in figures}, arms, notes)


def _content(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged: {error}; create it again, or choose another folder"
        ) from error


def _arms(file: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the keys of each arm's runs and its curves, in the order of the file.

    Runs are in the order of the arms, seed by seed. Nothing is yielded for files whose arms share
    runs, because their runs cannot be assigned.
    """
    data = file["data"].get("panels", file["data"])
    panels = [panel for panel in data.values() if isinstance(panel, dict)]
    entries = [entry for panel in panels for entry in panel.values()]
    runs, seeds = file.get("runs", {}), list(file["seeds"])
    if not entries or not all(map(_curves_of, entries)) or len(runs) != len(entries) * len(seeds):
        return
    keys = iter(runs)
    for entry in entries:
        own = tuple(next(keys) for _ in seeds)
        if any(
            [runs[key]["run"]["seed"] for key in own] != curve["seeds"]
            for curve in _curves_of(entry)
        ):
            raise ValueError(
                f"the file of {file['figure']} is damaged: the seeds of its runs and curves differ"
            )
        yield own, entry


def _curves_of(entry: Any) -> Sequence[Mapping[str, Any]]:
    """Return the curves of an arm, one in all or one per stage; empty for other contents."""
    if not isinstance(entry, dict):
        return []
    found = [entry] if "epochs" in entry else list(entry.values())
    return found if all(isinstance(curve, dict) and "epochs" in curve for curve in found) else []


def _costs(keys: Sequence[str], entry: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    numbers = _curves_of(entry)[0]["numbers"]
    for seed, key in enumerate(keys):
        costs = {name: numbers[name][seed] for name in ("seconds", "megabytes") if name in numbers}
        yield key, costs
