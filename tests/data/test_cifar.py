"""CIFAR: pickles, of which none runs anything, and what is made of the pixels."""

import copyreg
import functools
import os
import pickle
import re
import struct
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.rows.readers import (
    CIFAR10,
    CIFAR100,
    batches,
    planes,
    raw_array,
    save_binaries,
    save_pickles,
)
from topofl import data
from topofl.data.readers.cifar import load_pickle


def python2(entries):
    """Return a pickle as Python 2 and numpy wrote it: texts and contents are its plain strings."""

    def string(text):
        short = len(text) < 256
        return (b"U" if short else b"T") + struct.pack("<B" if short else "<i", len(text)) + text

    def value(entry):
        if isinstance(entry, np.ndarray):
            shape = b"".join(b"M" + struct.pack("<H", size) for size in entry.shape) + b"\x86"
            dtype = b"cnumpy\ndtype\nq\x04U\x02u1q\x05K\x00K\x01\x87q\x06Rq\x07(K\x03U\x01|NNN"
            dtype += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
            made = b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\n"
            made += b"q\x02K\x00\x85U\x01b\x87R"
            return made + b"(K\x01" + shape + dtype + b"\x89" + string(entry.tobytes()) + b"tb"
        return b"](" + b"".join(b"K" + bytes([label]) for label in entry) + b"e"

    pairs = b"".join(string(key) + value(entry) for key, entry in entries.items())
    return b"\x80\x02}q\x00(" + pairs + b"u."


def test_pickles_of_python_2_and_of_other_protocols_are_read(tmp_path):
    save_pickles(tmp_path / "new", protocol=3)
    (tmp_path / "old").mkdir()
    for name, pixels, labels, _ in batches(CIFAR10):
        content = python2({b"data": pixels, b"labels": labels})
        np.testing.assert_array_equal(pickle.loads(content, encoding="bytes")[b"data"], pixels)
        (tmp_path / "old" / name).write_bytes(content)
    old, new = (data.cifar10(tmp_path / name, verify=False) for name in ("old", "new"))
    assert torch.equal(old.inputs, new.inputs)
    assert torch.equal(old.labels, new.labels)


@pytest.mark.parametrize(
    "pixels", [np.asfortranarray(planes(range(6), 0)), planes(range(12), 0)[::2]]
)
def test_arrays_of_any_memory_order_are_read_and_stored_in_c_order(tmp_path, pixels):
    save_pickles(tmp_path, data=pixels, labels=[0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(load_pickle(tmp_path / "test_batch")[b"data"], pixels)
    inputs = data.cifar10(tmp_path, verify=False).inputs
    assert inputs.is_contiguous()
    np.testing.assert_array_equal(inputs[:6].flatten(1), pixels)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.binary(), inner)
        | st.lists(inner, max_size=5).map(tuple)
    ),
)


@given(plain, st.sampled_from([3, 4]))
def test_plain_data_is_read_as_by_pickle(tmp_path_factory, value, protocol):
    path = tmp_path_factory.getbasetemp() / "plain-pickle"
    path.write_bytes(pickle.dumps([value, value], protocol=protocol))
    assert load_pickle(path) == [value, value]


