"""The runs of the study as a table, and as a dataset of torch_geometric."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sparse
import torch
from torch_geometric.data import Data, InMemoryDataset

from topofl import Topology, metrics, mixing

from .cells import Cell, Source, clients_of, graph_of, scenarios_of
from .graphs import Graph
from .predictors import PREDICTORS
from .statistics import CellTable
from .tables import OUTCOMES

__all__ = ["StudyDataset", "read_runs", "runs_table", "write_runs"]

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
