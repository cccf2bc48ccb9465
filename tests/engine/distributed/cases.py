"""Runs that must give the same results on any number of ranks."""

from functools import partial
from itertools import combinations

import numpy as np
import torch

import topofl
from tests import problems
from tests.engine.killed import settings
from tests.engine.train.test_divergence import clients_with_extremes
from tests.rows.methods import ALGORITHMS
from topofl import algorithms, attacks, data, topologies
from topofl.algorithms.exchanges import robust
from topofl.algorithms.exchanges.peers import can_receive

ROUNDS = 4

AMPLIFYING = 1e-8
"""Tolerance for the perceptron with group norm, in float64.

Its executors, which only round differently, differ by 4e-9 in one process.
"""

TOLERANCE = 1e-10
"""Tolerance for all other runs, in float64."""


def plain(name, **changes):
    """Return the arguments of a run of an algorithm, as for runs that are killed."""
    how = settings(name) | {"rounds": ROUNDS, "every": 2, "dtype": torch.float64}
    return how | {"on_disconnected": "allow"} | changes


def mean_of_all(models, state, round):
    """Replace models by their mean and noise without any method of the round, as users might."""
    noise = round.rng("noise").standard_normal(models.flat.shape)
    mean = models.flat.mean(0, keepdim=True).expand_as(models.flat)
    models.flat.lerp_(mean, 0.5).add_(torch.from_numpy(noise), alpha=0.01)
    state["moved"] = state["moved"] + next(iter(round.state("local").values())).sum(0)
    round.note("spread", models.flat.std())
    return state


def users_phase():
    phase = algorithms.Phase(lambda models: {"moved": models.flat[0].clone()}, mean_of_all)
    local = algorithms.sgd(0.1, batch_size=4, momentum=0.9)
    return algorithms.chain("user's", local=local, exchange=phase, gossip=algorithms.gossip())


def noisy_phase():
    """Return a phase that draws the noise of all nodes at once."""

    def add_noise(models, state, round):
        noise = round.rng("noise").standard_normal(models.flat.shape)
        models.flat.add_(torch.from_numpy(noise), alpha=0.01)
        return state

    return algorithms.Phase(lambda models: {}, add_noise)


def length(models, round):
    return models.flat.norm(dim=1)


def noting_phases():
    """Return phases that note values per node, with the rows of a rank and with all of them."""

    def own(models, state, round):
        round.note("own", models.flat.norm(dim=1))
        return state

    def whole(models, state, round):
        round.note("whole", models.flat.norm(dim=1))
        round.note("index", np.arange(round.n))
        return state

    return algorithms.chain(
        "noting", local=algorithms.sgd(0.1, batch_size=4), gossip=algorithms.gossip(),
        own=algorithms.Phase(lambda models: {}, own, rowwise=True),
        whole=algorithms.Phase(lambda models: {}, whole),
    )  # fmt: skip


def users_policy():
    def nearest(models, state, round):
        state["times"] += 1
        distances = torch.cdist(models.flat, models.flat).fill_diagonal_(torch.inf)
        distances[~can_receive(round.peers)] = torch.inf
        chosen = torch.zeros_like(distances).scatter_(1, distances.argmin(1)[:, None], 1)
        return algorithms.Choice(topofl.mixing.average_of_chosen(chosen))

    policy = algorithms.Policy(nearest, lambda models: {"times": torch.zeros(len(models.flat))})
    return algorithms.chain(
        "nearest", local=algorithms.sgd(0.1), exchange=algorithms.average_over_peers(policy)
    )


def median(own, received, weights):
    return torch.cat([own[None], received]).median(0).values


def ensemble(models, round):
    """Return the mean model, gossiped and trained on: a stage that uses most of a round."""
    copy = models.like(models.flat.mean(0).expand(round.n, -1).clone())
    round.mix(round.weights, copy.flat)
    training = algorithms.Training(algorithms.descend(lr=0.1), 4)
    round.train(copy, training, {})
    return copy


def changing():
    return topofl.as_topology(lambda t: topologies.random_regular(6, 3, seed=t))


def unequal_groups():
    """Return groups of four and of two nodes, which two ranks hold."""
    return topofl.as_topology([*combinations(range(4), 2), (4, 5)])


