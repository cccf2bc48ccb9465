"""Runs for what holds for every run: each method once, and what else a run may be made of.

A row is a function that returns the arguments of ``topofl.run``, in which those of an Evaluation
and a Compute are given by name.
"""

from functools import partial
from itertools import combinations

import networkx as nx
import numpy as np
import torch
from torch import nn

import topofl
from tests import problems
from tests.engine.train.test_divergence import clients_with_extremes
from tests.rows import tasks
from tests.rows.methods import ALGORITHMS
from topofl import algorithms, attacks, data, mixing, models, topologies
from topofl._support.seeding import seeded_torch
from topofl.algorithms.exchanges.peers import can_receive

ROUNDS = 5


def of_method(name="dsgd", **changes):
    """Return the arguments of a run of a method on six nodes, with those that replace them."""
    row = ALGORITHMS[name]
    clients = problems.validated_clients() if row.validated else problems.equal_clients()
    given = {**row.required, **row.killed}
    personal = bool({"head", "local"} & given.keys())
    return {
        "algorithm": getattr(algorithms, name)(lr=0.1, batch_size=4, **given),
        "model": problems.perceptron() if personal else problems.linear(),
        "clients": clients,
        "topology": problems.cliques(clients),
        "init": "common" if row.common_start else "independent",
        "rounds": ROUNDS,
        "every": 2,
        "seed": 0,
        "device": "cpu",
        "on_disconnected": "allow",
        # auto chooses by the clock, which no two runs share, unless the model is linear
        "executor": "looped" if personal else "auto",
    } | changes


def mean_of_all(models, state, round):
    """Replace models by their mean and noise without any method of the round, as users might."""
    noise = round.rng("noise").standard_normal(models.flat.shape)
    mean = models.flat.mean(0, keepdim=True).expand_as(models.flat)
    models.flat.lerp_(mean, 0.5).add_(torch.from_numpy(noise).to(models.flat), alpha=0.01)
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
        models.flat.add_(torch.from_numpy(noise).to(models.flat), alpha=0.01)
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
        if round.t % 2 or models.flat.is_meta:
            round.note("odd", round.t)
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
        return algorithms.Choice(mixing.average_of_chosen(chosen))

    policy = algorithms.Policy(
        nearest, lambda models: {"times": torch.zeros_like(models.flat[:, 0])}
    )
    return algorithms.chain(
        "nearest", local=algorithms.sgd(0.1), exchange=algorithms.average_over_peers(policy)
    )


def median_of_neighbors():
    def median(own, received, weights):
        return torch.cat([own[None], received]).median(0).values

    exchange = algorithms.aggregate(median)
    return algorithms.chain("median", local=algorithms.sgd(0.1), exchange=exchange)


def ensemble(models, round):
    """Return the mean model, gossiped and trained on: a stage that uses most of a round."""
    copy = models.like(models.flat.mean(0).expand(round.n, -1).clone())
    round.mix(round.weights, copy.flat)
    training = algorithms.Training(algorithms.descend(lr=0.1), 4)
    round.train(copy, training, {})
    return copy


def users_term():
    """Return a term that remembers the largest gradient of each parameter, and its steps."""

    def update(g, theta, own, step):
        torch.maximum(own["largest"], g.abs(), out=own["largest"])
        own["steps"].add_(1)
        return g / (own["steps"] + own["largest"])

    def init(models):
        return {"largest": torch.zeros_like(models.flat), "steps": torch.zeros_like(models.flat)}

    return algorithms.Term("largest", update, init)


def stepping(*terms, lr=0.05, part=algorithms.everything, at=None):
    """Return a method that only trains, by some terms."""
    descent = algorithms.descend(*terms, lr=lr)
    local = algorithms.train(descent, batch_size=8, epochs=2, part=part, at=at)
    return algorithms.chain("stepping", local=local)


def of_terms(*terms, model=problems.linear, **how):
    return of_method(algorithm=stepping(*terms, **how), model=model(), executor="looped")


def of_task(case):
    """Return the arguments of a run of a task of the table, on four nodes."""
    task, build, dataset, _ = tasks.CASES[case]
    clients = data.match_test(tasks.clients_of(dataset), rule="per_client")
    return of_method(
        "fedavg", task=task, model=build(), clients=clients, topology=topologies.ring(4),
        on=("test", "own_test"), executor="looped",
    )  # fmt: skip


