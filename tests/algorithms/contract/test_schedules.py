"""Learning rates over rounds and steps: closed forms, text, and errors."""

import math

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.algorithms.contract.local_steps import (
    BATCH,
    BOTH_WAYS,
    LR,
    ROUNDS,
    SEED,
    N,
    close,
    naive_models,
    ran,
    run,
)
from topofl import algorithms, topologies
from topofl.algorithms import chain, constant, cosine, descend, exponential, momentum, train
from topofl.algorithms.contract.descent import as_schedule


def test_schedules_in_closed_form():
    assert [constant(0.2)(t, k) for t, k in [(0, 0), (9, 3)]] == [0.2, 0.2]
    np.testing.assert_allclose(
        [exponential(0.2, 0.9)(t, 5) for t in range(4)], [0.2 * 0.9**t for t in range(4)]
    )
    rates = [cosine(0.4, rounds=12, warmup=3, end=0.1)(t, 0) for t in range(15)]
    rising = [0.4 * (t + 1) / 4 for t in range(3)]
    falling = [0.1 + 0.3 * (1 + math.cos(math.pi * (t - 3) / 9)) / 2 for t in range(3, 12)]
    np.testing.assert_allclose(rates, [*rising, *falling, 0.1, 0.1, 0.1])
    assert cosine(0.4, rounds=4)(0, 0) == 0.4
    assert cosine(0.4, rounds=1)(0, 0) == 0.4


def by_round_and_step(round, step):
    return [0.3, 0.1, 0.2][round] / (1 + step)


RATES = {
    "constant": constant(0.3),
    "exponential": exponential(0.3, 0.5),
    "cosine": cosine(0.3, rounds=3, warmup=1),
    "own": by_round_and_step,
    "zero at first": lambda round, step: 0.1 * round,
    "numpy": lambda round, step: np.float32(0.25),
    "tensor": lambda round, step: torch.tensor(0.25),
}


@BOTH_WAYS
@pytest.mark.parametrize("name", RATES)
def test_rates_of_rounds_and_steps(name, settings):
    """A custom schedule is called only for rounds and steps of the run."""
    lr, asked = RATES[name], set()

    def noted(round, step):
        asked.add((round, step))
        return lr(round, step)

    phase = train(
        descend(momentum(0.9), lr=noted if name == "own" else lr), batch_size=BATCH, steps=2
    )
    clients = problems.equal_clients(N)
    wanted, _ = naive_models(
        problems.linear(), clients, lambda p: torch.optim.SGD(p, LR, momentum=0.9), counts=[2] * N,
        lr=lambda t, k: float(lr(t, k)),
    )  # fmt: skip
    close(ran(phase, problems.linear(), clients, **settings), wanted)
    assert name != "own" or asked == {(t, k) for t in range(ROUNDS) for k in range(2)}


def test_schedules_are_called_only_for_rounds_and_steps_of_the_run():
    phase = train(descend(lr=lambda round, step: {(0, 0): 0.1}[round, step]), batch_size=BATCH)
    ran(phase, problems.linear(), problems.equal_clients(N), rounds=1)


@pytest.mark.parametrize(
    ("bad", "told"),
    [(-0.1, "-0.1"), (math.nan, "nan"), (math.inf, "inf"), ("fast", "'fast'"), (None, "None"),
     (torch.zeros(2), "tensor"), (10**400, "about")],
    ids=["negative", "nan", "infinite", "text", "none", "vector", "huge"],
)  # fmt: skip
def test_rates_that_cannot_be_used_are_refused(bad, told):
    phase = train(descend(lr=lambda round, step: bad), batch_size=BATCH)
    place = r"the phase 'local', round 1 \(step 0 of it\)"
    with pytest.raises(
        ValueError,
        match=rf"`lr` must return a finite learning rate of at least 0, got {told}.*{place}",
    ):
        ran(phase, problems.linear(), problems.equal_clients(N))


@pytest.mark.parametrize(("bad", "told"), [(-0.1, "-0.1"), (math.nan, "nan"), ("fast", "'fast'")])
@pytest.mark.parametrize(("t", "k"), [(0, 1), (1, 0), (4, 2)])
def test_rates_that_cannot_be_used_are_refused_where_they_come(bad, told, t, k):
    phase = train(
        descend(lr=lambda round, step: bad if (round, step) == (t, k) else 0.1),
        batch_size=BATCH,
        steps=3,
    )
    place = rf"round {t + 1} \(step {k} of it\)"
    with pytest.raises(
        ValueError,
        match=rf"`lr` must return a finite learning rate of at least 0, got {told}.*{place}",
    ):
        ran(phase, problems.linear(), problems.equal_clients(N), rounds=5)


