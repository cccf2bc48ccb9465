"""Escaping of untrusted text for terminals, tables and spreadsheets; times and nodes in words."""

import re
import unicodedata
from collections.abc import Mapping, Sequence

__all__ = ["approximate", "is_number", "node_name", "plain_cell", "printable", "split_at_commas"]

NAME_LIMIT = 32
"""Longest label of a node that is shown in full."""

_SHORT_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}

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
    return "".join(_escaped(c) if _is_unsafe(c) else c for c in text)


def _as_utf8(undecoded: re.Match[str]) -> str:
    """Return bytes that Python stands for by surrogates as escaped characters of UTF-8."""
    found = undecoded[0].encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    return "".join(map(_escaped, found))


def _is_unsafe(character: str) -> bool:
    kind = unicodedata.category(character)
    return (
        kind in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(character) in _BIDI_CONTROLS
    )


def _escaped(character: str) -> str:
    return _SHORT_ESCAPES.get(character) or character.encode("unicode_escape").decode()


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
    if not _FORMULA.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


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
