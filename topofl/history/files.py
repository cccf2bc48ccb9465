"""The folder of a saved history: read any version, check, write, and replace."""

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from topofl._columns import from_json
from topofl._support.arrays import Header, read_arrays
from topofl._support.check import check_int, check_path, shown
from topofl._support.files import (
    backup_path,
    holds_only,
    make_staging_folder,
    naming,
    remove_staging_folders,
    replace_folder,
    sync_file,
    sync_folder,
)
from topofl.history.matrices import Matrices, arrays_of, kept, kept_of
from topofl.history.statistics import records_of

if TYPE_CHECKING:
    from topofl.history.record import Record

_H = TypeVar("_H")

FILES = ("meta.json", "rounds.jsonl", "arrays.npz")
"""The files of a saved history."""

_FORMAT = 2
"""Format of histories with checksums; without ``format`` in meta.json they have none."""

MODELS = "models.safetensors"
"""The file of models, if they were also saved."""

_OLD_MODELS = "models.pt"
"""The file of models of earlier versions, which is not read."""

OURS = re.compile("|".join(map(re.escape, (*FILES, MODELS, _OLD_MODELS))))
"""Names of all files in a folder that contains only a history, complete or not."""

_OWN = frozenset({"arrays", "format", "matrices", "n_rounds", "round_columns", "sha256"})
"""Entries of a meta.json that are not those of the history's `meta`."""

_DEEPEST = 20
"""Deepest nesting of JSON values that is accepted; settings of phases have depth 3."""

_MISMATCHES = (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)
"""Errors that reading files which do not match each other may raise."""


def saved_in(folder: Path) -> Path | None:
    """Return the folder with the files of the history saved as `folder`; None if there is none.

    The two differ only if a process was killed while it replaced one history by another.

    Examples
    --------
    >>> saved_in(Path("no-such-history")) is None
    True
    """
    if (folder / "meta.json").is_file():
        return folder
    older = backup_path(_resolved(folder))
    return older if (older / "meta.json").is_file() and holds_only(older, OURS) else None


def check_replaceable(folder: Path, *, overwrite: bool = False) -> None:
    """Raise unless a history may replace `folder` without the loss of anything else.

    Raises
    ------
    FileExistsError
        If it is a file, or contains anything else and `overwrite` is False.
    ValueError
        If it is the current folder or one above it, since the process would be left in a removed
        folder.

    Examples
    --------
    >>> check_replaceable(Path("no-such-history"))
    >>> check_replaceable(Path.cwd())
    Traceback (most recent call last):
    ValueError: `path` must not be the current folder or one above it, ...
    """
    if not folder.exists():
        return
    current = []
    with suppress(FileNotFoundError):  # it was removed
        current = [Path.cwd(), *Path.cwd().parents]
    if folder.resolve() in current:
        raise ValueError(
            "`path` must not be the current folder or one above it, since the whole folder is "
            f"replaced, got {folder}; name a folder in it, or change to another folder first"
        )
    if not folder.is_dir():
        raise FileExistsError(f"`path` must be a folder, got the file {folder}; name another path")
    found = sorted(folder.iterdir())
    others = [path.name for path in found if not OURS.fullmatch(path.name) or not path.is_file()]
    missing = [name for name in FILES if not (folder / name).is_file()]
    if overwrite or not found or not (others or missing):
        return
    what = f"also contains {others[0]}" if others else f"has no {missing[0]}"
    what += f" ({len(others) - 1} more)" if len(others) > 1 else ""
    raise FileExistsError(
        f"`path` must be new or contain only an older history, {folder} {what}; name another "
        "folder, or give overwrite=True, which removes everything in it"
    )


def _resolved(path: Path) -> Path:
    """Return a path with links resolved; raise ``ValueError`` for links that form a loop."""
    with suppress(RuntimeError):  # before Python 3.13; later versions return such a link
        place = path.resolve()
        if not place.is_symlink():
            return place
    raise ValueError(
        f"`path` must be a folder, got {shown(str(path))}, a link that leads back to itself; "
        "remove it"
    )


def load(path: str | os.PathLike[str], make: Callable[..., _H]) -> _H:
    """Return what `make` makes of the parts of a saved history: the fields of a History, in order.

    Errors are those of :meth:`topofl.History.load`; those of `make` say that the files are damaged.
    """
    path = check_path("path", path)
    _resolved(path)
    path = _found_in(path)
    for name in FILES:
        if not (path / name).is_file():
            raise FileNotFoundError(
                f"{path} is not a complete history: {name} is missing; give a folder that "
                "History.save or topofl run wrote"
            )
    if (path / _OLD_MODELS).is_file():
        raise ValueError(
            f"{path / _OLD_MODELS} has models in the format of an earlier version, which is not "
            "read; remove it to load the history without models, or run it again"
        )
    meta, *_ = _objects_in(path / "meta.json", per_line=False)
    sums = _checked_sums(path, meta)
    records = _objects_in(path / "rounds.jsonl", per_line=True)
    try:
        return make(*_parts(path, meta, records, sums.get(MODELS, "")))
    except _MISMATCHES as error:
        raise ValueError(
            f"{path} is damaged: meta.json, rounds.jsonl and arrays.npz do not match ({error!r})"
        ) from error


