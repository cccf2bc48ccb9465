"""Dobrushin's ergodicity coefficient: the contraction that a window of rounds guarantees."""

from typing import Any

import numpy as np
import scipy.sparse as sparse

from topofl._support.check import check_int
from topofl._support.public import public
from topofl.metrics._declaration import MetricColumn
from topofl.metrics._rounds import Mixable, WeightRule, as_rounds
from topofl.mixing import MixingSequence
from topofl.topology import TopologyError

__all__ = ["dobrushin", "ergodicity_coefficient"]

COLUMNS = (
    MetricColumn(
        "Dobrushin coefficient",
        "averaging",
        "guaranteed factor on the range of the nodes' values over a period",
        lambda entry: dobrushin(entry.rounds),
        after="Perron skewness",
    ),
)

LIMIT = 2000
"""Largest number of nodes for which products and pairs are computed densely (some seconds)."""

ENTRY_LIMIT = 50_000_000
"""Largest number of entries of a product of larger, sparse matrices."""


@public
def dobrushin(
    x: Mixable, *, rounds: int | None = None, start: int = 0, weights: WeightRule | None = None
) -> float:
    """Return Dobrushin's ergodicity coefficient of the product of a window of rounds.

    It is half the largest L1 distance between two rows:
    ``tau(A) = max_ij ||A_i - A_j||_1 / 2 = 1 - min_ij sum_k min(A_ik, A_jk)`` of the product
    ``A = W_{start+rounds-1} ... W_start``. Over the window, the range of the nodes' values shrinks
    at least by this factor: ``max(A x) - min(A x) <= tau(A) (max(x) - min(x))`` for all x. For
    matrices that are column- but not row-stochastic, columns are compared.

    Parameters
    ----------
    x
        A MixingMatrix, a Topology, a TopologySequence, or a list of MixingMatrix, which is one
        period.
    rounds
        Length of the window, at least 1; default: one period, or all recorded rounds from `start`
        on. Required for other sequences without a period.
    start
        First round of the window.
    weights
        Rule from Topology to MixingMatrix for graphs; default: Metropolis-Hastings if undirected,
        else uniform pull.

    Returns
    -------
    float
        In [0, 1]; 0, up to rounding (1e-15), if and only if all rows are equal; 1 exactly if two
        nodes have no source (for columns: no receiver) in common. 0 for a single node.

    Raises
    ------
    TopologyError
        If `rounds` is missing for a sequence without a period, or the rounds mix row- with
        column-stochastic matrices. If there are more than 2,000 nodes, unless the coefficient is 1
        by a quick test: the node whose sources are least shared has none in common with some node.
    TypeError, ValueError
        If an argument is of another kind or out of range.

    Notes
    -----
    ``tau(A B) <= tau(A) tau(B)``, and ``|lambda_2(A)| <= tau(A)``. For one round of a sparse graph
    it is usually 1: take at least as many rounds as the diameter.

    References
    ----------
    Dobrushin, "Central limit theorem for nonstationary Markov chains" (1956); Seneta, "Coefficients
    of ergodicity: structure and applications" (1979).

    Examples
    --------
    >>> from topofl import topologies
    >>> graph = topologies.one_peer_exponential(8)
    >>> dobrushin(graph, rounds=1), dobrushin(graph, rounds=2), dobrushin(graph)
    (1.0, 1.0, 0.0)
    """
    source = as_rounds(x, weights)
    start = check_int("start", start, minimum=0)
    if rounds is None and source.period is None and source.length is None:
        raise TopologyError(
            f"{source.name} has no period, so `rounds` is needed: dobrushin(sequence, rounds=...)"
        )
    default = source.period or (source.length or 0) - start
    length = check_int("rounds", default if rounds is None else rounds, minimum=1)
    product = _window_product(source, range(start, start + length))
    if isinstance(product, np.ndarray):
        return ergodicity_coefficient(product)
    if not _some_pair_is_disjoint(product):
        raise TopologyError(
            f"Dobrushin's coefficient is computed up to n={LIMIT:,}, {source.name} has "
            f"n={source.n:,}; use metrics.slem or metrics.measured_contraction"
        )
    return 1.0


def _window_product(source: MixingSequence, window: range) -> np.ndarray | sparse.csr_array:
    """Return the product of the rounds, dense up to LIMIT; transposed if column-stochastic."""
    product: Any = (
        np.eye(source.n) if source.n <= LIMIT else sparse.eye_array(source.n, format="csr")
    )
    all_rows = True
    all_columns = True
    for t in window:
        matrix = source.at(t)
        all_rows = all_rows and matrix.is_row_stochastic
        all_columns = all_columns and matrix.is_column_stochastic
        if not (all_rows or all_columns):
            raise TopologyError(
                "the matrices of all rounds must be row-stochastic, or all column-stochastic, "
                f"{source.name} has both kinds; use one direction: mixing.uniform(topology, "
                "direction=...)"
            )
        if sparse.issparse(product):
            _check_entries(source, t, matrix.weights, product)
        product = matrix.weights @ product
    product = product if all_rows else product.T
    return sparse.csr_array(product) if sparse.issparse(product) else product


def _check_entries(
    source: MixingSequence, t: int, matrix: sparse.csr_array, product: sparse.csr_array
) -> None:
    if np.diff(product.indptr)[matrix.indices].sum() > ENTRY_LIMIT:
        raise TopologyError(
            f"the product of these rounds of {source.name} is too large from round {t} on "
            f"(n={source.n:,}); use fewer rounds, or metrics.measured_contraction"
        )


def _some_pair_is_disjoint(matrix: sparse.csr_array) -> bool:
    """Return whether the row whose columns are used least has none in common with some row."""
    column_counts = np.bincount(matrix.indices, minlength=matrix.shape[0])
    pattern = sparse.csr_array(
        (np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape
    )
    row = int((pattern @ column_counts).argmin())
    columns = pattern[[row]].toarray()[0]
    return bool((pattern @ columns == 0).any())


def ergodicity_coefficient(matrix: np.ndarray) -> float:
    """Return half the largest L1 distance of two rows of a dense row-stochastic matrix.

    Differences that are only rounding count as 0.
    """
    from scipy.spatial.distance import pdist

    if (matrix == matrix[0]).all():
        return 0.0
    support = (matrix > 0).astype(np.float32)
    if (support @ support.T).min() == 0:
        return 1.0
    largest = float(min(1.0, pdist(matrix, "cityblock").max() / 2))
    rounding = len(matrix) * np.finfo(float).eps
    return largest if largest > rounding else 0.0
