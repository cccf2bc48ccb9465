"""Files that are incomplete, damaged or forged are refused by name."""

import io
import json
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import topofl
from tests.history.helpers import assert_same
from topofl._support import arrays as array_files
from topofl.history import files


@pytest.fixture(autouse=True)
def without_checksums(request, monkeypatch):
    """Save as the version before, so that other checks must notice what a forger has changed."""
    if "checksum" not in request.node.name:
        monkeypatch.setattr(files, "_with_checksums", lambda meta, folder: meta)


@pytest.mark.parametrize("name", ["meta.json", "rounds.jsonl", "arrays.npz"])
def test_one_flipped_bit_does_not_match_the_checksum(history, tmp_path, name):
    file = history.save(tmp_path / "run") / name
    content, rng = file.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(0, len(content), 60):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        loaded, message = loaded_or_refused(tmp_path / "run")
        if loaded is None:
            assert f"run/{name} is" in message
        else:
            assert name == "meta.json", "it has white space, the others are compared by their bytes"
            assert_same(loaded, history)


def loaded_or_refused(path):
    """Return the history at a path, or None and why it was refused."""
    try:
        return topofl.History.load(path), ""
    except ValueError as error:
        return None, str(error)


def test_members_that_meta_does_not_list_are_not_read(history, tmp_path, monkeypatch):
    path = history.save(tmp_path / "run")
    forge(path, {"evaluation.more": np.zeros((4, 6))})
    monkeypatch.setattr(array_files, "_read_member", lambda archive, info: names.append(info))
    names = []
    with pytest.raises(ValueError, match="do not match"):
        topofl.History.load(path)
    assert names
    assert "evaluation.more.npy" not in [info.filename for info in names]


@pytest.mark.parametrize("name", ["meta.json", "rounds.jsonl", "arrays.npz"])
@pytest.mark.parametrize("damage", ["missing", "half", "empty"])
def test_half_written_history_is_refused(history, tmp_path, name, damage):
    file = history.save(tmp_path / "run") / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content[: len(content) // 2] if damage == "half" else b"")
    with pytest.raises((ValueError, FileNotFoundError), match=name):
        topofl.History.load(tmp_path / "run")


@pytest.mark.parametrize("key", ["n_rounds", "columns", "round_columns", "matrices"])
def test_files_that_do_not_match_are_refused(history, tmp_path, key):
    file = history.save(tmp_path / "run") / "meta.json"
    meta = json.loads(file.read_text())
    del meta[key]
    file.write_text(json.dumps(meta))
    with pytest.raises(ValueError, match=f"is damaged.*{key}"):
        topofl.History.load(tmp_path / "run")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"meta\.json is damaged"):
        topofl.History.load(tmp_path / "run")


def test_lost_lines_are_noticed(history, tmp_path):
    file = history.save(tmp_path / "run") / "rounds.jsonl"
    file.write_text("\n".join(file.read_text().splitlines()[:-2]) + "\n")
    with pytest.raises(ValueError, match="half-written: it has 6 lines, expected 8"):
        topofl.History.load(tmp_path / "run")


