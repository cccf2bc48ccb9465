"""PFedDST (Fan et al.): its figures and table, and its claims about them."""

from ..kit.paper import Paper
from ..kit.personalization.settings import TERMS
from .figures import FIGURES
from .settings import SEEDS

__all__ = ["PAPER"]

PAPER = Paper(
    "pfeddst",
    "PFedDST: Personalized Federated Learning with Decentralized Selection Training",
    "Fan et al., PFedDST",
    FIGURES,
    TERMS,
    SEEDS,
    absent={"pfeddst-fig01": "a drawing of the method, without data: topofl.algorithms.pfeddst"},
)
