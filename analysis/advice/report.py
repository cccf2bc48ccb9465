"""The page of the validation: a table of all cases, and how often the first choice was right."""

from collections.abc import Sequence

import numpy as np

from topofl import Table
from topofl.advice.calibration import stored

from .runs import Outcome

__all__ = ["page", "table"]

WITHIN = 1.1
"""Largest ratio to the rounds of the best candidate at which a first choice counts as right."""


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return the table of all cases."""
    return Table(
        (
            *("case", "lr", "candidates", "first choice", "best candidate"),
            *("first / best", "with a model", "median / best", "rank correlation", "in interval"),
        ),
        tuple(
            (
                found.case.name,
                found.lr,
                len(found.rounds),
                _named(found.first, found),
                f"{found.best}: {found.rounds[found.best].mean():.1f}",
                found.ratio(found.first),
                found.ratio(found.first_with_model),
                found.median,
                found.correlation,
                f"{100 * found.covered:.0f} %",
            )
            for found in outcomes
        ),
    )


def _named(chosen: Sequence[str], found: Outcome) -> str:
    mean = np.mean([found.rounds[name][k] for k, name in enumerate(chosen)])
    return f"{' / '.join(dict.fromkeys(chosen))}: {mean:.1f}"


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the page in Markdown."""
    count = len(outcomes)
    right, with_model = (
        sum(o.ratio(getattr(o, name)) <= WITHIN for o in outcomes)
        for name in ("first", "first_with_model")
    )
    verdict = "met" if right >= 0.9 * count else "missed"
    lines = [
        "# Advice for partitions and numbers of nodes that are not in the study",
        "",
        "`python -m analysis.advice --data DIR --out analysis/results/advice`; cases, seeds, "
        "learning rates and target were fixed before the first run "
        "([analysis/advice](../../advice/cases.py)). Images, model and most learning rates are "
        "those of the study. Columns:",
        "",
        "- first choice, best candidate: rounds to 90 % of the final accuracy of the complete "
        "graph, means over three seeds; the choices of the seeds if they differ",
        "- first / best: their ratio, below 1 if choices differ between seeds and each was better",
        "- with a model: the same if the ratio of noise to heterogeneity is measured",
        "- median / best: the same for the median candidate, for scale",
        "- rank correlation: of predicted deviation and rounds over candidates, mean over seeds",
        "- in interval: share of candidates whose measured rounds, relative to the complete graph, "
        "lie in the predicted interval",
        "",
        f"The first choice is within 10 % of the best candidate in **{right} of {count}** cases "
        f"(held to: 9 of 10, {verdict}), with a measured noise ratio in {with_model} of {count}. "
        f"Intervals are those of a fit to {stored().describe()}.",
        "",
        table(outcomes).to_markdown(),
        "",
    ]
    return "\n".join(lines)
