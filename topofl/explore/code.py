"""The Python code that does what the explorer shows."""

from collections.abc import Mapping

from topofl.advice.calls import Call
from topofl.explore.compared import HOPS, MEASURES
from topofl.explore.setup import INPUTS, N_PARAMETERS, Nodes, Training

__all__ = ["code_of"]

TEMPLATE = """\
import topofl
from topofl import advice, algorithms, data, metrics, models, topologies

clients = {clients}
graphs = {{
{graphs}
}}

measures = [
{measures}
]
table = metrics.compare(
    graphs, label_counts=clients, n_parameters={n_parameters}, about=[], metrics=measures
)
print(table)
for name, graph in graphs.items():
    predicted = advice.predict_rounds(
        graph, clients, lr={lr!r}, batch_size={batch_size}, hops={hops}
    )
    print(name, predicted)
    graph.plot(label_counts=clients)
    metrics.heterogeneity_spectrum(graph, clients).plot()

histories = {{
    name: topofl.run(
        algorithms.dsgd(lr={lr!r}, batch_size={batch_size}),
        model=models.logistic_regression({inputs}),
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


def code_of(nodes: Nodes, calls: Mapping[str, Call], training: Training) -> str:
    """Return a program that builds, measures and trains the candidates."""
    return TEMPLATE.format(
        clients=nodes.code,
        graphs="\n".join(f"    {_quoted(name)}: {call.code}," for name, call in calls.items()),
        measures="\n".join(f"    {_quoted(column)}," for column in MEASURES),
        n_parameters=N_PARAMETERS,
        hops=HOPS,
        inputs=INPUTS,
        rounds=training.rounds,
        lr=training.lr,
        batch_size=training.batch_size,
        evaluation=training.evaluation,
        seed=training.seed,
    )


def _quoted(text: str) -> str:
    """Return a literal in double quotes; the texts have no double quotes or backslashes."""
    return f'"{text}"'
