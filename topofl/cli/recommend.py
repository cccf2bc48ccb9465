"""``topofl recommend``: topologies within a budget, ranked by predicted rounds."""

import argparse
from pathlib import Path
from typing import Any

from torch import nn

from topofl import config, data, models
from topofl.advice import recommend as ranked
from topofl.cli.output import print_notes, print_table
from topofl.data import Partition

__all__ = ["recommend"]


def recommend(options: argparse.Namespace) -> None:
    """Print the candidates; with ``--plot``, also draw their predicted rounds."""
    clients, model, given = _given(options)
    found = ranked(
        clients,
        max_degree=options.max_degree,
        max_messages=options.max_messages,
        max_bytes=options.max_bytes,
        directed=options.directed,
        static=options.static,
        lr=given["lr"],
        rounds=given["rounds"],
        hops=options.hops,
        model=model if options.max_bytes is not None else None,
        seed=options.seed,
    )
    if options.plot is not None:
        _draw(found, options.plot)
    if options.json or options.csv is not None or options.markdown:
        print_table(found.table, options)
        print_notes(found.warnings)
    else:
        print(found)


def _given(options: argparse.Namespace) -> tuple[Partition, nn.Module, dict[str, Any]]:
    """Return clients, model, learning rate and rounds, from the options or a configuration."""
    if (options.config is None) == (options.data is None):
        got = "neither" if options.data is None else "both"
        raise ValueError(f"exactly one of CONFIG.toml and `--data` must be given, got {got}")
    given = {"lr": options.lr, "rounds": options.rounds}
    if options.config is not None:
        experiment = config.load(options.config)
        lr = experiment.tables["algorithm"].get("lr")
        own = {"lr": lr if isinstance(lr, float | int) else None}
        own["rounds"] = experiment.options["rounds"]
        given = {key: own[key] if value is None else value for key, value in given.items()}
        return experiment.clients, experiment.model, given
    if options.n is None:
        raise ValueError("`--n` must be given with `--data`, e.g. --n 60")
    dataset = (
        data.digits() if options.data == "digits" else data.mnist(Path(options.data).expanduser())
    )
    model = models.logistic_regression(dataset.inputs[0].numel(), dataset.n_classes)
    clients = data.shards(dataset, options.n, options.per_node, seed=options.seed)
    return clients, model, given


def _draw(found: Any, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.28 * min(len(found.candidates), 20)), layout="constrained")
    found.plot(figure.subplots())
    figure.savefig(path)
