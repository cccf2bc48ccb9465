"""Callbacks that log a run to TensorBoard, Weights & Biases or MLflow."""

import json
import time
from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from typing import Any

from topofl._support.public import public
from topofl.callbacks.event import Callback, Event, as_json, scalars

__all__ = ["mlflow", "tensorboard", "wandb"]


@public
def tensorboard(folder: str | PathLike[str]) -> Callback:
    """Return a callback that writes scalars for TensorBoard, and the run's settings as text.

    Numbers are stored as float32. Files are flushed at every event except rounds. A resumed run
    replaces the rounds after its checkpoint; a new run replaces an older one in the folder.

    Parameters
    ----------
    folder
        One folder per run; show it with ``tensorboard --logdir FOLDER``.

    Raises
    ------
    ImportError
        If the package tensorboard is missing.

    Examples
    --------
    >>> callback = tensorboard("runs/ring")  # doctest: +SKIP
    """
    library = _library("torch.utils.tensorboard", "tensorboard")
    writer = None

    def callback(event: Event) -> None:
        nonlocal writer
        if event.kind == "start":
            resumed = int(event.values.get("resumed_at", 0))
            writer = library.SummaryWriter(str(folder), purge_step=resumed + 1 if resumed else 0)
            writer.add_text("settings", _markdown(event.values), resumed)
        if writer is None:
            return
        for name, value in scalars(event).items():
            writer.add_scalar(name, value, event.round)
        if event.kind != "round":
            writer.flush()
        if _final_status(event):
            writer = writer.close()

    return callback


@public
def wandb(project: str, **options: Any) -> Callback:
    """Return a callback that logs to Weights & Biases, with the run's settings as config.

    Parameters
    ----------
    project
        Name of the project.
    **options
        Arguments of ``wandb.init``, such as ``mode="offline"`` or ``name="ring, seed 0"``. With an
        ``id`` and ``resume="allow"``, a resumed run continues the same W&B run; rounds that W&B
        already has stay unchanged.

    Raises
    ------
    ImportError
        If the package wandb is missing.

    Examples
    --------
    >>> callback = wandb("topologies", mode="offline", name="ring, seed 0")  # doctest: +SKIP
    """
    library = _library("wandb", "wandb")
    run = None

    def callback(event: Event) -> None:
        nonlocal run
        if event.kind == "start":
            config = as_json(event.values) | options.get("config", {})
            run = library.init(
                **{"project": project, "reinit": "create_new"} | options | {"config": config}
            )
        if run is None:
            return
        if numbers := scalars(event):
            run.log(numbers, step=event.round)
        if ending := _final_status(event):
            run = run.finish(exit_code=int(ending != "FINISHED"))

    return callback


@public
def mlflow(
    experiment: str,
    *,
    tracking_uri: str | None = None,
    run_id: str | None = None,
    run_name: str | None = None,
) -> Callback:
    """Return a callback that logs to MLflow, with the run's settings as parameters.

    Parameters have names such as ``"settings.local.lr"``. Rounds are sent with the next evaluation,
    or 500 numbers at a time. MLflow's active run is not changed.

    Parameters
    ----------
    experiment
        Name of the experiment, which is created if it does not exist.
    tracking_uri
        Address of the server or store; None: MLflow's own setting.
    run_id
        MLflow run to continue, for a resumed run; rounds that it already has are not logged again.
        None: a new MLflow run.
    run_name
        Name of a new run; None: MLflow chooses one.

    Raises
    ------
    ImportError
        If the package mlflow is missing.

    Examples
    --------
    >>> callback = mlflow("topologies", run_name="ring, seed 0")  # doctest: +SKIP
    """
    library = _library("mlflow", "mlflow")
    client = library.MlflowClient(tracking_uri)
    run = None
    waiting = []
    logged = {}

    def callback(event: Event) -> None:
        nonlocal run, logged
        if event.kind == "start":
            run = _mlflow_run(client, experiment, run_id, run_name)
            logged = _mlflow_start(library, client, run, event.values)
        if run is None:
            return
        now = int(1000 * time.time())
        numbers = {
            name: value
            for name, value in scalars(event).items()
            if event.round > logged.get(name, -1)
        }
        waiting.extend(
            library.entities.Metric(name, value, now, event.round)
            for name, value in numbers.items()
        )
        if waiting and (event.kind != "round" or len(waiting) >= 500):
            client.log_batch(run, metrics=waiting[:])
            waiting.clear()
        if ending := _final_status(event):
            run = client.set_terminated(run, status=ending)

    return callback


def _mlflow_run(client: Any, experiment: str, run_id: str | None, run_name: str | None) -> str:
    """Return the id of an MLflow run, which is created or set to running again."""
    if run_id is not None:
        client.update_run(run_id, status="RUNNING")
        return run_id
    known = client.get_experiment_by_name(experiment)
    place = known.experiment_id if known else client.create_experiment(experiment)
    return client.create_run(place, run_name=run_name).info.run_id


def _mlflow_start(library: Any, client: Any, run: str, values: Mapping[str, Any]) -> dict[str, int]:
    """Log missing settings to a run, and return the last round of each of its metrics."""
    known = client.get_run(run).data
    # MLflow limits the lengths of names and values, and parameters per call.
    flat = {name[:250]: str(value)[:6000] for name, value in _flattened(values).items()}
    params = [
        library.entities.Param(name, value)
        for name, value in flat.items()
        if name not in known.params
    ]
    for start in range(0, len(params), 100):
        client.log_batch(run, params=params[start : start + 100])
    return {
        name: max(metric.step for metric in client.get_metric_history(run, name))
        for name in known.metrics
    }


def _final_status(event: Event) -> str | None:
    """Return the MLflow status of a run that ends with this event; None if it continues."""
    if event.kind == "divergence" and event.values.get("policy") == "raise":
        return "FAILED"
    return {"end": "FINISHED", "interrupt": "KILLED"}.get(event.kind)


def _library(module: str, package: str) -> Any:
    """Return an imported module, or raise ``ImportError`` that says how to install its package."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"`{package}` needs a missing package ({error}); install it with pip install {package}"
        ) from error


def _flattened(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested dictionaries as a single one with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= (
            _flattened(value, f"{above}{name}.")
            if isinstance(value, Mapping)
            else {f"{above}{name}": value}
        )
    return flat


def _markdown(values: Mapping[str, Any]) -> str:
    """Return `values` as a Markdown code block."""
    return "\n".join(f"    {line}" for line in json.dumps(as_json(values), indent=2).splitlines())