class Evil:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def names(marker):
    """Return pickles that would make the file `marker`, and what of each must be named."""
    command = f"touch {marker}"
    code = f"open({str(marker)!r}, 'w').close()"
    calls = {
        "system": Evil(os.system, command),
        "eval": Evil(eval, code),
        "functools.partial": Evil(functools.partial, os.system, command),
        "open": Evil(open, str(marker), "w"),
        "getattr": Evil(getattr, "x", "upper"),
        "numpy.*fromfile": Evil(np.fromfile, str(marker)),
    }
    for name, evil in calls.items():
        for protocol in range(5):
            for value in (evil, {"data": evil, "labels": [0]}, {"data": [0], "labels": [0, evil]}):
                yield name, pickle.dumps(value, protocol=protocol)
    array = b"cnumpy.core.multiarray\n_reconstruct\n"
    text = bytes([len(command)]) + command.encode()
    yield "os.system", b"cos\nsystem\n(U" + text + b"tR."
    yield "os.system", b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + text + b"\x85R."
    yield "numpy.ndarray.tofile", b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."
    yield "INST.*os system", b"(U" + text + b"ios\nsystem\n."
    yield "OBJ", b"(cnumpy\nndarray\nK\x01o."
    yield "NEWOBJ", b"\x80\x02cnumpy\nndarray\nK\x01\x85\x81."
    yield "PERSID", b"Pabc\n."
    yield "EXT1", b"\x80\x02\x82\xf0."
    yield "numpy.ndarray", b"cnumpy\nndarray\n(K\x01tR."
    yield "numpy.dtype", b"cnumpy\ndtype\n}R."
    yield "os.system", array + b"(cos\nsystem\nK\x00\x85U\x01btR."
    yield "numpy.dtype", array + b"(cnumpy\ndtype\nK\x00\x85U\x01btR."
    yield "state of .*_reconstruct", array + b"}(U\x08__code__K\x01ub."
    yield "state of numpy.ndarray", b"cnumpy\nndarray\nN}(U\x04sizeK\x01u\x86b."
    yield "state of list", b"]}b."
    yield "O8", pickle.dumps(np.array([Evil(os.system, command)], dtype=object), protocol=3)
    yield "f8", pickle.dumps(np.zeros(3), protocol=3)


def test_malicious_pickles_run_nothing(tmp_path):
    copyreg.add_extension("os", "system", 0xF0)
    marker, path = tmp_path / "marker", tmp_path / "data_batch_3"
    save_pickles(tmp_path)
    try:
        for name, content in names(marker):
            path.write_bytes(content)
            contains = f"{re.escape(str(path))}, which contains .*{name}.*; nothing in it was run"
            with pytest.raises(ValueError, match=f"`root`.*{contains}"):
                data.cifar10(tmp_path, verify=False)
            assert not marker.exists(), content
    finally:
        copyreg.remove_extension("os", "system", 0xF0)
    pickle.loads(next(content for _, content in names(marker)))
    assert marker.exists(), "the pickles are harmless"


def test_deep_tuples_do_not_overflow_the_stack(tmp_path):
    size = 15_000_000  # else there are too many of them
    padding = b"B" + struct.pack("<I", size) + bytes(size)
    (tmp_path / "file").write_bytes(padding + b"})" + b"\x85" * 300_000 + b"K\x01s.")
    with pytest.raises(ValueError, match="a key is not text"):
        load_pickle(tmp_path / "file")


