"""Forged checkpoints are refused in one sentence."""

import hashlib
import json

import numpy as np
import pytest
import torch

from tests.engine import killed
from tests.engine.store.helpers import train
from topofl._support.arrays import read_tensors, write_tensors
from topofl.engine import checkpoint
from topofl.engine.checkpoint import SHARED

WANTED = "round-00000006"
DEEP = "[" * 50_000 + "]" * 50_000


MARKERS = {
    "nested": lambda marker: json.dumps(marker).replace("{", f'{{"x": {DEEP}, ', 1),
    "nested within": lambda marker: signed(
        marker | {"run": marker["run"] | {"seed": json.loads("[" * 90 + "]" * 90)}}
    ),
    "no object": lambda marker: "[]",
    "a list of formats": lambda marker: signed(marker | {"format": [2]}),
    "no versions": lambda marker: signed(marker | {"versions": None}),
    "asked for one thing": lambda marker: signed(marker | {"asked": ["auto"]}),
    "another round": lambda marker: signed(marker | {"round": 5}),
    "true rounds": lambda marker: signed(marker | {"rounds": True}),
    "long numbers": lambda marker: json.dumps(marker).replace("{", f'{{"x": {"9" * 10_000}, ', 1),
}


def signed(marker):
    return json.dumps(marker | {"checksum": checkpoint.checksum_of(marker)})


@pytest.mark.parametrize("forged", MARKERS)
def test_forged_markers_are_damaged_ones(whole, folder, forged):
    path = folder / WANTED / "marker.json"
    marker = json.loads(path.read_text())
    del marker["checksum"]
    path.write_text(MARKERS[forged](marker))
    with pytest.warns(
        RuntimeWarning,
        match=r"round-00000006/marker.json is damaged: .*; the previous checkpoint is used",
    ):
        assert killed.differences(train(folder, resume=True), whole) == []


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def resign(folder):
    """Give the marker of the last checkpoint the checksums of its files."""
    path = folder / WANTED / "marker.json"
    marker = json.loads(path.read_text())
    del marker["checksum"]
    marker["files"] = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.parent.glob("*.safetensors")
    }
    path.write_text(signed(marker))


def rewrite(path, change):
    """Write a file again, after its tensors and texts were changed."""
    tensors, texts = read_tensors(path)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    change(tensors, texts)
    write_tensors(path, tensors, texts)


def shared(**changes):
    """Return a forgery that changes tensors of all nodes; None removes one."""

    def change(tensors, texts):
        for name, tensor in changes.items():
            name = name.replace("__", "/")
            del tensors[name]
            if tensor is not None:
                tensors[name] = tensor

    return lambda place: rewrite(place / SHARED, change)


def rows(**changes):
    """Return a forgery that changes tensors with a row per node; None removes one."""

    def change(tensors, texts):
        tensors.update(changes)
        for name in [name for name in tensors if tensors[name] is None]:
            del tensors[name]

    return lambda place: rewrite(place / "rows-0.safetensors", change)


def values(change):
    """Return a forgery that changes what is not a tensor."""

    def changed(tensors, texts):
        texts["values"] = change(texts["values"])

    return lambda place: rewrite(place / SHARED, changed)


def recorder(**changes):
    """Return a forgery that changes lists of the recorder."""

    def change(text):
        state = json.loads(text)
        return json.dumps(state | {"recorder": state["recorder"] | changes})

    return values(change)


def shift_indices(by):
    def change(tensors, texts):
        tensors["recorder/matrices/indices"] += by

    return lambda place: rewrite(place / SHARED, change)


def header(change):
    """Return a forgery that changes the header of the file of rows."""

    def forge(place):
        path = place / "rows-0.safetensors"
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        text = json.dumps(change(json.loads(content[8:end]))).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[end:])

    return forge


def claiming(known):
    known["models"]["shape"] = [10**6, 10**6]
    return known


def overlapping(known):
    known["mass"]["data_offsets"] = [8, 56]
    return known


OWNER = torch.zeros(6, dtype=torch.int64)