@pytest.mark.parametrize("t", [0, 1, 4])
def test_rates_beyond_a_short_dtype_are_refused_where_they_come(t):
    phase = train(descend(lr=lambda round, step: 1e6 if round == t else 1e-3), batch_size=BATCH)
    with pytest.raises(
        ValueError,
        match=rf"`lr` must be at most 65504 for torch\.float16, got 1e\+06 .*round {t + 1} ",
    ):
        run(
            chain("own", local=phase),
            model=problems.linear(),
            clients=problems.equal_clients(N),
            rounds=5,
            seed=SEED,
            dtype=torch.float16,
        )


@pytest.mark.parametrize("name", ["dsgd", "fedavg", "dfedavgm", "ditto", "relay_sgd"])
def test_methods_take_schedules(name):
    build, clients = getattr(algorithms, name), problems.equal_clients()
    given = {
        "model": problems.linear(),
        "clients": clients,
        "topology": topologies.ring(6),
        "rounds": 4,
        "seed": 0,
    }
    falling, constant = algorithms.exponential(0.2, 0.5), lambda round, step: 0.2
    for schedule, number in ((constant, build(0.2, batch_size=4)), (falling, None)):
        history = topofl.run(build(schedule, batch_size=4), **given)
        if number is not None:
            np.testing.assert_array_equal(
                history["train_loss"], topofl.run(number, **given)["train_loss"]
            )
        else:
            other = topofl.run(build(0.2, batch_size=4), **given)
            assert not np.array_equal(history["train_loss"], other["train_loss"])


def test_schedules_exclude_lr_decay():
    with pytest.raises(ValueError, match=r"`lr_decay` must be 1 where `lr` is a schedule"):
        algorithms.sgd(algorithms.cosine(0.1, rounds=3), lr_decay=0.9)


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


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "linear(0.5)",
            r"`lr` must be such as 0.1 or cosine\(0.5, rounds=300\), "
            r"by one of constant, exponential, cosine",
        ),
        ("cosine(0.5)", "rounds"),
        ("cosine(-1, rounds=3)", "`lr` must be a finite number above 0"),
    ],
)
def test_invalid_text_for_schedules_raises(text, match):
    with pytest.raises(ValueError, match=match):
        algorithms.dsgd(text)


@pytest.mark.parametrize("text", ["0.5", "1e-3", "-1"])
def test_numbers_in_quotes_are_refused(text):
    with pytest.raises(
        TypeError, match=f"`lr` must be a number or a schedule, got {text!r}; remove the quotes"
    ):
        algorithms.dsgd(text)


def test_a_decay_and_a_schedule_exclude_each_other():
    with pytest.raises(ValueError, match="`lr_decay` must be 1 where `lr` is a schedule"):
        algorithms.fedavg("cosine(0.5, rounds=30)", lr_decay=0.9)


OPTIMIZER = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)


@pytest.mark.parametrize("method", [algorithms.dsgd, algorithms.dsgt, algorithms.dfedavgm])
@pytest.mark.parametrize(
    ("lr", "message"),
    [
        (torch.optim.SGD, "got the class torch.optim.sgd.SGD; .* use dadam"),
        (OPTIMIZER, "got an object of torch.optim.sgd.SGD; .* use dadam"),
        (torch.optim.lr_scheduler.StepLR, "got the class .*StepLR; write it as a function"),
        (torch.optim.lr_scheduler.StepLR(OPTIMIZER, 3), "got an object of .*StepLR; write it as"),
        (dict, r"got the class builtins.dict; pass 0.1, .* or a function of \(round, step\)$"),
        (print, r"got the built-in function print; pass 0.1, .* or a function of \(round, step\)$"),
        (torch.nn.Linear(1, 1), "got an object of torch.nn.modules.linear.Linear; pass 0.1, .*"),
    ],
)
def test_classes_and_parts_of_torch_are_no_learning_rates(method, lr, message):
    with pytest.raises(TypeError, match=f"^`lr` must be a number or a schedule, {message}"):
        method(lr)
