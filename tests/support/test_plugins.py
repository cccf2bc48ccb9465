"""User-defined functions: given as module:function, in text that is a call, or entry points."""

import sys

import networkx as nx
import numpy as np
import pytest

import topofl
from tests.rows.user_code import MINE, TABLES, install, topofl_in
from topofl import algorithms, config, data, metrics, mixing, topologies
from topofl._spec import build_topology, find
from topofl._support import plugins
from topofl._support.calls import evaluate_call, parse_spec
from topofl.cli import main


def test_calls_are_evaluated_also_of_functions_of_modules(mine):
    functions = {"pair": lambda a, b=0: (a, b), "range": range}
    assert evaluate_call("x", "pair(1, b=[2, 3])", functions, "") == (1, [2, 3])
    nested = evaluate_call("x", " pair(pair(1), b=pair(a=2)) ", functions, "")
    assert nested == ((1, 0), (2, 0))
    assert evaluate_call("x", "mine_:crops", {}, "") == data.crop_and_flip(padding=1)
    assert evaluate_call("x", " mine_:crops(padding=2)", {}, "") == data.crop_and_flip(padding=2)


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
    said = {"n": 5, "hub": 1, "base": None, "sizes": [1, 2]}
    assert built.arguments == {"name": "mine_:wheel"} | said
    assert (build_topology("mine_:wheel", said).value.adjacency != built.value.adjacency).nnz == 0
    counts = np.eye(10, dtype=int)
    assert build_topology("mine_:wheel", {}, counts).value.n == 10
    assert build_topology("mine_:counted", {}, counts).value.n == 10
    assert build_topology("mine_:on_another", {"base": "mine_:wheel:6"}).value.n == 6
    failing = {"base": "(mine_:wheel,n=6)", "fail": 0, "recover": 1, "seed": 0}
    assert build_topology("link_failures", failing).value.n == 6
    assert build_topology("mine_:any_keys", {"n": 7, "more": 3}).value.n == 7
    assert build_topology("mine_:half", {"n": 7}).value.n == 7
    assert find("topology", "topofl.topologies:ring") is topologies.ring


def test_experiments_with_user_defined_functions_run_and_repeat(mine, tmp_path):
    experiment = config.build(TABLES)
    tables = experiment.tables
    assert tables["algorithm"] == {"name": "mine_:slow_sgd", "lr": 0.5, "local_steps": 2}
    sizes = {"in_features": 64, "n_classes": 10, "width": 3}
    assert tables["model"] == {"name": "mine_:Net"} | sizes
    assert tables["mixing"] == {"name": "mine_:rule", "laziness": 0.25}
    named = [tables["data"][key] for key in ("name", "partition")]
    assert named == ["mine_:digits", "mine_:split"]
    (tmp_path / "again.toml").write_text(config.dumps(tables))
    again = config.load(tmp_path / "again.toml")
    listed = tables["topology"] | {"sizes": [1, 2]}  # as in TOML
    assert again.tables == tables | {"topology": listed, "modules": {"folder": str(tmp_path)}}
    history = experiment.run()
    np.testing.assert_array_equal(history["accuracy"], again.run()["accuracy"])
    weights = mixing.lazy(mixing.metropolis_hastings(experiment.topology), share=0.25).weights
    np.testing.assert_array_equal(history.mixing(0).weights.toarray(), weights.toarray())
    assert experiment.model.scale.item() == again.model.scale.item()


def test_partitions_without_a_seed_may_have_labels_flipped(mine):
    changed = {"name": "digits", "partition": "mine_:without_seed", "flip_labels": 1}
    experiment = config.build(TABLES | {"data": changed})
    assert len(experiment.clients.flipped) == 1
    assert config.build(experiment.tables).clients.flipped == experiment.clients.flipped


def test_augmentations_can_be_user_defined(mine):
    assert find("augmentation", "mine_:crops")(padding=2) == data.crop_and_flip(padding=2)


def test_entry_points_are_found_by_name(package):
    built = build_topology("spokes", {"n": 4})
    assert built.value.out_degrees.tolist() == [3, 1, 1, 1]
    assert built.arguments["name"] == "spokes"
    assert str(find("algorithm", "slow")(lr=0.5)) == str(algorithms.dsgd(0.5, local_steps=2))
    named = {"data": "my_digits,partition=my_split,n=4", "algorithm": "slow,lr=1"}
    tables = config.build(TABLES | named).tables
    assert (tables["data"]["name"], tables["data"]["partition"]) == ("my_digits", "my_split")
    assert tables["algorithm"]["name"] == "slow"


