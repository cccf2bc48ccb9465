"""Plots of predicted and measured contraction."""

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from topofl._drawing.charts.style import WIDE, checked_axes, legend_above, own_axes, style
from topofl._drawing.figures import figure_of
from topofl._support.check import check_int
from topofl._support.public import public
from topofl.metrics._rounds import Mixable, WeightRule, as_rounds
from topofl.metrics.averaging.spectral import contraction_factors, slem
from topofl.topology import TopologyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_contraction"]


@public
def plot_contraction(
    x: Mixable,
    *,
    rounds: int,
    seed: int | np.random.Generator,
    ax: "Axes | None" = None,
    weights: WeightRule | None = None,
) -> "Figure":
    """Plot the measured consensus distance from a random start and the predicted ``slem(x) ** t``.

    Both lines start at 1. For one symmetric matrix, the dashed prediction is an upper bound, to
    which the measured line becomes parallel; otherwise it is the long-run rate only. If no rate is
    predicted, the legend gives the reason. The measured line ends in a cross before a round that
    averages exactly, since a logarithmic axis cannot show 0.

    Parameters
    ----------
    x, weights
        As in :func:`topofl.metrics.measured_contraction`; several graphs may be drawn on one `ax`.
    rounds
        Number of measured rounds, at least 1.
    seed
        Seed of the random start: one standard normal number per node.
    ax
        Axes to draw on; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, to show or to save.

    Raises
    ------
    TopologyError, TypeError, ValueError
        As :func:`topofl.metrics.measured_contraction`.

    Examples
    --------
    >>> from topofl import topologies
    >>> figure = plot_contraction(topologies.ring(16), rounds=50, seed=0)
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['ring(n=16): measured', 'predicted, 0.9493 per round']
    """
    source = as_rounds(x, weights)
    rounds = check_int("rounds", rounds, minimum=1)
    distances = np.cumprod([1.0, *islice(contraction_factors(source, seed), rounds)])
    rate, label = _predicted(x, weights)
    ax = own_axes(WIDE, 3.8) if ax is None else checked_axes(ax)[0]
    drawn = sum(str(line.get_label()).endswith(": measured") for line in ax.lines)
    color = style(drawn)["color"]  # another one for each graph
    ax.plot(np.arange(len(distances)), distances, label=f"{source.name}: measured", color=color)
    if len(distances) <= rounds:
        ax.plot(
            len(distances) - 1,
            distances[-1],
            "x",
            color=color,
            label="then exact averaging",
        )
    t = np.arange(rounds + 1 if rate > 0 else 1)
    ax.plot(t, rate**t, "--", color=color, alpha=0.7, label=label)
    ax.set(xlabel="round", ylabel="consensus distance, relative to the start", yscale="log")
    legend_above(ax)
    return figure_of(ax)


def _predicted(x: Mixable, weights: WeightRule | None) -> tuple[float, str]:
    """Return the predicted rate and its label in the legend; 0 if no line can be drawn."""
    try:
        rate = slem(x, weights=weights)
    except TopologyError:
        return 0.0, "no rate predicted: no period, or no second eigenvalue found"
    return (
        rate,
        f"predicted, {rate:.4g} per round"
        if rate > 0
        else "predicted: exact averaging within a period",
    )
