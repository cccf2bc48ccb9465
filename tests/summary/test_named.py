"""Runs by name: which ones may be averaged, and which are refused as in lists."""

import numpy as np
import pytest

import topofl
from tests.summary.samples import DIGITS, older
from tests.summary.samples import of_name as run
from topofl import algorithms, data, models, topologies


def test_over_averages_on_purpose():
    runs = {"mine": [run(), run(lr=1.0)]}
    assert topofl.summarize(runs, over="lr").to_pandas()["runs"].tolist() == [2]


def test_runs_without_seeds_are_paired_by_position():
    def of(final):
        scores = {"round": np.array([0]), "accuracy": np.full((1, 2), final)}
        return topofl.History({}, {"messages": [], "bytes": []}, scores, np.zeros((0, 2)))

    runs = {"ring": [of(0.5), of(0.6)], "star": [of(0.7), of(0.9)]}
    frame = topofl.summarize(runs, baseline="ring").to_pandas()
    assert frame["pairs"].tolist() == [0, 2]
    assert frame["minus ring"][1] == pytest.approx(0.25)


def test_names_that_differ_in_several_settings_say_so():
    runs = {"slow": [run()], "fast": [run(lr=1.0)], "both": [run(lr=1.0, alpha=10.0)]}
    notes = topofl.summarize(runs).notes
    assert "groups differ in algorithm.local.lr, data.name" in notes or (
        "groups differ in algorithm.local.lr, data" in notes
    )
    del runs["both"]
    assert not [note for note in topofl.summarize(runs).notes if "differ" in note]


def test_histories_say_which_partition_they_had():
    one, same, other = (run(of_data=k).meta["partition"] for k in (0, 0, 1))
    assert one == same
    assert (one["seed"], other["seed"]) == (0, 1)
    assert one["members"] != other["members"]
    assert run(seed=1).meta["partition"] == one


def test_partitions_count_as_seeds():
    runs = [run(), run(of_data=1)]
    for given in (runs, {"mine": runs}):
        summary = topofl.summarize(given)
        assert summary.to_pandas()["runs"].tolist() == [2]
        assert summary.notes[0].endswith("averaged over data.seed")
    both = topofl.summarize({"mine": [run(seed=k, of_data=k) for k in range(2)]})
    assert both.notes[0].endswith("averaged over data.seed, run.seed") or (
        both.notes[0].endswith("averaged over run.seed, data.seed")
    )


def test_partitions_of_unknown_seeds_are_told_apart_by_their_members():
    def of(first, seed=0):
        nodes = np.split(DIGITS.train[first : first + 200], 4)
        return topofl.run(
            algorithms.dsgd(lr=0.1),
            model=models.logistic_regression(64),
            clients=data.Partition(DIGITS, nodes),
            topology=topologies.ring(4),
            rounds=1,
            seed=seed,
            progress=False,
        )

    runs = [of(0), of(200)]
    for given in (runs, {"mine": runs}):
        assert topofl.summarize(given).notes[0].endswith("averaged over partitions of the data")
    with pytest.raises(ValueError, match=r"must have seeds in common .* data.members"):
        topofl.summarize({"a": [of(0), of(0, 1)], "b": [of(200), of(200, 1)]}, baseline="a")


def test_runs_on_unequal_data_are_no_pairs():
    runs = {
        "a": [run(), run(seed=1)],
        "b": [run(of_data=5, lr=1.0), run(of_data=5, lr=1.0, seed=1)],
    }
    assert "groups also differ in data.seed" not in topofl.summarize({"a": runs["a"]}).notes
    assert "groups also differ in data.seed" in topofl.summarize(runs).notes
    runs["b"] = [run(lr=1.0, of_data=k, seed=k) for k in (0, 5)]
    assert topofl.summarize(runs, baseline="a").to_pandas()["pairs"].tolist() == [0, 1]


def test_partitions_of_other_arguments_correspond_by_their_seeds():
    runs = {f"{a:g}": [run(alpha=a, seed=k, of_data=k) for k in range(2)] for a in (1.0, 10.0)}
    assert topofl.summarize(runs, baseline="1").to_pandas()["pairs"].tolist() == [0, 2]


def test_older_histories_are_summarized():
    runs = [older(run()), older(run(of_data=1))]
    summary = topofl.summarize({"mine": runs})  # in a list they seem to be copies
    assert summary.to_pandas()["runs"].tolist() == [2]
    assert summary.notes[0].endswith("averaged over runs of unknown seeds")
    mixed = topofl.summarize({"new": [run(), run(seed=1)], "old": [older(run(lr=1.0, seed=1))]})
    assert mixed.to_pandas()["runs"].tolist() == [2, 1]


def test_single_graphs_are_compared_whichever_seed_they_have():
    def of(graph, seed):
        meta = {"algorithm": "dsgd", "topology": graph, "clients": "iid", "seed": seed}
        scores = {"round": np.array([0]), "accuracy": np.full((1, 2), 0.5)}
        return topofl.History(meta, {"messages": [], "bytes": []}, scores, np.zeros((0, 2)))

    names = {"a": "random_regular(n=8, k=4, seed=0)", "b": "small_world(n=8, k=4, seed=1)"}
    runs = {name: [of(graph, seed) for seed in range(2)] for name, graph in names.items()}
    summary = topofl.summarize(runs, baseline="a")
    assert summary.to_pandas()["pairs"].tolist() == [0, 2]
    runs["b"] = [of(f"small_world(n=8, k=4, seed={seed})", seed) for seed in range(2)]
    assert topofl.summarize(runs, baseline="a").to_pandas()["pairs"].tolist() == [0, 1]
