"""The simulated device: operands, waits and conversions between device and host."""

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine.arrays import numbers
from tests.simulated_device import DeviceError, SimulatedDevice, summary
from topofl import topologies
from topofl.engine.mixing import mixer
from topofl.engine.ranks import one_process


def mixed(weights, device):
    mix = mixer(weights, one_process(weights.n, torch.device(device)), torch.float64)
    mix(values := numbers(weights.n, 2, device=device))
    return values


MADE = {
    "moved": lambda device: numbers(2, 3).to(device),
    "moved and converted": lambda device: numbers(2, 3).to(device, torch.float32),
    "moved like another": lambda device: numbers(2, 3).to(numbers(1, device=device)),
    "made there": lambda device: torch.zeros(2, 3, dtype=torch.float64, device=device),
    "made of a list": lambda device: torch.tensor([[1.0, 2.0]], dtype=torch.float64, device=device),
    "made like another": lambda device: torch.ones_like(numbers(2, device=device)),
    "made by another": lambda device: numbers(1, device=device).new_tensor([1.0, 2.0]),
    "computed": lambda device: numbers(2, 3, device=device).exp() * 2,
    "a view": lambda device: numbers(4, 3, device=device)[1:3].flatten().view(3, 2).T,
    "with a number of the host": lambda device: (
        numbers(3, device=device) + torch.tensor(2.0, device="cpu")
    ),
    "filled": lambda device: torch.ones(3, dtype=torch.float64, device=device).copy_(numbers(3)),
    "vmapped": lambda device: torch.func.vmap(torch.sum)(numbers(4, 3, device=device)),
    "padded": lambda device: torch.nn.utils.rnn.pad_sequence(
        [numbers(2, device=device), numbers(3, device=device)]
    ),
    "a parameter": lambda device: torch.nn.Linear(2, 3, device="cpu").to(device).weight,
    "a gradient": lambda device: torch.autograd.grad(
        (x := numbers(3, device=device).requires_grad_()).square().sum(), x
    )[0],
    "a sparse product": lambda device: mixed(
        topofl.mixing.metropolis_hastings(topologies.ring(40)), device
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_factories_create_tensors_on_the_device(name, device):
    found = MADE[name](device)
    assert (found.device, found.is_cuda) == (device, True)
    assert (found.cpu().device.type, found.cpu().is_cuda) == ("cpu", False)
    assert np.isfinite(np.asarray(found.detach().cpu().to_dense())).all()


def test_factories_create_tensors_on_the_host(device):
    x = numbers(3, device=device)
    for made in (x.new_zeros(3, device="cpu"), torch.zeros_like(x, device="cpu"), x.to("cpu")):
        assert made.numpy().shape == (3,)


MIXED = {
    "sum": lambda host, there: host + there,
    "product": lambda host, there: there @ host,
    "choice": lambda host, there: torch.where(there > 0, there, host),
    "stack": lambda host, there: torch.stack([there, host]),
    "numbers in a stack": lambda host, there: torch.stack([there[0, 0], host[0, 0]]),
    "in place on the host": lambda host, there: host.add_(there),
    "a number into the host": lambda host, there: host.add_(there[0, 0]),
    "index": lambda host, there: host[there[0].long()],
    "gather": lambda host, there: torch.index_select(there, 0, host[0].long()),
    "put": lambda host, there: there.__setitem__(
        torch.zeros(2, dtype=torch.int64, device=there.device), host[:2]
    ),
    "batched": lambda host, there: torch.func.vmap(torch.dot)(host, there),
    "model": lambda host, there: torch.nn.functional.linear(there, host),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_operands_are_refused(name, device):
    host = numbers(3, 3)
    with pytest.raises(RuntimeError):
        MIXED[name](host, host.to(device))


def test_device_tensors_do_not_convert_to_arrays(device):
    for convert in (np.asarray, torch.Tensor.numpy, lambda x: np.add(x, 1)):
        with pytest.raises(TypeError, match="cuda:0"):
            convert(numbers(3, device=device))


def test_errors_name_operation_operand_and_source_line(simulated):
    weights = topofl.mixing.metropolis_hastings(problems.cliques(problems.equal_clients()))
    on_cpu = mixer(weights, one_process(6, torch.device("cpu")), torch.float64)
    with pytest.raises(
        DeviceError,
        match=r"mm got operands on cuda:0, and `self` of shape \(6, 6\) on cpu, in engine/mixing",
    ):
        on_cpu(numbers(6, 2, device="cuda"))


WAITS = {
    "item": (lambda x: x[0].item(), "_local_scalar_dense"),
    "bool": (lambda x: bool((x > 0).any()), "_local_scalar_dense"),
    "float": (lambda x: float(x[1]), "_local_scalar_dense"),
    "tolist": (lambda x: x.tolist(), "tolist"),
    "cpu": (lambda x: x.cpu(), "copy to the host"),
    "to": (lambda x: x.to("cpu", torch.float32), "copy to the host"),
    "copied": (lambda x: torch.empty_like(x, device="cpu").copy_(x), "copy to the host"),
    "nonzero": (lambda x: torch.nonzero(x), "nonzero"),
    "mask": (lambda x: x[x > 0], "index"),
    "set by mask": (lambda x: x.__setitem__(x > 0, x[x > 0]), "index_put_"),
    "equal": (lambda x: torch.equal(x, x + 1), "equal"),
    "unique": (lambda x: torch.unique(x), "_unique2"),
}


@pytest.mark.parametrize("name", WAITS)
def test_waits_are_recorded(name, simulated):
    does, kind = WAITS[name]
    x = numbers(3, device="cuda")
    assert not simulated.waits
    does(x)
    assert simulated.waits[-1] == (kind, "elsewhere", 0, "")
    assert len(simulated.waits) == (2 if name == "set by mask" else 1)


def test_meta_tensors_are_on_no_device(device):
    for target in (torch.device("meta"), torch.empty(1, device="meta")):
        found = numbers(2, 3).to(target)
        assert (found.device.type, found.shape) == ("meta", (2, 3))
        assert torch.where(found > 0, found, torch.empty_like(found)).is_meta


def test_asynchronous_operations_do_not_wait():
    with SimulatedDevice() as found:
        x = numbers(4, device="cuda")
        x[x > 2] = 0
        x[1:3].mul_(2)
        y = torch.where(x > 0, x, 1.0).clone()
        y[torch.zeros(2, dtype=torch.int64, device="cuda")] = 3.0
    assert not found.waits
    assert len(found.uploads) == 1


def test_events_name_lines_of_the_package(simulated):
    topofl.metrics.consensus_distance(numbers(4, 3, device="cuda"))
    assert [e[1::2] for e in simulated.waits] == [("metrics/consensus.py", "consensus_distance")]
    assert "metrics/consensus.py:" in summary(simulated.waits)


def test_leaving_the_simulated_device_restores_torch():
    there = torch.cuda.is_available()
    with SimulatedDevice():
        x = torch.zeros(2, dtype=torch.float32, device="cuda")
        assert (torch.cuda.is_available(), x.device.type) == (True, "cuda")
    assert (torch.cuda.is_available(), x.device.type) == (there, "cpu")
