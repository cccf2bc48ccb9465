"""The tables of a small run."""

import tomllib

TEXT = """
[data]
name = "digits"
n = 10
seed = 1

[topology]
name = "dcliques"
inter = "ring"
clique_size = 5
seed = 2

[algorithm]
name = "dsgd"
lr = 0.5
batch_size = 8

[run]
rounds = 3
seed = 3
progress = false

[evaluation]
every = 1
"""


def tables(**changes):
    base = tomllib.loads(TEXT)
    return {name: table for name, table in (base | changes).items() if table is not None}
