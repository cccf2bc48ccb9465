"""Graphs from files: weights, order of nodes, and what is refused."""

import json
import os
import struct
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sparse

import topofl
from tests.cli.commands import fails
from topofl._support import arrays as array_files
from topofl.cli import main
from topofl.history import History
from topofl.topology import files
from topofl.topology.files import read_graph


def weighted_ring(n):
    graph = nx.Graph()
    graph.add_weighted_edges_from((i, (i + 1) % n, (0.1, 0.4)[i % 2]) for i in range(n))
    return graph


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
def test_graphs_of_files_mix_by_their_own_weights_where_asked(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    WRITERS[name](name)
    assert main(["spectral", f"{name}:10,own_weights=true", "--about", "averaging", "--json"]) == 0
    captured = capsys.readouterr()
    own = topofl.as_topology(weighted_ring(10), own_weights=True)
    assert json.loads(captured.out)[0]["spectral gap"] == pytest.approx(
        topofl.metrics.spectral_gap(own)
    )
    assert captured.err == ""
    assert main(["spectral", name, "--about", "averaging", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["spectral gap"] == pytest.approx(
        1 - (1 + 2 * np.cos(np.pi / 5)) / 3
    )
    assert captured.err.startswith(
        "topofl: note: the edges of ring carry weights from 0.1 to 0.4, which are ignored"
    )
    assert len(captured.err.splitlines()) == 1


@pytest.mark.filterwarnings("always:the edges of ring")
def test_a_run_on_the_graph_of_a_file_can_be_repeated_from_elsewhere(
    capsys, toml, tmp_path, monkeypatch
):
    WRITERS["ring.graphml"]("ring.graphml")
    assert main(["run", toml, "--set", "topology=ring.graphml,own_weights=true", "--out", "a"]) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["run", "../a/config.toml", "--out", "b"]) == 0
    first, again = History.load("../a"), History.load("b")
    np.testing.assert_array_equal(first["loss"], again["loss"])
    assert first.mixing(0).name == "own_weights(ring)"
    assert (
        main(["run", "../a/config.toml", "--set", "topology.own_weights=false", "--out", "c"]) == 0
    )
    assert "carry weights from 0.1 to 0.4" in capsys.readouterr().err
    assert History.load("c").mixing(0).name == "metropolis_hastings(ring)"


def test_files_with_directed_edges_and_labels(tmp_path):
    path = tmp_path / "directed.edgelist"
    path.write_text(
        "# who sends to whom, and how much of it is taken\n2 0 0.25\n\n0 1 0.5  # half\n"
    )
    graph = read_graph(path, directed=True, own_weights=True)
    assert graph.nodes == ()
    assert graph.adjacency.toarray().tolist() == [[0, 0.5, 0], [0, 0, 0], [0.25, 0, 0]]
    assert not read_graph(path).is_directed
    path.write_text("b a\na 01\n")
    assert read_graph(path).nodes == ("b", "a", "01")
    path.write_text("b a\na c 1 2\n")
    with pytest.raises(
        ValueError, match=r"cannot be read as .edgelist: line 2 must be 'source target' or"
    ):
        read_graph(path)


@pytest.mark.parametrize("name", WRITERS)
def test_files_that_are_no_graphs_are_refused_by_name(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert "No such file" in fails(capsys, 2, "spectral", name)
    Path(name).write_bytes(b"\x00<no graph> of any kind \xff")
    assert f"{name} cannot be read as {Path(name).suffix}" in fails(capsys, 2, "spectral", name)
    WRITERS[name](name)
    assert "takes n, directed, own_weights, drop_self_loops, not 'seed'" in fails(
        capsys, 2, "spectral", f"{name},seed=0"
    )
    assert "`n` must be left out or be 10" in fails(capsys, 2, "spectral", f"{name}:9")


@pytest.mark.parametrize("text", [
    "a,b\nb,c\n", "Source,Target\na,b\nb,c\n", "from, to, km\na, b, 1\nb, c,\n",
    "x,y,cost\na,b,1\nb,c,1.0\n", '\ufeff"a","b"\r\n\r\nb,c\r\n',
])  # fmt: skip
def test_csv_files_have_edges_and_maybe_a_header(tmp_path, text):
    path = tmp_path / "g.csv"
    path.write_text(text, encoding="utf-8", newline="")
    graph = read_graph(path)
    assert graph.nodes == ("a", "b", "c")
    assert graph.adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert read_graph(path, directed=True).is_directed


def test_csv_files_with_weights_and_whole_numbers(tmp_path):
    path = tmp_path / "g.csv"
    path.write_text("person,friend\n7,1\n1,3\n")
    assert read_graph(path).nodes == (1, 3, 7)
    path.write_text("0,1,0.5\n1,2,0.25\n")
    own = read_graph(path, own_weights=True)
    assert own.adjacency.toarray()[1].tolist() == [0.5, 0, 0.25]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\nb\n", r"cannot be read as .csv: line 2 must be 'source,target' or"),
        ("a,b\nb,c,1,2\n", "line 2 must be 'source,target'"),
        ("a,b\n,c\n", "line 2 must be 'source,target'"),
        ("a,b,1\nb,c,far\n", "line 2 must have a number as weight, got 'far'"),
        ("person,friend\na,b\nb,c\n", "a header, got 'person,friend', .*begin with the header"),
    ],
)
def test_csv_files_that_are_no_edges_are_refused(tmp_path, text, match):
    path = tmp_path / "g.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=match):
        read_graph(path)


@pytest.mark.parametrize("name", ["g.tsv", "no/such.txt", "edges"])
def test_files_of_unknown_kinds_are_refused_with_those_that_are_read(
    capsys, tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    Path("edges").write_text("0 1\n")
    Path("ring").write_text("0 1\n")
    text = fails(capsys, 2, "spectral", name)
    kinds = ".graphml, .gml, .edgelist, .csv, .npz, .npy"
    assert f"must be of one of the kinds {kinds}, got {name}" in text
    assert "dcliques" not in text
    assert main(["spectral", "ring:5"]) == 0


def test_directed_is_said_of_edge_lists_only(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nx.write_graphml(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), "g.graphml")
    for said in ("false", "true"):
        text = fails(capsys, 2, "spectral", f"g.graphml,directed={said}")
        assert "`directed` must be left out for .graphml files" in text
    assert main(["spectral", "g.graphml"]) == 0


def test_two_weights_of_one_edge_in_a_file_are_refused(tmp_path):
    path = tmp_path / "g.edgelist"
    path.write_text("0 1 0.5\n# back\n1 0 0.1\n")
    with pytest.raises(
        ValueError,
        match=r"line 3 must repeat the weight 0.5 of the edge 1 0, got 0.1; pass directed=true",
    ):
        read_graph(path, own_weights=True)
    both = read_graph(path, own_weights=True, directed=True)
    assert both.adjacency.toarray().tolist() == [[0, 0.5], [0.1, 0]]
    path.write_text("0 1\n0 1 0.5\n")
    for directed, remedy in ((False, "pass directed=true"), (True, "remove one of the lines")):
        with pytest.raises(
            ValueError, match=f"line 2 must repeat the weight 1 of the edge .*, got 0.5; {remedy}"
        ):
            read_graph(path, directed=directed)
    path.write_text("0 1 0.5\n1 0 0.5\n0 1 0.50\n")
    assert read_graph(path).n_edges == 1


def test_whole_numbers_of_files_stand_in_order(tmp_path):
    (tmp_path / "g.edgelist").write_text("1 5\n2 3\n4 3\n")
    graph = read_graph(tmp_path / "g.edgelist")
    assert graph.nodes == (1, 2, 3, 4, 5)
    assert graph.out_neighbors(2).tolist() == [1, 3]
    for label in (1, 7):
        moved = nx.relabel_nodes(nx.Graph([(3, 1), (1, 2)]), {1: label})
        nx.write_graphml(moved, tmp_path / "g.graphml")
        nx.write_gml(moved, tmp_path / "g.gml")
        for name in ("g.graphml", "g.gml"):
            assert read_graph(tmp_path / name).nodes == tuple(sorted(moved))


@pytest.mark.parametrize("nodes", [(2, 0, 3, 1), (7, 3, 5, 1), ("b", "d", "a", "c")])
def test_graphs_come_back_from_files_with_their_nodes_in_order(tmp_path, nodes):
    graph = topofl.Topology(topofl.topologies.path(4).adjacency, nodes=nodes)
    nx.write_graphml(graph.to_networkx(), tmp_path / "g.graphml")
    nx.write_gml(graph.to_networkx(), tmp_path / "g.gml")
    for name in ("g.graphml", "g.gml"):
        back = read_graph(tmp_path / name)
        assert back.nodes == nodes
        assert (back.adjacency != graph.adjacency).nnz == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", WRITERS)
def test_pipes_are_no_graphs(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(name)
    assert "`path` must be a regular file" in fails(capsys, 2, "spectral", name)
    assert f"{name}, which is a named pipe" in fails(capsys, 2, "spectral", name)


FORMATS = ("csr", "csc", "coo", "bsr", "dia")


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("form", FORMATS)
def test_sparse_matrices_of_all_formats_are_read(tmp_path, form, kind):
    matrix = topofl.topologies.ring(6).to_scipy()
    matrix.data[:] = 0.25
    made = getattr(sparse, f"{form}_{kind}")(matrix)
    for compressed in (True, False):
        sparse.save_npz(tmp_path / "g.npz", made, compressed=compressed)
        assert (read_graph(tmp_path / "g.npz").adjacency != matrix).nnz == 0


def saved(path, form="csr", **changes):
    matrix = getattr(sparse, f"{form}_array")(topofl.topologies.ring(4).to_scipy())
    sparse.save_npz(path, matrix)
    with np.load(path) as parts:
        content = dict(parts) | changes
    np.savez_compressed(path, **{name: part for name, part in content.items() if part is not None})


@pytest.mark.parametrize(
    ("form", "changes", "match"),
    [
        (
            "csr",
            {"data": np.zeros(10**6)},
            r"`data` must hold at most 16 entries for .* \(4, 4\), got \(1000000,\)",
        ),
        ("csr", {"indices": np.zeros(10**6, np.int32)}, r"`indices` must have shape \(8,\)"),
        ("csc", {"indptr": np.zeros(10**6, np.int32)}, r"`indptr` must have shape \(5,\)"),
        ("coo", {"col": np.zeros(10**6, np.int32)}, r"`col` must have shape \(8,\)"),
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
    ],
)
def test_sparse_matrices_that_do_not_fit_their_shape_are_refused_before_they_are_unpacked(
    tmp_path, monkeypatch, form, changes, match
):
    path = tmp_path / "g.npz"
    saved(path, form, **changes)
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


def testarray_files_and_texts_that_claim_too_much_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "g.npy"
    header = (
        repr({"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}).ljust(117).encode()
        + b"\n"
    )
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header + bytes(80))
    with pytest.raises(ValueError, match="has 80 bytes of entries, not 8000000000000"):
        read_graph(path)
    np.save(path, np.array([[{}]]), allow_pickle=True)
    with pytest.raises(ValueError, match="dtype object are not those of numbers"):
        read_graph(path)
    monkeypatch.setattr(files, "LARGEST_TEXT", 50)
    for name in ("ring.graphml", "ring.gml", "ring.edgelist"):
        WRITERS[name](tmp_path / name)
        with pytest.raises(
            ValueError, match="bytes, above the limit of 50; save its matrix with scipy"
        ):
            read_graph(tmp_path / name)


@pytest.mark.filterwarnings("always:the edges of ring")
def test_a_graph_of_a_file_is_a_base(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    WRITERS["ring.gml"]("ring.gml")
    assert main(["spectral", "matchings,base=(ring.gml)", "--about", "structure", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["edges"] == 5
    assert captured.err.startswith(
        "topofl: note: the edges of ring carry weights from 0.1 to 0.4, which are ignored"
    )
    assert "`base` must not have its own mixing weights, ring does" in fails(
        capsys, 2, "spectral", "matchings,base=(ring.gml,own_weights=true)"
    )


def test_matrices_with_crafted_indices_are_refused(capsys, runs, tmp_path):
    path = tmp_path / "a" / "history" / "arrays.npz"
    meta = path.with_name("meta.json")
    old = json.loads(meta.read_text())
    del old["format"], old["sha256"]  # as a forger would, so that the matrix itself is looked at
    meta.write_text(json.dumps(old))
    with np.load(path) as file:
        arrays = dict(file)
    for part, value in (("indices", 10**8), ("indices", -(10**8)), ("indptr", 10**8)):
        changed = arrays[f"matrix.0.{part}"].copy()
        changed[1] = value
        np.savez_compressed(path, **(arrays | {f"matrix.0.{part}": changed}))
        assert "must be a well-formed sparse matrix" in fails(capsys, 2, "compare", "a")
