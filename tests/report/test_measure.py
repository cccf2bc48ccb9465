"""Measurements agree with dense matrix powers, closed forms and spectra."""

import numpy as np
import pytest

from topofl import as_topology, metrics, mixing, topologies
from topofl._support.seeding import stream
from topofl._support.table import NotApplicable
from topofl.report.spectral import measure

DIRECTED = [(0, 1), (1, 2), (2, 0), (0, 2), (2, 3), (3, 0)]


def directed():
    adjacency = np.zeros((4, 4))
    adjacency[tuple(np.array(DIRECTED).T)] = 1
    return as_topology(adjacency, name="directed")


def start(n, seed):
    return stream(seed, "spectral_report").standard_normal(n)


PULL, PUSH = (mixing.uniform(directed(), direction=name) for name in ("pull", "push"))
BOTH = mixing.metropolis_hastings(topologies.ring(4))


@pytest.mark.parametrize("matrices", [[PULL], [PUSH], [PUSH, BOTH]], ids=["pull", "push", "mixed"])
def test_distances_agree_with_dense_matrix_powers(matrices):
    source = matrices if len(matrices) > 1 else matrices[0]
    found = measure(source, rounds=12, seed=3)["distances"]
    power, wanted = np.eye(4), []
    for t in range(13):
        wanted.append(((power @ start(4, 3)) / (power @ np.ones(4))).std())
        power = matrices[t % len(matrices)].weights.toarray() @ power
    np.testing.assert_allclose(found, np.array(wanted) / wanted[0], rtol=1e-9)


def test_contraction_of_a_ring_tends_to_its_slem():
    item = measure(topologies.ring(8), rounds=100, seed=0)
    slem = (1 + 2 * np.cos(np.pi / 4)) / 3
    assert item["contraction"] == pytest.approx(slem, rel=1e-9)
    assert item["distances"][81] / item["distances"][80] == pytest.approx(slem, rel=1e-9)


def test_exact_averaging_ends_the_simulation():
    item = measure(topologies.one_peer_exponential(16), rounds=50, seed=0)
    assert (len(item["distances"]), item["period"], item["contraction"]) == (5, 4, 0)
    assert item["distances"][-1] < 1e-14
    np.testing.assert_allclose(np.sort(item["eigenvalues"].real), [0] * 15 + [1], atol=1e-9)


def test_eigenvalues_are_of_one_matrix_or_of_the_product():
    np.testing.assert_allclose(
        measure(topologies.ring(5), rounds=1, seed=0)["eigenvalues"],
        sorted((1 + 2 * np.cos(2 * np.pi * np.arange(5) / 5)) / 3, reverse=True),
        atol=1e-12,
    )
    matrices = [mixing.uniform(directed()), mixing.metropolis_hastings(topologies.star(4))]
    found = measure(matrices, rounds=2, seed=0)["eigenvalues"]
    product = matrices[1].weights.toarray() @ matrices[0].weights.toarray()
    wanted = np.linalg.eigvals(product)
    ours, theirs = (np.sort_complex(values.astype(complex)) for values in (found, wanted))
    np.testing.assert_allclose(ours, theirs, atol=1e-15)  # numpy finds 0 up to rounding


def test_weights_are_used():
    found = measure(directed(), rounds=3, seed=0, weights=mixing.uniform)["contraction"]
    assert found == metrics.measured_contraction(mixing.uniform(directed()), rounds=3, seed=0)


def test_whole_periods_are_measured():
    graph = topologies.one_peer_exponential(100)
    found = measure(graph, rounds=10, seed=0)["contraction"]
    assert found == metrics.measured_contraction(graph, rounds=14, seed=0)


def test_missing_measurements_have_a_reason():
    sequence = measure(topologies.random_out(10, 2, seed=0), rounds=3, seed=0)
    assert "no period" in sequence["eigenvalues"].reason
    assert isinstance(sequence["contraction"], float)
    assert "up to n=1,500" in measure(topologies.ring(1501), rounds=2, seed=0)["eigenvalues"].reason
    one = measure(topologies.path(1), rounds=2, seed=0)
    assert one["distances"] == NotApplicable("a single node always agrees with itself")
    item = measure([mixing.uniform(directed()), PUSH], rounds=3, seed=0)
    assert item["contraction"] == item["distances"]
    assert "column-stochastic in all" in item["contraction"].reason
