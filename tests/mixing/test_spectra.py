"""Spectra of mixing matrices: closed forms and values from papers."""

import numpy as np
import pytest

from tests.mixing.samples import path
from topofl import mixing, topologies
from topofl.topology import Topology, from_edges


@pytest.mark.parametrize("n", [4, 5, 16, 101])
def test_gaps_of_classic_graphs(n: int) -> None:
    gap = {
        "ring": 1 - max((1 + 2 * np.cos(2 * np.pi / n)) / 3, 1 / 3),
        "star": 1 / n,
        "fully_connected": 1.0,
    }
    for name, expected in gap.items():
        W = mixing.metropolis_hastings(getattr(topologies, name)(n))
        assert W.spectral_gap == pytest.approx(expected, abs=1e-10)
        assert W.spectral_gap == 1 - W.slem


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (3, 5), (4, 4), (5, 8)])
def test_spectrum_of_the_torus(rows: int, columns: int) -> None:
    W = mixing.metropolis_hastings(topologies.torus(rows * columns, rows=rows))
    a, b = np.meshgrid(np.arange(rows) / rows, np.arange(columns) / columns, indexing="ij")
    expected = (1 + 2 * np.cos(2 * np.pi * a) + 2 * np.cos(2 * np.pi * b)) / 5
    assert np.allclose(W.eigenvalues, np.sort(expected.reshape(-1))[::-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [3, 6, 25])
def test_spectrum_of_the_path(n: int) -> None:
    W = mixing.max_degree(path(n))  # I - L / 3; the path's Laplacian has 2 - 2 cos(pi k / n)
    assert np.allclose(
        W.eigenvalues, (1 + 2 * np.cos(np.pi * np.arange(n) / n)) / 3, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("graph", "slem", "tolerance"),
    [
        (topologies.ring(100), 0.998684, 5e-7),
        (topologies.grid(100), 0.979470, 5e-7),
        (topologies.exponential(100), 11 / 15, 1e-10),
        (topologies.star(100), 0.99, 1e-10),
        (topologies.fully_connected(100), 0.0, 1e-10),
        (topologies.exponential(1000), 17 / 21, 1e-10),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_slem_of_the_papers_graphs(graph: Topology, slem: float, tolerance: float) -> None:
    assert mixing.metropolis_hastings(graph).slem == pytest.approx(slem, abs=tolerance)


@pytest.mark.parametrize("graph", [topologies.ring(16), topologies.star(7), topologies.grid(12)])
def test_measured_contraction_is_one_minus_the_gap(graph: Topology) -> None:
    """Declared against measured: disagreement shrinks by SLEM per exchange, in the long run."""
    W = mixing.lazy(mixing.metropolis_hastings(graph))
    x = np.random.default_rng(0).standard_normal(graph.n)
    norms = []
    for _ in range(400):
        x = W @ x
        x -= x.mean()
        norms.append(np.linalg.norm(x))
        x /= norms[-1]
    assert norms[-1] == pytest.approx(1 - W.spectral_gap, abs=1e-4)


def test_gap_is_zero_without_connection_or_with_a_period() -> None:
    assert mixing.metropolis_hastings(from_edges([(0, 1), (2, 3)], 4)).spectral_gap == 0
    shift = mixing.from_weights(
        np.eye(5)[:, [1, 2, 3, 4, 0]]
    )  # each takes over another's model: connected, period 5
    assert shift.support().is_connected
    assert shift.spectral_gap == pytest.approx(0, abs=1e-12)
    assert mixing.metropolis_hastings(from_edges([], 1)).spectral_gap == 1


def test_directed_spectra_are_complex_and_by_modulus() -> None:
    values = mixing.uniform(topologies.exponential(12, directed=True)).eigenvalues
    assert np.iscomplexobj(values)
    assert (np.diff(np.abs(values)) <= 1e-12).all()