def forge(path, changes):
    """Rewrite arrays.npz with `changes` by name: arrays, bytes of one, or None to leave it out."""
    with np.load(path / "arrays.npz") as file:
        arrays = dict(file) | changes
    with zipfile.ZipFile(path / "arrays.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            if array is not None:
                archive.writestr(f"{name}.npy", array if isinstance(array, bytes) else npy(array))


def npy(array, claimed=None):
    """Return an array as a file, which may claim another shape."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    if claimed is None:
        return stream.getvalue()
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": claimed,
    }
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, header)
    return head.getvalue() + array.tobytes()


class Evil:
    def __reduce__(self):
        return os.mkdir, ("unpickled",)


FORGED = {
    "a pickle": {"node_loss": np.array([Evil()], dtype=object)},
    "a pickle elsewhere": {"evaluation.loss": np.array([[Evil()] * 6] * 4, dtype=object)},
    "text": {"evaluation.loss": np.full((4, 6), "x" * 1000)},
    "a record": {"evaluation.loss": np.zeros((4, 6), dtype=[("a", "f8")])},
    "a shape of another": {"evaluation.loss": np.zeros((6, 4))},
    "more rounds": {"node_loss": np.zeros((8, 6))},
    "more evaluations": {"evaluation.accuracy": np.zeros((40, 6))},
    "a claim": {"evaluation.loss": npy(np.zeros(3), (4, 10**12))},
    "a claim that fits the rest": {"node_loss": npy(np.zeros(3), (7, 10**12))},
    "a negative claim": {"node_loss": npy(np.zeros(3), (7, -6))},
    "half an array": {"node_loss": npy(np.zeros(3), (7, 6))},
    "a new format": {"node_loss": b"\x93NUMPY\x09\x00"},
    "no array": {"node_loss": b"x"},
    "nothing": {"node_loss": b""},
    "a long header": {
        "node_loss": b"\x93NUMPY\x02\x00" + (10**6).to_bytes(4, "little") + b"(" * 10**6
    },
    "a missing array": {"matrix.1.indices": None},
    "a matrix of others": {"matrix.1.indices": np.full(12, 6, np.int32)},
    "a matrix before all": {"matrix.1.indices": np.full(12, -1, np.int32)},
    "a matrix without an end": {"matrix.1.indptr": np.arange(0, 7 * 10**6, 10**6)},
    "weights that are none": {"matrix.1.data": np.full(12, np.nan)},
    "a large matrix": {"matrix.1.data": np.zeros(37), "matrix.1.indices": np.zeros(37, np.int32)},
    "a round without matrix": {"matrix_of_round": np.full(7, 3)},
    "matrices in no order": {"matrix_of_round": np.full(7, 0.5)},
}


@pytest.mark.parametrize("forged", FORGED)
def test_forged_arrays_are_refused_by_file(history, tmp_path, monkeypatch, forged):
    monkeypatch.chdir(tmp_path)
    path = history.save(tmp_path / "run")
    forge(path, FORGED[forged])
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"run.* is (damaged|half-written).*"):
            topofl.History.load(path)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()
    assert not Path("unpickled").exists()


def test_a_bomb_is_not_decompressed(history, tmp_path, monkeypatch):
    path = history.save(tmp_path / "run")
    n, meta = 200_000, json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(meta | {"matrices": []}))
    shapes = {
        name: (len(column), n) for name, column in history.evaluations.items() if column.ndim == 2
    }
    forge(
        path,
        {f"evaluation.{k}": np.zeros(shape) for k, shape in shapes.items()}
        | {"node_loss": np.zeros((7, n))},
    )
    monkeypatch.setattr(array_files, "total_memory", lambda: 2**24)
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError,
            match=r"arrays\.npz claims to hold \d+ bytes, more than half of the 16777216",
        ):
            topofl.History.load(path)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_unknown_arrays_are_not_read(history, tmp_path):
    path = history.save(tmp_path / "run")
    forge(path, {"matrix.9.data": np.zeros(10**5), "notes": npy(np.zeros(10**6))})
    assert_same(topofl.History.load(path), history)
    with zipfile.ZipFile(path / "arrays.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path / "arrays.npz", "w", zipfile.ZIP_LZMA) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(
        ValueError,
        match=r"arrays\.npz is half-written or damaged: .* compressed more than deflate can",
    ):
        topofl.History.load(path)


NESTED = "[" * 100_000 + "]" * 100_000


JSON = {
    "nested": ("meta.json", lambda meta: json.dumps(meta).replace("{", f'{{"x": {NESTED}, ', 1)),
    "nested a little": (
        "meta.json",
        lambda meta: json.dumps(meta | {"x": json.loads("[" * 200 + "]" * 200)}),
    ),
    "a number": (
        "meta.json",
        lambda meta: json.dumps(meta).replace("{", f'{{"x": {"9" * 10_000}, ', 1),
    ),
    "no list": ("meta.json", lambda meta: json.dumps(meta | {"round_columns": "messages"})),
    "names": ("meta.json", lambda meta: json.dumps(meta | {"matrices": [1, 2, 3]})),
    "rounds": ("meta.json", lambda meta: json.dumps(meta | {"n_rounds": 7.0})),
    "algorithm": ("meta.json", lambda meta: json.dumps(meta | {"algorithm": {"a": 1}})),
    "groups": ("meta.json", lambda meta: json.dumps(meta | {"groups": [[0, -1]]})),
    "diverged": ("meta.json", lambda meta: json.dumps(meta | {"diverged": 3})),
    "lines": ("rounds.jsonl", lambda meta: "\n".join([f'{{"x": {NESTED}}}'] * 8)),
    "values": (
        "rounds.jsonl",
        lambda meta: "\n".join([json.dumps({key: [1] for key in meta["round_columns"]})] * 8),
    ),
    "texts": (
        "rounds.jsonl",
        lambda meta: "\n".join([json.dumps(dict.fromkeys(meta["round_columns"], "1"))] * 8),
    ),
    "large": (
        "rounds.jsonl",
        lambda meta: "\n".join([json.dumps(dict.fromkeys(meta["round_columns"], 10**300))] * 8),
    ),
}


@pytest.mark.parametrize("forged", JSON)
def test_forged_json_is_refused_by_file(history, tmp_path, forged):
    path = history.save(tmp_path / "run")
    name, forge_text = JSON[forged]
    (path / name).write_text(forge_text(json.loads((path / "meta.json").read_text())))
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        topofl.History.load(path)


FIELDS = {
    "a list in a column": {"accuracy": ["accuracy", "", "test"]},
    "no set": {"accuracy": {"score": "accuracy", "stage": ""}},
    "a number": {"accuracy": {"score": "accuracy", "stage": 1, "set": "test"}},
    "not there": {
        "accuracy": {"score": "accuracy", "stage": "", "set": "test"},
        "f1": {"score": "f1", "stage": "", "set": "test"},
    },
    "text": "accuracy",
    "nothing": None,
}


@pytest.mark.parametrize("case", FIELDS)
def test_forged_fields_are_refused(history, tmp_path, case):
    file = history.save(tmp_path / "run") / "meta.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"columns": FIELDS[case]}))
    with pytest.raises(ValueError, match="is damaged"):
        topofl.History.load(tmp_path / "run")
