"""DFedPGP, PFedDST and the methods compared with them, as tables of :mod:`topofl.config`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .settings import Scale

GRAPHS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "undirected": ("random_regular_sequence", {"name": "metropolis_hastings"}),
    "pull": ("random_in", {"name": "uniform", "direction": "pull"}),
    "push": ("random_out", {"name": "uniform", "direction": "push"}),
}
"""Topology and mixing weights of each kind of graph; all graphs are drawn anew every round."""


@dataclass(frozen=True)
class Method:
    """One row of the paper's tables.

    Parameters
    ----------
    name
        Name of the function in :mod:`topofl.algorithms`.
    over
        A key of :data:`GRAPHS`, ``"server"``, ``"peers"`` (chosen by clients), or ``"nothing"``.
    parts
        Whether the head is trained separately, with the learning rate `head_lr` of the scale.
    fine_tuned
        Whether models are fine-tuned before they are tested.
    more
        Further arguments; the name of a setting of the scale (``"neighbors"``, ``"lr"``) is
        replaced with its value.
    """

    name: str
    over: str
    parts: bool = False
    fine_tuned: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    def table(
        self, scale: Scale, *, epochs: Any = None, neighbors: int | None = None
    ) -> dict[str, Any]:
        """Return the method's ``[algorithm]`` table.

        Parameters
        ----------
        scale
            Scale of the experiment.
        epochs
            Epochs per round, one number for all clients or a list; None: those of the scale.
        neighbors
            Number of clients that a server samples; None: that of the scale.
        """
        table = {
            "name": self.name,
            "batch_size": scale.batch_size,
            "momentum": scale.momentum,
            "lr": scale.lr,
        }
        table |= {
            "lr_decay": scale.lr_decay,
            "weight_decay": scale.weight_decay,
            "clip": scale.clip,
        }
        table |= self._passes(scale, scale.epochs if epochs is None else epochs)
        if self.over == "server":
            table["participation"] = neighbors or scale.neighbors
        if self.parts:
            table |= {"head_lr": scale.head_lr, "head_epochs": scale.head_epochs}
        of_scale = {
            "rounds": scale.rounds,
            "epochs": scale.epochs,
            "neighbors": scale.neighbors,
            "lr": scale.lr,
        }
        return table | {key: of_scale.get(value, value) for key, value in self.more.items()}

    def _passes(self, scale: Scale, epochs: Any) -> dict[str, Any]:
        if self.name != "ditto":
            return {"epochs": epochs}
        common, personal = scale.ditto
        passes = {"epochs": common, "personal_epochs": personal}
        if not isinstance(epochs, list):
            return passes
        return {
            key: [max(1, round(e * part / (common + personal))) for e in epochs]
            for key, part in passes.items()
        }


def _tuned(name: str) -> Method:
    return Method(name, "server", fine_tuned=True, more={"fine_tune_epochs": "epochs"})


SCORE: Mapping[str, Any] = {"standardize": True, "alpha": 1.0, "recency_rate": 0.3, "cost": 1.0}
"""Constants of PFedDST's score, which its paper does not give; both terms are scaled to 0 to 1."""


METHODS: Mapping[str, Method] = {
    "Local": Method("local_only", "nothing", more={"reset_momentum": True}),
    "FedAvg": _tuned("fedavg"),
    "FedPer": _tuned("fedper"),
    "FedRep": replace(_tuned("fedrep"), parts=True),
    "FedBABU": _tuned("fedbabu"),
    "Ditto": Method("ditto", "server"),
    "DFedAvgM": Method("dfedavgm", "undirected"),
    "OSGP": Method("osgp", "push"),
    "Dis-PFL": Method("dispfl", "pull", more={"dense_ratio": 0.5, "rounds": "rounds"}),
    "DFedPGP": Method("dfedpgp", "pull", parts=True, more={"mode": "pull"}),
    "DFedAvgM-P": Method("dfedavgm_p", "undirected", parts=True),
    "PFedDST": Method(
        "pfeddst", "peers", parts=True, more={"k": "neighbors", "head_lr": "lr", **SCORE}
    ),
}
"""Methods by label, in the order of table 1, followed by a method of table 4 and PFedDST.

OSGP pushes without a delay, which makes it SGP with local epochs; DFedPGP pulls, as in the paper's
experiments. In Dis-PFL all clients share the initial mask, and weights regrow by gradients; its
authors' scripts do neither.
"""


def graph_tables(method: Method, neighbors: int, seed: int) -> dict[str, dict[str, Any]]:
    """Return the ``[topology]`` and ``[mixing]`` tables of a method; empty without a graph."""
    if method.over not in GRAPHS:
        return {}
    name, weights = GRAPHS[method.over]
    return {"topology": {"name": name, "k": neighbors, "seed": seed}, "mixing": dict(weights)}
