"""The server of the explorer, which listens on this machine only."""

import os
import secrets
import socket
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path

from topofl._support.datasets import dataset_places
from topofl._support.plugins import imported

HOST = "127.0.0.1"

GRACE = 2
"""Seconds that open pages are waited for when the server ends."""


def serve(port: int = 0, *, browser: bool = True, folder: Path | None = None) -> None:
    """Serve the explorer until Ctrl-C, which ends the process.

    The address is printed. It has a key that is drawn at random, so that neither other users of
    this machine nor pages of other servers can use the explorer.

    Parameters
    ----------
    port
        Port on 127.0.0.1; 0 for a free one.
    browser
        Whether to open the address in a browser.
    folder
        Where the page looks for datasets, as $TOPOFL_DATA of this process; None: as it is.

    Raises
    ------
    ValueError
        If it is not a folder.
    ModuleNotFoundError
        If marimo is not installed.
    OSError
        If the port is in use.
    """
    dataset_places(folder)  # raises before anything is started
    if folder is not None:
        os.environ["TOPOFL_DATA"] = str(folder)  # a page of marimo has no arguments
    marimo, uvicorn = (
        imported(name, "explore", "`topofl explore`") for name in ("marimo", "uvicorn")
    )
    key = secrets.token_urlsafe(16)
    builder = marimo.create_asgi_app(quiet=True, token=key)
    page = builder.with_app(path="", root=str(Path(__file__).with_name("app.py"))).build()
    with _listening(port) as server_socket:
        address = f"http://{HOST}:{server_socket.getsockname()[1]}/?access_token={key}"
        print(f"topofl explore: {address} (Ctrl-C ends it)", flush=True)
        if browser:  # in a thread, since browsers in terminals return when they are closed
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()
        config = uvicorn.Config(page, log_level="error", timeout_graceful_shutdown=GRACE)
        with suppress(KeyboardInterrupt):  # how it ends
            uvicorn.Server(config).run(sockets=[server_socket])
    os._exit(0)  # the threads of open pages, which may be training, would keep the process alive


def _listening(port: int) -> socket.socket:
    """Return a socket that listens on a port of this machine."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise OSError(
            f"`--port` must be a free port, got {port}: {error.strerror}; omit it for a free one"
        ) from error
