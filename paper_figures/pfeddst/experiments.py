"""The training runs of PFedDST's figures, by panel and arm."""

from ..kit.figure import Arms
from ..kit.personalization.arms import arm, splits_of
from ..kit.setting import Setting
from .settings import LABELS, OURS, TITLES


def all_methods(setting: Setting, *titles: str) -> Arms:
    """Return all methods on some splits."""
    return {
        title: {label: arm(setting, title, label) for label in LABELS}
        for title in splits_of(setting, *titles)
    }


def tab01(setting: Setting) -> Arms:
    """Return the arms of all methods on all splits, including MNIST's where a scale has it."""
    return all_methods(setting, *TITLES)


def pfeddst_alone(setting: Setting) -> Arms:
    """Return PFedDST alone, on all splits."""
    return {title: {OURS: arm(setting, title, OURS)} for title in splits_of(setting, *TITLES)}
