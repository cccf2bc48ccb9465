"""Compare the predicted deviation of nodes from their mean model with that of training.

``python -m analysis.deviation --out analysis/results/deviation`` trains logistic regression by
D-SGD with full gradients on digits (60 nodes, two shards each, three seeds of partition, graph and
model, float64), for 10 rounds at the rates 0.05 and 0.5, and prints ratios of measured over
predicted squared deviation. Predictions see the gradients at the common initial model only.

Replays tell why a prediction fails. They repeat the training with gradients that are frozen at
their initial values, or linear in the models, by the mean Hessian of all nodes, by this restricted
to the span of differences of initial gradients, or by each node's own, all at the initial model.
Two factors of the ratio to H_10 need no model at all: "size" is the sum of ``||(W^k - J) G||^2``
over the gradients G that training had, over the same with initial gradients, and "alignment" is the
squared deviation over the former sum.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from topofl import Table, Topology, data, metrics, mixing, topologies
from topofl.data import Partition

from .program import parser_of, write

ROUNDS = 10
"""Rounds of training, and hops of predictions."""

RATES = (0.05, 0.5)
"""Learning rates."""

PRESETS = {"full": (60, 10, 3), "smoke": (12, 4, 1)}
"""Nodes, nodes in a clique, and seeds, by preset."""

Gradients = Callable[[np.ndarray], np.ndarray]
"""Gradients (n, d) at models (n, d)."""


def graphs_of(clients: Partition, clique_size: int, seed: int) -> dict[str, mixing.MixingMatrix]:
    """Return the weights of D-SGD on each graph."""
    n = clients.n
    graphs: dict[str, Topology] = {
        "ring": topologies.ring(n),
        "torus": topologies.torus(n),
        "path": topologies.path(n),
        "regular": topologies.random_regular(n, 4, seed=seed),
        "exponential": topologies.exponential(n),
        "designed": topologies.designed(clients, degree=6, seed=seed),
        "D-Cliques": topologies.dcliques(clients, clique_size=clique_size, inter="ring", seed=seed),
        "star": topologies.star(n),
    }
    weights = {name: mixing.metropolis_or_uniform(graph) for name, graph in graphs.items()}
    return weights | {"isolated": mixing.from_weights(np.eye(n), name="isolated")}


@dataclass(frozen=True)
class Problem:
    """Logistic regression of all nodes, and what is known at their common initial model.

    Parameters
    ----------
    inputs, targets
        For each node, (examples, features + 1) inputs with a 1, and (examples, classes) one-hot
        labels.
    initial
        (features + 1, classes) parameters.
    """

    inputs: Sequence[np.ndarray]
    targets: Sequence[np.ndarray]
    initial: np.ndarray

    def trained(self, models: np.ndarray) -> np.ndarray:
        """Return the gradients of the nodes at their models."""
        rows = models.reshape(-1, *self.initial.shape)
        nodes = zip(self.inputs, self.targets, rows, strict=True)
        found = [x.T @ (softmax(x @ row) - y) / len(x) for x, y, row in nodes]
        return np.reshape(found, models.shape)

    def start(self) -> np.ndarray:
        """Return the initial model of all nodes, (n, d)."""
        return np.tile(self.initial.ravel(), (len(self.inputs), 1))

    def hessians(self) -> np.ndarray:
        """Return the (n, d, d) Hessians of the nodes at the initial model."""
        found = []
        for x in self.inputs:
            shares = softmax(x @ self.initial)
            of_classes = shares[:, :, None] * (np.eye(shares.shape[1]) - shares[:, None, :])
            both = np.einsum("ki,kj,kab->iajb", x, x, of_classes / len(x), optimize=True)
            found.append(both.reshape(self.initial.size, -1))
        return np.stack(found)


class Linear(nn.Module):
    """The model of a :class:`Problem` for the functions of topofl."""

    def __init__(self, initial: np.ndarray) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.from_numpy(initial))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of images."""
        return functional.pad(images.flatten(1), (0, 1), value=1.0) @ self.weights


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities of classes, by rows."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def problem_of(clients: Partition, seed: int) -> Problem:
    """Return the problem of digits with an initial model drawn as that of ``torch.nn.Linear``."""
    images = clients.dataset.examples().flatten(1).double().numpy()
    labels = clients.dataset.labels.numpy()
    inputs = [np.insert(images[own], images.shape[1], 1.0, axis=1) for own in clients.train]
    targets = [np.eye(labels.max() + 1)[labels[own]] for own in clients.train]
    width = images.shape[1] ** -0.5
    drawn = np.random.default_rng(seed).uniform(
        -width, width, (inputs[0].shape[1], labels.max() + 1)
    )
    return Problem(inputs, targets, drawn)


