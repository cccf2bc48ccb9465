"""CIFAR's two layouts: what is read, and what is refused."""

import hashlib
import pickle
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.data.readers.cifar_files import CIFAR10, batches, images, save_binaries, save_pickles
from topofl import config, data
from topofl.data.readers import cifar
from topofl.data.readers.cifar import load_pickle

CIFAR100 = {"train": (0, 99, 7, 7, 50, 31), "test": (99, 0, 7)}


def python2(entries):
    """Return a pickle as Python 2 and numpy wrote it: texts and contents are its plain strings."""

    def string(text):
        return (
            b"U" + bytes([len(text)]) + text
            if len(text) < 256
            else b"T" + struct.pack("<i", len(text)) + text
        )

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


def same(one, other):
    np.testing.assert_array_equal(one.inputs, other.inputs)
    for key in ("labels", "train", "val", "test"):
        np.testing.assert_array_equal(getattr(one, key), getattr(other, key))
    assert one.n_classes == other.n_classes


@pytest.mark.parametrize("inside", [".", "cifar-10-batches-py"])
@pytest.mark.parametrize("protocol", [3, 4])
def test_cifar10_reads_pickles(tmp_path, inside, protocol):
    save_pickles(tmp_path / inside, protocol=protocol)
    dataset = data.cifar10(str(tmp_path), verify=False)
    assert repr(dataset) == (
        "Dataset('cifar10 (unverified, 30 + 4 images)', inputs=(34, 3, 32, 32), n_classes=10, "
        "train=30, val=0, test=4)"
    )
    pixels = np.concatenate([pixels for _, pixels, _, _ in batches(CIFAR10)])
    np.testing.assert_array_equal(dataset.inputs.flatten(1), pixels)
    assert (dataset.inputs.dtype, dataset.mean, dataset.std) == (torch.uint8, 0, 1)
    assert dataset.labels.tolist() == [label for classes in CIFAR10.values() for label in classes]
    assert dataset.train.tolist() == list(range(30))
    assert dataset.test.tolist() == list(range(30, 34))


def test_pixels_are_planes_of_rows(tmp_path):
    save_pickles(tmp_path)
    pixel = data.cifar10(tmp_path, verify=False).inputs[7]
    flat = images(CIFAR10["data_batch_2"], 1)[1]
    for channel, row, column in [(0, 0, 0), (0, 0, 31), (1, 5, 2), (2, 31, 30)]:
        assert pixel[channel, row, column] == flat[1024 * channel + 32 * row + column]


def test_both_layouts_give_one_dataset(tmp_path):
    save_pickles(tmp_path / "a" / "cifar-10-batches-py")
    for place in (tmp_path / "b", tmp_path / "c" / "cifar-10-batches-bin"):
        save_binaries(place)
    pickled, *binary = (data.cifar10(tmp_path / name, verify=False, val=12) for name in "abc")
    for other in binary:
        same(pickled, other)
        assert other.name == pickled.name


@pytest.mark.parametrize(("labels", "n_classes"), [("fine", 100), ("coarse", 20)])
def test_cifar100_in_both_layouts(tmp_path, labels, n_classes):
    save_pickles(tmp_path / "a" / "cifar-100-python", CIFAR100)
    save_binaries(tmp_path / "b" / "cifar-100-binary", CIFAR100)
    pickled, binary = (data.cifar100(tmp_path / name, verify=False, labels=labels) for name in "ab")
    same(pickled, binary)
    assert pickled.n_classes == n_classes
    assert pickled.labels.tolist() == [
        label % n_classes for classes in CIFAR100.values() for label in classes
    ]
    note = "" if labels == "fine" else "coarse labels, "
    assert pickled.name == f"cifar100 ({note}unverified, 6 + 3 images)"
    assert pickled.test.tolist() == [6, 7, 8]


def test_pickles_of_python_2_are_read(tmp_path):
    save_pickles(tmp_path / "new")
    (tmp_path / "old").mkdir()
    for name, pixels, labels, _ in batches(CIFAR10):
        content = python2({b"data": pixels, b"labels": labels})
        np.testing.assert_array_equal(pickle.loads(content, encoding="bytes")[b"data"], pixels)
        (tmp_path / "old" / name).write_bytes(content)
    same(data.cifar10(tmp_path / "old", verify=False), data.cifar10(tmp_path / "new", verify=False))


