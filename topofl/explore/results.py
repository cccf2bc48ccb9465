"""What the explorer shows: numbers, pictures, and the program that does the same."""

import io
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from topofl import metrics
from topofl._drawing import figure_of, new_axes
from topofl._support.table import NotApplicable, Table
from topofl.advice.predict import Prediction, predict_rounds
from topofl.data import Partition
from topofl.explore.model import Candidate, Graph, Nodes, Training, message_sizes
from topofl.history import History, compare_histories
from topofl.topology import Topology, TopologyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


PIXELS = 90
"""Pixels per inch of a figure."""

WIDTH = 5.5
"""Inches of a figure, half as wide as the page."""


@dataclass(frozen=True)
class Picture:
    """A PNG file, what it shows in words, and the width in pixels at which to show it."""

    png: bytes
    text: str
    width: int


def drawings(graphs: Mapping[str, Graph], clients: Partition) -> list[Picture]:
    """Return a picture of each graph, with the labels of its nodes as pies.

    Of graphs that change, the first round is drawn.
    """
    found = []
    for name, graph in graphs.items():
        ax, first = new_axes(None, WIDTH, 4.2), graph.at(0)
        title = name if first is graph else f"{name}, round 0"
        figure = first.plot(ax, label_counts=clients)
        ax.set_title(title)
        text = f"{title} has {first.n_edges} edges; the nodes are pies of their labels."
        found.append(_picture(figure, text))
    return found


def spectra(graphs: Mapping[str, Graph], clients: Partition) -> list[Picture]:
    """Return a picture per graph of label energy over eigenvalues, with common axes."""
    found = {name: spectrum_of(graph, clients) for name, graph in graphs.items()}
    drawn = {name: new_axes(None, WIDTH, 3.0) for name in found}
    for name, spectrum in found.items():
        _draw_spectrum(drawn[name], spectrum)
        drawn[name].set_title(name)
    axes = [ax for ax in drawn.values() if ax.axison]
    top = max((ax.get_ylim()[1] for ax in axes), default=1.0)
    for ax in axes:
        ax.set(xlim=(-1, 1), ylim=(0, top))
    return [
        _picture(
            figure_of(ax),
            f"{name}: energy of the labels over the eigenvalues of the mixing matrix; mean modulus "
            f"of the eigenvalues, weighted by energy: {_mean(found[name])}.",
        )
        for name, ax in drawn.items()
    ]


def _draw_spectrum(ax: Any, spectrum: metrics.HeterogeneitySpectrum | NotApplicable) -> None:
    if isinstance(spectrum, metrics.HeterogeneitySpectrum):
        spectrum.plot(ax)
        return
    ax.set_axis_off()
    text = textwrap.fill(f"n/a: {spectrum.reason}", 40)
    ax.text(0.5, 0.5, text, ha="center", va="center", fontsize=12, transform=ax.transAxes)


def curves(histories: Mapping[str, History]) -> Picture:
    """Return accuracy over rounds: means over nodes, with bands from 10 % to 90 % of the nodes."""
    last = (f"{name} {h.last('accuracy').mean():.3f}" for name, h in histories.items())
    text = f"Accuracy over rounds; mean over nodes after the last one: {'; '.join(last)}."
    return _picture(compare_histories(histories), text)


def _mean(spectrum: metrics.HeterogeneitySpectrum | NotApplicable) -> str:
    """Return the mean modulus of eigenvalues by energy; 0 if there is none, as for equal data."""
    if isinstance(spectrum, NotApplicable):
        return f"n/a ({spectrum.reason})"
    total = spectrum.energies.sum()
    mean = float(np.abs(spectrum.eigenvalues) @ spectrum.energies / total) if total > 0 else 0.0
    return f"{mean:.2f}"


def _picture(figure: "Figure", text: str) -> Picture:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=2 * PIXELS)  # for screens with many pixels
    return Picture(file.getvalue(), text, round(PIXELS * figure.get_figwidth()))


TEMPLATE = """\
{imports}import topofl
from topofl import advice, algorithms, data, metrics, models, topologies

{clients}
graphs = {{
{graphs}
}}
methods = {{
{methods}
}}

measures = [
{measures}
]
sizes = {{  # numbers in a message; push-sum sends a weight, too
{sizes}
}}
tables = {{
    name: metrics.compare({{name: graph}}, n_parameters=sizes[name], about=[], metrics=measures)
    for name, graph in graphs.items()
}}
for name, graph in graphs.items():
    print(tables[name])
    graph.at(0).plot(label_counts=clients)
    try:
        predicted = advice.predict_rounds(
            graph, clients, lr={lr!r}, batch_size={batch_size}, hops={hops}
        )
        print(name, predicted)
    except topofl.TopologyError as error:
        print(f"{{name}} n/a: {{error}}")
    try:
        metrics.heterogeneity_spectrum(graph, clients).plot()
    except (topofl.TopologyError, TypeError) as error:  # TypeError: the graph changes
        print(f"{{name}} n/a: {{error}}")

histories = {{
    name: topofl.run(
        methods[name],
        model=models.logistic_regression({inputs}, {classes}),
        clients=clients,
        topology=graph,
        rounds={rounds},
        evaluation={evaluation},
        seed={seed},
    )
    for name, graph in graphs.items()
}}
figure = topofl.compare_histories(histories)
figure.savefig("accuracy.png")
"""

THINNING = """\
from dataclasses import replace

import numpy as np

"""
"""Imports of programs that use every k-th example."""


def code_of(nodes: Nodes, chosen: Mapping[str, Candidate], training: Training) -> str:
    """Return a program that builds, measures and trains the candidates."""
    dataset, rate = nodes.source.dataset, {"lr": training.lr, "batch_size": training.batch_size}
    clients = nodes.code
    return TEMPLATE.format(
        imports=THINNING if "replace(" in clients else "",
        clients=clients,
        graphs=_items({name: one.call.code for name, one in chosen.items()}),
        methods=_items({name: one.method.template.format(**rate) for name, one in chosen.items()}),
        measures="\n".join(f"    {_quoted(column)}," for column in MEASURES),
        sizes=_items({name: str(size) for name, size in message_sizes(chosen, dataset).items()}),
        hops=HOPS,
        inputs=dataset.inputs[0].numel(),
        classes=dataset.n_classes,
        rounds=training.rounds,
        evaluation=training.evaluation,
        seed=training.seed,
        **rate,
    )


def _items(codes: Mapping[str, str]) -> str:
    """Return the lines of a dictionary."""
    return "\n".join(f"    {_quoted(name)}: {code}," for name, code in codes.items())


def _quoted(text: str) -> str:
    """Return a literal in double quotes; the texts have no double quotes or backslashes."""
    return f'"{text}"'
