"""Write one page that says how far topofl can be trusted, from what was measured.

``python -m analysis.trust`` reads committed results in this checkout and writes
``analysis/results/trust/trust.md``; a test compares the page with what it would write. Checks that
take long are performed by programs of their own, which ``checks.toml`` in the same folder names
with what they found and when; change it after running one of them again.
"""

import json
import re
import statistics
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from topofl import Table, algorithms

from .peers.page import later_round
from .program import parser_of

HERE = Path(__file__).resolve().parents[1]

FOLDER = HERE / "analysis" / "results" / "trust"

ROUNDING = 1e-12
"""Largest difference that counts as rounding; parameters of the comparisons are up to about 20."""

COLUMNS = ("question", "found", "when", "how to ask again")


def page() -> str:
    """Return the page."""
    parts = [
        "# How far topofl can be trusted",
        "`python -m analysis.trust` writes this page from results in the tree. Each row says what "
        "was asked, what was found, be it welcome or not, and how to ask again.",
        Table(COLUMNS, (*_equality(), *_checks(), *_speed(), *_claims())).to_markdown(),
        "What is known to fail is on the page [Limits](../../../docs/limits.md).",
    ]
    return "\n\n".join(parts) + "\n"


def _equality() -> Iterator[tuple[str, ...]]:
    """Yield what methods were compared with."""
    methods = len(set(algorithms.__all__) - {"timed"})  # which changes another
    yield (
        "Is each method what its paper says?",
        f"{methods} methods equal a readable loop over nodes in float64",
        "every run of the tests",
        "`pytest tests/contracts/test_methods.py`; the loops: `tests/naive.py`",
    )
    found = list(differences())
    small = sum(one < ROUNDING for one in found)
    yield (
        "Does public code compute the same?",
        f"{small} of {len(found)} comparisons agree up to rounding (less than {ROUNDING:g}); the "
        "others are explained in their rows",
        "see there",
        "[Compared with public code](../../../docs/compared-with-public-code.md)",
    )


def differences() -> Iterator[float]:
    """Yield the first difference that each row of the comparisons with public code states."""
    text = (HERE / "docs" / "compared-with-public-code.md").read_text("utf-8")
    for table in re.split(r"\n\n", text):
        header, *rows = table.splitlines()
        if "largest difference" in header:
            place = [cell.strip() for cell in header.split("|")].index("largest difference")
            for row in rows[1:]:
                number = re.match(r"[\d.]+(?:e-?\d+)?", row.split("|")[place].strip())
                if number:
                    yield float(number[0])


def _checks() -> Iterator[tuple[str, ...]]:
    """Yield what programs found that take long."""
    for check in tomllib.loads((FOLDER / "checks.toml").read_text("utf-8"))["check"]:
        yield check["question"], check["found"], str(check["date"]), f"`{check['command']}`"


def _speed() -> Iterator[tuple[str, ...]]:
    """Yield how long rounds take, compared with the floor and with peers."""
    training = _json("benchmark/cpu-training.json")
    ratios = re.findall(
        r"\| ours / floor: [^|]*\| ([\d.]+) \|",
        (HERE / "analysis/results/benchmark/cpu-training.md").read_text("utf-8"),
    )
    numbers = sorted(map(float, ratios))
    yield (
        "How far from the bare kernels?",
        f"{numbers[0]:.2f} to {numbers[-1]:.2f} times their time, {len(numbers)} cases",
        training["date"][:10],
        "`python -m analysis.benchmark training`; "
        "[targets, met or not](../../../docs/results/benchmarks.md)",
    )
    for label, record in _json("peers/peers.json").items():
        best, ratio = _best_peer(record)
        yield (
            f"Faster than peers, setting {label}?",
            f"{ratio:.2g} of the time of {best} per round",
            record["facts"]["date"],
            "`python -m analysis.benchmark peers`; "
            "[settings, losses](../../../docs/results/peers.md)",
        )


def _best_peer(record: Mapping[str, Any]) -> tuple[str, float]:
    """Return the peer with the shortest rounds after the first, and the median of our ratios."""
    times = {
        name: list(map(later_round, runs))
        for name, runs in record["runs"].items()
        if not isinstance(runs, str)
    }
    ours = times.pop("topofl")
    best = min(times, key=lambda name: statistics.median(times[name]))
    ratios = [own / other for own, other in zip(ours, times[best], strict=True)]
    return record["names"][best], statistics.median(ratios)


def _claims() -> Iterator[tuple[str, ...]]:
    """Yield what became of the claims of papers, by the table of the page on papers."""
    text = (HERE / "docs" / "papers" / "index.md").read_text("utf-8")
    row = r"^\| (.+?) \| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|"
    for paper, scale, claims, hold, fail, left in re.findall(row, text, re.MULTILINE):
        yield (
            f"Do claims of {paper.partition(',')[0]} hold? ({scale})",
            f"{hold} of {claims} hold, {fail} fail, {left} are undecided",
            "see the report",
            "`topofl reproduce`; [papers](../../../docs/papers/index.md)",
        )


def _json(name: str) -> Any:
    return json.loads((HERE / "analysis" / "results" / name).read_text("utf-8"))


def main() -> None:
    """Write the page."""
    parser_of("trust", __doc__).parse_args()
    (FOLDER / "trust.md").write_text(page(), "utf-8")
    print(f"written: {FOLDER / 'trust.md'}")


if __name__ == "__main__":
    main()
