"""Bytes of tensors while they live, against counts by hand and those of larger minibatches."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from tests import problems
from topofl.engine.footprint import bytes_of_step
from topofl.engine.gradients import autograd_gradients, image_order
from topofl.engine.memory import AllocationTrace, bytes_of_forward
from topofl.engine.network import Network


def as_it_is(x):
    return x


def test_tensors_count_while_they_live():
    with AllocationTrace() as allocations:
        first = torch.zeros(10)
        second = first + 1
        view = second[2:]
        del second
        assert allocations.alive == 80  # the view keeps its storage
        del view
        assert allocations.alive == 40
        first.add_(1)
    assert (allocations.alive, allocations.peak) == (40, 80)


class Choosy(nn.Module):
    """Looks at values, which torch.func cannot batch."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x) if float(x.detach().sum()) >= 0 else x


def test_models_that_torch_cannot_batch():
    assert bytes_of_step(Network(Choosy()), "looped", as_it_is, torch.zeros(2, 4), 50) > 50 * 3 * 4
    with pytest.raises(RuntimeError):
        bytes_of_step(Network(Choosy()), "batched", as_it_is, torch.zeros(2, 4), 50)


@pytest.mark.parametrize("width", [1, 2, 9])
def test_larger_minibatches_are_extrapolated_exactly(width):
    model = problems.convolutional()
    parameters = [p.detach().expand(2, *p.shape).contiguous() for p in model.parameters()]
    inputs, labels = torch.zeros(2, width, 1, 6, 6), torch.zeros(2, width, dtype=torch.long)
    function = autograd_gradients(Network(model), "batched")
    with AllocationTrace() as allocations:
        function(parameters, inputs, labels, None)
    assert bytes_of_step(Network(model), "batched", as_it_is, inputs[0, :1], width) == -(
        -allocations.peak // 2
    )


def test_nothing_is_drawn_or_changed():
    model = problems.convolutional()
    before, state = [p.clone() for p in model.parameters()], torch.get_rng_state()
    few = torch.zeros(2, 1, 6, 6)
    bytes_of_step(Network(model), "looped", image_order(model, few), few, 3)
    bytes_of_forward(model, image_order(model, few), few)(3)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
def test_torch_does_not_load_its_compiler():
    code = (
        "import sys, torch; from torch import nn; from topofl.engine.footprint import "
        "bytes_of_step, Network\nmodel = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))\n"
        "bytes_of_step(Network(model), 'looped', lambda x: x, torch.zeros(2, 4), 5)\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
