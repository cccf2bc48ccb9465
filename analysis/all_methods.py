"""All methods on three frozen tasks with tuned learning rates: one table, and the file behind it.

Each public method is trained by the rules of the leaderboard (:mod:`topofl.leaderboard`) on tasks
that topofl ships. Its learning rate is chosen on tuning seeds from the grid of the task, and from
further rates while the best is at an end; other arguments are the defaults. ``all_methods.toml``
has what is particular to a method. Finished runs and cells are not repeated, and if only the seeds
that count differ, the rate of a cell is kept:

    python -m analysis.all_methods                      what is missing, and the page
    python -m analysis.all_methods --methods extra d2   of some methods; --again repeats them
    python -m analysis.all_methods --check              the tuned runs again, in a new store
    python -m analysis.all_methods --page               only the page, from the file
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from .all_methods_cells import (
    COMMITTED,
    PRESETS,
    ROWS,
    check,
    compute,
    missing,
    read_cells,
    tuned,
    with_tuning,
    write_cells,
)
from .all_methods_page import save
from .program import at_least_one, parser_of


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = parser_of(
        "all_methods",
        __doc__,
        preset=("full", "small: four rounds, two rates, one seed", list(PRESETS)),
        out=(Path, "folder of the results (default: that of the repository; small: out/)"),
        store=(Path("runs/all-methods"), "folder of the runs"),
        again=(False, "run cells again that are there"),
        check=(False, "run only the tuned settings of the file again, and compare"),
        page=(False, "run nothing, and write the page"),
    )
    parser.add_argument(
        "--methods", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="NAME",
        help="only these",
    )  # fmt: skip
    parser.add_argument("--processes", type=at_least_one, default=1, help="default: 1")
    options = parser.parse_args(argv)
    preset = PRESETS[options.preset]
    default = COMMITTED if options.preset == "full" else Path("out", "all-methods-small")
    out = options.out or default
    cells = read_cells(out)
    wanted = [(name, task.key) for task in preset.tasks for name in options.methods]
    if options.check:
        return check(cells, preset, wanted, options.processes)
    if not options.page:
        keys = wanted if options.again else missing(cells, preset, options.methods)
        rates = {} if options.again else tuned(cells, preset, keys)
        found = compute(keys, preset, options.store, options.processes, rates)
        for cell in tqdm(found, total=len(keys), desc="cells", unit="cell", disable=None):
            cells[cell.method, cell.task] = with_tuning(cell, cells, rates)
            write_cells(out, cells, preset)
    save(cells, preset, out)
    print(f"wrote {out}/results.json, table.md and curves.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
