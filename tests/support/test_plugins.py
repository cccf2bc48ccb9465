"""User-defined functions given as module:function."""

import subprocess
import sys

import networkx as nx
import numpy as np
import pytest

import topofl
from tests.support.user_code import MINE, TABLES
from topofl import _spec, config, data, mixing, models, topologies
from topofl._spec import build_topology, find
from topofl._support import plugins
from topofl._support.calls import Spec, parse_spec
from topofl.cli import main


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mine:wheel", Spec("mine:wheel", {})),
        (" mine : wheel ", Spec("mine:wheel", {})),
        ("a.b:c,n=10,hub=none", Spec("a.b:c", {"n": 10, "hub": None})),
        ("a.b:c:10,hub=1", Spec("a.b:c", {"n": 10, "hub": 1})),
        ("random_in,base=(mine:wheel,n=3)", Spec("random_in", {"base": "(mine:wheel,n=3)"})),
        (
            r"C:\graphs\ring.graphml,own_weights=true",
            Spec(r"C:\graphs\ring.graphml", {"own_weights": True}),
        ),
        ("C:/ring.npz", Spec("C:/ring.npz", {})),
        ("ring.npz:10", Spec("ring.npz", {"n": 10})),
        ("ring:1e3", Spec("ring", {"n": 1000.0})),
        ("ring:[1,2]", Spec("ring", {"n": [1, 2]})),
    ],
)
def test_specs_with_colons(text, expected):
    assert parse_spec(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ring:", "'ring:' must have a number or a function after its colon"),
        ("mine:wheel:", "'mine:wheel:' must have a number or a function after its colon"),
        (":wheel", "must begin with a name"),
        ("mine:dsgt:lr=0.5", "must have a comma before each key=value: write mine:dsgt,lr=0.5"),
    ],
)
def test_bad_specs_with_colons(text, message):
    with pytest.raises(ValueError, match=message):
        parse_spec(text)


@pytest.mark.parametrize("name", ["petersen", "matrix", "pairs", "rounds"])
def test_functions_may_return_any_graph(mine, name):
    built = build_topology(f"mine_:{name}", {}).value
    assert isinstance(built, topofl.Topology | topofl.TopologySequence)
    assert built.n == {"petersen": 10}.get(name, 3)
    assert built.name == name
    if name == "petersen":
        assert (built.adjacency != topofl.as_topology(nx.petersen_graph()).adjacency).nnz == 0


def test_files_with_colons_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a:b.npy", topologies.ring(5).adjacency.toarray())
    spec = parse_spec("a:b.npy,n=5")
    built = build_topology(spec.name, spec.arguments)
    assert built.value.n_edges == 5
    assert built.arguments["name"] == str(tmp_path / "a:b.npy")


