"""Values of tables: clocks, tasks, custom functions, schedules, attackers and None."""

import sys
import textwrap
import tomllib

import numpy as np
import pytest

from tests.config.example import tables
from topofl import algorithms, attacks, clocks, config

CLOCKS = {
    "table": {
        "clock": {
            "compute": "exponential([1, 1, 1, 1, 5])",
            "delay": "lognormal(mean=0.1, sigma=0.5)",
        }
    },
    "text": {"clock": "Clock(exponential([1, 1, 1, 1, 5]), delay=lognormal(0.1, 0.5))"},
}


@pytest.mark.parametrize("how", ["ad_psgd", "random_walks", "timed"])
@pytest.mark.parametrize("written", CLOCKS)
def test_clocks_are_written_as_text_and_repeated(written, how):
    clock = clocks.Clock(clocks.exponential([1, 1, 1, 1, 5]), clocks.lognormal(0.1, 0.5))
    if how == "timed":
        table = {"name": "topofl.algorithms:timed", "algorithm": {"name": "dsgd", "lr": 0.1}}
        wanted = algorithms.timed(algorithms.dsgd(0.1), clock)
    else:
        table, wanted = {"name": how, "lr": 0.1}, getattr(algorithms, how)(0.1, clock=clock)
    small = {
        "data": {"name": "digits", "n": 5, "seed": 0},
        "topology": "ring",
        "run": {"rounds": 2, "seed": 0},
    }
    experiment = config.build(small | {"algorithm": table | CLOCKS[written]})
    assert experiment.algorithm.settings == wanted.settings
    history = experiment.run()
    text = config.dumps(experiment.tables_of(history))
    repeated = config.build(tomllib.loads(text)).run()
    np.testing.assert_array_equal(history["simulated_seconds"], repeated["simulated_seconds"])
    assert len(set(np.diff(history["simulated_seconds"], prepend=0))) == 2


def test_the_documented_clock_can_be_built():
    example = config.__doc__.partition("Arguments of methods that are objects")[2].partition(
        "On the command line this is"
    )[0]
    written = tomllib.loads(textwrap.dedent(example.partition("::")[2]))
    small = {
        "data": {"name": "digits", "n": 5, "seed": 0},
        "topology": "ring",
        "run": {"rounds": 2, "seed": 0},
    }
    settings = config.build(small | written).algorithm.settings["events"]
    assert settings["clock"] == {
        "compute": "exponential(1)", "delay": "lognormal(0.1, sigma=0.5)", "bandwidth": 1e6,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (
            "ad_psgd,lr=1,clock=(compute=2)",
            r"\[algorithm\] `clock` must be such as Clock\(compute=",
        ),
        (
            {"name": "ad_psgd", "lr": 1, "clock": {"compute": "gamma(1)"}},
            r"\[algorithm\] `clock\.compute` must be such as 1",
        ),
        (
            {"name": "topofl.algorithms:timed", "algorithm": "dsgdd,lr=1"},
            r"\[algorithm\] `algorithm`: .*dsgd",
        ),
        (
            {"name": "topofl.algorithms:timed", "algorithm": 3},
            r"\[algorithm\] `algorithm` must be an Algorithm",
        ),
    ],
    ids=["another form", "no distribution", "no such method", "no method"],
)
def test_mistakes_in_clocks_are_named(algorithm, message):
    with pytest.raises((TypeError, ValueError), match=message):
        config.build(tables(algorithm=algorithm))


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """Make a module with a task and a stage of evaluations that Python finds."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "owntask_", raising=False)
    (tmp_path / "owntask_.py").write_text(OWN)
    yield
    sys.modules.pop("owntask_", None)


OWN = """
from topofl import tasks

def halved(weight=0.5, scores=("accuracy",)):
    base = tasks.classification(scores)
    return tasks.Task("halved", \
lambda outputs, targets: weight * base.loss(outputs, targets), base.scores)

def no_task():
    return 3

def mean(models, round):
    return models.flat.mean(0).expand(round.n, -1)

def length(models, round):
    return models.flat.norm(dim=1)
