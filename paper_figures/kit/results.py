"""The outcome of a figure: a result with everything that reports show, or the reason for none."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topofl import Table

from .claims import Claim
from .figure import Data, Figure
from .setting import Setting


@dataclass(frozen=True, repr=False)
class Result:
    """A figure that was computed, drawn and judged.

    Parameters
    ----------
    figure, setting
        The figure, and the setting of its reproduction.
    data
        Output of ``figure.compute``.
    claims
        Output of ``figure.claims``.
    tables
        Numbers of the figure's arms, one table per panel; empty for figures without training.
    picture
        Path of the PNG; a PDF is next to it.
    differences
        Differences from the paper's setting, one sentence each.
    seconds, megabytes, runs
        Wall time of all its runs (including those shared with other figures) and of the figure
        itself; largest memory of a process; number of training runs.
    made
        Distinct environments of its runs: versions, device, executor, machine, threads.
    kept
        Number of runs whose numbers were read from an earlier report.
    untimed, unnoted
        How many of these lack time and memory, and how many lack their environment.
    page
        Path of the HTML page with a slider over rounds; None if there is none.
    """

    figure: Figure
    setting: Setting
    data: Data
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...]
    picture: Path
    differences: tuple[str, ...]
    seconds: float
    megabytes: float
    runs: int
    made: tuple[Mapping[str, Any], ...]
    kept: int = 0
    untimed: int = 0
    unnoted: int = 0
    page: Path | None = None

    def __repr__(self) -> str:
        verdicts = ", ".join(claim.verdict for claim in self.claims)
        return (
            f"Result({self.figure.id!r}, scale={self.setting.scale!r}, "
            f"verdicts=[{verdicts}], {str(self.picture)!r})"
        )


@dataclass(frozen=True)
class LeftOut:
    """A figure without a result.

    Parameters
    ----------
    figure
        The figure.
    reason
        Why there is no result.
    failed
        True if runs failed, False if data are missing.
    """

    figure: Figure
    reason: str
    failed: bool = False


def panels_lacking(result: Result) -> str:
    """Return a phrase that names the datasets missing from a figure; empty if there are none."""
    names = [name for name in result.figure.datasets if name not in result.setting.datasets]
    return (
        f"the panels of {' and '.join(names)}, which was not available or not selected"
        if names
        else ""
    )
