"""Settings shared by all tests."""

import gc
import os
import signal
import subprocess
import sys

# The problems are tiny: a second thread on a busy machine only waits, a hundred times longer than
# the work takes.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import pytest
import torch
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.browser import Browser

mpl.use("Agg")
torch.set_num_threads(1)
settings.register_profile(
    "topofl",
    max_examples=30,
    deadline=None,  # two shared, noisy cores
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("topofl")


def pytest_configure(config: pytest.Config) -> None:
    """Let tests interrupt themselves in background jobs, for which shells ignore interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection() -> None:
    """Collect no garbage while tests are collected, since hardly any arises."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt all modules and tests from garbage collection, which took a quarter of the time."""
    gc.freeze()
    gc.enable()


def data_root() -> Path:
    """Where real datasets may lie: $TOPOFL_DATA, else ../shared/data beside the project."""
    return Path(
        os.environ.get(
            "TOPOFL_DATA", Path(__file__).resolve().parents[1].parent / "shared" / "data"
        )
    )


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Layers that a test makes start with the same numbers every time."""
    torch.manual_seed(0)


@pytest.fixture
def ended() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Browser"]:
    """Return Chromium, which takes seconds to start."""
    from tests import browser  # not on all systems

    with browser.opened(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def started(chromium: "Browser") -> "Browser":
    """Return Chromium as if it had just started: on paper, for one, a page has no slider."""
    chromium.call("Emulation.setEmulatedMedia", media="", features=[])
    chromium.call("Emulation.clearDeviceMetricsOverride")
    return chromium


@pytest.fixture(scope="session")
def mnist_root() -> Path:
    root = data_root() / "mnist"
    if not root.exists():
        pytest.skip("MNIST is not here; set TOPOFL_DATA to a folder with mnist/")
    return root


@pytest.fixture(scope="session")
def cifar10_subset() -> Path:
    root = data_root() / "cifar10-subset"
    if not root.exists():
        pytest.skip(
            "the subset of CIFAR-10 is not here; set TOPOFL_DATA to a folder with cifar10-subset/"
        )
    return root
