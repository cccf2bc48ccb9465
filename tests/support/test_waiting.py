"""Progress bars of long computations: on terminals, after some seconds, gone at the end."""

import io
import sys
import time
from importlib import import_module

import numpy as np
import pytest

from topofl import metrics, topologies
from topofl._support import notebook


class Terminal(io.StringIO):
    def isatty(self):
        return True


def written(file, patience, monkeypatch):
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(notebook, "PATIENCE", patience)
    for _ in notebook.waited_for(range(3), "graphs", "graph"):
        time.sleep(0.15)  # bars are drawn ten times a second
    return file.getvalue()


def test_a_bar_is_shown_on_a_terminal_from_the_fifth_second_on(monkeypatch):
    assert notebook.PATIENCE == 5
    text = written(Terminal(), 1e-9, monkeypatch)
    assert "graphs: " in text
    assert text.endswith("\r")  # nothing is left


@pytest.mark.parametrize(("file", "patience"), [(Terminal, 600.0), (io.StringIO, 1e-9)])
def test_no_bar_is_shown_before_and_elsewhere(file, patience, monkeypatch):
    assert written(file(), patience, monkeypatch).strip("\r") == ""


def test_graphs_are_compared_and_recommended_with_a_bar(monkeypatch):
    shown = []

    def recorded(items, title, unit):
        shown.append((title, unit))
        return iter(items)

    for module in ("topofl.metrics.compare", "topofl.advice.recommend"):
        monkeypatch.setattr(import_module(module), "waited_for", recorded)
    metrics.compare([topologies.ring(12)])
    topologies.recommend(np.eye(12, 3, dtype=int) + 1, max_degree=2)
    assert shown == [("metrics", "value"), ("candidates", "graph")]
