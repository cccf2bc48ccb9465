"""Fixtures of the engine's tests: devices, simulated or real."""

import pytest
import torch

from tests.simulated_device import DEVICES, SimulatedDevice


@pytest.fixture(params=DEVICES)
def device(request):
    """Enter each device in turn, as ``"cuda"``: the simulated one, and a GPU if there is one."""
    with DEVICES[request.param]():
        yield torch.device("cuda", 0)


@pytest.fixture
def simulated():
    """Enter the simulated device, and return it."""
    with SimulatedDevice() as found:
        yield found
