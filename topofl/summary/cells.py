"""Numbers as text, rounded to the digit of their standard error."""

import math
from dataclasses import dataclass

from topofl._support.table import as_text
from topofl.summary.verdicts import ROUNDING

__all__ = ["Cell", "decimals_of", "rounded"]


@dataclass(frozen=True)
class Cell:
    """Text of a number in a table, aligned to the right as numbers are.

    Examples
    --------
    >>> print(Cell("0.81 ± 0.02"))
    0.81 ± 0.02
    """

    text: str

    def __str__(self) -> str:
        return self.text


def decimals_of(error: float) -> int | None:
    """Return the decimals that a standard error leaves meaningful; None if it is 0 or not finite.

    These end at the error's first significant digit or, if that is a 1, at its second, because
    rounding 0.014 to 0.01 would change it by a third. They are negative for errors above 10.

    Examples
    --------
    >>> decimals_of(0.0034), decimals_of(0.0134), decimals_of(0.096), decimals_of(250.0)
    (3, 3, 2, -2)
    """
    if not math.isfinite(error) or error <= 0:
        return None
    digit, exponent = f"{error:.0e}".split("e")  # 0.096 is 0.1 with one digit, and 0.10 with two
    return (digit == "1") - int(exponent)


def rounded(value: float, error: float, half: float | None = None) -> str:
    """Return a mean, and the half-width of its interval, rounded to the digit of its error.

    Parameters
    ----------
    value
        The mean.
    error
        Its standard error; if that is 0 or unknown (NaN), the mean has four digits.
    half
        Half-width of the confidence interval; None or NaN: only the mean.

    Examples
    --------
    >>> rounded(0.812345, 0.0034, 0.0094), rounded(0.812345, math.nan)
    ('0.812 ± 0.009', '0.8123')
    """
    if error <= ROUNDING * max(1.0, abs(value)):  # equal numbers whose mean was rounded
        error, half = 0.0, 0.0 if half is not None and math.isfinite(half) else None
    if not math.isfinite(value):
        return "n/a" if math.isnan(value) else as_text(value)
    decimals = decimals_of(error)
    texts = [
        as_text(number) if decimals is None else _fixed(number, decimals)
        for number in ((value,) if half is None or not math.isfinite(half) else (value, half))
    ]
    return " ± ".join(texts)


def _fixed(number: float, decimals: int) -> str:
    """Return a number with this many decimals, never as minus zero."""
    text = f"{round(float(number), decimals):,.{max(0, decimals)}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text
