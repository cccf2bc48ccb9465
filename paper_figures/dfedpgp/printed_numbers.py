"""The numbers that DFedPGP (Liu et al. 2024) prints: accuracies in %, and rounds to a target."""

from collections.abc import Mapping

import numpy as np

from ..kit.personalization.settings import SPLITS

_TABLE_1 = {
    "Local": "78.96±.42 63.20±.28 85.16±.18 68.56±.35 39.38±.33 22.59±.49 71.34±.46 53.15±.31",
    "FedAvg": "84.17±.28 79.66±.20 85.04±.11 81.18±.27 57.43±.03 55.06±.06 69.05±.43 66.37±.48",
    "FedPer": "88.57±.09 84.06±.29 90.94±.24 86.97±.35 54.23±.14 34.07±.76 78.48±.93 70.38±.02",
    "FedRep": "88.78±.40 84.50±.05 91.09±.12 86.22±.51 44.02±.98 26.88±.49 78.77±.19 67.65±.43",
    "FedBABU": "87.79±.53 83.26±.09 91.28±.15 83.90±.24 60.23±.07 52.37±.82 77.50±.33 69.81±.12",
    "Ditto": "80.22±.10 73.51±.04 84.96±.40 75.59±.32 48.85±.54 48.65±.50 69.48±.45 60.77±.30",
    "DFedAvgM": "86.94±.62 82.49±.57 90.23±.97 85.26±.47 58.80±.82 54.89±.77 75.89±.65 70.55±.44",
    "OSGP": "87.39±.13 83.14±.18 90.72±.08 84.69±.25 59.76±.69 54.98±.48 76.70±.59 71.08±.52",
    "Dis-PFL": "87.77±.46 82.71±.28 88.19±.47 84.18±.61 56.06±.20 46.65±.18 71.79±.42 65.35±.10",
    "DFedPGP": "88.85±.21 85.61±.05 91.26±.05 87.12±.37 66.26±.25 57.66±.42 78.78±.41 72.19±.21",
}


def _accuracies(row: str) -> dict[str, tuple[float, float]]:
    cells = (cell.split("±") for cell in row.split())
    return {
        title: (float(mean), float(std)) for title, (mean, std) in zip(SPLITS, cells, strict=True)
    }


TABLE_1: Mapping[str, Mapping[str, tuple[float, float]]] = {
    label: _accuracies(row) for label, row in _TABLE_1.items()
}
"""Mean and standard deviation over 3 seeds, by method and title of the split."""

TARGETS: Mapping[str, float] = {
    "CIFAR-10, Dir(0.3)": 80.0,
    "CIFAR-10, c=2": 90.0,
    "CIFAR-100, Dir(0.3)": 45.0,
    "CIFAR-100, c=10": 65.0,
}
"""Accuracies that table 2 counts the rounds to."""

_TABLE_2 = {
    "FedAvg": (None, None, 234, 456),
    "FedPer": (262, 343, None, 246),
    "FedRep": (189, 322, None, 210),
    "FedBABU": (270, 312, 261, 314),
    "Ditto": (None, None, 279, None),
    "DFedAvgM": (320, 452, 187, 249),
    "OSGP": (309, 439, 192, 230),
    "Dis-PFL": (307, None, 368, 492),
    "DFedPGP": (131, 224, 111, 113),
}

TABLE_2: Mapping[str, Mapping[str, int | None]] = {
    label: dict(zip(TARGETS, row, strict=True)) for label, row in _TABLE_2.items()
}
"""First round with that accuracy, None if there is none in 500; by method and title."""

TABLE_3: Mapping[str, Mapping[str, float | None]] = {
    "CIFAR-10, Dir(0.3)": {
        "FedAvg": 75.76,
        "FedPer": None,
        "FedRep": None,
        "FedBABU": 72.66,
        "Ditto": 75.63,
        "DFedAvgM": None,
        "Dis-PFL": 82.41,
        "OSGP": 82.81,
        "DFedPGP": 83.63,
    },
    "CIFAR-10, c=2": {
        "FedAvg": 81.04,
        "FedPer": 91.09,
        "FedRep": 88.57,
        "FedBABU": 83.06,
        "Ditto": 82.26,
        "DFedAvgM": 91.52,
        "Dis-PFL": 91.40,
        "OSGP": 91.61,
        "DFedPGP": 91.83,
    },
}
"""Accuracies with unequal devices, None where our copy is blank; “Pat” is presumably c=2."""

TABLE_4: Mapping[str, Mapping[str, float]] = {
    "CIFAR-10, Dir(0.3)": {"DFedAvgM": 82.49, "DFedAvgM-P": 84.69, "OSGP": 83.14, "DFedPGP": 85.61},
    "CIFAR-10, c=2": {"DFedAvgM": 90.23, "DFedAvgM-P": 90.90, "OSGP": 90.72, "DFedPGP": 91.26},
}
"""Accuracies of the ablation."""


def margin(titles: list[str], label: str = "DFedPGP") -> float:
    """Return a method's lead over the best other one in table 1, in points, mean over splits."""
    mean = {
        name: float(np.mean([row[title][0] for title in titles])) for name, row in TABLE_1.items()
    }
    return mean.pop(label) - max(mean.values())
