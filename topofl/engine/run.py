"""The only loop over rounds."""

import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from topofl._ambient import in_plain_torch
from topofl._check import check_path, shown
from topofl._machine import emulates_bf16
from topofl._text import printable
from topofl.algorithms.phase import Algorithm, Phase, Rule, State
from topofl.callbacks import Callback, Event
from topofl.data import Augmentation, Partition
from topofl.engine.checkpoint import (
    Checkpoint,
    check_every,
    check_space,
    check_tensors,
    held,
    taken_from,
    to_resume_from,
)
from topofl.engine.checks import (
    check_asked,
    check_options,
    check_start,
    check_topology,
    evaluated_by,
    sets_named,
    with_fine_tuning,
)
from topofl.engine.divergence import Diverged, DivergenceError
from topofl.engine.diversity import GradientStatistics
from topofl.engine.evaluate import Scores
from topofl.engine.fingerprint import check_same, fingerprint, versions
from topofl.engine.free_memory import giving_back
from topofl.engine.interrupt import stop_between_rounds
from topofl.engine.keeper import Keeper
from topofl.engine.moments import Sets, beside_neighbors, check_scores, columns_of, fine_tuned, no_scores, scores_of
from topofl.engine.plan import Compute, Plan
from topofl.engine.population import Population
from topofl.engine.recorder import Recorder
from topofl.engine.round import WorldRound
from topofl.engine.task_checks import as_task, check_voters
from topofl.engine.threads import Each
from topofl.engine.world import World
from topofl.history import BEFORE_EXCHANGE, FINE_TUNED, NEAREST, History, evaluation_record
from topofl.metrics import consensus_distance
from topofl.mixing import MixingMatrix, warn_of_unused_weights
from topofl.tasks import Task
from topofl.topology import Topology, TopologySequence

__all__ = ["run"]


