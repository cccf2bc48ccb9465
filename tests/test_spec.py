"""Specs and how they become calls."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topofl import _spec, algorithms, data, models, topologies
from topofl._spec import build_topology
from topofl._support.calls import Spec, parse_spec, parse_value
from topofl.data import partitioners


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("ring", "ring", {}),
        ("ring:100", "ring", {"n": 100}),
        (" ring : 100 ", "ring", {"n": 100}),
        ("dcliques:100,inter=ring,seed=0", "dcliques", {"n": 100, "inter": "ring", "seed": 0}),
        ("exponential:8,directed=true", "exponential", {"n": 8, "directed": True}),
        (
            "gn_lenet,in_shape=[1, 28, 28],n_classes=10",
            "gn_lenet",
            {"in_shape": [1, 28, 28], "n_classes": 10},
        ),
        ("mnist,root=a=b", "mnist", {"root": "a=b"}),
        ("mnist,root=a (b, c)/d", "mnist", {"root": "a (b, c)/d"}),
        ("participation,base=(ring:9),seed=1", "participation", {"base": "(ring:9)", "seed": 1}),
        (
            "x,base=(y,base=(z:1,a=2),b=[3,4]),c=5",
            "x",
            {"base": "(y,base=(z:1,a=2),b=[3,4])", "c": 5},
        ),
        ("mine:wheel", "mine:wheel", {}),
        (" mine : wheel ", "mine:wheel", {}),
        ("a.b:c,n=10,hub=none", "a.b:c", {"n": 10, "hub": None}),
        ("a.b:c:10,hub=1", "a.b:c", {"n": 10, "hub": 1}),
        ("random_in,base=(mine:wheel,n=3)", "random_in", {"base": "(mine:wheel,n=3)"}),
        (r"C:\ring.graphml,own_weights=true", r"C:\ring.graphml", {"own_weights": True}),
        ("C:/ring.npz", "C:/ring.npz", {}),
        ("ring.npz:10", "ring.npz", {"n": 10}),
        ("ring:1e3", "ring", {"n": 1000.0}),
        ("ring:[1,2]", "ring", {"n": [1, 2]}),
        ("ring(n=10)", "ring", {"n": 10}),
        ("dsgd()", "dsgd", {}),
        (" mine:dsgd (lr=0.1, steps=[1, 2]) ", "mine:dsgd", {"lr": 0.1, "steps": [1, 2]}),
        (
            "timed(algorithm=d2(lr=cosine(0.5, rounds=3)), clock=Clock(delay=0.1))",
            "timed",
            {"algorithm": "d2(lr=cosine(0.5, rounds=3))", "clock": "Clock(delay=0.1)"},
        ),
    ],
)
def test_parse_spec(text, name, arguments):
    assert parse_spec(text) == Spec(name, arguments)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("none", None),
        ("ring", "ring"),
        ("", ""),
        ("[]", []),
        ("[1,a,2.5]", [1, "a", 2.5]),
        ("[[1,2],[3]]", [[1, 2], [3]]),
        ("(ring:9)", "(ring:9)"),
        ("[", "["),
        ("9" * 5000, float("inf")),
    ],
)
def test_values(text, value):
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.slow
@given(st.text() | st.text(alphabet="ring:,=[]()019.-eE_ \t\n", max_size=30))
def test_any_text_is_parsed_or_refused(text):
    try:
        spec = parse_spec(text)
    except ValueError:
        return
    assert spec.name
    assert all(isinstance(key, str) and key for key in spec.arguments)


@given(st.text(alphabet="dcliquesring:,=[]nseedinter019.-_", max_size=20))
def test_any_text_is_built_or_refused(text):
    try:
        spec = parse_spec(text)
        n = spec.arguments.get("n", 1)
        if spec.name in topologies.__all__ and isinstance(n, int) and n < 100:
            build_topology(spec.name, spec.arguments)
        else:
            with pytest.raises(ValueError, match=r"there is no topology|must be of one of"):
                build_topology(f"no {spec.name}", spec.arguments)
    except (ValueError, TypeError):
        return


@given(st.text(alphabet="ringbase:,=()019", max_size=20))
def test_any_base_is_built_or_refused(text):
    try:
        built = build_topology("participation", {"base": text, "fraction": 1, "seed": 0})
    except (ValueError, TypeError):
        return
    assert built.value.n == built.arguments["base"]["n"]


FAILING = {"fail": 0.1, "recover": 0.5, "seed": 0}


@pytest.mark.parametrize(
    "base",
    [
        "ring:8",
        "(ring:8)",
        " ( ring:8 ) ",
        {"name": "ring", "n": 8},
        {"spec": "ring", "n": 8},
        {"spec": "(ring:8)"},
    ],
)
def test_graphs_of_graphs(base):
    built = build_topology("link_failures", {"base": base, **FAILING})
    assert built.value.name == topologies.link_failures(topologies.ring(8), **FAILING).name
    assert built.arguments == {"name": "link_failures", "base": {"name": "ring", "n": 8}, **FAILING}
    assert built.notes == []
    said = {key: value for key, value in built.arguments.items() if key != "name"}
    assert build_topology("link_failures", said).arguments == built.arguments


def test_nested_specs_are_those_of_python():
    inner = "link_failures,base=(circulant:10,offsets=[1,3]),fail=0.1,recover=0.5,seed=0"
    spec = parse_spec(f"participation,base=({inner}),fraction=0.5,seed=1")
    built = build_topology(spec.name, spec.arguments).value
    wanted = topologies.participation(
        topologies.link_failures(topologies.circulant(10, [1, 3]), **FAILING), fraction=0.5, seed=1
    )
    assert built.name == wanted.name
    assert all((built.at(t).adjacency != wanted.at(t).adjacency).nnz == 0 for t in range(5))


def test_nested_specs_may_be_calls():
    both = ("(circulant:10,offsets=[1,3])", "circulant(n=10, offsets=[1, 3])")
    built = [build_topology("link_failures", {"base": base, **FAILING}) for base in both]
    assert built[0].arguments == built[1].arguments
    assert built[1].arguments["base"]["offsets"] == [1, 3]


def test_notes_of_a_base_say_so():
    built = build_topology("participation", {"base": "(dcliques:20)", "fraction": 0.5})
    assert built.notes == [
        "no `seed` given; 0 is used",
        "`base`: no `seed` given; 0 is used",
        "`base`: no data given; one class per node is used",
    ]
    assert built.arguments["base"]["seed"] == 0


def test_a_base_gets_the_data():
    counts = np.eye(10, dtype=int)[np.arange(20) % 10]
    half = {"fraction": 0.5, "seed": 0}
    assert build_topology("participation", {"base": "ring", **half}, counts).value.n == 20
    built = build_topology("participation", {"base": "(dcliques,seed=0)", **half}, counts)
    assert "label_counts[20x10]" in built.value.name
    assert built.notes == []


def test_catalogue_is_what_the_packages_export():
    kinds = _spec.catalogue()
    assert list(kinds["topology"]) == topologies.__all__
    assert list(kinds["algorithm"]) == [*algorithms.__all__, "timed"]
    assert list(kinds["model"]) == [
        name for name in models.__all__ if name not in ("lora", "of_kinds", "with_group_norm")
    ]
    assert set(kinds["dataset"]) == {*data.READERS} >= {"digits", "mnist", "cifar10", "femnist"}
    assert set(kinds["partition"]) == set(partitioners.__all__)
    assert {"metropolis_hastings", "uniform"} <= set(kinds["mixing"])
    assert list(kinds["augmentation"]) == ["crop_and_flip"]
    assert list(kinds["task"]) == ["classification", "multi_label", "next_token", "regression"]
    assert not {"lazy", "from_weights"} & set(kinds["mixing"])
    assert list(kinds["attack"]) == [
        *("alie", "dissensus", "inner_product", "model_replacement", "noise", "sign_flip"),
    ]
    assert list(kinds["clock"]) == ["Clock", "exponential", "lognormal"]
    assert set(kinds["compressor"]) == {"no_compression", "quantized", "random_k", "sign", "top_k"}
    assert set(kinds["schedule"]) == {"constant", "cosine", "exponential"}
    for kind, functions in kinds.items():
        assert functions, kind
        assert all(inspect.getdoc(function) for function in functions.values())


def test_random_generators_get_a_seed_and_a_note():
    built = build_topology("random_regular", {"n": 10, "k": 3})
    assert built.arguments == {"name": "random_regular", "n": 10, "k": 3, "seed": 0}
    assert built.notes == ["no `seed` given; 0 is used"]
    assert built.value.name == topologies.random_regular(10, 3, seed=0).name
    assert build_topology("random_regular", {"n": 10, "k": 3, "seed": 1}).notes == []
    assert build_topology("ring", {"n": 10}).notes == []


def test_topologies_of_label_counts():
    counts = np.eye(10, dtype=int)[np.arange(20) % 10]
    alone = build_topology("dcliques", {"n": 20, "seed": 0})
    assert alone.notes == ["no data given; one class per node is used"]
    assert alone.arguments["n"] == 20
    built = build_topology("dcliques", {"n": 20, "seed": 0}, counts)
    assert built.notes == []
    assert "label_counts[20x10]" in built.value.name
    assert built.arguments["n"] is None
    assert built.arguments["clique_size"] == 10
    assert build_topology("ring", {}, counts).value.n == 20
    wrong = "`n` must be the number of nodes with data, 20, or left out, got 21"
    with pytest.raises(ValueError, match=wrong):
        build_topology("ring", {"n": 21}, counts)
    with pytest.raises(ValueError, match=f"`base`: {wrong}"):
        build_topology("participation", {"base": "(ring:21)", "fraction": 1, "seed": 0}, counts)
