"""A leaderboard of topologies and methods on frozen tasks.

A task fixes everything but graph, weights and method; an entry states these. Learning rates are
chosen by the task's rule. See the page :doc:`Leaderboard </docs/leaderboard>`.
"""

from topofl.leaderboard.entries import Entry, Task, read_entries, tasks
from topofl.leaderboard.page import build, ranks
from topofl.leaderboard.results import Diverged, Result, read_results, run_entry

__all__ = [
    "Diverged",
    "Entry",
    "Result",
    "Task",
    "build",
    "ranks",
    "read_entries",
    "read_results",
    "run_entry",
    "tasks",
]
