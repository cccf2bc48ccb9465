"""The round that phases see: it checks, notes and counts their requests, and has them computed.

Without a run nothing is computed: a dry run plays rounds on models without memory to find out what
a run needs. See :class:`topofl.algorithms.Round` for what phases may ask for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from topofl._support.check import check_choice, did_you_mean
from topofl._support.seeding import stream
from topofl.algorithms.contract.descent import rate_at
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.phase import NO_BRANCHES, WHY_PLAYED, explaining_meta_errors
from topofl.algorithms.contract.round import Models, Part, Rows, Rule, State, Trial, check_key
from topofl.engine.divergence import Diverged
from topofl.engine.evaluation import check_trials, cross_evaluate
from topofl.engine.minibatches import Minibatches
from topofl.engine.mixing import Aggregate
from topofl.engine.neighbors import feature_sums, feature_sums_like
from topofl.engine.population import Population
from topofl.engine.recorder import Exchange, GradientStatistics
from topofl.engine.requests import (
    NotTogether,
    Setup,
    aggregated,
    check_matrix,
    check_rule,
    topology_missing,
)
from topofl.engine.state import Run
from topofl.engine.training import LocalSteps, has_rows, local_steps
from topofl.mixing import MixingMatrix
from topofl.topologies.collaboration import answer_queries
from topofl.topology import Topology

T = TypeVar("T")


@dataclass(eq=False)
class Round:
    """One round, as phases see it; see :class:`topofl.algorithms.Round`.

    Parameters
    ----------
    setup
        What all rounds have in common; a dry run notes requests in its trace.
    t, graph
        The round, from 0, and its graph; the complete graph if no topology was given.
    models
        The models that predict.
    states
        States of all phases.
    run
        The run that computes what phases request; None: nothing is computed.
    phase
        Name of the phase that is applied.
    statistics
        Measures gradient diversity in the first phase with gradients; None: not measured.
    only
        (n,) nodes that may train; None: all.

    Attributes
    ----------
    used, mixed
        The mixing matrix that is recorded, and the number of columns that each matrix multiplies,
        counted as messages or not.
    gathered
        States of all nodes, while a phase works on the models of all; None: it does not.
    exchanges
        The exchanges so far, which send messages.
    calls
        Number of exchanges so far, counted as messages or not, and of calls of :meth:`train`, by
        phase.
    losses, lr
        (k,) mean losses of the local steps of predicting models, and their learning rate.
    gradient_losses
        (k,) losses of predicting models in calls of :meth:`gradients`, by phase.
    noted, diverged, steps
        Numbers that phases noted, nodes that diverged, and the number of local steps of all nodes
        of each run: of this one, or of several that are trained together.
    """

    setup: Setup
    t: int
    graph: Topology
    models: Population
    states: Mapping[str, State] = field(default_factory=dict)
    run: Run | None = None
    phase: str = ""
    statistics: GradientStatistics | None = None
    only: np.ndarray | None = None
    used: MixingMatrix | None = field(default=None, init=False)
    mixed: dict[MixingMatrix, int] = field(default_factory=dict, init=False)
    noted: dict[str, float | Tensor] = field(default_factory=dict, init=False)
    gathered: dict[str, State] | None = field(default=None, init=False)
    everyone: Population | None = field(default=None, init=False)
    exchanges: list[Exchange] = field(default_factory=list, init=False)
    calls: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    losses: Tensor | None = field(default=None, init=False)
    lr: float | None = field(default=None, init=False)
    gradient_losses: dict[str, list[Tensor]] = field(default_factory=dict, init=False)
    diverged: list[Diverged] = field(default_factory=list, init=False)
    steps: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.steps = [0] * len(self.setup.rows)

    def _count_steps(self, counts: np.ndarray, per_step: int) -> None:
        """Count the steps of each run's nodes, which took `counts` (n,) minibatches."""
        for k, rows in enumerate(self.setup.rows):
            self.steps[k] += int(counts[rows].sum()) // per_step

    def _enter(self, call: str) -> None:
        """Note a call in a dry run; in a run, raise unless the phase made it in the dry run."""
        trace, phase = self.setup.trace, self.phase
        if call in trace.calls.get(phase, ()):
            return
        if self.run is None:
            trace.note_call(phase, call)
        elif phase in self.setup.algorithm.phases:
            trace.check_call(phase, call, self.t)

    def _count_call(self, kind: str) -> int:
        """Return the number of calls of a kind by the phase, including this one."""
        key = self.phase, kind
        self.calls[key] = count = self.calls.get(key, 0) + 1
        return count

    @property
    def topology(self) -> Topology:
        """The graph of the round."""
        self._enter("topology")
        if self.setup.topology is None:
            raise topology_missing(self.setup.algorithm.name, self._n)
        return self.graph

    @property
    def peers(self) -> Topology:
        """The graph whose in-neighbors nodes may choose to receive from."""
        self._enter("peers")
        return self.graph

    @property
    def n(self) -> int:
        """Number of nodes."""
        self.setup.trace.reads_all = True
        return self._n

    @property
    def _n(self) -> int:
        return self.setup.clients.n

    @property
    def sizes(self) -> np.ndarray:
        """See :attr:`topofl.algorithms.Round.sizes`."""
        self.setup.trace.reads_all = True
        return self.setup.sizes

    def state(self, owner: str) -> State:
        """See :meth:`topofl.algorithms.Round.state`."""
        if owner not in self.states or owner == self.phase:
            others = ", ".join(name for name in self.states if name != self.phase) or "none"
            raise ValueError(
                f"`owner` must be another phase of the chain, got {owner!r} in the phase "
                f"{self.phase!r}; the other phases are {others}"
                f"{did_you_mean(owner, list(self.states))}"
            )
        found, gathered = self.states[owner], self.gathered
        if gathered is None:
            if len(self.models) < self._n and not self.setup.algorithm.phases[owner].rowwise:
                raise ValueError(
                    f"the phase {self.phase!r} with rowwise=True must not read the state of the "
                    f"phase {owner!r} without it, which has the rows of all nodes; declare it for "
                    "both, or for neither"
                )
            return found
        if owner not in gathered:
            names = self._sharded(owner)
            gathered[owner] = {k: self.all_rows(x) if k in names else x for k, x in found.items()}
        return gathered[owner]

    def _sharded(self, phase: str) -> Any:
        """Return the names of the tensors in a phase's state that have the rows of this rank."""
        return self.run.sharded.get(phase, ()) if self.run else ()

    @property
    def weights(self) -> MixingMatrix:
        """The mixing matrix of the round; access records it as used."""
        self.used = self.setup.pulled(self.topology)
        return self.used

    @property
    def push_weights(self) -> MixingMatrix:
        """The column-stochastic matrix of the round; access records it as used."""
        self._enter("push")
        self.used = self.setup.pushed(self.topology)
        return self.used

    def rng(self, purpose: str) -> np.random.Generator:
        """See :meth:`topofl.algorithms.Round.rng`."""
        self.setup.trace.drawn.add(purpose)
        return stream(self.setup.seed, purpose, self.t)

    def train(
        self,
        models: Models,
        training: Training,
        state: State,
        *,
        participants: np.ndarray | None = None,
    ) -> np.ndarray:
        """See :meth:`topofl.algorithms.Round.train`."""
        all_counts = counts = training.counts(self.setup.sizes)
        if participants is not None:
            if participants.dtype != bool or participants.shape != counts.shape:
                must = f"`participants` must return one boolean per node, shape {counts.shape}"
                raise ValueError(f"{must}, got {participants.dtype} of shape {participants.shape}")
            counts = np.where(participants, counts, 0)
        population: Any = models
        if self.run is None:
            self._note_training(population, training, state, counts)
        elif self.only is not None:
            counts = np.where(self.only, counts, 0)
        steps = int(counts.max(initial=0))
        weights = None
        if training.gradient is not None and steps:
            weights = self._gradient_weights(training.gradient, steps)
        if self.run is None or not steps:
            return counts
        return self._train(self.run, population, training, state, all_counts, counts, weights)

    def _note_training(
        self, models: Population, training: Training, state: State, counts: np.ndarray
    ) -> None:
        if self.setup.network.statistics and models is not self.models:
            raise ValueError(
                f"`model` must not keep running statistics in {self.setup.algorithm.name}, whose "
                f"phase {self.phase!r} trains copies of the models, and statistics of the copies "
                "would be lost; use models.with_group_norm(model)"
            )
        with _disable_current_modes():  # these tensors do not belong to the phase
            needed = training.init(models).keys()
            trained = np.flatnonzero(counts)
            if models.distinct < len(models):  # trained models are stored apart
                models.write(trained, models.rows(trained))
            rows = {key: x[:1] for key, x in state.items() if x.shape[:1] in ((1,), (self._n,))}
        objective = training.objective
        self.setup.trace.bounds[id(objective)] = objective and (objective, rows)
        if missing := sorted(needed - state.keys()):
            raise ValueError(
                f"`state` must hold the state of the local steps of the phase {self.phase!r}, "
                f"{missing[0]!r} is missing; let its `init` return training.init(models)"
            )
        if self.t == 0:  # later rounds may be beyond the last of the run
            rate_at(training.descend.lr, 0, 0, self.models.dtype, self.phase)
        self.setup.trace.steps.setdefault(self.phase, []).append((training, counts))

    def _gradient_weights(self, rule: Rule, steps: int) -> MixingMatrix:
        """Return the matrix by which gradients are mixed in local steps; count its messages."""
        self._enter("mixed gradients")
        weights, d = self.setup.pulled(self.topology, rule), self.models.d
        if self.run is None:
            self._check_common([range(d)])
            self.setup.trace.rules.append(weights)
        self.mixed[weights] = self.mixed.get(weights, 0) + steps * d
        exchange = Exchange(weights, d * self.models.dtype.itemsize, gradients=True)
        self.exchanges += [exchange] * steps
        return weights

    def _train(
        self,
        run: Run,
        models: Population,
        training: Training,
        state: State,
        all_counts: np.ndarray,
        counts: np.ndarray,
        weights: MixingMatrix | None,
    ) -> np.ndarray:
        """Take local steps in place, and return how many each node took, (n,).

        `all_counts` are the steps of nodes if they take part, `counts` those that they take. With
        `weights`, gradients are mixed in each step. A rank trains its own nodes, also given all.
        """
        ranks, own = run.ranks, models.of_own_nodes()
        mixer = None if weights is None else run.mixing.mixer(weights, len(ranks.nodes))
        rows: State = {}
        if own is not models:
            rows = {key: ranks.own_rows(x) for key, x in state.items() if has_rows(x, self._n)}
        own_counts = ranks.own_rows(counts)
        steps = int(own_counts.max())
        unequal = own_counts if (own_counts < steps).any() else None
        job = self._local_steps(run, own, training, {**state, **rows}, unequal)
        batches = self._minibatches(run, training, ranks.own_rows(all_counts), steps)
        if batches:
            losses = local_steps(run.executor, job, batches, mixer)
        else:  # the nodes of other ranks take steps
            losses = torch.zeros(len(own), 1, dtype=own.dtype, device=own.device)
        self._record_losses(run, job, losses, own_counts)
        if own is not models:
            models.take(own, ranks.all_rows)
            for key, x in rows.items():
                state[key].copy_(ranks.all_rows(x))
        if run.monitor.policy == "freeze":  # frozen models are unchanged
            counts = counts.copy()
            counts[[found.node for found in run.monitor.found]] = 0
        self._count_steps(counts, training.per_step)
        return counts

    def _local_steps(
        self, run: Run, own: Population, training: Training, state: State, counts: np.ndarray | None
    ) -> LocalSteps:
        monitor, weights = run.monitor, own.push_sum_weights
        weighted = self._divided(weights)
        stored = own.held.stored.data_ptr()  # models, which a phase may store in its state
        rest = {key: x for key, x in state.items() if x.data_ptr() != stored}
        bad = run.ranks.own_rows(monitor.frozen(own.device))
        taken = None if counts is None else torch.from_numpy(counts).to(own.device)
        how = self.t, bad, run.ranks.nodes, monitor.policy, counts, taken
        statistics = None if self._has_gradients else self.statistics
        divisors = weights if weighted else None
        return LocalSteps(
            own, training, rest, *how, statistics, divisors, weighted, monitor.labels,
            joined=bool(self.setup.parts),
        )  # fmt: skip

    def _divided(self, weights: Tensor) -> Sequence[int]:
        """Return the parameters whose steps are divided by push-sum weights: none if all are 1."""
        pushed = self.setup.trace.pushed
        if not pushed:
            return ()
        are_one = {bool((weights[rows] == 1).all()) for rows in self.setup.rows}
        if len(are_one) > 1:  # a division by 1 rounds once more than no division
            raise NotTogether("push-sum weights differ from 1 in some of the runs only")
        return () if are_one == {True} else pushed

    def _minibatches(
        self, run: Run, training: Training, all_counts: np.ndarray, steps: int
    ) -> list[Minibatches]:
        """Return the minibatches of a call of :meth:`train`; further calls draw other ones."""
        call = self._count_call("train")
        key = self.phase if call == 1 else f"{self.phase}/{call}"
        first, sizes = self.t * all_counts * training.minibatches, training.sizes
        if isinstance(sizes, np.ndarray):
            sizes = run.ranks.own_rows(sizes)
        draw = run.executor.batches.at
        return [draw(first + k, sizes, key) for k in range(steps * training.minibatches)]

    def _record_losses(self, run: Run, job: LocalSteps, losses: Tensor, counts: np.ndarray) -> None:
        """Record diverged nodes, and the losses of the last phase that trains predicting models."""
        lr = job.step(0).lr
        if self.losses is None or self._predicts(job.models):
            taken = torch.from_numpy(counts).to(losses.device)
            idle = taken == 0  # whose losses do not count
            if run.monitor.policy == "freeze":
                idle |= run.ranks.own_rows(run.monitor.frozen(losses.device))
            means = losses.sum(1) / taken.clamp(min=1)
            self.losses, self.lr = means.masked_fill(idle, torch.nan), lr
        self._note_diverged(run, losses, job.bad, lr)

    def _predicts(self, models: Population) -> bool:
        """Whether these are the models that predict, or a copy of them for all nodes."""
        return self.models in (models, models.copy_of)

    def _note_diverged(self, run: Run, losses: Tensor, bad: Tensor, lr: float) -> None:
        """Record diverged nodes of all ranks."""
        ranks = run.ranks
        if not ranks.any(bool(bad.any())):
            return
        steps = int(ranks.numbers([losses.shape[1]]).max())  # of which this rank took some
        losses = torch.nn.functional.pad(losses, (0, steps - losses.shape[1]))
        losses, bad = ranks.all_rows(losses), ranks.all_rows(bad)
        self.diverged += run.monitor.note(losses, bad, self.t, lr)

    @property
    def node_losses(self) -> Tensor | None:
        """(n,) mean losses of local steps, or without any, of gradient evaluations.

        Of several phases that evaluated gradients the last counts.
        """
        losses = self.losses
        if losses is None and self.gradient_losses:
            losses = torch.stack(list(self.gradient_losses.values())[-1]).mean(0)
        return None if losses is None else self.all_rows(losses)

    def cross_evaluate(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """See :meth:`topofl.algorithms.Round.cross_evaluate`; all losses of a dry run are 0."""
        run = self.run
        if run is None:
            self.setup.trace.trial_sets.add(check_choice("on", on, ["train", "val"]))
            return {i: answer_queries(trial, _zero_losses) for i, trial in trials.items()}
        indices, ranks = run.examples_of_nodes[on], run.ranks
        check_trials(trials, indices)
        own = {i: trial for i, trial in trials.items() if ranks.owner[i] == ranks.rank}
        plan, models = self.setup.evaluation_plan, self._owner
        found = cross_evaluate(plan, models, run.executor, own, indices) if own else {}
        merged = {i: result for part in ranks.objects(found) for i, result in part.items()}
        return {i: merged[i] for i in trials}

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """See :meth:`topofl.algorithms.Round.gradients`."""
        self._enter("gradients")
        check_key(key)
        run, trace = self.run, self.setup.trace
        if run is None:
            trace.gradient_sizes.append(batch_size)
            trace.bounds[id(None)] = None
            if key not in trace.gradients:
                with _disable_current_modes():  # memory that lasts is counted separately
                    trace.gradients[key] = models.flat.new_empty(models.flat.shape)
            return trace.gradients[key]
        population = cast(Population, models)
        name = f"{self.phase}/{key}" if key else self.phase
        batch = run.executor.batches.at(self.t, batch_size, name)
        own = population.of_own_nodes()
        freezes = run.monitor.policy == "freeze" and bool(own.buffers)
        frozen = run.ranks.own_rows(run.monitor.frozen(own.device)) if freezes else None
        losses, gradients = run.executor.all_gradients(own, batch, key, frozen)
        if own is not population and own.buffers:
            population.take(own, run.ranks.all_rows)
        self._count_steps(np.ones(self._n, np.int64), 1)
        if self._predicts(population):  # these losses count without local steps
            if self.statistics is not None and not self._has_gradients:
                out = run.ranks.own_rows(run.monitor.frozen(own.device))
                taken = torch.isfinite(losses) & ~out
                self.statistics.observe([gradients], run.ranks.nodes, taken)
            self.gradient_losses.setdefault(self.phase, []).append(losses)
            if self.losses is None:
                self._note_diverged(run, losses[:, None], ~torch.isfinite(losses), float("nan"))
        return self.all_rows(gradients) if len(population) == self._n else gradients

    def feature_sums(
        self, models: Models, layer: Part, function: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """See :meth:`topofl.algorithms.Round.feature_sums`."""
        self._enter("features")
        population, run = cast(Population, models), self.run
        if run is None:
            with _disable_current_modes():  # the network's numbers do not belong to the phase
                return feature_sums_like(self.setup, layer, function, len(population))
        own = population.of_own_nodes()
        found = feature_sums(self.setup.evaluation_plan, own, run.executor, layer, function)
        return found if own is population else self.all_rows(found)

    def mix(
        self,
        weights: MixingMatrix,
        values: Tensor | Models,
        columns: Sequence[slice] = (slice(None),),
        *,
        scalars: int = 0,
        server: bool = False,
        counted: bool = True,
    ) -> None:
        """See :meth:`topofl.algorithms.Round.mix`."""
        d, run = values.shape[1] if isinstance(values, Tensor) else values.d, self.run
        ranges = [range(d)[part] for part in columns]
        width = sum(map(len, ranges))
        whole = counted or isinstance(values, Population)  # else tensors may hold differences
        ours = self._owner.columns_in(values, ranges)
        buffers = self._owner.traveling_with(ours) if whole and ours else []
        sent = width + scalars + sum(held.stored[0].numel() for held in buffers)
        exchange = self._begin_exchange("mix", weights, sent if counted else None, server)
        once = server and width == d and self.setup.attack is None  # whole models are stored once
        if run is None:
            if not server:
                self.mixed[weights] = self.mixed.get(weights, 0) + width
            self._note_columns(values, ranges, columns)
            if once and isinstance(values, Population):
                with _disable_current_modes():  # the models do not belong to the phase
                    values.fill(values.rows(slice(0, 1)))
            else:
                self._allocate_forged(values if isinstance(values, Tensor) else values.flat)
            return
        for held in buffers:
            run.mixing.mix_buffer(weights, held, self._owner.push_sum_weights, server)
        if once and isinstance(values, Population):
            run.mixing.average(weights, values.held)
            return
        flat = values if isinstance(values, Tensor) else values.flat
        for k, part in enumerate(columns):
            run.mixing.mix(weights, flat[:, part], self.t, f"{exchange}/{k}", server)

    @property
    def _has_gradients(self) -> bool:
        """Whether a phase has taken gradients of the models that predict, or trained any."""
        return self.losses is not None or bool(self.gradient_losses)

    @property
    def _owner(self) -> Population:
        """The models that predict: those of all nodes while a phase works on these."""
        return self.models if self.everyone is None else self.everyone

    def _note_columns(
        self, values: Tensor | Models, ranges: Sequence[range], given: Sequence[slice] = ()
    ) -> None:
        """Note the columns of the models that are exchanged, `given` as slices of the values."""
        shape = tuple(values.shape) if isinstance(values, Tensor) else (len(values.nodes), values.d)
        if not any(map(len, ranges)) or any((part.stop or 0) > shape[1] for part in given):
            raise ValueError(
                f"`columns` of round.mix must be some of the {shape[1]} of `values`, got "
                f"{[*given]} in the phase {self.phase!r}; use models.columns(part), since "
                "parameters that are frozen have no columns"
            )
        ours = self.models.columns_in(values, ranges)
        if ours is None and shape == (len(self.models), self.models.d):
            ours = ranges  # a copy
        if ours is not None:
            self._check_common(ours)
            noted = self.setup.trace.columns.setdefault(self.phase, set())
            noted.update((part.start, part.stop) for part in ours)

    def _check_common(self, columns: Sequence[range]) -> None:
        """Raise ``ValueError`` if nodes would exchange parameters that only some of them use."""
        name = self.setup.trace.layout.partial_in(columns)
        if name is not None:
            layout = self.setup.trace.layout
            common = (one for one in layout.names if one not in layout.partial)
            layers = dict.fromkeys(repr(one.rpartition(".")[0]) for one in common)
            own = f"head=algorithms.part({', '.join(layers)}).rest" if layers else "head=..."
            raise ValueError(
                f"`model` must give all nodes the parameters that {self.setup.algorithm.name} "
                f"exchanges, but only nodes of some kinds use {name!r}, which its phase "
                f"{self.phase!r} sends; exchange a part that all nodes have, as by "
                f"algorithms.fedper({own}), the columns models.columns(part(...)), or class means, "
                "as by algorithms.fedproto"
            )

    def _begin_exchange(
        self, method: str, weights: MixingMatrix, sent: int | None, server: bool = False
    ) -> str:
        """Check and count an exchange; return its name, which seeds attackers' random numbers.

        Messages have `sent` numbers each; None: they are not counted.
        """
        self._enter("server" if server else "mix")
        check_matrix(method, weights)
        self.used = self.used or weights
        if sent is not None:
            nbytes = sent * self.models.dtype.itemsize
            self.exchanges.append(Exchange(weights, nbytes, server=server))
        return f"{self.phase}/{self._count_call('mix')}{' by a server' * server}"

    def _allocate_forged(self, values: Tensor) -> None:
        """Allocate and drop as much memory as forging the sent rows takes."""
        attack = self.setup.attack
        if attack is not None:
            rows = len(values) if attack.to_each else 2 * len(attack.nodes)
            values.new_empty(rows, values.shape[1])

    def aggregate(
        self,
        weights: MixingMatrix,
        values: Tensor,
        rule: Aggregate,
        *,
        scalars: int = 0,
        counted: bool = True,
    ) -> None:
        """See :meth:`topofl.algorithms.Round.aggregate`.

        In a dry run the rule is called once, for the node that receives most rows.
        """
        sent = values.shape[1] + scalars if counted else None
        exchange, phase = self._begin_exchange("aggregate", weights, sent), self.phase

        def checked(own: Tensor, received: Tensor, shares: Tensor) -> Tensor:
            return aggregated(phase, rule, own, received, shares)

        if self.run is not None:
            self.run.mixing.aggregate(weights, values, checked, self.t, f"{exchange}/0")
            return
        check_rule(phase, rule)
        self._note_columns(values, [range(values.shape[1])])
        self._allocate_forged(values)
        rows = torch.empty_like(values)
        largest = int(weights.in_messages.max(initial=0))
        received, shares = values.new_empty(largest, values.shape[1]), values.new_empty(largest)
        must = f"`rule` of the phase {phase!r} must work on rows without numbers, {WHY_PLAYED}"
        with explaining_meta_errors(must, NO_BRANCHES):
            checked(rows[0], received, shares)

    def published(self, values: Tensor, message: int = 0, *, own: bool = False) -> Tensor:
        """See :meth:`topofl.algorithms.Round.published`: the values of the next exchange."""
        if self.run is not None:
            call = self.calls.get((self.phase, "mix"), 0) + 1
            name = f"{self.phase}/{call}/0" + (f"/{message}" if message else "")
            return self.run.mixing.published(values, self.t, name, own=own)
        self._enter("published")
        attack = self.setup.attack
        return values if attack is None or attack.to_each else torch.empty_like(values)

    def all_rows(self, values: Tensor) -> Tensor:
        """See :meth:`topofl.algorithms.Round.all_rows`."""
        return self.models.ranks.all_rows(values)

    def sum_of_ranks(self, values: Tensor) -> Tensor:
        """See :meth:`topofl.algorithms.Round.sum_of_ranks`."""
        same = self.gathered is not None or values.is_meta  # on all ranks, or without numbers
        return values if same else self.models.ranks.sum_(values)

    def own_rows(self, values: Rows) -> Rows:
        """See :meth:`topofl.algorithms.Round.own_rows`."""
        return values if self.gathered is not None else self.models.ranks.own_rows(values)

    def on_all_models(
        self, function: Callable[[Models, State], State], models: Models, state: State
    ) -> State:
        """See :meth:`topofl.algorithms.Round.on_all_models`."""
        ranks, everyone = self.models.ranks, models.of_all_nodes()
        if everyone is models:
            return function(models, state)
        self.gathered, self.everyone = {}, cast(Population, everyone)
        try:
            state = function(everyone, state)
            for owner, whole in self.gathered.items():
                for key in self._sharded(owner):
                    self.states[owner][key].copy_(ranks.own_rows(whole[key]))
        finally:
            self.gathered = self.everyone = None
        cast(Population, models).take(cast(Population, everyone), ranks.own_rows)
        models.push_sum_weights.copy_(ranks.own_rows(everyone.push_sum_weights))
        return state

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """See :meth:`topofl.algorithms.Round.send`."""
        self._enter("server" if server else "send")
        check_matrix("send", weights)
        if server and isinstance(nbytes, np.ndarray):
            must = "`nbytes` of round.send must be one number with a server"
            raise ValueError(f"{must}, got shape {nbytes.shape}; give the bytes of one message")
        if np.max(nbytes) >= self.models.d * self.models.dtype.itemsize:  # of whole models
            self._check_common([range(self.models.d)])
        self.used = self.used or weights
        self.exchanges.append(Exchange(weights, nbytes, server=server))

    def note(self, name: str, value: float | Tensor | np.ndarray) -> None:
        """See :meth:`topofl.algorithms.Round.note`; a dry run ignores the value."""
        trace, playing = self.setup.trace, self.run is None
        trace.check_name(self.phase, name, known=not playing)
        if not playing and trace.noted[name] and np.ndim(value) == 1:
            value = value if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value))
            value = self.all_rows(value) if len(value) == len(self.models) else value
        trace.check_noted(self.phase, name, value)
        if playing:
            return
        if isinstance(value, Tensor):
            self.noted[name] = value.detach().clone()  # without waiting for the device
        else:
            self.noted[name] = np.asarray(value).item()

    def noted_values(self, per_node: bool) -> dict[str, Any]:
        """Return the numbers that phases noted, or the values `per_node`, (n,).

        Those that were not noted in this round are NaN.
        """
        known = [name for name, own in self.setup.trace.noted.items() if own == per_node]
        if not per_node:
            return {name: float(self.noted.get(name, torch.nan)) for name in known}
        nothing = torch.full((self._n,), torch.nan, dtype=torch.float64, device="cpu")
        return {name: self.noted.get(name, nothing) for name in known}


def _zero_losses(models: Tensor) -> Tensor:
    return torch.zeros(len(models), dtype=torch.float64, device="cpu")


def computed_round(run: Run, **given: Any) -> Round:
    """Return the current round of a run, which computes; further fields may be `given`."""
    return Round(run.setup, run.t, run.graph, run.models, run=run, **given)
