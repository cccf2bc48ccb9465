"""Exchanges in which attackers send forged models."""

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from tests import problems
from topofl import algorithms, attacks, metrics, mixing, topologies
from topofl.algorithms import Phase, chain, gossip
from topofl.algorithms.exchanges import robust

N, BAD = 6, (1, 4)
GRAPH = topologies.dcliques(np.eye(3, dtype=int)[np.arange(N) % 3], clique_size=3, seed=0)
DENSE = mixing.metropolis_hastings(GRAPH).weights.toarray()
EVERYBODY = attacks.Attack("flip", BAD, lambda sent, bad, weights, rng: -2 * sent)
TO_EACH = attacks.Attack(
    "each",
    BAD,
    lambda sent, bad, weights, rng: sent + weights[:, bad].sum(1, keepdim=True).to(sent),
    to_each=True,
)
DRAWN = attacks.Attack(
    "noise",
    BAD,
    lambda sent, bad, weights, rng: torch.from_numpy(rng.standard_normal(sent.shape)).to(sent),
)


def run(algorithm, **settings):
    kept = []
    options = {
        "model": problems.linear(),
        "clients": problems.equal_clients(N),
        "topology": GRAPH,
        "rounds": 1,
        "seed": 0,
        "init": "independent",
        "dtype": torch.float64,
    } | settings
    start = problems.each_round(lambda t, models: kept.append(models.flat.clone()))
    return topofl.run(
        algorithm, callbacks=[start], progress=False, **problems.options(**options)
    ), kept


def exchange(phase):
    """Return an algorithm that stores the models, exchanges them, and does not train."""
    looking = Phase(
        lambda models: {"before": models.flat.clone()}, lambda models, state, round: state
    )
    return chain("exchange", looking=looking, exchange=phase)


def at_start():
    return run(chain("still", still=Phase(lambda models: {}, lambda models, state, round: state)))[
        1
    ][0]


def attacked(attack, values):
    """Return the mixed models, by loops over receivers and senders."""
    bad = torch.zeros(N, dtype=torch.bool)
    bad[list(BAD)] = True
    forged = attack.forge(values, bad, torch.from_numpy(DENSE), None)
    after = torch.zeros_like(values)
    for i in range(N):
        for j in range(N):
            honest = j not in BAD or i in BAD
            received = values[j] if honest else forged[i] if attack.to_each else forged[j]
            after[i] += DENSE[i, j] * received
    return after


def own_share(own, received, weights):
    return (1 - weights.sum()) * own + (weights[:, None] * received).sum(0)


def aggregate(models, state, round):
    round.aggregate(round.weights, models.flat, own_share)
    return state


PHASES = {"mix": gossip(), "aggregate": Phase(lambda models: {}, aggregate)}


@pytest.mark.parametrize("attack", [EVERYBODY, TO_EACH], ids=lambda attack: attack.name)
@pytest.mark.parametrize("phase", PHASES)
def test_nodes_receive_forged_models(phase, attack):
    got = run(exchange(PHASES[phase]), attackers=attack)[1][-1]
    wanted = attacked(attack, at_start())
    torch.testing.assert_close(
        got, wanted, rtol=0, atol=1e-12
    )  # attackers go on from what they all really hold


def test_attackers_average_their_true_models():
    huge = attacks.Attack(
        "huge", BAD, lambda sent, bad, weights, rng: torch.full_like(sent, torch.inf)
    )
    got = run(exchange(gossip()), attackers=huge, on_divergence="record")[1][-1]
    wanted = torch.from_numpy(DENSE) @ at_start()
    torch.testing.assert_close(got[list(BAD)], wanted[list(BAD)], rtol=0, atol=1e-12)


def test_forged_masks_leave_averages_finite():
    flip = attacks.Attack("flip", BAD, lambda sent, bad, weights, rng: -sent)
    method = algorithms.dispfl(0.01, rounds=4, batch_size=4, epochs=1)
    history, kept = run(method, attackers=flip, rounds=4)
    assert kept[-1].isfinite().all()
    assert np.isfinite(history["train_loss"]).all()


def test_parts_exchanged_separately_get_different_noise():
    drawn = []

    def forge(sent, bad, weights, rng):
        drawn.append(rng.standard_normal(3))
        return sent

    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    method = exchange(gossip(algorithms.part("1", "3")))
    run(method, attackers=attacks.Attack("drawn", BAD, forge), model=model)
    assert len(drawn) == 2
    assert not np.allclose(*drawn)


def test_aggregate_without_attackers_applies_the_rule():
    got, wanted = (run(exchange(PHASES[phase]))[1][-1] for phase in PHASES)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_aggregate_and_mix_count_the_same_messages():
    one, other = (run(exchange(PHASES[phase]))[0] for phase in PHASES)
    for column in ("messages", "bytes", "busiest_bytes"):
        assert one[column].tolist() == other[column].tolist()


