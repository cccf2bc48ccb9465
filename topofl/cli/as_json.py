"""JSON on stdout: a list with one object per row, without numpy, which takes long to load."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["print_rows"]


def print_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as a JSON list of objects: null for NaN, and "inf" for infinity."""
    plain = [{key: _plain(value) for key, value in row.items()} for row in rows]
    print(json.dumps(plain, indent=2, allow_nan=False, default=str))


def _plain(value: Any) -> Any:
    """Return a value that JSON has: it has neither NaN nor infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
