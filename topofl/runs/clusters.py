"""Executors of clusters, for the argument `executor` of a sweep."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topofl._support.check import shown
from topofl._support.optional import imported

__all__ = ["RayExecutor", "dask_executor", "ray_executor", "slurm_executor"]


@dataclass(frozen=True, eq=False)
class RayExecutor:
    """Submits calls as tasks of Ray, which repeats those of killed processes elsewhere.

    Parameters
    ----------
    options
        Options of ``ray.remote``, such as ``{"num_gpus": 0.5}``.
    """

    options: Mapping[str, Any] = field(default_factory=dict)

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Start a call, and return its future."""
        ray = _package("ray", "ray")
        return ray.remote(fn).options(**self.options).remote(*args).future()


def ray_executor(**options: Any) -> RayExecutor:
    """Return an executor of the cluster of Ray that this process is connected to.

    Parameters
    ----------
    **options
        Options of ``ray.remote`` per run, such as ``num_cpus=2``.

    Raises
    ------
    ModuleNotFoundError
        If Ray is not installed.
    ValueError
        If ``ray.init`` was not called.

    Examples
    --------
    >>> RayExecutor({"num_cpus": 2}).options  # as ray_executor(num_cpus=2) returns after ray.init()
    {'num_cpus': 2}
    """
    if not _package("ray", "ray").is_initialized():
        raise ValueError("`ray_executor` must be called after ray.init(), which connects to Ray")
    return RayExecutor({"num_cpus": 1, **options})


def dask_executor(address: str) -> Any:
    """Return an executor of the Dask cluster with this scheduler, such as ``tcp://host:8786``.

    A client of Dask can be given to a sweep itself, too.

    Raises
    ------
    ModuleNotFoundError
        If Dask is not installed.
    OSError
        If the scheduler cannot be reached.

    Examples
    --------
    >>> dask_executor("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: `address` must be such as tcp://host:8786, got 'nowhere'
    """
    if "://" not in address:
        raise ValueError(f"`address` must be such as tcp://host:8786, got {shown(address)}")
    return _package("distributed", "dask").Client(address, timeout=10).get_executor()


def slurm_executor(folder: str, *, cluster: str | None = None, **parameters: Any) -> Any:
    """Return an executor that submits runs as Slurm arrays, by submitit.

    Parameters
    ----------
    folder
        Folder for submitit's scripts and logs, on a shared file system.
    cluster
        ``"local"`` starts processes of this machine instead; None: Slurm.
    **parameters
        Parameters of ``submitit.AutoExecutor``, such as ``timeout_min=60`` and
        ``slurm_array_parallelism=50``.

    Raises
    ------
    ModuleNotFoundError
        If submitit is not installed.
    ValueError
        If this machine has no Slurm, or a parameter is unknown.

    Examples
    --------
    >>> slurm_executor("logs", cluster="local", timeout_min=60)  # doctest: +SKIP
    """
    submitit = _package("submitit", "slurm")
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster or "slurm")
    except RuntimeError as error:  # as submitit raises it
        raise ValueError(
            "`cluster` must be 'local' on a machine without the commands of Slurm, got "
            f"{shown(cluster)}: {error}"
        ) from error
    try:
        executor.update_parameters(**parameters)
    except (NameError, TypeError) as error:  # as submitit raises them
        raise ValueError(f"submitit: {error}") from error
    return executor


def _package(name: str, extra: str) -> Any:
    """Return a module of a cluster, or raise with the extra of topofl that installs it."""
    return imported(name, extra, "`executor`", name=f"the package {name}")
