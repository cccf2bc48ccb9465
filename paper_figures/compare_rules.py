"""Compare rules for judging a mean after every added seed, by simulation.

``python -m paper_figures.compare_rules`` prints, for each rule, how often it decides about a mean
of zero (which should be at most 5 %), and, for means of several standard deviations, the share of
right decisions within 40 seeds and the mean number of seeds until the decision, or 40. The last two
columns average over effects like ours: those of all comparisons of the papers' own claims in
``paper_figures/results/*/quick``, from three seeds each, corrected for the bias of effects that are
divided by their own standard deviation (Hedges 1981).

A second table says how often means of values that are not normal are found on one side of a bound
on which they are.

"Anytime-valid" is the t-test of Lai (1976) and Wang and Ramdas (2023, theorem 4.9), a mixture over
standardized effects with a normal distribution of variance 1 / c2; "spending" are group-sequential
t-tests with exact critical values (:mod:`paper_figures.kit.sequential`) and spending functions of
Kim and DeMets (a power of the share of seeds) and of Lan and DeMets.
"""

import argparse
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from topofl import Table
from topofl.summary.verdicts import CONFIDENCE, t_quantile

from .command import PAPERS
from .decided_claims import RESULTS, quick_claims
from .kit.sequential import FIRST, MOST, boundary, boundary_of, spent

EFFECTS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Means in standard deviations."""

LOOKS = (3, 5, 8, 12, 17, 23, 30, 40)
"""Fewer looks, as in clinical trials."""

HEDGES = special.gamma(1.0) / special.gamma(0.5)
"""Factor that corrects standardized effects from three seeds (two degrees of freedom)."""


def anytime(c2: float) -> list[float]:
    """Return the critical values of the anytime-valid t-test."""
    return [_anytime(c2, k) for k in range(FIRST, MOST + 1)]


def _anytime(c2: float, k: int) -> float:
    shrunk = c2 / (k + c2)
    level = ((1 - CONFIDENCE) ** 2 * shrunk) ** (-1 / k)
    return (
        math.sqrt((k - 1) * (level - 1) / (1 - level * shrunk)) if level * shrunk < 1 else math.inf
    )


def at_looks(spending: Callable[[float], float], looks: Sequence[int]) -> list[float]:
    """Return the critical values of a spending function; infinite between looks."""
    found = dict(zip(looks, boundary_of(spending, looks), strict=True))
    return [found.get(k, math.inf) for k in range(FIRST, MOST + 1)]


def power(exponent: float) -> Callable[[float], float]:
    """Return the spending function of Kim and DeMets (1987)."""
    return lambda share: (1 - CONFIDENCE) * share**exponent


def obrien_fleming(share: float) -> float:
    """Return the error spent by a function similar to that of O'Brien and Fleming."""
    return float(2 * special.ndtr(special.ndtri((1 - CONFIDENCE) / 2) / math.sqrt(share)))


def rules() -> dict[str, list[float]]:
    """Return the critical values of all rules, from the first to the last number of seeds."""
    student = [t_quantile(CONFIDENCE, k) for k in range(FIRST, MOST + 1)]
    found = {"Student's t at every look": student}
    found |= {f"anytime-valid, c2 = {c2:g}": anytime(c2) for c2 in (0.01, 0.1, 1.0)}
    powers = (0.5, 0.75, 1.0, 2.0)
    found |= {f"spending, power {each:g}": list(boundary_of(power(each))) for each in powers}
    found["spending, Pocock's type"] = list(boundary(CONFIDENCE))
    found["spending, Pocock's type, 8 looks"] = at_looks(
        lambda share: spent(share, 1 - CONFIDENCE), LOOKS
    )
    found["spending, O'Brien and Fleming's type"] = list(boundary_of(obrien_fleming))
    return found


