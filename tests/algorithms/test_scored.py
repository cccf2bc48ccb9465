"""Scores of peers, the choice by them, and losses that are kept per pair."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import topofl
from tests import problems
from tests.algorithms.harness import BATCH, HEAD, N, engine, is_body, received
from tests.rows.topologies import graphs
from topofl import algorithms, topologies
from topofl._support.seeding import stream
from topofl.algorithms import refresh_losses, scored_peers
from topofl.algorithms.exchanges.scored import _cosines, scores
from topofl.engine.population import Layout, Population
from topofl.topologies.collaboration import answer_queries

INF, NAN = torch.inf, torch.nan


def models_of(heads):
    """Return models whose heads are rows of (n, 6) numbers, biases last."""
    layout = Layout.of(nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 2)))
    return Population.alone(torch.cat([torch.zeros(len(heads), 4), heads], 1).double(), layout)


def fake(t=0, graph=None, n=0, **doors):
    """Return a round with the doors that scores use."""
    graph = topologies.fully_connected(n) if graph is None else graph
    draws = lambda purpose: stream(0, purpose, t)  # noqa: E731
    return SimpleNamespace(published=lambda values: values, t=t, peers=graph, rng=draws, **doors)


def drawn(n, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, 6)))


def scored(losses, cosines, ages=None, candidates=None, **changes):
    """Return the scores that nodes give to others, with those of one node as a row."""
    losses, cosines = (
        torch.atleast_2d(torch.as_tensor(values, dtype=torch.float64))
        for values in (losses, cosines)
    )
    ages = torch.full_like(cosines, INF) if ages is None else torch.as_tensor(ages).double()
    candidates = torch.ones_like(cosines, dtype=torch.bool) if candidates is None else candidates
    usual = {"standardize": True, "alpha": 1.0, "recency_rate": 0.3, "cost": 1.0}
    how = usual | {"header_sign": "intended"} | changes
    return scores(losses, cosines, ages, candidates, **how)


def by_heads(k, *args, **how):
    """Return a policy that knows no losses."""
    return scored_peers(k, *args, loss_refresh="none", head="1", **how)


def picks(policy, heads, rounds=1):
    """Return the chosen peers of every round, (n, n) booleans, for constant models."""
    models, n = models_of(heads), len(heads)
    state, found = policy.init(models), []
    for t in range(rounds):
        chosen = policy.choose(models, state, fake(t, None, n)).weights.weights.toarray() > 0
        found.append(chosen & ~np.eye(n, dtype=bool))
    return found


def terms(m, seed=0):
    """Return losses that differ by units and cosines that differ by hundredths, as in training."""
    rng = np.random.default_rng(seed)
    return rng.gamma(4.0, 0.6, (m, m)), 0.95 + 0.02 * rng.standard_normal((m, m)).clip(-2, 2)


@given(
    st.integers(2, 12),
    st.integers(0, 99),
    st.floats(0.01, 100),
    st.floats(-5, 5),
    st.floats(0.01, 1),
)
def test_units_of_the_terms_do_not_matter(m, seed, times, plus, shrink):
    losses, cosines = terms(m, seed)
    ages = np.random.default_rng(seed).integers(1, 9, (m, m))
    found = scored(losses, cosines, ages)
    # no bracket is negative with the largest distance as cost
    assert ((found >= 0) & (found <= 2)).all()
    again = scored(times * losses + plus, 1 - shrink * (1 - cosines), ages)
    torch.testing.assert_close(again, found, rtol=0, atol=1e-9)
    moved = np.random.default_rng(seed + 1).permutation(m)
    order = np.ix_(moved, moved)
    again = scored(losses[order], cosines[order], ages[order])
    np.testing.assert_array_equal(again, found.numpy()[order])


def test_the_least_useful_peer_scores_zero_at_any_age():
    found = scored([1.0, 2.0, 3.0], [0.1, 0.5, 0.9], [[1e9, 1, 1]])
    assert found[0, 0] == 0
    assert found.argmax() == 2


def test_terms_are_scaled_over_candidates_with_finite_values():
    candidates = torch.tensor([[True] * 5 + [False]])
    losses, cosines = [2.0, 4.0, INF, NAN, 3.0, 100.0], [0.5, 0.7, 0.9, 0.9, NAN, -1.0]
    found = scored(losses, cosines, candidates=candidates)[0, :5].tolist()
    assert found[:3] == [pytest.approx(0 - 1 + 1), pytest.approx(1 - 0.5 + 1), INF]
    assert np.isnan(found[3:]).all()
    without = scored(losses, cosines, candidates=candidates, alpha=0)[0, :3].tolist()
    assert without == pytest.approx([0, 0.5, 1])
    assert scored([3.0], [1.0], candidates=torch.tensor([[False]])).shape == (1, 1)


@pytest.mark.parametrize(
    ("losses", "cosines", "wanted"),
    [
        ([7.0], [0.3], [1.0]),  # one candidate
        ([7.0, 7.0 + 1e-12], [0.3, 0.3 - 1e-12], [1.0, 1.0]),  # the same but for rounding
        ([7.0, 7.0], [0.3, 0.4], [0.0, 1.0]),
        ([7.0, 8.0], [0.3, 0.3], [1.0, 2.0]),
        ([7.0, INF], [0.3, 0.3], [1.0, INF]),  # one that was tried
        ([INF, INF], [0.3, 0.4], [INF, INF]),
        ([1.0, torch.finfo(torch.float64).max], [0.3, 0.3], [1.0, 2.0]),  # as diverged models have
    ],
)
def test_terms_without_spread_are_zero(losses, cosines, wanted):
    assert scored(losses, cosines)[0].tolist() == pytest.approx(wanted)


def test_few_nodes():
    (chosen,) = picks(scored_peers(3, head="1"), drawn(1))
    assert not chosen.any()
    for chosen in picks(by_heads(1), drawn(2), rounds=3):
        assert chosen.tolist() == [[False, True], [True, False]]


def test_the_cost_is_the_largest_distance_if_not_given():
    raw = {"standardize": False}
    found = [scored_peers(**how).settings["cost"] for how in ({}, raw, {"cost": 3.5})]
    assert found == [1, 2, 3.5]
    assert scored_peers(header_sign="literal", **raw).settings["cost"] == 1


def test_with_equal_heads_and_no_losses_peers_take_turns():
    heads = drawn(1).expand(7, -1) * torch.arange(1, 8)[:, None]  # of equal directions
    rounds = picks(by_heads(2), heads, rounds=9)
    last = np.full((7, 7), -1)
    np.fill_diagonal(last, 99)
    for t, chosen in enumerate(rounds):
        assert (chosen.sum(1) == 2).all()
        oldest = np.where(chosen, 99, last).min(1)
        assert (np.where(chosen, last, -1).max(1) <= oldest).all(), "the oldest first"
        last[chosen] = t
        assert t < 3 or (chosen == rounds[t - 3]).all()
    assert len({chosen.tobytes() for chosen in rounds[:3]}) == 3


def test_equal_scores_are_in_random_order():
    heads = drawn(1).expand(40, -1) * torch.arange(1, 41)[:, None]
    assert (_cosines(models_of(heads), algorithms.part("1")) == 1).all(), "to the last bit"
    (chosen,) = picks(by_heads(5), heads)
    assert len(np.unique(chosen, axis=0)) > 30
    assert chosen.sum(0).max() < 20


def test_zero_heads_are_at_right_angles_and_diverged_ones_last():
    heads = torch.tensor([[1.0, 0], [1.0, 0.1], [0.0, 0.0], [-1.0, 0.0], [NAN, 0], [INF, 0]])
    heads = torch.cat([heads, torch.zeros(6, 4)], 1)
    for k, wanted in [(1, {1}), (2, {1, 2}), (3, {1, 2, 3}), (5, {1, 2, 3, 4, 5})]:
        (chosen,) = picks(by_heads(k), heads)
        assert set(np.flatnonzero(chosen[0])) == wanted
        assert (chosen.sum(1) == k).all()
    (chosen,) = picks(by_heads(None, 0.5), heads)
    assert set(np.flatnonzero(chosen[0])) == {1, 2}
    assert not chosen[2][[4, 5]].any()
    assert not chosen[4].any()


@given(
    graph=graphs(),
    k=st.none() | st.integers(0, 9),
    threshold=st.none() | st.floats(-1, 3),
    refresh=st.sampled_from(["none", "selected"]),
    wild=st.lists(st.sampled_from([0.0, 1.0, NAN, INF]), min_size=9, max_size=9),
    t=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_chosen_peers_are_in_neighbors(graph, k, threshold, refresh, wild, t, seed):
    n, rng = graph.n, np.random.default_rng(seed)
    models = models_of(drawn(n, seed) * torch.tensor(wild[:n])[:, None])
    policy = scored_peers(k, threshold, loss_refresh=refresh, head="1")
    state = policy.init(models)
    if t:  # some peers were chosen before, with some losses
        before = torch.from_numpy(rng.random((n, n)) < 0.5)
        state["last"][before] = float(rng.integers(t))
        if "losses" in state:
            state["losses"][before] = rng.choice([0.0, 2.0, np.nan])
    choice = policy.choose(models, state, fake(t, graph))
    able = graph.adjacency.T.toarray() != 0
    chosen = (choice.weights.weights.toarray() > 0) & ~np.eye(n, dtype=bool)
    assert not (chosen & ~able).any()
    if threshold is None:
        most = np.minimum(able.sum(1), n if k is None else k)
        np.testing.assert_array_equal(chosen.sum(1), most)
    elif k is not None:
        assert (chosen.sum(1) <= k).all()
    np.testing.assert_array_equal(state["last"].numpy() == t, chosen)
    ((headers, nbytes),) = choice.extra_messages
    np.testing.assert_array_equal(headers.support().adjacency.toarray() != 0, able.T)
    assert nbytes == 6 * 8


def pfeddst(**changes):
    return algorithms.pfeddst(0.1, **{"batch_size": BATCH, "epochs": 1, "head": HEAD} | changes)


def test_every_peer_is_chosen_once_before_any_is_chosen_again():
    history, _ = engine(pfeddst(k=1), problems.convolutional(), rounds=N - 1)
    for i in range(N):
        chosen = sorted(received(history, t)[i][0] for t in range(N - 1))
        assert chosen == [j for j in range(N) if j != i]


def test_losses_are_stored_per_pair():
    models, sent = models_of(drawn(5)), []
    models.flat[:] += torch.arange(5)[:, None]
    state = scored_peers(2, head="1").init(models)
    pairs = torch.zeros(5, 5, dtype=torch.bool)
    pairs[[0, 0, 2, 2, 3, 4], [1, 4, 0, 1, 1, 0]] = True
    state["last"][pairs] = 3

    def cross_evaluate(trials, on):
        assert on == "train"
        return {
            j: answer_queries(trial, lambda flat, j=j: flat.sum(1) + 1000 * j)
            for j, trial in trials.items()
        }

    doors = {
        "cross_evaluate": cross_evaluate,
        "state": lambda owner: state,
        "send": lambda weights, nbytes: sent.append((weights.weights.toarray() > 0, nbytes)),
    }
    refresh_losses("exchange").apply(models, {}, fake(3, n=5, **doors))
    wanted = models.flat.sum(1)[:, None] + 1000 * torch.arange(5)
    torch.testing.assert_close(state["losses"], torch.where(pairs, wanted, INF))
    (there, size), (back, number) = sent
    eye = np.eye(5, dtype=bool)
    np.testing.assert_array_equal(there, pairs.T.numpy() | eye)  # j receives from i
    np.testing.assert_array_equal(back, pairs.numpy() | eye)
    assert (size, number) == (10 * 8, 8)


def test_infinite_losses_differ_from_untried_ones():
    models = models_of(drawn(3))
    state = scored_peers(1, head="1").init(models)
    state["last"][0, 1] = 0
    infinite = lambda trials, on: {j: torch.tensor([INF]).double() for j in trials}  # noqa: E731
    doors = {"cross_evaluate": infinite, "send": lambda *_: None, "state": lambda owner: state}
    refresh_losses("exchange").apply(models, {}, fake(n=3, **doors))
    assert state["losses"].isfinite().tolist() == [[False, True, False], [False] * 3, [False] * 3]


@pytest.mark.parametrize(
    ("loss_refresh", "tried"), [("selected", 2 * N), ("all", N * (N - 1)), ("none", 0)]
)
def test_messages_count_heads_bodies_and_models_to_evaluate(loss_refresh, tried):
    clients, model = problems.equal_clients(), problems.convolutional()
    body = sum(p.numel() for name, p in model.named_parameters() if is_body(name))
    algorithm, compute = pfeddst(k=2, loss_refresh=loss_refresh), {"dtype": torch.float64}
    history, _ = engine(algorithm, model, clients)
    assert history["messages"].tolist() == [N * (N - 1) + 2 * N + 2 * tried] * 3
    numbers = N * (N - 1) * 111 + 2 * N * body + tried * (body + 111) + tried
    assert history["bytes"].tolist() == [8 * numbers] * 3
    world = {"model": model, "clients": clients}
    need = topofl.estimate(algorithm, compute=topofl.Compute(**compute), **world)
    assert (need.messages, need.bytes) == (history["messages"][0], history["bytes"][0])
    assert need.state == 8 * N * N * (1 if loss_refresh == "none" else 2)
    most = topofl.estimate(pfeddst(k=None, threshold=1.5), **world)  # that a threshold lets through
    assert most.messages == 4 * N * (N - 1)
