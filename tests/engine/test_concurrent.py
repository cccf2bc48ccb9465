"""Concurrent runs in one process: results equal those of single runs, and settings are restored."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from tests import problems
from tests.engine import runs
from tests.rows.runs import differences
from topofl import algorithms
from topofl.engine import plan


def trained(seed, **settings):
    """Return the history of a run with random initial models."""
    how = {"model": problems.convolutional(), "init": "independent", "executor": "looped"}
    return runs.run(algorithms.dsgd(lr=0.1, batch_size=8), seed=seed, **how | settings)


@pytest.mark.parametrize("draw", [torch.rand_like, lambda x: x * torch.randn(())])
def test_models_that_draw_are_refused_and_leave_the_generator_as_it_was(draw):
    class Random(nn.Linear):
        def forward(self, x):
            return super().forward(x.flatten(1)) + 0 * draw(x).sum()

    model, before = Random(36, 3), torch.get_rng_state()
    with pytest.raises(ValueError, match="the same input in evaluation, but it draws"):
        trained(0, model=model)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def three_threads(monkeypatch):
    """Run even this small problem on three threads."""
    monkeypatch.setattr(plan, "SHARED_WORK", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.slow
def test_concurrent_runs_plan_and_restore_torch_threads():
    def settings():
        with ThreadPoolExecutor(1) as pool:  # a new thread starts with what the process has
            return torch.get_num_threads(), pool.submit(torch.get_num_threads).result()

    def own_setting(seed):
        return trained(seed, executor="batched", chunk=1), torch.get_num_threads()

    alone = trained(1, executor="batched", chunk=1)
    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(own_setting, [1] * 4))
        for history, threads in together:
            assert (history.meta["workers"], threads) == (3, 3)
            assert differences(history, alone) == []
        assert settings() == (3, 3)


@pytest.mark.slow
def test_warning_filters_and_sparse_checks_are_restored():
    """Sparse products in float64 need torch's CSR tensors, which warn."""
    filters = list(warnings.filters)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: trained(seed, dtype=torch.float64), range(12)))
    assert warnings.filters == filters
    assert not torch.sparse.check_sparse_tensor_invariants.is_enabled()
