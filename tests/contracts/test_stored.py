"""Files of any kind, damaged or forged, are read, or refused in one sentence with their name."""

import io
import json
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.contracts import damage
from tests.new_process import output_of
from tests.rows import stored
from tests.rows.stored import STORED, ran, read_checkpoint, run, sign_checkpoint, sign_history
from topofl import History, Saving
from topofl._support import arrays as array_files
from topofl._support.arrays import read_tensors, write_tensors

COUNT = int(os.environ.get("TOPOFL_FUZZ_FILES", "420"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORED)
def test_damaged_files_are_read_or_refused_by_name(kind, tmp_path):
    (tmp_path / "whole").mkdir()
    STORED[kind].write(tmp_path / "whole")
    STORED[kind].read(tmp_path / "whole")
    said = [damage.read(kind, tmp_path, k) for k in range(40)]
    refused = [one for one in said if "message" in one]
    assert refused
    for one in refused:
        assert one["folder"] in one["message"], one
        assert "\n" not in one["message"], one


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the memory of a process is not limited here"
)
@pytest.mark.slow
def test_bombs_are_read_or_refused_by_name_within_little_memory(tmp_path):
    words = ("-m", "tests.contracts.damage", tmp_path, COUNT)
    said = [json.loads(line) for line in output_of(*words, timeout=600).splitlines()]
    assert len(said) == COUNT
    for one in said:
        assert one.get("read") or one["folder"] in one["message"], one


@pytest.mark.parametrize("kind", ["history", "models"])
def test_one_flipped_bit_does_not_match_the_checksum(kind, tmp_path):
    row = STORED[kind]
    row.write(tmp_path)
    for file in (tmp_path / "run").iterdir():
        content, rng = file.read_bytes(), np.random.default_rng(0)
        for place in rng.integers(0, len(content), 40):
            damaged = bytearray(content)
            damaged[place] ^= 1 << int(rng.integers(8))
            file.write_bytes(damaged)
            message = ""
            try:
                row.read(tmp_path)
            except ValueError as error:
                message = str(error)
            # meta.json has white space, the others are compared by their bytes
            assert f"run/{file.name} is" in message or file.name == "meta.json"
        file.write_bytes(content)
    row.read(tmp_path)


@pytest.fixture
def older(tmp_path):
    """Return the folder of a history without checksums, so that other checks must notice."""
    stored.save_older(tmp_path)
    return tmp_path / "run"


MISSING = object()
"""Stands for an entry that is left out."""


def rewrite(path, **changes):
    """Write an object in JSON with other entries."""
    entries = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: x for key, x in entries.items() if x is not MISSING}))


def forge(path, changes, compression=zipfile.ZIP_DEFLATED):
    """Rewrite arrays.npz with `changes` by name: arrays, bytes of one, or None to leave it out."""
    with np.load(path / "arrays.npz") as file:
        arrays = dict(file) | changes
    with zipfile.ZipFile(path / "arrays.npz", "w", compression) as archive:
        for name, array in arrays.items():
            if array is not None:
                archive.writestr(f"{name}.npy", array if isinstance(array, bytes) else npy(array))


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def claim(*shape):
    """Return a file of three numbers that claims another shape."""
    return damage.npy("<f8", *shape) + bytes(24)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("unpickled",)


LONG = b"\x93NUMPY\x02\x00" + (10**6).to_bytes(4, "little") + b"(" * 10**6

ARRAYS = {
    "a pickle": {"node_loss": np.array([Evil()], dtype=object)},
    "a pickle elsewhere": {"evaluation.loss": np.array([[Evil()] * 3] * 3, dtype=object)},
    "text": {"evaluation.loss": np.full((3, 3), "x" * 1000)},
    "a record": {"evaluation.loss": np.zeros((3, 3), dtype=[("a", "f8")])},
    "a shape of another": {"evaluation.loss": np.zeros((3, 4))},
    "more rounds": {"node_loss": np.zeros((3, 3))},
    "more evaluations": {"evaluation.accuracy": np.zeros((40, 3))},
    "too many evaluations": {"evaluation.round": np.arange(4)},
    "a claim": {"evaluation.loss": claim(3, 10**12)},
    "a claim that fits the rest": {"node_loss": claim(2, 10**12)},
    "a negative claim": {"node_loss": claim(2, -3)},
    "half an array": {"node_loss": claim(2, 3)},
    "a new format": {"node_loss": b"\x93NUMPY\x09\x00"},
    "no array": {"node_loss": b"x"},
    "nothing": {"node_loss": b""},
    "a long header": {"node_loss": LONG},
    "a missing array": {"matrix.0.indices": None},
    "a matrix of others": {"matrix.0.indices": np.full(9, 3, np.int32)},
    "a matrix before all": {"matrix.0.indices": np.full(9, -1, np.int32)},
    "a matrix without an end": {"matrix.0.indptr": np.arange(0, 4 * 10**6, 10**6)},
    "weights that are none": {"matrix.0.data": np.full(9, np.nan)},
    "a large matrix": {"matrix.0.data": np.zeros(10), "matrix.0.indices": np.zeros(10, np.int32)},
    "a round without matrix": {"matrix_of_round": np.full(2, 1)},
    "a round before all matrices": {"matrix_of_round": np.full(2, -1)},
    "matrices in no order": {"matrix_of_round": np.full(2, 0.5)},
}


