"""Methods, splits and unequal devices of DFedPGP's tables and figures."""

from collections.abc import Mapping, Sequence

from ..kit.personalization.methods import METHODS

TABLE_1 = tuple(label for label in METHODS if label not in ("DFedAvgM-P", "PFedDST"))


DEVICES = tuple(label for label in TABLE_1 if label != "Local")


ABLATION = ("DFedAvgM", "DFedAvgM-P", "OSGP", "DFedPGP")


def unequal(devices: Sequence[int], n: int) -> list[int]:
    """Return the epochs of n clients, in one group of equal size per kind of device."""
    return [devices[i * len(devices) // n] for i in range(n)]


EQUAL = ", equal devices"
"""Suffix of a split's title for its runs of table 1, shown next to those of table 3."""


SEEDS: Mapping[str, int] = {"smoke": 1, "quick": 3, "paper": 3}
"""Default number of seeds by scale; the paper has 3."""


ABLATED = ("CIFAR-10, Dir(0.3)", "CIFAR-10, c=2")
"""The splits of tables 3 and 4."""


STUDIED = "CIFAR-10, Dir(0.3)"
"""The split of figures 3a and 3b."""


ALONE = (
    "training alone (Local) is shown but not compared with: the paper has it in table 1, but not "
    "in its comparison of convergence speed in table 2"
)


PUSHED = "neighbors are in-neighbors (a client sends to as many on average)"
