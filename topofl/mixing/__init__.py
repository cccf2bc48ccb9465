"""Mixing matrices and the weight rules that compute them from a graph. Rows are receivers."""

from topofl.mixing.matrix import MixingMatrix, MixingSequence
from topofl.mixing.matrix import WeightRule as WeightRule
from topofl.mixing.rules import check_pulls as check_pulls
from topofl.mixing.rules import check_pushes as check_pushes
from topofl.mixing.rules import (
    lazy,
    max_degree,
    metropolis_hastings,
    metropolis_or_uniform,
    own_weights,
    uniform,
    weighted_metropolis,
    within_groups,
)
from topofl.mixing.rules import warn_of_unused_weights as warn_of_unused_weights
from topofl.mixing.rules import warning_once as warning_once
from topofl.mixing.weights import average_of, average_of_chosen, from_weights

__all__ = [
    "MixingMatrix",
    "MixingSequence",
    "average_of",
    "average_of_chosen",
    "from_weights",
    "lazy",
    "max_degree",
    "metropolis_hastings",
    "metropolis_or_uniform",
    "own_weights",
    "uniform",
    "weighted_metropolis",
    "within_groups",
]
