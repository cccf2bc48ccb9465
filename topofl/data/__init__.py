"""Data: datasets in memory, and who holds what."""

from topofl.data.augment import Augmentation, crop_and_flip
from topofl.data.cifar import cifar10, cifar100
from topofl.data.dataset import Dataset, from_arrays, from_torch
from topofl.data.partition import (
    Partition,
    dirichlet_per_class,
    dirichlet_per_client,
    iid,
    one_class_per_node,
    pathological,
    shards,
)
from topofl.data.privacy import private_label_histograms
from topofl.data.readers import digits, mnist, read_idx

__all__ = [
    "Augmentation",
    "Dataset",
    "Partition",
    "cifar10",
    "cifar100",
    "crop_and_flip",
    "digits",
    "dirichlet_per_class",
    "dirichlet_per_client",
    "from_arrays",
    "from_torch",
    "iid",
    "mnist",
    "one_class_per_node",
    "pathological",
    "private_label_histograms",
    "read_idx",
    "shards",
]
