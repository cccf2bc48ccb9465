"""The only loop over rounds."""

import copy
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sparse
import torch
from torch import Tensor, nn

from topofl._check import check_choice, check_int
from topofl.algorithms.phase import Algorithm, Models, Rule, State
from topofl.data import Partition
from topofl.engine.batches import Batches
from topofl.engine.evaluate import Scores, evaluate
from topofl.engine.executors import DivergenceError, Learner, choose_executor, local_sgd, new_learner
from topofl.engine.mixer import mixer
from topofl.engine.population import Population, check_model, initial_population
from topofl.engine.recorder import GradientStatistics, Ledger, Recorder
from topofl.history import History
from topofl.metrics import consensus_distance
from topofl.mixing import MixingMatrix, metropolis_or_uniform
from topofl.topology import Topology, TopologyError, TopologySequence, as_topology

__all__ = ["run"]

EVALUATION_SETS = ("test", "val", "own_test", "own_val")

SHARED_WORK = 10_000_000
"""Parameters of all models times minibatch size from which a step is spread over torch's CPU threads."""


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
    moments: str = "after",
    init: str = "common",
    executor: str = "auto",
    chunk: int | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    on_disconnected: str = "raise",
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
        Weight rule applied to each round's graph, or one fixed :class:`MixingMatrix`. Default: Metropolis-Hastings on
        undirected graphs, uniform averaging of what is heard on directed ones.
    eval_every
        Evaluate after every so many rounds; before the first and after the last round always.
    evaluate_on
        ``"test"`` or ``"val"``: the dataset's, every node's model on all of it. ``"own_test"`` or ``"own_val"``: each
        node's model on its own held-out examples.
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
        Nodes per call of the batched executor; None: all. Smaller needs less memory.
    device, dtype
        Of models and data. Device None: CUDA if there is one.
    on_disconnected
        ``"raise"`` refuses graphs on which consensus is impossible, ``"allow"`` trains on them.
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
    _check_options(locals())
    clients = clients.pooled() if algorithm.pooled else clients
    graphs = _graphs(algorithm, topology, clients.n, on_disconnected)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    world = _World.build(algorithm, model, clients, graphs, mixing, seed, init, executor, chunk, place, dtype)
    sets = _evaluation_set(clients, evaluate_on, place)
    recorder = Recorder()
    states = {name: phase.init(world.models) for name, phase in algorithm.phases.items()}
    with _threads(world, _largest_batch(algorithm)):
        recorder.add_evaluation({"round": 0} | _scores(world, sets, moments, None))
        for t in _progress(rounds, progress, f"{algorithm.name} on {graphs.name}"):
            evaluated = (t + 1) % eval_every == 0 or t + 1 == rounds
            current = _Round(world, t, statistics=GradientStatistics() if evaluated else None)
            before = _play(algorithm, world, current, states, sets if evaluated and moments == "both" else None)
            recorder.add_round(current.losses, clients.n, current.ledger.totals(current.used), current.used)
            if on_round is not None:
                on_round(t + 1, world.models)
            if evaluated:
                recorder.add_evaluation({"round": t + 1} | _scores(world, sets, moments, before, current.statistics))
    options = {"rounds": rounds, "seed": seed, "evaluate_on": evaluate_on, "moments": moments, "init": init}
    return recorder.history(_meta(algorithm, world, clients, graphs) | options)


