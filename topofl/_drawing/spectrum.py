"""Plots of the spectra of mixing matrices with matplotlib."""

from typing import TYPE_CHECKING

import numpy as np

from topofl._drawing.axes import new_axes, set_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_spectrum"]

BLUE, RED = "#0072B2", "#D55E00"


def draw_spectrum(
    eigenvalues: np.ndarray, slem: float, name: str, ax: "Axes | None" = None
) -> "Axes":
    """Plot eigenvalues, as a histogram if real; see :meth:`topofl.MixingMatrix.plot_spectrum`."""
    ax = new_axes(ax)
    if np.isrealobj(eigenvalues):
        _draw_real(eigenvalues, slem, ax)
    else:
        _draw_complex(eigenvalues, slem, ax)
    ax.legend(fontsize=8, loc="upper left")
    set_title(ax, name)
    return ax


def _draw_real(eigenvalues: np.ndarray, slem: float, ax: "Axes") -> None:
    ax.hist(np.clip(eigenvalues, -1.0, 1.0), bins=40, range=(-1.0, 1.0), color=BLUE)
    for k, place in enumerate((slem, -slem)):
        ax.axvline(
            place, color=RED, linestyle="--", linewidth=1.2, label="" if k else f"SLEM {slem:.4g}"
        )
    ax.set(xlabel="eigenvalue", ylabel="count", xlim=(-1.05, 1.05))


def _draw_complex(eigenvalues: np.ndarray, slem: float, ax: "Axes") -> None:
    angles = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(angles), np.sin(angles), color="#555555", linewidth=1.0)
    ax.plot(
        slem * np.cos(angles),
        slem * np.sin(angles),
        "--",
        color=RED,
        linewidth=1.2,
        label=f"SLEM {slem:.4g}",
    )
    ax.scatter(np.real(eigenvalues), np.imag(eigenvalues), s=14, color=BLUE, zorder=3)
    ax.set(
        xlabel="real part",
        ylabel="imaginary part",
        xlim=(-1.08, 1.08),
        ylim=(-1.08, 1.08),
        aspect="equal",
    )
