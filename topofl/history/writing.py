"""Write a history to a folder."""

import hashlib
import json
import math
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._columns import as_json
from topofl._matrices import Matrices, Packed, kept
from topofl._support.check import check_path, check_switch
from topofl._support.files import (
    make_staging_folder,
    naming,
    remove_staging_folders,
    replace_folder,
    sync_file,
    sync_folder,
)
from topofl.history.frames import records
from topofl.history.places import FORMAT, MODELS, OURS, check_replaceable, meta_sum, resolved

if TYPE_CHECKING:
    from topofl.history.history import History

__all__ = ["save"]

_OWN = frozenset({"arrays", "format", "matrices", "n_rounds", "round_columns", "sha256"})
"""Entries of a meta.json that are not those of the history's `meta`."""


def save(
    history: "History", path: str | os.PathLike[str], *, overwrite: bool, models: bool
) -> Path:
    """See :meth:`topofl.History.save`."""
    check_switch("models", models, auto=False)
    if models and history.models is None:
        raise ValueError(
            "`models` must be False for a history without models, got True; leave it out"
        )
    if taken := sorted(_OWN & set(history.meta)):
        raise ValueError(
            f"`meta` must not have entries of the names that meta.json has for other things, got "
            f"{', '.join(map(repr, taken))}; name them otherwise"
        )
    place = resolved(check_path("path", path))  # a link stays; its target is replaced
    check_replaceable(place, overwrite=overwrite)
    place.parent.mkdir(parents=True, exist_ok=True)
    remove_staging_folders(place, OURS, of_the_dead=True)
    complete = make_staging_folder(place)
    try:
        with naming(place):
            _write(history, complete, models=models)
        umask = os.umask(0)
        os.umask(umask)
        complete.chmod(0o777 & ~umask)  # mkdtemp gives access to the owner only
        replace_folder(complete, place, OURS)
    finally:
        shutil.rmtree(complete, ignore_errors=True)
    return Path(path)


def _write(history: "History", folder: Path, *, models: bool) -> None:
    """Write all files of a history to a new folder."""
    if isinstance(history.matrices, Matrices):
        matrices = history.matrices.kept
    else:  # from a user
        matrices = [kept(matrix) for matrix in history.matrices]
    extra = {
        "n_rounds": history.n_rounds,
        "columns": as_json(history.score_columns),
        "round_columns": list(history.rounds),
        "matrices": [matrix.name for matrix in matrices],
    }
    lines = [
        json.dumps({name: _finite(value) for name, value in record.items()}, allow_nan=False)
        for record in records(history)
    ]
    (folder / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    arrays = {"node_loss": history.node_loss, "matrix_of_round": history.matrix_of_round}
    for name, values in history.evaluations.items():
        arrays[f"evaluation.{name}"] = values
    for k, matrix in enumerate(matrices):
        for part in ("data", "indices", "indptr"):
            arrays[f"matrix.{k}.{part}"] = getattr(matrix.weights, part)
        if isinstance(matrix, Packed):
            arrays[f"matrix.{k}.row_of"] = matrix.row_of
    extra["arrays"] = list(arrays)
    np.savez_compressed(folder / "arrays.npz", **arrays)  # pyright: ignore[reportArgumentType]
    if models and history.models is not None:
        history.models.save(folder / MODELS)
    meta = _with_checksums(json.loads(json.dumps(dict(history.meta) | extra)), folder)
    (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    for path in folder.iterdir():
        sync_file(path)
    sync_folder(folder)


def _with_checksums(meta: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the entries of a meta.json, with the SHA-256 of all files of its folder."""
    sums = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as stream:
            sums[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    meta = meta | {"format": FORMAT, "sha256": sums}
    return meta | {"sha256": sums | {"meta.json": meta_sum(meta)}}


def _finite(value: Any) -> Any:
    """Return a value, or None for NaN and infinite numbers, which JSON lacks."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
