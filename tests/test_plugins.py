"""Names of a user's own modules, and of installed packages."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import topofl
from topofl import algorithms, config, data, metrics, mixing, models, topologies
from topofl._spec import Spec, build_topology, find, names, parse_spec
from topofl._support import plugins
from topofl.cli import main

MINE = '''
"""A user's module."""
from __future__ import annotations

import functools

import torch
from topofl import NotApplicable, TopologyError, algorithms, data, from_edges, mixing, models, \
topologies

made = topologies.ring(4)
half = functools.partial(topologies.ring)
_hidden = len

def wheel(n: int, hub: int = 0, *, base=None, key=len, sizes=(1, 2)):
    """Return a hub and its spokes.

    More.
    """
    return from_edges([(hub, i) for i in range(n) if i != hub], n=n)

def counted(label_counts):
    return topologies.ring(len(label_counts))

def on_another(base):
    return base

def any_keys(**keys):
    return topologies.ring(keys["n"])

def positional(n, /):
    return topologies.ring(n)

def nothing(n=3):
    topologies.ring(n)

def text(n=3):
    return "ring"

def fails(n=3):
    return {}["x"]

def refuses(n=3):
    raise ValueError("`n` must be prime")

def refuses_graph(n=3):
    raise TopologyError("no such graph")

def slow_sgd(lr, head=algorithms.head, local_steps=2):
    return algorithms.dsgd(lr, local_steps=local_steps)

class Net(torch.nn.Sequential):
    def __init__(self, in_features, n_classes, width=5):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(in_features, width), \
torch.nn.Linear(width, n_classes))
        self.scale = torch.nn.Parameter(torch.rand(()))

    def forward(self, x):
        return self.scale * super().forward(x)

def digits(test=300):
    return data.digits(test=test)

def split(source, n, seed):
    return data.iid(source, n, seed=seed)

def half_of(dataset):
    return dataset

def without_seed(dataset, n=4):
    return data.iid(dataset, n, seed=7)

def rule(graph, laziness=0.5):
    return mixing.lazy(mixing.metropolis_hastings(graph), share=laziness)

def no_rule():
    return None

def crops(padding=1):
    return data.crop_and_flip(padding=padding)

def heaviest(matrix):
    return float(matrix.weights.max())

def of_lines(matrix):
    raise TopologyError("it is no line")

def of_nothing(matrix):
    return NotApplicable("never")

