"""Runs: :func:`run`, from arguments to a history, and the only loop over rounds."""

import math
import os
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from topofl._support.check import check_int, check_switch, shown
from topofl._support.machine import emulates_bf16, returning_freed_memory
from topofl._support.notebook import progress_bar
from topofl._support.public import public, warn_caller
from topofl._support.seeding import in_plain_torch
from topofl.algorithms.contract.phase import Algorithm, naming_phase
from topofl.algorithms.contract.round import Rule
from topofl.attacks import Attack
from topofl.callbacks import Callback, Event
from topofl.data import Partition
from topofl.engine.checkpoint import KEPT, Checkpoint, checkpoint_to_resume, newest_round, prune
from topofl.engine.divergence import Diverged, DivergenceError
from topofl.engine.graph_checks import why_ignored
from topofl.engine.joining import history_of_others, joined_ranks, tell_history
from topofl.engine.memory import mapped_files
from topofl.engine.options import OPTIONS, Compute, Evaluation, Saving, as_options
from topofl.engine.ranks import Ranks, one_process
from topofl.engine.recorder import GradientStatistics, means_of, totals_of
from topofl.engine.requests import Setup, checked_state
from topofl.engine.round import Round, computed_round
from topofl.engine.saving import (
    CheckpointSchedule,
    naming_checkpoints,
    reserved_folder,
    stop_between_rounds,
)
from topofl.engine.setup import resolve
from topofl.engine.stages import Before, evaluation_columns, scores_of
from topofl.engine.state import Run, plan_of_checkpoint
from topofl.engine.together import joined
from topofl.history import History, evaluation_record
from topofl.mixing import MixingMatrix
from topofl.tasks import Task


