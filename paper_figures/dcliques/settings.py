"""Settings of D-Cliques' experiments (section IV-A) at the three scales."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..kit.scale import SUBSET
from ..kit.setting import Setting

EPOCHS = "100 epochs (the paper does not say how many)"


@dataclass(frozen=True)
class Problem:
    """A dataset, model and optimizer settings: everything that the arms of a figure share.

    Parameters
    ----------
    name
        The paper's problem, ``"MNIST"`` or ``"CIFAR-10"``.
    dataset
        Name and arguments of the dataset's reader.
    model
        Name of the model.
    n, clique_size
        Number of nodes, and size of a clique.
    lr, batch_size, momentum
        Optimizer settings of every arm; momentum is used where the figure says so.
    rounds, every
        Number of rounds, and rounds between evaluations.
    options
        Additional keys of the runs' tables, by table, for example
        ``{"evaluation": {"examples": 150}}``.
    differences
        Differences from the paper's setting, and choices that it leaves open, one sentence each.
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
    steps_per_epoch = 4  # 500 examples per node in batches of 128, or 50 in batches of 13
    is_small = n == 100
    return Problem(
        name="MNIST",
        dataset={"name": "mnist", "root": setting.root_of("mnist")},
        model="logistic_regression",
        n=n,
        clique_size=10,
        lr=0.1,
        batch_size=128 if is_small else 13,
        momentum=0.0,
        rounds=100 * steps_per_epoch,
        every=steps_per_epoch if is_small else 4 * steps_per_epoch,
        options={},
        differences=(EPOCHS,) if is_small else (EPOCHS, "evaluated every 4 epochs"),
    )


def cifar(setting: Setting, n: int) -> Problem:
    """Return GN-LeNet on CIFAR-10 with 100 or 1,000 nodes; digits at scale ``smoke``."""
    if setting.scale == "smoke":
        return _digits("CIFAR-10", "gn_lenet", n)
    if setting.scale == "quick":
        return _quick_cifar(setting, n)
    return Problem(
        name="CIFAR-10",
        dataset={"name": "cifar10", "root": setting.root_of("cifar10")},
        model="gn_lenet",
        n=n,
        clique_size=10,
        lr=0.002,
        batch_size=20 if n == 100 else 2,
        momentum=0.9,
        rounds=100 * 25,
        every=25,
        options={},
        differences=(EPOCHS,),
    )


QUICK_DIFFERENCES = (
    f"{SUBSET}: about 51 images per node instead of 500 (all of CIFAR-10 is used if available; the "
    "330 steps are then 3.3 epochs)",
    "images of 16 x 16 pixels, means over 2 x 2 original pixels, so that GN-LeNet has 80,234 "
    "parameters",
    "minibatches of 5 instead of 20 (2 with 1,000 nodes); gradients are noisier",
    "330 steps, which are 30 epochs of 11 steps on the subset; the paper has 25 steps per epoch",
    "accuracy on 150 random test images, the same in all evaluations of a seed; their sampling "
    "error increases the distance between best and worst node in all arms",
)
"""How CIFAR-10 at scale ``quick`` differs from the paper's setting."""


def _quick_cifar(setting: Setting, n: int) -> Problem:
    fewer_nodes = (
        "100 nodes in 20 cliques of 5 (the fractal scheme groups 5) instead of 1,000 nodes in 100 "
        "cliques of 10; with so few cliques the small world has more edges than one edge between "
        "any two cliques, and is not judged"
    )
    return Problem(
        name="CIFAR-10",
        dataset={
            "name": "cifar10",
            "root": setting.root_of("cifar10"),
            "verify": False,
            "downscale": 2,
        },
        model="gn_lenet",
        n=100,
        clique_size=10 if n == 100 else 5,
        lr=0.002,
        batch_size=5,
        momentum=0.9,
        rounds=330,
        every=33,
        options={"evaluation": {"examples": 150}},
        differences=QUICK_DIFFERENCES if n == 100 else (*QUICK_DIFFERENCES, fewer_nodes),
    )


def _digits(name: str, model: str, n: int) -> Problem:
    is_linear = model == "logistic_regression"
    nodes = 20 if n == 100 else 40
    compute = {"executor": "batched", "chunk": nodes}  # trying others would take longer than any
    return Problem(
        name=name,
        dataset={"name": "digits"} if is_linear else {"name": "digits", "enlarge": 2},
        model=model,
        n=nodes,
        clique_size=10,
        lr=0.5 if is_linear else 0.01,
        batch_size=8,
        momentum=0.9,
        rounds=4,
        every=2,
        options={"evaluation": {"examples": 10}, "compute": compute},
        differences=(
            f"scikit-learn's 1,797 digits instead of {name}",
            f"{nodes} nodes instead of {n:,}, 4 steps with minibatches of 8: a test of the code",
        ),
    )


def problems_at_hand(setting: Setting, n: int = 100, *only: str) -> list[Problem]:
    """Return the problems whose data are available, restricted to `only` if given."""
    known = {"mnist": mnist, "cifar10": cifar}
    return [
        known[name](setting, n)
        for name in known
        if name in setting.datasets and name in (only or known)
    ]


INIT = "all nodes start from the same model (the paper does not specify this)"


USUAL = (
    "with Clique Averaging, and on CIFAR-10 with momentum, as in figure 8 (the paper does not "
    "specify this)"
)


STEPS = "10 steps of Greedy-Swap per node, at least 1,000, like the paper's 1,000 for 100 nodes"


RECEIVED = (
    "with Clique Averaging a node averages the gradients of those members of its clique to which "
    "it still has an edge"
)


TERMS = (
    "The learning phase extends from the first evaluation after the start of training to the one "
    "at which the complete graph (in figures 11 and 12, which lack it, D-Cliques) first reaches "
    "99 % of its final accuracy.",
    "A mean accuracy is that of all nodes' models on the test images, averaged over the "
    "evaluations in these epochs.",
    "Points are percentage points of accuracy. “Either way”: the size of a difference in each "
    "seed, whichever arm is ahead; the mean of these sizes is judged.",
    "Final: the mean over the last tenth of the epochs. “Epochs to X %” in the tables: X is 95 % "
    "of the best arm's final accuracy, rounded down.",
    "“Epochs to 97 % of the complete graph's final accuracy, or to the faster arm's accuracy "
    "halfway”: the lower of these two levels is used; an arm that never reaches it counts with the "
    "length of the run.",
    "Another implementation: spectral gaps were also computed independently of this library; the "
    "authors' own simulator was run once, with one seed.",
)
"""Definitions of terms in the claims."""
