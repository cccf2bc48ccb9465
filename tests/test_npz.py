"""Archives of arrays: what is read, and what is refused before it is unpacked."""

import io
import zipfile

import numpy as np
import pytest

from topofl import _npz
from topofl._npz import read_arrays


def header(shape, descr="<f8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def test_reads_what_numpy_wrote(tmp_path):
    arrays = {"a": np.arange(6.0).reshape(2, 3).T, "b": np.array(7), "c.d": np.zeros((0, 3), np.int32)}
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    read = read_arrays(tmp_path / "x.npz")
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ({"a": header((2**40,)) + bytes(80)}, r"a\.npy must be an array of plain numbers, shape \(1099511627776,\)"),
        ({"a": header((2**62, 2**62)) + bytes(80)}, "does not fit its"),
        ({"a": header((10,)) + bytes(88)}, "does not fit its"),
        ({"a": header((10,)) + bytes(72)}, "does not fit its"),
        ({"a": header((10,), "|O") + bytes(80)}, "does not fit its|plain numbers"),
        ({"a": b"\x93NUMPY\x03\x00" + bytes(20)}, "version"),
        ({"a": b"no array"}, "magic"),
    ],
)
def test_refuses_headers_that_do_not_fit(tmp_path, members, match):
    with pytest.raises(ValueError, match=match):
        read_arrays(archive(tmp_path / "x.npz", **members))


def test_nothing_is_unpacked_if_all_together_is_too_much(tmp_path, monkeypatch):
    content = header((1000,)) + bytes(8000)
    path = archive(tmp_path / "x.npz", a=content, b=content)
    monkeypatch.setattr(_npz, "total_memory", lambda: 15_999)
    monkeypatch.setattr(_npz, "_read", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(ValueError, match="more than this machine has"):
        read_arrays(path)


def test_a_machine_that_does_not_tell_its_memory_reads_what_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr(_npz, "total_memory", lambda: 0)
    assert read_arrays(archive(tmp_path / "x.npz", a=header((3,)) + bytes(24)))["a"].tolist() == [0, 0, 0]
