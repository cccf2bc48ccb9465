"""Runs, configurations and specs work, or one message names what is wrong."""

import inspect
import json
import re
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import topofl
from tests import problems
from tests.fuzz_values import HUGE, TABLES, keys, plain, says_what_is_wrong, small_run, values
from topofl import algorithms, config, data, topologies

anything = plain | st.sampled_from(
    [
        *([], [1], ["auto"], {}, {"name": "ring"}, (), {1}, b"auto", 1j, object(), range(3)),
        *(slice(3), np.int64(2), np.float32(2), np.float64("nan"), np.bool_(True)),
        *(np.str_("auto"), np.array([]), np.eye(2), torch.tensor(2), torch.ones(3)),
        *(torch.float16, torch.int8, torch.float8_e4m3fn, torch.complex64, torch.device("cpu")),
        *(torch.device("meta"), torch.Size([1]), torch.nn.Flatten(), topologies.ring(5)),
        *(problems.equal_clients(2), algorithms.local_only(lr=0.1), data.crop_and_flip(padding=2)),
    ]
)


OPTIONS = {"evaluation": topofl.Evaluation, "compute": topofl.Compute}


OWN = {name: {field.name for field in fields(kind)} for name, kind in OPTIONS.items()}


ARGUMENTS = sorted(
    {*inspect.signature(topofl.run).parameters, *(name for own in OWN.values() for name in own)}
)


def ends(name, value):
    """Whether a run with this value ends: whoever asks for 2^50 rounds has to wait for them."""
    return name != "rounds" or not isinstance(value, int | float) or value < 10


def is_said_once(changed):
    """Whether no object is given both as a whole and by its own names."""
    return not any(name in changed and own & set(changed) for name, own in OWN.items())


changes = st.dictionaries(st.sampled_from(ARGUMENTS), anything, min_size=1, max_size=2)


@settings(max_examples=200)
@given(
    changes.filter(
        lambda changed: is_said_once(changed) and all(ends(*item) for item in changed.items())
    )
)
def test_run_runs_or_names_the_argument(tmp_path_factory, changed):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("run"))
        try:
            history = topofl.run(**problems.options(**(small_run() | changed)))
        except (ValueError, TypeError) as error:
            message = str(error)
        else:
            assert np.isfinite(history["train_loss"]).all()
            return
    assert re.search(r"`[a-z_.]+(\[.*\])?`", message), message


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(
    "value", [object(), float("nan"), np.ones(3)], ids=["object", "nan", "array"]
)
def test_every_argument_of_run_is_checked_by_name(name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError), match=f"`{name}`"):
        topofl.run(**problems.options(**(small_run() | {name: value})))


PATIENCE = ("rounds", "steps", "local_steps")


tables = st.sampled_from(list(TABLES))


@st.composite
def configurations(draw):
    """Draw a valid configuration and edit it."""
    edited = {name: dict(table) for name, table in TABLES.items()}
    for _ in range(draw(st.integers(1, 2))):
        name, key, value = draw(tables), draw(keys), draw(values)
        match draw(
            st.sampled_from(["drop a table", "drop", "rename", "replace", "replace a table"])
        ):
            case "drop a table":
                edited.pop(name, None)
            case "replace a table":
                edited[name] = value
            case _ if not isinstance(edited.get(name), dict):
                pass
            case "drop":
                edited[name].pop(key, None)
            case "rename" if edited[name]:
                edited[name][key] = edited[name].pop(next(iter(edited[name])))
            case "replace":
                edited[name][draw(st.sampled_from([*TABLES[name], key]))] = value
    return edited


def quick(edited):
    return all(
        not isinstance(value, int | float) or value < 10
        for table in edited.values()
        if isinstance(table, dict)
        for key, value in table.items()
        if key in PATIENCE
    )


def toml(value):
    """Return a value as TOML, all keys in quotes."""
    if isinstance(value, dict):
        pairs = ", ".join(
            f"{json.dumps(key)} = {toml(entry)}"
            for key, entry in value.items()
            if entry is not None
        )
        return "{" + pairs + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(entry) for entry in value if entry is not None) + "]"
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)


