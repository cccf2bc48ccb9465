"""IDX files, whose headers are not trusted; MNIST and datasets like it; digits of scikit-learn."""

import gzip
import hashlib
import struct
import tracemalloc
import zlib
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from tests.rows.readers import CODES, KINDS, MNIST, idx, save_emnist, save_mnist
from topofl import data, models
from topofl.data.readers import mnist as readers

VALID = idx(np.arange(100, dtype=np.uint8))
ZIPPED = gzip.compress(VALID, mtime=0)  # without a time stamp names of tests stay the same


@pytest.mark.parametrize("kind", list(CODES))
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_read_idx_returns_what_was_written(tmp_path, kind, pack):
    array = (np.arange(24).reshape(2, 3, 4) - 5).astype(kind)
    path = tmp_path / "file"
    path.write_bytes(pack(idx(array)))
    read = data.read_idx(path, md5=hashlib.md5(idx(array)).hexdigest().upper())
    np.testing.assert_array_equal(read, array)
    assert (read.dtype, read.dtype.isnative, read.flags.writeable) == (kind, True, True)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (ZIPPED[:-9], "whole gzip file.*incomplete"),
        (ZIPPED[:15], "whole gzip file"),
        (ZIPPED + b"x", "whole gzip file"),
        (ZIPPED[:-6] + b"123456", "whole gzip file"),
        (VALID[:-1], "108 bytes for shape .*got 107.*incomplete"),
        (gzip.compress(VALID[:-1], mtime=0), "108 bytes for shape .*got 107.*incomplete"),
        (VALID + b"x", "108 bytes for shape .*got more.*surplus bytes"),
        (VALID[:6], "header of 8 bytes, got 6"),
        (VALID[:3], "IDX file.*starts with"),
        (b"\x89PNG\r\n\x1a\n" + VALID, "IDX file.*'89 50 4e 47'"),
        (b"\0\0\x07\x01" + VALID[4:], "IDX file.*'00 00 07 01'"),
        (b"\0\0\x08\0", "IDX file"),
        (b"\0\0\x08\x21" + b"\1" * 132, "IDX file"),
        (b"\0\0\x08\x01\0\0\0\0", "at least one number"),
        (b"\0\0\x08\x20" + b"\xff" * 128, "fit into memory, got shape"),
    ],
)
def test_read_idx_refuses(tmp_path, content, match):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=f"`path`.*{match}"):
        data.read_idx(tmp_path / "file")


def test_read_idx_refuses_another_checksum_a_missing_file_and_a_folder(tmp_path):
    (tmp_path / "file").write_bytes(VALID)
    with pytest.raises(ValueError, match=r"`md5`.*0123.*got"):
        data.read_idx(tmp_path / "file", md5="0123")
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(FileNotFoundError, match="`path`"):
            data.read_idx(path)


headers = st.builds(
    lambda code, dimensions, rest: b"\0\0" + bytes([code, dimensions]) + rest,
    st.sampled_from(list(CODES.values())),
    st.integers(0, 255),
    st.binary(max_size=600),
)


packed = st.binary().map(b"\x1f\x8b\x08".__add__) | headers.map(gzip.compress)


@given(st.binary() | headers | packed)
def test_read_idx_of_any_bytes_gives_an_array_or_a_value_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzz"
    path.write_bytes(content)
    try:
        assert data.read_idx(path).size > 0
    except ValueError as error:
        assert "`path`" in str(error)  # noqa: PT017 - or an array


