"""Consensus distance of numpy arrays and torch tensors against known values."""

import numpy as np
import pytest
import torch

from topofl.metrics import consensus_distance, mean_model

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
