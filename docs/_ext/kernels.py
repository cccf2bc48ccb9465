"""Kernels for the pages that are executed: forks of one process that has imported topofl already.

Most of the time of a short page is that of importing torch. Each page still has a process of its
own, with the modules that a page imports first as they are right after their import.
"""

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ADDRESS = "TOPOFL_DOCS_KERNELS"
"""Environment variable with the path of the socket that kernels are requested from."""


def request(connection_file: str) -> None:
    """Have a kernel forked, with the working directory and environment of this process.

    Returns when it has ended. If this process is ended, the kernel ends, too.
    """
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(os.environ[ADDRESS])
        asked = {"file": connection_file, "folder": os.getcwd(), "environment": dict(os.environ)}
        one.sendall(json.dumps(asked).encode() + b"\n")
        one.recv(1)


def serve(listening: socket.socket) -> None:
    """Import what pages need, and fork a kernel for each request."""
    import ipykernel.kernelapp
    import matplotlib.pyplot
    import torch

    import topofl
    from topofl import algorithms, data, engine, metrics, models, runs, topologies

    del ipykernel, matplotlib, torch, topofl
    del algorithms, data, engine, metrics, models, runs, topologies
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for kernels
    while True:
        asking, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            _become_kernel(asking)
            os._exit(0)
        asking.close()


def _become_kernel(asking: socket.socket) -> None:
    """Run a kernel until its page is done or the process that asked for it has ended."""
    from ipykernel.kernelapp import IPKernelApp

    asked: dict[str, Any] = json.loads(asking.makefile().readline())
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])

    def end_with_the_other() -> None:
        asking.recv(1)
        os._exit(1)

    threading.Thread(target=end_with_the_other, daemon=True).start()
    # it ends with this parent
    IPKernelApp.launch_instance(["-f", asked["file"]], parent_handle=os.getppid())


def start() -> None:
    """Let the kernels of this process and its children be forks of one new process."""
    folder = Path(tempfile.mkdtemp(prefix="topofl-docs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    spec = folder / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [sys.executable, __file__, "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    os.environ["JUPYTER_PATH"] = os.pathsep.join(
        filter(None, (str(folder), os.environ.get("JUPYTER_PATH")))
    )
    os.environ[ADDRESS] = str(folder / "kernels.socket")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.environ[ADDRESS])
    listening.listen(64)
    # as in kernels, which set it before matplotlib is imported
    inline = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(listening.fileno())],
        pass_fds=[listening.fileno()],
        env=inline | os.environ,
    )
    listening.close()
    atexit.register(server.kill)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(socket.socket(fileno=int(sys.argv[2])))
    else:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # which ends a page that takes too long
        request(sys.argv[1])
