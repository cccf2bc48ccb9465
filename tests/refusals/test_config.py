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

ROWS = [
    # Tables
    (ValueError, "not 'topolgy'; did you mean 'topology'", built(topolgy={"name": "ring"})),
    (ValueError, "not 'rounds'", built(rounds=3)),
    (ValueError, "[data] is missing", built(data=None)),
    (ValueError, "[algorithm] is missing", built(algorithm=None)),
    (ValueError, "[run] is missing", built(run=None)),
    (TypeError, "[topology] `topology` must be given, since dsgd exchanges", built(topology=None)),
    (ValueError, "[topology] must be a table or text such as 'ring', got 3", built(topology=3)),
    (ValueError, "[topology] `name` is missing", built(topology={})),
    (TypeError, "[topology] `spec` must be text", built(topology={"spec": 3})),
    (
        ValueError,
        "[topology] `name` must be given once",
        built(topology={"name": "ring", "spec": "ring"}),
    ),
    (
        TypeError,
        "[topology] the name of a topology must be text, got 3",
        built(topology={"name": 3}),
    ),
    # Topologies and weights
    (ValueError, ("[topology] there is no topology 'rng'; ", RING), built(topology="rng")),
    (
        ValueError,
        "[topology] `n` must be the number of nodes with data, 10",
        built(topology="ring:11"),
        built(topology="ring:10"),
    ),
    (
        ValueError,
        "not 'intr'; did you mean 'inter'",
        built(topology="dcliques,clique_size=5,seed=0,intr=ring"),
    ),
    (
        TopologyError,
        "[topology] `topology` must be connected",
        built(topology="random_cliques,clique_size=5,seed=0"),
    ),
    (
        ValueError,
        "[topology] `link_failures` needs `fail` and",
        built(topology={"name": "link_failures", "base": "rng"}),
    ),
    (
        ValueError,
        ("[topology] `base`: ", RING),
        built(topology="participation,base=(rng),fraction=1"),
    ),
    (
        ValueError,
        "[topology] `base`: `n` must be the number of",
        built(topology="participation,base=(ring:9),fraction=1"),
    ),
    (ValueError, "karate_club() has n=34, `clients` has n=10", built(topology="karate_club")),
    (ValueError, "did you mean 'metropolis_hastings'", built(mixing="metropolis_hasting")),
    (
        ValueError,
        "[mixing] `uniform` takes direction, not 'directon'; did you mean",
        built(mixing="uniform,directon=push"),
    ),
    # Methods and models
    (
        ValueError,
        "[algorithm] there is no algorithm 'dsgdd'; did you",
        built(algorithm="dsgdd,lr=1"),
    ),
    (ValueError, "[algorithm] `dsgd` needs `lr`", built(algorithm="dsgd")),
    (
        ValueError,
        ("[algorithm] `lr` must be such as 0.1 or cosine(0.5, rounds=300), ", " got 'fast'"),
        built(algorithm="dsgd,lr=fast"),
    ),
    (
        ValueError,
        "[algorithm] `rounds` must be at least 1, got 0",
        built(algorithm="dsgd,lr=cosine(0.5, rounds=0)"),
    ),
    (
        ValueError,
        "not 'momentun'; did you mean 'momentum'",
        built(algorithm="dsgd,lr=1,momentun=0.9"),
    ),
    (
        ValueError,
        "[algorithm] `dsgd` takes no 'optimizer', got 'adamw'; use dadam, or compose your own, see",
        built(algorithm="dsgd,lr=1,optimizer=adamw"),
    ),
    (ValueError, "`fedavg` takes no 'optim'", built(algorithm={"name": "fedavg", "optim": "sgd"})),
    (
        ValueError,
        "[algorithm] `clock` must be such as Clock(compute=",
        built(algorithm="ad_psgd,lr=1,clock=(compute=2)"),
    ),
    (
        ValueError,
        "[algorithm] `clock.compute` must be such as 1",
        built(algorithm={"name": "ad_psgd", "lr": 1, "clock": {"compute": "gamma(1)"}}),
    ),
    (
        ValueError,
        ("[algorithm] `algorithm`: ", "dsgd"),
        built(algorithm=TIMED | {"algorithm": "dsgdd,lr=1"}),
    ),
    (
        TypeError,
        "[algorithm] `algorithm` must be an Algorithm",
        built(algorithm=TIMED | {"algorithm": 3}),
    ),
    (
        ValueError,
        "[attackers] `share` must be given without `nodes`",
        built(attackers="sign_flip,share=0.2,nodes=[1]"),
    ),
    (
        ValueError,
        ("[attackers] `share` must give ", " of n=10"),
        built(attackers="sign_flip,share=0.001"),
    ),
    (ValueError, "did you mean 'logistic_regression'", built(model="logistic_regresion")),
    (ValueError, "not 'in_feature'; did you mean 'in_features'", built(model={"in_feature": 64})),
    # Data
    (ValueError, f"{NO_DATASET} 'digit'; did you mean 'digits'", built(data="digit,n=10")),
    (
        ValueError,
        "[data] there is no partition 'shard'; did you mean 'shards'",
        built(data="digits,n=10,partition=shard"),
    ),
    (
        ValueError,
        ("[data] `digits` with `shards` ", "did you mean 'per_node'"),
        built(data="digits,n=10,per_nod=3"),
    ),
    (ValueError, "not 'dataset'", built(data="digits,n=10,dataset=3")),
    (ValueError, "[data] `shards` needs `n`", built(data="digits")),
    (
        ValueError,
        ("[data] `root` must be given unless", "(as text: mnist,root=FOLDER), or set TOPOFL_DATA"),
        built(data="mnist,n=10"),
    ),
    (
        ValueError,
        ("[data] `labels` must be one of ", "did you mean 'coarse'"),
        built(data="cifar100,n=10,root=.,labels=corse"),
    ),
    (TypeError, "[data] `n` must be an integer, got 'ten'", built(data="digits,n=ten")),
    (
        ValueError,
        "[data] `rule` must be one of 'per_client', 'disjoint', got 'each'",
        matched("each"),
        matched("disjoint"),
    ),
    (
        ValueError,
        "[data] `augment`: there is no augmentation 'crop_and_flp'; did you mean 'crop_and_flip'",
        augmented("crop_and_flp"),
    ),
    (
        ValueError,
        "[data] `augment`: `crop_and_flip` takes padding, flip, not 'n'",
        augmented("crop_and_flip:4"),
    ),
    (
        TypeError,
        "[data] `augment`: `padding` must be an integer, got 'x'",
        augmented("crop_and_flip,padding=x"),
    ),
    (
        ValueError,
        "[data] `augment`: `flip` must be true or false, got 2",
        augmented("crop_and_flip,flip=2"),
    ),
    (
        ValueError,
        "[data] `augment` must have a padding below the shorter side of the images, 8",
        augmented("crop_and_flip,padding=8"),
        augmented("crop_and_flip,padding=7"),
    ),
    (ValueError, "[data] `augment`: must be a table or text", augmented(4)),
    # Options of the run
    (ValueError, "not 'round'; did you mean 'rounds'", built(run={"rounds": 3, "round": 3})),
    (ValueError, "not 'callbacks'", built(run={"rounds": 3, "callbacks": 3})),
    (ValueError, "[run] `rounds` must be at least 1, got 0", built(run={"rounds": 0}), run()),
    (TypeError, "[run] `rounds` must be an integer", built(run={"rounds": "3"})),
    (
        ValueError,
        ("[compute] `dtype` must be one of ", "did you mean 'float32'"),
        run(compute={"dtype": "float33"}),
    ),
    (ValueError, "[compute] `device` must be such as 'cpu'", run(compute={"device": "gpu"})),
    (ValueError, "[compute] `executor` must be one of", run(compute={"executor": "loop"})),
    (
        ValueError,
        ("`evaluation.examples` must be ", "=300, got 301"),
        built(evaluation={"examples": 301}),
        built(evaluation={"examples": 300}),
    ),
    (
        ValueError,
        "[modules] the table takes folder, not 'folders'",
        built(modules={"folders": "lib"}),
    ),
    # Tasks and stages of evaluations, also a user's own
    (
        ValueError,
        "[task] there is no task 'clasification'; did you mean 'classification'",
        built(task="clasification"),
    ),
    (ValueError, ("[task] ", "f2"), built(task="classification,scores=[f2]")),
    (
        ValueError,
        "[task] `classification` takes scores, not 'score'",
        built(task="classification,score=f1"),
    ),
    (
        TypeError,
        "[task] `owntask_:no_task` must return a Task, got 3",
        built(task="owntask_:no_task"),
    ),
    (
        ValueError,
        "`targets` must be of the shape of the model's outputs",
        built(task="regression"),
    ),
    (
        ValueError,
        "there is no evaluation 'owntask_:men'",
        built(evaluation={"also": {"a": "owntask_:men"}}),
    ),
    (ValueError, "must be module:function", built(evaluation={"also": {"a": "mean"}})),
    (
        TypeError,
        ("[evaluation] `also` must name functions, as in ", ", got 3"),
        built(evaluation={"also": {"a": 3}}),
    ),
    (TypeError, "[evaluation] `also` must be a dictionary", built(evaluation={"also": "mean"})),
    (
        ValueError,
        "there is no evaluation 'owntask_:men'",
        built(evaluation={"per_node": {"a": "owntask_:men"}}),
    ),
    (
        TypeError,
        ("[evaluation] `per_node` must name functions, as in ", ", got 3"),
        built(evaluation={"per_node": {"a": 3}}),
    ),
    # Files, and assignments
    (ValueError, "bad.toml: not TOML", text("[data\nname = 1")),
    (ValueError, "bad.toml: not TOML", text("a = 1\na = 2")),
    (ValueError, "bad.toml: not TOML", text("é = 1")),
    (ValueError, "bad.toml: not TOML", text("a = " + "[" * 5000)),
    (ValueError, "bad.toml: not TOML", text(b"\xff\xfe\x00")),
    (
        FileNotFoundError,
        ("bad.toml: [data] `root` must hold ", " missing in"),
        text(TEXT, "data=mnist,n=10,root={path}"),
    ),
    (
        ValueError,
        "bad.toml: [mixing] `mixing` must",
        text(TEXT, "mixing=uniform", "algorithm=d2,lr=0.1", "topology=star"),
    ),
    *(
        (ValueError, "`--set` must be table.key=value", partial(config.override, {}, [text]))
        for text in ("", "run", "run.rounds", "=3", ".rounds=3", "run.=3", "run.a.=3", "run..b=3")
    ),
    (
        ValueError,
        "not 'algoritm'; did you mean 'algorithm'",
        lambda: config.override({}, ["algoritm.lr=1"]),
    ),
    (
        ValueError,
        ("`--set` must name a key of a table, 'clock' is 'Clock()'", "as a whole"),
        lambda: config.override(
            {"algorithm": "ad_psgd,clock=Clock()"}, ["algorithm.clock.delay=1"]
        ),
    ),
    (
        TypeError,
        "must be a number, true, false, text, a list or a table",
        lambda: config.dumps({"run": {}, "compute": {"dtype": torch.float32}}),
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
