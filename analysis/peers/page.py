"""The page of the race: tables made from nothing but the numbers that ``peers.json`` keeps."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import t as student

from topofl import NotApplicable, Table

SAME = 0.02
"""Relative difference of losses that counts as the same work."""

Runs = Mapping[str, list[dict[str, Any]] | str]
"""Peer -> what each of its runs measured, or why it has no result."""

Record = Mapping[str, Any]
"""A setting of the race, as JSON.

``title`` of its table, ``setting``: the fields that drivers read, ``names`` of peers with their
versions, ``runs``, and ``facts``: ``machine``, ``date``, ``turns``, ``threads`` (the value of
OMP_NUM_THREADS, if it is set), ``digits``, ``load`` (the most cores that others used between runs),
and whether the machine was ``quiet``.
"""


def page(records: Mapping[str, Record]) -> str:
    """Return the tables of all settings, each with its facts; facts of all settings come last."""
    lines = [facts(record["facts"]) for record in records.values()]
    shared = [line for line in lines[0] if all(line in other for other in lines)]
    blocks = []
    for record, own in zip(records.values(), lines, strict=True):
        blocks += [table_of(record).to_markdown(), *(line for line in own if line not in shared)]
    note = "Peak memory and CPU are sums over a peer's processes."
    return "\n\n".join([*blocks, *shared, note]) + "\n"


def facts(found: Mapping[str, Any]) -> list[str]:
    """Return the lines about how a table was made."""
    threads, turns = found["threads"], found["turns"]
    lines = [
        f"{found['machine']}. {turns} turns; median [smallest, largest].",
        f"Threads: {f'OMP_NUM_THREADS={threads}' if threads else 'as each peer chooses'}. "
        f"Digits: {found['digits']}.",
        f"{found['date']}; between runs, others used at most {found['load']:.2g} cores.",
    ]
    if turns < 5:
        lines.append("Fewer than 5 turns: these numbers show that everything runs, no more.")
    if not found["quiet"]:
        lines.append("The machine was busy. No result.")
    return lines


def table_of(record: Record) -> Table:
    """Return the table of a setting: a row per peer, those without a result with the reason."""
    runs: Runs = record["runs"]
    ours = runs.get("topofl", "not run")
    columns = (
        "peer", "first round, s", "later rounds, s", "topofl / peer", "CPU s per later round",
        "peak GiB", "accuracy", "loss", "work",
    )  # fmt: skip
    rows = [
        (record["names"][peer], *_cells(ours if peer != "topofl" else "itself", own))
        for peer, own in runs.items()
    ]
    return Table(columns, tuple(rows), title=record["title"])


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