def test_user_defined_topologies(mine):
    built = build_topology("mine_:wheel", {"n": 5, "hub": 1})
    assert built.value.out_degrees.tolist() == [1, 4, 1, 1, 1]
    assert built.arguments == {
        "name": "mine_:wheel",
        "n": 5,
        "hub": 1,
        "base": None,
        "sizes": (1, 2),
    }
    said = {key: value for key, value in built.arguments.items() if key != "name"}
    assert (build_topology("mine_:wheel", said).value.adjacency != built.value.adjacency).nnz == 0
    counts = np.eye(10, dtype=int)
    assert build_topology("mine_:wheel", {}, counts).value.n == 10
    assert build_topology("mine_:counted", {}, counts).value.n == 10
    assert build_topology("mine_:on_another", {"base": "mine_:wheel:6"}).value.n == 6
    assert (
        build_topology(
            "link_failures", {"base": "(mine_:wheel,n=6)", "fail": 0, "recover": 1, "seed": 0}
        ).value.n
        == 6
    )
    assert build_topology("mine_:any_keys", {"n": 7, "more": 3}).value.n == 7
    assert build_topology("mine_:half", {"n": 7}).value.n == 7
    assert find("topology", "topofl.topologies:ring") is topologies.ring


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "no_such:wheel",
            (
                "Python finds no module no_such in .*, installed packages; put it next to the "
                "experiment's file, start topofl in the folder that holds it, or put that folder"
            ),
        ),
        ("mine_.part:wheel", "Python finds no module mine_.part"),
        (
            "mine_:weel",
            r"module mine_ \(.*mine_.py\) has no function `weel`; did you mean 'wheel'\?",
        ),
        ("mine_:zzzzzz", r"has no function `zzzzzz`; it has wheel, counted, on_another"),
        ("mine_:made", "`made` of module mine_ must be a function, got <?Topology"),
        ("mine_:__doc__", '`__doc__` of module mine_ must be a function, got "A user\'s module."'),
        (
            "raises_:f",
            r"importing module raises_ raised ZeroDivisionError: division by zero "
            r"\(line 2 of raises_.py\)",
        ),
        (
            "needs_:f",
            (
                "importing module needs_ raised ModuleNotFoundError: No module named "
                "'there_is_no_such_module'"
            ),
        ),
        ("stops_:f", "importing module stops_ raised SystemExit: 3"),
        ("wrong_:f", r"importing module wrong_ raised SyntaxError: .*wrong_.py, line 1"),
        ("mine_:", "a name with a colon must be module:function, as in mymodule:wheel"),
        (":wheel", "a name with a colon must be module:function"),
        ("mine_:wheel:x", "a name with a colon must be module:function"),
        (r"C:\ring.txt", "a name with a colon must be module:function"),
        (
            "ring:big",
            "to use topofl's own, put the number of nodes after the colon, as in ring:100",
        ),
    ],
)
def test_functions_that_cannot_be_loaded_are_named(mine, name, message):
    with pytest.raises((ValueError, TypeError), match=message) as error:
        build_topology(name, {})
    assert str(error.value).startswith(f"there is no topology {name!r}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (
            "topology",
            "mine_:positional",
            "`mine_:positional` must take its arguments by name, got `n` before the /",
        ),
        (
            "topology",
            "builtins:dict",
            "`builtins:dict` must be a function whose parameters can be read",
        ),
        ("mixing", "mine_:no_rule", "`mine_:no_rule` must take the topology as its first argument"),
        (
            "partition",
            "mine_:any_keys",
            "`mine_:any_keys` must take the dataset as its first argument",
        ),
    ],
)
def test_functions_that_cannot_be_called_by_keyword_are_named(mine, kind, name, message):
    with pytest.raises(TypeError, match=message):
        find(kind, name)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "nothing",
            {},
            (
                r"`mine_:nothing` must return a Topology or another graph that topofl\.as_topology "
                r"accepts, got None \(NoneType\); "
                "does it lack a return"
            ),
        ),
        (
            "text",
            {},
            r"`mine_:text` must return a Topology .*, got 'ring' \(str\): "
            "`graph` must be a networkx or PyG graph, .* got str",
        ),
        (
            "slow_sgd",
            {"lr": 1},
            r"must return a Topology or another graph .*, got dsgd: .* \(Algorithm\): `graph` must",
        ),
        ("fails", {}, r"`mine_:fails` raised KeyError: 'x' \(line \d+ of mine_.py\)"),
        ("refuses", {}, r"`n` must be prime \(line \d+ of mine_.py\)"),
        (
            "wheel",
            {"n": 5, "hubs": 1},
            "`mine_:wheel` takes n, hub, base, key, sizes, not 'hubs'; did you mean 'hub'",
        ),
        ("wheel", {}, "`mine_:wheel` needs `n`"),
    ],
)
def test_errors_in_calls_of_user_defined_functions_are_explained(mine, name, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build_topology(f"mine_:{name}", arguments)


def test_topology_errors_keep_their_type(mine):
    with pytest.raises(topofl.TopologyError, match=r"^no such graph$"):
        build_topology("mine_:refuses_graph", {})


def test_experiments_with_user_defined_functions_run_and_repeat(mine, tmp_path):
    experiment = config.build(TABLES)
    assert experiment.tables["algorithm"] == {"name": "mine_:slow_sgd", "lr": 0.5, "local_steps": 2}
    assert experiment.tables["model"] == {
        "name": "mine_:Net",
        "in_features": 64,
        "n_classes": 10,
        "width": 3,
    }
    assert experiment.tables["mixing"] == {"name": "mine_:rule", "laziness": 0.25}
    assert [experiment.tables["data"][key] for key in ("name", "partition")] == [
        "mine_:digits",
        "mine_:split",
    ]
    (tmp_path / "again.toml").write_text(config.dumps(experiment.tables))
    again = config.load(tmp_path / "again.toml")
    assert again.tables == listed(experiment.tables) | {"modules": {"folder": str(tmp_path)}}
    history = experiment.run()
    np.testing.assert_array_equal(history["accuracy"], again.run()["accuracy"])
    weights = mixing.lazy(mixing.metropolis_hastings(experiment.topology), share=0.25).weights
    np.testing.assert_array_equal(history.mixing(0).weights.toarray(), weights.toarray())
    assert experiment.model.scale.item() == again.model.scale.item()


def listed(tables):
    """Return tables with lists in place of tuples, as in TOML."""
    plain = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in tables["topology"].items()
    }
    return tables | {"topology": plain}


