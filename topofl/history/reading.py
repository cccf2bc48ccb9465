"""Read a history from a folder, including those of older versions, and check its files."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._columns import as_json, from_json
from topofl._matrices import Matrices, kept_of
from topofl._support.arrays import Header, read_arrays
from topofl._support.check import check_int, check_path
from topofl._support.files import remove_staging_folders
from topofl.history.columns import columns_by_name, why_not_scored
from topofl.history.places import (
    FILES,
    FORMAT,
    MODELS,
    OLD_MODELS,
    OURS,
    meta_sum,
    resolved,
    saved_in,
)

if TYPE_CHECKING:
    from topofl.history.history import History
    from topofl.trained import Trained

__all__ = ["load"]

DEEPEST = 20
"""Deepest nesting of JSON values that is accepted; settings of phases have depth 3."""

MISMATCHES = (
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    ValueError,
    OverflowError,
    RecursionError,
)
"""Errors that reading files which do not match each other may raise."""


def load(path: str | os.PathLike[str], make: Callable[..., "History"]) -> "History":
    """See :meth:`topofl.History.load`; `make` is the class to construct."""
    path = check_path("path", path)
    resolved(path)
    path = _found_in(path)
    for name in FILES:
        if not (path / name).is_file():
            raise FileNotFoundError(
                f"{path} is not a complete history: {name} is missing; give a folder that "
                "History.save or topofl run wrote"
            )
    if (path / OLD_MODELS).is_file():
        raise ValueError(
            f"{path / OLD_MODELS} has models in the format of an earlier version, which is not "
            "read; remove it to load the history without models, or run it again"
        )
    meta = _parse(path / "meta.json", _text(path / "meta.json"))
    sums = _checked_sums(path, meta)
    lines = _text(path / "rounds.jsonl").splitlines()
    records = [_parse(path / "rounds.jsonl", line, k) for k, line in enumerate(lines, start=1)]
    try:
        names = _check_meta(path / "meta.json", meta)
        expected = meta["n_rounds"] + 1
        if len(records) != expected:
            raise ValueError(
                f"{path / 'rounds.jsonl'} is half-written: it has {len(records)} lines, expected "
                f"{expected}"
            )
        expected_arrays = partial(
            _expected_arrays, meta["n_rounds"], len(names), meta.pop("arrays", None)
        )
        arrays = read_arrays(path / "arrays.npz", expected_arrays)
        return _assemble(path, meta, records, arrays, make, sums.get(MODELS, ""))
    except MISMATCHES as error:
        raise ValueError(
            f"{path} is damaged: meta.json, rounds.jsonl and arrays.npz do not match ({error!r})"
        ) from error


def _found_in(path: Path) -> Path:
    """Return the folder with the files, after removing what killed processes left next to it."""
    for place in (path / "history", path):
        if found := saved_in(place):
            remove_staging_folders(resolved(place), OURS, of_the_dead=True)
            return found
    remove_staging_folders(resolved(path), OURS, of_the_dead=True)
    return path


def _checked_sums(folder: Path, meta: dict[str, Any]) -> dict[str, str]:
    """Take the checksums out of a meta.json; raise unless all files but the models match.

    Histories of older versions have none.
    """
    if "format" not in meta and "sha256" not in meta:
        return {}
    sums = meta.get("sha256")
    if meta.get("format") != FORMAT or not isinstance(sums, dict):
        raise ValueError(
            f"{folder / 'meta.json'} is damaged or of a later version: its format must be {FORMAT}"
            "; run it again, or use the version that wrote it"
        )
    for name in FILES:
        if name == "meta.json":
            found = meta_sum(meta)
        else:
            with (folder / name).open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != sums.get(name):
            raise ValueError(
                f"{folder / name} is half-written or damaged: its SHA-256 is not the one in "
                "meta.json; run it again"
            )
    if (MODELS in sums) != (folder / MODELS).is_file():
        raise ValueError(
            f"{folder / MODELS} is missing or of another history; remove it, or run it again"
        )
    del meta["format"], meta["sha256"]
    return sums


def _check_meta(path: Path, meta: dict[str, Any]) -> list[str]:
    """Return the names of the matrices, or raise if entries of a meta.json have wrong types.

    Older versions wrote the columns of rounds as ``columns``; these become ``round_columns``.
    """
    check_int("n_rounds", meta["n_rounds"], minimum=0)
    if isinstance(meta["columns"], list):
        meta["round_columns"] = meta.pop("columns")
    else:
        from_json(meta["columns"])
    for key in ("round_columns", "matrices"):
        if not isinstance(meta[key], list) or not all(isinstance(name, str) for name in meta[key]):
            raise ValueError(f"{path}: {key} must be a list of names")
    types = {
        "algorithm": str,
        "topology": str,
        "diverged": list,
        "evaluation": dict,
        "attackers": dict,
        "server": bool,
    }
    for key, kind in types.items():
        if not isinstance(meta.get(key, kind()), kind):
            raise ValueError(f"{path}: {key} must be a {kind.__name__}")
    if "task" in meta and not _is_task(meta["task"]):
        raise ValueError(f"{path}: task must have scores, each high or low")
    if not _are_groups(meta.get("groups", [])):
        raise ValueError(f"{path}: groups must be lists of nodes, integers from 0")
    if not _are_labels(meta.get("nodes", []), meta.get("n")):
        raise ValueError(f"{path}: nodes must be one label for each node, texts or integers")
    if not _is_share(meta.get("largest_share", [0, 0.0])):
        raise ValueError(f"{path}: largest_share must have a node and a number")
    nodes = meta.get("attackers", {}).get("nodes", [])
    if not isinstance(nodes, list) or not all(type(node) is int and node >= 0 for node in nodes):
        raise ValueError(f"{path}: attackers must have nodes, integers from 0")
    return meta["matrices"]


def _are_labels(labels: Any, n: Any) -> bool:
    """Return whether an entry of a meta.json holds labels of all nodes, or none."""
    if not isinstance(labels, list) or not all(isinstance(label, str | int) for label in labels):
        return False
    return len(labels) in (0, n)


def _are_groups(groups: Any) -> bool:
    """Return whether an entry of a meta.json holds groups of nodes."""
    return isinstance(groups, list) and all(
        isinstance(group, list) and all(type(node) is int and node >= 0 for node in group)
        for group in groups
    )


def _is_share(share: Any) -> bool:
    """Return whether an entry of a meta.json holds a node and its share."""
    return (
        isinstance(share, list)
        and list(map(type, share)) == [int, float]
        and share[0] >= 0
        and 0 <= share[1] <= 1
    )


def _is_task(task: Any) -> bool:
    """Return whether an entry of a meta.json describes a task with its scores."""
    scores = task.get("scores") if isinstance(task, dict) else None
    if not isinstance(scores, dict) or "loss" not in scores:
        return False
    return set(map(str, scores.values())) <= {"high", "low"}


def _expected_arrays(
    n_rounds: int, matrices: int, listed: list[str] | None, headers: Mapping[str, Header]
) -> list[str]:
    """Return the names of a history's arrays, or raise if shapes or dtypes do not match.

    Parameters
    ----------
    n_rounds, matrices
        Number of rounds, and of distinct mixing matrices.
    listed
        Names of the arrays in meta.json; None: an older version wrote it. Others are not read.
    headers
        Shape and dtype of each array in the file.
    """
    rounds, n = headers["node_loss"].shape
    shapes = {"node_loss": {(n_rounds, n)}, "matrix_of_round": {(n_rounds,), (0,)}}
    evaluated = headers["evaluation.round"].shape[0]
    for name in headers:
        if name.startswith("evaluation.") and (listed is None or name in listed):
            shapes[name] = {(evaluated,), (evaluated, n)}
    for k in range(matrices):
        rows = headers[f"matrix.{k}.indptr"].size
        entries = headers[f"matrix.{k}.data"].size
        if not (2 <= rows <= n + 1 and entries <= (rows - 1) * n):
            raise ValueError(f"matrix.{k} must have at most n={n} rows of at most n entries")
        shapes[f"matrix.{k}.data"] = {(entries,)}
        shapes[f"matrix.{k}.indices"] = {(entries,)}
        shapes[f"matrix.{k}.indptr"] = {(rows,)}
        if rows < n + 1:
            shapes[f"matrix.{k}.row_of"] = {(n,)}
    for name, allowed in shapes.items():
        header = headers[name]
        if header.shape not in allowed or header.dtype.kind not in "iuf":
            raise ValueError(
                f"{name} does not match: it has shape {header.shape} and dtype {header.dtype}"
            )
    if rounds != n_rounds or evaluated > n_rounds + 1:
        raise ValueError(
            f"arrays must have {n_rounds} rounds, got losses of {rounds} rounds and {evaluated} "
            "evaluations"
        )
    return list(shapes)


def _assemble(
    path: Path,
    meta: dict[str, Any],
    records: list[dict[str, Any]],
    arrays: dict[str, np.ndarray],
    make: Callable[..., "History"],
    sum_of_models: str,
) -> "History":
    """Return the history from the contents of its files, or raise if they do not match."""
    n = arrays["node_loss"].shape[1]
    del meta["n_rounds"]
    rounds = {}
    for name in meta.pop("round_columns"):
        values = [record[name] for record in records[1:]]
        rounds[name] = np.array([np.nan if value is None else value for value in values])
    evaluations = _with_prefix(arrays, "evaluation.")
    meta.setdefault("columns", as_json(columns_by_name(meta, evaluations)))
    names = meta.pop("matrices")
    parts = [_with_prefix(arrays, f"matrix.{k}.") for k in range(len(names))]
    matrices = [kept_of(part, n, name) for part, name in zip(parts, names, strict=True)]
    history = make(
        meta,
        rounds,
        evaluations,
        arrays["node_loss"],
        Matrices(matrices),
        arrays["matrix_of_round"],
        _models_in(path, n, sum_of_models),
    )
    if part := _mismatch(history):
        raise ValueError(f"{part} is missing or does not match the rest; run it again")
    return history


def _with_prefix(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names have a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _models_in(folder: Path, n: int, checksum: str) -> "Trained | None":
    """Return the models of n nodes saved in a folder; None if there are none."""
    if not (folder / MODELS).is_file():
        return None
    from topofl.trained import Trained  # imports torch, which numbers do not need

    return Trained.load(folder / MODELS, n, checksum)


def _mismatch(history: "History") -> str:
    """Return the name of the first part that does not match the others; empty if all do."""
    for name in ("train_loss", "messages", "bytes"):
        if name not in history.rounds:
            return name
    for name, column in history.rounds.items():
        if column.shape != (history.n_rounds,) or column.dtype.kind not in "iuf":
            return name
    shape, named = (len(history.evaluations["round"]), history.node_loss.shape[1]), []
    if not why_not_scored(history):
        shape, named = history.evaluations[history.primary].shape, [*history.scores]
    for name in ("round", *named, *history.score_columns, *history.evaluations):
        values = history.evaluations[name]
        expected = shape if values.ndim == 2 else shape[:1]
        if values.shape != expected or values.dtype.kind not in "iuf":
            return name
    indices = history.matrix_of_round
    if history.matrices:
        if indices.shape != (history.n_rounds,) or indices.dtype.kind not in "iu":
            return "matrix_of_round"
        if not ((indices >= 0) & (indices < len(history.matrices))).all():
            return "matrix_of_round"
    if len(shape) != 2 or history.node_loss.shape[1:] != shape[1:]:
        return history.primary
    return ""


def _text(path: Path) -> str:
    """Return the text of a file, or raise ``ValueError`` if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: {error}; run it again") from error


def _parse(path: Path, text: str, line: int | None = None) -> dict[str, Any]:
    """Return a JSON object, or raise ``ValueError`` naming the file and line."""
    try:
        value = json.loads(text)
        too_deep = _is_deeper(value, DEEPEST)
    except (MemoryError, RecursionError, ValueError) as error:  # also numbers of 10,000 digits
        where = f" in line {line}" if line else ""
        raise ValueError(
            f"{path} is half-written or damaged{where}: {error}; run it again"
        ) from error
    if too_deep:
        raise ValueError(f"{path} is damaged: expected a JSON object nested at most {DEEPEST} deep")
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: expected a JSON object, got {type(value).__name__}")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    """Return whether lists and objects are nested deeper than `depth`."""
    layer = [value]
    for _ in range(depth):
        layer = [entry for container in layer for entry in _entries(container)]
    return any(isinstance(entry, dict | list) for entry in layer)


def _entries(container: Any) -> Iterable[Any]:
    """Return the entries of a list or an object; nothing for other values."""
    if isinstance(container, dict):
        return container.values()
    return container if isinstance(container, list) else ()
