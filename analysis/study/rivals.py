"""Fitted rivals of the predictors: how well they predict graphs and data not seen before."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.isotonic import IsotonicRegression
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_mean_pool
from torch_geometric.nn import Sequential as GraphSequential

from topofl import Table

from .dataset import StudyDataset
from .statistics import CellTable, Statistic, median, median_over_cells, spearman
from .tables import SKEWED

__all__ = ["held_out_table"]

HELD_OUT_DATA = ("MNIST 100", "MNIST 1000")
"""Scenarios that are predicted by models fitted to "digits 60"."""

EPOCHS, WIDTH, BATCH = 100, 32, 64
"""Training of the network; not tuned."""


def held_out_table(
    tables: Sequence[CellTable], runs: Path, root: Path, data: Path | None
) -> Table | None:
    """Return how well fitted models predict held-out families and held-out data.

    The target is the logarithm of rounds to target over those of the complete graph, with D-SGD on
    skewed labels. Models are fitted to "digits 60": without one family, which they then predict,
    for each family in turn; or to all of it, to predict MNIST.

    Parameters
    ----------
    tables
        Cells.
    runs, root, data
        File of runs, folder of graphs and folder of data, as in :class:`StudyDataset`.
    """
    chosen = [t for t in tables if t.method == "D-SGD" and t.partition in SKEWED]
    chosen = [table for table in chosen if "complete" in table.graphs]
    digits = [table for table in chosen if table.scenario == "digits 60"]
    others = [table for table in chosen if table.scenario in HELD_OUT_DATA]
    if not digits:
        return None
    scenarios = list(dict.fromkeys(table.scenario for table in digits + others))
    graphs = StudyDataset(
        root, runs, scenarios=scenarios, methods=["D-SGD"], partitions=SKEWED, data=data
    )
    network = _network({_key(graph): graph for graph in graphs})
    models: dict[str, _Model] = {
        "isotonic in H_10": _isotonic("H_10"),
        "isotonic in predicted deviation (10)": _isotonic("predicted deviation (10)"),
        "isotonic in the spectral gap": _isotonic("spectral gap", increasing=False),
        "monotone in H_10 and N_10": _monotone,
        "message passing": network,
    }
    rows = [
        row
        for name, model in models.items()
        for row in _rows(name, _families(digits, model), _data(digits, others, model))
    ]
    columns = ("model", "held out", "rank correlation", "relative error of rounds", "cells")
    return Table(columns, tuple(rows))


Key = tuple[str, str, int, str]
_Rows = Sequence[tuple[CellTable, np.ndarray]]
"""Graphs of cells, by their positions."""
_Model = Callable[[_Rows, _Rows], list[np.ndarray]]
"""``model(fitted, predicted)`` returns predicted targets of each entry of `predicted`."""


def targets(table: CellTable) -> np.ndarray:
    """Return the logarithm of rounds to target over those of the complete graph."""
    rounds = np.maximum(table.outcomes["rounds to target"], 1.0)
    return np.log(rounds / rounds[list(table.graphs).index("complete")])


def _families(tables: Sequence[CellTable], model: _Model) -> list[tuple[CellTable, np.ndarray]]:
    """Return predictions for all graphs, each by a model fitted without its family."""
    found = [np.full(len(table.graphs), np.nan) for table in tables]
    for family in dict.fromkeys(tables[0].families):
        own = [np.array(table.families) == family for table in tables]
        fitted = [(table, np.flatnonzero(~one)) for table, one in zip(tables, own, strict=True)]
        asked = [(table, np.flatnonzero(one)) for table, one in zip(tables, own, strict=True)]
        for values, (_, rows), predicted in zip(found, asked, model(fitted, asked), strict=True):
            values[rows] = predicted
    return list(zip(tables, found, strict=True))


def _data(
    known: Sequence[CellTable], others: Sequence[CellTable], model: _Model
) -> list[tuple[CellTable, np.ndarray]]:
    """Return predictions for other data by a model fitted to all graphs of known data."""
    fitted, asked = ([(t, np.arange(len(t.graphs))) for t in some] for some in (known, others))
    return list(zip(others, model(fitted, asked), strict=True)) if others else []


def _rows(name: str, *kinds: Sequence[tuple[CellTable, np.ndarray]]) -> list[tuple[object, ...]]:
    found = []
    for kind, predictions in zip(("families", "data"), kinds, strict=True):
        if not predictions:
            continue
        by_cell = {id(table): values for table, values in predictions}
        both = Statistic(lambda t, own=by_cell: np.stack([own[id(t)], targets(t)]), spearman)
        error = Statistic(both.columns, lambda c: median(np.abs(np.expm1(c[0] - c[1]))))
        cells = [table for table, _ in predictions]
        order, size = median_over_cells(cells, both), median_over_cells(cells, error)
        shown = f"{size.estimate:.2f} ({size.low:.2f} to {size.high:.2f})"
        found.append((name, kind, str(order), shown, len(cells)))
    return found


def _log(values: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(values, 1e-6))


def _isotonic(predictor: str, increasing: bool = True) -> _Model:
    def model(fitted: _Rows, asked: _Rows) -> list[np.ndarray]:
        x = np.concatenate([_log(table.predictors[predictor])[rows] for table, rows in fitted])
        y = np.concatenate([targets(table)[rows] for table, rows in fitted])
        known = np.isfinite(x) & np.isfinite(y)
        one = IsotonicRegression(increasing=increasing, out_of_bounds="clip")
        one.fit(x[known], y[known])
        return [_defined(one, _log(table.predictors[predictor])[rows]) for table, rows in asked]

    return model


def _defined(one: IsotonicRegression, x: np.ndarray) -> np.ndarray:
    """Return predictions, NaN where the predictor is not defined."""
    found = np.full(len(x), np.nan)
    found[np.isfinite(x)] = one.predict(x[np.isfinite(x)])
    return found


def _monotone(fitted: _Rows, asked: _Rows) -> list[np.ndarray]:
    def numbers(table: CellTable, rows: np.ndarray) -> np.ndarray:
        return np.stack([_log(table.predictors[name])[rows] for name in ("H_10", "N_10")], axis=1)

    one = HistGradientBoostingRegressor(
        monotonic_cst=[1, 1], early_stopping=False, random_state=0, min_samples_leaf=5
    )
    x = np.concatenate([numbers(table, rows) for table, rows in fitted])
    y = np.concatenate([targets(table)[rows] for table, rows in fitted])
    one.fit(x[np.isfinite(y)], y[np.isfinite(y)])
    return [one.predict(numbers(table, rows)) for table, rows in asked]


def _key(graph: Data) -> Key:
    return graph.scenario, graph.partition, int(graph.seed), graph.graph


def _network(graphs: Mapping[Key, Data]) -> _Model:
    """Return the model that trains a message-passing network on the graphs and label shares."""

    def model(fitted: _Rows, asked: _Rows) -> list[np.ndarray]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = _trained([one for entry in fitted for one in _inputs(graphs, *entry)])
        return [_predicted(network, _inputs(graphs, *one)) for one in asked]

    return model


def _inputs(graphs: Mapping[Key, Data], table: CellTable, rows: np.ndarray) -> list[Data]:
    known = targets(table)
    place = (table.scenario, table.partition, table.seed)
    return [_input(graphs[(*place, str(table.graphs[row]))], float(known[row])) for row in rows]


def _input(graph: Data, target: float) -> Data:
    """Return what the network sees: deviations of label shares from their mean, and weights."""
    return Data(
        x=graph.x - graph.x.mean(dim=0),
        edge_index=graph.edge_index,
        edge_weight=graph.edge_weight,
        y=torch.tensor([target], dtype=torch.float32),
    )


def _trained(graphs: Sequence[Data]) -> nn.Module:
    layer = "x, edge_index, edge_weight -> x"
    classes = graphs[0].num_features
    network = GraphSequential(
        "x, edge_index, edge_weight, batch",
        [
            (GraphConv(classes, WIDTH), layer),
            nn.ReLU(),
            (GraphConv(WIDTH, WIDTH), layer),
            nn.ReLU(),
            (GraphConv(WIDTH, WIDTH), layer),
            nn.ReLU(),
            (global_mean_pool, "x, batch -> x"),
            nn.Linear(WIDTH, 1),
        ],
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
    for _ in range(EPOCHS):
        for batch in DataLoader(list(graphs), BATCH, shuffle=True):
            optimizer.zero_grad()
            loss = (_output(network, batch) - batch.y).square().mean()
            loss.backward()
            optimizer.step()
    return network


def _output(network: nn.Module, batch: Data) -> torch.Tensor:
    return network(batch.x, batch.edge_index, batch.edge_weight, batch.batch).squeeze(1)


@torch.no_grad()
def _predicted(network: nn.Module, graphs: Sequence[Data]) -> np.ndarray:
    found = [_output(network, batch) for batch in DataLoader(list(graphs), BATCH)]
    return torch.cat(found).numpy().astype(float) if found else np.empty(0)
