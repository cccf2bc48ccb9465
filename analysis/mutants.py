"""Change one place of the source at a time, and see whether the tests notice.

``python -m analysis.mutants --count 60`` draws places in the packages below: a comparison, an
arithmetic or logical operator, a whole number, a truth value or a call whose result is not used.
Each is changed in a copy of the source tree, in which the tests then run: first those of the
package and the contracts that concern it, without the slow ones, then all, until one fails. A
mutant that no test fails has survived. The output states each survivor with its line, before and
after; `--only` runs a survivor again. `--package` draws from one package, and `--own` runs only the
first group, so that more survive than without it. The exit code is 1 if fewer than 90 % were
killed. All of 60 mutants take hours on two cores, since each survivor takes as long as the suite.
Run it in a source checkout, whose tests pass.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .program import parser_of

PACKAGES = ("metrics", "topologies", "mixing", "engine", "algorithms", "runs", "history")

CONTRACTS = {
    "metrics": ["metrics", "graphs"],
    "topologies": ["graphs"],
    "mixing": ["weights", "graphs", "methods"],
    "engine": ["methods", "runs"],
    "algorithms": ["methods", "runs"],
    "runs": ["stores", "stored", "runs"],
    "history": ["stored", "runs"],
}
"""Contracts that concern a package, by their modules in tests/contracts."""

NOTICED = 0.9
"""Share of mutants that tests must kill."""

COPIED = ("topofl", "tests", "analysis", "paper_figures", "docs", ".ci")

OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
"""Each operator, and the one that replaces it."""


@dataclass(frozen=True)
class Mutant:
    """A file in which the bytes from `start` to `stop` are replaced by `text`."""

    path: Path
    start: int
    stop: int
    text: bytes

    def __str__(self) -> str:
        source, new = self.path.read_bytes(), self.applied()
        line = source[: self.start].count(b"\n")
        before, after = (text.splitlines()[line].decode().strip() for text in (source, new))
        return f"{self.path}:{line + 1}\n    {before}\n    {after}"

    def applied(self) -> bytes:
        """Return the changed source."""
        source = self.path.read_bytes()
        return source[: self.start] + self.text + source[self.stop :]


def mutants_of(path: Path) -> list[Mutant]:
    """Return all mutants of a file, in the order of their places.

    Annotations, decorators, docstrings, and the texts of messages are left as they are.
    """
    source = path.read_bytes()
    starts = [0, *(match.end() for match in re.finditer(rb"\n", source))]
    found = list[Mutant]()

    def ends(node: ast.expr | ast.stmt) -> tuple[int, int]:
        last = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
        return starts[node.lineno - 1] + node.col_offset, last

    def replace(start: int, stop: int, old: str, new: str) -> None:
        pattern = r"\s+".join(map(re.escape, old.split())) + r"\s*" * (not new)
        if match := re.search(pattern.encode(), source[start:stop]):
            found.append(Mutant(path, start + match.start(), start + match.end(), new.encode()))

    for node in _code(ast.parse(source)):
        begin, end = ends(node)
        for left, operator, right in _operations(node):
            if type(operator) in OPERATORS:
                replace(ends(left)[1], ends(right)[0], *OPERATORS[type(operator)])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            replace(begin, end, "not", "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            replace(begin, end, str(node.value), str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            found.append(Mutant(path, begin, end, str(node.value + 1).encode()))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            found.append(Mutant(path, begin, end, b"pass"))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.stop))


def _operations(node: ast.expr | ast.stmt) -> Iterator[tuple[ast.expr, ast.AST, ast.expr]]:
    """Yield the operators of a node, each between its operands."""
    if isinstance(node, ast.Compare):
        yield from zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
    elif isinstance(node, ast.BinOp):
        yield node.left, node.op, node.right
    elif isinstance(node, ast.BoolOp):
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield left, node.op, right


def _code(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the expressions and statements that run, other than texts and annotations."""
    left_out = {"annotation", "returns", "decorator_list", "type_params"}
    if isinstance(tree, ast.JoinedStr | ast.Raise | ast.Import | ast.ImportFrom):
        return
    if isinstance(tree, ast.keyword) and tree.arg == "strict":  # only guards against our mistakes
        return
    if isinstance(tree, ast.expr | ast.stmt):
        yield tree
    for name, value in ast.iter_fields(tree):
        if name not in left_out:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _code(child)