FORGED = {
    "other models": rows(models=torch.zeros(3, 3)),
    "models of other numbers": rows(models=torch.zeros(6, 111, dtype=torch.float64)),
    "narrow models": rows(models=torch.zeros(6, 11)),
    "no models": rows(models=None),
    "models that claim": header(claiming),
    "models that overlap": header(overlapping),
    "no header": lambda place: (place / "rows-0.safetensors").write_bytes(b"x"),
    "a header that claims": lambda place: (place / "rows-0.safetensors").write_bytes(
        (2**60).to_bytes(8, "little") + b"{}"
    ),
    "rows of a phase that is not there": rows(**{"phases/other/x": torch.zeros(6)}),
    "rows that are no state": rows(**{"recorder/names/x": torch.zeros(6)}),
    "rows in a tensor": rows(**{"models/x": torch.zeros(6)}),
    "no owner": shared(owner=None),
    "another owner": shared(owner=OWNER + 1),
    "an owner that climbs": shared(owner=OWNER - 1),
    "an owner of few": shared(owner=OWNER[:3]),
    "an owner of many": shared(owner=torch.zeros(60, dtype=torch.int64)),
    "an owner in a table": shared(owner=torch.zeros(6, 6, dtype=torch.int64)),
    "an owner in parts": shared(owner=OWNER.double()),
    "values that are none": values(lambda text: "x"),
    "a list": values(lambda text: "[]"),
    "nested": values(lambda text: "[" * 50_000 + "]" * 50_000),
    "nothing": values(lambda text: "{}"),
    "other phases": values(lambda text: text.replace('"local"', '"other"')),
    "a guard of text": values(lambda text: text.replace('"guard": {}', '"guard": "x"')),
    "a guard of nobody": shared(guard__node=None),
    "fewer rounds": shared(recorder__rounds__train_loss=torch.zeros(2)),
    "more evaluations": shared(recorder__evaluations__accuracy=torch.zeros(50, 6)),
    "no matrix there": shared(recorder__used__matrix=torch.full((6,), 9)),
    "indices beyond": shift_indices(10**6),
    "indices before": shift_indices(-(10**6)),
    "names of nothing": recorder(names=[]),
    "names that are none": recorder(names=[nested(50)]),
    "entries without end": recorder(entries=[10**15]),
    "entries below 0": recorder(entries=[-1]),
    "rows without end": recorder(rows=[10**15]),
}


@pytest.mark.parametrize("forged", FORGED)
def test_forged_states_are_refused_in_one_sentence(folder, forged):
    FORGED[forged](folder / WANTED)
    resign(folder)
    with pytest.raises(ValueError, match=r"round-00000006 does not match this run") as refused:
        train(folder, resume=True)
    assert len(str(refused.value)) < 800
    assert "\n" not in str(refused.value)


def test_rows_without_a_checksum_are_not_read(folder):
    path = folder / WANTED / "marker.json"
    marker = json.loads(path.read_text())
    del marker["checksum"], marker["files"]["rows-0.safetensors"]
    path.write_text(signed(marker))
    with pytest.raises(ValueError, match=r"rows-0.safetensors is needed, and has no checksum"):
        train(folder, resume=True)


@pytest.mark.parametrize("files", [{"../x": "0"}, {}, [1], None])
def test_markers_with_wrong_files_are_damaged(folder, whole, files):
    path = folder / WANTED / "marker.json"
    marker = json.loads(path.read_text()) | {"files": files}
    del marker["checksum"]
    path.write_text(signed(marker))
    with pytest.warns(RuntimeWarning, match="marker.json is damaged: files has a wrong value"):
        assert killed.differences(train(folder, resume=True), whole) == []


def test_checkpoints_without_the_column_steps_are_resumed(folder, whole):
    """They are older than the column, so rounds whose steps are unknown have NaN."""
    shared(recorder__rounds__steps=None)(folder / WANTED)
    resign(folder)
    history = train(folder, resume=True)[0]
    assert np.isnan(history["steps"][:6]).all()
    assert history["steps"][6] == whole[0]["steps"][6]
    np.testing.assert_array_equal(history["train_loss"], whole[0]["train_loss"])
