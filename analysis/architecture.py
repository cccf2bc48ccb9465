"""Draw how topofl is built: its rooms and what they import, and the path of a round of D-SGD.

``python -m analysis.architecture`` writes docs/_static/architecture.svg. Rooms are the packages and
modules directly in ``topofl``. An arrow leads to a room that is imported, unless one of its arrows
leads there as well; ``_support``, which nearly all import, is left out. Every call of the path is
one that a traced run has made; the command fails if it has not.
"""

import ast
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any
from xml.sax.saxutils import escape

import networkx as nx

import topofl
from topofl import algorithms, data, models, topologies
from topofl.callbacks import Event

from .program import parser_of

ROOT = Path(topofl.__file__).parent
PICTURE = ROOT.parent / "docs" / "_static" / "architecture.svg"


PATH = (
    ("engine/run", "algorithms/contract/local", "apply", "a phase of training asks"),
    ("algorithms/contract/local", "engine/round", "train", "checks and counts the request"),
    ("engine/round", "engine/minibatches", "at", "draws each node's minibatches"),
    ("engine/round", "engine/training", "local_steps", "takes steps, chunk by chunk"),
    ("engine/training", "engine/executor", "gradients", "on its threads, in reused memory"),
    ("engine/executor", "engine/gradients", "gradients", "of many models in one call"),
    ("engine/run", "algorithms/exchanges/average", "apply", "a phase of exchange asks"),
    ("algorithms/exchanges/average", "engine/round", "mix", "counts messages and bytes"),
    ("engine/round", "engine/mixing", "mix", "multiplies own and received rows"),
    ("engine/run", "engine/stages", "evaluation_columns", "collects scores"),
    ("engine/stages", "engine/evaluation", "evaluate", "applies models to examples"),
    ("engine/run", "engine/recorder", "add_round", "writes the row of the history"),
)
"""Calls of a round of D-SGD, in their order: caller, called file, function, and what it is for.

All of them reach rows through engine/population.
"""


def rooms() -> nx.DiGraph:
    """Return the rooms of topofl, with numbers of ``files`` and ``lines``, and what they import."""
    found: nx.DiGraph = nx.DiGraph()
    for path in sorted(ROOT.rglob("*.py")):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        text = path.read_text(encoding="utf-8")
        if own in ("__init__", "__main__"):
            continue
        found.add_node(own)
        place = found.nodes[own]
        place["files"] = place.get("files", 0) + 1
        place["lines"] = place.get("lines", 0) + len(text.splitlines())
        found.add_edges_from((own, other) for other in sorted(_imported(text) - {own}))
    found.remove_nodes_from([name for name in list(found) if "files" not in found.nodes[name]])
    return found


def _imported(text: str) -> set[str]:
    """Return the rooms that a file imports, but not for type checkers alone."""
    tree, names = ast.parse(text), list[str]()
    checked = [
        x for x in tree.body if isinstance(x, ast.If) and "TYPE_CHECKING" in ast.dump(x.test)
    ]
    unused = {id(node) for block in checked for node in ast.walk(block)}
    for node in (node for node in ast.walk(tree) if id(node) not in unused):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    parts = [name.split(".") for name in names]
    return {words[1] for words in parts if words[0] == "topofl" and len(words) > 1}


def traced() -> Counter[tuple[str, str, str]]:
    """Return how often files of topofl called a function of another file in a round of D-SGD.

    The keys are (caller, called file, name of the function), without folder and suffix.
    """
    counts = Counter[tuple[str, str, str]]()
    running = False

    def file_of(frame: FrameType) -> str | None:
        path = Path(frame.f_code.co_filename)
        return path.relative_to(ROOT).with_suffix("").as_posix() if ROOT in path.parents else None

    def note(frame: FrameType, event: str, value: Any) -> None:
        del value
        called = file_of(frame) if running and event == "call" else None
        if called is None:
            return
        outer = frame.f_back
        while outer is not None and file_of(outer) in (None, "_support/threads"):
            outer = outer.f_back
        caller = None if outer is None else file_of(outer)
        if caller is not None and caller != called:
            counts[caller, called, frame.f_code.co_name] += 1

    def switch(event: Event) -> None:
        nonlocal running
        if event.kind == "round":
            running = event.round == 1  # the second round is traced

    sys.setprofile(note)
    try:
        topofl.run(
            algorithms.dsgd(lr=0.1),
            model=models.logistic_regression(64),
            clients=data.iid(data.digits(), n=4, seed=0),
            topology=topologies.ring(4),
            rounds=2,
            compute=topofl.Compute(chunk=4),
            seed=0,
            callbacks=[switch],
            progress=False,
        )
    finally:
        sys.setprofile(None)
    return counts