@in_plain_torch
def run(
    algorithm: Algorithm,
    *,
    model: nn.Module,
    clients: Partition,
    rounds: int,
    seed: int,
    topology: Any = None,
    mixing: Rule | MixingMatrix | None = None,
    task: Task | None = None,
    eval_every: int = 10,
    evaluate_on: str | Sequence[str] = "test",
    eval_examples: int | None = None,
    eval_nodes: int | None = None,
    moments: str = "after",
    fine_tune: Phase | Literal[False] | None = None,
    fine_tune_every: int | None = None,
    init: str = "common",
    augment: Augmentation | None = None,
    executor: str = "auto",
    chunk: int | str = "auto",
    precision: str = "fp32",
    channels_last: bool | str = "auto",
    compile: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    on_disconnected: str = "raise",
    on_divergence: str = "raise",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | str = "auto",
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
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
        Anything :func:`topofl.as_topology` takes. Node i is client i; where nodes have labels, ``nodes[i]`` of the
        Topology is that of client i. May be left out if the algorithm exchanges nothing.
    mixing
        Weight rule applied to each round's graph, or one fixed :class:`MixingMatrix`. Default: the graph's own weights
        if it came with some, else Metropolis-Hastings on undirected graphs and uniform averaging of what is heard on
        directed ones. The first round in which that drops unequal weights of edges is warned of: give
        ``as_topology(graph, own_weights=True)`` as `topology` to mix by them, or name a rule here to ignore them. Rows
        of a matrix with labels must be those of `topology` in the same order.
    task
        What is learned: the loss of each example, and the scores that evaluations report, such as
        :func:`topofl.tasks.regression`. None: :func:`topofl.tasks.classification`.
    eval_every
        Evaluate after every so many rounds; before the first and after the last round always.
    evaluate_on
        ``"test"`` or ``"val"``: the dataset's, every node's model on all of it. ``"own_test"`` or ``"own_val"``: each
        node's model on its own held-out examples. Or several of them, such as ``("own_test", "own_val")``: the first
        gives the columns of the task's scores, ``accuracy`` and ``loss``, every further one columns with its name,
        ``accuracy_own_val``.
    eval_examples
        Evaluate on so many examples of the shared set only, the same for all nodes and rounds, drawn from a stream of
        their own of `seed`. None: all of them. Not with ``"own_test"`` and ``"own_val"``.
    eval_nodes
        Evaluate so many nodes' models only, the same in all rounds, drawn likewise (of those with examples, with
        ``"own_test"`` and ``"own_val"``, in each of them). The others have NaN for accuracy and loss, which means over
        nodes leave out. None: all of them.
    moments
        ``"after"``: evaluate at the end of the round. ``"both"``: also right before the first phase that exchanges
        models.
    fine_tune
        Phase that copies of the models go through before they are evaluated a further time, such as
        ``sgd(lr=0.1, epochs=5)``, in the columns ``accuracy_fine_tuned`` and ``loss_fine_tuned``. Training does not
        notice: the copies are dropped, and their minibatches are a stream of their own. None: the algorithm's, if it
        has one; False: none.
    fine_tune_every
        Fine-tune after every so many rounds and after the last, a multiple of `eval_every`; each time costs what the
        phase does, for all evaluated nodes. None: only after the last round. Other evaluations have NaN.
    init
        ``"common"``: all nodes start from one draw; ``"independent"``: each from its own; ``"given"``: from `model` as
        it is.
    augment
        What becomes of images each time a node trains on them, ``data.crop_and_flip(padding=4)`` say; drawn from a
        stream of its own of `seed`, the same whatever the executor. Losses and gradients in training, and hence
        ``gradient_diversity``, are of what was drawn; evaluations see the images as they are. None: nothing.
    executor
        ``"batched"``, ``"looped"`` or ``"auto"``, which times both on a few nodes. ``history.meta`` has what ran, and
        as ``"asked"`` what was asked for. Results agree up to the rounding of float32.
    chunk
        Nodes per call of the batched executor; smaller needs less memory. ``"auto"``: as many as are fastest, and
        fit into free memory.
    precision
        ``"fp32"``, the reference, or ``"bf16"``: products are computed in bfloat16 (autocast), everything else, the
        models too, stays as it is. Faster where the processor has such products (GPUs; CPUs with AMX or AVX-512
        BF16); others emulate them far slower, which is warned about.
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
        node's step and lets it train no more, while it goes on exchanging models, huge as they may be, and its gradient
        counts as zero where gradients are averaged; ``"record"`` goes on, what is not finite spreads, and means of
        losses leave out those that are NaN. ``history.meta["diverged"]`` names node, round (from 1) and learning rate,
        the first first.
    checkpoint
        Folder for checkpoints, made if it is not there; the last two are kept. With it Ctrl-C and SIGTERM let the round
        end, write a checkpoint and raise :class:`topofl.Interrupted`; a second one stops at once. A checkpoint that
        cannot be written, on a full disk say, is warned about and tried again when the next one is due. While the run
        lasts no other process can use the folder; one that was killed leaves it free.
    checkpoint_every
        A checkpoint after so many rounds; ``"auto"``: by time, such that writing takes about 5 % of it, but one in ten
        minutes. The last round always writes one. When they are written changes no result.
    resume
        Go on from the newest good checkpoint in the folder, if there is one; otherwise start. The result is, bit for
        bit, that of a run that was never stopped. Everything must be as it was, except that `on_divergence` may differ,
        that `rounds` may be raised (the evaluation after the former last round is then dropped, unless `eval_every`
        asks for it) and that ``"auto"`` takes the executor chosen before. On a finished run its history is returned at
        once.
    callbacks
        Functions that are called with every :class:`topofl.callbacks.Event` of the run. One that raises stops the run
        with its exception, after the checkpoint that is due in that round.
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
        If arguments do not fit each other, or the run does not fit into free memory, before any work is done.
    TopologyError
        If the graph cannot do what the algorithm needs.
    DivergenceError
        If a loss is no longer finite; names node, round and learning rate.
    OSError
        If the folder for checkpoints cannot be written to or has too little space, before any work is done;
        BlockingIOError if another process is using it, naming that process.
    Interrupted
        After Ctrl-C or SIGTERM, if there is a folder for checkpoints; a KeyboardInterrupt that says how to go on.

    Notes
    -----
    Results do not depend on torch's global generators, default device and dtype, autocast, inference mode or grad mode,
    nor on runs in other threads, and all of these are afterwards as they were. Initial parameters are what the layers'
    ``reset_parameters`` draw by torch; a model that draws them otherwise, from numpy say, needs ``init="given"``.
    Tensors that a model's forward makes without a device are made on the run's, if the caller has set a default device.

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
    options = dict(locals())
    check_options(options)
    _check_saving(options)
    task = options["task"] = as_task(task)
    rounds, seed, eval_every = int(rounds), int(seed), int(eval_every)  # numpy's integers are no JSON
    sizes = (eval_examples, eval_nodes, fine_tune_every)
    eval_examples, eval_nodes, fine_tune_every = (None if size is None else int(size) for size in sizes)
    names = sets_named(evaluate_on)
    options["evaluate_on"] = evaluate_on = names[0] if len(names) == 1 else list(names)
    algorithm = with_fine_tuning(algorithm, fine_tune)
    clients = clients.pooled() if algorithm.pooled else clients
    graphs = check_topology(algorithm, topology, clients.n, on_disconnected)
    if algorithm.needs_topology and mixing is None and graphs.period is not None:  # else the rule warns when it is used
        warn_of_unused_weights(map(graphs.at, range(graphs.period)), "mixing", pushes=algorithm.pushes)
    check_asked(algorithm, clients)
    check_voters(algorithm, task)
    check_start(algorithm, init)
    folder = None if checkpoint is None else Path(checkpoint).absolute()  # wherever callbacks may go
    with held(folder) as lock:
        found = None if folder is None else to_resume_from(folder, resume)
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        before = None if found is None else _plan_of(found, executor, chunk)
        compute = Compute(executor, chunk, precision, channels_last, compile, place, dtype, before)
        _tell_of_emulation(compute)
        sets = evaluated_by(clients, evaluate_on, eval_examples, eval_nodes, seed, place)
        with giving_back(place.type == "cpu"):  # what checks and the choice of an executor took
            on = list(sets.values())
            world = World.build(
                algorithm, model, clients, graphs, mixing, seed, init, compute, on_divergence, on, augment, task
            )
        states = {name: init(world.models) for name, init in algorithm.states.items()}
        recorder = Recorder(rounds, eval_every)
        training = _Training(algorithm, world, sets, moments, rounds, eval_every, fine_tune_every, states, recorder)
        chosen = {"rounds": rounds, "seed": seed, "evaluate_on": evaluate_on, "eval_every": eval_every}
        chosen |= {"eval_examples": eval_examples, "eval_nodes": eval_nodes}
        chosen |= {"task": {"name": task.name, "scores": task.directions}}
        chosen |= {"augment": None if augment is None else augment.name}
        chosen |= {
            "fine_tune_every": fine_tune_every,
            "moments": moments,
            "init": init,
            "on_disconnected": on_disconnected,
        }
        chosen |= {"precision": precision, "on_divergence": on_divergence}
        chosen |= {"asked": {"executor": executor, "chunk": chunk if isinstance(chunk, str) else int(chunk)}}
        meta = _meta(algorithm, world, clients, graphs) | chosen

        def tell(event: Event) -> None:
            for callback in callbacks:
                callback(event)

        marker = {}
        if folder is not None:
            check_space(folder, training.size)
            run_is = fingerprint(options, algorithm, model, clients, graphs, world)
            asked = list(meta["asked"].values())
            marker = {"rounds": rounds, "versions": versions(), "device": str(place), "asked": asked, "run": run_is}
        start = 0 if found is None else training.resume(found, marker)
        began = time.perf_counter()
        with world.threads() as each, stop_between_rounds(folder is not None) as request:
            keeper = Keeper(
                folder, rounds, check_every(checkpoint_every), training.size, training.state, marker, tell, request,
                saved=None if found is None else start, lock=lock,
            )  # fmt: skip
            tell(Event("start", start, meta | {"rounds": rounds, "resumed_at": start}, world.models))
            if found is None:
                _begin(training, each, keeper, tell)
            _train(training, each, start, keeper, tell, on_round, _progress(start, rounds, progress, training.title))
        tell(Event("end", rounds, {"seconds": time.perf_counter() - began, "rounds": rounds}, world.models))
        diverged = [one._asdict() for one in world.guard.found]
        return training.recorder.history(meta | {"diverged": diverged})


