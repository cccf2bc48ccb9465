"""What is stored in files: how to write a small one, and how to read it."""

import json
import warnings
from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse
import torch

import topofl
from tests import problems
from tests.rows import readers
from topofl import History, algorithms, config, topologies
from topofl._support.arrays import write_tensors
from topofl.engine import checkpoint
from topofl.engine.checkpoint import Checkpoint, naming_file
from topofl.history import files
from topofl.topology.files import read_graph


class Stored(NamedTuple):
    """How files are written to an empty folder, read, and given the checksums of their contents."""

    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    sign: Callable[[Path], object] | None = None


def run(algorithm=None, **more):
    """Return a run of two rounds on three nodes, unless told otherwise."""
    how = {"model": problems.linear(), "clients": problems.equal_clients(3), "rounds": 2, "seed": 0}
    how |= {"topology": topologies.ring(3), "every": 1, "device": "cpu", "executor": "batched"}
    dsgd = algorithms.dsgd(lr=0.1, batch_size=4, momentum=0.5)
    return topofl.run(algorithm or dsgd, **problems.options(**{"progress": False} | how | more))


ran = cache(run)


def trained(folder=None, *, checkpoints=2, resume=False, **more):
    """Return a run of seven rounds on six nodes, over graphs of a period, with checkpoints."""
    saving = None if folder is None else topofl.Saving(folder, every=checkpoints, resume=resume)
    graphs, clients = topologies.one_peer_exponential(6), problems.equal_clients()
    how = {"topology": graphs, "clients": clients, "rounds": 7, "every": 3, "saving": saving}
    return run(**how | more)


def stopped(folder, at, **more):
    """Train until an error in some round, after its checkpoint if that is due."""
    with pytest.raises(ZeroDivisionError):
        trained(folder, callbacks=[lambda event: 1 / (event.round - at)], **more)


def sign_history(folder):
    """Write the checksums of the files of a history into its meta.json."""
    path = folder / "run" / "meta.json"
    meta = {key: x for key, x in json.loads(path.read_text()).items() if key != "sha256"}
    path.unlink()
    path.write_text(json.dumps(files._with_checksums(meta, folder / "run")))


def unsign_history(folder):
    """Remove the checksums of a history, which older versions did not write."""
    path = folder / "run" / "meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({key: meta[key] for key in meta if key not in ("format", "sha256")}))


def save_older(folder):
    ran().save(folder / "run")
    unsign_history(folder)


def read_models(folder):
    return History.load(folder / "run").models.flat.clone()


