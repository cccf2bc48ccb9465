"""Entry points of installed packages, and the list of what they provide."""

import sys

import pytest

from tests.support.user_code import TABLES, install
from topofl import algorithms, config, data, metrics, mixing, topologies
from topofl._spec import build_topology, find
from topofl._support import plugins
from topofl.cli import main


def test_entry_points_are_found_by_name(package):
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


def test_names_of_topofl_take_precedence_with_a_warning(package):
    with pytest.warns(
        UserWarning,
        match=r"ring is the topology of topofl, not entry point ring \(mine_:wheel\) "
        "of package mypackage 1.0",
    ) as caught:
        assert find("topology", "ring") is topologies.ring
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_broken_entry_points_are_named_and_do_not_affect_others(package):
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


def test_entry_points_are_imported_only_when_used(package):
    with pytest.raises(ValueError, match="did you mean"):
        find("topology", "spoke")
    assert find("topology", "torus") is topologies.torus
    assert plugins.entry_points("topology")[0] == ("absent", "mypackage 1.0", "mine_:whee")
    assert "mine_" not in sys.modules
    find("topology", "spokes")
    assert "mine_" in sys.modules


def test_entry_points_of_two_packages_with_one_name_are_refused(package):
    install(package, "another", "[topofl.topologies]\nspokes = mine_:text\n")
    with pytest.raises(
        ValueError,
        match=r"spokes must be an entry point of one .*, got .* another 1.0 and .* mypackage 1.0; "
        "name the function",
    ):
        find("topology", "spokes")
    assert find("topology", "mine_:wheel")(n=3).n == 3


def test_the_first_of_several_versions_of_a_package_is_used(package, tmp_path, monkeypatch):
    (newer := tmp_path / "newer").mkdir()
    monkeypatch.syspath_prepend(newer)
    install(newer, "mypackage", "[topofl.topologies]\nonly = mine_:wheel\n", version="2.0")
    assert plugins.entry_points("topology") == [("only", "mypackage 2.0", "mine_:wheel")]
    assert plugins.entry_points("metric") == []


def test_metrics_can_be_user_defined(package):
    graphs = [topologies.ring(6), topologies.random_in(6, 2, seed=0)]

    def edges_received(matrix):
        return matrix.n if isinstance(matrix, mixing.MixingMatrix) else None

    names = ["mine_:heaviest", "heavy", "diameter", "mine_:of_lines", "mine_:of_nothing"]
    table = metrics.compare(graphs[:1], about="averaging", metrics=[*names, edges_received])
    assert table.columns[-6:] == (*names, "edges_received")
    third = pytest.approx(1 / 3)
    assert table.rows[0][-6:-3] == (third, third, 3)
    assert [str(cell) for cell in table.rows[0][-3:]] == ["n/a", "n/a", "6"]
    assert table.rows[0][-3].reason == "it is no line"
    assert metrics.compare(graphs[:1], about=[], metrics=edges_received).columns == (
        "name",
        "edges_received",
    )
    with pytest.raises(TypeError, match="`edges_received` must return a number, got None"):
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
            "`metrics` must have a distinct name for every column, got 'sparsity' twice",
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
        "  spectral gap\n      averaging: speed of agreement",
    ):
        assert expected in text
    assert main(["list", "metric"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "  slem",
        "      not used, since topofl has its own slem; write mine_:heaviest "
        "(package mypackage 1.0)",
    ]


def test_list_groups_data_functions_by_return_annotation(mine, capsys):
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
