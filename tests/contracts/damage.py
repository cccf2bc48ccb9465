"""Damage of files, and files that promise gigabytes: ``python -m tests.contracts.damage FOLDER``.

As a program it damages and reads files of every kind with little memory, and prints one JSON object
a file: whether it was read or refused, and the message. Its caller sees crashes, hangs and other
errors.
"""

import gzip
import json
import os
import resource
import shutil
import signal
import struct
import sys
import warnings
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from tests.rows.stored import STORED, damage

ROOM = 2**28
"""Bytes of address space that reading may add."""

PATIENCE = 20
"""Seconds for a file."""

BOMB = 2**33
"""Bytes that small files promise."""


def png(width, height):
    def chunk(name, content):
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(10**6)))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


def npy(dtype, *shape):
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).ljust(117).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header + b"\n"


def bomb(path, rng):
    """Put kilobytes or megabytes that promise far more, in the format of a file, in its place."""
    if path.suffix == ".npz":
        name = rng.choice(["node_loss.npy", "data.npy", "shape.npy"])
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(str(name), npy("|u1", BOMB) + bytes(2**20))
        return
    deep = b"<a>" * 10**5, b"graph [ " * 10**5, b"a=" + b"[" * 10**5
    objects = b"[" * 10**6, b'{"users": ' * 10**5, b"[1e999, -1e999, NaN]", b"9" * 10**5
    many = [bytes([code]) * 10**6 for code in (93, 125, 40, 78)]  # lists, dictionaries, marks, None
    wide, high = (int(rng.choice([1, 20_000, 60_000, 2**31 - 1])) for _ in range(2))
    zeros = gzip.compress(bytes(2**20)) * (ROOM // 2**20)
    packed = gzip.compress(b"\0\0\x08\x01" + struct.pack(">I", 2**32 - 1)) + zeros
    claim = int(rng.choice([2**20, 2**60])).to_bytes(8, "little") + b'{"a":' * 2**18
    kinds = {
        (".png", ".jpg", ".JPEG"): [png(wide, high)],
        (".npy",): [npy("<f8", 2**16, 2**16) + bytes(1000)],
        (".graphml", ".gml", ".edgelist", ".csv", ".toml"): [*deep, b"9" * 10**5, b"0 9999999\n"],
        (".json", ".jsonl"): [*objects],
        (".safetensors",): [claim],
        (".gz",): [packed],
    }
    found = [contents for suffixes, contents in kinds.items() if path.suffix in suffixes]
    contents = found[0] if found else many
    path.write_bytes(contents[rng.integers(len(contents))])


def read(kind, root, k, *, bombs=False):
    """Damage a file of a kind, read it, and return what is said."""
    rng, folder, row = np.random.default_rng(k), root / f"{kind}{k}", STORED[kind]
    folder.mkdir()
    row.write(folder)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    victim = paths[rng.integers(len(paths))]
    bomb(victim, rng) if bombs and rng.integers(2) else damage(victim, rng, paths)
    try:
        if row.sign and rng.integers(2):
            with suppress(
                ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError
            ):
                row.sign(folder)
        row.read(folder)
        said = {"read": True}
    except (ValueError, TypeError, OSError, RuntimeWarning) as error:
        said = {"error": type(error).__name__, "message": str(error)}
    shutil.rmtree(folder)
    return {"kind": kind, "k": k, "folder": str(folder)} | said


def limit(room):
    """Let this process have so much more memory than it has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    root, count = Path(sys.argv[1]), int(sys.argv[2])
    for kind, row in STORED.items():  # what has to be loaded is loaded
        (root / kind).mkdir()
        row.write(root / kind)
        row.read(root / kind)
    limit(ROOM)
    for k in range(count):
        signal.alarm(PATIENCE)
        print(json.dumps(read(list(STORED)[k % len(STORED)], root, k, bombs=True)), flush=True)
        signal.alarm(0)
