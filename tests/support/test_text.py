"""Times in words, suggestions for misspelled words, checks of paths, and progress bars.

Bars are on terminals, after some seconds, and gone at the end.
"""

import io
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from topofl import algorithms, metrics, mixing, topologies
from topofl._support import notebook
from topofl._support.check import check_path
from topofl._support.text import approximate, did_you_mean, nearest


def test_predicted_times_have_their_two_largest_units():
    words_of = {
        **{0.4: "less than a second", 5: "about 5 s", 59.7: "about 1 min", 125: "about 2 min 5 s"},
        **{3600: "about 1 h", 3605: "about 1 h", 3660: "about 1 h 1 min", 100_000: "about 1 d 3 h"},
    }
    assert {seconds: approximate(seconds) for seconds in words_of} == words_of


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("dsdg", algorithms.__all__, "dsgd"),
        ("metropolis", mixing.__all__, "metropolis_hastings"),
        ("DSGD", algorithms.__all__, "dsgd"),
        ("d_cliques", topologies.__all__, "dcliques"),
        ("spectral", metrics.__all__, "spectral_gap"),
        ("clique_sz", ["n", "clique_size", "cliques"], "clique_size"),
        ("batchsize", ["lr", "batch_size", "local_steps"], "batch_size"),
        ("topology.nme", ["topology.n", "topology.name"], "topology.name"),
        ("zzqx", algorithms.__all__, None),
        ("n", ["n_classes"], None),  # one letter begins too many words
    ],
)
def test_the_word_that_was_meant_is_suggested(word, known, meant):
    assert nearest(word, known) == meant
    assert did_you_mean(word, known) == (f"; did you mean {meant!r}?" if meant else "")


@pytest.mark.parametrize("name", algorithms.__all__)
def test_two_letters_that_change_places_give_the_word_back(name):
    for place in range(len(name) - 1):
        word = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
        if word not in algorithms.__all__:
            assert sorted(nearest(word, algorithms.__all__) or "") == sorted(name)


def test_a_path_of_any_bytes_is_one():
    assert check_path("path", "a\udcff") == Path("a\udcff")


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


@pytest.mark.slow
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
