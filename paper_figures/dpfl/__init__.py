"""DPFL (Kharrat, Canini and Horvath 2025): its tables and figures, and its claims about them."""

from ..kit.paper import Paper
from .figures import FIGURES
from .settings import SEEDS, TERMS

__all__ = ["PAPER"]

PAPER = Paper(
    "dpfl",
    "Decentralized Personalized Federated Learning",
    "Kharrat, Canini and Horvath, DPFL, 2025",
    FIGURES,
    TERMS,
    SEEDS,
)
