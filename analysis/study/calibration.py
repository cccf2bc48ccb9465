"""Fit the calibration of ``topologies.recommend`` to the results of the study.

``python -m analysis.study.calibration FOLDER --out topofl/advice/calibration.json`` reads the
results of ``python -m analysis.study`` in a folder and fits, for every kind of noise ratio and
number of hops, a monotone curve from predicted deviation to rounds to target, relative to the
complete graph of the cell. Cells of D-SGD are used whose runs are all recorded; ``--data DIR``
names the folder of MNIST, without which its cells are left out.

Rounds to target are interpolated between evaluations. A run that does not reach the target counts
as twice its rounds, as in the report of the study. Residuals are those of partitions that are left
out of the fit in all scenarios, one at a time; the ends of intervals are set so that 90 % of these
residuals are within them, at each of three levels of the prediction. Cells in which a run
starts at the target are left out, since there is nothing to learn, and so are cells in which the
heterogeneity of gradients was not measurable, since they have no ratio of noise to it.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

from topofl.toolkit import label_spread

from ..program import parser_of
from .runs import Records, predicted_cell
from .scenarios import GRAPHS, Cell, Source, about, clients_of, scenarios_of
from .statistics import TARGET, CellTable, cell_tables, reached_at

METHOD = "D-SGD"

HOPS = (10, 20)
"""Hops for which records hold heterogeneity and noise."""

NOISE_RATIO = 0.01
"""Default ratio of noise to heterogeneity: in measurements before the study (digits, 60 nodes, 25
graphs), ratios of at most this ranked graphs best by mean accuracy."""

LEVEL = 0.9
KNOTS = 24
SCALE = 1e-9
"""Share of the larger of the two measured scales up to which the smaller one is rounding."""

SMALLEST = 1e-4
"""Deviations below this, on the logarithmic axis of a curve, are this: exact averaging."""


@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of a cell.

    Parameters
    ----------
    scenario, partition, nodes, lr, batch_size, spread
        The cell: scenario and partition, nodes, learning rate, examples per minibatch, label
        heterogeneity of its nodes.
    deviation
        By kind of noise and hops, (graphs,) predicted deviations in units of label shares.
    log_ratio
        (graphs,) logarithms of rounds to target over those of the complete graph.
    reached
        (graphs,) whether the target was reached.
    """

    scenario: str
    partition: str
    nodes: int
    lr: float
    batch_size: int
    spread: float
    deviation: dict[tuple[str, int], np.ndarray]
    log_ratio: np.ndarray
    reached: np.ndarray


def runs_of(records: Records, scenarios: Sequence[str], source: Source) -> list[Runs]:
    """Return the complete cells of D-SGD that rounds relative to the complete graph exist for."""
    tables = cell_tables(records, scenarios, source)
    plain = [table for table in tables if table.method == METHOD and "complete" in table.graphs]
    found = [_runs(records, table, source) for table in plain]
    return [cell for cell in found if cell is not None]


def _runs(records: Records, table: CellTable, source: Source) -> Runs | None:
    cell = Cell(table.scenario, table.partition, METHOD, table.seed, "")
    lr, graphs = table.lr, table.graphs
    own = [replace(cell, graph=name) for name in graphs]
    ran: list[Any] = [records.outcomes(one, lr) for one in own]
    before = [records.prediction(predicted_cell(one)) for one in own]
    complete = ran[list(graphs).index("complete")]
    if "curve" not in complete:
        return None
    target = TARGET * complete["final"]
    base = reached_at(target, complete["curve"], complete["rounds"])
    deviations = _deviations(before)
    reached = [
        reached_at(target, run["curve"], run["rounds"]) if "curve" in run else None for run in ran
    ]
    if not base or 0 in reached or deviations is None:
        return None
    never = 2.0 * complete["rounds"][-1]
    ratio = [(never if value is None else value) / base for value in reached]
    spread = label_spread(clients_of(cell, source))
    known = np.array([row["H_10"] is not None and row["N_10"] is not None for row in before])
    deviation = {key: value[known] for key, value in deviations.items()}
    return Runs(
        cell.scenario,
        cell.partition,
        table.nodes,
        lr,
        source.scenario(cell.scenario).batch_size,
        spread,
        deviation,
        np.log(ratio)[known],
        np.array([value is not None for value in reached])[known],
    )


def _deviations(before: Sequence[dict[str, Any]]) -> dict[tuple[str, int], np.ndarray] | None:
    """Return H_K + c N_K of all graphs for the default ratio c and the measured one.

    None if one of the scales is not above rounding, so that the ratio of the two says nothing.
    Records hold zeta^2 H_K + noise N_K for 10 and 20 hops, H_10, H_20 and N_10: the first is linear
    in the two unknown numbers zeta^2 and noise, and gives N_20 in turn.
    """
    names = ("H_10", "H_20", "N_10", "predicted deviation (10)", "predicted deviation (20)")
    h10, h20, n10, p10, p20 = (
        np.array([np.nan if row[name] is None else row[name] for row in before]) for name in names
    )
    known = np.isfinite(h10 + n10 + p10)
    columns = np.stack([h10, n10], axis=1)[known]
    zeta2, noise = np.linalg.lstsq(columns, p10[known], rcond=None)[0]
    if min(zeta2, noise) <= SCALE * max(zeta2, noise):
        return None
    n20 = (p20 - zeta2 * h20) / noise
    return {
        (kind, hops): h + ratio * n
        for kind, ratio in (("default", NOISE_RATIO), ("measured", noise / zeta2))
        for hops, h, n in ((10, h10, n10), (20, h20, n20))
    }


