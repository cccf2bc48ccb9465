"""Training runs of DPFL's experiments, accuracies of clients' best models, and learned graphs.

As in the authors' code, each client selects the round whose model is best on its own validation
images (the latest of ties) and tests that model on its own test images; accuracies are unweighted
means over clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from topofl import History
from topofl.history import Personal
from topofl.runs.identity import Run, with_options

from ..kit.curves import Curve
from ..kit.scale import available_splits
from ..kit.setting import Setting, Split
from ..kit.training.store import Store
from .methods import Method
from .settings import ADDED, SCALES, SPLITS, Scale


@dataclass(frozen=True)
class Arm:
    """Runs of one method, one per seed, with the stages of its test and validation accuracies."""

    runs: Sequence[Run]
    stage: str
    chosen_at: str

    def column(self, history: History) -> str:
        """Return the history column of the test accuracies by which the method is judged."""
        return history.column(stage=self.stage)

    def validation(self, history: History) -> str:
        """Return the history column of the accuracies that select each client's best round."""
        return history.column(stage=self.chosen_at, on="own_val")

    def personal(self, history: History) -> Personal:
        """Return the test accuracies of each client's best round, summarized over clients."""
        return history.personal(self.column(history), validation=self.validation(history))


@dataclass(frozen=True, eq=False)
class Outcome:
    """Results of one arm for S seeds.

    Parameters
    ----------
    curve
        Test accuracy against rounds.
    accuracy, variance, worst_tenth
        (S,) statistics of the clients' best models by validation: mean in %, variance in squared
        percentage points, and mean over the worst tenth of the clients in %.
    """

    curve: Curve
    accuracy: np.ndarray
    variance: np.ndarray
    worst_tenth: np.ndarray


def scale_of(setting: Setting) -> Scale:
    """Return the settings that all arms share at the scale of a setting."""
    return SCALES[setting.scale]


def split(title: str) -> Split:
    """Return a split by its title."""
    return (SPLITS | ADDED)[title]


def splits_of(setting: Setting, *wanted: str) -> list[str]:
    """Return the splits of table 1 whose data are available, restricted to `wanted` if given."""
    titles = scale_of(setting).splits
    return available_splits(titles, SPLITS | ADDED, setting.datasets, wanted)


def arm(
    setting: Setting, title: str, method: Method, *, flips: bool = False, idle: bool = False
) -> Arm:
    """Return the runs of a method on a split, one per seed.

    Parameters
    ----------
    setting, title, method
        Scale, seeds and data; title of the split; the method.
    flips
        Whether the labels of :func:`malicious` clients are flipped.
    idle
        Whether malicious clients only send and choose no peers.
    """
    runs = [Run(_tables(setting, title, method, seed, flips, idle)) for seed in setting.seeds]
    return Arm(runs, method.stage, method.chosen_at)


def malicious(scale: Scale, seed: int) -> list[int]:
    """Return the clients with flipped labels, the same in all runs of a seed."""
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
    clients = {**partition, "n": scale.clients, "seed": seed, "with_validation": 0.2}
    clients |= {} if dataset == "femnist" else {"split_seed": seed, "match_test": "disjoint"}
    clients |= {"flip_labels": malicious(scale, seed)} if flips else {}
    passive = {"passive": malicious(scale, seed)} if idle else {}
    evaluation = {"every": 1, "on": ["own_test", "own_val"], "before_exchange": True}
    evaluation |= {"fine_tune_every": scale.tuned_every} if method.is_tuned else {}
    rounds = scale.rounds + (not method.prepares)
    tables = {
        "data": {**source, **clients},
        "algorithm": method.table(scale) | passive,
        "model": dict(scale.model),
        "run": {"rounds": rounds, "seed": seed},
        "evaluation": evaluation,
        "compute": {"device": setting.device},
    }
    return with_options(tables, scale.options)


def measured(arm: Arm, store: Store) -> Outcome:
    """Return the outcome of an arm's finished runs."""
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
    """Return, per seed, the in-neighbors of each node in some rounds, and the malicious nodes."""
    graphs = []
    for run in arm.runs:
        history, _ = store.load(run)
        neighbors = {str(t): _in_neighbors(history, t) for t in rounds}
        graphs.append({"heard": neighbors, "malicious": run.tables["data"].get("flip_labels", [])})
    return graphs


def _in_neighbors(history: History, t: int) -> list[list[int]]:
    """Return the in-neighbors of each node in round t, without the node itself."""
    weights = history.mixing(t).weights
    columns = np.split(weights.indices, weights.indptr[1:-1])
    return [sorted(int(i) for i in row if i != k) for k, row in enumerate(columns)]


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
    """Return outcomes from the output of :func:`written`."""
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
