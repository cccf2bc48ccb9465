"""Mixing matrices as a history keeps them."""

import copy
import gc
import pickle
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sparse

import topofl
from tests import problems
from topofl import algorithms, data, mixing, models, topologies
from topofl.history import matrices as stored
from topofl.history.matrices import Matrices, Packed, bytes_of, kept, kept_of
from topofl.mixing import MixingMatrix


@pytest.fixture
def packs_all(monkeypatch):
    pack_from(monkeypatch, 0)


def pack_from(monkeypatch, size):
    """Let matrices of so many bytes be packed, whatever their rows."""
    for name in ("PACKED_FROM", "SEARCHED_FROM"):
        monkeypatch.setattr(stored, name, size)


def average(n, chosen, seed=0):
    participants = np.isin(np.arange(n), np.random.default_rng(seed).permutation(n)[:chosen])
    sizes = np.random.default_rng(seed).integers(1, 9, n).astype(float)
    return mixing.average_of(sizes, participants)


def in_groups(n, size):
    groups = [np.ones((min(size, n - k),) * 2) / min(size, n - k) for k in range(0, n, size)]
    return MixingMatrix(sparse.csr_array(sparse.block_diag(groups)), "groups")


def same(a, b):
    """Whether two matrices are the same to the last bit."""
    parts = ("data", "indices", "indptr")
    return a.name == b.name and all(
        getattr(a.weights, part).dtype == getattr(b.weights, part).dtype
        and np.array_equal(getattr(a.weights, part), getattr(b.weights, part))
        for part in parts
    )


def shuffled(matrix, seed):
    order = np.random.default_rng(seed).permutation(matrix.n)
    return MixingMatrix(matrix.weights[order][:, order], "shuffled")


CASES = {
    "one row": average(60, 7),
    "one entry": average(60, 1),
    "all of all": average(60, 60),
    "groups": in_groups(60, 10),
    "uneven groups": in_groups(61, 9),
    "shuffled groups": shuffled(in_groups(60, 10), 3),
    "two kinds of rows": MixingMatrix(
        sparse.block_diag([average(30, 5).weights, average(30, 9).weights]), "two"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_packing_is_exact(packs_all, name):
    matrix = CASES[name]
    one = kept(matrix)
    assert isinstance(one, Packed)
    assert len(set(map(bytes, one.weights.toarray()))) == one.weights.shape[0], "each row once"
    assert bytes_of(one) < bytes_of(matrix) / 1.5
    assert same(one.unpacked(), matrix)
    parts = {part: getattr(one.weights, part) for part in ("data", "indices", "indptr")}
    parts |= {"row_of": one.row_of}
    assert same(kept_of(parts, matrix.n, matrix.name).unpacked(), matrix)


@pytest.mark.parametrize(
    "graph", [topologies.ring(60), topologies.exponential(64), topologies.star(60)]
)
def test_matrices_that_save_little_are_not_packed(packs_all, graph):
    matrix = mixing.metropolis_hastings(graph)
    assert kept(matrix) is matrix


def test_rows_with_equal_products_are_compared(packs_all, monkeypatch):
    close = average(60, 7).weights.toarray()
    close[5] = np.roll(close[5], 1)
    matrix = MixingMatrix(sparse.csr_array(close))
    assert same(kept(matrix).unpacked(), matrix)
    flat = SimpleNamespace(random=np.ones)  # all rows of a row-stochastic matrix then look equal
    monkeypatch.setattr(stored.np.random, "default_rng", lambda seed: flat)
    assert kept(matrix) is matrix


def test_small_matrices_are_not_packed():
    assert kept(CASES["one row"]) is CASES["one row"]


@pytest.mark.parametrize(("n", "chosen"), [(26, 26), (40, 20), (63, 63)])
def test_one_row_is_kept_once_from_a_few_kibibytes_on(n, chosen):
    matrix = average(n, chosen)
    one = kept(matrix)
    assert isinstance(one, Packed)
    assert same(one.unpacked(), matrix)
    assert bytes_of(one) == 16 * chosen + 8 * 2 + 4 * n
    for part in ("data", "indices", "indptr"):
        array = getattr(one.weights, part)
        assert not array.flags.writeable
        assert array.base is None or array.base.size == array.size, "or the whole matrix would stay"


@pytest.mark.parametrize("row", [0, 1, 31, 62, "none but the last"])
def test_rows_that_differ_somewhere_are_not_one(row):
    close = average(63, 40).weights.toarray()
    rows = range(62) if row == "none but the last" else [row]
    for k in rows:
        close[k] = np.roll(close[k], 1 + k % 5)
    matrix = MixingMatrix(sparse.csr_array(close))
    assert kept(matrix) is matrix
    close[rows] = average(63, 30).weights.toarray()[0]  # of another length
    matrix = MixingMatrix(sparse.csr_array(close))
    assert kept(matrix) is matrix


def test_a_sequence_of_matrices(packs_all):
    plain, packed = mixing.metropolis_hastings(topologies.ring(60)), CASES["one row"]
    both = Matrices([kept(plain), kept(packed)])
    assert len(both) == 2
    assert both[0] is plain
    made = both[-1]
    assert both[1] is made, "one object while it is in use"
    assert same(made, packed)
    for copied in (pickle.loads(pickle.dumps(both)), copy.deepcopy(both), both[:]):
        assert [same(a, b) for a, b in zip(copied, both, strict=True)] == [True, True]
    with pytest.raises(IndexError):
        both[2]
    assert not Matrices()


def broken(**changes):
    good = {"data": np.full(3, 1 / 3), "indices": np.arange(3, dtype=np.int32)}
    good |= {"indptr": np.array([0, 3], np.int32), "row_of": np.zeros(5, np.int32)}
    return good | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": np.array([0, 1, 5], np.int32)},
        {"indices": np.array([0, -1, 2], np.int32)},
        {"indices": np.array([0.0, 1.0, 2.0])},
        {"indptr": np.array([0, 4], np.int32)},
        {"indptr": np.array([1, 3], np.int32)},
        {"indptr": np.array([0], np.int32)},
        {"data": np.full(3, 0.5)},
        {"data": np.array([np.nan, 0.5, 0.5])},
        {"data": np.array([-1.0, 1.0, 1.0])},
        {"data": np.full((3, 1), 1 / 3)},
        {"row_of": np.full(5, 1, np.int32)},
        {"row_of": np.full(5, -1, np.int32)},
        {"row_of": np.zeros(4, np.int32)},
        {"row_of": np.zeros(5)},
    ],
)
def test_arrays_that_are_no_matrix_are_refused(changes):
    assert kept_of(broken(), 5, "W").unpacked().is_row_stochastic
    with pytest.raises(ValueError, match=r"."):
        kept_of(broken(**changes), 5, "W")
    if "row_of" not in changes:
        rows = {name: value for name, value in broken(**changes).items() if name != "row_of"}
        with pytest.raises(ValueError, match=r"."):
            kept_of(rows, 5, "W")


