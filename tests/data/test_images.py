"""Folders of images: what is read, decoded once into a cache, and never opened."""

import os
import shutil
import signal
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

from tests.rows.readers import PLACES, pixels, save, save_cinic, save_pets, save_tiny, stacked
from topofl import data
from topofl.data.readers import folders


@pytest.fixture
def root(tmp_path):
    save_pets(tmp_path / "pets")
    return tmp_path / "pets"


@pytest.fixture
def decodings(monkeypatch):
    """Count how often images are decoded."""
    calls, decoded = [], folders._decode
    monkeypatch.setattr(folders, "_decode", lambda *args: calls.append(1) or decoded(*args))
    return calls


def test_val_may_be_called_valid_be_merged_or_be_missing(root):
    assert data.image_folder(root).class_names == ("cat", "dog")
    os.rename(root / "val", root / "valid")
    merged = data.image_folder(root, merge_val=True, mean=[0.1, 0.2, 0.3], std=0.5)
    assert [len(merged.train), len(merged.val), merged.test.tolist()] == [4, 0, [4, 5]]
    assert (merged.mean, merged.std) == ((0.1, 0.2, 0.3), 0.5)
    assert data.image_folder(root).val.tolist() == [3]
    shutil.rmtree(root / "valid")
    shutil.rmtree(root / "test")
    only = data.image_folder(root)
    assert [len(only.train), len(only.val), len(only.test)] == [3, 0, 0]


def test_cinic10_may_keep_validation_images_apart_and_stretch(tmp_path, decodings):
    save_cinic(tmp_path / "cinic")
    apart = data.cinic10(tmp_path / "cinic", merge_val=False)
    assert [len(apart.train), apart.val.tolist()] == [11, [*range(11, 21)]]
    assert torch.equal(data.cinic10(tmp_path / "cinic").inputs, apart.inputs)
    assert len(decodings) == 1
    whole = data.cinic10(tmp_path / "cinic", size=32, cache=tmp_path / "cache")
    assert whole.name == "cinic10 (10 classes, 11 + 10 + 10 images)"
    assert whole.inputs.shape == (31, 3, 32, 32)


def test_tiny_imagenet_holds_out_and_stretches(tmp_path):
    save_tiny(tmp_path)
    dataset = data.tiny_imagenet(tmp_path, val=3, seed=1, size=32)
    assert dataset.name == "tiny_imagenet (32 x 32 pixels, 2 classes, 7 + 3 images)"
    assert np.bincount(dataset.labels.numpy()[dataset.val]).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("sizes", "sides", "notes"),
    [
        ((500, 50), (64, 64), ""),
        ((500, 50), (32, 32), " (32 x 32 pixels)"),
        ((500, 49), (64, 64), " (200 classes, 100000 + 9800 images)"),
    ],
)
def test_the_original_sizes_have_a_plain_name(sizes, sides, notes):
    parts = [[[Path("x")] * size] * 200 for size in sizes]
    whole = [[500] * 200, [50] * 200]
    inputs = torch.empty(0, 3, *sides)
    name = folders._name_with_differences("tiny_imagenet", inputs, (64, 64), parts, whole)
    assert name == f"tiny_imagenet{notes}"


def test_every_kind_of_image_becomes_rgb(tmp_path):
    rgb, grey = pixels(0), pixels(1)[..., 0]
    palette = Image.fromarray(rgb).quantize(8)
    clear = palette.copy()
    clear.info["transparency"] = bytes(range(8))
    bits = Image.fromarray((grey > 127).astype(np.uint8) * 255).convert("1")
    alpha = Image.fromarray(np.dstack([rgb, grey]))
    kinds = {
        "a_rgb": (Image.fromarray(rgb), rgb),
        "b_grey": (Image.fromarray(grey), np.dstack([grey] * 3)),
        "c_palette": (palette, np.asarray(palette.convert("RGB"))),
        "d_clear_palette": (clear, np.asarray(palette.convert("RGB"))),
        "e_bits": (bits, np.dstack([(grey > 127).astype(np.uint8) * 255] * 3)),
        "f_alpha": (alpha, rgb),
        "g_grey_alpha": (Image.fromarray(np.dstack([grey, grey])), np.dstack([grey] * 3)),
    }
    for name, (image, _) in kinds.items():
        save(tmp_path / "train" / "x" / f"{name}.png", image)
    found = data.image_folder(tmp_path).inputs.numpy().transpose(0, 2, 3, 1)
    for image, (name, (_, wanted)) in zip(found, kinds.items(), strict=True):
        np.testing.assert_array_equal(image, wanted, err_msg=name)


