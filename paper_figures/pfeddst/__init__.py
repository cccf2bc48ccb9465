"""PFedDST (Fan et al.): its figures and table, and its claims about them."""

from .figures import PAPER

__all__ = ["PAPER"]
