"""Measure how long Python takes to import topofl, and to run its short commands.

``python -m analysis.start_up`` starts each of :data:`CASES` in a new process, in turns, and prints
a Markdown table. CPU seconds (user and system) are of use on a busy machine, too; wall-clock
seconds only on a quiet one. The column "beyond torch" subtracts the median of ``import torch``. The
first turn fills the caches of files and is not counted. Not for Windows.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

from topofl import Table

from .program import load_of_machine, parser_of

CASES: Mapping[str, Sequence[str]] = {
    "python": ("-c", "pass"),
    "import numpy": ("-c", "import numpy"),
    "import torch": ("-c", "import torch"),
    "import topofl": ("-c", "import topofl"),
    "import torch, topofl": ("-c", "import torch, topofl"),
    "import torch; from topofl import *": ("-c", "import torch\nfrom topofl import *"),
    "topofl --help": ("-m", "topofl", "--help"),
    "topofl --version": ("-m", "topofl", "--version"),
    "topofl list": ("-m", "topofl", "list"),
    "topofl list topology": ("-m", "topofl", "list", "topology"),
    "topofl list metric": ("-m", "topofl", "list", "metric"),
    "topofl trains (an error)": ("-m", "topofl", "trains"),
    "topofl list --needs": ("-m", "topofl", "list", "--needs"),
}
"""Arguments of Python by label."""


Start = tuple[float, float]
"""CPU and wall-clock seconds of a process."""


def measure(repeats: int) -> dict[str, list[Start]]:
    """Return the times of each case, measured `repeats` times in turns."""
    found: dict[str, list[Start]] = {label: [] for label in CASES}
    for turn in range(repeats + 1):
        for label, arguments in CASES.items():
            start = _start(arguments)
            if turn:
                found[label].append(start)
    return found


def _start(arguments: Sequence[str]) -> Start:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def modules_loaded_by(arguments: Sequence[str]) -> int:
    """Return the number of modules that Python imports with these arguments."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return sum(line.startswith("import time:") for line in done.stderr.splitlines()) - 1


def table(found: Mapping[str, Sequence[Start]], modules: Mapping[str, int]) -> Table:
    """Return a row per case: median and least CPU seconds, median wall-clock seconds, modules."""
    torch, rows = median(cpu for cpu, _ in found["import torch"]), []
    for label, starts in found.items():
        cpu, wall = zip(*starts, strict=True)
        own = (median(cpu), min(cpu), median(cpu) - torch, median(wall))
        rows.append((label, *own, modules[label]))
    columns = ("start", "CPU s", "least CPU s", "beyond torch", "wall s", "modules")
    return Table(columns, tuple(rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and the load of the machine; returns the exit code."""
    parser = parser_of("start_up", __doc__, repeats=(7, "turns to measure"))
    options = parser.parse_args(argv)
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    found = measure(options.repeats)
    modules = {label: modules_loaded_by(arguments) for label, arguments in CASES.items()}
    print(table(found, modules).to_markdown())
    load = load_of_machine()
    print(f"\n{options.repeats} turns; load of the machine over 1, 5 and 15 minutes: {load}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
