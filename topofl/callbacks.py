"""Callbacks that log a run to a file, a terminal, TensorBoard, Weights & Biases or MLflow.

Each function returns a callback for ``topofl.run(..., callbacks=[...])``. Trackers log the numbers
of :func:`scalars` with the number of completed rounds as the step. Their packages are optional, and
imported when the callback is created, so that a missing one is noticed before training.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from numbers import Integral, Real
from os import PathLike
from typing import Any, TextIO

from topofl._support.check import check_int, check_path, shown
from topofl._support.files import naming
from topofl._support.public import public
from topofl._support.text import printable


@dataclass(frozen=True, eq=False)
class Event:
    """An event of a run, the argument of callbacks.

    Parameters
    ----------
    kind
        ``"start"``, ``"round"``, ``"evaluation"``, ``"checkpoint"``, ``"divergence"``,
        ``"interrupt"`` or ``"end"``.
    round
        Number of completed rounds.
    values
        JSON values, except that numbers may be NaN or infinite. ``seconds`` of a round include its
        evaluation. Those of a divergence name the node and, if the graph has labels, its ``label``.
    models
        All nodes' models, or None; ``models.flat``, (n, d), must only be read or copied.

    Examples
    --------
    >>> def print_loss(event: Event) -> None:  # for topofl.run(..., callbacks=[print_loss])
    ...     if event.kind == "round":
    ...         print(f"round {event.round}: loss {event.values['train_loss']:.2f}")
    >>> print_loss(Event("start", 0, {"seed": 0}))
    >>> print_loss(Event("round", 1, {"train_loss": 2.5}))
    round 1: loss 2.50
    """

    kind: str
    round: int
    values: Mapping[str, Any]
    models: Any = None


__all__ = ["Callback", "Event", "jsonl", "mlflow", "scalars", "tensorboard", "text", "wandb"]


Callback = Callable[[Event], None]
"""Function that is called with each event of a run, in order, in the thread of the run.

