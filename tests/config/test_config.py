"""TOML files and the runs they describe."""

import sys
import textwrap
import tomllib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import topofl
from topofl import algorithms, attacks, clocks, config, data, mixing, models, topologies

TEXT = """
[data]
name = "digits"
n = 10
seed = 1

[topology]
name = "dcliques"
inter = "ring"
clique_size = 5
seed = 2

[algorithm]
name = "dsgd"
lr = 0.5
batch_size = 8

[run]
rounds = 3
seed = 3
progress = false

[evaluation]
every = 1
"""


def tables(**changes):
    base = tomllib.loads(TEXT)
    return {name: table for name, table in (base | changes).items() if table is not None}


def test_equals_the_python_call(tmp_path):
    (tmp_path / "a.toml").write_text(TEXT)
    history = config.load(tmp_path / "a.toml").run()
    clients = data.shards(data.digits(), 10, seed=1)
    graph = topologies.dcliques(clients.label_counts, clique_size=5, inter="ring", seed=2)
    wanted = topofl.run(
        algorithms.dsgd(0.5, batch_size=8),
        model=models.logistic_regression(64),
        clients=clients,
        topology=graph,
        rounds=3,
        seed=3,
        evaluation=1,
    )
    np.testing.assert_array_equal(history["accuracy"], wanted["accuracy"])
    assert history.meta == wanted.meta
    assert (history.mixing(0).weights != wanted.mixing(0).weights).nnz == 0


def test_matched_tests_are_configured_and_repeated():
    tables = {
        "algorithm": "local_only,lr=1",
        "run": {"rounds": 1},
        "evaluation": {"on": "own_test"},
    }
    source = {"name": "digits", "n": 10, "partition": "iid", "seed": 3, "match_test": "disjoint"}
    experiment = config.build(tables | {"data": source})
    wanted = data.match_test(data.iid(data.digits(), 10, seed=3), rule="disjoint", seed=3)
    assert experiment.clients.name == wanted.name
    for own in (experiment.clients, config.build(experiment.tables).clients):
        assert [indices.tolist() for indices in own.test] == [
            indices.tolist() for indices in wanted.test
        ]
    with pytest.raises(
        ValueError, match=r"\[data\] `rule` must be one of 'per_client', 'disjoint', got 'each'"
    ):
        config.build(tables | {"data": source | {"match_test": "each"}})


def test_all_defaults_are_filled_in():
    experiment = config.build(
        {
            "data": {"name": "digits", "n": 10},
            "topology": "ring",
            "algorithm": "dsgd,lr=1",
            "run": {"rounds": 1},
        }
    )
    assert experiment.tables == {
        "data": {
            "name": "digits",
            "test": 300,
            "val": 0,
            "split_seed": 0,
            "enlarge": 1,
            "partition": "shards",
            "n": 10,
            "per_node": 2,
            "seed": 0,
            "val_fraction": 0.0,
            "test_fraction": 0.0,
        },
        "topology": {"name": "ring", "n": 10},
        "algorithm": {
            "name": "dsgd",
            "lr": 1,
            "batch_size": 128,
            "momentum": 0.0,
            "local_steps": 1,
        },
        "model": {"name": "logistic_regression", "in_features": 64, "n_classes": 10},
        "run": {
            "rounds": 1,
            "seed": 0,
            "init": "common",
            "progress": "auto",
        },
        "evaluation": {
            "every": 10,
            "on": "test",
            "examples": None,
            "nodes": None,
            "before_exchange": False,
            "fine_tune": None,
            "fine_tune_every": None,
            "also": None,
        },
        "compute": {
            "executor": "auto",
            "chunk": "auto",
            "precision": "fp32",
            "channels_last": "auto",
            "compile": False,
            "device": None,
            "dtype": "float32",
            "on_divergence": "raise",
            "on_disconnected": "raise",
        },
        "saving": {"every": "auto", "models": True},
    }
    assert experiment.notes == (
        "[data] no `seed` given; 0 is used",
        "[run] no `seed` given; 0 is used",
    )


