"""Argument checks with topofl's messages, and values formatted as text."""

import difflib
import unicodedata
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`, else raise ``ValueError`` with a suggestion.

    Examples
    --------
    >>> check_choice("scale", "quick", ("smoke", "quick", "paper"))
    'quick'
    """
    options = list(choices)
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(map(repr, options))
        raise ValueError(
            f"`{name}` must be one of {listed}, got {value!r}{did_you_mean(value, options)}"
        )
    return value


def check_positive_int(name: str, value: object) -> int:
    """Return `value` as an integer of at least 1, else raise ``TypeError`` or ``ValueError``.

    Examples
    --------
    >>> check_positive_int("jobs", 2)
    2
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be an integer, got {value!r} ({type(value).__name__})")
    if value < 1:
        raise ValueError(f"`{name}` must be at least 1, got {value!r}")
    return int(value)


def check_finite(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array of finite entries, else raise ``ValueError`` with the first bad one.

    Examples
    --------
    >>> check_finite("values", np.array([0.5, 1.0]))
    array([0.5, 1. ])
    """
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"`{name}` must be finite, got {array[place]} at {place} ({len(bad)} such entries)"
        )
    return array


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known word nearest to `word`, or an empty string.

    Examples
    --------
    >>> did_you_mean("dcliqes", ["dcliques", "dpfl"])
    "; did you mean 'dcliques'?"
    """
    close = difflib.get_close_matches(word, list(known), n=1) if isinstance(word, str) else []
    return f"; did you mean {close[0]!r}?" if close else ""


def text_of(value: Any) -> str:
    """Return a value formatted as in topofl's tables: 4 significant digits or digit separators.

    Examples
    --------
    >>> text_of(0.123456), text_of(60000), text_of("ring")
    ('0.1235', '60,000', 'ring')
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return "".join(map(_escaped, str(value)))
    if isinstance(value, Integral):
        return f"{int(value):,}"
    number = float(value)
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e15 else f"{number:.4g}"


def _escaped(character: str) -> str:
    """Return a character, escaped if it breaks a line or controls a terminal."""
    breaks = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
    return character.encode("unicode_escape").decode() if breaks else character