@settings(max_examples=80)
@given(configurations().filter(quick), st.booleans())
@pytest.mark.slow
def test_configurations_run_or_say_what_is_wrong(tmp_path_factory, edited, dry):
    folder = tmp_path_factory.mktemp("config")
    lines = [f"{name} = {toml(table)}" for name, table in edited.items() if table is not None]
    (folder / "small.toml").write_text("\n".join(lines), encoding="utf-8")
    words = ["--dry-run"] if dry else ["--out", folder / "out", "--no-progress"]
    code, line = says_what_is_wrong("run", folder / "small.toml", *words)
    assert (folder / "out").exists() == (code == 0 and not dry)
    assert code != 2 or "small.toml" in line


SIZES = "other sizes must give a model that fits into memory, but creating it failed: "


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("model", {"n_classes": HUGE}, SIZES),
        (
            "model",
            {"in_features": HUGE},
            "[model] `in_features`, `in_shape`, `n_classes` and other",
        ),
        ("data", {"enlarge": HUGE}, "[data] `enlarge` must be small enough for images to fit into"),
        ("data", {"name": "mnist", "root": 5}, "[data] `root` must be the path of a folder, got 5"),
        ("algorithm", {"lr": 1e300}, "small.toml: `lr` must be at most 3.4"),
        ("algorithm", {"lr": float("inf")}, "[algorithm] `lr` must be a finite number above 0"),
        ("compute", {"device": "meta"}, "[compute] `device` must be such as 'cpu'"),
        ("compute", {"device": "mps:7"}, "[compute] `device` must be"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_values_that_no_machine_can_use(tmp_path, monkeypatch, table, change, message, dry):
    monkeypatch.chdir(tmp_path)
    changed = TABLES | {table: TABLES[table] | change}
    (tmp_path / "small.toml").write_text(config.dumps(changed))
    code, line = says_what_is_wrong("run", "small.toml", *dry)
    assert code == 2
    assert message in line


TEXT = config.dumps(TABLES)


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(TEXT)), st.integers(0, 3), st.sampled_from(list('[]{}"=,.#-0a\n\0é'))
        ),
        max_size=3,
    )
)
def test_damaged_text_says_what_is_wrong(tmp_path_factory, edits):
    text = TEXT
    for place, cut, letter in edits:
        text = text[:place] + letter + text[place + cut :]
    if re.search(r"(rounds|steps) = \d{3}", text):
        return
    path = tmp_path_factory.mktemp("text") / "small.toml"
    path.write_text(text, encoding="utf-8")
    code, line = says_what_is_wrong("run", path, "--dry-run")
    assert code != 2 or "small.toml" in line


SPECS = (
    *("ring:8", "torus:9,rows=3", "tree:7,branching=2", "random_regular:8,k=3,seed=0"),
    *("dcliques:6,clique_size=3,seed=0", "exponential:8", "one_peer_exponential:8"),
    *("small_world:8,k=4,p=0.1,seed=0", "star:[5]", "ring:8,n=true"),
    "link_failures,base=(torus:9),fail=0.1,recover=0.5,seed=0",
    "participation,base=ring:8,fraction=0.5,seed=0",
)


edits = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 2), st.sampled_from(list(":,=()[]-0.e n"))),
    max_size=3,
)


@settings(max_examples=60)
@given(
    st.sampled_from(SPECS),
    edits,
    st.sampled_from([[], ["--about", "structure"], ["--rounds", "0"], ["--seed", "-1"]]),
)
def test_specs_are_compared_or_say_what_is_wrong(spec, edits, words):
    for place, cut, letter in edits:
        spec = spec[:place] + letter + spec[place + cut :]
    if not re.search(r"\d{3}|e\d", spec):
        says_what_is_wrong("spectral", *words, "--rounds=5", "--", spec)
