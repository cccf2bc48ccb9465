"""Values of tables: clocks, tasks, own functions, schedules, attackers and None; and TOML text."""

import sys
import textwrap
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows.tables import OWN, TEXT, tables
from topofl import algorithms, attacks, clocks, config

SMALL = {
    "data": {"name": "digits", "n": 5, "seed": 0},
    "topology": "ring",
    "run": {"rounds": 2, "seed": 0},
}
CLOCKS = [
    {"compute": "exponential([1, 1, 1, 1, 5])", "delay": "lognormal(mean=0.1, sigma=0.5)"},
    "Clock(exponential([1, 1, 1, 1, 5]), delay=lognormal(0.1, 0.5))",
]


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """Make a module with a task and a stage of evaluations that Python finds."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "owntask_", raising=False)
    (tmp_path / "owntask_.py").write_text(OWN)
    yield
    sys.modules.pop("owntask_", None)


@pytest.fixture
def saved_and_loaded(tmp_path):
    """Return a function that gives the experiment that saved tables describe."""

    def again(written):
        (tmp_path / "saved.toml").write_text(config.dumps(written))
        return config.load(tmp_path / "saved.toml")

    return again


@pytest.mark.parametrize("how", ["ad_psgd", "random_walks", "timed"])
@pytest.mark.parametrize("written", CLOCKS, ids=["table", "text"])
def test_clocks_are_written_as_text_and_repeated(saved_and_loaded, written, how):
    clock = clocks.Clock(clocks.exponential([1, 1, 1, 1, 5]), clocks.lognormal(0.1, 0.5))
    if how == "timed":
        table = {"name": "timed", "algorithm": {"name": "dsgd", "lr": 0.1}}
        wanted = algorithms.timed(algorithms.dsgd(0.1), clock)
    else:
        table, wanted = {"name": how, "lr": 0.1}, getattr(algorithms, how)(0.1, clock=clock)
    experiment = config.build(SMALL | {"algorithm": table | {"clock": written}})
    assert experiment.algorithm.settings == wanted.settings
    history = experiment.run()
    repeated = saved_and_loaded(experiment.tables_of(history)).run()
    np.testing.assert_array_equal(history["simulated_seconds"], repeated["simulated_seconds"])
    assert len(set(np.diff(history["simulated_seconds"], prepend=0))) == 2


def test_the_documented_clock_can_be_built():
    example = config.__doc__.partition("Arguments of methods that are objects")[2].partition(
        "On the command line this is"
    )[0]
    written = tomllib.loads(textwrap.dedent(example.partition("::")[2]))
    settings = config.build(SMALL | written).algorithm.settings["events"]
    assert settings["clock"] == {
        "compute": "exponential(1)", "delay": "lognormal(0.1, sigma=0.5)", "bandwidth": 1e6,
    }  # fmt: skip


def test_tasks_are_configured_and_repeated(own_module, saved_and_loaded):
    written = {"name": "classification", "scores": ["accuracy", "f1"]}
    experiment = config.build(tables(task=written))
    history = experiment.run()
    assert list(history.scores) == ["accuracy", "f1", "loss"]
    again = saved_and_loaded(experiment.tables_of(history))
    assert again.tables["task"] == experiment.tables["task"] == written
    np.testing.assert_array_equal(again.run()["f1"], history["f1"])
    own = config.build(tables(task="owntask_:halved,weight=0.25"))
    assert own.tables["task"] == {
        "name": "owntask_:halved", "weight": 0.25, "scores": ["accuracy"],
    }  # fmt: skip
    np.testing.assert_allclose(own.run()["loss"][0], 0.25 * history["loss"][0], rtol=1e-6)


@pytest.mark.parametrize(
    ("key", "functions", "column"),
    [
        ("also", {"ensemble": "owntask_:mean"}, "accuracy_ensemble"),
        ("per_node", {"own": "owntask_:length"}, "own"),
    ],
)
def test_own_stages_and_columns_are_configured_and_repeated(
    own_module, saved_and_loaded, key, functions, column
):
    experiment = saved_and_loaded(tables(evaluation={"every": 1, key: functions}))
    assert experiment.tables["evaluation"][key] == functions
    history = experiment.run()
    again = saved_and_loaded(experiment.tables_of(history)).run()
    np.testing.assert_array_equal(again[column], history[column])
    if column == "own":
        lengths = history.models.flat.norm(dim=1).numpy()
        np.testing.assert_allclose(history["own"][-1], lengths, rtol=1e-6)


def test_none_in_place_of_a_default_is_saved(saved_and_loaded):
    method = "per_fedavg,lr=0.1,fine_tune_epochs=none"
    experiment = config.build(tables(algorithm=method, topology=None))
    assert experiment.tables["algorithm"]["fine_tune_epochs"] == "none"
    again = saved_and_loaded(experiment.tables)
    assert again.tables == experiment.tables
    assert again.algorithm.settings == experiment.algorithm.settings
    default = config.build(tables(algorithm="per_fedavg,lr=0.1", topology=None))
    assert default.algorithm.settings != experiment.algorithm.settings


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
    changed = config.override({"attackers": "none"}, ["attackers.name=noise"])
    assert changed == {"attackers": {"name": "noise"}}


def test_attackers_may_be_drawn(saved_and_loaded):
    experiment = config.build(tables(attackers="sign_flip,share=0.2,seed=3,scale=2"))
    assert experiment.attackers.nodes == attacks.drawn(10, 0.2, seed=3)
    written = {"name": "sign_flip", "share": 0.2, "seed": 3, "scale": 2}
    assert experiment.tables["attackers"] == written
    assert saved_and_loaded(experiment.tables).attackers.nodes == experiment.attackers.nodes


@pytest.mark.parametrize("method", ["(d2,lr=0.1)", "d2,lr=0.1", "d2(lr=0.1)"])
def test_a_method_in_another_has_several_written_forms(method, saved_and_loaded):
    wanted = algorithms.timed(algorithms.d2(lr=0.1))
    experiment = config.build(tables(algorithm={"name": "timed", "algorithm": method}))
    assert experiment.algorithm.settings == wanted.settings
    assert experiment.tables["algorithm"]["algorithm"]["name"] == "d2"
    assert saved_and_loaded(experiment.tables).tables == experiment.tables


def test_learning_rates_may_be_schedules_and_compressors_a_users_own(own_module, saved_and_loaded):
    wanted = algorithms.dsgd(algorithms.cosine(0.5, rounds=300))
    for method in (
        {"name": "dsgd", "lr": "cosine(0.5, rounds=300)"},
        "dsgd,lr=cosine(0.5, rounds=300)",
    ):
        experiment = config.build(tables(algorithm=method))
        assert experiment.algorithm.settings == wanted.settings
        assert saved_and_loaded(experiment.tables).algorithm.settings == wanted.settings
    compressed = "deepsqueeze,lr=0.1,gamma=0.5,compressor="
    own, ours = (
        config.build(tables(algorithm=f"{compressed}{name}(0.5)", mixing="metropolis_hastings"))
        for name in ("owntask_:kept", "top_k")
    )
    assert own.algorithm.settings == ours.algorithm.settings
    assert saved_and_loaded(own.tables).algorithm.settings == ours.algorithm.settings


def test_tables_in_tables_of_toml():
    text = TEXT.replace(
        'name = "dcliques"\ninter = "ring"\nclique_size = 5\n',
        'name = "participation"\nfraction = 0.5\n',
    )
    text += '[topology.base]\nname = "random_in"\nk = 3\nseed = 9\n'
    graph = config.build(tomllib.loads(text)).topology
    assert graph.name == "participation(random_in(n=10, k=3, seed=9), fraction=0.5, seed=2)"


AD_PSGD = {"name": "ad_psgd", "lr": 0.1, "clock": {"compute": "exponential([1, 2])"}}


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({"a": 1, "run": {"rounds": 1}}, [], {"a": 1, "run": {"rounds": 1}}),
        ({}, ["run.rounds = 5", "run.seed=1"], {"run": {"rounds": 5, "seed": 1}}),
        ({"run": {"rounds": 1}}, ["run.rounds=5"], {"run": {"rounds": 5}}),
        ({"topology": {"name": "ring"}}, ["topology=star"], {"topology": "star"}),
        (
            {"topology": "dcliques,seed=0"},
            ["topology.inter=ring"],
            {"topology": {"name": "dcliques", "seed": 0, "inter": "ring"}},
        ),
        (
            {"topology": "participation,fraction=0.5"},
            ["topology.base=(torus,rows=2)"],
            {"topology": {"name": "participation", "fraction": 0.5, "base": "(torus,rows=2)"}},
        ),
        ({}, ["data.root=a=b"], {"data": {"root": "a=b"}}),
        (
            {"algorithm": "ad_psgd,lr=0.1"},
            ["algorithm.clock.compute=exponential([1, 2])"],
            {"algorithm": AD_PSGD},
        ),
        (
            {"algorithm": AD_PSGD},
            ["algorithm.clock.delay = 0.5"],
            {"algorithm": AD_PSGD | {"clock": AD_PSGD["clock"] | {"delay": 0.5}}},
        ),
    ],
)
def test_assignments_change_a_copy(before, changes, after):
    kept = repr(before)
    assert config.override(before, changes) == after
    assert repr(before) == kept


scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]))
keys = st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True)
values = scalars | texts | st.lists(scalars | texts)


@given(st.dictionaries(keys, st.dictionaries(keys, values | st.dictionaries(keys, values))))
def test_toml_is_read_back(written):
    assert tomllib.loads(config.dumps(written)) == written


def test_toml_leaves_out_none():
    assert config.dumps({"compute": {"chunk": None}}) == "[compute]\n"
    assert config.dumps({"a": {"b": {"c": None, "d": 1, "e": {}}}}) == "[a]\nb = {d = 1, e = {}}\n"
