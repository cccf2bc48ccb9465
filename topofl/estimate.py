"""Estimates of a run: its memory, messages and bytes, and with a short probe its run time.

They stand on a dry run of the first rounds, on tensors without memory.
"""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

import torch
from torch import nn

from topofl._support.check import check_switch
from topofl._support.machine import free_memory, watched_growth
from topofl._support.notebook import paragraph
from topofl._support.public import public
from topofl._support.seeding import in_plain_torch
from topofl._support.table import Table
from topofl.algorithms.contract.phase import Algorithm
from topofl.algorithms.contract.round import Rule
from topofl.attacks import Attack
from topofl.data import Partition
from topofl.engine.dry_run import play_rounds
from topofl.engine.footprint import Footprint, footprint, in_gib, peak
from topofl.engine.options import OPTIONS, Compute, Evaluation, as_options
from topofl.engine.plan import Plan, choose_plan
from topofl.engine.probe import fewest_nodes, probe_setup
from topofl.engine.recorder import totals_of
from topofl.engine.requests import Setup
from topofl.engine.round import Round
from topofl.engine.setup import resolve
from topofl.history.matrices import bytes_of, digest_of, kept
from topofl.mixing import MixingMatrix
from topofl.tasks import Task

__all__ = ["Estimate", "estimate"]

_MIB = 2**20

_MEMORY_PARTS = (
    "parameters", "state", "fine_tuning", "gradients", "minibatches", "activations", "statistics",
    "float64", "phases", "mixing", "evaluation", "matrices", "data", "torch",
)  # fmt: skip
"""Fields of an estimate that are bytes of memory, except for the history."""

_OTHER_DISK = "use a folder on another disk"
"""What to do if a disk has too little space for the file of the models."""

_SAMPLED_ROUNDS = 10
"""Rounds over which the messages of graphs without a period are averaged."""

_MOST_ROUNDS = 100
"""Largest number of rounds in means of random messages, before rounding up to whole periods."""

_DRAWN_EVENTS = 20_000
"""Nodes times rounds in means of random messages, within 10 to 100 rounds."""

_PRECISION = 0.01
"""Relative standard error at which the mean of random messages is precise enough."""

_COSTLY = 0.02
"""Share of a round's seconds above which the cost of a column is named."""


