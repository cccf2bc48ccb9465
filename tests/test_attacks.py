"""What attackers send, by hand, and against numpy."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from topofl import attacks, mixing, topologies

N, D = 7, 5
BAD = [1, 4]
ALL = {
    "sign_flip": attacks.sign_flip(BAD, scale=3.0),
    "noise": attacks.noise(BAD, std=2.0),
    "alie": attacks.alie(BAD, z=1.5),
    "dissensus": attacks.dissensus(BAD, strength=2.0),
    "inner_product": attacks.inner_product(BAD, epsilon=0.5),
    "model_replacement": attacks.model_replacement(BAD),
}
EACH = pytest.mark.parametrize("attack", ALL.values(), ids=ALL)


def models(n=N, d=D, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


def weights_of(graph):
    return torch.from_numpy(mixing.metropolis_hastings(graph).weights.toarray())


def forged(attack, sent, weights=None, seed=0):
    bad = torch.from_numpy(np.isin(np.arange(len(sent)), attack.nodes))
    weights = weights_of(topologies.fully_connected(len(sent))) if weights is None else weights
    return attack.forge(sent, bad, weights, np.random.default_rng(seed))


@EACH
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_columns_are_forged_independently_and_arguments_stay(attack, dtype, atol):
    sent, weights = models().to(dtype), weights_of(topologies.ring(N))
    kept, rng = (sent.clone(), weights.clone()), np.random.default_rng(0)
    bad = torch.from_numpy(np.isin(np.arange(N), BAD))
    whole = forged(attack, sent, weights)
    assert torch.equal(sent, kept[0])
    assert torch.equal(weights, kept[1])
    assert (whole.shape, whole.dtype) == (sent.shape, dtype)
    assert not torch.allclose(whole, sent)
    parts = [attack.forge(part, bad, weights, rng) for part in sent.split(2, dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=atol)
    made = attack.forge(*(x.to("meta") for x in (sent, bad, weights)), rng)
    assert (made.shape, made.is_meta) == ((N, D), True)


def test_noise_has_its_deviation_and_is_drawn_for_each_attacker():
    made = forged(attacks.noise(BAD, std=2.0), models(d=40_000))[BAD]
    torch.testing.assert_close(made.std(1), 2 * torch.ones(2).to(made), rtol=0, atol=0.03)
    assert made.mean(1).abs().max() < 0.04
    assert abs(np.corrcoef(made.numpy())[0, 1]) < 0.03


@pytest.mark.parametrize("z", [0.0, 1.5, -2.0])
def test_alie_against_numpy(z):
    sent = models()
    honest = np.delete(sent.numpy(), BAD, axis=0)
    made = forged(attacks.alie(BAD, z=z), sent).numpy()
    wanted = np.tile(honest.mean(0) - z * honest.std(0), (2, 1))
    np.testing.assert_allclose(made[BAD], wanted, rtol=1e-13)
    np.testing.assert_array_equal(np.delete(made, BAD, axis=0), honest)


@pytest.mark.parametrize(("n", "m"), [(50, 12), (50, 24), (7, 2), (10, 1), (9, 4)])
def test_alie_takes_the_papers_z(n, m):
    sent = models(n)
    supporters = np.floor(n / 2 + 1) - m
    z = norm.ppf((n - m - supporters) / (n - m))
    made, wanted = (forged(attacks.alie(range(m), z=value), sent) for value in (None, float(z)))
    torch.testing.assert_close(made, wanted, rtol=1e-9, atol=0)


def test_with_the_papers_z_enough_honest_nodes_lie_farther_from_the_mean():
    """Of many honest normal values, as many lie below as make a majority with the attackers."""
    n, m = 1000, 240
    made = forged(attacks.alie(range(m)), models(n, d=200))
    further = (made[m:] < made[0]).sum(0).double().mean()
    assert float(further) == pytest.approx(n // 2 + 1 - m, rel=0.03)


@pytest.mark.parametrize(("n", "m"), [(7, 4), (10, 6), (2, 1)])
def test_alie_needs_at_most_half_of_at_least_3_nodes_for_its_z(n, m):
    with pytest.raises(ValueError, match=r"`nodes` must be at most half of .*give a number as `z`"):
        forged(attacks.alie(range(m)), models(n))
    forged(attacks.alie(range(m), z=1.0), models(n))


def test_dissensus_by_hand():
    """A path 0 - 1 - 2 - 3 of which the last attacks: weights are 1/3 to each neighbor."""
    sent = torch.tensor([[0.0], [3.0], [9.0], [1.0]], dtype=torch.float64)
    made = forged(attacks.dissensus([3], strength=0.5), sent, weights_of(topologies.path(4)))
    wanted = [0.0, 3.0, 9 - 0.5 * (3 - 9)]  # node 1 hears no attacker; 12 is away from it
    assert made[:3, 0].tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("strength", [0.0, 1.0, 1.7])
@pytest.mark.parametrize(
    "graph", [topologies.ring(N), topologies.random_regular(8, 4, seed=1)], ids=["ring", "random"]
)
def test_dissensus_cancels_gossip(graph, strength):
    """Gossip moves an attacked node by 1 - strength of the way to its honest neighbors."""
    sent = models(graph.n)
    weights = weights_of(graph)
    received = forged(attacks.dissensus(BAD, strength=strength), sent, weights)
    bad = np.isin(np.arange(graph.n), BAD)
    attacked = 0
    for i in np.flatnonzero(~bad):
        w = weights[i].numpy()
        cosine_directions = sum(w[k] * (sent[k] - sent[i]) for k in np.flatnonzero(~bad))
        heard = [received[i] if bad[k] else sent[k] for k in range(graph.n)]
        mixed = sent[i] + sum(w[k] * (heard[k] - sent[i]) for k in range(graph.n))
        attacked += bool(w[BAD].any())
        wanted = sent[i] + (1 - strength if w[BAD].any() else 1) * cosine_directions
        torch.testing.assert_close(mixed, wanted, rtol=0, atol=1e-14)
    assert attacked > 1


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 3.0])
def test_inner_products_are_those_of_the_mean(epsilon):
    """The mean of all messages is a multiple of the honest mean, negative for a large epsilon."""
    sent = models()
    mean = np.delete(sent.numpy(), BAD, axis=0).mean(0)
    made = forged(attacks.inner_product(BAD, epsilon=epsilon), sent).numpy()
    np.testing.assert_allclose(made.mean(0), (5 - 2 * epsilon) / 7 * mean, rtol=1e-13)
    np.testing.assert_array_equal(
        np.delete(made, BAD, axis=0), np.delete(sent.numpy(), BAD, axis=0)
    )


def test_replacement_leaves_the_attackers_mean():
    sent = models()
    made = forged(attacks.model_replacement(BAD), sent)
    torch.testing.assert_close(made.mean(0), sent[BAD].mean(0), rtol=0, atol=1e-14)
    same = forged(attacks.model_replacement(BAD, boost=1.0), sent)
    torch.testing.assert_close(same, sent, rtol=0, atol=1e-15)
    mean = np.delete(sent.numpy(), BAD, axis=0).mean(0)
    made = forged(attacks.model_replacement(BAD, boost=3.0), sent).numpy()
    np.testing.assert_allclose(made[BAD], 3 * sent.numpy()[BAD] - 2 * mean, rtol=1e-12)


def test_a_share_is_drawn_by_its_seed():
    draws = [attacks.drawn(50, 0.2, seed=seed) for seed in range(30)]
    assert all(len(set(nodes)) == 10 and list(nodes) == sorted(nodes) for nodes in draws)
    assert attacks.drawn(50, 0.2) == draws[0]
    assert len(set(draws)) == 30
    assert set().union(*draws) == set(range(50))
    assert len(attacks.drawn(5, 0.1)) == 1, "half a node is one"


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: attacks.sign_flip([]), ValueError, "`nodes`"),
        (lambda: attacks.sign_flip([1, 1]), ValueError, "`nodes`"),
        (lambda: attacks.sign_flip([-1]), ValueError, "`nodes"),
        (lambda: attacks.sign_flip("12"), TypeError, "`nodes`"),
        (lambda: attacks.sign_flip([1], scale=-1.0), ValueError, "`scale`"),
        (lambda: attacks.noise([1], std=float("nan")), ValueError, "`std`"),
        (lambda: attacks.alie([1], z=float("inf")), ValueError, "`z`"),
        (lambda: attacks.dissensus([1], strength=-0.5), ValueError, "`strength`"),
        (lambda: attacks.inner_product([1], epsilon=-0.5), ValueError, "`epsilon`"),
        (lambda: attacks.model_replacement([1], boost=-1.0), ValueError, "`boost`"),
        (lambda: attacks.drawn(10, 0.01), ValueError, "`share`.*0 nodes"),
        (lambda: attacks.drawn(10, 1.0), ValueError, "`share`.*10 nodes"),
        (lambda: attacks.drawn(10, 2), ValueError, "`share`"),
        (lambda: attacks.drawn(1, 0.5), ValueError, "`n`"),
    ],
)
def test_bad_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()