@public(options=OPTIONS)
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
    attackers: Attack | None = None,
    init: str = "common",
    evaluation: Evaluation | int | str | Sequence[str] | None = None,
    compute: Compute | torch.device | str | None = None,
    saving: Saving | os.PathLike[str] | str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | str = "auto",
) -> History:
    """Train one model per node over a topology, and return the history.

    Parameters
    ----------
    algorithm
        For example ``algorithms.dsgd(lr=0.1)``.
    model
        The network; only its structure is used unless ``init="given"``, and it is not changed.
    clients
        The data of each node, and how images are augmented in training
        (:func:`topofl.data.augmented`).
    rounds
        Number of rounds; in each, every phase of the algorithm is applied once.
    seed
        Seed of initial parameters and minibatches (separate streams). Data and graph have their own
        seeds.
    topology
        Anything :func:`topofl.as_topology` takes. Node i is client i; if nodes have labels,
        ``nodes[i]`` of the Topology is the label of client i. May be omitted if the algorithm
        exchanges nothing; ignored if a server averages, as in :func:`topofl.algorithms.fedavg`. A
        warning says so, and the run goes on, so that methods can be compared by the same call.
    mixing
        Weight rule applied to each round's graph, or one fixed :class:`MixingMatrix`. Default: the
        graph's own weights if it has some, else Metropolis-Hastings on undirected graphs and
        uniform averaging over in-neighbors on directed ones. A warning names the first round in
        which the default ignores unequal edge weights: to mix by them, give
        ``as_topology(graph, own_weights=True)`` as `topology`; to ignore them, name a rule here.
        Another names the node with the largest share if directed graphs, static or periodic, weigh
        nodes unequally (see :func:`topofl.metrics.perron_vector`), unless nodes push their models.
        The rows of a matrix with labels must have the labels of `topology` in the same order.
    task
        The loss of each example and the scores that evaluations report, such as
        :func:`topofl.tasks.regression`. None: :func:`topofl.tasks.classification`.
    attackers
        Nodes that send forged models, such as ``attacks.sign_flip(nodes=[3, 7])``. They are not
        evaluated. None: no attackers.
    init
        ``"common"``: all nodes start from one random model; ``"independent"``: each node from its
        own; ``"given"``: all from `model` as it is.
    evaluation
        When models are evaluated, and on which examples: a :class:`topofl.Evaluation`. A number is
        short for its `every`, names of sets such as ``"own_test"`` for its `on`.
    compute
        Device, precision and executor, and how divergence and disconnected graphs are handled: a
        :class:`topofl.Compute`. A device such as ``"cuda"`` is short for its `device`.
    saving
        Checkpoints, and whether to resume from them: a :class:`topofl.Saving`. A path is short for
        its `folder`. None: nothing is saved.
    callbacks
        Functions that are called with every :class:`topofl.callbacks.Event` of the run, which has
        the models. An exception in one of them stops the run, after the checkpoint that is due in
        that round.
    progress
        Whether to show a progress bar; ``"auto"``: on terminals and in notebooks only.

    Returns
    -------
    History

    Raises
    ------
    ValueError, TypeError
        Before any work is done, if arguments do not fit each other, or the run does not fit into
        free memory.
    TopologyError
        If the topology does not meet the needs of the algorithm.
    DivergenceError
        If a loss becomes NaN or infinite; names node, round and learning rate.
    OSError
        Before any work is done, if the folder for checkpoints cannot be written to or has too
        little space; BlockingIOError if another process is using it, naming that process.
    Interrupted
        After Ctrl-C or SIGTERM, if there is a folder for checkpoints; a KeyboardInterrupt that
        explains how to resume.

    Notes
    -----
    Results do not depend on torch's global generators, default device and dtype, autocast,
    inference mode or grad mode, nor on runs in other threads, and a run leaves all of these
    unchanged. Initial parameters are drawn by the layers' ``reset_parameters`` with torch's random
    functions; a model that draws them in another way, for example from numpy, needs
    ``init="given"``. Tensors that a model's forward creates without a device are created on that of
    the run, if the caller has set a default device.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=10, per_node=2, seed=0)
    >>> history = topofl.run(
    ...     algorithms.dsgd(lr=0.5, batch_size=8),
    ...     model=models.logistic_regression(64),
    ...     clients=clients,
    ...     topology=topologies.ring(10),
    ...     rounds=20,
    ...     seed=0,
    ... )
    >>> history["accuracy"].shape  # rounds 0, 10 and 20; 10 nodes
    (3, 10)
    """
    rounds = check_int("rounds", rounds, minimum=1)
    saving = as_options(Saving, saving)
    given = model, clients, rounds, seed, topology, mixing, init
    setup = resolve(algorithm, *given, evaluation, compute, task, attackers)
    if topology is not None and (why := why_ignored(setup.trace)):
        warn_caller(f"`topology` is ignored by {setup.algorithm.name}: {why}; leave it out")
    return run_of(setup, saving, callbacks, progress)


def run_of(
    setup: Setup, saving: Saving, callbacks: Sequence[Callback], progress: bool | str
) -> History:
    """Train as :func:`run`, which sets up torch, from arguments that were checked."""
    check_switch("progress", progress)
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise TypeError(
            f"`callbacks` must be a list of functions that take an Event, got {shown(callbacks)}"
        )
    # absolute, since callbacks may change the working directory
    folder = None if saving.folder is None else Path(saving.folder).absolute()
    joined = nullcontext(one_process(setup.clients.n, setup.device))  # one process is a rank
    if setup.compute.distributed:
        options = setup.compute.rank_timeout, setup.compute.placement
        joined = joined_ranks(setup.graphs, setup.device, *options)
    with naming_checkpoints(folder), joined as ranks:
        if not len(ranks.nodes):
            return history_of_others(ranks)
        if not ranks.is_first:
            callbacks, progress = (), False
        (history,) = _run_part(setup, ranks, replace(saving, folder=folder), callbacks, progress)
        tell_history(ranks, history)
        return history