@dataclass(frozen=True, eq=False)
class _Training:
    """A run under way: what it is, and what changes from round to round."""

    algorithm: Algorithm
    world: World
    sets: Sets
    moments: str
    rounds: int
    eval_every: int
    fine_tune_every: int | None
    states: dict[str, State]
    recorder: Recorder

    @property
    def title(self) -> str:
        return f"{self.algorithm.name} on {self.world.graphs.name}"

    def evaluated(self, done: int) -> bool:
        """Whether models are evaluated after so many rounds."""
        return done % self.eval_every == 0 or done == self.rounds

    def fine_tuned(self, done: int) -> bool:
        """Whether copies of the models are fine-tuned, and evaluated, after so many rounds."""
        every = self.fine_tune_every or self.rounds
        return self.algorithm.fine_tune is not None and done > 0 and (done % every == 0 or done == self.rounds)

    @property
    def size(self) -> int:
        """Bytes that a checkpoint takes, mixing matrices apart."""
        flat = self.world.models.flat
        tensors = [flat, *(tensor for state in self.states.values() for tensor in state.values())]
        further = (self.algorithm.fine_tune, self.algorithm.neighbors)
        moments = 1 + (self.moments == "both") + sum(one is not None for one in further)
        scores = len(self.world.task.reported) * moments * len(self.sets) * (2 + self.rounds // self.eval_every)
        recorded = 8 * len(flat) * (self.rounds + scores)
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors) + recorded + 2**14

    def state(self) -> dict[str, Any]:
        """Return all that a round starts from, as tensors, numbers and text."""
        return {
            "models": self.world.models.flat,
            "mass": self.world.models.mass,
            "phases": self.states,
            "recorder": self.recorder.state(),
            "guard": self.world.guard.state(),
        }

    def resume(self, found: Checkpoint, marker: Mapping[str, Any]) -> int:
        """Take over a checkpoint of this run, and return how many rounds are done.

        Raises
        ------
        ValueError
            If it is of another run, or `rounds` is fewer than are done.
        """
        check_same(found.marker, marker)
        if self.rounds < found.round:
            raise ValueError(
                f"`rounds` must be at least {found.round}, which are done in {found.path.parent}, got {self.rounds}; "
                "start a shorter run in another folder"
            )
        state = found.state()
        with taken_from(found):
            check_tensors(found.path, state)
            _copy(self.world.models.flat, state["models"])
            _copy(self.world.models.mass, state["mass"])
            if set(state["phases"]) != set(self.states):
                raise ValueError(f"states of {', '.join(self.states)} are needed, got {', '.join(state['phases'])}")
            for name, kept in state["phases"].items():
                _restore(self.states[name], kept, self.world.models.flat.device)
            self.recorder.restore(state["recorder"], self.evaluated, self.fine_tuned, found.round)
            self.world.guard.restore(state["guard"])
        if self.rounds == found.round and (lacking := self._lacking(found)):
            raise ValueError(
                f"`rounds` must be at least {found.round + 1}, got {self.rounds}: so many are done in "
                f"{found.path.parent}, and the last of them was not {lacking}"
            )
        return found.round

    def _lacking(self, found: Checkpoint) -> str:
        """Return what was not done after a round that was not to be the last, and now is."""
        if found.round != self.recorder.last_evaluation:
            return "evaluated"
        regular = self.fine_tune_every is not None and found.round % self.fine_tune_every == 0
        last = found.marker["rounds"] == found.round
        return "" if last or regular or self.algorithm.fine_tune is None else "fine-tuned"


