"""State of terms: resumed runs, frozen nodes, and memory."""

import pytest
import torch

import topofl
from tests import problems
from tests.algorithms.contract.local_steps import (
    APART,
    BATCH,
    BOTH_WAYS,
    LR,
    OPTIMIZERS,
    SEED,
    SETTINGS,
    TRAINED,
    N,
    given,
    layered,
    ran,
    run,
    watched,
)
from tests.engine import killed
from tests.engine.train.test_divergence import BAD, clients_with_extremes
from topofl import algorithms
from topofl.algorithms import (
    Term,
    adam,
    adamw,
    chain,
    clip,
    cosine,
    descend,
    masked,
    momentum,
    proximal,
    train,
    weight_decay,
)
from topofl.engine.footprint import bytes_of_terms
from topofl.engine.population import Layout


@pytest.mark.parametrize(
    "settings", [SETTINGS["looped"], SETTINGS["batched-4"]], ids=["looped", "batched"]
)
@pytest.mark.parametrize("trained", ["linear", "apart"])
@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_resumed_runs_equal_uninterrupted_ones(tmp_path, name, trained, settings):
    model, part = TRAINED[trained]
    phase = train(
        descend(*OPTIMIZERS[name][0], lr=cosine(LR, rounds=6)),
        batch_size=BATCH,
        epochs=1,
        part=part,
    )
    arguments = {
        "algorithm": chain("own", local=phase),
        "model": model(),
        "clients": problems.ragged_clients(N),
        "rounds": 6,
        "seed": SEED,
        "init": "independent",
        "device": "cpu",
    } | settings
    whole = killed.trained(arguments)
    saving = topofl.Saving(tmp_path, every=2)
    with pytest.raises(ZeroDivisionError):
        topofl.run(
            **problems.options(**arguments, saving=saving), callbacks=[lambda e: 1 / (e.round - 4)]
        )
    again = killed.trained(arguments, saving=topofl.Saving(tmp_path, resume=True))
    assert killed.differences(again, whole) == []


@BOTH_WAYS
@pytest.mark.parametrize("trained", ["linear", "apart"])
@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_the_state_of_a_frozen_node_is_unchanged(name, trained, settings):
    """Its first step overflows and changes nothing."""
    (model, part), (looking, seen) = TRAINED[trained], watched()
    phase = train(descend(*OPTIMIZERS[name][0], lr=LR), batch_size=BATCH, steps=2, part=part)
    run(
        chain("own", local=phase, looking=looking),
        model=model(),
        clients=clients_with_extremes(),
        rounds=2,
        seed=0,
        on_divergence="freeze",
        **settings,
    )
    for key, kept in seen.items():
        others = [i for i in range(N) if i != BAD]
        assert not kept[BAD].any(), key
        assert all(bool(kept[i].any()) for i in others), key
        assert torch.isfinite(kept).all(), key


@BOTH_WAYS
@pytest.mark.parametrize("elementwise", [True, False], ids=["by parameter", "whole"])
def test_the_state_of_a_node_that_is_frozen_later_is_unchanged_from_then_on(elementwise, settings):
    def update(g, theta, own, step):
        own["sums"].add_(1)
        far = (own["sums"] == 5) & (own["number"] == 2)  # its second step of the second round
        return torch.where(far, torch.inf, g)

    def init(models):
        number = (
            torch.arange(N, device=models.flat.device)[:, None].expand_as(models.flat).contiguous()
        )
        return {"sums": torch.zeros_like(models.flat), "number": number}

    looking, seen = watched()
    phase = train(
        descend(Term("mine", update, init, elementwise=elementwise), lr=LR),
        batch_size=BATCH,
        steps=3,
        part=APART,
    )
    ran(
        phase,
        layered(),
        problems.equal_clients(N),
        after=looking,
        on_divergence="freeze",
        **settings,
    )
    sums = torch.stack([given(layered(), APART, seen["sums"], i) for i in range(N)])
    assert (sums[[0, 1, 3, 4, 5]] == 9).all()
    assert (sums[2] == 4).all()


D = 36 * 3 + 3


STATES = {
    "plain": ([], 0),
    "momentum": ([momentum(0.9)], N * D * 4),
    "nesterov": ([momentum(0.9, nesterov=True)], N * D * 4),
    "adam": ([adam()], 2 * N * D * 4 + N * 8),
    "adamw": ([adamw()], 2 * N * D * 4 + N * 8),
    "both": ([momentum(0.9), adam()], 3 * N * D * 4 + N * 8),
    "reset momentum": ([momentum(0.9, reset=True)], 0),
    "reset adam": ([adam(reset=True)], 0),
    "mask": ([masked()], N * D),
    "anchor": ([proximal(0.1, kept="anchor")], N * D * 4),
}


def need(terms, **settings):
    phase = train(descend(*terms, lr=LR), batch_size=BATCH)
    return topofl.estimate(
        chain("own", local=phase), model=problems.linear(), clients=problems.equal_clients(N),
        compute=topofl.Compute(executor="looped"), **problems.options(**settings),
    )  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_memory_of_lasting_state(name):
    terms, wanted = STATES[name]
    assert need(terms).state == wanted


def test_state_that_starts_anew_takes_memory_during_training():
    assert need([momentum(0.9, reset=True)]).activations == need([]).activations + 4 * D
    assert need([momentum(0.9)]).activations == need([]).activations


BESIDE = {
    "plain": ([], 0),
    "weight decay": ([weight_decay(0.1)], 0),
    "heavy ball": ([momentum(0.9)], 0),
    "heavy ball and decay": ([weight_decay(0.1), momentum(0.9)], 0),
    "decay after the heavy ball": ([momentum(0.9), weight_decay(0.1)], 0),
    "reset": ([momentum(0.9, reset=True)], 4 * D),
    "to the start": ([proximal(0.1)], 2 * 4 * D),  # a copy, and the difference from it
    "to models kept": ([proximal(0.1, kept="anchor")], 4 * D),
}


@pytest.mark.parametrize("name", BESIDE)
def test_memory_of_a_step_in_addition_to_gradients(name):
    terms, wanted = BESIDE[name]
    training = algorithms.Training(descend(*terms, lr=LR), BATCH)
    assert bytes_of_terms(training, Layout.of(problems.linear()), torch.float32, N) == wanted


def test_a_clip_takes_a_flat_copy_of_gradients():
    """And a few numbers per node: the norm and the factor computed from it."""
    layout = Layout.of(problems.linear())
    for terms, copies in [([clip(1.0)], 1), ([clip(1.0), proximal(0.1)], 3)]:
        found = bytes_of_terms(
            algorithms.Training(descend(*terms, lr=LR), BATCH), layout, torch.float32, N
        )
        assert 4 * D * copies <= found <= 4 * D * copies + 16
