"""What a reader sees of a figure, and whether labels can be read."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.path import Path


def shown_texts(figure):
    """Return all texts of a figure that a reader sees, with their extents in pixels."""
    figure.draw_without_rendering()
    found = []
    for text in figure.findobj(plt.Text):
        visible = text.get_visible() and text.get_text().strip()
        ax = text.axes
        if visible and (ax is None or ax.get_visible()):
            found.append(text)
    ticks = {
        label
        for ax in figure.axes
        for axis in (ax.xaxis, ax.yaxis)
        for tick in axis.get_major_ticks()
        for label in (tick.label1, tick.label2)
    }
    drawn = {
        label
        for ax in figure.axes
        if ax.get_visible()
        for axis in (ax.xaxis, ax.yaxis)
        for tick in axis._update_ticks()
        for label in (tick.label1, tick.label2)
        if label.get_visible()
    }
    return [text for text in found if text not in ticks or text in drawn]


def assert_readable(figure):
    """Check that no text overlaps another or leaves the figure."""
    texts = shown_texts(figure)
    assert len(texts) > 4
    boxes = [text.get_window_extent() for text in texts]
    for text, box in zip(texts, boxes, strict=True):
        assert box.x0 >= -0.5, text.get_text()
        assert box.y0 >= -0.5, text.get_text()
        assert box.x1 <= figure.bbox.x1 + 0.5, text.get_text()
        assert box.y1 <= figure.bbox.y1 + 0.5, text.get_text()
    for (one, a), (other, b) in itertools.combinations(zip(texts, boxes, strict=True), 2):
        apart = a.x1 <= b.x0 + 0.5 or b.x1 <= a.x0 + 0.5 or a.y1 <= b.y0 + 0.5 or b.y1 <= a.y0 + 0.5
        assert apart, (one.get_text(), other.get_text())


def heights_at(band, x):
    """Return the ends of a band at a position."""
    corners = band.get_paths()[0].vertices
    heights = corners[np.isclose(corners[:, 0], x), 1]
    return heights.min(), heights.max()


def said(figure):
    """Return the label of the horizontal axis, which panels share, in one line."""
    return (figure.axes[0].get_xlabel() or figure.get_supxlabel()).replace("\n", " ")


def crosses(line, box):
    """Return whether a line in pixels passes through a rectangle that is made a little smaller."""
    return any(
        Path([a, b]).intersects_bbox(box.padded(-1), filled=False)
        for a, b in itertools.pairwise(line)
    )