def test_a_server_averages_forged_models():
    got = run(algorithms.fedavg(1e-12, epochs=1), attackers=EVERYBODY, topology=None)[1][-1]
    values, sizes = (
        at_start(),
        np.array([len(own) for own in problems.equal_clients(N).train], dtype=float),
    )
    sent = torch.stack([-2 * row if i in BAD else row for i, row in enumerate(values)])
    wanted = (torch.from_numpy(sizes / sizes.sum())[:, None] * sent).sum(0)
    torch.testing.assert_close(got, wanted.expand_as(got), rtol=0, atol=1e-9)


def test_attackers_are_neither_evaluated_nor_counted():
    history, kept = run(algorithms.dsgd(0.1, batch_size=4), attackers=EVERYBODY, rounds=3)
    assert np.isnan(history["accuracy"][:, list(BAD)]).all()
    honest = np.setdiff1d(np.arange(N), BAD)
    assert np.isfinite(history["accuracy"][:, honest]).all()
    assert history.meta["attackers"] == {"name": "flip", "nodes": list(BAD)}
    assert history["consensus_distance"][-1] == pytest.approx(
        float(metrics.consensus_distance(kept[-1][honest]))
    )


def test_policies_see_published_models():
    seen = []

    def looked(models, state, round):
        seen.append(models.flat.clone())
        return algorithms.Choice(mixing.average_of_chosen(~np.eye(N, dtype=bool)))

    run(
        chain(
            "looked", average_over_peers=algorithms.average_over_peers(algorithms.Policy(looked))
        ),
        attackers=EVERYBODY,
        topology=None,
    )
    values = at_start()
    torch.testing.assert_close(seen[-1][[0, 2, 3, 5]], values[[0, 2, 3, 5]])
    torch.testing.assert_close(seen[-1][list(BAD)], -2 * values[list(BAD)])


def test_noise_depends_on_the_round_and_is_resumed(tmp_path):
    method = algorithms.dsgd(0.1, batch_size=4)
    whole = run(method, attackers=DRAWN, rounds=6)[1]
    run(method, attackers=DRAWN, rounds=3, saving=tmp_path)
    resumed = run(method, attackers=DRAWN, rounds=6, saving=topofl.Saving(tmp_path, resume=True))[1]
    assert torch.equal(whole[-1], resumed[-1])
    assert not torch.equal(whole[-1], run(method, rounds=6)[1][-1])
    with pytest.raises(ValueError, match="attackers"):
        run(method, attackers=EVERYBODY, rounds=7, saving=topofl.Saving(tmp_path, resume=True))


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"attackers": "flip"}, TypeError, "`attackers` must be an Attack"),
        (
            {"attackers": attacks.Attack("far", (6,), EVERYBODY.forge)},
            ValueError,
            "some of the nodes 0 to 5",
        ),
        (
            {"attackers": attacks.Attack("all", range(6), EVERYBODY.forge)},
            ValueError,
            "at least one honest node",
        ),
        (
            {"attackers": attacks.Attack("short", BAD, lambda sent, *_: sent[:, :1])},
            ValueError,
            "a tensor of shape",
        ),
        (
            {"attackers": attacks.Attack("writes", BAD, lambda sent, *_: sent.mul_(2))},
            ValueError,
            "must not change",
        ),
        (
            {"algorithm": algorithms.clique_averaging(0.1), "attackers": EVERYBODY},
            ValueError,
            "cannot be forged",
        ),
        (
            {"algorithm": algorithms.relay_sgd(0.1), "attackers": EVERYBODY},
            ValueError,
            "no attack can forge",
        ),
        (
            {"algorithm": algorithms.ad_psgd(0.1), "attackers": TO_EACH},
            ValueError,
            "must send the same to all",
        ),
        (
            {"algorithm": algorithms.fedavg(0.1), "attackers": TO_EACH},
            ValueError,
            "which has a server",
        ),
        (
            {"algorithm": algorithms.centralized(0.1), "attackers": EVERYBODY},
            ValueError,
            "nodes exchange nothing",
        ),
    ],
)
def test_invalid_attacks_are_refused(change, error, match):
    with pytest.raises(error, match=match):
        run(**{"algorithm": algorithms.dsgd(0.1)} | change)


@pytest.mark.parametrize("nodes", [(), (1, 1), (-1,), ("a",), 3])
def test_attackers_must_be_distinct_nodes(nodes):
    with pytest.raises((ValueError, TypeError), match="`nodes`"):
        attacks.Attack("flip", nodes, EVERYBODY.forge)


