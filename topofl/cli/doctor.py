"""``topofl doctor``: checks of an installation, which also work where packages are missing."""

import os
import platform
import re
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import topofl
from topofl._support.datasets import dataset_folders, dataset_places
from topofl._support.text import printable
from topofl.cli.output import CommandFailed, print_rows

OK, NOTE, WRONG = "ok", "note", "WRONG"
"""Statuses: as it should be; missing or mixed but not needed; wrong: the exit code is 1."""

TOLERANCE = 1e-4
"""Difference of losses, of a few units, between float32 and float64 after a few rounds."""

Check = Callable[[Namespace], Iterator["Finding"]]


class Finding(NamedTuple):
    """What was checked, its status, and the details."""

    check: str
    status: str
    details: str


def doctor(options: Namespace) -> None:
    """Print all findings; raise :class:`CommandFailed` if something is wrong."""
    if options.model is not None:
        import_module("topofl.cli.doctor_training").print_layers(options)
        return
    if options.shape is not None:
        raise ValueError(f"`--shape` must come with --model, got {options.shape}; give both")
    found: list[Finding] = []
    for title, check in _CHECKS.items():
        for finding in _performed(title, check, options):
            found.append(finding)
            if not options.json:
                _print(finding)
    if options.json:
        print_rows(finding._asdict() for finding in found)
    wrong = [finding.check for finding in found if finding.status == WRONG]
    if wrong:
        raise CommandFailed(f"{len(wrong)} of {len(found)} checks failed: {', '.join(wrong)}")


def _performed(title: str, check: Check, options: Namespace) -> Iterator[Finding]:
    """Yield the findings of a check; an error in it, of any kind, is a finding too."""
    try:
        yield from check(options)
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        yield Finding(title, WRONG, what)


def _print(finding: Finding) -> None:
    line = f"{finding.status:<6}{finding.check}: {finding.details}"
    print(printable(line), flush=True)


def _python(options: Namespace) -> Iterator[Finding]:
    where = f"{platform.python_version()} on {platform.platform()}, {sys.executable}"
    yield Finding("Python", OK if sys.version_info >= (3, 11) else WRONG, where)
    folder = Path(topofl.__file__).parent.resolve()
    yield Finding("topofl", OK, f"{topofl.__version__} in {folder}")
    for name in ("analysis", "paper_figures"):  # in the package, or next to it in a checkout
        spec = find_spec(f"topofl.{name}")
        place = None if spec is None or spec.origin is None else Path(spec.origin).parent.resolve()
        if place is not None and place not in (folder / name, folder.parent / name):
            what = f"that of {place} is used, which is of another copy of topofl; to use the one "
            what += f"of {folder.parent}, install it: pip install -e {folder.parent}"
            yield Finding(f"topofl.{name}", NOTE, what)


def _packages(options: Namespace) -> Iterator[Finding]:
    """Yield the versions of required packages, and of each extra's packages."""
    try:
        required = metadata.requires("topofl") or []
    except metadata.PackageNotFoundError:
        yield Finding("packages", NOTE, "topofl is not installed, so its requirements are unknown")
        return
    extras: dict[str, list[str]] = {}
    for text in required:
        requirement, _, marker = text.partition(";")
        extra = re.search(r"""extra *== *["']([\w-]+)["']""", marker)
        if extra is None:
            yield _package(requirement)
        elif extra[1] != "dev":  # the tools of this repository
            extras.setdefault(extra[1], []).append(requirement)
    for extra, own in extras.items():
        found = [_package(requirement) for requirement in own]
        is_complete = all(finding.status == OK for finding in found)
        details = ", ".join(f"{each.check} {each.details.partition(';')[0]}" for each in found)
        yield Finding(f"extra {extra}", OK if is_complete else NOTE, details)


def _package(requirement: str) -> Finding:
    """Return whether a package ``name>=version`` is installed in such a version."""
    name, _, least = requirement.strip().partition(">=")
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, WRONG, f"not installed; needs {requirement.strip()}")
    if _release(version) < _release(least):
        return Finding(name, WRONG, f"{version}; needs {requirement.strip()}")
    return Finding(name, OK, version)


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version: (2, 13, 0) of ``2.13.0+cpu``."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def _devices(options: Namespace) -> Iterator[Finding]:
    import torch

    from topofl.engine import options as engine

    engine.check_device("cpu")
    threads = f"{torch.get_num_threads()} threads of torch, {os.cpu_count()} cores"
    yield Finding("cpu", OK, f"{threads}, {torch.backends.cpu.get_cpu_capability()}")
    if not torch.cuda.is_available():
        yield Finding("cuda", NOTE, "none")
    for k in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        engine.check_device(f"cuda:{k}")
        memory = torch.cuda.get_device_properties(k).total_memory / 2**30
        yield Finding(f"cuda:{k}", OK, f"{torch.cuda.get_device_name(k)}, {memory:.1f} GiB")


def _datasets(options: Namespace) -> Iterator[Finding]:
    """Yield the datasets whose files are found, in the folder given or in the usual ones."""
    try:
        places = dataset_places(options.data)
    except ValueError as error:
        yield Finding("datasets", WRONG, str(error))
        return
    found = [
        f"{name} in {folder}" for place in places for name, folder in dataset_folders(place).items()
    ]
    nothing = f"none in {' or '.join(map(str, places))}; the embedded digits need no files"
    yield Finding("datasets", OK if found else NOTE, ", ".join(found) or nothing)


def _folder(options: Namespace) -> Iterator[Finding]:
    """Yield whether runs can be saved, by writing a file that is removed at once."""
    out: Path = options.out
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"topofl")
    except OSError as error:
        yield Finding("saving", WRONG, f"cannot write to {there.absolute()}: {error.strerror}")
        return
    created = "" if out.exists() else ", which will be created"
    yield Finding("saving", OK, f"runs can be saved in {out.absolute()}{created}")


def _training(options: Namespace) -> Iterator[Finding]:
    """Yield whether training gives the same losses as a loop in numpy."""
    training = import_module("topofl.cli.doctor_training")
    start = time.perf_counter()
    ours, reference = training.losses()
    seconds = time.perf_counter() - start
    difference = float(abs(ours - reference).max())
    what = f"{training.ROUNDS} rounds of {training.NODES} nodes in {seconds:.1f} s, "
    what += f"losses differ from numpy's by at most {difference:.1g} (allowed: {TOLERANCE:g})"
    yield Finding("self-test", OK if difference <= TOLERANCE else WRONG, what)


_CHECKS: dict[str, Check] = {
    "Python": _python,
    "packages": _packages,
    "devices": _devices,
    "datasets": _datasets,
    "saving": _folder,
    "self-test": _training,
}
"""Checks in the order in which they are performed, with the title of an error."""
