"""D-Cliques (Bellet, Kermarrec and Lavoie 2022): its figures, and its claims about them."""

from ..kit.paper import Paper
from .figures import FIGURES
from .settings import TERMS

__all__ = ["PAPER"]

EXTENDED = "of the extended version (arXiv 2104.07365), which is not available to us"

PAPER = Paper(
    "dcliques",
    "D-Cliques: Compensating for Data Heterogeneity with Topology in Decentralized Federated "
    "Learning",
    "Bellet, Kermarrec and Lavoie, D-Cliques, SRDS 2022",
    FIGURES,
    TERMS,
    absent={
        "dcliques-fig02": "pseudocode of D-SGD: topofl.algorithms.dsgd",
        "dcliques-fig03": (
            "a drawing of a neighborhood in a grid, without data: topofl.topologies.grid"
        ),
        "dcliques-fig04": (
            "pseudocode of Greedy-Swap: topofl.topologies.dcliques, greedy_swap_trace"
        ),
        "dcliques-fig07": "pseudocode of Clique Averaging: topofl.algorithms.clique_averaging",
        "dcliques-one-class": f"nodes with one class each, section IV-H: {EXTENDED}",
        "dcliques-sizes": f"other numbers of nodes, section IV-E: {EXTENDED}",
        "dcliques-representative": (
            f"random graphs with representative neighborhoods, section IV-D: {EXTENDED}"
        ),
    },
)
