"""Graphs from files: weights, order of nodes, and what is refused."""

import json
import os
import struct

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse

import topofl
from tests.rows.runs import weighted_ring
from topofl._support import arrays as array_files
from topofl.history import History
from topofl.topology import files
from topofl.topology.files import read_graph

pytestmark = pytest.mark.usefixtures("folder")

SCALED = "the edges of ring carry weights from 0.1 to 0.4, which are ignored"


WRITERS = {
    "ring.graphml": lambda path: nx.write_graphml(weighted_ring(10), path),
    "ring.gml": lambda path: nx.write_gml(weighted_ring(10), path),
    "ring.edgelist": lambda path: nx.write_weighted_edgelist(weighted_ring(10), path),
    "ring.csv": lambda path: nx.write_weighted_edgelist(weighted_ring(10), path, delimiter=","),
    "ring.npz": lambda path: sparse.save_npz(path, nx.to_scipy_sparse_array(weighted_ring(10))),
    "ring.npy": lambda path: np.save(path, nx.to_numpy_array(weighted_ring(10))),
}


@pytest.mark.filterwarnings("always:the edges of ring")
@pytest.mark.parametrize("name", WRITERS)
def test_graphs_of_files_mix_by_their_own_weights_where_asked(shell, fails, name):
    assert "No such file" in fails(f"spectral {name}")
    WRITERS[name](name)
    captured = shell(f"spectral {name}:10,own_weights=true --about averaging --json")
    own = topofl.as_topology(weighted_ring(10), own_weights=True)
    gap = json.loads(captured.out)[0]["spectral gap"]
    assert gap == pytest.approx(topofl.metrics.spectral_gap(own))
    assert captured.err == ""
    captured = shell(f"spectral {name} --about averaging --json")
    gap = json.loads(captured.out)[0]["spectral gap"]
    assert gap == pytest.approx(1 - (1 + 2 * np.cos(np.pi / 5)) / 3)
    assert captured.err.startswith(f"topofl: note: {SCALED}")
    assert len(captured.err.splitlines()) == 1


@pytest.mark.filterwarnings("always:the edges of ring")
def test_a_run_on_the_graph_of_a_file_can_be_repeated_from_elsewhere(
    shell, toml, tmp_path, monkeypatch
):
    WRITERS["ring.graphml"]("ring.graphml")
    first = shell("run small.toml --set topology=ring.graphml,own_weights=true --out a")
    assert first.err == ""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    shell("run ../a/config.toml --out b")
    first, again = History.load("../a"), History.load("b")
    np.testing.assert_array_equal(first["loss"], again["loss"])
    assert first.mixing(0).name == "own_weights(ring)"
    other = shell("run ../a/config.toml --set topology.own_weights=false --out c")
    assert "carry weights from 0.1 to 0.4" in other.err
    assert History.load("c").mixing(0).name == "metropolis_hastings(ring)"


@pytest.mark.filterwarnings("always:the edges of ring")
def test_a_graph_of_a_file_is_a_base_and_a_file_of_another_kind_is_none(shell, folder):
    WRITERS["ring.gml"]("ring.gml")
    captured = shell("spectral 'matchings,base=(ring.gml)' --about structure --json")
    assert json.loads(captured.out)[0]["edges"] == 5
    assert captured.err.startswith(f"topofl: note: {SCALED}")
    (folder / "ring").write_text("0 1\n")
    shell("spectral ring:5")


def test_files_with_directed_edges_and_labels(folder):
    path = folder / "directed.edgelist"
    path.write_text("# who sends to whom, and how much\n2 0 0.25\n\n0 1 0.5  # half\n")
    graph = read_graph(path, directed=True, own_weights=True)
    assert graph.nodes == ()
    assert graph.adjacency.toarray().tolist() == [[0, 0.5, 0], [0, 0, 0], [0.25, 0, 0]]
    assert not read_graph(path).is_directed
    path.write_text("b a\na 01\n")
    assert read_graph(path).nodes == ("b", "a", "01")
    path.write_text("0 1 0.5\n# back\n1 0 0.1\n")
    both = read_graph(path, own_weights=True, directed=True)
    assert both.adjacency.toarray().tolist() == [[0, 0.5], [0.1, 0]]
    path.write_text("0 1\n0 1 0.5\n")
    with pytest.raises(ValueError, match=r"line 2 must repeat .* got 0.5; remove one"):
        read_graph(path, directed=True)
    path.write_text("0 1 0.5\n1 0 0.5\n0 1 0.50\n")
    assert read_graph(path).n_edges == 1


@pytest.mark.parametrize("text", [
    "a,b\nb,c\n", "Source,Target\na,b\nb,c\n", "from, to, km\na, b, 1\nb, c,\n",
    "x,y,cost\na,b,1\nb,c,1.0\n", '\ufeff"a","b"\r\n\r\nb,c\r\n',
])  # fmt: skip
def test_csv_files_have_edges_and_maybe_a_header(folder, text):
    path = folder / "g.csv"
    path.write_text(text, encoding="utf-8", newline="")
    graph = read_graph(path)
    assert graph.nodes == ("a", "b", "c")
    assert graph.adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert read_graph(path, directed=True).is_directed


def test_csv_files_with_weights_and_whole_numbers(folder):
    path = folder / "g.csv"
    path.write_text("person,friend\n7,1\n1,3\n")
    assert read_graph(path).nodes == (1, 3, 7)
    path.write_text("0,1,0.5\n1,2,0.25\n")
    own = read_graph(path, own_weights=True)
    assert own.adjacency.toarray()[1].tolist() == [0.5, 0, 0.25]


