"""Race topofl against maintained peers, on the peers' own settings.

``python -m analysis.benchmark peers`` makes an environment for each peer in a cache folder, from
pinned requirements, with the CPU torch of this environment. In each setting all peers get the same
data, model and number of steps, and start from the same parameters for each seed. They run in
turns, one seed per turn, each in a new process, and evaluate nothing while they are timed.

Tables show the median over turns and, in brackets, the smallest and the largest value, which hold
the true median with a confidence of 1 - 2^(1 - turns), 94 % of 5. A round is timed from the end of
the one before; the first one, from the moment at which data and libraries are in memory. Final
models are scored by the same code for all; whether a peer's losses agree with ours, differ, or
leave that undecided, is said in its row. A busy machine is refused.

``--out`` names a folder: ``peers.json`` has all numbers, with the facts of each setting, and
``peers.md`` the tables that are made from them. Both are written after each setting. Settings that
the folder had before are kept, unless they are raced again.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import topofl
from topofl import data

from ..benchmark.report import title
from ..program import as_installed, at_least_one, parser_of, write
from .environments import PYTHON, SOURCES, Failed, environment, from_sources, run, version
from .page import Record, page
from .settings import SETTINGS, Setting, write_arrays

CACHE = Path.home() / ".cache" / "topofl-peers"
BUSY = 0.15
"""Cores that other processes may use while nothing of the race runs."""

TRIES = 5
"""Looks at a busy machine before it is refused."""

Results = dict[str, list[dict[str, Any]] | str]
"""Peer -> what each of its runs measured, or why it has no result."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the race from the command line; returns the exit code."""
    options = _parser().parse_args(argv)
    letters = [setting.label for setting in SETTINGS]
    wanted = options.only.split(",") if options.only else letters
    if unknown := sorted(set(wanted) - set(letters)):
        return _refuse(f"--only must be among {', '.join(letters)}, got {', '.join(unknown)}")
    settings = [
        replace(setting, rounds=options.rounds or setting.rounds)
        for setting in SETTINGS
        if setting.label in wanted
    ]
    try:
        records = stored(options.out) if options.out else dict[str, Record]()
        images = data.mnist(options.data, val=0) if _has_mnist(options) else None
        for setting, results, load in race(settings, options, images):
            record = record_of(setting, results, load, options, images is not None)
            records = merged(records, setting.label, record)
            if options.out:
                write(options.out, peers=records)
                write(options.out, peers=page(records))
    except (Busy, ValueError, OSError) as error:
        return _refuse(str(error))
    print(page(records), end="")
    return 0


