"""Stored runs: one folder each, found by a hash of all that determines their results; sweeps."""

from topofl.runs.execute import dask_executor, ray_executor, slurm_executor
from topofl.runs.plan import integers, log_uniform, random_points, uniform
from topofl.runs.probe import planned
from topofl.runs.record import curves_of
from topofl.runs.store import Failure, RunStore, StoredRun
from topofl.runs.sweep import Best, Sweep, SweepInterrupted, search, sweep

__all__ = [
    "Best",
    "Failure",
    "RunStore",
    "StoredRun",
    "Sweep",
    "SweepInterrupted",
    "curves_of",
    "dask_executor",
    "integers",
    "log_uniform",
    "planned",
    "random_points",
    "ray_executor",
    "search",
    "slurm_executor",
    "sweep",
    "uniform",
]
