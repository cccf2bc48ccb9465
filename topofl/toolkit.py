"""Tools for studies built on topofl: facts about the machine, its datasets, graphs and drawings.

The studies and paper figures of this repository use them, and so can yours.
"""

from topofl._drawing.figures import save_picture
from topofl._drawing.picture import first_rounds
from topofl._spec import build_topology
from topofl._support.calls import parse_spec
from topofl._support.datasets import MARKERS, dataset_folder, dataset_folders, default_root
from topofl._support.machine import (
    describe_software,
    free_memory,
    has_fast_bf16,
    machine,
    return_freed_memory,
    total_memory,
)
from topofl._support.seeding import stream
from topofl.metrics.labels import label_spread

__all__ = [
    "MARKERS",
    "build_topology",
    "dataset_folder",
    "dataset_folders",
    "default_root",
    "describe_software",
    "first_rounds",
    "free_memory",
    "has_fast_bf16",
    "label_spread",
    "machine",
    "parse_spec",
    "return_freed_memory",
    "save_picture",
    "stream",
    "total_memory",
]
