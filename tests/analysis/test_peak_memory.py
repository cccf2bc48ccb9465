"""Predicted memory beside that of a real process."""

import sys

import pytest

from analysis.peak_memory import SETTINGS, MemoryCase, estimate_of, peak_of


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_peak_is_predicted_within_20_percent():
    sizes = {"shape": (1, 28, 28), "examples": 14_000}
    setting = MemoryCase("logistic_regression", 100, 128, "auto", clique_averaging=True, **sizes)
    assert estimate_of(setting).added == pytest.approx(peak_of(setting), rel=0.2)


def test_labels_tell_settings_apart():
    assert len({setting.label for setting in SETTINGS}) == len(SETTINGS)
