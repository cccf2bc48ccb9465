"""Spectra of stochastic matrices and Laplacians, dense and sparse."""

from topofl._linalg.spectral import limits as limits
from topofl._linalg.spectral.extremes import algebraic_connectivity, sigma, smallest
from topofl._linalg.spectral.full_spectrum import circulant_spectrum, eigenvalues
from topofl._linalg.spectral.second import Blocks, over_classes, second_modulus
from topofl._linalg.spectral.solution import PROVABLE, NoConvergence, Solution

__all__ = [
    "PROVABLE",
    "Blocks",
    "NoConvergence",
    "Solution",
    "algebraic_connectivity",
    "circulant_spectrum",
    "eigenvalues",
    "over_classes",
    "second_modulus",
    "sigma",
    "smallest",
]