def test_samples_for_evaluation_are_configured_and_refused_before_the_run():
    sampled = config.build(
        tables(run={"rounds": 1, "seed": 0}, evaluation={"examples": 30, "nodes": 4})
    )
    whole = config.build(tables(run={"rounds": 1, "seed": 0}))
    assert sampled.estimate().evaluation < whole.estimate().evaluation
    assert sampled.estimate().parameters == whole.estimate().parameters
    history = sampled.run()
    assert np.isnan(history["accuracy"]).sum(axis=1).tolist() == [6, 6]
    assert [history.meta["evaluation"][name] for name in ("examples", "nodes")] == [30, 4]
    with pytest.raises(ValueError, match=r"`evaluation.examples` must be .*=300, got 301"):
        config.build(tables(run={"rounds": 1, "seed": 0}, evaluation={"examples": 301}))


@pytest.mark.parametrize(
    "augment",
    [
        "crop_and_flip,padding=2",
        {"name": "crop_and_flip", "padding": 2},
        {"spec": "crop_and_flip,padding=2"},
    ],
)
def test_augmentation_is_configured(augment):
    experiment = config.build(tables(data=tables()["data"] | {"augment": augment}))
    assert experiment.clients.augment == data.crop_and_flip(padding=2)
    assert experiment.tables["data"]["augment"] == {
        "name": "crop_and_flip",
        "padding": 2,
        "flip": True,
    }
    assert config.build(tomllib.loads(config.dumps(experiment.tables))).tables == experiment.tables
    assert experiment.estimate().minibatches > config.build(tables()).estimate().minibatches
    assert experiment.run().meta["augment"] == "crop_and_flip(padding=2, flip=True)"


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (
            "crop_and_flp",
            r"\[data\] `augment`: there is no augmentation 'crop_and_flp'; "
            "did you mean 'crop_and_flip'",
        ),
        ("crop_and_flip:4", r"\[data\] `augment`: `crop_and_flip` takes padding, flip, not 'n'"),
        ("crop_and_flip,padding=x", r"\[data\] `augment`: `padding` must be an integer, got 'x'"),
        ("crop_and_flip,flip=2", r"\[data\] `augment`: `flip` must be true or false, got 2"),
        (
            "crop_and_flip,padding=8",
            r"\[data\] `augment` must have a padding below the shorter side of the images, 8",
        ),
        (4, r"\[data\] `augment`: must be a table or text"),
    ],
)
def test_mistakes_in_an_augmentation_are_named(augment, message):
    with pytest.raises((ValueError, TypeError), match=message):
        config.build(tables(data=tables()["data"] | {"augment": augment}))


def test_defaults_are_those_of_the_functions():
    """New arguments of topofl.run and of the functions must be writable as TOML."""
    filled = config.build(tables()).tables
    assert config.build(tomllib.loads(config.dumps(filled))).tables == filled


@pytest.mark.parametrize("algorithm", ["dsgd", "clique_averaging", "centralized", "local_only"])
def test_resolved_tables_give_the_same_run(algorithm):
    experiment = config.build(
        tables(
            algorithm={"name": algorithm, "lr": 0.5, "batch_size": 8, "momentum": 0.9}, model=None
        )
    )
    history = experiment.run()
    again = config.build(tomllib.loads(config.dumps(experiment.tables_of(history)))).run()
    np.testing.assert_array_equal(history["accuracy"], again["accuracy"])
    np.testing.assert_array_equal(history["loss"], again["loss"])
    assert again.meta["executor"] == history.meta["executor"] != "auto"


NESTED = [
    "link_failures,base=(dcliques,clique_size=5,seed=2),fail=0.2,recover=0.5,seed=1",
    {
        "name": "link_failures",
        "base": "(dcliques,clique_size=5,seed=2)",
        "fail": 0.2,
        "recover": 0.5,
        "seed": 1,
    },
    {
        "spec": "link_failures,fail=0.2,recover=0.5",
        "base": {"name": "dcliques", "clique_size": 5, "seed": 2},
        "seed": 1,
    },
    {
        "spec": "link_failures,fail=0.2,recover=0.5",
        "base": {"spec": "dcliques,seed=2", "clique_size": 5},
        "seed": 1,
    },
]


