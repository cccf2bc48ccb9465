"""What the explorer shows: numbers, pictures, and the program that does the same."""

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from topofl import metrics
from topofl._drawing.figures import figure_of, new_axes
from topofl._support.table import NotApplicable, Table
from topofl.advice.candidates import Graph
from topofl.advice.predict import Prediction, predict_rounds
from topofl.data import Partition
from topofl.explore.model import METHODS, Candidate, Nodes, Training, message_sizes
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
    "MB per round by all-reduce": "MB of all nodes by all-reduce in groups",
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
    how, found = {"lr": training.lr, "batch_size": training.batch_size, "hops": HOPS}, {}
    for name, graph in graphs.items():
        try:
            found[name] = predict_rounds(graph, clients, **how)
        except TopologyError as error:  # such as weights that are not doubly stochastic
            found[name] = NotApplicable(str(error))
    return found


def numbers(
    graphs: Mapping[str, Graph],
    chosen: Mapping[str, Candidate],
    clients: Partition,
    predicted: Mapping[str, Prediction | NotApplicable],
) -> Table:
    """Return a table with a column per graph and a row per measure."""
    sizes = message_sizes(chosen, clients.dataset)
    columns = [("method", *MEASURES.values(), *PREDICTED.values())]
    for name, graph in graphs.items():
        options = {"n_parameters": sizes[name], "about": [], "metrics": list(MEASURES)}
        found, rounds = metrics.compare({name: graph}, **options), predicted[name]
        cells = [METHODS[chosen[name][1]][0], *(found.column(column)[0] for column in MEASURES)]
        for attribute in PREDICTED:
            known = not isinstance(rounds, NotApplicable)
            cells.append(getattr(rounds, attribute) if known else rounds)
        columns.append(tuple(cells))
    return Table(("", *graphs), tuple(zip(*columns, strict=True)))


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


WIDTH = 5.5
"""Inches of a figure, half as wide as the page."""

Picture = tuple["Figure", str]
"""A figure, and what it shows in words."""


def drawings(graphs: Mapping[str, Graph], clients: Partition) -> list[Picture]:
    """Return a picture of each graph, with the labels of its nodes as pies.

    Of graphs that change, the first round is drawn.
    """
    found = []
    for name, graph in graphs.items():
        ax, first = new_axes(None, WIDTH, 4.2), graph.at(0)
        title = name if first is graph else f"{name}, round 0"
        text = f"{title} has {first.n_edges} edges; the nodes are pies of their labels."
        found.append((first.plot(ax, label_counts=clients), text))
        ax.set_title(title)
    return found


def spectra(graphs: Mapping[str, Graph], clients: Partition) -> list[Picture]:
    """Return a picture per graph of label energy over eigenvalues, with common axes."""
    axes, texts = [], []
    for name, graph in graphs.items():
        axes.append(ax := new_axes(None, WIDTH, 3.0))
        spectrum = spectrum_of(graph, clients)
        if isinstance(spectrum, NotApplicable):
            ax.set_axis_off()
            text = textwrap.fill(f"n/a: {spectrum.reason}", 40)
            ax.text(0.5, 0.5, text, ha="center", va="center", fontsize=12, transform=ax.transAxes)
        else:
            spectrum.plot(ax)
        ax.set_title(name)
        texts.append(
            f"{name}: energy of the labels over the eigenvalues of the mixing matrix; mean modulus "
            f"of the eigenvalues, weighted by energy: {_mean(spectrum)}."
        )
    top = max((ax.get_ylim()[1] for ax in axes if ax.axison), default=1.0)
    for ax in axes:
        if ax.axison:
            ax.set(xlim=(-1, 1), ylim=(0, top))
    return list(zip(map(figure_of, axes), texts, strict=True))


def curves(histories: Mapping[str, History]) -> Picture:
    """Return accuracy over rounds: means over nodes, with bands from 10 % to 90 % of the nodes."""
    last = (f"{name} {h.last('accuracy').mean():.3f}" for name, h in histories.items())
    text = f"Accuracy over rounds; mean over nodes after the last one: {'; '.join(last)}."
    return compare_histories(histories), text


def _mean(spectrum: metrics.HeterogeneitySpectrum | NotApplicable) -> str:
    """Return the mean modulus of eigenvalues by energy; 0 if there is none, as for equal data."""
    if isinstance(spectrum, NotApplicable):
        return f"n/a ({spectrum.reason})"
    total = spectrum.energies.sum()
    mean = float(np.abs(spectrum.eigenvalues) @ spectrum.energies / total) if total > 0 else 0.0
    return f"{mean:.2f}"


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
        graphs=_items({name: call.code for name, (call, _) in chosen.items()}),
        methods=_items(
            {name: METHODS[push][1].format(**rate) for name, (_, push) in chosen.items()}
        ),
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