@dataclass(frozen=True)
class Estimate:
    """Memory of a run, messages and bytes sent per round, and seconds if a probe was run.

    Memory is in bytes.

    Parameters
    ----------
    name
        Algorithm and topology.
    n, d
        Number of nodes, and of parameters of one model.
    executor, chunk, workers
        The plan of the estimate: executor, nodes per call (1 for the looped executor), and threads
        that process chunks in parallel.
    parameters
        Memory of all models; with models in a file (``Compute(scratch=...)``), of the part of it
        that is in memory.
    state
        Memory of the algorithm's state, such as momentum.
    fine_tuning
        Memory of the copies of models that are fine-tuned before an evaluation, and of their
        momentum.
    gradients
        Memory of the gradients of the chunks in progress, and, if the algorithm mixes gradients, of
        all nodes' gradients or of the means over groups.
    minibatches
        Memory of the examples and labels gathered for these chunks.
    activations
        Peak memory of their forward and backward passes, without gradients.
    statistics
        Memory of the sums of gradients in rounds with an evaluation.
    float64
        Memory of the blocks that gradient diversity and consensus distance convert to float64 in
        these rounds.
    phases
        Temporary memory of phases outside of training, such as copies of the models.
    mixing, evaluation
        Memory of the buffers of all workers for mixing and for evaluation.
    matrices
        Memory of the mixing matrices of the rounds that were simulated.
    history
        Memory of the record of all rounds, including mixing matrices; 0 if `rounds` was not given.
    data
        Memory of the dataset.
    torch
        Memory that torch allocates on first use in any run, and of the network itself.
    beyond
        Memory on the CPU that a probe used beyond its prediction, negative if it used less:
        temporary memory of kernels, and fragments held by the allocator. 0 without a probe.
    held
        The part of `data` that is already in memory.
    returned
        Whether memory is returned to the system between training and evaluation.
    free
        Free memory on the device now; None if unknown.
    remedy
        What would fit, if the run does not fit into memory, or else not on the disk.
    file
        Bytes of the file of the models with ``Compute(scratch=folder)``; otherwise 0.
    disk
        Free bytes on the disk of that folder; None without such a file.
    messages, bytes, messages_paper, bytes_paper
        Messages and bytes that all nodes send per round; the latter two as the D-Cliques paper
        counts them. As in :class:`topofl.History`.
    busiest_messages, busiest_bytes
        Incoming and outgoing traffic of the node with the most.
    seconds_per_round, seconds_per_evaluation
        Measured by the probe; None without one. Neither includes fine-tuning.
    seconds_of_columns
        Measured by the probe: what the columns that ``Evaluation(without=...)`` leaves out cost per
        evaluation, by name. Empty without a probe.
    drawn
        If a method draws its messages at random: (number of rounds in the mean, fewest and most
        messages per round); otherwise None.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=4, seed=0)
    >>> found = topofl.estimate(
    ...     algorithms.dsgd(lr=0.1),
    ...     model=models.logistic_regression(64),
    ...     clients=clients,
    ...     topology=topologies.ring(4),
    ... )
    >>> found.d, found.messages, found.bytes  # each of 8 messages is 650 numbers of 4 bytes
    (650, 8, 20800)
    """

    name: str
    n: int
    d: int
    executor: str
    chunk: int
    workers: int
    parameters: int
    state: int
    fine_tuning: int
    gradients: int
    minibatches: int
    activations: int
    statistics: int
    float64: int
    phases: int
    mixing: int
    evaluation: int
    matrices: int
    data: int
    torch: int
    beyond: int
    held: int
    returned: bool
    free: int | None = field(compare=False)
    remedy: str = field(compare=False)
    messages: float
    bytes: float
    messages_paper: float
    bytes_paper: float
    busiest_messages: int
    busiest_bytes: int
    seconds_per_round: float | None = None
    seconds_per_evaluation: float | None = None
    seconds_of_columns: Mapping[str, float] = field(default_factory=dict, hash=False)
    history: int = 0
    drawn: tuple[int, int, int] | None = None
    file: int = 0
    disk: int | None = field(default=None, compare=False)

    @property
    def total(self) -> int:
        """Peak memory in bytes; less than the sum of its parts, which do not all exist at once."""
        return max(0, peak(self._memory(), self.returned) + self.beyond)

    @property
    def added(self) -> int:
        """Memory in bytes that the run adds to the memory in use before it."""
        return self.total - self.held

    @property
    def fits(self) -> bool:
        """Whether enough memory is free, or unknown, and the disk has space for the models."""
        return self._fits_into_memory and (self.disk is None or self.file <= self.disk)

    @property
    def _fits_into_memory(self) -> bool:
        return self.free is None or self.added <= self.free

    def _memory(self) -> dict[str, int]:
        parts = {name: getattr(self, name) for name in _MEMORY_PARTS}
        return parts | ({"history": self.history} if self.history else {})

    def __str__(self) -> str:
        """Return the estimate as tables of memory, messages and times."""
        return "\n\n".join(map(str, self._blocks()))

    def _repr_html_(self) -> str:
        return "".join(
            block._repr_html_() if isinstance(block, Table) else paragraph(block)
            for block in self._blocks()
        )

    def _blocks(self) -> list[Table | str]:
        """Return the tables and sentences of the estimate."""
        title = f"{self.name}: n={self.n:,} models of d={self.d:,} parameters, "
        title += f"{self.executor}, chunk={self.chunk}"
        title += f", workers={self.workers}" if self.workers > 1 else ""
        sizes = [(name, value / _MIB) for name, value in self._memory().items()]
        compared = "more" if self.beyond > 0 else "less"
        sizes += [(f"a probe took {compared}", self.beyond / _MIB)] if self.beyond else []
        sizes += [("at once, at most", self.total / _MIB)]
        sent = (
            ("all nodes", self.messages, self.bytes / _MIB),
            (
                "all nodes, as the D-Cliques paper counts",
                self.messages_paper,
                self.bytes_paper / _MIB,
            ),
            ("busiest node, in and out", self.busiest_messages, self.busiest_bytes / _MIB),
        )
        blocks: list[Table | str] = [
            Table(("memory", "MiB"), tuple(sizes), title),
            self._free_text(),
            *self._disk_text(),
            Table(("per round", "messages", "MiB"), sent),
        ]
        if self.drawn is not None:
            blocks.append(self._drawn_text(*self.drawn))
        if self.seconds_per_round is not None and self.seconds_per_evaluation is not None:
            times = [
                ("per round", self.seconds_per_round),
                ("per evaluation", self.seconds_per_evaluation),
            ]
            costly = {
                name: seconds
                for name, seconds in self.seconds_of_columns.items()
                if seconds > _COSTLY * self.seconds_per_round
            }
            times += [(f"  for {name}", seconds) for name, seconds in costly.items()]
            blocks.append(Table(("measured by a probe", "seconds"), tuple(times)))
            if costly:
                blocks.append(
                    f"Evaluation(without={tuple(costly)}) leaves out columns that cost more than "
                    f"{_COSTLY:.0%} of a round each"
                )
        return blocks

    def _free_text(self) -> str:
        if self.free is None:
            return f"adds {in_gib(self.added)}; free memory is unknown"
        text = f"adds {in_gib(self.added)} of {in_gib(self.free)} free"
        return text if self._fits_into_memory else f"{text}: DOES NOT FIT; {self.remedy}"

    def _disk_text(self) -> list[str]:
        if self.disk is None:
            return []
        if self.file <= self.disk:
            return [f"the file of the models takes {in_gib(self.file)} of {in_gib(self.disk)} free"]
        return [
            f"the file of the models takes {self.file:,} bytes of {self.disk:,} free: DOES NOT "
            f"FIT; {_OTHER_DISK}"
        ]

    def _drawn_text(self, rounds: int, fewest: int, most: int) -> str:
        if fewest == most:
            return (
                "which nodes send messages is drawn at random: maxima are those of "
                f"{rounds} rounds; the busiest node of a run may have more"
            )
        return (
            f"messages are drawn at random: means over {rounds} rounds, with {fewest:,} to "
            f"{most:,} messages each; a run draws others, and its busiest node may have more"
        )


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
        rule decides: for linear models and perceptrons, and if memory is short. If the run will
        time executors, the memory is that of its first batched trial, with 2 to 8 nodes per call,
        or of the executor that a probe has chosen.
    probe
        Train some of the nodes for some rounds, at least as many as are trained at once, to predict
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
        period = 0 if setup.trace.chooses else setup.graphs.period or 0
        later = play_rounds(setup, (period or _SAMPLED_ROUNDS) + _MOST_ROUNDS)
        played = [next(later) for _ in range(period or _SAMPLED_ROUNDS)]
        used = {id(one.weights): one.weights for round in played for one in round.exchanges}
        need = footprint(setup, list(used.values()), _bytes_of_history(setup, len(played)))
        free = free_memory(setup.device)
        plan, beyond, seconds = _planned(setup, need, free, played[0] if probe else None, growth)
    totals, drawn = _traffic(setup, played, later, period or 1)
    file, disk, remedy = 0, None, ""
    if setup.compute.scratch is not None:
        file, disk = need.sizes.n * need.model, shutil.disk_usage(setup.compute.scratch).free
        remedy = _OTHER_DISK if file > disk else ""
    if free is not None and not need.fits_into(free)(plan):
        remedy = need.remedy(free)
    return Estimate(
        name=f"{setup.algorithm.name} on {setup.graphs.name}",
        n=need.sizes.n,
        d=need.sizes.d,
        executor=plan.executor,
        chunk=plan.chunk,
        workers=plan.workers,
        **need.parts(plan),
        beyond=beyond,
        held=need.held,
        returned=need.returned,
        free=free,
        remedy=remedy,
        **{name: _per_round(name, [total[name] for total in totals]) for name in totals[0]},
        drawn=drawn,
        file=file,
        disk=disk,
        **seconds,
    )


