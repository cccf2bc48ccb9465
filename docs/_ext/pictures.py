"""Pictures of the example graphs of every generator, and the page that shows one of each."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure

from analysis.gallery import caption, example
from topofl import Topology, topologies
from topofl.toolkit import first_rounds, save_picture

__all__ = ["draw_generators", "of_generator"]

ROUNDS = 4
"""Rounds of a time-varying graph that are drawn."""


def draw_generators(folder: Path) -> None:
    """Draw the examples of each generator, and write the gallery of one per generator."""
    (folder / "pictures").mkdir()
    for name in topologies.__all__:
        for k, spec in enumerate(topologies.GENERATORS[name].examples):
            _draw(example(spec), folder / "pictures" / f"{name}-{k}.png")
    (folder / "gallery.rst").write_text("\n".join(_gallery()))


def _draw(graph: Any, path: Path) -> None:
    if isinstance(graph, Topology):
        figure = Figure(figsize=(3.2, 3.2), layout="constrained")
        ax = figure.subplots()
        graph.plot(ax)
        ax.set_title("")
    else:
        graphs, positions = first_rounds(graph, min(graph.period or ROUNDS, ROUNDS))
        figure = Figure(figsize=(2.2 * len(graphs), 2.4), layout="constrained")
        for t, ax in enumerate(figure.subplots(1, len(graphs), squeeze=False)[0]):
            graph.at(t).plot(ax, positions=positions)
            ax.set_title(f"round {t}", fontsize=8)
    save_picture(figure, path, dpi=80)


def _description(spec: topologies.Example) -> str:
    """Return what a picture shows, in words."""
    graph = example(spec)
    if isinstance(graph, Topology):
        edges = "directed edges" if graph.is_directed else "edges"
        return f"{caption(spec)}: {graph.n} nodes and {graph.n_edges} {edges}"
    return f"{caption(spec)}: the first rounds of {graph.n} nodes"


def of_generator(module: str, name: str) -> list[str]:
    """Return the section with the pictures of a generator; nothing for other names."""
    if module != topologies.__name__ or name not in topologies.GENERATORS:
        return []
    lines = [".. rubric:: Examples drawn", ""]
    for k, spec in enumerate(topologies.GENERATORS[name].examples):
        lines += [f".. figure:: pictures/{name}-{k}.png", f"   :alt: {_description(spec)}", ""]
        lines += [f"   ``{caption(spec)}``", ""]
    return lines


def _gallery() -> list[str]:
    """Return the page with one picture per generator, by family."""
    lines = ["Gallery of topologies", "=====================", ""]
    lines += ["The first example of every generator; a picture links to its page.", ""]
    for family in topologies.FAMILIES:
        lines += [family, "-" * len(family), "", ".. container:: gallery", ""]
        for name in topologies.__all__:
            declared = topologies.GENERATORS[name]
            if declared.family == family:
                lines += [f"   .. figure:: pictures/{name}-0.png"]
                lines += [f"      :target: topofl.topologies.{name}.html"]
                lines += [f"      :alt: {_description(declared.examples[0])}", ""]
                lines += [f"      :func:`{name} <topofl.topologies.{name}>`", ""]
    return lines
