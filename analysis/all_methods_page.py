"""The page of all methods: written from ``results.json``, docstrings, declarations and the docs."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from topofl import Table, algorithms, citations
from topofl.algorithms.contract import needs as known_needs
from topofl.leaderboard import Task, tasks

from .all_methods_cells import GRAPHLESS, ROWS, STUDY, Cell, Cells, Preset, Row
from .program import as_installed, write

BLOCKS = "▁▂▃▄▅▆▇█"
"""Eighths of the way from 0 to 100 %."""

POINTS = 11
"""Evaluations that a curve in the table shows, the first and the last among them."""

BYTES_ON = "digits-mlp"
"""The task whose bytes the first table has."""

PUBLIC_CODE = Path(__file__).resolve().parents[1] / "docs" / "compared-with-public-code.md"

ROUNDING = 1e-6
"""Differences up to this are rounding: the largest, of one that computes in float32, is 1.5e-7."""


def save(cells: Cells, preset: Preset, folder: Path) -> None:
    """Write ``table.md`` and the figures of learning curves to a folder."""
    write(folder, table=page(cells, preset))
    for task in preset.tasks:
        draw(cells, task, folder / f"curves-{task.key}.png")


def page(cells: Cells, preset: Preset) -> str:
    """Return the page as Markdown."""
    parts = ["# All methods", _introduction(preset), about_methods(cells).to_markdown()]
    for task in preset.tasks:
        parts += [f"## {task.title}", _about(task), results_of(cells, task).to_markdown()]
        parts += _without_result(cells, task)
        parts.append(f"![Learning curves of all methods, {task.title}.](curves-{task.key}.png)")
    parts += ["## Settings", _SETTINGS, settings_of(cells, preset).to_markdown()]
    return "\n\n".join(parts) + "\n"


def _introduction(preset: Preset) -> str:
    count = len(ROWS)
    text = f"""\
`python -m analysis.all_methods` writes this page. It has the {count} public methods of topofl:
where each comes from, what its messages hold, what it needs, and what it reaches on
{len(preset.tasks)} frozen tasks of the leaderboard with a tuned learning rate. `results.json` next
to this page has, for each method and task, the settings, every learning rate that was tried with
its score, the one that was chosen, and the learning curve. `python -m analysis.all_methods --check`
runs the tuned settings again and compares.