def of_words(matrix):
    return "much"
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Make modules that Python finds: a good one, and some that cannot be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    names = ("mine_", "raises_", "needs_", "stops_", "wrong_")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "mine_.py").write_text(MINE)
    (tmp_path / "raises_.py").write_text("x = 1\n1 / 0\n")
    (tmp_path / "needs_.py").write_text("import there_is_no_such_module\n")
    (tmp_path / "stops_.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "wrong_.py").write_text("def f(:\n")
    yield tmp_path
    for name in names:
        sys.modules.pop(name, None)


def install(folder, name, points, version="1.0"):
    """Make the metadata of an installed package in a folder that is on the path."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(points))


@pytest.fixture
def package(mine):
    """Make a package with entry points in all groups, of which some are broken."""
    install(
        mine,
        "mypackage",
        """
        [topofl.topologies]
        spokes = mine_:wheel [extra]
        ring = mine_:wheel
        broken = raises_:f
        absent = mine_:whee
        [topofl.algorithms]
        slow = mine_:slow_sgd
        [topofl.data]
        my_digits = mine_:digits
        my_split = mine_:split
        [topofl.metrics]
        heavy = mine_:heaviest
        slem = mine_:heaviest
        """,
    )
    return mine


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


def test_files_with_colons_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a:b.npy", topologies.ring(5).adjacency.toarray())
    spec = parse_spec("a:b.npy,n=5")
    built = build_topology(spec.name, spec.arguments)
    assert built.value.n_edges == 5
    assert built.arguments["name"] == str(tmp_path / "a:b.npy")


def test_graphs_of_a_users_module(mine):
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
                "Python finds no module no_such; start topofl in the folder that holds it, "
                "or put that folder"
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
        ("ring:big", "if you mean ours, a number stands after the colon, as in ring:100"),
    ],
)
def test_functions_that_cannot_be_had_are_named(mine, name, message):
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
def test_functions_that_cannot_be_called_by_words_are_named(mine, kind, name, message):
    with pytest.raises(TypeError, match=message):
        find(kind, name)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "nothing",
            {},
            (
                "`mine_:nothing` must return a Topology or a TopologySequence, got None .*; "
                "does it lack a return"
            ),
        ),
        (
            "text",
            {},
            r"`mine_:text` must return a Topology .*, got 'ring' \(str\); "
            "wrap a graph of another library",
        ),
        (
            "slow_sgd",
            {"lr": 1},
            r"must return a Topology or a TopologySequence, got dsgd: .* \(Algorithm\)",
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
def test_mistakes_in_calls_of_a_users_function_are_named(mine, name, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build_topology(f"mine_:{name}", arguments)


def test_errors_of_graphs_keep_their_kind(mine):
    with pytest.raises(topofl.TopologyError, match=r"^no such graph$"):
        build_topology("mine_:refuses_graph", {})


TABLES = {
    "data": {"name": "mine_:digits", "partition": "mine_:split", "n": 4, "seed": 1},
    "topology": "mine_:wheel",
    "mixing": "mine_:rule,laziness=0.25",
    "algorithm": {"name": "mine_:slow_sgd", "lr": 0.5},
    "model": {"name": "mine_:Net", "width": 3},
    "run": {"rounds": 2, "seed": 0, "progress": False},
}


def test_experiments_of_a_users_functions_run_and_repeat(mine, tmp_path):
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
    assert again.tables == listed(experiment.tables)
    history = experiment.run()
    np.testing.assert_array_equal(history["accuracy"], again.run()["accuracy"])
    weights = mixing.lazy(mixing.metropolis_hastings(experiment.topology), share=0.25).weights
    np.testing.assert_array_equal(history.mixing(0).weights.toarray(), weights.toarray())
    assert experiment.model.scale.item() == again.model.scale.item()


def listed(tables):
    """Return tables with lists for tuples, as TOML has them."""
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
def test_mistakes_in_tables_name_the_table(mine, table, value, message):
    with pytest.raises((ValueError, TypeError), match=message):
        config.build(TABLES | {table: value})


def test_values_that_are_themselves_what_a_function_should_return(mine):
    with pytest.raises(
        TypeError,
        match=r"`net` must be a function that returns a torch.nn.Module, got Sequential.*write",
    ):
        plugins.returning("net", models.logistic_regression(), *names._RETURN_TYPES["model"])


def test_partitions_without_a_seed_may_have_labels_flipped(mine):
    changed = {"name": "digits", "partition": "mine_:without_seed", "flip_labels": 1}
    experiment = config.build(TABLES | {"data": changed})
    assert len(experiment.clients.flipped) == 1
    assert config.build(experiment.tables).clients.flipped == experiment.clients.flipped


def test_augmentations_may_be_a_users(mine):
    assert find("augmentation", "mine_:crops")(padding=2) == data.crop_and_flip(padding=2)


def test_entry_points_are_found_as_ours_are(package):
    assert build_topology("spokes", {"n": 4}).value.out_degrees.tolist() == [3, 1, 1, 1]
    assert build_topology("spokes", {"n": 4}).arguments["name"] == "spokes"
    assert str(find("algorithm", "slow")(lr=0.5)) == str(algorithms.dsgd(0.5, local_steps=2))
    tables = config.build(
        TABLES | {"data": "my_digits,partition=my_split,n=4", "algorithm": "slow,lr=1"}
    ).tables
    assert (tables["data"]["name"], tables["data"]["partition"], tables["algorithm"]["name"]) == (
        "my_digits", "my_split", "slow",
    )  # fmt: skip
    with pytest.raises(ValueError, match="no topology 'spoke'; did you mean 'spokes'"):
        find("topology", "spoke")
    with pytest.raises(ValueError, match=r"no algorithm 'zzz'; there are .*, slow$"):
        find("algorithm", "zzz")
    with pytest.raises(ValueError, match="no model 'spokes'; there are"):
        find("model", "spokes")
    with pytest.raises(TypeError, match="`my_split` must return a Dataset, got Partition"):
        find("dataset", "my_split")(data.digits(), n=4, seed=0)


def test_ours_win_and_a_warning_says_so(package):
    with pytest.warns(
        UserWarning,
        match=r"ring is the topology of topofl, not entry point ring \(mine_:wheel\) "
        "of package mypackage 1.0",
    ) as caught:
        assert find("topology", "ring") is topologies.ring
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_broken_entry_points_are_named_and_break_nothing_else(package):
    with pytest.raises(
        ValueError,
        match=r"the topology broken cannot be loaded, entry point broken \(raises_:f\) "
        r"of package mypackage 1.0: importing module raises_ raised ZeroDivisionError.*; "
        r"reinstall mypackage 1.0$",
    ):
        find("topology", "broken")
    with pytest.raises(
        ValueError,
        match=r"the topology absent cannot .* has no function `whee`; did you mean 'wheel'",
    ):
        find("topology", "absent")
    assert "raises_" not in sys.modules
    install(package, "other", "[topofl.topologies]\nno equals sign\n")
    install(package, "latin", "")
    (package / "latin-1.0.dist-info" / "entry_points.txt").write_bytes(
        b"[topofl.topologies]\nr\xe9 = a:b\n"
    )
    with pytest.warns(
        UserWarning, match="entry points of package other 1.0 cannot be read: .*; reinstall it"
    ):
        assert build_topology("spokes", {"n": 4}).value.n == 4


def test_nothing_is_imported_before_its_name_is_used(package):
    with pytest.raises(ValueError, match="did you mean"):
        find("topology", "spoke")
    assert find("topology", "torus") is topologies.torus
    assert plugins.offered("topology")[0] == ("absent", "mypackage 1.0", "mine_:whee")
    assert "mine_" not in sys.modules
    find("topology", "spokes")
    assert "mine_" in sys.modules


def test_two_packages_with_one_name_are_refused(package):
    install(package, "another", "[topofl.topologies]\nspokes = mine_:text\n")
    with pytest.raises(
        ValueError,
        match=r"spokes must be offered once, got .* of package another 1.0 and .* mypackage 1.0; "
        "write the one",
    ):
        find("topology", "spokes")
    assert find("topology", "mine_:wheel")(n=3).n == 3


def test_a_package_hides_older_ones_of_its_name(package, tmp_path, monkeypatch):
    (newer := tmp_path / "newer").mkdir()
    monkeypatch.syspath_prepend(newer)
    install(newer, "mypackage", "[topofl.topologies]\nonly = mine_:wheel\n", version="2.0")
    assert plugins.offered("topology") == [("only", "mypackage 2.0", "mine_:wheel")]
    assert plugins.offered("metric") == []


def test_metrics_may_be_a_users(package):
    graphs = [topologies.ring(6), topologies.random_in(6, 2, seed=0)]

    def edges_received(matrix):
        return matrix.n if isinstance(matrix, mixing.MixingMatrix) else None

    names = ["mine_:heaviest", "heavy", "diameter", "mine_:of_lines", "mine_:of_nothing"]
    table = metrics.compare(graphs[:1], about="averaging", metrics=[*names, edges_received])
    assert table.columns[-6:] == (*names, "edges_heard")
    third = pytest.approx(1 / 3)
    assert table.rows[0][-6:-3] == (third, third, 3)
    assert [str(cell) for cell in table.rows[0][-3:]] == ["n/a", "n/a", "6"]
    assert table.rows[0][-3].reason == "it is no line"
    assert metrics.compare(graphs[:1], about=[], metrics=edges_received).columns == (
        "name",
        "edges_heard",
    )
    with pytest.raises(TypeError, match="`edges_heard` must return a number, got None"):
        metrics.compare(graphs[1:], about=[], metrics=edges_received)
    with pytest.warns(
        UserWarning, match=r"slem is the metric of topofl, not entry point slem \(mine_:heaviest\)"
    ):
        table = metrics.compare(graphs[:1], about=[], metrics="slem")
    assert table.column("slem") == metrics.compare(graphs[:1], about="averaging").column("slem")


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([3], "`metrics` must hold functions or their names, got 3"),
        (3, "`metrics` must be a sequence of functions or of their names, got 3"),
        (
            [metrics.sparsity],
            "`metrics` must give every column a name of its own, got 'sparsity' twice",
        ),
        (["mine_:heaviest"] * 2, "got 'mine_:heaviest' twice"),
        (
            "mine_:of_words",
            r"`mine_:of_words` must return a number, got 'much' \(str\); convert it with float",
        ),
        ("mine_:fails", r"`mine_:fails` raised TypeError|`mine_:fails` raised KeyError"),
        ("spectral gab", "there is no metric 'spectral gab'; did you mean 'spectral gap'"),
        ("heav", "there is no metric 'heav'; did you mean 'heavy'"),
    ],
    ids=[
        "number",
        "one number",
        "ours",
        "twice",
        "words",
        "fails",
        "typo of ours",
        "typo of theirs",
    ],
)
def test_bad_metrics_are_named(package, chosen, message):
    with pytest.raises((ValueError, TypeError), match=message):
        metrics.compare([topologies.ring(6)], about=[], metrics=chosen)


def test_list_names_packages(package, capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for expected in (
        "  spokes(n, hub=0, *, base=None, key=<built-in function len>, sizes=[1, 2])\n"
        "      Return a hub and its spokes. (package mypackage 1.0)\n",
        (
            "  ring\n      not used, since topofl has its own ring; write mine_:wheel (package "
            "mypackage 1.0)\n"
        ),
        (
            "  broken\n      the topology broken cannot be loaded, entry point broken (raises_:f) "
            "of package mypackage 1.0"
        ),
        "  slow(lr, head=",
        "  heavy(matrix)\n",
        "  spectral gap\n      averaging: 1 - slem",
    ):
        assert expected in text
    assert main(["list", "metric"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "  slem",
        "      not used, since topofl has its own slem; write mine_:heaviest "
        "(package mypackage 1.0)",
    ]


def test_list_parts_data_by_what_functions_say_they_return(mine, capsys):
    (mine / "typed_.py").write_text(
        "from topofl import data\n"
        "def one(n) -> data.Dataset: ...\n"
        "def two(dataset, n) -> 'data.Partition': ...\n"
        "def three(n): ...\n"
    )
    install(
        mine, "typed", "[topofl.data]\none = typed_:one\ntwo = typed_:two\nthree = typed_:three\n"
    )
    found = {}
    for kind in ("dataset", "partition", "augmentation"):
        assert main(["list", kind]) == 0
        lines = capsys.readouterr().out.splitlines()
        found[kind] = [
            line.split("(")[0].strip()
            for line in lines
            if line.startswith(("  one(", "  two(", "  three("))
        ]
    sys.modules.pop("typed_")
    assert found == {
        "dataset": ["one", "three"],
        "partition": ["three", "two"],
        "augmentation": ["three"],
    }


def topofl_in(folder, *words):
    """Run the command as a process in a folder, without that folder on Python's path."""
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


def test_the_path_is_left_as_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    before = list(sys.path)
    assert main(["spectral", "ring:4", "--about", "structure"]) == 0
    assert sys.path == before
    with plugins.current_folder():
        assert sys.path == [*before, str(tmp_path)]
    capsys.readouterr()
