"""Error messages of common mistakes name argument, requirement, value and remedy."""

import ast
import os
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

import topofl
from tests import problems
from topofl import algorithms, callbacks, config, data, metrics, mixing, summary, topologies
from topofl._spec import parameters

RING = topologies.ring(6)


def small_run(**changes):
    setup = {
        "algorithm": algorithms.dsgd(lr=0.1, batch_size=4),
        "model": problems.linear(),
        "clients": problems.equal_clients(),
        "topology": RING,
        "rounds": 2,
        "seed": 0,
        "progress": False,
    }
    return topofl.run(**problems.options(**(setup | changes)))


@pytest.fixture(scope="module")
def history():
    return small_run()


# Columns


@pytest.mark.parametrize("column", [3, ["accuracy"], object(), ("accuracy",), {}])
@pytest.mark.parametrize(
    "method", ["last", "best", "best_on_validation", "personal", "plot", "__getitem__"]
)
def test_column_names_must_be_text(history, method, column):
    with pytest.raises(
        TypeError, match=r"^`column` must be the name of a column, such as 'accuracy', got"
    ):
        getattr(history, method)(column)


@pytest.mark.parametrize("method", ["rounds_to", "bytes_to"])
def test_names_of_target_columns_must_be_text(history, method):
    with pytest.raises(TypeError, match=r"^`column` must be the name of a column"):
        getattr(history, method)(0.5, 3)


def test_names_of_validation_columns_must_be_text(history):
    with pytest.raises(TypeError, match=r"^`validation` must be the name of a column"):
        history.best_on_validation("accuracy", 3)


# Axes

PLOTS = {
    "Topology.plot": lambda ax, history: RING.plot(ax),
    "Topology.plot_adjacency": lambda ax, history: RING.plot_adjacency(ax),
    "MixingMatrix.plot": lambda ax, history: mixing.metropolis_hastings(RING).plot(ax),
    "MixingMatrix.plot_spectrum": lambda ax, history: mixing.metropolis_hastings(
        RING
    ).plot_spectrum(ax),
    "plot_contraction": lambda ax, history: metrics.plot_contraction(RING, rounds=3, seed=0, ax=ax),
    "HeterogeneitySpectrum.plot": lambda ax, history: metrics.heterogeneity_spectrum(
        RING, np.eye(RING.n, dtype=int)
    ).plot(ax),
    "Partition.plot": lambda ax, history: problems.equal_clients().plot(ax),
    "History.plot": lambda ax, history: history.plot(ax=ax),
    "compare_histories": lambda ax, history: topofl.compare_histories({"a": history}, ax=ax),
    "Recommendation.plot": lambda ax, history: topologies.recommend(
        problems.equal_clients(), max_degree=2, seed=0
    ).plot(ax),
    "Summary.plot": lambda ax, history: topofl.summarize({"a": [history]}).plot(ax=ax),
    "plot_band": lambda ax, history: summary.plot_band({"a": [history]}, ax=ax),
    "plot_nodes": lambda ax, history: summary.plot_nodes({"a": [history]}, ax=ax),
    "plot_violin": lambda ax, history: summary.plot_violin({"a": [history]}, ax=ax),
    "plot_pareto": lambda ax, history: summary.plot_pareto({"a": [history]}, ax=ax),
    "plot_heat_map": lambda ax, history: summary.plot_heat_map(
        {"a": [history]}, by=["algorithm", "topology"], ax=ax
    ),
}

WITHOUT_AXES = {"TopologySequence.plot"}
"""Plots with axes for each round."""


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("ax", [3, "ax", np.zeros(1), plt], ids=["3", "text", "array", "pyplot"])
@pytest.mark.slow
def test_ax_must_be_axes(history, plot, ax):
    with pytest.raises(
        TypeError, match=r"^`ax` must be the Axes to draw on, such as .* or None, got"
    ):
        PLOTS[plot](ax, history)


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.slow
def test_a_plot_returns_the_figure_of_its_axes_or_a_new_one(history, plot):
    before = plt.get_fignums()
    ax = Figure(figsize=(8, 6)).subplots()
    assert PLOTS[plot](ax, history) is ax.figure
    figure = PLOTS[plot](None, history)
    assert type(figure) is Figure
    assert figure._repr_png_().startswith(b"\x89PNG")  # notebooks show it, once
    assert plt.get_fignums() == before


