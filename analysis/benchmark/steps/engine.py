"""The engine's training steps: the time of each round of a run without evaluation."""

import time
from typing import Any

import numpy as np
import torch

import topofl
from topofl import data
from topofl.callbacks import Event

from ..cases import Case, setting


def engine_steps(
    case: Case,
    clients: data.Partition,
    rounds: int,
    device: torch.device,
    executor: str = "auto",
    **options: Any,
) -> tuple[list[float], topofl.History]:
    """Return the seconds of each of `rounds` rounds without evaluation, and the history of the run.

    The first round of the run is a warm-up and is not timed.
    """
    graph, algorithm = setting(case, clients)
    stamps = []

    def stamp(event: Event) -> None:
        if event.kind == "round":
            if device.type == "cuda":
                torch.cuda.synchronize()
            stamps.append(time.perf_counter())

    history = topofl.run(
        algorithm,
        model=case.network.build(),
        clients=clients,
        topology=graph,
        rounds=rounds + 2,
        seed=0,
        evaluation=topofl.Evaluation(every=rounds + 2, nodes=1, examples=1),
        compute=topofl.Compute(device=device, executor=executor, precision=case.precision),
        callbacks=[stamp],
        progress=False,
        **options,
    )
    seconds = [float(second) for second in np.diff(stamps)]
    return seconds[:rounds], history  # the last round also evaluates
