"""Experiments from configurations: equal to Python calls, with all defaults, and repeated."""

import textwrap
import tomllib

import numpy as np
import pytest
import torch

import topofl
from tests.rows.tables import TEXT, tables
from topofl import algorithms, config, data, mixing, models, topologies


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


def test_all_defaults_are_filled_in():
    small = {"topology": "ring", "algorithm": "dsgd,lr=1", "run": {"rounds": 1}}
    experiment = config.build(small | {"data": {"name": "digits", "n": 10}})
    filled = {"topology": {"name": "ring", "n": 10}, "saving": {"every": "auto", "models": True}}
    filled["data"] = {"name": "digits", "test": 300, "val": 0, "split_seed": 0, "enlarge": 1}
    filled["data"] |= {"partition": "shards", "n": 10, "per_node": 2, "seed": 0}
    filled["data"] |= {"val_fraction": 0.0, "test_fraction": 0.0}
    filled["algorithm"] = {"name": "dsgd", "lr": 1, "batch_size": 128, "momentum": 0.0}
    filled["algorithm"] |= {"local_steps": 1}
    filled["model"] = {"name": "logistic_regression", "in_features": 64, "n_classes": 10}
    filled["run"] = {"rounds": 1, "seed": 0, "init": "common", "progress": "auto"}
    empty = ("examples", "nodes", "fine_tune", "fine_tune_every", "also", "per_node")
    filled["evaluation"] = {"every": 10, "on": "test", "before_exchange": False}
    filled["evaluation"] |= dict.fromkeys(empty) | {"without": []}
    filled["compute"] = {"executor": "auto", "chunk": "auto", "precision": "fp32"}
    filled["compute"] |= {"channels_last": "auto", "compile": False, "device": None}
    filled["compute"] |= {"dtype": "float32", "on_divergence": "raise", "on_disconnected": "raise"}
    filled["compute"] |= {"buffers": "average", "distributed": False, "placement": None}
    filled["compute"] |= {"rank_timeout": 600.0, "scratch": None}
    assert experiment.tables == filled
    assert experiment.notes == (
        "[data] no `seed` given; 0 is used",
        "[run] no `seed` given; 0 is used",
    )


def test_samples_for_evaluation_are_configured():
    sampled = config.build(
        tables(run={"rounds": 1, "seed": 0}, evaluation={"examples": 30, "nodes": 4})
    )
    whole = config.build(tables(run={"rounds": 1, "seed": 0}))
    assert sampled.estimate().evaluation < whole.estimate().evaluation
    assert sampled.estimate().parameters == whole.estimate().parameters
    history = sampled.run()
    assert np.isnan(history["accuracy"]).sum(axis=1).tolist() == [6, 6]
    assert [history.meta["evaluation"][name] for name in ("examples", "nodes")] == [30, 4]


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


def test_defaults_are_those_of_the_functions():
    """New arguments of topofl.run and of the functions must be writable as TOML."""
    filled = config.build(tables()).tables
    assert config.build(tomllib.loads(config.dumps(filled))).tables == filled


