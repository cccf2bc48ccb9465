"""Compute what topologies cost in seconds on links of several kinds, from 10^3 to 10^6 nodes.

``python -m analysis.cost_in_seconds --out analysis/results/cost_in_seconds`` writes records.json,
report.md and three figures; records that are there are not computed again. Nothing is timed: all
numbers follow from the graphs and from the hardware that is assumed, by ``metrics.round_time``;
only the times of stragglers are drawn.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topofl import Table

from .figures import regimes_figure, seconds_figure, seconds_table, stragglers_figure
from .settings import FAMILIES, HARDWARE, MODELS, cost_of, regional, stragglers

__all__ = ["compute", "main", "write"]

NODES = (1000, 10_000, 100_000, 1_000_000)
SIGMA = 0.5
WAITING = ("ring", "random 6-regular", "exponential")


def compute(nodes: Sequence[int], most_simulated: int, path: Path) -> dict[str, Any]:
    """Return all records, as JSON values; those in the file at `path` are not computed again."""
    records: dict[str, Any] = {"costs": [], "stragglers": []}
    if path.exists():
        records |= json.loads(path.read_text())
    simulated = [n for n in (100, *nodes) if n <= most_simulated]
    for part, make, families, sizes in (
        ("costs", cost_of, tuple(FAMILIES), nodes),
        ("stragglers", _stragglers, WAITING, simulated),
    ):
        known = {(record["family"], record["n"]) for record in records[part]}
        for n in sizes:
            for family in families:
                if (family, n) not in known:
                    records[part].append(make(family, n))
                    _save(records, path)
                    print(f"{part}, {family}, {n:,} nodes", file=sys.stderr)
    records["regions"] = regional()
    _save(records, path)
    return records


def _stragglers(family: str, n: int) -> dict[str, Any]:
    return stragglers(family, n, SIGMA)


def _save(records: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records, indent=1) + "\n")


def write(records: dict[str, Any], folder: Path) -> list[Path]:
    """Write figures and report, and return their paths."""
    costs = records["costs"]
    middle = sorted({record["n"] for record in costs})[0]
    figures = {
        "seconds": seconds_figure(costs),
        "regimes": regimes_figure(costs, middle),
        "stragglers": stragglers_figure(records["stragglers"]),
    }
    paths = [folder / "report.md"]
    paths[0].write_text(report(records, middle))
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=110)
    return paths


def report(records: dict[str, Any], regimes_nodes: int) -> str:
    """Return the Markdown text with all tables."""
    links = "; ".join(
        f"{name}: latency {one['latency']:g} s, {one['bandwidth'] * 8 / 1e6:,.0f} Mbit/s"
        for name, one in HARDWARE.items()
    )
    blocks = [
        "# What topologies cost in seconds",
        "Written by `python -m analysis.cost_in_seconds`. Seconds per round if all nodes wait for "
        f"the slowest, and the largest part. Assumed links, one per node: {links}.",
    ]
    for n in sorted({record["n"] for record in records["costs"]}):
        for model in MODELS:
            blocks.append(
                f"## {n:,} nodes, {model.label}\n\n{model.n_parameters:,} parameters, "
                f"{model.compute:g} s of local work per round."
            )
            blocks.append(seconds_table(records["costs"], n, model.label).to_markdown())
    missing = [record for record in records["costs"] if "reason" in record]
    blocks.append("## Left out")
    blocks += [
        "\n".join(f"- {r['family']}, {r['n']:,} nodes: {r['reason']}" for r in missing) or "None."
    ]
    blocks += ["## Stragglers", f"Lognormal steps of mean 1 s, sigma {SIGMA:g}, free messages."]
    names = ("graph", "nodes", "all wait", "neighbors wait")
    rows = [(r["family"], r["n"], r["all"], r["neighbors"]) for r in records["stragglers"]]
    blocks.append(Table(names, tuple(rows)).to_markdown())
    blocks += [
        "## Ten regions of Azure",
        "100 nodes, ten per region; logistic regression; 1 Gbit/s. Latencies are published "
        "(`metrics.azure_latency`), 0.5 ms within a region is assumed.",
    ]
    names = ("graph", "order of nodes", "all wait", "neighbors wait")
    rows = [(r["family"], r["order"], r["all"], r["neighbors"]) for r in records["regions"]]
    blocks.append(Table(names, tuple(rows)).to_markdown())
    blocks.append(f"The figure of regimes is for {regimes_nodes:,} nodes.")
    return "\n\n".join(blocks) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Compute, or read, the records and write report and figures; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.cost_in_seconds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=NODES, help="numbers of nodes (default: all)"
    )
    parser.add_argument(
        "--simulated", type=int, default=100_000, help="most nodes with drawn times (100,000)"
    )
    parser.add_argument("--draw", action="store_true", help="only draw, from records.json")
    parser.add_argument("--out", type=Path, default=Path("out", "cost_in_seconds"), help="folder")
    options = parser.parse_args(argv)
    path = options.out / "records.json"
    if options.draw:
        records = json.loads(path.read_text())
    else:
        records = compute(options.nodes, options.simulated, path)
    for path in write(records, options.out):
        print(f"written: {path}")
    return 0
