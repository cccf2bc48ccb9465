"""Add seeds to the arms of claims until these are decided: ``topofl reproduce --until-decided``.

Every arm starts with :data:`FIRST` seeds. A comparison of a claim is judged anew with each further
seed of the arms that it needs, by intervals that stay valid (:mod:`.sequential`), and its first
verdict stays. Seeds are added where, at the means and spreads so far, most claims would be decided
per hour. Progress is in a JSON file, so that a command continues where another one stopped.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from topofl.runs.identity import Run
from topofl.summary.verdicts import FAILS, HOLDS, UNDECIDED

from .claims import PAPER, Claim, Evidence, judged, with_parts
from .paper import Figure, Setting
from .reproduce import write_text
from .sequential import FIRST, MOST, critical, seeds_needed
from .store import Store, keyed


class Comparison(NamedTuple):
    """One comparison of a claim about a figure; the name of a single statistic is empty."""

    figure: str
    statement: str
    name: str


@dataclass(frozen=True)
class Progress:
    """What was done so far, as it is stored.

    Parameters
    ----------
    key
        Hash of the runs of the first seeds; the progress of others is not continued.
    seeds
        Number of seeds by arm, for arms that have more than :data:`FIRST`. The name of an arm is
        the key of its first run.
    seconds
        Time of the runs of these seeds, divided by the number of processes.
    step
        Number of seeds by arm that are being added.
    runs
        Keys of the runs of the step that were missing when it began.
    verdicts
        Verdict of each comparison, with the number of seeds of the decision or of the last look.
    """

    key: str
    seeds: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    step: Mapping[str, int] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    verdicts: Mapping[Comparison, tuple[str, int]] = field(default_factory=dict)

    def seeds_of(self, arms: Iterable[str]) -> int:
        """Return the number of seeds that all of some arms have."""
        return min(self.seeds.get(arm, FIRST) for arm in arms)

    def is_open(self, comparison: Comparison) -> bool:
        """Return whether a comparison is undecided."""
        return self.verdicts.get(comparison, (UNDECIDED, 0))[0] == UNDECIDED


def load_progress(path: Path, key: str) -> Progress:
    """Return the progress in a file; none if there is no file, or it is about other runs."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Progress(key)
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged: {error}; remove it to judge all runs again"
        ) from error
    if told["key"] != key:
        return Progress(key)
    verdicts = _verdicts(told.pop("verdicts"))
    return Progress(**{**told, "runs": tuple(told["runs"])}, verdicts=verdicts)


def _verdicts(told: Iterable[Sequence[Any]]) -> dict[Comparison, tuple[str, int]]:
    return {Comparison(*names): (verdict, k) for *names, verdict, k in told}


def stored_decisions(path: Path) -> dict[Comparison, tuple[str, int]]:
    """Return the verdicts of the progress in a file, whatever its runs; empty without a file."""
    if not path.exists():
        return {}
    return _verdicts(json.loads(path.read_text(encoding="utf-8"))["verdicts"])


def save_progress(path: Path, progress: Progress) -> None:
    """Write the progress atomically."""
    verdicts = [[*comparison, *found] for comparison, found in progress.verdicts.items()]
    write_text(path, json.dumps({**asdict(replace(progress, verdicts={})), "verdicts": verdicts}))


@dataclass(frozen=True)
class Subject:
    """A figure, the runs of its arms for all seeds that may be added, and what its claims need.

    Parameters
    ----------
    figure, setting
        The figure, and its setting with the first seeds.
    arms
        Runs, one per seed, by arm.
    needs
        The arms on which each comparison depends.
    """

    figure: Figure
    setting: Setting
    arms: Mapping[str, Sequence[Run]]
    needs: Mapping[Comparison, frozenset[str]]

    @property
    def claims(self) -> dict[str, list[Comparison]]:
        """The comparisons of each claim, by its statement."""
        found: dict[str, list[Comparison]] = {}
        for comparison in self.needs:
            found.setdefault(comparison.statement, []).append(comparison)
        return found


