"""Training runs of DPFL's experiments, accuracies of clients' best models, and learned graphs.

As in the authors' code each client keeps the model of the round that is best on its own validation
images, of equal ones the latest, and tests it on its own test images; accuracies are unweighted
means over clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl import History
from topofl.history import Personal

from ..kit.curves import Curve
from ..kit.setting import Setting, Split
from ..kit.training.run import Run, with_options
from ..kit.training.store import Store
from .methods import Method
from .settings import ADDED, SCALES, SPLITS, Scale

__all__ = [
    "Arm",
    "Outcome",
    "arm",
    "graphs",
    "malicious",
    "measured",
    "read",
    "scale_of",
    "split",
    "splits_of",
    "written",
]


@dataclass(frozen=True)
class Arm:
    """Runs of one method, one per seed, and the stages that judge it and choose clients' rounds."""

    runs: Sequence[Run]
    stage: str
    chosen_at: str

    def column(self, history: History) -> str:
        """Return the name of the accuracies that the method is judged by."""
        return history.column(stage=self.stage)

    def validation(self, history: History) -> str:
        """Return the name of those by which each client's round is chosen."""
        return history.column(stage=self.chosen_at, on="own_val")

    def personal(self, history: History) -> Personal:
        """Return what the accuracies of each client's best round come to."""
        return history.personal(self.column(history), validation=self.validation(history))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one arm came to, for S seeds.

    Parameters
    ----------
    curve
        Test accuracy against rounds.
    accuracy, variance, worst_tenth
        (S,) of each client's best model by validation: mean in %, variance in squared percentage
        points, and mean over the worst tenth of the clients in %.
    """

    curve: Curve
    accuracy: np.ndarray
    variance: np.ndarray
    worst_tenth: np.ndarray


def scale_of(setting: Setting) -> Scale:
    """Return what all arms at the scale of a setting share."""
    return SCALES[setting.scale]


def split(title: str) -> Split:
    """Return a split by its title."""
    return (SPLITS | ADDED)[title]


def splits_of(setting: Setting, *wanted: str) -> list[str]:
    """Return the titles of table 1, or those of them that are wanted, whose data are at hand."""
    titles = scale_of(setting).splits
    return [
        title
        for title in titles
        if title in (wanted or titles) and split(title).dataset in setting.datasets
    ]


def arm(
    setting: Setting, title: str, method: Method, *, flips: bool = False, idle: bool = False
) -> Arm:
    """Return one run a seed of a method on a split.

    Parameters
    ----------
    setting, title, method
        Scale, seeds and data; the split; what is run.
    flips
        Whether the labels of :func:`malicious` clients are wrong.
    idle
        Whether these choose nobody, and only send.
    """
    runs = [Run(_tables(setting, title, method, seed, flips, idle)) for seed in setting.seeds]
    return Arm(runs, method.stage, method.chosen_at)


def malicious(scale: Scale, seed: int) -> list[int]:
    """Return which clients have wrong labels, of which the runs of a seed have the same."""
    count = round(scale.malicious * scale.clients)
    return sorted(np.random.default_rng(seed).permutation(scale.clients)[:count].tolist())


def _tables(
    setting: Setting, title: str, method: Method, seed: int, flips: bool, idle: bool
) -> dict[str, Any]:
    dataset, partition = split(title)
    scale = scale_of(setting).of(dataset)
    source = dict(scale.data[dataset])
    if setting.scale != "smoke":
        source["root"] = setting.root_of(dataset)
    held_by = {**partition, "n": scale.clients, "seed": seed, "with_validation": 0.2}
    held_by |= {} if dataset == "femnist" else {"split_seed": seed, "match_test": "disjoint"}
    held_by |= {"flip_labels": malicious(scale, seed)} if flips else {}
    passive = {"passive": malicious(scale, seed)} if idle else {}
    tested = {"every": 1, "on": ["own_test", "own_val"], "before_exchange": True}
    rounds = scale.rounds + (not method.prepares)
    tested |= {"fine_tune_every": scale.tuned_every} if method.is_tuned else {}
    tables = {
        "data": {**source, **held_by},
        "algorithm": method.table(scale) | passive,
        "model": dict(scale.model),
        "run": {"rounds": rounds, "seed": seed},
        "evaluation": tested,
        "compute": {"device": setting.device},
    }
    return with_options(tables, scale.options)


def measured(arm: Arm, store: Store) -> Outcome:
    """Return the outcome of finished runs."""
    loaded = [store.load(run) for run in arm.runs]
    histories = [history for history, _ in loaded]
    numbers = [
        note["numbers"] | {key: note[key] for key in ("seconds", "megabytes")} for _, note in loaded
    ]
    seeds = [run.seed for run in arm.runs]
    personal = [arm.personal(history) for history in histories]
    return Outcome(
        Curve.of(seeds, histories, 1, numbers, column=arm.column(histories[0])),
        100 * np.array([one.mean for one in personal]),
        1e4 * np.array([one.variance for one in personal]),
        100 * np.array([one.worst_tenth for one in personal]),
    )


def graphs(arm: Arm, store: Store, rounds: Sequence[int]) -> list[dict[str, Any]]:
    """Return, per seed, the peers of each node in each of the rounds, and the malicious nodes."""
    found = []
    for run in arm.runs:
        history, _ = store.load(run)
        received = {str(t): _heard(history, t) for t in rounds}
        found.append({"heard": received, "malicious": run.tables["data"].get("flip_labels", [])})
    return found


def _heard(history: History, t: int) -> list[list[int]]:
    rows = history.mixing(t).weights
    received = np.split(rows.indices, rows.indptr[1:-1])
    return [sorted(int(i) for i in own if i != k) for k, own in enumerate(received)]


def written(panels: Mapping[str, Mapping[str, Outcome]]) -> dict[str, Any]:
    """Return outcomes as JSON values."""
    return {
        title: {
            label: {
                "curve": one.curve.as_json(),
                "accuracy": one.accuracy.tolist(),
                "variance": one.variance.tolist(),
                "worst_tenth": one.worst_tenth.tolist(),
            }
            for label, one in panel.items()
        }
        for title, panel in panels.items()
    }


def read(value: Mapping[str, Any]) -> dict[str, dict[str, Outcome]]:
    """Return the outcomes that :func:`written` described."""
    return {
        title: {
            label: Outcome(
                Curve.from_json(one["curve"]),
                *(np.array(one[key]) for key in ("accuracy", "variance", "worst_tenth")),
            )
            for label, one in panel.items()
        }
        for title, panel in value.items()
    }
