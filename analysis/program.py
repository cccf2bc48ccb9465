"""What studies share: options, files, timing, memory of a process, new processes and random images.

A study is started by ``python -m analysis.NAME``, or as it is installed.
"""

import argparse
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from topofl import data, toolkit
from topofl.callbacks import Callback, Event


def as_installed(text: str | None) -> str:
    """Return text in which commands ``python -m analysis.NAME`` are named as they are installed.

    The studies are the package ``analysis`` in a checkout, and ``topofl.analysis`` in a wheel.
    """
    own = (__package__ or "").removesuffix("analysis")
    return (text or "").replace("python -m analysis", f"python -m {own}analysis")


def declared(study: str) -> Any:
    """Return the table of a study in ``studies.toml``."""
    path = Path(__file__).with_name("studies.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))[study]


def parser_of(name: str, doc: str | None, **options: tuple[Any, ...]) -> argparse.ArgumentParser:
    """Return the parser of the study ``analysis.<name>``.

    Parameters
    ----------
    name, doc
        Name of the study, and the docstring of its module.
    options
        Name -> (default, help) or (default, help, choices). A type in place of the default stands
        for an option without one, and False for a flag.
    """
    parser = argparse.ArgumentParser(
        prog=as_installed(f"python -m analysis.{name}"),
        description=as_installed(doc),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option, (default, text, *choices) in options.items():
        flag = f"--{option.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true", help=text)
        elif isinstance(default, type):
            parser.add_argument(flag, type=default, help=text)
        else:
            kind: dict[str, Any] = {"choices": choices[0]} if choices else {"type": type(default)}
            shown = default if isinstance(default, str | Path) else f"{default:g}"
            parser.add_argument(flag, default=default, help=f"{text} (default: {shown})", **kind)
    return parser


def at_least_one(text: str) -> int:
    """Return an integer of at least 1 given on the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def write(folder: Path, **files: Any) -> None:
    """Write texts to ``NAME.md``, other values to ``NAME.json``, in a folder, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        ending, text = "md", content
        if not isinstance(content, str):
            ending, text = "json", json.dumps(content, indent=1) + "\n"
        (folder / f"{name}.{ending}").write_text(text, encoding="utf-8")


def seconds_of(function: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a call, including the work that it queued on the device."""
    start = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def in_turns(
    functions: Mapping[str, Callable[[], Sequence[float]]], repeats: int
) -> dict[str, list[float]]:
    """Call each function once per turn, in alternating order, and return all of its times."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(repeats):
        for name in reversed(found) if turn % 2 else found:
            found[name] += functions[name]()
    return found


def stamps_of_rounds(device: torch.device) -> tuple[list[float], Callback]:
    """Return a list, and a callback that adds the time of the end of each round of a run to it."""
    stamps: list[float] = []

    def stamp(event: Event) -> None:
        if event.kind == "round":
            if device.type == "cuda":
                torch.cuda.synchronize()
            stamps.append(time.perf_counter())

    return stamps, stamp


def load_of_machine() -> str:
    """Return the load over 1, 5 and 15 minutes."""
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def process_bytes(name: str) -> int:
    """Return the bytes that Linux reports for this process, for example ``VmRSS``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def resident_before() -> int:
    """Release free memory, reset the peak of this process to the memory in use, and return that.

    The memory that a run then adds is ``process_bytes("VmHWM")`` minus the result.
    """
    gc.collect()
    toolkit.return_freed_memory()  # memory that the run could reuse would not be counted
    Path("/proc/self/clear_refs").write_text("5")
    return process_bytes("VmRSS")


def random_examples(
    count: int, shape: Sequence[int], test: int, name: str = "random"
) -> data.Dataset:
    """Return random images of bytes, the first of which are the test set, with labels in turn."""
    images = np.random.default_rng(0).integers(0, 256, (count + test, *shape), dtype=np.uint8)
    labels = np.arange(len(images)) % 10
    tested = images[:test], labels[:test]
    return data.from_arrays(
        images[test:], labels[test:], test=tested, mean=0.5, std=0.29, name=name
    )


def random_images(count: int, test: float | np.ndarray) -> data.Dataset:
    """Return random images of 3 x 32 x 32 bytes in 10 classes, the same in all processes."""
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8))
    labels = torch.arange(count) % 10
    return data.from_arrays(images, labels, test=test, mean=[0.5] * 3, std=[0.25] * 3)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use some threads, and put their number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def completed(
    submit: Callable[[Any], Future[Any]],
    waiting: Sequence[Any],
    limit: int,
    more: Callable[[], bool],
) -> Iterator[tuple[Any, Any]]:
    """Yield items with what their tasks return as they end, until no more may start.

    At most `limit` tasks, each started by ``submit(item)``, run at the same time.
    """
    left, running = list(waiting), dict[Future[Any], Any]()
    while running or (left and more()):
        while left and len(running) < limit and more():
            item = left.pop(0)
            running[submit(item)] = item
        done = next(as_completed(running))
        yield running.pop(done), done.result()


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(
    function: Callable[..., Any],
    *arguments: Any,
    ranks: int | None = None,
    threads: int | None = None,
    limit: float | None = None,
) -> Iterator[Any]:
    """Yield what a function of a study returns, or yields, in new processes.

    Arguments and answers are JSON values, so that the function gets lists in place of tuples.

    Parameters
    ----------
    function
        Function of a module of this package.
    arguments
        Its arguments.
    ranks
        Number of processes that torchrun starts on the loopback interface, whose answers are in
        their order; None: one process, without torchrun.
    threads
        Threads of each process; None: as torch chooses.
    limit
        Seconds after which the processes are stopped.

    Raises
    ------
    subprocess.CalledProcessError, subprocess.TimeoutExpired
        If a process failed or was stopped, after the answers that it gave.
    """
    spec = sys.modules[function.__module__].__spec__
    module = spec.name if spec is not None else function.__module__
    command, environment = [sys.executable, "-m"], dict(os.environ)
    root = Path(__file__).resolve().parents[len((__package__ or "").split("."))]
    folders = [str(root), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    if ranks is not None:
        command += ["torch.distributed.run", "--nproc-per-node", str(ranks)]
        command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), "-m"]
        environment |= {"CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as folder:
        command += [__name__, folder, module, function.__name__, json.dumps([threads, *arguments])]
        failure = None
        try:
            subprocess.run(
                command, check=True, stdout=subprocess.DEVNULL, env=environment, timeout=limit
            )
        except subprocess.SubprocessError as error:
            failure = error
        for path in sorted(Path(folder).iterdir()):
            complete = path.read_text().split("\n")[:-1]  # a stopped process may leave half a line
            yield from map(json.loads, complete)
    if failure is not None:
        raise failure


def _answer(folder: str, module: str, name: str, arguments: str) -> None:
    """Call a function in a process that :func:`answers` started, and write down what it gives."""
    threads, *given = json.loads(arguments)
    if threads is not None:
        torch.set_num_threads(threads)
    found = getattr(importlib.import_module(module), name)(*given)
    with Path(folder, f"{os.environ.get('RANK', '0'):>04}.jsonl").open("w") as file:
        for answer in found if isinstance(found, Iterator) else [found]:
            file.write(json.dumps(answer) + "\n")
            file.flush()


if __name__ == "__main__":
    _answer(*sys.argv[1:])
