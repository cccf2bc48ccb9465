"""Graphs before training (``topofl spectral``, ``recommend``) and in saved runs (``graphs``)."""

import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from topofl import config, metrics, models
from topofl._spec import at, build_topology, find, parameters
from topofl._support.calls import is_graph_file, named, parse_spec, table_of
from topofl._support.check import check_int, shown
from topofl._support.datasets import MARKERS, dataset_folder
from topofl._support.table import Table
from topofl.advice import Recommendation
from topofl.advice import recommend as ranked
from topofl.advice.recommend import EXPLAINED
from topofl.cli.output import check_picture, print_notes, print_table, save_picture
from topofl.config.experiment import build_clients, build_rule
from topofl.data import READERS, Partition
from topofl.metrics.compare import HINT, headline
from topofl.mixing import WeightRule
from topofl.runs.folder import load_finished
from topofl.topology import Topology, TopologySequence

_KINDS = "a dataset of topofl list dataset, such as digits or 'cifar10,root=DIR', or a folder with "
_KINDS += "MNIST"


def spectral(options: Namespace) -> None:
    """Print a table that compares graphs; with ``--html``, also write a page."""
    _check_needs_data(options)
    if options.html is None:
        graphs, _, table, _ = _build_and_compare(options)
        _print(table, options, _asked(graphs, options))
        return
    from topofl import report  # it loads matplotlib

    with report.replacing(options.html) as file:
        graphs, counts, table, notes = _build_and_compare(options)
        file.write(
            report.spectral_report(
                graphs,
                table,
                seed=options.seed,
                rounds=500 if options.rounds is None else options.rounds,
                label_counts=counts,
                weights=_rule(options),
                command=_command_of_page(options),
                notes=notes,
            )
        )
    _print(table, options, _asked(graphs, options))


def _print(table: Table, options: Namespace, asked: Sequence[str]) -> None:
    """Print the table, or only the columns that decide, and those `asked` for."""
    if options.json or options.all or options.about is not None:
        print_table(table, options)
        return
    first = headline(table.columns[1:])
    more = [name for name in asked if name not in first]
    print_table(table, options, ["name", *first, *more])
    print_notes(["these numbers decide; --all prints all columns, --about GROUPS some"])


RANDOM_GAP = "expected gap"
"""Column of graphs without a period, which have no spectral gap."""


def _asked(graphs: Sequence[Topology | TopologySequence], options: Namespace) -> list[str]:
    """Return the columns of ``--metrics``, and the gap of graphs without a period if there are."""
    asked = _words(options.metrics)
    if options.about is None and any(graph.period is None for graph in graphs):
        asked = list(dict.fromkeys([*asked, RANDOM_GAP]))
    return asked


def _words(text: str | None) -> list[str]:
    return [] if text is None else text.split(",")


def _build_and_compare(
    options: Namespace,
) -> tuple[list[Topology | TopologySequence], np.ndarray | None, Table, list[str]]:
    """Return the graphs of the specs, label counts, the table that compares them, and notes."""
    specs = [parse_spec(text) for text in options.specs]
    clients = None
    if options.data is not None:
        clients = _clients_for(options, [_n_of_spec(*spec) for spec in specs])
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
    in_full = options.all or options.json or options.csv or options.html
    about = ("all" if in_full else None) if options.about is None else options.about.split(",")
    table = metrics.compare(
        graphs,
        label_counts=clients,
        weights=_rule(options),
        seed=options.seed,
        rounds=100 if options.rounds is None else options.rounds,
        about=about,
        metrics=_words(options.metrics) if in_full else _asked(graphs, options),
    )
    others = tuple(note for note in table.notes if note != HINT)  # the shell has its own hint
    return graphs, counts, replace(table, notes=others), notes


def _rule(options: Namespace) -> WeightRule | None:
    """Return the rule of the option ``--weights``, with its text as its name."""
    if options.weights is None:
        return None
    with at("`--weights`:"):
        rule = build_rule(table_of(options.weights)).value
    rule.__name__ = options.weights
    return rule


