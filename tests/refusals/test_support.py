"""Calls in text, tables, seeds, threads, paths, and functions of a user that cannot be used."""

import sys

import pytest

from tests.refusals import named, refused
from tests.rows.user_code import TABLES, install, installed_modules
from topofl import (
    History,
    Saving,
    TopologyError,
    _spec,
    callbacks,
    clocks,
    config,
    data,
    metrics,
    models,
    topologies,
)
from topofl._spec import build_topology, find
from topofl._support import plugins
from topofl._support.calls import evaluate_call, parse_spec
from topofl._support.seeding import stream
from topofl._support.table import Table
from topofl._support.threads import worker_threads

FUNCTIONS = {"pair": lambda a, b=0: (a, b), "range": range}
TABLE = Table(("graph", "nodes"), (("ring", 3),))
COLON = "a name with a colon must be module:function"
AFTER = "must have a number or a function after its colon"


def called(text):
    return lambda: evaluate_call("x", text, FUNCTIONS, "pair(1)")


def spec(text):
    return lambda: parse_spec(text)


def graph(name, **arguments):
    return lambda: build_topology(name, arguments)


def based(base):
    failing = {"fail": 0.1, "recover": 0.5, "seed": 0} | ({} if base is None else {"base": base})
    return graph("link_failures", **failing)


def table(**changes):
    return lambda: config.build(TABLES | changes)


def compared(chosen):
    return lambda: metrics.compare([topologies.ring(6)], about=[], metrics=chosen)


def with_workers(workers):
    def call():
        with worker_threads(workers):
            pass

    return call


def of_two_packages(path):
    install(path, "another", "[topofl.topologies]\nspokes = mine_:text\n")
    find("topology", "spokes")


def checked_result():
    kinds = _spec._RETURN_TYPES["model"]
    plugins.with_checked_result("net", models.logistic_regression(), *kinds)


