"""Settings of D-Cliques' experiments (section IV-A) at the three scales."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..kit.setting import Setting

__all__ = ["INIT", "RECEIVED", "STEPS", "TERMS", "USUAL", "Problem", "mnist", "problems_at_hand"]


EPOCHS = "100 epochs (the paper does not say how many)"


@dataclass(frozen=True)
class Problem:
    """One dataset with its model, nodes and step: everything that the arms of a figure share.

    Parameters
    ----------
    name
        ``"MNIST"`` or ``"CIFAR-10"``, the paper's problem that it stands for.
    dataset
        Arguments of the dataset's reader, with its name.
    model
        The model's name.
    n, clique_size
        Nodes, and members of a clique.
    lr, batch_size, momentum
        Of every arm, the momentum where the figure says so.
    rounds, every
        Of every arm.
    options
        More keys of the tables of runs, by table, such as ``{"evaluation": {"examples": 150}}``.
    differences
        From the paper's setting, and choices where it says nothing, one sentence each.
    """

    name: str
    dataset: Mapping[str, Any]
    model: str
    n: int
    clique_size: int
    lr: float
    batch_size: int
    momentum: float
    rounds: int
    every: int
    options: Mapping[str, Mapping[str, Any]]
    differences: tuple[str, ...] = ()


def mnist(setting: Setting, n: int) -> Problem:
    """Return logistic regression on MNIST with 100 or 1,000 nodes; digits at scale ``smoke``."""
    if setting.scale == "smoke":
        return _digits("MNIST", "logistic_regression", n)
    dataset = {"name": "mnist", "root": setting.root_of("mnist")}
    per_epoch = 4  # 500 examples a node in batches of 128, or 50 in batches of 13
    every = per_epoch if n == 100 else 4 * per_epoch
    batch = 128 if n == 100 else 13
    seldom = () if n == 100 else ("evaluated every 4 epochs",)
    differences = (EPOCHS, *seldom)
    return Problem(
        "MNIST",
        dataset,
        "logistic_regression",
        n,
        10,
        0.1,
        batch,
        0.0,
        100 * per_epoch,
        every,
        {},
        differences,
    )


def cifar(setting: Setting, n: int) -> Problem:
    """Return GN-LeNet on CIFAR-10 with 100 or 1,000 nodes; digits at scale ``smoke``."""
    if setting.scale == "smoke":
        return _digits("CIFAR-10", "gn_lenet", n)
    if setting.scale == "quick":
        return _quick_cifar(setting, n)
    dataset = {"name": "cifar10", "root": setting.root_of("cifar10")}
    batch = 20 if n == 100 else 2
    return Problem(
        "CIFAR-10", dataset, "gn_lenet", n, 10, 0.002, batch, 0.9, 100 * 25, 25, {}, (EPOCHS,)
    )


QUICK_DIFFERENCES = (
    "made for a subset of 5,085 of the 50,000 training images and 1,017 of the 10,000 test "
    "images: about 51 images a node instead of 500 (a folder with all of CIFAR-10 is used "
    "whole: then the 330 steps are 3.3 epochs)",
    (
        "images of 16 x 16 pixels, means over 2 x 2 of the original ones, so that GN-LeNet has "
        "80,234 parameters"
    ),
    "minibatches of 5 instead of 20, or of 2 with 1,000 nodes; gradients are noisier",
    "330 steps, on the subset 30 epochs of 11; the paper has 25 steps an epoch",
    "accuracy on 150 random test images, the same ones in all evaluations of a seed; their "
    "sampling error widens the distance between best and worst node, of all arms",
)
"""How CIFAR-10 at scale ``quick`` differs from the paper's setting."""


def _quick_cifar(setting: Setting, n: int) -> Problem:
    dataset = {
        "name": "cifar10",
        "root": setting.root_of("cifar10"),
        "verify": False,
        "downscale": 2,
    }
    options = {"evaluation": {"examples": 150}}
    if n == 100:
        return Problem(
            "CIFAR-10",
            dataset,
            "gn_lenet",
            100,
            10,
            0.002,
            5,
            0.9,
            330,
            33,
            options,
            QUICK_DIFFERENCES,
        )
    scale = (
        "100 nodes in 20 cliques of 5 (the fractal scheme groups 5) instead of 1,000 nodes in 100 "
        "cliques of 10; with so few cliques the small world has more edges than one edge between "
        "any two cliques, and is not judged"
    )
    return Problem(
        "CIFAR-10",
        dataset,
        "gn_lenet",
        100,
        5,
        0.002,
        5,
        0.9,
        330,
        33,
        options,
        (*QUICK_DIFFERENCES, scale),
    )


def _digits(name: str, model: str, n: int) -> Problem:
    differences = (
        f"scikit-learn's 1,797 digits instead of {name}",
        (
            f"{20 if n == 100 else 40} nodes instead of {n:,}, 4 steps with minibatches "
            f"of 8: enough "
            "to see that all works"
        ),
    )
    dataset = (
        {"name": "digits"} if model == "logistic_regression" else {"name": "digits", "enlarge": 2}
    )
    size, lr, momentum = (
        (20 if n == 100 else 40),
        (0.5 if model == "logistic_regression" else 0.01),
        0.9,
    )
    chosen = {"executor": "batched", "chunk": size}  # to try others would take longer than any
    options = {"evaluation": {"examples": 10}, "compute": chosen}
    return Problem(name, dataset, model, size, 10, lr, 8, momentum, 4, 2, options, differences)


def problems_at_hand(setting: Setting, n: int = 100, *only: str) -> list[Problem]:
    """Return the problems whose data are at hand, or of these only some."""
    known = {"mnist": mnist, "cifar10": cifar}
    return [
        known[name](setting, n)
        for name in known
        if name in setting.datasets and name in (only or known)
    ]


INIT = "all nodes start from one model (the paper does not say)"


USUAL = (
    "the paper does not say with what: with Clique Averaging, and on CIFAR-10 with "
    "momentum, as in figure 8"
)


STEPS = "10 steps of Greedy-Swap a node, at least 1,000, as the paper's 1,000 for 100 nodes"


RECEIVED = (
    "with Clique Averaging a node averages the gradients of those members of its "
    "clique that it still hears"
)


TERMS = (
    "The learning phase goes from the first evaluation after training began to the one at which "
    "the complete graph (in figures 11 and 12, where it is not, D-Cliques) first has 99 % of its "
    "final accuracy.",
    (
        "A mean accuracy is that of all nodes' models on the test images, averaged over the "
        "evaluations in these epochs."
    ),
    "Points are percentage points of accuracy. “Either way”: the size of a difference, whichever "
    "arm is ahead, in each seed; the mean of these sizes is judged.",
    "Final: the mean over the last tenth of the epochs. “Epochs to X %” in the tables: X is 95 % "
    "of the best arm's final accuracy, rounded down.",
    "“Epochs to 97 % of the complete graph's final accuracy, or to that of the faster arm "
    "half-way”: the level is the lower of these two; who never reaches it is counted with the "
    "whole run.",
    "Another implementation: spectral gaps were computed once more, independently of this library; "
    "the authors' own simulator was run once, with one seed.",
)
"""What words in the claims mean."""
