"""Checkpoints of several ranks: each writes its rows, and damaged or forged ones are not used."""

import hashlib
import io
import json
import os
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import torch
from topofl.engine.store.parallel import TensorFolder, _Plain
from topofl.engine.store.rows import METADATA

import topofl
from tests.engine.distributed.writing_rows import ROUNDS, history
from tests.new_process import results_of
from topofl.engine import checkpoint

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

WANTED = "state-00000006"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    return folder, results_of("tests.engine.distributed.writing_rows", folder, timeout=300)


@pytest.fixture(scope="module")
def found(written):
    return written[1]


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written[0], tmp_path / "checkpoints")


@pytest.fixture(scope="module")
def whole():
    return history(None, rounds=ROUNDS + 1)


def continued(folder):
    return history(topofl.Saving(folder, resume=True), rounds=ROUNDS + 1)


def test_each_rank_writes_its_rows_and_gathers_none(found, folder, whole):
    assert found["write"] == [0, 0, 0]
    names = sorted(path.name for path in (folder / f"{WANTED}.rows").iterdir())
    assert names == [METADATA, "__0_0.distcp", "__1_0.distcp", "__2_0.distcp"]
    stored = TensorFolder(folder / f"{WANTED}.rows", names)
    rows = torch.cat([stored.read(f"models/{rank}") for rank in range(3)])
    reference = history(None).models.flat
    np.testing.assert_allclose(rows, reference, rtol=1e-12, atol=1e-12)
    state = torch.load(folder / f"{WANTED}.pt", weights_only=True)
    assert state["owner"].tolist() == [0, 0, 1, 1, 2, 2]
    assert not {"models", "mass"} & state.keys()
    np.testing.assert_allclose(continued(folder).models.flat, whole.models.flat, rtol=1e-12)


def test_checkpoints_of_one_process_replace_those_of_ranks(folder):
    history(topofl.Saving(folder, resume=True, every=1), rounds=ROUNDS + 2)
    assert sorted(path.name for path in folder.iterdir()) == [
        f"state-0000000{t}.{kind}" for t in (7, 8) for kind in ("json", "pt")
    ]


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "no folder"])
def test_damaged_rows_are_not_used(folder, whole, damage):
    path = folder / f"{WANTED}.rows" / "__1_0.distcp"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-100])
    elif damage == "changed":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif damage == "missing":
        path.unlink()
    else:
        shutil.rmtree(path.parent)
    told = r"state-00000006.rows/.* is (damaged: its checksum does not match|missing); the previous"
    with pytest.warns(RuntimeWarning, match=told):
        got = continued(folder)
    np.testing.assert_allclose(got.models.flat, whole.models.flat, rtol=1e-12)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("unpickled",)


def metadata(rows):
    return pickle.loads((rows / METADATA).read_bytes())


def described(change):
    """Return a forgery that changes the description of the files."""

    def forge(rows):
        content = change(metadata(rows))
        (rows / METADATA).write_bytes(pickle.dumps(content))

    return forge


def without_models(content):
    del content.state_dict_metadata["models/1"]
    return content


def claiming(content):
    content.state_dict_metadata["models/1"].size = torch.Size([10**6, 10**6])
    return content


def swapped(content):
    """Return a description in which two tensors have each other's shapes and places."""
    known = content.state_dict_metadata
    known["models/1"], known["mass/1"] = known["mass/1"], known["models/1"]
    places = {key.fqn: place for key, place in content.storage_data.items()}
    for key in content.storage_data:
        other = {"models/1": "mass/1", "mass/1": "models/1"}.get(key.fqn, key.fqn)
        content.storage_data[key] = places[other]
    return content


def elsewhere(content):
    place = next(place for key, place in content.storage_data.items() if key.fqn == "models/1")
    place.relative_path = "../other/__1_0.distcp"
    return content


def expanding(rows):
    """Write models as a small archive whose members expand to 40 MB."""
    content = metadata(rows)
    stored = io.BytesIO()
    torch.save(torch.zeros(10**7), stored)
    with zipfile.ZipFile(stored) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    path = rows / "__1_0.distcp"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    place = next(place for key, place in content.storage_data.items() if key.fqn == "models/1")
    place.offset, place.length = 0, path.stat().st_size
    (rows / METADATA).write_bytes(pickle.dumps(content))


