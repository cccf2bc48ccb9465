"""Made-up cells of the study, and a small configuration."""

from dataclasses import replace

import numpy as np

from analysis.study import statistics
from analysis.study.runs import PREDICTORS
from analysis.study.scenarios import GRAPHS, build_graph
from topofl import data, metrics

__all__ = ["CONFIG", "made_up_cells", "random_cells", "small_cells", "table", "value"]

CONFIG = """
[data]
name = "digits"
n = 8
seed = 0
[algorithm]
name = "dsgd"
lr = 0.1
batch_size = 8
[run]
rounds = 4
seed = 0
[evaluation]
every = 2
[study]
graphs = ["ring", "fully_connected", "random_regular,k=4"]
partitions = ["shards,per_node=1", "iid"]
seeds = [0, 1]
rates = [0.1, 0.2]
"""


def table(quality, outcome, scenario="digits 60", method="D-SGD", **predictors):
    """Return a cell whose predictors are all NaN but those given."""
    n = len(outcome)
    columns = {name: np.full(n, np.nan) for name in PREDICTORS} | predictors
    outcomes = {name: np.asarray(outcome, float) for name in statistics.OUTCOMES}
    return statistics.CellTable(
        *(scenario, quality, method, 0),
        nodes=60,
        graphs=[f"graph {k}" for k in range(n)],
        families=[f"family {k % 3}" for k in range(n)],
        predictors=columns,
        outcomes=outcomes,
        lr=0.1,
    )


def value(statistic, cell):
    return float(statistic.value(statistic.known(cell)[0]))


def random_cells(n, slope=-1.0):
    rng = np.random.default_rng(0)
    found = []
    for k in range(6):
        x = rng.standard_normal(n)
        found.append(table(f"{k}", slope * x + 0.3 * rng.standard_normal(n), H_10=x))
    return found


def small_cells():
    """Return a cell of two graphs that exist, with made-up outcomes."""
    own = table("2 shards", [0.5, 0.9], scenario="digits 30", H_10=np.array([1.0, 0.1]))
    return [replace(own, graphs=["ring", "complete"], families=["classic", "classic"])]


def made_up_cells(seeds):
    """Return cells of real graphs whose rounds to target grow with H_10."""
    names = [name for name, graph in GRAPHS.items() if graph.family in ("classic", "random")]
    found = []
    for seed in seeds:
        clients = data.shards(data.digits(), n=60, per_node=2, seed=seed)
        graphs = [build_graph(GRAPHS[name], clients, seed) for name in names]
        h_10, n_10 = (
            np.array([metric(graph) for graph in graphs])
            for metric in (
                lambda graph, own=clients: metrics.neighborhood_heterogeneity(graph, own, hops=10),
                lambda graph: metrics.accumulated_noise(graph, 10),
            )
        )
        more = {
            "spectral gap": np.array([metrics.spectral_gap(graph) for graph in graphs]),
            "predicted deviation (10)": h_10 + 0.1 * n_10,
        }
        cell = table("2 shards", 10 * (1 + h_10), H_10=h_10, N_10=n_10, **more)
        families = [GRAPHS[name].family for name in names]
        found.append(replace(cell, seed=seed, graphs=names, families=families))
    return found
