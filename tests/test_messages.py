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
from tests.refusals import named, refused
from topofl import algorithms, callbacks, config, data, metrics, mixing, summary, topologies
from topofl._spec import parameters

RING = topologies.ring(6)
WEIGHTS = mixing.metropolis_hastings(RING)


def small_run(**changes):
    setup = {"algorithm": algorithms.dsgd(lr=0.1, batch_size=4), "model": problems.linear()}
    setup |= {"clients": problems.equal_clients(), "topology": RING, "rounds": 2, "seed": 0}
    return topofl.run(**problems.options(**(setup | {"progress": False} | changes)))


@pytest.fixture(scope="module")
def history():
    return small_run()


@pytest.mark.parametrize(
    "call",
    [
        *(
            lambda history, name=name: getattr(history, name)(3)
            for name in ("last", "best", "best_on_validation", "personal", "plot", "__getitem__")
        ),
        lambda history: history.rounds_to(0.5, 3),
        lambda history: history.bytes_to(0.5, ["accuracy"]),
        lambda history: history.best_on_validation("accuracy", 3),
    ],
)
def test_column_names_must_be_text(history, call):
    wanted = r"^`(column|validation)` must be the name of a column, such as '\w+', got"
    with pytest.raises(TypeError, match=wanted):
        call(history)


# Axes

PLOTS = {
    "Topology.plot": lambda ax, history: RING.plot(ax),
    "Topology.plot_adjacency": lambda ax, history: RING.plot_adjacency(ax),
    "MixingMatrix.plot": lambda ax, history: WEIGHTS.plot(ax),
    "MixingMatrix.plot_spectrum": lambda ax, history: WEIGHTS.plot_spectrum(ax),
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
@pytest.mark.slow
def test_a_plot_returns_the_figure_of_its_axes_or_a_new_one(history, plot):
    for ax in (3, "ax", np.zeros(1), plt):
        wanted = r"^`ax` must be the Axes to draw on, such as .* or None, got"
        with pytest.raises(TypeError, match=wanted):
            PLOTS[plot](ax, history)
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
def test_paths_must_be_text_or_paths(reader):
    read, name = READERS[reader]
    for path in (3, b"x", object(), ["a"], 1.5, Odd()):
        wanted = rf"^`{name}` must be the path of a (file|folder), as text or a pathlib.Path"
        with pytest.raises(TypeError, match=wanted):
            read(path)
    for path in ("", "a\0b"):
        wanted = rf"^`{name}` must be the path of a (file|folder), got"
        with pytest.raises(ValueError, match=wanted):
            read(path)


# Dtypes, devices, labels and inputs


def labelled(labels):
    return lambda: data.from_arrays(np.eye(8), labels)


def fed(inputs):
    return lambda: data.from_arrays(inputs, [0, 1])


def typed(dtype):
    dataset = problems.equal_clients().dataset
    return lambda: (dataset.affine(dtype=dtype), dataset.examples(dtype=dtype))


FLOATING = "`dtype` must be a floating-point dtype, got"
ROWS = [
    *((TypeError, FLOATING, typed(dtype)) for dtype in ("float32", torch.int8)),
    (TypeError, FLOATING, lambda: WEIGHTS.to_torch(dtype=np.float32)),
    (ValueError, "`device` must be a torch device, got", lambda: WEIGHTS.to_torch("nowhere")),
    (ValueError, "`device` must be a torch device, got", lambda: WEIGHTS.to_torch(None)),
    (
        ValueError,
        ("`y` must be below 1,000,000", " got 9223372036854775809 ", "np.unique"),
        labelled(np.array([2**63 + 1, 1] * 4, np.uint64)),
        labelled(np.array([0, 1] * 4, np.uint64)),
    ),
    (
        TypeError,
        ("`y` must be integers, got dtype float64; if ", " convert ", ".astype(int)"),
        labelled([0.0, 1.0] * 4),
    ),
    (TypeError, "`y` must be", labelled([[0], [1, 2]] * 4)),
    (TypeError, "`y` must be", labelled(torch.zeros(8, dtype=torch.bfloat16))),
    (TypeError, "`y` must be", labelled(torch.eye(8).to_sparse())),
    (TypeError, "`y` must be", labelled(torch.zeros(8, device="meta"))),
    (ValueError, "`y` must be", labelled(object())),
    (TypeError, "`y` must be", labelled(None)),
    (ValueError, "`x` must", fed([[0], [1, 2]])),
    (TypeError, "`x` must", fed(torch.zeros(2, 3, device="meta"))),
    (TypeError, "`x` must", fed(object())),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)


@pytest.mark.parametrize("dtype", [None, object], ids=["U", "O"])
def test_text_labels_of_any_array_become_classes(dtype):
    dataset = data.from_arrays(np.eye(8), np.array(["cat", "dog"] * 4, dtype))
    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [0, 1] * 4


# Models


def images(shape=(3, 4, 4)):
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(size, *shape)), np.arange(size) % 2) for size in (24, 4)]
    return data.Partition(data.from_arrays(*pairs[0], test=pairs[1]), np.arange(24).reshape(6, 4))


def normalized(norm):
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), norm, nn.Linear(5, 3))


LAYERS = [nn.Linear(48, 5), nn.ReLU(), nn.Linear(5, 2)]
NUMBERS = np.arange(24).reshape(8, 3)
WHOLE = data.iid(data.from_arrays(NUMBERS, [0, 1] * 4, test=(NUMBERS, [0, 1] * 4)), 6, seed=0)
OTHERS = "`model` must not contain BatchNorm1d .*: it {}.* use models\\.with_"


@pytest.mark.parametrize(
    ("model", "clients", "message"),
    [
        (nn.Linear(3, 2), WHOLE, "examples are torch.int64 and are not converted: give pixels as"),
        (
            normalized(nn.BatchNorm1d(5, track_running_stats=False)),
            None,
            OTHERS.format("normalizes each example by the others in its minibatch"),
        ),
        (
            nn.Sequential(*LAYERS),
            images(),
            r"`model` cannot take .* \(3, 4, 4\): .*; put nn\.Flatten\(\) before its first",
        ),
        (
            nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)),
            images(),
            r"`model` must .* got shape \(1, 3, 4, 2\) .*put nn\.Flatten\(\).* 48 features",
        ),
        (
            nn.Sequential(nn.Embedding(300, 4), nn.Flatten(), nn.Linear(12, 2)),
            images((3,)),
            r"examples are torch\.float32: give token ids as int64",
        ),
    ],
)
def test_models_that_do_not_fit_the_data_are_refused_with_a_remedy(model, clients, message):
    with pytest.raises(ValueError, match=message):
        small_run(model=model, clients=clients or problems.equal_clients())
    small_run(model=nn.Sequential(nn.Flatten(), *LAYERS), clients=images())


class Convolved(nn.Linear):
    """A layer that is called as those of PyTorch Geometric."""

    def forward(self, x, edge_index):
        return super().forward(x[edge_index[0]])


def test_networks_of_graphs_are_refused_with_how_to_give_their_graph():
    with pytest.raises(
        ValueError, match=r"takes the edges .*from_pyg.*graphs\.network\(model, clients\)"
    ):
        small_run(model=Convolved(36, 2), clients=problems.equal_clients())


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
    how = {"model": model, "clients": images((36,)), "dtype": torch.float64}
    looped, history = small_run(**how, executor="looped"), small_run(**how, executor=executor)
    for column in ("train_loss", "loss"):
        np.testing.assert_allclose(history[column], looped[column], rtol=1e-12)
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())