def drawn(root: Path, count: int, seed: int, packages: Sequence[str] = PACKAGES) -> list[Mutant]:
    """Return `count` mutants, as many of each package as of the others, drawn by a seed."""
    rng, every = np.random.default_rng(seed), list[list[Mutant]]()
    for package in packages:
        place = Path("topofl", package)
        files = sorted(root.glob(f"{place}/**/*.py")) or [root / f"{place}.py"]
        own = [mutant for path in files for mutant in mutants_of(path)]
        every.append([own[k] for k in rng.permutation(len(own))])
    return [every[k % len(packages)][k // len(packages)] for k in range(count)]


def killed_by(
    mutant: Mutant, root: Path, seconds: float, jobs: int = 0, *, own: bool = False
) -> str:
    """Return the first test that fails with a mutant; empty if it survived.

    The tests of its package come first, with the contracts that concern it, then all.

    Parameters
    ----------
    mutant
        A mutant of a file below `root`.
    root
        The source checkout.
    seconds
        Time after which tests that still run count as failed.
    jobs
        Processes that run tests (pytest-xdist); 0: this one's child alone.
    own
        Whether to leave out all others, and the slow ones.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as place:
        copy = Path(place)
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(
                    root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__")
                )
        for path in root.iterdir():
            if path.is_file():
                shutil.copy(path, copy)
        where = mutant.path.relative_to(root)
        (copy / where).write_bytes(mutant.applied())
        package = where.with_suffix("").parts[1].lstrip("_")
        first = [f"tests/{package}", f"tests/refusals/test_{package}.py"]
        contracts = CONTRACTS.get(package, [])
        first += [f"tests/contracts/test_{contract}.py" for contract in contracts]
        present = [name for name in first if (copy / name).exists()]
        groups = [["-m", "not slow", *present] if present else [], [] if own else ["tests"]]
        for group in filter(None, groups):
            if failed := _first_failure(copy, group, seconds, jobs):
                return failed
    return ""


def _first_failure(root: Path, tests: Sequence[str], seconds: float, jobs: int) -> str:
    """Return the first test that fails in a source tree; empty if none does."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            [*command, *(["-n", str(jobs)] if jobs else [])],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{tests[-1]} took more than {seconds:g} seconds"
    if done.returncode in (0, 5):  # 5: no tests were found
        return ""
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failures[0] if failures else done.stdout.strip().splitlines()[-1]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the mutants from the command line; return 1 if tests killed fewer than 90 %."""
    parser = parser_of(
        "mutants",
        __doc__,
        count=(60, "mutants in all"),
        seed=(0, "of the places"),
        seconds=(1800.0, "time of tests that hang"),
        jobs=(os.cpu_count() or 1, "processes that run tests"),
    )
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the mutants to run")
    parser.add_argument("--package", help="draw from this one only, such as data")
    parser.add_argument("--own", action="store_true", help="run the first group alone")
    options = parser.parse_args(argv)
    root = Path(__file__).parents[1]
    packages = [options.package] if options.package else PACKAGES
    chosen = list(enumerate(drawn(root, options.count, options.seed, packages)))
    if options.only is not None:
        chosen = [chosen[k] for k in options.only]
    survivors = 0
    for k, mutant in chosen:
        failed = killed_by(mutant, root, options.seconds, options.jobs, own=options.own)
        survivors += not failed
        print(f"{k}: {f'killed by {failed}' if failed else 'SURVIVED'}: {mutant}", flush=True)
    share = 1 - survivors / max(1, len(chosen))
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants were killed, {share:.0%}")
    return 0 if share >= NOTICED else 1


if __name__ == "__main__":
    sys.exit(main())