def run_together(setups: Sequence[Setup], callbacks: Sequence[Callback] = ()) -> list[History]:
    """Train several runs as one, and return the history of each.

    Each has the bits of its run alone. Nothing is saved. Events have the models of all runs, and
    the columns of their nodes together.

    Raises
    ------
    NotTogether
        If they cannot be trained together.
    DivergenceError, ValueError
        As :func:`run`: what one of them meets alone ends all of them.
    """
    whole = joined(setups)
    ranks = one_process(whole.clients.n, whole.device)
    return _run_part(whole, ranks, Saving(), callbacks, progress=False)


def _run_part(
    setup: Setup, ranks: Ranks, saving: Saving, callbacks: Sequence[Callback], progress: bool | str
) -> list[History]:
    """Run the part of this rank, from its last checkpoint on if there is one to resume from.

    Returns the history of the run, or of each run if several are trained together.
    """
    paths = saving.folder, setup.compute.scratch
    folder, scratch = (None if path is None else Path(path) for path in paths)
    with reserved_folder(folder, ranks) as lock, mapped_files(scratch) as files:
        found = None if folder is None else _checkpoint(folder, saving.resume, ranks)
        plan = None if found is None else plan_of_checkpoint(found, setup.compute)
        _warn_of_emulation(setup)
        # memory of checks and of the choice of an executor is given back
        with returning_freed_memory(setup.device.type == "cpu"):
            run = Run.build(setup, plan, ranks, files, callbacks)
        marker = {} if folder is None else run.marker(folder)
        resumed = None if found is None else run.resume(found, marker)
        if folder is not None and ranks.is_first and (resumed or 0) == newest_round(folder):
            prune(folder, KEPT)  # a process that was killed may have left older ones
        meta, start, began = run.metadata(), resumed or 0, time.perf_counter()
        stops = stop_between_rounds(folder is not None, patient=setup.compute.distributed)
        with run.executor.threads(), stops as request:
            checkpoints = CheckpointSchedule(run, saving, folder, marker, request, resumed, lock)
            run.emit(Event("start", start, meta | {"resumed_at": start}, run.models))
            if resumed is None:
                values = _evaluate(run, computed_round(run))
                with checkpoints.after_round(0):
                    run.emit(Event("evaluation", 0, values, run.models))
            title = f"{setup.algorithm.name} on {setup.graphs.name}"
            left, whole = range(start, run.rounds), {"initial": start, "total": run.rounds}
            for t in progress_bar(left, title, "round", progress, **whole):
                _run_round(run, t, checkpoints)
        values = {"seconds": time.perf_counter() - began, "rounds": run.rounds}
        run.emit(Event("end", run.rounds, values, run.models))
        return run.histories(saving.models)


def _checkpoint(folder: Path, resume: bool, ranks: Ranks) -> Checkpoint | None:
    """Return the checkpoint to resume from, which rank 0 chooses for all ranks."""
    found = checkpoint_to_resume(folder, resume) if ranks.is_first else None
    place = ranks.of_first(None if found is None else (found.path.name, dict(found.marker)))
    if place is None:
        return None
    name, marker = place
    return Checkpoint(folder / name, marker)


def _evaluate(
    run: Run, current: Round, before: Before = None, diversities: Sequence[float] = ()
) -> dict[str, float]:
    """Evaluate the models, record all columns, and return those of one number.

    With several runs, numbers are means over all of them.
    """
    began = time.perf_counter()
    noted = current.noted_values(per_node=True)
    columns = evaluation_columns(run, before, diversities or [math.nan] * len(run.recorders), noted)
    recorded = [
        evaluation_record(recorder.add_evaluation({"round": run.done} | own))
        for recorder, own in zip(run.recorders, columns, strict=True)
    ]
    return means_of(recorded) | {"seconds": time.perf_counter() - began}


