"""Recommendation of topologies for given data and a communication budget."""

import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from topofl import topologies
from topofl._drawing.figures import MEASURED, figure_of, new_axes
from topofl._support.check import check_int, check_switch
from topofl._support.notebook import paragraph, waited_for
from topofl._support.table import NotApplicable, Spread, Table
from topofl.advice import predict
from topofl.advice.candidates import (
    DESIGN_LIMIT,
    Budget,
    Call,
    Graph,
    bytes_of_model,
    candidates,
    check_budget,
)
from topofl.data import Partition
from topofl.metrics.gradients import check_model
from topofl.metrics.labels import label_spread
from topofl.mixing import metropolis_or_uniform
from topofl.topology import Topology, TopologyError, TopologySequence

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


EXPLAINED = 3
"""Candidates whose reason and code are printed below the table."""

PAGE = 'page "What predicts convergence" of the documentation, docs/what-predicts-convergence.md'
"""Where the columns are derived and tested."""

BARS = 20
"""Most candidates in a picture."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A topology within the budget, as :func:`topofl.topologies.recommend` returns it.

    Parameters
    ----------
    name
        The call of the generator, without the data and the seed, and with the names of its other
        arguments.
    topology
        The graph, or the sequence of graphs.
    rounds, low, high
        Predicted rounds to a target, relative to the complete graph, and their interval; None if
        no curve is fitted for this number of hops.
    heterogeneity, noise
        H_K and N_K, see :func:`topofl.metrics.neighborhood_heterogeneity` and
        :func:`topofl.metrics.accumulated_noise`.
    deviation
        H_K plus the noise ratio times N_K, by which candidates are ranked: the predicted squared
        deviation of nodes, in units of label shares; N_K if the noise ratio is infinite.
    degree
        Most messages that a node sends, or receives, in a round.
    messages, busiest
        Messages of all nodes per round, and sent and received by the node with the most.
    bytes
        Bytes of all messages per round; None without a model.
    reason
        What the deviation consists of, and, if the graph changes, to how many nodes a node needs
        links.
    code
        The line of Python that builds the graph, where `clients` is what was given.
    spec
        The text that stands for the graph in a configuration file and on the command line.

    Examples
    --------
    >>> from topofl import data, topologies
    >>> clients = data.shards(data.digits(), n=12, per_node=2, seed=0)
    >>> best = topologies.recommend(clients, max_degree=2, static=True).best
    >>> rebuilt = eval(best.code)
    >>> (rebuilt.adjacency != best.topology.adjacency).nnz
    0
    """

    name: str
    topology: Topology | TopologySequence
    rounds: float | None
    low: float | None
    high: float | None
    heterogeneity: float
    noise: float
    deviation: float
    degree: int
    messages: float
    busiest: int
    bytes: float | None
    reason: str
    code: str
    spec: str


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation:
    """Candidates by predicted deviation, printed as a table with reasons and code.

    Parameters
    ----------
    candidates
        From the lowest to the highest predicted deviation, and so by predicted rounds.
    hops
        K, the horizon of H_K and N_K.
    noise_ratio
        Weight of N_K against H_K; infinite if the gradients of nodes differ by noise only.
    budget
        The limit, as it was given.
    warnings
        In what the setting is outside of those to which predicted rounds are fitted, and what was
        left out.
    fitted_to
        The settings to which they are fitted.

    Examples
    --------
    >>> from topofl import data, topologies
    >>> clients = data.shards(data.digits(), n=12, per_node=2, seed=0)
    >>> found = topologies.recommend(clients, max_degree=2, static=True)
    >>> found.budget, found.hops, found.best is found.candidates[0]
    ('max_degree=2', 10, True)
    """

    candidates: tuple[Candidate, ...]
    hops: int
    noise_ratio: float
    budget: str
    warnings: tuple[str, ...]
    fitted_to: str

    @property
    def best(self) -> Candidate:
        """The candidate with the lowest predicted deviation."""
        return self.candidates[0]

    @property
    def table(self) -> Table:
        """All candidates with predictions, costs, reasons and code."""
        return self._table(explained=True)

    def to_markdown(self) -> str:
        """Return warnings and the table in Markdown, followed by what its columns are."""
        legend = "\n".join(f"- {line}" for line in self._legend())
        first = (f"{note}\n" for note in self._warned())
        return "\n".join([*first, self.table.to_markdown(), "", legend, *self._fit()])

    def to_pandas(self) -> "pd.DataFrame":
        """Return a DataFrame with one row per candidate."""
        return self.table.to_pandas()

    def __str__(self) -> str:
        """Return warnings, the table, and reason and code of the first candidates."""
        first = [textwrap.fill(note, 120) for note in self._warned()]
        lines = [*first, *[""][: len(first)], str(self._table(explained=False)), ""]
        for place, candidate in enumerate(self.candidates[:EXPLAINED], start=1):
            lines.append(f"{place}. {candidate.code}")
            lines.append(f'   In a configuration file: topology = "{candidate.spec}"')
            lines.append(f"   {candidate.reason}")
        fit = (textwrap.fill(note, 120) for note in self._fit())
        return "\n".join([*lines, "", *self._legend(), *fit])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(
            f"<li><code>{escape(candidate.code)}</code><br>In a configuration file: "
            f"<code>topology = &quot;{escape(candidate.spec)}&quot;</code>"
            f"<br>{escape(candidate.reason)}</li>"
            for candidate in self.candidates[:EXPLAINED]
        )
        first, last = (
            "".join(map(paragraph, notes))
            for notes in (self._warned(), [*self._legend(), *self._fit()[1:]])
        )
        table = self._table(explained=False)._repr_html_()
        return f"{first}{table}<ol>{items}</ol>{last}"

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw the predicted rounds of the first candidates with intervals, and return the figure.

        Without predicted rounds, their deviations are drawn.
        """
        shown = self.candidates[:BARS]
        ax = new_axes(ax, 8, 1 + 0.28 * len(shown))
        centers, ends, what = [one.deviation for one in shown], None, "deviation"
        spreads = [spread for one in shown if (spread := _spread(one)) is not None]
        if spreads:
            centers, what = [one.mean for one in spreads], "rounds to target / complete graph"
            both = np.array([[one.mean - one.low, one.high - one.mean] for one in spreads]).T
            ends = np.maximum(both, 0)
        places = np.arange(len(shown))
        ax.errorbar(np.array(centers), places, xerr=ends, fmt="o", color=MEASURED, capsize=3)
        ax.set_yticks(places, [candidate.name for candidate in shown])
        ax.invert_yaxis()
        ax.set_xscale("log")
        ax.set(xlabel=f"predicted {what}", title=self.budget)
        return figure_of(ax)

    def _warned(self) -> list[str]:
        return [f"Warning: {text}." for text in self.warnings]

    def _fit(self) -> list[str]:
        """Return an empty line and to what rounds are fitted; nothing without predicted rounds."""
        if self.best.rounds is None:
            return []
        return ["", f"Predicted rounds are fitted to {self.fitted_to}."]

    def _legend(self) -> list[str]:
        """Return one line per column: what it is, and whether small or large values are good."""
        k = self.hops
        terms = f"H_{k} + {self.noise_ratio:.3g} N_{k}"
        if np.isinf(self.noise_ratio):
            terms = f"N_{k}"
        left = f"that is left after 1 to {k} exchanges, summed; lower is better"
        return [
            "graph: how to create it; `topofl list topology` describes generators",
            "rounds / complete: predicted rounds to a target, relative to the complete graph, with "
            "an interval; lower is better",
            f"deviation: {terms}, predicts how far apart models are, and ranks graphs; lower is "
            "better",
            f"H_{k}: label heterogeneity of neighborhoods {left}",
            f"N_{k}: gradient noise {left}",
            "degree: most messages that a node sends, or receives, per round; lower is cheaper",
            "messages, MB: of all nodes per round; lower is cheaper",
            "busiest node: most messages that a node sends and receives together; lower is cheaper",
            f"More: {PAGE}",
        ]

    def _table(self, *, explained: bool) -> Table:
        columns = [
            *("graph", "rounds / complete", "deviation", f"H_{self.hops}", f"N_{self.hops}"),
            *("degree", "messages", "MB", "busiest node"),
            *(("reason", "code", "spec") if explained else ()),
        ]
        rows = tuple(
            (
                *(one.name, _spread(one) or NotApplicable("not predicted; see the warnings")),
                *(one.deviation, one.heterogeneity, one.noise, one.degree, one.messages),
                NotApplicable("no model given") if one.bytes is None else one.bytes / 1e6,
                one.busiest,
                *((one.reason, one.code, one.spec) if explained else ()),
            )
            for one in self.candidates
        )
        count = len(rows)
        title = f"{count} candidate{'s' * (count != 1)} within {self.budget}; costs per round"
        return Table(tuple(columns), rows, title=title)


def _spread(candidate: Candidate) -> Spread | None:
    """Return the predicted rounds with their interval, or None if there are none."""
    if candidate.rounds is None or candidate.low is None or candidate.high is None:
        return None
    return Spread(candidate.rounds, candidate.low, candidate.high)


def _reason(
    terms: np.ndarray, left: np.ndarray, on_ring: np.ndarray, whole: np.ndarray, hops: int
) -> str:
    """Return a sentence on the larger term: its mean per hop, relative to no communication.

    H_K / K is the mean over hops of the squared distance of label shares from the global
    ones, N_K / K that of the variance of averaged noise. Both arrays have the labels first.
    """
    k = 0 if terms[0] >= terms[1] and whole[0] > 0 else 1
    what = ("label heterogeneity", "gradient noise between nodes")[k]
    share = terms[k] / terms.sum() if terms[k] else 1.0
    per_hop, ring_per_hop = (_percent(v / (hops * whole[k])) for v in (left[k], on_ring[k]))
    same = abs(left[k] - on_ring[k]) <= 1e-9 * on_ring[k]
    against = "" if same else f", against {ring_per_hop} on the ring"
    return (
        f"Over {hops} hop{'s' * (hops != 1)}, {per_hop} of the {what} is left on average{against}; "
        f"it accounts for {_percent(share)} of the predicted deviation."
    )


def _links(graph: Graph) -> str:
    """Return a sentence on the different nodes to which a node sends if the graph changes."""
    if isinstance(graph, Topology):
        return ""
    if graph.period is None:
        return " Its graphs are new in every round, so a node may need a link to any other."
    union = sum(graph.at(t).adjacency != 0 for t in range(graph.period))
    most = int((union != 0).sum(axis=1).max())  # pyright: ignore[reportAttributeAccessIssue]
    return (
        f" Its graphs change: over {graph.period} rounds, a node needs links to up to {most} of "
        f"{graph.n - 1} others."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def recommend(
    clients: Any,
    *,
    max_degree: int | None = None,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    directed: bool = False,
    static: bool = False,
    lr: float | None = None,
    rounds: int | None = None,
    hops: int | None = None,
    model: nn.Module | None = None,
    batch_size: int | None = None,
    seed: int = 0,
) -> Recommendation:
    """Return the topologies within a communication budget, ranked by predicted deviation in D-SGD.

    Candidates come from all families of :mod:`topofl.topologies`: rings, tori, circulants, random
    and exponential graphs, D-Cliques, graphs designed for the labels, and, if allowed, directed and
    time-varying ones, with their default weights. They are ranked by the predicted squared
    deviation of nodes from their mean model, ``H_K + c N_K``: label heterogeneity and gradient
    noise that are left over K hops. A monotone curve, fitted to training runs, turns it into rounds
    to a target accuracy relative to the complete graph.

    See the page :doc:`Choose a topology </docs/tutorials/choose-a-topology>`.

    Parameters
    ----------
    clients
        A Partition, or its (n, classes) label counts.
    max_degree
        Most messages that a node sends, and most that it receives, per round. Exactly one of this
        and the next two must be given; each limits the busiest round of a time-varying graph.
    max_messages, max_bytes
        Most messages, or bytes, of all nodes together per round; bytes need `model`. A time-varying
        graph needs at least 2 messages.
    directed
        Whether directed graphs are candidates, too.
    static
        Whether time-varying graphs are left out.
    lr, rounds
        Learning rate and number of rounds of the training, which determine K if `hops` is None: of
        the calibrated numbers of hops the one nearest to ``1 / (2 lr 0.1)``, and at most `rounds`.
        Without a learning rate, 10.
    hops
        K, at least 1. Rounds are predicted for 10 and 20 only; for others, graphs are ranked.
    model
        Its parameters, 4 bytes each, are a message.
    batch_size
        Examples per minibatch. With a Partition and `model`, the ratio ``c = (sigma^2 / batch_size)
        / zeta^2`` of noise to heterogeneity is measured on minibatches by
        :func:`topofl.metrics.gradient_statistics`. Otherwise c is 0.01. On digits with 60 nodes,
        values of at most that ranked graphs best by their mean accuracy during training, and
        values of 0.03 to 0.1 by their final one; at the initial model c is measured there as
        0.02 to 0.08 (batch size 8).
    seed
        Seed of random graphs and of minibatches.

    Returns
    -------
    Recommendation
        Prints as a table; ``.best.topology`` is the first choice and ``.best.code`` the line that
        builds it. Its `warnings` say in what the setting is outside of those to which predicted
        rounds are fitted, and what is not known of it: give `lr` and `batch_size`.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the data have no labels.
    ValueError
        If not exactly one budget is given, no connected graph meets it, a number is out of range,
        or a node has no examples.

    Notes
    -----
    Only graphs with doubly stochastic weights that connect all nodes are candidates. Building and
    measuring them takes seconds for 100 nodes and a minute or two for 1,000; from the fifth second
    on, a progress bar is shown on a terminal. Undirected graphs are
    designed for up to 1,000 nodes, and taken apart into matchings for up to 500. Random
    time-varying graphs are examined over 60 rounds, or twice the hops if those are more.

    References
    ----------
    The prediction is derived in topofl's documentation ("What predicts convergence"), which also
    reports how often the first choice was the best.

    Examples
    --------
    >>> from topofl import data, topologies
    >>> clients = data.shards(data.digits(), n=12, per_node=2, seed=0)
    >>> found = topologies.recommend(clients, max_messages=24, static=True)
    >>> found.best.messages, found.best.deviation <= found.candidates[-1].deviation
    (24.0, True)
    >>> ring = next(c for c in found.candidates if c.name == "ring(12)")
    >>> ring.code, ring.degree
    ('topologies.ring(12)', 2)
    """
    counts = predict.check_clients(clients)
    n = len(counts)
    if model is not None:
        check_model(model)
    seed = check_int("seed", seed, minimum=0)
    batch = None if batch_size is None else check_int("batch_size", batch_size, minimum=1)
    options = {
        "directed": bool(check_switch("directed", directed, auto=False)),
        "static": bool(check_switch("static", static, auto=False)),
    }
    budget = check_budget(n, max_degree, max_messages, max_bytes, model=model, **options)
    k = predict.check_horizon(hops, lr, rounds)
    spread = label_spread(counts)
    measured = predict.noise_of(clients, spread, model, batch, seed)
    ratio = predict.calibration()["noise_ratio"] if measured is None else measured
    curve = predict.curve_of("default" if measured is None else "measured", k)
    curve = None if math.isinf(ratio) else curve
    size = None if model is None else bytes_of_model(model)
    candidate = _measuring(counts, spread, k, ratio, curve, size)
    data = clients if isinstance(clients, Partition) else counts
    found = [candidate(*one) for one in _admitted(data, n, budget, k, seed, options)]
    found.sort(key=_place)
    outside = predict.warnings_of(
        n=n, spread=spread, lr=lr, batch_size=batch,
        dataset=clients.dataset.name if isinstance(clients, Partition) else None,
        n_tensors=None if model is None else sum(p.requires_grad for p in model.parameters()),
    )  # fmt: skip
    warnings = [*_warnings(found, k, ratio, curve, outside)]
    if n > DESIGN_LIMIT:
        warnings.append(f"designed graphs were left out above {DESIGN_LIMIT} nodes; see designed")
    return Recommendation(tuple(found), k, ratio, budget.text, tuple(warnings), predict.fitted_to())


def _place(candidate: Candidate) -> tuple[float, float, bool, str]:
    """Return the sort key of a candidate; of two with equal deviations, static graphs come first.

    Differences of deviations below ``ROUNDING`` do not count.
    """
    changes = not isinstance(candidate.topology, Topology)
    return round(candidate.deviation, 12), candidate.messages, changes, candidate.name


def _warnings(
    found: list[Candidate], hops: int, ratio: float, curve: Any, outside: list[str]
) -> Iterator[str]:
    """Yield why rounds are not predicted or may be wrong."""
    if math.isinf(ratio):
        yield (
            "the gradients of the nodes at `model` differ no more than their noise: candidates are "
            f"ranked by N_{hops} alone, and rounds are not predicted"
        )
    elif curve is None:
        known = " or ".join(map(str, predict.known_hops()))
        yield f"rounds are predicted for {known} hops only, here they are {hops}"
    else:
        yield from outside
        last = curve["deviation"][-1]
        beyond = sum(candidate.deviation > last for candidate in found)
        if beyond:
            yield (
                f"the deviation of {beyond} of {len(found)} candidates is above those of the fit, "
                f"which end at {last:g}: their predicted rounds are those of that end"
            )


def _admitted(
    data: Any, n: int, budget: Budget, hops: int, seed: int, options: Any
) -> Iterator[tuple[Call, Graph, dict[str, Any]]]:
    """Yield the distinct graphs within the budget that average over all nodes, with their costs."""
    seen = set()
    calls = list(candidates(n, budget, seed=seed, **options))
    for call in waited_for(calls, "candidates", "graph"):
        try:
            graph = call.build(data)
        except TopologyError:  # there is none for this number of nodes
            continue
        matrices = predict.matrices_of(graph, hops)
        both = [(one.in_messages, one.out_messages) for one in matrices]
        messages = [one.n_messages for one in matrices]
        degree, key = int(np.max(both)), _fingerprint(graph)
        if (
            degree <= budget.degree
            and max(messages) <= budget.messages
            and predict.average_all(matrices)
            and key not in seen
        ):
            seen.add(key)
            busiest = int(np.sum(both, axis=1).max())
            costs = {"degree": degree, "messages": float(np.mean(messages)), "busiest": busiest}
            yield call, graph, costs


def _fingerprint(graph: Graph) -> Any:
    """Return a key that two graphs share if their weights are equal; one per sequence."""
    if not isinstance(graph, Topology):
        rounds = [graph.at(t) for t in range(graph.period or 3)]
        return tuple(_fingerprint(one) for one in rounds) if graph.period else graph.name
    weights = metropolis_or_uniform(graph).weights.sorted_indices()
    rows = weights.indptr.tobytes(), weights.indices.tobytes()
    return (*rows, weights.data.round(9).tobytes())


def _measuring(
    counts: np.ndarray, spread: float, hops: int, ratio: float, curve: Any, message: int | None
) -> Callable[[Call, Graph, dict[str, Any]], Candidate]:
    """Return the function that measures a graph as a candidate.

    Parameters
    ----------
    counts, spread
        (n, classes) label counts, and their heterogeneity without communication.
    hops
        K.
    ratio
        Weight of N_K against H_K; infinite if nodes differ by noise only: then H_K has none.
    curve
        From deviations to rounds; None if rounds are not predicted.
    message
        Bytes of a message; None if they are not known.
    """
    weights = np.array([0.0, 1.0] if math.isinf(ratio) else [1.0, ratio])
    whole = np.array([spread, 1 - 1 / len(counts)])
    on_ring = np.array(predict.accumulated(topologies.ring(len(counts)), counts, hops))

    def candidate(call: Call, graph: Graph, costs: dict[str, Any]) -> Candidate:
        left = np.array(predict.accumulated(graph, counts, hops))
        terms = weights * left
        deviation = float(terms.sum())
        rounds = None if curve is None else predict.rounds_on(curve, deviation)
        return Candidate(
            name=call.label,
            topology=graph,
            rounds=rounds and rounds.mean,
            low=rounds and rounds.low,
            high=rounds and rounds.high,
            heterogeneity=float(left[0]),
            noise=float(left[1]),
            deviation=deviation,
            bytes=None if message is None else costs["messages"] * message,
            reason=_reason(terms, left, on_ring, whole, hops) + _links(graph),
            code=call.code,
            spec=call.spec(len(counts)),
            **costs,
        )

    return candidate
