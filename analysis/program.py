"""Starting studies: their names, ``python -m analysis.NAME`` or as installed, and free ports."""

import socket


def as_installed(text: str | None) -> str:
    """Return text in which commands ``python -m analysis.NAME`` are named as they are installed.

    The studies are the package ``analysis`` in a checkout, and ``topofl.analysis`` in a wheel.
    """
    own = (__package__ or "").removesuffix("analysis")
    return (text or "").replace("python -m analysis", f"python -m {own}analysis")


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