def tested_clients():
    return data.iid(problems.dataset(), 6, seed=0, test_fraction=0.3)


def of_rule():
    exchange = robust.aggregate(median)
    return algorithms.chain("median", local=algorithms.sgd(0.1), exchange=exchange)


ATTACKS = {
    "sign_flip": attacks.sign_flip(nodes=[1, 4]),
    "noise": attacks.noise(nodes=[1, 4], std=0.1),
    "alie": attacks.alie(nodes=[1, 4]),
    "dissensus": attacks.dissensus(nodes=[1, 4], strength=1.0),
}

ATTACKED = {
    f"{name} against {method}": partial(plain, method, attackers=attack)
    for name, attack in ATTACKS.items()
    for method in ("dsgd", "coordinate_median", "fedavg", "dpfl", "ad_psgd")
    if name != "dissensus" or method == "dsgd"
}

IN_FLOAT32 = ("a node freezes", "numbers become infinite")
"""Runs with numbers too large for float32."""

MORE = {
    "graphs change": lambda: plain("dsgd", topology=changing()),
    "graphs repeat": lambda: plain("push_diging", topology=topologies.one_peer_exponential(6)),
    "complete graph": lambda: plain("dsgd", topology=topologies.fully_connected(6)),
    "two components": lambda: plain(
        "dsgd", topology=topofl.as_topology([(0, 4), (4, 2), (1, 5), (2, 3)])
    ),
    "delayed push-sum": lambda: plain(
        "osgp", algorithm=algorithms.osgp(0.05, batch_size=4, epochs=1, delay=2)
    ),
    "user's phase": lambda: plain("dsgd", algorithm=users_phase()),
    "values per node": lambda: plain(
        "dsgd", algorithm=noting_phases(), per_node={"length": length}
    ),
    "user's policy": lambda: plain("dsgd", algorithm=users_policy()),
    "path": lambda: plain("dsgd", topology=topofl.as_topology([(k, k + 1) for k in range(5)])),
    "a group is on one rank": lambda: plain("dsgd", topology=unequal_groups()),
    "masks on unequal ranks": lambda: plain("dispfl", topology=unequal_groups()),
    "user's fine-tuning": lambda: plain("dsgd", fine_tune=noisy_phase()),
    "user's rule": lambda: plain("dsgd", algorithm=of_rule()),
    "own tests and user's stage": lambda: plain(
        "dsgd", clients=tested_clients(), on=("own_test", "test"), also={"ensemble": ensemble},
        before_exchange=True, fine_tune=algorithms.sgd(0.1, epochs=1), fine_tune_every=2,
    ),
    "some nodes are evaluated": lambda: plain("knn_per", nodes=2),
    "nothing is evaluated": lambda: plain("osgp", on=()),
    "ragged clients": lambda: plain("fedavg", clients=problems.ragged_clients()),
    "a node freezes": lambda: plain(
        "dsgd", clients=clients_with_extremes(), on_divergence="freeze", dtype=torch.float32,
    ),
    "numbers become infinite": lambda: plain(
        "local_only", clients=clients_with_extremes(), on_divergence="record", dtype=torch.float32,
    ),
    "simulated clock": lambda: plain(
        "dsgd", algorithm=algorithms.timed(algorithms.dsgd(0.1), {"compute": [1, 2, 3, 1, 2, 3]})
    ),
    "looped": lambda: plain("dfedsam", executor="looped", model=problems.convolutional()),
    "batched": lambda: plain(
        "dsgd", executor="batched", chunk=2, model=problems.convolutional()
    ),
    "own validation": lambda: plain("dpfl", on="own_val", topology=None),
}  # fmt: skip

CASES = {name: partial(plain, name) for name in ALGORITHMS} | ATTACKED | MORE
"""Functions that return the arguments of runs, by name."""


def arguments_of(case):
    """Return the arguments of a case."""
    return CASES[case]()


def tolerance_of(case):
    """Return the tolerance of models and columns, relative above 1 and else absolute."""
    if case in IN_FLOAT32:
        return 1e-4
    amplifies = isinstance(arguments_of(case)["model"][-2], torch.nn.Identity)
    return AMPLIFYING if amplifies else TOLERANCE
