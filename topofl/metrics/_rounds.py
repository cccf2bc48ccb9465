"""One view of everything that has a mixing matrix in each round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from topofl.mixing import MixingMatrix, metropolis_or_uniform
from topofl.topology import Topology, TopologyError, TopologySequence

__all__ = ["Mixable", "Rounds", "WeightRule", "as_mixing", "as_rounds"]

WeightRule: TypeAlias = Callable[[Topology], MixingMatrix]
Mixable: TypeAlias = MixingMatrix | Topology | TopologySequence | Sequence[MixingMatrix]


@dataclass(frozen=True, eq=False)
class Rounds:
    """The mixing matrix of every round.

    Parameters
    ----------
    n
        Number of nodes.
    period
        Number of rounds after which the matrices repeat, None if they do not.
    at
        The matrix of round t >= 0.
    name
        Reproducible label.
    """

    n: int
    period: int | None
    at: Callable[[int], MixingMatrix]
    name: str

    def one_period(self) -> list[MixingMatrix]:
        """Return the matrices of one period, or raise ``TopologyError`` if there is none."""
        if self.period is None:
            raise TopologyError(
                f"a spectral gap needs a sequence that repeats, {self.name} has no period; use "
                "metrics.measured_contraction(sequence, rounds=..., seed=...)"
            )
        return [self.at(t) for t in range(self.period)]


def as_rounds(x: Mixable, weights: WeightRule | None = None) -> Rounds:
    """Return the matrices of `x`; of graphs, by the rule `weights` (default :func:`metropolis_or_uniform`).

    Raises
    ------
    TypeError
        If `x` or `weights` is of another kind.
    ValueError
        If matrices are of different sizes, or have weights already and `weights` is given too.
    """
    if isinstance(x, Topology):
        return _repeating([_apply_rule(x, weights)], x.name)
    if isinstance(x, TopologySequence):
        if x.period is None:
            return Rounds(x.n, None, lambda t: _apply_rule(x.at(t), weights), x.name)
        return _repeating([_apply_rule(x.at(t), weights) for t in range(x.period)], x.name)
    matrices = [x] if isinstance(x, MixingMatrix) else list(x) if isinstance(x, list | tuple) else []
    if not matrices or not all(isinstance(matrix, MixingMatrix) for matrix in matrices):
        raise TypeError(
            "`x` must be a MixingMatrix, a Topology, a TopologySequence or a non-empty list of MixingMatrix, got "
            f"{type(x).__name__}; wrap a graph in as_topology(...) and weights in mixing.from_weights(...)"
        )
    if weights is not None:
        raise ValueError("`weights` must be None when `x` has its weights already, as a MixingMatrix has")
    return _repeating(matrices, matrices[0].name if len(matrices) == 1 else "matrices")


def as_mixing(x: MixingMatrix | Topology, weights: WeightRule | None = None) -> MixingMatrix:
    """Return the one matrix of a static `x`, or raise as :func:`as_rounds`, also for a sequence."""
    if not isinstance(x, MixingMatrix | Topology):
        raise TypeError(
            f"`x` must be one MixingMatrix or Topology, got {type(x).__name__}; of a sequence, take one round: x.at(t)"
        )
    return as_rounds(x, weights).at(0)


def _apply_rule(topology: Topology, weights: WeightRule | None) -> MixingMatrix:
    rule = metropolis_or_uniform if weights is None else weights
    matrix = rule(topology) if callable(rule) else None
    if not isinstance(matrix, MixingMatrix):
        raise TypeError(
            "`weights` must be a rule from Topology to MixingMatrix, such as mixing.metropolis_hastings, got "
            + (f"one that returns {type(matrix).__name__}" if callable(rule) else repr(weights))
        )
    return matrix


def _repeating(matrices: list[MixingMatrix], name: str) -> Rounds:
    sizes = sorted({matrix.n for matrix in matrices})
    if len(sizes) > 1:
        raise ValueError(f"`x` must hold matrices of one size, got n={sizes}")
    return Rounds(sizes[0], len(matrices), lambda t: matrices[t % len(matrices)], name)
