"""Compare this version of topofl with a checkout of another, to prove that nothing is lost.

``python -m analysis.same_as_before SUBJECT --before FOLDER`` compares the checkout in a folder with
the version that is imported. The Python of the other version is ``.venv/bin/python`` of its folder,
else the current one. The exit code is 1 if anything differs. Subjects:

- ``histories``: trains every algorithm, batched and looped, with attackers, compressors, clocks,
  cohorts, parts of models, all evaluations and checkpoints, on one process and on two ranks. All
  numbers of histories and final models must be equal to ``--tolerance`` (1e-12).
- ``methods``: the same for six methods that are written from the documentation only.
- ``names``: public names and parameters of the other version, or of a file with one per line
  (``--file``), must still be there, or be in a table of CHANGELOG.md whose first column is headed
  "renamed or dropped".
- ``tests``: runs the tests of the other version against this one, those that use no private names.
- ``speed``: times cases of the benchmark in turns (``--turns``), and measures their peak memory, on
  an otherwise idle machine. No case may take more than 1.03 times the seconds per round, the median
  of all cases not more than 1.00, and none more than 1.02 times the memory. Linux only.
"""

import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import topofl

from ..program import free_port, parser_of
from .side import SEPARATOR
from .speed import Side, labels, ratios

HERE = Path(topofl.__file__).resolve().parents[1]
"""The checkout of this version."""

LIMIT = 3600
"""Seconds after which a side is ended."""

PATH = "import sys; sys.path.append(sys.argv.pop(1)); "
START = f"{PATH}from same_as_before.side import main; "
"""This package is found behind all other modules, since the other version need not have it."""

PRIVATE = re.compile(r"topofl(\.\w+)*[./](engine\b|_)|from topofl(\.\w+)* import (_|engine\b)")
"""Mention of a module whose names may change without notice, as dotted names or as paths."""

LEFT_OUT = ("analysis", "paper_figures")
"""Folders of tests of programs that stand on topofl, whose own names may change."""

Numbers = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Difference:
    """How far a case differs, relative above 1 and else absolute, and where most or why."""

    case: str
    size: float
    where: str

    def __str__(self) -> str:
        return f"{self.size:8.1e}  {self.case}{self.where and ': '}{self.where}"


def python_of(checkout: Path) -> str:
    """Return the Python of a checkout: that of its environment, else the current one."""
    own = checkout / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def side(about: str, checkout: Path, out: Path, ranks: int = 1, only: str = "*") -> None:
    """Let a version train all cases, on one process or on ranks, and write their numbers."""
    package = Path(__file__).resolve().parent
    command = [python_of(checkout), "-P", "-c", f"{START}sys.exit(main())", str(package.parent)]
    command += [about, str(checkout), str(out), "--only", only]
    environment = os.environ | {
        "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
    }  # fmt: skip
    own = [
        {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {} for rank in range(ranks)
    ]
    started = [subprocess.Popen(command, cwd=checkout, env=environment | one) for one in own]
    try:
        codes = [process.wait(LIMIT) for process in started]
    finally:
        for process in started:
            process.kill()
    if any(codes):
        raise RuntimeError(f"{checkout} did not finish {about}: exit codes {codes}")


def by_case(file: Path) -> Mapping[str, Numbers]:
    """Return the columns of all cases in a file."""
    found = dict[str, dict[str, np.ndarray]]()
    with np.load(file) as stored:
        for key in stored.files:
            case, column = key.split(SEPARATOR)
            found.setdefault(case, {})[column] = stored[key]
    return found


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference, relative above 1 and else absolute; NaN equals NaN."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return np.inf
    if one.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(one, other) else np.inf
    a, b = one.astype(np.float64), other.astype(np.float64)
    differ = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not differ.any():
        return 0.0
    a, b = a[differ], b[differ]
    if not (np.isfinite(a) & np.isfinite(b)).all():
        return np.inf
    return float(np.max(np.abs(a - b) / np.maximum(1.0, np.abs(a))))


def difference(case: str, before: Numbers, after: Numbers) -> Difference:
    """Compare the columns of a case: one that only one version has differs infinitely."""
    if "refused" in before and "refused" in after:
        said = str(after["refused"])
        if said == str(before["refused"]):
            return Difference(case, 0.0, f"refused by both: {said}")
        return Difference(case, np.inf, f"now says {said!r}, before {str(before['refused'])!r}")
    if "refused" in before or "refused" in after:
        who, said = ("before", before) if "refused" in before else ("now", after)
        return Difference(case, np.inf, f"only {who} refused: {said['refused']}")
    sizes = {name: distance(before[name], after[name]) for name in before.keys() & after.keys()}
    sizes |= dict.fromkeys(before.keys() ^ after.keys(), np.inf)
    size = max(sizes.values())
    largest = sorted(name for name, one in sizes.items() if one == size) if size else []
    return Difference(case, size, ", ".join(largest[:5]))


def differences(before: Path, after: Path, listed: Sequence[str] = ()) -> list[Difference]:
    """Return the differences of all cases, also of those that only one version has.

    Parameters
    ----------
    before, after
        Files that the sides have written.
    listed
        Patterns of names of cases that only one version may have.
    """
    old, new = by_case(before), by_case(after)
    found = [difference(case, old[case], new[case]) for case in old if case in new]
    for case in old.keys() ^ new.keys():
        allowed = any(fnmatch.fnmatch(case, pattern) for pattern in listed)
        where = f"only {'before' if case in old else 'now'}"
        found.append(Difference(case, 0.0 if allowed else np.inf, where))
    return sorted(found, key=lambda one: (-one.size, one.case))


def runs(options: argparse.Namespace) -> bool:
    """Compare all runs of both versions, on one process and on ranks; returns if they are equal."""
    equal = True
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory(prefix="same-as-before-") as place:
            before, now = Path(place, "before.npz"), Path(place, "now.npz")
            for file, checkout in ((before, options.before), (now, HERE)):
                side(options.subject, checkout, file, ranks, options.only)
            found = differences(before, now, options.listed)
        print(options.subject, "on one process" if ranks == 1 else f"on {ranks} ranks")
        shown = [one for one in found if options.all or one.size > options.tolerance or one.where]
        for one in shown:
            print(one)
        wrong = sum(one.size > options.tolerance for one in found)
        same = sum(one.size == 0 for one in found)
        print(f"{len(found)} cases: {same} equal in every bit, ", end="")
        print(f"{len(found) - same - wrong} within {options.tolerance:g}, {wrong} different\n")
        equal = equal and bool(found) and not wrong
    return equal


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


def names(options: argparse.Namespace) -> bool:
    """Look for the public names of the version before in this one; returns if none is missing."""
    found = dict[Path, list[str]]()
    with tempfile.TemporaryDirectory(prefix="same-as-before-") as place:
        for checkout in (HERE,) if options.file else (HERE, options.before):
            side("names", checkout, Path(place, "names.txt"))
            found[checkout] = Path(place, "names.txt").read_text().splitlines()
    before = options.file.read_text().splitlines() if options.file else found[options.before]
    gone, told = lost(before, found[HERE]), dropped_in((HERE / "CHANGELOG.md").read_text())
    untold = [name for name in gone if name not in told]
    for name in untold:
        print(f"{name} is gone, and no table of CHANGELOG.md says why")
    print(f"{len(before)} names before, {len(found[HERE])} now, {len(gone)} gone")
    return not untold


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


def tests(options: argparse.Namespace) -> bool:
    """Run the black-box tests of the version before against this one; returns if they pass."""
    with tempfile.TemporaryDirectory(prefix="same-as-before-") as folder:
        place = Path(folder)
        every = map(str, laid_out(options.before, HERE, place))
        chosen = fnmatch.filter(every, options.only)
        print(
            f"{len(chosen)} files of tests of {options.before} that name nothing private",
            flush=True,
        )
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [*options.pytest, *chosen]
        environment = os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=place, env=environment, check=False).returncode == 0


