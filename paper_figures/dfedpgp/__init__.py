"""DFedPGP (Liu et al. 2024): its tables and figures, and its claims about them."""

from ..kit.paper import Paper
from ..kit.personalization.settings import TERMS
from .figures import FIGURES
from .settings import SEEDS

__all__ = ["PAPER"]

PAPER = Paper(
    "dfedpgp",
    "Decentralized Directed Collaboration for Personalized Federated Learning",
    "Liu et al., DFedPGP, CVPR 2024",
    FIGURES,
    TERMS,
    SEEDS,
    absent={
        "dfedpgp-fig01": "a drawing of the method, without data: topofl.algorithms.dfedpgp",
        "dfedpgp-appendix-partitions": "drawings of the partitions, appendix C.2: without results",
        "dfedpgp-appendix-accuracy": (
            "accuracies on Tiny-ImageNet, appendix C.3: our copy is damaged, its numbers and "
            "settings cannot be read"
        ),
        "dfedpgp-appendix-rounds": (
            "rounds and speed-ups on Tiny-ImageNet, appendix C.3: our copy is damaged, its numbers "
            "cannot be read"
        ),
    },
)
