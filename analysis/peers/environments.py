"""An environment for each peer, made from pinned requirements, in which its driver runs."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PYTHON = {"decent_bench": "3.13"}
"""The Python that a peer needs if it is not ours."""

DISTRIBUTION = {
    "pfl": "pfl",
    "fluke": "fluke-fl",
    "flower": "flwr",
    "gossipy": "gossipy-dfl",
    "decent_bench": "decent-bench",
}
SOURCES = {"gossipy": ("ea85ab1", "fcdb52849c21")}
"""Commit of the sources from which a peer may be imported, and digest of its package there."""


class Failed(RuntimeError):
    """A peer cannot be installed or did not finish; the text is what its row says."""


def requirements(peer: str) -> Path:
    """Return the file with the pinned requirements of a peer."""
    return HERE / "requirements" / f"{peer}.txt"


def version(peer: str) -> str:
    """Return the pinned version of a peer."""
    name = f"{DISTRIBUTION[peer]}=="
    lines = requirements(peer).read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix(name) for line in lines if line.startswith(name))


def interpreter(wanted: str) -> str:
    """Return a Python of a version such as ``"3.13"``; raise :class:`Failed` if there is none."""
    found = [shutil.which(f"python{wanted}")]
    found += sorted(map(str, Path.home().glob(f".pyenv/versions/{wanted}.*/bin/python")))
    for candidate in filter(None, found):
        show = "import sys; print('%d.%d' % sys.version_info[:2])"
        ran = subprocess.run([candidate, "-c", show], capture_output=True, text=True, check=False)
        if ran.stdout.strip() == wanted:
            return candidate
    raise Failed(f"needs Python {wanted}, which this machine does not have")


def folder_of(peer: str, cache: Path) -> Path:
    """Return the folder of the environment of a peer, named after its requirements."""
    digest = hashlib.sha256(requirements(peer).read_bytes()).hexdigest()[:12]
    return cache / f"{peer}-{digest}"


def installed(peer: str, cache: Path) -> str | None:
    """Return the Python of the environment of a peer; None if it was not made yet."""
    if peer == "topofl":
        return sys.executable
    folder = folder_of(peer, cache)
    return str(folder / "bin" / "python") if (folder / "complete").exists() else None


def environment(peer: str, cache: Path) -> str:
    """Return the Python of the environment of a peer, which is made at the first call.

    Requirements are installed without their dependencies, all of which are among them: what a peer
    asks for but does not need, such as a torchvision without a CPU build, is left out.
    """
    if python := installed(peer, cache):
        return python
    folder = folder_of(peer, cache)
    shutil.rmtree(folder, ignore_errors=True)
    base = interpreter(PYTHON[peer]) if peer in PYTHON else sys.executable
    _install([base, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install"]
    how = ["--quiet", "--no-deps", "--disable-pip-version-check"]
    _install([*pip, *how, "-r", str(requirements(peer))])
    (folder / "complete").touch()
    return str(folder / "bin" / "python")


def _install(command: Sequence[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Failed(f"cannot be installed: {last_line(ran.stderr or ran.stdout)}")


def last_line(text: str) -> str:
    """Return the last line of an output that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def from_sources(peer: str, sources: Path | None) -> bool:
    """Return whether a peer is imported from a folder of sources and not from its release."""
    return sources is not None and peer in SOURCES and (sources / peer).is_dir()


def check_sources(peer: str, folder: Path) -> None:
    """Raise :class:`Failed` unless a folder has the package of a peer at its pinned commit."""
    commit, wanted = SOURCES[peer]
    files = sorted((folder / peer).rglob("*.py"))
    content = b"".join(file.read_bytes() for file in files)
    if not hashlib.sha256(content).hexdigest().startswith(wanted):
        raise Failed(
            f"the sources in {folder} are not those of commit {commit}; check it out there"
        )


def run(
    peer: str,
    python: str,
    spec: dict[str, Any],
    arrays: Path,
    limit: float,
    sources: Path | None = None,
) -> dict[str, Any]:
    """Return what the driver of a peer measures in a process of its own.

    A peer of `SOURCES` is imported from the folder named after it in `sources`, if there is one.

    Raises
    ------
    Failed
        If it did not end within `limit` seconds, or ended without a result; if its sources are
        those of another commit.
    """
    script = HERE / "drivers" / f"run_{peer}.py"
    folders = [str(HERE.parents[1])] if peer == "topofl" else []
    if sources is not None and from_sources(peer, sources):
        check_sources(peer, sources / peer)
        folders.append(str((sources / peer).resolve()))
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    command = [python, str(script), json.dumps(spec), str(arrays)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    how = {"env": environ, "cwd": arrays.parent, "start_new_session": True}
    with subprocess.Popen(command, **pipes, **how) as process:
        try:
            output, errors = process.communicate(timeout=limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"did not end within {limit:.0f} seconds") from None
            raise
    return parsed(output, errors)


def parsed(output: str, errors: str) -> dict[str, Any]:
    """Return the result that a driver printed; raise :class:`Failed` if there is none."""
    for line in reversed(output.splitlines()):
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    raise Failed(last_line(errors or output))
