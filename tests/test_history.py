import dataclasses
import io
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

import topofl
from tests import problems
from topofl import algorithms, attacks, data, metrics, mixing, models, topologies
from topofl._support import arrays as array_files
from topofl._support import files
from topofl._support.seeding import seeded_torch
from topofl.history import OURS


def run_of(algorithm, topology, **more):
    return topofl.run(
        algorithm(lr=0.1, batch_size=4),
        model=problems.linear(),
        clients=problems.equal_clients(),
        topology=topology,
        seed=0,
        **problems.options(**more),
    )


@pytest.fixture(scope="module")
def history():
    return run_of(
        algorithms.dsgd, topologies.one_peer_exponential(6), rounds=7, every=3, before_exchange=True
    )


def assert_same(a, b):
    assert dict(a.meta) == dict(b.meta)
    for left, right in ((a.rounds, b.rounds), (a.evaluations, b.evaluations)):
        assert list(left) == list(right)
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])
    np.testing.assert_array_equal(a.node_loss, b.node_loss)
    np.testing.assert_array_equal(a.matrix_of_round, b.matrix_of_round)
    for left, right in zip(a.matrices, b.matrices, strict=True):
        assert left.name == right.name
        assert (left.weights != right.weights).nnz == 0


def test_save_and_load_give_it_back(history, tmp_path):
    path = history.save(tmp_path / "deep" / "run")
    assert sorted(p.name for p in path.iterdir()) == ["arrays.npz", "meta.json", "rounds.jsonl"]
    assert_same(topofl.History.load(path), history)


def test_saving_replaces_an_older_history_and_nothing_else(history, tmp_path):
    path = tmp_path / "run"
    history.save(path)
    history.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["run"], "no partial folders are left"


@pytest.mark.parametrize("own", [[], ["meta.json"], ["meta.json", "rounds.jsonl", "arrays.npz"]])
@pytest.mark.parametrize("other", ["chapter1.tex", "figures/accuracy.pdf"])
def test_a_folder_with_anything_else_is_replaced_only_if_told(history, tmp_path, own, other):
    project = history.save(tmp_path / "project")
    for name in {"meta.json", "rounds.jsonl", "arrays.npz"} - set(own):
        (project / name).unlink()
    (project / other).parent.mkdir(exist_ok=True)
    (project / other).write_text("years of work")
    before = sorted(path.name for path in project.rglob("*"))
    with pytest.raises(
        FileExistsError, match=rf"project also holds {other.partition('/')[0]}; .*overwrite=True"
    ):
        history.save(project)
    assert sorted(path.name for path in project.rglob("*")) == before
    history.save(project, overwrite=True)
    assert sorted(path.name for path in project.iterdir()) == [
        "arrays.npz",
        "meta.json",
        "rounds.jsonl",
    ]


def test_a_folder_that_only_has_a_meta_json_is_not_ours(history, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "meta.json").write_text("{}")
    with pytest.raises(
        FileExistsError, match=r"`path` must be free or hold .*package has no rounds\.jsonl"
    ):
        history.save(tmp_path / "package")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError, match=r"file is a file; name another one"):
        history.save(tmp_path / "file", overwrite=True)
    with pytest.raises(ValueError, match=r"`path` must be the path of a folder, got an empty text"):
        history.save("")
    with pytest.raises(ValueError, match=r"`path` must be the path of a folder, got an empty text"):
        topofl.History.load("")


def test_an_empty_folder_is_free_and_a_link_stays_one(history, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for _ in range(2):
        assert history.save(tmp_path / "link") == tmp_path / "link"
    assert (tmp_path / "link").is_symlink()
    assert_same(topofl.History.load(tmp_path / "empty"), history)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "link"]


def test_an_exchange_that_fails_leaves_the_older_history(history, tmp_path, monkeypatch):
    path = history.save(tmp_path / "run")
    rename, calls = os.rename, []

    def failing(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(files, "_exchange_names", lambda *_: False)
    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="no"):
        history.save(path)
    assert_same(topofl.History.load(path), history)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.fixture(params=["exchanged", "portable"])
def way(request, monkeypatch):
    """Replace folders at once, where the system can, or by two renames."""
    if request.param == "portable":
        monkeypatch.setattr(files, "_exchange_names", lambda *_: False)
    return request.param


@pytest.mark.parametrize(
    "name", [".run.older", ".run.topofl-older", ".run.bak", ".run.topofl-new-12345678"]
)
def test_neighbors_that_somebody_else_made_stay(way, history, tmp_path, name):
    (tmp_path / name).mkdir()
    for other in ("thesis.tex", "meta.json"):
        (tmp_path / name / other).write_text("years of work")
    history.save(tmp_path / "run")
    if (way, name) == ("portable", ".run.topofl-older"):
        with pytest.raises(
            FileExistsError,
            match=r"run\.topofl-older is needed .* did not write; move it elsewhere$",
        ):
            history.save(tmp_path / "run")
    else:
        history.save(tmp_path / "run")
    assert_same(topofl.History.load(tmp_path / "run"), history)
    files.remove_staging_folders(tmp_path / "run", OURS)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "run"])
    assert {path.read_text() for path in (tmp_path / name).iterdir()} == {"years of work"}


def test_overwriting_leaves_nothing_of_what_was_there(way, history, tmp_path):
    (tmp_path / "run" / "figures").mkdir(parents=True)
    (tmp_path / "run" / "figures" / "a.pdf").write_text("x")
    history.save(tmp_path / "run", overwrite=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "arrays.npz",
        "meta.json",
        "rounds.jsonl",
        "run",
    ]


def test_what_somebody_else_has_aside_is_no_history(history, tmp_path):
    history.save(tmp_path / ".run.topofl-older")
    assert_same(topofl.History.load(tmp_path / "run"), history)
    (tmp_path / ".run.topofl-older" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileNotFoundError, match=r"meta\.json is missing"):
        topofl.History.load(tmp_path / "run")