def test_names_of_topofl_take_precedence_with_a_warning(package):
    told = r"ring is the topology of topofl, not entry point ring \(mine_:wheel\) of package mypac"
    with pytest.warns(UserWarning, match=told) as caught:
        assert find("topology", "ring") is topologies.ring
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_packages_that_cannot_be_read_do_not_affect_others(package):
    install(package, "other", "[topofl.topologies]\nno equals sign\n")
    install(package, "latin", "")
    latin = package / "latin-1.0.dist-info" / "entry_points.txt"
    latin.write_bytes(b"[topofl.topologies]\nr\xe9 = a:b\n")
    told = "entry points of package other 1.0 cannot be read: .*; reinstall it"
    with pytest.warns(UserWarning, match=told):
        assert build_topology("spokes", {"n": 4}).value.n == 4


def test_entry_points_are_imported_only_when_used(package):
    with pytest.raises(ValueError, match="did you mean"):
        find("topology", "spoke")
    assert find("topology", "torus") is topologies.torus
    assert plugins.entry_points("topology")[0] == ("absent", "mypackage 1.0", "mine_:whee")
    assert "mine_" not in sys.modules
    find("topology", "spokes")
    assert "mine_" in sys.modules
    install(package, "another", "[topofl.topologies]\nspokes = mine_:text\n")
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
    own = metrics.compare(graphs[:1], about=[], metrics=edges_received)
    assert own.columns == ("name", "edges_received")
    with pytest.raises(TypeError, match="`edges_received` must return a number, got None"):
        metrics.compare(graphs[1:], about=[], metrics=edges_received)
    with pytest.warns(UserWarning, match="slem is the metric of topofl, not entry point slem"):
        table = metrics.compare(graphs[:1], about=[], metrics="slem")
    assert table.column("slem") == metrics.compare(graphs[:1], about="averaging").column("slem")


LISTED = """
  spokes(n, hub=0, *, base=None, key=<built-in function len>, sizes=[1, 2])
      Return a hub and its spokes. (package mypackage 1.0)

  ring
      not used, since topofl has its own ring; write mine_:wheel (package mypackage 1.0)

  broken
      the topology broken cannot be loaded, entry point broken (raises_:f) of package mypackage 1.0

  slow(lr, head=

  heavy(matrix)

  spectral gap
      averaging: speed of agreement

  slem
      not used, since topofl has its own slem; write mine_:heaviest (package mypackage 1.0)
"""
"""Parts of what ``topofl list`` prints."""


def test_list_names_packages(package, capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for part in LISTED.strip("\n").split("\n\n"):
        assert part in text


def test_list_groups_data_functions_by_return_annotation(mine, capsys):
    (mine / "typed_.py").write_text(
        "from topofl import data\n"
        "def one(n) -> data.Dataset: ...\n"
        "def two(dataset, n) -> 'data.Partition': ...\n"
        "def three(n): ...\n"
    )
    points = "".join(f"{name} = typed_:{name}\n" for name in ("one", "two", "three"))
    install(mine, "typed", f"[topofl.data]\n{points}")
    found = {}
    for kind in ("dataset", "partition", "augmentation"):
        assert main(["list", kind]) == 0
        names = [line.split("(")[0].strip() for line in capsys.readouterr().out.splitlines()]
        found[kind] = [name for name in names if name in ("one", "two", "three")]
    sys.modules.pop("typed_")
    assert found == {
        "dataset": ["one", "three"], "partition": ["three", "two"], "augmentation": ["three"],
    }  # fmt: skip


@pytest.mark.slow
def test_the_command_finds_modules_of_the_current_folder(tmp_path):
    (tmp_path / "mine_.py").write_text(MINE)
    (tmp_path / "json.py").write_text("1 / 0\n")  # which must not take the library's place
    own = ["--about", "paths", "--metrics", "mine_:heaviest", "--json"]
    done = topofl_in(tmp_path, "spectral", "mine_:wheel,n=6", *own)
    assert done.stderr == ""
    assert '"diameter": 2,' in done.stdout
    assert '"mine_:heaviest": 0.8333333333333334' in done.stdout
    done = topofl_in(tmp_path, "spectral", "mine_:weel:6")
    assert done.returncode == 2
    told = "topofl: error: mine_:weel:6: there is no topology 'mine_:weel': module mine_ ("
    assert done.stderr.startswith(told)


def test_sys_path_is_restored(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    before = list(sys.path)
    assert main(["spectral", "ring:4", "--about", "structure"]) == 0
    assert sys.path == before
    with plugins.current_folder():
        assert sys.path == [*before, str(tmp_path)]
