"""Pictures of few colors show what the figure shows."""

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from topofl.toolkit import save_picture


def test_pictures_are_smaller_and_nearly_the_same(tmp_path):
    figure = Figure(figsize=(5, 3), layout="constrained")
    ax = figure.subplots()
    for k in range(8):
        ax.plot(np.cos(np.linspace(0, 6, 200) + k), label=f"line {k}")
    ax.legend()
    usual, small = tmp_path / "usual.png", tmp_path / "small.png"
    figure.savefig(usual, dpi=100)
    assert save_picture(figure, small, dpi=100) == small
    before, after = (pixels(path) for path in (usual, small))
    assert before.shape == after.shape
    assert np.abs(before - after).mean() < 1
    assert np.abs(before - after).max() < 32  # of 255
    assert small.stat().st_size < 0.6 * usual.stat().st_size


def pixels(path):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)