def _planned(
    setup: Setup,
    need: Footprint,
    free: int | None,
    probed: Round | None,
    growth: Callable[[], int | None],
) -> tuple[Plan, int, dict[str, Any]]:
    """Return the plan of a run, and memory beyond its prediction and times from a probe.

    There is a probe if a first round is `probed` and the run fits into memory.
    """
    by_rule, fits = setup.is_planned_by_rule, need.fits_into(free)
    plan = choose_plan(setup.compute, by_rule, need.sizes, None, fits)
    if probed is None or not fits(plan):
        return plan, 0, {}
    nodes, trial, seconds = probe_setup(setup, probed, fewest_nodes(plan, need.sizes))
    beyond = 0
    if setup.device.type == "cpu" and (grown := growth()) is not None:
        own = need.of_first(nodes, fine_tuning=0, history=0)
        beyond = grown - own.needed(trial)
    chunk = "auto" if trial.executor == "looped" else setup.compute.chunk
    chosen = replace(setup.compute, executor=trial.executor, chunk=chunk)
    return choose_plan(chosen, by_rule, need.sizes, None, fits), beyond, seconds


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
    ahead, sizes, seen = min(rounds, period + _SAMPLED_ROUNDS), [0], set[bytes]()
    for round in play_rounds(setup, ahead):
        stored = None if round.used is None else kept(round.used)
        digest = b"" if stored is None else digest_of(stored)
        added = 0 if stored is None or digest in seen else bytes_of(stored)
        sizes.append(sizes[-1] + added)
        seen.add(digest)
    if ahead == rounds:
        return sizes[-1]
    return sizes[-1] + (sizes[-1] - sizes[period]) * (rounds - ahead) // (ahead - period)