def test_all_public_plots_return_figures():
    """Also those of classes, from the source: functions named plot and plot_*."""
    found = {"compare_histories": "Figure"}
    for path in Path(topofl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            inside = node.name if isinstance(node, ast.ClassDef) else ""
            for one in node.body if isinstance(node, ast.Module | ast.ClassDef) else ():
                if isinstance(one, ast.FunctionDef) and re.fullmatch(r"plot(_\w+)?", one.name):
                    name = f"{inside}.{one.name}" if inside else one.name
                    found[name] = one.returns.value
    found.pop("plot")  # the body of History.plot
    assert set(found) == PLOTS.keys() | WITHOUT_AXES
    assert set(found.values()) == {"Figure"}


# Paths

READERS = {
    **{name: (read, "root") for name, read in data.READERS.items() if "root" in parameters(read)},
    "read_idx": (data.read_idx, "path"),
    "config.load": (config.load, "path"),
    "config.read": (config.read, "path"),
    "callbacks.jsonl": (callbacks.jsonl, "path"),
    "History.load": (topofl.History.load, "path"),
    "Table.to_csv": (metrics.compare([RING]).to_csv, "path"),
}


class Odd(os.PathLike):
    def __fspath__(self):
        return b"bytes"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "path", [3, b"x", object(), ["a"], 1.5, Odd()], ids=lambda path: type(path).__name__
)
def test_paths_must_be_text_or_paths(reader, path):
    read, name = READERS[reader]
    with pytest.raises(
        TypeError,
        match=rf"^`{name}` must be the path of a (file|folder), as text or a pathlib.Path",
    ):
        read(path)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("path", ["", "a\0b"])
def test_paths_must_be_valid(reader, path):
    read, name = READERS[reader]
    with pytest.raises(ValueError, match=rf"^`{name}` must be the path of a (file|folder), got"):
        read(path)


# Dtypes


@pytest.mark.parametrize(
    "dtype", ["float32", 3, np.float32, np.dtype("f4"), None, torch.int8], ids=str
)
@pytest.mark.parametrize("method", ["affine", "examples"])
def test_dtypes_must_be_floating_point(method, dtype):
    with pytest.raises(TypeError, match=r"^`dtype` must be a floating-point dtype, got"):
        getattr(problems.equal_clients().dataset, method)(dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", 3, np.float32, None, torch.int8], ids=str)
def test_weights_become_tensors_of_a_floating_point_dtype(dtype):
    with pytest.raises(TypeError, match=r"^`dtype` must be a floating-point dtype, got"):
        mixing.metropolis_hastings(RING).to_torch(dtype=dtype)


@pytest.mark.parametrize("device", ["nowhere", object(), None])
def test_weights_become_tensors_on_a_device(device):
    with pytest.raises(ValueError, match=r"^`device` must be a torch device, got"):
        mixing.metropolis_hastings(RING).to_torch(device)


# Labels and inputs


def test_labels_that_cannot_be_classes_are_refused():
    assert data.from_arrays(np.eye(8), np.array([0, 1] * 4, np.uint64)).n_classes == 2
    with pytest.raises(
        ValueError, match=r"^`y` must be below 1,000,000.* got 9223372036854775809 .*np\.unique"
    ):
        data.from_arrays(np.eye(8), np.array([2**63 + 1, 1] * 4, np.uint64))


@pytest.mark.parametrize(
    "labels", [np.array(["cat", "dog"] * 4), np.array(["cat", "dog"] * 4, object)], ids=["U", "O"]
)
def test_text_labels_of_any_array_become_classes(labels):
    dataset = data.from_arrays(np.eye(8), labels)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [0, 1] * 4


def test_whole_float_labels_are_refused_with_a_remedy():
    with pytest.raises(
        TypeError,
        match=r"`y` must be integers, got dtype float64; if .* convert .* \.astype\(int\)$",
    ):
        data.from_arrays(np.eye(8), [0.0, 1.0] * 4)


@pytest.mark.parametrize(
    "labels",
    [
        [[0], [1, 2]] * 4,
        torch.zeros(8, dtype=torch.bfloat16),
        torch.zeros(8, dtype=torch.complex64),
        torch.eye(8).to_sparse(),
        torch.zeros(8, device="meta"),
        object(),
        None,
    ],
    ids=["ragged", "bfloat16", "complex", "sparse", "meta", "object", "none"],
)
def test_labels_of_other_types_are_refused(labels):
    with pytest.raises((TypeError, ValueError), match=r"^`y` must be"):
        data.from_arrays(np.eye(8), labels)


@pytest.mark.parametrize(
    "inputs",
    [[[0], [1, 2]], torch.zeros(2, 3, device="meta"), object()],
    ids=["ragged", "meta", "object"],
)
def test_inputs_of_other_types_are_refused(inputs):
    with pytest.raises((TypeError, ValueError), match=r"^`x` must"):
        data.from_arrays(inputs, [0, 1])


@pytest.mark.parametrize(
    "layer", [nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))], ids=["one", "two"]
)
def test_integer_inputs_are_distinguished_from_pixels(layer):
    numbers = np.arange(24).reshape(8, 3)
    clients = data.iid(data.from_arrays(numbers, [0, 1] * 4, test=(numbers, [0, 1] * 4)), 6, seed=0)
    with pytest.raises(
        ValueError,
        match=r"examples are torch.int64 and are not converted: give pixels as uint8",
    ):
        small_run(model=layer, clients=clients)