def of_network(*layers, **changes):
    """Return the arguments of a run of a network with some layers behind its first ones.

    Clients hold equally many examples, and minibatches divide them: a rank's have no padding.
    """
    with seeded_torch(0):
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(36, 4), *layers, nn.ReLU(), nn.Identity(), nn.Linear(4, 3)
        )
    return of_method(**{"model": model, "executor": "looped"} | changes)


def adapted(**changes):
    """Return the arguments of a run of adapters of a frozen network."""
    with seeded_torch(0):
        model = models.lora(problems.convolutional(), rank=2)
    return of_method(**{"model": model, "init": "common", "executor": "batched"} | changes)


def half_frozen():
    model = problems.perceptron()
    model[1].requires_grad_(False)
    return model


class Padded(nn.Sequential):
    """A model that creates a tensor without naming a device."""

    def forward(self, x):
        return super().forward(x) + torch.zeros(3, dtype=x.dtype)


def pixels():
    images = np.random.default_rng(0).integers(0, 255, (60, 1, 6, 6), np.uint8)
    clients = data.iid(data.from_arrays(images, np.arange(60) % 3), 6, seed=0, test_fraction=0.2)
    return data.augmented(clients, data.crop_and_flip(padding=1))


def personal_clients(test_fraction=0.3, val_fraction=0.2, n=6):
    """Return clients with examples of their own to test and to validate on."""
    held_out = {"test_fraction": test_fraction, "val_fraction": val_fraction}
    return data.iid(problems.dataset(), n, seed=0, **held_out)


def cycle_with_hub(n):
    """Return the directed cycle with edges from node 0 to all, which give node 0 a share of 0.4."""
    edges = {(i, (i + 1) % n) for i in range(n)} | {(0, j) for j in range(1, n)}
    return topofl.from_edges(sorted(edges), n, directed=True)


def weighted_ring(n=6):
    graph = nx.Graph()
    graph.add_weighted_edges_from((i, (i + 1) % n, (0.1, 0.4)[i % 2]) for i in range(n))
    return graph


def changing():
    return topofl.as_topology(lambda t: topologies.random_regular(6, 3, seed=t))


def unequal_groups():
    """Return groups of four and of two nodes, which two ranks hold."""
    return topofl.as_topology([*combinations(range(4), 2), (4, 5)])


ATTACKS = {
    "sign_flip": attacks.sign_flip(nodes=[1, 4]),
    "noise": attacks.noise(nodes=[1, 4], std=0.1),
    "alie": attacks.alie(nodes=[1, 4]),
    "dissensus": attacks.dissensus(nodes=[1, 4], strength=1.0),
    "inner_product": attacks.inner_product(nodes=[1, 4]),
    "model_replacement": attacks.model_replacement(nodes=[1, 4]),
}

ATTACKED = {
    f"{name} against {method}": partial(of_method, method, attackers=attack)
    for name, attack in ATTACKS.items()
    for method in ("dsgd", "coordinate_median", "fedavg", "dpfl", "ad_psgd")
    if name != "dissensus" or method == "dsgd"
}

OPTIONS = {
    "looped": {"executor": "looped"},
    "batched": {"executor": "batched", "chunk": 2},
    "channels last": {"executor": "looped", "channels_last": True},
    "bfloat16, looped": {"executor": "looped", "precision": "bf16"},
    "bfloat16, batched": {"executor": "batched", "chunk": 4, "precision": "bf16"},
    "as given": {"executor": "looped", "init": "given"},
    "frozen": {"executor": "batched", "chunk": 3, "on_divergence": "freeze"},
    "recorded": {"executor": "looped", "on_divergence": "record"},
    "some nodes": {"executor": "batched", "chunk": 6, "nodes": 3},
    "some examples": {"executor": "looped", "examples": 5, "on": "val"},
    "before exchange": {"executor": "batched", "chunk": 1, "before_exchange": True},
}
"""Options of D-SGD with the convolutional network."""

