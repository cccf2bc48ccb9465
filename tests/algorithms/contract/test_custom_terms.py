"""Custom terms, and errors for terms that violate their contract."""

import pytest
import torch

from tests import problems
from tests.algorithms.contract.local_steps import (
    BATCH,
    BOTH_WAYS,
    EVERY_WAY,
    LR,
    TRAINED,
    N,
    close,
    layered,
    naive_models,
    plain_sgd,
    ran,
    watched,
)
from topofl import algorithms
from topofl.algorithms import Phase, Term, descend, mixture, momentum, proximal, train
from topofl.engine import plan


def sign(g, theta, own, step):
    return g.sign_()


def unit(g, theta, own, step):
    return g / g.norm(dim=1, keepdim=True)


def counted(g, theta, own, step):
    """Return gradients over the root of the sum of their squares (AdaGrad)."""
    return g / own["sums"].add_(g.square()).sqrt().add_(1e-10)


OWN = {
    "elementwise": (Term("sign", sign, elementwise=True), plain_sgd, lambda g: g.sign()),
    "of whole models": (Term("unit", unit), plain_sgd, lambda g: g / g.norm()),
    "that keeps": (
        Term(
            "sums",
            counted,
            lambda models: {"sums": torch.zeros_like(models.flat)},
            elementwise=True,
        ),
        lambda p: torch.optim.Adagrad(p, LR),
        lambda g: g,
    ),
}


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
@pytest.mark.parametrize("name", OWN)
def test_custom_terms(name, trained, settings):
    (model, part), (term, make, change) = TRAINED[trained], OWN[name]
    phase = train(descend(term, lr=LR), batch_size=BATCH, epochs=2, part=part)
    wanted, _ = naive_models(
        model(), problems.ragged_clients(N), make, part=part,
        turned=lambda node, step, t, k: change(node.gradient(node.theta, step)),
    )  # fmt: skip
    close(ran(phase, model(), problems.ragged_clients(N), **settings), wanted)


def changes(theta, g):
    theta.mul_(0.9)
    return g


def replaces(own, g):
    own["velocity"] = own["velocity"] * 0.9 + g
    return own["velocity"]


def adds(own, g):
    own["mine"] = g.clone()
    return g


def flat_velocity(models):
    return {"velocity": torch.zeros_like(models.flat)}


SHAPE = "must return directions of shape"


REFUSED = {
    "shape": (lambda g, theta, own, step: g[:, :1], f"{SHAPE} .*, got shape"),
    "None": (lambda g, theta, own, step: None, f"{SHAPE} .*, got NoneType"),
    "number": (lambda g, theta, own, step: 0.0, f"{SHAPE} .*, got float"),
    "theta": (
        lambda g, theta, own, step: changes(theta, g),
        "must not change `theta`; return a direction",
    ),
    "replaced": (
        lambda g, theta, own, step: replaces(own, g),
        "must change its state in place, .* as 'velocity'",
    ),
    "added": (
        lambda g, theta, own, step: adds(own, g),
        "must change its state in place, .* as 'mine' into",
    ),
    "branch": (
        lambda g, theta, own, step: g if g.sum() > 0 else -g,
        "must work on tensors without values",
    ),
}


@BOTH_WAYS
@pytest.mark.parametrize("elementwise", [True, False], ids=["by parameter", "whole"])
@pytest.mark.parametrize("name", REFUSED)
def test_terms_that_violate_the_contract_are_named(name, elementwise, settings):
    update, message = REFUSED[name]
    term = Term("mine", update, flat_velocity, elementwise=elementwise)
    with pytest.raises(ValueError, match=f"the term 'mine' {message}"):
        ran(
            train(descend(term, lr=LR), batch_size=BATCH),
            layered(),
            problems.equal_clients(N),
            **settings,
        )


def with_numbers_of_nodes(models):
    flat = models.flat
    return {"number": torch.arange(len(flat), dtype=flat.dtype, device=flat.device)}


@EVERY_WAY
@pytest.mark.parametrize("make", [problems.equal_clients, problems.ragged_clients])
@pytest.mark.parametrize("bad", [0, 3])
def test_the_node_is_named_whose_direction_is_not_finite(bad, make, settings):
    """Even if nodes with equal numbers of steps are grouped."""

    def update(g, theta, own, step):
        return torch.where((own["number"] == bad)[:, None], torch.nan, g)

    phase = train(
        descend(Term("mine", update, with_numbers_of_nodes), lr=LR), batch_size=BATCH, epochs=1
    )
    with pytest.raises(
        ValueError, match=rf"the term 'mine' must return finite .* for node {bad} in round 1"
    ):
        ran(phase, problems.linear(), make(N), **settings)


NAMES = {
    "both last": lambda: [momentum(0.9), momentum(0.5)],
    "both begin anew": lambda: [momentum(0.9, reset=True), momentum(0.5, reset=True)],
    "one of each": lambda: [momentum(0.9), momentum(0.5, reset=True)],
    "point": lambda: [proximal(0.1, kept="common")],
}


@pytest.mark.parametrize("name", NAMES)
def test_two_states_with_the_same_name_raise(name):
    at = mixture(descend(lr=LR)) if name == "point" else None
    phase = train(descend(*NAMES[name](), lr=LR), batch_size=BATCH, at=at)
    with pytest.raises(
        ValueError, match=r"`terms` must keep tensors of different names, two of them keep '[a-z]*'"
    ):
        ran(phase, problems.linear(), problems.equal_clients(N))


def test_two_momentum_terms_with_different_names():
    phase = train(descend(momentum(0.9), momentum(0.5, name="second"), lr=LR), batch_size=BATCH)
    looking, seen = watched()
    ran(phase, problems.linear(), problems.equal_clients(N), after=looking)
    assert set(seen) == {"velocity", "second"}
    assert not torch.equal(seen["velocity"], seen["second"])


def test_missing_state_raises():
    training = algorithms.Training(descend(momentum(0.9), lr=LR), BATCH)

    def apply(models, state, round):
        round.train(models, training, state)
        return state

    with pytest.raises(
        ValueError,
        match=r"`state` must hold the state of the local steps of the phase 'local', 'velocity' is "
        r"missing; let its `init` return training\.init\(models\)",
    ):
        ran(Phase(lambda models: {}, apply), problems.linear(), problems.equal_clients(N))
    ran(Phase(training.init, apply), problems.linear(), problems.equal_clients(N))


def test_checks_of_changes_are_thread_safe(monkeypatch):
    """Two threads run the same term at once while others change rows of the same memory."""
    monkeypatch.setattr(plan, "SHARED_WORK", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        busy = Term("busy", lambda g, theta, own, step: [g.mul_(1.0) for _ in range(2000)][-1])
        phase = train(descend(busy, lr=LR), batch_size=BATCH)
        got = ran(phase, problems.linear(), problems.equal_clients(N), rounds=4, executor="looped")
    finally:
        torch.set_num_threads(before)
    wanted, _ = naive_models(
        problems.linear(), problems.equal_clients(N), plain_sgd, rounds=4, counts=[1] * N
    )
    close(got, wanted)
