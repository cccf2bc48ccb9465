"""The training runs of DPFL's tables and figures, by panel and arm."""

from collections.abc import Callable, Mapping
from typing import Any

from ..kit.setting import Setting
from .arms import Arm, arm, scale_of, split, splits_of
from .methods import BASELINES, budget_label, collaborating, of_budget
from .settings import DIR, PATHO, Scale

Arms = Mapping[str, Mapping[str, Arm]]


def budgets_by_label(scale: Scale) -> dict[str, int | None]:
    """Return budgets by label, largest first."""
    return {
        budget_label(share): budget
        for share, budget in zip(scale.shares, scale.budgets, strict=True)
    }


def tab01(setting: Setting, *titles: str) -> Arms:
    """Return the arms of all methods, on the given splits or on all."""
    panels = {}
    for title in splits_of(setting, *titles):
        scale = scale_of(setting).of(split(title).dataset)
        ours = {label: of_budget(budget) for label, budget in budgets_by_label(scale).items()}
        panels[title] = {
            label: arm(setting, title, method) for label, method in {**BASELINES, **ours}.items()
        }
    return panels


def tab02(setting: Setting) -> Arms:
    """Return the arms of DPFL with several numbers of epochs in the first round."""
    scale = scale_of(setting)
    return {
        title: {
            f"{label}; {epochs}": arm(
                setting,
                title,
                of_budget(
                    budget, **({} if epochs == 2 * scale.epochs else {"first_epochs": epochs})
                ),
            )
            for epochs in scale.first_epochs
            for label, budget in budgets_by_label(scale).items()
        }
        for title in splits_of(setting, PATHO)
    }


def tab03(setting: Setting) -> Arms:
    """Return the arms of DPFL with several refresh periods."""
    scale = scale_of(setting)
    return {
        title: {
            f"{label}; {every}": arm(
                setting, title, of_budget(budget, **({} if every == 1 else {"every": every}))
            )
            for every in scale.periods
            for label, budget in budgets_by_label(scale).items()
        }
        for title in splits_of(setting, DIR)
    }


def fig03(setting: Setting) -> Arms:
    """Return the arms of DPFL and of random graphs, for every finite budget."""
    budgets = {
        label: budget
        for label, budget in budgets_by_label(scale_of(setting)).items()
        if budget is not None
    }
    arms = {}
    for title in splits_of(setting, DIR):
        arms[title] = {
            label: arm(setting, title, of_budget(budget)) for label, budget in budgets.items()
        }
        arms[title] |= {
            f"{k}, random": arm(setting, title, collaborating(budget))
            for k, budget in budgets.items()
        }
    return arms


def learned(setting: Setting) -> Arms:
    """Return the arms of DPFL with every budget, whose learned graphs are shown."""
    return {
        title: {label: panel[label] for label in budgets_by_label(scale_of(setting))}
        for title, panel in tab01(setting, DIR).items()
    }


def flips(setting: Setting, *, idle: bool) -> Arms:
    """Return the arms of DPFL with flipped labels of some clients, which only send if idle."""
    return {
        title: {"DPFL": arm(setting, title, of_budget(None), flips=True, idle=idle)}
        for title in splits_of(setting, DIR)
    }


def runs_of(arms: Arms) -> list[Any]:
    """Return all training runs of the given arms."""
    return [run for panel in arms.values() for one in panel.values() for run in one.runs]


def learned_with(*places: int) -> Callable[[Setting], Arms]:
    """Return a function that selects budgets by position, or the smallest if there are fewer."""

    def arms(setting: Setting) -> Arms:
        labels = list(budgets_by_label(scale_of(setting)))
        wanted = {labels[min(place, len(labels) - 1)] for place in places}
        return {
            title: {label: one for label, one in panel.items() if label in wanted}
            for title, panel in learned(setting).items()
        }

    return arms


def malicious_senders(setting: Setting) -> Arms:
    """Return the arms of DPFL with malicious clients that only send."""
    return flips(setting, idle=True)


def malicious_choosers(setting: Setting) -> Arms:
    """Return the arms of DPFL with malicious clients that also choose peers."""
    return flips(setting, idle=False)
