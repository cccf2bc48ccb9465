"""Figures and claims of the papers, recomputed: compute(...), draw(data), claims(data)."""
