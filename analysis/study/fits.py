"""Fitted rivals of the predictors: how well they predict graphs and data not seen before."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sparse
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.isotonic import IsotonicRegression
from torch import nn
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_mean_pool
from torch_geometric.nn import Sequential as GraphSequential

from topofl import Table, Topology, metrics, mixing

from .runs import PREDICTORS
from .scenarios import Cell, Graph, Source, clients_of, graph_of, scenarios_of
from .statistics import OUTCOMES, SKEWED, CellTable, Statistic, median, median_over_cells, spearman

CELL = ("scenario", "partition", "method", "seed", "graph")
"""Columns that identify a run."""

ROUNDS = 60
"""Rounds over which the weights of sequences without a period are averaged."""


def runs_table(tables: Sequence[CellTable]) -> pd.DataFrame:
    """Return one row per run: its cell, family, learning rate, predictors and outcomes."""
    rows = [
        {
            **dict(zip(CELL, (t.scenario, t.partition, t.method, t.seed, graph), strict=True)),
            "family": t.families[k],
            "lr": t.lr,
            **{name: t.predictors[name][k] for name in PREDICTORS},
            **{name: t.outcomes[name][k] for name in OUTCOMES},
        }
        for t in tables
        for k, graph in enumerate(t.graphs)
    ]
    return pd.DataFrame(rows)


def write_runs(tables: Sequence[CellTable], path: Path) -> Path:
    """Write the table of runs as compressed CSV with five significant digits."""
    unchanging = {"method": "gzip", "mtime": 0}
    runs_table(tables).to_csv(path, index=False, float_format="%.5g", compression=unchanging)
    return path


def read_runs(path: Path, source: Source = Source()) -> list[CellTable]:  # noqa: B008 - frozen
    """Return the cells of a file of :func:`write_runs`, which has five significant digits.

    Raises
    ------
    ValueError
        If the file lacks a column, or if one of its scenarios is not in the source.
    """
    runs = pd.read_csv(path)
    columns = [*CELL, "family", "lr", *PREDICTORS, *OUTCOMES]
    if absent := [name for name in columns if name not in runs]:
        raise ValueError(f"{path} must be a table of runs of this study, but lacks {absent}")
    if absent := sorted(set(runs["scenario"]) - set(scenarios_of(source))):
        raise ValueError(f"{path} must have scenarios of this study only, got {absent}")
    return [
        CellTable(
            *cell,
            nodes=source.scenario(cell[0]).n,
            graphs=own["graph"].tolist(),
            families=own["family"].tolist(),
            predictors={name: own[name].to_numpy(float) for name in PREDICTORS},
            outcomes={name: own[name].to_numpy(float) for name in OUTCOMES},
            lr=float(own["lr"].iloc[0]),
        )
        for cell, own in runs.groupby(list(CELL[:-1]), sort=False)
    ]


class StudyDataset(InMemoryDataset):
    """Graphs of the study with their runs, as a dataset of torch_geometric.

    Each element is a graph of a cell: ``x`` (n, classes) label shares of the nodes, ``edge_index``
    (2, edges) from sender to receiver with self-loops, ``edge_weight`` (edges,) mixing weights
    (averaged over rounds for time-varying graphs), ``predictors`` and ``y`` (1, columns) with the
    columns `predictor_names` and `outcome_names`, ``lr``, and the text ``scenario``, ``partition``,
    ``method``, ``graph`` and ``family``.

    Parameters
    ----------
    root
        Folder in which the graphs, which take minutes to build, are kept.
    runs
        File of :func:`write_runs`, such as ``analysis/results/study/runs.csv.gz``.
    scenarios, methods, partitions
        Those to load; None: all. Scenarios on files need `data`.
    data
        Folder of the data.

    Examples
    --------
    ``StudyDataset("out/graphs", "analysis/results/study/runs.csv.gz", scenarios=["digits 60"])``
    """

    predictor_names = tuple(PREDICTORS)
    outcome_names = tuple(OUTCOMES)

    def __init__(
        self,
        root: str | Path,
        runs: str | Path,
        *,
        scenarios: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        partitions: Sequence[str] | None = None,
        data: Path | None = None,
    ) -> None:
        self.runs, self.source = Path(runs), Source(data)
        self.chosen = {"scenario": scenarios, "method": methods, "partition": partitions}
        super().__init__(str(root))
        self.load(self.processed_paths[0])

    @property
    def processed_file_names(self) -> list[str]:
        """Names of the files that keep the graphs; other choices and runs have other names."""
        chosen = "-".join("+".join(names or ["all"]) for names in self.chosen.values())
        content = hashlib.sha256(self.runs.read_bytes()).hexdigest()[:8]
        return [f"{chosen}-{content}.pt".replace(" ", "_")]

    def process(self) -> None:
        """Build the graphs of the chosen runs."""
        runs = pd.read_csv(self.runs)
        for column, names in self.chosen.items():
            runs = runs if names is None else runs[runs[column].isin(names)]
        self.save(list(self._elements(runs)), self.processed_paths[0])

    def _elements(self, runs: pd.DataFrame) -> Iterable[Data]:
        cell = ["scenario", "partition", "seed", "graph"]
        for _, same in runs.groupby(cell, sort=False):
            first = Cell(*(same.iloc[0][name] for name in CELL))
            clients = clients_of(first, self.source)
            graph = graph_of(first, clients, self.source)
            assert not isinstance(graph, str), graph  # it exists, since it has a run
            shares = torch.from_numpy(metrics.label_distributions(clients)).float()
            edges, weights = _mean_weights(graph)
            for _, run in same.iterrows():
                yield Data(
                    x=shares,
                    edge_index=edges,
                    edge_weight=weights,
                    predictors=_row(run, self.predictor_names),
                    y=_row(run, self.outcome_names),
                    **{name: run[name] for name in (*CELL, "family", "lr")},
                )


def _row(run: Any, names: Sequence[str]) -> torch.Tensor:
    return torch.tensor([[float(run[name]) for name in names]])


def _mean_weights(graph: Graph) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the edges (2, edges) from sender to receiver, and mean mixing weights (edges,)."""
    rounds = (
        [graph]
        if isinstance(graph, Topology)
        else [graph.at(t) for t in range(graph.period or ROUNDS)]
    )
    matrices = [sparse.csr_array(mixing.metropolis_or_uniform(one).weights) for one in rounds]
    mean = sparse.coo_array(sum(matrices[1:], matrices[0]) / len(matrices))
    edges = torch.from_numpy(np.stack([mean.col, mean.row]).astype(np.int64))
    return edges, torch.from_numpy(mean.data).float()


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
        def known(table: CellTable, rows: np.ndarray) -> np.ndarray:
            return _log(table.predictors[predictor])[rows]

        pairs = [(known(table, rows), targets(table)[rows]) for table, rows in fitted]
        fit = isotonic(pairs, increasing=increasing)
        return [fit(known(*one)) for one in asked]

    return model


