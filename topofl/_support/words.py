"""Checks of text, switches, functions and paths; values shortened for error messages."""

import difflib
import inspect
import math
import os
from collections.abc import Iterable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

__all__ = [
    "check_choice",
    "check_path",
    "check_sequence",
    "check_switch",
    "check_takes",
    "did_you_mean",
    "nearest",
    "plain_text",
    "shown",
]


def check_switch(name: str, value: object, *, auto: bool = True) -> bool | str:
    """Return `value` if it is a boolean or, with `auto`, ``"auto"``; else raise ``ValueError``."""
    if isinstance(value, bool) or (auto and isinstance(value, str) and value == "auto"):
        return value
    known = "True, False or 'auto'" if auto else "True or False"
    raise ValueError(f"`{name}` must be {known}, got {shown(value)}")


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`, else raise ``ValueError`` with a suggestion."""
    options = list(choices)
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(
            f"`{name}` must be one of {listed}, got {shown(value)}{did_you_mean(value, options)}"
        )
    return value


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known word nearest to `word`, or an empty string."""
    if not isinstance(word, str):
        return ""
    near = nearest(word, known)
    return f"; did you mean {near!r}?" if near is not None else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was most likely meant, or None if no one is similar.

    A word with the same letters in another order comes first, then one that begins with the given
    word, and then the most similar one. Upper and lower case are alike.

    Examples
    --------
    >>> nearest("dsdg", ["dsgt", "dsgd"]), nearest("clique_sz", ["n", "clique_size"])
    ('dsgd', 'clique_size')
    >>> nearest("metropolis", ["weighted_metropolis", "metropolis_hastings"])
    'metropolis_hastings'
    """
    low = word.lower()

    def likeness(candidate: str) -> tuple[bool, bool, float]:
        other = candidate.lower()
        ratio = difflib.SequenceMatcher(None, other, low).ratio()
        begins = len(low) >= 3 and other.startswith(low)
        return sorted(low) == sorted(other), begins, ratio

    found = [(likeness(one), one) for one in known if isinstance(one, str)]
    found = [(like, one) for like, one in found if any(like[:2]) or like[2] >= 0.6]
    return max(found)[1] if found else None


def check_takes(what: str, function: object, *names: str) -> None:
    """Raise ``TypeError`` unless `function` is one that accepts these positional arguments."""
    if not callable(function):
        raise TypeError(f"{what} must be a function of ({', '.join(names)}), got {shown(function)}")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some functions written in C have no signature
        return
    try:
        signature.bind(*names)
    except TypeError:
        raise TypeError(
            f"{what} must be a function of ({', '.join(names)}), got one of "
            f"{str(signature).partition(' ->')[0]}"
        ) from None


def check_path(name: str, value: object, kind: str = "folder") -> Path:
    """Return `value` as the path of a file or folder (`kind`), or raise.

    Raises
    ------
    TypeError
        If it is neither a string nor a path.
    ValueError
        If it is empty, contains a null character or one that the file system cannot encode, or has
        a part of more than 255 bytes.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        got = f"{shown(value)} ({type(value).__name__})"
        raise TypeError(
            f"`{name}` must be the path of a {kind}, as text or a pathlib.Path, got {got}"
        )
    if not text or "\0" in text:
        got = (
            "an empty text; the current folder is '.'"
            if not text
            else f"{text!r:.80} with a null character"
        )
        raise ValueError(f"`{name}` must be the path of a {kind}, got {got}")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"`{name}` must be the path of a {kind}, got {shown(text)}, with a character that "
            f"names of files cannot have here ({error.encoding}); leave it out"
        ) from None
    if any(len(part.encode("utf-8", "replace")) > 255 for part in Path(text).parts):
        raise ValueError(
            f"`{name}` must be the path of a {kind}, got {shown(text)}, a name of more than 255 "
            "bytes"
        )
    return Path(text)


def shown(value: object, length: int = 100) -> str:
    """Return a value as one shortened line of text for an error message.

    Examples
    --------
    >>> import numpy as np
    >>> shown(np.eye(2)), shown(10**50), shown("ring")
    ('array([[1., 0.], [0., 1.]])', 'about 10^50', "'ring'")
    """
    if isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) >= 10**40:
        return f"about {'-' if value < 0 else ''}10^{int(math.log10(abs(int(value))))}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # raised by foreign classes, or for huge integers inside a container
        return f"something of type {type(value).__name__}"
    return text if len(text) <= length else f"{text[: length - 3]}..."


def plain_text(value: object) -> str:
    """Return text as it is, and any other value as :func:`shown`, for tables and labels.

    Examples
    --------
    >>> plain_text("ring"), plain_text([1, 2])
    ('ring', '[1, 2]')
    """
    return value if isinstance(value, str) else shown(value)


def check_sequence(name: str, value: Any, of: str = "") -> list[Any]:
    """Return the items of a sequence as a list, or raise ``TypeError``; text is not a sequence."""
    try:
        if not isinstance(value, str | bytes | Mapping):
            return list(value)
    except (TypeError, RuntimeError, NotImplementedError):  # 0-dimensional arrays and tensors
        pass
    wanted = f"a sequence of {of}" if of else "a sequence"
    raise TypeError(f"`{name}` must be {wanted}, got {shown(value)} ({type(value).__name__})")
