"""Steps, epochs and batch sizes per node."""

import math

import pytest
import torch

from tests import problems
from tests.algorithms.contract.local_steps import (
    EVERY_WAY,
    LR,
    ROUNDS,
    N,
    close,
    layered,
    naive_models,
    ran,
    watched,
)
from topofl import algorithms
from topofl.algorithms import Term, adam, descend, train


@EVERY_WAY
@pytest.mark.parametrize("amount", ["steps", "epochs"])
def test_amounts_per_node(amount, settings):
    """Tuples have one number per node; a node with 0 steps does not change."""
    clients, sizes, steps = problems.ragged_clients(N), [1, 3, 2, 16, 5, 4], [3, 0, 1, 2, 5, 4]
    passes = [1, 2, 1, 3, 1, 2]
    more = {"steps": steps} if amount == "steps" else {"epochs": passes}
    phase = train(descend(adam(), lr=LR), batch_size=sizes, **more)
    if amount == "epochs":
        steps = [
            e * math.ceil(len(own) / b)
            for e, own, b in zip(passes, clients.train, sizes, strict=True)
        ]
    looking, seen = watched()
    wanted, _ = naive_models(
        layered(), clients, lambda p: torch.optim.Adam(p, LR), counts=steps, batch_sizes=sizes
    )  # fmt: skip
    close(ran(phase, layered(), clients, after=looking, **settings), wanted)
    assert seen["taken"].tolist() == [ROUNDS * own for own in steps]


@pytest.mark.parametrize("name", ["batch_size", "steps", "epochs"])
def test_amounts_must_have_one_number_per_node(name):
    phase = train(descend(lr=LR), **{name: (2, 2, 2)})
    with pytest.raises(
        ValueError, match=rf"`{name}` must be one number or one per node, n=6, got 3 numbers"
    ):
        ran(phase, problems.linear(), problems.equal_clients(N))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: descend(lr=lambda t: 0.1),
            r"`lr` must be a function of \(round, step\), got one of \(t\)",
        ),
        (
            lambda: descend(Term("mine", lambda g, theta: g), lr=0.1),
            r"`update` of the term 'mine' must be a function of \(g, theta, own, step\), "
            r"got one of \(g, theta\)",
        ),
        (
            lambda: descend(Term("mine", lambda g, theta, own, step: g, lambda: {}), lr=0.1),
            r"`init` of the term 'mine' must be a function of \(models\), got one of \(\)",
        ),
        (
            lambda: train(
                descend(lr=0.1), at=algorithms.GradientPoint("mine", lambda theta: theta)
            ),
            r"`where` of the point 'mine' must be a function of \(theta, own, step, gradient\), "
            r"got one of \(theta\)",
        ),
        (
            lambda: train(
                descend(lr=0.1),
                at=algorithms.GradientPoint(
                    "mine", lambda *all_of_them: all_of_them[0], lambda g: g
                ),
            ),
            r"`back` of the point 'mine' must be a function of \(g, theta, own, step, gradient\), "
            r"got one of \(g\)",
        ),
    ],
    ids=["schedule", "update", "init", "where", "back"],
)
def test_functions_with_wrong_arguments_are_named(make, message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        make()
