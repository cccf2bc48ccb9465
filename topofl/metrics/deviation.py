"""Predicted deviation of nodes from their mean model, with sums over a horizon or a discount."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from topofl._linalg import spectral
from topofl._support.check import check_choice, check_positive
from topofl._support.public import public
from topofl.data.partition import Partition, check_clients
from topofl.metrics._rounds import Mixable, WeightRule, as_rounds
from topofl.metrics.gradients import GradientStatistics, gradient_statistics
from topofl.metrics.hops import (
    CONVERGED,
    HOPS,
    INFINITE,
    MOST_HOPS,
    accumulated_noise,
    check_hops,
    deviation_of,
    independent,
    mean_square,
    neighborhood_heterogeneity,
    rounding_of,
    rounds_for,
    values_of,
)
from topofl.metrics.labels import label_distributions, label_spread
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.tasks import Task
from topofl.topology import TopologyError

__all__ = ["PredictedDeviation", "predicted_deviation"]


@dataclass(frozen=True)
class PredictedDeviation:
    """Prediction of nodes' squared deviation from the mean model, per squared learning rate.

    Parameters
    ----------
    value
        ``zeta2 * heterogeneity + residual * persistent + (sigma2 / batch_size) * noise``.
    heterogeneity, noise
        H_K and N_K of the graph; with a discount d, ``(1/n) ||sum_k d^(k-1) (W^k - J) Pi||_F^2``
        and ``(1/n) sum_k d^(2k-2) ||W^k - J||_F^2``. Pi holds label shares, or with
        ``by="gradients"`` the measured gradients; the noise in these is subtracted.
    zeta2
        Squared heterogeneity of gradients, minus the part of `residual`, over that of label shares;
        1 with ``by="gradients"``.
    sigma2
        `batch_size` times the variance of minibatch gradients: the variance of the gradient of one
        example if minibatches are small against the nodes' data. Minibatches are drawn without
        replacement, and nodes with fewer examples take all of theirs, so it is less for large ones.
    batch_size
        Examples per minibatch.
    hops
        K.
    residual
        Variance over the nodes of their gradients given their label shares, summed over parameters;
        0 unless ``by="labels+residual"``.
    persistent
        What a residual of 1 contributes: N_K, or ``(1/n) ||sum_k d^(k-1) (W^k - J)||_F^2`` with a
        discount.
    discount
        ``1 - lr * curvature`` in [0, 1], or None.

    Examples
    --------
    >>> found = PredictedDeviation(
    ...     value=2.5, heterogeneity=0.5, noise=1.0, zeta2=4.0, sigma2=4.0, batch_size=8, hops=10
    ... )
    >>> found.zeta2 * found.heterogeneity + found.sigma2 / found.batch_size * found.noise
    2.5
    >>> float(found)
    2.5
    """

    value: float
    heterogeneity: float
    noise: float
    zeta2: float
    sigma2: float
    batch_size: int
    hops: int | str
    residual: float = 0.0
    persistent: float = 0.0
    discount: float | None = None

    def __float__(self) -> float:
        return self.value


@public
def predicted_deviation(
    x: Mixable,
    clients: Partition,
    *,
    model: nn.Module | None = None,
    batch_size: int | None = None,
    statistics: GradientStatistics | None = None,
    hops: int | str | None = None,
    task: Task | None = None,
    by: str = "labels",
    minibatches: int | None = None,
    seed: int = 0,
    lr: float | None = None,
    curvature: float | None = None,
    rounds: int | None = None,
    weights: WeightRule | None = None,
) -> PredictedDeviation:
    """Return the predicted deviation of nodes from their mean model, with nothing fitted.

    ``zeta^2 H_K + (sigma^2 / batch) N_K``: the models of D-SGD deviate from their mean by ``-lr
    sum_k (W^k - J) g_k`` with the gradients g_k of k rounds ago. If their heterogeneity has the
    same distribution over the nodes in all rounds, in directions that are unrelated from round to
    round, it contributes the first term; minibatch noise contributes the second. Both scales are
    measured at one model.

    With `lr` and `curvature`, no number of hops has to be chosen: the gradients at the model are
    summed over hops as vectors, in which each hop counts ``d = 1 - lr * curvature`` times as much
    as the one before. This is exact for quadratics whose Hessian is the curvature times the
    identity, at the model from which all nodes start.

    See the page :doc:`How many hops count </docs/concepts/how-many-hops>`.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a sequence of either, or a History.
    clients
        The data of the nodes.
    model
        The model at which gradients are measured, such as the initial one. It is not changed.
    batch_size
        Examples per minibatch; nodes with fewer take all of theirs.
    statistics
        What :func:`gradient_statistics` has measured for these clients, in place of `model`,
        `batch_size`, `task` and `minibatches`, which are refused with it; spares the measurement
        for every further graph.
    hops
        K, or ``"inf"``; few hops predict early deviations, more hops late ones. With `lr` and
        `curvature`, K hops predict the deviation after K rounds. None: 10, or ``"inf"`` if `lr` and
        `curvature` are given.
    task
        What is learned; default: classification.
    by
        ``"labels"``: H_K of label shares times ``zeta^2``, the heterogeneity of gradients over that
        of label shares. ``"labels+residual"``: the variance that a least-squares fit of node
        gradients to label shares leaves unexplained is not part of ``zeta^2``, but a term of its
        own, as if it were independent between nodes. ``"gradients"``: H_K of the measured gradients
        themselves, for regression too; then ``zeta2`` is 1.
    minibatches, seed
        Minibatches per node, at least 2 (default 8), and the seed with which they are drawn.
    lr, curvature
        Learning rate, and the curvature of the loss along the directions in which nodes deviate, as
        :func:`topofl.metrics.curvature` measures it, both above 0; their product is at most 1.
        Both or neither; with them, W must be doubly stochastic.
    rounds, weights
        As in :func:`topofl.metrics.accumulated_noise`.

    Returns
    -------
    PredictedDeviation
        Its ``value`` is in squared units of the model's parameters per squared learning rate, and
        ranks graphs for the same clients and model.

    Raises
    ------
    TopologyError
        As :func:`topofl.metrics.accumulated_noise`; with `lr` and `curvature`, also if rows or
        columns of W do not sum to 1, or if the sum over all hops does not converge.
    TypeError, ValueError
        If an argument is of another kind or out of range, the numbers of nodes differ, neither
        `statistics` nor `model` with `batch_size` is given, `statistics` is given together with
        what would be measured, only one of `lr` and `curvature` is given, their product is above 1,
        or ``by="labels+residual"`` is used although label shares fit the gradients of any nodes.

    Notes
    -----
    Let the losses of all nodes be quadratics with the same Hessian A, J the matrix of 1/n, and Z
    the deviations of gradients from their mean at the common initial model. With full gradients and
    doubly stochastic W, the squared deviation of D-SGD after K rounds is ``(lr^2 / n) ||sum_k (W^k
    - J) Z (I - lr A)^(k-1)||_F^2`` with k from 1 to K. If the eigenvalues of A are between the
    curvature mu and 1/lr, it is at most ``lr / (n mu) sum_k (1 - lr mu)^(k-1) ||(W^k - J)
    Z||_F^2``: lr / mu times :func:`neighborhood_heterogeneity` with the discount ``1 - lr * mu``.

    References
    ----------
    Both are derived in topofl's documentation ("What predicts convergence", "How many hops count").

    Examples
    --------
    >>> from topofl import data, models, topologies
    >>> clients = data.shards(data.digits(), n=20, per_node=2, seed=0)
    >>> model = models.logistic_regression(64)
    >>> ring, torus = (
    ...     predicted_deviation(graph, clients, model=model, batch_size=16)
    ...     for graph in (topologies.ring(20), topologies.torus(20))
    ... )
    >>> float(torus) < float(ring)
    True

    For many graphs, measure gradients once:

    >>> found = gradient_statistics(clients, model=model, batch_size=16)
    >>> again = predicted_deviation(topologies.ring(20), clients, statistics=found)
    >>> float(again) == float(ring)
    True

    With a learning rate and a curvature, and what labels do not explain:

    >>> options = {"statistics": found, "by": "labels+residual", "lr": 0.5, "curvature": 0.1}
    >>> long = predicted_deviation(topologies.ring(20), clients, **options)
    >>> long.discount, long.hops, bool(long.residual > 0)
    (0.95, 'inf', True)
    """
    by = check_choice("by", by, ["labels", "labels+residual", "gradients"])
    discount = _discount(lr, curvature)
    if hops is None:
        hops = HOPS if discount is None else "inf"
    hops = check_hops(hops)
    measured = {"model": model, "batch_size": batch_size, "task": task, "minibatches": minibatches}
    given = {name: value for name, value in measured.items() if value is not None}
    found = _statistics(statistics, clients, given, seed)
    residual = _residual(found, clients) if by == "labels+residual" else 0.0
    of = {"gradients": found.means} if by == "gradients" else {"label_counts": clients}
    sums = _sums(x, of, hops, discount, rounds=rounds, weights=weights, seed=seed)
    heterogeneity, persistent, noise = sums
    if by == "gradients":
        zeta2 = 1.0
        heterogeneity = max(heterogeneity - found.noise / found.minibatches * persistent, 0.0)
    else:
        spread = label_spread(clients)
        explained = max(found.heterogeneity - residual * (1 - 1 / clients.n), 0.0)
        zeta2 = explained / spread if spread > 0 else 0.0
    return PredictedDeviation(
        value=zeta2 * heterogeneity + residual * persistent + found.noise * noise,
        heterogeneity=heterogeneity,
        noise=noise,
        zeta2=zeta2,
        sigma2=found.noise * found.batch_size,
        batch_size=found.batch_size,
        hops=hops,
        residual=residual,
        persistent=persistent,
        discount=discount,
    )


def _discount(lr: float | None, curvature: float | None) -> float | None:
    """Return ``1 - lr * curvature``, None if neither is given; raise for one of both."""
    if lr is None and curvature is None:
        return None
    if lr is None or curvature is None:
        missing, given = ("lr", "curvature") if lr is None else ("curvature", "lr")
        raise ValueError(f"`{missing}` must be given with `{given}`, got None; or leave out both")
    lost = check_positive("lr", lr) * check_positive("curvature", curvature)
    if lost > 1:
        raise ValueError(
            f"`lr` times `curvature` must be at most 1, got {lost:g}: a step along a larger "
            "curvature leads beyond the minimum; use a smaller rate, or leave out both"
        )
    return 1 - lost


def _residual(found: GradientStatistics, clients: Partition) -> float:
    """Return the variance of node gradients given label shares, without minibatch noise."""
    shares = label_distributions(clients)
    fitted, rank = np.linalg.lstsq(shares, found.means, rcond=None)[::2]
    if rank >= clients.n:
        raise ValueError(
            f"`by` must be 'labels' or 'gradients' for {clients.n} nodes whose label shares have "
            f"rank {rank}, got 'labels+residual': no node is left to tell what labels explain"
        )
    left = np.square(found.means - shares @ fitted).sum() / (clients.n - rank)
    return max(float(left) - found.noise / found.minibatches, 0.0)


def _sums(
    x: Mixable, of: dict[str, Any], hops: int | str, discount: float | None, **how: Any
) -> tuple[float, float, float]:
    """Return what values `of` the nodes, a residual of 1 and noise of variance 1 contribute."""
    rounds, weights, seed = how["rounds"], how["weights"], how["seed"]
    if discount is None:
        noise = accumulated_noise(x, hops, **how)
        options = {"hops": hops, "rounds": rounds, "weights": weights}
        return neighborhood_heterogeneity(x, **of, **options), noise, noise
    source = as_rounds(x, weights)
    values = values_of(source.n, source.name, **({"label_counts": None, "gradients": None} | of))
    heterogeneity = coherent(source, values, hops, discount, rounds)
    persistent = coherent(source, independent(source.n, seed=seed), hops, discount, rounds)
    # Squares of noise decay by d^2 per hop. If that is 0, which is no discount, one hop is left.
    squared = discount**2
    noise = accumulated_noise(x, hops if squared else 1, discount=squared or 1.0, **how)
    return heterogeneity, persistent, noise


def _statistics(
    statistics: Any, clients: Partition, measured: dict[str, Any], seed: int
) -> GradientStatistics:
    """Return the given statistics, or measure them with these arguments; raise for both."""
    if statistics is None:
        missing = [name for name in ("model", "batch_size") if name not in measured]
        if len(missing) == 2:
            raise ValueError(
                "`statistics`, or `model` and `batch_size`, must be given, got none: pass what "
                "gradient_statistics(...) returns, or the model at which it is to be measured"
            )
        if missing:
            given = "model" if missing == ["batch_size"] else "batch_size"
            raise ValueError(f"`{missing[0]}` must be given with `{given}`, got None")
        return gradient_statistics(clients, **measured, seed=seed)
    if not isinstance(statistics, GradientStatistics):
        raise TypeError(
            "`statistics` must be what gradient_statistics(...) returns, got "
            f"{type(statistics).__name__}"
        )
    if measured:
        raise ValueError(
            f"`{next(iter(measured))}` must be left out with `statistics`, which were measured "
            "before; or leave out `statistics` to measure them again"
        )
    check_clients(clients)
    if len(statistics.means) != clients.n:
        raise ValueError(
            f"`statistics` must be of the {clients.n} nodes of `clients`, got those of "
            f"{len(statistics.means)}; measure them with gradient_statistics(clients, ...)"
        )
    return statistics


def coherent(
    source: MixingSequence,
    values: np.ndarray,
    hops: int | str,
    discount: float | np.ndarray,
    rounds: int | None = None,
) -> float:
    """Return ``(1/n) ||sum_k discount^(k-1) (A_k - J) V||_F^2`` over hops k, from 1.

    `values` are V, (n, c), and `discount`, one number or (c,), is in [0, 1]. ``A_k = W_{t-1} ...
    W_{t-k}``, and the square is averaged over the ends t: each round of a period, or every end
    whose rounds are among those examined. W must be doubly stochastic.
    """
    examined = rounds_for(source, hops, rounds)
    matrices = [source.at(t) for t in range(examined)]
    other = next((matrix for matrix in matrices if not matrix.is_doubly_stochastic), None)
    if other is not None:
        raise TopologyError(
            "`lr` and `curvature` need weights whose rows and columns sum to 1, those of "
            f"{other.name} are {other.stochasticity}; leave out both"
        )
    apart, rounding = values - values.mean(axis=0), rounding_of(values)
    if hops == INFINITE:
        return _coherent_without_end(matrices, apart, discount, rounding, source.name)
    last = int(hops)
    found = []
    for start in range(examined - last + 1 if source.period is None else examined):
        deviations = np.zeros_like(apart)
        for t in range(start, start + last):
            deviations = matrices[t % examined] @ (discount * deviations + apart)
        found.append(mean_square(deviations, last * rounding))
    return float(np.mean(found))


def _coherent_without_end(
    matrices: Sequence[MixingMatrix],
    apart: np.ndarray,
    discount: float | np.ndarray,
    rounding: float,
    name: str,
) -> float:
    """Return the same over all hops, from the deviations that every period repeats."""

    def period(deviations: np.ndarray) -> Iterator[np.ndarray]:
        for matrix in matrices:
            deviations = matrix @ (discount * deviations + apart)
            yield deviations

    *_, first = period(np.zeros_like(apart))
    rounding *= len(matrices)
    first[np.abs(first) <= rounding] = 0.0  # which the sum over all hops would enlarge
    rest = np.broadcast_to(discount, apart.shape[1]) ** len(matrices)
    if len(apart) <= spectral.DENSE_LIMIT:
        repeated = _solved(first, deviation_of(matrices), rest, name)
    else:
        repeated = _by_periods(period, first, float(rest.max()), MOST_HOPS // len(matrices), name)
    return float(np.mean([mean_square(one, rounding) for one in period(repeated)]))


LARGEST_SUM = 1e11
"""Norm of a sum of powers from which on rounding errors would count."""


def _solved(first: np.ndarray, deviation: np.ndarray, rest: np.ndarray, name: str) -> np.ndarray:
    """Return X with ``X = first + deviation X rest``, with a factor in `rest` for each column."""
    repeated = np.empty_like(first)
    for factor in np.unique(rest):
        system, own = np.eye(len(first)) - factor * deviation, rest == factor
        try:
            total = np.linalg.inv(system)
        except np.linalg.LinAlgError:
            total = np.full_like(system, np.inf)
        if np.linalg.norm(total, 1) > LARGEST_SUM:
            raise TopologyError(
                f"the sum over all hops of {name} would be lost in rounding, since some nodes do "
                "not average and `lr` times `curvature` is too small; use a number of hops"
            )
        repeated[:, own] = total @ first[:, own]
    return repeated


def _by_periods(
    period: Callable[[np.ndarray], Iterator[np.ndarray]],
    deviations: np.ndarray,
    rest: float,
    most: int,
    name: str,
) -> np.ndarray:
    """Return deviations that a period does not change, from those after the first one."""
    tolerance = max(CONVERGED * (1 - rest), 16 * np.finfo(float).eps)
    for _ in range(most):
        before = deviations
        *_, deviations = period(before)
        # A period shrinks the distance from the limit at least by the factor `rest`.
        if rest * np.linalg.norm(deviations - before) <= tolerance * np.linalg.norm(deviations):
            return deviations
    raise TopologyError(
        f"the sum over all hops of {name} did not converge within {MOST_HOPS:,} hops, since "
        "`lr` times `curvature` is too small; use a number of hops"
    )