FORGED = {
    "files elsewhere": described(elsewhere),
    "a small archive that expands": expanding,
    "code": described(lambda content: Evil()),
    "text": described(lambda content: "x"),
    "no models": described(without_models),
    "models that claim": described(claiming),
    "other shapes": described(swapped),
    "no pickle": lambda rows: (rows / METADATA).write_bytes(b"x"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_forged_rows_are_refused_in_one_sentence(folder, tmp_path, monkeypatch, forged):
    monkeypatch.chdir(tmp_path)
    rows = folder / f"{WANTED}.rows"
    FORGED[forged](rows)
    path = folder / f"{WANTED}.json"
    marker = json.loads(path.read_text())
    del marker["checksum"]
    marker["rows"] = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in rows.iterdir()
    }
    path.write_text(json.dumps(marker | {"checksum": checkpoint.checksum_of(marker)}))
    with pytest.raises(ValueError, match=r"state-00000006\.pt does not match this run") as refused:
        continued(folder)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize("files", [{"../x": "0"}, [1], None])
def test_markers_with_wrong_files_are_damaged(folder, whole, files):
    path = folder / f"{WANTED}.json"
    marker = json.loads(path.read_text()) | {"rows": files}
    del marker["checksum"]
    path.write_text(json.dumps(marker | {"checksum": checkpoint.checksum_of(marker)}))
    with pytest.warns(RuntimeWarning, match=r"00006.json is damaged: rows has a wrong value"):
        np.testing.assert_allclose(continued(folder).models.flat, whole.models.flat, rtol=1e-12)


def test_rows_without_a_checksum_are_not_read(folder):
    path = folder / f"{WANTED}.json"
    marker = json.loads(path.read_text()) | {"rows": {}}
    del marker["checksum"]
    path.write_text(json.dumps(marker | {"checksum": checkpoint.checksum_of(marker)}))
    with pytest.raises(ValueError, match="does not match this run"):
        continued(folder)


def test_descriptions_of_newer_versions_of_python_are_read():
    """Since Python 3.13, paths are pickled as classes of another module."""
    pickled = b"\x80\x02cpathlib._local\nPosixPath\nX\x01\x00\x00\x00aX\x01\x00\x00\x00b\x86R."
    assert _Plain(io.BytesIO(pickled)).load() == "a/b"


def test_training_continues_if_a_rank_cannot_write(found):
    happened = found["fill_disk"]
    assert happened["codes"] == [0, 0]
    of_ranks = sorted(json.loads(line) for line in happened["output"].splitlines())
    assert [rank[:2] for rank in of_ranks] == [[0, ROUNDS], [1, ROUNDS]]
    [text], none = (rank[2] for rank in of_ranks)
    assert none == []
    assert text.startswith("the checkpoint of round 4 could not be written to FOLDER: rank 1: ")
    assert text.endswith("the newest is that of round 2")
    assert happened["saved"] == [2, 6]
    assert not [name for name in happened["left"] if "partial" in name or "04" in name]
    assert happened["apart"] < 1e-10


@pytest.mark.parametrize(
    ("name", "killed", "noticed", "rows"),
    [
        ("kill_after_writing_rows", 1, 4, "state-00000004.rows.partial"),
        ("kill_before_the_state", 0, 5, "state-00000004.rows"),
    ],
)
def test_a_rank_killed_while_it_writes_leaves_the_checkpoint_before(
    found, name, killed, noticed, rows
):
    happened = found[name]
    assert happened["codes"] == [-9 if rank == killed else 3 for rank in range(2)]
    message = f"rank {killed} of 2 ended in round {noticed}; FOLDER has one of round 2"
    assert message in happened["output"]
    assert happened["saved"] == [2]
    assert happened["rows"] == ["state-00000002.rows", rows]
    assert happened["apart"] < 1e-10


def test_ranks_must_share_the_folder(found):
    happened = found["use_another_folder"]
    assert happened["codes"] == [3, 3]
    for rank in range(2):
        message = (
            f"rank {rank}: `saving` must be one folder that all processes can write to, which "
            "fails on rank 1: the files of rank 0 are not in its "
        )
        assert message in happened["output"]
    assert happened["saved"] == []
    assert happened["left"] == []
