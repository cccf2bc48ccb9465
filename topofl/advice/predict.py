"""Predicted rounds of a graph: H_K and N_K, and the calibration that turns them into rounds."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components
from torch import nn

from topofl import metrics
from topofl._support.check import check_int, check_nonempty_label_counts, check_positive, shown
from topofl._support.table import Spread
from topofl.data import Partition
from topofl.metrics.hops import check_hops
from topofl.metrics.labels import check_row_per_node, label_spread
from topofl.mixing import MixingMatrix, metropolis_or_uniform
from topofl.topology import Topology, TopologyError, TopologySequence, graph_of

ROUNDING = 1e-12
"""Deviations up to this are rounding; they are in units of squared label shares, at most 2."""


@cache
def calibration() -> dict[str, Any]:
    """Return the calibration that is part of the package.

    It has the default ``noise_ratio`` of minibatch variance to squared heterogeneity of gradients;
    the share of held-out residuals within the intervals, ``level``; ``curves``; and the settings to
    which these are ``fitted_to``: ranges of ``n``, ``spread`` (label heterogeneity without
    communication), ``lr`` and ``batch_size``, and lists of ``data``, ``partitions``, ``methods``
    and ``models``.

    A curve is monotone, from ``deviation`` to the ``ratio`` of rounds to those of the complete
    graph, with the ends of an interval, ``low`` and ``high``. It is for a number of ``hops``, and
    for the default ratio of noise (``noise`` is ``"default"``) or that of gradients
    (``"measured"``).
    """
    file = resources.files("topofl.advice").joinpath("calibration.json")
    return json.loads(file.read_text(encoding="utf-8"))


def known_hops() -> list[int]:
    """Return the numbers of hops with a curve."""
    return sorted({curve["hops"] for curve in calibration()["curves"]})


def curve_of(noise: str, hops: int) -> dict[str, Any] | None:
    """Return the curve of a kind of noise and a number of hops; None if there is none."""
    curves = calibration()["curves"]
    return next((one for one in curves if (one["noise"], one["hops"]) == (noise, hops)), None)


def rounds_on(curve: Mapping[str, Any], deviation: float) -> Spread:
    """Return the relative rounds and their interval; flat beyond the curve.

    Only the complete graph has a deviation of 0, up to rounding: its rounds are exactly 1.
    """
    if deviation <= ROUNDING:
        return Spread(1.0, 1.0, 1.0)
    at, x = np.log(max(deviation, curve["deviation"][0])), np.log(curve["deviation"])
    found = (np.interp(at, x, np.log(curve[key])) for key in ("ratio", "low", "high"))
    return Spread(*(float(np.exp(value)) for value in found))


def warnings_of(
    *,
    n: int,
    spread: float,
    lr: float | None,
    batch_size: int | None,
    dataset: str | None,
    n_tensors: int | None = None,
) -> list[str]:
    """Return a sentence for everything in which a setting is outside of the fit.

    Parameters
    ----------
    n, spread
        Number of nodes, and their label heterogeneity without communication.
    lr, batch_size
        Learning rate and examples per minibatch; None if they are not given.
    dataset
        Name of the dataset; None for label counts.
    n_tensors
        Number of parameter tensors; None without a model.
    """
    known, fitted = calibration()["fitted_to"], "the predicted rounds are fitted to"
    numbers = {
        "number of nodes": (n, known["n"]),
        "label heterogeneity of the nodes": (spread, known["spread"]),
        "learning rate": (lr, known["lr"]),
        "batch size": (batch_size, known["batch_size"]),
    }
    found = [
        f"{fitted} a {what} of {_range(limits)} only, "
        + ("here it is not given" if value is None else f"here it is {value:g}")
        for what, (value, limits) in numbers.items()
        if value is None or not _is_within(value, *limits)
    ]
    if dataset is not None and dataset.lower() not in map(str.lower, known["data"]):
        names = " and ".join(known["data"])
        found.append(f"{fitted} {names} only, here the data are {dataset.lower()}")
    if n_tensors is not None and n_tensors > 2:
        found.append(
            f"{fitted} {' and '.join(known['models'])} only, the model has {n_tensors} parameter "
            "tensors"
        )
    return found


def fitted_to() -> str:
    """Return the settings to which the curves are fitted, as words without a verb."""
    known = calibration()["fitted_to"]
    return (
        f"{known['runs']:,} runs of {', '.join(known['methods'])} on "
        f"{', '.join(known['data'])} ({', '.join(known['models'])}; "
        f"{_range(known['n'])} nodes; learning rates {_range(known['lr'])}; "
        f"minibatches of {_range(known['batch_size'])}; "
        f"partitions {', '.join(known['partitions'])})"
    )


def _range(limits: list[float]) -> str:
    low, high = limits
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _is_within(value: float, low: float, high: float) -> bool:
    """Return whether a number is within limits, which are rounded in the file."""
    return low * (1 - 1e-6) <= value <= high * (1 + 1e-6)


CURVATURE = 0.1
"""Curvature of the loss that turns a learning rate into a horizon, 1 / (2 lr CURVATURE) hops;
chosen so that a rate of 0.5 gives 10 hops."""

EXAMINED = 60
"""Rounds of sequences without a period that are examined, or twice the hops if those are more."""

Graph = Topology | TopologySequence


def noise_of(
    clients: Any, spread: float, model: nn.Module | None, batch_size: int | None, seed: int
) -> float | None:
    """Return the ratio (sigma^2 / batch) / zeta^2 that is measured on minibatches.

    None if there is nothing to measure it on: no model, batch size or examples, or equal label
    shares. Infinite if the gradients of nodes differ no more than their noise lets expect.
    """
    if model is None or batch_size is None or not isinstance(clients, Partition) or spread == 0:
        return None
    found = metrics.gradient_statistics(clients, model=model, batch_size=batch_size, seed=seed)
    if found.heterogeneity == 0:
        return np.inf if found.noise > 0 else None
    return found.noise * spread / found.heterogeneity


def _examined(graph: Graph, hops: int) -> int:
    """Return the rounds after which a graph repeats, or those that are examined."""
    return graph.period or max(EXAMINED, 2 * hops)


def accumulated(graph: Graph, counts: np.ndarray, hops: int) -> tuple[float, float]:
    """Return H_K and N_K with the default weights of D-SGD."""
    rounds = _examined(graph, hops) if graph.period is None else None
    heterogeneity = metrics.neighborhood_heterogeneity(graph, counts, hops=hops, rounds=rounds)
    return heterogeneity, metrics.accumulated_noise(graph, hops, rounds=rounds)


def matrices_of(graph: Graph, hops: int) -> list[MixingMatrix]:
    """Return the default weights of one period of a graph, or of the rounds that are examined."""
    return [metropolis_or_uniform(graph.at(t)) for t in range(_examined(graph, hops))]


def average_all(matrices: list[MixingMatrix]) -> bool:
    """Return whether all rounds are doubly stochastic, and together connect all nodes.

    With such weights, nodes that are connected one way are connected both ways.
    """
    if not all(matrix.is_doubly_stochastic for matrix in matrices):
        return False
    union = sum((sparse.csr_array(abs(m.weights)) for m in matrices[1:]), abs(matrices[0].weights))
    return connected_components(sparse.csr_array(union), directed=False)[0] == 1


def check_clients(clients: Any) -> np.ndarray:
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


def check_horizon(hops: Any, lr: Any, rounds: Any) -> int:
    """Return the hops that are given, or those of a learning rate, but no more than rounds."""
    rate = None if lr is None else check_positive("lr", lr)
    last = None if rounds is None else check_int("rounds", rounds, minimum=1)
    if hops is not None:
        found = check_hops(hops)
        if isinstance(found, str):
            raise ValueError("`hops` must be a number, got 'inf'; the predictions are for 10 or 20")
        return found
    found = min(known_hops())
    if rate is not None:
        wanted = 1 / (2 * rate * CURVATURE)
        found = min(known_hops(), key=lambda known: abs(np.log(known / wanted)))
    return found if last is None else min(found, last)


@dataclass(frozen=True)
class Prediction:
    """Predicted rounds of D-SGD on a graph, relative to the complete graph.

    Parameters
    ----------
    rounds
        Rounds to a target accuracy over those of the complete graph, with an interval; exactly 1
        for the complete graph itself.
    hops
        K, the horizon of the next two.
    heterogeneity, noise
        H_K and N_K, see :func:`topofl.metrics.neighborhood_heterogeneity` and
        :func:`topofl.metrics.accumulated_noise`.
    deviation
        H_K plus 0.01 times N_K, which the rounds are predicted from.
    warnings
        In what the setting is outside of those to which predicted rounds are fitted.
    fitted_to
        The settings to which they are fitted.

    Examples
    --------
    >>> from topofl import advice, data, topologies
    >>> clients = data.shards(data.digits(), n=30, per_node=2, seed=0)
    >>> found = advice.predict_rounds(topologies.ring(30), clients, lr=0.5, batch_size=8)
    >>> found.rounds.low < found.rounds.mean < found.rounds.high, found.warnings
    (True, ())
    """

    rounds: Spread
    hops: int
    heterogeneity: float
    noise: float
    deviation: float
    warnings: tuple[str, ...]
    fitted_to: str

    def __str__(self) -> str:
        """Return the rounds with what they are predicted from, and warnings."""
        terms = f"H_{self.hops} {self.heterogeneity:.4g}, N_{self.hops} {self.noise:.4g}"
        if self.deviation <= ROUNDING:
            return f"exactly the rounds of the complete graph, since it averages all nodes; {terms}"
        first = f"{self.rounds} times the rounds of the complete graph; {terms}"
        return "\n".join([first, *(f"Warning: {text}." for text in self.warnings)])


def predict_rounds(
    graph: Any,
    clients: Any,
    *,
    lr: float | None = None,
    batch_size: int | None = None,
    hops: int | None = None,
) -> Prediction:
    """Return the predicted rounds of D-SGD on a graph, relative to the complete graph.

    The prediction is that of :func:`topofl.topologies.recommend`, for any graph: the squared
    deviation of nodes from their mean model, ``H_K + 0.01 N_K``, on a monotone curve that is fitted
    to training runs.

    Parameters
    ----------
    graph
        Anything that :func:`topofl.as_topology` accepts, with its default weights.
    clients
        A Partition, or its (n, classes) label counts.
    lr, batch_size
        Learning rate and examples per minibatch of the training, for warnings. The learning rate
        also determines K if `hops` is None, as in :func:`topofl.topologies.recommend`.
    hops
        K, 10 or 20. None: by `lr`, or 10.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the data have no labels.
    ValueError
        If a number is out of range, there is no curve for `hops`, or a node has no examples.
    TopologyError
        If the default weights are not doubly stochastic or do not connect all nodes.

    References
    ----------
    The prediction is derived in topofl's documentation ("What predicts convergence").

    Examples
    --------
    >>> from topofl import advice, data, topologies
    >>> clients = data.shards(data.digits(), n=30, per_node=2, seed=0)
    >>> ring, torus = (
    ...     advice.predict_rounds(graph, clients).rounds.mean
    ...     for graph in (topologies.ring(30), topologies.torus(30))
    ... )
    >>> ring > torus
    True
    """
    counts = check_clients(clients)
    k = check_horizon(hops, lr, None)
    batch = None if batch_size is None else check_int("batch_size", batch_size, minimum=1)
    curve = curve_of("default", k)
    if curve is None:
        known = " or ".join(map(str, known_hops()))
        raise ValueError(f"`hops` must be {known}, for which rounds are predicted, got {k}")
    graph = graph_of("graph", graph)
    check_row_per_node(counts, graph.n, graph.name)
    if not average_all(matrices_of(graph, k)):
        raise TopologyError(
            f"rounds are predicted for doubly stochastic weights that connect all nodes, which the "
            f"default weights of {graph.name} do not"
        )
    heterogeneity, noise = accumulated(graph, counts, k)
    deviation = heterogeneity + calibration()["noise_ratio"] * noise
    warnings = []
    if deviation > ROUNDING:
        warnings = warnings_of(
            n=len(counts), spread=label_spread(counts), lr=lr, batch_size=batch,
            dataset=clients.dataset.name if isinstance(clients, Partition) else None,
        )  # fmt: skip
        last = curve["deviation"][-1]
        if deviation > last:
            warnings.append(
                f"the deviation is {deviation:.3g}, above those of the fit, which end at {last:g}: "
                "the predicted rounds are those of that end"
            )
    rounds = rounds_on(curve, deviation)
    return Prediction(rounds, k, heterogeneity, noise, deviation, tuple(warnings), fitted_to())
