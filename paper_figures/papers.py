"""The papers whose figures are reproduced. A new paper is a package and one line here."""

import re

from . import dcliques, dfedpgp, dpfl, pfeddst
from .kit.arguments import did_you_mean
from .kit.figure import Figure
from .kit.paper import Paper

PAPERS: tuple[Paper, ...] = (dcliques.PAPER, dfedpgp.PAPER, pfeddst.PAPER, dpfl.PAPER)


def figures_named(name: str) -> tuple[Paper, tuple[Figure, ...]]:
    """Return a paper and its figures by an id, for example "dcliques" or "dcliques-fig9".

    Raises
    ------
    ValueError
        If the id is unknown, or the figure is not reproduced; the message then gives the reason.

    Examples
    --------
    >>> paper, figures = figures_named("dcliques-fig9")
    >>> paper.id, [figure.id for figure in figures]
    ('dcliques', ['dcliques-fig09'])
    """
    name = re.sub(r"(fig|tab)(\d[ab]?)$", r"\g<1>0\2", name)
    for paper in PAPERS:
        chosen = tuple(figure for figure in paper.figures if name in (paper.id, figure.id))
        if chosen:
            return paper, chosen
        if name in paper.absent:
            raise ValueError(
                f"{name} is not reproduced: {paper.absent[name]}; topofl reproduce --list shows "
                "what is"
            )
    known = [paper.id for paper in PAPERS] + [
        figure.id for paper in PAPERS for figure in paper.figures
    ]
    raise ValueError(
        f"there is no figure {name!r}{did_you_mean(name, known)}; topofl reproduce --list shows all"
    )
