"""The methods of DPFL's table 1, as tables of :mod:`topofl.config`, and how each is judged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .settings import Scale

END, TRAINED, TUNED, NEAREST = "", "before_exchange", "fine_tuned", "knn"
"""Evaluation stages: end of a round, after training, after fine-tuning, with nearest neighbors."""


@dataclass(frozen=True)
class Method:
    """One row of table 1.

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
    stage: str
    more: Mapping[str, Any] = field(default_factory=dict)
    chosen_by: str | None = None

    @property
    def chosen_at(self) -> str:
        """Stage whose validation accuracy selects each client's best round."""
        return self.stage if self.chosen_by is None else self.chosen_by

    @property
    def prepares(self) -> bool:
        """Whether the first round is preprocessing with twice the epochs."""
        return self.name in ("dpfl", "random_collaboration")

    @property
    def is_tuned(self) -> bool:
        """Whether models are fine-tuned before they are tested."""
        return "fine_tune_epochs" in self.more

    def table(self, scale: Scale) -> dict[str, Any]:
        """Return the method's ``[algorithm]`` table."""
        table = {
            "name": self.name,
            "lr": scale.lr,
            "batch_size": scale.batch_size,
            "momentum": scale.momentum,
        }
        table |= {"weight_decay": scale.weight_decay, "epochs": scale.epochs}
        passes = {"once": scale.epochs, "twice": 2 * scale.epochs}
        return table | {key: passes.get(value, value) for key, value in self.more.items()}


BASELINES: Mapping[str, Method] = {
    "Local": Method("local_only", END, {"reset_momentum": True}),
    "FedAvg": Method("fedavg", END, {"fine_tune_epochs": "twice"}),
    "FedAvg+FT": Method(
        "fedavg", TUNED, {"fine_tune_epochs": "twice"}, chosen_by=END
    ),  # the same run
    "FedProx": Method("fedprox", END, {"strength": 0.1, "fine_tune_epochs": "twice"}),
    "FedProx+FT": Method(
        "fedprox", TUNED, {"strength": 0.1, "fine_tune_epochs": "twice"}, chosen_by=END
    ),
    "APFL": Method("apfl", TRAINED),
    "PerFedAvg": Method("per_fedavg", TUNED, {"inner_lr": 0.01, "fine_tune_epochs": 1}),
    "Ditto": Method("ditto", END, {"strength": 0.75, "personal_epochs": "once"}),
    "FedRep": Method("fedrep", TRAINED),
    "kNN-Per": Method("knn_per", NEAREST, {"k": 10, "weight": 0.5}),
    "pFedGraph": Method("pfedgraph", TRAINED, {"strength": 0.8, "regulariser": 0.01}),
}
"""Methods by label, in the order of table 1; all clients participate in every round."""


def budget_label(share: float | None) -> str:
    """Return the label of DPFL with a budget given as a share of the clients."""
    return "DPFL" if share is None else f"DPFL, {share:g} n"


def of_budget(budget: int | None, **more: Any) -> Method:
    """Return DPFL with a budget and further arguments."""
    return Method("dpfl", TRAINED, ({} if budget is None else {"budget": budget}) | more)


def collaborating(budget: int) -> Method:
    """Return averaging over a random graph, the control for DPFL's choices."""
    return Method("random_collaboration", TRAINED, {"budget": budget})


METHODS = tuple(BASELINES)