def _command_of_page(options: Namespace) -> str:
    """Return the command that writes the same page, with its defaults."""
    words = ["topofl", "spectral", *options.specs]
    names = ("data", "partition", "per_node", "seed", "rounds", "about", "metrics", "weights")
    for name in (*names, "html"):
        if (value := getattr(options, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _n_of_spec(name: object, arguments: Mapping[str, Any]) -> Any:
    """Return the number of nodes in a spec, in the spec of its base graph, or in a file."""
    base = arguments.get("base")
    if "n" not in arguments and is_graph_file(name):
        with at(f"{name}:"):
            return build_topology(name, arguments).value.n
    if "n" not in arguments and isinstance(base, str | Mapping):
        of_base = table_of(base)
        return _n_of_spec(of_base.pop("name", None), of_base)
    return arguments.get("n")


def _clients_for(options: Namespace, sizes: Sequence[Any]) -> Partition:
    """Return the clients of the data, for the number of nodes in the specs or of the data."""
    sizes = [*sizes, _table_of_data(options).get("n")]
    known = sorted({size for size in sizes if isinstance(size, int)})
    if len(known) != 1:
        got = known or "none"
        raise ValueError(
            f"with `--data`, all graphs must have the same number of nodes, as ring:100, got {got}"
        )
    return _clients_of(options, options.seed, known[0])


def graphs(options: Namespace) -> None:
    """Print a table of the graphs of a saved run; with ``--html``, also write a page."""
    history = load_finished(options.folder)
    clients = None
    if options.labels:
        if not (path := options.folder / "config.toml").is_file():
            raise ValueError(
                f"`--labels` needs the configuration of the run, {path} is missing; leave it out"
            )
        clients = config.load(path).clients
    about = "structure,averaging,data" if options.about is None else options.about
    every = check_int("--every", options.every, minimum=1)
    last = history.n_rounds - 1
    rounds = sorted({*range(0, last, every), last})
    table = metrics.over_rounds(
        history, rounds=rounds, label_counts=clients, about=about.split(",")
    )
    if options.html is not None:
        from topofl import report  # it loads matplotlib

        flipped = () if clients is None else clients.flipped
        words = ["topofl", "graphs", str(options.folder), *["--labels"] * options.labels]
        words += ["--every", str(every), "--about", about, "--html", str(options.html)]
        page = report.rounds_report(
            history,
            table,
            label_counts=clients,
            marked=flipped if len(flipped) else None,
            marked_name="mislabelled" if len(flipped) else "",
            command=shlex.join(words),
        )
        with report.replacing(options.html) as file:
            file.write(page)
    print_table(table, options, rounded=_once_if_equal(table))


def _once_if_equal(table: Table) -> Table:
    """Return one row, and a title saying so, if all rounds have the same, as of a static graph."""
    rounds = table.column("round")
    if len(rounds) == 1 or len({row[1:] for row in table.rows}) > 1:
        return table
    row = (f"{rounds[0]} to {rounds[-1]}", *table.rows[0][1:])
    return replace(table, rows=(row,), title=f"{table.title}, which all have the same row")


def recommend(options: Namespace) -> None:
    """Print topologies within a budget; with ``--plot``, also draw their predicted rounds."""
    if options.plot is not None:
        check_picture("--plot", options.plot)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)  # of the model at which noise is measured
        asked = _asked_for(options)
    found = ranked(
        **asked,
        max_degree=options.max_degree,
        max_messages=options.max_messages,
        max_bytes=options.max_bytes,
        directed=options.directed,
        static=options.static,
        hops=options.hops,
        seed=options.seed,
    )
    if options.plot is not None:
        from matplotlib.figure import Figure

        height = 1.2 + 0.28 * min(len(found.candidates), 20)
        figure = Figure(figsize=(9, height), layout="constrained")
        found.plot(figure.subplots())
        save_picture(figure, options.plot)
    print_table(found.table, options, rounded=found, notes=found.warnings)
    if options.data is not None and not options.json:
        print_notes([f"to compare the first ones, {_command_of_graphs(found, options)}"])


def _command_of_graphs(found: Recommendation, options: Namespace) -> str:
    """Return the command that compares the first recommended graphs on the same data."""
    words = ["topofl", "spectral", *(one.spec for one in found.candidates[:EXPLAINED])]
    for name in ("data", "partition", "per_node"):
        if (value := getattr(options, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*words, *(["--seed", str(options.seed)] if options.seed else [])])


def _asked_for(options: Namespace) -> dict[str, Any]:
    """Return clients, model and training that the options, or else a configuration, describe."""
    _check_needs_data(options)
    given = {name: getattr(options, name) for name in ("lr", "rounds", "batch_size")}
    if (options.config is None) == (options.data is None):
        got = "neither" if options.data is None else "both"
        raise ValueError(f"exactly one of CONFIG.toml and `--data` must be given, got {got}")
    if options.config is None:
        if options.n is None:
            raise ValueError("`--n` must be given with `--data`, e.g. --n 60")
        clients = _clients_of(options, options.seed, options.n)
        size, n_classes = clients.dataset.inputs[0].numel(), clients.dataset.n_classes
        # Without a batch size of the user's, noise is not measured and the model only has a size.
        return {"clients": clients, "model": models.logistic_regression(size, n_classes), **given}
    configured = config.load(options.config)
    table = configured.tables["algorithm"]
    lr, batch_size = table.get("lr"), table.get("batch_size")
    known = {
        "lr": lr if isinstance(lr, float | int) else None,
        "rounds": configured.options["rounds"],
        "batch_size": batch_size if isinstance(batch_size, int) else None,
    }
    known |= {name: value for name, value in given.items() if value is not None}
    return {"clients": configured.clients, "model": configured.model, **known}


def _check_needs_data(options: Namespace) -> None:
    """Raise ``ValueError`` if an option about the clients of ``--data`` is given without it."""
    for name in ("partition", "per_node"):
        if options.data is None and (given := getattr(options, name)) is not None:
            name = name.replace("_", "-")
            raise ValueError(
                f"`--{name}` must come with --data, got --{name} {given} without; add --data digits"
            )


def _clients_of(options: Namespace, seed: int, n: int) -> Partition:
    """Return the n clients of ``--data``, ``--partition`` and ``--per-node``.

    The tables are those of ``[data]`` in a configuration.
    """
    table = _table_of_data(options)
    takes = parameters(find("partition", table["partition"]))
    defaults: dict[str, Any] = {"n": n, "seed": seed}
    if table["partition"] == "shards":
        defaults["per_node"] = 2
    if options.per_node is not None:
        table["per_node"] = options.per_node
    table = {key: value for key, value in defaults.items() if key in takes} | table
    with at("`--data`:"):
        built = build_clients(table)
    if built.value.n != n:
        raise ValueError(
            f"`--data` must have as many clients as the graphs have nodes, {n}, got "
            f"{built.value.n}; leave out n"
        )
    print_notes(built.notes)
    return built.value


def _table_of_data(options: Namespace) -> dict[str, Any]:
    """Return the table ``[data]`` that the options spell, with the name of a partition."""
    table = _table_of_dataset(options.data or "")
    if options.partition is None:
        return {"partition": "shards"} | table
    with at("`--partition`:"):
        name, arguments = named(table_of(options.partition))
        find("partition", name)
    twice = [key for key in ("partition", *arguments) if key in table]
    if twice:
        raise ValueError(
            f"`--partition` must not repeat what `--data` says, got {twice[0]!r} in both; leave "
            "one out"
        )
    return table | {"partition": name, **arguments}


def _table_of_dataset(text: str) -> dict[str, Any]:
    """Return the name and the arguments of a dataset in text, which may be a folder with MNIST."""
    folder = Path(text).expanduser()
    if text in READERS or not folder.is_dir():
        with at("`--data`:"):
            table = table_of(text)
            is_path = "/" in table["name"] and ":" not in table["name"]
            if not is_path:
                find("dataset", table["name"])
                return table
        raise ValueError(f"`--data` must be {_KINDS}, got {shown(text)}, which does not exist")
    if dataset_folder(folder, "mnist") is None:
        raise ValueError(
            f"`--data` must be {_KINDS}, got {shown(text)}, where no {MARKERS['mnist']} is found, "
            "up to three folders below"
        )
    return {"name": "mnist", "root": str(folder)}
