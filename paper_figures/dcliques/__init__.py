"""D-Cliques (Bellet, Kermarrec and Lavoie 2022): its figures, and its claims about them."""

from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.figure import Figure as Picture

from ..kit.claims import Claim
from ..kit.curves import Panels
from ..kit.drawing import convergence
from ..kit.paper import Arms, Figure, Setting, trained
from . import arms, claims
from .arms import DECLARED, RANDOM_MOMENTUM, TWO_SHARDS, problems_at_hand
from .graphs import FIG05, FIG06, NUMBERS
from .greedy_swap import FIG17, FIG18


def _trained(
    name: str,
    of: Callable[[Setting], Arms],
    judge: Callable[[Panels], Sequence[Claim]],
    draw: Callable[[Panels], Picture] = convergence,
    *,
    otherwise: Sequence[str] = (),
    shown_titles: dict[str, str] | None = None,
) -> Figure:
    """Return a figure of accuracy curves on the datasets that it requires.

    Except at scale ``smoke``, its differences from the paper are `otherwise` if these are given.
    """
    declared = DECLARED["figures"][name]

    def differences(setting: Setting) -> Sequence[str]:
        if otherwise and setting.scale != "smoke":
            return otherwise
        problems = problems_at_hand(setting, declared.get("nodes", 100), *declared["datasets"])
        own = [(problem.name, text) for problem in problems for text in problem.differences]
        return [f"{title}: {text}" if len(problems) > 1 else text for title, text in own]

    code = trained(of, draw=draw, claims=judge, shown_titles=shown_titles)
    return DECLARED.figure(name, differences=differences, **code)


_drawn_from_89 = partial(convergence, bottom=89.0, top=93.0)

PAPER = DECLARED.paper(
    (
        _trained(
            "fig01", arms.fig01, claims.fig01, shown_titles={TWO_SHARDS: "two shards per node"}
        ),
        FIG05,
        FIG06,
        _trained("fig08", arms.fig08, claims.fig08, partial(convergence, hidden=("grid", "ring"))),
        _trained("fig09", arms.fig09, claims.fig09, _drawn_from_89),
        _trained("fig10", arms.fig10, claims.fig10),
        _trained(
            "fig11", arms.fig11, claims.fig11, partial(convergence, hidden=(RANDOM_MOMENTUM,))
        ),
        _trained("fig12", arms.fig12, claims.fig12),
        _trained("fig13", arms.fig13, claims.fig13, partial(convergence, bottom=80.0, top=93.0)),
        _trained("fig14", arms.fig14, claims.fig14),
        _trained("fig15", arms.fig15, claims.fig15, _drawn_from_89),
        _trained("fig16", arms.fig16, claims.fig16),
        FIG17,
        FIG18,
        _trained("fig19", arms.fig19, claims.fig19),
        NUMBERS,
        _trained("reference", arms.reference, claims.reference, otherwise=DECLARED["simulated"]),
    ),
    DECLARED["terms"],
)
