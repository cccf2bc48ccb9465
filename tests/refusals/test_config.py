"""Mistakes in configurations, which messages name by table and key."""

import sys
from functools import partial

import pytest
import torch

from tests.refusals import named, refused
from tests.rows.tables import OWN, TEXT, tables
from topofl import TopologyError, config


def built(**changes):
    return lambda: config.build(tables(**changes))


def run(**changes):
    """Build with changes of one table, and with rounds."""
    return built(run={"rounds": 3}, **changes)


def text(content, *changes):
    """Load a file with this content."""

    def load(path):
        file = path / "bad.toml"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        config.load(file, [change.format(path=path) for change in changes])

    return load


def augmented(augment):
    return built(data=tables()["data"] | {"augment": augment})


def matched(rule):
    return built(data=tables()["data"] | {"partition": "iid", "match_test": rule})


TIMED = {"name": "topofl.algorithms:timed"}
RING, NO_DATASET = "did you mean 'ring'", "[data] there is no dataset"

VALUES = [
    # Tables
    ("not 'topolgy'; did you mean 'topology'", built(topolgy={"name": "ring"})),
    ("not 'rounds'; write it in [run]", built(rounds=3)),
    ("[data] is missing", built(data=None)),
    ("[algorithm] is missing", built(algorithm=None)),
    ("[run] is missing", built(run=None)),
    ("[topology] must be a table or text such as 'ring', got 3", built(topology=3)),
    ("[topology] `name` is missing", built(topology={})),
    ("[topology] `name` must be given once", built(topology={"name": "ring", "spec": "ring"})),
    # Topologies and weights
    (("[topology] there is no topology 'rng'; ", RING), built(topology="rng")),
    (
        "[topology] `n` must be the number of nodes with data, 10",
        built(topology="ring:11"),
        built(topology="ring:10"),
    ),
    ("[topology] `link_failures` needs", built(topology={"name": "link_failures", "base": "rng"})),
    (("[topology] `base`: ", RING), built(topology="participation,base=(rng),fraction=1")),
    ("[topology] `base`: `n` must be th", built(topology="participation,base=(ring:9),fraction=1")),
    ("karate_club() has n=34, `clients` has n=10", built(topology="karate_club")),
    ("[mixing] `uniform` takes direction, not 'directon';", built(mixing="uniform,directon=push")),
    # Methods and models
    ("[algorithm] there is no algorithm 'dsgdd'; did you", built(algorithm="dsgdd,lr=1")),
    ("[algorithm] `dsgd` needs `lr`", built(algorithm="dsgd")),
    (
        ("[algorithm] `lr` must be such as 0.1 or cosine(0.5, rounds=300), ", " got 'fast'"),
        built(algorithm="dsgd,lr=fast"),
    ),
    ("[algorithm] `rounds` must be at least 1,", built(algorithm="dsgd,lr=cosine(0.5, rounds=0)")),
    (
        "[algorithm] `dsgd` takes no 'optimizer', got 'adamw'; use dadam, or compose your own, see",
        built(algorithm="dsgd,lr=1,optimizer=adamw"),
    ),
    ("`fedavg` takes no 'optim'", built(algorithm={"name": "fedavg", "optim": "sgd"})),
    ("[algorithm] `clock` must be such as Cloc", built(algorithm="ad_psgd,lr=1,clock=(compute=2)")),
    (
        "[algorithm] `clock.compute` must be such as 1",
        built(algorithm={"name": "ad_psgd", "lr": 1, "clock": {"compute": "gamma(1)"}}),
    ),
    (("[algorithm] `algorithm`: ", "dsgd"), built(algorithm=TIMED | {"algorithm": "dsgdd,lr=1"})),
    ("[attackers] `share` must be given without", built(attackers="sign_flip,share=0.2,nodes=[1]")),
    (("[attackers] `share` must give ", " of n=10"), built(attackers="sign_flip,share=0.001")),
    ("did you mean 'logistic_regression'", built(model="logistic_regresion")),
    # Data
    (f"{NO_DATASET} 'digit'; did you mean 'digits'", built(data="digit,n=10")),
    ("[data] there is no partition 'shard'; did you me", built(data="digits,n=10,partition=shard")),
    (
        ("[data] `digits` with `shards` ", "did you mean 'per_node'"),
        built(data="digits,n=10,per_nod=3"),
    ),
    ("not 'dataset'", built(data="digits,n=10,dataset=3")),
    ("[data] `shards` needs `n`", built(data="digits")),
    (
        ("[data] `root` must be given unless", "(as text: mnist,root=FOLDER), or set TOPOFL_DATA"),
        built(data="mnist,n=10"),
    ),
    (
        ("[data] `labels` must be one of ", "did you mean 'coarse'"),
        built(data="cifar100,n=10,root=.,labels=corse"),
    ),
    (
        "[data] `rule` must be one of 'per_client', 'disjoint', got 'each'",
        matched("each"),
        matched("disjoint"),
    ),
    (
        "[data] `augment`: there is no augmentation 'crop_and_flp'; did you mean 'crop_and_flip'",
        augmented("crop_and_flp"),
    ),
    ("[data] `augment`: `flip` must be true or false, got 2", augmented("crop_and_flip,flip=2")),
    (
        "[data] `augment` must have a padding below the shorter side of the images, 8",
        augmented("crop_and_flip,padding=8"),
        augmented("crop_and_flip,padding=7"),
    ),
    ("[data] `augment`: must be a table or text", augmented(4)),
    # Options of the run
    ("not 'round'; did you mean 'rounds'", built(run={"rounds": 3, "round": 3})),
    ("not 'callbacks'", built(run={"rounds": 3, "callbacks": 3})),
    (
        "[run] takes rounds, seed, init, progress, not 'buffers'; write it in [compute]",
        built(run={"rounds": 3, "buffers": "own"}),
        run(compute={"buffers": "own"}),
    ),
    (
        (
            "[run] takes rounds, seed, init, progress, not 'evaluation'; write it in a",
            "[evaluation]",
        ),
        built(run={"rounds": 3, "evaluation": {"every": 1}}),
        run(evaluation={"every": 1}),
    ),
    ("not 'every'; write it in [evaluation] or [saving]", run(compute={"every": 2})),
    ("[run] `rounds` must be at least 1, got 0", built(run={"rounds": 0}), run()),
    (
        ("[compute] `dtype` must be one of ", "did you mean 'float32'"),
        run(compute={"dtype": "float33"}),
    ),
    ("[compute] `device` must be such as 'cpu'", run(compute={"device": "gpu"})),
    ("[compute] `executor` must be one of", run(compute={"executor": "loop"})),
    (
        ("`evaluation.examples` must be ", "=300, got 301"),
        built(evaluation={"examples": 301}),
        built(evaluation={"examples": 300}),
    ),
    ("[modules] the table takes folder, not 'folders'", built(modules={"folders": "lib"})),
    # Tasks and stages of evaluations, also a user's own
    ("[task] there is no task 'clasification'; did you mean 'classif", built(task="clasification")),
    (("[task] ", "f2"), built(task="classification,scores=[f2]")),
    ("`targets` must be of the shape of the model's outputs", built(task="regression")),
    ("there is no evaluation 'owntask_:men'", built(evaluation={"also": {"a": "owntask_:men"}})),
    ("must be module:function", built(evaluation={"also": {"a": "mean"}})),
    # Files, and assignments
    ("bad.toml: not TOML", text("[data\nname = 1")),
    ("bad.toml: not TOML", text("a = " + "[" * 5000)),
    ("bad.toml: not TOML", text(b"\xff\xfe\x00")),
    (
        "bad.toml: [mixing] `mixing` must",
        text(TEXT, "mixing=uniform", "algorithm=d2,lr=0.1", "topology=star"),
    ),
    (
        ("bad.toml: an experiment takes ", "not 'rounds'; write it in [run]"),
        text(TEXT, "rounds=3"),
        text(TEXT, "run.rounds=3"),
    ),
    ("not 'algoritm'; did you mean 'algorithm'", lambda: config.override({}, ["algoritm.lr=1"])),
    (
        ("`--set` must name a key of a table, 'clock' is 'Clock()'", "as a whole"),
        lambda: config.override(
            {"algorithm": "ad_psgd,clock=Clock()"}, ["algorithm.clock.delay=1"]
        ),
    ),
]
"""Calls that raise ValueError, after parts of the message."""

