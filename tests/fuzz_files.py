"""Read damaged files of every kind with little memory: ``python -m tests.fuzz_files FOLDER 300 0``.

Prints one JSON object a file: whether it was read or refused, and the message. A crash, a hang or
any other error is seen by the caller, :mod:`tests.test_fuzz_files`.
"""

import gzip
import json
import os
import pickle
import resource
import shutil
import signal
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import scipy.sparse as sparse
import torch
from PIL import Image

from tests.test_fuzz_stored import idx, saved_history
from topofl import History, config, data
from topofl.data.readers.cifar import load_pickle
from topofl.topology.files import read_graph

ROOM = 2**28
"""Bytes of address space that reading may add."""

PATIENCE = 20
"""Seconds for a file."""

BOMB = 2**33
"""Bytes that small files promise."""


def png(width: int, height: int) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + name
            + content
            + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(10**6)))
        + chunk(b"IEND", b"")
    )


def zeros(size: int, before: bytes = b"") -> bytes:
    """Return gzip that holds some bytes and then so many zeros, in members of a mebibyte."""
    return gzip.compress(before) + gzip.compress(bytes(2**20)) * (size // 2**20)


def save_images(folder: Path) -> tuple[list[Path], Callable[[], object]]:
    rng = np.random.default_rng(0)
    for name in ("a/0.png", "a/1.jpg", "b/0.png"):
        (folder / "train" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 8, 3)).astype(np.uint8)).save(
            folder / "train" / name
        )
    return sorted(folder.rglob("*.*")), lambda: data.image_folder(
        folder, size=(8, 8), cache=folder / "cache"
    )


def save_idx(folder: Path) -> tuple[list[Path], Callable[[], object]]:
    (folder / "raw").write_bytes(idx(np.arange(120, dtype=np.uint8).reshape(2, 3, 20)))
    (folder / "packed").write_bytes(gzip.compress((folder / "raw").read_bytes()))
    return [folder / "raw", folder / "packed"], lambda: [
        data.read_idx(folder / name) for name in ("raw", "packed")
    ]


def save_pickle(folder: Path) -> tuple[list[Path], Callable[[], object]]:
    batch = {
        "data": np.arange(12, dtype=np.uint8).reshape(3, 4),
        "labels": [1, 2, 3],
        "filenames": ["a", "b", "c"],
    }
    (folder / "batch").write_bytes(pickle.dumps(batch, protocol=3))
    return [folder / "batch"], lambda: load_pickle(folder / "batch")


def save_json(folder: Path) -> tuple[list[Path], Callable[[], object]]:
    (folder / "train").mkdir()
    writers = {
        "ann": {"x": [[1.0] * 784, [0.2] * 784], "y": [0, 61]},
        "bob": {"x": [[0] * 784], "y": [9]},
    }
    content = {"users": list(writers), "num_samples": [2, 1], "user_data": writers}
    (folder / "train" / "all.json").write_text(json.dumps(content))
    return [folder / "train" / "all.json"], lambda: data.femnist(folder)


def save_history(folder: Path) -> tuple[list[Path], Callable[[], object]]:
    saved_history(folder)
    return sorted((folder / "run").iterdir()), lambda: History.load(folder / "run")


def save_graphs(folder: Path) -> tuple[list[Path], Callable[[], object]]:
    graph = nx.Graph()
    graph.add_weighted_edges_from((u, (u + 1) % 5, 0.25) for u in range(5))
    nx.write_graphml(graph, folder / "g.graphml")
    nx.write_gml(graph, folder / "g.gml")
    nx.write_weighted_edgelist(graph, folder / "g.edgelist")
    sparse.save_npz(folder / "g.npz", nx.to_scipy_sparse_array(graph))
    np.save(folder / "g.npy", nx.to_numpy_array(graph))
    paths = sorted(folder.iterdir())
    return paths, lambda: [read_graph(path) for path in paths]


