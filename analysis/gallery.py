"""Draw one small example of every generator in topofl.topologies, on one page.

``python -m analysis.gallery --out FOLDER`` writes ``gallery.png``, ``strip.png`` (six graphs for
the README) and ``index.md``, which lists the generators by family with the first line of each
docstring.
"""

import inspect
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from topofl import Topology, TopologySequence, topologies
from topofl.toolkit import build_topology, first_rounds, parse_spec, save_picture, stream

from .program import parser_of, write

Graph: TypeAlias = Topology | TopologySequence
Example: TypeAlias = topologies.Example

EXAMPLES: dict[str, Example] = {
    name: topologies.GENERATORS[name].examples[0] for name in topologies.__all__
}
"""The first example of each generator, by name."""

MORE: tuple[Example, ...] = tuple(
    example for name in topologies.__all__ for example in topologies.GENERATORS[name].examples[1:]
)
"""Further examples, drawn after the first."""

STRIP = {
    "ring": "ring:20",
    "torus": "torus:25",
    "exponential": "exponential:20",
    "random 3-regular": "random_regular:30,k=3,seed=0",
    "D-Cliques, ring": "dcliques:50,clique_size=5,inter=ring,seed=0",
    "D-Cliques, fractal": "dcliques:45,clique_size=5,inter=fractal,group_size=3,seed=0",
}
"""The graphs of the strip, by caption."""

COLUMNS, DPI = 5, 65


def example(spec: Example) -> Graph:
    """Return the graph of an example; graphs that depend on data get one class per node."""
    if not isinstance(spec, str):
        return spec()
    name, arguments = parse_spec(spec)
    return build_topology(name, arguments).value


def caption(spec: Example) -> str:
    """Return the caption of an example: its command-line spec, else the name of its graph."""
    return spec if isinstance(spec, str) else example(spec).name


def draw(specs: Sequence[Example], path: str | Path) -> None:
    """Write the figure: one panel per example, or up to four small ones for a sequence."""
    from matplotlib.figure import Figure

    rows = -(-len(specs) // COLUMNS)
    figure = Figure(figsize=(2.6 * COLUMNS, 2.9 * rows), layout="constrained")
    cells = figure.add_gridspec(rows, COLUMNS)
    for k, spec in enumerate(specs):
        panel = figure.add_subfigure(cells[k // COLUMNS, k % COLUMNS])
        panel.suptitle(
            "\n".join(textwrap.wrap(caption(spec).replace(", ", ",").replace(",", ", "), 36)),
            fontsize=8,
        )
        _draw_panel(example(spec), panel)
    save_picture(figure, path, dpi=DPI)


def _draw_panel(graph: Graph, panel: Any) -> None:
    if isinstance(graph, Topology):
        ax = panel.subplots()
        graph.plot(ax)
        ax.set_title("")
        return
    graphs, positions = first_rounds(graph, min(graph.period or 4, 4))
    axes = np.ravel(panel.subplots(2, 2) if len(graphs) > 2 else panel.subplots(1, 2))
    for t, ax in enumerate(axes):
        ax.set_axis_off()
        if t < len(graphs):
            graph.at(t).plot(ax, positions=positions)
            ax.set_title(f"round {t}", fontsize=7)


def draw_strip(path: str | Path) -> None:
    """Write the six graphs of the README in one row, colored by one of five labels per node."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 2.25), layout="constrained")
    for (caption, spec), ax in zip(STRIP.items(), figure.subplots(1, len(STRIP)), strict=True):
        name, arguments = parse_spec(spec)
        labels = stream(0, "gallery").permutation(arguments["n"]) % 5
        counts = np.eye(5, dtype=np.int64)[labels]
        build_topology(name, arguments, counts).value.plot(ax, label_counts=counts)
        ax.set_title(caption, fontsize=10)
        ax.get_legend().remove()
    save_picture(figure, path, dpi=100)


def index() -> str:
    """Return Markdown that lists the generators by family, each with an example and its result."""
    lines = ["# Graphs that topofl makes", "", "![One example of each](gallery.png)"]
    for family in topologies.FAMILIES:
        lines += ["", f"## {family}", ""]
        for name in topologies.__all__:
            declared = topologies.GENERATORS[name]
            if declared.family == family:
                first = (inspect.getdoc(declared.function) or "").partition("\n")[0]
                lines.append(f"- `{name}` (`{caption(declared.examples[0])}`): {first}")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the gallery from the command line; returns the exit code."""
    out = parser_of("gallery", __doc__, out=(Path("out", "gallery"), "folder")).parse_args(argv).out
    write(out, index=index())
    draw([*EXAMPLES.values(), *MORE], out / "gallery.png")
    draw_strip(out / "strip.png")
    print(f"wrote {out}/gallery.png, strip.png and index.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