@pytest.mark.parametrize(
    "pixels", [np.asfortranarray(images(range(4), 0)), images(range(8), 0)[::2]]
)
def test_arrays_of_any_memory_order_are_read(tmp_path, pixels):
    (tmp_path / "file").write_bytes(pickle.dumps({"data": pixels}, protocol=4))
    np.testing.assert_array_equal(load_pickle(tmp_path / "file")["data"], pixels)


def test_pixels_of_any_memory_order_are_stored_in_c_order(tmp_path):
    pixels = np.asfortranarray(images(range(6), 0))
    save_pickles(tmp_path, data=pixels, labels=[0, 1, 2, 3, 4, 5])
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


@pytest.mark.parametrize("downscale", [2, 4, 32])
def test_downscaled_pixels_are_means_of_blocks(tmp_path, downscale):
    plain = data.cifar10(save_pickles(tmp_path), verify=False)
    small = data.cifar10(tmp_path, verify=False, downscale=downscale)
    side = 32 // downscale
    blocks = (
        plain.inputs.numpy().astype(np.float64).reshape(34, 3, side, downscale, side, downscale)
        / 255
    )
    np.testing.assert_allclose(small.inputs, blocks.mean(axis=(3, 5)), rtol=1e-5)
    assert small.name == f"cifar10 ({side} x {side} pixels, unverified, 30 + 4 images)"
    assert small.labels.tolist() == plain.labels.tolist()


def test_cifar100_is_downscaled_too(tmp_path):
    small = data.cifar100(
        save_pickles(tmp_path, CIFAR100), verify=False, labels="coarse", downscale=2
    )
    assert small.inputs.shape == (9, 3, 16, 16)
    assert small.name == "cifar100 (coarse labels, 16 x 16 pixels, unverified, 6 + 3 images)"


@pytest.mark.parametrize(
    ("downscale", "error", "match"),
    [
        (3, ValueError, "`downscale` must divide 32, got 3"),
        (0, ValueError, "`downscale` must be between 1 and 32"),
        (64, ValueError, "`downscale` must be between 1 and 32"),
        (2.0, TypeError, "`downscale`"),
    ],
)
def test_downscale_must_divide_the_side(tmp_path, downscale, error, match):
    for read in (data.cifar10, data.cifar100):
        with pytest.raises(error, match=match):  # before any file is looked for
            read(tmp_path, downscale=downscale)


def test_validation_has_the_proportions_of_the_test_images(tmp_path):
    save_pickles(tmp_path)
    first, again, other = (
        data.cifar10(tmp_path, val=8, seed=seed, verify=False) for seed in (0, 0, 1)
    )
    assert np.bincount(first.labels.numpy()[first.val]).tolist() == [2, 2, 2, 2]
    assert (len(first.train), len(first.val), len(first.test)) == (22, 8, 4)
    assert first.val.tolist() == again.val.tolist() != other.val.tolist()


def test_python_layout_comes_first(tmp_path):
    save_pickles(tmp_path / "cifar-10-batches-py")
    save_binaries(tmp_path / "cifar-10-batches-bin")
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"")
    assert len(data.cifar10(tmp_path, verify=False).labels) == 34


def test_checksums_are_compared(tmp_path, monkeypatch):
    save_pickles(tmp_path)
    with pytest.raises(ValueError, match=r"`root`.*data_batch_1.*`md5`.*c99cafc1.*verify=False"):
        data.cifar10(tmp_path)
    for name in CIFAR10:
        content = (tmp_path / name).read_bytes()
        monkeypatch.setitem(
            cifar._CIFAR10.folders["cifar-10-batches-py"], name, hashlib.md5(content).hexdigest()
        )
    assert "unverified" not in data.cifar10(tmp_path).name
    content = bytearray((tmp_path / "test_batch").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match=r"test_batch.*`md5`"):
        data.cifar10(tmp_path)
    assert "unverified" in data.cifar10(tmp_path, verify=False).name