MORE = {
    "graphs change": lambda: of_method(topology=changing()),
    "graphs repeat": lambda: of_method(topology=topologies.one_peer_exponential(6)),
    "graphs repeat, pushed": lambda: of_method(
        "push_diging", topology=topologies.one_peer_exponential(6)
    ),
    "complete graph": lambda: of_method(topology=topologies.fully_connected(6)),
    "sparse graph": lambda: of_method(topology=topologies.ring(6)),
    "path": lambda: of_method(topology=topofl.as_topology([(k, k + 1) for k in range(5)])),
    "two components": lambda: of_method(
        topology=topofl.as_topology([(0, 4), (4, 2), (1, 5), (2, 3)])
    ),
    "unequal shares": lambda: of_method(topology=cycle_with_hub(6)),
    "own weights": lambda: of_method(
        topology=topofl.as_topology(weighted_ring(), own_weights=True), before_exchange=True
    ),
    "a group is on one rank": lambda: of_method(topology=unequal_groups()),
    "groups change": lambda: of_method(
        topology=topologies.rotating_cliques(n=6, clique_size=2, partitions=3, seed=0)
    ),
    "masks on unequal ranks": lambda: of_method("dispfl", topology=unequal_groups()),
    "delayed push-sum": lambda: of_method(
        algorithm=algorithms.osgp(0.05, batch_size=4, epochs=1, delay=2)
    ),
    "one node": lambda: of_method(
        clients=problems.equal_clients(1), topology=topologies.ring(1)
    ),
    "user's phase": lambda: of_method(algorithm=users_phase()),
    "user's policy": lambda: of_method(algorithm=users_policy()),
    "user's rule": lambda: of_method(algorithm=median_of_neighbors()),
    "user's fine-tuning": lambda: of_method(fine_tune=noisy_phase()),
    "user's term": lambda: of_terms(users_term()),
    "values per node": lambda: of_method(
        algorithm=noting_phases(), per_node={"length": length}
    ),
    "without columns": lambda: of_method(
        every=2, without=("gradient_diversity", "consensus_distance")
    ),
    "own tests and user's stage": lambda: of_method(
        clients=personal_clients(), on=("own_test", "test"), also={"ensemble": ensemble},
        before_exchange=True, fine_tune=algorithms.sgd(0.1, epochs=1), fine_tune_every=2,
    ),
    "fine-tuned at the end": lambda: of_method(
        "fedavg", clients=personal_clients(), on=("own_test", "own_val"), every=1,
        fine_tune=algorithms.sgd(0.1, batch_size=4, epochs=2, momentum=0.9),
    ),
    "some nodes of many": lambda: of_method("knn_per", nodes=2),
    "nothing is evaluated": lambda: of_method("osgp", on=()),
    "own validation": lambda: of_method("dpfl", on="own_val", topology=None),
    "ragged clients": lambda: of_method("fedavg", clients=problems.ragged_clients()),
    "moved pixels": lambda: of_method(
        clients=pixels(), on="own_test", model=problems.convolutional(), executor="looped"
    ),
    "a node freezes": lambda: of_method(
        clients=clients_with_extremes(), on_divergence="freeze", dtype=torch.float32
    ),
    "numbers become infinite": lambda: of_method(
        "local_only", clients=clients_with_extremes(), on_divergence="record", dtype=torch.float32
    ),
    "simulated clock": lambda: of_method(
        algorithm=algorithms.timed(algorithms.dsgd(0.1), {"compute": [1, 2, 3, 1, 2, 3]})
    ),
    "perturbed": lambda: of_method(
        "dfedsam", executor="looped", model=problems.convolutional()
    ),
    "a forward that makes a tensor": lambda: of_method(
        model=Padded(*problems.convolutional()), executor="looped"
    ),
    "statistics": lambda: of_network(nn.BatchNorm1d(4)),
    "statistics, batched": lambda: of_network(nn.BatchNorm1d(4), executor="batched", chunk=2),
    "own statistics": lambda: of_network(nn.BatchNorm1d(4), buffers="own"),
    "statistics through a server": lambda: of_network(
        nn.BatchNorm1d(4),
        algorithm=algorithms.fedavg(0.1, batch_size=4, epochs=1, participation=0.5),
    ),
    "pushed statistics": lambda: of_network(
        nn.BatchNorm1d(4),
        algorithm=algorithms.osgp(0.05, batch_size=4, epochs=1),
        topology=cycle_with_hub(6),
    ),
    "dropout": lambda: of_network(nn.Dropout(0.3)),
    "dropout, batched": lambda: of_network(nn.Dropout(0.3), executor="batched", chunk=4),
    "statistics and dropout": lambda: of_network(
        nn.BatchNorm1d(4), nn.Dropout(0.3), executor="batched", chunk=3
    ),
    "other random numbers": lambda: of_network(nn.RReLU()),
    "frozen parameters": lambda: of_method(model=half_frozen(), executor="looped"),
    "adapters": adapted,
    "adam": lambda: of_terms(algorithms.clip(0.1), algorithms.adam()),
    "adamw": lambda: of_terms(
        algorithms.adamw(reset=True), lr=algorithms.cosine(0.05, rounds=ROUNDS)
    ),
    "momentum apart": lambda: of_terms(
        algorithms.weight_decay(0.1), algorithms.momentum(0.9, nesterov=True), part="5",
        model=problems.perceptron,
    ),
    "pulled": lambda: of_terms(
        algorithms.proximal(0.1), algorithms.cosine_pull(), model=problems.perceptron
    ),
    "ahead": lambda: of_terms(
        algorithms.momentum(0.9), at=algorithms.lookahead(0.01), model=problems.perceptron
    ),
    "upwards": lambda: of_terms(algorithms.adam(), at=algorithms.ascent(0.05)),
    **{name: partial(of_task, name) for name in ("regression", "next token", "F1 of classes")},
}  # fmt: skip

