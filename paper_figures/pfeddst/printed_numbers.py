"""The numbers that PFedDST (Fan et al.) prints: rounds to a target, and leads."""

from collections.abc import Mapping

from .settings import CIFAR_10, CIFAR_100, OURS

TARGETS: Mapping[str, float] = {CIFAR_10: 90.0, CIFAR_100: 75.0}
"""Accuracies that table 1 counts the rounds to."""


TABLE_1: Mapping[str, Mapping[str, int | None]] = {
    "FedAvg": {CIFAR_10: None, CIFAR_100: None}, "FedPer": {CIFAR_10: 350, CIFAR_100: 254},
    "FedBABU": {CIFAR_10: 321, CIFAR_100: 306}, "DFedAvgM": {CIFAR_10: 462, CIFAR_100: 399},
    "Dis-PFL": {CIFAR_10: None, CIFAR_100: None}, "DFedPGP": {CIFAR_10: 238, CIFAR_100: 178},
    OURS: {CIFAR_10: 184, CIFAR_100: 133},
}  # fmt: skip
"""First round with that accuracy, None if there is none in 500."""


LEADS: Mapping[str, float] = {CIFAR_10: 1.0, CIFAR_100: 0.7}
"""Points by which the paper's method leads the best other one."""
