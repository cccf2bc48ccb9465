"""Examples gathered for training and evaluation are those of the dataset."""

import numpy as np
import pytest
import torch

from topofl import data
from topofl._support.threads import Buffers
from topofl.engine.minibatches import Examples

CPU = torch.device("cpu")
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 3, 4, 4), dtype=np.uint8)
LABELS = np.arange(12) % 3
DATASETS = {
    "pixels": lambda: data.from_arrays(PIXELS, LABELS, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7)),
    "numbers": lambda: data.from_arrays(PIXELS.astype(np.float32) / 3, LABELS),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", DATASETS)
def test_gathered_bit_by_bit_as_the_dataset_shows_them(name, dtype):
    dataset, indices = DATASETS[name](), torch.tensor([7, 0, 7, 3])
    examples, buffers = Examples.of(dataset, CPU, dtype), Buffers(CPU)
    wanted = dataset.examples(indices.numpy(), dtype)
    assert torch.equal(examples(indices), wanted)
    assert torch.equal(examples.gather(indices, buffers), wanted)


def test_pixels_stay_bytes_and_numbers_are_not_copied():
    pixels, numbers = (DATASETS[name]() for name in ("pixels", "numbers"))
    assert Examples.of(pixels, CPU, torch.float32).stored is pixels.inputs
    assert Examples.of(numbers, CPU, torch.float32).stored is numbers.inputs


def test_buffers_grow_and_keep_types_apart():
    buffers = Buffers(CPU)
    small = buffers.take("a", (2, 3), torch.float32)
    assert buffers.take("a", (6,), torch.float32).data_ptr() == small.data_ptr()
    assert buffers.take("a", (7,), torch.float32).shape == (7,)
    assert buffers.take("a", (2,), torch.float64).dtype == torch.float64
    assert (
        buffers.take("b", (7,), torch.float32).data_ptr()
        != buffers.take("a", (7,), torch.float32).data_ptr()
    )
