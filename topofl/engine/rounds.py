"""The round that phases see: training, mixing, aggregation and messages."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from topofl._support.check import shown
from topofl._support.seeding import stream
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.round import Models, Rows, Rule, State, Trial
from topofl.engine.cross_evaluation import check_trials, cross_evaluate
from topofl.engine.dry_run.checked import (
    AggregationRule,
    check_noted,
    check_same_kind,
    state_of_phase,
)
from topofl.engine.dry_run.round import EXCHANGES
from topofl.engine.mixer import Mixer
from topofl.engine.population import Population
from topofl.engine.round_exchanges import RoundExchanges
from topofl.engine.round_training import RoundTraining
from topofl.engine.state import RunState
from topofl.engine.train.diversity import GradientStatistics
from topofl.engine.train.workers import ParallelMap
from topofl.mixing import MixingMatrix
from topofl.topology import Topology

__all__ = ["EngineRound"]

T = TypeVar("T")


@dataclass(eq=False)
class EngineRound:
    """One round of a run, as phases see it; see :class:`topofl.algorithms.Round`.

    Parameters
    ----------
    run_state, parallel_map
        State and threads of the run.
    t
        The round, from 0.
    statistics
        Measures gradient diversity in the first phase that trains; None: not measured.
    phase
        Name of the phase that is applied.
    states
        States of all phases.
    only
        (n,) nodes that may train; None: all.
    sharded
        For each phase, the names of the tensors in its state that have the rows of this rank.
    """

    run_state: RunState
    parallel_map: ParallelMap
    t: int
    statistics: InitVar[GradientStatistics | None]
    phase: str = ""
    states: Mapping[str, State] = field(default_factory=dict)
    only: InitVar[np.ndarray | None] = None
    sharded: Mapping[str, Collection[str]] = field(default_factory=dict)
    noted: dict[str, float | Tensor] = field(default_factory=dict, init=False)
    gathered: dict[str, State] | None = field(default=None, init=False)
    graph: Topology = field(init=False)
    training: RoundTraining = field(init=False)
    exchanges: RoundExchanges = field(init=False)

    def __post_init__(self, statistics: GradientStatistics | None, only: np.ndarray | None) -> None:
        self.graph = self.run_state.graphs.at(self.t)
        self.training = RoundTraining(self.run_state, self.parallel_map, self.t, statistics, only)
        self.exchanges = RoundExchanges(self.run_state, self.parallel_map, self.t)

    def _check_call(self, call: str) -> None:
        """Raise ``ValueError`` if a phase makes a call that it did not make in the dry run."""
        trace = self.run_state.trace
        interchangeable = EXCHANGES if call in EXCHANGES else {call}
        traced = trace.requests.calls.get(self.phase, set())
        if self.phase in trace.algorithm.phases and not interchangeable & traced:
            raise ValueError(
                f"the phase {self.phase!r} must use round.{call} in the first rounds too, which "
                f"show a run what it needs; it does so in round {self.t + 1} only: where "
                "`models.flat.is_meta`, let it make every call that it may make in any round"
            )

    @property
    def topology(self) -> Topology:
        """The graph of the round."""
        self._check_call("topology")
        return self.graph

    @property
    def peers(self) -> Topology:
        """The graph whose in-neighbors nodes may choose to receive from."""
        self._check_call("peers")
        return self.graph

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.run_state.models.n

    def state(self, owner: str) -> State:
        """See :meth:`topofl.algorithms.Round.state`."""
        found = state_of_phase(self.states, owner, self.phase)
        self._check_rows(owner)
        if self.gathered is None:
            return found
        if owner not in self.gathered:
            ranks, names = self.run_state.ranks, self.sharded.get(owner, ())
            self.gathered[owner] = {
                key: ranks.all_rows(x) if key in names else x for key, x in found.items()
            }
        return self.gathered[owner]

    def _check_rows(self, owner: str) -> None:
        """Raise ``ValueError`` if a phase with the rows of a rank reads a state of all nodes."""
        if self.run_state.ranks.size == 1 or self.gathered is not None:
            return
        if not self.run_state.trace.algorithm.phases[owner].rowwise:
            raise ValueError(
                f"the phase {self.phase!r} with rowwise=True must not read the state of the phase "
                f"{owner!r} without it, which has the rows of all nodes; declare it for both, or "
                "for neither"
            )

    @property
    def weights(self) -> MixingMatrix:
        """The mixing matrix of the round; access records it as used."""
        self.exchanges.used = self.run_state.weights(self.topology)
        return self.exchanges.used

    @property
    def push_weights(self) -> MixingMatrix:
        """The column-stochastic matrix of the round; access records it as used."""
        self._check_call("push")
        self.exchanges.used = self.run_state.push_weights(self.topology)
        return self.exchanges.used

    @property
    def sizes(self) -> np.ndarray:
        """See :attr:`topofl.algorithms.Round.sizes`."""
        return self.run_state.sizes

    def rng(self, purpose: str) -> np.random.Generator:
        """See :meth:`topofl.algorithms.Round.rng`."""
        return stream(self.run_state.seed, purpose, self.t)

    def train(
        self,
        models: Models,
        training: Training,
        state: State,
        *,
        participants: np.ndarray | None = None,
    ) -> np.ndarray:
        """See :meth:`topofl.algorithms.Round.train`."""
        population = cast(Population, models)
        return self.training.train(
            self.phase, population, training, state, participants, self._gradient_mixer
        )

    def _gradient_mixer(self, rule: Rule, steps: int) -> Mixer:
        weights = self.run_state.weights(self.topology, rule)
        return self.exchanges.gradient_mixer(weights, steps)

    def cross_evaluate(self, trials: Mapping[int, Trial[T]], on: str) -> dict[int, T]:
        """See :meth:`topofl.algorithms.Round.cross_evaluate`."""
        indices, ranks = self.run_state.examples_of_nodes[on], self.run_state.ranks
        check_trials(trials, indices)
        own = {i: trial for i, trial in trials.items() if ranks.owner[i] == ranks.rank}
        found = cross_evaluate(self.run_state, self.parallel_map, own, indices) if own else {}
        merged = {i: result for part in ranks.objects(found) for i, result in part.items()}
        return {i: merged[i] for i in trials}

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """See :meth:`topofl.algorithms.Round.gradients`."""
        self._check_call("gradients")
        return self.training.gradients(self.phase, cast(Population, models), batch_size, key)

    def mix(
        self,
        weights: MixingMatrix,
        values: Tensor,
        columns: Sequence[slice] = (slice(None),),
        *,
        scalars: int = 0,
        server: bool = False,
        counted: bool = True,
    ) -> None:
        """See :meth:`topofl.algorithms.Round.mix`."""
        self._check_call("server" if server else "mix")
        parts = [values[:, part] for part in columns]
        self.exchanges.mix(
            self.phase, weights, parts, scalars=scalars, server=server, counted=counted
        )

    def aggregate(
        self,
        weights: MixingMatrix,
        values: Tensor,
        rule: AggregationRule,
        *,
        scalars: int = 0,
        counted: bool = True,
    ) -> None:
        """See :meth:`topofl.algorithms.Round.aggregate`."""
        self._check_call("mix")
        self.exchanges.aggregate(
            self.phase, weights, values, rule, scalars=scalars, counted=counted
        )

    def published(self, values: Tensor) -> Tensor:
        """See :meth:`topofl.algorithms.Round.published`."""
        return self.exchanges.published(self.phase, values)

    def all_rows(self, values: Tensor) -> Tensor:
        """See :meth:`topofl.algorithms.Round.all_rows`."""
        return self.run_state.ranks.all_rows(values)

    def own_rows(self, values: Rows) -> Rows:
        """See :meth:`topofl.algorithms.Round.own_rows`."""
        if self.gathered is not None:
            return values
        return self.run_state.ranks.own_rows(values)

    def on_all_models(
        self, function: Callable[[Models, State], State], models: Models, state: State
    ) -> State:
        """See :meth:`topofl.algorithms.Round.on_all_models`."""
        ranks, everyone = self.run_state.ranks, models.of_all_nodes()
        if everyone is models:
            return function(models, state)
        self.gathered = {}
        try:
            state = function(everyone, state)
            for owner, whole in self.gathered.items():
                for key in self.sharded.get(owner, ()):
                    self.states[owner][key].copy_(ranks.own_rows(whole[key]))
        finally:
            self.gathered = None
        models.flat.copy_(ranks.own_rows(everyone.flat))
        models.push_sum_weights.copy_(ranks.own_rows(everyone.push_sum_weights))
        return state

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """See :meth:`topofl.algorithms.Round.send`."""
        self._check_call("server" if server else "send")
        self.exchanges.send(weights, nbytes, server=server)

    def note(self, name: str, value: float | Tensor | np.ndarray) -> None:
        """See :meth:`topofl.algorithms.Round.note`."""
        if name not in self.run_state.trace.requests.noted:
            known = ", ".join(self.run_state.trace.requests.noted) or "none"
            raise ValueError(
                f"the phase {self.phase!r} must note {shown(name)} in the first rounds too, which "
                f"show a run the columns of its history ({known}); note nan there"
            )
        per_node = self.run_state.trace.requests.noted[name]
        if per_node and np.ndim(value) == 1:
            value = value if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value))
            own = len(value) == len(self.run_state.models.flat)
            value = self.all_rows(value) if own else value
        check_same_kind(self.phase, name, check_noted(self.phase, name, value, self.n), per_node)
        if isinstance(value, Tensor):
            self.noted[name] = value.detach().clone()  # without waiting for the device
        else:
            self.noted[name] = np.asarray(value).item()

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that phases noted in the round; NaN for those not noted in it."""
        return {
            name: float(self.noted.get(name, np.nan))
            for name, per_node in self.run_state.trace.requests.noted.items()
            if not per_node
        }

    @property
    def node_values(self) -> dict[str, Tensor]:
        """The values per node, (n,), that phases noted; NaN for those not noted in the round."""
        nothing = torch.full((self.n,), torch.nan, dtype=torch.float64, device="cpu")
        return {
            name: cast(Tensor, self.noted.get(name, nothing))
            for name, per_node in self.run_state.trace.requests.noted.items()
            if per_node
        }
