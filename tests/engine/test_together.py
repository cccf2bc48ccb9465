"""Runs that are trained together: each has the bits of its run alone, or they are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests import problems
from tests.contracts.test_methods import build, clients_of, model_of
from tests.rows.methods import ALGORITHMS
from topofl import Compute, Evaluation, algorithms, attacks, data, mixing, topologies
from topofl._support.seeding import plain_torch
from topofl.engine.divergence import DivergenceError
from topofl.engine.options import Saving
from topofl.engine.requests import NotTogether
from topofl.engine.run import run_of, run_together
from topofl.engine.setup import resolve
from topofl.engine.together import joined

TOGETHER = {
    *(
        "bulyan",
        "centralized",
        "clipped_gossip",
        "coordinate_median",
        "d2",
        "dinno",
        "dadam",
        "demuon",
        "dfedavgm",
        "dfedavgm_p",
    ),
    *(
        "dfedpgp",
        "dfedsam",
        "dsgd",
        "dsgt",
        "edm",
        "extra",
        "geometric_median",
        "gt_hsgd",
        "krum",
        "led",
        "local_gt",
        "local_only",
        "noloco",
        "osgp",
        "push_diging",
    ),
    "momentum_tracking",
    *("qg_dsgdm", "sab", "self_centered_clipping", "trimmed_mean"),
}
"""Methods whose phases work on the rows of some of the nodes, and ask for no more than weights."""


BLOBS = problems.dataset()


def setup(algorithm=None, seed=0, graph=None, clients=None, model=None, **changes):
    """Return the checked arguments of a short run."""
    clients = clients or data.iid(BLOBS, 6, seed=seed)
    usual = {"evaluation": Evaluation(every=2), "compute": Compute(on_disconnected="allow")}
    return resolve(
        algorithm or algorithms.dsgd(lr=0.1, batch_size=4),
        model=model or problems.linear(),
        clients=clients,
        topology=graph or topologies.ring(6),
        **{"rounds": 5, "seed": seed} | usual | changes,
    )


def several(algorithm=None, **changes):
    """Return runs that differ in seed, partition and graph: two static ones, and a sequence."""
    graphs = (
        topologies.ring(6),
        topologies.fully_connected(6),
        topologies.random_regular_sequence(6, 2, seed=1),
    )
    return [setup(algorithm, seed, graph, **changes) for seed, graph in enumerate(graphs)]


def alone(setups):
    with plain_torch():
        return [run_of(one, Saving(), [], False) for one in setups]


def together(setups, callbacks=()):
    with plain_torch():
        return run_together(setups, callbacks)


def check_equal(found, wanted):
    """Check that two histories have the same columns, matrices and settings, to the last bit."""
    assert found.meta == wanted.meta
    assert list(found.rounds) == list(wanted.rounds)
    assert list(found.evaluations) == list(wanted.evaluations)
    for name in (*wanted.rounds, *wanted.evaluations):
        np.testing.assert_array_equal(found[name], wanted[name])
    np.testing.assert_array_equal(found.node_loss, wanted.node_loss)
    for t in range(
        wanted.n_rounds if "messages" in wanted.rounds and wanted["messages"].any() else 0
    ):
        ours, theirs = found.mixing(t), wanted.mixing(t)
        assert ours.name == theirs.name
        np.testing.assert_array_equal(ours.weights.toarray(), theirs.weights.toarray())


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_each_run_has_the_bits_of_its_run_alone_or_its_method_is_refused(name):
    clients = clients_of(name)
    given = {"model": model_of(name), "clients": clients, "graph": problems.cliques(clients)}
    setups = [setup(build(name), seed, **given) for seed in range(2)]
    if name not in TOGETHER:
        with pytest.raises(NotTogether):
            joined(setups)
        return
    for found, wanted in zip(together(setups), alone(setups), strict=True):
        check_equal(found, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("init", ["common", "independent"])
def test_runs_may_differ_in_seeds_partitions_graphs_and_weights(dtype, init):
    compute = Compute(dtype=dtype, on_disconnected="allow")
    setups = several(init=init, compute=compute)
    setups += [setup(seed=7, mixing=mixing.max_degree, init=init, compute=compute)]
    found, wanted = together(setups), alone(setups)
    for one, other in zip(found, wanted, strict=True):
        check_equal(one, other)
    assert len({one["loss"][-1].sum() for one in found}) == len(found)


@pytest.mark.parametrize("init", ["common", "independent"])
@pytest.mark.parametrize(
    "how",
    [
        {"on": "own_test"},
        {"on": ["test", "own_test"]},
        {"nodes": 2},
        {"without": ["consensus_distance"]},
    ],
)
def test_evaluations_on_some_examples_or_nodes_have_the_bits_of_each_run(how, init):
    parts = [data.match_test(data.iid(BLOBS, 6, seed=k), rule="disjoint") for k in range(3)]
    evaluation = Evaluation(every=2, **how)
    setups = [
        setup(clients=one, seed=k, evaluation=evaluation, init=init) for k, one in enumerate(parts)
    ]
    for found, wanted in zip(together(setups), alone(setups), strict=True):
        check_equal(found, wanted)


def test_nodes_that_diverge_are_frozen_in_their_run_alone():
    compute = Compute(on_divergence="freeze", on_disconnected="allow")
    clients = data.iid(BLOBS, 6, seed=1)
    inputs = BLOBS.inputs.clone()
    inputs[clients.train[2][0]] = -3e38
    broken = replace(clients, dataset=replace(BLOBS, inputs=inputs))
    fine = replace(broken, train=[broken.train[k] for k in (0, 1, 3, 4, 5, 0)], overlapping=True)
    setups = [setup(clients=one, seed=k, compute=compute) for k, one in enumerate([fine, broken])]
    found, wanted = together(setups), alone(setups)
    for one, other in zip(found, wanted, strict=True):
        check_equal(one, other)
    assert [len(one.meta["diverged"]) > 0 for one in found] == [False, True]
    assert found[1].meta["diverged"][0]["node"] == 2


def test_one_that_diverges_ends_all():
    with pytest.raises(DivergenceError):
        together(several(algorithms.dsgd(lr=1e38, batch_size=4)))


def test_events_have_all_nodes_and_means_over_the_runs():
    events = []
    found = together(several(), [events.append])
    kinds = [event.kind for event in events]
    assert kinds == [
        "start",
        "evaluation",
        *["round", "round", "evaluation"] * 2,
        "round",
        "evaluation",
        "end",
    ]
    last = next(event for event in reversed(events) if event.kind == "evaluation")
    accuracy = np.mean([history["accuracy"][-1].mean() for history in found])
    assert last.values["accuracy_mean"] == pytest.approx(accuracy)
    assert len(last.models.flat) == 18


def uneven():
    """Return clients of which one has fewer examples than in other runs."""
    clients = data.iid(BLOBS, 6, seed=0)
    return replace(clients, train=[*clients.train[:5], clients.train[5][:3]])


REFUSED = {
    "`rounds`": lambda: setup(rounds=6),
    "`init`": lambda: setup(init="independent"),
    "`evaluation`": lambda: setup(evaluation=Evaluation(every=1)),
    "`compute`": lambda: setup(compute=Compute(dtype=torch.float64, on_disconnected="allow")),
    "different datasets": lambda: setup(clients=data.iid(problems.dataset(seed=1), 6, seed=0)),
    "algorithm": lambda: setup(algorithms.dsgd(lr=0.2, batch_size=4)),
    "model": lambda: setup(model=problems.perceptron()),
    "number of nodes": lambda: setup(clients=data.iid(BLOBS, 5, seed=0), graph=topologies.ring(5)),
    "numbers of examples": lambda: setup(clients=uneven()),
    "stages": lambda: setup(evaluation=Evaluation(every=2, before_exchange=True)),
    "attackers": lambda: setup(attackers=attacks.sign_flip([0])),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_runs_that_differ_in_other_settings_are_refused(reason):
    other = REFUSED[reason]()
    first = replace(other) if reason == "stages" else setup()
    with pytest.raises(NotTogether, match=reason):
        joined([first, other])


def own_graph(models, state, round):
    """Mix by weights of a graph that is not the round's."""
    round.mix(mixing.uniform(topologies.ring(18)), models)
    return state


