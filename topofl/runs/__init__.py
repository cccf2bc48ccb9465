"""Stored runs: one folder each, found by a hash of all that determines their results; sweeps."""

from topofl.runs.best import Best
from topofl.runs.clusters import dask_executor, ray_executor, slurm_executor
from topofl.runs.curves import curves_of
from topofl.runs.dry import planned
from topofl.runs.points import integers, log_uniform, random_points, uniform
from topofl.runs.records import Failure
from topofl.runs.search import search
from topofl.runs.stored import RunStore, StoredRun
from topofl.runs.sweep import Sweep, SweepInterrupted, sweep

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