@pytest.mark.parametrize("topology", NESTED)
def test_graphs_of_graphs(topology):
    experiment = config.build(tables(topology=topology))
    counts = experiment.clients.label_counts
    graph = topologies.link_failures(
        topologies.dcliques(counts, clique_size=5, seed=2), fail=0.2, recover=0.5, seed=1
    )
    assert experiment.topology.name == graph.name
    assert (
        experiment.tables["topology"]["base"]["inter"] == "fully_connected"
    )  # defaults are filled in
    history = experiment.run()
    written = config.dumps(experiment.tables_of(history))
    again = config.build(tomllib.loads(written))
    assert config.dumps(again.tables_of(history)) == written
    repeated = again.run()
    np.testing.assert_array_equal(history["accuracy"], repeated["accuracy"])
    np.testing.assert_array_equal(history["loss"], repeated["loss"])
    for t in range(3):
        assert (
            repeated.mixing(t).weights != mixing.metropolis_hastings(graph.at(t)).weights
        ).nnz == 0


def test_tables_in_tables_of_toml():
    text = TEXT.replace(
        'name = "dcliques"\ninter = "ring"\nclique_size = 5\n',
        'name = "participation"\nfraction = 0.5\n',
    )
    text += '[topology.base]\nname = "random_in"\nk = 3\nseed = 9\n'
    graph = config.build(tomllib.loads(text)).topology
    assert graph.name == "participation(random_in(n=10, k=3, seed=9), fraction=0.5, seed=2)"


def test_the_documented_example_is_complete():
    example = textwrap.dedent(config.__doc__.split("::\n")[1].split("\nOptional tables are")[0])
    experiment = config.build(tomllib.loads(example))
    assert (
        experiment.topology.name
        == "dcliques(label_counts[50x10], clique_size=10, inter='ring', seed=0)"
    )
    assert experiment.estimate().messages == 2 * (5 * 45 + 5)


def test_seeds_of_data_are_separate():
    first = config.build(tables()).clients
    assert first.dataset.test.tolist() == data.digits().test.tolist()
    other = config.build(
        tables(data={"name": "digits", "n": 10, "seed": 1, "split_seed": 5})
    ).clients
    assert other.dataset.test.tolist() == data.digits(seed=5).test.tolist()


def test_weight_rules_and_types_of_run():
    experiment = config.build(
        tables(
            topology={"name": "exponential", "directed": True},
            mixing={"name": "uniform", "direction": "pull"},
            run={"rounds": 1, "seed": 0},
            compute={"dtype": "float64", "device": "cpu"},
        )
    )
    assert experiment.options["compute"].dtype is torch.float64
    graph = topologies.exponential(10, directed=True)
    assert (experiment.mixing(graph).weights != mixing.uniform(graph).weights).nnz == 0


