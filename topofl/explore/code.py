"""The Python code that does what the explorer shows."""

from collections.abc import Mapping

from topofl.explore.compared import HOPS, MEASURES
from topofl.explore.setup import Candidate, Nodes, Training, message_sizes

__all__ = ["code_of"]

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