def _parts(
    path: Path, meta: dict[str, Any], records: Sequence[Mapping[str, Any]], sum_of_models: str
) -> tuple[Any, ...]:
    """Return the fields of a History from its files, or raise if these do not match."""
    _check_meta(path / "meta.json", meta)
    names, n_rounds = meta.pop("matrices"), meta.pop("n_rounds")
    if len(records) != n_rounds + 1:
        raise ValueError(
            f"{path / 'rounds.jsonl'} is half-written: it has {len(records)} lines, expected "
            f"{n_rounds + 1}"
        )
    expected = partial(_expected_arrays, n_rounds, len(names), meta.pop("arrays", None))
    arrays = read_arrays(path / "arrays.npz", expected)
    n = arrays["node_loss"].shape[1]
    rounds = {name: _column(records, name) for name in meta.pop("round_columns")}
    matrices = [kept_of(_part(arrays, f"matrix.{k}."), n, name) for k, name in enumerate(names)]
    models = None
    if (path / MODELS).is_file():
        from topofl.trained import Trained  # imports torch, which numbers do not need

        models = Trained.load(path / MODELS, n, sum_of_models)
    indices = _indices(arrays["matrix_of_round"], n_rounds, len(names))
    evaluations = _part(arrays, "evaluation.")
    return meta, rounds, evaluations, arrays["node_loss"], Matrices(matrices), indices, models


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names have a prefix, by the rest of their names."""
    own = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): array for name, array in own.items()}


def _found_in(path: Path) -> Path:
    """Return the folder with the files, after removing what killed processes left next to it."""
    found = {place: saved_in(place) for place in (path / "history", path)}
    place = next((place for place in found if found[place]), path)
    remove_staging_folders(_resolved(place), OURS, of_the_dead=True)
    return found[place] or path


def _objects_in(path: Path, *, per_line: bool) -> list[dict[str, Any]]:
    """Return the JSON objects in a file, one per line or a single one.

    Raises
    ------
    ValueError
        If it is damaged, naming the file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: {error}; run it again") from error
    found = []
    for k, part in enumerate(text.splitlines() if per_line else [text], start=1):
        try:
            value = json.loads(part)
        except (MemoryError, RecursionError, ValueError) as error:  # also of 10,000 digits
            where = f" in line {k}" if per_line else ""
            raise ValueError(
                f"{path} is half-written or damaged{where}: {error}; run it again"
            ) from error
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise ValueError(f"{path} is damaged: expected a JSON object, got {kind}")
        layer = [value]
        for _ in range(_DEEPEST):
            inner = [one.values() if isinstance(one, dict) else one for one in layer]
            layer = [x for entries in inner for x in entries if isinstance(x, dict | list)]
        if layer:
            raise ValueError(
                f"{path} is damaged: expected a JSON object nested at most {_DEEPEST} deep"
            )
        found.append(value)
    return found


def _checked_sums(folder: Path, meta: dict[str, Any]) -> dict[str, str]:
    """Take the checksums out of a meta.json; raise unless all files but the models match.

    Histories of older versions have none.
    """
    if "format" not in meta and "sha256" not in meta:
        return {}
    sums = meta.get("sha256")
    if meta.get("format") != _FORMAT or not isinstance(sums, dict):
        raise ValueError(
            f"{folder / 'meta.json'} is damaged or of a later version: its format must be {_FORMAT}"
            "; run it again, or use the version that wrote it"
        )
    for name in FILES:
        if sums.get(name) != (_meta_sum(meta) if name == "meta.json" else _sum_of(folder / name)):
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


def _sum_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _meta_sum(meta: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the entries of a meta.json, without the checksum itself."""
    sums = {name: one for name, one in meta["sha256"].items() if name != "meta.json"}
    return hashlib.sha256(json.dumps({**meta, "sha256": sums}, sort_keys=True).encode()).hexdigest()


def _check_meta(path: Path, meta: dict[str, Any]) -> None:
    """Raise if entries of a meta.json have wrong types or values.

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
    for key, (is_valid, requirement) in _REQUIREMENTS.items():
        if key in meta and not is_valid(meta[key]):
            raise ValueError(f"{path}: {key} must {requirement}")
    if meta.get("nodes") and len(meta["nodes"]) != meta.get("n"):
        raise ValueError(f"{path}: nodes must be one label for each node, texts or integers")


def _are_nodes(value: Any) -> bool:
    """Return whether a value is a list of nodes."""
    return isinstance(value, list) and all(type(node) is int and node >= 0 for node in value)


def _are_scores(task: Any) -> bool:
    """Return whether a value describes a task with its scores."""
    scores = task.get("scores") if isinstance(task, dict) else None
    known = {"high", "low"}
    return isinstance(scores, dict) and "loss" in scores and set(map(str, scores.values())) <= known


def _is_share(value: Any) -> bool:
    """Return whether a value is a node and its share."""
    is_pair = isinstance(value, list) and list(map(type, value)) == [int, float]
    return is_pair and value[0] >= 0 and 0 <= value[1] <= 1


def _is_a(kind: type) -> tuple[Callable[[Any], bool], str]:
    return lambda value: isinstance(value, kind), f"be a {kind.__name__}"


_REQUIREMENTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "algorithm": _is_a(str),
    "topology": _is_a(str),
    "diverged": _is_a(list),
    "evaluation": _is_a(dict),
    "server": _is_a(bool),
    "task": (_are_scores, "have scores, each high or low"),
    "groups": (
        lambda value: isinstance(value, list) and all(map(_are_nodes, value)),
        "be lists of nodes, integers from 0",
    ),
    "nodes": (
        lambda value: isinstance(value, list) and all(isinstance(x, str | int) for x in value),
        "be one label for each node, texts or integers",
    ),
    "largest_share": (_is_share, "have a node and a number"),
    "attackers": (
        lambda value: isinstance(value, dict) and _are_nodes(value.get("nodes", [])),
        "have nodes, integers from 0",
    ),
}
"""Entries of a meta.json that it may lack, what they must be, and how messages say so."""


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
        sizes = {"data": entries, "indices": entries, "indptr": rows}
        sizes |= {"row_of": n} if rows < n + 1 else {}
        shapes |= {f"matrix.{k}.{part}": {(size,)} for part, size in sizes.items()}
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


