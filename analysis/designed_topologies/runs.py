"""Runs of the comparison, each computed once and kept in a store."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from topofl import Compute, algorithms, metrics, topologies
from topofl.data import Partition
from topofl.runs.run import digest_of

from ..study.cells import Cell
from ..study.records import Records, train
from .settings import (
    OTHERS,
    SEEDS,
    SETTINGS,
    TUNING_DEGREE,
    TUNING_SEED,
    Graph,
    Other,
    Setting,
    designed_edges,
    split,
)
from .settings import messages as messages_of

__all__ = ["compute", "designed_cell", "known", "other_cell", "rate_of", "records_of"]

More = Callable[[], bool]

ACCURACIES = ("learning phase", "final", "worst node", "all rounds")
"""Outcomes of a run; 0, the worst there is, for runs that diverge."""


def records_of(folder: Path, root: Path | None = None) -> Records:
    """Return the results in a folder; those of settings whose data are not given are not found."""

    @cache
    def about(name: str) -> list[Any]:
        one = SETTINGS[name]
        numbers = [one.n, one.batch_size, one.rounds, one.every, one.momentum, one.executor]
        if root is None and name != "digits":
            return [*numbers, ""]
        return [*numbers, digest_of(split(name, root, TUNING_SEED).dataset)]

    return Records(folder, about)


def rate_of(setting: Setting, records: Records) -> float | None:
    """Return the rate with the highest mean accuracy when tuned; None if one was not tried yet."""
    found = {lr: records.outcomes(_tuning_cell(setting), lr) for lr in setting.rates}
    means = {lr: one.get("all rounds", 0.0) for lr, one in found.items() if one is not None}
    return None if len(means) < len(found) else max(means, key=means.__getitem__)


def known(cell: Cell, lr: float, records: Records) -> dict[str, float] | None:
    """Return what is known about a graph, and the outcomes of its run; None: not complete.

    A run that diverges has the worst accuracies.
    """
    before, after = records.prediction(cell), records.outcomes(cell, lr)
    if before is None or after is None or "missing" in after:
        return None
    accuracies = {name: after.get(name, 0.0) for name in ACCURACIES}
    return {"seed": cell.seed, "lr": lr} | before | accuracies


def other_cell(setting: Setting, other: Other, seed: int) -> Cell:
    """Return the cell of another graph."""
    return _cell(setting, seed, other.name)


def designed_cell(setting: Setting, sent: float, seed: int) -> Cell:
    """Return the cell of the designed topology that sends no more messages per round."""
    return _cell(setting, seed, f"designed with {designed_edges(sent)} edges")


def compute(
    settings: Sequence[str],
    records: Records,
    *,
    root: Path | None = None,
    seeds: Sequence[int] = SEEDS,
    more: More = lambda: True,
) -> None:
    """Compute what is missing in the results while `more()` holds.

    D-Cliques and their designs come first, in all settings.
    """
    torch.set_num_threads(1)
    for cliques in (True, False):
        for name in settings:
            setting = SETTINGS[name]
            _tune(setting, records, root, more)
            lr = rate_of(setting, records)
            if lr is None:
                return
            others = [other for other in OTHERS.values() if (other.build is None) == cliques]
            for seed in seeds:
                for other in others:
                    _compare(setting, other, seed, lr, records, root, more)


def _tune(setting: Setting, records: Records, root: Path | None, more: More) -> None:
    """Try all rates that were not tried yet."""
    clients = split(setting.name, root, TUNING_SEED)
    graph = topologies.random_regular(clients.n, TUNING_DEGREE, seed=TUNING_SEED)
    runs = [(_tuning_cell(setting), lr) for lr in setting.rates]
    train(runs, records, lambda point: _arguments(setting, clients, graph, point), more=more)


def _compare(
    setting: Setting,
    other: Other,
    seed: int,
    lr: float,
    records: Records,
    root: Path | None,
    more: More,
) -> None:
    """Run another graph, and its design, unless they are known."""
    clients = split(setting.name, root, seed)
    cell = other_cell(setting, other, seed)
    _run(setting, cell, clients, lambda: other.graph(clients, seed), lr, records, more)
    before = records.prediction(cell)
    if before is None:
        return
    edges = designed_edges(before["messages"])
    cell = designed_cell(setting, before["messages"], seed)

    def designed() -> Graph:
        return topologies.designed(clients, edges=edges, seed=seed)

    _run(setting, cell, clients, designed, lr, records, more)


def _run(
    setting: Setting,
    cell: Cell,
    clients: Partition,
    build: Callable[[], Graph],
    lr: float,
    records: Records,
    more: More,
) -> None:
    """Compute numbers and run of a graph, unless they are known."""
    if known(cell, lr, records) is not None or not more():
        return
    graph = build()
    if records.prediction(cell) is None:
        records.add(cell, _about(graph, clients))
    train([(cell, lr)], records, lambda point: _arguments(setting, clients, graph, point))


def _tuning_cell(setting: Setting) -> Cell:
    return _cell(setting, TUNING_SEED, f"{TUNING_DEGREE}-regular")


def _cell(setting: Setting, seed: int, graph: str) -> Cell:
    return Cell(setting.name, "2 shards", f"D-SGD {setting.momentum:g}", seed, graph)


def _about(graph: Graph, clients: Partition) -> dict[str, float]:
    """Return messages, accumulated heterogeneity and noise of a graph."""
    return {
        "messages": messages_of(graph),
        "H_1": metrics.neighborhood_heterogeneity(graph, clients, hops=1),
        "H_10": metrics.neighborhood_heterogeneity(graph, clients, hops=10),
        "N_10": metrics.accumulated_noise(graph, 10),
    }


def _arguments(
    setting: Setting, clients: Partition, graph: Graph, point: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a run."""
    return {
        "algorithm": algorithms.dsgd(
            point["lr"], batch_size=setting.batch_size, momentum=setting.momentum
        ),
        "model": setting.model(),
        "clients": clients,
        "topology": graph,
        "rounds": setting.rounds,
        "evaluation": setting.every,
        "compute": Compute(device="cpu", on_disconnected="allow", executor=setting.executor),
        "seed": point["cell"].seed,
    }
