"""Conversion of graphs, matrices, sequences and histories to sequences of mixing matrices."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg as sparse_linalg

from topofl._linalg import spectral
from topofl._linalg.sparse import operator_of, start_vector
from topofl._linalg.spectral import classes_of
from topofl._support.check import check_int, shown
from topofl._support.text import node_name
from topofl.mixing import (
    MixingMatrix,
    MixingSequence,
    WeightRule,
    metropolis_or_uniform,
    warn_of_unused_weights,
    warning_once,
)
from topofl.topology import Topology, TopologyError, TopologySequence

ROUNDS = 100
"""Default number of rounds that metrics examine of sequences without a period or an end."""

Mixable: TypeAlias = (
    MixingMatrix | MixingSequence | Topology | TopologySequence | Sequence[MixingMatrix]
)


def as_rounds(x: Mixable, weights: WeightRule | None = None) -> MixingSequence:
    """Return `x` as a sequence of mixing matrices; graphs get the weights of the rule `weights`.

    The default rule is :func:`metropolis_or_uniform`. Warns once if it drops unequal edge weights.

    Raises
    ------
    TypeError
        If `x` or `weights` is of another kind.
    ValueError
        If matrices have different sizes, or `weights` is given although `x` has weights already.
    """
    x = recorded_matrices(x)
    if isinstance(x, TopologySequence) and x.period is None:
        rule = warning_once(metropolis_or_uniform, "weights") if weights is None else weights
        return MixingSequence(x.n, lambda t: _apply_rule(x.at(t), rule), x.name)
    if isinstance(x, Topology | TopologySequence):
        graphs = [x.at(t) for t in range(x.period or 1)]
        if weights is None:
            warn_of_unused_weights(graphs, "weights")
        return _repeating([_apply_rule(graph, weights) for graph in graphs], x.name)
    matrices = [x] if isinstance(x, MixingMatrix) else x
    if not isinstance(matrices, MixingSequence) and not is_list_of_matrices(matrices):
        raise TypeError(
            "`x` must be a MixingMatrix, a Topology, a sequence of either or a non-empty list of "
            f"MixingMatrix, got {type(x).__name__}; wrap a graph in as_topology(...) and weights "
            "in mixing.from_weights(...)"
        )
    if weights is not None:
        raise ValueError("`weights` must be None if `x` has weights already, as a MixingMatrix has")
    if isinstance(matrices, MixingSequence):
        return matrices
    return _repeating(list(matrices), matrices[0].name if len(matrices) == 1 else "matrices")


def is_list_of_matrices(x: Any) -> bool:
    """Return whether `x` is a non-empty list of mixing matrices, which is one period."""
    if not isinstance(x, list | tuple) or not x:
        return False
    return all(isinstance(item, MixingMatrix) for item in x)


def averages(matrices: Sequence[MixingMatrix], name: str) -> bool:
    """Return whether rows sum to 1 in all rounds, or raise unless columns do in all of them."""
    if all(matrix.is_row_stochastic for matrix in matrices):
        return True
    if all(matrix.is_column_stochastic for matrix in matrices):
        return False
    raise mixed_kinds(name)


def mixed_kinds(name: str) -> TopologyError:
    """Return the error for rounds of which some average and others push."""
    return TopologyError(
        f"the matrices of {name} must be row-stochastic in all rounds, or column-stochastic in "
        "all; use one direction: mixing.uniform(topology, direction=...)"
    )


def check_averaging(
    what: str, *matrices: MixingMatrix, use: str = "mixing.uniform(topology, direction='pull')"
) -> None:
    """Raise ``TopologyError`` unless all rows sum to 1; `what` begins the message."""
    other = next((matrix for matrix in matrices if not matrix.is_row_stochastic), None)
    if other is not None:
        raise TopologyError(
            f"{what} rows that sum to 1, {other.name} is {other.stochasticity}; use {use}"
        )


def check_size(
    what: str, graph: MixingSequence | MixingMatrix | Topology, limit: int, remedy: str
) -> None:
    """Raise ``TopologyError`` for a graph that is too large; `what` begins the message."""
    if graph.n > limit:
        raise TopologyError(
            f"{what} computed up to n={limit:,}, {graph.name} has n={graph.n:,}; {remedy}"
        )


PRODUCT_LIMIT = 5000
"""Largest number of nodes for which products of rounds, which become dense, are computed."""


def product_of_rounds(source: MixingSequence, rounds: int, start: int = 0) -> sparse.csr_array:
    """Return ``W_{start+rounds-1} ... W_start``; raise ``TopologyError`` if n is too large."""
    if rounds > 1:
        remedy = "use metrics.measured_contraction"
        check_size("products of several rounds are", source, PRODUCT_LIMIT, remedy)
    product = source.at(start).weights
    for t in range(start + 1, start + rounds):
        product = sparse.csr_array(source.at(t).weights @ product)
    return product


@contextmanager
def converging(what: str) -> Iterator[None]:
    """Raise ``TopologyError`` in place of errors of ARPACK and of sparse factorizations."""
    try:
        yield
    except (sparse_linalg.ArpackError, spectral.NoConvergence, RuntimeError) as error:
        raise TopologyError(
            f"{what} did not converge: {error}; use metrics.measured_contraction"
        ) from error


def largest_eigenvalue(apply: Callable[[np.ndarray], np.ndarray], n: int, what: str) -> float:
    """Return the largest eigenvalue of a symmetric operator on (n,) vectors, by iterations."""
    options = {"v0": start_vector(n), "ncv": 40, "return_eigenvectors": False}
    with converging(what):
        return float(sparse_linalg.eigsh(operator_of(apply, n), k=1, which="LA", **options)[0])


def losing_node(matrices: Sequence[MixingMatrix]) -> int | None:
    """Return a node whose push-sum weight tends to 0 when these rounds repeat, or None.

    The entry of such a node in the Perron vector of column-stochastic weights is 0: it sends to
    nodes from which nothing returns. With row-stochastic weights, all push-sum weights stay 1.
    """
    if all(matrix.is_row_stochastic for matrix in matrices):
        return None
    # No push-sum weight leaves the closed classes of the reversed, transposed matrices.
    classes = classes_of([sparse.csr_array(matrix.weights.T) for matrix in reversed(matrices)])
    losing = np.flatnonzero(~classes.is_closed[classes.labels].all(axis=0))
    return int(losing[0]) if len(losing) else None


def check_push_weights(matrices: Sequence[MixingMatrix], name: str) -> None:
    """Raise ``TopologyError`` if a push-sum weight tends to 0 when these rounds repeat."""
    node = losing_node(matrices)
    if node is not None:
        raise TopologyError(lost_weight_message(node_name(matrices[0].nodes, node), name))


def lost_weight_message(node: str, name: str) -> str:
    """Return the error message for a node whose push-sum weight tends to 0."""
    return (
        f"push-sum over {name} does not reach consensus: the weight of node {node} tends to 0, "
        "since part of what it sends never returns; make the graph strongly connected, or use "
        "pull weights: mixing.uniform(topology, direction='pull')"
    )


def recorded_matrices(x: Any) -> Any:
    """Return the mixing matrices recorded in a History; other values unchanged."""
    mixings = getattr(x, "mixings", None)
    return mixings if isinstance(mixings, MixingSequence) else x


def recorded_costs(x: Any) -> Mapping[str, Any] | None:
    """Return the per-round values recorded in a History, by name; None for other values."""
    rounds = getattr(x, "rounds", None)
    return rounds if recorded_matrices(x) is not x and isinstance(rounds, Mapping) else None


def node_groups(x: Any) -> tuple[tuple[int, ...], ...]:
    """Return the groups of nodes of a graph, of all rounds of a period, or recorded in a History.

    The result is empty if there are none, or if they differ between rounds.
    """
    if isinstance(x, Topology):
        return x.groups
    if isinstance(x, TopologySequence):
        found = {x.at(t).groups for t in range(x.period or 0)}
        return found.pop() if len(found) == 1 else ()
    meta = getattr(x, "meta", None)
    recorded = meta.get("groups", ()) if isinstance(meta, Mapping) else ()
    return tuple(map(tuple, recorded))


def n_rounds(source: MixingSequence | TopologySequence | Topology, rounds: int | None) -> int:
    """Return the number of rounds to examine: one period, all recorded rounds, or `rounds`.

    Raises
    ------
    TopologyError
        If `rounds` is missing for a sequence without a period or an end.
    ValueError
        If it is given for a sequence with a period, below 1, or beyond the end.
    """
    if source.period is not None:
        if rounds is not None:
            raise ValueError(
                f"`rounds` must be left out: {source.name} repeats after {source.period}, got "
                f"{shown(rounds)}"
            )
        return source.period
    length = source.length if isinstance(source, MixingSequence) else None
    if rounds is None:
        if length is None:
            raise TopologyError(
                f"`rounds` must be given, since {source.name} has no period, e.g. rounds=1000"
            )
        return length
    return check_int("rounds", rounds, minimum=1, maximum=length, maximum_name="the recorded")


def as_mixing(x: MixingMatrix | Topology, weights: WeightRule | None = None) -> MixingMatrix:
    """Return the matrix of a static `x`; raise as :func:`as_rounds`, and for a sequence."""
    if not isinstance(x, MixingMatrix | Topology):
        raise TypeError(
            f"`x` must be one MixingMatrix or Topology, got {type(x).__name__}; of a sequence, "
            "take one round: x.at(t), of a History x.mixing(t), and of another graph "
            "topofl.as_topology(x)"
        )
    return as_rounds(x, weights).at(0)


def _apply_rule(topology: Topology, weights: WeightRule | None) -> MixingMatrix:
    rule = metropolis_or_uniform if weights is None else weights
    wanted = "`weights` must be a rule from Topology to MixingMatrix, such as "
    wanted += "mixing.metropolis_hastings,"
    try:
        matrix = rule(topology) if callable(rule) else None
    except (TypeError, AttributeError) as error:  # the function takes another argument
        raise TypeError(f"{wanted} {shown(rule)} raised {shown(error, 200)}") from error
    if not isinstance(matrix, MixingMatrix):
        got = f"one that returns {type(matrix).__name__}" if callable(rule) else shown(weights)
        raise TypeError(f"{wanted} got {got}")
    return matrix


def _repeating(matrices: list[MixingMatrix], name: str) -> MixingSequence:
    sizes = sorted({matrix.n for matrix in matrices})
    if len(sizes) > 1:
        raise ValueError(f"`x` must hold matrices of one size, got n={sizes}")
    return MixingSequence(sizes[0], matrices.__getitem__, name, len(matrices))
