"""Torch's defaults and modes set by the caller do not affect results and are restored."""

import ast
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine import killed
from topofl import algorithms, data, metrics, models, topologies

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def default_device(device):
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


AMBIENT = {
    "default device": lambda: default_device("meta"),
    "a missing device": lambda: default_device("xla"),
    "device context": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "default dtype": lambda: default_dtype(torch.float64),
}


@contextmanager
def several(*names):
    """Enter several contexts at once."""
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(AMBIENT[name]())
        yield


TOGETHER = {
    "by defaults": ("a missing device", "default dtype", "autocast", "inference mode"),
    "by contexts": ("device context", "no_grad"),
}
"""Two sets of settings that do not hide each other.

A default device that exists acts as one that does not.
"""

WAYS = AMBIENT | {title: lambda names=names: several(*names) for title, names in TOGETHER.items()}


@pytest.fixture(params=AMBIENT)
def ambient(request):
    return AMBIENT[request.param]


def each_meets(names, *, alone):
    """Return test parameters: every name with both sets, and some names with each setting alone."""
    return [(name, way) for name in names for way in (AMBIENT if name in alone else TOGETHER)]


def state():
    """Return the context of a torch setting."""
    return (
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        torch.overrides._get_current_function_mode_stack(),
        torch.get_num_threads(),
    )


def settings(name):
    """Return the arguments of a short run with two evaluations."""
    return killed.settings(name) | {"rounds": 4}


@cache
def plain(name):
    """Return the result of a run with torch's default settings."""
    return killed.trained(settings(name))


@pytest.mark.parametrize(("name", "way"), each_meets(killed.PROBLEMS, alone=("dsgd", "dpfl")))
@pytest.mark.slow
def test_algorithms_ignore_ambient_torch_settings(name, way):
    arguments, wanted = settings(name), plain(name)
    with WAYS[way]():
        before = state()
        found = killed.trained(arguments)
        assert state() == before
    assert killed.differences(found, wanted) == []


class Padded(nn.Sequential):
    """A model that creates a tensor without naming a device."""

    def forward(self, x):
        return super().forward(x) + torch.zeros(3, dtype=x.dtype)


def pixels():
    images = np.random.default_rng(0).integers(0, 255, (60, 1, 6, 6), np.uint8)
    return data.iid(data.from_arrays(images, np.arange(60) % 3), 6, seed=0, test_fraction=0.2)


CASES = {
    "batched": {"executor": "batched", "chunk": 2},
    "bfloat16, looped": {"precision": "bf16"},
    "bfloat16, batched": {"precision": "bf16", "executor": "batched", "chunk": 4},
    "sparse products": {"dtype": torch.float64, "topology": topologies.ring(6)},
    "pixels": {
        "clients": data.augmented(pixels(), data.crop_and_flip(padding=1)),
        "on": "own_test",
    },
    "fine-tuning": {"fine_tune": algorithms.sgd(lr=0.1), "before_exchange": True},
    "as given": {"init": "given"},
    "frozen": {"on_divergence": "freeze"},
    "a forward that makes a tensor": {"model": Padded(*problems.convolutional())},
}


def arguments_of(case):
    return (
        settings("dsgd") | {"model": problems.convolutional(), "executor": "looped"} | CASES[case]
    )


@cache
def plain_way(case):
    """Return the result of one engine path with torch's default settings."""
    return killed.trained(arguments_of(case))


@pytest.mark.filterwarnings("ignore:.*emulated:RuntimeWarning")
@pytest.mark.parametrize("case", CASES)
def test_engine_paths_ignore_ambient_torch_settings(case, ambient):
    arguments, wanted = arguments_of(case), plain_way(case)
    with ambient():
        found = killed.trained(arguments)
    assert killed.differences(found, wanted) == []


def made():
    """Return the numbers in data, graphs, weights and models created here, and their metrics."""
    pairs = [(np.full((1, 4, 4), i, np.float32), i % 2) for i in range(8)]
    sets = [data.digits(), data.from_torch(pairs, test=0.25), problems.dataset()]
    sets += [
        data.from_arrays(
            torch.arange(16, dtype=torch.uint8, device="cpu").view(8, 2), [0, 1] * 4, mean=0.5
        )
    ]
    flipped = data.flip_labels(problems.equal_clients(), nodes=2, seed=0).dataset
    tensors = [
        part for one in (*sets, flipped) for part in (one.inputs, one.labels, one.examples([0, 1]))
    ]
    tensors += models.dpfl_cnn().parameters()
    flat = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32))
    ring = topologies.ring(6)
    weights = topofl.mixing.metropolis_hastings(topofl.as_topology(ring.to_pyg()))
    tensors += [weights.to_torch(), ring.to_pyg().edge_weight]
    numbers = [
        metrics.consensus_distance(flat),
        metrics.gradient_mixing_error(ring, flat),
        weights.spectral_gap,
    ]
    tensors.append(metrics.mean_model(flat))
    return [t.detach().cpu().numpy() for t in tensors] + [np.array(numbers)]


