"""``topofl explore``: its options, and what is said if it cannot start."""

import socket
import sys

import pytest

from tests.cli.commands import fails


def test_missing_packages_are_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "marimo", None)
    assert "pip install 'topofl[explore]'" in fails(capsys, 2, "explore", "--no-browser")


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_ports_have_limits(capsys, port):
    line = fails(capsys, 2, "explore", "--port", port)
    assert f"`--port` must be between 0 and 65535, got {port}" in line


def test_a_port_in_use_is_refused(capsys):
    pytest.importorskip("marimo")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = fails(capsys, 1, "explore", "--port", str(port))
    assert f"`--port` must be a free port, got {port}: " in line


def test_a_folder_that_there_is_not_is_refused(capsys, monkeypatch):
    assert "--data must be a folder, got nowhere" in fails(
        capsys, 2, "explore", "--data", "nowhere"
    )
    monkeypatch.setenv("TOPOFL_DATA", "elsewhere")
    assert "TOPOFL_DATA must be a folder, got elsewhere" in fails(capsys, 2, "explore")
