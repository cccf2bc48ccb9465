"""Readers of files: the format, damaged files, and the splits of the papers."""

import gzip
import hashlib
import shutil
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topofl import data, models
from topofl.data.readers import mnist as readers

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx(array):
    """Return the IDX bytes of an array."""
    array = np.asarray(array)
    header = (
        bytes([0, 0, CODES[array.dtype.str[1:]], array.ndim])
        + np.array(array.shape, ">u4").tobytes()
    )
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def save_mnist_like(folder, labels=(0, 1) * 15, test_labels=(0, 1, 1) * 4, side=4):
    """Write four small files with the names of MNIST's."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for prefix, classes in (("train", labels), ("t10k", test_labels)):
        images = rng.integers(0, 256, (len(classes), side, side)).astype(np.uint8)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(np.array(classes, np.uint8)))
    return folder


@pytest.mark.parametrize("kind", list(CODES))
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_read_idx_returns_what_was_written(tmp_path, kind, pack):
    array = (np.arange(24).reshape(2, 3, 4) - 5).astype(kind)
    path = tmp_path / "file"
    path.write_bytes(pack(idx(array)))
    read = data.read_idx(path, md5=hashlib.md5(idx(array)).hexdigest().upper())
    np.testing.assert_array_equal(read, array)
    assert read.dtype == np.dtype(kind)
    assert read.dtype.isnative
    assert read.flags.writeable


VALID = idx(np.arange(100, dtype=np.uint8))
ZIPPED = gzip.compress(
    VALID, mtime=0
)  # without a time stamp tests have the same names in every process


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
        (b"", "IDX file"),
        (b"\x89PNG\r\n\x1a\n" + VALID, "IDX file.*'89 50 4e 47'"),
        (b"\0\0\x07\x01" + VALID[4:], "IDX file.*'00 00 07 01'"),
        (b"\0\0\x08\0", "IDX file"),
        (b"\0\0\x08\x01\0\0\0\0", "at least one number"),
        (b"\0\0\x08\x20" + b"\xff" * 128, "fit into memory, got shape"),
    ],
)
def test_read_idx_refuses(tmp_path, content, match):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"`path`.*{match}"):
        data.read_idx(path)


def test_read_idx_refuses_another_checksum(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(VALID)
    with pytest.raises(ValueError, match=r"`md5`.*0123.*got"):
        data.read_idx(path, md5="0123")


def test_read_idx_refuses_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(FileNotFoundError, match="`path`"):
            data.read_idx(path)


damaged = st.builds(
    lambda content, cut, place, byte: (
        content[: max(0, place - 1)] + bytes([byte]) + content[place : len(content) - cut]
    ),
    st.sampled_from([VALID, gzip.compress(VALID, mtime=0)]),
    st.integers(0, 60),
    st.integers(0, 120),
    st.integers(0, 255),
)
headers = st.builds(
    lambda code, dimensions, rest: b"\0\0" + bytes([code, dimensions]) + rest,
    st.sampled_from(list(CODES.values())),
    st.integers(0, 255),
    st.binary(max_size=600),
)


@given(
    st.one_of(
        st.binary(),
        st.binary().map(b"\x1f\x8b\x08".__add__),
        headers,
        headers.map(gzip.compress),
        damaged,
    )
)
def test_read_idx_of_any_bytes_gives_an_array_or_a_value_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzz"
    path.write_bytes(content)
    try:
        array = data.read_idx(path)
    except ValueError as error:
        message = str(error)
    else:
        assert array.size > 0
        return
    assert "`path`" in message


def test_digits_are_scikit_learns_scaled_and_split():
    from sklearn.datasets import load_digits

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


def test_digits_are_the_same_where_scikit_learn_keeps_them_elsewhere(monkeypatch):
    direct = data.digits()
    monkeypatch.setattr("topofl.data.readers.digits.find_spec", lambda name: None)
    assert torch.equal(data.digits().inputs, direct.inputs)
    assert torch.equal(data.digits().labels, direct.labels)


def test_enlarged_digits_repeat_their_pixels():
    plain, large = data.digits(), data.digits(enlarge=3)
    assert large.name == "digits (24 x 24 pixels)"
    wanted = np.kron(plain.inputs.numpy(), np.ones((1, 1, 3, 3), np.float32))
    np.testing.assert_array_equal(large.inputs, wanted)
    np.testing.assert_array_equal(large.test, plain.test)
    assert models.gn_lenet((1, 16, 16))(data.digits(enlarge=2).inputs[:2]).shape == (2, 10)


def test_digits_split_depends_on_the_seed_only():
    np.testing.assert_array_equal(data.digits().test, data.digits().test)
    np.testing.assert_array_equal(
        data.digits(seed=np.random.default_rng(1)).test,
        data.digits(seed=np.random.default_rng(1)).test,
    )
    assert data.digits(seed=0).test.tolist() != data.digits(seed=1).test.tolist()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        ({"test": 1797}, ValueError, "`test`"),
        ({"test": -1}, ValueError, "`test`"),
        ({"test": 0.2}, TypeError, "`test`"),
        ({"test": 1000, "val": 797}, ValueError, "`val` must be between 0 and 796.*train"),
        ({"seed": "a"}, TypeError, "`seed`"),
        ({"enlarge": 0}, ValueError, "`enlarge` must be at least 1"),
        ({"enlarge": 1.5}, TypeError, "`enlarge`"),
    ],
)
def test_digits_refuses(call, error, match):
    with pytest.raises(error, match=match):
        data.digits(**call)


@pytest.fixture(scope="module")
def mnist(mnist_root):
    return data.mnist(mnist_root)


def test_mnist_has_the_splits_of_dcliques(mnist):
    labels = mnist.labels.numpy()
    tests = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(labels[mnist.test]).tolist() == tests
    assert np.bincount(labels[mnist.val]).tolist() == tests
    assert np.bincount(labels[mnist.train]).tolist() == [
        4943,
        5607,
        4926,
        5121,
        4860,
        4529,
        4960,
        5237,
        4877,
        4940,
    ]
    np.testing.assert_array_equal(mnist.test, np.arange(60_000, 70_000))


def test_mnist_is_stored_as_bytes_and_seen_normalized(mnist, mnist_root):
    assert (mnist.inputs.shape, mnist.inputs.dtype) == ((70_000, 1, 28, 28), torch.uint8)
    files = [data.read_idx(mnist_root / "raw" / f"{name}.gz") for name in FILES[::2]]
    np.testing.assert_array_equal(mnist.inputs[:, 0], np.concatenate(files))
    train = mnist.examples(np.arange(60_000))
    low, high = (0 - 0.1307) / 0.3081, (1 - 0.1307) / 0.3081
    np.testing.assert_allclose([train.min(), train.max()], [low, high], rtol=1e-6)
    assert abs(float(train.mean())) < 1e-3
    assert abs(float(train.std()) - 1) < 1e-3


def test_mnist_in_a_hundred_nodes_of_two_shards(mnist):
    clients = data.shards(mnist, n=100, per_node=2, seed=0)
    assert (clients.sizes == 500).all()
    assert ((clients.label_counts > 0).sum(axis=1) <= 4).all()
    np.testing.assert_array_equal(
        clients.label_counts.sum(axis=0), np.bincount(mnist.labels.numpy()[mnist.train])
    )


def test_mnist_refuses_damaged_originals(mnist_root, tmp_path):
    for name in FILES:
        shutil.copy(mnist_root / "raw" / f"{name}.gz", tmp_path)
    labels = data.read_idx(tmp_path / f"{FILES[3]}.gz")
    labels[0] = 9 - labels[0]
    (tmp_path / f"{FILES[3]}.gz").write_bytes(gzip.compress(idx(labels)))
    with pytest.raises(ValueError, match=f"`md5`.*27ae3e4e.*{FILES[3]}"):
        data.mnist(tmp_path)
    assert "unverified" in data.mnist(tmp_path, val=0, verify=False).name


@pytest.mark.parametrize("inside", [".", "raw", "MNIST/raw"])
def test_mnist_finds_its_folder(tmp_path, inside):
    save_mnist_like(tmp_path / inside)
    dataset = data.mnist(str(tmp_path), val=6, verify=False)
    assert (dataset.inputs.shape, dataset.inputs.dtype) == ((42, 1, 4, 4), torch.uint8)
    assert (dataset.mean, dataset.std) == (0.1307, 0.3081)
    np.testing.assert_array_equal(
        dataset.inputs[30:, 0], data.read_idx(tmp_path / inside / FILES[2])
    )
    assert (len(dataset.train), len(dataset.val), len(dataset.test)) == (24, 6, 12)
    assert np.bincount(dataset.labels.numpy()[dataset.val]).tolist() == [2, 4]


def test_mnist_without_validation_trains_on_all(tmp_path):
    assert data.mnist(save_mnist_like(tmp_path), val=0, verify=False).train.tolist() == list(
        range(30)
    )


def test_mnist_validation_depends_on_the_seed_only(tmp_path):
    save_mnist_like(tmp_path)
    first, again, other = (
        data.mnist(tmp_path, val=6, seed=seed, verify=False).val.tolist() for seed in (0, 0, 1)
    )
    assert first == again != other


def test_mnist_says_which_files_are_missing_and_where(tmp_path):
    save_mnist_like(tmp_path / "raw")
    (tmp_path / "raw" / FILES[2]).unlink()
    with pytest.raises(FileNotFoundError, match="`root`") as caught:
        data.mnist(tmp_path, verify=False)
    message = str(caught.value)
    assert all(name in message for name in FILES)
    assert all(str(tmp_path / folder) in message for folder in (".", "raw", "MNIST/raw"))
    assert message.endswith(f"missing in {tmp_path / 'raw'}: {FILES[2]}")


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        ({"val": 30}, ValueError, "`val` must be between 0 and 29"),
        ({"val": -1}, ValueError, "`val`"),
        ({"val": 0.5}, TypeError, "`val`"),
        ({"val": 24}, ValueError, "`val`.*needs 16 training images of class 1, which has 15"),
        ({"val": 6, "verify": True}, ValueError, "`md5`"),
        ({"val": 6, "seed": -1}, ValueError, "`seed`"),
    ],
)
def test_mnist_refuses(tmp_path, call, error, match):
    save_mnist_like(tmp_path)
    with pytest.raises(error, match=match):
        data.mnist(tmp_path, **({"verify": False} | call))


def test_mnist_refuses_files_that_do_not_belong_together(tmp_path):
    save_mnist_like(tmp_path)
    (tmp_path / FILES[1]).write_bytes(idx(np.zeros(29, np.uint8)))
    with pytest.raises(ValueError, match=r"`root`.*\(30, 4, 4\) and \(29,\)"):
        data.mnist(tmp_path, verify=False)
    save_mnist_like(tmp_path)
    (tmp_path / FILES[2]).write_bytes(idx(np.zeros((12, 5, 4), np.uint8)))
    with pytest.raises(ValueError, match="`root` must hold training and test images of one size"):
        data.mnist(tmp_path, verify=False)
    save_mnist_like(tmp_path, labels=(0, 11) * 15)
    with pytest.raises(ValueError, match=r"`root` must hold labels in 0..9, got 11"):
        data.mnist(tmp_path, val=0, verify=False)


def measured(call):
    """Return the error that a call raises, and its peak memory in Python and numpy, in bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="`path`") as caught:
            call()
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("promised", [(100,), (10, 10), (2**31,)], ids=str)
def test_no_more_is_decompressed_than_the_header_promises(tmp_path, promised):
    """A hundred kilobytes of gzip hold 128 megabytes of zeros; the header may promise even more."""
    header = b"\0\0\x08" + struct.pack(f">B{len(promised)}I", len(promised), *promised)
    packer, path = zlib.compressobj(9, zlib.DEFLATED, 31), tmp_path / "file"
    zeros = 2**27 if len(promised) == 2 or promised[0] == 100 else 2**20
    with path.open("wb") as file:
        file.write(packer.compress(header))
        for _ in range(zeros // 2**20):
            file.write(packer.compress(bytes(2**20)))
        file.write(packer.flush())
    message, most = measured(lambda: data.read_idx(path))
    assert ("surplus bytes" in message) == (zeros == 2**27)
    assert most < 2**24


def test_an_idx_file_larger_than_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(VALID)
    monkeypatch.setattr(readers, "total_memory", lambda: 99)
    with pytest.raises(
        ValueError, match=r"`path` must fit into memory, got shape \(100,\) of uint8"
    ):
        data.read_idx(path)
    monkeypatch.setattr(readers, "total_memory", lambda: 100)
    assert len(data.read_idx(path)) == 100
