"""A benchmark report: its page, raw numbers and figure, and the facts about the machine."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from topofl import Table
from topofl.toolkit import describe_software, has_fast_bf16, machine

from .plot import Point, draw


@dataclass(frozen=True)
class Report:
    """Tables, notes, figure and raw numbers of a benchmark.

    Parameters
    ----------
    name
        Stem of its files.
    tables
        Tables, in the order of the page.
    notes
        Paragraphs below the tables.
    points
        Points of the figure.
    raw
        All numbers, as JSON values.
    """

    name: str
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    points: Sequence[Point] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)

    def to_markdown(self) -> str:
        """Return the page as Markdown."""
        return "\n\n".join([*(table.to_markdown() for table in self.tables), *self.notes]) + "\n"

    def save(self, folder: Path, facts: Mapping[str, Any]) -> list[Path]:
        """Write page, numbers and figure to a folder, and return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        page, numbers = folder / f"{self.name}.md", folder / f"{self.name}.json"
        page.write_text(self.to_markdown(), encoding="utf-8")
        numbers.write_text(json.dumps({**facts, **self.raw}, indent=1) + "\n", encoding="utf-8")
        return [page, numbers, *draw(self.points, folder / self.name, self.tables[0].title)]


def title() -> str:
    """Return one line about the machine and its software."""
    return f"{machine()}, {describe_software()}"


def facts_of(device: torch.device) -> dict[str, Any]:
    """Return the facts on which times depend, including the load of the machine at the start."""
    return {
        "machine": machine(),
        "software": describe_software(),
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
        "fast_bf16": has_fast_bf16(device),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
