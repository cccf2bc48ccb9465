"""Times in words, suggestions for misspelled words, and checks of paths."""

from pathlib import Path

import pytest

import topofl
from topofl import algorithms, metrics, mixing, topologies
from topofl._support.check import check_path
from topofl._support.text import approximate, did_you_mean, nearest


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "less than a second"),
        (5, "about 5 s"),
        (59.7, "about 1 min"),
        (125, "about 2 min 5 s"),
        (3600, "about 1 h"),
        (3605, "about 1 h"),
        (3660, "about 1 h 1 min"),
        (100_000, "about 1 d 3 h"),
    ],
)
def test_predicted_times_have_their_two_largest_units(seconds, words):
    assert approximate(seconds) == words


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


@pytest.mark.parametrize("text", ["\ud800", "runs/a\ud800b", "\ud83d\ude00"])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("path", topofl.History.load),
        ("path", topofl.callbacks.jsonl),
        ("root", topofl.data.mnist),
        ("folder", topofl.Saving),
    ],
)
def test_a_path_that_cannot_be_encoded_names_its_argument(name, call, text):
    with pytest.raises(ValueError, match=rf"`{name}` must be the path of .* names of files cannot"):
        call(text)


def test_a_path_of_any_bytes_is_one():
    assert check_path("path", "a\udcff") == Path("a\udcff")
