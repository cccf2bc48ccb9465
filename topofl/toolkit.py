"""Tools for studies built on topofl: facts about the machine, its datasets, graphs and drawings.

The studies and paper figures of this repository use them, and so can yours.
"""

from topofl._drawing.figures import save_picture
from topofl._drawing.picture import first_rounds
from topofl._spec import build_topology
from topofl._support.calls import parse_spec
from topofl._support.check import check_choice, check_int
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
from topofl._support.table import as_text
from topofl._support.text import did_you_mean
from topofl.metrics.labels import label_spread

__all__ = [
    "MARKERS",
    "as_text",
    "build_topology",
    "check_choice",
    "check_int",
    "dataset_folder",
    "dataset_folders",
    "default_root",
    "describe_software",
    "did_you_mean",
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