def first_decisions(
    critical: Sequence[float], effects: np.ndarray, trials: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the seeds of the first decision of each trial, or 0, and whether it is the right one.

    Both have one row per effect, of which only the sign of the mean is decided.
    """
    noise = np.random.default_rng(seed).standard_normal((len(effects), trials, MOST))
    return decisions(critical, noise + np.asarray(effects)[:, None, None])


def decisions(critical: Sequence[float], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the seeds of the first decision of rows of values, or 0, and whether it is "above"."""
    k = np.arange(1, MOST + 1)
    mean = values.cumsum(axis=-1) / k
    squares = np.maximum(np.square(values).cumsum(axis=-1) - k * mean**2, 1e-24)
    t = mean[..., FIRST - 1 :] * np.sqrt((k * (k - 1))[FIRST - 1 :] / squares[..., FIRST - 1 :])
    beyond = np.abs(t) > np.asarray(critical)
    first = beyond.argmax(axis=-1)
    above = np.take_along_axis(t, first[..., None], axis=-1)[..., 0] > 0
    decided = beyond.any(axis=-1)
    return np.where(decided, first + FIRST, 0), above & decided


def skewed(trials: int) -> dict[str, np.ndarray]:
    """Return values that are not normal, minus their mean, by name."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal((trials, MOST))
    arms = 0.6 * np.arange(4) + rng.standard_normal((trials, MOST, 4))
    ranks = arms.argsort(axis=2).argsort(axis=2) - 1.5
    correlations = ranks @ (np.arange(4) - 1.5) / 5
    return {
        "sizes of normal values": np.abs(normal) - math.sqrt(2 / math.pi),
        "rank correlations of four arms": correlations - correlations.mean(),
        "logarithms are normal, deviation 0.5": np.exp(normal / 2) - math.exp(1 / 8),
        "Student's t, 5 degrees of freedom": rng.standard_t(5, (trials, MOST)),
    }


def compare_skewed(trials: int = 20_000) -> Table:
    """Return how often means on the bound are found to be below and above it, in %."""
    three = [t_quantile(CONFIDENCE, FIRST), *[math.inf] * (MOST - FIRST)]
    rows = []
    for name, values in skewed(trials).items():
        cells = []
        for critical in (three, boundary(CONFIDENCE)):
            first, above = decisions(critical, values)
            cells += [((first > 0) & ~above).mean(), above.mean()]
        rows.append((name, *(round(100 * float(cell), 1) for cell in cells)))
    columns = (
        "values",
        "Student's t, 3 seeds: below",
        "above",
        "this rule: below",
        "this rule: above",
    )
    return Table(
        columns, tuple(rows), title="False verdicts about means of values of other kinds, %"
    )


def effects_of_papers() -> np.ndarray:
    """Return the corrected effects of all comparisons of the papers' claims at scale ``quick``."""
    found = []
    folders = sorted(RESULTS / paper.id for paper in PAPERS)
    kept = [claim for folder in folders for _, claims in quick_claims(folder) for claim in claims]
    for evidence in filter(None, (claim.evidence for claim in kept)):
        for _, values in evidence.values:
            away, spread = np.mean(values) - evidence.bound.value, np.std(values, ddof=1)
            found += [HEDGES * abs(away) / spread] if spread > 0 and len(values) == 3 else []
    return np.array(found)


def compare(trials: int = 20_000) -> Table:
    """Return one row per rule."""
    ours = effects_of_papers()
    rows = []
    for name, critical in rules().items():
        false, _ = first_decisions(critical, np.zeros(1), 2 * trials)
        first, right = first_decisions(critical, np.array(EFFECTS), trials)
        own, own_right = first_decisions(critical, ours, max(1, trials // 40))
        cells = [100 * (false > 0).mean()]
        for k in range(len(EFFECTS)):
            cells += [100 * right[k].mean(), np.where(first[k] > 0, first[k], MOST).mean()]
        cells += [100 * own_right.mean(), np.where(own > 0, own, MOST).mean()]
        rows.append((name, *(round(float(cell), 1) for cell in cells)))
    both = [name for d in (*map(str, EFFECTS), "ours") for name in (f"{d}: %", f"{d}: seeds")]
    title = f"Decisions within {MOST} seeds by effect; ours: {len(ours)} comparisons"
    return Table(("rule", "0: %", *both), tuple(rows), title=title)


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description="Compare rules for judging a mean.")
    parser.add_argument("--trials", type=int, default=20_000, help="simulations per effect")
    trials = parser.parse_args().trials
    print(compare(trials).to_markdown(), compare_skewed(trials).to_markdown(), sep="\n\n")


if __name__ == "__main__":
    main()
