"""Names of the arms in the figures of D-Cliques: what their runs, pictures and claims are found by."""

__all__ = [
    "ALL",
    "CA",
    "CLIQUES",
    "EXPONENTIAL_LABEL",
    "FULLY",
    "INTER",
    "RANDOM_CLIQUES",
    "RANDOM_LABEL",
    "RANDOM_MOMENTUM",
]

FULLY, CLIQUES, CA, RANDOM_CLIQUES = "fully-connected", "D-Cliques", "D-Cliques + CA", "random cliques + CA"
RANDOM_LABEL, EXPONENTIAL_LABEL, ALL = "random graph", "exponential graph", "all nodes connected"
RANDOM_MOMENTUM = f"{RANDOM_LABEL}, momentum"
INTER = {"fully-connected": "fully_connected", "small-world": "small_world", "fractal": "fractal", "ring": "ring"}
"""Ways to join cliques, by label."""