def _copy(own: Tensor, kept: Tensor) -> None:
    """Take over a tensor of the same shape and dtype."""
    if (own.shape, own.dtype) != (kept.shape, kept.dtype):
        raise ValueError(
            f"{tuple(own.shape)} numbers of {own.dtype} are needed, got {tuple(kept.shape)} of {kept.dtype}"
        )
    own.copy_(kept)


def _restore(state: State, kept: Mapping[str, Tensor], device: torch.device) -> None:
    """Give a phase back its tensors, in the memory it already has where they fit."""
    for key in set(state) - set(kept):
        del state[key]
    for key, tensor in kept.items():
        own = state.get(key)
        if own is not None and own.is_contiguous():
            _copy(own, tensor)
        else:
            state[key] = tensor.to(device, copy=True)


def _begin(training: _Training, each: Each, keeper: Keeper, tell: Callback) -> None:
    """Evaluate the models before the first round."""
    scores = _scores(training, each, scores_of(training.world, each, training.sets), 0)
    recorded = training.recorder.add_evaluation({"round": 0} | scores)
    with keeper.after(0):
        tell(Event("evaluation", 0, evaluation_record(recorded), training.world.models))


def _train(
    training: _Training,
    each: Each,
    start: int,
    keeper: Keeper,
    tell: Callback,
    on_round: Callable[[int, Population], None] | None,
    rounds: Iterator[int],
) -> None:
    """Run the rounds from `start` on."""
    world = training.world
    for t in rounds:
        began = time.perf_counter()
        try:
            diverged, columns, recorded = _round(training, each, t, on_round)
        except DivergenceError as error:
            _tell_diverged(error.found, t + 1, world, tell)
            raise
        with keeper.after(t + 1):
            _tell_diverged(diverged, t + 1, world, tell)
            tell(Event("round", t + 1, columns | {"seconds": time.perf_counter() - began}, world.models))
            if recorded is not None:
                tell(Event("evaluation", t + 1, evaluation_record(recorded), world.models))