**Paper and year** are those that the docstring cites. **Graph must be**: what is checked before a
run, see `topofl list algorithm --needs`. **Directed**: whether a graph may be directed; "weighted"
means that losses of nodes then count by their shares in the average, of which a run warns, and
"regular" that all nodes must have equally many neighbors. **State** is what a node stores between
rounds in addition to its model, in models; that of a server is divided among the nodes. **Bytes**
are those that a node sends per round on average, with what a server sends divided among the nodes,
on {BYTES_ON}. **Public code** has the largest difference from public implementations, as
[compared](../../../docs/compared-with-public-code.md)."""
    return as_installed(text)


class Compared(NamedTuple):
    """A comparison with public code: which code, and the largest difference."""

    code: str
    difference: str
    is_equal: bool


@cache
def public_code() -> dict[str, tuple[Compared, ...]]:
    """Return the comparisons of each method that the page of the docs has."""
    found: dict[str, list[Compared]] = {}
    for line in PUBLIC_CODE.read_text(encoding="utf-8").splitlines():
        columns = [part.strip() for part in line.strip().strip("|").split(" | ")]
        if not line.startswith("| ") or len(columns) < 4 or columns[0] == "method":
            continue
        difference = re.match(r"[\d.]+(?:e-?\d+)?", columns[3])
        if difference is None or columns[1].startswith("the same handler"):
            continue
        named = {re.sub(r"\W|_", "", word).lower() for word in re.split(r"[ ,]", columns[0])}
        for name in algorithms.__all__:
            if name.replace("_", "") in named:
                is_equal = float(difference[0]) <= ROUNDING
                one = Compared(_code(columns[1]), difference[0], is_equal)
                found.setdefault(name, []).append(one)
    return {name: tuple(several) for name, several in found.items()}


def _code(text: str) -> str:
    """Return the repository in the description of an implementation, or its first words."""
    repository = re.search(r"\b[A-Za-z][\w-]+/[\w-]+(?=[,)\s]|$)", text.replace("`", " "))
    return repository[0] if repository else re.split(r"[,(]", text.replace("`", ""))[0].strip()


def _public(name: str) -> str:
    found = public_code().get(name, ())
    if not found:
        return "not compared"
    told = [f"{one.code}: {one.difference}" for one in found]
    is_equal = any(one.is_equal for one in found)
    return f"{'equal' if is_equal else 'differs'} ({'; '.join(dict.fromkeys(told))})"


@cache
def _works(name: str) -> list[dict[str, str]]:
    """Return the fields of the BibTeX entries that a method cites, ordered by year."""
    entries = citations(getattr(algorithms, name)).split("\n% ")[1:]  # without that of topofl
    found = [dict(re.findall(r"^  (\w+) = \{(.*)\},?$", one, re.MULTILINE)) for one in entries]
    return sorted(found, key=lambda work: work["year"])


def _plain(text: str) -> str:
    """Return text of BibTeX without braces and commands of accents."""
    bare = re.sub(r"\\[`'^\"~=.cuvHk]\s*|[{}]|\\(?=[a-zA-Z])", "", text)
    return unicodedata.normalize("NFC", bare).replace("$", "").replace("|", "/")


def _paper(name: str) -> str:
    """Return the first author and the title of each work that the method comes from."""
    told = []
    for work in _works(name):
        names = _plain(work["author"]).split(" and ")
        first = names[0].split(",")[0]
        told.append(f"{first}{' et al.' * (len(names) > 1)}, {_plain(work['title'])}")
    return "; ".join(told)


def _needs(row: Row) -> str:
    """Return what a run requires of its graph."""
    if not row.has_graph:
        return GRAPHLESS[row.graph]
    built = getattr(algorithms, row.name)(lr=0.1, **row.arguments)
    names = [need.name for need in built.needs if need.name != known_needs.equal_shares.name]
    return ", ".join(names) or "any"


def _directed(row: Row) -> str:
    """Return whether the graph of a method may be directed."""
    if not row.has_graph:
        return ""
    names = {need.name for need in getattr(algorithms, row.name)(lr=0.1, **row.arguments).needs}
    if names & {known_needs.undirected.name, known_needs.symmetric.name}:
        return "no"
    if known_needs.doubly_stochastic.name in names:
        return "regular"
    return "weighted" if known_needs.equal_shares.name in names else "yes"


def _costs(cells: Cells, name: str) -> tuple[str, str, str]:
    """Return state, messages and bytes of a method, on another task if one has no result."""
    for key in (BYTES_ON, *STUDY["tasks"]):
        cell = cells.get((name, key))
        if cell is not None and not cell.refused:
            told = f"{cell.bytes:,.0f}" + f" ({key})" * (key != BYTES_ON)
            return f"{cell.state:g}", f"{cell.messages:.3g}", told
    return "not run", "not run", "not run"


def about_methods(cells: Cells) -> Table:
    """Return one row per method: where it comes from, what it sends, needs and stores."""
    columns = (
        "method", "paper", "year", "messages hold", "server", "graph must be", "directed",
        "state, models", "messages", "bytes", "public code",
    )  # fmt: skip
    (task,), rows = tasks([BYTES_ON]), []
    for name, declared in ROWS.items():
        row, years = declared.for_task(task), [work["year"] for work in _works(name)]
        server = "yes" if row.graph == "server" else "no"
        about = (row.exchanges, server, _needs(row), _directed(row), *_costs(cells, name))
        years = ", ".join(dict.fromkeys(years))
        rows.append((f"`{name}`", _paper(name), years, *about, _public(name)))
    return Table(columns, tuple(rows), title="Where methods come from, and what they need")


def _about(task: Task) -> str:
    def listed(values: Sequence[Any]) -> str:
        return ", ".join(f"{value:g}" for value in values)

    is_own = task.tables["evaluation"].get("on") == "own_test"
    return (
        f"{task.about} {task.tables['run']['rounds']} rounds, minibatches of {task.batch_size}. "
        f"Learning rates {listed(task.rates)} on seed {listed(task.tuning_seeds)}, then up to "
        f"{STUDY['beyond']} further ones while the best is at an end; results are of "
        f"{'seeds' if len(task.seeds) > 1 else 'seed'} {listed(task.seeds)}. A run that diverges "
        "counts as 0, and is not in the curve. A star marks a chosen rate at an end of those "
        "tried, a dagger methods that give nodes models of their own"
        + ("." if is_own else ", which this task judges on the classes of all nodes.")
    )


def _rate(cell: Cell) -> str:
    """Return the chosen rate, with a star if it is at an end of those that were tried."""
    rates = [float(lr) for lr in cell.tried]
    return f"{cell.lr:g}{'*' * (cell.lr in (min(rates), max(rates)))}"


def sparkline(curve: Sequence[float]) -> str:
    """Return accuracies at evenly spaced evaluations as blocks, from 0 to 1.

    Examples
    --------
    >>> sparkline([0.0, 0.5, 1.0])
    '▁▅█'
    """
    places = np.unique(np.linspace(0, len(curve) - 1, POINTS).round().astype(int))
    return "".join(
        BLOCKS[min(int(curve[place] * len(BLOCKS)), len(BLOCKS) - 1)] for place in places
    )


def results_of(cells: Cells, task: Task) -> Table:
    """Return one row per method: its graph, its tuned rate and what it reaches on a task."""
    columns = (
        "method", "graph", "steps", "rate", "curve", "over rounds, %", "final, %", "worst node, %",
    )  # fmt: skip
    rows = []
    for name, declared in ROWS.items():
        row, cell = declared.for_task(task), cells.get((name, task.key))
        about = (f"`{name}`{' †' * row.personal}", GRAPHLESS.get(row.graph, row.graph))
        if cell is None:
            rows.append((*about, *["not run"] * 6))
        elif cell.refused:
            rows.append((*about, *["n/a"] * 6))
        else:
            shown = [_spread(values) for values in (cell.learning, cell.final, cell.worst)]
            rows.append((*about, f"{cell.steps:.3g}", _rate(cell), sparkline(cell.curve), *shown))
    spread = ": mean over seeds (lowest to highest)" if len(task.seeds) > 1 else ", one seed"
    return Table(columns, tuple(rows), title=f"{task.key}{spread}")


def _spread(values: Sequence[float]) -> str:
    low, mean, high = (100 * value for value in (min(values), np.mean(values), max(values)))
    return f"{mean:.1f} ({low:.1f} to {high:.1f})" if len(values) > 1 else f"{mean:.1f}"


def _without_result(cells: Cells, task: Task) -> list[str]:
    """Return the sentences that say why methods have no result, those with one reason together."""
    reasons: dict[str, list[str]] = {}
    for name in ROWS:
        cell = cells.get((name, task.key))
        if cell is not None and cell.refused:
            reasons.setdefault(cell.refused, []).append(f"`{name}`")
    return [f"No result of {', '.join(names)}: {reason}." for reason, names in reasons.items()]


_SETTINGS = f"""\
Methods run with the defaults of their functions, except for what this table has: required
arguments, and choices with a reason. Only learning rates are tuned. Local work is given by the
tasks: minibatches, and {STUDY["epochs"]} pass over a node's data per round for methods that count
passes; the column "steps" of the tables above has the steps per node and round that result."""


def settings_of(cells: Cells, preset: Preset) -> Table:
    """Return the arguments and notes of methods that have some."""
    rows = []
    for name, row in ROWS.items():
        own = {task.key: row.for_task(task) for task in preset.tasks}
        told = {key: _arguments(one) for key, one in own.items()}
        texts = set(told.values())
        text = (
            texts.pop() if len(texts) == 1 else "; ".join(f"{k}: {v}" for k, v in told.items() if v)
        )
        if text or row.note:
            rows.append((f"`{name}`", text, row.note))
    return Table(("method", "arguments", "note"), tuple(rows))


def _arguments(row: Row) -> str:
    """Return the arguments and other choices of a row as text."""
    told = {name: _brief(value) for name, value in row.arguments.items()}
    told |= {"with_validation": f"{row.validation:g}"} if row.validation else {}
    told |= {"model": row.model} if row.model else {}
    return ", ".join(f"{name}={value}" for name, value in told.items())


def _brief(value: Any) -> str:
    """Return a value as text, of groups of nodes only their sizes."""
    if isinstance(value, list):
        return f"{len(value)} of {len(value[0])} nodes"
    return f"{value:g}" if isinstance(value, float) else str(value)


def draw(cells: Cells, task: Task, path: Path) -> None:
    """Write the figure of the learning curves on a task, one panel per family."""
    families = list(dict.fromkeys(row.family for row in ROWS.values()))
    figure = Figure((15, 3.2 * -(-len(families) // 3)), layout="constrained")
    axes = figure.subplots(-(-len(families) // 3), 3, sharex=True, sharey=True).flat
    for ax, family in zip(axes, families, strict=False):
        names = [name for name, row in ROWS.items() if row.family == family]
        for place, name in enumerate(names):
            cell = cells.get((name, task.key))
            if cell is not None and cell.curve:
                style = ("-", "--", ":")[place // 10]
                ax.plot(cell.rounds, 100 * np.array(cell.curve), style, label=name, linewidth=1.3)
        reference = cells.get(("dsgd", task.key))
        if reference is not None and reference.curve and "dsgd" not in names:
            ax.plot(reference.rounds, 100 * np.array(reference.curve), color="black", linewidth=0.8)
        ax.set_title(family, loc="left", fontsize=10)
        ax.set(ylim=(0, 100))
        ax.grid(alpha=0.3)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=6, ncols=2, loc="lower right")
    figure.supxlabel("round")
    figure.supylabel("test accuracy, %: mean over nodes and seeds")
    figure.suptitle(f"{task.title}; black: dsgd")
    figure.savefig(path, dpi=80)
