"""Settings of DPFL's experiments (Kharrat, Canini and Horvath 2025, section 4, appendix F).

Choices that the paper leaves open, or describes in two ways, are made here once and stated in every
report.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..kit.scale import SUBSET, BaseScale
from ..kit.setting import Split


def _dirichlet(dataset: str) -> Split:
    return Split(dataset, {"partition": "dirichlet_per_class", "alpha": 0.1, "min_size": 20})


def _pathological(dataset: str) -> Split:
    return Split(dataset, {"partition": "pathological_dirichlet", "classes_per_node": 3})


SPLITS: dict[str, Split] = {
    "CIFAR-10, Dir(0.1)": _dirichlet("cifar10"),
    "CIFAR-10, Patho(3)": _pathological("cifar10"),
    "CINIC-10, Dir(0.1)": _dirichlet("cinic10"),
    "CINIC-10, Patho(3)": _pathological("cinic10"),
    "FEMNIST": Split("femnist", {"partition": "natural", "classes_per_node": 5}),
}
"""The columns of table 1 by title."""


ADDED: dict[str, Split] = {"MNIST, Dir(0.1)": _dirichlet("mnist")}
"""Columns that the paper does not have."""


@dataclass(frozen=True, kw_only=True)
class Scale(BaseScale):
    """Settings shared by all arms at one scale, in addition to those of :class:`BaseScale`.

    All clients participate in every round. `rounds` are those of DPFL and of the random graph,
    including DPFL's preprocessing. The paper counts preprocessing as two rounds, and it has the
    epochs of two, so all other methods have one round more. `epochs` (the paper's tau_train) are
    doubled in DPFL's first round (tau_init) and in fine-tuning. Methods without fine-tuning are
    tested every round.

    Parameters
    ----------
    shares
        Budgets as shares of the clients, the same in all experiments; None: no limit.
    weight_decay
        Weight decay of every method.
    first_epochs
        The values of tau_init in table 2.
    periods
        The refresh periods P of table 3.
    malicious
        Share of the clients whose labels are flipped.
    snapshots
        Rounds between pictures of a graph.
    study_every
        Rounds between tests in the study, where every model is tested on all images; None:
        `tuned_every`.
    """

    shares: tuple[float | None, ...] = (None, 0.2, 0.1, 0.05)
    weight_decay: float = 1e-3
    first_epochs: tuple[int, ...] = (1, 5, 10)
    periods: tuple[int, ...] = (1, 5, 10, 20)
    malicious: float = 0.4
    snapshots: int = 10
    study_every: int | None = None

    @property
    def budgets(self) -> tuple[int | None, ...]:
        """Largest numbers of peers, in decreasing order; None: no limit."""
        return tuple(
            None if share is None else max(1, round(share * self.clients)) for share in self.shares
        )


PAPER = Scale(
    data={
        "cifar10": {"name": "cifar10"},
        "cinic10": {"name": "cinic10"},
        "femnist": {"name": "femnist", "classes": "a-j"},
    },
    splits=tuple(SPLITS),
    model={"name": "dpfl_cnn"},
    clients=100,
    rounds=99,
    tuned_every=10,
    lr=0.01,
    batch_size=16,
    others={
        "cinic10": {"clients": 200, "rounds": 49},
        "femnist": {
            "model": {"name": "dpfl_femnist_cnn"},
            "rounds": 49,
            "lr": 0.001,
            "batch_size": 10,
            "epochs": 2,
        },
    },
    differences=(
        "“1e-3 decay” is taken as weight decay; the authors' code has 1e-4 and additionally a "
        "learning-rate decay",
        "FEMNIST has 10 classes (the letters a to j), at most 5 per client: the paper uses a file "
        "of Ditto's authors, which is not available to us",
    ),
)


QUICK = Scale(
    data={
        "cifar10": {"name": "cifar10", "verify": False},
        "mnist": {"name": "mnist", "val": 54_000},
    },
    splits=("CIFAR-10, Dir(0.1)", "CIFAR-10, Patho(3)", "MNIST, Dir(0.1)"),
    model={"name": "dpfl_cnn"},
    clients=20,
    rounds=11,
    tuned_every=3,
    lr=0.01,
    batch_size=16,
    epochs=2,
    first_epochs=(1, 2, 4),
    periods=(1, 2, 5),
    snapshots=2,
    differences=(
        f"{SUBSET}: 254 images per client instead of 500, 51 of them for validation",
        "20 clients instead of 100 or 200 and budgets of 4, 2 and 1 accordingly; 12 rounds, two of "
        "them DPFL's preprocessing, instead of 100 or 50, of 2 epochs instead of 5: a twentieth of "
        "the paper's number of passes over a client's data",
        "only CIFAR-10 of the three datasets; in table 1 and the study also MNIST with Dir(0.1), "
        "which the paper does not have: 6,000 of its training and all of its test images, 30 "
        "clients, budgets of 6, 3 and 2 (0.05 n is rounded up), DPFL's network for FEMNIST with "
        "the learning rate and minibatches of CIFAR-10, one epoch per round, 2 in the first",
        "first rounds of 1, 2 and 4 epochs instead of 1, 5 and 10; refresh periods of 1, 2 and 5 "
        "instead of 1, 5, 10 and 20; models are fine-tuned for evaluation in every third round, "
        "for 4 epochs (MNIST: 2) instead of 10",
        "weight decay of 1e-3, as at the paper's scale",
    ),
    others={
        "mnist": {
            "model": {"name": "dpfl_femnist_cnn"},
            "clients": 30,
            "epochs": 1,
            "study_every": 11,
        }
    },
)


SMOKE = Scale(
    data={"cifar10": {"name": "digits", "enlarge": 2, "test": 100, "val": 1200}},
    splits=("CIFAR-10, Dir(0.1)", "CIFAR-10, Patho(3)"),
    model={"name": "dpfl_cnn"},
    clients=6,
    rounds=3,
    tuned_every=2,
    lr=0.05,
    batch_size=16,
    shares=(None, 0.3),
    epochs=1,
    first_epochs=(1, 2),
    periods=(1, 2),
    snapshots=1,
    options={"compute": {"executor": "looped"}},  # trying both would take longer than either
    differences=(
        "497 of scikit-learn's 1,797 digits instead of CIFAR-10, 6 clients, 3 rounds: a test of "
        "the code; a budget of 0.3 n in place of 0.2, 0.1 and 0.05 n",
    ),
)


SCALES: Mapping[str, Scale] = {"smoke": SMOKE, "quick": QUICK, "paper": PAPER}


SEEDS: Mapping[str, int] = {"smoke": 1, "quick": 3, "paper": 3}
"""Default number of seeds by scale."""


DIR, PATHO = "CIFAR-10, Dir(0.1)", "CIFAR-10, Patho(3)"


COMMON = (
    "all clients participate in every round, also in methods with a server, as in the paper",
    "each client selects its best model by validation accuracy, tested after local training "
    "(FedAvg, FedProx: the server's model, which +FT then fine-tunes; PerFedAvg: after adaptation; "
    "kNN-Per: the server's model combined with nearest neighbors)",
    "clients average synchronously; in the authors' code they average one after another, so that "
    "later clients average averages",
    "methods that fine-tune (+FT, PerFedAvg) do so in some rounds only and select from fewer "
    "rounds, which favors the others; all methods train for the same number of epochs (DPFL's "
    "first round has twice as many, others one round more); PerFedAvg adapts for one epoch, APFL's "
    "mixing weights start at one half, Ditto's personal models train as long as others",
    "means are weighted by numbers of training images, excluding validation images; FEMNIST has 50 "
    "rounds, as in the appendix (section 4.1 says 100)",
    "momentum starts from zero in every round; accuracies are exact, not means over minibatches",
    "between refreshes clients keep averaging with the peers of their last choice, as the paper "
    "implies, unlike its code",
    "a budget counts other clients only; in the paper's Algorithm 2 and in its code it includes "
    "the client itself, which leaves room for one peer fewer",
    "the first graph is built after DPFL's first round, as in Algorithm 1; in the code it is built "
    "after three rounds of training",
    "images are neither normalized by channel (except for CINIC-10, as in the code), nor randomly "
    "cropped or flipped, and gradients are not clipped: for CIFAR-10 the code normalizes by the "
    "means and standard deviations of ImageNet, crops after padding by 4 pixels, flips, and clips "
    "gradients at norm 20; the paper mentions none of these",
    "the network is the one that the paper lists layer by layer, with two convolutions and three "
    "linear layers, although its text counts three and two",
    "kNN-Per and pFedGraph follow their papers: the kernel of kNN-Per is scaled by the dimension "
    "of its features, without a second softmax, and pFedGraph's models are pulled toward their "
    "average, where its code adds the similarity to the loss",
)
"""Choices at all scales where paper and code differ or are silent."""


TERMS = (
    "Accuracy: the unweighted mean over clients of their best models by validation, each tested on "
    "its client's own test images; variance: over clients, in squared percentage points. Points "
    "are percentage points.",
    "n is the number of clients. In “DPFL, 0.1 n” each client averages with at most a tenth of "
    "them, in “DPFL” without a limit.",
    "Sparsity: the share of pairs of nodes without an edge, where every node has an edge to "
    "itself. Reciprocity: the share of edges whose reverse exists.",
)
"""Definitions of terms in the claims."""


FLIPPED = (
    "malicious clients are drawn by the seed; their training and validation labels y become 9 - y, "
    "as in the code; the split, Dir(0.1), without a budget is our choice, since the paper does not "
    "specify it"
)