def test_directed_is_said_of_edge_lists_only(shell, fails):
    nx.write_graphml(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), "g.graphml")
    for said in ("false", "true"):
        text = fails(f"spectral g.graphml,directed={said}")
        assert "`directed` must be left out for .graphml files" in text
    shell("spectral g.graphml")


def test_whole_numbers_of_files_stand_in_order(folder):
    (folder / "g.edgelist").write_text("1 5\n2 3\n4 3\n")
    graph = read_graph(folder / "g.edgelist")
    assert graph.nodes == (1, 2, 3, 4, 5)
    assert graph.out_neighbors(2).tolist() == [1, 3]
    for label in (1, 7):
        moved = nx.relabel_nodes(nx.Graph([(3, 1), (1, 2)]), {1: label})
        nx.write_graphml(moved, folder / "g.graphml")
        nx.write_gml(moved, folder / "g.gml")
        for name in ("g.graphml", "g.gml"):
            assert read_graph(folder / name).nodes == tuple(sorted(moved))


@pytest.mark.parametrize("nodes", [(2, 0, 3, 1), (7, 3, 5, 1), ("b", "d", "a", "c")])
def test_graphs_come_back_from_files_with_their_nodes_in_order(folder, nodes):
    graph = topofl.Topology(topofl.topologies.path(4).adjacency, nodes=nodes)
    nx.write_graphml(graph.to_networkx(), folder / "g.graphml")
    nx.write_gml(graph.to_networkx(), folder / "g.gml")
    for name in ("g.graphml", "g.gml"):
        back = read_graph(folder / name)
        assert back.nodes == nodes
        assert (back.adjacency != graph.adjacency).nnz == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", WRITERS)
def test_pipes_are_no_graphs(fails, name):
    os.mkfifo(name)
    line = fails(f"spectral {name}")
    assert "`path` must be a regular file" in line
    assert f"{name}, which is a named pipe" in line


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_matrices_of_all_formats_are_read(folder, form, kind):
    matrix = topofl.topologies.ring(6).to_scipy()
    matrix.data[:] = 0.25
    made = getattr(sparse, f"{form}_{kind}")(matrix)
    for compressed in (True, False):
        sparse.save_npz(folder / "g.npz", made, compressed=compressed)
        assert (read_graph(folder / "g.npz").adjacency != matrix).nnz == 0


MANY = np.zeros(10**6, np.int32)
DOES_NOT_FIT = [
    (
        "csr",
        {"data": np.zeros(10**6)},
        r"`data` must hold at most 16 entries for .* \(4, 4\), got ",
    ),
    ("csr", {"indices": MANY}, r"`indices` must have shape \(8,\)"),
    ("csc", {"indptr": MANY}, r"`indptr` must have shape \(5,\)"),
    ("coo", {"col": MANY}, r"`col` must have shape \(8,\)"),
    (
        "bsr",
        {"data": np.zeros((8, 0, 1))},
        r"`data` of a matrix in the format bsr cannot have shape",
    ),
    ("dia", {"data": np.zeros((4, 10**6))}, r"`data` must hold at most 28 entries"),
    ("csr", {"shape": np.array([10**12, 10**12])}, "`shape` must be at most 10,000,000"),
    ("csr", {"shape": np.zeros(10**6, np.int64)}, r"`shape` of shape \(2,\) is missing"),
    ("csr", {"format": np.array("x" * 10**6)}, r"`format` of shape \(\) is missing"),
    ("csr", {"format": np.array("os")}, "`format` must be one of .*, got 'os'"),
    ("csr", {"data": None}, "`data` is missing"),
    ("csr", {"data": np.array([{}], object)}, "dtype object are not those of numbers"),
]


@pytest.mark.parametrize(("form", "changes", "match"), DOES_NOT_FIT)
def test_sparse_matrices_that_do_not_fit_their_shape_are_refused_before_they_are_unpacked(
    folder, monkeypatch, form, changes, match
):
    path = folder / "g.npz"
    matrix = getattr(sparse, f"{form}_array")(topofl.topologies.ring(4).to_scipy())
    sparse.save_npz(path, matrix)
    with np.load(path) as parts:
        content = dict(parts) | changes
    np.savez_compressed(path, **{name: part for name, part in content.items() if part is not None})
    read = []
    unpack = array_files._read_member
    monkeypatch.setattr(
        array_files,
        "_read_member",
        lambda archive, info: read.append(info.filename) or unpack(archive, info),
    )
    with pytest.raises(ValueError, match=rf"g\.npz cannot be read as \.npz: .*{match}"):
        read_graph(path)
    assert set(read) <= {"format.npy", "shape.npy"}


def test_arrays_and_texts_that_claim_too_much_are_refused(folder, monkeypatch):
    path = folder / "g.npy"
    described = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    header = repr(described).ljust(117).encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header + bytes(80))
    with pytest.raises(ValueError, match="has 80 bytes of entries, not 8000000000000"):
        read_graph(path)
    np.save(path, np.array([[{}]]), allow_pickle=True)
    with pytest.raises(ValueError, match="dtype object are not those of numbers"):
        read_graph(path)
    monkeypatch.setattr(files, "LARGEST_TEXT", 50)
    above = "bytes, above the limit of 50; save its matrix with scipy"
    for name in ("ring.graphml", "ring.gml", "ring.edgelist"):
        WRITERS[name](folder / name)
        with pytest.raises(ValueError, match=above):
            read_graph(folder / name)
