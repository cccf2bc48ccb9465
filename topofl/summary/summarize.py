"""Summarize: means, intervals, targets and paired differences of groups of runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from topofl._support.public import public
from topofl.summary.collected import Collected, collect
from topofl.summary.pairs import pairs_with
from topofl.summary.statistics import statistic_of
from topofl.summary.tables import HEADINGS, Summary
from topofl.summary.targets import target_of

__all__ = ["summarize"]


@public
def summarize(
    runs: Any,
    by: str | Sequence[str] | None = None,
    *,
    column: str | None = None,
    target: float | None = None,
    baseline: Any = None,
    over: str | Sequence[str] = (),
    hardware: Any = None,
) -> Summary:
    """Return means with intervals over the seeds of each group of runs, and paired differences.

    See the page :doc:`Many runs </docs/many-runs>`.

    Parameters
    ----------
    runs
        Results of a sweep, a :class:`topofl.runs.RunStore` or its path, folders of ``topofl run``,
        or a mapping from names to a :class:`topofl.History` or a list of them.
    by
        Settings that make a group, such as ``["topology", "alpha"]``. Names may be short,
        ``"alpha"`` for ``"data.alpha"``; ``"topology"`` is the function with those of its arguments
        that vary. None: all settings that vary, apart from seeds; for a mapping, its names.
    column
        A column of scores, such as ``"accuracy_fine_tuned"``; None: the first one recorded.
        Statistics are of the last evaluation.
    target
        A score: adds how many runs reached it, and rounds, megabytes and simulated seconds until
        the mean over nodes did. Runs that never did are counted as infinite in the median.
    baseline
        A value of one setting of `by`, such as ``"ring"``, or several, ``{"topology": "ring",
        "alpha": 0.1}``: adds the difference of each group to it, over runs paired by their seeds.
    over
        Settings other than seeds that are averaged over on purpose.
    hardware
        Machines and links, as in :func:`topofl.metrics.round_time`: replaces simulated seconds by
        those that rounds take on this hardware. Reads the history of every run.

    Raises
    ------
    ValueError
        If there are no runs, runs of a group differ in a setting that is neither a seed nor in `by`
        or `over`, two runs are equal in everything, a run lacks the score, a name is unknown or
        ambiguous, or no group has seeds in common with the baseline.
    TypeError
        If an argument is of another type.
    OSError
        If a folder does not exist or cannot be read.

    Notes
    -----
    Intervals are 95 % intervals of the mean by Student's t, from the spread between runs. The
    verdict on a difference is HOLDS (the group is better) or FAILS if its interval lies on one side
    of 0, and UNDECIDED otherwise. The first note names the seeds over which means are; the
    partition of the data counts as one. With seeds of graphs or data in addition to those of runs,
    runs count as independent although they may share some of these seeds.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=4, seed=0)
    >>> runs = {
    ...     graph.name: [
    ...         topofl.run(
    ...             algorithms.dsgd(lr=0.5),
    ...             model=models.logistic_regression(64),
    ...             clients=clients,
    ...             topology=graph,
    ...             rounds=2,
    ...             seed=seed,
    ...         )
    ...         for seed in (0, 1, 2)
    ...     ]
    ...     for graph in (topologies.ring(4), topologies.star(4))
    ... }
    >>> summary = topofl.summarize(runs, baseline="ring(n=4)")
    >>> summary.to_pandas()[["name", "runs", "pairs"]].values.tolist()
    [['ring(n=4)', 3, 0], ['star(n=4)', 3, 3]]
    """
    collected = collect(runs, by, column=column, over=over, hardware=hardware)
    finals = {name: collected.statistic(name).last() for name in HEADINGS}
    statistics = {
        name: statistic_of(values, collected.group_of, len(collected.groups))
        for name, values in finals.items()
    }
    return Summary(
        collected,
        statistics,
        None if target is None else target_of(collected, target),
        None if baseline is None else pairs_with(collected, finals["mean"], baseline),
        "" if baseline is None else _text(baseline, collected),
    )


def _text(baseline: Any, collected: Collected) -> str:
    """Return the name of a baseline for headings."""
    if isinstance(baseline, Mapping):
        return ", ".join(str(value) for value in baseline.values())
    return str(baseline)
