"""Drawing of graphs: node layouts, picture geometry, and output to matplotlib and SVG."""

from topofl._drawing.axes import (
    draw_adjacency,
    draw_graph,
    draw_matrix,
    draw_rounds,
    draw_spectrum,
    matrix_as_html,
)
from topofl._drawing.figures import empty_figure, figure_of, new_axes
from topofl._drawing.layout import layout
from topofl._drawing.picture import rounds_svg, topology_svg

__all__ = [
    "draw_adjacency",
    "draw_graph",
    "draw_matrix",
    "draw_rounds",
    "draw_spectrum",
    "empty_figure",
    "figure_of",
    "layout",
    "matrix_as_html",
    "new_axes",
    "rounds_svg",
    "topology_svg",
]
