"""Predicted rounds of one graph, without a budget and without other candidates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from topofl._support.check import check_int
from topofl._support.table import Spread
from topofl.advice.arguments import check_clients, check_horizon
from topofl.advice.calibration import ROUNDING, Curve, Setting, stored
from topofl.advice.prediction import accumulated, traffic
from topofl.data import Partition
from topofl.metrics.labels import check_row_per_node, label_spread
from topofl.topology import TopologyError, graph_of

__all__ = ["Prediction", "predict_rounds"]


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
    horizon = check_horizon(hops, lr, None)
    batch = None if batch_size is None else check_int("batch_size", batch_size, minimum=1)
    curve = stored().curve("default", horizon)
    if curve is None:
        known = " or ".join(map(str, stored().hops))
        raise ValueError(f"`hops` must be {known}, for which rounds are predicted, got {horizon}")
    graph = graph_of("graph", graph)
    check_row_per_node(counts, graph.n, graph.name)
    if not traffic(graph, horizon).averages:
        raise TopologyError(
            f"rounds are predicted for doubly stochastic weights that connect all nodes, which the "
            f"default weights of {graph.name} do not"
        )
    heterogeneity, noise = accumulated(graph, counts, horizon)
    deviation = heterogeneity + stored().noise_ratio * noise
    name = clients.dataset.name.lower() if isinstance(clients, Partition) else None
    setting = Setting(len(counts), label_spread(counts), lr, batch, name)
    warnings = tuple(_warnings(deviation, curve, setting))
    rounds = Spread(*curve.predict(deviation))
    return Prediction(
        rounds, horizon, heterogeneity, noise, deviation, warnings, stored().describe()
    )


def _warnings(deviation: float, curve: Curve, setting: Setting) -> Iterator[str]:
    """Yield in what a setting and a deviation are outside of the fit; nothing if none is used."""
    if deviation <= ROUNDING:
        return
    yield from stored().warnings(setting)
    last = float(curve.deviation[-1])
    if deviation > last:
        yield (
            f"the deviation is {deviation:.3g}, above those of the fit, which end at {last:g}: the "
            "predicted rounds are those of that end"
        )
