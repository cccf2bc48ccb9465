"""Figure 2 of PFedDST: models of one client's peers, tested on its data while PFedDST trains."""

import json
import zlib
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure as Picture
from torch.func import functional_call

import topofl
from topofl import callbacks, config

from ..kit.figure import Data
from ..kit.personalization.arms import arm, scale_of, splits_of
from ..kit.setting import Setting
from ..kit.training.store import Store
from .settings import CIFAR_10, OURS


def peer_accuracies(setting: Setting, store: Store) -> Data:
    """Return, per seed and round, accuracies of a client's and its peers' models on its data."""
    (title,) = splits_of(setting, CIFAR_10)
    return {
        "seeds": [
            _of_one_client(json.dumps(run.tables), scale_of(setting).neighbors)
            for run in arm(setting, title, OURS)
        ]
    }


@lru_cache(maxsize=8)
def _of_one_client(tables: str, k: int) -> dict[str, list[Any]]:
    """Train again and record the accuracies; cached for both panels of the figure."""
    experiment = config.build(json.loads(tables))
    clients, model = experiment.clients, experiment.model
    client, found = 0, {"own": [], "random": [], "near": []}
    indices = list(clients.test[client])
    inputs, labels = clients.dataset.examples(indices), clients.dataset.labels[indices]

    def accuracy(models: Any, i: int) -> float:
        parameters = {name: view[i] for name, view in zip(models.shapes, models.views, strict=True)}
        with torch.no_grad():
            logits = functional_call(model, parameters, (inputs.to(models.flat.device),))
        return 100 * float((logits.argmax(1).cpu() == labels).float().mean())

    def look(event: callbacks.Event) -> None:
        if event.kind != "round":
            return
        models, others = event.models, [i for i in range(clients.n) if i != client]
        chosen = {
            "random": random_stream(experiment.options["seed"], event.round)
            .permutation(others)[:k]
            .tolist()
        }
        chosen["near"] = nearest(models, client, k)
        found["own"].append(accuracy(models, client))
        for name, nodes in chosen.items():
            found[name].append([accuracy(models, i) for i in nodes])

    experiment.run(progress=False, callbacks=[look])
    return found


def random_stream(seed: int, round: int) -> np.random.Generator:
    """Return a round's generator of random peers, a pure function of seed and round."""
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(b"peers"), 1, round))
    return np.random.Generator(np.random.Philox(sequence))


def nearest(models: Any, client: int, k: int) -> list[int]:
    """Return the k other nodes whose heads are most like that of a client, by cosine."""
    heads = torch.cat(
        [models.flat[:, part] for part in models.columns(topofl.algorithms.head)], dim=1
    ).double()
    cosines = torch.nn.functional.cosine_similarity(heads, heads[client : client + 1])
    cosines[client] = -torch.inf
    return cosines.topk(k).indices.tolist()


def draw_peers(kind: str) -> Any:
    """Return a function that draws a panel of figure 2, of the first seed: accuracies per round."""

    def draw(data: Data) -> Picture:
        seed = data["seeds"][0]
        picture = Picture(figsize=(6.4, 3.0), layout="constrained")
        ax = picture.subplots()
        rounds = np.arange(1, len(seed["own"]) + 1)
        for t, values in zip(rounds, seed[kind], strict=True):
            ax.plot([t] * len(values), values, "_", color="#D55E00", markersize=4, alpha=0.7)
        ax.plot(
            rounds,
            [np.mean(values) for values in seed[kind]],
            color="#D55E00",
            label="models of selected peers",
        )
        ax.plot(rounds, seed["own"], color="#009E73", label="its own model")
        ax.set(xlabel="round", ylabel="accuracy on client 0's images, %", ylim=(0, 100))
        ax.spines[["top", "right"]].set_visible(False)
        picture.legend(loc="outside lower center", ncols=2, fontsize=8)
        return picture

    return draw