PHASES = {
    "mixing matrices of its own": own_graph,
    "all nodes of a run": lambda models, state, round: [models.flat.mul_(round.n), state][1],
    "more than weights": lambda models, state, round: [round.send(round.weights, 1), state][1],
}


@pytest.mark.parametrize("reason", PHASES)
def test_phases_that_may_join_the_runs_are_refused(reason):
    own = algorithms.chain(
        "own", own=algorithms.Phase(lambda models: {}, PHASES[reason], rowwise=True)
    )
    with pytest.raises(NotTogether, match=reason):
        joined(several(own))


def test_phases_with_a_state_that_nodes_share_or_that_are_not_rowwise_are_refused():
    phase = algorithms.Phase(
        lambda models: {"mean": models.flat.mean(0, keepdim=True)}, lambda m, s, r: s
    )
    for reason, rowwise in {"not rowwise": False, "state that nodes share": True}.items():
        own = algorithms.chain("own", own=phase._replace(rowwise=rowwise))
        with pytest.raises(NotTogether, match=reason):
            joined(several(own))


@pytest.mark.parametrize("name", ["osgp", "push_diging"])
def test_runs_of_which_some_divide_no_steps_by_push_sum_weights_are_refused(name):
    graphs = topologies.ring(6), topologies.star(6)
    given = {"model": model_of(name), "clients": clients_of(name)}
    setups = [setup(build(name), graph=graph, **given) for graph in graphs]
    with pytest.raises(NotTogether, match="push-sum weights"):
        together(setups)
    same = [setup(build(name), seed, graphs[1], **given) for seed in range(2)]
    for found, wanted in zip(together(same), alone(same), strict=True):
        check_equal(found, wanted)
