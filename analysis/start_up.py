"""Measure how long Python takes to import topofl, and to run its short commands.

``python -m analysis.start_up`` starts each of :data:`CASES` in a new process, in turns, and prints
a Markdown table. CPU seconds (user and system) are of use on a busy machine, too; wall-clock
seconds only on a quiet one. The column "beyond torch" subtracts the median of ``import torch``. The
first turn fills the caches of files and is not counted. Not for Windows.

``topofl run, 1 round`` trains a round on digits, evaluates before and after it, and saves: its time
is an upper bound of that until the first round. Below the table stands whether aims are met. With
``--before FOLDER``, each process is also started for the checkout in that folder, one after the
other, and a second table has ratios. Modules of both checkouts are compiled first, since a process
that compiles them takes several times as long.
"""

import compileall
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import topofl
from topofl import Table

from .program import load_of_machine, parser_of

HERE = Path(topofl.__file__).resolve().parents[1]
"""The checkout of this version."""

COMMANDS = (
    "new", "list", "spectral", "recommend", "explore", "run", "resume", "sweep", "runs", "compare",
    "graphs", "leaderboard", "reproduce", "study", "doctor", "completion",
)  # fmt: skip

EXPERIMENT = """\
data = {name = "digits", n = 20, seed = 0}
topology = "ring"
algorithm = {name = "dsgd", lr = 0.5}
run = {rounds = 1, seed = 0}
"""
"""What ``experiment.toml`` says in the folder in which each process starts."""

IMPORT, TORCH, ROUND = "import topofl", "import torch", "topofl run, 1 round"

CASES: Mapping[str, Sequence[str]] = {
    "python": ("-c", "pass"),
    "import numpy": ("-c", "import numpy"),
    TORCH: ("-c", "import torch"),
    IMPORT: ("-c", "import topofl"),
    "import torch, topofl": ("-c", "import torch, topofl"),
    "import torch; from topofl import *": ("-c", "import torch\nfrom topofl import *"),
    "topofl --help": ("-m", "topofl", "--help"),
    **{f"topofl {name} --help": ("-m", "topofl", name, "--help") for name in COMMANDS},
    "topofl --version": ("-m", "topofl", "--version"),
    "topofl list": ("-m", "topofl", "list"),
    "topofl list topology": ("-m", "topofl", "list", "topology"),
    "topofl list metric": ("-m", "topofl", "list", "metric"),
    "topofl trains (an error)": ("-m", "topofl", "trains"),
    "topofl list --needs": ("-m", "topofl", "list", "--needs"),
    ROUND: ("-m", "topofl", "run", "experiment.toml"),
}
"""Arguments of Python by label."""


Start = tuple[float, float]
"""CPU and wall-clock seconds of a process."""

Found = dict[str, list[Start]]
"""Times of each case, by turn."""


def measure(repeats: int, checkouts: Sequence[Path] = (HERE,)) -> list[Found]:
    """Return the times of each case in each checkout, measured `repeats` times in turns."""
    found: list[Found] = [{label: [] for label in CASES} for _ in checkouts]
    sides = list(zip(found, checkouts, strict=True))
    for turn in range(repeats + 1):
        for label, arguments in CASES.items():
            for own, checkout in reversed(sides) if turn % 2 else sides:
                start, _ = _start(arguments, checkout)
                if turn:
                    own[label].append(start)
    return found


def _start(arguments: Sequence[str], checkout: Path) -> tuple[Start, str]:
    """Return the times of a process that finds topofl in a checkout, and what it says on stderr."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "experiment.toml").write_text(EXPERIMENT)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != (2 if "trains" in arguments else 0):
        raise RuntimeError(f"{' '.join(arguments)} of {checkout} failed: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (cpu, wall), done.stderr


def modules_loaded_by(arguments: Sequence[str]) -> int:
    """Return the number of modules that Python imports with these arguments."""
    _, said = _start(("-X", "importtime", *arguments), HERE)
    return sum(line.startswith("import time:") for line in said.splitlines()) - 1


def table(found: Mapping[str, Sequence[Start]], modules: Mapping[str, int]) -> Table:
    """Return a row per case: median and least CPU seconds, median wall-clock seconds, modules."""
    torch, rows = median(cpu for cpu, _ in found[TORCH]), []
    for label, starts in found.items():
        cpu, wall = zip(*starts, strict=True)
        own = (median(cpu), min(cpu), median(cpu) - torch, median(wall))
        rows.append((label, *own, modules[label]))
    columns = ("start", "CPU s", "least CPU s", "beyond torch", "wall s", "modules")
    return Table(columns, tuple(rows))


def judged(found: Mapping[str, Sequence[Start]]) -> list[str]:
    """Return a line per aim: what was aimed at, and the median of wall-clock seconds."""
    wall = {label: median(wall for _, wall in starts) for label, starts in found.items()}
    imported = wall[IMPORT] - wall["python"]
    first, most = wall[ROUND], 1.3 * wall[TORCH] + 1
    return [
        f"{name}: {value:.2f} s; {'met' if value <= aim else 'not met'}: at most {said}."
        for name, value, aim, said in (
            (f"{IMPORT}, beyond python", imported, 0.1, "0.1 s"),
            (ROUND, first, most, f"1.3 times {TORCH} and 1 s, which is {most:.2f} s"),
        )
    ]


def ratios(before: Mapping[str, Sequence[Start]], now: Mapping[str, Sequence[Start]]) -> Table:
    """Return a row per case: medians before and now, and the ratios of the turns, for both times.

    Ratios are the median over turns with the smallest and the largest.
    """
    rows = []
    for label in now:
        cells: list[float | str] = []
        both = (zip(*found[label], strict=True) for found in (before, now))
        for old, new in zip(*both, strict=True):
            each = [b / a for a, b in zip(old, new, strict=True)]
            spread = f"{median(each):.3f} [{min(each):.3f}, {max(each):.3f}]"
            cells += [median(old), median(new), spread]
        rows.append((label, *cells))
    what = ("before", "now", "now / before")
    columns = (f"{name} s {one}" for name in ("CPU", "wall") for one in what)
    return Table(("start", *columns), tuple(rows))


def is_compiled(checkout: Path) -> bool:
    """Compile the modules of topofl in a checkout, if they are not; return whether all are."""
    package = checkout / "topofl"
    return package.is_dir() and bool(compileall.compile_dir(package, quiet=2))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables and the load of the machine; returns the exit code."""
    parser = parser_of(
        "start_up",
        __doc__,
        repeats=(7, "turns to measure"),
        before=(Path, "folder of a checkout of another version, to compare with"),
    )
    options = parser.parse_args(argv)
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    checkouts = [HERE] if options.before is None else [HERE, options.before.resolve()]
    for checkout in reversed(checkouts):
        if not is_compiled(checkout):
            parser.error(f"{checkout} must have a folder topofl whose modules can be compiled")
    found = measure(options.repeats, checkouts)
    modules = {label: modules_loaded_by(arguments) for label, arguments in CASES.items()}
    print(table(found[0], modules).to_markdown(), *judged(found[0]), sep="\n\n")
    for before in found[1:]:
        print(f"\n{ratios(before, found[0]).to_markdown()}")
    load = load_of_machine()
    print(f"\n{options.repeats} turns; load of the machine over 1, 5 and 15 minutes: {load}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