def timed_side(checkout: Path) -> Side:
    """Start the process of a version that is timed."""
    command = [python_of(checkout), "-P", "-c"]
    command += [f"{PATH}from same_as_before.speed import answer; answer()"]
    environment = os.environ | {"PYTHONPATH": str(checkout), "CUDA_VISIBLE_DEVICES": ""}
    return Side([*command, str(Path(__file__).resolve().parents[1])], checkout, environment)


def peak(checkout: Path, label: str) -> float:
    """Return the growth of the peak memory of a version in a case, in bytes."""
    side = timed_side(checkout)
    try:
        return side.ask("memory", label)
    finally:
        side.end()


def speed(options: argparse.Namespace) -> bool:
    """Time both versions in turns; returns if this one is as fast, and takes as little memory."""
    print("now / before: seconds per round, until the end of the first, peak memory")
    rows = []
    for label in fnmatch.filter(labels(), options.only):
        seconds, first, before = ratios(
            lambda: (timed_side(options.before), timed_side(HERE)), label, options.turns
        )
        peaks = [
            np.median([peak(checkout, label) for _ in range(5)])
            for checkout in (options.before, HERE)
        ]
        rows.append((seconds, first, float(peaks[1] / peaks[0])))
        print(
            f"{seconds:6.3f} {first:6.3f} {rows[-1][2]:6.3f}  {label} "
            f"({1000 * before:.1f} ms, {peaks[0] / 2**20:.0f} MiB before)",
            flush=True,
        )
    middle = np.median(rows, axis=0)
    print(f"{middle[0]:6.3f} {middle[1]:6.3f} {middle[2]:6.3f}  median of {len(rows)} cases")
    most = np.max(rows, axis=0)
    return bool(most[0] <= 1.03 and middle[0] <= 1.00 and most[2] <= 1.02)


SUBJECTS = {"histories": runs, "methods": runs, "names": names, "tests": tests, "speed": speed}


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two versions from the command line; returns the exit code, 1 if they differ."""
    parser = parser_of(
        "same_as_before",
        __doc__,
        before=(Path, "folder of the checkout of the other version"),
        file=(Path, "names: of a file instead of a checkout"),
        only=("*", "pattern of the names of cases, or of tests"),
        tolerance=(1e-12, "of histories and methods"),
        all=(False, "show cases that are equal, too"),
        turns=(9, "speed: of each case"),
    )
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="(default 1 2)")
    parser.add_argument("--listed", nargs="+", default=[], help="cases that one version may lack")
    parser.add_argument(
        "--pytest", nargs=argparse.REMAINDER, default=[], help="tests: all further words, of pytest"
    )
    options = parser.parse_args(argv)
    if options.before is None and (options.subject != "names" or options.file is None):
        parser.error(f"{options.subject} needs --before")
    options.before = options.before and options.before.resolve()
    return 0 if SUBJECTS[options.subject](options) else 1
