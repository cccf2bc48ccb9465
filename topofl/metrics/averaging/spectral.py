"""Averaging speed of mixing matrices: spectral gap, SLEM, sigma, and measured contraction."""

from collections.abc import Iterator
from itertools import count, islice

import numpy as np
import scipy.sparse as sparse

from topofl._linalg import periods, spectral
from topofl._support.check import check_int
from topofl._support.public import public
from topofl._support.seeding import stream
from topofl._support.text import node_name
from topofl._support.vectors import centered
from topofl.metrics._declaration import (
    ONE_MATRIX,
    Entry,
    MetricColumn,
    Requirement,
    iterated,
)
from topofl.metrics._rounds import (
    Mixable,
    WeightRule,
    as_mixing,
    as_rounds,
    check_push_weights,
    converging,
)
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import Topology, TopologyError

__all__ = [
    "measured_contraction",
    "sigma",
    "slem",
    "smallest_eigenvalue",
    "spectral_gap",
    "without_rounding",
]

COLUMNS = (
    MetricColumn(
        "spectral gap",
        "averaging",
        "speed of agreement in the long run: 0 never agrees, 1 agrees exactly within a period",
        lambda entry: spectral_gap(entry.rounds),
        limit=iterated("metrics.spectral_gap"),
    ),
    MetricColumn(
        "slem",
        "averaging",
        "second largest eigenvalue modulus of the mixing matrix: factor on disagreement per round "
        "in the long run",
        lambda entry: slem(entry.rounds),
        limit=iterated("metrics.slem"),
    ),
    MetricColumn(
        "lambda_n",
        "averaging",
        "smallest eigenvalue of the mixing matrix",
        lambda entry: smallest_eigenvalue(entry.matrices[0]),
        limit=iterated("metrics.smallest_eigenvalue"),
        needs=(ONE_MATRIX,),
    ),
    MetricColumn(
        "sigma",
        "averaging",
        "worst-case factor of one round on consensus distance",
        lambda entry: sigma(entry.matrices[0]),
        limit=iterated("metrics.sigma"),
        needs=(ONE_MATRIX,),
    ),
    MetricColumn(
        "measured contraction",
        "rounds",
        "measured factor on consensus distance per round, from a random start",
        lambda entry: _measured_over_periods(entry),
        needs=(
            Requirement(
                "at least two rounds",
                lambda entry: (
                    "one round was recorded: two are needed" if entry.rounds.length == 1 else ""
                ),
            ),
        ),
        after="expected gap",
    ),
)