@pytest.mark.parametrize("promised", [(100,), (10, 10), (2**31,)], ids=str)
def test_no_more_is_decompressed_than_the_header_promises(tmp_path, promised):
    """A hundred kilobytes of gzip hold 128 megabytes of zeros; the header may promise even more."""
    header = b"\0\0\x08" + struct.pack(f">B{len(promised)}I", len(promised), *promised)
    packer, path = zlib.compressobj(9, zlib.DEFLATED, 31), tmp_path / "file"
    mebibytes = 1 if promised == (2**31,) else 2**7
    with path.open("wb") as file:
        file.write(packer.compress(header))
        for _ in range(mebibytes):
            file.write(packer.compress(bytes(2**20)))
        file.write(packer.flush())
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="`path`") as caught:
            data.read_idx(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ("surplus bytes" in str(caught.value)) == (mebibytes > 1)
    assert most < 2**24


def test_an_idx_file_larger_than_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(VALID)
    monkeypatch.setattr(readers, "total_memory", lambda: 99)
    match = r"`path` must fit into memory, got shape \(100,\) of uint8"
    with pytest.raises(ValueError, match=match):
        data.read_idx(tmp_path / "file")
    monkeypatch.setattr(readers, "total_memory", lambda: 100)
    assert len(data.read_idx(tmp_path / "file")) == 100


SIZES = {"balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "letters": 26, "mnist": 10}


@pytest.mark.parametrize("split", SIZES)
def test_splits_of_emnist_have_their_classes_and_are_normalized(tmp_path, split):
    first = 1 if split == "letters" else 0
    images, _ = save_emnist(tmp_path, split, range(first, first + SIZES[split]))
    dataset = data.emnist(tmp_path, split=split, verify=False)
    assert (dataset.name, dataset.n_classes) == (f"emnist {split} (unverified)", SIZES[split])
    assert dataset.labels.tolist() == [*range(SIZES[split])] * 2
    pixels = images[: SIZES[split]] / 255
    assert dataset.mean == pytest.approx(pixels.mean(), abs=5e-5)
    assert dataset.std == pytest.approx(pixels.std(), abs=5e-5)
    seen = dataset.examples(dataset.train)
    assert abs(float(seen.mean())) < 1e-3
    assert float(seen.std()) == pytest.approx(1, abs=1e-3)


def test_sizes_are_verified(tmp_path, monkeypatch):
    monkeypatch.setitem(readers._EMNIST, "letters", (26, 1, ((3, 3),)))
    save_emnist(tmp_path, labels=[1, 2, 3])
    assert data.emnist(tmp_path, split="letters", val=1).name == "emnist letters"
    save_emnist(tmp_path, labels=[1, 2, 3], side=4)
    with pytest.raises(ValueError, match=r"28 x 28 pixels .* of 4 x 4"):
        data.emnist(tmp_path, split="letters")


@pytest.mark.parametrize("balanced", [True, False])
def test_mnist_is_not_taken_for_fashion_mnist(tmp_path, balanced):
    for prefix, size in zip(MNIST, (6000, 1000), strict=True):
        labels = np.repeat(np.arange(10, dtype=np.uint8), size)
        labels[0] = 0 if balanced else 1
        (tmp_path / f"{prefix}-{KINDS[0]}").write_bytes(idx(np.zeros((10 * size, 28, 28), "u1")))
        (tmp_path / f"{prefix}-{KINDS[1]}").write_bytes(idx(labels))
    if balanced:
        assert data.fashion_mnist(tmp_path).name == "fashion_mnist"
        return
    match = r"6000 images of each class .* \[5999, 6001, .*data.mnist"
    with pytest.raises(ValueError, match=match):
        data.fashion_mnist(tmp_path)


def test_files_in_root_go_before_files_below(tmp_path):
    save_mnist(tmp_path / "MNIST" / "raw", labels=[0, 1] * 10)
    save_mnist(tmp_path / "a", labels=[0, 1] * 20)
    assert len(data.mnist(tmp_path, val=0, verify=False).train) == 20


@pytest.fixture(scope="module")
def mnist(mnist_root):
    return data.mnist(mnist_root)


def test_mnist_has_the_splits_of_dcliques(mnist):
    labels = mnist.labels.numpy()
    tests = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    train = [4943, 5607, 4926, 5121, 4860, 4529, 4960, 5237, 4877, 4940]
    for part, sizes in ((mnist.test, tests), (mnist.val, tests), (mnist.train, train)):
        assert np.bincount(labels[part]).tolist() == sizes
    np.testing.assert_array_equal(mnist.test, np.arange(60_000, 70_000))
    clients = data.shards(mnist, n=100, per_node=2, seed=0)
    assert (clients.sizes == 500).all()
    assert ((clients.label_counts > 0).sum(axis=1) <= 4).all()
    assert clients.label_counts.sum(axis=0).tolist() == train


def test_mnist_is_stored_as_bytes_and_seen_normalized(mnist, mnist_root):
    assert (mnist.inputs.shape, mnist.inputs.dtype) == ((70_000, 1, 28, 28), torch.uint8)
    files = [data.read_idx(mnist_root / "raw" / f"{prefix}-{KINDS[0]}.gz") for prefix in MNIST]
    np.testing.assert_array_equal(mnist.inputs[:, 0], np.concatenate(files))
    train = mnist.examples(np.arange(60_000))
    low, high = (0 - 0.1307) / 0.3081, (1 - 0.1307) / 0.3081
    np.testing.assert_allclose([train.min(), train.max()], [low, high], rtol=1e-6)
    assert abs(float(train.mean())) < 1e-3
    assert abs(float(train.std()) - 1) < 1e-3


def test_some_training_images_are_drawn_by_the_seed(tmp_path):
    save_mnist(tmp_path)
    read = partial(data.mnist, tmp_path, val=6, verify=False)
    whole, some, other = read(), read(train=10), read(train=10, seed=1)
    assert set(some.train) < set(whole.train)
    assert len(some.train) == 10
    assert np.bincount(some.labels.numpy()[some.train]).tolist() == [5, 5]
    assert some.train.tolist() != other.train.tolist()
    assert (some.val.tolist(), some.test.tolist()) == (whole.val.tolist(), whole.test.tolist())


@pytest.mark.parametrize("downscale", [1, 2, 4])
def test_downscaled_pixels_are_rounded_means_of_blocks(tmp_path, downscale):
    pixels, _ = save_mnist(tmp_path)
    small = data.mnist(tmp_path, val=6, verify=False, downscale=downscale)
    side = 4 // downscale
    blocks = pixels.reshape(42, 1, side, downscale, side, downscale)
    wanted = np.floor(blocks.mean(axis=(3, 5)) + 0.5)
    assert small.inputs.dtype == torch.uint8
    np.testing.assert_array_equal(small.inputs, wanted)
    size = f"{side} x {side} pixels, " if downscale > 1 else ""
    assert (small.name, small.mean) == (f"mnist ({size}unverified)", 0.1307)


def test_digits_are_scikit_learns_scaled_and_split():
    pixels, labels = load_digits(return_X_y=True)
    dataset = data.digits(test=300, val=100, seed=1)
    assert (dataset.inputs.shape, dataset.inputs.dtype) == ((1797, 1, 8, 8), torch.float32)
    np.testing.assert_allclose(dataset.inputs.flatten(1) * 16, pixels)
    np.testing.assert_array_equal(dataset.labels, labels)
    parts = [dataset.train, dataset.val, dataset.test]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(1797))
    for part, size in ((dataset.val, 100), (dataset.test, 300)):
        assert len(part) == size
        assert np.abs(np.bincount(labels[part]) - size * np.bincount(labels) / 1797).max() < 1.5
    assert data.digits(seed=0).test.tolist() != data.digits(seed=1).test.tolist()


def test_enlarged_digits_repeat_their_pixels():
    plain, large = data.digits(), data.digits(enlarge=3)
    assert large.name == "digits (24 x 24 pixels)"
    wanted = np.kron(plain.inputs.numpy(), np.ones((1, 1, 3, 3), np.float32))
    np.testing.assert_array_equal(large.inputs, wanted)
    np.testing.assert_array_equal(large.test, plain.test)
    assert models.gn_lenet((1, 16, 16))(data.digits(enlarge=2).inputs[:2]).shape == (2, 10)
