"""Compute what topologies cost in seconds on links of several kinds, from 10^3 to 10^6 nodes.

``python -m analysis.cost_in_seconds --out analysis/results/cost_in_seconds`` writes records.json,
report.md and three figures; records that are there are not computed again. Nothing is timed: all
numbers follow from the graphs and from the hardware that is assumed, by ``metrics.round_time``;
only the times of stragglers are drawn.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from topofl import Table, Topology, TopologySequence, metrics, topologies
from topofl.clocks import lognormal

from .program import declared, parser_of, write

SEED = 0
DESIGNED_NODES = 1000
"""Most nodes for which a topology is designed, since the search takes long above."""

COMPLETE_NODES = 5000
"""Most nodes of a complete graph, which has 25 million links."""


_DECLARED = declared("cost_in_seconds")

MODELS: Sequence[Mapping[str, Any]] = _DECLARED["models"]
"""A label, ``n_parameters`` as in ``topofl.models``, and ``compute``: seconds of work per round.

The seconds are assumed, for a few steps on a small CPU.
"""

HARDWARE: Mapping[str, Mapping[str, Any]] = _DECLARED["hardware"]
"""Latency in seconds, and bandwidth in bytes per second: 10 Gbit/s, 1 Gbit/s, 10 Mbit/s."""


def label_counts(n: int) -> np.ndarray:
    """Return label counts (n, 10) of nodes with two random shards of ten examples each."""
    rng = np.random.default_rng(SEED)
    labels = rng.permutation(np.arange(2 * n) % 10).reshape(n, 2)
    counts = np.zeros((n, 10), dtype=np.int64)
    for column in labels.T:
        counts[np.arange(n), column] += 10
    return counts


Graph = Topology | TopologySequence


def _complete(n: int) -> Graph:
    if n > COMPLETE_NODES:
        raise ValueError(
            f"n^2 messages above {COMPLETE_NODES:,} nodes; a star keeps its busiest link as busy"
        )
    return topologies.fully_connected(n)


def _designed(n: int) -> Graph:
    if n > DESIGNED_NODES:
        raise ValueError(f"the search is slow above {DESIGNED_NODES:,} nodes")
    return topologies.designed(label_counts(n), degree=6, seed=SEED)


FAMILIES: Mapping[str, Callable[[int], Graph]] = {
    "ring": topologies.ring,
    "one-peer exponential": topologies.one_peer_exponential,
    "random 6-regular": lambda n: topologies.random_regular(n, k=6, seed=SEED),
    "exponential": lambda n: topologies.exponential(n, directed=True),
    "D-Cliques of 10": lambda n: topologies.dcliques(
        label_counts(n), clique_size=10, inter="small_world", seed=SEED
    ),
    "designed, degree 6": _designed,
    "fully connected": _complete,
    "star": topologies.star,
}
"""Functions from a number of nodes to a graph; a ValueError says why there is none."""


def cost_of(family: str, n: int) -> dict[str, Any]:
    """Return a record: seconds of all models and hardware, or the reason why there are none."""
    record: dict[str, Any] = {"family": family, "n": n}
    try:
        graph = FAMILIES[family](n)
    except ValueError as error:
        return record | {"reason": str(error)}
    cells = []
    for model in MODELS:
        for name, links in HARDWARE.items():
            hardware = metrics.Hardware(compute=model["compute"], **links)
            size = model["n_parameters"]
            found = metrics.round_time(graph, hardware=hardware, n_parameters=size)
            parts = ("seconds", "compute", "latency", "transfer", "bound")
            cell = {"model": model["label"], "hardware": name}
            cells.append(cell | {part: getattr(found, part) for part in parts})
    unit = metrics.Hardware(compute=None, bandwidth=4.0)
    degree = metrics.round_time(graph, hardware=unit, n_parameters=1).seconds
    spread = metrics.neighborhood_heterogeneity(graph, label_counts(n), hops=10)
    return record | {"busiest": degree, "h10": spread, "cells": cells}


def stragglers(family: str, n: int) -> dict[str, Any]:
    """Return seconds per round of random steps of mean 1, without messages, for both waits."""
    graph = FAMILIES[family](n)
    hardware = metrics.Hardware(compute=lognormal(1.0, sigma=SIGMA))
    options: dict[str, Any] = {"hardware": hardware, "n_parameters": 1}
    near = metrics.round_time(graph, waiting="neighbors", rounds=100, seed=SEED, **options)
    return {
        "family": family,
        "n": n,
        "sigma": SIGMA,
        "all": metrics.round_time(graph, **options).seconds,
        "neighbors": float(near.per_round[20:].mean()),
    }


def regional(n: int = 100, within: float = 5e-4) -> list[dict[str, Any]]:
    """Return seconds per round of nodes in ten Azure regions, by graph, order and wait."""
    blocks = np.repeat(np.arange(10), n // 10)
    shuffled = np.random.default_rng(SEED).permutation(blocks)
    graphs = {name: FAMILIES[name](n) for name in ("ring", "random 6-regular", "exponential")}
    graphs |= {name: FAMILIES[name](n) for name in ("D-Cliques of 10", "fully connected", "star")}
    records = []
    for family, graph in graphs.items():
        for order, places in (("by region", blocks), ("shuffled", shuffled)):
            regions = [metrics.AZURE_REGIONS[place] for place in places]
            latency = metrics.azure_latency(regions, within=within)
            hardware = metrics.Hardware(compute=0.005, latency=latency, bandwidth=1.25e8)
            record: dict[str, Any] = {"family": family, "order": order}
            for waiting in ("all", "neighbors"):
                found = metrics.round_time(
                    graph, hardware=hardware, n_parameters=7850, waiting=waiting
                )
                record[waiting] = found.seconds
            records.append(record)
    return records


Records = Sequence[Mapping[str, Any]]

MARKERS = {"compute": "o", "latency": "s", "transfer": "^"}
PARTS = tuple(MARKERS)


def _families(records: Records) -> list[str]:
    return list(dict.fromkeys(record["family"] for record in records))


def _cell(record: Mapping[str, Any], model: str, hardware: str) -> Mapping[str, Any]:
    return next(
        cell for cell in record["cells"] if (cell["model"], cell["hardware"]) == (model, hardware)
    )


def seconds_figure(records: Records) -> Figure:
    """Return seconds per round against the number of nodes, a panel per model and hardware."""
    shown = [MODELS[0], MODELS[-1]]
    figure = Figure((11, 6.5), layout="constrained")
    axes = figure.subplots(len(shown), len(HARDWARE), sharex=True, squeeze=False)
    for row, model in zip(axes, shown, strict=True):
        for ax, hardware in zip(row, HARDWARE, strict=True):
            _panel(ax, [r for r in records if "cells" in r], model["label"], hardware)
            ax.set_title(f"{model['label']}, {hardware}", fontsize=9)
        row[0].set_ylabel("seconds per round")
    for ax in axes[-1]:
        ax.set_xlabel("nodes")
    handles, labels = axes[0][0].get_legend_handles_labels()
    for part, marker in MARKERS.items():
        handles += axes[0][0].plot([], [], marker, color="black")
        labels.append(f"mostly {part}")
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _panel(ax: Axes, records: Records, model: str, hardware: str) -> None:
    for k, family in enumerate(_families(records)):
        own = [record for record in records if record["family"] == family]
        cells = [_cell(record, model, hardware) for record in own]
        n, seconds = [record["n"] for record in own], [cell["seconds"] for cell in cells]
        ax.plot(n, seconds, color=f"C{k}", linewidth=1, label=family)
        for x, cell in zip(n, cells, strict=True):
            ax.plot(x, cell["seconds"], MARKERS[cell["bound"]], color=f"C{k}", markersize=5)
    ax.set_xscale("log")
    ax.set_yscale("log")


def regimes_figure(records: Records, n: int) -> Figure:
    """Return what bounds each graph, by message size and local work relative to latency.

    With equal machines a round is ``compute + latency + busiest * message``, with the number of
    messages of the busiest link and the seconds that one message takes.
    """
    own = [record for record in records if record["n"] == n and "cells" in record]
    message, compute = np.logspace(-4, 2, 241), np.logspace(-3, 3, 241)
    colors = ListedColormap(["#4c78a8", "#bab0ac", "#f58518"])
    figure = Figure((11, 2.9), layout="constrained")
    for ax, record in zip(figure.subplots(1, len(own), sharey=True), own, strict=True):
        parts = np.broadcast_arrays(compute[:, None], np.ones((1, 1)), record["busiest"] * message)
        ax.pcolormesh(
            message, compute, np.argmax(parts, axis=0), cmap=colors, vmin=0, vmax=2, rasterized=True
        )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(f"{record['family']}\n{record['busiest']:g} messages", fontsize=7)
    figure.supxlabel("seconds of one message / latency", fontsize=9)
    figure.supylabel("compute / latency", fontsize=9)
    patches = [Patch(color=colors(k), label=f"mostly {p}") for k, p in enumerate(PARTS)]
    figure.legend(handles=patches, loc="outside right center", fontsize=8)
    return figure


def stragglers_figure(records: Records) -> Figure:
    """Return seconds per round with random steps: waiting for all nodes, or for neighbors."""
    figure = Figure((6, 3.6), layout="constrained")
    ax = figure.subplots()
    for k, family in enumerate(_families(records)):
        own = [record for record in records if record["family"] == family]
        n = [record["n"] for record in own]
        near = [record["neighbors"] for record in own]
        ax.plot(n, near, "o-", color=f"C{k + 1}", label=f"{family}, neighbors")
        if k == 0:
            ax.plot(n, [record["all"] for record in own], "s-", color="C0", label="all nodes")
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("nodes")
    ax.set_ylabel("seconds per round (mean step 1 s)")
    ax.legend(fontsize=8)
    return figure


def seconds_table(records: Records, n: int, model: str) -> Table:
    """Return seconds per round on all hardware, with the part that bounds each, and H_10."""
    rows = []
    for record in records:
        if record["n"] != n or "cells" not in record:
            continue
        cells = [_cell(record, model, hardware) for hardware in HARDWARE]
        texts = [f"{cell['seconds']:.3g} ({cell['bound']})" for cell in cells]
        rows.append((record["family"], round(record["busiest"]), *texts, record["h10"]))
    return Table(("graph", "messages of busiest link", *HARDWARE, "H_10"), tuple(rows))


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
        ("stragglers", stragglers, WAITING, simulated),
    ):
        known = {(record["family"], record["n"]) for record in records[part]}
        for n in sizes:
            for family in families:
                if (family, n) not in known:
                    records[part].append(make(family, n))
                    write(path.parent, records=records)
                    print(f"{part}, {family}, {n:,} nodes", file=sys.stderr)
    records["regions"] = regional()
    write(path.parent, records=records)
    return records


def _write(records: dict[str, Any], folder: Path) -> list[Path]:
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
            blocks += [
                f"## {n:,} nodes, {model['label']}",
                f"{model['n_parameters']:,} parameters, {model['compute']:g} s of local work per "
                "round.",
                seconds_table(records["costs"], n, model["label"]).to_markdown(),
            ]
    missing = [record for record in records["costs"] if "reason" in record]
    blocks.append("## Left out")
    blocks += [
        "\n".join(f"- {r['family']}, {r['n']:,} nodes: {r['reason']}" for r in missing) or "None."
    ]
    blocks += ["## Stragglers", f"Lognormal steps of mean 1 s, sigma {SIGMA:g}, free messages."]
    blocks.append(_waiting_table(records["stragglers"], n="nodes"))
    blocks += [
        "## Ten regions of Azure",
        "100 nodes, ten per region; logistic regression; 1 Gbit/s. Latencies are published "
        "(`metrics.azure_latency`), 0.5 ms within a region is assumed.",
    ]
    blocks.append(_waiting_table(records["regions"], order="order of nodes"))
    blocks.append(f"The figure of regimes is for {regimes_nodes:,} nodes.")
    return "\n\n".join(blocks) + "\n"


def _waiting_table(records: Records, **case: str) -> str:
    """Return seconds per round of both waits, by family and by an entry with its heading."""
    ((key, heading),) = case.items()
    rows = [(r["family"], r[key], r["all"], r["neighbors"]) for r in records]
    return Table(("graph", heading, "all wait", "neighbors wait"), tuple(rows)).to_markdown()


def main(argv: Sequence[str] | None = None) -> int:
    """Compute, or read, the records and write report and figures; returns the exit code."""
    parser = parser_of(
        "cost_in_seconds",
        __doc__,
        simulated=(100_000, "most nodes with drawn times"),
        draw=(False, "only draw, from records.json"),
        out=(Path("out", "cost_in_seconds"), "folder"),
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES, help="numbers of nodes")
    options = parser.parse_args(argv)
    path = options.out / "records.json"
    if options.draw:
        records = json.loads(path.read_text())
    else:
        records = compute(options.nodes, options.simulated, path)
    for path in _write(records, options.out):
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
