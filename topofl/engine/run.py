"""The only loop over rounds."""

import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from topofl.algorithms.phase import Algorithm, Rule, State
from topofl.data import Partition
from topofl.engine.checks import check_options, check_topology, evaluated_by
from topofl.engine.diversity import GradientStatistics
from topofl.engine.evaluate import Evaluated, Scores, evaluate, scored
from topofl.engine.plan import Compute
from topofl.engine.population import Population
from topofl.engine.recorder import Recorder
from topofl.engine.world import World, WorldRound
from topofl.history import History
from topofl.metrics import consensus_distance
from topofl.mixing import MixingMatrix
from topofl.topology import Topology, TopologySequence

__all__ = ["run"]


def run(
    algorithm: Algorithm,
    *,
    model: nn.Module,
    clients: Partition,
    rounds: int,
    seed: int,
    topology: Any = None,
    mixing: Rule | MixingMatrix | None = None,
    eval_every: int = 10,
    evaluate_on: str = "test",
    eval_examples: int | None = None,
    eval_nodes: int | None = None,
    moments: str = "after",
    init: str = "common",
    executor: str = "auto",
    chunk: int | str = "auto",
    precision: str = "fp32",
    channels_last: bool | str = "auto",
    compile: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    on_disconnected: str = "raise",
    on_divergence: str = "raise",
    on_round: Callable[[int, Population], None] | None = None,
    progress: bool | str = "auto",
) -> History:
    """Train one model a node over a topology, and return what happened.

    Parameters
    ----------
    algorithm
        For example ``algorithms.dsgd(lr=0.1)``.
    model
        The network; only its structure is used unless ``init="given"``, and it is not changed.
    clients
        Which node holds which data.
    rounds
        How many rounds; a round is the algorithm's phases, once each.
    seed
        Of initial parameters and minibatches (separate streams). Data and graph have their own seeds.
    topology
        Anything :func:`topofl.as_topology` takes. May be left out if the algorithm exchanges nothing.
    mixing
        Weight rule applied to each round's graph, or one fixed :class:`MixingMatrix`. Default: the graph's own weights
        if it came with some, else Metropolis-Hastings on undirected graphs and uniform averaging of what is heard on
        directed ones.
    eval_every
        Evaluate after every so many rounds; before the first and after the last round always.
    evaluate_on
        ``"test"`` or ``"val"``: the dataset's, every node's model on all of it. ``"own_test"`` or ``"own_val"``: each
        node's model on its own held-out examples.
    eval_examples
        Evaluate on so many examples of the shared set only, the same for all nodes and rounds, drawn from a stream of
        their own of `seed`. None: all of them. Not with ``"own_test"`` and ``"own_val"``.
    eval_nodes
        Evaluate so many nodes' models only, the same in all rounds, drawn likewise (of those with examples, with
        ``"own_test"`` and ``"own_val"``). The others have NaN for accuracy and loss, which means over nodes leave out.
        None: all of them.
    moments
        ``"after"``: evaluate at the end of the round. ``"both"``: also right before the first phase that exchanges
        models.
    init
        ``"common"``: all nodes start from one draw; ``"independent"``: each from its own; ``"given"``: from `model` as
        it is.
    executor
        ``"batched"``, ``"looped"`` or ``"auto"`` (times both on a few nodes; recorded in ``history.meta``). Results
        agree up to the rounding of float32.
    chunk
        Nodes per call of the batched executor; smaller needs less memory. ``"auto"``: as many as are fastest.
    precision
        ``"fp32"``, the reference, or ``"bf16"``: products are computed in bfloat16 (autocast), everything else, the
        models too, stays as it is. Faster where the processor has such products (GPUs; CPUs with AMX).
    channels_last
        Whether images lie in memory with their channels last, where one model at a time takes them. ``"auto"``: on CPUs
        where the model can take it.
    compile
        Whether ``torch.compile`` compiles the model, which takes from seconds to a minute. Linear models, whose
        gradients are in closed form, have nothing to compile.
    device, dtype
        Of models and data. Device None: CUDA if there is one.
    on_disconnected
        ``"raise"`` refuses graphs on which consensus is impossible, ``"allow"`` trains on them.
    on_divergence
        When a node's loss, gradient or model is no longer finite: ``"raise"`` stops the run; ``"freeze"`` undoes the
        node's step and lets it train no more, while it goes on exchanging models; ``"record"`` goes on, and what is not
        finite spreads. ``history.meta["diverged"]`` names node, round and learning rate, the first first.
    on_round
        Called with (number of rounds done, models) after every round; ``models.flat`` is (n, d), to read or copy.
    progress
        True or False; ``"auto"``: a bar on terminals and in notebooks only.

    Returns
    -------
    History

    Raises
    ------
    ValueError, TypeError
        If arguments do not fit each other, before any work is done.
    TopologyError
        If the graph cannot do what the algorithm needs.
    DivergenceError
        If a loss is no longer finite; names node, round and learning rate.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, per_node=2, seed=0)
    >>> history = topofl.run(algorithms.dsgd(lr=0.5, batch_size=8), model=models.logistic_regression(64),
    ...                      clients=clients, topology=topologies.ring(10), rounds=20, seed=0)
    >>> history["accuracy"].shape  # rounds 0, 10 and 20; 10 nodes
    (3, 10)
    """
    check_options(locals())
    rounds, seed, eval_every = int(rounds), int(seed), int(eval_every)  # numpy's integers are no JSON
    eval_examples, eval_nodes = (None if size is None else int(size) for size in (eval_examples, eval_nodes))
    clients = clients.pooled() if algorithm.pooled else clients
    graphs = check_topology(algorithm, topology, clients.n, on_disconnected)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    compute = Compute(executor, chunk, precision, channels_last, compile, place, dtype)
    world = World.build(algorithm, model, clients, graphs, mixing, seed, init, compute, on_divergence)
    sets = evaluated_by(clients, evaluate_on, eval_examples, eval_nodes, seed, place)
    recorder = Recorder()
    states = {name: phase.init(world.models) for name, phase in algorithm.phases.items()}
    with world.threads() as each:
        recorder.add_evaluation({"round": 0} | _scores(world, sets, moments, None))
        for t in _progress(rounds, progress, f"{algorithm.name} on {graphs.name}"):
            evaluated = (t + 1) % eval_every == 0 or t + 1 == rounds
            current = WorldRound(world, each, t, statistics=GradientStatistics() if evaluated else None)
            before = _play(algorithm, world, current, states, sets if evaluated and moments == "both" else None)
            recorder.add_round(current.losses, clients.n, current.ledger.totals(current.used), current.used)
            if on_round is not None:
                on_round(t + 1, world.models)
            if evaluated:
                scores = _scores(world, sets, moments, before, current.statistics)
                world.guard.note_scores(scores["loss"], scored(sets), t, current.lr)
                recorder.add_evaluation({"round": t + 1} | scores)
    options = {"rounds": rounds, "seed": seed, "evaluate_on": evaluate_on, "eval_every": eval_every}
    options |= {"eval_examples": eval_examples, "eval_nodes": eval_nodes}
    options |= {"moments": moments, "init": init, "on_disconnected": on_disconnected}
    options |= {"precision": precision, "on_divergence": on_divergence}
    options |= {"diverged": [diverged._asdict() for diverged in world.guard.found]} if world.guard.found else {}
    return recorder.history(_meta(algorithm, world, clients, graphs) | options)


