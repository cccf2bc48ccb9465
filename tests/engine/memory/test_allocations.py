"""Bytes of tensors while they live, counted by hand, and copies that a run does not need."""

import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from tests import problems
from tests.algorithms.harness import HEAD
from tests.algorithms.test_objectives import contrast
from topofl.algorithms import Objective, part
from topofl.engine import evaluation as module
from topofl.engine.evaluation import evaluation_plan
from topofl.engine.footprint import bytes_of_step
from topofl.engine.gradients import autograd_gradients, image_order, objective_gradients
from topofl.engine.memory import AllocationTrace, bytes_of_forward
from topofl.engine.network import Network
from topofl.engine.recorder import NUMBERS, GradientSums
from topofl.metrics import consensus_distance
from topofl.metrics.consensus import NUMBERS as COPIED
from topofl.tasks import cross_entropy


def convolutional():
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(16 * 16, 3))


@pytest.mark.parametrize("n", [10, 100])
def test_consensus_makes_one_copy_of_a_block(n):
    models = torch.randn(n, 3 * COPIED // n)
    with AllocationTrace() as allocations:
        consensus_distance(models)
    # and two or three rows: the first model, the mean, their sum
    assert allocations.peak < 8 * COPIED * (1 + 4 / n)


def test_sums_of_gradients_are_made_block_by_block():
    gradients = [torch.randn(1, 40, NUMBERS // 4)]
    seen = GradientSums()
    with AllocationTrace() as allocations:
        for _ in range(3):
            seen.observe(gradients)
    assert allocations.peak < 8 * 10 * NUMBERS + 2.1 * 8 * NUMBERS
    assert seen.diversity == pytest.approx(1 / 3)


@pytest.mark.parametrize("chunks", [(1, 1, 1), (2, 3, 0, 2)])
def test_blocks_change_no_bit_of_the_sums(chunks):
    seen, total = GradientSums(), 0
    for k, count in enumerate(chunks):
        g = torch.randn(count, 700, 1000, generator=torch.Generator().manual_seed(k))
        seen.observe([g])
        total = total + g.sum(0, dtype=torch.float64)
    assert torch.equal(seen._totals[1].view(700, 1000), total)


def test_executors_share_the_numbers_of_their_copies():
    model = convolutional()
    with AllocationTrace() as allocations:
        executors = [
            autograd_gradients(Network(model), "batched"),
            *(autograd_gradients(Network(model), "looped") for _ in range(2)),
        ]
    assert allocations.peak == 0
    before = [p.clone() for p in model.parameters()]
    inputs, labels = torch.randn(1, 5, 3, 8, 8), torch.zeros(1, 5, dtype=torch.long)
    parameters = [torch.randn(1, *p.shape) for p in model.parameters()]
    found = [executor(parameters, (inputs, labels, None))[1] for executor in executors]
    assert all(torch.equal(a, b) for a, b in zip(found[1], found[2], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def evaluated(model, models, inputs, labels):
    plan, on = evaluation_plan(model, inputs[:2]), torch.arange(len(labels))
    with AllocationTrace() as allocations:
        scores = problems.evaluated(model, models, inputs, labels, on, plan=plan)
    return scores, allocations.peak


def test_evaluations_hold_the_activations_of_few_examples(monkeypatch):
    model, inputs, labels = convolutional(), torch.randn(120, 3, 8, 8), torch.arange(120) % 3
    models = problems.population(model, dtype=torch.float32)
    monkeypatch.setattr(module, "ACTIVATIONS", 2**30)
    whole, most = evaluated(model, models, inputs, labels)
    monkeypatch.setattr(module, "ACTIVATIONS", 2**14)
    plan = evaluation_plan(model, inputs[:2])
    assert plan.examples == module.FEWEST_EXAMPLES
    parts, least = evaluated(model, models, inputs, labels)
    assert least < most / 4
    gathered = 2 * plan.examples * inputs[0].nbytes
    assert least < plan.bytes_of(plan.examples) + gathered + 120 * 3 * 100
    assert torch.equal(whole["accuracy"], parts["accuracy"])
    torch.testing.assert_close(whole["loss"], parts["loss"])


def test_the_activations_of_an_evaluation_are_no_less_than_its_parameters():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(4 * 64, 20_000), nn.Linear(20_000, 3)
    )
    plan = evaluation_plan(model, torch.zeros(2, 3, 8, 8))
    # 20 MB of parameters, 160 kB an example: as many as there may be
    assert plan.examples == module.EXAMPLES
    small = evaluation_plan(convolutional(), torch.zeros(2, 3, 8, 8))
    assert small.bytes_of(small.examples) <= module.ACTIVATIONS


def test_one_model_is_laid_out_at_a_time():
    model = nn.Sequential(nn.Conv2d(64, 128, 5, padding=2), nn.Flatten(), nn.Linear(128 * 4, 3))
    inputs, labels = torch.randn(20, 64, 2, 2), torch.zeros(20, dtype=torch.long)
    order, copied = evaluation_plan(model, inputs[:2]).order, 64 * 128 * 25 * 4
    assert bytes_of_forward(model, order, inputs[:2])(20) > copied  # kernels, channels last
    _, peak = evaluated(model, problems.population(model, 3, dtype=torch.float32), inputs, labels)
    assert peak < 2 * copied


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
        function(parameters, (inputs, labels, None))
    assert bytes_of_step(Network(model), "batched", as_it_is, inputs[0, :1], width) == -(
        -allocations.peak // 2
    )


@pytest.mark.parametrize("width", [2, 9])
@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_objectives_take_what_their_losses_take(executor, width):
    """An objective that applies another model, too, takes more than the loss of the task."""
    model, nodes = problems.convolutional(), 2 if executor == "batched" else 1
    parameters = [p.detach().expand(nodes, *p.shape).contiguous() for p in model.parameters()]
    inputs = torch.zeros(nodes, width, 1, 6, 6)
    labels = torch.zeros(nodes, width, dtype=torch.long)
    other = torch.zeros(1, sum(p.numel() for p in model.parameters()))
    bound = Objective("contrast", contrast, part(HEAD)), {"other": other}
    function = objective_gradients(Network(model), as_it_is, nullcontext, cross_entropy)
    with AllocationTrace() as allocations:
        function(parameters, (inputs, labels, None), None, bound)
    given = Network(model), executor, as_it_is, inputs[0, :1], width
    found = bytes_of_step(*given, bound=bound)
    assert found == -(-allocations.peak // nodes)
    assert found > 1.05 * bytes_of_step(*given)


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