Standing = Mapping[Comparison, Claim]
"""The claim of each comparison as it was at its decision or last look."""


def with_seeds(setting: Setting, k: int) -> Setting:
    """Return a setting with the first k seeds."""
    return replace(setting, seeds=tuple(range(k)))


def claims_at(
    figure: Figure, setting: Setting, store: Store, k: int, seeds: Mapping[str, int]
) -> list[Claim]:
    """Return the claims by the first k seeds; arms that have fewer repeat theirs.

    Only comparisons that do not need these arms may be read.
    """
    instead = dict(store.instead)
    setting = with_seeds(setting, k)
    for runs in _arms(figure, setting).values():
        own = seeds.get(runs[0].key, FIRST)
        if own < k:
            instead |= {run.key: runs[at % own] for at, run in enumerate(runs) if at >= own}
    data = figure.compute(setting, replace(store, instead=instead))
    claims = figure.claims(json.loads(json.dumps(data)))
    return [judged(claim, critical) if _has_seeds(claim, k) else claim for claim in claims]


def _has_seeds(claim: Claim, k: int) -> bool:
    """Return whether a claim is judged by k seeds, and not by other numbers."""
    rows = claim.evidence.values if claim.evidence is not None else ()
    return bool(rows) and all(len(values) == k for _, values in rows)


def _arms(figure: Figure, setting: Setting) -> dict[str, Sequence[Run]]:
    panels = figure.arms(setting).values() if figure.arms is not None else ()
    return {runs[0].key: runs for panel in panels for runs in panel.values()}


def subject_of(figure: Figure, setting: Setting, store: Store) -> Subject:
    """Return a figure with the arms that each comparison needs.

    These are the arms whose values change those of the comparison if their first seeds are
    exchanged for others. A comparison whose values never change so needs all arms.
    """
    arms, store = _arms(figure, setting), replace(store, loaded={})
    before = _values(figure.id, claims_at(figure, setting, store, FIRST, {}))
    needs: dict[Comparison, set[str]] = {comparison: set() for comparison in before}
    for arm, (first, second, third, *_) in arms.items() if before else ():
        other = replace(store, instead={first.key: second, third.key: first})
        after = _values(figure.id, claims_at(figure, setting, other, FIRST, {}))
        for comparison in before:
            if after.get(comparison) != before[comparison]:
                needs[comparison].add(arm)
    known = {comparison: frozenset(own or arms) for comparison, own in needs.items()}
    return Subject(figure, setting, _arms(figure, with_seeds(setting, MOST)), known)


def _values(figure: str, claims: Sequence[Claim]) -> dict[Comparison, tuple[float, ...]]:
    return {
        Comparison(figure, claim.statement, name): values
        for claim in claims
        if claim.evidence is not None and _has_seeds(claim, FIRST)
        for name, values in claim.evidence.values
    }


def look(
    subject: Subject, progress: Progress, standing: Standing, store: Store
) -> tuple[Progress, Standing]:
    """Judge the comparisons of a figure with every number of seeds that they now have."""
    wanted: dict[int, list[Comparison]] = {}
    for comparison, arms in subject.needs.items():
        last = progress.verdicts.get(comparison, (UNDECIDED, FIRST - 1))[1]
        ks = [] if comparison in standing or last < FIRST else [last]
        if progress.is_open(comparison):
            ks += range(last + 1, progress.seeds_of(arms) + 1)
        for k in ks:
            wanted.setdefault(k, []).append(comparison)
    verdicts, standing = dict(progress.verdicts), dict(standing)
    for k, comparisons in sorted(wanted.items()):
        claims = claims_at(subject.figure, subject.setting, store, k, progress.seeds)
        found = {claim.statement: claim for claim in claims}
        for comparison in comparisons:
            claim = found.get(comparison.statement)
            old, at = verdicts.get(comparison, (UNDECIDED, 0))
            if claim is not None and (old == UNDECIDED or at == k):
                standing[comparison] = claim
                verdicts[comparison] = (old if old != UNDECIDED else _verdict(claim, comparison), k)
    return replace(progress, verdicts=verdicts), standing


