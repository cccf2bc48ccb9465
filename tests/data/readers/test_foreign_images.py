"""Images from anywhere: only PNG and JPEG in regular files are opened, and only what fits."""

import os
import signal
import stat
import struct
import zlib

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from topofl import data
from topofl.data.readers import _images


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "pets"
    for place in ("train/cat/a.png", "train/cat/b.jpg", "train/dog/a.png"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3), (200, 100, 0)).save(folder / place)
    return folder


@pytest.fixture
def patience():
    """Interrupt what waits for ever."""

    def stop(*_):
        raise TimeoutError("still waiting after five seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 4 3
%%EndComments
newpath 0 0 moveto 4 3 lineto stroke
showpage
%%EOF
"""


def png(width, height, rows=b"", kind=2):
    """Return a PNG of these sides by its header, of which `rows` are all that is there."""

    def chunk(name, content):
        return (
            struct.pack(">I", len(content))
            + name
            + content
            + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("name", ["a.png", "b.jpg"])
def test_a_file_that_is_eps_starts_no_other_program(root, tmp_path, monkeypatch, name):
    trace = tmp_path / "started"
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {trace}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    (root / "train" / "cat" / name).write_bytes(EPS)
    with pytest.raises(
        ValueError,
        match=f"`root` must hold complete PNG or JPEG images .*{name} .neither PNG nor JPEG by",
    ):
        data.image_folder(root)
    assert not trace.exists()


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "PPM", "WEBP"])
def test_other_formats_are_refused_whatever_they_are_called(root, kind):
    Image.new("RGB", (4, 3), (200, 100, 0)).save(root / "train" / "cat" / "a.png", format=kind)
    with pytest.raises(ValueError, match=r"PNG or JPEG .*a\.png"):
        data.image_folder(root)


def test_a_jpeg_may_be_called_png(root):
    Image.new("RGB", (4, 3), (200, 100, 0)).save(root / "train" / "cat" / "a.png", format="JPEG")
    assert data.image_folder(root).inputs.shape == (3, 3, 3, 4)


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
def test_an_image_that_promises_too_much_is_not_decoded(root, monkeypatch, size, sides):
    (root / "train" / "cat" / "a.png").write_bytes(png(*sides))
    sizes = decoded(monkeypatch)
    with pytest.raises(ValueError, match=r"`root` must hold complete PNG or JPEG images.*a\.png"):
        data.image_folder(root, size=size)
    assert sizes == []


def test_an_image_of_another_size_is_refused_before_it_is_decoded(root, monkeypatch):
    (root / "train" / "dog" / "a.png").write_bytes(png(5000, 5000))
    sizes = decoded(monkeypatch)
    with pytest.raises(
        ValueError, match=r"images of one size .* 5000 x 5000 pixels in .*dog/a\.png and 3 x 4 in"
    ):
        data.image_folder(root)
    assert (5000, 5000) not in sizes


def test_a_folder_that_does_not_fit_into_memory_is_refused_before_anything_is_decoded(
    root, monkeypatch
):
    sizes = decoded(monkeypatch)
    monkeypatch.setattr(_images, "total_memory", lambda: 3 * 3 * 3 * 4 - 1)
    with pytest.raises(
        ValueError,
        match=r"`root` must allow all images to fit into memory, got 3 images of 3 x 4 pixels",
    ):
        data.image_folder(root)
    assert sizes == []
    monkeypatch.setattr(_images, "total_memory", lambda: 3 * 3 * 3 * 4)
    assert len(data.image_folder(root).inputs) == 3


@pytest.mark.parametrize("size", [2**40, 10**30])
def test_sizes_that_no_machine_can_hold(root, size):
    with pytest.raises(
        ValueError, match=r"`size` must (allow all images to fit into memory|be between 1 and)"
    ):
        data.image_folder(root, size=size)


def fifo(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("make", [fifo, endless, os.mkdir])
@pytest.mark.parametrize("size", [None, 8])
def test_what_is_no_regular_file_is_not_opened(root, make, size):
    victim = root / "train" / "dog" / "a.png"
    victim.unlink()
    make(victim)
    assert not stat.S_ISREG(victim.stat().st_mode)
    with pytest.raises(ValueError, match=r"regular files.*dog/a\.png.*which is"):
        data.image_folder(root, size=size)


@pytest.mark.usefixtures("patience")
def test_a_pipe_in_place_of_the_cache_is_not_opened(root):
    os.mkfifo(root / "topofl.pixels")
    with pytest.raises(ValueError, match="`cache` must be a folder in which"):
        data.image_folder(root)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("name", ["wnids.txt", "val/val_annotations.txt"])
@pytest.mark.parametrize("make", [fifo, endless])
def test_lists_of_tiny_imagenet_must_be_regular_files(tmp_path, name, make):
    for place in ("train/a/images/0.JPEG", "val/images/0.JPEG"):
        (tmp_path / place).parent.mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / place)
    (tmp_path / "wnids.txt").write_text("a\n")
    (tmp_path / "val" / "val_annotations.txt").write_text("0.JPEG\ta\n")
    (tmp_path / name).unlink()
    make(tmp_path / name)
    with pytest.raises(ValueError, match="`root` must hold regular files"):
        data.tiny_imagenet(tmp_path)


def test_every_image_is_opened_once_and_the_first_twice(root, monkeypatch):
    opened, stats, open_image, look = [], [], Image.open, os.stat
    monkeypatch.setattr(
        Image, "open", lambda path, **how: opened.append(path) or open_image(path, **how)
    )
    monkeypatch.setattr(
        _images.os, "stat", lambda path, **how: stats.append(path) or look(path, **how)
    )
    data.image_folder(root)
    assert len(opened) == 4
    assert sum(str(path).endswith((".png", ".jpg")) for path in stats) == 3
    assert np.unique(opened).size == 3
