"""``topofl spectral``: comparison of graphs before training."""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from topofl import metrics
from topofl._spec import at, build_topology
from topofl._support.calls import parse_spec, table_of
from topofl._support.suffixes import is_graph_file
from topofl._support.table import Table
from topofl.cli.clients import check_needs_data, clients_of, n_of
from topofl.cli.notes import print_notes
from topofl.cli.output import print_table
from topofl.config.tables import build_rule
from topofl.data import Partition
from topofl.metrics._columns import headline
from topofl.metrics.compare import HINT
from topofl.mixing import WeightRule
from topofl.topology import Topology, TopologySequence

__all__ = ["spectral"]


class _Compared(NamedTuple):
    """Graphs, label counts of their nodes, the table that compares them, and printed notes."""

    graphs: list[Topology | TopologySequence]
    label_counts: np.ndarray | None
    table: Table
    notes: list[str]


def spectral(options: argparse.Namespace) -> None:
    """Print a table that compares graphs; with ``--html``, also write a page."""
    check_needs_data(options)
    if options.html is None:
        _print(_build_and_compare(options).table, options)
        return
    from topofl import report  # it loads matplotlib

    with report.replacing(options.html) as file:
        graphs, counts, table, notes = _build_and_compare(options)
        curves = 500 if options.rounds is None else options.rounds
        how = {"command": _spectral_command(options), "notes": notes}
        file.write(
            report.spectral_report(
                graphs,
                table,
                seed=options.seed,
                rounds=curves,
                label_counts=counts,
                weights=_rule(options),
                **how,
            )
        )
    _print(table, options)


def _print(table: Table, options: argparse.Namespace) -> None:
    """Print the table, or only the columns that decide if no others were asked for."""
    short = not options.all and options.about is None
    if options.json or not short:
        print_table(table, options)
        return
    first = headline(table.columns[1:])
    named = [name for name in _custom(options) if name not in first]
    print_table(table, options, ["name", *first, *named])
    print_notes(["these numbers decide; --all prints all columns, --about GROUPS some"])


def _in_full(options: argparse.Namespace) -> bool:
    """Return whether all columns are written, to a file or as JSON, if no groups are given."""
    return bool(options.all or options.json or options.csv or options.html)


def _computed(options: argparse.Namespace) -> dict[str, Any]:
    """Return the groups and further columns to compute: those that are printed or written."""
    about = "all" if _in_full(options) else None
    groups = about if options.about is None else options.about.split(",")
    return {"about": groups, "metrics": _custom(options)}


def _custom(options: argparse.Namespace) -> list[str]:
    return [] if options.metrics is None else options.metrics.split(",")


def _build_and_compare(options: argparse.Namespace) -> _Compared:
    """Build the graphs of the specs and compare them."""
    specs = [parse_spec(text) for text in options.specs]
    clients = (
        None
        if options.data is None
        else _clients(options, [_number_of_nodes(spec.name, spec.arguments) for spec in specs])
    )
    counts = None if clients is None else clients.label_counts
    graphs = []
    notes: list[str] = []
    for text, spec in zip(options.specs, specs, strict=True):
        with at(f"{text}:"):
            built = build_topology(spec.name, spec.arguments, counts)
        new_notes = [f"{text}: {note}" for note in built.notes]
        print_notes(new_notes)
        notes += new_notes
        graphs.append(built.value)
    rounds = 100 if options.rounds is None else options.rounds
    how: dict[str, Any] = {"seed": options.seed, "rounds": rounds} | _computed(options)
    table = metrics.compare(graphs, label_counts=clients, weights=_rule(options), **how)
    others = tuple(note for note in table.notes if note != HINT)  # the shell has its own hint
    return _Compared(graphs, counts, replace(table, notes=others), notes)


def _rule(options: argparse.Namespace) -> WeightRule | None:
    """Return the rule of the option ``--weights``, with its text as its name."""
    if options.weights is None:
        return None
    with at("`--weights`:"):
        rule = build_rule(table_of(options.weights)).value
    rule.__name__ = options.weights
    return rule


def _spectral_command(options: argparse.Namespace) -> str:
    """Return the command that writes the same page, with its defaults."""
    data_words = [] if options.data is None else ["--data", options.data]
    data_words += [] if options.partition is None else ["--partition", options.partition]
    data_words += [] if options.per_node is None else ["--per-node", str(options.per_node)]
    numbers = [
        "--seed",
        str(options.seed),
        *([] if options.rounds is None else ["--rounds", str(options.rounds)]),
    ]
    numbers += [] if options.about is None else ["--about", options.about]
    numbers += [] if options.metrics is None else ["--metrics", options.metrics]
    numbers += [] if options.weights is None else ["--weights", options.weights]
    return shlex.join(
        ["topofl", "spectral", *options.specs, *data_words, *numbers, "--html", str(options.html)]
    )


def _number_of_nodes(name: object, arguments: Mapping[str, Any]) -> Any:
    """Return the number of nodes in a spec, in the spec of its base graph, or in a file."""
    base = arguments.get("base")
    if "n" not in arguments and is_graph_file(name):
        with at(f"{name}:"):
            return build_topology(name, arguments).value.n
    if "n" not in arguments and isinstance(base, str | Mapping):
        of_base = table_of(base)
        return _number_of_nodes(of_base.pop("name", None), of_base)
    return arguments.get("n")


def _clients(options: argparse.Namespace, sizes: Sequence[Any]) -> Partition:
    """Return the clients of the data, for the number of nodes in the specs or of the data."""
    known = sorted({size for size in [*sizes, n_of(options)] if isinstance(size, int)})
    if len(known) != 1:
        got = known or "none"
        raise ValueError(
            f"with `--data`, all graphs must have the same number of nodes, as ring:100, got {got}"
        )
    return clients_of(options, known[0])
