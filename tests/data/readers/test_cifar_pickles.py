"""Pickles of CIFAR: none runs anything, and damaged ones are refused."""

import copyreg
import functools
import os
import pickle
import re
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.readers.cifar_files import save_binaries, save_pickles
from topofl import data
from topofl.data.readers.cifar import load_pickle


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
    text = command.encode()
    yield "os.system", b"cos\nsystem\n(U" + bytes([len(text)]) + text + b"tR."
    yield (
        "os.system",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(text)]) + text + b"\x85R.",
    )
    yield "numpy.ndarray.tofile", b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."
    yield "INST.*os system", b"(U" + bytes([len(text)]) + text + b"ios\nsystem\n."
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
    marker = tmp_path / "marker"
    save_pickles(tmp_path)
    try:
        for name, content in names(marker):
            path = tmp_path / "data_batch_3"
            path.write_bytes(content)
            match = (
                f"`root`.*{re.escape(str(path))}, which contains .*{name}.*; nothing in it was run"
            )
            with pytest.raises(ValueError, match=match):
                data.cifar10(tmp_path, verify=False)
            assert not marker.exists(), content
    finally:
        copyreg.remove_extension("os", "system", 0xF0)


def test_malicious_pickles_would_run_otherwise(tmp_path):
    marker = tmp_path / "marker"
    pickle.loads(next(content for _, content in names(marker)))
    assert marker.exists()


def test_bytes_as_python_3_wrote_them_for_python_2_are_refused(tmp_path):
    save_pickles(tmp_path, protocol=2)
    with pytest.raises(ValueError, match=r"contains _codecs\.encode"):
        data.cifar10(tmp_path, verify=False)


def test_deep_tuples_do_not_overflow_the_stack(tmp_path):
    padding = (
        b"B" + struct.pack("<I", 15_000_000) + bytes(15_000_000)
    )  # else there are too many of them
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
    with pytest.raises(
        ValueError, match=rf"at most 268,435,456 bytes, got 1,099,511,627,776 bytes in .*{name}"
    ):
        data.cifar10(tmp_path, verify=False)


def raw_array(shape, content):
    """Return the pickle of an array whose shape need not fit its content."""
    sizes = b"".join(b"\x8a\x08" + struct.pack("<q", size) for size in shape)
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
    dtype = b"cnumpy\ndtype\n(C\x02u1\x89\x88tR"
    return (
        b"\x80\x03"
        + made
        + b"(K\x01("
        + sizes
        + b"t"
        + dtype
        + b"\x89C"
        + bytes([len(content)])
        + content
        + b"tb."
    )


def test_an_array_as_this_test_writes_it_is_read(tmp_path):
    (tmp_path / "file").write_bytes(raw_array((2, 3), b"abcdef"))
    assert load_pickle(tmp_path / "file").tolist() == [[97, 98, 99], [100, 101, 102]]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "incomplete"),
        (b".", "0 objects"),
        (b"K\x01K\x02.", "2 objects"),
        (raw_array((2, 3), b"abcdef")[:-1], "incomplete"),
        (raw_array((2, 3), b"abcde"), r"shape \(2, 3\) has 5 bytes"),
        (raw_array((2**62, 2**62), b"abcde"), "has 5 bytes"),
        (raw_array((-2, -3), b"abcdef"), "has 6 bytes"),
        (b"\x8e" + struct.pack("<Q", 2**40) + b"abc.", "incomplete"),
        (b"\x80\x04]r\xff\xff\xff\x7f0.", "contains the opcode POP"),
        (b"(" * 100 + b"e.", "incomplete"),
        (b"h\x07.", "incomplete"),
        (b"}]K\x01s.", "not text"),
        (b"}K\x01a.", "extend"),
        (b"u.", "incomplete"),
        (b"\x85.", "incomplete"),
        (b"\xff\xd8\xff", "incomplete"),
    ],
)
def test_damaged_pickles_are_refused(tmp_path, content, match):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"`root` must hold .*{re.escape(str(path))}.*{match}"):
        load_pickle(path)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.4, 0.99])
def test_truncated_files_are_refused(tmp_path, part):
    for save, name in ((save_pickles, "data_batch_4"), (save_binaries, "data_batch_4.bin")):
        path = save(tmp_path / name) / name
        content = path.read_bytes()
        path.write_bytes(content[: int(part * len(content))])
        with pytest.raises(
            ValueError,
            match=f"{re.escape(str(path))}, which is damaged or incomplete.*copy it again",
        ):
            data.cifar10(path.parent, verify=False)


@given(st.integers(0, 40_000), st.binary(max_size=3), st.integers(0, 3))
def test_any_bytes_give_a_dataset_or_a_value_error(tmp_path_factory, place, patch, cut):
    folder = tmp_path_factory.getbasetemp() / "fuzz-cifar"
    path = save_pickles(folder) / "data_batch_5"
    content = path.read_bytes()
    place = place % len(content) if place % 2 else place % 250  # the pixels are most of the file
    path.write_bytes(content[:place] + patch + content[place + cut :])
    try:
        dataset = data.cifar10(folder, verify=False)
    except ValueError as error:
        message = str(error)
    else:
        assert len(dataset.inputs) == 34
        return
    assert "`root`" in message
    assert "data_batch_5" in message


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"data": None},
            "dictionaries with data, labels, got the keys batch_label, labels, filenames",
        ),
        ({"labels": None}, "dictionaries with data, labels, got the keys"),
        ({"data": [1, 2]}, r"shape \(N, 3072\) .*got list"),
        ({"data": np.zeros((6, 3071), np.uint8)}, r"got shape \(6, 3071\)"),
        ({"data": np.zeros((6, 3, 1024), np.uint8)}, r"got shape \(6, 3, 1024\)"),
        ({"data": np.zeros((0, 3072), np.uint8)}, r"got shape \(0, 3072\)"),
        ({"data": np.zeros((6, 3072), np.float32)}, "contains an array of 'f4'"),
        ({"labels": [0] * 5}, "as many labels as images, got 5 for 6"),
        ({"labels": [0] * 5 + [10]}, r"labels in 0..9, got 10 for image 5"),
        ({"labels": [0] * 5 + [-1]}, "labels in 0..255"),
        ({"labels": [0] * 5 + [10**400]}, "labels in 0..255"),
        ({"labels": [0] * 5 + [True]}, "list of integers"),
        ({"labels": b"abcdef"}, "list of integers"),
        ({"labels": [0.5] * 6}, "BINFLOAT"),
    ],
)
def test_wrong_contents_are_refused(tmp_path, changes, match):
    save_pickles(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"`root`.*{match}"):
        data.cifar10(tmp_path, verify=False)