@pytest.mark.parametrize("opcode", [b"]", b"}", b"(", b")", b"N", b"K\x01", b"U\x01a", b"]q\x00"])
def test_files_of_many_small_objects_are_refused_early(tmp_path, opcode):
    """A byte can make an object of a hundred."""
    path = tmp_path / "file"
    path.write_bytes(opcode * 1_000_000 + b".")
    size = path.stat().st_size
    tracemalloc.start()
    with pytest.raises(ValueError, match=rf"contains more than .* objects in {size:,} bytes"):
        load_pickle(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2 * size + 2**23  # the file twice, since pickletools has its own copy


@pytest.mark.parametrize("name", ["data_batch_1", "data_batch_1.bin"])
def test_files_larger_than_any_of_cifar_are_not_opened(tmp_path, name):
    (save_pickles if name == "data_batch_1" else save_binaries)(tmp_path)
    os.truncate(tmp_path / name, 2**40)  # it takes no room on the disk
    match = rf"at most 268,435,456 bytes, got 1,099,511,627,776 bytes in .*{name}"
    with pytest.raises(ValueError, match=match):
        data.cifar10(tmp_path, verify=False)


def test_an_array_as_this_test_writes_it_is_read(tmp_path):
    (tmp_path / "file").write_bytes(raw_array((2, 3), b"abcdef"))
    assert load_pickle(tmp_path / "file").tolist() == [[97, 98, 99], [100, 101, 102]]


@pytest.mark.parametrize("save", [save_pickles, save_binaries])
def test_coarse_labels(tmp_path, save):
    save(tmp_path / "cifar", CIFAR100)
    dataset = data.cifar100(tmp_path / "cifar", verify=False, labels="coarse")
    assert dataset.name == "cifar100 (coarse labels, unverified, 6 + 3 images)"
    assert dataset.n_classes == 20
    assert dataset.labels.tolist() == [k % 20 for own in CIFAR100.values() for k in own]


@pytest.mark.parametrize("downscale", [2, 4, 32])
def test_downscaled_pixels_are_means_of_blocks(tmp_path, downscale):
    wanted, labels = save_pickles(tmp_path)
    small = data.cifar10(tmp_path, verify=False, downscale=downscale)
    side = 32 // downscale
    blocks = wanted.reshape(34, 3, side, downscale, side, downscale) / 255
    np.testing.assert_allclose(small.inputs, blocks.mean(axis=(3, 5)), rtol=1e-5)
    assert small.name == f"cifar10 ({side} x {side} pixels, unverified, 30 + 4 images)"
    assert small.labels.tolist() == labels.tolist()


def test_python_layout_comes_first(tmp_path):
    save_pickles(tmp_path / "cifar-10-batches-py")
    save_binaries(tmp_path / "cifar-10-batches-bin")
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"")
    assert len(data.cifar10(tmp_path, verify=False).labels) == 34


@pytest.mark.slow
def test_whole_binary_files_are_unverified_without_further_notes(tmp_path):
    for name, size in (("train.bin", 50_000), ("test.bin", 10_000)):
        table = np.zeros((size, 3074), np.uint8)
        table[:, 1] = np.arange(size) % 100
        table[:, 0] = table[:, 1] % 20
        table.tofile(tmp_path / name)
    dataset = data.cifar100(tmp_path, val=5000)
    assert (dataset.name, len(dataset.train)) == ("cifar100 (unverified)", 45_000)
    assert (np.bincount(dataset.labels.numpy()[dataset.val]) == 50).all()


def test_the_real_subset(cifar10_subset):
    dataset = data.cifar10(cifar10_subset, verify=False, val=1017)
    assert dataset.name == "cifar10 (unverified, 5085 + 1017 images)"
    folder = cifar10_subset / "cifar-10-batches-py"
    real = [pickle.loads((folder / name).read_bytes(), encoding="bytes") for name in CIFAR10]
    labels, pixels = (np.concatenate([own[key] for own in real]) for key in (b"labels", b"data"))
    np.testing.assert_array_equal(dataset.labels, labels)
    np.testing.assert_array_equal(dataset.inputs.flatten(1), pixels)
    held, tests = (np.bincount(labels[part]) for part in (dataset.val, dataset.test))
    np.testing.assert_array_equal(held, tests)
    with pytest.raises(ValueError, match=r"data_batch_1.*`md5`.*verify=False"):
        data.cifar10(cifar10_subset)


def test_real_images_are_smooth_and_ships_are_bluer_than_frogs(cifar10_subset):
    dataset = data.cifar10(cifar10_subset, verify=False)
    x, labels = dataset.examples(), dataset.labels
    apart = (x - x.roll(1, 0)).abs().mean()  # one pixel in two images
    for across in (x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :], x[:, 1:] - x[:, :-1]):
        assert 2 * across.abs().mean() < apart
    blue = x[:, 2].mean((1, 2)) - x[:, 0].mean((1, 2))
    airplane, frog, ship = (float(blue[labels == label].mean()) for label in (0, 6, 8))
    assert min(airplane, ship) > 0 > frog
    assert np.allclose(x.mean((0, 2, 3)), [0.4914, 0.4822, 0.4465], atol=0.01)
