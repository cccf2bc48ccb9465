"""Training runs of the comparison, and accuracies of personal models at evaluation stages.

A stage is the point of a round at which models are tested, each on its client's own test images;
accuracies are unweighted means over clients. All stages of a method are recorded. The paper does
not specify the stage of every method's printed numbers (its authors' code tests DFedPGP after the
exchange, before local training), so each method is judged by the stage with the highest final
accuracy, averaged over seeds: :func:`reported`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from topofl import History
from topofl.runs.identity import Run, with_options

from ..curves import Curve, Panels, final
from ..figure import Arms
from ..scale import available_splits
from ..setting import Setting, Split
from ..training.store import Store
from .methods import METHODS, graph_tables
from .settings import ADDED, SCALES, SPLITS, TARGET_SHARE, Scale

STAGES: Mapping[str, str] = {
    "after exchange": "",
    "after training": "before_exchange",
    "fine-tuned": "fine_tuned",
}
"""Evaluation stages of a history by name; not every method has all of them."""


Measured = Mapping[str, Mapping[str, Mapping[str, Curve]]]
"""Curves by panel title, arm label and stage; epochs are rounds."""


def scale_of(setting: Setting) -> Scale:
    """Return the settings that all arms share at the scale of a setting."""
    return SCALES[setting.scale]


def splits_of(setting: Setting, *wanted: str) -> list[str]:
    """Return the splits of table 1 whose data are available, restricted to `wanted` if given."""
    titles = scale_of(setting).splits
    return available_splits(titles, SPLITS | ADDED, setting.datasets, wanted)


def split(title: str) -> Split:
    """Return a split by its title."""
    return (SPLITS | ADDED)[title]


def arm(
    setting: Setting,
    title: str,
    label: str,
    *,
    clients: int | None = None,
    neighbors: int | None = None,
    epochs: Any = None,
) -> list[Run]:
    """Return the runs of a method on a split, one per seed.

    Parameters
    ----------
    setting
        Scale, seeds and data.
    title, label
        Title of the split and label of the method.
    clients, neighbors, epochs
        Values that replace those of the scale.
    """
    scale = scale_of(setting).of(split(title).dataset)
    scale = replace(scale, clients=clients or scale.clients, neighbors=neighbors or scale.neighbors)
    return [Run(_tables(setting, scale, title, label, epochs, seed)) for seed in setting.seeds]


def _tables(
    setting: Setting, scale: Scale, title: str, label: str, epochs: Any, seed: int
) -> dict[str, Any]:
    method, (dataset, partition) = METHODS[label], split(title)
    source = dict(scale.data[dataset])
    if setting.scale != "smoke":
        source["root"] = setting.root_of(dataset)
    clients = {**partition, "n": scale.clients, "seed": seed, "match_test": "per_client"}
    every = scale.tuned_every if method.fine_tuned else scale.eval_every
    evaluation = {"every": every, "on": "own_test", "before_exchange": True}
    evaluation |= {"fine_tune_every": every} if method.fine_tuned else {}
    tables = {
        "data": {**source, "split_seed": seed, **clients},
        **graph_tables(method, scale.neighbors, seed),
        "algorithm": method.table(scale, epochs=epochs),
        "model": dict(scale.model),
        "run": {"rounds": scale.rounds, "seed": seed},
        "evaluation": evaluation,
        "compute": {"device": setting.device},
    }
    return with_options(tables, scale.options)


def measured(arms: Arms, store: Store) -> Measured:
    """Return the curves of finished runs at all their stages."""
    return {
        title: {label: _stage_curves(runs, store, label) for label, runs in panel.items()}
        for title, panel in arms.items()
    }


def _stage_curves(runs: Sequence[Run], store: Store, label: str) -> dict[str, Curve]:
    """Return a method's curve at each stage; after training, only if all clients train."""
    if (earlier := store.earlier_curves(runs)) is not None:
        return {stage: Curve.from_json(curve) for stage, curve in earlier.items()}
    loaded = [store.load(run) for run in runs]
    histories = [history for history, _ in loaded]
    numbers = [
        note["numbers"] | {key: note[key] for key in ("seconds", "megabytes")} for _, note in loaded
    ]
    seeds = [run.seed for run in runs]
    return {
        name: Curve.of(seeds, histories, 1, numbers, column=histories[0].column(stage=stage))
        for name, stage in _stages_of(label).items()
        if _has(histories[0], stage) and not (name == "after training" and _has_server(label))
    }


def _stages_of(label: str) -> Mapping[str, str]:
    """Return a method's stages; rounds of methods that choose peers end with training."""
    if label in METHODS and METHODS[label].over == "peers":
        return {"after training": ""}
    return STAGES


def _has_server(label: str) -> bool:
    return label in METHODS and METHODS[label].over == "server"


def _has(history: History, stage: str) -> bool:
    """Return whether a history has a separate stage; isolated nodes are tested once per round."""
    alone = stage != "" and not history.matrices
    return any(column.stage == stage for column in history.score_columns.values()) and not alone


def written(value: Measured) -> dict[str, Any]:
    """Return curves as JSON values."""
    return {
        title: {
            label: {stage: c.as_json() for stage, c in arms.items()}
            for label, arms in panel.items()
        }
        for title, panel in value.items()
    }


def read(value: Mapping[str, Any]) -> Measured:
    """Return curves from the output of :func:`written`."""
    return {
        title: {
            label: {stage: Curve.from_json(c) for stage, c in arms.items()}
            for label, arms in panel.items()
        }
        for title, panel in value.items()
    }


def best_stage(curves: Mapping[str, Curve]) -> str:
    """Return the stage with the highest final accuracy, averaged over seeds; the first of ties."""
    return max(curves, key=lambda stage: final(curves[stage]).mean())


def reported(value: Measured) -> Panels:
    """Return every arm's curve at its best stage, at the rounds that its panel has in common."""
    return {
        title: _at_common_rounds(
            {label: curves[best_stage(curves)] for label, curves in panel.items()}
        )
        for title, panel in value.items()
    }


def _at_common_rounds(panel: Mapping[str, Curve]) -> dict[str, Curve]:
    common = reduce(np.intersect1d, [curve.epochs for curve in panel.values()])

    def at_common(curve: Curve) -> Curve:
        is_common = np.isin(curve.epochs, common)
        parts = {name: getattr(curve, name)[:, is_common] for name in ("mean", "low", "high")}
        return replace(curve, epochs=curve.epochs[is_common], **parts)

    return {label: at_common(curve) for label, curve in panel.items()}


def targets_by_rule(panels: Panels) -> dict[str, float]:
    """Return the target accuracy of every panel: 90 % of the best final accuracy, in whole %."""
    return {
        title: float(int(TARGET_SHARE * max(final(curve).mean() for curve in arms.values())))
        for title, arms in panels.items()
    }