def test_algorithms_without_messages_need_no_topology():
    experiment = config.build(tables(topology=None, algorithm="local_only,lr=0.1"))
    assert experiment.topology is None
    assert "mixing" not in experiment.tables
    assert "topology" not in experiment.tables


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topolgy": {"name": "ring"}}, "not 'topolgy'; did you mean 'topology'"),
        ({"rounds": 3}, "not 'rounds'"),
        ({"data": None}, r"\[data\] is missing"),
        ({"algorithm": None}, r"\[algorithm\] is missing"),
        ({"run": None}, r"\[run\] is missing"),
        (
            {"topology": None},
            r"^\[topology\] `topology` must be given, since dsgd exchanges models",
        ),
        ({"topology": 3}, r"\[topology\] must be a table or text such as 'ring', got 3"),
        ({"topology": {}}, r"\[topology\] `name` is missing"),
        ({"topology": {"spec": 3}}, r"\[topology\] `spec` must be text"),
        ({"topology": {"name": "ring", "spec": "ring"}}, r"\[topology\] `name` must be given once"),
        ({"topology": {"name": 3}}, r"\[topology\] the name of a topology must be text, got 3"),
        ({"topology": "rng"}, r"\[topology\] there is no topology 'rng'; did you mean 'ring'"),
        ({"topology": "ring:11"}, r"\[topology\] `n` must be the number of nodes with data, 10"),
        (
            {"topology": "dcliques,clique_size=5,seed=0,intr=ring"},
            r"not 'intr'; did you mean 'inter'",
        ),
        (
            {"topology": "random_cliques,clique_size=5,seed=0"},
            r"^\[topology\] `topology` must be connected",
        ),
        (
            {"topology": {"name": "link_failures", "base": "rng"}},
            r"\[topology\] `link_failures` needs `fail` and",
        ),
        (
            {"topology": "participation,base=(rng),fraction=1"},
            r"\[topology\] `base`: .* did you mean 'ring'",
        ),
        (
            {"topology": "participation,base=(ring:9),fraction=1"},
            r"\[topology\] `base`: `n` must be the number of",
        ),
        ({"topology": "karate_club"}, r"karate_club\(\) has n=34, `clients` has n=10"),
        (
            {"mixing": "metropolis_hasting"},
            r"\[mixing\] there is no mixing .* did you mean 'metropolis_hastings'",
        ),
        (
            {"mixing": "uniform,directon=push"},
            r"\[mixing\] `uniform` takes direction, not 'directon'; did you mean",
        ),
        (
            {"algorithm": "dsgdd,lr=1"},
            r"\[algorithm\] there is no algorithm 'dsgdd'; did you mean 'dsgd'",
        ),
        ({"algorithm": "dsgd"}, r"\[algorithm\] `dsgd` needs `lr`"),
        (
            {"algorithm": "dsgd,lr=fast"},
            r"\[algorithm\] `lr` must be such as 0.1 or cosine\(0.5, rounds=300\), .* got 'fast'",
        ),
        ({"algorithm": "dsgd,lr=1,momentun=0.9"}, r"not 'momentun'; did you mean 'momentum'"),
        (
            {"model": "logistic_regresion"},
            r"\[model\] there is no model .* did you mean 'logistic_regression'",
        ),
        (
            {"model": {"in_feature": 64}},
            r"\[model\] .* not 'in_feature'; did you mean 'in_features'",
        ),
        ({"data": "digit,n=10"}, r"\[data\] there is no dataset 'digit'; did you mean 'digits'"),
        (
            {"data": "digits,n=10,partition=shard"},
            r"\[data\] there is no partition 'shard'; did you mean 'shards'",
        ),
        (
            {"data": "digits,n=10,per_nod=3"},
            r"\[data\] `digits` with `shards` .* did you mean 'per_node'",
        ),
        ({"data": "digits,n=10,dataset=3"}, r"not 'dataset'"),
        ({"data": "digits"}, r"\[data\] `shards` needs `n`"),
        ({"data": "cifar10,n=10"}, r"\[data\] `cifar10` needs `root`"),
        (
            {"data": "cifar100,n=10,root=.,labels=corse"},
            r"\[data\] `labels` must be one of .* did you mean 'coarse'",
        ),
        ({"data": "mnist,n=10"}, r"\[data\] `mnist` needs `root`"),
        ({"data": {"name": "digits", "n": "ten"}}, r"\[data\] `n` must be an integer, got 'ten'"),
        ({"run": {"rounds": 3, "round": 3}}, r"\[run\] .* not 'round'; did you mean 'rounds'"),
        ({"run": {"rounds": 3, "callbacks": 3}}, r"\[run\] .* not 'callbacks'"),
        ({"run": {"rounds": 0}}, r"\[run\] `rounds` must be at least 1, got 0"),
        ({"run": {"rounds": "3"}}, r"\[run\] `rounds` must be an integer"),
        (
            {"run": {"rounds": 3}, "compute": {"dtype": "float33"}},
            r"\[compute\] `dtype` must be one of .* did you mean 'float32'",
        ),
        (
            {"run": {"rounds": 3}, "compute": {"device": "gpu"}},
            r"\[compute\] `device` must be such as 'cpu'",
        ),
        (
            {"run": {"rounds": 3}, "compute": {"executor": "loop"}},
            r"\[compute\] `executor` must be one of",
        ),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        config.build(tables(**changes))


def test_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="`device` must be available, got 'cuda:0'"):
        config.build(tables(run={"rounds": 1}, compute={"device": "cuda:0"}))


def test_missing_dataset_names_table_and_file(tmp_path):
    (tmp_path / "a.toml").write_text(TEXT)
    with pytest.raises(
        FileNotFoundError, match=r"a\.toml: \[data\] `root` must hold .* missing in"
    ):
        config.load(tmp_path / "a.toml", [f"data=mnist,n=10,root={tmp_path}"])