def _play(
    algorithm: Algorithm,
    world: World,
    current: WorldRound,
    states: dict[str, State],
    sets: Evaluated | None,
) -> Scores | None:
    """Run the phases of one round; return the scores right before models are exchanged, if `sets` is given."""
    before = None
    for name, phase in algorithm.phases.items():
        if phase.exchanges == "models" and sets is not None and before is None:
            before = _evaluate(world, sets)
        current.phase = name
        states[name] = phase.apply(world.models, states[name], current)
    return before


def _evaluate(world: World, sets: Evaluated) -> Scores:
    return evaluate(world.module, world.models, world.learner.examples, world.learner.labels, sets)


def _scores(
    world: World,
    sets: Evaluated,
    moments: str,
    before: Scores | None,
    statistics: GradientStatistics | None = None,
) -> dict[str, Any]:
    after = _evaluate(world, sets)
    scores = {
        "accuracy": after.accuracy,
        "loss": after.loss,
        "consensus_distance": consensus_distance(world.models.flat),
        "gradient_diversity": float("nan") if statistics is None else statistics.diversity,
    }
    if moments == "both":
        before = before or after
        scores |= {"accuracy_before_exchange": before.accuracy, "loss_before_exchange": before.loss}
    return scores


def _progress(rounds: int, progress: bool | str, title: str) -> Iterator[int]:
    from tqdm.auto import tqdm

    quiet = None if "ipykernel" not in sys.modules else False  # None: silent where stderr is no terminal
    disable = quiet if progress == "auto" else not progress
    return iter(tqdm(range(rounds), desc=title, disable=disable, leave=False, unit="round"))


def _meta(
    algorithm: Algorithm, world: World, clients: Partition, graphs: Topology | TopologySequence
) -> dict[str, Any]:
    return {
        "algorithm": algorithm.name,
        "settings": algorithm.settings,
        "topology": graphs.name,
        "clients": clients.name,
        "n": clients.n,
        "parameters": world.models.layout.d,
        **world.learner.plan._asdict(),
        "device": str(world.models.flat.device),
        "dtype": str(world.models.flat.dtype).removeprefix("torch."),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
    }