def test_leftovers_are_removed_only_if_all_in_them_is_ours(tmp_path):
    for k, names in enumerate(([], ["meta.json"], ["meta.json", "a"])):
        folder = tmp_path / f".run.topofl-new-{k}"
        folder.mkdir()
        for name in names:
            (folder / name).write_text("x")
    (tmp_path / ".run.topofl-new-3").symlink_to(".run.topofl-new-2")
    (tmp_path / ".run.topofl-new-4").mkdir()
    (tmp_path / ".run.topofl-new-4" / "meta.json").symlink_to("../.run.topofl-new-2/a")
    files.remove_staging_folders(tmp_path / "run", OURS)
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["2", "3", "4"]


def test_the_current_folder_and_those_above_it_are_not_replaced(history, tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    for place in (".", "..", "../b", tmp_path / "a"):
        for overwrite in (False, True):
            with pytest.raises(
                ValueError, match=r"`path` must not be the current folder or one above it, .*name a"
            ):
                history.save(place, overwrite=overwrite)
    assert Path.cwd() == tmp_path / "a" / "b"
    assert_same(topofl.History.load(history.save("c")), history)


def test_without_a_current_folder_a_whole_path_will_do(history, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for _ in range(2):
        history.save(tmp_path / "run")
    assert_same(topofl.History.load(tmp_path / "run"), history)


def test_links_that_lead_nowhere_are_told_and_long_names_taken(way, history, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for call in (history.save, topofl.History.load):
        with pytest.raises(
            ValueError,
            match=r"`path` must be a folder, .*/a' is a link that leads back to itself; rem",
        ):
            call(tmp_path / "a")
    for _ in range(2):
        history.save(tmp_path / ("x" * 255))
    assert_same(topofl.History.load(tmp_path / ("x" * 255)), history)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "x" * 255]


WAYS = ["exchanged", "portable"]


@pytest.fixture(scope="module")
def verdicts():
    """Return what one process found, in both ways, since it takes seconds to start."""
    command = [sys.executable, "-m", "tests.killed_saves", *WAYS]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_any_moment_one_of_both_histories_is_there(verdicts, way):
    assert verdicts[way]["wrong"] == {}
    assert verdicts[way]["killed"] >= 15, "or nothing was looked at"


def test_jsonl_has_one_object_a_round(history, tmp_path):
    lines = (history.save(tmp_path / "run") / "rounds.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["round"] for record in records] == list(range(8))
    assert [record["round"] for record in records if "accuracy_mean" in record] == [0, 3, 6, 7]
    assert records[3]["accuracy_min"] == history["accuracy"][1].min()


@pytest.mark.parametrize("name", ["meta.json", "rounds.jsonl", "arrays.npz"])
@pytest.mark.parametrize("damage", ["missing", "half", "empty"])
def test_half_written_history_is_refused(history, tmp_path, name, damage):
    file = history.save(tmp_path / "run") / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content[: len(content) // 2] if damage == "half" else b"")
    with pytest.raises((ValueError, FileNotFoundError), match=name):
        topofl.History.load(tmp_path / "run")


@pytest.mark.parametrize("key", ["n_rounds", "columns", "round_columns", "matrices"])
def test_files_that_do_not_fit_are_refused(history, tmp_path, key):
    file = history.save(tmp_path / "run") / "meta.json"
    meta = json.loads(file.read_text())
    del meta[key]
    file.write_text(json.dumps(meta))
    with pytest.raises(ValueError, match=f"is damaged.*{key}"):
        topofl.History.load(tmp_path / "run")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"meta\.json is damaged"):
        topofl.History.load(tmp_path / "run")


def test_lines_are_strict_json_and_the_folder_is_as_open_as_others(history, tmp_path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    (tmp_path / "other").mkdir()
    path = history.save(tmp_path / "run")
    for line in (path / "rounds.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_lost_lines_are_noticed(history, tmp_path):
    file = history.save(tmp_path / "run") / "rounds.jsonl"
    file.write_text("\n".join(file.read_text().splitlines()[:-2]) + "\n")
    with pytest.raises(ValueError, match="half-written: 6 lines, expected 8"):
        topofl.History.load(tmp_path / "run")


def forge(path, changes):
    """Rewrite arrays.npz with `changes` by name: arrays, bytes of one, or None to leave it out."""
    with np.load(path / "arrays.npz") as file:
        arrays = dict(file) | changes
    with zipfile.ZipFile(path / "arrays.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            if array is not None:
                archive.writestr(f"{name}.npy", array if isinstance(array, bytes) else npy(array))


def npy(array, claimed=None):
    """Return an array as a file, which may claim another shape."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    if claimed is None:
        return stream.getvalue()
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": claimed,
    }
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, header)
    return head.getvalue() + array.tobytes()


class Evil:
    def __reduce__(self):
        return os.mkdir, ("unpickled",)


FORGED = {
    "a pickle": {"node_loss": np.array([Evil()], dtype=object)},
    "a pickle elsewhere": {"evaluation.loss": np.array([[Evil()] * 6] * 4, dtype=object)},
    "text": {"evaluation.loss": np.full((4, 6), "x" * 1000)},
    "a record": {"evaluation.loss": np.zeros((4, 6), dtype=[("a", "f8")])},
    "a shape of another": {"evaluation.loss": np.zeros((6, 4))},
    "more rounds": {"node_loss": np.zeros((8, 6))},
    "more evaluations": {"evaluation.accuracy": np.zeros((40, 6))},
    "a claim": {"evaluation.loss": npy(np.zeros(3), (4, 10**12))},
    "a claim that fits the rest": {"node_loss": npy(np.zeros(3), (7, 10**12))},
    "a negative claim": {"node_loss": npy(np.zeros(3), (7, -6))},
    "half an array": {"node_loss": npy(np.zeros(3), (7, 6))},
    "a new format": {"node_loss": b"\x93NUMPY\x09\x00"},
    "no array": {"node_loss": b"x"},
    "nothing": {"node_loss": b""},
    "a long header": {
        "node_loss": b"\x93NUMPY\x02\x00" + (10**6).to_bytes(4, "little") + b"(" * 10**6
    },
    "a missing array": {"matrix.1.indices": None},
    "a matrix of others": {"matrix.1.indices": np.full(12, 6, np.int32)},
    "a matrix before all": {"matrix.1.indices": np.full(12, -1, np.int32)},
    "a matrix without an end": {"matrix.1.indptr": np.arange(0, 7 * 10**6, 10**6)},
    "weights that are none": {"matrix.1.data": np.full(12, np.nan)},
    "a large matrix": {"matrix.1.data": np.zeros(37), "matrix.1.indices": np.zeros(37, np.int32)},
    "a round without matrix": {"matrix_of_round": np.full(7, 3)},
    "matrices in no order": {"matrix_of_round": np.full(7, 0.5)},
}


@pytest.mark.parametrize("forged", FORGED)
def test_arrays_that_were_forged_are_refused_by_file(history, tmp_path, monkeypatch, forged):
    monkeypatch.chdir(tmp_path)
    path = history.save(tmp_path / "run")
    forge(path, FORGED[forged])
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"run.* is (damaged|half-written).*"):
            topofl.History.load(path)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()
    assert not Path("unpickled").exists()


def test_a_bomb_is_not_decompressed(history, tmp_path, monkeypatch):
    path = history.save(tmp_path / "run")
    n, meta = 200_000, json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(meta | {"matrices": []}))
    shapes = {
        name: (len(column), n) for name, column in history.evaluations.items() if column.ndim == 2
    }
    forge(
        path,
        {f"evaluation.{k}": np.zeros(shape) for k, shape in shapes.items()}
        | {"node_loss": np.zeros((7, n))},
    )
    monkeypatch.setattr(array_files, "total_memory", lambda: 2**24)
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError,
            match=r"arrays\.npz claims to hold \d+ bytes, more than half of the 16777216",
        ):
            topofl.History.load(path)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_arrays_that_nobody_knows_are_not_read(history, tmp_path):
    path = history.save(tmp_path / "run")
    forge(path, {"matrix.9.data": np.zeros(10**5), "notes": npy(np.zeros(10**6))})
    assert_same(topofl.History.load(path), history)
    with zipfile.ZipFile(path / "arrays.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path / "arrays.npz", "w", zipfile.ZIP_LZMA) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(
        ValueError,
        match=r"arrays\.npz is half-written or damaged: .* compressed more than deflate can",
    ):
        topofl.History.load(path)


NESTED = "[" * 100_000 + "]" * 100_000
JSON = {
    "nested": ("meta.json", lambda meta: json.dumps(meta).replace("{", f'{{"x": {NESTED}, ', 1)),
    "nested a little": (
        "meta.json",
        lambda meta: json.dumps(meta | {"x": json.loads("[" * 200 + "]" * 200)}),
    ),
    "a number": (
        "meta.json",
        lambda meta: json.dumps(meta).replace("{", f'{{"x": {"9" * 10_000}, ', 1),
    ),
    "no list": ("meta.json", lambda meta: json.dumps(meta | {"round_columns": "messages"})),
    "names": ("meta.json", lambda meta: json.dumps(meta | {"matrices": [1, 2, 3]})),
    "rounds": ("meta.json", lambda meta: json.dumps(meta | {"n_rounds": 7.0})),
    "algorithm": ("meta.json", lambda meta: json.dumps(meta | {"algorithm": {"a": 1}})),
    "diverged": ("meta.json", lambda meta: json.dumps(meta | {"diverged": 3})),
    "lines": ("rounds.jsonl", lambda meta: "\n".join([f'{{"x": {NESTED}}}'] * 8)),
    "values": (
        "rounds.jsonl",
        lambda meta: "\n".join([json.dumps({key: [1] for key in meta["round_columns"]})] * 8),
    ),
    "texts": (
        "rounds.jsonl",
        lambda meta: "\n".join([json.dumps(dict.fromkeys(meta["round_columns"], "1"))] * 8),
    ),
    "large": (
        "rounds.jsonl",
        lambda meta: "\n".join([json.dumps(dict.fromkeys(meta["round_columns"], 10**300))] * 8),
    ),
}


@pytest.mark.parametrize("forged", JSON)
def test_json_that_was_forged_is_refused_by_file(history, tmp_path, forged):
    path = history.save(tmp_path / "run")
    name, forge_text = JSON[forged]
    (path / name).write_text(forge_text(json.loads((path / "meta.json").read_text())))
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        topofl.History.load(path)


def test_no_history_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"meta.json is missing"):
        topofl.History.load(tmp_path / "nothing")


def test_to_pandas_is_tidy(history):
    rounds = history.to_pandas()
    assert rounds.index.name == "round"
    assert list(rounds.index) == list(range(8))
    assert rounds["accuracy_mean"].notna().sum() == 4
    nodes = history.to_pandas(per="node")
    assert isinstance(nodes, pd.DataFrame)
    assert len(nodes) == 4 * 6
    assert {"round", "node", "accuracy", "loss", "accuracy_before_exchange"} <= set(nodes)
    with pytest.raises(ValueError, match="per"):
        history.to_pandas(per="edge")


def test_columns_by_name(history):
    assert history["messages"].shape == (7,)
    assert history["accuracy"].shape == (4, 6)
    with pytest.raises(KeyError, match="did you mean 'accuracy'"):
        history["acuracy"]


def test_columns_of_costs_that_were_not_recorded_say_what_records_them(history):
    with pytest.raises(
        KeyError, match=r"no column 'simulated_seconds': dsgd on .* run algorithms\.timed"
    ):
        history["simulated_seconds"]
    rounds = {name: column for name, column in history.rounds.items() if name != "steps"}
    with pytest.raises(KeyError, match=r"no column 'steps': dsgd on .* run it again"):
        dataclasses.replace(history, rounds=rounds)["steps"]


def test_mixing_matrices_are_those_used(history):
    graphs = topologies.one_peer_exponential(6)
    for t in (0, 1, 2, 3, 6, -1):
        used = history.mixing(t).weights.toarray()
        np.testing.assert_array_equal(
            used, topofl.mixing.uniform(graphs.at(t % 7)).weights.toarray()
        )
    assert len(history.matrices) == 3, "one a member of the period"
    with pytest.raises(ValueError, match="`t` must be between -7 and 6"):
        history.mixing(7)


def test_metrics_take_what_was_recorded(history):
    graph, rounds = topologies.one_peer_exponential(6), history.n_rounds
    kept = history.mixings
    assert (kept.n, kept.length, kept.period) == (6, rounds, None)
    assert "dsgd" in kept.name
    assert metrics.expected_gap(history) == metrics.expected_gap(
        [mixing.uniform(graph.at(t)) for t in range(rounds)]
    )
    assert metrics.b_connectivity(history, rounds=rounds) == metrics.b_connectivity(graph)
    assert metrics.push_sum_constants(history).rounds == rounds
    table = metrics.compare([history, graph], about=["structure", "rounds"])
    assert table.column("nodes") == (6, 6)
    assert table.column("B")[0] == table.column("B")[1]
    assert metrics.measured_contraction(history, rounds=2, burn_in=3, seed=0) < 1
    assert (
        metrics.measured_contraction(history, rounds=rounds, seed=0) < 1
    )  # nothing is left to burn in


def test_one_graph_in_all_rounds_is_a_period():
    run = run_of(algorithms.dsgd, topologies.ring(6), rounds=3)
    assert (run.mixings.period, run.mixings.length) == (1, 3)
    assert metrics.slem(run) == pytest.approx(2 / 3)
    assert metrics.b_connectivity(run) == 1
    assert metrics.dobrushin(run) == metrics.dobrushin(topologies.ring(6))
    table = metrics.compare([run, topologies.ring(6)], about=["averaging", "rounds"])
    for column in set(table.columns) - {"name", "measured contraction"}:
        assert table.column(column)[0] == table.column(column)[1]


def test_a_run_without_exchange_has_no_matrices():
    alone = run_of(algorithms.local_only, topologies.ring(6), rounds=1)
    with pytest.raises(
        ValueError,
        match=r"local_only on .* has no mixing matrices: its algorithm exchanges nothing",
    ):
        metrics.compare([alone])


def test_rounds_to(history):
    means = history["accuracy"].mean(1)
    assert history.rounds_to(0.0) == 0
    assert history.rounds_to(means[-1]) == history["round"][(means >= means[-1]).argmax()]
    assert history.rounds_to(1.0) is None or means.max() == 1.0
    with pytest.raises(ValueError, match="`value` must be between 0 and 1, got 80"):
        history.rounds_to(80)


def test_rounds_to_takes_any_accuracy(history):
    means = history["accuracy_before_exchange"].mean(1)
    wanted = history["round"][(means >= means[-1]).argmax()]
    assert history.rounds_to(means[-1], "accuracy_before_exchange") == wanted
    with pytest.raises(
        ValueError, match=r"`column` must be a score, .*accuracy, loss, got 'mixed'"
    ):
        scored(accuracy=[[0.5]], mixed=[[0.5]]).rounds_to(0.5, "mixed")


def test_losses_are_reached_from_above():
    falling = scored(accuracy=[[0.1]] * 3, loss=[[3.0], [1.0], [0.5]])
    assert [falling.rounds_to(value, "loss") for value in (4, 1, 0.75, 0.25)] == [0, 1, 2, None]
    assert falling.bytes_to(0.25, "loss") == topofl.NotApplicable(
        "no mean loss of 3 evaluations in 2 rounds is 0.25 or less: the lowest is 0.5"
    )


def test_bytes_to(history):
    means = history["accuracy"].mean(1)
    for accuracy in (0.0, means[-1], means[2]):
        done = history.rounds_to(accuracy)
        assert history.bytes_to(accuracy) == sum(history["bytes"][t] for t in range(done))
    assert history.bytes_to(0.0) == 0
    assert history.bytes_to(means.max()) > 0
    high = scored(accuracy=[[0.1, 0.3], [0.2, 0.4]])
    assert high.bytes_to(0.9) == topofl.NotApplicable(
        "no mean accuracy of 2 evaluations in 1 rounds is 0.9 or more: the highest is 0.3"
    )
    assert "it has no value" in scored(accuracy=[[np.nan, np.nan]]).bytes_to(0.1).reason
    with pytest.raises(ValueError, match="`value` must be between 0 and 1, got 80"):
        history.bytes_to(80)


# The numbers of papers


def scored(**columns):
    """Return a history whose evaluations have these columns, (E, n), after rounds 0, 1, 2, ..."""
    columns = {name: np.array(values, dtype=float) for name, values in columns.items()}
    (evaluated, n), *_ = (values.shape for values in columns.values())
    rounds, distance = max(evaluated - 1, 1), np.linspace(1, 0, evaluated)
    return topofl.History(
        {},
        {"train_loss": np.zeros(rounds), "messages": np.zeros(rounds), "bytes": np.full(rounds, 8)},
        {
            "round": np.arange(evaluated),
            "accuracy": np.zeros((evaluated, n)),
            "consensus_distance": distance,
        }
        | columns,
        np.zeros((rounds, n)),
    )


ACCURACY = [
    [0.125, 0.25, np.nan],
    [0.875, 0.75, np.nan],
    [1.0, 0.625, np.nan],
    [0.375, 0.5, np.nan],
]
VALIDATION = [[0.5, 0.0, 0.4], [0.2, 0.6, 0.4], [0.5, 0.6, 0.1], [0.4, 0.1, 0.2]]


def test_last_and_best_are_rows():
    history = scored(accuracy=ACCURACY, loss=-np.array(ACCURACY))
    np.testing.assert_array_equal(history.last(), ACCURACY[3])
    np.testing.assert_array_equal(history.best(), ACCURACY[2])  # the mean is that of the row before
    np.testing.assert_array_equal(history.best("loss"), -np.array(ACCURACY[2]))
    np.testing.assert_array_equal(scored(loss=ACCURACY).best("loss"), ACCURACY[0])


def test_best_leaves_out_evaluations_without_a_score():
    nothing = [np.nan] * 3
    history = scored(
        accuracy_fine_tuned=[nothing, ACCURACY[1], nothing, ACCURACY[3]], loss=[nothing] * 4
    )
    np.testing.assert_array_equal(history.best("accuracy_fine_tuned"), ACCURACY[1])
    assert np.isnan(history.best("loss")).all()
    infinite = scored(loss=[nothing, [np.inf] * 3, nothing])
    assert np.isposinf(infinite.best("loss")).all()


def test_each_node_has_its_own_best_round_on_validation():
    history = scored(accuracy=ACCURACY, accuracy_own_val=VALIDATION)
    np.testing.assert_array_equal(history.best_on_validation(), [1.0, 0.625, np.nan])
    by_loss = scored(accuracy=ACCURACY, loss_own_val=VALIDATION)
    np.testing.assert_array_equal(
        by_loss.best_on_validation(validation="loss_own_val"), [0.875, 0.25, np.nan]
    )


def test_best_on_validation_equals_a_loop_over_nodes():
    rng = np.random.default_rng(0)
    accuracy, validation = rng.integers(0, 4, (2, 30, 50)) / 4
    accuracy[rng.random(accuracy.shape) < 0.3], validation[rng.random(accuracy.shape) < 0.3] = (
        np.nan,
        np.nan,
    )
    accuracy[:, 3], validation[:, 7] = np.nan, np.nan
    found = scored(accuracy=accuracy, accuracy_own_val=validation).best_on_validation()
    for i in range(50):
        best, kept = -1.0, np.nan
        for t in range(30):
            if validation[t, i] >= best and not np.isnan(accuracy[t, i]):
                best, kept = validation[t, i], accuracy[t, i]
        np.testing.assert_equal(found[i], kept)
    assert np.isnan(found[[3, 7]]).all()


def test_infinite_losses_are_still_the_best_there_is():
    history = scored(
        accuracy=[[0.5, 0.5], [np.nan, 0.7]], loss_own_val=[[np.inf, np.inf], [np.inf, 3.0]]
    )
    np.testing.assert_array_equal(history.best_on_validation(validation="loss_own_val"), [0.5, 0.7])


def test_personal_by_hand():
    values = [*np.linspace(0, 1, 21), np.nan, np.nan]
    personal = topofl.history.Personal.of(values)
    assert personal.mean == pytest.approx(0.5)
    assert personal.variance == pytest.approx(np.mean((np.linspace(0, 1, 21) - 0.5) ** 2))
    assert personal.worst_tenth == pytest.approx(0.025)  # 2 of 21: 0 and 0.05
    assert (personal.n, personal.without) == (21, 2)
    assert topofl.history.Personal.of(values, low_is_good=True).worst_tenth == pytest.approx(0.975)
    assert topofl.history.Personal.of([0.3]).worst_tenth == 0.3
    with pytest.raises(
        ValueError, match=r"`values` must be one number per node, \(n,\), got shape \(2, 3\)"
    ):
        topofl.history.Personal.of(np.zeros((2, 3)))


def test_personal_without_any_score_is_nan():
    personal = topofl.history.Personal.of([np.nan, np.nan])
    assert (personal.n, personal.without) == (0, 2)
    assert np.isnan([personal.mean, personal.variance, personal.worst_tenth]).all()
    assert topofl.history.Personal.of([np.inf, 1.0]).mean == np.inf


def test_personal_of_a_history():
    history = scored(accuracy=ACCURACY, accuracy_own_val=VALIDATION, loss=ACCURACY)
    assert history.personal() == topofl.history.Personal.of(ACCURACY[3])
    assert history.personal(validation="accuracy_own_val").mean == 0.8125
    assert history.personal("loss").worst_tenth == 0.5
    assert history.personal().without == 1


@pytest.mark.parametrize("method", ["last", "best", "best_on_validation", "personal"])
def test_columns_that_are_not_there_are_named(method, history):
    with pytest.raises(KeyError, match=r"`column`: no column 'acuracy'.*did you mean 'accuracy'"):
        getattr(history, method)("acuracy")
    with pytest.raises(
        ValueError, match=r"`column` must have one score per node, as accuracy, loss, .*'messages'"
    ):
        getattr(history, method)("messages")


def test_validation_that_was_not_evaluated_says_how(history):
    with pytest.raises(
        KeyError, match=r"`validation`: no column .*run with evaluation=\('own_test', 'own_val'\)"
    ):
        history.best_on_validation()


def test_fine_tuned_evaluations_are_drawn_as_one_line():
    nothing = [np.nan] * 3
    history = scored(accuracy_fine_tuned=[nothing, ACCURACY[1], nothing, ACCURACY[3]])
    (line,) = history.plot("accuracy_fine_tuned").lines
    assert line.get_xdata().tolist() == [1, 3]
    np.testing.assert_allclose(line.get_ydata(), [0.8125, 0.4375])
    once = scored(accuracy_fine_tuned=[nothing, ACCURACY[1]]).plot("accuracy_fine_tuned").lines[0]
    assert once.get_marker() == "o"


def test_a_run_folder_is_loaded_by_its_own_name(history, tmp_path):
    history.save(tmp_path / "run" / "history")
    assert_same(topofl.History.load(tmp_path / "run"), history)


def test_plot_returns_axes(history):
    ax = history.plot("accuracy", label="mine")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), history["accuracy"].mean(1))
    assert ax.get_xlabel() == "round"
    assert history.plot("messages", ax=ax) is ax


@pytest.fixture(scope="module")
def timed():
    """Return a run of 6 nodes with 2 attackers and rounds of 1.5 s: 2 steps and a message."""
    clients = data.iid(data.digits(), 6, seed=0)
    dsgd = algorithms.dsgd(0.1, local_steps=2, batch_size=8)
    return topofl.run(
        algorithms.timed(dsgd, {"compute": 0.5, "delay": 0.5}),
        model=models.logistic_regression(64),
        clients=clients,
        topology=topologies.ring(6),
        rounds=4,
        seed=0,
        attackers=attacks.sign_flip([1, 4]),
        evaluation=topofl.Evaluation(every=2, before_exchange=True),
    )


MB = 12 * 650 * 4 / 1e6
AXES = {
    "rounds": ("round", [0, 2, 4]),
    "steps": ("local steps per node", [0, 4, 8]),
    "seconds": ("simulated seconds", [0, 3, 6]),
    "megabytes": ("megabytes sent by all nodes", [0, 2 * MB, 4 * MB]),
}


@pytest.mark.parametrize("x", AXES)
def test_scores_are_drawn_against_what_they_cost(timed, x):
    name, places = AXES[x]
    axes = Figure().subplots(3)
    ax = timed.plot("accuracy", x=x, ax=axes[0])
    assert ax.get_xlabel() == name
    np.testing.assert_allclose(ax.lines[0].get_xdata(), places)
    each = {"rounds": 1, "steps": 2, "seconds": 1.5, "megabytes": MB}[x]
    np.testing.assert_allclose(
        timed.plot("train_loss", x=x, ax=axes[1]).lines[0].get_xdata(), each * np.arange(1, 5)
    )
    early = timed.plot("accuracy_before_exchange", x=x, ax=axes[2]).lines[0].get_xdata()
    np.testing.assert_allclose(early, [0, MB, 3 * MB] if x == "megabytes" else places)


def test_steps_are_those_that_nodes_took(timed, history):
    assert timed["steps"].tolist() == [12] * 4
    assert history["steps"].tolist() == [6] * 7


def test_axes_that_were_not_recorded_are_refused(history):
    with pytest.raises(
        ValueError,
        match=r"`x` must be what was recorded, got 'seconds', dsgd on .* algorithms.timed",
    ):
        history.plot(x="seconds")
    with pytest.raises(ValueError, match="`x` must be one of 'rounds'"):
        history.plot(x="hours")
    rounds = {name: column for name, column in history.rounds.items() if name != "steps"}
    with pytest.raises(
        ValueError, match=r"got 'steps', .* has no steps in its rounds, .* run it again"
    ):
        dataclasses.replace(history, rounds=rounds).plot(x="steps")


def test_seconds_to_a_score(timed, history):
    score = float(np.nanmax(np.nanmean(timed["accuracy"][1:], axis=1)))
    reached = timed.rounds_to(score)
    assert reached in (2, 4)
    assert timed.seconds_to(score) == 1.5 * reached
    assert timed.seconds_to(0.0) == 0
    assert (
        "no mean accuracy of 3 evaluations in 4 rounds is 1 or more" in timed.seconds_to(1.0).reason
    )
    assert (
        "has no simulated seconds: run algorithms.timed(algorithm, clock)"
        in history.seconds_to(0.0).reason
    )
    with pytest.raises(KeyError, match="no column 'acuracy'"):
        timed.seconds_to(score, "acuracy")


@pytest.mark.parametrize(
    "build", [algorithms.ad_psgd, algorithms.random_walks], ids=["ad_psgd", "random_walks"]
)
def test_asynchronous_runs_have_seconds_and_steps(build):
    history = run_of(partial(build, clock={"compute": 2.0}), topologies.ring(6), rounds=3, every=1)
    assert history.seconds_to(0.0, "accuracy") == 0
    seconds = history["simulated_seconds"]
    assert history.plot(x="seconds", ax=Figure().subplots()).lines[0].get_xdata().tolist() == [
        0,
        *seconds,
    ]
    assert history["steps"].tolist() == [6] * 3
    assert f", {seconds[-1]:.4g} simulated seconds)" in repr(history)


def test_repr_and_names_say_that_a_run_was_attacked_and_timed(timed, history):
    assert repr(timed).endswith(", 2 attackers (sign_flip), 6 simulated seconds)")
    assert timed.attack == "2 attackers (sign_flip)"
    assert timed.mixings.name == "dsgd over ring(n=6), 2 attackers (sign_flip)"
    assert (
        timed.plot(ax=Figure().subplots()).get_lines()[0].get_label()
        == "dsgd, ring(n=6), 2 attackers (sign_flip)"
    )
    assert history.attack == ""
    assert "attack" not in repr(history)
    assert "seconds" not in repr(history)
    lone = dataclasses.replace(
        history, meta=dict(history.meta) | {"attackers": {"name": "\x1b[2J", "nodes": [3]}}
    )
    assert r", 1 attacker (\x1b[2J))" in repr(lone)


def test_repr_does_not_steer_a_terminal(history):
    named = dataclasses.replace(history, meta={"algorithm": "\x1b[2J", "topology": "a\nb"})
    assert r"\x1b[2J on a\nb: 7 rounds" in repr(named)


def test_repr_says_what_it_was(history):
    assert "dsgd on one_peer_exponential(n=6): 7 rounds, n=6" in repr(history)


@pytest.fixture
def diverged(history):
    """Return a run in which node 0 became NaN or infinite, and finally all nodes."""
    evaluations = {name: column.copy() for name, column in history.evaluations.items()}
    for name, value in (("loss", np.inf), ("accuracy", np.nan)):
        evaluations[name][1:, 0] = value
        evaluations[name][-1] = np.nan
    evaluations["loss"][2, :2] = np.inf, -np.inf
    evaluations["consensus_distance"][-1] = np.inf
    rounds = dict(history.rounds) | {
        "train_loss": np.array([2.0, 1.0, np.inf, np.nan, np.nan, np.nan, np.nan])
    }
    return topofl.History(
        history.meta,
        rounds,
        evaluations,
        history.node_loss * np.nan,
        history.matrices,
        history.matrix_of_round,
    )


def test_a_run_that_diverged_is_saved_and_read(diverged, tmp_path):
    path = diverged.save(tmp_path / "run")
    records = [
        json.loads(line, parse_constant=pytest.fail)
        for line in (path / "rounds.jsonl").read_text().splitlines()
    ]
    assert [record.get("train_loss") for record in records] == [
        None,
        2.0,
        1.0,
        None,
        None,
        None,
        None,
        None,
    ]
    assert records[3]["loss_max"] is None
    assert records[3]["accuracy_mean"] == pytest.approx(np.nanmean(diverged["accuracy"][1]))
    assert {records[7][name] for name in ("accuracy_mean", "loss_min", "consensus_distance")} == {
        None
    }
    loaded = topofl.History.load(path)
    np.testing.assert_array_equal(loaded["train_loss"], np.array([2.0, 1.0] + 5 * [np.nan]))
    assert loaded["train_loss"].dtype == np.float64
    assert loaded["messages"].dtype == diverged["messages"].dtype
    for name in diverged.evaluations:
        np.testing.assert_array_equal(loaded[name], diverged[name])


def test_a_run_that_diverged_can_be_looked_at(diverged):
    assert "final accuracy nan" in repr(diverged)
    assert diverged.rounds_to(0.0) == 0
    table = diverged.to_pandas()
    assert table["loss_max"][3] == np.inf
    assert np.isnan(table["accuracy_mean"][7])
    assert table["train_loss"].dtype == np.float64
    assert len(diverged.to_pandas(per="node")) == 24
    for column in ("accuracy", "loss", "train_loss", "consensus_distance"):
        diverged.plot(column).figure.canvas.draw()


# What columns are of


def test_columns_say_their_score_stage_and_set():
    history = run_of(
        algorithms.dsgd,
        topologies.ring(6),
        rounds=2,
        every=1,
        before_exchange=True,
        on=("test", "val"),
    )
    assert tuple(history.columns["loss_before_exchange_val"]) == ("loss", "before_exchange", "val")
    assert history.column() == "accuracy"
    assert history.column("loss", "before_exchange", "val") == "loss_before_exchange_val"
    assert history.column(stage="before_exchange") == history.column(
        stage="before_exchange", on="test"
    )
    assert history.meta["columns"]["accuracy"] == {"score": "accuracy", "stage": "", "set": "test"}


COLUMNS = {
    "score": (
        {"score": "f1"},
        r"`score` must be one that was evaluated, 'accuracy', 'loss', got 'f1'",
    ),
    "stage": (
        {"stage": "fine_tuned"},
        r"`stage` must be .*'', 'before_exchange', got 'fine_tuned'",
    ),
    "set": ({"on": "own_val"}, r"`on` must be one that was evaluated, 'test', got 'own_val'"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_columns_that_were_not_recorded_are_refused(history, case):
    arguments, message = COLUMNS[case]
    with pytest.raises(ValueError, match=message):
        history.column(**arguments)


def test_a_column_that_only_looks_like_another_is_not_it():
    """A score may be called as our stages are; fields, not names, decide."""
    task = {"name": "t", "scores": {"hit_before_exchange": "high", "loss": "low"}}
    columns = {"hit_before_exchange": {"score": "hit_before_exchange", "stage": "", "set": "test"}}
    history = topofl.History(
        {"task": task, "columns": columns},
        {"bytes": np.array([10, 10]), "messages": np.ones(2), "train_loss": np.ones(2)},
        {"round": np.arange(3), "hit_before_exchange": np.array([[0.1], [0.5], [0.9]])},
        np.zeros((2, 1)),
    )
    assert history.bytes_to(0.5) == 10, "the bytes of round 1 were sent before it was scored"


def test_histories_without_fields_get_them_when_they_are_loaded(history, tmp_path):
    file = history.save(tmp_path / "run") / "meta.json"
    meta = json.loads(file.read_text())
    said = meta.pop("columns")
    file.write_text(json.dumps(meta | {"columns": meta.pop("round_columns")}))
    loaded = topofl.History.load(tmp_path / "run")
    assert loaded.meta["columns"] == said == history.meta["columns"]
    assert list(loaded.rounds) == list(history.rounds)


FIELDS = {
    "a list in a column": {"accuracy": ["accuracy", "", "test"]},
    "no set": {"accuracy": {"score": "accuracy", "stage": ""}},
    "a number": {"accuracy": {"score": "accuracy", "stage": 1, "set": "test"}},
    "not there": {
        "accuracy": {"score": "accuracy", "stage": "", "set": "test"},
        "f1": {"score": "f1", "stage": "", "set": "test"},
    },
    "text": "accuracy",
}


@pytest.mark.parametrize("case", FIELDS)
def test_fields_that_were_forged_are_refused(history, tmp_path, case):
    file = history.save(tmp_path / "run") / "meta.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"columns": FIELDS[case]}))
    with pytest.raises(ValueError, match="is damaged"):
        topofl.History.load(tmp_path / "run")


# The models after the last round


def trained(saving=None, model=None, rounds=3, clients=None, **compute):
    clients = clients or problems.equal_clients()
    return topofl.run(
        algorithms.dsgd(lr=0.1, batch_size=4),
        model=model or problems.linear(),
        clients=clients,
        topology=topologies.ring(6),
        rounds=rounds,
        seed=0,
        saving=saving,
        compute=topofl.Compute(device="cpu", **compute),
    )


def pixels():
    images = np.random.default_rng(0).integers(0, 256, (60, 2, 4, 4)).astype(np.uint8)
    return data.iid(
        data.from_arrays(images, np.arange(60) % 3, mean=[0.4, 0.6], std=[0.2, 0.3], test=0.2),
        6,
        seed=0,
    )


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_models_are_those_after_the_last_round(executor):
    last = []
    settings = {
        "clients": problems.equal_clients(),
        "topology": topologies.ring(6),
        "rounds": 3,
        "seed": 0,
    }
    history = topofl.run(
        algorithms.dsgd(lr=0.1, batch_size=4),
        model=problems.linear(),
        **settings,
        compute=topofl.Compute(device="cpu", executor=executor),
        callbacks=[lambda event: last.append(event.models.flat.clone())],
    )
    assert torch.equal(history.models.flat, last[-1])
    assert not history.models.flat.requires_grad
    module, dataset = history.models.module(2), settings["clients"].dataset
    assert torch.equal(torch.nn.utils.parameters_to_vector(module.parameters()), last[-1][2])
    outputs = module(dataset.examples(dataset.test))
    hits = (outputs.argmax(1) == dataset.labels[dataset.test.tolist()]).double().mean().item()
    assert hits == pytest.approx(history.last()[2])
    assert torch.equal(
        history.predict(dataset.inputs[dataset.test.tolist()], node=2), outputs.detach()
    )


def test_a_models_copies_are_apart():
    history = trained()
    before = history.models.flat.clone()
    with torch.no_grad():
        next(history.models.module(0).parameters()).add_(1)
    history.models.state_dict(1)["1.bias"].add_(1)
    assert torch.equal(history.models.flat, before)
    assert repr(history.models) == "Trained(n=6, parameters=111)"


def test_predictions_of_pixels_are_normalized_as_the_dataset_does():
    clients = pixels()
    with seeded_torch(0):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32, 3))
    history, dataset = trained(model=model, clients=clients), clients.dataset
    raw, seen = dataset.inputs[:5], dataset.examples(range(5))
    every = history.predict(raw)
    assert every.shape == (6, 5, 3)
    assert torch.equal(every, history.predict(seen)), (
        "floating-point numbers are normalized already"
    )
    assert torch.equal(every, history.predict(raw.numpy()))
    for i in range(6):
        torch.testing.assert_close(every[i], history.models.module(i)(seen).detach())


def test_runs_may_keep_no_models(tmp_path):
    history = trained(topofl.Saving(models=False))
    assert history.models is None
    with pytest.raises(ValueError, match=r"must have models to predict, .*Saving\(models=True\)"):
        history.predict(np.zeros((1, 1, 6, 6), np.float32))
    with pytest.raises(
        ValueError, match="`models` must be False for a history without models, got True"
    ):
        history.save(tmp_path / "run", models=True)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_that_is_resumed_has_its_models(tmp_path):
    whole = trained(topofl.Saving(tmp_path))
    again = trained(topofl.Saving(tmp_path, resume=True))
    assert torch.equal(again.models.flat, whole.models.flat)


PREDICT = {
    "node": ({"node": 6}, ValueError, "`node` must be between 0 and 5, got 6"),
    "negative": ({"node": -1}, ValueError, "`node` must be"),
    "text": ({"node": "0"}, (TypeError, ValueError), "`node` must be"),
    "one example": (
        {"x": np.zeros((1, 6, 6), np.float32)},
        ValueError,
        r"shape \(b, 1, 6, 6\), got shape \(1, 6, 6\); one example is x\[None\]",
    ),
    "shape": (
        {"x": np.zeros((4, 36), np.float32)},
        ValueError,
        r"`x` must be examples of shape \(b, 1, 6, 6\), got shape \(4, 36\)",
    ),
    "number": ({"x": 3.0}, ValueError, r"`x` must be examples of shape"),
    "pixels": (
        {"x": np.zeros((4, 1, 6, 6), np.uint8)},
        TypeError,
        r"`x` must be floating-point numbers, .*got torch\.uint8",
    ),
    "words": ({"x": "pixels"}, (TypeError, ValueError), "`x` must be"),
    "network": (
        {"network": torch.nn.Linear(2, 2)},
        ValueError,
        r"`network` must have parameters 1\.weight \(3, 36\), .*, got weight \(2, 2\)",
    ),
    "no network": (
        {"network": "linear"},
        TypeError,
        "`network` must be an nn.Module, got 'linear'",
    ),
}


@pytest.mark.parametrize("case", PREDICT)
def test_predictions_that_cannot_be_are_refused(case):
    changes, error, message = PREDICT[case]
    arguments = {"x": np.zeros((4, 1, 6, 6), np.float32)} | changes
    with pytest.raises(error, match=message):
        trained(rounds=1).predict(**arguments)


def test_models_are_saved_when_asked_for_and_read_back(tmp_path):
    history = trained()
    x = np.random.default_rng(0).standard_normal((4, 1, 6, 6)).astype(np.float32)
    place = history.save(tmp_path / "run", models=True)
    loaded = topofl.History.load(place)
    assert torch.equal(loaded.models.flat, history.models.flat)
    with pytest.raises(ValueError, match="`network` must be given for models that were loaded"):
        loaded.predict(x)
    assert torch.equal(loaded.predict(x, network=problems.linear()), history.predict(x))
    assert torch.equal(
        loaded.models.state_dict(1)["1.bias"], history.models.state_dict(1)["1.bias"]
    )
    loaded.save(place, models=True)  # over the file that it reads from
    assert torch.equal(topofl.History.load(place).models.flat, history.models.flat)
    history.save(place)
    assert topofl.History.load(place).models is None
    assert sorted(path.name for path in place.iterdir()) == [
        "arrays.npz",
        "meta.json",
        "rounds.jsonl",
    ]


@pytest.mark.parametrize("damage", ["half", "empty", "another's", "other keys"])
def test_damaged_models_are_refused(tmp_path, damage):
    place = trained(rounds=1).save(tmp_path / "run", models=True)
    file = place / "models.pt"
    content = file.read_bytes()
    if damage in ("half", "empty"):
        file.write_bytes(content[: len(content) // 2] if damage == "half" else b"")
    else:
        held = torch.load(file, weights_only=True)
        torch.save(
            held | {"flat": held["flat"][:4]} if damage == "another's" else {"flat": 3}, file
        )
    with pytest.raises(ValueError, match=r"models\.pt is .*(remove it|run it again)"):
        topofl.History.load(place)


class Unpicklable(torch.nn.Sequential):
    def __reduce__(self):
        raise TypeError("no")

    def __deepcopy__(self, memo):
        made = Unpicklable(torch.nn.Flatten(), torch.nn.Linear(36, 3))
        made.load_state_dict(self.state_dict())
        return made


@pytest.mark.parametrize("kind", ["plain", "unpicklable"])
def test_histories_with_models_are_pickled(kind):
    model = problems.linear() if kind == "plain" else Unpicklable(*problems.linear())
    history = trained(model=model)
    x = np.ones((2, 1, 6, 6), np.float32)
    again = pickle.loads(pickle.dumps(history))
    assert torch.equal(again.models.flat, history.models.flat)
    network = None if kind == "plain" else problems.linear()
    assert torch.equal(again.predict(x, network=network), history.predict(x))