def test_smaller_binary_files_are_refused_unless_asked_for(tmp_path):
    save_binaries(tmp_path)
    with pytest.raises(
        ValueError, match=r"`root` must hold 50,000 \+ 10,000 images.*got 30 \+ 4 .*verify=False"
    ):
        data.cifar10(tmp_path)


@pytest.mark.slow
def test_whole_binary_files_are_unverified_without_further_notes(tmp_path):
    for name, size in (("train.bin", 50_000), ("test.bin", 10_000)):
        table = np.zeros((size, 3074), np.uint8)
        table[:, 1] = np.arange(size) % 100
        table[:, 0] = table[:, 1] % 20
        table.tofile(tmp_path / name)
    dataset = data.cifar100(tmp_path, val=5000)
    assert repr(dataset) == (
        "Dataset('cifar100 (unverified)', inputs=(60000, 3, 32, 32), n_classes=100, train=45000, "
        "val=5000, test=10000)"
    )
    assert (np.bincount(dataset.labels.numpy()[dataset.val]) == 50).all()


def test_pickle_of_another_thing_is_refused(tmp_path):
    save_pickles(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(
        ValueError, match=r"dictionaries with data, labels, got list in .*test_batch"
    ):
        data.cifar10(tmp_path, verify=False)


def test_binary_labels_are_checked(tmp_path):
    save_binaries(tmp_path, CIFAR100)
    content = bytearray((tmp_path / "train.bin").read_bytes())
    content[3074] = 20
    (tmp_path / "train.bin").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"coarse_labels in 0..19, got 20 for image 1 of .*train\.bin"
    ):
        data.cifar100(tmp_path, verify=False)


def test_missing_files_are_listed(tmp_path):
    save_pickles(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").unlink()
    with pytest.raises(FileNotFoundError, match="`root`") as caught:
        data.cifar10(tmp_path)
    message = str(caught.value)
    assert all(
        str(tmp_path / inside) in message
        for inside in (".", "cifar-10-batches-py", "cifar-10-batches-bin")
    )
    assert message.endswith(f"missing in {tmp_path / 'cifar-10-batches-py'}: data_batch_2")


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            {"labels": "corse"},
            ValueError,
            "`labels` must be one of 'fine', 'coarse'.*did you mean 'coarse'",
        ),
        ({"val": 6}, ValueError, "`val` must be between 0 and 5"),
        ({"val": 0.1}, TypeError, "`val`"),
        ({"val": 5}, ValueError, "`val`.*needs 2 training images of class 0, which has 1"),
        ({"seed": -1, "val": 1}, ValueError, "`seed`"),
    ],
)
def test_arguments_are_checked(tmp_path, call, error, match):
    save_binaries(tmp_path, CIFAR100)
    with pytest.raises(error, match=match):
        data.cifar100(tmp_path, verify=False, **call)


def test_configurations_name_cifar(tmp_path):
    save_pickles(tmp_path)
    experiment = config.build(
        {
            "data": {
                "name": "cifar10",
                "root": str(tmp_path),
                "verify": False,
                "val": 4,
                "n": 2,
                "partition": "iid",
            },
            "topology": "ring",
            "algorithm": "dsgd,lr=0.1",
            "model": "gn_lenet",
            "run": {"rounds": 1},
        }
    )
    assert "cifar10" in str(experiment.clients.name)


def test_the_real_subset(cifar10_subset):
    dataset = data.cifar10(cifar10_subset, verify=False, val=1017)
    assert dataset.name == "cifar10 (unverified, 5085 + 1017 images)"
    folder = cifar10_subset / "cifar-10-batches-py"
    real = [pickle.loads((folder / name).read_bytes(), encoding="bytes") for name in CIFAR10]
    assert dataset.labels.tolist() == [label for batch in real for label in batch[b"labels"]]
    assert dataset.inputs.dtype == torch.uint8
    np.testing.assert_array_equal(
        dataset.inputs.flatten(1), np.concatenate([batch[b"data"] for batch in real])
    )
    labels = dataset.labels.numpy()
    np.testing.assert_array_equal(
        np.bincount(labels[dataset.val]), np.bincount(labels[dataset.test])
    )
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
