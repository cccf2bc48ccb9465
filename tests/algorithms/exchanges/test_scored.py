"""PFedDST equals its loop in all executors; its messages and errors."""

import numpy as np
import pytest
import torch

import topofl
from tests import naive, problems
from tests.algorithms.exchanges.pfeddst_runs import drawn, fake, models_of
from tests.algorithms.exchanges.test_greedy import received
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
from topofl import algorithms, mixing, topologies
from topofl._support.seeding import stream
from topofl.algorithms import average_over_peers, refresh_losses, scored_peers
from topofl.topologies.collaboration import answer_queries

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
    """Return options and the results of the loop, computed once for all executors."""
    return request.param, *loop(
        problems.convolutional(), problems.ragged_clients(), EVERYBODY, request.param
    )


@HOW
def test_pfeddst_equals_its_loop(looped, settings):
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
def test_linear_models_are_evaluated_together(settings):
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


def test_every_peer_is_chosen_once_before_any_is_chosen_again():
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


def test_losses_are_stored_per_pair():
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
    np.testing.assert_array_equal(there, pairs.T.numpy() | eye)  # j receives from i
    np.testing.assert_array_equal(back, pairs.numpy() | eye)
    assert (size, number) == (10 * 8, 8)


def test_infinite_losses_differ_from_untried_ones():
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
def test_messages_count_heads_bodies_and_models_to_evaluate(loss_refresh):
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


def test_extra_messages_stay_on_the_graph():
    wild = [(mixing.average_of_chosen(np.ones((N, N))), 1)]
    policy = algorithms.Policy(
        lambda *_: algorithms.Choice(mixing.average_of_chosen(np.eye(N)), extra_messages=wild)
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


def test_refreshing_needs_a_phase_with_losses():
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
        ValueError,
        match="`owner` must be a phase that scores peers by losses, but 'mix' has none",
    ):
        engine(algorithms.chain("lost", mix=without, losses=refresh_losses("mix")), model, clients)
    with pytest.raises(ValueError, match="`loss_refresh`"):
        refresh_losses("mix", "none")
