"""Stored runs that were never trained, with curves of given shape, and short runs."""

import dataclasses
import itertools
from functools import cache
from pathlib import Path

import numpy as np
from torch import nn

import topofl
from topofl import algorithms, data, models, topologies
from topofl.runs import StoredRun

ROUNDS = [0, 10, 20, 30, 40]


def curves(final, *, rounds=ROUNDS, nodes=10, rng=None, seconds=False, low_is_good=False, cost=1):
    """Return curves that rise (or fall) to a final mean, and the scores of the nodes at the end."""
    rng = np.random.default_rng(0) if rng is None else rng
    shares = 1 - np.exp(-np.array(rounds) / 12)
    shares /= shares[-1]
    offsets = np.sort(rng.normal(0, 0.02, nodes))
    offsets -= offsets.mean()
    values = (1 - (1 - final) * shares if low_is_good else final * shares)[:, None] + offsets
    order = slice(None, None, -1) if low_is_good else slice(None)
    worst_first = np.sort(values, axis=1)[:, order]
    statistics = {
        "mean": values.mean(1).tolist(),
        "worst": worst_first[:, 0].tolist(),
        "worst_tenth": worst_first[:, : max(1, nodes // 10)].mean(1).tolist(),
        "best": worst_first[:, -1].tolist(),
        "std": values.std(1).tolist(),
    }
    score = "loss" if low_is_good else "accuracy"
    found = {
        "round": list(rounds),
        "bytes": [cost * 1_000_000 * r for r in rounds],
        "messages": [20 * r for r in rounds],
        "scores": {score: statistics},
    }
    return found | ({"seconds": [1.5 * r for r in rounds]} if seconds else {}), values


def stored(settings, final, **options):
    """Return a stored run with settings by dotted names."""
    tables = {}
    for name, value in settings.items():
        table, _, key = name.rpartition(".")
        tables.setdefault(table, {})[key] = value
    found, values = curves(final, **options)
    key = f"{abs(hash(tuple(settings.items()))):016x}"
    run = StoredRun(Path("nowhere"), key, tables, {"curves": found})
    score, last = next(iter(found["scores"])), found["round"][-1]
    run.__dict__["history"] = topofl.History(
        {"task": {"name": "any", "scores": {score: "low" if score == "loss" else "high"}}},
        {
            "bytes": np.full(last, found["bytes"][-1] // last),
            "messages": np.full(last, found["messages"][-1] // last),
        },
        {"round": np.array(found["round"]), score: values},
        np.zeros((last, values.shape[1])),
    )
    return run


def runs_of(*, topology=("ring",), alpha=(1.0,), seeds=3, effect=None, noise=0.01, **options):
    """Return runs of all combinations; topologies with longer names learn more, unless told."""
    rng = np.random.default_rng(1)
    shared = rng.normal(0, noise, seeds)  # runs of a seed have something in common
    runs = []
    for (k, name), a, seed in itertools.product(enumerate(topology), alpha, range(seeds)):
        gain = 0.03 * k if effect is None else effect[name]
        final = 0.6 + gain + 0.02 * np.log10(a) + shared[seed] + rng.normal(0, noise / 3)
        settings = {"data.name": "digits", "data.alpha": a, "topology.name": name}
        settings |= {"run.rounds": 40, "run.seed": seed}
        runs.append(stored(settings, float(final), rng=rng, **{"cost": k + 1} | options))
    return runs


def older(history):
    """Return a history as versions wrote it that did not record partition and model."""
    meta = {key: x for key, x in history.meta.items() if key not in ("partition", "model")}
    return dataclasses.replace(history, meta=meta)


DIGITS = data.digits()


@cache
def of_name(lr=0.1, *, seed=0, alpha=1.0, of_data=0, hidden=None, rounds=2, weights=None):
    """Return a short run on four nodes, as those that are summarized by names."""
    layers = models.logistic_regression(64)
    if hidden is not None:
        layers = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Linear(hidden, 10))
    return topofl.run(
        algorithms.dsgd(lr=lr),
        model=layers,
        clients=data.dirichlet_per_client(DIGITS, n=4, alpha=alpha, seed=of_data),
        topology=topologies.ring(4),
        mixing=weights,
        rounds=rounds,
        seed=seed,
        progress=False,
    )