@pytest.mark.parametrize("signed", [False, True], ids=["older", "signed"])
@pytest.mark.parametrize("forged", ARRAYS)
def test_forged_arrays_are_refused_by_file(older, monkeypatch, forged, signed):
    monkeypatch.chdir(older.parent)
    forge(older, ARRAYS[forged])
    if signed:
        sign_history(older.parent)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"run.* is (damaged|half-written).*"):
            History.load(older)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()
    assert not Path("unpickled").exists()


def test_a_bomb_is_not_decompressed(older, monkeypatch):
    rewrite(older / "meta.json", matrices=[])
    columns = {k: x for k, x in ran().evaluations.items() if x.ndim == 2}
    large = {f"evaluation.{name}": np.zeros((3, 200_000)) for name in columns}
    forge(older, large | {"node_loss": np.zeros((2, 200_000))})
    monkeypatch.setattr(array_files, "total_memory", lambda: 2**20)
    tracemalloc.start()
    try:
        message = r"arrays\.npz claims to hold \d+ bytes, more than half of the 1048576"
        with pytest.raises(ValueError, match=message):
            History.load(older)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_unknown_arrays_are_not_read(older, monkeypatch):
    read, seen = array_files._read_member, []

    def noted(archive, info):
        seen.append(info.filename)
        return read(archive, info)

    monkeypatch.setattr(array_files, "_read_member", noted)
    others = {"matrix.9.data": np.zeros(10**5), "notes": np.zeros(10**6)}
    forge(older, others | {"evaluation.more": np.zeros((3, 3))})
    assert "more" not in History.load(older).evaluations
    assert seen
    assert not {"matrix.9.data.npy", "notes.npy", "evaluation.more.npy"} & {*seen}
    forge(older, {}, zipfile.ZIP_LZMA)
    with pytest.raises(ValueError, match=r"arrays\.npz is .*: .* compressed more than deflate can"):
        History.load(older)


NESTED = "[" * 100_000 + "]" * 100_000

META = {
    "no list": {"round_columns": "messages"},
    "names": {"matrices": [1]},
    "rounds": {"n_rounds": 2.0},
    "other rounds": {"n_rounds": 3},
    "algorithm": {"algorithm": {"a": 1}},
    "groups": {"groups": [[0, -1]]},
    "diverged": {"diverged": 3},
    "server": {"server": 1},
    "task": {"task": {"name": "t", "scores": {"accuracy": "high"}}},
    "best": {"task": {"name": "t", "scores": {"accuracy": "best", "loss": "low"}}},
    "attackers": {"attackers": {"nodes": [-1]}},
    "one label": {"nodes": "Zug"},
    "few labels": {"nodes": ["Zug"]},
    "labels in lists": {"nodes": [["Zug"], "Bern", "Genf"]},
    "a deep value": {"x": json.loads("[" * 200 + "]" * 200)},
    "a list in a column": {"columns": {"accuracy": ["accuracy", "", "test"]}},
    "no set": {"columns": {"accuracy": {"score": "accuracy", "stage": ""}}},
    "a number": {"columns": {"accuracy": {"score": "accuracy", "stage": 1, "set": "test"}}},
    "not there": {"columns": {"f1": {"score": "f1", "stage": "", "set": "test"}}},
    "text": {"columns": "accuracy"},
    "nothing": {"columns": None},
} | {f"no {key}": {key: MISSING} for key in ("n_rounds", "columns", "round_columns", "matrices")}
SHARES = (0.4, [0], [0, "x"], [-1, 0.4], [0, 1.5], [True, 0.4])
META |= {f"share {value}": {"largest_share": value} for value in SHARES}


@pytest.mark.parametrize("forged", META)
def test_forged_entries_are_refused(older, forged):
    rewrite(older / "meta.json", **META[forged])
    with pytest.raises(ValueError, match=rf"{older}.* is (damaged|half-written)"):
        History.load(older)


@pytest.mark.parametrize(
    "changes", [{"format": 3}, {"format": MISSING}, {"sha256": MISSING}, {"sha256": [1]}]
)
def test_other_formats_are_refused(tmp_path, changes):
    path = ran().save(tmp_path / "run")
    rewrite(path / "meta.json", **changes)
    message = r"meta\.json is damaged or of a later version: its format must be 2"
    with pytest.raises(ValueError, match=message):
        History.load(path)


