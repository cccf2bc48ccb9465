"""What ``topofl reproduce --until-decided`` does for some figures, predicts and reports."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from topofl import NotApplicable, Table
from topofl.summary.verdicts import FAILS, HOLDS, UNDECIDED
from topofl.toolkit import check_int

from .claims import CHECK, OUR_QUESTION, PAPER, shown_statement
from .paper import Figure, Setting
from .reproduce import missing_data, output_folder
from .sequential import FIRST, MOST
from .store import Failed, Store, compute_missing, keyed
from .until_decided import (
    Progress,
    Search,
    Standing,
    add_seeds,
    chosen,
    claim_verdict,
    covers,
    load_progress,
    search_of,
    settled,
    with_seeds,
)

COUNTED = {PAPER: "the paper's", CHECK: "checks", OUR_QUESTION: "ours"}

SHOWN = (3, 5, 8, 12, 17, 23, 30, 40)
"""Numbers of seeds at which reports show verdicts."""


@dataclass(frozen=True)
class Limits:
    """When to stop adding seeds.

    Parameters
    ----------
    max_seeds
        Largest number of seeds of an arm.
    hours
        Time of the runs of added seeds, divided by the number of processes; None: no limit. It
        counts all commands that used the same folder.
    """

    max_seeds: int = MOST
    hours: float | None = None

    @classmethod
    def of(cls, max_seeds: int | None = None, hours: float | None = None) -> "Limits":
        """Return limits after checking them; None stands for the defaults."""
        if max_seeds is not None:
            why = f"verdicts are valid from {FIRST} to {MOST} seeds"
            max_seeds = check_int("max_seeds", max_seeds, minimum=FIRST, maximum=MOST, remedy=why)
        if hours is not None and not 0 < hours < math.inf:
            raise ValueError(
                f"`hours` must be a positive number, got {hours}; leave it out for no limit"
            )
        return cls(MOST if max_seeds is None else max_seeds, hours)

    @property
    def words(self) -> list[str]:
        """The options of the command."""
        limit = [] if self.hours is None else ["--hours", f"{self.hours:g}"]
        return ["--until-decided", "--max-seeds", str(self.max_seeds), *limit]


@dataclass(frozen=True)
class Decided:
    """Figures with their claims as finally judged.

    Parameters
    ----------
    figures
        Figures with their settings: the number of seeds that all arms have.
    tables
        Numbers of claims by verdict, and verdicts by number of seeds.
    errors
        Reasons of runs that failed, by key.
    """

    figures: Sequence[tuple[Sequence[Figure], Setting]]
    tables: Sequence[Table] = ()
    errors: Mapping[str, str] = field(default_factory=dict)


def decide(
    name: str,
    figures: Sequence[Figure],
    setting: Setting,
    limits: Limits,
    *,
    out: str | Path,
    jobs: int = 1,
    progress: bool | str = "auto",
) -> Decided:
    """Add seeds to the arms of figures until no more claims can be decided within the limits.

    Finished runs are not repeated, and decisions stay. An interrupted command leaves its progress
    in ``OUT/SCALE/NAME-decisions.json``, and the next one continues it.

    Parameters
    ----------
    name
        Name of the paper or figure.
    figures, setting, out, jobs, progress
        As for :func:`paper_figures.kit.reproduce.reproduce_each`.
    limits
        When to stop.
    """
    store, setting = Store(Path(out, "runs")), with_seeds(setting, FIRST)
    trained = _trained(figures, setting)
    keyed(run for figure in trained for run in figure.runs(setting))  # raises before any run
    folder = output_folder(out, setting)
    errors: dict[str, str] = {}

    def train(runs: Sequence[Any], title: str = name) -> bool:
        try:
            compute_missing(runs, store, jobs=jobs, progress=progress, failed=errors, title=title)
        except Failed as error:
            errors.update(error.errors)
            return False
        return True

    ready = [figure for figure in trained if train(figure.runs(setting), figure.id)]
    search, key = search_of(ready, setting, store, jobs, limits.max_seeds, limits.hours)
    path = folder / f"{name}-decisions.json"
    reached, standing = add_seeds(search, load_progress(path, key), path, train)
    final = {
        one.figure.id: (
            (settled(one, reached, standing, store),),
            with_seeds(setting, reached.seeds_of(one.arms)),
        )
        for one in search.subjects
    }
    both = [final.get(figure.id, ((figure,), setting)) for figure in figures]
    return Decided(both, tables_of(search, reached, standing), errors)


def _trained(figures: Sequence[Figure], setting: Setting) -> list[Figure]:
    return [one for one in figures if one.arms is not None and not missing_data(one, setting)]


def tables_of(search: Search, progress: Progress, standing: Standing) -> tuple[Table, ...]:
    """Return a table of the claims by verdict and kind, and of verdicts by number of seeds.

    There are none without claims that are judged by intervals.
    """
    too_many = f"would need more than {search.max_seeds} seeds"
    aims = {(aim.figure, aim.statement): aim for aim in search.aims(progress, standing)}
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in COUNTED}
    rows: list[tuple[Any, ...]] = []
    for subject, statement, comparisons in search.claims:
        claim, aim = standing[comparisons[0]], aims.get((subject.figure.id, statement))
        path = [claim_verdict(claim, comparisons, progress, k) for k in range(MOST + 1)]
        decided = next((k for k, found in enumerate(path) if found != UNDECIDED), None)
        used = decided or max(progress.verdicts[one][1] for one in comparisons)
        outlook = "" if decided else f"about {max(aim.seeds.values())}" if aim else too_many
        shown = [path[k] if k <= used else "" for k in SHOWN]
        figure = subject.figure.id
        rows.append((shown_statement(claim), figure, *shown, used, path[-1], outlook))
        counts[claim.kind][path[-1] if decided or aim else too_many] += 1
    if not rows:
        return ()
    verdicts = (HOLDS, FAILS, UNDECIDED, too_many)
    numbers = [
        (name, *(counts[kind][verdict] for verdict in verdicts))
        for kind, name in COUNTED.items()
        if counts[kind]
    ]
    columns = ("claim", "figure", *(f"{k} seeds" for k in SHOWN), "seeds", "verdict", "needs")
    return (
        Table(("claims", *verdicts), tuple(numbers), title="Claims judged by intervals over seeds"),
        Table(columns, tuple(rows), title="Verdict of each claim by number of seeds"),
    )


def predict(
    name: str,
    figures: Sequence[Figure],
    setting: Setting,
    limits: Limits,
    *,
    out: str | Path,
    jobs: int = 1,
) -> Table | None:
    """Return what :func:`decide` would decide, without storing anything.

    These are the claims that would be decided if means and spreads stayed as they are, in the order
    of the decisions, with the hours until then. None until the first runs of figures are finished.
    """
    store, setting = Store(Path(out, "runs")), with_seeds(setting, FIRST)
    ready = _trained(figures, setting)
    first = [run for figure in ready for run in figure.runs(setting)]
    if not first or not all(map(store.has, first)):
        return None
    search, key = search_of(ready, setting, store, jobs, limits.max_seeds, limits.hours)
    path = Path(out, setting.scale, f"{name}-decisions.json")
    progress, standing = search.judged(load_progress(path, key), {})
    return _predicted(search, progress, standing)


def _predicted(search: Search, progress: Progress, standing: Standing) -> Table:
    aims, spent, rows = search.aims(progress, standing), 0.0, []
    undecided = {
        (subject.figure.id, statement): standing[comparisons[0]]
        for subject, statement, comparisons in search.claims
        if claim_verdict(standing[comparisons[0]], comparisons, progress) == UNDECIDED
    }
    count, limit, costs = len(undecided), search.left(progress), search.costs
    while aim := chosen(aims, progress, costs, limit - spent, whole=True):
        spent += costs.hours(aim.seeds, progress)
        reached = [one for one in aims if covers(aim, one, progress)]
        rows += [(*_named(one), one.verdict, max(one.seeds.values()), spent) for one in reached]
        more = {arm: max(k, progress.seeds_of([arm])) for arm, k in aim.seeds.items()}
        progress = replace(progress, seeds={**progress.seeds, **more})
        aims = [one for one in aims if one not in reached]
    decided = len(rows)
    late = NotApplicable("does not fit into the hours")
    rows += [(*_named(one), UNDECIDED, max(one.seeds.values()), late) for one in aims]
    many = NotApplicable(f"would need more than {search.max_seeds} seeds")
    known = {(row[1], row[0]) for row in rows}
    rows += [
        (statement, figure, claim.kind, UNDECIDED, many, many)
        for (figure, statement), claim in undecided.items()
        if (figure, statement) not in known
    ]
    title = (
        f"{decided} of {count} undecided claims would be decided in {spent:,.2f} hours if means "
        "and spreads stayed as they are"
    )
    columns = ("claim", "figure", "kind", "verdict", "seeds", "hours")
    return Table(columns, tuple(rows), title=title)


def _named(aim: Any) -> tuple[str, str, str]:
    return aim.statement, aim.figure, aim.kind
