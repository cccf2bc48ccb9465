"""What the numerical helpers refuse."""

import numpy as np
import pytest

from tests.refusals import named, refused
from topofl import mixing, topologies
from topofl._linalg import spectral
from topofl._linalg.distributions import simplex_projection
from topofl.topology import TopologyError

ROWS = [
    (
        ValueError,
        "`values` must be finite, got nan at (0, 1)",
        lambda: simplex_projection(np.array([[0.0, np.nan]])),
    ),
    (
        ValueError,
        "`where` must be true for at least one entry of every row, but is for none of row 1",
        lambda: simplex_projection(np.zeros((2, 2)), np.array([[True, False], [False, False]])),
        lambda: simplex_projection(np.zeros((2, 2)), np.eye(2, dtype=bool)),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)


def test_where_nothing_decides_the_error_says_what_to_do(monkeypatch):
    for limit in ("DENSE_LIMIT", "SPECTRUM_LIMIT"):
        monkeypatch.setattr(spectral, limit, 50)
    order = np.random.default_rng(0).permutation(400)
    cycle = np.argsort(order)[(order + 1) % 400]  # a permutation: all moduli are 1
    turn = mixing.from_weights(np.eye(400)[cycle])
    remedy = ("slem of from_weights(n=400): ", " use metrics.measured_contraction")
    refused(TopologyError, remedy, lambda: turn.slem)
    of_all = "up to n=50 unless the matrix is circulant, got n=51 in one strongly con"
    stars = [mixing.metropolis_hastings(topologies.star(n)) for n in (51, 50)]
    refused(ValueError, of_all, lambda: stars[0].eigenvalues, lambda: stars[1].eigenvalues)
