"""Consensus distance, and the gradient mixing error."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topofl import mixing, topologies
from topofl.metrics import (
    consensus,
    consensus_distance,
    gradient_mixing_error,
    label_distributions,
    mean_model,
    neighborhood_heterogeneity,
    sigma,
)
from topofl.topology import TopologyError, as_topology, from_edges

# Mean (1, 2); squared distances 1 + 4, 1 + 1, 4 + 1 sum to 12.
MODELS = np.array([[0.0, 0.0], [2.0, 3.0], [1.0, 3.0]])
DISTANCE = np.sqrt((5 + 2 + 1) / 3)


@pytest.mark.parametrize(
    "convert", [np.asarray, torch.from_numpy, lambda a: torch.from_numpy(a).to(torch.bfloat16)]
)
def test_known_values(convert):
    models = convert(MODELS.copy())
    assert consensus_distance(models) == pytest.approx(DISTANCE, rel=1e-15)
    assert consensus_distance(models, relative=True) == pytest.approx(
        DISTANCE / np.sqrt(5), rel=1e-15
    )
    assert type(consensus_distance(models)) is float
    mean = mean_model(models)
    assert type(mean) is type(models)
    np.testing.assert_array_equal(np.asarray(mean), [1.0, 2.0])


def test_accumulates_in_float64():
    # In float32 the squares of differences around 10^4 would lose the small one, and the mean would
    # be rounded.
    models = torch.tensor([[1e4, 1.0], [1e4 + 0.0009765625, 1.0]], dtype=torch.float32)
    assert consensus_distance(models) == pytest.approx(0.0009765625 / 2, rel=1e-12)
    assert mean_model(models).dtype == torch.float64


def test_is_exactly_zero_for_equal_models_whose_mean_is_rounded():
    models = np.full((3, 4), 0.1)
    assert models.mean(axis=0)[0] != 0.1  # the sum of three is rounded
    assert consensus_distance(models) == 0.0
    assert consensus_distance(MODELS[:1]) == 0.0


def test_models_are_not_changed():
    models = torch.from_numpy(MODELS.copy()).requires_grad_()
    consensus_distance(models)
    assert not mean_model(models).requires_grad
    np.testing.assert_array_equal(models.detach().numpy(), MODELS)
    frozen = MODELS.copy()
    frozen.setflags(write=False)
    assert consensus_distance(frozen) == consensus_distance(MODELS)


def test_integers_are_numbers_and_diverged_models_give_nan():
    assert consensus_distance(MODELS.astype(int)) == pytest.approx(DISTANCE)
    assert np.isnan(consensus_distance(np.array([[0.0], [np.nan]])))


@pytest.mark.parametrize("metric", [consensus_distance, mean_model])
def test_inputs_other_than_a_matrix_of_models_are_refused(metric):
    for models in (np.zeros(3), np.zeros((0, 3)), torch.zeros(3, 0), torch.zeros(2, 2, 2)):
        with pytest.raises(ValueError, match="`models` must have shape"):
            metric(models)
    for models in ([[1.0]], None, np.array([["a"]]), np.array([[1j]]), torch.tensor([[1j]])):
        with pytest.raises(TypeError, match="`models`"):
            metric(models)


def test_relative_distance_needs_a_mean():
    with pytest.raises(ValueError, match="`models` must have a mean other than 0"):
        consensus_distance(np.array([[1.0], [-1.0]]), relative=True)


PATH = from_edges([(0, 1), (1, 2)], 3, name="path")
LINE = from_edges([(0, 1), (1, 2)], 3, name="line", directed=True)
# Metropolis-Hastings on the path: rows (2, 1, 0)/3, (1, 1, 1)/3, (0, 1, 2)/3. The columns become 4,
# 3, 2 and 1, 1, 1. Their means are 3 and 1.
GRADIENTS = np.array([[6.0, 0.0], [0.0, 3.0], [3.0, 0.0]])


def weights(n, seed):
    """Return row-stochastic weights with no other structure."""
    matrix = np.random.default_rng(seed).random((n, n)) ** 3
    return mixing.from_weights(matrix / matrix.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        lambda a: a.astype(np.float16),
        lambda a: a.astype(int),
        torch.from_numpy,
        lambda a: torch.from_numpy(a).to(torch.bfloat16),
        lambda a: torch.from_numpy(a).requires_grad_(),
    ],
    ids=["float64", "float16", "int", "torch", "bfloat16", "requires_grad"],
)
def test_value_by_hand(convert):
    assert gradient_mixing_error(PATH, convert(GRADIENTS.copy())) == pytest.approx(
        (1 + 0 + 1) / 3, rel=1e-14
    )
    assert type(gradient_mixing_error(PATH, convert(GRADIENTS.copy()))) is float


def test_pull_on_a_digraph_by_hand():
    # Rows (1, 0, 0), (1, 1, 0)/2, (0, 1, 1)/2: 6, 3, 3/2 and 0, 3/2, 3/2.
    expected = (9 + 0 + 9 / 4 + 1 + 1 / 4 + 1 / 4) / 3
    assert gradient_mixing_error(LINE, GRADIENTS) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("chunk", [1, 12, 10**6])
def test_agrees_with_the_formula_for_any_chunk_size(monkeypatch, chunk):
    monkeypatch.setattr(consensus, "CHUNK", chunk)
    matrix, gradients = weights(5, seed=0), np.random.default_rng(1).standard_normal((5, 11))
    expected = np.linalg.norm((matrix.weights.toarray() - 1 / 5) @ gradients) ** 2 / 5
    assert gradient_mixing_error(matrix, gradients) == pytest.approx(expected, rel=1e-12)
    assert gradient_mixing_error(matrix, torch.from_numpy(gradients)) == pytest.approx(
        expected, rel=1e-12
    )


def test_with_label_shares_it_is_neighborhood_heterogeneity():
    counts = np.random.default_rng(0).integers(0, 9, size=(16, 10)) + 1
    for graph in (
        topologies.ring(16),
        topologies.grid(16),
        topologies.exponential(16, directed=True),
    ):
        expected = neighborhood_heterogeneity(graph, counts)
        assert gradient_mixing_error(graph, label_distributions(counts)) == pytest.approx(
            expected, rel=1e-12
        )


@given(st.integers(1, 8), st.integers(0, 1000))
def test_without_communication_it_is_the_variance_and_averaging_leaves_nothing(n, seed):
    gradients = np.random.default_rng(seed).standard_normal((n, 3))
    alone = gradient_mixing_error(mixing.from_weights(np.eye(n)), gradients)
    assert alone == pytest.approx(consensus_distance(gradients) ** 2, rel=1e-12, abs=1e-30)
    assert gradient_mixing_error(topologies.fully_connected(n), gradients) == pytest.approx(
        0, abs=1e-30
    )


@given(st.integers(3, 12), st.integers(0, 1000))
def test_doubly_stochastic_weights_leave_at_most_sigma_squared_of_the_variance(n, seed):
    gradients = np.random.default_rng(seed).standard_normal((n, 4))
    for graph in (
        topologies.ring(n),
        topologies.star(n),
        topologies.circulant(n, [1, 2], directed=True),
    ):
        matrix = mixing.metropolis_or_uniform(graph)
        bound = sigma(matrix) ** 2 * consensus_distance(gradients) ** 2
        assert gradient_mixing_error(matrix, gradients) <= bound + 1e-12


def test_the_bound_is_reached_by_the_slowest_direction():
    matrix = mixing.metropolis_hastings(topologies.grid(12))
    slowest = np.linalg.svd(matrix.weights.toarray() - 1 / 12)[2][:1].T
    assert gradient_mixing_error(matrix, slowest) == pytest.approx(
        sigma(matrix) ** 2 / 12, rel=1e-10
    )


@given(st.integers(2, 8), st.integers(0, 1000), st.floats(-1e6, 1e6))
def test_a_common_gradient_does_not_count(n, seed, shift):
    gradients = np.random.default_rng(seed).standard_normal((n, 3))
    matrix = weights(n, seed)
    expected = gradient_mixing_error(matrix, gradients)
    assert gradient_mixing_error(matrix, gradients + shift) == pytest.approx(expected, rel=1e-6)
    assert gradient_mixing_error(matrix, 3 * gradients) == pytest.approx(9 * expected, rel=1e-12)
    assert gradient_mixing_error(matrix, np.full((n, 2), shift)) == pytest.approx(
        0, abs=1e-15 * (1 + shift**2)
    )


def test_gradients_are_not_changed():
    frozen = GRADIENTS.copy()
    frozen.setflags(write=False)
    assert gradient_mixing_error(PATH, frozen) > 0
    tensor = torch.from_numpy(GRADIENTS.copy())
    gradient_mixing_error(PATH, tensor)
    np.testing.assert_array_equal(tensor.numpy(), GRADIENTS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_gradients_that_are_not_finite_are_refused(bad, convert):
    gradients = GRADIENTS.copy()
    gradients[2, 1] = bad
    with pytest.raises(ValueError, match=r"`gradients` must be finite, got .* at \(2, 1\)"):
        gradient_mixing_error(PATH, convert(gradients))


def test_inputs_other_than_one_gradient_per_node_are_refused():
    for gradients in (
        GRADIENTS[:2],
        GRADIENTS[0],
        np.zeros((3, 0)),
        torch.zeros(3, 2, 2),
        np.zeros((0, 3)),
    ):
        with pytest.raises(ValueError, match=r"`gradients` must have shape \(n, d\).* has n=3"):
            gradient_mixing_error(PATH, gradients)
    for gradients in (
        GRADIENTS.tolist(),
        None,
        np.array([["a"]] * 3),
        GRADIENTS * 1j,
        torch.ones(3, 1) * 1j,
    ):
        with pytest.raises(TypeError, match="`gradients`"):
            gradient_mixing_error(PATH, gradients)


def test_refuses_weights_that_do_not_average_and_sequences():
    with pytest.raises(
        TopologyError, match=r"rows that sum to 1, uniform\(line, direction='push'\) is column"
    ):
        gradient_mixing_error(LINE, GRADIENTS, weights=partial(mixing.uniform, direction="push"))
    with pytest.raises(TypeError, match="`x`"):
        gradient_mixing_error(as_topology([PATH, PATH]), GRADIENTS)
