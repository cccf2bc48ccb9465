"""What a run shows while it computes: a progress bar, and a warning about emulated arithmetic."""

import warnings
from collections.abc import Iterator

from topofl._support.callers import in_notebook
from topofl._support.machine import emulates_bf16
from topofl._support.text import printable
from topofl.engine.plan import Backend

__all__ = ["progress_bar", "warn_of_emulation"]


def warn_of_emulation(compute: Backend) -> None:
    """Warn if the device has no bfloat16 products and must emulate them."""
    if compute.low is not None and emulates_bf16(compute.device):
        needs = " (AMX or AVX-512 BF16)" if compute.device.type == "cpu" else ""
        text = (
            f"`precision` 'bf16' is emulated on {compute.device}, "
            f"which has no bfloat16 products{needs}: leave it out"
        )
        warnings.warn(text, RuntimeWarning, stacklevel=6)


def progress_bar(start: int, rounds: int, progress: bool | str, title: str) -> Iterator[int]:
    """Return the rounds of a run, shown as a progress bar."""
    with warnings.catch_warnings():  # a bar of text takes the place of a missing widget
        warnings.filterwarnings("ignore", "IProgress not found")
        from tqdm.auto import tqdm

    quiet = False if in_notebook() else None  # None: silent unless on a terminal
    disable = quiet if progress == "auto" else not progress
    bar = {"desc": printable(title), "disable": disable, "leave": False, "unit": "round"}
    return iter(tqdm(range(start, rounds), initial=start, total=rounds, **bar))