VALUES = [
    # Text that is a call
    ("`x` must set `a` once, got it twice in 'pair", called("pair(a=1, a=2)")),
    ("`x` must set `b` once, got it twice", called("pair(pair(1, b=2, b=3))")),
    (
        "`clock.compute` must set `mean` once, got it twice",
        lambda: clocks.Clock(compute="exponential(mean=1, mean=2)"),
    ),
    (("`x` must be such as pair(1), got ", "hal"), called("mine_:heaviest(hal=8)")),
    (("`x` names ", "`whel`", "did you mean 'wheel'"), called("mine_:whel")),
    (("`x` names ", "Python finds no module absent_"), called("absent_:half")),
    # Specs
    ("must begin with a name", spec("")),
    ("must begin with a name", spec(":100")),
    ("must begin with a name", spec("n=100")),
    ("'10' in 'ring(10)' must be key=value", spec("ring(10)")),
    ("`k` must be given once", spec("ring(k=1, k=2)")),
    ("comma before each key=value: write dsgd,lr=0.5", spec("dsgd:lr=0.5")),
    ("write dsgd,lr=0.5,batch_size=8", spec("dsgd:lr=0.5,batch_size=8")),
    ("write mine:dsgt,lr=0.5", spec("mine:dsgt:lr=0.5")),
    ("'' in 'ring:100,' must be key=value", spec("ring:100,")),
    ("'100' in 'ring,100' must be key=value", spec("ring,100")),
    ("must be key=value", spec("ring:100,=3")),
    ("'dsgd(lr=0.1)' in 'timed(dsgd(lr=0.1))' must be key=value", spec("timed(dsgd(lr=0.1))")),
    ("`n` must be given once", spec("ring:100,n=3")),
    ("`seed` must be given once", spec("dcliques,seed=0,seed=0")),
    (
        "'participation,base=(ring:9,seed=1' must close its brackets, ')' is missing",
        spec("participation,base=(ring:9,seed=1"),
    ),
    ("must close its brackets, ']' is missing", spec("gn_lenet,in_shape=[1,28")),
    ("brackets, ')' is missing", spec("participation,base=(ring:9,(a]),seed=1")),
    (f"'ring:' {AFTER}", spec("ring:")),
    (f"'mine:wheel:' {AFTER}", spec("mine:wheel:")),
    # Names, keys and bases of topologies
    ("there is no topology 'rng'; did you mean 'ring'", graph("rng")),
    (("no mixing 'zzz'; there are ", "uniform"), lambda: find("mixing", "zzz")),
    ("`torus` takes n, rows, not 'row'; did you mean 'rows'", graph("torus", row=3)),
    ("not 'label_counts'", graph("dcliques", label_counts=3, seed=0)),
    ("`random_regular` needs `n` and `k`; add n=..., k=...", graph("random_regular")),
    (
        "`greedy_collaboration` can be built only in Python, since its `reward` is a",
        graph("greedy_collaboration", n=5),
    ),
    (
        "`greedy_collaboration` can be built only in Python, since its `reward` is a",
        graph("greedy_collaboration", n=5, reward="x", seed=0),
    ),
    ("`n` must be at least 1, got 0", graph("ring", n=0), graph("ring", n=1)),
    ("`link_failures` needs `base`", based(None)),
    ("`base`: there is no topology 'rng'; did you mean 'ring'", based("(rng:8)")),
    ("`base`: `torus` takes n, rows, not 'row'; did", based("(torus:9,row=3)")),
    (
        "`base`: `base`: there is no topology 'rng'; did you mean 'ring'",
        based("(participation,base=(rng:8),fraction=1)"),
    ),
    ("`base`: `ring` needs `n`", based("(ring)")),
    ("`base`: `n` must be at least 1, got 0", based("(ring:0)")),
    ("`base`: '' must begin with a name", based("()")),
    ("`base`: must be a table or text such as 'ring', got 8", based(8)),
    ("`base`: `name` is missing", based({"n": 8})),
    ("`base`: `n` must be given once, got it in", based({"spec": "ring:8", "n": 8})),
    # Functions of modules that cannot be loaded
    (
        ("there is no topology 'no_such:wheel': Python finds no module no_such in ", "installed"),
        graph("no_such:wheel"),
    ),
    ("put it next to the experiment's file, start topofl in", graph("no_such:wheel")),
    ("Python finds no module mine_.part", graph("mine_.part:wheel")),
    (
        "no model 'mine_.net'; of the module mine_, write mine_:net",
        lambda: find("model", "mine_.net"),
    ),
    ("no topology 'mine_'; of the module mine_, write mine_:function", graph("mine_")),
    ("of a module, not of its file, got mine_.py; write mine_:wheel", graph("mine_.py:wheel")),
    (
        ("module mine_ (", "mine_.py) has no function `weel`; did you mean 'wheel'?"),
        graph("mine_:weel"),
    ),
    ("has no function `zzzzzz`; it has wheel, counted, on_another", graph("mine_:zzzzzz")),
    ("module raises_ raised ZeroDivisionError: division by zero (line 2 of ra", graph("raises_:f")),
    ("module needs_ raised ModuleNotFoundError: No module named 'there_is_no_s", graph("needs_:f")),
    ("importing module stops_ raised SystemExit: 3", graph("stops_:f")),
    (("wrong_ raised SyntaxError: ", "wrong_.py, line 1"), graph("wrong_:f")),
    (f"{COLON}, as in mymodule:wheel", graph("mine_:")),
    (COLON, graph(":wheel")),
    (COLON, graph("mine_:wheel:x")),
    (COLON, graph(r"C:\ring.txt")),
    ("put the number of nodes after the colon, as in ring:100", graph("ring:big")),
    (("`mine_:fails` raised KeyError: 'x' (line ", " of mine_.py)"), graph("mine_:fails")),
    ("`n` must be prime (line ", graph("mine_:refuses")),
    ("not 'hubs'; did you mean 'hub'", graph("mine_:wheel", n=5, hubs=1)),
    ("`mine_:wheel` needs `n`", graph("mine_:wheel")),
    ("[model] `mine_:heaviest` raised AttributeError", table(model="mine_:heaviest,matrix=3")),
    ("[algorithm] there is no algorithm 'mine_:dsgt': module", table(algorithm="mine_:dsgt,lr=1")),
    # Entry points
    ("no topology 'spoke'; did you mean 'spokes'", lambda: find("topology", "spoke")),
    (("no algorithm 'zzz'; there are ", ", slow"), lambda: find("algorithm", "zzz")),
    ("no model 'spokes'; there are", lambda: find("model", "spokes")),
    (
        (
            "the topology broken cannot be loaded, entry point broken (raises_:f) of package "
            "mypackage 1.0: importing module raises_ raised ZeroDivisionError",
            "; reinstall mypackage 1.0",
        ),
        lambda: find("topology", "broken"),
    ),
    (
        ("the topology absent cannot ", " has no function `whee`; did you mean 'wheel'"),
        lambda: find("topology", "absent"),
    ),
    (
        (
            "spokes must be an entry point of one ",
            "another 1.0 and ",
            "mypackage 1.0; name the function",
        ),
        of_two_packages,
    ),
    ("`metrics` must have a distinct name for every column, got 'sp", compared([metrics.sparsity])),
    ("got 'mine_:heaviest' twice", compared(["mine_:heaviest"] * 2)),
    ("`mine_:fails` raised ", compared("mine_:fails")),
    ("no metric 'spectral gab'; did you mean 'spectral gap'", compared("spectral gab")),
    ("there is no metric 'heav'; did you mean 'heavy'", compared("heav")),
    # Tables
    ("`rows` must have 2 cells each", lambda: Table(("a", "b"), ((1, 2), (1,)))),
    ("`columns` must have distinct names", lambda: Table(("a", "a"), ())),
    (("`name` must be one of ", "you mean 'nodes'"), lambda: TABLE.column("node")),
    ("got 'nodess'; did you mean 'nodes'", lambda: TABLE.select(["nodes", "nodess"])),
    ("`columns` must have distinct names", lambda: TABLE.select(["graph", "graph"])),
    ("`columns` must name at least one column", lambda: TABLE.select([])),
    # Others
    ("`seed`", lambda: stream(-1, "graph"), lambda: stream(0, "graph")),
    ("`workers` must be", with_workers(0), with_workers(1)),
]
"""Calls that raise ValueError, after parts of the message."""