@dataclass(frozen=True, eq=False)
class _World:
    """Everything that stays the same from round to round (the models' numbers apart)."""

    module: nn.Module
    models: Population
    learner: Learner
    graphs: Topology | TopologySequence
    rule: Callable[[Topology], MixingMatrix]
    resolve: Callable[[Rule, Topology], MixingMatrix]
    mixer: Callable[[MixingMatrix], Callable[[Tensor], None]]

    @classmethod
    def build(
        cls,
        algorithm: Algorithm,
        model: nn.Module,
        clients: Partition,
        graphs: Topology | TopologySequence,
        mixing: Rule | MixingMatrix | None,
        seed: int,
        init: str,
        executor: str,
        chunk: int | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> "_World":
        module = copy.deepcopy(check_model(model)).to(device=device, dtype=dtype)
        inputs = clients.dataset.inputs.to(device=device, dtype=dtype)
        labels = clients.dataset.labels.to(device)
        _check_output(module, inputs, clients.dataset.n_classes)
        models = initial_population(module, clients.n, init=init, seed=seed, device=device, dtype=dtype)
        batches = Batches(clients.train, seed)
        if executor == "auto":
            size = _largest_batch(algorithm)
            executor = choose_executor(module, models, inputs, labels, batches, size, chunk)
        learner = new_learner(module, executor, inputs, labels, batches, chunk)
        resolve = lru_cache(maxsize=64)(lambda rule, graph: rule(graph))
        return cls(
            module, models, learner, graphs, _as_rule(mixing), resolve, lru_cache(maxsize=64)(_mixer_for(models))
        )

    def weights(self, graph: Topology) -> MixingMatrix:
        """Return a round's mixing matrix."""
        weights = self.resolve(self.rule, graph)
        if not weights.is_row_stochastic:
            raise ValueError(
                f"`mixing` must have rows that sum to 1 to average models, {weights.name} is only column stochastic; "
                "use uniform(topology, direction='pull')"
            )
        return weights


def _largest_batch(algorithm: Algorithm) -> int:
    return max((int(phase.settings.get("batch_size", 1)) for phase in algorithm.phases.values()), default=1)


@contextmanager
def _threads(world: _World, batch_size: int) -> Iterator[None]:
    """Use one CPU thread where a step is too small to share, and put the setting back.

    Waking a second thread costs microseconds on an idle machine, but milliseconds on a busy one: more than all the work
    of a step with 50 nodes and logistic regression on digits.
    """
    before = torch.get_num_threads()
    if world.models.flat.numel() * batch_size < SHARED_WORK:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _mixer_for(models: Population) -> Callable[[MixingMatrix], Callable[[Tensor], None]]:
    return lambda weights: mixer(weights, models.flat.device, models.flat.dtype)


def _as_rule(mixing: Rule | MixingMatrix | None) -> Callable[[Topology], MixingMatrix]:
    if mixing is None:
        return metropolis_or_uniform
    return mixing.check_on if isinstance(mixing, MixingMatrix) else mixing


@dataclass(eq=False)
class _Round:
    """The round that phases see; see :class:`topofl.algorithms.phase.Round`."""

    world: _World
    t: int
    statistics: GradientStatistics | None
    phase: str = ""
    losses: Tensor | None = None
    used: MixingMatrix | None = None
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.world.models.flat.element_size())
        self.topology = self.world.graphs.at(self.t)

    @property
    def weights(self) -> MixingMatrix:
        self.used = self.world.weights(self.topology)
        return self.used

    def local_sgd(
        self,
        models: Models,
        *,
        lr: float,
        batch_size: int,
        steps: int = 1,
        momentum: float = 0.0,
        velocity: Tensor | None = None,
        gradient: Rule | None = None,
    ) -> None:
        del models  # there is one population so far, and the learner's views are into it
        world, first = self.world, self.t * steps
        batches = [world.learner.batches.at(first + k, batch_size, self.phase) for k in range(steps)]
        mix = None if gradient is None else self._gradient_mixer(gradient, steps)
        observe = None if self.statistics is None else self.statistics.observe
        losses = local_sgd(
            world.learner, world.models, batches, lr=lr, momentum=momentum, velocity=velocity, mix_gradients=mix,
            observe=observe,
        )  # fmt: skip
        _check_losses(losses, self.t, lr)
        self.losses = losses.mean(1)

    def _gradient_mixer(self, rule: Rule, steps: int) -> Callable[[Tensor], None]:
        weights = self.world.resolve(rule, self.topology)
        for _ in range(steps):
            self.ledger.add(weights, self.world.models.layout.d, gradients=True)
        return self.world.mixer(weights)

    def mix(self, weights: MixingMatrix, values: Tensor) -> None:
        self.ledger.add(weights, values.shape[1])
        self.world.mixer(weights)(values)


def _play(
    algorithm: Algorithm,
    world: _World,
    current: _Round,
    states: dict[str, State],
    sets: Tensor | Sequence[Tensor] | None,
) -> Scores | None:
    """Run the phases of one round; return the scores right before models are exchanged, if `sets` is given."""
    before = None
    for name, phase in algorithm.phases.items():
        if phase.exchanges and name == "exchange" and sets is not None:
            before = _evaluate(world, sets)
        current.phase = name
        states[name] = phase.apply(world.models, states[name], current)
    return before


def _evaluate(world: _World, on: Tensor | Sequence[Tensor]) -> Scores:
    return evaluate(world.module, world.models, world.learner.inputs, world.learner.labels, on)


def _scores(
    world: _World,
    on: Tensor | Sequence[Tensor],
    moments: str,
    before: Scores | None,
    statistics: GradientStatistics | None = None,
) -> dict[str, Any]:
    after = _evaluate(world, on)
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


def _check_losses(losses: Tensor, t: int, lr: float) -> None:
    if not bool(torch.isfinite(losses).all()):
        node, step = (int(i) for i in torch.nonzero(~torch.isfinite(losses))[0])
        raise DivergenceError(
            f"the loss of node {node} is {float(losses[node, step])} in round {t} (step {step} of it) with lr={lr:g}; "
            "lower the learning rate, or look for extreme values in that node's data"
        )


