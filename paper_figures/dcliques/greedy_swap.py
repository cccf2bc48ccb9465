"""Figures 17 and 18 of D-Cliques: skew under Greedy-Swap; repetition r has seed r."""

import time
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from matplotlib.figure import Figure as Picture

from topofl import data, topologies

from ..kit.claims import Claim, at_least, at_most, exactly, judge
from ..kit.drawing import descent, histogram
from ..kit.paper import Data, Setting
from .arms import DECLARED
from .graphs import CLASSES, CLIQUE_SIZE, STEPS

RANDOM, GREEDY = "random cliques", "Greedy-Swap"


LOW = 0.1
"""Skew that is close to 0: it vanishes if one in twenty examples of a clique changes its class."""


def _mnist_root(setting: Setting) -> str | None:
    """Return the folder of MNIST; None if it is not selected or not available."""
    if "mnist" not in setting.datasets:
        return None
    try:
        return setting.root_of("mnist")
    except FileNotFoundError:
        return None


def _descents(setting: Setting) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return mean skews of the cliques, (R, steps + 1), and seconds, (R,), by dataset."""
    smoke = setting.scale == "smoke"
    n, repetitions = (20, 10) if smoke else (100, 100)
    cifar = {"CIFAR-10": _descent("CIFAR-10", None, n, repetitions)}
    name, root = ("digits", None) if smoke else ("MNIST", _mnist_root(setting))
    if "mnist" not in setting.datasets or (root is None and not smoke):
        return cifar
    return {"MNIST": _descent(name, root, n, repetitions)} | cifar


@lru_cache(maxsize=4)
def _descent(
    name: str, root: str | None, n: int, repetitions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return one entry of :func:`_descents`; both figures share it."""
    labels = _labels(name, root)
    examples = torch.zeros(len(labels), 1)  # Greedy-Swap uses labels only
    train, none = np.split(np.arange(len(labels)), [len(labels)])
    dataset = data.Dataset(examples, torch.from_numpy(labels), CLASSES, name, train, none, none)
    skews, seconds = [], []
    for seed in range(repetitions):
        counts = data.shards(dataset, n, per_node=2, seed=seed).label_counts
        start = time.perf_counter()
        trace = topologies.greedy_swap_trace(counts, CLIQUE_SIZE, steps=STEPS, seed=seed)[1]
        seconds.append(time.perf_counter() - start)
        skews.append(trace.mean(axis=1))
    return np.array(skews), np.array(seconds)


def _labels(name: str, root: str | None) -> np.ndarray:
    """Return the labels of a dataset's training examples."""
    if name == "CIFAR-10":
        return np.repeat(np.arange(CLASSES), 5000)
    dataset = data.digits() if root is None else data.mnist(root)
    return dataset.labels.numpy()[dataset.train]


def _compute_fig17(setting: Setting) -> Data:
    descents = {name: np.round(skews, 6) for name, (skews, _) in _descents(setting).items()}
    return {
        name: {RANDOM: s[:, 0].tolist(), GREEDY: s[:, -1].tolist()} for name, s in descents.items()
    }


def _compute_fig18(setting: Setting) -> Data:
    return {
        name: {"skew": np.round(skews, 6).tolist(), "seconds": np.round(seconds, 6).tolist()}
        for name, (skews, seconds) in _descents(setting).items()
    }


def _draw_fig17(value: Data) -> Picture:
    return histogram(
        {name: {label: np.array(v) for label, v in arms.items()} for name, arms in value.items()}
    )


def _claims_fig17(value: Data) -> list[Claim]:
    claims = []
    for name, arms in value.items():
        random, greedy = (np.array(arms[label]) for label in (RANDOM, GREEDY))
        claims += [
            judge(
                f"{name}: the skew of Greedy-Swap's cliques is close to 0 in a majority of cases",
                f"share of repetitions with a mean skew below {LOW:g}",
                greedy < LOW,
                at_least(
                    0.5, f"a majority; {LOW:g} is a twentieth of the largest possible skew, 2"
                ),
            ),
            judge(
                f"{name}: Greedy-Swap's cliques have a significantly lower skew than random ones",
                "share of Greedy-Swap's repetitions below the lowest skew of random cliques",
                float((greedy < random.min()).mean()),
                exactly(1, "the two histograms do not overlap"),
            ),
        ]
    return claims


def _claims_fig18(value: Data) -> list[Claim]:
    skews = {name: np.array(panel["skew"]) for name, panel in value.items()}
    claims = [
        claim
        for name in value
        for claim in _claims_of_descent(name, skews[name], value[name]["seconds"])
    ]
    if "MNIST" in skews:
        claims += _claims_of_imbalance(skews["MNIST"], skews["CIFAR-10"])
    return claims


def _claims_of_descent(name: str, skews: np.ndarray, seconds: Sequence[float]) -> list[Claim]:
    return [
        judge(
            f"{name}: the low skew is reached in less than 400 steps",
            "decrease of the mean skew in 400 steps, as a share of that in 1,000",
            _fallen(skews)[:, 400],
            at_least(0.95, "the remaining twentieth is not visible in the figure"),
        ),
        judge(
            f"{name}: no swap raises the sum of skews",
            "steps in which the mean skew rises, in all repetitions",
            (np.diff(skews, axis=1) > 0).sum(),
            exactly(0, "only swaps that lower it are accepted (figure 4)"),
        ),
        judge(
            f"{name}: 1,000 steps are fast",
            "seconds, single repetitions",
            seconds,
            at_most(6, "the authors' time, in Python 3.7 on a laptop from 2020"),
            paper="< 6 s",
        ),
    ]


def _fallen(skews: np.ndarray) -> np.ndarray:
    """Return decreases of the skew as shares of the total, (R, steps + 1); 1 without a decrease."""
    total = skews[:, :1] - skews[:, -1:]
    return np.divide(skews[:, :1] - skews, total, out=np.ones_like(skews), where=total != 0)


def _claims_of_imbalance(mnist: np.ndarray, cifar: np.ndarray) -> list[Claim]:
    until = [(_fallen(skews) >= 0.95).argmax(axis=1) for skews in (mnist, cifar)]
    return [
        judge(
            "Class imbalance (MNIST) makes cliques of low skew harder to find",
            "final mean skew, MNIST minus CIFAR-10",
            mnist[:, -1] - cifar[:, -1],
            at_least(0, "higher"),
        ),
        judge(
            "Class imbalance (MNIST) makes the construction slower",
            "steps until 95 % of the decrease, MNIST minus CIFAR-10",
            until[0] - until[1],
            at_least(0, "later"),
        ),
    ]


def _differences_of_descent(setting: Setting) -> list[str]:
    smoke = setting.scale == "smoke"
    notes = DECLARED["notes"]
    differences = [notes["labels"], notes["starts"], notes["known"]]
    if smoke:
        differences.append("10 repetitions instead of 100, with 20 nodes instead of 100")
    if smoke and "mnist" in setting.datasets:
        differences.append("scikit-learn's digits instead of MNIST")
    elif _mnist_root(setting) is None:
        differences.append("without MNIST, which is not available or not selected")
    return differences


FIG17 = DECLARED.figure(
    "fig17",
    compute=lambda setting, store: _compute_fig17(setting),
    draw=_draw_fig17,
    claims=_claims_fig17,
    differences=_differences_of_descent,
)


FIG18 = DECLARED.figure(
    "fig18",
    compute=lambda setting, store: _compute_fig18(setting),
    draw=lambda value: descent({name: np.array(panel["skew"]) for name, panel in value.items()}),
    claims=_claims_fig18,
    differences=_differences_of_descent,
)
