"""Recommendation of topologies for given data and a communication budget."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from topofl import topologies
from topofl._support.check import check_int, check_positive, check_switch, shown
from topofl.advice.budget import Budget, bytes_of_model, check_budget
from topofl.advice.calibration import Calibration, stored
from topofl.advice.calls import Call
from topofl.advice.candidates import DESIGN_LIMIT, candidates
from topofl.advice.prediction import (
    Traffic,
    accumulated,
    horizon,
    label_spread,
    noise_of,
    traffic,
)
from topofl.advice.reasons import Yardstick, reason
from topofl.advice.result import Candidate, Recommendation
from topofl.data import Partition
from topofl.metrics.hops.accumulated import check_hops
from topofl.mixing import metropolis_or_uniform
from topofl.topologies._common import check_nonempty_label_counts
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
    batch_size: int = 8,
    seed: int = 0,
) -> Recommendation:
    """Return the topologies within a communication budget, ranked by predicted rounds of D-SGD.

    Candidates come from all families of :mod:`topofl.topologies`: rings, tori, circulants, random
    and exponential graphs, D-Cliques, graphs designed for the labels, and, if allowed, directed and
    time-varying ones, with their default weights. They are ranked by the predicted squared
    deviation of nodes from their mean model, ``H_K + c N_K``: label heterogeneity and gradient
    noise that are left over K hops. A monotone curve, fitted to training runs, turns it into rounds
    to a target accuracy relative to the complete graph.

    Parameters
    ----------
    clients
        A Partition, or its (n, classes) label counts.
    max_degree
        Most messages that a node sends, and most that it receives, per round. Exactly one of this
        and the next two must be given; each limits the busiest round of a time-varying graph.
    max_messages, max_bytes
        Most messages, or bytes, of all nodes together per round; bytes need `model`.
    directed
        Whether directed graphs are candidates, too.
    static
        Whether time-varying graphs are left out.
    lr, rounds
        Learning rate and number of rounds of the training, which determine K if `hops` is None: of
        the calibrated numbers of hops the one nearest to ``1 / (2 lr 0.1)``, and at most `rounds`.
        Without a learning rate, 10.
    hops
        K, at least 1.
    model, batch_size
        Model at which ``c = (sigma^2 / batch_size) / zeta^2`` is measured on minibatches by
        :func:`topofl.metrics.gradient_statistics`, and whose parameters, 4 bytes each, are a
        message. Without it, or with label counts, c is 0.01: larger values ranked graphs worse on
        digits, although c is measured there as 0.02 to 0.08 at the initial model (batch size 8),
        since heterogeneity persists from round to round and noise does not.
    seed
        Seed of random graphs and of minibatches.

    Returns
    -------
    Recommendation
        Prints as a table; ``.best.topology`` is the first choice and ``.best.code`` the line that
        builds it. Its `warnings` say if the setting is outside of those in which predicted rounds
        were validated.

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
    measuring them takes seconds for 100 nodes and up to a minute for 1,000. Above 500 nodes,
    undirected graphs are not designed, since that takes minutes.

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
    counts = _label_counts(clients)
    n = len(counts)
    directed = bool(check_switch("directed", directed, auto=False))
    static = bool(check_switch("static", static, auto=False))
    _check_model(model)
    seed, batch = check_int("seed", seed, minimum=0), check_int("batch_size", batch_size, minimum=1)
    options = {"directed": directed, "static": static}
    budget = check_budget(n, max_degree, max_messages, max_bytes, model=model, **options)
    fitted = stored()
    horizon_hops = _hops(hops, lr, rounds, fitted)
    spread = label_spread(counts)
    measured = noise_of(clients, spread, model, batch, seed)
    kind = "default" if measured is None else "measured"
    ratio = fitted.noise_ratio if measured is None else measured
    ring = accumulated(topologies.ring(n), counts, horizon_hops)
    yardstick = Yardstick(horizon_hops, spread, n, ratio, ring)
    found = [
        _candidate(call, graph, sent, counts, yardstick, model, fitted.curve(kind, horizon_hops))
        for call, graph, sent in _admitted(clients, counts, n, budget, horizon_hops, seed, options)
    ]
    found.sort(key=lambda candidate: (candidate.deviation, candidate.messages, candidate.name))
    tensors = None if model is None else sum(p.requires_grad for p in model.parameters())
    warnings = fitted.warnings(n, spread, lr, horizon_hops, tensors)
    if n > DESIGN_LIMIT:
        warnings.append(f"designed graphs were left out above {DESIGN_LIMIT} nodes; see designed")
    return Recommendation(
        tuple(found), horizon_hops, ratio, budget.text, tuple(warnings), fitted.describe()
    )


def _label_counts(clients: Any) -> np.ndarray:
    """Return the label counts (n, classes) of at least two nodes, or raise."""
    if isinstance(clients, Partition) and clients.dataset.targets is not None:
        raise TypeError(
            "`clients` must have class labels, got data with targets; compare graphs for them by "
            'metrics.predicted_deviation(graph, clients, model=..., by="gradients")'
        )
    if not isinstance(clients, Partition) and not hasattr(clients, "__len__"):
        raise TypeError(
            f"`clients` must be a Partition or (n, classes) label counts, got {shown(clients)}"
        )
    counts = check_nonempty_label_counts(clients)
    if len(counts) < 2:
        raise ValueError("`clients` must have at least 2 nodes, got 1, which needs no graph")
    return counts


def _check_model(model: Any) -> None:
    if model is None:
        return
    if not isinstance(model, nn.Module) or not any(p.requires_grad for p in model.parameters()):
        raise TypeError(
            f"`model` must be a torch.nn.Module with trainable parameters, got {shown(model)}"
        )


def _hops(hops: Any, lr: Any, rounds: Any, fitted: Calibration) -> int:
    rate = None if lr is None else check_positive("lr", lr)
    last = None if rounds is None else check_int("rounds", rounds, minimum=1)
    if hops is None:
        return horizon(rate, last, fitted.hops)
    found = check_hops(hops)
    if isinstance(found, str):
        raise ValueError("`hops` must be a number, got 'inf'; the predictions are for 10 or 20")
    return found


def _admitted(
    clients: Any, counts: np.ndarray, n: int, budget: Budget, hops: int, seed: int, options: Any
) -> Iterator[tuple[Call, Graph, Traffic]]:
    """Yield the distinct graphs within the budget that average over all nodes."""
    seen = set()
    data = clients if isinstance(clients, Partition) else counts
    for call in candidates(n, budget, seed=seed, **options):
        try:
            graph = call.build(data)
        except (ValueError, TopologyError):  # there is none for this number of nodes
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
    model: nn.Module | None,
    curve: Any,
) -> Candidate:
    heterogeneity, noise = accumulated(graph, counts, yardstick.hops)
    deviation = heterogeneity + yardstick.noise_ratio * noise
    ratio, low, high = curve.predict(deviation)
    return Candidate(
        name=call.label,
        topology=graph,
        rounds=ratio,
        low=low,
        high=high,
        heterogeneity=heterogeneity,
        noise=noise,
        deviation=deviation,
        degree=sent.degree,
        messages=sent.messages,
        busiest=sent.busiest,
        bytes=None if model is None else sent.messages * bytes_of_model(model),
        reason=reason(heterogeneity, noise, yardstick),
        code=call.code,
    )
