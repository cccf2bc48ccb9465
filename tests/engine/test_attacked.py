"""Exchanges in which attackers send forged models."""

import numpy as np
import pytest
import torch
from torch import nn

from tests import problems
from tests.engine import runs
from topofl import algorithms, attacks, metrics, mixing, topologies
from topofl.algorithms import Phase, chain, gossip

N, BAD = 6, (1, 4)
GRAPH = topologies.dcliques(np.eye(3, dtype=int)[np.arange(N) % 3], clique_size=3, seed=0)
DENSE = mixing.metropolis_hastings(GRAPH).weights.toarray()
EVERYBODY = attacks.Attack("flip", BAD, lambda sent, bad, weights, rng: -2 * sent)


def moved(sent, bad, weights, rng):
    return sent + weights[:, bad].sum(1, keepdim=True).to(sent)


TO_EACH = attacks.Attack("each", BAD, moved, to_each=True)


def run(algorithm, **settings):
    usual = {"topology": GRAPH, "rounds": 1, "init": "independent", "dtype": torch.float64}
    return runs.run(algorithm, **usual | settings)


def phase_of(use):
    """Return a phase that calls ``use(models, round)``."""

    def apply(models, state, round):
        use(models, round)
        return state

    return Phase(lambda models: {}, apply)


def models_after(phase, **settings):
    """Return the models after one round of a phase that exchanges, without training."""
    return run(chain("exchange", exchange=phase), **settings).models.flat


def at_start():
    return models_after(phase_of(lambda models, round: None))


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


def aggregating(rule):
    return phase_of(lambda models, round: round.aggregate(round.weights, models.flat, rule))


PHASES = {"mix": gossip(), "aggregate": aggregating(own_share)}


@pytest.mark.parametrize("attack", [EVERYBODY, TO_EACH], ids=lambda attack: attack.name)
@pytest.mark.parametrize("phase", PHASES)
def test_nodes_receive_forged_models(phase, attack):
    got = models_after(PHASES[phase], attackers=attack)
    wanted = attacked(attack, at_start())  # attackers go on from what they all really hold
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_attackers_average_their_true_models():
    huge = attacks.Attack("huge", BAD, lambda sent, *_: torch.full_like(sent, torch.inf))
    got = models_after(gossip(), attackers=huge, on_divergence="record")
    wanted = torch.from_numpy(DENSE) @ at_start()
    torch.testing.assert_close(got[list(BAD)], wanted[list(BAD)], rtol=0, atol=1e-12)


def test_forged_masks_leave_averages_finite():
    flip = attacks.Attack("flip", BAD, lambda sent, bad, weights, rng: -sent)
    method = algorithms.dispfl(0.01, rounds=4, batch_size=4, epochs=1)
    history = run(method, attackers=flip, rounds=4)
    assert history.models.flat.isfinite().all()
    assert np.isfinite(history["train_loss"]).all()


def test_parts_exchanged_separately_get_different_noise():
    drawn = []

    def forge(sent, bad, weights, rng):
        drawn.append(rng.standard_normal(3))
        return sent

    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    drawing = attacks.Attack("drawn", BAD, forge)
    models_after(gossip(algorithms.part("1", "3")), attackers=drawing, model=model)
    assert len(drawn) == 2
    assert not np.allclose(*drawn)


def test_without_attackers_aggregate_and_mix_are_the_same():
    one, other = (run(chain("exchange", exchange=phase)) for phase in PHASES.values())
    torch.testing.assert_close(one.models.flat, other.models.flat, rtol=0, atol=1e-12)
    for column in ("messages", "bytes", "busiest_bytes"):
        assert one[column].tolist() == other[column].tolist()


def test_a_server_averages_forged_models():
    history = run(algorithms.fedavg(1e-12, epochs=1), attackers=EVERYBODY, topology=None)
    got = history.models.flat
    sizes = torch.tensor([*map(len, problems.equal_clients(N).train)], dtype=torch.float64)
    sent = torch.stack([-2 * row if i in BAD else row for i, row in enumerate(at_start())])
    wanted = (sizes / sizes.sum()) @ sent
    torch.testing.assert_close(got, wanted.expand_as(got), rtol=0, atol=1e-9)


def test_attackers_are_neither_evaluated_nor_counted():
    history = run(algorithms.dsgd(0.1, batch_size=4), attackers=EVERYBODY, rounds=3)
    assert np.isnan(history["accuracy"][:, list(BAD)]).all()
    honest = np.setdiff1d(np.arange(N), BAD)
    assert np.isfinite(history["accuracy"][:, honest]).all()
    assert history.meta["attackers"] == {"name": "flip", "nodes": list(BAD)}
    assert history["consensus_distance"][-1] == pytest.approx(
        float(metrics.consensus_distance(history.models.flat[honest]))
    )


def test_policies_see_published_models():
    seen = []

    def looked(models, state, round):
        seen.append(models.flat.clone())
        return algorithms.Choice(mixing.average_of_chosen(~np.eye(N, dtype=bool)))

    exchange = algorithms.average_over_peers(algorithms.Policy(looked))
    models_after(exchange, attackers=EVERYBODY, topology=None)
    values = at_start()
    torch.testing.assert_close(seen[-1][[0, 2, 3, 5]], values[[0, 2, 3, 5]])
    torch.testing.assert_close(seen[-1][list(BAD)], -2 * values[list(BAD)])


def test_rules_may_change_received_rows_in_place():
    def in_place(own, received, weights):
        return (1 - weights.sum()) * own + received.mul_(weights[:, None]).sum(0)

    got, wanted = (models_after(aggregating(rule)) for rule in (in_place, own_share))
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [torch.ones(1), np.ones(1), np.ones((1, 1)), np.float32(1), True])
def test_arrays_and_tensors_of_one_number_can_be_noted(value):
    noting = phase_of(lambda models, round: round.note("far", value))
    assert run(chain("noting", noting=noting))["far"].tolist() == [1.0]


def test_more_attackers_than_tolerated_raise_a_warning():
    def many(weights, bad):
        return f"{bad.sum()} of 1" if bad.sum() > 1 else ""

    limit = algorithms.Need("robust", "few attackers", "take fewer", attacked=many)
    method = chain("mine", exchange=gossip(), needs=[limit])
    message = "`attackers` are more than mine tolerates: 2 of 1"
    with pytest.warns(UserWarning, match=message) as told:
        run(method, attackers=EVERYBODY)
    assert [one.filename for one in told] == [runs.__file__]
    run(method, attackers=attacks.Attack("flip", (1,), EVERYBODY.forge))


ASYNCHRONOUS = [
    ("fedasync", {"steps": 1}),
    ("fedbuff", {"steps": 1, "concurrency": 2}),
    ("ad_psgd", {}),
    ("random_walks", {"walks": 2}),
]


@pytest.mark.parametrize(("name", "settings"), ASYNCHRONOUS)
def test_attackers_draw_anew_for_each_message_of_an_asynchronous_round(name, settings):
    drawn = []

    def forge(sent, bad, weights, rng):
        drawn.append(float(rng.standard_normal()))
        return sent

    clock = {"compute": [0.1, 1.0, 1.0, 1.0, 1.0, 1.0]}  # node 0 sends often
    method = getattr(algorithms, name)(lr=0.1, batch_size=2, clock=clock, **settings)
    attack = attacks.Attack("counting", BAD, forge)
    run(method, attackers=attack, rounds=2, init="common")
    assert len(drawn) > 4
    assert len(set(drawn)) == len(drawn)
