"""Folders of images: what is read in which order, the file of pixels, and what is refused."""

import os
import shutil
import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.readers.image_files import PLACES, half, in_order, pixels, save
from topofl import config, data


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "pets"
    for seed in (5, 2, 0, 1, 4, 3):
        save(folder / PLACES[seed], pixels(seed))
    for other in (
        "train/cat/notes.txt",
        "train/.hidden/x.png",
        "train/dog/.x.png",
        "README.png",
        "extra/cat/x.png",
    ):
        (folder / other).parent.mkdir(parents=True, exist_ok=True)
        (folder / other).write_bytes(b"not an image")
    return folder


def test_reads_splits_classes_and_names_in_order(root):
    dataset = data.image_folder(root)
    assert (
        repr(dataset) == "Dataset('pets', inputs=(6, 3, 4, 6), n_classes=2, train=3, val=1, test=2)"
    )
    assert torch.equal(dataset.inputs, in_order(*range(6)))
    assert dataset.labels.tolist() == [0, 0, 1, 0, 1, 1]
    assert [dataset.train.tolist(), dataset.val.tolist(), dataset.test.tolist()] == [
        [0, 1, 2],
        [3],
        [4, 5],
    ]
    assert (dataset.mean, dataset.std) == (0.0, 1.0)


def test_val_may_be_called_valid_be_merged_or_be_missing(root):
    os.rename(root / "val", root / "valid")
    merged = data.image_folder(root, merge_val=True, mean=[0.1, 0.2, 0.3], std=0.5)
    assert [len(merged.train), len(merged.val), merged.test.tolist()] == [4, 0, [4, 5]]
    assert merged.mean == (0.1, 0.2, 0.3)
    assert data.image_folder(root).val.tolist() == [3]
    shutil.rmtree(root / "valid")
    shutil.rmtree(root / "test")
    only = data.image_folder(root)
    assert [len(only.train), len(only.val), len(only.test)] == [3, 0, 0]


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


def test_jpeg_is_read_as_pillow_reads_it(tmp_path):
    smooth = np.add.outer(np.arange(16), np.arange(16))[..., None].astype(np.uint8) * np.array(
        [1, 2, 4], np.uint8
    )
    for name in ("a.jpg", "b.JPEG", "c.jpeg"):
        save(tmp_path / "train" / "x" / name, smooth)
    Image.fromarray(smooth).convert("CMYK").save(tmp_path / "train" / "x" / "d.jpg")
    inputs = data.image_folder(tmp_path).inputs
    assert len(inputs) == 4
    for image in inputs[:3]:
        assert abs(image.numpy().transpose(1, 2, 0).astype(int) - smooth).mean() < 8
    assert abs(inputs[3].int() - inputs[0].int()).float().mean() < 8


def test_size_stretches_what_has_another(tmp_path):
    save(tmp_path / "train" / "x" / "a.png", np.full((8, 8, 3), (10, 20, 30), np.uint8))
    save(tmp_path / "train" / "x" / "b.png", pixels(0, 4, 2))
    with pytest.raises(
        ValueError,
        match=r"`size` is given, got 4 x 2 pixels in .*b.png and 8 x 8 in .*a.png; pass size",
    ):
        data.image_folder(tmp_path)
    dataset = data.image_folder(tmp_path, size=[4, 2])
    assert dataset.name == f"{tmp_path.name} (4 x 2 pixels)"
    assert dataset.inputs.shape == (2, 3, 4, 2)
    assert (dataset.inputs[0].flatten(1) == torch.tensor([10, 20, 30])[:, None]).all()
    np.testing.assert_array_equal(dataset.inputs[1], pixels(0, 4, 2).transpose(2, 0, 1))
    assert data.image_folder(tmp_path, size=3).inputs.shape == (2, 3, 3, 3)
    assert {path.name for path in tmp_path.glob("*.pixels")} == {
        "topofl-4x2.pixels",
        "topofl-3x3.pixels",
    }


def test_decoded_once(root, decodings):
    first, again = data.image_folder(root), data.image_folder(root)
    assert torch.equal(first.inputs, again.inputs)
    assert len(decodings) == 1
    assert [path.name for path in root.iterdir() if "topofl" in path.name] == ["topofl.pixels"]
    again.inputs[0] = 0
    assert torch.equal(data.image_folder(root, merge_val=True).inputs, first.inputs)
    assert len(decodings) == 1, "which examples are for validation does not matter"
    os.utime(root / PLACES[0], ns=(1, 1))
    data.image_folder(root)
    assert len(decodings) == 2


def test_the_cache_may_lie_elsewhere(root, tmp_path, decodings):
    other = tmp_path / "deep" / "cache"
    shutil.copytree(root, tmp_path / "copy" / "pets")
    for folder in (root, tmp_path / "copy" / "pets", root):
        data.image_folder(folder, cache=other)
    assert len(decodings) == 2, "two folders of one name have a cache each"
    assert len(list(other.iterdir())) == 2
    assert not list(root.glob("*topofl*"))
    with pytest.raises(
        OSError, match=r"`cache` must be a writable folder .* cannot write .*; choose another"
    ):
        data.image_folder(root, cache=root / "README.png" / "inside")


def test_the_way_to_the_folder_does_not_matter(root, tmp_path, monkeypatch, decodings):
    data.image_folder(root)
    monkeypatch.chdir(root)
    (tmp_path / "link").symlink_to(root)
    for way in (".", "../pets", str(root) + "/", tmp_path / "link"):
        assert torch.equal(data.image_folder(way).inputs, in_order(*range(6)))
    assert data.image_folder(".").name == "pets"
    shutil.move(root, tmp_path / "elsewhere")
    assert data.image_folder(tmp_path / "elsewhere").name == "elsewhere"
    assert len(decodings) == 1