The example of :class:`Event` defines one.
"""


@public
def scalars(event: Event) -> dict[str, float]:
    """Return the finite numbers of an event by ``"kind/name"``, for trackers.

    The event ``"start"`` has none, since its values are settings.

    Examples
    --------
    >>> scalars(Event("round", 3, {"train_loss": 0.5, "messages": 12, "seconds": float("nan")}))
    {'round/train_loss': 0.5, 'round/messages': 12.0}
    """
    if event.kind == "start":
        return {}
    return {
        f"{event.kind}/{name}": float(value)
        for name, value in event.values.items()
        if isinstance(value, Real) and name != "round" and math.isfinite(value)
    }


def _as_json(value: Any) -> Any:
    """Return a value as strict JSON: null for NaN, lists for arrays, text for other objects."""
    if isinstance(value, Mapping):
        return {str(name): _as_json(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(entry) for entry in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return _as_json(value.tolist()) if hasattr(value, "tolist") else str(value)


_LINE_START = b'{"time": "'
"""Start of every line of a log."""


@public
def jsonl(path: str | PathLike[str]) -> Callback:
    """Return a callback that appends one JSON object per event to a file.

    Its keys are ``time`` (UTC, ISO 8601), ``kind``, ``round`` and ``values``; NaN and infinite
    numbers are null. Every line is written immediately, so that the file can be followed and
    survives a crash. A resumed run appends, starting with a ``start`` event that has
    ``resumed_at``; if a round occurs twice, the later one counts.

    Parameters
    ----------
    path
        The file; its parent folders are created. An incomplete last line, for example after the
        disk was full, is removed.

    Raises
    ------
    FileExistsError
        If there is a file that is not such a log.
    OSError
        If it cannot be written, when the callback is created, or later if the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = jsonl(f"{folder}/log.jsonl")
    ...     log(Event("round", 1, {"train_loss": 2.5}))
    ...     print(Path(folder, "log.jsonl").read_text().partition(", ")[2].strip())
    "kind": "round", "round": 1, "values": {"train_loss": 2.5}}
    """
    path = check_path("path", path, "file")
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path), path.open("a+b") as file:
        file.seek(0)
        if not _LINE_START.startswith(file.read(len(_LINE_START))):
            raise FileExistsError(
                f"`path` must be new or an older log, got {path} with other contents; name another"
            )
        file.seek(0)  # an incomplete last line is removed
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))

    def callback(event: Event) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        record = {"time": now, "kind": event.kind, "round": event.round, "values": event.values}
        line = json.dumps(_as_json(record), allow_nan=False).encode() + b"\n"
        with naming(path), path.open("ab", buffering=0) as file:
            if file.write(line) != len(line):
                raise OSError(f"{path} could not be written completely: is the disk full?")

    return callback


@public
def text(stream: TextIO | None = None, *, every: int | None = None) -> Callback:
    """Return a callback that prints one line per event, for the logs of batch jobs.

    Parameters
    ----------
    stream
        An open text file; None: standard error.
    every
        Also print every `every`-th round; None: print all events except rounds.

    Raises
    ------
    ValueError, TypeError
        If `every` is not a positive integer, or `stream` not a file.

    Examples
    --------
    >>> log = text(sys.stdout, every=10)
    >>> log(Event("round", 10, {"train_loss": 2.5}))
    round 10 round: train_loss 2.5
    """
    every = None if every is None else check_int("every", every, minimum=1)
    if stream is not None and not callable(getattr(stream, "write", None)):
        raise TypeError(
            f"`stream` must be an open file, such as sys.stdout, or None, got {shown(stream)}"
        )

    def callback(event: Event) -> None:
        if event.kind == "round" and (every is None or event.round % every):
            return
        shown_values = [
            f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {printable(str(value))}"
            for name, value in event.values.items()
            if isinstance(value, Real | str)
        ]
        line = f"round {event.round} {event.kind}: {', '.join(shown_values)}"
        print(line, file=stream or sys.stderr, flush=True)

    return callback


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

    def start(values: Mapping[str, Any]) -> Any:
        resumed = int(values.get("resumed_at", 0))
        writer = library.SummaryWriter(str(folder), purge_step=resumed + 1 if resumed else 0)
        settings = json.dumps(_as_json(values), indent=2).splitlines()
        writer.add_text("settings", "\n".join(f"    {line}" for line in settings), resumed)
        return writer

    def log(writer: Any, event: Event) -> None:
        for name, value in scalars(event).items():
            writer.add_scalar(name, value, event.round)
        if event.kind != "round":
            writer.flush()

    return _tracker(start, log, lambda writer, ending: writer.close())


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

    def start(values: Mapping[str, Any]) -> Any:
        config = {"config": _as_json(values) | options.get("config", {})}
        return library.init(**{"project": project, "reinit": "create_new"} | options | config)

    def log(run: Any, event: Event) -> None:
        if numbers := scalars(event):
            run.log(numbers, step=event.round)

    return _tracker(start, log, lambda run, end: run.finish(exit_code=int(end != "FINISHED")))


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
    waiting: list[Any] = []
    logged: dict[str, int] = {}

    def start(values: Mapping[str, Any]) -> str:
        run = run_id
        if run is None:
            known = client.get_experiment_by_name(experiment)
            place = known.experiment_id if known else client.create_experiment(experiment)
            run = client.create_run(place, run_name=run_name).info.run_id
        else:
            client.update_run(run, status="RUNNING")
        logged.clear()
        logged.update(_mlflow_start(library, client, run, values))
        return run

    def log(run: str, event: Event) -> None:
        now = int(1000 * time.time())
        waiting.extend(
            library.entities.Metric(name, value, now, event.round)
            for name, value in scalars(event).items()
            if event.round > logged.get(name, -1)
        )
        if waiting and (event.kind != "round" or len(waiting) >= 500):
            client.log_batch(run, metrics=waiting[:])
            waiting.clear()

    return _tracker(start, log, lambda run, ending: client.set_terminated(run, status=ending))


def _mlflow_start(library: Any, client: Any, run: str, values: Mapping[str, Any]) -> dict[str, int]:
    """Log missing settings to a run, and return the last round of each of its metrics."""
    known = client.get_run(run).data
    # MLflow limits the lengths of names and values, and parameters per call.
    flat = {name[:250]: str(value)[:6000] for name, value in _flattened(values).items()}
    new = {name: value for name, value in flat.items() if name not in known.params}
    params = [library.entities.Param(name, value) for name, value in new.items()]
    for start in range(0, len(params), 100):
        client.log_batch(run, params=params[start : start + 100])
    return {
        name: max(metric.step for metric in client.get_metric_history(run, name))
        for name in known.metrics
    }


def _tracker(
    start: Callable[[Mapping[str, Any]], Any],
    log: Callable[[Any, Event], None],
    finish: Callable[[Any, str], Any],
) -> Callback:
    """Return a callback that starts a tracker's run, logs events to it, and ends it by a status."""
    run = None

    def callback(event: Event) -> None:
        nonlocal run
        if event.kind == "start":
            run = start(event.values)
        if run is None:
            return
        log(run, event)
        ending = {"end": "FINISHED", "interrupt": "KILLED"}.get(event.kind)
        if event.kind == "divergence" and event.values.get("policy") == "raise":
            ending = "FAILED"
        if ending:
            finish(run, ending)
            run = None

    return callback


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
        is_nested = isinstance(value, Mapping)
        flat |= _flattened(value, f"{above}{name}.") if is_nested else {f"{above}{name}": value}
    return flat
