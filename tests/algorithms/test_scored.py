"""PFedDST equals its loop over nodes in all executors.

Scores choose as their equations say, and never off the graph.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import topofl
from tests import naive, problems
from tests.algorithms.harness import (
    BATCH,
    HEAD,
    HOW,
    SEED,
    N,
    check,
    is_body,
    is_head,
    nodes_at_start,
)
from tests.algorithms.test_peers import received
from tests.properties.test_weights import graphs
from topofl import algorithms, mixing, topologies
from topofl._support.generators import answer_queries
from topofl._support.seeding import stream
from topofl.algorithms import average_over_peers, refresh_losses, scored_peers
from topofl.algorithms.exchanges.scored import _cosines, scores
from topofl.engine.population import Layout, Population

ROUNDS = 4
LOCAL = {"lr": 0.1, "head_lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "lr_decay": 0.8}
EVERYBODY = topologies.fully_connected(N)
THREE = topologies.circulant(N, (1, 2, 3), directed=True)
CHOICES = [
    {"k": 3},
    {"k": 3, "loss_refresh": "all"},
    {"k": 2, "loss_refresh": "none"},
    {"k": 2, "standardize": False, "alpha": 1.0, "cost": 2.0},
    {"k": 3, "header_sign": "literal", "alpha": 0.1},
    {"k": 3, "standardize": False, "header_sign": "literal", "alpha": 0.1},
    {"k": None, "threshold": 0.4},
    {"k": 2, "threshold": 0.2, "loss_refresh": "none"},
    {"k": 2, "alpha": 0.0, "cost": 0.0, "recency_rate": 50.0},
    {"k": 2, "alpha": 0.0, "standardize": False},
]
SCORING = ("standardize", "alpha", "cost", "recency_rate", "header_sign")


def draws(t):
    return stream(SEED, "peers", t).random((N, N))


def neighbors(graph):
    return [np.flatnonzero(row).tolist() for row in graph.adjacency.T.toarray()]


def engine(algorithm, model, clients, graph=None, rounds=ROUNDS, **settings):
    kept = []
    history = topofl.run(
        algorithm,
        model=model,
        clients=clients,
        topology=graph,
        rounds=rounds,
        seed=SEED,
        callbacks=[problems.each_round(lambda t, models: kept.append(models))],
        **problems.options(
            dtype=torch.float64, on_disconnected="allow", **{"init": "independent"} | settings
        ),
    )
    return history, kept[-1].flat


def pfeddst(**changes):
    return algorithms.pfeddst(**{"batch_size": BATCH, "epochs": 1, "head": HEAD, **LOCAL} | changes)


def loop(model, clients, graph, choice, head=is_head):
    nodes = nodes_at_start(model, clients)
    start = nodes.flat()
    scoring = {name: choice[name] for name in SCORING if name in choice}
    rest = {name: value for name, value in choice.items() if name not in SCORING}
    wanted = naive.pfeddst(
        nodes,
        neighbors(graph),
        ROUNDS,
        draws=draws,
        is_head=head,
        epochs=1,
        scoring=scoring,
        **LOCAL,
        **rest,
    )
    return wanted, nodes.flat(), start


@pytest.fixture(scope="module", params=CHOICES, ids=str)
def looped(request):
    """Return options, and what the loop makes of them, once for all executors."""
    return request.param, *loop(
        problems.convolutional(), problems.ragged_clients(), EVERYBODY, request.param
    )


@HOW
def test_pfeddst_is_its_loop(looped, settings):
    choice, wanted, flat, start = looped
    history, got = engine(
        pfeddst(**choice), problems.convolutional(), problems.ragged_clients(), **settings
    )
    assert [received(history, t) for t in range(ROUNDS)] == wanted
    assert any(0 < len(own) < N - 1 for chosen in wanted for own in chosen), "it chose"
    check(flat, got, start)


def test_on_a_directed_graph():
    clients, model, graph = problems.equal_clients(), problems.convolutional(), THREE
    wanted, flat, start = loop(model, clients, graph, {"k": 1})
    history, got = engine(pfeddst(k=1), model, clients, graph)
    assert [received(history, t) for t in range(ROUNDS)] == wanted
    check(flat, got, start)
    for t in range(ROUNDS):
        history.mixing(t).check_on(graph)


@HOW
def test_linear_models_are_tried_together(settings):
    clients, model = problems.ragged_clients(), problems.linear()
    wanted, flat, start = loop(model, clients, EVERYBODY, {"k": 3}, lambda name: name == "1.bias")
    history, got = engine(pfeddst(k=3, head="1.bias"), model, clients, **settings)
    assert [received(history, t) for t in range(ROUNDS)] == wanted
    check(flat, got, start)


def test_rows_are_simple_means_whatever_the_numbers_of_examples():
    history, _ = engine(pfeddst(k=2), problems.convolutional(), problems.ragged_clients(), rounds=2)
    for weights in (history.mixing(t).weights.toarray() for t in range(2)):
        np.testing.assert_allclose(weights[weights > 0], 1 / 3)
        assert (weights.diagonal() > 0).all()


def test_every_peer_is_tried_once_before_any_is_heard_again():
    history, _ = engine(
        pfeddst(k=1), problems.convolutional(), problems.equal_clients(), rounds=N - 1
    )
    for i in range(N):
        assert sorted(received(history, t)[i][0] for t in range(N - 1)) == [
            j for j in range(N) if j != i
        ]


def test_with_all_peers_the_choice_is_irrelevant():
    clients, model, body = (
        problems.equal_clients(),
        problems.convolutional(),
        algorithms.part(HEAD).rest,
    )
    _, scored = engine(pfeddst(k=N - 1, header_sign="literal"), model, clients)
    _, other = engine(pfeddst(k=None, loss_refresh="none", alpha=3.0), model, clients)
    torch.testing.assert_close(scored, other, rtol=0, atol=1e-12)
    local = {name: value for name, value in LOCAL.items() if "lr" not in name}
    local |= {"batch_size": BATCH, "epochs": 1, "reset_momentum": True, "lr_decay": 0.8}
    plain = algorithms.chain(
        "plain",
        exchange=algorithms.gossip(body),
        body=algorithms.sgd(0.1, part=body, **local),
        head=algorithms.sgd(0.05, part=body.rest, **local),
    )
    _, averaged = engine(plain, model, clients, EVERYBODY, mixing=mixing.uniform)
    torch.testing.assert_close(scored, averaged, rtol=0, atol=1e-12)


def test_with_no_peers_nodes_are_alone():
    clients, model = problems.equal_clients(), problems.convolutional()
    history, alone = engine(pfeddst(k=0), model, clients)
    assert (history.mixing(0).weights.toarray() == np.eye(N)).all()
    _, apart = engine(pfeddst(k=3), model, clients, topofl.from_edges([], N))
    torch.testing.assert_close(alone, apart, rtol=0, atol=1e-12)


def models_of(heads):
    """Return models whose heads are rows of (n, 6) numbers, biases last."""
    layout = Layout.of(nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 2)))
    return Population(torch.cat([torch.zeros(len(heads), 4), heads], 1).double(), layout)


def fake(t=0, graph=None, n=0, **doors):
    graph = topologies.fully_connected(n) if graph is None else graph
    return SimpleNamespace(
        shown=lambda values: values,
        t=t,
        peers=graph,
        rng=lambda purpose: stream(0, purpose, t),
        **doors,
    )


def picks(policy, models, rounds=1, graph=None):
    """Return whom nodes hear in every round, (n, n) booleans, where models stay as they are."""
    state, n = policy.init(models), len(models.flat)
    for t in range(rounds):
        chosen = policy.choose(models, state, fake(t, graph, n)).weights.weights.toarray() > 0
        yield chosen & ~np.eye(n, dtype=bool)


def drawn(n, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, 6)))


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


SCALED = {
    "standardize": True,
    "alpha": 1.0,
    "recency_rate": 0.3,
    "cost": 1.0,
    "header_sign": "intended",
}


def scored(losses, cosines, ages=None, candidates=None, **changes):
    """Return the scores that nodes give to others, with those of one node as a row."""
    losses, cosines = (
        torch.atleast_2d(torch.as_tensor(values, dtype=torch.float64))
        for values in (losses, cosines)
    )
    ages = torch.full_like(cosines, torch.inf) if ages is None else torch.as_tensor(ages).double()
    candidates = torch.ones_like(cosines, dtype=torch.bool) if candidates is None else candidates
    return scores(losses, cosines, ages, candidates, **SCALED | changes)


def terms(m, seed=0):
    """Return losses that differ by units and cosines that differ by hundredths, as in training."""
    rng = np.random.default_rng(seed)
    return rng.gamma(4.0, 0.6, (m, m)), 0.95 + 0.02 * rng.standard_normal((m, m)).clip(-2, 2)


def test_scaled_terms_count_alike_and_raw_ones_do_not():
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


def test_the_least_useful_peer_scores_nothing_however_old():
    found = scored([1.0, 2.0, 3.0], [0.1, 0.5, 0.9], [[1e9, 1, 1]])
    assert found[0, 0] == 0
    assert found.argmax() == 2


def test_terms_are_scaled_over_the_candidates_of_which_they_are_known():
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
def test_a_term_without_spread_tells_no_peers_apart(losses, cosines, wanted):
    assert scored(losses, cosines)[0].tolist() == pytest.approx(wanted)


def test_nobody_to_score():
    assert scored([3.0], [1.0], candidates=torch.tensor([[False]])).shape == (1, 1)
    (chosen,) = picks(scored_peers(3, head="1"), models_of(drawn(1)))
    assert not chosen.any()


def test_two_nodes_hear_each_other():
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
def test_nobody_is_heard_off_the_graph(graph, k, threshold, refresh, wild, t, seed):
    n, rng = graph.n, np.random.default_rng(seed)
    models = models_of(drawn(n, seed) * torch.tensor(wild[:n])[:, None])
    policy = scored_peers(k, threshold, loss_refresh=refresh, head="1")
    state = policy.init(models)
    if t:  # some were heard, with some losses
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
    ((headers, nbytes),) = choice.besides
    np.testing.assert_array_equal(headers.support().adjacency.toarray() != 0, able.T)
    assert nbytes == 6 * 8


def test_losses_of_pairs_are_put_where_they_belong():
    models, sent = models_of(drawn(5)), []
    models.flat[:] += torch.arange(5)[:, None]
    state = scored_peers(2, head="1").init(models)
    pairs = torch.tensor(
        [[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    ).bool()
    state["last"][pairs] = 3

    def cross_evaluate(trials, on):
        assert on == "train"
        return {
            j: answer_queries(trial, lambda flat, j=j: flat.sum(1) + 1000 * j)
            for j, trial in trials.items()
        }

    round = fake(
        3,
        n=5,
        cross_evaluate=cross_evaluate,
        state=lambda owner: state,
        send=lambda weights, nbytes: sent.append((weights.weights.toarray() > 0, nbytes)),
    )
    refresh_losses("exchange").apply(models, {}, round)
    wanted = models.flat.sum(1)[:, None] + 1000 * torch.arange(5)
    torch.testing.assert_close(state["losses"], torch.where(pairs, wanted, torch.inf))
    (there, size), (back, number) = sent
    eye = np.eye(5, dtype=bool)
    np.testing.assert_array_equal(there, pairs.T.numpy() | eye)  # j hears i
    np.testing.assert_array_equal(back, pairs.numpy() | eye)
    assert (size, number) == (10 * 8, 8)


def test_infinite_losses_are_not_those_of_the_untried():
    models = models_of(drawn(3))
    state = scored_peers(1, head="1").init(models)
    state["last"][0, 1] = 0
    wild = {
        "cross_evaluate": lambda trials, on: {
            j: torch.tensor([torch.inf]).double() for j in trials
        },
        "send": lambda *_: None,
    }
    refresh_losses("exchange").apply(models, {}, fake(n=3, state=lambda owner: state, **wild))
    assert state["losses"].isfinite().tolist() == [[False, True, False], [False] * 3, [False] * 3]


TRIED = {"selected": 2 * N, "all": N * (N - 1), "none": 0}


@pytest.mark.parametrize("loss_refresh", TRIED)
def test_messages_are_heads_of_all_bodies_of_the_heard_and_models_to_try(loss_refresh):
    clients, model = problems.equal_clients(), problems.convolutional()
    body = sum(p.numel() for name, p in model.named_parameters() if is_body(name))
    algorithm, tried = pfeddst(k=2, loss_refresh=loss_refresh), TRIED[loss_refresh]
    history, _ = engine(algorithm, model, clients, rounds=3)
    assert history["messages"].tolist() == [N * (N - 1) + 2 * N + 2 * tried] * 3
    numbers = N * (N - 1) * 111 + 2 * N * body + tried * (body + 111) + tried
    assert history["bytes"].tolist() == [8 * numbers] * 3
    need = topofl.estimate(
        algorithm, model=model, clients=clients, compute=topofl.Compute(dtype=torch.float64)
    )
    assert (need.messages, need.bytes) == (history["messages"][0], history["bytes"][0])
    assert need.state == 8 * N * N * (1 if loss_refresh == "none" else 2)


def test_an_estimate_counts_most_that_a_threshold_lets_through():
    clients, model = problems.equal_clients(), problems.convolutional()
    need = topofl.estimate(pfeddst(k=None, threshold=1.5), model=model, clients=clients)
    assert need.messages == 4 * N * (N - 1)


def gap_of(matrix):
    """1 minus the second largest modulus of the eigenvalues of a dense matrix, by numpy."""
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix.weights.toarray())))
    return pytest.approx(1 - moduli[-2], abs=1e-9)


def test_learned_graphs_have_the_report_of_all_graphs():
    history, _ = engine(pfeddst(k=2), problems.convolutional(), problems.equal_clients())
    for t in (0, ROUNDS - 1):
        assert topofl.metrics.compare([history.mixing(t)]).column("spectral gap")[0] == gap_of(
            history.mixing(t)
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", -1),
        ("threshold", np.nan),
        ("alpha", -1),
        ("recency_rate", 0),
        ("cost", -0.5),
        ("standardize", "yes"),
        ("header_sign", "both"),
        ("loss_refresh", "never"),
        ("lr", 0),
        ("head_lr", 0),
        ("epochs", 0),
        ("head_epochs", 0),
        ("clip", -1),
    ],
)
def test_bad_values_are_named(name, value):
    with pytest.raises(ValueError, match=f"`{name}`"):
        pfeddst(**{name: value})


def test_what_travels_besides_models_stays_on_the_graph():
    wild = [(mixing.average_of_chosen(np.ones((N, N))), 1)]
    policy = algorithms.Policy(
        lambda *_: algorithms.Choice(mixing.average_of_chosen(np.eye(N)), besides=wild)
    )
    with pytest.raises(ValueError, match="off the edges of circulant"):
        engine(
            algorithms.chain("wild", exchange=average_over_peers(policy)),
            problems.linear(),
            problems.equal_clients(),
            THREE,
        )


def test_heads_are_parts():
    with pytest.raises(TypeError, match="`head`"):
        scored_peers(head=3)
    with pytest.raises(ValueError, match="'hed' matches none"):
        engine(pfeddst(head="hed"), problems.convolutional(), problems.equal_clients())


def test_losses_must_be_refreshed_by_a_phase_that_finds_them():
    body, clients, model = (
        algorithms.part(HEAD).rest,
        problems.equal_clients(),
        problems.convolutional(),
    )
    never = algorithms.chain("never", exchange=average_over_peers(scored_peers(2, head=HEAD), body))
    with pytest.raises(
        ValueError, match="`loss_refresh` must be 'none' where no later phase refreshes losses"
    ):
        engine(never, model, clients)
    without = average_over_peers(scored_peers(2, loss_refresh="none", head=HEAD), body)
    with pytest.raises(
        ValueError, match="`owner` must be a phase that hears peers by losses, 'mix' keeps none"
    ):
        engine(algorithms.chain("lost", mix=without, losses=refresh_losses("mix")), model, clients)
    with pytest.raises(ValueError, match="`loss_refresh`"):
        refresh_losses("mix", "none")
