"""Findings of the dry run of the first rounds: exchanges, columns that travel, and memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from topofl.algorithms.contract.phase import Algorithm
from topofl.engine.dry_run.requests import PhaseRequests, RecordedSteps
from topofl.engine.dry_run.round import EXCHANGES, DryRound
from topofl.engine.population import Layout

__all__ = ["Trace"]


@dataclass(frozen=True, eq=False)
class Trace:
    """Findings of the dry run of an algorithm.

    Parameters
    ----------
    algorithm, layout
        Algorithm of the run, and layout of its models.
    rounds
        The rounds that were played.
    requests
        Calls and requests of the phases.
    state
        Bytes of the phases' states.
    scratch
        Largest number of bytes that a phase allocates for a while, without training.
    fine_tuning
        Bytes of the copies of models that are fine-tuned, and of the phase's state.
    common_start
        Whether all nodes must start from the same model.
    """

    algorithm: Algorithm
    layout: Layout
    rounds: Sequence[DryRound]
    requests: PhaseRequests
    state: int
    scratch: int
    fine_tuning: int
    common_start: bool

    def _uses(self, *calls: str) -> bool:
        return any(set(calls) & used for used in self.requests.calls.values())

    @property
    def exchanges(self) -> bool:
        """Whether nodes exchange anything, directly or through a server."""
        return self._uses(*EXCHANGES, "mixed gradients")

    @property
    def needs_topology(self) -> bool:
        """Whether nodes exchange with neighbors, so that a topology must be given."""
        return self._uses("topology")

    @property
    def chooses(self) -> bool:
        """Whether nodes choose their peers; a topology may limit the choice."""
        return self._uses("peers")

    @property
    def uses_server(self) -> bool:
        """Whether nodes send anything to a server."""
        return self._uses("server")

    @property
    def is_served(self) -> bool:
        """Whether nodes communicate through a server only."""
        return self.uses_server and not self.needs_topology and not self.chooses

    @cached_property
    def pushes(self) -> bool:
        """Whether models are pushed and have push-sum weights."""
        return self._uses("push")

    @cached_property
    def exchange(self) -> str | None:
        """The first phase that exchanges models; None if no phase does."""
        calls = self.requests.calls
        return next(
            (name for name in self.algorithm.phases if calls.get(name, set()) & EXCHANGES), None
        )

    @cached_property
    def share(self) -> list[slice]:
        """Columns of the models that the first phase that mixes sends; all if no phase mixes."""
        found = next(
            (
                self.requests.columns[name]
                for name in self.algorithm.phases
                if name in self.requests.columns
            ),
            None,
        )
        return [slice(0, self.layout.d)] if not found else _merged_ranges(found)

    @cached_property
    def pushed(self) -> tuple[int, ...]:
        """Indices of the parameters that are pushed; push-sum weights divide their steps."""
        phases = [name for name, calls in self.requests.calls.items() if "push" in calls]
        columns = _merged_ranges(
            set().union(*(self.requests.columns.get(name, set()) for name in phases))
        )
        bounds = np.cumsum([0, *self.layout.sizes]).tolist()
        inside = [
            any(s.start <= bounds[k] and bounds[k + 1] <= s.stop for s in columns)
            for k in range(len(bounds) - 1)
        ]
        return tuple(k for k, pushed in enumerate(inside) if pushed)

    @property
    def trained(self) -> list[RecordedSteps]:
        """All local steps that phases requested, phase by phase."""
        return [steps for of_phase in self.requests.trained.values() for steps in of_phase]

    def batch_sizes(self) -> np.ndarray:
        """Return the size of the largest minibatch that each node draws, (n,)."""
        n = len(self.rounds[0].sizes)
        sizes = [np.broadcast_to(steps.training.sizes, n) for steps in self.trained]
        sizes += [np.full(n, size) for size in self.requests.batch_sizes]
        return np.max(sizes, axis=0) if sizes else np.ones(n, dtype=np.int64)


def _merged_ranges(columns: set[tuple[int, int]]) -> list[slice]:
    """Return sorted slices that cover the ranges of columns, with overlapping ranges merged."""
    found: list[slice] = []
    for start, stop in sorted(columns):
        if found and start <= found[-1].stop:
            found[-1] = slice(found[-1].start, max(stop, found[-1].stop))
        elif stop > start:
            found.append(slice(start, stop))
    return found