"""


def test_tasks_are_configured_and_repeated(tmp_path):
    experiment = config.build(tables(task={"name": "classification", "scores": ["accuracy", "f1"]}))
    history = experiment.run()
    assert list(history.scores) == ["accuracy", "f1", "loss"]
    (tmp_path / "again.toml").write_text(config.dumps(experiment.tables_of(history)))
    again = config.load(tmp_path / "again.toml")
    assert (
        again.tables["task"]
        == experiment.tables["task"]
        == {"name": "classification", "scores": ["accuracy", "f1"]}
    )
    np.testing.assert_array_equal(again.run()["f1"], history["f1"])


def test_tasks_may_be_a_users_own(own_module):
    experiment = config.build(tables(task="owntask_:halved,weight=0.25"))
    assert experiment.tables["task"] == {
        "name": "owntask_:halved",
        "weight": 0.25,
        "scores": ["accuracy"],
    }
    plain = config.build(tables()).run()["loss"]
    np.testing.assert_allclose(experiment.run()["loss"][0], 0.25 * plain[0], rtol=1e-6)


def test_own_stages_are_configured_and_repeated(own_module, tmp_path):
    experiment = config.build(
        tables(evaluation={"every": 1, "also": {"ensemble": "owntask_:mean"}})
    )
    history = experiment.run()
    assert experiment.tables["evaluation"]["also"] == {"ensemble": "owntask_:mean"}
    (tmp_path / "again.toml").write_text(config.dumps(experiment.tables))
    again = config.load(tmp_path / "again.toml").run()
    np.testing.assert_array_equal(again["accuracy_ensemble"], history["accuracy_ensemble"])


def test_columns_of_values_per_node_are_configured_and_repeated(own_module, tmp_path):
    (tmp_path / "first.toml").write_text(
        config.dumps(
            tables() | {"evaluation": {"every": 1, "per_node": {"own": "owntask_:length"}}}
        )
    )
    experiment = config.load(tmp_path / "first.toml")
    history = experiment.run()
    np.testing.assert_allclose(
        history["own"][-1], history.models.flat.norm(dim=1).numpy(), rtol=1e-6
    )
    assert experiment.tables["evaluation"]["per_node"] == {"own": "owntask_:length"}
    (tmp_path / "again.toml").write_text(config.dumps(experiment.tables_of(history)))
    again = config.load(tmp_path / "again.toml").run()
    np.testing.assert_array_equal(again["own"], history["own"])


BAD_OWN = {
    "no task": (
        {"task": "clasification"},
        r"\[task\] there is no task 'clasification'; did you mean 'classification'",
    ),
    "no score": ({"task": "classification,scores=[f2]"}, r"\[task\] .*f2"),
    "no such key": (
        {"task": "classification,score=f1"},
        r"\[task\] `classification` takes scores, not 'score'",
    ),
    "another kind": (
        {"task": "owntask_:no_task"},
        r"\[task\] `owntask_:no_task` must return a Task, got 3",
    ),
    "no targets": ({"task": "regression"}, "`targets` must be of the shape of the model's outputs"),
    "no stage": (
        {"evaluation": {"also": {"a": "owntask_:men"}}},
        "there is no evaluation 'owntask_:men'",
    ),
    "no colon": ({"evaluation": {"also": {"a": "mean"}}}, r"must be module:function"),
    "a number": (
        {"evaluation": {"also": {"a": 3}}},
        r"\[evaluation\] `also` must name functions, as in .*, got 3",
    ),
    "no table": ({"evaluation": {"also": "mean"}}, r"\[evaluation\] `also` must be a dictionary"),
    "no column": (
        {"evaluation": {"per_node": {"a": "owntask_:men"}}},
        "there is no evaluation 'owntask_:men'",
    ),
    "a column of numbers": (
        {"evaluation": {"per_node": {"a": 3}}},
        r"\[evaluation\] `per_node` must name functions, as in .*, got 3",
    ),
}


@pytest.mark.parametrize("case", BAD_OWN)
def test_tasks_and_stages_that_cannot_be_had_are_refused(own_module, case):
    changes, message = BAD_OWN[case]
    with pytest.raises((ValueError, TypeError), match=message):
        config.build(tables(**changes))


def saved_and_loaded(experiment, tmp_path):
    """Return the experiment that the saved configuration of another one describes."""
    (tmp_path / "saved.toml").write_text(config.dumps(experiment.tables))
    return config.load(tmp_path / "saved.toml")


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("per_fedavg,lr=0.1,fine_tune_epochs=none", "fine_tune_epochs"),
    ],
)
def test_none_in_place_of_a_default_is_saved(tmp_path, algorithm, key):
    experiment = config.build(tables(algorithm=algorithm, topology=None))
    assert experiment.tables["algorithm"][key] == "none"
    again = saved_and_loaded(experiment, tmp_path)
    assert again.tables == experiment.tables
    assert again.algorithm.settings == experiment.algorithm.settings
    default = algorithm.replace(f",{key}=none", "")
    assert (
        config.build(tables(algorithm=default, topology=None)).algorithm.settings
        != experiment.algorithm.settings
    )


def test_none_is_none_except_where_an_argument_takes_text():
    settings = {"name": "pfeddst", "lr": 0.1, "head": "head.bias"}
    settings |= {"clip": "none", "loss_refresh": "none"}
    for written in (settings, "pfeddst,lr=0.1,head=head.bias,clip=none,loss_refresh=none"):
        experiment = config.build(tables(algorithm=written, topology=None))
        assert experiment.tables["algorithm"]["loss_refresh"] == "none"
        assert experiment.tables["algorithm"]["clip"] is None
    assert config.dumps({"a": {"b": [None, 1]}}) == '[a]\nb = ["none", 1]\n'


def test_a_table_is_removed_by_none():
    with_attack = tables(attackers={"name": "sign_flip", "nodes": [1]})
    assert config.build(with_attack).attackers is not None
    assert "attackers" not in config.override(with_attack, ["attackers=none"])
    assert config.build(with_attack | {"attackers": "none"}).attackers is None
    assert config.override({"attackers": "none"}, ["attackers.name=noise"]) == {
        "attackers": {"name": "noise"}
    }


def test_attackers_may_be_drawn(tmp_path):
    experiment = config.build(tables(attackers="sign_flip,share=0.2,seed=3,scale=2"))
    assert experiment.attackers.nodes == attacks.drawn(10, 0.2, seed=3)
    assert experiment.tables["attackers"] == {
        "name": "sign_flip", "share": 0.2, "seed": 3, "scale": 2,
    }  # fmt: skip
    again = saved_and_loaded(experiment, tmp_path)
    assert again.attackers.nodes == experiment.attackers.nodes
    with pytest.raises(ValueError, match=r"\[attackers\] `share` must be given without `nodes`"):
        config.build(tables(attackers="sign_flip,share=0.2,nodes=[1]"))
    with pytest.raises(ValueError, match=r"\[attackers\] `share` must give .* of n=10"):
        config.build(tables(attackers="sign_flip,share=0.001"))


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "dsgd", "lr": "cosine(0.5, rounds=300)"},
        "dsgd,lr=cosine(0.5, rounds=300)",
    ],
)
def test_learning_rates_may_be_schedules(tmp_path, algorithm):
    experiment = config.build(tables(algorithm=algorithm))
    wanted = algorithms.dsgd(algorithms.cosine(0.5, rounds=300))
    assert experiment.algorithm.settings == wanted.settings
    assert saved_and_loaded(experiment, tmp_path).algorithm.settings == wanted.settings
    with pytest.raises(ValueError, match=r"\[algorithm\] `rounds` must be at least 1, got 0"):
        config.build(tables(algorithm="dsgd,lr=cosine(0.5, rounds=0)"))


def test_compressors_may_be_a_users_own(tmp_path, monkeypatch):
    (tmp_path / "owncompressor_.py").write_text(
        "from topofl.algorithms import top_k\ndef kept(share):\n    return top_k(share)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    changes = {"mixing": "metropolis_hastings"}
    own = config.build(
        tables(
            algorithm="deepsqueeze,lr=0.1,gamma=0.5,compressor=owncompressor_:kept(0.5)", **changes
        )
    )
    ours = config.build(
        tables(algorithm="deepsqueeze,lr=0.1,gamma=0.5,compressor=top_k(0.5)", **changes)
    )
    assert own.algorithm.settings == ours.algorithm.settings
    assert saved_and_loaded(own, tmp_path).algorithm.settings == ours.algorithm.settings


def test_timed_methods_are_named_as_others():
    experiment = config.build(
        tables(algorithm={"name": "timed", "algorithm": "dsgd,lr=0.1", "clock": {"compute": 2}})
    )
    assert "clock" in experiment.algorithm.phases