@pytest.mark.parametrize(
    ("table", "value", "message"),
    [
        (
            "algorithm",
            "mine_:wheel,n=3",
            r"\[algorithm\] `mine_:wheel` must return an Algorithm, got <?Topology",
        ),
        ("model", "mine_:heaviest,matrix=3", r"\[model\] `mine_:heaviest` raised AttributeError"),
        (
            "model",
            "mine_:text",
            r"\[model\] `mine_:text` must return a torch.nn.Module, got 'ring'",
        ),
        ("data", "mine_:nothing,n=3", r"\[data\] `mine_:nothing` must return a Dataset, got None"),
        (
            "data",
            "digits,partition=mine_:half_of",
            r"\[data\] `mine_:half_of` must return a Partition, got Dataset",
        ),
        (
            "algorithm",
            "mine_:dsgt,lr=1",
            r"\[algorithm\] there is no algorithm 'mine_:dsgt': module mine_",
        ),
    ],
)
def test_errors_in_tables_name_the_table(mine, table, value, message):
    with pytest.raises((ValueError, TypeError), match=message):
        config.build(TABLES | {table: value})


def test_results_in_place_of_functions_are_refused(mine):
    with pytest.raises(
        TypeError,
        match=r"`net` must be a function that returns a torch.nn.Module, got Sequential.*wrap it",
    ):
        plugins.with_checked_result(
            "net", models.logistic_regression(), *_spec._RETURN_TYPES["model"]
        )


def test_partitions_without_a_seed_may_have_labels_flipped(mine):
    changed = {"name": "digits", "partition": "mine_:without_seed", "flip_labels": 1}
    experiment = config.build(TABLES | {"data": changed})
    assert len(experiment.clients.flipped) == 1
    assert config.build(experiment.tables).clients.flipped == experiment.clients.flipped


def test_augmentations_can_be_user_defined(mine):
    assert find("augmentation", "mine_:crops")(padding=2) == data.crop_and_flip(padding=2)


def topofl_in(folder, *words):
    """Run topofl as a process in a folder that is not on Python's path."""
    code = (
        "import sys; sys.path = [p for p in sys.path if p]; "
        "from topofl.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


@pytest.mark.slow
def test_the_command_finds_modules_of_the_current_folder(tmp_path):
    (tmp_path / "mine_.py").write_text(MINE)
    (tmp_path / "json.py").write_text("1 / 0\n")  # which must not take the library's place
    done = topofl_in(
        tmp_path,
        "spectral",
        "mine_:wheel,n=6",
        "--about",
        "paths",
        "--metrics",
        "mine_:heaviest",
        "--json",
    )
    assert done.stderr == ""
    assert '"diameter": 2,' in done.stdout
    assert '"mine_:heaviest": 0.8333333333333334' in done.stdout
    done = topofl_in(tmp_path, "spectral", "mine_:weel:6")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "topofl: error: mine_:weel:6: there is no topology 'mine_:weel': module mine_ ("
    )


def test_sys_path_is_restored(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    before = list(sys.path)
    assert main(["spectral", "ring:4", "--about", "structure"]) == 0
    assert sys.path == before
    with plugins.current_folder():
        assert sys.path == [*before, str(tmp_path)]
    capsys.readouterr()
