"""Arguments of a run, resolved and checked against each other before any work is done."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from topofl._columns import OWN_COLUMNS
from topofl._support.check import check_choice, check_int, shown
from topofl._support.seeding import stream
from topofl.algorithms.contract.needs import check_needs
from topofl.algorithms.contract.phase import Algorithm, check_fine_tune
from topofl.algorithms.contract.round import Rule
from topofl.attacks import Attack
from topofl.data import Dataset, GraphData, Partition
from topofl.engine.dry_run import DRY_ROUNDS, trace_first_rounds
from topofl.engine.evaluation import Evaluated, uploaded
from topofl.engine.graph_checks import check_attackers, check_topology, weight_rules, with_graphs
from topofl.engine.joining import local_device
from topofl.engine.model_checks import as_task, check_voters, checked_network
from topofl.engine.options import Compute, Evaluation, as_options, device_of
from topofl.engine.population import Layout
from topofl.engine.requests import Setup, Trace
from topofl.mixing import MixingMatrix
from topofl.tasks import Task


def resolve(
    algorithm: Algorithm,
    model: nn.Module,
    clients: Partition,
    rounds: int | None,
    seed: int = 0,
    topology: Any = None,
    mixing: Rule | MixingMatrix | None = None,
    init: str = "common",
    evaluation: Any = None,
    compute: Any = None,
    task: Task | None = None,
    attackers: Attack | None = None,
) -> Setup:
    """Return the checked setup of a run from the arguments of :func:`topofl.run`.

    Raises
    ------
    ValueError, TypeError
        If the arguments do not fit each other.
    TopologyError
        If the topology does not meet the needs of the algorithm.
    """
    _check_kinds(algorithm, clients)
    evaluation, compute = as_options(Evaluation, evaluation), as_options(Compute, compute)
    task = as_task(task)
    check_choice("init", init, ["common", "independent", "given"])
    rounds = None if rounds is None else check_int("rounds", rounds, minimum=1)
    seed = check_int("seed", seed, minimum=0)

    algorithm = _with_tuning(algorithm, evaluation, rounds)
    clients = clients.pooled() if algorithm.pooled else clients
    check_voters(algorithm, task)
    given = check_topology(algorithm, topology, clients.n)
    attack = check_attackers(attackers, algorithm, clients.n)
    if attack is not None and compute.scratch is not None:
        must = "`compute.scratch` must be None with attackers, who have all models in memory"
        raise ValueError(f"{must}, got {shown(str(compute.scratch))}; leave it out")

    device = local_device(device_of(compute)) if compute.distributed else device_of(compute)
    attacking = () if attack is None else attack.nodes
    sets = _evaluation_sets(clients, evaluation, seed, device, attacking)
    network, sample = checked_network(model, clients, compute, device, task)
    layout = Layout.of(network.module, network.partial)
    setup = Setup(
        algorithm, model, network, sample, clients, given, *weight_rules(mixing, given),
        Trace(algorithm, layout, clients.n), rounds, seed, init, evaluation, compute,
        device, sets, task, attack,
    )  # fmt: skip
    rounds_played = DRY_ROUNDS if rounds is None else min(rounds, DRY_ROUNDS)
    if given is not None:
        check_needs(algorithm.name, algorithm.needs, given, rounds_played)
    trace_first_rounds(setup, rounds_played)
    _check_minibatches(setup)
    setup = with_graphs(setup, warn=mixing is None)
    _check_columns(setup)
    return setup


def _check_minibatches(setup: Setup) -> None:
    """Raise ``ValueError`` if a node trains on fewer examples at once than its network can take."""
    network, sizes = setup.network, setup.sizes
    smallest = np.broadcast_to(network.smallest_of_nodes or network.smallest, sizes.shape)
    trained = [training.sizes for some in setup.trace.steps.values() for training, _ in some]
    for batch_size in trained + setup.trace.gradient_sizes:
        whole = np.minimum(batch_size, sizes)
        last = np.where(sizes % whole, sizes % whole, whole)
        if len(found := np.flatnonzero(last < smallest)):
            i = int(found[0])
            raise ValueError(
                f"`clients` must give every minibatch at least {smallest[i]} examples, from which "
                f"a layer of this model computes statistics, but node {i} trains on "
                f"{sizes[i]} examples, and the last minibatch of an epoch has {last[i]} "
                f"({len(found)} such nodes); choose another batch_size, leave out examples, or use "
                "models.with_group_norm(model)"
            )


def _check_columns(setup: Setup) -> None:
    """Raise ``ValueError`` unless all columns of the history have different names."""
    columns, noted = setup.columns, setup.trace.noted
    for name, column in columns.items():
        if column.stage and name in OWN_COLUMNS:
            raise ValueError(
                f"`evaluation.also` must not give a column the name {name!r}, which histories use "
                "already; rename the function's key"
            )
    if taken := sorted(columns.keys() & noted):
        must = "`name` of a number that a phase notes must differ from all scores"
        raise ValueError(f"{must}, got {taken[0]!r}; rename it")
    if taken := sorted(set(setup.evaluation.per_node or ()) & (columns.keys() | noted)):
        must = "names in `evaluation.per_node` must differ from all columns of the history"
        raise ValueError(f"{must}, got {taken[0]!r}; rename it")


def _check_kinds(algorithm: object, clients: object) -> None:
    """Raise ``TypeError`` unless `algorithm` and `clients` are of the right types."""
    if not isinstance(algorithm, Algorithm):
        kind = type(algorithm).__name__
        raise TypeError(
            f"`algorithm` must be an Algorithm such as algorithms.dsgd(lr=0.1), got {kind}"
        )
    if not isinstance(clients, Partition):
        kind = type(clients).__name__
        remedy = "make one from the examples of each client by data.from_clients([(x0, y0), ...])"
        if isinstance(clients, Dataset):
            remedy = "divide it among the nodes, as by data.iid(dataset, n=10, seed=0)"
        elif isinstance(clients, GraphData):
            remedy = "divide it among the nodes, as by its .communities(10, seed=0)"
        raise TypeError(
            "`clients` must be a Partition such as data.shards(data.digits(), n=10, seed=0), got "
            f"{kind}; {remedy}"
        )


def _with_tuning(algorithm: Algorithm, evaluation: Evaluation, rounds: int | None) -> Algorithm:
    """Return the algorithm with the fine-tuning of its evaluations.

    Raises ``ValueError`` unless it fits a run of `rounds` rounds (None: unknown).
    """
    if not evaluation.on:
        return replace(algorithm, fine_tune=None, neighbors=None)  # which only scores need
    phase = algorithm.fine_tune if evaluation.fine_tune is None else evaluation.fine_tune
    phase = check_fine_tune(phase) if phase else None
    if (every := evaluation.fine_tune_every) is not None:
        if phase is None:
            raise ValueError(
                f"`evaluation.fine_tune_every` must be None without fine-tuning, got {every}; give "
                "a phase as `fine_tune`, e.g. Evaluation(fine_tune=sgd(lr=0.1, epochs=5))"
            )
        if every % evaluation.every and (rounds is None or every < rounds):
            raise ValueError(
                f"`evaluation.fine_tune_every` must be a multiple of every={evaluation.every}, "
                f"since it is part of an evaluation, got {every}; None fine-tunes after the last "
                "round"
            )
    return replace(algorithm, fine_tune=phase)


def _evaluation_sets(
    clients: Partition,
    evaluation: Evaluation,
    seed: int,
    device: torch.device,
    without: Sequence[int],
) -> dict[str, Evaluated]:
    """Return the evaluated nodes and examples, by the name of the set.

    Examples and nodes are drawn from the run's seed; larger samples contain smaller ones. Nodes are
    drawn among those with examples in all sets, `without` attackers, and are the same for all sets.
    Raises ``ValueError`` if a set is empty, or has fewer examples or nodes than requested.
    """
    indices = {name: _indices_of(clients, name) for name in evaluation.on}
    own_sets = [indices[name] for name in evaluation.on if _is_own(name)]
    nodes = [i for i in range(clients.n) if i not in without]
    most, size = evaluation.nodes, evaluation.examples
    if most is not None:
        eligible = [i for i in range(clients.n) if all(len(own[i]) for own in own_sets)]
        named = "the number of nodes with such examples" if own_sets else "n"
        check_int(
            "evaluation.nodes", most, minimum=1, maximum=len(eligible),
            maximum_name=named, remedy="None takes all",
        )  # fmt: skip
        honest = np.setdiff1d(eligible, without)
        nodes = _sample(honest, most, stream(seed, "evaluated nodes")).tolist()
    return {on: _examples(on, own, nodes, size, seed, device) for on, own in indices.items()}


def _is_own(name: str) -> bool:
    return name.startswith("own_")


def _indices_of(clients: Partition, name: str) -> Any:
    """Return the indices of a shared set or of each node's own set; raise if there are none."""
    own, kind = _is_own(name), name.removeprefix("own_")
    indices = getattr(clients if own else clients.dataset, kind)
    if indices is None or (kind == "triggered" and not len(indices)):
        raise ValueError(
            f"`evaluation.on` must name a set with examples, {clients.dataset.name} has no "
            f"{name!r}; make them by data.backdoor, or choose another set"
        )
    if sum(map(len, indices)) == 0 if own else len(indices) == 0:
        helper = {"test": "match_test", "val": "with_validation"}[kind]
        remedy = f"load the data with {kind}=, choose another set"
        if own:
            remedy = f"partition with {kind}_fraction, see data.{helper}"
        must = f"`evaluation.on` must name a set with examples, {name!r} is empty"
        raise ValueError(f"{must}; {remedy}, or train without scores by Evaluation(on=())")
    return indices


def _examples(
    name: str, indices: Any, nodes: Sequence[int], size: int | None, seed: int, device: torch.device
) -> Evaluated:
    """Return the indices of `size` examples of a shared set, or of each node's own examples."""
    if not _is_own(name):
        if size is not None:
            check_int(
                "evaluation.examples", size, minimum=1, maximum=len(indices),
                maximum_name=f"len(dataset.{name})", remedy="None takes all",
            )  # fmt: skip
        drawn = _sample(np.asarray(indices), size, stream(seed, "evaluated examples"))
        return dict.fromkeys(nodes, torch.tensor(drawn, device=device))
    if size is not None:
        raise ValueError(
            f"`evaluation.examples` must be None with on={name!r}, whose sets are small, got "
            f"{size}; leave it out, or evaluate fewer nodes by evaluation.nodes"
        )
    own = uploaded(indices, device)
    return {i: own[i] for i in nodes}


def _sample(values: np.ndarray, size: int | None, rng: np.random.Generator) -> np.ndarray:
    """Return `size` random values in their original order; None: all of them."""
    return values if size is None else values[np.sort(rng.permutation(len(values))[:size])]
