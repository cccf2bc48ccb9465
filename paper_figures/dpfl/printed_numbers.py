"""Accuracies in % printed in DPFL (Kharrat, Canini and Horvath 2025)."""

from collections.abc import Mapping

from .settings import SPLITS

_TABLE_1 = {
    "Local": "80.38±1.62 78.32±0.49 78.59±1.00 77.53±0.47 87.27±0.27",
    "FedAvg": "47.22±1.20 50.93±1.97 38.48±0.37 39.27±1.29 87.41±0.72",
    "FedAvg+FT": "82.84±0.88 81.89±0.92 80.31±0.33 79.18±0.46 91.56±0.29",
    "FedProx": "48.83±1.88 51.14±0.79 38.16±0.82 38.53±0.54 88.14±0.39",
    "FedProx+FT": "78.86±0.51 73.61±1.29 76.59±1.19 73.04±1.08 93.58±0.29",
    "APFL": "82.56±0.38 80.96±0.71 80.02±1.07 78.21±0.39 90.80±0.37",
    "PerFedAvg": "82.38±1.43 81.17±0.52 78.88±1.25 78.90±0.37 91.69±0.40",
    "Ditto": "83.10±0.70 81.19±0.63 80.33±1.27 79.52±0.31 90.83±0.46",
    "FedRep": "80.81±1.09 78.61±1.67 79.56±1.12 78.46±0.69 90.04±0.28",
    "kNN-Per": "82.45±0.69 81.04±0.40 80.42±1.07 79.54±0.32 91.29±0.40",
    "pFedGraph": "80.48±0.75 78.34±1.04 78.73±1.04 77.58±0.16 87.70±0.13",
    "DPFL": "84.39±0.43 83.04±0.98 81.49±1.32 80.32±0.51 94.25±0.18",
    "DPFL, 0.2 n": "84.01±0.44 82.83±0.91 81.24±1.30 80.51±0.39 94.31±0.06",
    "DPFL, 0.1 n": "83.86±0.46 82.52±0.78 81.32±1.20 80.24±0.35 94.09±0.14",
    "DPFL, 0.05 n": "82.91±0.81 82.17±0.54 80.91±1.31 80.11±0.30 93.82±0.17",
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

TABLE_2: Mapping[int, tuple[float, ...]] = {
    1: (81.86, 82.33, 82.53, 82.30),
    5: (83.03, 82.53, 82.58, 80.90),
    10: (83.04, 82.83, 82.52, 82.17),
}
"""Accuracies by tau_init, without a budget and with 20, 10 and 5 of 100: CIFAR-10, Patho(3)."""

TABLE_3: Mapping[int, tuple[float, ...]] = {
    1: (84.20, 83.67, 84.20, 84.33),
    5: (83.83, 84.01, 83.31, 83.73),
    10: (83.24, 84.17, 83.31, 83.03),
    20: (82.34, 82.59, 82.08, 82.73),
}
"""Accuracies by refresh period for the same budgets, of one seed: CIFAR-10, Dir(0.1)."""