def read_checkpoint(folder):
    """Continue from a checkpoint that must not be damaged, and return the finished run."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return run(saving=topofl.Saving(folder / "saved", resume=True))


def sign_checkpoint(folder, **changes):
    """Write the checksums of the files of the last checkpoint, and other entries, in its marker."""
    path = max(folder.rglob("marker.json"))
    marker = json.loads(path.read_text()) | changes
    del marker["checksum"]
    own = {file.name: sha256(file.read_bytes()).hexdigest() for file in path.parent.glob("*.safe*")}
    marker |= {"files": own} | changes
    path.write_text(json.dumps(marker | {"checksum": checkpoint.checksum_of(marker)}))


OWNER = np.array([0, 1, 2, 1, 0, 1])
"""The rank, of three, that writes the rows of each node."""


def write_rows(folder):
    """Write a checkpoint as three ranks do, and return it and its models (6, 5)."""
    models, place = torch.arange(30.0).view(6, 5), checkpoint.round_path(folder, 2)
    place.mkdir(parents=True)
    for rank in range(3):
        own = {"models": models[rank == OWNER], "mass": torch.ones(int((rank == OWNER).sum()))}
        write_tensors(place / f"rows-{rank}.safetensors", own, {})
    shared = {"owner": torch.from_numpy(OWNER)}
    write_tensors(place / "shared.safetensors", shared, {"values": "{}"})
    files = {f"rows-{rank}.safetensors": "" for rank in range(3)}
    return Checkpoint(place, {"files": files}), models


def read_rows(folder):
    place = checkpoint.round_path(folder, 2)
    found = Checkpoint(place, {"files": {f"rows-{rank}.safetensors": "" for rank in range(3)}})
    with naming_file(found):
        return found.state()["models"].of(np.arange(6))


def of_graph(suffix):
    def write(folder):
        graph = nx.Graph()
        graph.add_weighted_edges_from((u, (u + 1) % 5, 0.25) for u in range(5))
        path = folder / f"g.{suffix}"
        match suffix:
            case "csv":
                path.write_text("".join(f"{u},{(u + 1) % 5},0.25\n" for u in range(5)))
            case "npz":
                sparse.save_npz(path, nx.to_scipy_sparse_array(graph))
            case "npy":
                np.save(path, nx.to_numpy_array(graph))
            case "edgelist":
                nx.write_weighted_edgelist(graph, path)
            case _:
                getattr(nx, f"write_{suffix}")(graph, path)

    return Stored(write, lambda folder: read_graph(folder / f"g.{suffix}"))


def of_reader(row):
    """Return how a dataset is stored, without validation, for which too little may be left."""
    takes_val = "val" in getattr(row.read, "keywords", ())
    return Stored(row.write, partial(row.read, val=0) if takes_val else row.read)


TOML = 'topology = "ring"\n[data]\nname = "digits"\nn = 10\n[run]\nrounds = 1\n'


STORED = {
    "history": Stored(
        lambda folder: ran().save(folder / "run"),
        lambda folder: History.load(folder / "run"),
        sign_history,
    ),
    "older history": Stored(save_older, lambda folder: History.load(folder / "run")),
    "models": Stored(
        lambda folder: ran().save(folder / "run", models=True), read_models, sign_history
    ),
    "checkpoint": Stored(
        lambda folder: run(saving=folder / "saved"), read_checkpoint, sign_checkpoint
    ),
    "rows of ranks": Stored(write_rows, read_rows),
    **{
        f"graph {suffix}": of_graph(suffix)
        for suffix in ("graphml", "gml", "edgelist", "csv", "npz", "npy")
    },
    "toml": Stored(
        lambda folder: (folder / "run.toml").write_text(TOML),
        lambda folder: config.read(folder / "run.toml"),
    ),
    **{name: of_reader(row) for name, row in readers.ROWS.items()},
}
"""Files of each format; datasets are named after their readers."""

ODD = (b"", b"\0", b"\x1f\x8b", b"\x1f\x8b\x08" + bytes(30), b"PK\x03\x04", b"{}", b"\x80\x04.")

VALUES = (
    None,
    True,
    -1,
    0,
    3,
    2**50,
    10**30,
    0.5,
    -1e300,
    "",
    "a\nb",
    "\0",
    "é",
    [],
    [3],
    [[]],
    {},
)
VALUES += ({"a": 1}, {"x": [None]}, [0] * 5, "9" * 200)
"""Values that take the place of others in JSON."""


def damage(path, rng, others=()):
    """Change a file: cut it off, change it in places, or put something else in its place."""
    content, folder = path.read_bytes(), rng.integers(12) == 0
    if folder:
        path.unlink()
        path.mkdir() if rng.integers(2) else path.symlink_to(path.name)
    else:
        path.write_bytes(_changed(content, path, rng, others))


def _changed(content, path, rng, others):
    place = int(rng.integers(len(content) + 1))
    match rng.integers(8):
        case 0:
            return content[:place]
        case 1:
            return content + content[:place]
        case 2:
            return ODD[rng.integers(len(ODD))]
        case 3:
            return bytes(len(content))
        case 4 if others:
            return others[rng.integers(len(others))].read_bytes()
        case 5 | 6 if path.suffix in (".json", ".jsonl"):
            return _with_another_value(content, rng)
        case _:
            changed = bytearray(content)
            top = max(1, len(changed) if rng.integers(2) else min(len(changed), 200))
            for k in rng.integers(top, size=rng.integers(1, 6)):
                changed[k : k + 1] = bytes([rng.integers(256)])
            return bytes(changed)


def _with_another_value(content, rng):
    """Return lines of JSON with another value somewhere in one of them."""
    whole = [json.loads(content)] if content.count(b"\n{") == 0 else None
    lines = whole or [json.loads(line) for line in content.splitlines()]
    inner = lines[rng.integers(len(lines))]
    while True:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        key = keys[rng.integers(len(keys))]
        if rng.integers(2) or not isinstance(inner[key], list | dict) or not inner[key]:
            inner[key] = VALUES[rng.integers(len(VALUES))]
            return "\n".join(map(json.dumps, lines)).encode()
        inner = inner[key]
