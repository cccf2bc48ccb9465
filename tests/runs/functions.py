"""Functions of points that tests sweep over; importable by other processes."""

from typing import Any

import torch
from torch import Tensor, nn

import topofl
from topofl import algorithms, data, models, topologies

CLIENTS = {"per_node": 2}


def arguments(point: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of ``topofl.run``."""
    seed = point.get("seed", 0)
    clients = data.shards(data.digits(), n=4, per_node=2, seed=seed)
    return {
        "algorithm": algorithms.dsgd(lr=point["lr"]),
        "model": models.logistic_regression(64),
        "clients": clients,
        "topology": topologies.ring(4),
        "rounds": 2,
        "seed": seed,
    }


def tables(point: dict[str, Any]) -> dict[str, Any]:
    """Return configuration tables."""
    return {
        "data": {"name": "digits", "n": 4, "seed": point.get("seed", 0)},
        "topology": "ring",
        "algorithm": {"name": "dsgd", "lr": point["lr"]},
        "run": {"rounds": 2, "seed": point.get("seed", 0)},
    }


def wrong(point: dict[str, Any]) -> Any:
    """Return neither."""
    return topofl if point["lr"] else {**arguments({"lr": 0.1}), "rond": 3}


class Scaled(nn.Module):
    """Scales its inputs by a parameter that runs do not draw."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


def network(first: str) -> nn.Module:
    """Return a network whose first layer has values that runs do not draw."""
    frozen = nn.Linear(64, 64).requires_grad_(False)
    layers = {"frozen": frozen, "no reset": Scaled()}
    return nn.Sequential(nn.Flatten(), layers[first], nn.Linear(64, 10))