def centered(values: np.ndarray) -> np.ndarray:
    """Return values (n, d) minus their mean over nodes."""
    return values - values.mean(axis=0)


def mean_square(values: np.ndarray) -> float:
    """Return the mean over nodes of the squared distance of values from their mean."""
    return float(np.square(centered(values)).sum() / len(values))


def train(
    weights: mixing.MixingMatrix, start: np.ndarray, gradients: Gradients, lr: float
) -> tuple[float, float]:
    """Return squared deviation and the incoherent sum of the gradients, both per squared rate."""
    models, parts = start, []
    for _ in range(ROUNDS):
        found = gradients(models)
        models = weights @ (models - lr * found)
        parts = [weights @ part for part in (*parts, centered(found))]
    return mean_square(models) / lr**2, sum(map(mean_square, parts))


def bound_of(
    weights: mixing.MixingMatrix, apart: np.ndarray, within: np.ndarray, lr: float
) -> float:
    """Return an upper bound of the squared deviation on quadratics, per squared rate.

    It discounts hops by the least curvature in the span of the differences of gradients, mu: ``(1 -
    rho^t) / (lr mu) sum_k rho^(k-1) a_k^2 / n`` with ``rho = 1 - lr mu`` and ``a_k^2 = ||(W^k - J)
    G||^2``. For mu = 0, it is t times H_t.

    Raises
    ------
    ValueError
        If the largest curvature exceeds 1 / lr, where the bound need not hold.
    """
    curvatures = np.linalg.eigvalsh(within)[-np.linalg.matrix_rank(apart) :]
    if lr * curvatures[-1] > 1:
        raise ValueError(f"`lr` must be at most {1 / curvatures[-1]:.3g}, got {lr:g}")
    rho, part, total = 1 - lr * curvatures[0], apart, 0.0
    for k in range(ROUNDS):
        part = weights @ part
        total += rho**k * mean_square(part)
    return (1 - rho**ROUNDS) / (1 - rho) * total


