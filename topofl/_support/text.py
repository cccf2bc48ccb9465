"""Text: values and suggestions in messages, escaping for terminals and tables, times and nodes."""

import difflib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral

NAME_LIMIT = 32
"""Longest label of a node that is shown in full."""

_BIDI_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""Start of text that spreadsheets interpret as a formula, including full-width characters."""

_UNDECODED = re.compile("[\udc80-\udcff]+")
"""Bytes that could not be decoded, as Python has them in paths and arguments."""


def approximate(seconds: float) -> str:
    """Return a predicted time in words, with its two largest units.

    Examples
    --------
    >>> approximate(0.2), approximate(5), approximate(65), approximate(3600)
    ('less than a second', 'about 5 s', 'about 1 min 5 s', 'about 1 h')
    """
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
    words = " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)
    return f"about {words}" if words else "less than a second"


def is_number(text: str) -> bool:
    """Return whether text is a number, as :class:`float` reads it.

    Examples
    --------
    >>> is_number("1e-3"), is_number("nan"), is_number("ring")
    (True, True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def node_name(labels: Sequence[object], node: int) -> str:
    """Return what readers call a node: its label or, if the graph has no labels, its index.

    Labels that could be mistaken are followed by the index: numbers, and labels that are shortened.

    Parameters
    ----------
    labels
        The labels of all nodes; empty means 0..n-1.
    node
        Index of the node.

    Examples
    --------
    >>> node_name((), 1), node_name(("Zug", "Bern"), 1), node_name((30, 40), 1)
    ('1', 'Bern', '40 (index 1)')
    """
    label = printable(str(labels[node])) if 0 <= node < len(labels) else str(node)
    short = label if len(label) <= NAME_LIMIT else f"{label[: NAME_LIMIT - 3]}..."
    is_clear = label == str(node) or (short == label and not is_number(label) and label.strip())
    return short if is_clear else f"{short} (index {node})"


def printable(text: str) -> str:
    r"""Return `text` as one line, with characters that control a terminal escaped.

    These are control characters (C0 and C1), line and paragraph separators, bidirectional controls
    and unpaired surrogates, which cannot be encoded; characters of paths that the locale cannot
    decode, as under ``LC_ALL=C``, are escaped as what they are in UTF-8. Other text is returned
    unchanged.

    Examples
    --------
    >>> print(printable("ring\n\x1b[2J"))
    ring\n\x1b[2J
    >>> print(printable("\udcc3\udca9"))  # the two bytes of an accented e
    \xe9
    """
    if text.isprintable():  # the usual case
        return text
    text = _UNDECODED.sub(_as_utf8, text)
    return "".join(c.encode("unicode_escape").decode() if _is_unsafe(c) else c for c in text)


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an error and of its causes."""
    before = [] if error.__cause__ is None else notes_of(error.__cause__)
    return [*getattr(error, "__notes__", ()), *before]


def _as_utf8(undecoded: re.Match[str]) -> str:
    """Return bytes that Python stands for by surrogates as escaped characters of UTF-8."""
    found = undecoded[0].encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    return found.encode("unicode_escape").decode()


def _is_unsafe(c: str) -> bool:
    kind = unicodedata.category(c)
    return kind in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(c) in _BIDI_CONTROLS


def plain_cell(text: str) -> str:
    r"""Return `text` as a CSV cell that no spreadsheet interprets as a formula.

    It is made :func:`printable`, and text that looks like a formula is prefixed with an apostrophe;
    numbers are unchanged.

    Examples
    --------
    >>> plain_cell("=HYPERLINK(A1)"), plain_cell("-0.5"), plain_cell("ring(n=4)")
    ("'=HYPERLINK(A1)", '-0.5', 'ring(n=4)')
    """
    text = printable(text)
    return f"'{text}" if _FORMULA.match(text) and not is_number(text) else text


def split_at_commas(text: str, brackets: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the parts between commas outside of brackets, and the closing bracket that is missing.

    Parameters
    ----------
    text
        The text.
    brackets
        Closing brackets by opening ones.

    Returns
    -------
    parts
        Texts, with their spaces.
    missing
        The bracket that would have to come next; empty if none is open.

    Examples
    --------
    >>> split_at_commas("ring, [1, 2]", {"[": "]"}), split_at_commas("[1", {"[": "]"})[1]
    ((['ring', ' [1, 2]'], ''), ']')
    """
    parts = [""]
    closing: list[str] = []
    for letter in text:
        if letter == "," and not closing:
            parts.append("")
            continue
        parts[-1] += letter
        if letter in brackets:
            closing.append(brackets[letter])
        elif closing and letter == closing[-1]:
            closing.pop()
    return parts, closing[-1] if closing else ""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known word nearest to `word`, or an empty string.

    Examples
    --------
    >>> did_you_mean("dsdg", ["dsgd", "dsgt"]), did_you_mean(3, ["dsgd"])
    ("; did you mean 'dsgd'?", '')
    """
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
