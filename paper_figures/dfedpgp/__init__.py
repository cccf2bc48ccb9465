"""DFedPGP (Liu et al. 2024): its tables and figures, and its claims about them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure as Picture

from topofl import Table

from ..kit import comparison
from ..kit.claims import Claim
from ..kit.comparison import METHODS, arms_on, compared, differences, reported_curves, splits_of
from ..kit.curves import Panels, final
from ..kit.drawing import convergence, dots
from ..kit.paper import Arms, Data, Figure, Setting, by_title, each_arm
from . import claims
from .claims import DECLARED, EQUAL

TABLE_1 = tuple(label for label in METHODS if label not in ("DFedAvgM-P", "PFedDST"))

DEVICES = tuple(label for label in TABLE_1 if label != "Local")

ABLATION = ("DFedAvgM", "DFedAvgM-P", "OSGP", "DFedPGP")

ABLATED = ("CIFAR-10, Dir(0.3)", "CIFAR-10, c=2")
"""The splits of tables 3 and 4."""

STUDIED = "CIFAR-10, Dir(0.3)"
"""The split of figures 3a and 3b."""


tab01 = arms_on(TABLE_1)
"""All methods on all splits."""


def tab02(setting: Setting) -> Arms:
    """Return the arms of table 1 on splits that have a target or that the paper lacks."""
    return {
        title: arms
        for title, arms in tab01(setting).items()
        if title in (*claims.TARGETS, *comparison.ADDED)
    }


def tab03(setting: Setting) -> Arms:
    """Return arms whose clients train for unequal epochs, and those of table 1 for comparison."""
    scale = comparison.scale_of(setting)
    epochs = unequal(scale.devices, scale.clients)
    panels = {}
    for title, equal in arms_on(DEVICES, *ABLATED)(setting).items():
        panels[title] = {
            label: comparison.arm(setting, title, label, epochs=epochs) for label in DEVICES
        }
        panels[title + EQUAL] = equal
    return panels


def unequal(devices: Sequence[int], n: int) -> list[int]:
    """Return the epochs of n clients, in one group of equal size per kind of device."""
    return [devices[i * len(devices) // n] for i in range(n)]


tab04 = arms_on(ABLATION, *ABLATED)
"""Arms that exchange whole models or bodies over undirected or directed graphs."""


def fig03a(setting: Setting) -> Arms:
    """Return DFedPGP with several numbers of neighbors."""
    counts = comparison.scale_of(setting).neighbor_counts
    arms = {
        f"{k} neighbors": comparison.arm(setting, STUDIED, "DFedPGP", neighbors=k) for k in counts
    }
    return dict.fromkeys(splits_of(setting, STUDIED), arms)


def fig03b(setting: Setting) -> Arms:
    """Return DFedPGP with several numbers of clients that share the same images."""
    scale, arms = comparison.scale_of(setting), {}
    for n in scale.client_counts:
        sizes = {"clients": n, "neighbors": min(scale.neighbors, n - 1)}
        arms[f"{n} clients"] = comparison.arm(setting, STUDIED, "DFedPGP", **sizes)
    return dict.fromkeys(splits_of(setting, STUDIED), arms)


def _figure(
    name: str,
    arms: Callable[[Setting], Arms],
    judge: Callable[[Panels], Sequence[Claim]],
    *,
    draw: Callable[[Data], Picture] | None = None,
    **code: Any,
) -> Figure:
    """Return a figure whose claims are about every arm at its best stage; drawn as curves."""

    def judged(data: Data) -> Sequence[Claim]:
        return judge(reported_curves(data))

    code = {"claims": judged, "tables": comparison.accuracy_tables({})} | code
    return DECLARED.figure(
        name,
        differences=differences,
        **compared(arms, draw=draw or _draw_curves, targets=claims.TARGETS, **code),
    )


def _draw_curves(data: Data) -> Picture:
    return convergence(reported_curves(data), xlabel="round", extremes=False)


def _printed(
    numbers: Mapping[str, Mapping[str, Any]], form: str
) -> Callable[[Data], Sequence[Table]]:
    """Return a function that makes tables with the paper's numbers, by title and label."""
    known = {
        title: {label: value for label, value in row.items() if value is not None}
        for title, row in numbers.items()
    }
    return comparison.accuracy_tables(each_arm(known, lambda label, value: form.format(value)))


def _draw_accuracies(paper: Mapping[str, Mapping[str, float | None]]) -> Callable[[Data], Picture]:
    """Return a function that draws accuracies with the paper's, by title and label."""

    def draw(data: Data) -> Picture:
        accuracies = each_arm(reported_curves(data), lambda label, curve: final(curve))
        return dots(accuracies, xlabel="test accuracy, %", paper=paper)

    return draw


_TABLE_1 = by_title(claims.ACCURACIES)
_MEANS = each_arm(_TABLE_1, lambda label, cell: cell[0])
_CELLS = comparison.accuracy_tables(
    each_arm(_TABLE_1, lambda label, cell: f"{cell[0]:.2f} ± {cell[1]:.2f}")
)
_DEVICES = claims.UNEQUAL_NUMBERS | {
    title + EQUAL: _MEANS[title] for title in claims.UNEQUAL_NUMBERS
}

PAPER = DECLARED.paper(
    (
        _figure("tab01", tab01, claims.tab01, draw=_draw_accuracies(_MEANS), tables=_CELLS),
        _figure("fig02", tab01, claims.fig02, tables=_CELLS),
        _figure(
            "tab02",
            tab02,
            claims.fig02,
            draw=comparison.draw_rounds(claims.ROUNDS),
            claims=lambda data: claims.tab02(reported_curves(data), data["targets"]),
            tables=comparison.rounds_tables(claims.ROUNDS, claims.TARGETS),
        ),
        _figure(
            "tab03",
            tab03,
            claims.tab03,
            draw=_draw_accuracies(_DEVICES),
            tables=_printed(_DEVICES, "{:.2f}"),
        ),
        _figure(
            "tab04",
            tab04,
            claims.tab04,
            draw=_draw_accuracies(claims.ABLATION_NUMBERS),
            tables=_printed(claims.ABLATION_NUMBERS, "{:.2f}"),
        ),
        _figure("fig03a", fig03a, claims.fig03a),
        _figure("fig03b", fig03b, claims.fig03b),
    ),
    comparison.TERMS,
)
