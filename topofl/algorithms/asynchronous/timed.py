"""Simulated times of synchronous methods, for comparisons with asynchronous ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from torch import Tensor

from topofl._columns import SECONDS
from topofl._support.check import check_kind
from topofl._support.public import public
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.phase import Algorithm, Phase
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.exchanges.events import zero_times
from topofl.clocks import AnyClock, Clock, as_clock

__all__ = ["timed"]


@public
def timed(algorithm: Algorithm, clock: AnyClock = None) -> Algorithm:
    """Return a synchronous method whose history records ``simulated_seconds``.

    Nodes wait for each other: local training takes as long as at the slowest node, and the exchange
    after it as long as its slowest message; with a server, messages to it come before messages from
    it. If gradients are averaged in each step, nodes wait in each step. The models are those of the
    method itself. Evaluating received models on local examples takes no time. Steps are those that
    a history counts: with SAM both gradients of a minibatch, and with ``dp_dsgd`` those of all its
    records, are one step.

    Parameters
    ----------
    algorithm
        A synchronous method, such as ``dsgd(lr=0.1)``.
    clock
        A :class:`topofl.clocks.Clock`, or a dictionary of its arguments; None: steps take one
        second, and messages no time.

    Raises
    ------
    TypeError
        If `algorithm` is not an :class:`Algorithm <topofl.algorithms.Algorithm>`.
    ValueError
        If it is already timed, has another phase named ``clock``, or records simulated seconds
        itself; if a table of the clock has another number of nodes; if a table of links is given
        for a server; or if any table is given for a pooled model.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.shards(data.digits(), n=4, per_node=3, seed=0)
    >>> clock = {"compute": [1.0, 1.0, 1.0, 5.0], "delay": 0.5}
    >>> algorithm = timed(algorithms.dsgd(lr=0.1, local_steps=2), clock)
    >>> history = topofl.run(algorithm, model=models.logistic_regression(64), clients=clients,
    ...                      topology=topologies.ring(4), rounds=3, seed=0)
    >>> history["simulated_seconds"].tolist()
    [10.5, 21.0, 31.5]
    """
    check_kind("algorithm", algorithm, Algorithm, "an Algorithm such as dsgd(lr=0.1)")
    if "clock" in algorithm.phases:
        raise ValueError(
            "`algorithm` must not be timed already or have a phase named 'clock', got "
            f"{algorithm.name} with phases {', '.join(algorithm.phases)}; call timed once, or "
            "rename that phase"
        )
    times = as_clock(clock)
    for part in ("compute", "delay") if algorithm.pooled else ():
        if (mean := getattr(times, part).mean).ndim:
            raise ValueError(
                f"`{part}` must be one number for {algorithm.name}, which trains one model on the "
                f"data of all nodes, got a table of shape {mean.shape}; give the seconds of that "
                "one machine, or time a method with several nodes"
            )

    def init(models: Models) -> State:
        times.check(models.n)
        return zero_times(seconds=(1,))

    def record(models: Models, state: State, round: Round) -> State:
        round.note(SECONDS, state["seconds"])
        return state

    phases = {name: _measured(name, phase, times) for name, phase in algorithm.phases.items()}
    return replace(
        algorithm, phases=phases | {"clock": Phase(init, record, times.settings, rowwise=True)}
    )


def _measured(name: str, phase: Phase, clock: Clock) -> Phase:
    """Return a phase that adds its simulated seconds to those of the run."""

    def apply(models: Models, state: State, round: Round) -> State:
        exchanges = cast(Any, round).exchanges
        seconds = round.state("clock")["seconds"]
        watched = _Watched(round, clock, name, seconds, exchanges, len(exchanges))
        state = phase.apply(models, state, cast(Round, watched))
        watched.wait_for_messages()
        return state

    return phase._replace(apply=apply)


@dataclass(eq=False)
class _Watched:
    """A round that adds the simulated seconds of what it does to those of the run.

    Attributes
    ----------
    exchanges
        The exchanges that the round counts.
    waited
        Number of these whose seconds have been added.
    """

    round: Round
    clock: Clock
    name: str
    seconds: Tensor
    exchanges: Sequence[Any]
    waited: int
    calls: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.round, name)

    @property
    def _rng(self) -> np.random.Generator:
        """A separate random generator for each call."""
        self.calls += 1
        return self.round.rng(f"seconds/{self.name}/{self.calls}")

    def train(self, models: Models, training: Training, state: State, **who: Any) -> np.ndarray:
        """Train, and add the time of the slowest node, per step if gradients are averaged."""
        self.wait_for_messages()
        counts = self.round.train(models, training, state, **who)
        nodes = np.repeat(np.arange(len(counts)), counts // training.per_step)
        taken = self.clock.steps(self._rng, nodes)
        if training.gradient is None:
            self.seconds += float(np.bincount(nodes, taken, minlength=1).max())
        elif len(nodes):
            active = np.count_nonzero(counts)  # frozen nodes take no steps
            self.seconds += float(taken.reshape(active, -1).max(axis=0).sum())
        else:  # all nodes are frozen
            self.waited = len(self.exchanges)
        return counts

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """Compute gradients, and add the time of the slowest node."""
        self.wait_for_messages()
        self.seconds += float(self.clock.steps(self._rng, np.arange(self.round.n)).max())
        return self.round.gradients(models, batch_size, key)

    def note(self, name: str, value: float | Tensor | np.ndarray) -> None:
        """Record a value, or raise ``ValueError`` if it is simulated seconds."""
        if name == SECONDS:
            raise ValueError(
                f"`algorithm` must be synchronous, but its phase {self.name!r} records {SECONDS} "
                "itself; run it without timed, and give it its own `clock`"
            )
        self.round.note(name, value)

    def wait_for_messages(self) -> None:
        """Add the time of the slowest message of each exchange since the last call."""
        for exchange in self.exchanges[self.waited :]:
            rng, weights, nbytes = self._rng, exchange.weights.weights, exchange.nbytes
            if exchange.server:
                if cast(Any, self.clock.delay).mean.ndim:
                    raise ValueError(
                        "`delay` must be one number with a server, which has no row, got a table "
                        f"in phase {self.name!r}"
                    )
                nodes = np.unique(weights.indices)
                ways = [self.clock.messages(rng, nodes, nodes, nbytes) for _ in ("up", "down")]
            else:
                receivers, senders = weights.nonzero()
                apart = receivers != senders
                receivers, senders = receivers[apart], senders[apart]
                size = nbytes[senders] if isinstance(nbytes, np.ndarray) else nbytes
                ways = [self.clock.messages(rng, senders, receivers, size)]
            self.seconds += float(sum(way.max(initial=0) for way in ways))
        self.waited = len(self.exchanges)
