"""Checkpoints of several ranks: each writes its rows, and damaged ones are not used."""

import json
import os
import shutil

import numpy as np
import pytest

import topofl
from tests.engine.distributed.writing_rows import ROUNDS, history
from tests.new_process import results_of
from topofl.engine.checkpoint import newest_checkpoint

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

WANTED = "round-00000006"


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


@pytest.mark.slow
def test_each_rank_writes_its_rows_and_gathers_none(found, folder, whole):
    assert found["write"] == [0, 0, 0]
    names = sorted(path.name for path in (folder / WANTED).iterdir())
    ranks = [f"rows-{rank}.safetensors" for rank in range(3)]
    assert names == ["marker.json", *ranks, "shared.safetensors"]
    stored = newest_checkpoint(folder)
    assert stored is not None
    rows = stored.state()["models"]
    assert rows.owner.tolist() == [0, 0, 1, 1, 2, 2]
    reference = history(None).models.flat
    np.testing.assert_allclose(rows.of(np.arange(6)), reference, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(continued(folder).models.flat, whole.models.flat, rtol=1e-12)


def test_checkpoints_of_one_process_replace_those_of_ranks(folder):
    history(topofl.Saving(folder, resume=True, every=1), rounds=ROUNDS + 2)
    assert sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*")) == [
        f"round-0000000{t}/{name}"
        for t in (7, 8)
        for name in ("marker.json", "rows-0.safetensors", "shared.safetensors")
    ]


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "no folder"])
def test_damaged_rows_are_not_used(folder, whole, damage):
    path = folder / WANTED / "rows-1.safetensors"
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
        path.parent.mkdir()
    told = r"round-00000006/.* is (damaged: its checksum does not match|missing); the previous"
    with pytest.warns(RuntimeWarning, match=told):
        got = continued(folder)
    np.testing.assert_allclose(got.models.flat, whole.models.flat, rtol=1e-12)


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
    ("name", "killed", "noticed", "partial"),
    [
        ("kill_after_writing_rows", 1, 4, []),  # rank 0 removes what it began
        ("kill_before_the_state", 0, 5, ["round-00000004.partial"]),
    ],
)
def test_a_rank_killed_while_it_writes_leaves_the_checkpoint_before(
    found, name, killed, noticed, partial
):
    happened = found[name]
    assert happened["codes"] == [-9 if rank == killed else 3 for rank in range(2)]
    message = f"rank {killed} of 2 ended in round {noticed}; FOLDER has one of round 2"
    assert message in happened["output"]
    assert happened["saved"] == [2]
    assert happened["rows"] == ["round-00000002", *partial]
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