def test_data_graphs_models_and_metrics_ignore_ambient_torch_settings(ambient):
    wanted = made()
    with ambient():
        found = made()
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, other)
        assert mine.dtype == other.dtype


@pytest.mark.parametrize(
    ("name", "way"), each_meets(["dsgd", "dpfl", "pfeddst", "clique_averaging"], alone=("dsgd",))
)
def test_estimates_ignore_ambient_torch_settings(name, way):
    arguments = {
        k: v
        for k, v in killed.settings(name).items()
        if k in ("algorithm", "model", "clients", "topology")
    }
    wanted = topofl.estimate(**problems.options(device="cpu", executor="looped", **arguments))
    with WAYS[way]():
        found = topofl.estimate(
            **problems.options(device="cpu", executor="looped", **arguments), probe=True
        )
    for part in (
        "parameters",
        "state",
        "gradients",
        "activations",
        "evaluation",
        "messages",
        "bytes",
        "busiest_bytes",
    ):
        assert getattr(found, part) == getattr(wanted, part), part


def test_saving_and_resuming_ignore_ambient_torch_settings(tmp_path, ambient):
    arguments = killed.settings("dpfl")
    wanted = killed.trained(arguments)
    topofl.run(**problems.options(saving=tmp_path / "states", **arguments | {"rounds": 3}))
    with ambient():
        found = killed.trained(arguments, saving=topofl.Saving(tmp_path / "states", resume=True))
        found[0].save(tmp_path / "history")
        loaded = topofl.History.load(tmp_path / "history")
    assert killed.differences(found, wanted) == []
    assert killed.differences((loaded, found[1]), wanted) == []


def test_models_and_data_made_in_inference_mode_can_be_trained():
    def arguments():
        return killed.settings("dsgd") | {
            "model": problems.convolutional(),
            "executor": "looped",
            "init": "given",
        }

    with torch.inference_mode():
        inside = arguments()
    assert killed.differences(killed.trained(inside), killed.trained(arguments())) == []


FACTORIES = {
    "arange",
    "as_tensor",
    "asarray",
    "empty",
    "empty_strided",
    "eye",
    "full",
    "linspace",
    "logspace",
    "normal",
    "ones",
    "rand",
    "randint",
    "randn",
    "randperm",
    "range",
    "scalar_tensor",
    "sparse_bsc_tensor",
    "sparse_bsr_tensor",
    "sparse_compressed_tensor",
    "sparse_coo_tensor",
    "sparse_csc_tensor",
    "sparse_csr_tensor",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
}
OLD = {
    "Tensor",
    "FloatTensor",
    "DoubleTensor",
    "LongTensor",
    "IntTensor",
    "BoolTensor",
    "ByteTensor",
    "HalfTensor",
}
FLOATING = {
    "empty",
    "eye",
    "full",
    "linspace",
    "logspace",
    "ones",
    "rand",
    "randn",
    "scalar_tensor",
    "zeros",
}


def careless(source):
    """Return the calls of torch's factories that do not name device and dtype."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            yield from (
                f"from torch import {name.name}" for name in node.names if name.name in FACTORIES
            )
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, given = node.func.attr, {keyword.arg for keyword in node.keywords}
        if (
            not (isinstance(node.func.value, ast.Name) and node.func.value.id == "torch")
            or "out" in given
        ):
            continue
        missing = {"device"} - given if name in FACTORIES else set()
        missing |= {"dtype"} - given if name in FLOATING else set()
        if missing or name in OLD:
            yield (
                f"line {node.lineno}: torch.{name} without "
                f"{' and '.join(sorted(missing)) or 'dtype and device'}"
            )


@pytest.mark.parametrize(
    "path", sorted((ROOT / "topofl").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_factory_names_its_device_and_dtype(path):
    assert list(careless(path.read_text())) == []


def test_the_check_of_factories_can_fail():
    source = (
        "torch.zeros(3)\ntorch.tensor([1], device=x.device)\ntorch.Tensor([1])\n"
        "x.new_zeros(3)\nfrom torch import eye\n"
    )
    found = [
        "from torch import eye",
        "line 1: torch.zeros without device and dtype",
        "line 3: torch.Tensor without dtype and device",
    ]
    assert sorted(careless(source)) == found
