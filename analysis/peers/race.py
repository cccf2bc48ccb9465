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
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy.stats import t as student

import topofl
from topofl import NotApplicable, Table, data

from ..benchmark.report import title
from ..program import as_installed, at_least_one, parser_of, write
from .environments import PYTHON, SOURCES, Failed, environment, from_sources, run, version
from .settings import SETTINGS, Setting, write_arrays

CACHE = Path.home() / ".cache" / "topofl-peers"
BUSY = 0.15
"""Cores that other processes may use while nothing of the race runs."""

TRIES = 5
"""Looks at a busy machine before it is refused."""

SAME = 0.02
"""Relative difference of losses that counts as the same work."""

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
        images = data.mnist(options.data, val=0) if _has_mnist(options) else None
        found, load = race(settings, options, images)
    except (Busy, ValueError, OSError) as error:
        return _refuse(str(error))
    facts = _facts(options, load, images is not None)
    page = "\n\n".join(
        [*(table_of(s, found[s.label], options.sources).to_markdown() for s in settings), *facts]
    )
    print(page)
    if options.out:
        raw = {"facts": facts, "settings": {s.label: s.spec(0) for s in settings}, "runs": found}
        write(options.out, peers=page + "\n")
        write(options.out, peers=raw)
    return 0


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
) -> tuple[dict[str, Results], float]:
    """Return the results of all settings, and the most cores that others used between runs."""
    found: dict[str, Results] = {}
    pythons: dict[str, str | Failed] = {}
    asked = {"topofl", *options.peers.split(",")} if options.peers else None
    load = 0.0
    for setting in settings:
        peers = [peer for peer in setting.peers if asked is None or peer in asked]
        for peer in peers:
            if peer not in pythons:
                pythons[peer] = _made(peer, options.cache)
        results: Results = {
            peer: str(pythons[peer]) if isinstance(pythons[peer], Failed) else [] for peer in peers
        }
        found[setting.label] = results
        with tempfile.TemporaryDirectory() as folder:
            arrays = write_arrays(setting, Path(folder), images)
            for seed in range(options.repeats):
                for peer in reversed(peers) if seed % 2 else peers:
                    results_of = results[peer]
                    if isinstance(results_of, str):
                        continue
                    load = max(load, check_quiet(options.busy))
                    print(f"{setting.label}: {peer}, turn {seed + 1}", file=sys.stderr, flush=True)
                    try:
                        spec = setting.spec(seed)
                        how = (options.limit, options.sources)
                        one = run(peer, str(pythons[peer]), spec, arrays, *how)
                    except Failed as error:
                        results[peer] = str(error)
                    else:
                        results_of.append(one)
    return found, load


def _made(peer: str, cache: Path) -> str | Failed:
    try:
        return environment(peer, cache)
    except Failed as error:
        return error


def table_of(setting: Setting, results: Results, sources: Path | None = None) -> Table:
    """Return the table of a setting: a row per peer, those without a result with the reason."""
    ours = results.get("topofl", "not run")
    columns = (
        "peer", "first round, s", "later rounds, s", "topofl / peer", "CPU s per later round",
        "peak GiB", "accuracy", "loss", "work",
    )  # fmt: skip
    rows = [
        (_name(peer, sources), *_cells(ours if peer != "topofl" else "itself", runs))
        for peer, runs in results.items()
    ]
    text = f"{setting.label}: {setting.title} ({setting.rounds} rounds). Source: {setting.source}."
    return Table(columns, tuple(rows), title=text)


def _name(peer: str, sources: Path | None) -> str:
    if from_sources(peer, sources):
        return f"{peer} at commit {SOURCES[peer][0]}"
    return f"{peer} {topofl.__version__ if peer == 'topofl' else version(peer)}"


def _cells(ours: list[dict[str, Any]] | str, runs: list[dict[str, Any]] | str) -> list[Any]:
    """Return the cells of a row after the name of the peer."""
    if isinstance(runs, str):
        return [NotApplicable(runs)] * 8
    later = [later_round(one) for one in runs]
    ratio, work = "", ""
    if not isinstance(ours, str):
        pairs = list(zip(ours, runs, strict=False))
        ratio = spread([later_round(a) / later_round(b) for a, b in pairs])
        work = agreement([a["loss"] for a, _ in pairs], [b["loss"] for _, b in pairs])
    accuracies = [one["accuracy"] for one in runs if "accuracy" in one]
    return [
        spread([one["rounds"][0] for one in runs]),
        spread(later),
        ratio,
        spread([one["cpu"] for one in runs]),
        spread([one["peak"] / 2**30 for one in runs]),
        spread(accuracies) if accuracies else "",
        spread([one["loss"] for one in runs]),
        work,
    ]


def later_round(result: Mapping[str, Any]) -> float:
    """Return the median seconds of the rounds after the first."""
    return statistics.median(result["rounds"][1:] or result["rounds"])


def spread(values: Sequence[float]) -> str:
    """Return the median with the smallest and the largest value, as text."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.3g} [{low:.3g}, {high:.3g}]"


def agreement(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return whether losses of the same seeds agree: ``"same"``, ``"differs"`` or ``"undecided"``.

    They agree if the 99 % interval of the mean difference, by Student's t, lies within 2 % of the
    loss on either side, and differ if it lies outside.
    """
    differences = [b - a for a, b in zip(ours, theirs, strict=True)]
    if len(differences) < 2:
        return "one run: unknown"
    mean = statistics.mean(differences)
    error = statistics.stdev(differences) / len(differences) ** 0.5
    half = error * float(student.ppf(0.995, len(differences) - 1))
    scale = SAME * abs(statistics.mean(ours))
    if abs(mean) + half <= scale:
        return "same"
    verdict = "differs" if abs(mean) - half > scale else "undecided"
    return f"{verdict}: loss {mean:+.3g} ± {half:.1g}"


def _facts(options: argparse.Namespace, load: float, mnist: bool) -> list[str]:
    """Return the lines about how the tables were made."""
    threads = os.environ.get("OMP_NUM_THREADS")
    lines = [
        f"{title()}. {options.repeats} turns; median [smallest, largest].",
        f"Threads: {f'OMP_NUM_THREADS={threads}' if threads else 'as each peer chooses'}. "
        f"Digits: {'MNIST' if mnist else 'made images of the shape of MNIST'}.",
        "Peak memory and CPU are sums over a peer's processes. "
        f"{', '.join(f'{peer} runs on Python {wanted}' for peer, wanted in PYTHON.items())}.",
    ]
    if options.repeats < 5:
        lines.append("Fewer than 5 turns: these numbers show that everything runs, no more.")
    if load > BUSY:
        lines.append(f"The machine was busy: others used up to {load:.1f} cores. No result.")
    return lines
