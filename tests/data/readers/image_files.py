"""Image files of tests."""

import numpy as np
import torch
from PIL import Image


def pixels(seed, height=4, width=6):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def save(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path)


PLACES = [
    "train/cat/10.png",
    "train/cat/9.PNG",
    "train/dog/a.png",
    "val/cat/v.png",
    "test/dog/t.png",
    "test/dog/u.png",
]
"""Small images without loss, in the order in which they should be read."""


def in_order(*seeds):
    return torch.from_numpy(np.stack([pixels(seed).transpose(2, 0, 1) for seed in seeds]))


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