def _round(
    training: _Training, each: Each, t: int, on_round: Callable[[int, Population], None] | None
) -> tuple[Sequence[Diverged], dict[str, float], dict[str, Any] | None]:
    """Run and record a round; return who diverged in it, its numbers, and those of its evaluation, if there was one."""
    algorithm, world, sets = training.algorithm, training.world, training.sets
    evaluated = training.evaluated(t + 1)
    current = WorldRound(world, each, t, statistics=GradientStatistics() if evaluated else None)
    looked_at = sets if evaluated and training.moments == "both" else None
    before = _play(algorithm, world, current, training.states, looked_at)
    totals: dict[str, float] = dict(current.ledger.totals(current.used))
    if algorithm.pushes:
        totals |= {"smallest_push_weight": float(world.models.mass.min())}
    columns = training.recorder.add_round(current.node_losses, world.models.n, totals, current.used)
    if on_round is not None:
        on_round(t + 1, world.models)
    if not evaluated:
        return current.diverged, columns, None
    diversity, current.statistics = current.statistics.diversity if current.statistics else math.nan, None
    after = scores_of(world, each, sets)
    check_scores(world.guard, after, sets, t, current.lr)
    scores = _scores(training, each, after, t + 1, before, diversity, current.topology)
    return current.diverged, columns, training.recorder.add_evaluation({"round": t + 1} | scores)


def _tell_diverged(found: Sequence[Diverged], done: int, world: World, tell: Callback) -> None:
    for node, _, lr in found:
        tell(Event("divergence", done, {"node": node, "lr": lr, "policy": world.guard.policy}, world.models))