def _verdict(claim: Claim, comparison: Comparison) -> str:
    parts = {part.name: part.verdict for part in claim.parts}
    return parts.get(comparison.name, UNDECIDED) if comparison.name else claim.verdict


@dataclass(frozen=True)
class Aim:
    """The seeds with which a claim would be decided if means and spreads stayed as they are.

    Parameters
    ----------
    figure, statement, kind
        The claim.
    verdict
        What its verdict would be.
    seeds
        Number of seeds by arm.
    """

    figure: str
    statement: str
    kind: str
    verdict: str
    seeds: Mapping[str, int]


def aims_of(
    subject: Subject, progress: Progress, standing: Standing, max_seeds: int
) -> Iterator[Aim]:
    """Yield the aim of every undecided claim that would need at most `max_seeds` seeds."""
    for statement, comparisons in subject.claims.items():
        claim = standing[comparisons[0]]
        if claim.evidence is None or claim_verdict(claim, comparisons, progress) != UNDECIDED:
            continue
        headings = {
            one: _heading(standing[one], one.name) for one in comparisons if progress.is_open(one)
        }
        verdict, aims = _nearest(claim.evidence, headings)
        if not aims or max(k for k, _ in aims) > max_seeds:
            continue
        seeds: dict[str, int] = {}
        for k, one in aims:
            seeds |= {arm: max(k, seeds.get(arm, 0)) for arm in subject.needs[one]}
        yield Aim(subject.figure.id, statement, claim.kind, verdict, seeds)


def _heading(claim: Claim, name: str) -> tuple[str, int | None]:
    """Return the verdict to which a comparison's mean points, and the seeds it would need."""
    if claim.evidence is None:
        return UNDECIDED, None
    values, bound = dict(claim.evidence.values)[name], claim.evidence.bound
    to_hold, to_fail = claim.evidence.levels
    ahead = bound.sign * (float(np.mean(values)) - bound.value) > 0
    needed = seeds_needed(values, bound.value, to_hold if ahead else to_fail)
    return HOLDS if ahead else FAILS, needed


def seeds_to_decide(claim: Claim) -> int | None:
    """Return how many seeds an undecided claim would need if means and spreads stay as they are.

    None if :data:`.sequential.MOST` are not enough, or more seeds cannot decide it.
    """
    if claim.evidence is None:
        return None
    headings = {name: _heading(claim, name) for name, _ in claim.evidence.values}
    _, aims = _nearest(claim.evidence, headings)
    return max(k for k, _ in aims) if aims else None


def _nearest(
    evidence: Evidence, headings: Mapping[Any, tuple[str, int | None]]
) -> tuple[str, list[tuple[int, Any]]]:
    """Return the verdict that a claim would have first, and seeds with comparisons that give it.

    There are no comparisons if no number of seeds is known to be enough.
    """
    enough, needed = evidence.order
    first = [(k, one) for one, (verdict, k) in headings.items() if verdict == enough and k]
    if first:
        return enough, [min(first, key=lambda pair: pair[0])]
    every = [(k, one) for one, (verdict, k) in headings.items() if verdict == needed and k]
    return needed, every if len(every) == len(headings) else []


def claim_verdict(
    claim: Claim, comparisons: Iterable[Comparison], progress: Progress, k: int | None = None
) -> str:
    """Return the verdict on a claim, now or with k seeds."""
    found = [progress.verdicts[comparison] for comparison in comparisons]
    verdicts = [verdict if k is None or at <= k else UNDECIDED for verdict, at in found]
    return claim.evidence.verdict(verdicts) if claim.evidence is not None else UNDECIDED