def test_entries_at_their_boundaries_are_accepted(older):
    entries = {"groups": [[0, 2], [1]], "nodes": ["Zug", 0, "Genf"], "largest_share": [0, 1.0]}
    entries |= {"attackers": {"nodes": [0]}, "server": True, "diverged": []}
    rewrite(older / "meta.json", **entries)
    meta = History.load(older).meta
    assert {name: meta[name] for name in entries} == entries


def lines_of(value):
    return lambda meta: "\n".join([json.dumps(dict.fromkeys(meta["round_columns"], value))] * 3)


TEXTS = {
    "nested": ("meta.json", lambda meta: f'{{"x": {NESTED}}}'),
    "a long number": ("meta.json", lambda meta: f'{{"x": {"9" * 10_000}}}'),
    "no object": ("meta.json", lambda meta: "[]"),
    "nested lines": ("rounds.jsonl", lambda meta: "\n".join([f'{{"x": {NESTED}}}'] * 3)),
    "lost lines": ("rounds.jsonl", lambda meta: '{"round": 0}\n'),
    "lists": ("rounds.jsonl", lines_of([1])),
    "texts": ("rounds.jsonl", lines_of("1")),
    "large numbers": ("rounds.jsonl", lines_of(10**300)),
}


@pytest.mark.parametrize("forged", TEXTS)
def test_forged_texts_are_refused_by_file(older, forged):
    name, text = TEXTS[forged]
    (older / name).write_text(text(json.loads((older / "meta.json").read_text())))
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        History.load(older)


@pytest.mark.parametrize("name", ["meta.json", "rounds.jsonl", "arrays.npz"])
def test_a_file_that_is_missing_is_named(older, name):
    (older / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} is missing"):
        History.load(older)


@pytest.mark.parametrize("change", ["another's", "other keys"])
def test_models_of_others_are_refused(tmp_path, change):
    file = ran().save(tmp_path / "run", models=True) / "models.safetensors"
    tensors, texts = read_tensors(file)
    other = {"flat": torch.zeros(4, tensors["flat"].shape[1])}
    file.unlink()  # it is mapped
    write_tensors(file, other, texts if change == "another's" else {})
    for _ in range(2):
        with pytest.raises(ValueError, match=r"models\.safetensors is .*(remove it|run it again)"):
            _ = History.load(tmp_path / "run").models.flat
        sign_history(tmp_path)


@pytest.fixture
def saved(tmp_path):
    """Return the last checkpoint of a finished run, after rounds 1 and 2."""
    run(saving=Saving(tmp_path / "saved", every=1))
    return tmp_path / "saved" / "round-00000002"


DEEP = "[" * 50_000 + "]" * 50_000

MARKERS = {
    "nested": lambda path: path.write_text(f'{{"x": {DEEP}}}'),
    "nested within": lambda path: forge_marker(path, run={"seed": json.loads("[" * 90 + "]" * 90)}),
    "no object": lambda path: path.write_text("[]"),
    "a list of formats": lambda path: forge_marker(path, format=[2]),
    "no versions": lambda path: forge_marker(path, versions=None),
    "asked for one thing": lambda path: forge_marker(path, asked=["auto"]),
    "another round": lambda path: forge_marker(path, round=1),
    "true rounds": lambda path: forge_marker(path, rounds=True),
    "long numbers": lambda path: path.write_text(f'{{"x": {"9" * 10_000}}}'),
    "files above": lambda path: forge_marker(path, files={"../x": "0"}),
    "no files": lambda path: forge_marker(path, files={}),
    "files in a list": lambda path: forge_marker(path, files=[1]),
    "files that are none": lambda path: forge_marker(path, files=None),
}


def forge_marker(path, **changes):
    sign_checkpoint(path.parents[2], **changes)


@pytest.mark.parametrize("forged", MARKERS)
def test_forged_markers_are_damaged_ones(saved, forged):
    MARKERS[forged](saved / "marker.json")
    message = r"round-00000002/marker.json is damaged: .*; the previous checkpoint is used"
    with pytest.warns(RuntimeWarning, match=message):
        found = run(saving=Saving(saved.parent, resume=True))
    np.testing.assert_array_equal(found.models.flat, ran().models.flat)


def test_rows_without_a_checksum_are_not_read(saved):
    files = json.loads((saved / "marker.json").read_text())["files"]
    del files["rows-0.safetensors"]
    sign_checkpoint(saved.parents[1], files=files)
    with pytest.raises(ValueError, match=r"rows-0.safetensors is needed, and has no checksum"):
        read_checkpoint(saved.parents[1])


def changed(name, change):
    """Return a forgery that changes tensors and texts of a file."""

    def forge(place):
        tensors, texts = read_tensors(place / name)
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        change(tensors, texts)
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not MISSING}
        write_tensors(place / name, kept, texts)

    return forge


