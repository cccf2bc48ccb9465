"""Runs of the comparison, each computed once and kept in a file of JSON lines."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import topofl
from topofl import DivergenceError, algorithms, metrics, topologies
from topofl.data import Partition

from ..study.cells import Cell, accuracies_of
from ..study.run import Job, Records
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

__all__ = ["compute", "designed_job", "other_job", "rate_of"]

More = Callable[[], bool]


def rate_of(setting: Setting, records: Records) -> float | None:
    """Return the rate with the highest mean accuracy when tuned; None if one was not tried yet."""
    jobs = [_tuning_job(setting, lr) for lr in setting.rates]
    if any(job not in records for job in jobs):
        return None
    return max(jobs, key=lambda job: records[job]["all rounds"]).lr


ACCURACIES = ("learning phase", "final", "worst node", "all rounds")
"""Outcomes of a run; 0, the worst there is, for runs that diverge."""


def other_job(setting: Setting, other: Other, seed: int, lr: float) -> Job:
    """Return the run of another graph."""
    return Job("run", _cell(setting, seed, other.name), lr)


def designed_job(setting: Setting, sent: float, seed: int, lr: float) -> Job:
    """Return the run of the designed topology that sends no more messages per round."""
    return Job("run", _cell(setting, seed, f"designed with {designed_edges(sent)} edges"), lr)


def compute(
    settings: Sequence[str],
    path: Path,
    *,
    root: Path | None = None,
    seeds: Sequence[int] = SEEDS,
    more: More = lambda: True,
) -> Records:
    """Compute what is missing in a file of results while `more()` holds, and return all.

    D-Cliques and their designs come first, in all settings.
    """
    torch.set_num_threads(1)
    records = Records(path)
    for cliques in (True, False):
        for name in settings:
            setting = SETTINGS[name]
            _tune(setting, records, root, more)
            lr = rate_of(setting, records)
            if lr is None:
                return records
            others = [other for other in OTHERS.values() if (other.build is None) == cliques]
            for seed in seeds:
                for other in others:
                    if not _compare(setting, other, seed, lr, records, root, more):
                        return records
    return records


def _tune(setting: Setting, records: Records, root: Path | None, more: More) -> None:
    """Try all rates that were not tried yet."""
    for lr in setting.rates:
        job = _tuning_job(setting, lr)
        if job not in records and more():
            clients = split(setting.name, root, TUNING_SEED)
            graph = topologies.random_regular(clients.n, TUNING_DEGREE, seed=TUNING_SEED)
            records.add(job, _outcomes(setting, clients, graph, TUNING_SEED, lr))


def _compare(
    setting: Setting,
    other: Other,
    seed: int,
    lr: float,
    records: Records,
    root: Path | None,
    more: More,
) -> bool:
    """Run another graph and its design unless both are known; return whether both are now."""
    job = other_job(setting, other, seed, lr)
    if job not in records:
        if not more():
            return False
        clients = split(setting.name, root, seed)
        records.add(job, _outcomes(setting, clients, other.graph(clients, seed), seed, lr))
    sent = records[job]["messages"]
    job = designed_job(setting, sent, seed, lr)
    if job not in records:
        if not more():
            return False
        clients = split(setting.name, root, seed)
        graph = topologies.designed(clients, edges=designed_edges(sent), seed=seed)
        records.add(job, _outcomes(setting, clients, graph, seed, lr))
    return True


def _tuning_job(setting: Setting, lr: float) -> Job:
    return Job("tune", _cell(setting, TUNING_SEED, f"{TUNING_DEGREE}-regular"), lr)


def _cell(setting: Setting, seed: int, graph: str) -> Cell:
    return Cell(setting.name, "2 shards", f"D-SGD {setting.momentum:g}", seed, graph)


def _outcomes(
    setting: Setting, clients: Partition, graph: Graph, seed: int, lr: float
) -> dict[str, Any]:
    """Return what is known about a graph, and the outcomes of one run on it.

    A run that diverges has the worst accuracies, so that its rate is not chosen when tuned.
    """
    about = {
        "messages": messages_of(graph),
        "H_1": metrics.neighborhood_heterogeneity(graph, clients, hops=1),
        "H_10": metrics.neighborhood_heterogeneity(graph, clients, hops=10),
        "N_10": metrics.accumulated_noise(graph, 10),
    }
    try:
        history = _train(setting, clients, graph, seed, lr)
    except DivergenceError:
        return about | dict.fromkeys(ACCURACIES, 0.0) | {"diverged": True}
    everything = float(history["accuracy"].mean(axis=1).mean())
    return about | accuracies_of(history) | {"all rounds": everything}


def _train(
    setting: Setting, clients: Partition, graph: Graph, seed: int, lr: float
) -> topofl.History:
    return topofl.run(
        algorithms.dsgd(lr, batch_size=setting.batch_size, momentum=setting.momentum),
        model=setting.model(),
        clients=clients,
        topology=graph,
        rounds=setting.rounds,
        evaluation=setting.every,
        compute=topofl.Compute(device="cpu", on_disconnected="allow", executor=setting.executor),
        seed=seed,
        progress=False,
    )