def save_toml(folder: Path) -> tuple[list[Path], Callable[[], object]]:
    (folder / "run.toml").write_text(
        'topology = "ring"\n[data]\nname = "digits"\nn = 10\n[run]\nrounds = 1\n'
    )
    return [folder / "run.toml"], lambda: config.read(folder / "run.toml")


KINDS = {
    "images": save_images,
    "idx": save_idx,
    "pickle": save_pickle,
    "json": save_json,
    "history": save_history,
    "graphs": save_graphs,
    "toml": save_toml,
}


def damaged(content: bytes, path: Path, rng: np.random.Generator) -> bytes:
    """Return the content changed, cut off or repeated, or one that promises gigabytes."""
    match rng.integers(6):
        case 0:
            return content[: rng.integers(len(content) + 1)]
        case 1:
            return content + content[: rng.integers(len(content) + 1)]
        case 2:
            return bomb(path, rng)
        case _:
            changed = bytearray(content)
            top = len(changed) if rng.integers(2) else min(len(changed), 200)
            for place in rng.integers(max(1, top), size=rng.integers(1, 6)):
                if changed:
                    changed[place] = rng.integers(256)
            return bytes(changed)


def bomb(path: Path, rng: np.random.Generator) -> bytes:
    """Return kilobytes or megabytes that promise far more, in the format expected at `path`."""
    if path.suffix in (".png", ".jpg"):
        return png(
            int(rng.choice([20_000, 60_000, 2**31 - 1])), int(rng.choice([1, 20_000, 2**31 - 1]))
        )
    if path.suffix == ".npz":
        member = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
        member += (
            repr({"descr": "|u1", "fortran_order": False, "shape": (BOMB,)}).ljust(117).encode()
            + b"\n"
        )
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(
                str(rng.choice(["node_loss.npy", "data.npy", "shape.npy"])), member + bytes(2**20)
            )
        return path.read_bytes()
    if path.suffix == ".npy":
        header = (
            repr({"descr": "<f8", "fortran_order": False, "shape": (2**16, 2**16)})
            .ljust(117)
            .encode()
        )
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header + b"\n" + bytes(1000)
    if path.suffix in (".graphml", ".gml", ".edgelist", ".toml"):
        deep = b"<a>" * 10**5, b"graph [ " * 10**5, b"a=" + b"[" * 10**5
        return rng.choice([*deep, b"9" * 10**5, b"0 999999999999\n" * 10])
    if path.suffix in (".json", ".jsonl"):
        return rng.choice(
            [b"[" * 10**6, b'{"users": ' * 10**5, b"[1e999, -1e999, NaN]", b"9" * 10**5]
        )
    if path.name == "batch":
        return bytes([rng.choice([93, 125, 40, 78])]) * 10**6  # lists, dictionaries, marks, None
    return zeros(ROOM, b"\0\0\x08\x01" + struct.pack(">I", int(rng.choice([100, 2**32 - 1]))))


def read(kind: str, root: Path, k: int, seed: int) -> dict[str, object]:
    rng = np.random.default_rng([seed, k])
    folder = root / f"{kind}{k}"
    folder.mkdir()
    paths, load = KINDS[kind](folder)
    victim = paths[rng.integers(len(paths))]
    victim.write_bytes(damaged(victim.read_bytes(), victim, rng))
    signal.alarm(PATIENCE)
    try:
        load()
        said: dict[str, object] = {"read": True}
    except (ValueError, TypeError, OSError) as error:
        said = {"error": type(error).__name__, "message": str(error)}
    signal.alarm(0)
    shutil.rmtree(folder)
    return {"kind": kind, "k": k, "folder": str(folder)} | said


def limit(room: int) -> None:
    """Let this process have so much more memory than it has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    root, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warm = root / "warm"
    warm.mkdir()
    for kind in KINDS:  # what has to be loaded is loaded, and the history to damage is made
        (warm / kind).mkdir()
        KINDS[kind](warm / kind)[1]()
    limit(ROOM)
    for k in range(count):
        print(json.dumps(read(list(KINDS)[k % len(KINDS)], root, k, seed)), flush=True)