def _check_options(options: dict[str, Any]) -> None:
    if not isinstance(options["algorithm"], Algorithm):
        kind = type(options["algorithm"]).__name__
        raise TypeError(f"`algorithm` must be an Algorithm such as algorithms.dsgd(lr=0.1), got {kind}")
    if not isinstance(options["clients"], Partition):
        kind = type(options["clients"]).__name__
        raise TypeError(f"`clients` must be a Partition such as data.shards(data.digits(), n=10, seed=0), got {kind}")
    for name, minimum in (("rounds", 1), ("seed", 0), ("eval_every", 1)):
        check_int(name, options[name], minimum=minimum)
    if options["chunk"] is not None:
        check_int("chunk", options["chunk"], minimum=1)
    check_choice("evaluate_on", options["evaluate_on"], EVALUATION_SETS)
    check_choice("moments", options["moments"], ["after", "both"])
    check_choice("executor", options["executor"], ["auto", "batched", "looped"])
    check_choice("on_disconnected", options["on_disconnected"], ["raise", "allow"])
    if not options["dtype"].is_floating_point:
        raise ValueError(f"`dtype` must be a floating point type such as torch.float32, got {options['dtype']}")


def _check_output(module: nn.Module, inputs: Tensor, n_classes: int) -> None:
    """Apply the model to one example, so that a misfit is told before training."""
    with torch.no_grad():
        try:
            shape = tuple(module(inputs[:1]).shape)
        except RuntimeError as error:
            raise ValueError(
                f"`model` cannot take examples of shape {tuple(inputs.shape[1:])}: {error}; build it for that shape, "
                f"e.g. models.logistic_regression({inputs[0].numel()})"
            ) from error
    if len(shape) != 2 or shape[0] != 1 or shape[1] < n_classes:
        raise ValueError(
            f"`model` must return at least n_classes={n_classes} logits an example, got shape {shape} for one example"
        )


def _graphs(algorithm: Algorithm, topology: Any, n: int, on_disconnected: str) -> Topology | TopologySequence:
    if algorithm.pooled or (topology is None and not algorithm.exchanges):
        return Topology(sparse.csr_array((n, n)), name="no edges")
    if topology is None:
        name = algorithm.name
        raise TypeError(f"`topology` must be given, since {name} exchanges models: e.g. topologies.ring({n})")
    graphs = _once(as_topology(topology))
    if graphs.n != n:
        sizes = f"{graphs.name} has n={graphs.n}, `clients` has n={n}"
        raise ValueError(f"`topology` must have one node a client: {sizes}")
    if algorithm.exchanges and on_disconnected == "raise" and graphs.period is not None:
        _check_connected(graphs)
    return graphs


def _once(graphs: Topology | TopologySequence) -> Topology | TopologySequence:
    """Return periodic sequences with their graphs made, so that each has its weights computed once."""
    if isinstance(graphs, Topology) or graphs.period is None:
        return graphs
    members = [graphs.at(t) for t in range(graphs.period)]
    return replace(graphs, generate=members.__getitem__)


def _check_connected(graphs: Topology | TopologySequence) -> None:
    """Refuse graphs whose union over a period is not strongly connected."""
    members = [graphs.at(t).adjacency for t in range(graphs.period or 1)]
    if not Topology(sum(members[1:], members[0])).is_connected:
        raise TopologyError(
            f"`topology` must be connected for nodes to agree, {graphs.name} is not; connect it, or train its parts on "
            "their own with on_disconnected='allow'"
        )


def _evaluation_set(clients: Partition, evaluate_on: str, device: torch.device) -> Tensor | list[Tensor]:
    own = evaluate_on.startswith("own_")
    indices = getattr(clients if own else clients.dataset, evaluate_on.removeprefix("own_"))
    if sum(map(len, indices)) == 0 if own else len(indices) == 0:
        remedy = "partition with test_fraction or val_fraction" if own else "choose another `evaluate_on`"
        raise ValueError(f"`evaluate_on` must name a set with examples, {evaluate_on!r} is empty; {remedy}")
    if own:
        return [torch.tensor(np.asarray(i), device=device) for i in indices]
    return torch.tensor(np.asarray(indices), device=device)


def _progress(rounds: int, progress: bool | str, title: str) -> Iterator[int]:
    from tqdm.auto import tqdm

    quiet = None if "ipykernel" not in sys.modules else False  # None: silent where stderr is no terminal
    disable = quiet if progress == "auto" else not progress
    return iter(tqdm(range(rounds), desc=title, disable=disable, leave=False, unit="round"))


def _meta(
    algorithm: Algorithm, world: _World, clients: Partition, graphs: Topology | TopologySequence
) -> dict[str, Any]:
    return {
        "algorithm": algorithm.name,
        "settings": algorithm.settings,
        "topology": graphs.name,
        "clients": clients.name,
        "n": clients.n,
        "parameters": world.models.layout.d,
        "executor": world.learner.executor,
        "device": str(world.models.flat.device),
        "dtype": str(world.models.flat.dtype).removeprefix("torch."),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
    }
