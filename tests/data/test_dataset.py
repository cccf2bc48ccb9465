"""Dataset, and what models see of pixels that are stored as bytes."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from torch.utils.data import TensorDataset

from tests import problems
from tests.degenerate.inputs import run
from tests.rows.partitioners import NONE, toy
from topofl import data

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def test_dataset_is_frozen_and_its_indices_are_read_only_copies():
    train, owners = np.arange(8), np.zeros(20, int)
    dataset = dataclasses.replace(toy(), train=train, owners=owners)
    train[0] = owners[0] = 11
    assert dataset.train.tolist() == list(range(8))
    assert not dataset.owners.any()
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.name = "other"
    for indices in (dataset.train, dataset.val, dataset.test, dataset.owners):
        assert (indices.dtype, indices.flags.writeable) == (np.int64, False)
    assert data.digits().owners is None


def dataset(pixels, **normalization):
    """Return a dataset of these pixels, all for training."""
    labels = torch.zeros(len(pixels), dtype=torch.int64)
    parts = np.arange(len(pixels)), NONE, NONE
    return data.Dataset(torch.as_tensor(pixels), labels, 1, "pixels", *parts, **normalization)


def images(n=5, channels=3, side=4):
    return np.random.default_rng(0).integers(0, 256, (n, channels, side, side)).astype(np.uint8)


def normalized(pixels, mean, std):
    """Return (pixels / 255 - mean) / std in float64; channels are axis 1."""
    mean, std = (np.reshape(x, (-1, *[1] * (pixels.ndim - 2))) for x in (mean, std))
    return (pixels / 255 - mean) / std


@st.composite
def normalizations(draw):
    """Draw pixels of 2 to 5 dimensions, and a mean and a std, for all channels or for each."""

    def per_channel(numbers):
        return draw(numbers | st.tuples(*[numbers] * shape[1]))

    shape = draw(npst.array_shapes(min_dims=2, max_dims=5, max_side=4))
    pixels = draw(npst.arrays(np.uint8, shape))
    return pixels, per_channel(st.floats(-10, 10)), per_channel(st.floats(1e-3, 1e3))


@given(normalizations(), st.sampled_from([torch.float32, torch.bfloat16]))
def test_examples_are_the_formula_within_rounding(given, dtype):
    """With unit roundoff u, scale, product and shift err by u each, and the sum by u of itself.

    Hence by at most (3 |pixel scale| + 2 |shift|) u (1 + 2 u)^2; where the two terms cancel, that
    is many ulps of it.
    """
    pixels, mean, std = given
    exact = normalized(pixels, mean, std)
    size = 3 * np.abs(normalized(pixels, 0, std)) + 2 * np.abs(normalized(0 * pixels, mean, std))
    u = torch.finfo(dtype).eps / 2
    examples = dataset(pixels, mean=mean, std=std).examples(dtype=dtype)
    assert examples.dtype == dtype
    least = torch.finfo(dtype).tiny  # means of 1e-40 underflow
    assert (np.abs(examples.double().numpy() - exact) <= size * u * (1 + 2 * u) ** 2 + least).all()


@given(normalizations(), st.sampled_from(FLOATS), st.data())
def test_pixels_gathered_and_converted_in_place_have_the_same_bits(given, dtype, draws):
    pixels, mean, std = given
    made = dataset(pixels, mean=mean, std=std)
    indices = draws.draw(st.lists(st.integers(0, len(pixels) - 1), max_size=6))
    chosen = made.inputs[torch.tensor(indices, dtype=torch.int64)]
    scale, shift = made.affine(dtype)
    buffer = torch.empty(chosen.shape, dtype=dtype).copy_(chosen).mul_(scale).add_(shift)
    assert torch.equal(buffer, made.examples(indices, dtype))
    assert torch.equal(buffer, made.examples(dtype=dtype)[torch.tensor(indices, dtype=torch.int64)])


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4), (5, 3, 4, 2)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_affine_broadcasts_over_channels(shape, dtype):
    pixels = np.zeros(shape, np.uint8)
    for value, channels in ((0.5, 1), ((0.5, 0.25, 1.0), 3)):
        scale, shift = dataset(pixels, mean=value, std=value).affine(dtype)
        assert scale.shape == shift.shape == (channels, *[1] * (len(shape) - 2))
        assert scale.dtype == shift.dtype == dtype
        assert torch.equal(shift, -torch.ones_like(shift))
        wanted = torch.tensor([1 / (255 * x) for x in np.atleast_1d(value)], dtype=torch.float64)
        assert torch.equal(scale.flatten(), wanted.to(dtype))


@pytest.mark.parametrize("kind", [tuple, list, np.array, torch.tensor])
def test_channels_are_normalized_apart(kind):
    pixels, mean, std = images(), [0.5, 0.25, 0.125], [0.25, 1, 2.0]
    made = data.from_arrays(pixels, [0] * 5, mean=kind(mean), std=kind(std))
    assert (made.mean, made.std, made.inputs.dtype) == (tuple(mean), tuple(std), torch.uint8)
    np.testing.assert_allclose(made.examples(), normalized(pixels, mean, std), rtol=1e-6, atol=1e-6)
    other = dataclasses.replace(made, name="other")
    assert torch.equal(other.examples(), made.examples())


def test_one_number_is_for_all_channels_and_0_and_1_without_any():
    one = dataset(images(), mean=np.float32(0.5), std=2)
    assert [type(x) for x in (one.mean, one.std)] == [float, float]
    assert torch.equal(one.examples(), dataset(images(), mean=[0.5] * 3, std=[2] * 3).examples())
    assert dataset(np.array([[0, 255]], np.uint8)).examples().tolist() == [[0, 1]]


def test_from_torch_takes_pixels_and_their_normalization():
    pairs = TensorDataset(torch.from_numpy(images()), torch.tensor([0, 1, 0, 1, 0]))
    made = data.from_torch(pairs, test=pairs, mean=0.5, std=(0.25, 0.5, 1))
    assert (made.inputs.dtype, made.mean, made.std) == (torch.uint8, 0.5, (0.25, 0.5, 1.0))
    assert torch.equal(made.inputs[:5], made.inputs[5:])


def test_float_inputs_are_seen_as_they_are():
    blobs = problems.dataset()
    assert blobs.affine() is None
    assert blobs.examples() is blobs.inputs
    assert torch.equal(blobs.examples(blobs.test), blobs.inputs[torch.tensor(blobs.test)])
    assert torch.equal(blobs.examples([2, 0, 2], torch.float64), blobs.inputs[[2, 0, 2]].double())


@pytest.mark.parametrize("made", [problems.dataset(), dataset(images())], ids=["float32", "uint8"])
def test_examples_chosen_are_a_copy_and_may_be_none(made):
    before = made.inputs.clone()
    made.examples([1, 2]).fill_(7)
    assert torch.equal(made.inputs, before)
    assert made.examples(NONE).shape == (0, *made.inputs.shape[1:])


def history(x, executor, model, **normalization):
    """Return the history of six nodes that hold inputs `x`."""
    made = data.from_arrays(x, np.arange(60) % 3, test=0.2, **normalization)
    clients = data.iid(made, 6, seed=0)
    return run(model=model(), clients=clients, rounds=6, every=2, executor=executor)


@pytest.mark.parametrize("executor", ["batched", "looped"])
@pytest.mark.parametrize("model", [problems.linear, problems.convolutional])
def test_a_run_on_bytes_is_the_run_on_what_models_see_of_them(executor, model):
    pixels, how = images(60, 1, 6), {"mean": 0.5, "std": 0.25}
    bytes_ = history(pixels, executor, model, **how)
    same = history(data.from_arrays(pixels, [0] * 60, **how).examples(), executor, model)
    near = history(normalized(pixels, 0.5, 0.25).astype(np.float32), executor, model)
    for key in ("accuracy", "loss", "train_loss"):
        np.testing.assert_array_equal(bytes_[key], same[key])
        np.testing.assert_allclose(bytes_[key], near[key], rtol=1e-6)
    other = history(pixels, executor, model)
    assert not np.allclose(bytes_["train_loss"], other["train_loss"], rtol=1e-2)