# Models


def images(shape=(3, 4, 4)):
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(size, *shape)), np.arange(size) % 2) for size in (24, 4)]
    return data.Partition(data.from_arrays(*pairs[0], test=pairs[1]), np.arange(24).reshape(6, 4))


@pytest.mark.parametrize(
    ("norm", "reason"),
    [
        (
            nn.BatchNorm1d(5, track_running_stats=False),
            "normalizes each example by the others in its minibatch",
        ),
        (nn.BatchNorm1d(5), "keeps running statistics"),
    ],
)
def test_batch_normalization_is_refused_for_its_own_reason(norm, reason):
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), norm, nn.Linear(5, 3))
    with pytest.raises(
        ValueError,
        match=rf"`model` must not contain BatchNorm1d .*: it {reason}.*; use models\.with_",
    ):
        small_run(model=model)


def test_a_network_without_flatten_is_refused_with_a_remedy():
    layers = [nn.Linear(48, 5), nn.ReLU(), nn.Linear(5, 2)]
    with pytest.raises(
        ValueError,
        match=r"`model` cannot take .* \(3, 4, 4\): .*; put nn\.Flatten\(\) before its first",
    ):
        small_run(model=nn.Sequential(*layers), clients=images())
    small_run(model=nn.Sequential(nn.Flatten(), *layers), clients=images())


def test_a_network_that_flattens_nothing_is_refused_with_a_remedy():
    with pytest.raises(
        ValueError,
        match=r"`model` must .* got shape \(1, 3, 4, 2\) .*put nn\.Flatten\(\).* 48 features",
    ):
        small_run(model=nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)), clients=images())


def test_embeddings_are_refused_with_a_remedy():
    model = nn.Sequential(nn.Embedding(300, 4), nn.Flatten(), nn.Linear(12, 2))
    with pytest.raises(ValueError, match=r"examples are torch\.float32: give token ids as int64"):
        small_run(model=model, clients=images((3,)))


class Shared(nn.Module):
    """A model with a layer under two names and a parameter in two layers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(36, 36)
        self.again = self.first
        self.third, self.fourth = nn.Linear(36, 36), nn.Linear(36, 36)
        self.fourth.weight = self.third.weight
        self.head = nn.Linear(36, 2)

    def forward(self, x):
        for layer in (self.first, self.again, self.third, self.fourth):
            x = torch.tanh(layer(x))
        return self.head(x)


@pytest.mark.parametrize("executor", ["batched", "auto"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_layer_under_two_names_is_trained_by_every_executor(executor, inside):
    model = nn.Sequential(nn.Flatten(), Shared()) if inside else Shared()
    clients = images((36,))
    how = {"model": model, "clients": clients, "dtype": torch.float64}
    looped, history = small_run(**how, executor="looped"), small_run(**how, executor=executor)
    for column in ("train_loss", "loss"):
        np.testing.assert_allclose(history[column], looped[column], rtol=1e-12)
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())
