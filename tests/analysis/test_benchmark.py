"""The benchmark's floor computes what the engine computes; how fast is measured by hand."""

import numpy as np
import pytest
import torch

from analysis import benchmark
from topofl import data


@pytest.fixture
def small(monkeypatch):
    def clients(case):
        inputs = np.random.default_rng(0).standard_normal((2_100, 1, 28, 28), dtype=np.float32)
        dataset = data.from_arrays(inputs, np.arange(2_100) % 10, test=100 / 2_100)
        return data.shards(dataset, case.n, per_node=2, seed=0)

    monkeypatch.setattr(benchmark, "_clients", clients)


@pytest.mark.parametrize("averaging", [True, False])
def test_every_column_is_measured(small, averaging):
    case = benchmark.Case("small", 20, 8, averaging, 1.0)
    timing = benchmark.measure(case, rounds=2, repeats=1)
    assert min(timing.ours, timing.floor, timing.naive) > 0
    table = benchmark.table([timing])
    assert table.column("ours / floor") == (timing.ours / timing.floor,)
    assert table.column("simulator / ours *") == (1.0 / timing.ours,)


def test_floor_does_the_work_of_a_step(small):
    case = benchmark.Case("small", 20, 8, False, 1.0)
    clients = benchmark._clients(case)
    flats = []
    original = benchmark._floor_mix
    benchmark_mix = original(benchmark.mixing.metropolis_hastings(benchmark._setting(case, clients)[0]))

    def spy(weights):
        def mix(flat):
            benchmark_mix(flat)
            flats.append(flat.clone())

        return mix

    benchmark._floor_mix, restore = spy, original
    try:
        step = benchmark._floor_step(case, clients)
        step()
    finally:
        benchmark._floor_mix = restore
    indices = np.concatenate([members[np.arange(8) % len(members)] for members in clients.train])
    model = torch.nn.Linear(784, 10)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    x, y = clients.dataset.inputs[indices].flatten(1), clients.dataset.labels[indices]
    torch.nn.functional.cross_entropy(model(x), y).backward()
    wanted = torch.cat([-0.1 * model.weight.grad.flatten(), -0.1 * model.bias.grad])
    torch.testing.assert_close(flats[0], wanted.expand_as(flats[0]), atol=1e-6, rtol=1e-4)


def test_command_line(small, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "CASES", (benchmark.Case("small", 20, 8, True, 1.0),))
    out = tmp_path / "results" / "cpu.md"
    assert benchmark.main(["--rounds", "1", "--repeats", "1", "--no-naive", "--out", str(out)]) == 0
    assert "ours / floor" in capsys.readouterr().out
    assert "| small" in out.read_text()
