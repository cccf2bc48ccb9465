"""Figures and claims of the papers, recomputed: compute(...) -> data, draw(data) -> figure, claims(data) -> verdicts."""
