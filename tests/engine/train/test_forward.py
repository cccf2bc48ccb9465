"""Images with channels last: only where a model can take them, and the same results."""

import numpy as np
import pytest
import torch
from torch import nn

from tests import problems
from tests.engine import runs
from topofl import algorithms, data, models
from topofl.engine.gradients import image_order, is_linear


class Viewing(nn.Module):
    """A model that cannot take channels last: its `view` needs channels first."""

    def __init__(self, flatten):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(64, 3)
        self.flatten = flatten

    def forward(self, x):
        x = self.conv(x)
        return self.head(x.flatten(1) if self.flatten else x.view(len(x), -1))


def is_channels_last(x):
    return x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("model", "shape", "reordered"),
    [
        (models.gn_lenet((3, 16, 16)), (3, 16, 16), True),
        (Viewing(flatten=True), (3, 6, 6), True),
        (Viewing(flatten=False), (3, 6, 6), False),
        (models.logistic_regression(3 * 36), (3, 6, 6), False),
        (nn.Sequential(nn.Conv1d(3, 4, 3), nn.Flatten(), nn.Linear(16, 3)), (3, 6), False),
    ],
)
def test_images_are_reordered_where_the_model_convolves_and_can_take_it(model, shape, reordered):
    inputs = torch.randn(5, *shape)
    ordered = image_order(model, inputs)(inputs)
    assert torch.equal(ordered, inputs)
    assert (ordered.dim() == 4 and is_channels_last(ordered)) == reordered


def run(model, executor):
    clients = data.iid(problems.dataset(shape=(3, 6, 6)), 6, seed=0)
    how = {"rounds": 5, "every": 1, "init": "given", "dtype": torch.float64, "executor": executor}
    method = algorithms.dsgd(lr=0.1, batch_size=4, momentum=0.9)
    history = runs.run(method, model=model, clients=clients, **how)
    return history, history.models.flat


def test_results_are_those_of_channels_first():
    viewing, flattening = Viewing(flatten=False), Viewing(flatten=True)
    flattening.load_state_dict(viewing.state_dict())
    wanted, flat = run(viewing, "looped")
    for executor in ("looped", "batched"):
        history, got = run(flattening, executor)
        torch.testing.assert_close(got, flat, rtol=0, atol=1e-10)
        np.testing.assert_allclose(history["loss"], wanted["loss"], rtol=1e-10)
        np.testing.assert_array_equal(history["accuracy"], wanted["accuracy"])


def test_the_looped_executor_and_evaluation_convolve_channels_last(monkeypatch):
    seen = []
    convolve = nn.Conv2d.forward
    monkeypatch.setattr(
        nn.Conv2d, "forward", lambda self, x: seen.append(is_channels_last(x)) or convolve(self, x)
    )
    run(Viewing(flatten=True), "looped")
    assert seen.count(False) == 7, "the checks that the model and the task take these examples"
    seen.clear()
    run(Viewing(flatten=False), "looped")
    assert seen.count(True) == 2, "one trial for the executor, one for all evaluations"


class Doubled(nn.Sequential):
    """It looks like its parts, but does something else."""

    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    model = models.logistic_regression(4)
    model.register_forward_hook(lambda module, inputs, output: output * 2)
    return model


def tied():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, layer)


@pytest.mark.parametrize(
    ("model", "linear"),
    [
        (models.logistic_regression(4), True),
        (nn.Linear(4, 3), True),
        (nn.Sequential(nn.Sequential(nn.Flatten()), nn.Linear(4, 3)), True),
        (nn.Linear(4, 3, bias=False), False),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU()), False),
        (Doubled(nn.Flatten(), nn.Linear(4, 3)), False),
        (hooked(), False),
        (tied(), False),
    ],
)
def test_only_one_linear_layer_is_taken_for_one(model, linear):
    assert is_linear(model) == linear
