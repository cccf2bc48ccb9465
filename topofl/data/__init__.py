"""Datasets in memory, and partitions of their examples among nodes.

``READERS`` holds the dataset readers by name; the decorator of each adds it there.
"""

# Star imports export the readers of a module without listing them again here. Type checkers and
# editors find them in the `__all__` of each module.

from topofl.data.arrays import from_arrays, from_torch
from topofl.data.clients import from_clients
from topofl.data.dataset import READERS as READERS
from topofl.data.dataset import Augmentation, Dataset, crop_and_flip
from topofl.data.edits import (
    augmented,
    binned,
    flip_labels,
    match_test,
    private_label_histograms,
    with_validation,
)
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
from topofl.data.readers.cifar import *
from topofl.data.readers.digits import *
from topofl.data.readers.folders import *
from topofl.data.readers.leaf import *
from topofl.data.readers.mnist import *
from topofl.data.readers.mnist import read_idx
from topofl.data.readers.tables import *
from topofl.data.readers.tables import from_dataframe

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
