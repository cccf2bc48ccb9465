"""Scores of peers and the choice by them, on given heads and losses."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.algorithms.exchanges.pfeddst_runs import drawn, fake, models_of, scored
from tests.rows.topologies import graphs
from topofl import algorithms
from topofl.algorithms import scored_peers
from topofl.algorithms.exchanges.scored import _cosines


def picks(policy, models, rounds=1, graph=None):
    """Return the chosen peers of every round, (n, n) booleans, for constant models."""
    state, n = policy.init(models), len(models.flat)
    for t in range(rounds):
        chosen = policy.choose(models, state, fake(t, graph, n)).weights.weights.toarray() > 0
        yield chosen & ~np.eye(n, dtype=bool)


@pytest.mark.parametrize(("header_sign", "sign"), [("intended", 1), ("literal", -1)])
def test_without_loss_and_cost_heads_alone_decide(header_sign, sign):
    heads = drawn(9)
    policy = scored_peers(
        3, alpha=0, cost=0, recency_rate=1e3, header_sign=header_sign, loss_refresh="none", head="1"
    )
    near = sign * torch.cosine_similarity(heads[:, None], heads[None], dim=2).fill_diagonal_(
        -sign * torch.inf
    )
    wanted = torch.zeros(9, 9, dtype=torch.bool).scatter_(1, near.topk(3).indices, True).numpy()
    for chosen in picks(policy, models_of(heads), rounds=3):
        np.testing.assert_array_equal(chosen, wanted)


def terms(m, seed=0):
    """Return losses that differ by units and cosines that differ by hundredths, as in training."""
    rng = np.random.default_rng(seed)
    return rng.gamma(4.0, 0.6, (m, m)), 0.95 + 0.02 * rng.standard_normal((m, m)).clip(-2, 2)


def test_scaled_terms_have_equal_influence_and_raw_ones_do_not():
    def ranks(losses, cosines, **how):
        found = scored(losses, cosines, **how)
        return [
            np.corrcoef(row, values)[0, 1]
            for row, values in ((found[0], losses[0]), (found[0], cosines[0]))
        ]

    losses, cosines = terms(400)
    with_loss, with_cosine = ranks(losses, cosines)
    assert min(with_loss, with_cosine) > 0.5
    with_loss, with_cosine = ranks(losses, cosines, standardize=False, cost=2.0)
    assert with_loss > 0.999
    assert abs(with_cosine) < 0.1


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
    assert ((found >= 0) & (found <= 2)).all(), (
        "no bracket is negative with the largest distance as cost"
    )
    torch.testing.assert_close(
        scored(times * losses + plus, 1 - shrink * (1 - cosines), ages), found, rtol=0, atol=1e-9
    )
    moved = np.random.default_rng(seed + 1).permutation(m)
    order = np.ix_(moved, moved)
    np.testing.assert_array_equal(
        scored(losses[order], cosines[order], ages[order]), found.numpy()[order]
    )


def test_the_least_useful_peer_scores_zero_at_any_age():
    found = scored([1.0, 2.0, 3.0], [0.1, 0.5, 0.9], [[1e9, 1, 1]])
    assert found[0, 0] == 0
    assert found.argmax() == 2


def test_terms_are_scaled_over_candidates_with_finite_values():
    inf, nan = torch.inf, torch.nan
    candidates = torch.tensor([[True, True, True, True, True, False]])
    losses, cosines = [2.0, 4.0, inf, nan, 3.0, 100.0], [0.5, 0.7, 0.9, 0.9, nan, -1.0]
    found = scored(losses, cosines, candidates=candidates)[0, :5].tolist()
    assert found[:3] == [pytest.approx(0 - 1 + 1), pytest.approx(1 - 0.5 + 1), inf]
    assert np.isnan(found[3:]).all()
    assert scored(losses, cosines, candidates=candidates, alpha=0)[0, :3].tolist() == pytest.approx(
        [0, 0.5, 1]
    )


@pytest.mark.parametrize(
    ("losses", "cosines", "wanted"),
    [
        ([7.0], [0.3], [1.0]),  # one candidate
        ([7.0, 7.0 + 1e-12], [0.3, 0.3 - 1e-12], [1.0, 1.0]),  # the same but for rounding
        ([7.0, 7.0], [0.3, 0.4], [0.0, 1.0]),
        ([7.0, 8.0], [0.3, 0.3], [1.0, 2.0]),
        ([7.0, torch.inf], [0.3, 0.3], [1.0, torch.inf]),  # one that was tried
        ([torch.inf, torch.inf], [0.3, 0.4], [torch.inf, torch.inf]),
        ([1.0, torch.finfo(torch.float64).max], [0.3, 0.3], [1.0, 2.0]),  # as diverged models have
    ],
)
def test_terms_without_spread_are_zero(losses, cosines, wanted):
    assert scored(losses, cosines)[0].tolist() == pytest.approx(wanted)


def test_scores_without_candidates():
    assert scored([3.0], [1.0], candidates=torch.tensor([[False]])).shape == (1, 1)
    (chosen,) = picks(scored_peers(3, head="1"), models_of(drawn(1)))
    assert not chosen.any()


def test_two_nodes_choose_each_other():
    for chosen in picks(
        scored_peers(1, loss_refresh="none", head="1"), models_of(drawn(2)), rounds=3
    ):
        assert chosen.tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize(
    ("how", "cost"),
    [
        ({}, 1),
        ({"standardize": False}, 2),
        ({"standardize": False, "header_sign": "literal"}, 1),
        ({"cost": 3.5}, 3.5),
    ],
)
def test_the_cost_is_the_largest_distance_if_not_given(how, cost):
    assert scored_peers(**how).settings["cost"] == cost


def test_with_equal_heads_and_no_losses_peers_take_turns():
    heads = drawn(1).expand(7, -1) * torch.arange(1, 8)[:, None]  # of equal directions
    rounds = list(picks(scored_peers(2, loss_refresh="none", head="1"), models_of(heads), rounds=9))
    last = np.full((7, 7), -1)
    np.fill_diagonal(last, 99)
    for t, chosen in enumerate(rounds):
        assert (chosen.sum(1) == 2).all()
        assert (np.where(chosen, last, -1).max(1) <= np.where(chosen, 99, last).min(1)).all(), (
            "the oldest first"
        )
        last[chosen] = t
    for t in range(3, 9):
        np.testing.assert_array_equal(rounds[t], rounds[t - 3])
    assert len({chosen.tobytes() for chosen in rounds[:3]}) == 3


def test_equal_scores_are_in_random_order():
    heads = drawn(1).expand(40, -1) * torch.arange(1, 41)[:, None]
    assert (_cosines(models_of(heads), algorithms.part("1")) == 1).all(), "to the last bit"
    (chosen,) = picks(scored_peers(5, loss_refresh="none", head="1"), models_of(heads))
    assert len(np.unique(chosen, axis=0)) > 30
    assert chosen.sum(0).max() < 20


def test_zero_heads_are_at_right_angles_and_diverged_ones_last():
    heads = torch.tensor(
        [[1.0, 0], [1.0, 0.1], [0.0, 0.0], [-1.0, 0.0], [torch.nan, 0], [torch.inf, 0]]
    )
    heads = torch.cat([heads, torch.zeros(6, 4)], 1)
    for k, wanted in [(1, {1}), (2, {1, 2}), (3, {1, 2, 3}), (5, {1, 2, 3, 4, 5})]:
        (chosen,) = picks(scored_peers(k, loss_refresh="none", head="1"), models_of(heads))
        assert set(np.flatnonzero(chosen[0])) == wanted
        assert (chosen.sum(1) == k).all()
    (chosen,) = picks(scored_peers(None, 0.5, loss_refresh="none", head="1"), models_of(heads))
    assert set(np.flatnonzero(chosen[0])) == {1, 2}
    assert not chosen[2][[4, 5]].any()
    assert not chosen[4].any()


@given(
    graph=graphs(),
    k=st.none() | st.integers(0, 9),
    threshold=st.none() | st.floats(-1, 3),
    refresh=st.sampled_from(["none", "selected"]),
    wild=st.lists(st.sampled_from([0.0, 1.0, float("nan"), float("inf")]), min_size=9, max_size=9),
    t=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_chosen_peers_are_in_neighbors(graph, k, threshold, refresh, wild, t, seed):
    n, rng = graph.n, np.random.default_rng(seed)
    models = models_of(drawn(n, seed) * torch.tensor(wild[:n])[:, None])
    policy = scored_peers(k, threshold, loss_refresh=refresh, head="1")
    state = policy.init(models)
    if t:  # some peers were chosen before, with some losses
        received_before = torch.from_numpy(rng.random((n, n)) < 0.5)
        state["last"][received_before] = float(rng.integers(t))
        if "losses" in state:
            state["losses"][received_before] = rng.choice([0.0, 2.0, np.nan])
    choice = policy.choose(models, state, fake(t, graph))
    able = graph.adjacency.T.toarray() != 0
    chosen = (choice.weights.weights.toarray() > 0) & ~np.eye(n, dtype=bool)
    assert not (chosen & ~able).any()
    if threshold is None:
        np.testing.assert_array_equal(chosen.sum(1), np.minimum(able.sum(1), n if k is None else k))
    elif k is not None:
        assert (chosen.sum(1) <= k).all()
    np.testing.assert_array_equal(state["last"].numpy() == t, chosen)
    ((headers, nbytes),) = choice.extra_messages
    np.testing.assert_array_equal(headers.support().adjacency.toarray() != 0, able.T)
    assert nbytes == 6 * 8