TYPES = [
    ("[topology] `topology` must be given, since dsgd exchanges", built(topology=None)),
    ("[topology] `spec` must be text", built(topology={"spec": 3})),
    ("[topology] the name of a topology must be text, got 3", built(topology={"name": 3})),
    ("[algorithm] `algorithm` must be an Algorithm", built(algorithm=TIMED | {"algorithm": 3})),
    ("[data] `n` must be an integer, got 'ten'", built(data="digits,n=ten")),
    ("[data] `augment`: `padding` must be an integer, got '", augmented("crop_and_flip,padding=x")),
    ("[run] `rounds` must be an integer", built(run={"rounds": "3"})),
    ("[task] `owntask_:no_task` must return a Task, got 3", built(task="owntask_:no_task")),
    (
        ("[evaluation] `also` must name functions, as in ", ", got 3"),
        built(evaluation={"also": {"a": 3}}),
    ),
    ("[evaluation] `also` must be a dictionary", built(evaluation={"also": "mean"})),
    (
        "must be a number, true, false, text, a list or a table",
        lambda: config.dumps({"run": {}, "compute": {"dtype": torch.float32}}),
    ),
]
"""Calls that raise TypeError."""

ROWS = [
    *((ValueError, *row) for row in VALUES),
    *((TypeError, *row) for row in TYPES),
    (
        TopologyError,
        "[topology] `topology` must be connected",
        built(topology="random_cliques,clique_size=5,seed=0"),
    ),
    (
        FileNotFoundError,
        ("bad.toml: [data] `root` must hold ", " missing in"),
        text(TEXT, "data=mnist,n=10,root={path}"),
    ),
    *(
        (ValueError, "`--set` must be table.key=value", partial(config.override, {}, [text]))
        for text in ("", "run", "run.rounds", "=3", ".rounds=3", "run.=3", "run.a.=3", "run..b=3")
    ),
]


@pytest.fixture(autouse=True)
def own_module(tmp_path, monkeypatch):
    """Make a module with a task and a stage of evaluations that Python finds."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "owntask_", raising=False)
    (tmp_path / "owntask_.py").write_text(OWN)


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row, tmp_path):
    refused(*row, path=tmp_path)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="`device` must be available, got 'cuda:0'"):
        run(compute={"device": "cuda:0"})()