def isotonic(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], *, increasing: bool = True
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the predictions of a monotone fit to (x, y), which are NaN where x is not finite."""
    x, y = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    known = np.isfinite(x) & np.isfinite(y)
    fit = IsotonicRegression(increasing=increasing, out_of_bounds="clip").fit(x[known], y[known])

    def predicted(x: np.ndarray) -> np.ndarray:
        found = np.full(len(x), np.nan)
        found[np.isfinite(x)] = fit.predict(x[np.isfinite(x)])
        return found

    return predicted


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
        return [_outputs_of(network, _inputs(graphs, *one)) for one in asked]

    return model


def _inputs(graphs: Mapping[Key, Data], table: CellTable, rows: np.ndarray) -> list[Data]:
    """Return what the network sees: deviations of label shares from their mean, and weights."""
    known = targets(table)
    place = (table.scenario, table.partition, table.seed)
    chosen = [(graphs[(*place, str(table.graphs[row]))], float(known[row])) for row in rows]
    return [
        Data(
            x=graph.x - graph.x.mean(dim=0),
            edge_index=graph.edge_index,
            edge_weight=graph.edge_weight,
            y=torch.tensor([target], dtype=torch.float32),
        )
        for graph, target in chosen
    ]


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
def _outputs_of(network: nn.Module, graphs: Sequence[Data]) -> np.ndarray:
    found = [_output(network, batch) for batch in DataLoader(list(graphs), BATCH)]
    return torch.cat(found).numpy().astype(float) if found else np.empty(0)