def fedavg(n=400, rounds=6, **more):
    clients = data.iid(problems.dataset(n_examples=2 * n), n, seed=0)
    algorithm = algorithms.fedavg(lr=0.1, epochs=1, participation=0.1)
    how = {"clients": clients, "seed": 0, "executor": "batched", "every": rounds} | more
    model = models.logistic_regression(36, 3)
    return topofl.run(
        algorithm, model=model, rounds=rounds, progress=False, **problems.options(**how)
    )


def test_a_server_s_rows_are_kept_once_in_memory_and_on_disk(tmp_path, monkeypatch):
    packed = fedavg()
    assert all(isinstance(one, Packed) for one in packed.matrices.kept)
    pack_from(monkeypatch, 2**60)
    whole = fedavg()
    assert all(isinstance(one, MixingMatrix) for one in whole.matrices.kept)
    monkeypatch.undo()
    assert list(packed.matrix_of_round) == list(whole.matrix_of_round) == list(range(6))
    loaded = topofl.History.load(packed.save(tmp_path / "packed"))
    older = topofl.History.load(written_in_full(whole, tmp_path / "older", monkeypatch))
    for t in range(6):
        assert same(packed.mixing(t), whole.mixing(t))
        assert same(loaded.mixing(t), whole.mixing(t))
        assert same(older.mixing(t), whole.mixing(t))
    for one in (packed, loaded, older):
        assert sum(map(bytes_of, one.matrices.kept)) < 6 * (40 * 16 + 400 * 4 + 100)
    assert packed.mixings.at(2) is packed.mixing(2) or packed.mixing(2).n == 400
    sizes = [(tmp_path / one / "arrays.npz").stat().st_size for one in ("packed", "older")]
    assert sizes[0] < sizes[1]


def written_in_full(history, path, monkeypatch):
    """Save as it was before rows were kept once."""
    with monkeypatch.context() as patch:
        pack_from(patch, 2**60)
        return history.save(path)


def test_memory_does_not_grow_by_a_dense_matrix_a_round():
    n, rounds = 1000, 12
    fedavg(n, 2)
    gc.collect()
    tracemalloc.start()
    try:
        history = fedavg(n, rounds)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    dense = 12 * n * 100
    assert len(history.matrices) == rounds
    assert held < 3 * dense, f"{held} bytes; {rounds} matrices in full are {rounds * dense}"


@pytest.mark.parametrize("least", [0, 2**60])
def test_checkpoints_keep_them_and_take_those_of_older_versions(tmp_path, monkeypatch, least):
    whole = fedavg(60)
    pack_from(monkeypatch, least)
    saving = topofl.Saving(tmp_path, every=2)
    with pytest.raises(ZeroDivisionError):
        fedavg(60, callbacks=[lambda event: 1 / (event.round - 4)], saving=saving)
    pack_from(monkeypatch, 0)
    resumed = fedavg(60, saving=topofl.Saving(tmp_path, every=2, resume=True))
    assert list(resumed.matrix_of_round) == list(whole.matrix_of_round)
    assert [same(a, b) for a, b in zip(resumed.matrices, whole.matrices, strict=True)] == 6 * [True]
