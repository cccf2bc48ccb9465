"""What a version of topofl promises: its public names, and the tests that name nothing private."""

import fnmatch
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

PRIVATE = re.compile(r"topofl(\.\w+)*[./](engine\b|_)|from topofl(\.\w+)* import (_|engine\b)")
"""Mention of a module whose names may change without notice, as dotted names or as paths."""

LEFT_OUT = ("analysis", "paper_figures")
"""Folders of tests of programs that stand on topofl, whose own names may change."""


def names_private(text: str) -> bool:
    """Return whether a file mentions private modules of topofl.

    Examples
    --------
    >>> names_private("from topofl.engine.setup import weight_rules")
    True
    >>> names_private("from topofl import algorithms, run")
    False
    """
    return PRIVATE.search(text) is not None


def laid_out(before: Path, now: Path, place: Path) -> list[Path]:
    """Lay out the tests and pages of one version around topofl of another; returns the tests.

    A module that names private modules is that of the version that is tested, if it still exists:
    tests may call it, but do not say what is in it.
    """
    for path in before.iterdir():
        if path.name not in ("tests", "topofl", "analysis") and not path.name.startswith("."):
            (place / path.name).symlink_to(path)
    for name in ("topofl", "analysis"):
        (place / name).symlink_to(now / name)
    shutil.copytree(before / "tests", place / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    chosen = list[Path]()
    for path in sorted((place / "tests").rglob("*.py")):
        own = path.relative_to(place)
        private = names_private(path.read_text())
        if path.name.startswith("test_"):
            chosen += [] if private or own.parts[1] in LEFT_OUT else [own]
        if private and (now / own).exists():
            shutil.copyfile(now / own, path)
    return chosen


def run_tests(before: Path, now: Path, only: str, words: Sequence[str]) -> int:
    """Run the black-box tests of a version against another; returns the exit code of pytest.

    Parameters
    ----------
    before
        Checkout whose tests run.
    now
        Checkout whose ``topofl`` is tested.
    only
        Pattern of the paths of tests, such as ``"tests/mixing/*"``.
    words
        Further words of pytest.
    """
    with tempfile.TemporaryDirectory(prefix="same-as-before-") as folder:
        place = Path(folder)
        every = laid_out(before, now, place)
        chosen = [str(path) for path in every if fnmatch.fnmatch(str(path), only)]
        print(f"{len(chosen)} files of tests of {before} that name nothing private", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, *chosen]
        environment = os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=place, env=environment, check=False).returncode


def entries(prefix: str, module: ModuleType) -> Iterator[str]:
    """Yield the public names below a module: functions and classes with parameters, members.

    A name is public if it is in ``__all__`` of its module, and so is that module.
    """
    for name in sorted(getattr(module, "__all__", ())):
        value, full = getattr(module, name), f"{prefix}.{name}"
        if inspect.ismodule(value):
            yield from entries(full, importlib.import_module(value.__name__))
            continue
        yield f"{full}({', '.join(_parameters(value))})"
        if inspect.isclass(value):
            yield from (f"{full}.{one}" for one in sorted(vars(value)) if not one.startswith("_"))


def _parameters(value: object) -> list[str]:
    try:
        names = inspect.signature(value).parameters if callable(value) else ()
    except (TypeError, ValueError):
        return []
    return [name for name in names if not name.startswith("_")]


def lost(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Return names, and parameters as ``name(parameter)``, that are no longer there.

    Examples
    --------
    >>> lost(["topofl.run(a, b)", "topofl.Run(a)", "topofl.Run.go"], ["topofl.run(b, c)"])
    ['topofl.run(a)', 'topofl.Run', 'topofl.Run.go']
    """
    own = dict(map(_parted, after))
    gone = list[str]()
    for name, parameters in map(_parted, before):
        if name not in own:
            gone.append(name)
        else:
            gone += [f"{name}({one})" for one in parameters if one not in own[name]]
    return gone


def _parted(line: str) -> tuple[str, list[str]]:
    """Return the name and the parameters of a line."""
    name, _, rest = line.strip().partition("(")
    return name, [one for one in rest.rstrip(")").split(", ") if one]


def dropped_in(changelog: str) -> Collection[str]:
    """Return the names in the first column of tables headed "renamed or dropped".

    Examples
    --------
    >>> rows = ["| renamed or dropped | why |", "| --- | --- |", "| `topofl.run(a)` | unused |"]
    >>> dropped_in(chr(10).join(rows))
    {'topofl.run(a)'}
    """
    names, inside = set[str](), False
    for line in changelog.splitlines():
        first = line.strip().strip("|").partition("|")[0]
        inside = line.startswith("|") and (inside or first.strip().lower() == "renamed or dropped")
        names |= {*re.findall(r"`([^`]+)`", first)} if inside else set()
    return names
