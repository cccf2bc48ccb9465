"""Plots of the spectra of mixing matrices with matplotlib."""

from typing import TYPE_CHECKING

import numpy as np

from topofl._drawing.axes import set_title
from topofl._drawing.charts.style import INK, MEASURED, THEORY, WIDE, own_axes
from topofl._drawing.figures import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_spectrum"]


def draw_spectrum(
    eigenvalues: np.ndarray, slem: float, name: str, ax: "Axes | None" = None
) -> "Axes":
    """Plot eigenvalues, as a histogram if real; see :meth:`topofl.MixingMatrix.plot_spectrum`."""
    ax = own_axes(WIDE, 3.8) if ax is None else new_axes(ax)
    if np.isrealobj(eigenvalues):
        _draw_real(eigenvalues, slem, ax)
    else:
        _draw_complex(eigenvalues, slem, ax)
    set_title(ax, name, f"dashed: SLEM {slem:.4g}")  # a legend would cover the bars
    return ax


def _draw_real(eigenvalues: np.ndarray, slem: float, ax: "Axes") -> None:
    ax.hist(np.clip(eigenvalues, -1.0, 1.0), bins=40, range=(-1.0, 1.0), color=MEASURED)
    for place in (slem, -slem):
        ax.axvline(place, color=THEORY, linestyle="--", linewidth=1.2)
    ax.set(xlabel="eigenvalue", ylabel="count", xlim=(-1.05, 1.05))


def _draw_complex(eigenvalues: np.ndarray, slem: float, ax: "Axes") -> None:
    angles = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(angles), np.sin(angles), color=INK, linewidth=1.0)
    ax.plot(
        slem * np.cos(angles),
        slem * np.sin(angles),
        "--",
        color=THEORY,
        linewidth=1.2,
    )
    ax.scatter(np.real(eigenvalues), np.imag(eigenvalues), s=14, color=MEASURED, zorder=3)
    ax.set(
        xlabel="real part",
        ylabel="imaginary part",
        xlim=(-1.08, 1.08),
        ylim=(-1.08, 1.08),
        aspect="equal",
    )
