"""Torch's defaults and modes set by the caller do not affect results and are restored."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils import _device

import topofl
from tests import problems
from tests.rows.ambient import AMBIENT, TOGETHER, entered
from tests.rows.runs import arguments, differences
from topofl import data, metrics, models, topologies

ROOT = Path(__file__).resolve().parents[2]
FACTORIES = {function.__name__ for function in _device._device_constructors()} | {"normal"}
FLOATING = {
    *("empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randn", "scalar_tensor"),
    "zeros",
}
OLD = {f"{k}Tensor" for k in ("", "Float", "Double", "Half", "Long", "Int", "Bool", "Byte")}


def made():
    """Return the numbers in data, graphs, weights and models created here, and their metrics."""
    pairs = [(np.full((1, 4, 4), i, np.float32), i % 2) for i in range(8)]
    sets = [data.digits(), data.from_torch(pairs, test=0.25), problems.dataset()]
    pixels = torch.arange(16, dtype=torch.uint8, device="cpu").view(8, 2)
    sets += [data.from_arrays(pixels, [0, 1] * 4, mean=0.5)]
    sets.append(data.flip_labels(problems.equal_clients(), nodes=2, seed=0).dataset)
    tensors = [x for one in sets for x in (one.inputs, one.labels, one.examples([0, 1]))]
    tensors += models.dpfl_cnn().parameters()
    flat = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32))
    ring = topologies.ring(6)
    weights = topofl.mixing.metropolis_hastings(topofl.as_topology(ring.to_pyg()))
    tensors += [weights.to_torch(), ring.to_pyg().edge_weight]
    numbers = [metrics.consensus_distance(flat), metrics.gradient_mixing_error(ring, flat)]
    numbers.append(weights.spectral_gap)
    tensors.append(metrics.mean_model(flat))
    return [t.detach().cpu().numpy() for t in tensors] + [np.array(numbers)]


@pytest.mark.parametrize("setting", AMBIENT)
def test_data_graphs_models_and_metrics_ignore_ambient_torch_settings(setting):
    wanted = made()
    with entered(setting):
        found = made()
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, other)
        assert mine.dtype == other.dtype


@pytest.mark.parametrize("settings", TOGETHER)
def test_saving_and_resuming_ignore_ambient_torch_settings(tmp_path, settings):
    how = arguments("dpfl")
    wanted = topofl.run(**how)
    topofl.run(**how | {"rounds": 3}, saving=tmp_path / "states")
    with entered(*settings):
        saving = topofl.Saving(tmp_path / "states", resume=True)
        found = topofl.run(**how, saving=saving)
        loaded = topofl.History.load(found.save(tmp_path / "history", models=True))
    assert differences(found, wanted) == differences(loaded, wanted) == []


def test_models_and_data_made_in_inference_mode_can_be_trained():
    with torch.inference_mode():
        inside = arguments("as given")
    assert differences(topofl.run(**inside), topofl.run(**arguments("as given"))) == []


def careless(source):
    """Return the calls of torch's factories that do not name device and dtype."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            names = {name.name for name in node.names}
            yield from (f"from torch import {name}" for name in names & FACTORIES)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, given = node.func.attr, {keyword.arg for keyword in node.keywords}
        if ast.unparse(node.func.value) != "torch" or "out" in given:
            continue
        missing = {"device"} - given if name in FACTORIES else set()
        missing |= {"dtype"} - given if name in FLOATING else set()
        if missing or name in OLD:
            lacks = " and ".join(sorted(missing)) or "dtype and device"
            yield f"line {node.lineno}: torch.{name} without {lacks}"


def test_every_factory_names_its_device_and_dtype():
    found = {path: [*careless(path.read_text())] for path in (ROOT / "topofl").rglob("*.py")}
    assert {path.relative_to(ROOT): calls for path, calls in found.items() if calls} == {}


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
