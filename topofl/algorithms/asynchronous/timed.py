"""The simulated seconds of synchronous methods, to be compared with those of asynchronous ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from torch import Tensor

from topofl._support.check import shown
from topofl.algorithms.contract.local import Training
from topofl.algorithms.contract.phase import Algorithm, Phase
from topofl.algorithms.contract.round import Models, Round, State
from topofl.algorithms.exchanges.events import zero_times
from topofl.clocks import AnyClock, Clock, as_clock
from topofl.mixing import MixingMatrix

__all__ = ["timed"]

SECONDS = "simulated_seconds"
"""The column of the history."""


def timed(algorithm: Algorithm, clock: AnyClock = None) -> Algorithm:
    """Return a synchronous method whose history records ``simulated_seconds``.

    Nodes wait for each other: local steps take as long as those of the slowest node, and an
    exchange as long as its slowest message, one after the other; of a server, up and then down.
    Where gradients are averaged in each step, both add up step by step. Models are those of the
    method itself. Trying models on own examples takes no time.

    Parameters
    ----------
    algorithm
        Such as ``dsgd(lr=0.1)``.
    clock
        A :class:`topofl.clocks.Clock`, or a dictionary of its arguments; None: a step takes a
        second, a message none.

    Raises
    ------
    TypeError
        If `algorithm` is none.
    ValueError
        If it is timed already, or has another phase named ``clock``, or simulated seconds of its
        own; or if a table of the clock is of another number of nodes, or one of links is given for
        a server, or any for a pooled model.

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
    if not isinstance(algorithm, Algorithm):
        raise TypeError(
            f"`algorithm` must be an Algorithm such as dsgd(lr=0.1), got {shown(algorithm)}"
        )
    if "clock" in algorithm.phases:
        raise ValueError(
            "`algorithm` must not be timed yet and have no phase named 'clock', got "
            f"{algorithm.name} of the phases {', '.join(algorithm.phases)}; call timed once, or "
            "rename that phase"
        )
    times = as_clock(clock)
    if algorithm.pooled:
        _check_pooled(algorithm.name, times)

    def init(models: Models) -> State:
        times.check(len(models.flat))
        return zero_times(seconds=(1,))

    def tell(models: Models, state: State, round: Round) -> State:
        round.note(SECONDS, state["seconds"])
        return state

    phases = {name: _measured(name, phase, times) for name, phase in algorithm.phases.items()}
    return replace(algorithm, phases=phases | {"clock": Phase(init, tell, times.settings)})


def _check_pooled(name: str, clock: Clock) -> None:
    """Raise ``ValueError`` if a clock has times per node for a pooled model."""
    for part in ("compute", "delay"):
        if (mean := getattr(clock, part).mean).ndim:
            raise ValueError(
                f"`{part}` must be one number for {name}, which trains one model on the data of "
                f"all nodes, got a table of shape {mean.shape}; give the seconds of its one "
                "machine, or time a method of several nodes"
            )


def _measured(name: str, phase: Phase, clock: Clock) -> Phase:
    """Return a phase that adds its simulated seconds to those of the run."""

    def apply(models: Models, state: State, round: Round) -> State:
        watched = _Watched(round, clock, name, round.state("clock")["seconds"])
        return phase.apply(models, state, cast(Round, watched))

    return phase._replace(apply=apply)


@dataclass(eq=False)
class _Watched:
    """A round whose doors add to the seconds of the run what happens behind them takes."""

    round: Round
    clock: Clock
    name: str
    seconds: Tensor
    calls: int = 0

    def __getattr__(self, door: str) -> Any:
        return getattr(self.round, door)

    @property
    def _rng(self) -> np.random.Generator:
        """Random numbers of its own for each call."""
        self.calls += 1
        return self.round.rng(f"seconds/{self.name}/{self.calls}")

    def train(
        self, models: Models, how: Training, own: State, *, participants: np.ndarray | None = None
    ) -> np.ndarray:
        """Take as long as the slowest node, step by step where gradients are averaged."""
        counts = self.round.train(models, how, own, participants=participants)
        rng, nodes = self._rng, np.repeat(np.arange(len(counts)), counts)
        taken = self.clock.steps(rng, nodes)
        if how.gradient is None:
            self.seconds += float(np.bincount(nodes, taken, minlength=1).max())
        elif len(nodes):
            self.seconds += float(taken.reshape(len(counts), -1).max(axis=0).sum())
            weights, nbytes = (
                how.gradient(self.round.topology),
                models.flat.shape[1] * models.flat.element_size(),
            )
            for _ in range(int(counts.max())):
                self._wait(weights, nbytes)
        return counts

    def gradients(self, models: Models, batch_size: int, key: str) -> Tensor:
        """Take as long as the slowest node's step."""
        self.seconds += float(self.clock.steps(self._rng, np.arange(self.round.n)).max())
        return self.round.gradients(models, batch_size, key)

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
        """Take as long as the slowest message, if there are any."""
        self.round.mix(weights, values, columns, scalars=scalars, server=server, counted=counted)
        if counted:
            width = sum(len(range(values.shape[1])[part]) for part in columns) + scalars
            self._wait(weights, width * values.element_size(), server)

    def aggregate(
        self,
        weights: MixingMatrix,
        values: Tensor,
        rule: Callable[[Tensor, Tensor, Tensor], Tensor],
        *,
        scalars: int = 0,
        counted: bool = True,
    ) -> None:
        """Take as long as the slowest message, if there are any."""
        self.round.aggregate(weights, values, rule, scalars=scalars, counted=counted)
        if counted:
            self._wait(weights, (values.shape[1] + scalars) * values.element_size())

    def send(
        self, weights: MixingMatrix, nbytes: int | np.ndarray, *, server: bool = False
    ) -> None:
        """Take as long as the slowest message."""
        self.round.send(weights, nbytes, server=server)
        self._wait(weights, nbytes, server)

    def note(self, name: str, value: float | Tensor) -> None:
        """Refuse the name of what is noted here."""
        if name == SECONDS:
            raise ValueError(
                f"`algorithm` must be synchronous, its phase {self.name!r} notes {SECONDS} itself; "
                "run it without timed, and give it its own `clock`"
            )
        self.round.note(name, value)

    def _wait(self, weights: MixingMatrix, nbytes: int | np.ndarray, server: bool = False) -> None:
        """Wait for the slowest message of an exchange."""
        rng = self._rng
        if server:
            if cast(Any, self.clock.delay).mean.ndim:
                raise ValueError(
                    "`delay` must be one number for a server, which has no row, in phase "
                    f"{self.name!r}"
                )
            nodes = np.unique(weights.weights.indices)
            ways = [self.clock.messages(rng, nodes, nodes, nbytes) for _ in ("up", "down")]
            self.seconds += float(sum(way.max(initial=0) for way in ways))
            return
        receivers, senders = weights.weights.nonzero()
        receivers, senders = receivers[receivers != senders], senders[receivers != senders]
        size = nbytes[senders] if isinstance(nbytes, np.ndarray) else nbytes
        self.seconds += float(self.clock.messages(rng, senders, receivers, size).max(initial=0))