@pytest.mark.parametrize(
    "text", ["[data\nname = 1", "a = ", "a = 1\na = 2", "é = 1", "a = " + "[" * 5000]
)
def test_malformed_toml_names_the_file(tmp_path, text):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ValueError, match=r"bad\.toml: not TOML"):
        config.load(tmp_path / "bad.toml")


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"bad\.toml: not TOML"):
        config.load(tmp_path / "bad.toml")


def test_override():
    assert config.override({"a": 1, "run": {"rounds": 1}}, []) == {"a": 1, "run": {"rounds": 1}}
    assert config.override({}, ["run.rounds = 5", "run.seed=1"]) == {
        "run": {"rounds": 5, "seed": 1}
    }
    assert config.override({"topology": {"name": "ring"}}, ["topology=star"]) == {
        "topology": "star"
    }
    combined = config.override({"topology": "dcliques,seed=0"}, ["topology.inter=ring"])
    assert combined == {"topology": {"name": "dcliques", "seed": 0, "inter": "ring"}}
    assert config.override(
        {"topology": "participation,fraction=0.5"}, ["topology.base=(torus,rows=2)"]
    ) == {"topology": {"name": "participation", "fraction": 0.5, "base": "(torus,rows=2)"}}
    assert config.override({}, ["data.root=a=b"]) == {"data": {"root": "a=b"}}


def test_override_of_tables_within_tables():
    clock = config.override(
        {"algorithm": "ad_psgd,lr=0.1"}, ["algorithm.clock.compute=exponential([1, 2])"]
    )
    wanted = {"name": "ad_psgd", "lr": 0.1, "clock": {"compute": "exponential([1, 2])"}}
    assert clock == {"algorithm": wanted}
    assert config.override(clock, ["algorithm.clock.delay = 0.5"]) == {
        "algorithm": wanted | {"clock": wanted["clock"] | {"delay": 0.5}}
    }
    assert clock == {"algorithm": wanted}, "the input is changed"
    with pytest.raises(
        ValueError, match=r"`--set` must name a key of a table, 'clock' is 'Clock\(\)'.*as a whole"
    ):
        config.override({"algorithm": "ad_psgd,lr=0.1,clock=Clock()"}, ["algorithm.clock.delay=1"])


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


def test_override_leaves_its_input():
    before = {"run": {"rounds": 1}}
    config.override(before, ["run.rounds=5"])
    assert before == {"run": {"rounds": 1}}


@pytest.mark.parametrize(
    "text", ["", "run", "run.rounds", "=3", ".rounds=3", "run.=3", "run.a.=3", "run..b=3"]
)
def test_bad_assignments(text):
    with pytest.raises(ValueError, match=r"`--set` must be table\.key=value"):
        config.override({}, [text])


def test_assignments_know_the_tables():
    with pytest.raises(ValueError, match="not 'algoritm'; did you mean 'algorithm'"):
        config.override({}, ["algoritm.lr=1"])


scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]))
keys = st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True)


values = scalars | texts | st.lists(scalars | texts)


@given(st.dictionaries(keys, st.dictionaries(keys, values | st.dictionaries(keys, values))))
def test_toml_is_read_back(written):
    assert tomllib.loads(config.dumps(written)) == written


def test_toml_leaves_out_none_and_refuses_objects():
    assert config.dumps({"compute": {"chunk": None}}) == "[compute]\n"
    assert config.dumps({"a": {"b": {"c": None, "d": 1, "e": {}}}}) == "[a]\nb = {d = 1, e = {}}\n"
    with pytest.raises(TypeError, match="must be a number, true, false, text, a list or a table"):
        config.dumps({"run": {}, "compute": {"dtype": torch.float32}})


# Tasks, and evaluations of the user's own


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
}


@pytest.mark.parametrize("case", BAD_OWN)
def test_tasks_and_stages_that_cannot_be_had_are_refused(own_module, case):
    changes, message = BAD_OWN[case]
    with pytest.raises((ValueError, TypeError), match=message):
        config.build(tables(**changes))


# What TOML has no word for, calls in text, and attackers drawn at random


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


def test_errors_of_a_run_name_file_and_table(tmp_path):
    (tmp_path / "c.toml").write_text(TEXT)
    with pytest.raises(ValueError, match=r"c\.toml: \[mixing\] `mixing` must"):
        config.load(tmp_path / "c.toml", ["mixing=uniform", "algorithm=d2,lr=0.1", "topology=star"])
