"""Labels of the arms in D-Cliques' figures, shared by runs, pictures and claims."""

FULLY, CLIQUES, CA, RANDOM_CLIQUES = (
    "fully-connected",
    "D-Cliques",
    "D-Cliques + CA",
    "random cliques + CA",
)
RANDOM_LABEL, EXPONENTIAL_LABEL, ALL = "random graph", "exponential graph", "all nodes connected"
RANDOM_MOMENTUM = f"{RANDOM_LABEL}, momentum"
INTER = {
    "fully-connected": "fully_connected",
    "small-world": "small_world",
    "fractal": "fractal",
    "ring": "ring",
}
"""Ways to join cliques, by label."""

JOINED_CLIQUES, SMALL_WORLD_CLIQUES = "fully connected cliques", "small world of cliques"
FRACTAL_CLIQUES, RING_OF_CLIQUES = "fractal of cliques", "ring of cliques"
INTER_CLIQUES = dict(
    zip(
        (JOINED_CLIQUES, SMALL_WORLD_CLIQUES, FRACTAL_CLIQUES, RING_OF_CLIQUES),
        INTER.values(),
        strict=True,
    )
)
"""Ways to join cliques, by label in figures with other kinds of graphs."""

TWO_SHARDS = "two shards a node"
"""Title under which the data of a panel of figure 1 are stored; "two shards per node" is shown."""
