"""Callbacks that log a run to a file, a terminal, TensorBoard, Weights & Biases or MLflow.

Each function returns a callback for ``topofl.run(..., callbacks=[...])``. Trackers log the numbers
of :func:`scalars` with the number of completed rounds as the step. Their packages are optional, and
imported when the callback is created, so that a missing one is noticed before training.
"""

from topofl.callbacks.event import Callback, Event, scalars
from topofl.callbacks.logs import jsonl, text
from topofl.callbacks.trackers import mlflow, tensorboard, wandb

__all__ = ["Callback", "Event", "jsonl", "mlflow", "scalars", "tensorboard", "text", "wandb"]
