"""Mistakes in configurations, which messages name by table and key."""

import pytest
import torch

from tests.config.example import TEXT, tables
from topofl import config


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
            {"algorithm": "dsgd,lr=1,optimizer=adamw"},
            r"\[algorithm\] `dsgd` takes no 'optimizer', got 'adamw'; use dadam, or "
            r"compose your own, see the recipe 'Another optimizer'",
        ),
        ({"algorithm": {"name": "fedavg", "lr": 1, "optim": "sgd"}}, "`fedavg` takes no 'optim'"),
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
        ({"data": "cifar10,n=10"}, r"\[data\] `root` must be given unless"),
        (
            {"data": "cifar100,n=10,root=.,labels=corse"},
            r"\[data\] `labels` must be one of .* did you mean 'coarse'",
        ),
        ({"data": "mnist,n=10"}, r"\[data\] `root` must be given unless"),
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


def test_errors_of_a_run_name_file_and_table(tmp_path):
    (tmp_path / "c.toml").write_text(TEXT)
    with pytest.raises(ValueError, match=r"c\.toml: \[mixing\] `mixing` must"):
        config.load(tmp_path / "c.toml", ["mixing=uniform", "algorithm=d2,lr=0.1", "topology=star"])
