"""Training runs of DPFL's experiments by panel and arm, and accuracies of clients' best models.

As in the authors' code, each client selects the round whose model is best on its own validation
images (the latest of ties) and tests that model on its own test images; accuracies are unweighted
means over clients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from topofl import History
from topofl.history import Personal
from topofl.runs.identity import Run, with_options

from ..kit.curves import Curve
from ..kit.paper import Arms, Scale, Setting, declared
from ..kit.store import Store

DECLARED = declared("dpfl/paper.toml")

DIR, PATHO = "CIFAR-10, Dir(0.1)", "CIFAR-10, Patho(3)"

TRAINED = "before_exchange"
"""The evaluation stage after training."""


@dataclass(frozen=True)
class Method:
    """One row of table 1, as declared, and how it is judged.

    Parameters
    ----------
    name
        Name of the function in :mod:`topofl.algorithms`.
    stage
        Stage of the models that are judged, in each client's best round.
    chosen_by
        Stage whose validation accuracy selects the best round; None: the same as `stage`.
    more
        Further arguments; ``"once"`` and ``"twice"`` stand for the epochs of a round, and for twice
        as many.
    """

    name: str
    stage: str = TRAINED
    more: Mapping[str, Any] = field(default_factory=dict)
    chosen_by: str | None = None

    def column(self, history: History) -> str:
        """Return the history column of the test accuracies by which the method is judged."""
        return history.column(stage=self.stage)

    def personal(self, history: History) -> Personal:
        """Return the test accuracies of each client's best round, summarized over clients."""
        chosen_by = self.stage if self.chosen_by is None else self.chosen_by
        validation = history.column(stage=chosen_by, on="own_val")
        return history.personal(self.column(history), validation=validation)

    def table(self, scale: Scale) -> dict[str, Any]:
        """Return the method's ``[algorithm]`` table."""
        shared = ("lr", "batch_size", "momentum", "weight_decay", "epochs")
        passes = {"once": scale.epochs, "twice": 2 * scale.epochs}
        return {
            "name": self.name,
            **{key: getattr(scale, key) for key in shared},
            **{key: passes.get(value, value) for key, value in self.more.items()},
        }


BASELINES = {label: Method(**row) for label, row in DECLARED["methods"].items()}
"""Methods by label, in the order of table 1; FedAvg+FT and FedProx+FT share their runs."""


def of_budget(budget: int | None, name: str = "dpfl", **more: Any) -> Method:
    """Return DPFL with a budget and further arguments, or its control, a random graph."""
    return Method(name, more=({} if budget is None else {"budget": budget}) | more)


def method_of(label: str) -> Method:
    """Return the method of an arm: a baseline, or DPFL, whose arguments do not matter here."""
    return BASELINES.get(label, of_budget(None))


Outcome = Mapping[str, Any]
"""Results of one arm for S seeds: ``curve``, the test accuracy against rounds, and (S,) statistics.

The statistics are those of the clients' best models by validation: ``accuracy``, the mean in %,
``variance`` in squared percentage points, and ``worst_tenth``, the mean over the worst tenth of the
clients in %.
"""


def measured(label: str, runs: Sequence[Run], store: Store) -> Outcome:
    """Return the outcome of an arm's finished runs."""
    method, (histories, numbers, _) = method_of(label), store.load_arm(runs)
    personal = [method.personal(history) for history in histories]
    seeds = [run.seed for run in runs]
    return {
        "curve": Curve.of(seeds, histories, 1, numbers, column=method.column(histories[0])),
        "accuracy": 100 * np.array([one.mean for one in personal]),
        "variance": 1e4 * np.array([one.variance for one in personal]),
        "worst_tenth": 100 * np.array([one.worst_tenth for one in personal]),
    }


scale_of, scale_on, splits_of = DECLARED.scale_of, DECLARED.scale_on, DECLARED.splits_of


def budgets_of(scale: Scale) -> dict[str, int | None]:
    """Return the largest numbers of peers by label, in decreasing order; None: no limit."""
    finite = {f"DPFL, {s:g} n": max(1, round(s * scale.clients)) for s in scale.shares}
    return {"DPFL": None, **finite}


def arm(
    setting: Setting, title: str, method: Method, *, flips: bool = False, idle: bool = False
) -> list[Run]:
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
    return [Run(_tables(setting, title, method, seed, flips, idle)) for seed in setting.seeds]


def malicious(scale: Scale, seed: int) -> list[int]:
    """Return the clients with flipped labels, the same in all runs of a seed."""
    count = round(scale.malicious * scale.clients)
    return sorted(np.random.default_rng(seed).permutation(scale.clients)[:count].tolist())


