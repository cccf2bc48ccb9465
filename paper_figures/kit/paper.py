"""A paper: its figures, the terms of its claims, and figures that are not reproduced."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .figure import Figure
from .setting import SEEDS


@dataclass(frozen=True)
class Paper:
    """A paper whose figures are reproduced.

    Parameters
    ----------
    id, title, citation
        Short name (the prefix of its figures' ids), title and citation.
    figures
        Reproduced figures and tables, and additional ones of ours.
    terms
        Definitions of the terms in the claims, one sentence each.
    seeds
        Default number of seeds by scale.
    absent
        The paper's other figures and tables, each with the reason why it is not reproduced.
    """

    id: str
    title: str
    citation: str
    figures: tuple[Figure, ...]
    terms: tuple[str, ...] = ()
    seeds: Mapping[str, int] = field(default_factory=lambda: SEEDS)
    absent: Mapping[str, str] = field(default_factory=dict)