@dataclass(frozen=True)
class Costs:
    """What runs that are missing would take.

    Parameters
    ----------
    store
        Where runs are stored.
    arms
        Runs, one per seed, by arm.
    seconds
        Mean time of the first runs, by arm.
    jobs
        Number of processes.
    """

    store: Store
    arms: Mapping[str, Sequence[Run]]
    seconds: Mapping[str, float]
    jobs: int

    def missing(self, seeds: Mapping[str, int], progress: Progress) -> list[Run]:
        """Return the runs that lack for numbers of seeds by arm."""
        return [
            run
            for arm, k in seeds.items()
            for run in self.arms[arm][progress.seeds_of([arm]) : k]
            if not self.store.has(run)
        ]

    def hours(self, seeds: Mapping[str, int], progress: Progress) -> float:
        """Return their hours, if they take as long as the first runs of their arms."""
        missing = {arm: len(self.missing({arm: k}, progress)) for arm, k in seeds.items()}
        return sum(self.seconds[arm] * n for arm, n in missing.items()) / self.jobs / 3600


def costs_of(subjects: Sequence[Subject], store: Store, jobs: int) -> Costs:
    """Return the costs of the arms of some figures; arms that they share count once."""
    arms = {arm: runs for subject in subjects for arm, runs in subject.arms.items()}
    notes = {arm: [store.load_note(run) for run in runs[:FIRST]] for arm, runs in arms.items()}
    seconds = {arm: float(np.mean([note["seconds"] for note in own])) for arm, own in notes.items()}
    return Costs(store, arms, seconds, jobs)


def chosen(
    aims: Sequence[Aim], progress: Progress, costs: Costs, left: float, *, whole: bool = False
) -> Aim | None:
    """Return the aim with most decisions per hour: the paper's claims first, then all.

    None if no aim is left whose next step, or with `whole` the aim itself, fits into the hours.
    """
    best, best_rate = None, (0.0, 0.0)
    for aim in aims:
        step = aim.seeds if whole else step_of(aim, progress)
        if not step or costs.hours(step, progress) > left:
            continue
        kinds = [other.kind for other in aims if covers(aim, other, progress)]
        hours = max(costs.hours(aim.seeds, progress), 1e-9)
        rate = (kinds.count(PAPER) / hours, len(kinds) / hours)
        if rate > best_rate:
            best, best_rate = aim, rate
    return best


def covers(aim: Aim, other: Aim, progress: Progress) -> bool:
    """Return whether the seeds of one aim are enough for another one."""
    return all(
        k <= max(aim.seeds.get(arm, 0), progress.seeds_of([arm])) for arm, k in other.seeds.items()
    )


