"""Published latencies between the regions of a cloud provider."""

from collections.abc import Sequence

import numpy as np

from topofl._support.check import check_choice, check_nonnegative, check_sequence
from topofl._support.public import public

__all__ = ["AZURE_REGIONS", "azure_latency"]

AZURE_REGIONS = (
    "East US",
    "Canada Central",
    "Brazil South",
    "UK South",
    "West Europe",
    "South Africa North",
    "Central India",
    "Southeast Asia",
    "Japan East",
    "Australia East",
)
"""Ten regions of the Azure cloud on six continents, in the order of :func:`azure_latency`."""

ROUND_TRIPS = (
    (0, 20, 117, 77, 83, 232, 207, 223, 157, 202),
    (22, 0, 131, 92, 98, 246, 221, 222, 158, 199),
    (118, 132, 0, 180, 186, 334, 310, 340, 281, 310),
    (78, 92, 180, 0, 11, 160, 134, 157, 226, 258),
    (84, 97, 185, 11, 0, 161, 137, 159, 226, 258),
    (233, 246, 334, 160, 162, 0, 269, 293, 360, 379),
    (210, 222, 311, 134, 139, 270, 0, 54, 121, 140),
    (227, 221, 343, 157, 159, 292, 53, 0, 72, 90),
    (158, 157, 280, 226, 226, 359, 120, 71, 0, 103),
    (204, 199, 311, 258, 259, 379, 140, 90, 103, 0),
)
"""Round-trip times in milliseconds from each of these regions (rows) to each (columns)."""


@public
def azure_latency(
    regions: Sequence[str] = AZURE_REGIONS, *, within: float | None = None
) -> np.ndarray:
    """Return published latencies between cloud regions, (m, m) seconds one way.

    Half the median round-trip time that Microsoft measured between its regions over 30 days.

    Parameters
    ----------
    regions
        The region of each of m machines, from ``metrics.AZURE_REGIONS``; regions may repeat.
    within
        Seconds between two machines of the same region, which the source does not have; needed only
        if a region repeats.

    Raises
    ------
    ValueError
        If a region is unknown, or repeats without `within`.
    TypeError
        If `regions` is not a sequence of names.

    References
    ----------
    Microsoft, "Azure network round-trip latency statistics",
    https://learn.microsoft.com/azure/networking/azure-network-latency, version of April 10, 2024:
    monthly medians (P50) in milliseconds for the 30 days that end on April 9, 2024.

    Examples
    --------
    >>> latency = azure_latency(["West Europe", "Japan East", "Japan East"], within=0.0005)
    >>> latency.tolist()
    [[0.0, 0.113, 0.113], [0.113, 0.0, 0.0005], [0.113, 0.0005, 0.0]]
    """
    names = [
        check_choice("regions", name, AZURE_REGIONS)
        for name in check_sequence("regions", regions, "names of regions")
    ]
    places = np.array([AZURE_REGIONS.index(name) for name in names], dtype=np.int64)
    same = places[:, None] == places
    if within is None and len(set(names)) < len(names):
        raise ValueError(
            "`within` must be given if a region repeats, got None; for example within=0.0005"
        )
    seconds = np.array(ROUND_TRIPS)[places][:, places] / 2000
    seconds[same] = 0.0 if within is None else check_nonnegative("within", within)
    np.fill_diagonal(seconds, 0.0)
    return seconds