def in_span(hessian: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """Return a Hessian (d, d) restricted to the span of the rows of differences (n, d)."""
    cutoff = max(apart.shape) * np.finfo(apart.dtype).eps  # that of matrix_rank
    onto_span = np.linalg.pinv(apart, rtol=cutoff) @ apart
    return onto_span @ hessian @ onto_span


def replays_of(
    initial: np.ndarray, start: np.ndarray, hessians: np.ndarray, within: np.ndarray
) -> dict[str, Gradients]:
    """Return gradients that are frozen at the start, or linear in the models."""
    mean = hessians.mean(axis=0)

    def by_own(models: np.ndarray) -> np.ndarray:
        return initial + np.einsum("ij,ijk->ik", models - start, hessians, optimize=True)

    return {
        "frozen": lambda models: initial,
        "mean Hessian": lambda models: initial + (models - start) @ mean,
        "in the span": lambda models: initial + (models - start) @ within,
        "own Hessians": by_own,
    }


def measure(n: int, clique_size: int, seed: int) -> list[dict[str, Any]]:
    """Return one row per graph and rate: ratios of measured to predicted squared deviation."""
    clients = data.shards(data.digits(), n=n, per_node=2, seed=seed)
    problem = problem_of(clients, seed)
    start, hessians = problem.start(), problem.hessians()
    initial = problem.trained(start)
    apart = centered(initial)
    within = in_span(hessians.mean(axis=0), apart)
    replays = replays_of(initial, start, hessians, within)
    along = partial(metrics.curvature, clients, model=Linear(problem.initial))
    statistics = metrics.GradientStatistics(initial, mean_square(initial), 0.0, 1, 2)
    curvature = along(statistics)
    known = {"statistics": statistics, "hops": ROUNDS}
    rows = []
    for name, weights in graphs_of(clients, clique_size, seed).items():
        predicted = partial(metrics.predicted_deviation, weights, clients, **known)
        labels, both = (predicted(by=by).value for by in ("labels", "labels+residual"))
        left = np.linalg.matrix_power(weights.weights.toarray(), ROUNDS) @ apart
        first = train(weights, start, replays["frozen"], 1.0)[1]  # H_10 of the initial gradients
        for lr in RATES:
            measured, sizes = train(weights, start, problem.trained, lr)
            discounted = predicted(by="labels+residual", lr=lr, curvature=curvature).value
            replayed = {of: train(weights, start, one, lr)[0] for of, one in replays.items()}
            rows.append({
                "graph": name, "lr": lr, "seed": seed,
                "curvature": curvature, "curvature left": along(left),
                "H_10": first / labels, "H_10 with residual": first / both,
                "by H_10": measured / both, "discounted": measured / discounted,
                "size": sizes / first, "alignment": measured / sizes,
                **{of: measured / deviation for of, deviation in replayed.items()},
                "over the bound": replayed["in the span"] / bound_of(weights, apart, within, lr),
                "over 10 H_10": replayed["in the span"] / (ROUNDS * first),
            })  # fmt: skip
    return rows


SHOWN = {
    "gradients of the start": ("H_10", "H_10 with residual"),
    "training": (
        "by H_10",
        "discounted",
        "frozen",
        "mean Hessian",
        "in the span",
        "own Hessians",
    ),
    "why": ("size", "alignment", "curvature left"),
    "bounds": ("over the bound", "over 10 H_10"),
}
"""Columns of each table."""


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """Return tables of means over seeds, with the least and the most, as Markdown."""
    names, parts = list(dict.fromkeys(row["graph"] for row in rows)), []
    for title, columns in SHOWN.items():
        for lr in RATES[:1] if title == "gradients of the start" else RATES:
            cells = [(name, *(_cell(rows, name, lr, one) for one in columns)) for name in names]
            rate = "" if title == "gradients of the start" else f", rate {lr:g}"
            table = Table(("graph", *columns), tuple(cells)).to_markdown()
            parts.append(f"## {title.capitalize()}{rate}\n\n{table}")
    return "\n\n".join(parts)


def _cell(rows: Sequence[dict[str, Any]], name: str, lr: float, column: str) -> str:
    found = [row[column] for row in rows if (row["graph"], row["lr"]) == (name, lr)]
    return f"{np.mean(found):.2f} ({min(found):.2f} to {max(found):.2f})"


_ABOUT = """\
# Deviation, predicted and measured

`python -m analysis.deviation --out analysis/results/deviation` writes this page: squared deviation
of nodes from their mean model after 10 rounds of D-SGD with full gradients, over what is predicted
from the gradients at the start; means over three seeds, with the least and the most. 1 is perfect.

- **H_10**, **H_10 with residual**: of the initial gradients themselves, over `predicted_deviation`
  from label shares without, and with, the variance that they do not explain.
- **by H_10**: training over the latter. **discounted**: over the prediction, also with residual,
  from the rate and the curvature along the initial gradients ({curvature}).
- **frozen**, **mean Hessian**, **own Hessians**: training over its replays with initial gradients,
  or with gradients that are linear in the model by the Hessian of all nodes or of each node.
- **in the span**: over the replay with P A P, where A is the mean Hessian and P projects onto the
  span of differences of initial gradients. It needs one product of A per node and neglects what A
  turns out of the span, so it differs from **mean Hessian**.
- **size** times **alignment** is training over H_10 of the initial gradients: how much smaller
  gradients became, and how much longer, squared, their sum is than if directions were unrelated.
- **curvature left**: by the mean Hessian, along what 10 exchanges leave of the initial gradients.
- **over the bound**: the replay in the span over its upper bound with the least curvature there;
  **over 10 H_10**: over the bound without discount. At most 1.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print tables as Markdown."""
    options = parser_of(
        "deviation",
        __doc__,
        preset=("full", "size of the cases", PRESETS),
        out=(Path, "folder for deviation.md and deviation.json"),
    ).parse_args(argv)
    n, clique_size, seeds = PRESETS[options.preset]
    rows = []
    for seed in range(seeds):
        rows += measure(n, clique_size, seed)
        print(f"seed {seed}: done", file=sys.stderr)
    found = dict.fromkeys(f"{row['curvature']:.2f}" for row in rows)
    text = f"{_ABOUT.format(curvature=', '.join(found))}\n{tables(rows)}\n"
    print(text)
    if options.out is not None:
        write(options.out, deviation=text)
        write(options.out, deviation=rows)


if __name__ == "__main__":
    main()
