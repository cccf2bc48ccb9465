"""Plots of several histories in comparison."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._support.check import shown
from topofl._support.public import public
from topofl.history import plots
from topofl.history.history import History
from topofl.history.record import series_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@public
def compare_histories(
    histories: Mapping[str, History] | Sequence[History],
    column: str | None = None,
    *,
    kind: str = "band",
    x: str | None = None,
    at: int | Sequence[int] | None = None,
    quantiles: tuple[float, float] | None = None,
    worst: int | None = None,
    ax: "Axes | None" = None,
) -> "Figure":
    r"""Draw several histories in one figure, with labels instead of a legend.

    Each history is one run, and bands, violins and lines are over its nodes. For means and
    intervals over seeds, see :func:`topofl.summarize` and the plots of :mod:`topofl.summary`.

    Parameters
    ----------
    histories
        Histories by name; or a sequence of them, named after what differs among algorithm,
        topology and seed.
    column
        A column that all histories have, such as a score: a name in the `columns` of each. None:
        the primary score of the first one.
    kind
        ``"band"``
            The mean over nodes and a band between `quantiles`. Up to 8 histories share one axes;
            more are drawn in a panel each, with the means of the others in gray. If curves end at
            different positions, as over megabytes, labels are at the ends of their own curves or,
            if some have no room there, to the right with a piece of their line. Histories without a
            finite value are named below the axes.
        ``"violin"``
            The distribution over nodes, after the last evaluation or at given rounds.
        ``"nodes"``
            One panel per history with a line per node; or, for ``x="rank"``, the last scores from
            the worst to the best node. Histories and nodes without a finite value are named and
            counted below the axes.
        ``"pareto"``
            The last mean score against the cost of the run, with the Pareto front. Of more than 16
            histories, only those on the front are labeled.
    x, at, quantiles, worst
        As in :meth:`topofl.History.plot`.
    ax
        The axes to draw on, if there is a single panel; None: a new figure, as large as its labels
        need, that pyplot does not know.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, to show or to save.

    Raises
    ------
    KeyError, ValueError, TypeError
        As :meth:`topofl.History.plot`, with the name of the history; if there is no history; if
        names are equal as text, or two of them have the same run; if `ax` is given for several
        panels, or too small for the labels (those of violins are not checked).

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=6, per_node=2, seed=0)
    >>> runs = {
    ...     graph.name: topofl.run(
    ...         algorithms.dsgd(lr=0.5), model=models.logistic_regression(64), clients=clients,
    ...         topology=graph, rounds=4, evaluation=1, seed=0)
    ...     for graph in (topologies.ring(6), topologies.fully_connected(6))
    ... }
    >>> figure = topofl.compare_histories(runs)
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['ring(n=6)', 'fully_connected\n(n=6)']
    """
    options = plots.check_options(kind, x=x, at=at, quantiles=quantiles, worst=worst)
    named = _named(histories)
    column = next(iter(named.values())).primary if column is None else column
    series = []
    for name, history in named.items():
        try:
            series.append(series_of(history, column, options["x"], name))
        except (KeyError, ValueError) as error:
            raise type(error)(f"{name}: {error.args[0]}") from error
    _check_distinct(named, series)
    return plots.draw_together(series, kind, ax, **options)


def _named(histories: Any) -> dict[str, History]:
    """Return histories by name, or raise ``TypeError`` or ``ValueError``."""
    wanted = "a dictionary of histories by name, or a list of them"
    if isinstance(histories, History | str | bytes) or not isinstance(histories, Iterable):
        remedy = "; take history.plot() for a single one" * isinstance(histories, History)
        raise TypeError(f"`histories` must be {wanted}, got {shown(histories)}{remedy}")
    items = list(histories.values() if isinstance(histories, Mapping) else histories)
    if not items:
        raise ValueError(f"`histories` must be {wanted}, got none")
    for item in items:
        if not isinstance(item, History):
            raise TypeError(
                f"`histories` must be {wanted}, got an item {shown(item)}; take the `history` of a "
                "stored run"
            )
    names = [str(name) for name in histories] if isinstance(histories, Mapping) else _names(items)
    name, count = Counter(names).most_common(1)[0]
    if count > 1:  # such as 1 and "1", of which a dictionary would keep one
        raise ValueError(
            f"`histories` must have names that differ, got {shown(name)} {count} times; rename one"
        )
    return dict(zip(names, items, strict=True))


def _names(histories: Sequence[History]) -> list[str]:
    """Return distinct names from what differs among algorithm, topology, attack and seed."""
    rows = [
        [str(h.meta.get("algorithm")), str(h.meta.get("topology")), h.attack] for h in histories
    ]
    kept = [k for k in range(3) if len({row[k] for row in rows}) > 1] or [0, 1]
    names = [", ".join(row[k] for k in kept if row[k]) for row in rows]
    seeds = [h.meta.get("seed") for h in histories]
    count = Counter(names)
    names = [
        f"{name}, seed {seed}" if count[name] > 1 and seed is not None else name
        for name, seed in zip(names, seeds, strict=True)
    ]
    count, seen = Counter(names), Counter()
    for k, name in enumerate(names):
        seen[name] += 1
        names[k] = f"{name} ({seen[name]})" if count[name] > 1 else name
    return names


def _check_distinct(named: Mapping[str, History], series: Sequence[plots.Series]) -> None:
    """Raise ``ValueError`` if two names have the same run, whose curves would hide each other.

    These are the same object, or copies of one run, such as a file that was loaded twice: equal
    settings, with a known seed, and equal values in all columns but the seconds, which are not
    results of training. Over seconds, runs that differ in nothing else are distinct.
    """
    known: dict[Any, str] = {}
    for (name, history), one in zip(named.items(), series, strict=True):
        keys: list[Any] = [id(history)]
        if "seed" in history.meta:
            settings = json.dumps(dict(history.meta), sort_keys=True, default=str)
            recorded = sorted({**history.evaluations, **history.rounds}.items())
            results = [
                (column, np.ascontiguousarray(values).tobytes())
                for column, values in recorded
                if "seconds" not in column
            ]
            keys.append((settings, one.x.tobytes(), one.values.tobytes(), *results))
        for key in keys:
            if (other := known.setdefault(key, name)) != name:
                raise ValueError(
                    f"`histories` must be different runs, got the same one as {shown(other)} and "
                    f"{shown(name)}; leave one of them out"
                )
