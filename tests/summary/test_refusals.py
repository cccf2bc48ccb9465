"""Summaries of wrong runs, or with wrong arguments, are refused."""

from dataclasses import replace

import pytest

import topofl
from tests.summary.samples import runs_of, stored


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "topolgy"}, r"`by` must name settings .* got 'topolgy'; did you mean 'topology'"),
        ({"by": ["alfa"]}, r"`by` must name settings .* got 'alfa'; did you mean 'alpha'"),
        ({"by": "name"}, r"'name' may be any of data.name, topology.name; give the full name"),
        ({"over": "alfa"}, r"`over` must name settings of the runs, got 'alfa'"),
        ({"column": "acuracy"}, r"`column` must be one of 'accuracy', got 'acuracy'; did you mean"),
        ({"baseline": "rong"}, r"`baseline` must be among the groups, .* 'rong'; did you mean 'ri"),
        ({"baseline": {"topolgy": "ring"}}, r"`baseline` must have settings of `by`, topology"),
        ({"baseline": {"topology": "rong"}}, r"`baseline` must have a value of topology, ring, st"),
        ({"baseline": {}}, r"`baseline` must have a value of at least one setting, got \{\}"),
        ({"baseline": {1: "ring"}}, r"`baseline` must have settings of `by`, topology, got 1"),
        ({"target": 80}, r"`target` must be between 0 and 1, got 80"),
        ({"target": float("nan")}, r"`target` must be between 0 and 1, got nan"),
    ],
)
def test_wrong_values_are_refused(arguments, message):
    runs = runs_of(topology=["ring", "star"])
    with pytest.raises(ValueError, match=message):
        topofl.summarize(runs, **{"by": "topology"} | arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": 3}, "`by` must be the name of a setting or a list of names, got 3"),
        ({"by": [3]}, "`by` must contain names of settings, got 3"),
        ({"column": 3}, "`column` must be the name of a score, got 3"),
        ({"target": "much"}, "`target` must be a number, got 'much'"),
        ({"runs": 3}, "`runs` must be runs of a sweep .* got 3"),
        ({"runs": [3]}, "`runs` must be runs of a sweep .* got an item 3"),
        ({"runs": {"a": 3}}, r"`runs\['a'\]` must be a History or a list of them, got 3"),
        ({"runs": {"a": [3]}}, r"`runs\['a'\]` must contain histories, got 3"),
    ],
)
def test_wrong_types_are_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        topofl.summarize(**{"runs": runs_of()} | arguments)


@pytest.mark.parametrize("runs", [[], {}, (), {"ring": []}])
def test_no_runs_are_refused(runs):
    with pytest.raises(ValueError, match="`runs` must contain at least one finished run, got none"):
        topofl.summarize(runs)


def test_a_value_of_two_settings_is_no_baseline():
    runs = [stored({"data.a": a, "data.b": b, "run.seed": 0}, 0.5) for a in (1, 2) for b in (2, 3)]
    with pytest.raises(ValueError, match=r"2 is a value of a and b; give \{'a': 2\}"):
        topofl.summarize(runs, by=["a", "b"], baseline=2)


def test_groups_that_do_not_exist_are_no_baseline():
    runs = runs_of(topology=["ring"], alpha=[0.1]) + runs_of(topology=["star"], alpha=[1.0])
    with pytest.raises(ValueError, match=r"`baseline` must be a group, no runs have .* together"):
        topofl.summarize(
            runs, by=["topology", "alpha"], baseline={"topology": "ring", "alpha": 1.0}
        )


def test_pairing_needs_seeds_in_common():
    runs = [
        stored({"topology.name": name, "run.seed": seed}, 0.5)
        for name, seeds in (("ring", (0, 1)), ("star", (2, 3)))
        for seed in seeds
    ]
    with pytest.raises(
        ValueError,
        match=r"`baseline` must have seeds in common .* ring has run.seed 0, 1, star has",
    ):
        topofl.summarize(runs, by="topology", baseline="ring")


def test_runs_that_lack_the_score_are_named():
    runs = runs_of(topology=["ring"]) + runs_of(topology=["star"], low_is_good=True)
    with pytest.raises(ValueError, match=r"3 of 6 lack 'accuracy' \(.*no score is in all runs"):
        topofl.summarize(runs)


def test_a_run_under_two_names_is_refused():
    run = topofl.run(
        topofl.algorithms.dsgd(0.1),
        model=topofl.models.logistic_regression(64),
        clients=topofl.data.shards(topofl.data.digits(), n=4, per_node=2, seed=0),
        topology=topofl.topologies.ring(4),
        rounds=1,
        seed=0,
        progress=False,
    )
    message = "`runs` must have different runs under each name, got the same one under 'a' and 'b'"
    for other in (run, replace(run, meta=dict(run.meta))):
        with pytest.raises(ValueError, match=message):
            topofl.summarize({"a": [run], "b": [other]})
    topofl.summarize({"a": [run], "b": [replace(run, meta={**run.meta, "seed": 1})]})


def test_copies_are_refused():
    runs = runs_of()
    with pytest.raises(ValueError, match=r"must differ in a setting or a seed, .* \(1 such run\)"):
        topofl.summarize([*runs, runs[0]])


def test_missing_folders_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        topofl.summarize(tmp_path / "none")
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(FileNotFoundError, match="has no history; finish it with topofl resume"):
        topofl.summarize(tmp_path)
