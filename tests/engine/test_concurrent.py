"""Concurrent runs in one process: results equal those of single runs, and settings are restored."""

import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from topofl import algorithms, topologies
from topofl.engine import plan

ROUNDS = 4


def trained(seed, **settings):
    """Return the models and losses of a run with random initial models."""
    clients, kept = problems.equal_clients(), []
    history = topofl.run(
        algorithms.dsgd(lr=0.1, batch_size=8),
        model=problems.convolutional(),
        clients=clients,
        topology=topologies.ring(6),
        rounds=ROUNDS,
        seed=seed,
        init="independent",
        progress=False,
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        **problems.options(**{"executor": "looped"} | settings),
    )
    return kept[-1].numpy(), history


@contextmanager
def background(work):
    """Repeat `work` on another thread inside the context."""
    done, failures = threading.Event(), []

    def repeat():
        try:
            while not done.is_set():
                work()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not failures


def in_threads(seeds, **settings):
    with ThreadPoolExecutor(len(seeds)) as pool:
        return list(pool.map(lambda seed: trained(seed, **settings), seeds))


def test_runs_in_threads_match_sequential_runs_while_the_caller_draws():
    alone = [trained(seed)[0] for seed in range(8)]
    torch.manual_seed(5)
    wanted = torch.rand(20_000)
    torch.manual_seed(5)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(trained, seed) for seed in range(8)]
        mine = torch.cat([torch.rand(1) for _ in range(20_000)])
        together = [run.result()[0] for run in runs]
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)
    assert torch.equal(mine, wanted), "the user's numbers are those without a run"


def test_randomness_in_other_threads_does_not_affect_model_checks():
    """A deterministic model is accepted while another thread draws; a random one is refused."""
    with background(lambda: torch.rand(1)):
        for seed in range(5):
            trained(seed)
    for draw in (
        torch.rand_like,
        lambda x: nn.functional.dropout(x, 0.5),
        lambda x: x * torch.randn(()),
    ):

        class Random(nn.Linear):
            def forward(self, x, draw=draw):
                return super().forward(x.flatten(1)) + 0 * draw(x).sum()

        model, before = Random(36, 3), torch.get_rng_state()
        with pytest.raises(
            ValueError, match="`model` must return the same output for the same input, but it draws"
        ):
            topofl.run(
                algorithms.local_only(lr=0.1),
                model=model,
                clients=problems.equal_clients(),
                rounds=1,
                seed=0,
            )
        torch.testing.assert_close(torch.get_rng_state(), before)


@pytest.mark.parametrize("draw", [np.random.standard_normal, lambda n: [random.random()] * n])
def test_models_not_drawn_by_torch_are_refused(draw):
    class Own(nn.Linear):
        def reset_parameters(self):
            super().reset_parameters()
            self.bias.data.copy_(torch.tensor(draw(3)))

    settings = {"clients": problems.equal_clients(), "rounds": 1, "seed": 0}
    model = nn.Sequential(nn.Flatten(), Own(36, 3))
    with pytest.raises(
        ValueError, match=r"`model` must draw its initial parameters by torch.*'1.bias' got other"
    ):
        topofl.run(algorithms.local_only(lr=0.1), model=model, **problems.options(**settings))
    topofl.run(
        algorithms.local_only(lr=0.1), model=model, init="given", **problems.options(**settings)
    )


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

    alone, _ = trained(1, executor="batched", chunk=1)
    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(own_setting, [1] * 4))
        for (models, history), threads in together:
            assert (history.meta["workers"], threads) == (3, 3)
            np.testing.assert_array_equal(models, alone)
        assert settings() == (3, 3)


def test_warning_filters_and_sparse_checks_are_restored():
    """Sparse products in float64 need torch's CSR tensors, which warn."""
    filters = list(warnings.filters)
    settings = {"dtype": torch.float64, "executor": "looped"}
    alone = [trained(seed, **settings)[0] for seed in range(4)]
    for _ in range(3):
        for (models, _), wanted in zip(in_threads(range(4), **settings), alone, strict=True):
            np.testing.assert_array_equal(models, wanted)
    assert warnings.filters == filters
    assert not torch.sparse.check_sparse_tensor_invariants.is_enabled()
