"""Comparison of graphs in one table, before training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from numbers import Real
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from topofl._support.check import check_choice, check_int, check_label_counts, check_sequence, shown
from topofl._support.notebook import waited_for
from topofl._support.plugins import error_context, resolve_name, with_checked_result
from topofl._support.public import public
from topofl._support.table import NotApplicable, Table
from topofl.data.partition import Partition
from topofl.metrics import (
    averaging,
    contraction,
    cost,
    hops,
    labels,
    push_sum,
    seconds,
    shape,
    spectral,
    walks,
)
from topofl.metrics._columns import GROUPS, HARDWARE, ITERATED_LIMIT, LABELS, Entry, MetricColumn
from topofl.metrics._rounds import (
    ROUNDS,
    WeightRule,
    as_rounds,
    is_list_of_matrices,
    n_rounds,
    node_groups,
    recorded_costs,
    recorded_matrices,
)
from topofl.metrics.cost import costs_of_run, message_size
from topofl.metrics.hardware import AnyHardware, as_hardware
from topofl.metrics.labels import check_row_per_node
from topofl.metrics.spectral import largest_share, share_in_words
from topofl.mixing import MixingMatrix, MixingSequence
from topofl.topology import TopologyError, graph_of

__all__ = ["columns", "compare", "over_rounds"]


SAMPLED_ROUNDS = 10
"""Number of rounds over which per-round metrics are averaged for sequences without a period."""

EXAMPLE = 7850
"""Default number of parameters without data: logistic regression on MNIST."""

ALL = "all"
"""Value of `about` for all groups of columns."""

HINT = 'These numbers decide which graph to take; about="all" shows all columns.'
"""Line below a table of the columns that decide."""


MODULES = (shape, spectral, contraction, averaging, hops, labels, walks, push_sum, cost, seconds)
"""Modules with columns, in the order of the columns of a group."""

DECISIVE = (
    "H_10",
    "neighborhood heterogeneity",
    "N_10",
    "spectral gap",
    "max degree",
    "messages per round",
    "MB per round",
    "seconds per round",
)
"""Numbers shown first, the most important one first: those that predict convergence, and costs."""

FURTHER = ("nodes", "edges", "mean degree", "slem")
"""Numbers shown if there are fewer than `SHOWN` of these."""

SHOWN = 5
"""How many numbers are shown first, at least."""


@public
def columns() -> Table:
    """Return a table of all columns of :func:`compare`: group, meaning, requirements and limit.

    Returns
    -------
    Table
        One row per column, in the order of :func:`compare`: ``column``; ``group``, a value for its
        argument `about`; ``meaning``; ``needs``, the requirements on the graph, or empty; ``nodes
        at most``, the size of the largest graph for which :func:`compare` computes it.

    Examples
    --------
    >>> table = columns()
    >>> table.columns
    ('column', 'group', 'meaning', 'needs', 'nodes at most')
    >>> table.rows[0][:3]
    ('nodes', 'structure', 'number of nodes')
    """
    rows = tuple(
        (
            column.name,
            column.group,
            column.meaning,
            ", ".join(name for name, _ in column.needs),
            column.limit[0] if column.limit else "any",
        )
        for column in all_columns()
    )
    return Table(("column", "group", "meaning", "needs", "nodes at most"), rows)


def headline(columns: Sequence[str]) -> list[str]:
    """Return the five to eight columns that decide, completed in the given order to five.

    Examples
    --------
    >>> headline(["nodes", "luck", "spectral gap", "edges", "skill", "fate"])
    ['spectral gap', 'nodes', 'edges', 'luck', 'skill']
    """
    known = [name for name in DECISIVE if name in columns]
    others = [name for name in (*FURTHER, *columns) if name in columns and name not in known]
    return [*known, *dict.fromkeys(others)][: max(SHOWN, len(known))]


@cache
def all_columns() -> tuple[MetricColumn, ...]:
    """Return the columns that the modules declare, by group and in the order of :data:`MODULES`."""
    declared = [column for module in MODULES for column in module.COLUMNS]
    return tuple(sorted(declared, key=lambda column: list(GROUPS).index(column.group)))


def _chosen_columns(metrics: Any, ours: Mapping[str, MetricColumn]) -> dict[str, MetricColumn]:
    """Return the columns of `metrics`: functions, names of functions, or names of columns.

    Raises
    ------
    TypeError, ValueError
        As :func:`topofl.metrics.compare`.
    """
    found: dict[str, MetricColumn] = {}
    for metric in check_sequence("metrics", metrics, "functions or of their names"):
        if not isinstance(metric, str) and not callable(metric):
            raise TypeError(f"`metrics` must hold functions or their names, got {shown(metric)}")
        if isinstance(metric, str):
            name = metric
            needs = next((column.needs for column in all_columns() if column.name == name), ())
            lacking = [need for need in needs if need in _NEEDED and name not in ours]
            if lacking:
                raise ValueError(
                    f"`metrics` must be columns that can be computed, but {name!r} needs "
                    f"{lacking[0][0]}; pass `{_NEEDED[lacking[0]]}=`"
                )
            with error_context("`metrics`:"):
                resolved = resolve_name("metric", metric, ours)
        else:
            name = getattr(metric, "__name__", type(metric).__name__)
            resolved = metric
        column = resolved if isinstance(resolved, MetricColumn) else _custom_column(name, resolved)
        if name in found or ours.get(name, column) is not column:
            raise ValueError(
                f"`metrics` must have a distinct name for every column, got {name!r} twice; "
                "rename one"
            )
        found[name] = column
    return found


_NEEDED = {LABELS: "label_counts", HARDWARE: "hardware"}
"""Arguments of ``compare`` without which columns are not shown."""


def _custom_column(name: str, function: Callable[..., Any]) -> MetricColumn:
    """Return the column of a user-defined function, of a matrix or of a sequence if it changes."""
    number = with_checked_result(
        name, function, "a number", (Real, NotApplicable), "; convert it with float(...)"
    )

    def compute(entry: Entry) -> Any:
        with error_context("`metrics`:"):
            return number(entry.matrices[0] if entry.is_static else entry.rounds)

    return MetricColumn("other", name, "", compute)


@public
def compare(
    graphs: Sequence[Any] | Mapping[str, Any],
    *,
    label_counts: Any = None,
    names: Sequence[str] | None = None,
    weights: WeightRule | None = None,
    model: nn.Module | None = None,
    n_parameters: int | None = None,
    about: str | Sequence[str] | None = None,
    metrics: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] = (),
    rounds: int = ROUNDS,
    seed: int = 0,
    hardware: AnyHardware | None = None,
) -> Table:
    """Return a table that compares graphs by data fit, averaging speed, cost and structure.

    See the page :doc:`A first comparison </docs/tutorials/first-comparison>`.

    Parameters
    ----------
    graphs
        List whose items are anything that :func:`topofl.as_topology` accepts, a MixingMatrix, a
        MixingSequence, a list of MixingMatrix (one period), or a History (its recorded rounds); or
        a dictionary of them by name.
    label_counts
        (n, classes) counts or an object with an attribute of this name, such as a Partition; adds
        the columns of the group "data".
    names
        One name per graph; default: the keys of a dictionary, else the names of the graphs.
    weights
        Rule from Topology to MixingMatrix for all graphs; default: the graph's own weights if it
        has any, else Metropolis-Hastings if undirected, else uniform pull.
    model, n_parameters
        A model, or its number of parameters, of 4 bytes each, which are a message; at most one of
        the two. Default: logistic regression, the smallest model, on the data of `label_counts` if
        that is a Partition, else on MNIST; the title names it.
    about
        Groups of columns, one or a list: any of "structure", "paths", "averaging", "rounds",
        "push-sum", "data", "cost"; "all" for all of them. Default: the five to eight columns that
        decide which graph to take.
    metrics
        Additional columns, one or a list: user-defined functions from a MixingMatrix to a number;
        names of such functions, ``module:function`` or entry points in the group
        ``topofl.metrics`` of installed packages; or names of columns of groups that are not shown.
        For graphs that change, a function receives the MixingSequence. The column has the name of
        the function, or the given name; if the function raises ``TopologyError``, the column does
        not apply.
    rounds, seed
        Number of rounds to examine of a sequence without a period, which is also the number of
        measured rounds; seed of measurements.
    hardware
        Machines and links; adds seconds per round to the group "cost", see :func:`round_time`.

    Returns
    -------
    Table
        One row per graph, printed transposed if that is narrower, with the meaning of each column
        below, and with long names shortened. A value that does not apply is a ``NotApplicable``
        with a reason, printed as n/a. A note names the graphs whose weights give nodes unequal
        shares (:func:`perron_vector`). :func:`topofl.metrics.columns` lists all
        columns with their meaning; the groups are

        * structure: numbers of nodes, edges and neighbors; triangles; communities.
        * paths: distances in hops; connectivity; effective resistance.
        * averaging: speed of consensus with these weights, and influence of the nodes on it.
        * rounds: connectivity and contraction over several rounds, including measured contraction.
        * push-sum: constants of push-sum, as in :func:`push_sum_constants`, with uniform push
          weights or those of the given matrices.
        * data: label heterogeneity of neighborhoods, cliques and communities.
        * cost: messages and megabytes (10^6 bytes) per round. For graphs, one message of
          `n_parameters` per edge; for a History, the messages sent in all phases of the run,
          including those that choose peers, averaged over all rounds. "MB per round by all-reduce"
          takes groups of nodes to exchange parts of sums instead, as in :func:`round_cost`: an
          assumption that does not hold if nodes need each model or send compressed differences.

        For a periodic sequence, per-round metrics are means over a period (max degree: the
        maximum); for any other sequence, means over the first ten rounds.

    Raises
    ------
    TypeError
        If `graphs` is neither a list nor a dictionary or holds an item that is not a graph, or one
        of `metrics` is neither a function nor a name or does not return a number.
    ValueError
        If `names` or `label_counts` have the wrong length, `about` has an unknown group, one of
        `metrics` cannot be found or raises an error, or two columns have the same name; if both
        `model` and `n_parameters` are given.

    Notes
    -----
    Some columns are computed for graphs up to a number of nodes, which the reason of a missing
    value says; those named in `metrics` are computed for any. From the fifth second on, a progress
    bar is shown on a terminal.

    Examples
    --------
    >>> from topofl import topologies
    >>> graphs = {"ring": topologies.ring(16), "all": topologies.fully_connected(16)}
    >>> table = compare(graphs, about=["paths"])
    >>> table.column("name"), table.column("diameter")
    (('ring', 'all'), (8, 1))

    A user-defined metric:

    >>> def heaviest(matrix):
    ...     return float(matrix.weights.max())
    >>> compare([topologies.ring(16)], about="paths", metrics=[heaviest, "slem"]).columns[-2:]
    ('heaviest', 'slem')
    """
    items, called = _listed(graphs, names)
    horizon = check_int("rounds", rounds, minimum=1)
    seed = check_int("seed", seed, minimum=0)
    entries = [_entry(*one, weights, horizon, seed) for one in zip(items, called, strict=True)]
    counts = None if label_counts is None else check_label_counts(label_counts)
    size, assumed = _message(model, n_parameters, label_counts)
    machines = None if hardware is None else as_hardware(hardware)
    for entry in entries:
        if counts is not None:
            check_row_per_node(counts, entry.n, entry.name)
        if machines is not None:
            machines.check(entry.n)
    more = {"n_parameters": size, "label_counts": counts, "hardware": machines}
    entries = [replace(entry, **more) for entry in entries]
    absent = {LABELS: counts is None, HARDWARE: machines is None}
    ours = {
        column.name: column
        for column in all_columns()
        if not any(absent.get(need) for need in column.needs)
    }
    shown = _of_groups(about, ours)
    further = [metrics] if isinstance(metrics, str) or callable(metrics) else metrics
    named = _chosen_columns(further, ours)
    shown |= named
    rows = _rows(entries, shown, named)
    meanings = tuple((name, column.meaning) for name, column in shown.items() if column.meaning)
    notes = (HINT,) * (about is None) + _note_on_shares(entries)
    return Table(("name", *shown), rows, _title(entries, assumed), meanings, notes)


def _note_on_shares(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return a line on the graphs whose weights give nodes unequal shares; none if none do."""
    unequal = [f"{entry.name} gives {words}" for entry in entries if (words := _shares(entry))]
    if not unequal:
        return ()
    return (
        f"Shares of nodes are unequal: {'; '.join(unequal)} in the average on which models agree, "
        "so that methods that average by these weights, such as algorithms.dsgd, minimize a mean "
        "of the losses with these shares, which no column of speed or data shows; algorithms.sab, "
        "algorithms.push_diging and algorithms.osgp weight all nodes of a directed graph equally, "
        "and so does mixing.metropolis_hastings of an undirected one.",
    )


