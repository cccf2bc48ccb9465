"""Datasets in memory, and partitions of their examples among nodes.

``READERS`` holds the dataset readers by name; the decorator of each adds it there.
"""

# Star imports export the readers of a module without listing them again here. Type checkers and
# editors find them in the `__all__` of each module.

from topofl.data.arrays import from_arrays
from topofl.data.augment import Augmentation, crop_and_flip
from topofl.data.clients import from_clients
from topofl.data.dataset import Dataset
from topofl.data.edits.augmented import augmented
from topofl.data.edits.binned import binned
from topofl.data.edits.flipped import flip_labels
from topofl.data.edits.held_out import with_validation
from topofl.data.edits.matched import match_test
from topofl.data.edits.private_histograms import private_label_histograms
from topofl.data.partition import Partition
from topofl.data.partitioners import (
    dirichlet_per_class,
    dirichlet_per_client,
    iid,
    natural,
    one_class_per_node,
    pathological,
    pathological_dirichlet,
    pathological_shared,
    shards,
)
from topofl.data.readers._reader import READERS as READERS
from topofl.data.readers.cifar import *
from topofl.data.readers.digits import *
from topofl.data.readers.folders import *
from topofl.data.readers.huggingface import *
from topofl.data.readers.idx import read_idx
from topofl.data.readers.imagenet import *
from topofl.data.readers.leaf import *
from topofl.data.readers.mnist import *
from topofl.data.readers.tables import *
from topofl.data.readers.tables import from_dataframe
from topofl.data.torch_datasets import from_torch

_OTHERS = [
    "Augmentation",
    "Dataset",
    "Partition",
    "augmented",
    "binned",
    "crop_and_flip",
    "dirichlet_per_class",
    "dirichlet_per_client",
    "flip_labels",
    "from_arrays",
    "from_clients",
    "from_dataframe",
    "from_torch",
    "iid",
    "match_test",
    "natural",
    "one_class_per_node",
    "pathological",
    "pathological_dirichlet",
    "pathological_shared",
    "private_label_histograms",
    "read_idx",
    "shards",
    "with_validation",
]

__all__ = sorted([*_OTHERS, *READERS])  # pyright: ignore[reportUnsupportedDunderAll]