def _measured_over_periods(entry: Entry) -> float:
    """Return the contraction measured over whole periods, or the last half of a recording."""
    period = entry.rounds.period or 1
    rounds = -(-entry.horizon // period) * period
    if entry.rounds.length is not None:
        rounds = min(rounds, entry.rounds.length // 2)
    return measured_contraction(entry.rounds, rounds=rounds, seed=entry.seed)


EXACT = 1e-12
"""Exchanges with a smaller factor on disagreement average exactly, up to rounding."""


@public
def slem(x: Mixable, *, weights: WeightRule | None = None) -> float:
    """Return the second largest eigenvalue modulus (SLEM), per round.

    It is ``|lambda_2(W)|`` for one matrix and ``|lambda_2(W_{p-1} ... W_0)|^(1/p)`` for a period of
    p matrices, the asymptotic factor on consensus distance per round.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a periodic TopologySequence, or a list of MixingMatrix, which is
        one period.
    weights
        Rule from Topology to MixingMatrix for graphs; default: Metropolis-Hastings if undirected,
        else uniform pull.

    Returns
    -------
    float
        In [0, 1]; 0 for a single node and for exact averaging within one or a few periods.

    Raises
    ------
    TopologyError
        If the sequence has no period, or mixes row- with column-stochastic matrices. If iterations
        do not converge for a period of more than 1,500 nodes. If the eigenvalue of a period may be
        0, but there are more than ``6000 / sqrt(p)`` nodes, too many to decide it (it is always
        decided for weights that are fractions with denominators up to a million, and if all rows of
        a round are equal). If the ``slem_solution`` of one matrix raises an error. If a node's
        push-sum weight tends to 0: column-stochastic weights need a positive Perron vector; without
        one, the second eigenvalue is the rate at which push-sum weights converge, but models never
        agree.
    TypeError, ValueError
        If `x` or `weights` is of another kind, or both give weights.

    References
    ----------
    Boyd, Ghosh, Prabhakar and Shah, "Randomized gossip algorithms" (2006), section II, for one
    matrix.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{slem(topologies.star(4)):.4f}")
    0.7500
    """
    rounds = as_rounds(x, weights)
    matrices = rounds.one_period()
    rate = matrices[0].slem if len(matrices) == 1 else _slem_of_period(matrices)
    check_push_weights(matrices, rounds.name)
    return rate


@public
def spectral_gap(x: Mixable, *, weights: WeightRule | None = None) -> float:
    """Return the spectral gap, ``1 - slem(x)``.

    With a gap of 0, the nodes never reach consensus; with a gap of 1, they average exactly within a
    period. Parameters and errors are those of :func:`slem`.

    Notes
    -----
    Ring with weights 1/3, n >= 4: ``1 - (1 + 2 cos(2 pi / n)) / 3``. One-peer exponential graph
    with n a power of 2: 1, although every single round has gap 0 for n > 2 (Ying et al.,
    "Exponential graph is provably efficient for decentralized deep training", 2021).

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{spectral_gap(topologies.ring(16)):.5f}")
    0.05075
    >>> spectral_gap(topologies.one_peer_exponential(16))
    1.0
    """
    return 1.0 - slem(x, weights=weights)


@public
def sigma(x: MixingMatrix | Topology, *, weights: WeightRule | None = None) -> float:
    """Return ``||W - J||_2``, the worst-case factor of one exchange on consensus distance.

    All entries of J are 1/n. It is at least :func:`slem`, and equal to it for symmetric weights.

    Parameters
    ----------
    x
        A MixingMatrix or a Topology.
    weights
        As in :func:`slem`.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TopologyError
        If the matrix is not doubly stochastic, so that disagreement can grow in one exchange.
    TypeError
        If `x` is a sequence; take one of its rounds.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{sigma(topologies.star(4)):.4f}")
    0.7500
    """
    matrix = as_mixing(x, weights)
    if not matrix.is_doubly_stochastic:
        raise TopologyError(
            f"sigma needs a doubly stochastic matrix, {matrix.name} is {matrix.stochasticity}; use "
            "slem, or weights such as mixing.metropolis_hastings"
        )
    return matrix.slem if matrix.is_symmetric else spectral.sigma(matrix.weights)


@public
def smallest_eigenvalue(x: MixingMatrix | Topology, *, weights: WeightRule | None = None) -> float:
    """Return lambda_n, the smallest eigenvalue of symmetric weights.

    It is exactly -1 for a bipartite graph without self-weights: then averaging never converges,
    although the graph may be connected. If ``|lambda_n|`` is the SLEM, :func:`topofl.mixing.lazy`
    weights are faster.

    Parameters
    ----------
    x
        A MixingMatrix or a Topology.
    weights
        Rule from Topology to MixingMatrix; default: Metropolis-Hastings if undirected, else uniform
        pull.

    Returns
    -------
    float
        In [-1, 1].

    Raises
    ------
    TopologyError
        If the weights are not symmetric, or the iteration does not converge.
    TypeError
        If `x` is a sequence; take one of its rounds.

    Examples
    --------
    >>> from topofl import mixing, topologies
    >>> print(f"{smallest_eigenvalue(topologies.ring(6)):.4f}")
    -0.3333
    >>> smallest_eigenvalue(mixing.from_weights([[0, 1], [1, 0]]))
    -1.0
    """
    matrix = as_mixing(x, weights)
    if not matrix.is_symmetric:
        raise TopologyError(
            "`x` must be symmetric: the smallest eigenvalue needs symmetric weights, "
            f"{matrix.name} is not symmetric; use metrics.slem"
        )
    with converging(f"the smallest eigenvalue of {matrix.name}"):
        return without_rounding(spectral.smallest(matrix.weights), matrix.n)


def without_rounding(value: float, n: int) -> float:
    """Return an eigenvalue of a stochastic matrix, rounded to -1, 0 or 1 if it is close."""
    near = next(
        (whole for whole in (-1.0, 0.0, 1.0) if abs(value - whole) < n * np.finfo(float).eps), value
    )
    return float(near)


@public
def measured_contraction(
    x: Mixable,
    *,
    rounds: int,
    seed: int | np.random.Generator,
    weights: WeightRule | None = None,
    burn_in: int | None = None,
) -> float:
    """Return the measured factor per round on consensus distance, from a random start.

    This geometric mean tends to :func:`slem` if that exists. No period is needed: random graphs can
    be measured too. For column-stochastic weights, the models are those of push-sum,
    ``z = x / w``.

    Parameters
    ----------
    x, weights
        As in :func:`slem`, but a sequence need not be periodic.
    rounds
        Number of measured rounds; for a periodic sequence preferably a multiple of its period.
    seed
        Seed of the random start: one standard normal number per node.
    burn_in
        Number of rounds before the measured ones, after which only the slowest mode is left;
        default: `rounds`, or fewer if not as many were recorded.

    Returns
    -------
    float
        Factor per round; 0 if the nodes come to agree up to rounding. It may exceed 1 over few
        rounds of weights that are not doubly stochastic.

    Raises
    ------
    TopologyError
        If the rounds mix row- with column-stochastic matrices, or if a push-sum weight becomes 0 or
        tends to 0 when the period is repeated, so that the models never agree.
    TypeError, ValueError
        If an argument is of another kind or out of range.

    Notes
    -----
    The computation is in float64; after each round, the disagreement is rescaled to norm 1, so that
    any number of rounds can be measured.

    Examples
    --------
    >>> from topofl import topologies
    >>> print(f"{measured_contraction(topologies.ring(16), rounds=100, seed=0):.4f}")
    0.9493
    """
    source = as_rounds(x, weights)
    rounds = check_int("rounds", rounds, minimum=1)
    if burn_in is None:
        burn_in = rounds if source.length is None else max(0, min(rounds, source.length - rounds))
    burn_in = check_int("burn_in", burn_in, minimum=0)
    if source.length is not None and burn_in + rounds > source.length:
        most = f"at most the {source.length} rounds of {source.name}"
        raise ValueError(f"`burn_in` + `rounds` must be {most}, got {burn_in} + {rounds}")
    if source.period is not None:
        check_push_weights(_of_one_kind(source.one_period()), source.name)
    factors = list(islice(contraction_factors(source, seed), burn_in, burn_in + rounds))
    return float(np.exp(np.log(factors).sum() / rounds)) if len(factors) == rounds else 0.0


def contraction_factors(source: MixingSequence, seed: int | np.random.Generator) -> Iterator[float]:
    """Yield the factor of each round on consensus distance, until the nodes agree."""
    disagreement = centered(stream(seed, "measured_contraction").standard_normal(source.n))
    disagreement /= np.linalg.norm(disagreement) or 1.0
    push_weights = np.ones(source.n)
    kinds = {"row", "column"}
    for t in count():
        matrix = source.at(t)
        kinds = {kind for kind in kinds if getattr(matrix, f"is_{kind}_stochastic")}
        if not kinds:
            raise TopologyError(_mixed_kinds(matrix.name))
        pushed = push_weights * disagreement
        push_weights = _next_push_weights(matrix, push_weights, t)
        # Any multiple of w may be subtracted from x, since both are mixed in the same way: here
        # the mean of z = x / w.
        disagreement = centered((matrix @ pushed) / push_weights)
        factor = float(np.linalg.norm(disagreement))
        if factor < EXACT:
            return
        disagreement /= factor
        yield factor


def _next_push_weights(matrix: MixingMatrix, push_weights: np.ndarray, t: int) -> np.ndarray:
    """Return the push-sum weights after round `t`; they stay 1 if rows sum to 1."""
    if (push_weights == 1).all() and matrix.is_row_stochastic:
        return push_weights
    push_weights = matrix @ push_weights
    if push_weights.min() <= 0:
        name = node_name(matrix.nodes, int(push_weights.argmin()))
        raise TopologyError(
            f"push-sum needs positive weights, that of node {name} became 0 in round {t}; every "
            "node must keep a share of its own weight and receive from others"
        )
    return push_weights


def _mixed_kinds(name: str) -> str:
    return (
        f"the matrices of all rounds must be row-stochastic, or all column-stochastic, {name} "
        "differs from those before it; use one direction: mixing.uniform(topology, direction=...)"
    )


def _slem_of_period(matrices: list[MixingMatrix]) -> float:
    if matrices[0].n == 1:
        return 0.0
    try:
        return periods.second_modulus_per_round(_row_stochastic(matrices))
    except spectral.NoConvergence as error:
        raise TopologyError(f"{error}; use metrics.measured_contraction") from error


def _row_stochastic(matrices: list[MixingMatrix]) -> list[sparse.csr_array]:
    """Return row-stochastic matrices, in order, whose product has the same spectrum.

    Column-stochastic matrices are transposed and reversed.
    """
    if all(matrix.is_row_stochastic for matrix in _of_one_kind(matrices)):
        return [matrix.weights for matrix in matrices]
    return [sparse.csr_array(matrix.weights.T) for matrix in reversed(matrices)]


def _of_one_kind(matrices: list[MixingMatrix]) -> list[MixingMatrix]:
    """Return the matrices if all are row-stochastic, or all column-stochastic, or raise."""
    if not all(matrix.is_row_stochastic for matrix in matrices):
        for matrix in matrices:
            if not matrix.is_column_stochastic:
                raise TopologyError(_mixed_kinds(matrix.name))
    return matrices
