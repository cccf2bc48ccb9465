"""A small dataset of some classes."""

import numpy as np
import torch

from topofl import data


def toy(counts=(6, 6, 6), n_test=2):
    """Return `counts[c]` training examples of each class c, then test examples of class 0."""
    labels = np.concatenate([np.repeat(np.arange(len(counts)), counts), np.zeros(n_test, int)])
    n_train, none = sum(counts), np.zeros(0, int)
    inputs = torch.zeros(len(labels), 1)
    test = np.arange(n_train, len(labels))
    return data.Dataset(
        inputs, torch.from_numpy(labels), len(counts), "toy", np.arange(n_train), none, test
    )
