"""Metrics of a changing graph round by round, for learned and for random graphs."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import nn

from topofl._support.check import check_int
from topofl._support.public import public
from topofl._support.table import NotApplicable, Table
from topofl.metrics._rounds import WeightRule, as_rounds, n_rounds, node_groups, recorded_costs
from topofl.metrics.compare import compare
from topofl.metrics.connectivity import rounds_until_strong
from topofl.metrics.cost import COSTS, cost_of_rounds
from topofl.mixing import MixingMatrix

__all__ = ["over_rounds"]

ABOUT = ("structure", "averaging", "data")
JOINT = "rounds until strong"


@public
def over_rounds(
    x: Any,
    *,
    rounds: int | Sequence[int] | None = None,
    label_counts: Any = None,
    weights: WeightRule | None = None,
    about: str | Sequence[str] = ABOUT,
    model: nn.Module | None = None,
    n_parameters: int | None = None,
) -> Table:
    """Return a table with one row per round and the columns of :func:`compare`.

    Parameters
    ----------
    x
        A History, whose recorded matrices are used, or any other argument of
        :func:`measured_contraction`.
    rounds
        Number of rounds, starting at 0, or a list of rounds; default: all recorded rounds, or one
        period.
    label_counts, weights, about, model, n_parameters
        As in :func:`compare`. Costs of a History are those of the messages sent in all phases,
        including those that choose peers; costs of graphs are one message per edge.

    Returns
    -------
    Table
        ``round``, from 0, as for ``history.mixing(t)`` (evaluations and ``history.to_pandas()``
        count completed rounds, from 1); ``rounds until strong``, the number of rounds, including
        this one, until the rounds are jointly strongly connected (n/a if the rounds up to the last
        of `rounds` are not); then the columns of :func:`compare`. If a graph is directed, edges of
        all rounds are counted per direction. Rounds with the same matrix are computed once.

    Raises
    ------
    TopologyError
        If `rounds` is missing for a sequence without a period or an end.
    TypeError, ValueError
        If `x` is of another kind, or `rounds` are negative, beyond the end, or empty; as
        :func:`compare`.

    Examples
    --------
    >>> from topofl import topologies
    >>> table = over_rounds(topologies.one_peer_exponential(8), about=["structure"])
    >>> table.column("round"), table.column("edges"), table.column("rounds until strong")
    ((0, 1, 2), (8, 8, 8), (1, 3, 2))
    """
    source = as_rounds(x, weights)
    wanted = _selected_rounds(
        source.length or n_rounds(source, None) if rounds is None else rounds, source.length
    )
    matrices = {t: source.at(t) for t in wanted}
    distinct = {id(matrix): matrix for matrix in matrices.values()}
    groups = {"groups": node_groups(x)}
    numbers = compare(
        [
            SimpleNamespace(mixings=as_rounds(matrix), meta=groups)  # as a History has them
            for matrix in distinct.values()
        ],
        label_counts=label_counts, about=about, model=model, n_parameters=n_parameters,
    )  # fmt: skip
    of_matrix = dict(zip(distinct, numbers.rows, strict=True))
    lengths = rounds_until_strong(source, max(wanted) + 1)
    known = _recorded_cost_columns(x, numbers.columns[1:]) | _directed_edge_counts(
        matrices, numbers.columns[1:]
    )
    rows = tuple(
        (t, _finite_or_reason(lengths[t]), *_row_of_round(t, of_matrix[id(matrices[t])][1:], known))
        for t in wanted
    )
    title = f"{source.name}, {len(wanted)} round{'s' * (len(wanted) != 1)}"
    return Table(("round", JOINT, *numbers.columns[1:]), rows, title, numbers.meanings)


def _recorded_cost_columns(x: Any, columns: Sequence[str]) -> dict[int, np.ndarray | NotApplicable]:
    """Return the cost columns recorded in a History, by their index; empty for graphs."""
    of_run = recorded_costs(x)
    if of_run is None:
        return {}
    return {columns.index(name): cost_of_rounds(of_run, name) for name in COSTS if name in columns}


def _directed_edge_counts(
    matrices: Mapping[int, MixingMatrix], columns: Sequence[str]
) -> dict[int, Mapping[int, np.ndarray]]:
    """Return the numbers of directed edges, by the index of their column, if a graph is directed.

    Otherwise, the result is empty.
    """
    if "edges" not in columns:
        return {}
    graphs = {
        id(matrix): matrix.support()
        for matrix in {id(matrix): matrix for matrix in matrices.values()}.values()
    }
    if not any(graph.is_directed for graph in graphs.values()):
        return {}
    return {
        columns.index("edges"): {
            t: np.array(graphs[id(matrix)].adjacency.nnz) for t, matrix in matrices.items()
        }
    }


def _row_of_round(t: int, values: tuple[Any, ...], known: Mapping[int, Any]) -> tuple[Any, ...]:
    recorded = {
        k: column if isinstance(column, NotApplicable) else column[t].item()
        for k, column in known.items()
    }
    return tuple(recorded.get(k, value) for k, value in enumerate(values))


def _finite_or_reason(length: float) -> int | NotApplicable:
    return (
        int(length)
        if np.isfinite(length)
        else NotApplicable("the rounds from this one to the last do not connect all nodes")
    )


def _selected_rounds(rounds: int | Sequence[int], length: int | None) -> list[int]:
    """Return the requested rounds, or raise."""
    if isinstance(rounds, Sequence | np.ndarray) and not isinstance(rounds, str):
        last = None if length is None else length - 1
        wanted = [
            check_int("rounds", t, minimum=0, maximum=last, maximum_name="the last recorded")
            for t in rounds
        ]
        if not wanted or len(set(wanted)) < len(wanted):
            raise ValueError(f"`rounds` must be one or more different rounds, got {list(rounds)}")
        return wanted
    return list(
        range(check_int("rounds", rounds, minimum=1, maximum=length, maximum_name="the recorded"))
    )
