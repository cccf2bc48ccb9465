"""TOML text: reading, writing, and assignments that override keys."""

import tomllib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.config.example import TEXT
from topofl import config


def test_tables_in_tables_of_toml():
    text = TEXT.replace(
        'name = "dcliques"\ninter = "ring"\nclique_size = 5\n',
        'name = "participation"\nfraction = 0.5\n',
    )
    text += '[topology.base]\nname = "random_in"\nk = 3\nseed = 9\n'
    graph = config.build(tomllib.loads(text)).topology
    assert graph.name == "participation(random_in(n=10, k=3, seed=9), fraction=0.5, seed=2)"


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
