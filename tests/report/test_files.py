"""Files are replaced atomically."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import topofl
from topofl.report import replacing

FULL = """
import resource, signal, sys
from topofl.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.exit(main(["spectral", "ring:5", "--rounds", "5", "--html", "report.html"]))
"""


def test_text_is_written_unchanged(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as file:
        file.write("λ\nnew")
        assert path.read_text() == "old"
    assert path.read_bytes() == "λ\nnew".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_links_are_followed(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "there" / "a.txt")
    with replacing(tmp_path / "link.txt") as file:
        file.write("x")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "there" / "a.txt").read_text() == "x"


@pytest.mark.parametrize(
    "error", [RuntimeError("inside"), KeyboardInterrupt(), FileNotFoundError("no data")]
)
def test_nothing_changes_if_the_body_fails(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail():
        with replacing(path) as file:
            file.write("half")
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_nothing_changes_if_the_disk_is_full(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(OSError, match=r"cannot write .*a\.txt: No space left on device"),
        replacing(tmp_path / "a.txt"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_interrupted_command_leaves_no_partial_file(tmp_path):
    (tmp_path / "report.html").write_text("old")
    environment = os.environ | {"PYTHONPATH": str(Path(topofl.__file__).parents[1])}
    how = {"capture_output": True, "text": True, "check": False, "cwd": tmp_path}
    done = subprocess.run([sys.executable, "-c", FULL], env=environment, **how)
    assert done.returncode == 1
    assert done.stderr == "topofl: error: cannot write report.html: File too large\n"
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere"
)
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with (
        pytest.raises(PermissionError, match=r"cannot write .*a\.txt: Permission denied"),
        replacing(tmp_path / "a.txt"),
    ):
        pytest.fail("the body ran")
    tmp_path.chmod(0o700)
