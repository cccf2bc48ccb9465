"""Models in a file: in less memory, and in estimates."""

import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

import topofl
from tests.engine.memory.test_footprint import FACTS, LOOPED
from tests.history.helpers import assert_same
from tests.rows.stored import trained
from topofl import algorithms, data, models, topologies
from topofl._support.machine import is_in_memory, resident_of_files
from topofl.engine import memory as mapped
from topofl.engine.memory import MappedFiles, mapped_files

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


def test_a_run_continues_with_models_elsewhere(tmp_path):
    runs, scratch = tmp_path / "runs", tmp_path / "scratch"
    scratch.mkdir()
    trained(runs, rounds=2, scratch=scratch)
    assert not list(scratch.iterdir())
    assert_same(trained(runs, rounds=4, resume=True), trained(rounds=4))


def test_released_files_leave_memory_and_keep_their_values(tmp_path):
    with mapped_files(tmp_path) as files:
        assert files is not None
        values = files.new((1000, 10_000), torch.float32)
        before = resident_of_files()
        assert not values.any()
        values.copy_(torch.arange(1000)[:, None].expand(1000, 10_000))
        assert resident_of_files() - before > 3.9e7
        files.release()
        assert resident_of_files() - before < 1e7
        assert torch.equal(values[:, -1], torch.arange(1000.0))


@pytest.mark.slow
def test_much_of_a_file_is_released_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "KEPT", 2**24)
    monkeypatch.setattr(mapped, "LOOK", 0.001)
    before, most = resident_of_files(), 0
    with mapped_files(tmp_path) as files:
        values = files.new((400, 250_000), torch.float32)  # 400 MB
        for row in values:
            row.fill_(1.0)
            time.sleep(0.002)  # so that also on a busy machine the other thread gets its turn
            most = max(most, resident_of_files() - before)
    assert most < 2e8


def test_copies_are_mixed_like_the_values_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "COPIED", 80)  # 4 columns at a time
    values = torch.arange(150.0).view(5, 30)
    weights = torch.arange(25.0).view(5, 5)
    wanted, view = weights @ values, values.clone()
    mix = MappedFiles(tmp_path, 0).by_copies(lambda block: block.copy_(weights @ block))
    mix(view[:, 3:20])
    assert torch.equal(view[:, 3:20], wanted[:, 3:20])
    assert torch.equal(view[:, :3], values[:, :3])


def test_folders_in_memory_are_known(tmp_path, monkeypatch):
    kinds = {"/": "ext4", str(tmp_path): "tmpfs", str(tmp_path / "proc"): "ext4"}
    mounts = [SimpleNamespace(mountpoint=place, fstype=kind) for place, kind in kinds.items()]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)
    assert is_in_memory(tmp_path)
    assert is_in_memory(tmp_path / "below" / "it")
    assert not is_in_memory(tmp_path / "proc" / "self")
    assert not is_in_memory(Path("/elsewhere"))


def test_estimates_count_the_file_and_the_space_on_its_disk(tmp_path, monkeypatch):
    def estimated(scratch):
        return topofl.estimate(
            algorithms.dsgd(lr=0.1),
            model=models.logistic_regression(64),
            clients=data.iid(data.digits(), n=4, seed=0),
            topology=topologies.ring(4),
            compute=topofl.Compute(device="cpu", scratch=scratch),
        )

    need, without = estimated(tmp_path), estimated(None)
    assert need.file == 4 * 650 * 4
    assert (without.file, without.disk) == (0, None)
    assert need.fits
    assert "the file of the models takes 1 MiB of " in str(need)
    assert "the file of the models" not in str(without)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=need.file - 1))
    full = estimated(tmp_path)
    assert not full.fits
    assert full.remedy == "use a folder on another disk"
    assert "takes 10,400 bytes of 10,399 free: DOES NOT FIT; use a folder on another" in str(full)


def test_models_on_a_disk_take_a_limited_part_of_memory():
    large = replace(FACTS, models=10**6, model=4 * 10**5)
    assert large.parts(LOOPED)["parameters"] == 4 * 10**11
    assert replace(large, on_disk=True).parts(LOOPED)["parameters"] == mapped.LARGEST
