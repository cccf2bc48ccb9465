"""Mixing in place equals W @ X for every structure that the mixer recognises."""

import numpy as np
import pytest
import torch

from topofl import mixing, topologies
from topofl.engine.mixer import COLUMNS, mixer

CPU = torch.device("cpu")


def cliques(n=12):
    return topologies.dcliques(n=n, clique_size=3, inter="ring", seed=0)


MATRICES = {
    "mean": mixing.metropolis_hastings(topologies.fully_connected(12)),
    "group means": mixing.within_groups(cliques()),
    "uneven group means": mixing.within_groups(topologies.random_cliques(11, 3, seed=0)),
    "identity": mixing.from_weights(np.eye(5)),
    "sparse": mixing.metropolis_hastings(topologies.ring(40)),
    "dense": mixing.metropolis_hastings(cliques()),
    "directed": mixing.uniform(topologies.exponential(9, directed=True)),
    "not uniform": mixing.metropolis_hastings(topologies.star(7)),
}


@pytest.mark.parametrize("columns", [1, 7, COLUMNS, COLUMNS + 3])
@pytest.mark.parametrize("name", MATRICES)
def test_equals_product(name, columns):
    weights = MATRICES[name]
    values = torch.from_numpy(np.random.default_rng(0).standard_normal((weights.n, columns)))
    wanted = weights.weights.toarray() @ values.numpy()
    mixer(weights, CPU, torch.float64)(values)
    np.testing.assert_allclose(values.numpy(), wanted, atol=1e-13)


def test_a_row_stochastic_matrix_with_equal_rows_sums_is_not_mistaken_for_a_mean():
    weights = mixing.from_weights([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])
    values = torch.eye(3, dtype=torch.float64)
    mixer(weights, CPU, torch.float64)(values)
    np.testing.assert_allclose(values.numpy(), weights.weights.toarray())


def test_mixing_part_of_the_columns_leaves_the_others():
    weights = MATRICES["sparse"]
    values = torch.randn(40, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = values.clone()
    wanted[:, 2:5] = torch.from_numpy(weights.weights.toarray()) @ values[:, 2:5]
    mixer(weights, CPU, torch.float64)(values[:, 2:5])
    torch.testing.assert_close(values, wanted)