def _check_saving(options: Mapping[str, Any]) -> None:
    """Check the arguments on checkpoints and callbacks."""
    if options["checkpoint"] is not None:
        check_path("checkpoint", options["checkpoint"])
    check_every(options["checkpoint_every"])
    if not isinstance(options["resume"], bool):
        raise TypeError(f"`resume` must be True or False, got {shown(options['resume'])}")
    if options["checkpoint"] is None and options["resume"]:
        raise ValueError("`resume` must be False without a folder to resume from; give one as `checkpoint`")
    callbacks = options["callbacks"]
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise TypeError(f"`callbacks` must be a list of functions that take an Event, got {shown(callbacks)}")


def _tell_of_emulation(compute: Compute) -> None:
    """Warn if products of bfloat16 are asked of a processor that has none."""
    if compute.low is not None and emulates_bf16(compute.device):
        needs = " (AMX or AVX-512 BF16)" if compute.device.type == "cpu" else ""
        text = f"`precision` 'bf16' is emulated on {compute.device}, which has no such products{needs}: leave it out"
        warnings.warn(text, RuntimeWarning, stacklevel=4)


def _plan_of(found: Checkpoint, executor: str, chunk: int | str) -> Plan | None:
    """Return the plan that a run started with, unless another is asked for: timing may decide otherwise now."""
    with taken_from(found):
        was = Plan(*(found.marker["run"][name] for name in Plan._fields))
    asked = zip((executor, chunk), found.marker["asked"], (was.executor, was.chunk), strict=True)
    return was if all(now in ("auto", then, chosen) for now, then, chosen in asked) else None


def _play(
    algorithm: Algorithm,
    world: World,
    current: WorldRound,
    states: dict[str, State],
    sets: Sets | None,
) -> dict[str, Scores] | None:
    """Run the phases of one round; return the scores right before models are exchanged, if `sets` is given."""
    before = None
    for name, phase in algorithm.phases.items():
        if phase.exchanges == "models" and sets is not None and before is None:
            before = scores_of(world, current.each, sets)
        current.phase, current.declared = name, phase
        own = phase.uses or name
        states[own] = phase.apply(world.models, states[own], current)
    return before


def _scores(
    training: _Training,
    each: Each,
    after: Mapping[str, Scores],
    done: int,
    before: Mapping[str, Scores] | None = None,
    diversity: float = math.nan,
    graph: Topology | None = None,
) -> dict[str, Any]:
    """Return the columns of an evaluation after so many rounds, the last of them on a `graph`."""
    world, sets, phase = training.world, training.sets, training.algorithm.fine_tune
    columns: dict[str, Any] = columns_of(after)
    columns |= {"consensus_distance": consensus_distance(_shared(world)), "gradient_diversity": diversity}
    if training.algorithm.pushes:
        columns |= {"push_weight": world.models.mass.clone()}
    if training.moments == "both":
        columns |= columns_of(before or after, BEFORE_EXCHANGE)
    if (neighbors := training.algorithm.neighbors) is not None:
        columns |= columns_of(beside_neighbors(world, each, neighbors, sets), NEAREST)
    if phase is not None:
        tuned = no_scores(sets, world.models.n, world.task)
        if graph is not None and training.fine_tuned(done):
            tuned = fine_tuned(world, each, phase, sets, done - 1, graph)
        columns |= columns_of(tuned, FINE_TUNED)
    return columns


def _shared(world: World) -> Tensor:
    """Return what nodes may agree on: all columns, or those that travel."""
    columns = world.models.columns(world.share)
    parts = [world.models.flat[:, part] for part in columns]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _progress(start: int, rounds: int, progress: bool | str, title: str) -> Iterator[int]:
    from tqdm.auto import tqdm

    quiet = None if "ipykernel" not in sys.modules else False  # None: silent where stderr is no terminal
    disable = quiet if progress == "auto" else not progress
    bar = {"desc": printable(title), "disable": disable, "leave": False, "unit": "round"}
    return iter(tqdm(range(start, rounds), initial=start, total=rounds, **bar))


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