RUNS = (
    {name: partial(of_method, name) for name in ALGORITHMS}
    | ATTACKED
    | {
        name: partial(of_method, model=problems.convolutional(), **options)
        for name, options in OPTIONS.items()
    }
    | MORE
)


def arguments(name, **changes):
    """Return the arguments of ``topofl.run`` for a row."""
    return problems.options(**RUNS[name]() | changes)


def in_float64(name, **changes):
    """Return the arguments of a row in float64, in which sums in another order hardly differ."""
    how = RUNS[name]()
    return problems.options(**{"dtype": torch.float64} | how | changes)


def tolerance_of(name):
    """Return the tolerance of a row, in which sums have another order.

    The perceptron with group norm amplifies rounding: its executors differ by 4e-9 in float64.
    """
    how = RUNS[name]()
    if how.get("dtype") == torch.float32:
        return 1e-4  # numbers are too large
    return 1e-8 if isinstance(list(how["model"].children())[-2], nn.Identity) else 1e-10


def tables_of(history):
    """Return all numbers of a history, by name."""
    return {
        **{f"rounds.{name}": column for name, column in history.rounds.items()},
        **{f"evaluations.{name}": column for name, column in history.evaluations.items()},
        "node_loss": history.node_loss,
        "matrix_of_round": history.matrix_of_round,
        **{f"matrix {k}": one.weights.toarray() for k, one in enumerate(history.matrices)},
        **({} if history.models is None else {"models": history.models.flat.cpu().numpy()}),
        **{
            f"buffer {name}": values.cpu().numpy()
            for name, values in (history.models.buffers if history.models else {}).items()
        },
    }


def differences(got, wanted, tolerance=0.0):
    """Return what differs between two histories by more than a tolerance, relative above 1.

    With a tolerance, they may be of other options of computing.
    """
    found, expected = tables_of(got), tables_of(wanted)
    wrong = [f"{name} is missing" for name in expected.keys() - found.keys()]
    own = {"rounds.cut_edges", "rounds.rank_bytes", "rounds.exchange_seconds"}
    wrong += [f"{name} is new" for name in found.keys() - expected.keys() - own]
    for name in found.keys() & expected.keys():
        one, other = found[name], expected[name]
        if one.shape != other.shape or one.dtype != other.dtype:
            wrong.append(f"{name}: {one.dtype}{one.shape}, not {other.dtype}{other.shape}")
        elif not np.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True):
            with np.errstate(invalid="ignore"):
                wrong.append(f"{name}: {np.nanmax(np.abs(one - other)):.2g}")
    every = got.meta.keys() | wanted.meta.keys()
    meta = {"diverged", "columns", "settings"} if tolerance else every
    return wrong + [
        f"meta {name}"
        for name in sorted(meta)
        if repr(got.meta.get(name)) != repr(wanted.meta.get(name))
    ]
