"""Gradient points: sharpness-aware minimization, lookahead and mixtures equal a loop over nodes."""

import pytest
import torch
from torch import nn

from tests import problems
from tests.algorithms.contract.local_steps import (
    BATCH,
    BOTH_WAYS,
    LR,
    TRAINED,
    N,
    close,
    given,
    naive_models,
    ran,
    watched,
)
from topofl import algorithms
from topofl.algorithms import adam, ascent, descend, lookahead, mixture, momentum, train


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
def test_sharpness_aware_minimization(trained, settings):
    model, part = TRAINED[trained]

    def turned(node, step, t, k):
        up = node.gradient(node.theta, step)
        return node.gradient(node.theta + 0.5 * up / (up.norm() + 1e-12), step)

    phase = train(
        descend(momentum(0.9), lr=LR), batch_size=BATCH, epochs=2, part=part, at=ascent(0.5)
    )
    wanted, _ = naive_models(
        model(),
        problems.ragged_clients(N),
        lambda p: torch.optim.SGD(p, LR, momentum=0.9),
        part=part,
        turned=turned,
    )
    close(ran(phase, model(), problems.ragged_clients(N), **settings), wanted)


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
def test_lookahead_on_a_part(trained, settings):
    """Two minibatches per step, with Adam and different numbers of steps per node."""
    (model, part), counts = TRAINED[trained], [1, 3, 2, 2, 4, 1]

    def turned(node, step, t, k):
        ahead = node.theta - 0.3 * node.gradient(node.theta, 2 * step)
        return node.gradient(ahead, 2 * step + 1)

    phase = train(
        descend(adam(), lr=LR), batch_size=BATCH, steps=counts, part=part, at=lookahead(0.3)
    )
    clients = problems.ragged_clients(N)
    wanted, _ = naive_models(
        model(), clients, lambda p: torch.optim.Adam(p, LR), part=part, turned=turned, counts=counts
    )
    close(ran(phase, model(), clients, **settings), wanted)


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
def test_mixtures_on_a_part_with_two_optimizers(trained, settings):
    """Personal models go by a heavy ball, common ones by Adam at half the rate.

    Shares move in a round's first step.
    """
    model, part = TRAINED[trained]

    def turned(node, step, t, k):
        if not node.memory.get("common"):
            common = nn.Parameter(node.theta)
            node.memory |= {
                "common": [common],
                "adam": torch.optim.Adam([common], LR / 2),
                "share": 0.7,
            }
        (common,), share, theta = node.memory["common"], node.memory["share"], node.theta
        g = node.gradient(share * theta + (1 - share) * common.detach(), step)
        if k == 0:
            slope = float(g @ (theta - common.detach()))
            node.memory["share"] = min(1, max(0, share - LR * slope))
        common.grad = node.gradient(common.detach(), step)
        node.memory["adam"].step()
        return share * g

    at = mixture(descend(adam(), lr=LR / 2), share=0.7, adaptive=True)
    phase = train(descend(momentum(0.9), lr=LR), batch_size=BATCH, epochs=2, part=part, at=at)
    looking, seen = watched()
    clients = problems.ragged_clients(N)
    wanted, nodes = naive_models(
        model(), clients, lambda p: torch.optim.SGD(p, LR, momentum=0.9), part=part, turned=turned
    )
    close(ran(phase, model(), clients, after=looking, **settings), wanted)
    shares = torch.tensor([node.memory["share"] for node in nodes], dtype=torch.float64)
    close(seen["share"], shares)
    assert (shares - 0.7).abs().max() > 1e-3, "no share has moved"
    for i, node in enumerate(nodes):
        close(given(model(), part, seen["common"], i), node.memory["common"][0].detach())


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (
            algorithms.GradientPoint("mine", lambda theta, own, step, gradient: theta[:, :-1]),
            r"`where` of the point 'mine' must return a point of shape \(2, 111\), "
            r"got shape \(2, 110\)",
        ),
        (
            algorithms.GradientPoint("mine", lambda theta, own, step, gradient: None),
            r"`where` of the point 'mine' must return a point of shape \(2, 111\), got NoneType",
        ),
        (
            algorithms.GradientPoint(
                "mine", lambda theta, *_: theta + 0, lambda g, theta, own, step, gradient: g.sum(1)
            ),
            r"`back` of the point 'mine' must return gradients of shape \(2, 111\), "
            r"got shape \(2,\)",
        ),
    ],
    ids=["fewer", "nothing", "sums"],
)
def test_wrong_results_of_points_are_named(at, message):
    with pytest.raises(ValueError, match=message):
        ran(train(descend(lr=0.1), at=at), problems.linear(), problems.equal_clients(N))