def _run_round(run: Run, t: int, checkpoints: CheckpointSchedule) -> None:
    """Run and record a round, call callbacks, and write any checkpoint that is due."""
    began = time.perf_counter()
    try:
        diverged, columns, scores = _round(run, t)
    except DivergenceError as error:
        _emit_divergence(run, error.found)
        raise
    with checkpoints.after_round(t + 1):
        _emit_divergence(run, diverged)
        values = columns | {"seconds": time.perf_counter() - began}
        run.emit(Event("round", t + 1, values, run.models))
        if scores is not None:
            run.emit(Event("evaluation", t + 1, scores, run.models))


def _round(run: Run, t: int) -> tuple[list[Diverged], dict[str, float], dict[str, float] | None]:
    """Run and record a round; return diverged nodes, its columns, and those of any evaluation."""
    run.begin_round(t)
    evaluated = run.evaluated(t + 1)
    measured = evaluated and "gradient_diversity" not in run.setup.evaluation.without
    statistics = GradientStatistics(run.setup.rows) if measured else None
    current = computed_round(run, states=run.states, statistics=statistics)
    before_exchange = _apply_phases(run, current, evaluated)
    columns = _recorded_round(run, current)
    if not evaluated:
        return current.diverged, columns, None
    diversities = statistics.diversities(run.ranks) if statistics else []
    statistics = current.statistics = None  # frees its memory before the evaluation
    run.lr = current.lr
    return current.diverged, columns, _evaluate(run, current, before_exchange, diversities)


def _recorded_round(run: Run, current: Round) -> dict[str, float]:
    """Record a round, of each run if there are several, and return its columns of one number."""
    setup, losses, noted = run.setup, current.node_losses, current.noted_values(per_node=False)
    weights = current.all_rows(run.models.push_sum_weights) if setup.trace.pushes else None
    traffic = run.ranks.traffic(current.used) if setup.compute.distributed else {}
    columns = []
    for k, (recorder, rows) in enumerate(zip(run.recorders, setup.rows, strict=True)):
        exchanges, used = current.exchanges, current.used
        if setup.parts:
            exchanges = [e._replace(weights=setup.matrices_of(e.weights)[k]) for e in exchanges]
            used = used and setup.matrices_of(used)[k]
        totals = {"steps": current.steps[k], **totals_of(exchanges, used)}
        if weights is not None:
            totals |= {"smallest_push_weight": float(weights[rows].min())}
        totals |= noted | traffic
        own = None if losses is None else losses[rows]
        columns.append(recorder.add_round(own, rows.stop - rows.start, totals, used))
    return means_of(columns)


def _emit_divergence(run: Run, found: Sequence[Diverged]) -> None:
    labels = run.monitor.labels
    for node, _, lr in found:
        label = {"label": str(labels[node])} if labels else {}
        values = {"node": node, **label, "lr": lr, "policy": run.monitor.policy}
        run.emit(Event("divergence", run.done, values, run.models))


def _apply_phases(run: Run, current: Round, evaluated: bool) -> Before:
    """Apply the phases of a round; return any scores right before an exchange."""
    states, scores = run.states, None
    scored = evaluated and "before_exchange" in run.setup.stages
    for name, phase in run.algorithm.phases.items():
        if scored and name == run.setup.trace.exchange:
            scores = scores_of(run)
        current.phase = name
        with naming_phase(name):
            state = checked_state(name, "apply", phase.apply(run.models, states[name], current))
        # such as last round's gradients, which the next overwrite
        states[name] = run.executor.buffers.apart(state) if state else state
    return scores


def _warn_of_emulation(setup: Setup) -> None:
    """Warn if the device has no bfloat16 products and must emulate them."""
    device = setup.device
    if setup.compute.precision == "bf16" and emulates_bf16(device):
        needs = " (AMX or AVX-512 BF16)" if device.type == "cpu" else ""
        why = f"which has no bfloat16 products{needs}"
        text = f"`precision` 'bf16' is emulated on {device}, {why}: leave it out"
        warn_caller(text, RuntimeWarning)
