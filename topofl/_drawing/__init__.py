"""Drawing of graphs: node layouts, picture geometry, and output to matplotlib and SVG."""

from topofl._drawing.axes import draw_adjacency as draw_adjacency
from topofl._drawing.axes import draw_graph as draw_graph
from topofl._drawing.axes import draw_matrix as draw_matrix
from topofl._drawing.axes import draw_rounds as draw_rounds
from topofl._drawing.axes import draw_spectrum as draw_spectrum
from topofl._drawing.axes import matrix_as_html as matrix_as_html
from topofl._drawing.figures import empty_figure as empty_figure
from topofl._drawing.figures import figure_of as figure_of
from topofl._drawing.figures import new_axes as new_axes
from topofl._drawing.layout import layout as layout
from topofl._drawing.picture import rounds_svg as rounds_svg
from topofl._drawing.picture import topology_svg as topology_svg