FAILING = {"spec": "link_failures,fail=0.2,recover=0.5", "seed": 1}
NESTED = [
    "link_failures,base=(dcliques,clique_size=5,seed=2),fail=0.2,recover=0.5,seed=1",
    FAILING | {"base": "(dcliques,clique_size=5,seed=2)"},
    FAILING | {"base": {"name": "dcliques", "clique_size": 5, "seed": 2}},
    FAILING | {"base": {"spec": "dcliques,seed=2", "clique_size": 5}},
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


def test_the_documented_example_is_complete():
    example = textwrap.dedent(config.__doc__.split("::\n")[1].split("\nOptional tables are")[0])
    experiment = config.build(tomllib.loads(example))
    assert (
        experiment.topology.name
        == "dcliques(label_counts[50x10], clique_size=10, inter='ring', seed=0)"
    )
    need = experiment.estimate()
    assert (need.messages, need.seconds_per_round) == (2 * (5 * 45 + 5), None)


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
    ("algorithm", "why"),
    [
        ("fedavg,lr=0.1", "fedavg ignores {}: its nodes communicate through a server only"),
        (
            "local_only,lr=0.1",
            "local_only ignores {}: it exchanges nothing, or along edges of its own",
        ),
        ("centralized,lr=0.1", "centralized ignores {}: it trains one model on all data"),
        ("dsgd,lr=0.1", None),
        ("dpfl,lr=0.1,epochs=1,budget=2", None),  # chooses peers on the graph
    ],
)
def test_a_topology_that_is_not_used_is_noted(algorithm, why):
    data = {"name": "digits", "n": 10, "seed": 1, "with_validation": 0.2}
    with_graph = config.build(tables(algorithm=algorithm, data=data, topology="ring"))
    expected = () if why is None else (f"[topology] {why.format('ring(n=10)')}",)
    assert with_graph.notes == expected
    assert with_graph.uses_topology == (why is None)
    if why is not None:
        assert config.build(tables(algorithm=algorithm, data=data, topology=None)).notes == ()


def test_a_backdoor_is_that_of_the_function():
    """Its seed is that of the partition unless the table has its own."""
    table = {"name": "digits", "partition": "iid", "n": 10, "seed": 1}
    options = {"target": 2, "nodes": [3], "share": 0.25}
    text = {"trigger": "pixel_patch(2, corner='top left')"}
    clients = data.iid(data.digits(), n=10, seed=1)
    patch = data.pixel_patch(2, corner="top left")
    for more, known in (({}, {"seed": 1}), (text | {"seed": 5}, {"trigger": patch, "seed": 5})):
        built = config.build(tables(data={**table, "backdoor": options | more}))
        expected = data.backdoor(clients, **options, **known)
        for name in ("inputs", "labels"):
            torch.testing.assert_close(
                getattr(built.clients.dataset, name), getattr(expected.dataset, name)
            )
        np.testing.assert_array_equal(built.clients.train[3], expected.train[3])
        assert built.clients.flipped == (3,)
        again = tomllib.loads(config.dumps(built.tables))
        assert config.build(again).clients.name == expected.name


@pytest.mark.parametrize(
    ("backdoor", "error", "said"),
    [
        (
            3,
            TypeError,
            "`backdoor`: must be a table such as { target = 0, nodes = \\[3\\] }, got 3",
        ),
        ({}, ValueError, "`backdoor`: `backdoor` needs `target`; add target=..."),
        ({"target": 10}, ValueError, "`backdoor`: `target` must be"),
        ({"target": 0, "node": [1]}, ValueError, "'node'.*did you mean 'nodes'"),
        ({"target": 0, "trigger": "patch(3)"}, ValueError, "`backdoor`: `trigger` must"),
    ],
)
def test_a_backdoor_that_cannot_be_is_refused(backdoor, error, said):
    table = {"name": "digits", "partition": "iid", "n": 10, "seed": 1, "backdoor": backdoor}
    with pytest.raises(error, match=said):
        config.build(tables(data=table))


def test_the_point_of_a_number_decides_whether_it_is_a_share():
    method = "[algorithm]\nname = 'fedavg'\nlr = 0.1\nparticipation = "
    counts = {
        text: config.build(tables(topology=None, **tomllib.loads(f"{method}{text}")))
        for text in ("1", "1.0")
    }
    sent = [experiment.estimate().messages for experiment in counts.values()]
    assert sent == [2, 20]
    assert "``participation = 1`` is one of them" in config.__doc__


def test_functions_of_installed_packages_need_no_folder(tmp_path):
    (tmp_path / "a.toml").write_text(TEXT)
    experiment = config.load(tmp_path / "a.toml", ["algorithm=topofl.algorithms:dsgd,lr=0.1"])
    assert experiment.tables["algorithm"]["name"] == "topofl.algorithms:dsgd"
    assert "modules" not in experiment.tables
