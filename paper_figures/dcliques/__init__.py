"""D-Cliques (Bellet, Kermarrec and Lavoie 2022): its figures, and its claims about them."""

from .figures import PAPER

__all__ = ["PAPER"]
