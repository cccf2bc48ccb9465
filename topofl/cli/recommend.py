"""``topofl recommend``: topologies within a budget, ranked by predicted rounds."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from topofl import config, models
from topofl.advice import recommend as ranked
from topofl.cli.clients import check_needs_data, clients_of
from topofl.cli.notes import print_notes
from topofl.cli.output import check_picture, print_json, save_picture
from topofl.data import Partition

__all__ = ["recommend"]


def recommend(options: argparse.Namespace) -> None:
    """Print the candidates; with ``--plot``, also draw their predicted rounds."""
    if options.plot is not None:
        check_picture("--plot", options.plot)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)  # of the model at which noise is measured
        experiment = _experiment(options)
    found = ranked(
        experiment.clients,
        max_degree=options.max_degree,
        max_messages=options.max_messages,
        max_bytes=options.max_bytes,
        directed=options.directed,
        static=options.static,
        lr=experiment.lr,
        rounds=experiment.rounds,
        hops=options.hops,
        model=experiment.model,
        batch_size=experiment.batch_size,
        seed=options.seed,
    )
    if options.plot is not None:
        _draw(found, options.plot)
    if options.csv is not None:
        found.table.to_csv(options.csv)
    if options.json:
        print_json(found.table)
        print_notes(found.warnings)
    else:
        print(found.to_markdown() if options.markdown else found)


@dataclass(frozen=True)
class _Experiment:
    """What advice is asked for; the model gives the size of messages."""

    clients: Partition
    model: nn.Module | None
    lr: float | None
    rounds: int | None
    batch_size: int | None


def _experiment(options: argparse.Namespace) -> _Experiment:
    """Return what the options describe, or a configuration where they do not."""
    check_needs_data(options)
    if (options.config is None) == (options.data is None):
        got = "neither" if options.data is None else "both"
        raise ValueError(f"exactly one of CONFIG.toml and `--data` must be given, got {got}")
    if options.config is None:
        clients, model = _clients(options)
        # Without a batch size of the user's, noise is not measured and the model only has a size.
        return _Experiment(clients, model, options.lr, options.rounds, options.batch_size)
    configured = config.load(options.config)
    table = configured.tables["algorithm"]
    lr, batch_size = table.get("lr"), table.get("batch_size")
    return _Experiment(
        configured.clients,
        configured.model,
        _first(options.lr, lr if isinstance(lr, float | int) else None),
        _first(options.rounds, configured.options["rounds"]),
        _first(options.batch_size, batch_size if isinstance(batch_size, int) else None),
    )


def _first(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _clients(options: argparse.Namespace) -> tuple[Partition, nn.Module]:
    """Return the clients that ``--data``, its options and ``--n`` describe, and a model."""
    if options.n is None:
        raise ValueError("`--n` must be given with `--data`, e.g. --n 60")
    clients = clients_of(options, options.n)
    dataset = clients.dataset
    return clients, models.logistic_regression(dataset.inputs[0].numel(), dataset.n_classes)


def _draw(found: Any, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.28 * min(len(found.candidates), 20)), layout="constrained")
    found.plot(figure.subplots())
    save_picture(figure, path)
