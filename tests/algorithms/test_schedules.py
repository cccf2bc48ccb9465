"""Learning rates over rounds and steps: closed forms and text."""

import math

import numpy as np
import pytest
import torch

from tests import problems
from tests.algorithms.harness import BATCH, N, engine
from tests.algorithms.test_terms import BOTH_WAYS, Steps, close, heavy_ball
from topofl import algorithms
from topofl.algorithms import constant, cosine, descend, exponential, momentum, train
from topofl.algorithms.contract.descent import as_schedule


def test_schedules_in_closed_form():
    assert [constant(0.2)(t, k) for t, k in [(0, 0), (9, 3)]] == [0.2, 0.2]
    found = [exponential(0.2, 0.9)(t, 5) for t in range(4)]
    np.testing.assert_allclose(found, [0.2 * 0.9**t for t in range(4)])
    rates = [cosine(0.4, rounds=12, warmup=3, end=0.1)(t, 0) for t in range(15)]
    rising = [0.4 * (t + 1) / 4 for t in range(3)]
    falling = [0.1 + 0.3 * (1 + math.cos(math.pi * (t - 3) / 9)) / 2 for t in range(3, 12)]
    np.testing.assert_allclose(rates, [*rising, *falling, 0.1, 0.1, 0.1])
    assert cosine(0.4, rounds=4)(0, 0) == cosine(0.4, rounds=1)(0, 0) == 0.4


RATES = {
    "constant": constant(0.3),
    "exponential": exponential(0.3, 0.5),
    "cosine": cosine(0.3, rounds=3, warmup=1),
    "own": lambda round, step: [0.3, 0.1, 0.2][round] / (1 + step),
    "zero at first": lambda round, step: 0.1 * round,
    "numpy": lambda round, step: np.float32(0.25),
    "tensor": lambda round, step: torch.tensor(0.25),
}


@BOTH_WAYS
@pytest.mark.parametrize("name", RATES)
def test_rates_of_rounds_and_steps(name, settings):
    """A schedule is called only for rounds and steps of the run."""
    asked, clients = set(), problems.equal_clients(N)

    def noted(round, step):
        asked.add((round, step))
        return RATES[name](round, step)

    phase = train(descend(momentum(0.9), lr=noted), batch_size=BATCH, steps=2)
    steps = Steps(make=heavy_ball, counts=[2] * N, lr=RATES[name])
    _, wanted, _ = steps.naively(problems.linear(), clients, algorithms.everything)
    _, models = engine(algorithms.chain("own", local=phase), clients=clients, **settings)
    close(models.flat, wanted)
    assert asked == {(t, k) for t in range(3) for k in range(2)}


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("cosine(0.5, rounds=30)", algorithms.cosine(0.5, rounds=30)),
        ("exponential(0.5, 0.9)", algorithms.exponential(0.5, 0.9)),
        ("constant(lr=0.5)", algorithms.constant(0.5)),
    ],
)
def test_text_stands_for_schedules(text, schedule):
    assert as_schedule("lr", text) == schedule
    assert repr(algorithms.dsgd(text)) == repr(algorithms.dsgd(schedule))
    assert repr(algorithms.fedavg(text)) == repr(algorithms.fedavg(schedule))