def _column(records: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """Return a column of rounds; null stands for NaN."""
    values = [record[name] for record in records[1:]]
    column = np.array([np.nan if value is None else value for value in values])
    if column.shape != (len(values),) or column.dtype.kind not in "iuf":
        raise ValueError(f"{name} is missing or does not match the rest; run it again")
    return column


def _indices(matrix_of_round: np.ndarray, n_rounds: int, matrices: int) -> np.ndarray:
    """Return the number of each round's matrix, or raise if there is no such matrix."""
    if matrices and (
        matrix_of_round.shape != (n_rounds,)
        or matrix_of_round.dtype.kind not in "iu"
        or ((matrix_of_round < 0) | (matrix_of_round >= matrices)).any()
    ):
        raise ValueError("matrix_of_round is missing or does not match the rest; run it again")
    return matrix_of_round


def save(
    path: str | os.PathLike[str],
    history: "Record",
    meta: Mapping[str, Any],
    *,
    overwrite: bool,
    models: bool,
) -> Path:
    """Write a history with this `meta` to a folder; see :meth:`topofl.History.save`."""
    if taken := sorted(_OWN & set(meta)):
        raise ValueError(
            f"`meta` must not have entries of the names that meta.json has for other things, got "
            f"{', '.join(map(repr, taken))}; name them otherwise"
        )
    place = _resolved(check_path("path", path))  # a link stays; its target is replaced
    check_replaceable(place, overwrite=overwrite)
    place.parent.mkdir(parents=True, exist_ok=True)
    remove_staging_folders(place, OURS, of_the_dead=True)
    matrices = history.matrices
    stored = matrices.kept if isinstance(matrices, Matrices) else list(map(kept, matrices))
    arrays = {"node_loss": history.node_loss, "matrix_of_round": history.matrix_of_round}
    arrays |= {f"evaluation.{name}": values for name, values in history.evaluations.items()}
    for k, matrix in enumerate(stored):
        arrays |= {f"matrix.{k}.{part}": array for part, array in arrays_of(matrix).items()}
    own = {
        "n_rounds": history.n_rounds,
        "round_columns": list(history.rounds),
        "matrices": [matrix.name for matrix in stored],
        "arrays": list(arrays),
    }
    folder = make_staging_folder(place)
    try:
        with naming(place):
            _write(folder, history, arrays, {**meta, **own}, models=models)
        umask = os.umask(0)
        os.umask(umask)
        folder.chmod(0o777 & ~umask)  # mkdtemp gives access to the owner only
        replace_folder(folder, place, OURS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Path(path)


def _write(
    folder: Path,
    history: "Record",
    arrays: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
    *,
    models: bool,
) -> None:
    """Write the files of a history to an empty folder, and to the disk."""
    lines = [
        json.dumps({name: _finite(value) for name, value in record.items()}, allow_nan=False)
        for record in records_of(history.rounds, history.evaluations, history.n_rounds)
    ]
    (folder / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    np.savez_compressed(folder / "arrays.npz", **arrays)  # pyright: ignore[reportArgumentType]
    if models and history.models is not None:
        history.models.save(folder / MODELS)
    written = _with_checksums(json.loads(json.dumps(meta)), folder)
    (folder / "meta.json").write_text(json.dumps(written, indent=2) + "\n")
    for file in folder.iterdir():
        sync_file(file)
    sync_folder(folder)


def _with_checksums(meta: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the entries of a meta.json, with the SHA-256 of all files of its folder."""
    sums = {path.name: _sum_of(path) for path in sorted(folder.iterdir())}
    meta = meta | {"format": _FORMAT, "sha256": sums}
    return meta | {"sha256": sums | {"meta.json": _meta_sum(meta)}}


def _finite(value: Any) -> Any:
    """Return a value, or None for NaN and infinite numbers, which JSON lacks."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