def _shares(entry: Entry) -> str:
    """Return words on unequal shares of nodes; none if they are equal, or graphs do not repeat."""
    meta = {} if entry.history is None else entry.history.meta
    if (found := meta.get("largest_share")) is not None:
        return share_in_words(found, entry.n, meta.get("nodes", ()))
    averages = all(matrix.is_row_stochastic for matrix in entry.matrices)
    keep_mean = all(matrix.is_doubly_stochastic for matrix in entry.matrices)
    if entry.rounds.period is None or keep_mean or not averages:
        return ""
    if entry.n > ITERATED_LIMIT:
        return f"unequal shares, not computed for more than {ITERATED_LIMIT:,} nodes,"
    try:
        found = largest_share(entry.matrices)
    except TopologyError:
        return "unequal shares, which could not be computed,"
    if found is None:
        return ""
    return share_in_words(found, entry.n, entry.matrices[0].nodes)


def _listed(graphs: Any, names: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the graphs, and the name that is given for each or None."""
    if isinstance(graphs, Mapping):
        names = [str(name) for name in graphs] if names is None else names
        graphs = list(graphs.values())
    if not isinstance(graphs, list | tuple):
        raise TypeError(
            f"`graphs` must be a list of graphs, got {type(graphs).__name__}; put one graph in a "
            "list: [graph]"
        )
    if names is not None and not isinstance(names, list | tuple):
        raise TypeError(f"`names` must be a list of names, got {type(names).__name__}")
    if names is not None and len(names) != len(graphs):
        raise ValueError(
            f"`names` must have one name per graph: got {len(names)} names for {len(graphs)} graphs"
        )
    return graphs, [None] * len(graphs) if names is None else names


def _of_groups(about: Any, ours: Mapping[str, MetricColumn]) -> dict[str, MetricColumn]:
    """Return the columns of the groups that are asked for; those that decide for None."""
    if about is None:
        return {name: ours[name] for name in headline(list(ours))}
    if about == ALL:
        return dict(ours)
    shown = {}
    for group in [about] if isinstance(about, str) else check_sequence("about", about, "groups"):
        check_choice("about", group, [*GROUPS, ALL])
        shown |= {name: column for name, column in ours.items() if column.group == group}
    return shown


def _rows(
    entries: Sequence[Entry], shown: Mapping[str, MetricColumn], named: Mapping[str, MetricColumn]
) -> tuple[tuple[Any, ...], ...]:
    """Return the values of all graphs; those of columns that are `named` for graphs of any size."""
    cells = [(entry, name) for entry in entries for name in shown]
    values = [
        shown[name].value(entry, of_any_size=name in named)
        for entry, name in waited_for(cells, "metrics", "value")
    ]
    width = len(shown)
    return tuple(
        (entry.name, *values[k * width : (k + 1) * width]) for k, entry in enumerate(entries)
    )


def _message(model: nn.Module | None, n_parameters: int | None, clients: Any) -> tuple[int, str]:
    """Return the number of parameters of a message, and which model is assumed, in words."""
    given = message_size(model, n_parameters)
    if given is not None:
        return given, f"messages of {given:,} parameters"
    size, name = EXAMPLE, "MNIST"
    inputs = clients.dataset.inputs if isinstance(clients, Partition) else None
    if inputs is not None and (inputs.is_floating_point() or inputs.dtype == torch.uint8):
        name = clients.dataset.name
        size = (inputs[0].numel() + 1) * clients.n_classes
    return size, f"messages of {size:,} parameters, as of logistic regression on {name}"


def _title(entries: Sequence[Entry], assumed: str) -> str:
    graphs = f"{len(entries)} graph{'s' * (len(entries) != 1)}"
    n_runs = sum(entry.history is not None for entry in entries)
    if n_runs == 0:
        return f"{graphs}; {assumed}"
    if n_runs == len(entries):
        return f"{graphs}; costs as recorded"
    return f"{graphs}; costs of runs as recorded, of graphs with {assumed}"


def _entry(
    graph: Any, name: str | None, weights: WeightRule | None, horizon: int, seed: int
) -> Entry:
    matrices_of = recorded_matrices(graph)
    if isinstance(matrices_of, MixingMatrix | MixingSequence) or is_list_of_matrices(matrices_of):
        source = rounds = as_rounds(matrices_of)
        times = range(rounds.period or min(SAMPLED_ROUNDS, rounds.length or SAMPLED_ROUNDS))
        matrices = [rounds.at(t) for t in times]
        groups = node_groups(graph)
        graphs = [replace(matrix.support(), groups=groups) for matrix in matrices]
        horizon = min(horizon, rounds.length or horizon)
    else:
        source = graph_of("graphs", graph)
        rounds = as_rounds(source, weights)
        times = range(source.period or SAMPLED_ROUNDS)
        graphs = [source.at(t) for t in times]
        matrices = [rounds.at(t) for t in times]
    history = None if recorded_costs(graph) is None else graph
    name = name or source.name
    return Entry(name, graphs, matrices, rounds, source, horizon, seed, history=history)


ABOUT = ("structure", "averaging", "data")
JOINT = "rounds until strong"
APART = "the rounds from this one to the last do not connect all nodes"


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
    meta = {"groups": node_groups(x)}
    # as a History has them
    recorded = [SimpleNamespace(mixings=as_rounds(one), meta=meta) for one in distinct.values()]
    numbers = compare(
        recorded, label_counts=label_counts, about=about, model=model, n_parameters=n_parameters
    )
    names = numbers.columns[1:]
    values = dict(zip(distinct, numbers.rows, strict=True))
    supports = {key: one.support() for key, one in distinct.items()} if "edges" in names else {}
    is_directed = any(graph.is_directed for graph in supports.values())
    costs = {} if recorded_costs(x) is None else costs_of_run(x)
    lengths = shape.rounds_until_strong(source, max(wanted) + 1)
    rows = []
    for t in wanted:
        row = dict(zip(names, values[id(matrices[t])][1:], strict=True))
        if is_directed:
            row["edges"] = supports[id(matrices[t])].adjacency.nnz
        for name in row.keys() & costs.keys():
            column = costs[name]
            row[name] = column if isinstance(column, NotApplicable) else column[t].item()
        length = int(lengths[t]) if np.isfinite(lengths[t]) else NotApplicable(APART)
        rows.append((t, length, *row.values()))
    title = f"{source.name}, {len(wanted)} round{'s' * (len(wanted) != 1)}"
    return Table(("round", JOINT, *names), tuple(rows), title, numbers.meanings)


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
