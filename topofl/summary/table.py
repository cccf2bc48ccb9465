"""Summaries: the statistics of groups of runs, as text, Markdown, LaTeX, CSV, pandas and plots."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl._support.check import check_choice, check_number, check_probability
from topofl._support.notebook import paragraph
from topofl._support.public import public, warn_caller
from topofl._support.table import LINE_LIMIT, NotApplicable, Table, as_text
from topofl._support.text import printable
from topofl.summary.figures import KINDS
from topofl.summary.groups import COSTS, EQUAL, Collected, Settings, collect, levels_text
from topofl.summary.pairs import Pair, pairs_with
from topofl.summary.sources import timing_of
from topofl.summary.verdicts import CONFIDENCE, Cell, Statistic, rounded, statistic_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def _quantiles(values: np.ndarray, g: np.ndarray, groups: int) -> np.ndarray:
    """Return median, lowest and highest of values (R,), which may be infinite, in groups."""
    order = np.lexsort((values, g))
    ranked, n = values[order], np.bincount(g, minlength=groups)
    start = np.cumsum(n) - n
    low, high = ranked[start + (n - 1) // 2], ranked[start + n // 2]
    with np.errstate(invalid="ignore"):
        median = np.where(np.isinf(high), high, (low + high) / 2)
    return np.stack([median, ranked[start], ranked[start + n - 1]])


HEADINGS = {"mean": "{}", "worst": "worst node", "worst_tenth": "worst tenth"}
"""Headings of the statistics over nodes, by their names in curves; ``{}`` is the score."""

_Printed = list[tuple[str, Sequence[Any]]]
"""Headings and cells of columns as printed."""

_Exact = list[tuple[str, str, Sequence[Any]]]
"""Columns in full precision: the printed column that each is a part of, its heading, numbers."""


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """Statistics of groups of runs; printed as a table, and converted to other formats.

    Parameters
    ----------
    runs
        The runs and their groups.
    statistics
        Final scores over the runs of each group: ``"mean"`` over nodes, ``"worst"`` node and
        ``"worst_tenth"`` of the nodes.
    target
        The score to reach; None if none was given.
    pairs
        Differences of each group to the baseline; None if none was given.
    baseline
        Name of the baseline; empty for none.
    columns
        Columns of the table that are shown; None: all. See :meth:`select`.
    compared
        Sentence on where in a run the scores are; empty: at its end.

    Examples
    --------
    >>> import numpy as np, topofl
    >>> def run(accuracy, seed):  # a stored run would do as well
    ...     scores = {"round": np.array([0]), "accuracy": np.array([[accuracy] * 2])}
    ...     sent = {"messages": np.zeros(0), "bytes": np.zeros(0)}
    ...     return topofl.History({"seed": seed}, sent, scores, np.zeros((0, 2)))
    >>> accuracies = {"ring": [0.71, 0.74, 0.72], "torus": [0.78, 0.81, 0.80]}
    >>> runs = {name: [run(x, k) for k, x in enumerate(row)] for name, row in accuracies.items()}
    >>> frame = topofl.summarize(runs, baseline="ring").to_pandas()
    >>> frame[["name", "runs", "better than ring"]].values.tolist()
    [['ring', 3, ''], ['torus', 3, 'HOLDS']]
    """

    runs: Collected
    statistics: Mapping[str, Statistic]
    target: float | None = None
    pairs: Sequence[Pair] | None = None
    baseline: str = ""
    columns: tuple[str, ...] | None = None
    compared: str = ""

    @property
    def by(self) -> tuple[str, ...]:
        """Full names of the settings that make a group."""
        return self.runs.by

    @property
    def groups(self) -> tuple[tuple[Any, ...], ...]:
        """The values of `by`, one tuple per group."""
        return self.runs.groups

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the reader, on failed runs and on what the columns mean."""
        notes = [*self._note_on_intervals(), *self.runs.notes]
        without = len(self.runs.entries) - int(self.statistics["mean"].n.sum())
        if without:
            notes.append(
                f"{without} run{'s' * (without > 1)} ended without a finite {self.runs.column}; "
                "means are over the others"
            )
        if self.compared and self._has([*self._means, *self._differences]):
            notes.append(self.compared)
        if self.target is not None and self._has(
            head for head, _ in self._of_target(self.target)[0][1:]
        ):
            notes.append(
                "to the target: median over all runs (lowest to highest); a run that never "
                "reached it counts as the highest"
            )
        compared = sum(pair.n > 0 for pair in self.pairs or ())
        if compared > 1 and self._has(self._differences):
            notes.append(
                f"each of the {compared} comparisons has a {100 * CONFIDENCE:g} % interval of its "
                "own, not corrected for their number"
            )
        return tuple(notes)

    def _note_on_intervals(self) -> list[str]:
        """Return what ± means, and what means are over, if columns have them."""
        means, of_differences = self._means, self._differences
        over = f"averaged over {text}" if (text := self.runs.averaged_text) else ""
        interval = f"±: {100 * CONFIDENCE:g} % interval (Student's t)"
        parts = [interval] if self._has([*means, *of_differences]) else []
        parts += [over] if over and self._has([*means, *of_differences, "std"]) else []
        return [", ".join(parts)] if parts else []

    @property
    def _means(self) -> list[str]:
        """Headings of means."""
        return [HEADINGS[name].format(self.runs.column) for name in self.statistics]

    @property
    def _differences(self) -> list[str]:
        """Headings of differences to the baseline."""
        return [f"minus {self.baseline}", f"better than {self.baseline}"]

    def _has(self, columns: Iterable[str]) -> bool:
        """Return whether the table shows one of these columns."""
        return self.columns is None or not {*self.columns}.isdisjoint(columns)

    @property
    def table(self) -> Table:
        """The table as printed: means rounded to the digit of their standard error."""
        printed = self._of_groups() + [one for part in self._parts() for one in part[0]]
        table = _table_of(printed)
        return table if self.columns is None else table.select(self.columns)

    def select(self, columns: str | Sequence[str]) -> "Summary":
        """Return the summary with some of its columns, in the order given, for all output formats.

        Notes on columns that are left out are left out, too.

        Parameters
        ----------
        columns
            Names of columns as printed, among those that are shown. In full precision (CSV, JSON,
            pandas), ``"accuracy"`` also has its ends of the interval, and ``"std"`` is named
            ``"accuracy std"``; these names are no names of columns here.

        Raises
        ------
        ValueError
            If no such column is shown, or one is given twice.
        TypeError
            If `columns` is neither a name nor a list of names.

        Examples
        --------
        >>> import numpy as np, topofl
        >>> scores = {"round": np.array([0]), "accuracy": np.array([[0.5, 0.75]])}
        >>> sent = {"messages": np.zeros(0), "bytes": np.zeros(0)}
        >>> run = topofl.History({}, sent, scores, np.zeros((0, 2)))
        >>> topofl.summarize({"ring": run}).select(["worst node", "name"]).table
        worst node  name
        ----------  ----
               0.5  ring
        """
        table = self.table
        printed = {head: owner for owner, head, _ in self._exact() if owner in table.columns}
        names = [columns] if isinstance(columns, str) else columns
        for name in names if isinstance(names, Sequence) else ():
            if isinstance(name, str) and name in printed and name not in table.columns:
                raise ValueError(
                    "`columns` must be named as in the printed table, got "
                    f"{name!r}, which is part of {printed[name]!r} in full precision (CSV, JSON, "
                    f"pandas); take {printed[name]!r}"
                )
        return replace(self, columns=table.select(columns).columns)

    def _of_groups(self) -> _Printed:
        """Return the first columns: the values of `by` and the number of runs."""
        n = np.bincount(self.runs.group_of, minlength=len(self.groups))
        values = [[group[k] for group in self.groups] for k in range(len(self.runs.labels))]
        return [*zip(self.runs.labels, values, strict=True), ("runs", n.tolist())]

    def _parts(self) -> list[tuple[_Printed, _Exact]]:
        """Return the columns of scores, of the target and of differences."""
        parts = [self._scores()]
        parts += [] if self.target is None else [self._of_target(self.target)]
        parts += [] if self.pairs is None else [self._of_pairs(self.pairs)]
        return parts

    def _exact(self) -> _Exact:
        """Return all columns in full precision."""
        groups = [(head, head, cells) for head, cells in self._of_groups()]
        return groups + [one for part in self._parts() for one in part[1]]

    def _scores(self) -> tuple[_Printed, _Exact]:
        printed: _Printed = []
        exact: _Exact = []
        for name, one in self.statistics.items():
            head = HEADINGS[name].format(self.runs.column)
            rows = zip(one.mean, one.error, one.half, strict=True)
            printed.append((head, [Cell(rounded(*numbers)) for numbers in rows]))
            if name == "mean":
                spread = zip(one.std, one.error, strict=True)
                texts = ["-" if np.isnan(std) else rounded(std, error) for std, error in spread]
                printed.append(("std", list(map(Cell, texts))))
            exact += [
                (head, head, one.mean.tolist()),
                ("std" if name == "mean" else head, f"{head} std", one.std.tolist()),
                (head, f"{head} low", (one.mean - one.half).tolist()),
                (head, f"{head} high", (one.mean + one.half).tolist()),
            ]
        return printed, exact

    def _of_target(self, target: float) -> tuple[_Printed, _Exact]:
        """Return the columns on what it took until the mean score over nodes reached the target.

        They have the number of runs that reached it, and median, lowest and highest cost over all
        runs of each group: rounds, megabytes and, if all runs recorded them, simulated seconds.
        Runs that never reach the score cost infinity: the median is infinite if half of the runs
        or more do not reach it, and is not biased toward runs that do, as a mean over those would
        be.
        """
        runs, g, groups = self.runs, self.runs.group_of, len(self.groups)
        means = runs.statistic("mean")
        with np.errstate(invalid="ignore"):
            hits = means <= target if runs.low_is_good else means >= target
        first, never = hits.argmax(1), ~hits.any(1)
        reached, n = (np.bincount(own, minlength=groups) for own in (g[~never], g))
        head = f"reached {target:g}"
        printed: _Printed = [(head, [Cell(f"{a} of {b}") for a, b in zip(reached, n, strict=True)])]
        exact: _Exact = [(head, head, reached.tolist())]
        for name in COSTS:
            curves = runs.cost(name)
            if np.isnan(curves).all(1).any():
                continue
            spent = np.where(never, np.inf, curves[np.arange(len(curves)), first])
            cost = _quantiles(spent, g, groups)
            head = f"{'MB' if name == 'megabytes' else name} to {target:g}"
            printed.append((head, [Cell(_range(*numbers)) for numbers in zip(*cost, strict=True)]))
            ends = zip(("", " low", " high"), cost, strict=True)
            exact += [(head, f"{head}{end}", values.tolist()) for end, values in ends]
        return printed, exact

    def _of_pairs(self, pairs: Sequence[Pair]) -> tuple[_Printed, _Exact]:
        minus, better = f"minus {self.baseline}", f"better than {self.baseline}"
        rows: list[tuple[Any, Any, Any]] = []
        for k, pair in enumerate(pairs):
            if pair.baseline == k:
                rows.append((Cell("baseline"), Cell("-"), Cell("-")))
            elif pair.reason:
                rows.append((NotApplicable(pair.reason), 0, Cell("-")))
            else:
                text = rounded(pair.mean, pair.error, pair.half)
                rows.append((Cell(text), pair.n, Cell(pair.verdict)))
        columns = zip((minus, "pairs", better), zip(*rows, strict=True), strict=True)
        return [*columns], [
            (minus, minus, [pair.mean for pair in pairs]),
            (minus, f"{minus} low", [pair.mean - pair.half for pair in pairs]),
            (minus, f"{minus} high", [pair.mean + pair.half for pair in pairs]),
            ("pairs", "pairs", [pair.n for pair in pairs]),
            (better, better, [pair.verdict for pair in pairs]),
        ]

    @property
    def numbers(self) -> Table:
        """The table in full precision, with ``inf`` for costs of runs that never get there."""
        exact = self._exact()
        if self.columns is not None:
            exact = [one for name in self.columns for one in exact if one[0] == name]
        return _table_of([(head, values) for _, head, values in exact])

    def _as_printed(self) -> list[Table]:
        """Return the table, or its parts, which are printed one below the other, if it is wide."""
        whole = self.table
        width = max(map(len, whole.upright().splitlines()[:3]))
        if self.columns is not None or width <= LINE_LIMIT:
            return [whole]
        groups = self._of_groups()
        first, *others = (printed for printed, _ in self._parts())
        return [_table_of(groups + first), *(_table_of(groups[:-1] + part) for part in others)]

    def __str__(self) -> str:
        text = "\n\n".join(map(str, self._as_printed()))
        return "\n".join([text, *(f"note: {note}" for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = "".join(part._repr_html_() for part in self._as_printed())
        return tables + "".join(paragraph(f"note: {note}") for note in self.notes)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a DataFrame in full precision, one row per group.

        Columns are the settings, ``runs``; mean, ``std`` and ends of the interval (``low``,
        ``high``) of the score, of the worst node and of the worst tenth; with a target, the number
        of runs that ``reached`` it, and median, ``low`` and ``high`` of each cost, ``inf`` for
        never; with a baseline, the paired difference with its interval, ``pairs`` and the verdict.
        """
        return self.numbers.to_pandas()

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return comma-separated values in full precision, and write them to `path` if given."""
        return self.numbers.to_csv(path)

    def to_markdown(self) -> str:
        """Return a Markdown table and notes, with numbers rounded as printed."""
        return "\n\n".join([self.table.to_markdown(), *self.notes])

    def to_latex(self) -> str:
        """Return a LaTeX ``tabular`` for the package booktabs, rounded as printed.

        Notes are comments below it.
        """
        notes = [f"% {printable(note)}" for note in self.notes]
        return "\n".join([self.table.to_latex(booktabs=True), *notes])

    def plot(self, kind: str = "band", **options: Any) -> "Figure":
        """Return a figure of the runs.

        Parameters
        ----------
        kind
            ``"band"``, ``"violin"``, ``"nodes"``, ``"pareto"`` or ``"heat_map"``; ``"nodes"`` is
            ``kind="nodes", x="rank"`` of :func:`topofl.compare_histories`, averaged over runs.
        options
            Those of the function ``topofl.summary.plot_<kind>``.

        Raises
        ------
        ValueError
            If there is no such kind, and as that function.
        """
        return KINDS[check_choice("kind", kind, KINDS)](self.runs, **options)


def _table_of(columns: _Printed) -> Table:
    """Return a table from headings and cells of its columns."""
    heads, cells = zip(*columns, strict=True)
    return Table(heads, tuple(zip(*cells, strict=True)))


def _range(median: float, low: float, high: float) -> str:
    """Return the median of a cost with its extremes, ``never`` for infinity."""
    texts = [
        "never" if np.isinf(x) else as_text(int(x) if x == int(x) else x)
        for x in (median, low, high)
    ]
    return texts[0] if low == high else f"{texts[0]} ({texts[1]} to {texts[2]})"


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
    equal: str | None = None,
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
        Statistics are of the last evaluation, unless `equal` is given.
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
    equal
        ``"megabytes"``, ``"messages"``, ``"seconds"`` or ``"rounds"``: scores and verdicts are
        those at an equal cost of all runs, the total of the cheapest one, interpolated between
        evaluations. Runs that send nothing are taken at their end. A warning says if seconds are
        those of different clocks. None: at the end of each run, whatever it cost.

    Raises
    ------
    ValueError
        If there are no runs, runs of a group differ in a setting that is neither a seed nor in `by`
        or `over`, two runs are equal in everything, a run lacks the score, a name is unknown or
        ambiguous, no group has seeds in common with the baseline, or runs lack the cost `equal`.
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
    if target is not None:
        is_share = collected.column.startswith("accuracy")
        target = (check_probability if is_share else check_number)("target", target)
    budget = np.inf
    if equal is not None:
        budget = collected.budget(check_choice("equal", equal, EQUAL))
        _check_clocks(collected, equal)
    finals = {
        name: collected.at_cost(collected.statistic(name), equal or "rounds", budget)
        for name in HEADINGS
    }
    statistics = {
        name: statistic_of(values, collected.group_of, len(collected.groups))
        for name, values in finals.items()
    }
    return Summary(
        collected,
        statistics,
        target,
        None if baseline is None else pairs_with(collected, finals["mean"], baseline),
        "" if baseline is None else _text(baseline, collected),
        compared=""
        if equal is None and baseline is None
        else _where_compared(collected, equal, budget),
    )


def _check_clocks(collected: Collected, equal: str) -> None:
    """Warn if runs are compared at equal seconds of different clocks, with what differs."""
    if equal != "seconds":
        return
    differ = Settings.of([timing_of(entry.settings) for entry in collected.entries])
    listed = [f"{name} is {levels_text(differ.levels[name])}" for name in differ.varying]
    if listed:
        warn_caller(
            "`equal` 'seconds' compares runs of different clocks, whose seconds say as much about "
            f"these as about the methods: {'; '.join(listed)}; run all with one clock, or give "
            "`hardware`, which times all of them on the same machines"
        )


def _where_compared(collected: Collected, equal: str | None, budget: float) -> str:
    """Return a sentence on the rounds, and the cost, at which scores are compared."""
    name = equal or "rounds"
    at = {one: collected.at_cost(collected.cost(one), name, budget) for one in ("rounds", name)}
    rounds = f"after {_extent(at['rounds'])} rounds"
    if equal is not None:
        unit = "MB" if equal == "megabytes" else equal
        free = int((collected.cost(equal)[:, -1] == 0).sum())
        ends = f"; {free} that cost nothing are taken at their end" if free else ""
        if not np.isfinite(budget):
            return f"compared at the end of each run, {rounds}: none costs any {equal}"
        when = "" if equal == "rounds" else f", {rounds}"
        return (
            f"compared at equal {equal}: {as_text(budget)} {unit}, all that the cheapest run "
            f"spends{when}, with scores interpolated between evaluations{ends}"
        )
    sent = collected.cost("megabytes")[:, -1]
    is_equal = np.ptp(at["rounds"]) == 0
    where = "at equal rounds" if is_equal else "at the end of each run"
    if np.isnan(sent).any() or np.ptp(sent) == 0:
        return f"compared {where}, {rounds}"
    return (
        f"compared {where}, {rounds}, not at equal bytes: runs have sent {_extent(sent)} MB; "
        "`equal` 'megabytes' compares there"
    )


def _extent(values: np.ndarray) -> str:
    """Return the smallest and the largest of values as text, or the only one."""
    low, high = (as_text(float(f"{end(values):.4g}")) for end in (np.min, np.max))
    return low if low == high else f"{low} to {high}"


def _text(baseline: Any, collected: Collected) -> str:
    """Return the name of a baseline for headings."""
    if isinstance(baseline, Mapping):
        return ", ".join(str(value) for value in baseline.values())
    return str(baseline)