CHANGES = {
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
    assert len(decodings) == 3


@pytest.mark.parametrize("size", [0, 5, 14, 40, -1, -400])
def test_a_cache_that_was_cut_off_is_made_again(root, decodings, size):
    wanted = data.image_folder(root).inputs
    cache = root / "topofl.pixels"
    whole = cache.read_bytes()
    cache.write_bytes(whole[:size])
    assert torch.equal(data.image_folder(root).inputs, wanted)
    assert len(decodings) == 2
    assert cache.read_bytes() == whole


def test_a_damaged_cache_is_made_again_or_refused(root, decodings):
    wanted = data.image_folder(root).inputs
    cache = root / "topofl.pixels"
    whole = cache.read_bytes()
    header = whole.index(b"\n", 14)
    for count, place in enumerate([20, header - 3, header, header + 1, len(whole) - 1], 2):
        cache.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert torch.equal(data.image_folder(root).inputs, wanted)
        assert len(decodings) == count
    for odd in (
        b"[1]\n",
        b"[" * 999 + b"\n",
        b'{"listing": "", "shape": [1e9, 3, 4, 6], "crc32": 0}\n',
        b"\xff" * 2000,
    ):
        cache.write_bytes(whole[:14] + odd + whole[header + 1 :])
        assert torch.equal(data.image_folder(root).inputs, wanted)
    cache.write_bytes(whole.replace(b"[6, 3, 4, 6]", b"[6, 3, 6, 4]"))
    assert data.image_folder(root).inputs.shape == (6, 3, 4, 6)
    cache.write_bytes(whole + b"x")
    assert torch.equal(data.image_folder(root).inputs, wanted)


def test_a_file_of_somebody_else_is_not_overwritten(root):
    (root / "topofl.pixels").write_bytes(b"my thesis, the only copy")
    with pytest.raises(
        ValueError,
        match=r"`cache` must be a folder in which topofl.pixels .*got another file.*move it away",
    ):
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


def sixteen_bits(path):
    path.unlink()
    Image.fromarray(np.full((4, 6), 40_000, np.uint16)).save(path)


BREAK = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello"),
    "half": half,
    "16 bits": sixteen_bits,
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "link": lambda path: (path.unlink(), path.symlink_to(path.name)),
}


@pytest.mark.parametrize("kind", BREAK)
@pytest.mark.parametrize("name", ["x.png", "x.jpg"])
def test_broken_images_are_named(root, kind, name):
    path = root / "train" / "dog" / name
    save(path, pixels(0, 40, 60))
    if kind == "16 bits" and name == "x.jpg":
        path = path.with_suffix(".png")
        save(path, pixels(0))
    BREAK[kind](path)
    whole = rf"`root` must hold complete PNG or JPEG images.*{path.name} \(.*\); copy it again"
    regular = rf"`root` must hold regular files, got .*{path.name}, which is a folder; remove it"
    with pytest.raises(ValueError, match=regular if kind == "folder" else whole):
        data.image_folder(root, size=4)


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


def empty_class(root):
    (root / "train" / "bird").mkdir()


def both_val(root):
    shutil.copytree(root / "val", root / "valid")


@pytest.mark.parametrize(
    ("change", "call", "error", "match"),
    [
        (
            lambda root: shutil.rmtree(root),
            {},
            FileNotFoundError,
            "`root` must hold train/<class>/, missing in .*pets",
        ),
        (
            lambda root: shutil.rmtree(root / "train"),
            {},
            FileNotFoundError,
            "`root` must hold .*: train$",
        ),
        (
            lambda root: [shutil.rmtree(root / "train" / name) for name in ("cat", "dog")],
            {},
            ValueError,
            "got none",
        ),
        (
            empty_class,
            {},
            ValueError,
            r"`root` .* got none \(.jpeg, .jpg, .png\) of 'bird' in .*train \(1 such",
        ),
        (
            lambda root: (root / "test" / "cow").mkdir(),
            {},
            ValueError,
            "`root` .* train only, got 'cow' in .*test",
        ),
        (both_val, {}, ValueError, "`root` must hold one of val and valid"),
        (None, {"size": 0}, ValueError, "`size` must be at least 1"),
        (None, {"size": 2.5}, TypeError, "`size` must be an integer"),
        (
            None,
            {"size": (1, 2, 3)},
            ValueError,
            "`size` must be an integer, or height and width, got 3 numbers",
        ),
        (None, {"merge_val": 1}, ValueError, "`merge_val` must be True or False"),
        (None, {"std": 0}, ValueError, "`std`"),
        (None, {"mean": [1, 2]}, ValueError, "`mean`.*3 channels"),
    ],
)
def test_refuses(root, change, call, error, match):
    if change:
        change(root)
    with pytest.raises(error, match=match):
        data.image_folder(root, **call)


def test_configured_with_a_cache(root, tmp_path):
    source = {
        "name": "image_folder",
        "root": str(root),
        "cache": str(tmp_path / "cache"),
        "mean": [0.5, 0.5, 0.5],
    }
    tables = {
        "data": source | {"n": 2, "partition": "iid"},
        "topology": "ring",
        "algorithm": "dsgd,lr=0.1",
        "run": {"rounds": 1},
    }
    experiment = config.build(tables)
    assert experiment.clients.name == "iid(pets, n=2)"
    assert experiment.clients.dataset.mean == (0.5, 0.5, 0.5)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert config.build(experiment.tables).clients.name == "iid(pets, n=2)"
    with pytest.raises(TypeError, match="`cache` must be the path of a folder, got 3"):
        config.build(tables | {"data": tables["data"] | {"cache": 3}})