def shared(**changes):
    known = {name.replace("__", "/"): tensor for name, tensor in changes.items()}
    return changed("shared.safetensors", lambda tensors, texts: tensors.update(known))


def rows(**changes):
    return changed("rows-0.safetensors", lambda tensors, texts: tensors.update(changes))


def values(change):
    """Return a forgery that changes what is not a tensor."""
    return changed(
        "shared.safetensors", lambda tensors, texts: texts.update(values=change(texts["values"]))
    )


def recorder(**changes):
    def change(text):
        state = json.loads(text)
        return json.dumps(state | {"recorder": state["recorder"] | changes})

    return values(change)


def shifted(by):
    def change(tensors, texts):
        tensors["recorder/matrices/indices"] += by

    return changed("shared.safetensors", change)


def header(name, **changes):
    """Return a forgery that changes what the header of the file of rows says of a tensor."""

    def forge(place):
        path = place / "rows-0.safetensors"
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        known = json.loads(content[8:end])
        known[name] |= changes
        text = json.dumps(known).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[end:])

    return forge


def of_bytes(content):
    return lambda place: (place / "rows-0.safetensors").write_bytes(content)


NOBODY = torch.zeros(3, dtype=torch.int64)

STATES = {
    "other models": rows(models=torch.zeros(2, 3)),
    "models of other numbers": rows(models=torch.zeros(3, 111, dtype=torch.float64)),
    "narrow models": rows(models=torch.zeros(3, 11)),
    "no models": rows(models=MISSING),
    "models that claim": header("models", shape=[10**6, 10**6]),
    "models that overlap": header("mass", data_offsets=[8, 32]),
    "no header": of_bytes(b"x"),
    "a header that claims": of_bytes((2**60).to_bytes(8, "little") + b"{}"),
    "rows of a phase that is not there": rows(**{"phases/other/x": torch.zeros(3)}),
    "rows that are no state": rows(**{"recorder/names/x": torch.zeros(3)}),
    "rows in a tensor": rows(**{"models/x": torch.zeros(3)}),
    "no owner": shared(owner=MISSING),
    "another owner": shared(owner=NOBODY + 1),
    "an owner that climbs": shared(owner=NOBODY - 1),
    "an owner of few": shared(owner=NOBODY[:2]),
    "an owner of many": shared(owner=torch.zeros(60, dtype=torch.int64)),
    "an owner in a table": shared(owner=torch.zeros(3, 3, dtype=torch.int64)),
    "an owner in parts": shared(owner=NOBODY.double()),
    "values that are none": values(lambda text: "x"),
    "a list": values(lambda text: "[]"),
    "nested": values(lambda text: DEEP),
    "nothing": values(lambda text: "{}"),
    "other phases": values(lambda text: text.replace('"local"', '"other"')),
    "a guard of text": values(lambda text: text.replace('"guard": {}', '"guard": "x"')),
    "a guard of nobody": shared(guard__node=MISSING),
    "fewer rounds": shared(recorder__rounds__train_loss=torch.zeros(1)),
    "no bytes": shared(recorder__rounds__bytes=MISSING),
    "a round without a matrix": shared(recorder__used__matrix=torch.zeros(1, dtype=torch.int64)),
    "more evaluations": shared(recorder__evaluations__accuracy=torch.zeros(50, 3)),
    "no matrix there": shared(recorder__used__matrix=torch.full((2,), 9)),
    "indices beyond": shifted(10**6),
    "indices before": shifted(-(10**6)),
    "names of nothing": recorder(names=[]),
    "names that are none": recorder(names=[json.loads("[" * 50 + "]" * 50)]),
    "entries without end": recorder(entries=[10**15]),
    "entries below 0": recorder(entries=[-1]),
    "rows without end": recorder(rows=[10**15]),
}


@pytest.mark.parametrize("forged", STATES)
def test_forged_states_are_refused_in_one_sentence(saved, forged):
    STATES[forged](saved)
    sign_checkpoint(saved.parents[1])
    with pytest.raises(ValueError, match=r"round-00000002 does not match this run") as refused:
        read_checkpoint(saved.parents[1])
    assert len(str(refused.value)) < 800
    assert "\n" not in str(refused.value)


def test_checkpoints_without_the_column_steps_are_resumed(saved):
    """They are older than the column, so rounds whose steps are unknown have NaN."""
    shared(recorder__rounds__steps=MISSING)(saved)
    sign_checkpoint(saved.parents[1])
    found = run(saving=Saving(saved.parent, resume=True), rounds=3)
    assert np.isnan(found["steps"][:2]).all()
    assert found["steps"][2] == ran()["steps"][1]
    np.testing.assert_array_equal(found["train_loss"][:2], ran()["train_loss"])
