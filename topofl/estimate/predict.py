"""Estimates of a run from a dry run of its first rounds, on tensors without memory."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn

from topofl._support.ambient import in_plain_torch
from topofl._support.check import check_switch
from topofl._support.memory import free_memory, watched_growth
from topofl._support.public import public
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import Rule
from topofl.attacks import Attack
from topofl.data import Partition
from topofl.engine.dry_run import play_rounds
from topofl.engine.footprint import Footprint, footprint
from topofl.engine.gradients import is_linear
from topofl.engine.options import OPTIONS, Compute, Evaluation, as_options
from topofl.engine.plan import Plan, choose_plan
from topofl.engine.requests import Setup
from topofl.engine.round import Round
from topofl.engine.setup import resolve
from topofl.estimate.probe import fewest_nodes, probe_run
from topofl.estimate.result import OTHER_DISK, Estimate
from topofl.estimate.traffic import MOST_ROUNDS, SAMPLED_ROUNDS, traffic_of
from topofl.history.matrices import bytes_of, digest_of, kept
from topofl.mixing import MixingMatrix
from topofl.tasks import Task

__all__ = ["estimate"]


@public(options=OPTIONS)
@in_plain_torch
def estimate(
    algorithm: Algorithm,
    *,
    model: nn.Module,
    clients: Partition,
    topology: Any = None,
    mixing: Rule | MixingMatrix | None = None,
    task: Task | None = None,
    attackers: Attack | None = None,
    rounds: int | None = None,
    evaluation: Evaluation | int | str | Sequence[str] | None = None,
    compute: Compute | torch.device | str | None = None,
    probe: bool = False,
) -> Estimate:
    """Return the memory that :func:`topofl.run` will need, and its messages, without training.

    The first rounds of the algorithm run on tensors that have shapes but no memory, so that the
    messages are those that the run will record. If nodes choose their peers by losses, which are
    all 0 here, this takes 10 rounds, and the run may send more or fewer messages. A step and an
    evaluation of one model are traced on two and on three examples, counting all live tensors.
    Temporary memory inside of kernels is not counted: ``python -m analysis.peak_memory`` compares
    predictions to measured peaks.

    Parameters
    ----------
    algorithm, model, clients, topology, mixing, task, attackers, evaluation
        As in :func:`topofl.run`. For graphs that change, messages are means over a period, or over
        the first 10 rounds if there is none; those of the busiest node are maxima. For methods that
        draw their messages at random, such as :func:`topofl.algorithms.random_walks`, messages are
        means over up to 100 rounds, fewer with more nodes, or if the mean is precise to about 1 %.
    rounds
        As in :func:`topofl.run`, to include the memory of the history of all rounds. If graphs do
        not repeat, or participants change from round to round, the memory of mixing matrices is
        extrapolated from the first rounds. None: the history is not counted.
    compute
        As in :func:`topofl.run`. ``"auto"`` for executor and chunk is resolved as in the run if a
        rule decides (for linear models, and if memory is short). If the run will time executors,
        the memory is that of its first batched trial, with 2 to 8 nodes per call, or of the
        executor that a probe has chosen.
    probe
        Train some of the nodes for 4 rounds, at least as many as are trained at once, to predict
        the run time; this usually takes seconds. On Linux, memory on the CPU is corrected by the
        measured growth of this process. Skipped if the run does not fit into memory.

    Raises
    ------
    ValueError, TypeError
        If arguments do not match each other, as in :func:`topofl.run`. A run that does not fit into
        memory is not an error here.

    Examples
    --------
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=10, seed=0)
    >>> need = estimate(algorithms.dsgd(lr=0.1, momentum=0.9), topology=topologies.ring(10),
    ...                 model=models.logistic_regression(64), clients=clients)
    >>> need.parameters, need.state  # 10 models of 650 numbers of 4 bytes
    (26000, 26000)
    >>> need.messages  # each node sends to 2 neighbors
    20
    """
    check_switch("probe", probe, auto=False)
    with watched_growth(probe) as growth:
        setup = resolve(
            algorithm,
            model=model,
            clients=clients,
            rounds=rounds,
            topology=topology,
            mixing=mixing,
            task=task,
            attackers=attackers,
            evaluation=evaluation,
            compute=replace(as_options(Compute, compute), on_disconnected="allow"),
        )
        period = SAMPLED_ROUNDS if setup.trace.chooses else setup.graphs.period or SAMPLED_ROUNDS
        later = play_rounds(setup, period + MOST_ROUNDS)
        played = [next(later) for _ in range(period)]
        need = _footprint(setup, played)
        free = free_memory(setup.device)
        planned = _planned(setup, need, free, played if probe else None, growth)
    plan = planned.plan
    traffic, on_disk = traffic_of(setup, played, later), _on_disk(setup, need)
    return Estimate(
        name=f"{setup.algorithm.name} on {setup.graphs.name}",
        n=need.sizes.n,
        d=need.sizes.d,
        executor=plan.executor,
        chunk=plan.chunk,
        workers=plan.workers,
        **need.parts(plan),
        beyond=planned.beyond,
        held=need.held,
        returned=need.returned,
        free=free,
        remedy=_remedy(need, plan, free, on_disk),
        **traffic.per_round(),
        drawn=traffic.drawn,
        **on_disk,
        **planned.seconds,
    )


def _on_disk(setup: Setup, need: Footprint) -> dict[str, int]:
    """Return the bytes of the file of the models and those free on its disk, if there is one."""
    folder = setup.compute.scratch
    if folder is None:
        return {}
    return {
        "file": need.sizes.n * need.model,
        "disk": shutil.disk_usage(folder).free,
    }


def _remedy(need: Footprint, plan: Plan, free: int | None, on_disk: Mapping[str, int]) -> str:
    """Return what would fit, if a run does not fit into memory or on a disk; else nothing."""
    if free is not None and not need.fits_into(free)(plan):
        return need.remedy(free)
    return OTHER_DISK if on_disk and on_disk["file"] > on_disk["disk"] else ""


class _Planned(NamedTuple):
    """Plan of a run, and memory beyond its prediction and times that a probe measured."""

    plan: Plan
    beyond: int = 0
    seconds: Mapping[str, Any] = MappingProxyType({})


def _planned(
    setup: Setup,
    need: Footprint,
    free: int | None,
    probed: Sequence[Round] | None,
    growth: Callable[[], int | None],
) -> _Planned:
    """Return the plan of a run; with first rounds that are `probed`, from a probe if it fits."""
    linear = is_linear(setup.module)
    fits = need.fits_into(free)
    plan = choose_plan(setup.compute, linear, need.sizes, None, fits)
    if probed is None or not fits(plan):
        return _Planned(plan)
    found = probe_run(setup, probed, fewest_nodes(plan, need.sizes))
    beyond = 0
    if setup.device.type == "cpu" and (grown := growth()) is not None:
        own = need.of_first(found.nodes, fine_tuning=0, history=0)
        beyond = grown - own.needed(found.plan)
    executor = found.plan.executor
    chunk = "auto" if executor == "looped" else setup.compute.chunk
    compute = replace(setup.compute, executor=executor, chunk=chunk)
    plan = choose_plan(compute, linear, need.sizes, None, fits)
    return _Planned(plan, beyond, found.seconds)


def _footprint(setup: Setup, played: Sequence[Round]) -> Footprint:
    """Return the memory of a run, given a dry run of its first rounds."""
    exchanges = [exchange for round in played for exchange in round.exchanges]
    matrices = {id(exchange.weights): exchange.weights for exchange in exchanges}
    history = _bytes_of_history(setup, len(played))
    return footprint(setup, list(matrices.values()), history)


def _bytes_of_history(setup: Setup, period: int) -> int:
    """Return the bytes of the history after all rounds: columns, and mixing matrices."""
    rounds = setup.rounds
    if rounds is None:
        return 0
    n = setup.clients.n
    noted = setup.trace.noted.values()
    scores = (
        len(setup.columns) + setup.trace.pushes + sum(noted) + len(setup.evaluation.per_node or ())
    )
    evaluations = 1 + -(-rounds // setup.evaluation.every)
    # losses of nodes, columns of rounds, and the index of the mixing matrix
    per_round = n + 9 + setup.trace.pushes + len(noted) - sum(noted)
    numbers = rounds * per_round + evaluations * (scores * n + 3)
    return 8 * numbers + _bytes_of_matrices(setup, rounds, period)


def _bytes_of_matrices(setup: Setup, rounds: int, period: int) -> int:
    """Return the bytes of mixing matrices that a history stores, from those of its first rounds.

    They repeat after a `period`, or those of its rounds are not representative of later ones; then
    the bytes beyond it grow in proportion to rounds.
    """
    ahead, sizes, seen = min(rounds, period + SAMPLED_ROUNDS), [0], set[bytes]()
    for round in play_rounds(setup, ahead):
        stored = None if round.used is None else kept(round.used)
        digest = b"" if stored is None else digest_of(stored)
        added = 0 if stored is None or digest in seen else bytes_of(stored)
        sizes.append(sizes[-1] + added)
        seen.add(digest)
    if ahead == rounds:
        return sizes[-1]
    return sizes[-1] + (sizes[-1] - sizes[period]) * (rounds - ahead) // (ahead - period)
