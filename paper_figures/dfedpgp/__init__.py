"""DFedPGP (Liu et al. 2024): its tables and figures, and its claims about them."""

from .figures import PAPER

__all__ = ["PAPER"]