def stored(folder: Path) -> dict[str, Record]:
    """Return the settings that a folder, which is created, has from earlier races.

    Raises
    ------
    ValueError
        If its ``peers.json`` is not that of a race.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "peers.json"
    if not path.exists():
        return {}
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        page(records)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ValueError(
            f"--out must be a folder without a peers.json, or with that of a race, got {path}; "
            "give another folder"
        ) from None
    return records


def merged(records: Mapping[str, Record], label: str, record: Record) -> dict[str, Record]:
    """Return the records with that of a setting in place of its earlier one, in our order."""
    known = {**records, label: record}
    return {one.label: known[one.label] for one in SETTINGS if one.label in known} | known


def record_of(
    setting: Setting, results: Results, load: float, options: argparse.Namespace, mnist: bool
) -> Record:
    """Return what is kept of a setting."""
    text = f"{setting.label}: {setting.title} ({setting.rounds} rounds). Source: {setting.source}."
    return {
        "title": text,
        "setting": setting.spec(0),
        "facts": {
            "machine": title(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "turns": options.repeats,
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "digits": "MNIST" if mnist else "made images of the shape of MNIST",
            "load": load,
            "quiet": load <= BUSY,
        },
        "names": {peer: _name(peer, options.sources) for peer in results},
        "runs": results,
    }


def _name(peer: str, sources: Path | None) -> str:
    """Return the name of a peer with its version, and its Python if that is not ours."""
    if from_sources(peer, sources):
        return f"{peer} at commit {SOURCES[peer][0]}"
    own = f"{peer} {topofl.__version__ if peer == 'topofl' else version(peer)}"
    return f"{own}, Python {PYTHON[peer]}" if peer in PYTHON else own


def _refuse(text: str) -> int:
    print(as_installed(f"python -m analysis.benchmark peers: error: {text}"), file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "benchmark peers",
        __doc__,
        cache=(CACHE, "folder of the peers' environments"),
        only=("", "settings, such as A,B"),
        peers=("", "peers in addition to topofl, such as pfl,fluke; all of them if empty"),
        limit=(1800.0, "seconds after which a run is stopped"),
        busy=(False, "measure on a busy machine too, and say so in the result"),
        sources=(CACHE / "sources", "folder with sources of peers whose release lacks a setting"),
        data=(Path, "folder with MNIST; without it and TOPOFL_DATA, images are made"),
        out=(Path, "folder for the tables and numbers, such as analysis/results/peers"),
    )
    for flag, default, text in (
        ("--repeats", 5, "turns, at least 5 for a result (default: 5)"),
        ("--rounds", None, "of each run (default: those of the setting)"),
    ):
        parser.add_argument(flag, type=at_least_one, default=default, help=text)
    return parser


def _has_mnist(options: argparse.Namespace) -> bool:
    return bool(options.data or os.environ.get("TOPOFL_DATA"))


class Busy(RuntimeError):
    """Other processes use the machine."""


def busy_cores(seconds: float = 2.0) -> float:
    """Return how many cores are in use, while this process waits."""

    def used() -> float:
        fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
        return (sum(map(int, fields[:8])) - int(fields[3]) - int(fields[4])) / os.sysconf(
            "SC_CLK_TCK"
        )

    before, start = used(), time.perf_counter()
    time.sleep(seconds)
    return (used() - before) / (time.perf_counter() - start)


def check_quiet(allowed: bool) -> float:
    """Return the cores that others use; raise :class:`Busy` if too many, unless allowed.

    What a peer leaves behind may take some seconds to end.
    """
    cores = busy_cores()
    for _ in range(0 if allowed else TRIES - 1):
        cores = cores if cores <= BUSY else busy_cores()
    if cores > BUSY and not allowed:
        raise Busy(
            f"the machine must be quiet, but other processes use {cores:.1f} cores; wait, or give "
            "--busy to measure all the same"
        )
    return cores


def race(
    settings: Sequence[Setting], options: argparse.Namespace, images: data.Dataset | None
) -> Iterator[tuple[Setting, Results, float]]:
    """Yield each setting with its results, and the most cores that others used between its runs."""
    pythons: dict[str, str | Failed] = {}
    asked = {"topofl", *options.peers.split(",")} if options.peers else None
    for setting in settings:
        peers = [peer for peer in setting.peers if asked is None or peer in asked]
        for peer in peers:
            if peer not in pythons:
                pythons[peer] = _made(peer, options.cache)
        with tempfile.TemporaryDirectory() as folder:
            arrays = write_arrays(setting, Path(folder), images)
            results, load = _raced(setting, {p: pythons[p] for p in peers}, options, arrays)
        yield setting, results, load


def _raced(
    setting: Setting,
    pythons: dict[str, str | Failed],
    options: argparse.Namespace,
    arrays: Path,
) -> tuple[Results, float]:
    """Return the results of a setting, and the most cores that others used between runs."""
    results: Results = {
        peer: str(python) if isinstance(python, Failed) else [] for peer, python in pythons.items()
    }
    load = 0.0
    for seed in range(options.repeats):
        for peer in reversed(pythons) if seed % 2 else pythons:
            results_of = results[peer]
            if isinstance(results_of, str):
                continue
            load = max(load, check_quiet(options.busy))
            print(f"{setting.label}: {peer}, turn {seed + 1}", file=sys.stderr, flush=True)
            try:
                how = (options.limit, options.sources)
                one = run(peer, str(pythons[peer]), setting.spec(seed), arrays, *how)
            except Failed as error:
                results[peer] = str(error)
            else:
                results_of.append(one)
    return results, load


def _made(peer: str, cache: Path) -> str | Failed:
    try:
        return environment(peer, cache)
    except Failed as error:
        return error


if __name__ == "__main__":
    sys.exit(main())
