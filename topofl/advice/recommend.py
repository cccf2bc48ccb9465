"""Recommendation of topologies for given data and a communication budget."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from topofl import topologies
from topofl._support.check import check_int, check_switch
from topofl._support.notebook import waited_for
from topofl.advice.arguments import check_clients, check_horizon
from topofl.advice.budget import Budget, bytes_of_model, check_budget
from topofl.advice.calibration import Curve, Setting, stored
from topofl.advice.calls import Call
from topofl.advice.candidates import DESIGN_LIMIT, candidates
from topofl.advice.prediction import (
    Traffic,
    accumulated,
    noise_of,
    traffic,
)
from topofl.advice.reasons import Yardstick, reason
from topofl.advice.result import Candidate, Recommendation
from topofl.data import Partition
from topofl.metrics.gradients import check_model
from topofl.metrics.labels import label_spread
from topofl.mixing import metropolis_or_uniform
from topofl.topology import Topology, TopologyError, TopologySequence

__all__ = ["recommend"]

Graph = Topology | TopologySequence


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
    counts = check_clients(clients)
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
    horizon = check_horizon(hops, lr, rounds)
    yardstick, curve = _measures(clients, counts, horizon, model, batch, seed)
    data = clients if isinstance(clients, Partition) else counts
    size = None if model is None else bytes_of_model(model)
    found = [
        _candidate(call, graph, sent, counts, yardstick, curve, size)
        for call, graph, sent in _admitted(data, n, budget, yardstick.hops, seed, options)
    ]
    found.sort(key=_place)
    tensors = None if model is None else sum(p.requires_grad for p in model.parameters())
    name = clients.dataset.name.lower() if isinstance(clients, Partition) else None
    setting = Setting(n, yardstick.spread, lr, batch, name, tensors)
    return Recommendation(
        candidates=tuple(found),
        hops=yardstick.hops,
        noise_ratio=yardstick.noise_ratio,
        budget=budget.text,
        warnings=tuple(_warnings(found, yardstick, curve, setting)),
        fitted_to=stored().describe(),
    )


def _place(candidate: Candidate) -> tuple[float, float, bool, str]:
    """Return the sort key of a candidate; of two with equal deviations, static graphs come first.

    Differences of deviations below ``ROUNDING`` do not count.
    """
    changes = not isinstance(candidate.topology, Topology)
    return round(candidate.deviation, 12), candidate.messages, changes, candidate.name


def _measures(
    clients: Any,
    counts: np.ndarray,
    hops: int,
    model: nn.Module | None,
    batch_size: int | None,
    seed: int,
) -> tuple[Yardstick, Curve | None]:
    """Return what candidates are measured by, and the curve of predicted rounds if there is one."""
    spread, n = label_spread(counts), len(counts)
    measured = noise_of(clients, spread, model, batch_size, seed)
    ratio = stored().noise_ratio if measured is None else measured
    ring = accumulated(topologies.ring(n), counts, hops)
    curve = stored().curve("default" if measured is None else "measured", hops)
    return Yardstick(hops, spread, n, ratio, ring), None if np.isinf(ratio) else curve


def _warnings(
    found: list[Candidate], yardstick: Yardstick, curve: Curve | None, setting: Setting
) -> Iterator[str]:
    """Yield why rounds are not predicted or may be wrong, and which graphs were left out."""
    if np.isinf(yardstick.noise_ratio):
        yield (
            "the gradients of the nodes at `model` differ no more than their noise: candidates are "
            f"ranked by N_{yardstick.hops} alone, and rounds are not predicted"
        )
    elif curve is None:
        known = " or ".join(map(str, stored().hops))
        yield f"rounds are predicted for {known} hops only, here they are {yardstick.hops}"
    else:
        yield from stored().warnings(setting)
        last = float(curve.deviation[-1])
        beyond = sum(candidate.deviation > last for candidate in found)
        if beyond:
            yield (
                f"the deviation of {beyond} of {len(found)} candidates is above those of the fit, "
                f"which end at {last:g}: their predicted rounds are those of that end"
            )
    if setting.n > DESIGN_LIMIT:
        yield f"designed graphs were left out above {DESIGN_LIMIT} nodes; see designed"


def _admitted(
    data: Any, n: int, budget: Budget, hops: int, seed: int, options: Any
) -> Iterator[tuple[Call, Graph, Traffic]]:
    """Yield the distinct graphs within the budget that average over all nodes."""
    seen = set()
    calls = list(candidates(n, budget, seed=seed, **options))
    for call in waited_for(calls, "candidates", "graph"):
        try:
            graph = call.build(data)
        except TopologyError:  # there is none for this number of nodes
            continue
        sent = traffic(graph, hops)
        key = _fingerprint(graph)
        if sent.averages and budget.admits(sent.degree, sent.most) and key not in seen:
            seen.add(key)
            yield call, graph, sent


def _fingerprint(graph: Graph) -> Any:
    """Return a key that two graphs share if their weights are equal; one per sequence."""
    if not isinstance(graph, Topology):
        rounds = [graph.at(t) for t in range(graph.period or 3)]
        return tuple(_fingerprint(one) for one in rounds) if graph.period else graph.name
    weights = metropolis_or_uniform(graph).weights.tocoo()
    order = np.lexsort(weights.coords)
    places = tuple(axis[order].tobytes() for axis in weights.coords)
    return (*places, weights.data[order].round(9).tobytes())


def _candidate(
    call: Call,
    graph: Graph,
    sent: Traffic,
    counts: np.ndarray,
    yardstick: Yardstick,
    curve: Curve | None,
    message_size: int | None,
) -> Candidate:
    heterogeneity, noise = accumulated(graph, counts, yardstick.hops)
    deviation = sum(yardstick.terms(heterogeneity, noise))
    rounds, low, high = (None, None, None) if curve is None else curve.predict(deviation)
    return Candidate(
        name=call.label,
        topology=graph,
        rounds=rounds,
        low=low,
        high=high,
        heterogeneity=heterogeneity,
        noise=noise,
        deviation=deviation,
        degree=sent.degree,
        messages=sent.messages,
        busiest=sent.busiest,
        bytes=None if message_size is None else sent.messages * message_size,
        reason=reason(heterogeneity, noise, yardstick),
        code=call.code,
        spec=call.spec,
    )