WIDTH, ROW, BOX, STEP = 900, 74, 34, 34
STYLE = (
    "text{font:13px sans-serif;fill:#222}.small{font-size:11px;fill:#666}"
    ".box{fill:#f2f6fb;stroke:#4a6f9c}.file{fill:#fdf6ec;stroke:#b07d2b}"
    ".arrow{fill:none;stroke:#8a9bb0;marker-end:url(#tip)}.title{font-size:15px;font-weight:bold}"
)


def picture() -> str:
    """Return the picture as SVG.

    Raises
    ------
    ValueError
        If a call of :data:`PATH` is not made in a round of D-SGD.
    """
    graph = rooms()
    graph.remove_node("_support")
    rows = _rows(graph)
    below = 60 + ROW * len(rows)
    height = below + 60 + STEP * (len(PATH) + 1)
    parts = [*_drawn_rooms(graph, rows), *_drawn_path(below)]
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#8a9bb0"/></marker></defs>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>The rooms of topofl, and the path of a round of D-SGD</title>",
            f"<style>{STYLE}</style>{tip}",
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _rows(graph: nx.DiGraph) -> list[list[str]]:
    """Return the rooms in rows, each below all rooms that import it."""
    rows: list[list[str]] = []
    place: dict[str, float] = {}

    def middle(name: str) -> tuple[float, str]:
        above = [place[other] for other in graph.predecessors(name)]
        return (sum(above) / len(above) if above else 0.5, name)

    for names in nx.topological_generations(graph):
        row = sorted(names, key=middle)
        place |= {name: (k + 0.5) / len(row) for k, name in enumerate(row)}
        rows.append(row)
    return rows


def _drawn_rooms(graph: nx.DiGraph, rows: Sequence[Sequence[str]]) -> list[str]:
    drawn = [f'<text class="title" x="20" y="30">Rooms: {len(graph)}, and what they import</text>']
    at: dict[str, tuple[float, float]] = {}
    width = {name: 24 + 8 * max(len(name), len(_size(graph, name)) * 0.8) for name in graph}
    for k, row in enumerate(rows):
        gap = (WIDTH - sum(width[name] for name in row)) / (len(row) + 1)
        x = gap
        for name in row:
            at[name] = (x + width[name] / 2, 50 + ROW * k)
            x += width[name] + gap
    for one, other in sorted(nx.transitive_reduction(graph).edges):
        (x, y), (to_x, to_y) = at[one], at[other]
        y += BOX
        bend = (to_y - y) / 2
        drawn.append(
            f'<path class="arrow" d="M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {to_x:.0f} '
            f'{to_y - bend:.0f} {to_x:.0f} {to_y:.0f}"/>'
        )
    for name, (x, y) in at.items():
        drawn.append(_box(x - width[name] / 2, y, width[name], BOX, "box"))
        drawn.append(f'<text x="{x:.0f}" y="{y + 15:.0f}" text-anchor="middle">{name}</text>')
        drawn.append(
            f'<text class="small" x="{x:.0f}" y="{y + 28:.0f}" text-anchor="middle">'
            f"{_size(graph, name)}</text>"
        )
    return drawn


def _size(graph: nx.DiGraph, name: str) -> str:
    files = graph.nodes[name]["files"]
    return f"{files} file{'s' * (files > 1)}"


def _box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" rx="5"/>'
    )


def _drawn_path(top: float) -> list[str]:
    counts = traced()
    files = {name for caller, called, *_ in PATH for name in (caller, called)}
    drawn = [
        f'<text class="title" x="20" y="{top + 20:.0f}">A round of D-SGD: {len(PATH)} calls in '
        f"{len(files)} files, models in engine/population</text>"
    ]
    first = PATH[0][0]
    depth, above = {first: 0}, {first: top + 66}
    drawn.append(_box(20, top + 40, 170, 26, "file"))
    drawn.append(f'<text x="28" y="{top + 57:.0f}">{first}: a round</text>')
    for k, (caller, called, function, purpose) in enumerate(PATH):
        if (caller, called, function) not in counts:
            raise ValueError(
                f"PATH must name calls of a round of D-SGD, {caller} does not call {function} of "
                f"{called}"
            )
        depth[called] = depth[caller] + 1
        x, y = 20 + 34 * depth[called], top + 40 + STEP * (k + 1)
        above[called] = y + 26
        label = f"{called}: {function}"
        width = 16 + 7.4 * len(label)
        drawn.append(
            f'<path class="arrow" d="M{x - 20} {above[caller]:.0f}V{y + 13:.0f}H{x}"/>'
            + _box(x, y, width, 26, "file")
        )
        drawn.append(f'<text x="{x + 8}" y="{y + 17:.0f}">{escape(label)}</text>')
        drawn.append(
            f'<text class="small" x="{x + width + 12:.0f}" y="{y + 17:.0f}">'
            f"{escape(purpose)}</text>"
        )
    return drawn


def main(argv: Sequence[str] | None = None) -> None:
    """Write the picture."""
    options = parser_of("architecture", __doc__, out=(PICTURE, "SVG file")).parse_args(argv)
    options.out.write_text(picture(), encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