Totals = dict[str, int]
"""Messages and bytes of one round."""


def _traffic(
    setup: Setup, played: Sequence[Round], later: Iterator[Round], period: int
) -> tuple[list[Totals], tuple[int, int, int] | None]:
    """Return the totals of the rounds `played`, or of more if they are random, and ``drawn``.

    Messages are random if the first rounds differ under a second seed. They are averaged over whole
    periods of the graphs until the mean is precise.
    """
    totals = [_totals(round) for round in played]
    if not setup.trace.drawn:
        return totals, None

    def extend(rounds: int) -> None:
        """Play rounds until there are `rounds`, rounded up to whole periods."""
        rounds = -(-rounds // period) * period
        totals.extend(_totals(next(later)) for _ in range(rounds - len(totals)))

    other_seed = replace(setup, seed=setup.seed + 1)
    for t, other in enumerate(play_rounds(other_seed, _SAMPLED_ROUNDS)):
        extend(t + 1)
        if totals[t] != _totals(other):
            break
    else:
        return totals, None
    if not setup.trace.chooses:
        n = setup.clients.n
        extend(min(_SAMPLED_ROUNDS, max(3, _DRAWN_EVENTS // (2 * n))))
        most = min(_MOST_ROUNDS, max(_SAMPLED_ROUNDS, _DRAWN_EVENTS // n))
        while len(totals) < most and not _is_precise(totals):
            extend(len(totals) + 1)
    messages = [total["messages"] for total in totals]
    return totals, (len(totals), min(messages), max(messages))


def _totals(round: Round) -> Totals:
    return totals_of(round.exchanges, round.used)


def _is_precise(totals: Sequence[Totals]) -> bool:
    """Return whether the means of messages and bytes have small standard errors."""
    columns = [[total[name] for total in totals] for name in ("messages", "bytes")]
    return all(
        fmean(column) > 0 and stdev(column) <= _PRECISION * fmean(column) * math.sqrt(len(column))
        for column in columns
    )


def _per_round(name: str, column: Sequence[int]) -> Any:
    """Return the mean over rounds, or the maximum for the busiest node; whole numbers are ints."""
    if name.startswith("busiest"):
        return max(column)
    mean = math.fsum(column) / len(column)
    return int(mean) if mean.is_integer() else mean