def test_jpeg_is_read_as_pillow_reads_it_whatever_it_is_called(tmp_path):
    colors = np.array([1, 2, 4], np.uint8)
    smooth = np.add.outer(np.arange(16), np.arange(16))[..., None].astype(np.uint8) * colors
    for name in ("a.jpg", "b.JPEG", "c.jpeg"):
        save(tmp_path / "train" / "x" / name, smooth)
    Image.fromarray(smooth).convert("CMYK").save(tmp_path / "train" / "x" / "d.jpg")
    Image.fromarray(smooth).save(tmp_path / "train" / "x" / "e.png", format="JPEG")
    inputs = data.image_folder(tmp_path).inputs.int()
    assert len(inputs) == 5
    for image in inputs[[0, 1, 2, 4]]:
        assert abs(image.numpy().transpose(1, 2, 0) - smooth).mean() < 8
    assert abs(inputs[3] - inputs[0]).float().mean() < 8


def test_size_stretches_what_has_another(tmp_path):
    save(tmp_path / "train" / "x" / "a.png", np.full((8, 8, 3), (10, 20, 30), np.uint8))
    save(tmp_path / "train" / "x" / "b.png", pixels(0, 4, 2))
    dataset = data.image_folder(tmp_path, size=[4, 2])
    assert dataset.name == f"{tmp_path.name} (4 x 2 pixels)"
    assert dataset.inputs.shape == (2, 3, 4, 2)
    assert (dataset.inputs[0].flatten(1) == torch.tensor([10, 20, 30])[:, None]).all()
    np.testing.assert_array_equal(dataset.inputs[1], pixels(0, 4, 2).transpose(2, 0, 1))
    assert data.image_folder(tmp_path, size=3).inputs.shape == (2, 3, 3, 3)
    names = {path.name for path in tmp_path.glob("*.pixels")}
    assert names == {"topofl-4x2.pixels", "topofl-3x3.pixels"}


def test_the_cache_may_lie_elsewhere(root, tmp_path, decodings):
    other = tmp_path / "deep" / "cache"
    shutil.copytree(root, tmp_path / "copy" / "pets")
    for folder in (root, tmp_path / "copy" / "pets", root):
        data.image_folder(folder, cache=other)
    assert len(decodings) == 2, "two folders of one name have a cache each"
    assert len(list(other.iterdir())) == 2
    assert not list(root.glob("*topofl*"))
    match = r"`cache` must be a writable folder .* cannot write .*; choose another"
    with pytest.raises(OSError, match=match):
        data.image_folder(root, cache=root / "README.png" / "inside")


def test_decoded_once_whatever_the_way_to_the_folder(root, tmp_path, monkeypatch, decodings):
    first = data.image_folder(root)
    first.inputs[0] = 0
    monkeypatch.chdir(root)
    (tmp_path / "link").symlink_to(root)
    for way in (".", "../pets", str(root) + "/", tmp_path / "link"):
        np.testing.assert_array_equal(data.image_folder(way).inputs, stacked(*range(6)))
    data.image_folder(root, merge_val=True)
    assert data.image_folder(".").name == "pets"
    assert [path.name for path in root.iterdir() if "topofl" in path.name] == ["topofl.pixels"]
    shutil.move(root, tmp_path / "elsewhere")
    assert data.image_folder(tmp_path / "elsewhere").name == "elsewhere"
    assert len(decodings) == 1


