"""Small histories for tests."""

import numpy as np

import topofl
from tests import problems


def run_of(algorithm, topology, **more):
    return topofl.run(
        algorithm(lr=0.1, batch_size=4),
        model=problems.linear(),
        clients=problems.equal_clients(),
        topology=topology,
        seed=0,
        **problems.options(**more),
    )


def assert_same(a, b):
    assert dict(a.meta) == dict(b.meta)
    for left, right in ((a.rounds, b.rounds), (a.evaluations, b.evaluations)):
        assert list(left) == list(right)
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])
    np.testing.assert_array_equal(a.node_loss, b.node_loss)
    np.testing.assert_array_equal(a.matrix_of_round, b.matrix_of_round)
    for left, right in zip(a.matrices, b.matrices, strict=True):
        assert left.name == right.name
        assert (left.weights != right.weights).nnz == 0


def scored(**columns):
    """Return a history whose evaluations have these columns, (E, n), after rounds 0, 1, 2, ..."""
    columns = {name: np.array(values, dtype=float) for name, values in columns.items()}
    (evaluated, n), *_ = (values.shape for values in columns.values())
    rounds, distance = max(evaluated - 1, 1), np.linspace(1, 0, evaluated)
    return topofl.History(
        {},
        {"train_loss": np.zeros(rounds), "messages": np.zeros(rounds), "bytes": np.full(rounds, 8)},
        {
            "round": np.arange(evaluated),
            "accuracy": np.zeros((evaluated, n)),
            "consensus_distance": distance,
        }
        | columns,
        np.zeros((rounds, n)),
    )


ACCURACY = [
    [0.125, 0.25, np.nan],
    [0.875, 0.75, np.nan],
    [1.0, 0.625, np.nan],
    [0.375, 0.5, np.nan],
]


VALIDATION = [[0.5, 0.0, 0.4], [0.2, 0.6, 0.4], [0.5, 0.6, 0.1], [0.4, 0.1, 0.2]]
