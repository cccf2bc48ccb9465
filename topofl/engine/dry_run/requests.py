"""Requests of phases in a dry run: calls, local steps, gradients and noted numbers."""

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from topofl.algorithms.contract.local import Training
from topofl.mixing import MixingMatrix

__all__ = ["PhaseRequests", "RecordedSteps"]


@dataclass(frozen=True, eq=False)
class RecordedSteps:
    """Local steps that a phase requested.

    Parameters
    ----------
    training
        The local steps.
    counts
        (n,) number of steps of each node.
    """

    training: Training
    counts: np.ndarray


@dataclass(eq=False)
class PhaseRequests:
    """Calls and requests of all phases, over all rounds.

    Attributes
    ----------
    calls
        Calls and properties of the round that each phase used, by phase.
    trained
        Local steps, by phase.
    columns
        Columns of the models that were mixed, by phase.
    rules
        Matrices by which gradients were mixed.
    gradients
        Tensors of all nodes' gradients, by key.
    batch_sizes
        Batch sizes of gradients.
    trial_sets
        Sets of examples on which nodes cross-evaluated models.
    noted
        Names of numbers that phases note, and whether they note a value per node.
    drawn
        Purposes for which phases drew random numbers.
    """

    calls: dict[str, set[str]] = field(default_factory=dict)
    trained: dict[str, list[RecordedSteps]] = field(default_factory=dict)
    columns: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    rules: list[MixingMatrix] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    batch_sizes: list[int] = field(default_factory=list)
    trial_sets: set[str] = field(default_factory=set)
    noted: dict[str, bool] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)

    def check_one_push(self) -> None:
        """Raise ``ValueError`` if several phases push models."""
        if sum("push" in calls for calls in self.calls.values()) > 1:
            raise ValueError(
                "`phases` must push models once per round, since a node has one push-sum weight; "
                "share both parts in one"
            )