def test_rules_must_return_a_row():
    def short(own, received, weights):
        return own[:2]

    def apply(models, state, round):
        round.aggregate(round.weights, models.flat, short)
        return state

    with pytest.raises(
        ValueError, match="`rule` of the phase 'exchange' must return a row of shape"
    ):
        run(exchange(Phase(lambda models: {}, apply)))


def aggregating(rule):
    def apply(models, state, round):
        round.aggregate(round.weights, models.flat, rule)
        return state

    return exchange(Phase(lambda models: {}, apply))


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (
            "median",
            TypeError,
            r"`rule` of round.aggregate must be a function .* "
            r"got 'median' in the phase 'exchange'; give",
        ),
        (
            lambda own, received: own,
            TypeError,
            r"`rule` of the phase 'exchange' .* \(own, received, weights\), got one of \(own, r",
        ),
        (
            lambda own, received, weights: own if own.sum() > 0 else -own,
            ValueError,
            "`rule` of .* rows without numbers, .*where",
        ),
        (
            lambda own, received, weights: torch.from_numpy(own.numpy()),
            ValueError,
            "`rule` of .* rows without numbers, .*where",
        ),
    ],
    ids=["text", "two arguments", "branch", "numpy"],
)
def test_errors_name_rules_that_fail_in_the_dry_run(rule, error, message):
    with pytest.raises(error, match=message):
        run(aggregating(rule))


def test_rules_must_not_change_own_in_place():
    """Other nodes still have to receive a node's own row."""

    def at_once(own, received, weights):
        return own.add_((weights[:, None] * received).sum(0))

    def later(own, received, weights):
        return own + 1 if own.is_meta else at_once(own, received, weights)

    for rule in (at_once, later):
        with pytest.raises(ValueError, match=r"'exchange' must not change `own` in place"):
            run(aggregating(rule))


def test_rules_may_change_received_rows_in_place():
    def in_place(own, received, weights):
        return (1 - weights.sum()) * own + received.mul_(weights[:, None]).sum(0)

    got, wanted = (run(aggregating(rule))[1][-1] for rule in (in_place, own_share))
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "rule", ["median", lambda own, received: own], ids=["text", "two arguments"]
)
def test_aggregate_requires_a_rule(rule):
    message = r"`rule` must be a function of \(own, received, weights\), got"
    with pytest.raises(TypeError, match=message):
        robust.aggregate(rule)


def test_forge_takes_four_arguments():
    with pytest.raises(
        TypeError,
        match=r"`forge` of the attack 'mine' .* \(sent, bad, weights, rng\), got one of \(sent\)",
    ):
        attacks.Attack("mine", (0,), lambda sent: sent)


def test_forged_models_have_the_shape_of_models():
    short = attacks.Attack("mine", (0,), lambda sent, bad, weights, rng: sent[:1])
    with pytest.raises(
        ValueError, match=r"`forge` of the attack 'mine' must return a tensor of shape .* got shape"
    ):
        run(exchange(gossip()), attackers=short)


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (torch.zeros(4), r"a tensor of shape \(4,\)"),
        (np.zeros(3), r"an array of shape \(3,\)"),
        ("far", "'far'"),
        (None, "None"),
    ],
    ids=["tensor", "array", "text", "None"],
)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
def test_only_numbers_and_values_per_node_can_be_noted(value, got, late):
    def apply(models, state, round):
        round.note("far", 0.0 if late and models.flat.is_meta else value)
        return state

    message = (
        rf"`value` of round.note must be one real number, or one per node, \(6,\), got {got} as "
        "'far' in the phase 'exchange'; note"
    )
    with pytest.raises(ValueError, match=message):
        run(exchange(Phase(lambda models: {}, apply)))


@pytest.mark.parametrize("value", [torch.ones(1), np.ones(1), np.ones((1, 1)), np.float32(1), True])
def test_arrays_and_tensors_of_one_number_can_be_noted(value):
    def apply(models, state, round):
        round.note("far", value)
        return state

    assert run(exchange(Phase(lambda models: {}, apply)))[0]["far"].tolist() == [1.0]


def test_more_attackers_than_tolerated_raise_a_warning():
    def many(weights, bad):
        return f"{bad.sum()} of 1" if bad.sum() > 1 else ""

    limit = algorithms.Need("robust", "few attackers", "take fewer", attacked=many)
    method = chain("mine", exchange=gossip(), needs=[limit])
    with pytest.warns(
        UserWarning, match="`attackers` are more than mine tolerates: 2 of 1"
    ) as told:
        run(method, attackers=EVERYBODY)
    assert [one.filename for one in told] == [__file__]
    run(method, attackers=attacks.Attack("flip", (1,), EVERYBODY.forge))
