"""A small dataset in the layout of CIFAR-10."""

import numpy as np

__all__ = ["FOLDER", "write_images"]

FOLDER = "cifar-10-batches-bin"


def write_images(folder, per_class=4):
    """Write training images, sorted by class as in folders of classes, and 10 test images."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    parts = {f"data_batch_{k + 1}.bin": np.repeat([2 * k, 2 * k + 1], per_class) for k in range(5)}
    for name, labels in (parts | {"test_batch.bin": np.arange(10)}).items():
        rows = rng.integers(0, 256, (len(labels), 1 + 3 * 32 * 32), dtype=np.uint8)
        rows[:, 0] = labels
        rows.tofile(folder / name)
