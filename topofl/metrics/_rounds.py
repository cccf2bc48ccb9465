"""One view of everything that has a mixing matrix in each round."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import scipy.sparse.linalg as sparse_linalg

from topofl import _spectral
from topofl._check import check_int, shown
from topofl.mixing import MixingMatrix, MixingSequence, metropolis_or_uniform
from topofl.topology import Topology, TopologyError, TopologySequence

__all__ = ["Mixable", "WeightRule", "as_mixing", "as_rounds", "converging", "n_rounds", "recorded", "sent"]

WeightRule: TypeAlias = Callable[[Topology], MixingMatrix]
Mixable: TypeAlias = MixingMatrix | MixingSequence | Topology | TopologySequence | Sequence[MixingMatrix]


def as_rounds(x: Mixable, weights: WeightRule | None = None) -> MixingSequence:
    """Return the matrices of `x`; of graphs, by the rule `weights` (default :func:`metropolis_or_uniform`).

    Raises
    ------
    TypeError
        If `x` or `weights` is of another kind.
    ValueError
        If matrices are of different sizes, or have weights already and `weights` is given too.
    """
    x = recorded(x)
    if isinstance(x, Topology):
        return _repeating([_apply_rule(x, weights)], x.name)
    if isinstance(x, TopologySequence):
        if x.period is None:
            return MixingSequence(x.n, lambda t: _apply_rule(x.at(t), weights), x.name)
        return _repeating([_apply_rule(x.at(t), weights) for t in range(x.period)], x.name)
    if isinstance(x, MixingSequence):
        _refuse_weights(weights)
        return x
    matrices = [x] if isinstance(x, MixingMatrix) else list(x) if isinstance(x, list | tuple) else []
    if not matrices or not all(isinstance(matrix, MixingMatrix) for matrix in matrices):
        raise TypeError(
            "`x` must be a MixingMatrix, a Topology, a sequence of either or a non-empty list of MixingMatrix, got "
            f"{type(x).__name__}; wrap a graph in as_topology(...) and weights in mixing.from_weights(...)"
        )
    _refuse_weights(weights)
    return _repeating(matrices, matrices[0].name if len(matrices) == 1 else "matrices")


@contextmanager
def converging(what: str) -> Iterator[None]:
    """Turn what ARPACK and sparse factorizations raise into ``TopologyError``."""
    try:
        yield
    except (sparse_linalg.ArpackError, _spectral.NoConvergence, RuntimeError) as error:
        raise TopologyError(f"{what} did not converge: {error}; use metrics.measured_contraction") from error


def recorded(x: Any) -> Any:
    """Return the mixing matrices that `x`, a History, kept of its run; anything else as it is."""
    kept = getattr(x, "mixings", None)
    return kept if isinstance(kept, MixingSequence) else x


def sent(x: Any) -> Mapping[str, Any] | None:
    """Return what `x`, a History, recorded of each round of its run, by name; None for anything else."""
    rounds = getattr(x, "rounds", None)
    return rounds if recorded(x) is not x and isinstance(rounds, Mapping) else None


def n_rounds(source: MixingSequence | TopologySequence | Topology, rounds: int | None) -> int:
    """Return how many rounds to look at: a period, all that were recorded, or, and only else, `rounds`.

    Raises
    ------
    TopologyError
        If `rounds` is missing for a sequence without period and end.
    ValueError
        If it is given for one with a period, below 1, or beyond the end.
    """
    if source.period is not None:
        if rounds is not None:
            raise ValueError(
                f"`rounds` must be left out: {source.name} repeats after {source.period}, got {shown(rounds)}"
            )
        return source.period
    length = source.length if isinstance(source, MixingSequence) else None
    if rounds is None:
        if length is None:
            raise TopologyError(f"`rounds` must be given, since {source.name} has no period, e.g. rounds=1000")
        return length
    return check_int("rounds", rounds, minimum=1, maximum=length, maximum_name="the recorded")


def _refuse_weights(weights: WeightRule | None) -> None:
    if weights is not None:
        raise ValueError("`weights` must be None when `x` has its weights already, as a MixingMatrix has")


def as_mixing(x: MixingMatrix | Topology, weights: WeightRule | None = None) -> MixingMatrix:
    """Return the one matrix of a static `x`, or raise as :func:`as_rounds`, also for a sequence."""
    if not isinstance(x, MixingMatrix | Topology):
        raise TypeError(
            f"`x` must be one MixingMatrix or Topology, got {type(x).__name__}; of a sequence, take one round: "
            "x.at(t), of a History x.mixing(t), and of another graph topofl.as_topology(x)"
        )
    return as_rounds(x, weights).at(0)


def _apply_rule(topology: Topology, weights: WeightRule | None) -> MixingMatrix:
    rule = metropolis_or_uniform if weights is None else weights
    try:
        matrix = rule(topology) if callable(rule) else None
    except (TypeError, AttributeError) as error:  # of a function of something else
        raise TypeError(
            "`weights` must be a rule from Topology to MixingMatrix, such as mixing.metropolis_hastings, "
            f"{shown(rule)} raised {shown(error, 200)}"
        ) from error
    if not isinstance(matrix, MixingMatrix):
        raise TypeError(
            "`weights` must be a rule from Topology to MixingMatrix, such as mixing.metropolis_hastings, got "
            + (f"one that returns {type(matrix).__name__}" if callable(rule) else shown(weights))
        )
    return matrix


def _repeating(matrices: list[MixingMatrix], name: str) -> MixingSequence:
    sizes = sorted({matrix.n for matrix in matrices})
    if len(sizes) > 1:
        raise ValueError(f"`x` must hold matrices of one size, got n={sizes}")
    return MixingSequence(sizes[0], matrices.__getitem__, name, len(matrices))
