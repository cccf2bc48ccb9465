"""The training runs of DFedPGP's tables and figures, by panel and arm."""

from ..kit.curves import Panels
from ..kit.figure import Arms
from ..kit.personalization.arms import arm, scale_of, splits_of, targets_by_rule
from ..kit.personalization.settings import ADDED
from ..kit.setting import Setting
from .printed_numbers import TARGETS
from .settings import ABLATED, ABLATION, DEVICES, EQUAL, STUDIED, TABLE_1, unequal


def tab01(setting: Setting) -> Arms:
    """Return the arms of all methods on all splits."""
    return {
        title: {label: arm(setting, title, label) for label in TABLE_1}
        for title in splits_of(setting)
    }


def tab02(setting: Setting) -> Arms:
    """Return the arms of table 1 on splits that have a target or that the paper lacks."""
    return {title: arms for title, arms in tab01(setting).items() if title in {**TARGETS, **ADDED}}


def tab03(setting: Setting) -> Arms:
    """Return arms whose clients train for unequal epochs, and those of table 1 for comparison."""
    scale = scale_of(setting)
    epochs = unequal(scale.devices, scale.clients)
    panels = {}
    for title in splits_of(setting, *ABLATED):
        panels[title] = {label: arm(setting, title, label, epochs=epochs) for label in DEVICES}
        panels[title + EQUAL] = {label: arm(setting, title, label) for label in DEVICES}
    return panels


def tab04(setting: Setting) -> Arms:
    """Return arms that exchange whole models or bodies over undirected or directed graphs."""
    return {
        title: {k: arm(setting, title, k) for k in ABLATION}
        for title in splits_of(setting, *ABLATED)
    }


def fig03a(setting: Setting) -> Arms:
    """Return DFedPGP with several numbers of neighbors."""
    counts = scale_of(setting).neighbor_counts
    arms = {f"{k} neighbors": arm(setting, STUDIED, "DFedPGP", neighbors=k) for k in counts}
    return dict.fromkeys(splits_of(setting, STUDIED), arms)


def fig03b(setting: Setting) -> Arms:
    """Return DFedPGP with several numbers of clients that share the same images."""
    scale = scale_of(setting)
    arms = {
        f"{n} clients": arm(
            setting, STUDIED, "DFedPGP", clients=n, neighbors=min(scale.neighbors, n - 1)
        )
        for n in scale.client_counts
    }
    return dict.fromkeys(splits_of(setting, STUDIED), arms)


def targets(scale: str, panels: Panels) -> dict[str, float]:
    """Return the target accuracies in %: the paper's, or by rule at other scales."""
    if scale == "paper":
        return {title: TARGETS[title] for title in panels}
    return targets_by_rule(panels)