def fitted(deviation: np.ndarray, log_ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the knots of the monotone curve: log deviations, and medians made isotonic.

    The first knot is exact: without deviation, a graph is as good as the complete one.
    """
    x = np.log(np.maximum(deviation, SMALLEST))
    order = np.argsort(x, kind="stable")
    parts = np.array_split(order, min(KNOTS, len(order)))
    at = np.array([x[part].mean() for part in parts])
    medians = np.array([np.median(log_ratio[part]) for part in parts])
    weights = np.array([len(part) for part in parts])
    values = IsotonicRegression().fit_transform(at, medians, sample_weight=weights)
    at, first = np.unique(at, return_index=True)
    above = at > np.log(SMALLEST)
    values = np.maximum(values[first], 0.0)[above]
    return np.append(np.log(SMALLEST), at[above]), np.append(0.0, values)


def _predicted(curve: tuple[np.ndarray, np.ndarray], deviation: np.ndarray) -> np.ndarray:
    return np.interp(np.log(np.maximum(deviation, SMALLEST)), *curve)


def _held_out(cells: Sequence[Runs], key: tuple[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and residuals of runs whose partition is left out of the fit.

    It is left out in all scenarios. If there is only one, its residuals are those of the fit.
    """
    predicted, residuals = [], []
    for held in dict.fromkeys(cell.partition for cell in cells):
        rest = [cell for cell in cells if cell.partition != held]
        curve = fitted(*_joined(rest or cells, key))
        for cell in cells:
            if cell.partition == held:
                log_rounds = _predicted(curve, cell.deviation[key])
                predicted.append(log_rounds)
                residuals.append(cell.log_ratio - log_rounds)
    return np.concatenate(predicted), np.concatenate(residuals)


def _joined(cells: Sequence[Runs], key: tuple[str, int]) -> tuple[np.ndarray, np.ndarray]:
    pairs = ((cell.deviation[key], cell.log_ratio) for cell in cells)
    x, y = map(np.concatenate, zip(*pairs, strict=True))
    return x, y


def _curve(cells: Sequence[Runs], key: tuple[str, int]) -> dict[str, Any]:
    at, values = fitted(*_joined(cells, key))
    predicted, residuals = _held_out(cells, key)
    edges = np.quantile(predicted, [1 / 3, 2 / 3])
    level, level_of_knot = np.digitize(predicted, edges), np.digitize(values, edges)
    ends = _tails(residuals, level)
    low = np.minimum(values + ends[level_of_knot, 0], values)
    high = np.maximum(values + ends[level_of_knot, 1], values)
    # The ends of a monotone curve are monotone, too; this widens the interval where they are not.
    low, high = np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)
    columns = {"deviation": at, "ratio": values, "low": low, "high": high}
    rounded = {
        name: [float(f"{np.exp(v):.5g}") for v in column] for name, column in columns.items()
    }
    held_out = {"median error": round(float(np.exp(np.median(np.abs(residuals))) - 1), 3)}
    return {"noise": key[0], "hops": key[1], **rounded, "held_out": held_out}


def _tails(residuals: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Return (3, 2) quantiles of the residuals of each level; of all for a level without any.

    Levels are empty if predictions tie, as on the flat parts of a curve.
    """
    tails = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    of_levels = [residuals[level == k] for k in range(3)]
    return np.array([np.quantile(r if len(r) else residuals, tails) for r in of_levels])


def calibration(cells: Sequence[Runs]) -> dict[str, Any]:
    """Return the content of ``calibration.json``."""
    scenarios = list(dict.fromkeys(cell.scenario for cell in cells))
    return {
        "noise_ratio": NOISE_RATIO,
        "level": LEVEL,
        "fitted_to": {
            "data": list(dict.fromkeys(name.split()[0] for name in scenarios)),
            "n": _range([cell.nodes for cell in cells]),
            "partitions": list(dict.fromkeys(cell.partition for cell in cells)),
            "spread": _range([cell.spread for cell in cells]),
            "lr": _range([cell.lr for cell in cells]),
            "batch_size": _range([cell.batch_size for cell in cells]),
            "methods": [METHOD],
            "models": ["logistic regression"],
            "cells": len(cells),
            "runs": sum(len(cell.log_ratio) for cell in cells),
        },
        "curves": [_curve(cells, (kind, k)) for kind in ("default", "measured") for k in HOPS],
    }


def _range(values: Sequence[float]) -> list[float | int]:
    low, high = (float(f"{end(values):.6g}") for end in (min, max))
    return [int(value) if value.is_integer() else value for value in (low, high)]


def main(argv: Sequence[str] | None = None) -> int:
    """Fit the calibration from the command line; returns the exit code."""
    parser = parser_of("study.calibration", __doc__, data=(Path, "folder with the folder mnist"))
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="results of the study")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    options = parser.parse_args(argv)
    source = Source(options.data)
    names = scenarios_of(source)
    scenarios = [name for name in names if options.data is not None or name.startswith("digits")]
    cells = runs_of(Records(options.folder, partial(about, source)), scenarios, source)
    if not cells:
        print("no complete cell of D-SGD is recorded", file=sys.stderr)
        return 2
    options.out.write_text(json.dumps(calibration(cells), indent=1) + "\n", encoding="utf-8")
    print(f"written: {options.out} from {len(cells)} cells of {len(GRAPHS)} graphs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
