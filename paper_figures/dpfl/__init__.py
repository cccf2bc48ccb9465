"""DPFL (Kharrat, Canini and Horvath 2025): its tables and figures, and its claims about them."""

from .figures import PAPER

__all__ = ["PAPER"]
