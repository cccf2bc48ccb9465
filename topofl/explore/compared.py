"""The numbers that the explorer shows of its candidates."""

from collections.abc import Mapping

from topofl import metrics
from topofl._support.table import NotApplicable, Table
from topofl.advice.predict import Prediction, predict_rounds
from topofl.data import Partition
from topofl.explore.setup import Candidate, Graph, Training, message_sizes
from topofl.topology import Topology, TopologyError

__all__ = ["HOPS", "MEASURES", "PREDICTED", "numbers", "predictions", "spectrum_of", "warnings_of"]

HOPS = 10
"""K of H_K and N_K."""

MEASURES = {
    "edges": "edges",
    "max degree": "largest degree",
    "messages per round": "messages of all nodes per round",
    "MB per round": "MB of all nodes per round",
    "spectral gap": "spectral gap",
}
"""Columns of :func:`topofl.metrics.compare`, and what the explorer calls them."""

PREDICTED = {
    "heterogeneity": "H_10, label heterogeneity over ten exchanges",
    "noise": "N_10, gradient noise over ten exchanges",
    "rounds": "predicted rounds, relative to the complete graph",
}
"""Attributes of :class:`topofl.advice.Prediction`, and what the explorer calls them."""


def predictions(
    graphs: Mapping[str, Graph], clients: Partition, training: Training
) -> dict[str, Prediction | NotApplicable]:
    """Return the predicted rounds of each graph, or the reason why there are none."""
    return {name: _prediction(graph, clients, training) for name, graph in graphs.items()}


def _prediction(graph: Graph, clients: Partition, training: Training) -> Prediction | NotApplicable:
    try:
        return predict_rounds(
            graph, clients, lr=training.lr, batch_size=training.batch_size, hops=HOPS
        )
    except TopologyError as error:  # such as weights that are not doubly stochastic
        return NotApplicable(str(error))


def numbers(
    graphs: Mapping[str, Graph],
    chosen: Mapping[str, Candidate],
    clients: Partition,
    predicted: Mapping[str, Prediction | NotApplicable],
) -> Table:
    """Return a table with a column per graph and a row per measure."""
    sizes, columns = message_sizes(chosen, clients.dataset), list(MEASURES)
    found = [
        metrics.compare({name: graph}, n_parameters=sizes[name], about=[], metrics=columns)
        for name, graph in graphs.items()
    ]
    rows = [
        ("method", *(chosen[name].method.title for name in graphs)),
        *(
            (title, *(table.column(column)[0] for table in found))
            for column, title in MEASURES.items()
        ),
        *(
            (title, *(_value(predicted[name], attribute) for name in graphs))
            for attribute, title in PREDICTED.items()
        ),
    ]
    return Table(("", *graphs), tuple(rows))


def _value(prediction: Prediction | NotApplicable, attribute: str) -> object:
    return prediction if isinstance(prediction, NotApplicable) else getattr(prediction, attribute)


def spectrum_of(graph: Graph, clients: Partition) -> metrics.HeterogeneitySpectrum | NotApplicable:
    """Return the label energy over the eigenvalues of a graph, or why there is none."""
    if not isinstance(graph, Topology):
        return NotApplicable(
            "the mixing matrix changes from round to round, and with it the eigenvectors"
        )
    try:
        return metrics.heterogeneity_spectrum(graph, clients)
    except TopologyError as error:
        return NotApplicable(str(error).partition(",")[0])  # without the name and Python


def warnings_of(predicted: Mapping[str, Prediction | NotApplicable]) -> tuple[str, ...]:
    """Return in what predicted rounds are outside of what they are fitted to, each once."""
    found = (one for one in predicted.values() if isinstance(one, Prediction))
    return tuple(dict.fromkeys(text for one in found for text in one.warnings))
