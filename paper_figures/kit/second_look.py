"""A second look where images are too few: orderings of methods, judged on other data sets.

At the scales of :data:`.paper.LOOKS` another data set stands in for CIFAR-10, with a small network
and the paper's own settings where they carry over. Only claims about orderings of methods are
judged there, by any margin: sizes of differences, and numbers in general, belong to the paper's
data. Their verdicts are stored next to the results, and the paper's report at another scale in the
same folder shows on how many data sets each ordering holds.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from topofl import NotApplicable, Table
from topofl.summary.verdicts import FAILS, HOLDS, UNDECIDED

from .claims import OUR_QUESTION, PAPER, Claim, ordering_of, shown_statement
from .paper import LOOKS, Figure
from .reproduce import Result, write_text

REPLACED = "CIFAR-10"
"""The data set for which others stand in, as titles and statements name it."""


def looked_at(figure: Figure, scale: str) -> Figure:
    """Return a figure that judges its orderings on the data set of a scale, and names this one."""
    name = LOOKS[scale]

    def orderings(data: Any) -> list[Claim]:
        claims = filter(None, map(ordering_of, figure.claims(data)))
        return [
            replace(
                claim,
                statement=claim.statement.replace(REPLACED, name),
                paper="",
                kind=OUR_QUESTION,
            )
            for claim in claims
        ]

    return replace(
        figure,
        title=f"{figure.title.replace(REPLACED, name)}; second look on {name}",
        claims=orderings,
        draw=lambda data: figure.draw(_renamed(data, name)),
        tables=lambda data: figure.tables(_renamed(data, name)),
        datasets=("cifar10",),
        optional=(),
    )


def _renamed(data: Any, name: str) -> Any:
    """Return a figure's data with the other data set in the titles of panels."""
    if not isinstance(data, Mapping):
        return data
    return {key.replace(REPLACED, name): _renamed(value, name) for key, value in data.items()}


def _path(out: str | Path, scale: str, figure: str) -> Path:
    return Path(out, scale, f"{figure}-orderings.json")


def save_verdicts(results: Sequence[Result], out: str | Path) -> None:
    """Store the verdicts on the orderings of figures, by statement, with their numbers of seeds."""
    for result in results:
        found = {
            claim.statement: [claim.verdict, len(claim.evidence.values[0][1])]
            for claim in result.claims
            if claim.evidence is not None
        }
        write_text(_path(out, result.setting.scale, result.figure.id), json.dumps(found, indent=1))


def stored_verdicts(out: str | Path, scale: str, figure: str) -> dict[str, tuple[str, int]]:
    """Return what :func:`save_verdicts` stored for a figure; empty if there is nothing.

    Raises
    ------
    ValueError
        If the file is damaged.
    """
    path = _path(out, scale, figure)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; judge scale {scale} again") from error


def verdict_on(
    ordering: Claim, scale: str, stored: Mapping[str, tuple[str, int]]
) -> tuple[str, int] | None:
    """Return the stored verdict on a claim's ordering at a scale, with its number of seeds."""
    return stored.get(ordering.statement.replace(REPLACED, LOOKS[scale]))


def on_data_sets(verdicts: Sequence[str]) -> str:
    """Return on how many data sets an ordering holds.

    Examples
    --------
    >>> on_data_sets(["UNDECIDED", "HOLDS", "HOLDS"])
    'the ordering holds on 2 of 3 data sets (undecided on 1)'
    >>> on_data_sets(["HOLDS", "FAILS", "UNDECIDED"])
    'the ordering holds on 1 of 3 data sets (fails on 1, undecided on 1)'
    """
    count = Counter(verdicts)
    others = [
        f"{word} on {count[verdict]}"
        for word, verdict in (("fails", FAILS), ("undecided", UNDECIDED))
        if count[verdict]
    ]
    rest = f" ({', '.join(others)})" if others else ""
    return f"the ordering holds on {count[HOLDS]} of {len(verdicts)} data sets{rest}"


def orderings_table(results: Sequence[Result], out: str | Path) -> Table | None:
    """Return the verdicts on orderings on the paper's data and on others; None without others.

    Rows are claims of the results about orderings that were judged on at least one other data set.
    """
    rows: list[tuple[Any, ...]] = []
    holding: Counter[int] = Counter()
    own = 0
    for result in results:
        stored = {scale: stored_verdicts(out, scale, result.figure.id) for scale in LOOKS}
        for claim in filter(None, map(ordering_of, result.claims)):
            looks = [verdict_on(claim, scale, found) for scale, found in stored.items()]
            if any(looks) and claim.evidence is not None:
                every = [(claim.verdict, len(claim.evidence.values[0][1])), *looks]
                verdicts = [one[0] for one in every if one is not None]
                cells = [_cell(one) for one in every]
                holding[verdicts.count(HOLDS)] += 1
                own += claim.kind == PAPER
                text = on_data_sets(verdicts)
                rows.append((shown_statement(claim), result.figure.id, *cells, text))
    if not rows:
        return None
    counts = ", ".join(f"{n} hold on {k}" for k, n in sorted(holding.items(), reverse=True))
    papers = sum(claim.kind == PAPER for result in results for claim in result.claims)
    title = (
        f"Orderings: {len(rows)}, of which {counts} data sets. Claims of the paper that are judged "
        f"on its own data only: {papers - own}, about numbers, similarities, graphs or settings of "
        "a single method, or on data that no other data stand in for"
    )
    return Table(("claim", "figure", "paper's data", *LOOKS.values(), "result"), tuple(rows), title)


def _cell(found: Sequence[Any] | None) -> str | NotApplicable:
    if found is None:
        return NotApplicable("was not judged on this data set")
    return f"{found[0]}, {found[1]} seeds"