def _tables(
    setting: Setting, title: str, method: Method, seed: int, flips: bool, idle: bool
) -> dict[str, Any]:
    dataset, partition = DECLARED.split(title)
    scale = scale_on(setting, title)
    source = setting.source(scale.data[dataset])
    clients = {**partition, "n": scale.clients, "seed": seed, "with_validation": 0.2}
    clients |= {} if dataset == "femnist" else {"split_seed": seed, "match_test": "disjoint"}
    clients |= {"flip_labels": malicious(scale, seed)} if flips else {}
    passive = {"passive": malicious(scale, seed)} if idle else {}
    evaluation = {"every": 1, "on": ["own_test", "own_val"], "before_exchange": True}
    if "fine_tune_epochs" in method.more:
        evaluation["fine_tune_every"] = scale.tuned_every
    # In the first round of these methods all clients train for twice the epochs.
    prepares = method.name in ("dpfl", "random_collaboration")
    tables = {
        "data": {**source, **clients},
        "algorithm": method.table(scale) | passive,
        "model": dict(scale.model),
        "run": {"rounds": scale.rounds + (not prepares), "seed": seed},
        "evaluation": evaluation,
        "compute": {"device": setting.device},
    }
    return with_options(tables, scale.options)


def tab01(setting: Setting, *titles: str) -> Arms:
    """Return the arms of all methods, on the given splits or on all."""
    panels = {}
    for title in splits_of(setting, *titles):
        budgets = budgets_of(scale_on(setting, title))
        methods = BASELINES | {label: of_budget(budget) for label, budget in budgets.items()}
        panels[title] = {label: arm(setting, title, method) for label, method in methods.items()}
    return panels


def _grid(setting: Setting, title: str, name: str, values: Sequence[int], default: int) -> Arms:
    """Return the arms of DPFL with every budget and several values of an argument."""

    def method(budget: int | None, value: int) -> Method:
        changed: dict[str, Any] = {} if value == default else {name: value}
        return of_budget(budget, **changed)

    return {
        title: {
            f"{label}; {value}": arm(setting, title, method(budget, value))
            for value in values
            for label, budget in budgets_of(scale_of(setting)).items()
        }
        for title in splits_of(setting, title)
    }


def tab02(setting: Setting) -> Arms:
    """Return the arms of DPFL with several numbers of epochs in the first round."""
    scale = scale_of(setting)
    return _grid(setting, PATHO, "first_epochs", scale.first_epochs, 2 * scale.epochs)


def tab03(setting: Setting) -> Arms:
    """Return the arms of DPFL with several refresh periods."""
    return _grid(setting, DIR, "every", scale_of(setting).periods, 1)


def fig03(setting: Setting) -> Arms:
    """Return the arms of DPFL and of random graphs, for every finite budget."""
    budgets = {k: budget for k, budget in budgets_of(scale_of(setting)).items() if budget}
    methods = {label: of_budget(budget) for label, budget in budgets.items()}
    methods |= {f"{k}, random": of_budget(b, "random_collaboration") for k, b in budgets.items()}
    return {
        title: {label: arm(setting, title, method) for label, method in methods.items()}
        for title in splits_of(setting, DIR)
    }


def learned(setting: Setting, *places: int) -> Arms:
    """Return the arms of DPFL whose learned graphs are shown.

    `places` select budgets by position, or the smallest if there are fewer; by default all.
    """
    labels = list(budgets_of(scale_of(setting)))
    wanted = {labels[min(place, len(labels) - 1)] for place in places or range(len(labels))}
    return {
        title: {label: panel[label] for label in labels if label in wanted}
        for title, panel in tab01(setting, DIR).items()
    }


def learned_with(*places: int) -> Callable[[Setting], Arms]:
    """Return a function that gives the :func:`learned` graphs of some budgets."""
    return lambda setting: learned(setting, *places)


def flips(setting: Setting, *, idle: bool) -> Arms:
    """Return the arms of DPFL with flipped labels of some clients, which only send if idle."""
    return {
        title: {"DPFL": arm(setting, title, of_budget(None), flips=True, idle=idle)}
        for title in splits_of(setting, DIR)
    }


def malicious_senders(setting: Setting) -> Arms:
    """Return the arms of DPFL with malicious clients that only send."""
    return flips(setting, idle=True)


def malicious_choosers(setting: Setting) -> Arms:
    """Return the arms of DPFL with malicious clients that also choose peers."""
    return flips(setting, idle=False)