CHANGES = {
    "touched": lambda root: os.utime(root / PLACES[0], ns=(1, 1)),
    "changed": lambda root: save(root / PLACES[1], pixels(9)),
    "added": lambda root: save(root / "train/dog/new.png", pixels(9)),
    "removed": lambda root: (root / PLACES[1]).unlink(),
    "renamed": lambda root: (root / PLACES[1]).rename(root / "train/cat/zzz.png"),
    "moved": lambda root: (root / PLACES[1]).rename(root / "train/dog/9.PNG"),
    "class": lambda root: save(root / "train/cow/new.png", pixels(9)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_folder_is_decoded_again(root, tmp_path, decodings, change):
    data.image_folder(root)
    CHANGES[change](root)
    again = data.image_folder(root)
    assert len(decodings) == 2
    fresh = data.image_folder(root, cache=tmp_path / "fresh")
    assert torch.equal(again.inputs, fresh.inputs)


def test_a_damaged_cache_is_made_again_or_refused(root, decodings):
    wanted = data.image_folder(root).inputs
    cache = root / "topofl.pixels"
    whole = cache.read_bytes()
    header = whole.index(b"\n", 14)
    damaged = [whole[:size] for size in (0, 5, 14, 40, -1, -400)]
    for place in (20, header - 3, header, header + 1, len(whole) - 1):
        damaged.append(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    shape = b'{"listing": "", "shape": [1e9, 3, 4, 6], "crc32": 0}\n'
    for odd in (b"[1]\n", b"[" * 999 + b"\n", shape, b"\xff" * 2000):
        damaged.append(whole[:14] + odd + whole[header + 1 :])
    damaged += [whole.replace(b"[6, 3, 4, 6]", b"[6, 3, 6, 4]"), whole + b"x"]
    for count, content in enumerate(damaged, 2):
        cache.write_bytes(content)
        assert torch.equal(data.image_folder(root).inputs, wanted)
        assert len(decodings) == count
        assert cache.read_bytes() == whole


def test_a_file_of_somebody_else_is_not_overwritten(root):
    (root / "topofl.pixels").write_bytes(b"my thesis, the only copy")
    free = r"in which topofl.pixels .*got another file.*move it away"
    with pytest.raises(ValueError, match=f"`cache` must be a folder {free}"):
        data.image_folder(root)
    assert (root / "topofl.pixels").read_bytes() == b"my thesis, the only copy"


def test_if_decoding_fails_the_old_cache_stays_and_nothing_else(root):
    data.image_folder(root)
    before = (root / "topofl.pixels").read_bytes()
    (root / PLACES[0]).write_bytes(b"")
    with pytest.raises(ValueError, match=r"cannot read .*10.png"):
        data.image_folder(root)
    assert (root / "topofl.pixels").read_bytes() == before
    assert [path.name for path in root.iterdir() if "topofl" in path.name] == ["topofl.pixels"]


def test_memory_holds_the_pixels_once(tmp_path):
    for i in range(100):
        save(tmp_path / "train" / "x" / f"{i:03}.png", np.full((64, 64, 3), i, np.uint8))
    data.image_folder(tmp_path, cache=tmp_path / "first")  # loads what Pillow needs
    tracemalloc.start()
    try:
        inputs = data.image_folder(tmp_path).inputs
        decoding = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        del inputs
        data.image_folder(tmp_path)
        reading = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert max(decoding, reading) < 1.3 * 100 * 3 * 64 * 64


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 4 3
%%EndComments
newpath 0 0 moveto 4 3 lineto stroke
showpage
%%EOF
"""


@pytest.mark.parametrize("name", ["10.png", "b.jpg"])
def test_a_file_that_is_eps_starts_no_other_program(root, tmp_path, monkeypatch, name):
    trace = tmp_path / "started"
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {trace}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    (root / "train" / "cat" / name).write_bytes(EPS)
    with pytest.raises(ValueError, match=f"{name} .neither PNG nor JPEG by"):
        data.image_folder(root)
    assert not trace.exists()


def png(width, height):
    """Return a PNG of these sides by its header, without any row."""

    def chunk(name, content):
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.fixture
def decoded(monkeypatch):
    """Return the list to which every image that is decoded from now on adds its size."""
    sizes, convert = [], Image.Image.convert

    def counted(image, *args, **kwargs):
        sizes.append(image.size)
        return convert(image, *args, **kwargs)

    monkeypatch.setattr(Image.Image, "convert", counted)
    return sizes


@pytest.mark.parametrize("size", [None, 8])
@pytest.mark.parametrize("sides", [(9000, 9000), (2**31 - 1, 1), (2**30, 2**30)])
def test_an_image_that_promises_too_much_is_not_decoded(root, decoded, size, sides):
    (root / PLACES[0]).write_bytes(png(*sides))
    with pytest.raises(ValueError, match=r"`root` must hold complete PNG or JPEG images.*10\.png"):
        data.image_folder(root, size=size)
    assert decoded == []


def test_an_image_of_another_size_is_refused_before_it_is_decoded(root, decoded):
    (root / "train" / "dog" / "a.png").write_bytes(png(5000, 5000))
    match = r"of one size .* 5000 x 5000 pixels in .*dog/a\.png and 4 x 6 in"
    with pytest.raises(ValueError, match=match):
        data.image_folder(root)
    assert (5000, 5000) not in decoded


def test_what_does_not_fit_into_memory_is_refused_before_anything_is_decoded(
    root, monkeypatch, decoded
):
    monkeypatch.setattr(folders, "total_memory", lambda: 6 * 3 * 4 * 6 - 1)
    match = r"`root` must allow all images to fit into memory, got 6 images of 4 x 6 pixels"
    with pytest.raises(ValueError, match=match):
        data.image_folder(root)
    assert decoded == []
    monkeypatch.setattr(folders, "total_memory", lambda: 6 * 3 * 4 * 6)
    assert len(data.image_folder(root).inputs) == 6


def test_a_pipe_in_place_of_the_cache_is_not_opened(root):
    os.mkfifo(root / "topofl.pixels")
    signal.alarm(5)
    with pytest.raises(ValueError, match="`cache` must be a folder in which"):
        data.image_folder(root)
    signal.alarm(0)


def test_every_image_is_opened_once_and_the_first_twice(root, monkeypatch):
    opened, stats, open_image, look = [], [], Image.open, os.stat
    monkeypatch.setattr(
        Image, "open", lambda path, **how: opened.append(path) or open_image(path, **how)
    )
    monkeypatch.setattr(
        folders.os, "stat", lambda path, **how: stats.append(path) or look(path, **how)
    )
    data.image_folder(root)
    assert len(opened) == 7
    assert sum(str(path).lower().endswith(".png") for path in stats) == 6
    assert np.unique(opened).size == 6
