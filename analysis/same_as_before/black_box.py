"""The black-box tests of another version: those that name nothing private."""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

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
