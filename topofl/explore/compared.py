"""The numbers that the explorer shows of its candidates."""

from collections.abc import Mapping

from topofl import metrics
from topofl._support.table import Table
from topofl.advice.predict import Prediction, predict_rounds
from topofl.data import Partition
from topofl.explore.setup import N_PARAMETERS, Training
from topofl.topology import Topology

__all__ = ["HOPS", "MEASURES", "numbers", "predictions", "warnings_of"]

HOPS = 10
"""K of H_K and N_K, which the columns of ``metrics.compare`` have, too."""

MEASURES = {
    "edges": "edges",
    "max degree": "largest degree",
    "messages per round": "messages of all nodes per round",
    "MB per round": "MB of all nodes per round",
    "spectral gap": "spectral gap",
    "accumulated heterogeneity": "H_10, label heterogeneity over ten exchanges",
    "accumulated noise": "N_10, gradient noise over ten exchanges",
}
"""Columns of :func:`topofl.metrics.compare`, and what the explorer calls them."""

PREDICTED = "predicted rounds, relative to the complete graph"


def predictions(
    graphs: Mapping[str, Topology], clients: Partition, training: Training
) -> dict[str, Prediction]:
    """Return the predicted rounds of each graph."""
    options = {"lr": training.lr, "batch_size": training.batch_size, "hops": HOPS}
    return {name: predict_rounds(graph, clients, **options) for name, graph in graphs.items()}


def numbers(
    graphs: Mapping[str, Topology], clients: Partition, predicted: Mapping[str, Prediction]
) -> Table:
    """Return a table with a column per graph and a row per measure."""
    found = metrics.compare(
        graphs,
        label_counts=clients,
        n_parameters=N_PARAMETERS,
        about=[],
        metrics=list(MEASURES),
    )
    rows = [(title, *found.column(column)) for column, title in MEASURES.items()]
    rounds = [predicted[name].rounds for name in graphs]
    return Table(("", *graphs), (*rows, (PREDICTED, *rounds)))


def warnings_of(predicted: Mapping[str, Prediction]) -> tuple[str, ...]:
    """Return in what predicted rounds are outside of what they are fitted to, each once."""
    return tuple(dict.fromkeys(text for one in predicted.values() for text in one.warnings))
