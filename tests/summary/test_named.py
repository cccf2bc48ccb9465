"""Runs by name: which ones may be averaged, and which are refused as in lists."""

from functools import cache

import numpy as np
import pytest
from torch import nn

import topofl
from tests.summary.samples import stored
from topofl import algorithms, data, mixing, models, topologies

DIGITS = data.digits()


@cache
def run(lr=0.1, *, seed=0, alpha=1.0, of_data=0, hidden=None, rounds=2, weights=None):
    """Return a short run on four nodes."""
    clients = data.dirichlet_per_client(DIGITS, n=4, alpha=alpha, seed=of_data)
    layers = models.logistic_regression(64)
    if hidden is not None:
        layers = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Linear(hidden, 10))
    return topofl.run(
        algorithms.dsgd(lr=lr),
        model=layers,
        clients=clients,
        topology=topologies.ring(4),
        mixing=weights,
        rounds=rounds,
        seed=seed,
        progress=False,
    )


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"lr": 1.0}, r"algorithm.local.lr: 0.1, 1.0"),
        (
            {"alpha": 10.0},
            r"data.name: dirichlet_per_client\(digits, n=4, alpha=1\), dirichlet_per_",
        ),
        ({"hidden": 8}, r"model"),
        ({"rounds": 3}, r"run.rounds: 2, 3"),
        ({"weights": mixing.max_degree}, r"mixing.name: metropolis_hastings, max_degree"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_unlike_runs_of_a_name_are_refused(other, message, seed):
    runs = {"mine": [run(), run(**other, seed=seed)], "other": [run(), run(seed=1)]}
    expected = (
        rf"`runs\['mine'\]` must contain .* differ in .*{message}.*; give each setting a name"
    )
    with pytest.raises(ValueError, match=expected):
        topofl.summarize(runs)
    with pytest.raises(ValueError, match=expected):
        topofl.summary.plot_bands(runs)


def test_over_averages_on_purpose():
    runs = {"mine": [run(), run(lr=1.0)]}
    assert topofl.summarize(runs, over="lr").to_pandas()["runs"].tolist() == [2]


def test_stored_runs_of_a_name_are_checked_too():
    runs = [stored({"algorithm.lr": lr, "run.seed": seed}, 0.5) for seed, lr in enumerate((1, 2))]
    with pytest.raises(ValueError, match=r"`runs\['mine'\]` .* differ in algorithm.lr: 1, 2; give"):
        topofl.summarize({"mine": runs})


@pytest.mark.parametrize("count", [2, 3])
def test_copies_of_a_run_are_refused(count):
    with pytest.raises(ValueError, match=r"items 0 and 1 are the same run; leave copies out"):
        topofl.summarize({"mine": [run()] * count})
    with pytest.raises(ValueError, match=r"items 0 and 1 are the same run"):
        topofl.summarize({"a": [run.__wrapped__(), run.__wrapped__()]})
    with pytest.raises(ValueError, match=r"`runs\['b'\]` must have a different seed"):
        topofl.summarize({"a": [run(), run(seed=1)], "b": [run(), run()]})


def test_runs_without_seeds_are_paired_by_position():
    def of(final):
        scores = {"round": np.array([0]), "accuracy": np.full((1, 2), final)}
        return topofl.History({}, {"messages": [], "bytes": []}, scores, np.zeros((0, 2)))

    runs = {"ring": [of(0.5), of(0.6)], "star": [of(0.7), of(0.9)]}
    frame = topofl.summarize(runs, baseline="ring").to_pandas()
    assert frame["pairs"].tolist() == [0, 2]
    assert frame["minus ring"][1] == pytest.approx(0.25)
    with pytest.raises(ValueError, match=r"items 0 and 1 are the same run"):
        topofl.summarize({"ring": [runs["ring"][0]] * 2})


def test_names_that_differ_in_several_settings_say_so():
    runs = {"slow": [run()], "fast": [run(lr=1.0)], "both": [run(lr=1.0, alpha=10.0)]}
    notes = topofl.summarize(runs).notes
    assert "groups differ in algorithm.local.lr, data.name" in notes or (
        "groups differ in algorithm.local.lr, data" in notes
    )
    del runs["both"]
    assert not [note for note in topofl.summarize(runs).notes if "differ" in note]
