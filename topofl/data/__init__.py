"""Datasets in memory, and partitions of their examples among nodes.

``READERS`` holds the dataset readers by name; the decorator of each adds it there.
"""

# Star imports export the names of a module without listing them again here. Type checkers and
# editors find them in the `__all__` of each module.

from topofl.data.arrays import *
from topofl.data.dataset import *
from topofl.data.dataset import READERS as READERS
from topofl.data.edits import *
from topofl.data.features import *
from topofl.data.graphs import *
from topofl.data.partition import *
from topofl.data.partitioners import *
from topofl.data.partitioners.natural import *
from topofl.data.readers.cifar import *
from topofl.data.readers.folders import *
from topofl.data.readers.leaf import *
from topofl.data.readers.mnist import *
from topofl.data.readers.mnist1d import *
from topofl.data.readers.tables import *
from topofl.data.readers.text import *
from topofl.data.triggers import *

__all__ = sorted(  # pyright: ignore[reportUnsupportedDunderAll]
    name
    for name, value in vars().items()
    if hasattr(value, "__module__") and not name.startswith("_")  # a function or class
)
