"""Methods and splits of PFedDST's figures, and choices that the paper leaves open."""

from collections.abc import Mapping

from ..kit.personalization.settings import COMMON as COMPARISON_COMMON

SEEDS: Mapping[str, int] = {"smoke": 1, "quick": 3, "paper": 3}
"""Default number of seeds by scale; the paper does not state its number."""


OURS = "PFedDST"


LABELS = ("FedAvg", "FedPer", "FedBABU", "DFedAvgM", "Dis-PFL", "DFedPGP", OURS)


CIFAR_10, CIFAR_100, MNIST = TITLES = "CIFAR-10, c=2", "CIFAR-100, c=5", "MNIST, Dir(0.3)"


COMMON = (
    *COMPARISON_COMMON,
    "PFedDST: the distance of heads is 1 - cosine, so that similar ones are preferred, as all of "
    "the text but its equation says; extractors are averaged with one's own; it is tested after "
    "training, with which its rounds end",
    "PFedDST's score: the paper gives no number for alpha, lambda and c, and no units. Losses and "
    "distances of heads are scaled to run from 0 to 1 over a client's peers, as losses, which "
    "differ by whole units, would otherwise decide alone against cosines, which differ by "
    "hundredths; alpha is 1, lambda 0.3, and c 1, the smallest with which no score is negative. "
    "pfeddst-sensitivity shows others",
    "PFedDST's head has the learning rate of the body, since the paper has one rate; heads of "
    "other methods may have another",
)
"""Choices at all scales where the paper is silent or differs."""


COUNTERFACTUAL = (
    "the peers that the figure shows, random ones and those with the most similar heads, are "
    "picked only to be looked at: the training is PFedDST's, whose clients average with the peers "
    "of highest score, in which losses and recency count, too. It shows whether heads mark useful "
    "models, not what training with either choice would give; the paper may have trained with "
    "each, it does not say"
)
