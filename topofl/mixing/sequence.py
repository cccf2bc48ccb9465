"""The class MixingSequence: mixing matrices that change from round to round."""

from collections.abc import Callable
from dataclasses import dataclass

from topofl._support.check import check_int, shown
from topofl._support.notebook import as_html
from topofl.mixing.matrix import MixingMatrix, matrix_picture
from topofl.topology import TopologyError, TopologySequence

__all__ = ["MixingSequence"]

ROUNDS = 6
"""Most rounds of which notebooks show the matrices, as of a sequence of graphs."""

NODES_LIMIT = 300
"""Larger matrices are not computed to be shown."""


@dataclass(frozen=True, eq=False, repr=False)
class MixingSequence:
    """Mixing matrices that change from round to round, on the same nodes.

    Parameters
    ----------
    n
        Number of nodes.
    generate
        Pure function of the round ``t >= 0`` that returns its mixing matrix.
    name
        Reproducible label.
    period
        Number of rounds after which the sequence repeats; None if it does not.
    length
        Number of rounds; None if unlimited. The matrices that a run recorded (``history.mixings``)
        have a length.

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> graphs = topologies.ring(4), topologies.star(4)
    >>> MixingSequence(4, lambda t: mixing.metropolis_hastings(graphs[t]), period=2).at(3).name
    'metropolis_hastings(star(n=4))'
    """

    n: int
    generate: Callable[[int], MixingMatrix]
    name: str = "matrices"
    period: int | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.generate):
            raise TypeError(
                f"`generate` must be a function: round -> MixingMatrix, got {shown(self.generate)}"
            )
        for name in ("n", "period", "length"):
            if getattr(self, name) is not None or name == "n":
                check_int(name, getattr(self, name), minimum=1)
        if self.period is not None and self.length is not None and self.period > self.length:
            raise ValueError(
                f"`period` must be at most `length`={self.length}, got {self.period}; leave it None"
            )

    def __repr__(self) -> str:
        end = "" if self.length is None else f", length={self.length}"
        return f"MixingSequence({self.name!r}, n={self.n}, period={self.period}{end})"

    def _repr_html_(self) -> str:
        """Return the text, and pictures of the first rounds unless matrices are large."""
        if self.n > NODES_LIMIT:
            return as_html(repr(self))
        rounds = min(ROUNDS, self.period or ROUNDS, self.length or ROUNDS)
        text = f"{self!r}\nrounds 0 to {rounds - 1}:" if rounds > 1 else f"{self!r}\nround 0:"
        return as_html(
            text, "\n".join(matrix_picture(self.at(t), f"round {t}, ") for t in range(rounds))
        )

    def at(self, t: int) -> MixingMatrix:
        """Return the matrix of round `t`.

        Raises
        ------
        ValueError
            If `t` is negative or beyond the last round, or the number of nodes differs from that of
            the sequence.
        """
        last = None if self.length is None else self.length - 1
        t = check_int(
            "t", t, minimum=0, maximum=last, remedy=f"{self.name} has {self.length} rounds"
        )
        matrix = self.generate(t % self.period if self.period else t)
        if not isinstance(matrix, MixingMatrix):
            raise TypeError(
                f"`generate` must return a MixingMatrix for every round, got {shown(matrix)} in "
                f"round {t}"
            )
        if matrix.n != self.n:
            raise ValueError(
                f"every matrix of {self.name} must have n={self.n} nodes, round {t} has {matrix.n}"
            )
        return matrix

    def one_period(self) -> list[MixingMatrix]:
        """Return the matrices of one period, or raise ``TopologyError`` if there is no period."""
        if self.period is None:
            raise TopologyError(
                f"a periodic sequence is needed, {self.name} has no period; use "
                "metrics.measured_contraction(sequence, rounds=..., seed=...)"
            )
        return [self.at(t) for t in range(self.period)]

    def support(self) -> TopologySequence:
        """Return the graphs of the nonzero weights: an edge j -> i if node i gives j a weight."""
        return TopologySequence(
            self.n, lambda t: self.at(t).support(), f"support({self.name})", self.period
        )