TYPES = [
    (("`x` names ", "`made` ", "must be a function, got"), called("mine_:made")),
    ("the name of a topology must be text, got 3", graph(3)),
    ("`n` must be an integer, got 'x'", graph("ring", n="x")),
    ("`base` must be one graph, got TopologySequence", graph("matchings", base="random_in:8,k=2")),
    ("`base`: `spec` must be text", based({"spec": 8})),
    ("`base`: the name of a topology must be text, got 8", based({"name": 8})),
    ("`made` of module mine_ must be a function, got", graph("mine_:made")),
    (
        '`__doc__` of module mine_ must be a function, got "A user\'s module."',
        graph("mine_:__doc__"),
    ),
    (
        "`mine_:positional` must take its arguments by name, got `n` before the /",
        lambda: find("topology", "mine_:positional"),
    ),
    (
        "`builtins:dict` must be a function whose parameters can be read",
        lambda: find("topology", "builtins:dict"),
    ),
    ("`mine_:no_rule` must take the topology as its firs", lambda: find("mixing", "mine_:no_rule")),
    ("`mine_:any_keys` must take the dataset as its", lambda: find("partition", "mine_:any_keys")),
    (
        ("`net` must be a function that returns a torch.nn.Module, got Sequential", "wrap it"),
        checked_result,
    ),
    (
        (
            "`mine_:nothing` must return a Topology or another graph that topofl.as_topology "
            "accepts, got None (NoneType); does it lack a return",
        ),
        graph("mine_:nothing"),
    ),
    (
        ("must return a Topology ", ", got 'ring' (str): `graph` must be a networkx or PyG graph"),
        graph("mine_:text"),
    ),
    (" (Algorithm): `graph` must", graph("mine_:slow_sgd", lr=1)),
    ("[algorithm] `mine_:wheel` must return an Algorithm, got", table(algorithm="mine_:wheel,n=3")),
    ("[model] `mine_:text` must return a torch.nn.Module, got 'ring'", table(model="mine_:text")),
    ("[data] `mine_:nothing` must return a Dataset, got None", table(data="mine_:nothing,n=3")),
    ("[data] `mine_:half_of` must return a Partitio", table(data="digits,partition=mine_:half_of")),
    (
        "`my_split` must return a Dataset, got Partition",
        lambda: find("dataset", "my_split")(data.digits(), n=4, seed=0),
    ),
    ("`metrics` must hold functions or their names, got 3", compared([3])),
    ("`metrics` must be a sequence of functions or of their names, got 3", compared(3)),
    (
        "`mine_:of_words` must return a number, got 'much' (str); convert it with float",
        compared("mine_:of_words"),
    ),
    ("`columns` must be a name of a column or a list", lambda: TABLE.select(3)),
    ("`columns` must be a name of a column or a list", lambda: TABLE.select([3])),
    ("`seed`", lambda: stream(0.5, "graph")),
    ("`workers` must be", with_workers(1.5)),
    ("`workers` must be", with_workers(True)),
]
"""Calls that raise TypeError."""

ROWS = [
    *((ValueError, *row) for row in VALUES),
    *((TypeError, *row) for row in TYPES),
    *(
        (ValueError, "`x` must be such as pair(1), by one of pair, range", called(text))
        for text in ("other(1)", "pair(__import__('os'))", "pair(*[1])", "3", "a b", "mine_:half(1")
    ),
    (TopologyError, "no such graph", graph("mine_:refuses_graph")),
    *(
        (ValueError, (f"`{name.strip()}` must be the path of ", "names of files cannot"), call)
        for name, call in {
            "path": lambda: History.load("\ud800"),
            "path ": lambda: callbacks.jsonl("runs/a\ud800b"),
            "root": lambda: data.mnist("\ud83d\ude00"),
            "folder": lambda: Saving("\ud800"),
        }.items()
    ),
]


@pytest.fixture
def user(tmp_path, monkeypatch):
    """Make modules and a package of a user that Python finds."""
    with installed_modules(tmp_path, monkeypatch):
        yield tmp_path


@pytest.mark.filterwarnings("ignore:(ring|slem) is the")  # of topofl, not of the package
@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row, user):
    refused(*row, path=user)


def test_messages_have_one_line_and_name_the_topology_also_for_broken_modules(user):
    for name in ("wrong_:f", "needs_:f", "mine_:weel", "mine_:"):
        with pytest.raises(ValueError, match=f"^there is no topology '{name}': ") as error:
            build_topology(name, {})
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="broken"):
        find("topology", "broken")
    assert "raises_" not in sys.modules