def step_of(aim: Aim, progress: Progress) -> dict[str, int]:
    """Return the next seeds on the way to an aim: a quarter more for the arms with the fewest."""
    now = {arm: progress.seeds_of([arm]) for arm in aim.seeds}
    lowest = min((k for arm, k in now.items() if k < aim.seeds[arm]), default=0)
    goals = {arm: min(lowest + max(1, lowest // 4), k) for arm, k in aim.seeds.items()}
    return {arm: k for arm, k in goals.items() if k > now[arm]}


@dataclass(frozen=True)
class Search:
    """The figures whose claims get seeds, with the limits of a command.

    Parameters
    ----------
    subjects
        The figures.
    costs
        The costs of their arms.
    max_seeds
        Largest number of seeds.
    hours
        Time of all steps.
    """

    subjects: tuple[Subject, ...]
    costs: Costs
    max_seeds: int
    hours: float

    @property
    def claims(self) -> list[tuple[Subject, str, list[Comparison]]]:
        """The claims: their figure, statement and comparisons."""
        return [(one, *claim) for one in self.subjects for claim in one.claims.items()]

    def judged(self, progress: Progress, standing: Standing) -> tuple[Progress, Standing]:
        """Return the progress after looking at all figures."""
        for subject in self.subjects:
            progress, standing = look(subject, progress, standing, self.costs.store)
        return progress, standing

    def aims(self, progress: Progress, standing: Standing) -> list[Aim]:
        """Return the aims of all claims."""
        return [
            aim
            for subject in self.subjects
            for aim in aims_of(subject, progress, standing, self.max_seeds)
        ]

    def left(self, progress: Progress) -> float:
        """Return the hours that are left."""
        return self.hours - progress.seconds / 3600


def search_of(
    figures: Sequence[Figure],
    setting: Setting,
    store: Store,
    jobs: int,
    max_seeds: int,
    hours: float | None,
) -> tuple[Search, str]:
    """Return the search over figures whose first runs are stored, and the hash of these runs."""
    subjects = tuple(subject_of(figure, setting, store) for figure in figures)
    keys = sorted({arm for subject in subjects for arm in subject.arms})
    key = hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]
    limit = math.inf if hours is None else hours
    return Search(subjects, costs_of(subjects, store, jobs), max_seeds, limit), key


def add_seeds(
    search: Search, progress: Progress, path: Path, train: Callable[[Sequence[Run]], Any]
) -> tuple[Progress, Standing]:
    """Add seeds until no claim can be decided within the limits, and return what was reached.

    An arm whose runs fail gets no further seeds.

    Parameters
    ----------
    search, progress
        The figures, and what was done so far.
    path
        File in which the progress is saved before and after every step.
    train
        ``train(runs)`` trains runs that are missing; called once per step.
    """
    standing: Standing = {}
    stuck: set[str] = set()
    while True:
        if progress.step:
            train(search.costs.missing(progress.step, progress))
            progress, failed = _after_step(progress, search.costs)
            stuck |= failed
        progress, standing = search.judged(progress, standing)
        save_progress(path, progress)
        aims = [aim for aim in search.aims(progress, standing) if not stuck & set(aim.seeds)]
        aim = chosen(aims, progress, search.costs, search.left(progress))
        if aim is None:
            return progress, standing
        step = step_of(aim, progress)
        runs = tuple(run.key for run in search.costs.missing(step, progress))
        progress = replace(progress, step=step, runs=runs)
        save_progress(path, progress)


def _after_step(progress: Progress, costs: Costs) -> tuple[Progress, set[str]]:
    """Return the progress with the seeds and the time of a step, and the arms that failed."""
    goals = {arm: costs.arms[arm][:k] for arm, k in progress.step.items()}
    done = {arm: len(runs) for arm, runs in goals.items() if all(map(costs.store.has, runs))}
    runs = keyed(run for own in goals.values() for run in own)
    took = [runs[key] for key in progress.runs if costs.store.has(runs[key])]
    seconds = sum(costs.store.load_note(run)["seconds"] for run in took) / costs.jobs
    seeds = {**progress.seeds, **done}
    total = progress.seconds + seconds
    return replace(progress, seeds=seeds, seconds=total, step={}, runs=()), set(goals) - set(done)


def settled(subject: Subject, progress: Progress, standing: Standing, store: Store) -> Figure:
    """Return a figure with its claims as they were finally judged."""
    k = progress.seeds_of(subject.arms)
    claims = []
    for claim in claims_at(subject.figure, subject.setting, store, k, progress.seeds):
        comparisons = subject.claims.get(claim.statement)
        claims.append(_settled(comparisons, progress, standing) if comparisons else claim)
    most = max(progress.seeds_of([arm]) for arm in subject.arms)
    return replace(subject.figure, claims=lambda data: claims, judged=most)


def _settled(comparisons: Sequence[Comparison], progress: Progress, standing: Standing) -> Claim:
    """Return a claim with the last look at each of its comparisons."""
    fewest = min(comparisons, key=lambda one: progress.verdicts[one][1])
    claim, parts = standing[fewest], []
    for one in comparisons:
        own = next((part for part in standing[one].parts if part.name == one.name), None)
        parts += [replace(own, verdict=progress.verdicts[one][0])] if own is not None else []
    if claim.evidence is None or not parts:
        return claim
    return with_parts(claim, claim.evidence, parts)
