"""Clients that options describe."""

import argparse
from pathlib import Path
from typing import Any

from topofl._spec import at, find, parameters
from topofl._support.calls import named, table_of
from topofl._support.datasets import MARKERS, dataset_folder
from topofl._support.words import shown
from topofl.cli.notes import print_notes
from topofl.config.tables import build_clients
from topofl.data import READERS, Partition

__all__ = ["check_needs_data", "clients_of", "n_of"]

_KINDS = "a dataset of topofl list dataset, such as digits or 'cifar10,root=DIR', or a folder with "
_KINDS += "MNIST"


def clients_of(options: argparse.Namespace, n: int) -> Partition:
    """Return the n clients of ``--data``, ``--partition``, ``--per-node`` and ``--seed``.

    The tables are those of ``[data]`` in a configuration.
    """
    table = _table(options)
    takes = parameters(find("partition", table["partition"]))
    defaults: dict[str, Any] = {"n": n, "seed": options.seed}
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


def check_needs_data(options: argparse.Namespace) -> None:
    """Raise ``ValueError`` if an option about the clients of ``--data`` is given without it."""
    for name in ("partition", "per_node"):
        if options.data is None and (given := getattr(options, name)) is not None:
            name = name.replace("_", "-")
            raise ValueError(
                f"`--{name}` must come with --data, got --{name} {given} without; add --data digits"
            )


def n_of(options: argparse.Namespace) -> Any:
    """Return the number of clients that ``--data`` or ``--partition`` states, or None."""
    return _table(options).get("n")


def _table(options: argparse.Namespace) -> dict[str, Any]:
    """Return the table ``[data]`` that the options spell, with the name of a partition."""
    table = _of_dataset(options.data)
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


def _of_dataset(text: str) -> dict[str, Any]:
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
